"""Judging: which differences count, and what a row says of them."""

import pytest
import torch

from double_backward.check import Outcome
from double_backward.diagnosis.judge import (
    SURROGATE,
    TOLERANCE,
    judge,
    limits_of_first,
    limits_of_second,
)
from double_backward.diagnosis.settings import Reported
from double_backward.differences import Slope

DOUBLE = torch.float64
NAN, INF = float("nan"), float("inf")


def vector(*values):
    return torch.tensor(values, dtype=DOUBLE)


def reported(*values, missing=None, text=""):
    got = vector(*values)
    return Reported(got, torch.tensor(missing or [False] * len(got)), text)


def row(got, truth, error=None, sizes=None, tolerance=1e-4):
    """Judged as a second derivative, each number being its only term."""
    truth = vector(*truth)
    error = torch.full_like(truth, 1e-9) if error is None else vector(*error)
    gradient = torch.ones_like(truth)
    limits = limits_of_second(truth.abs(), error, gradient, sizes or [len(truth)], tolerance)
    return judge(got, Slope(truth, error, error / 10), limits, lambda i: f"x[{i}]")


def test_right():
    found = row(reported(1.0, -2.0), (1.0, -2.0))
    assert (found.outcome, found.error, found.zero) == (Outcome.RIGHT, 0.0, False)


def test_just_inside_and_just_outside_the_tolerance():
    # Scale: the number itself and the root mean square of its input, together 2.
    assert row(reported(1 + 1.5e-4), (1.0,)).outcome is Outcome.RIGHT
    assert row(reported(1 + 2.5e-4), (1.0,)).outcome is Outcome.WRONG
    assert row(reported(1 - 2.5e-4), (1.0,)).outcome is Outcome.WRONG


def test_the_tolerance_is_the_one_given():
    assert row(reported(1.1), (1.0,), tolerance=TOLERANCE[torch.float32]).outcome is Outcome.WRONG
    assert row(reported(1.1), (1.0,), tolerance=0.1).outcome is Outcome.RIGHT


def test_a_wrong_row_shows_the_first_of_the_worst():
    found = row(reported(1.0, 2.001, 9.0, 9.0), (1.0, 2.0, 3.0, 3.0))
    assert (found.outcome, found.where) == (Outcome.WRONG, "x[2]")
    assert (found.expected, found.got, found.error) == (3.0, 9.0, 6.0)
    assert found.uncertain == 1e-10
    assert found.relative == pytest.approx(6 / (3 + (23 / 4) ** 0.5 + 1e-2), rel=1e-6)


def test_an_element_that_is_nearly_as_bad_comes_first():
    assert row(reported(2.0, 9.0), (1.0, 3.0)).where == "x[0]"
    assert row(reported(1.5, 9.0), (1.0, 3.0)).where == "x[1]"


def test_a_wrong_number_tells_more_than_one_that_is_missing():
    found = row(reported(0.0, 2.0, missing=[True, False], text="not used"), (5.0, 3.0))
    assert (found.outcome, found.where) == (Outcome.WRONG, "x[1]")


def test_missing_where_it_should_not_be_raises():
    found = row(reported(0.0, 3.0, missing=[True, False], text="not used"), (5.0, 3.0))
    assert (found.outcome, found.where, found.text) == (Outcome.RAISES, "x[0]", "not used")


def test_missing_where_nothing_was_expected_is_right():
    found = row(reported(0.0, 3.0, missing=[True, False], text="not used"), (0.0, 3.0))
    assert (found.outcome, found.text) == (Outcome.RIGHT, "")  # the text is about one input
    found = row(reported(0.0, missing=[True], text="no grad"), (0.0,))
    assert (found.outcome, found.text, found.zero) == (Outcome.RIGHT, "no grad", True)


def test_an_error_raises():
    found = row(Reported(None, text="no"), (1.0,))
    assert (found.outcome, found.text, found.error) == (Outcome.RAISES, "no", None)


def test_not_finite_comes_before_wrong():
    for value in (NAN, INF):
        found = row(reported(7.0, value), (1.0, 2.0))
        assert (found.outcome, found.where) == (Outcome.NOT_FINITE, "x[1]")


def test_what_cannot_be_trusted_is_unclear():
    found = row(reported(1.0), (1.0,), error=(10.0,))
    assert (found.outcome, found.error) == (Outcome.UNCLEAR, None)


def test_half_of_it_trusted_is_enough():
    found = row(reported(1.0, 5.0), (1.0, 1.0), error=(1e-9, 10.0))
    assert (found.outcome, found.error) == (Outcome.RIGHT, 0.0)


def test_a_doubtful_element_does_not_excuse_another():
    # The doubtful one is large, yet it is no part of the scale of the input.
    found = row(reported(1.1, 1e6), (1.0, 1e6), error=(1e-9, 1e9))
    assert (found.outcome, found.where) == (Outcome.WRONG, "x[0]")


def test_noise_excuses_five_times_the_error():
    # The error of an element and the median together: 5 * (0.01 + 0.01) on top of the tolerance.
    assert row(reported(1.09), (1.0,), error=(0.01,)).outcome is Outcome.RIGHT
    assert row(reported(1.12), (1.0,), error=(0.01,)).outcome is Outcome.WRONG


def test_each_input_has_its_own_scale():
    # Beside 1e6 in one input, 1 may be off by a tenth; as an input of its own it is judged as such.
    got, truth = reported(1e6, 1.05), (1e6, 1.0)
    assert row(got, truth, sizes=[2]).outcome is Outcome.RIGHT
    assert row(got, truth, sizes=[1, 1]).where == "x[1]"
    assert row(reported(1e6, 1.5), truth, sizes=[2]).where == "x[1]"


def test_zero():
    assert row(reported(0.0), (0.0,)).zero
    assert not row(reported(1.0), (1.0,)).zero


def test_small_against_the_gradient_counts_as_noise():
    # The gradient is 1: a second derivative of 1e-7 beside an expected 0 is not held against it.
    assert row(reported(1e-7), (0.0,)).outcome is Outcome.RIGHT
    assert row(reported(1e-4), (0.0,)).outcome is Outcome.WRONG


def first(got, truth, error=1e-9, terms=None):
    truth = vector(truth)
    terms = truth.abs() if terms is None else vector(terms)
    limits = limits_of_first(terms, vector(error))
    return judge(reported(got), Slope(truth, vector(error), vector(error)), limits, str).outcome


def test_first_derivative_is_a_surrogate_from_a_tenth_on():
    assert first(1 + 0.9 * SURROGATE, 1.0) is Outcome.RIGHT
    assert first(1 + 1.1 * SURROGATE, 1.0) is Outcome.WRONG


def test_first_derivative_is_small_against_its_terms():
    assert first(0.05, 0.0, terms=1.0) is Outcome.RIGHT  # terms of 1 cancel
    assert first(0.05, 0.0) is Outcome.WRONG


def test_outcomes_are_words():
    assert Outcome.NOT_FINITE == "not finite"
    assert {str(outcome) for outcome in Outcome} == {
        "right",
        "wrong",
        "raises",
        "not finite",
        "not asked",
        "unclear",
    }
