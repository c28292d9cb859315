"""What autograd is asked in each setting, on formulas whose derivatives are known; and errors."""

import pytest
import torch

from double_backward.diagnosis.preparation.formulas import (
    Probe,
    Setting,
    reported,
    typed,
)
from double_backward.diagnosis.preparation.target import Target
from double_backward.lines import first_line
from double_backward.places import raised_in

ALONE, AFTER, BEFORE, BOTH = Setting


def probe_of(fn, *inputs, w=None, d=None, by_backward=False):
    """With weights and a direction of ones, unless others are given."""
    kinds = [torch.complex128 if isinstance(v[0], complex) else torch.float64 for v in inputs]
    pairs = zip(inputs, kinds, strict=True)
    xs = [torch.tensor(values, dtype=kind, requires_grad=True) for values, kind in pairs]
    target = Target.of(fn, tuple(xs))
    ys = tuple(y.detach() for y in target.start().ys)
    weights = tuple(map(torch.ones_like, ys)) if w is None else tuple(w)
    count = sum(x.numel() for x in target.point)
    direction = torch.ones(count) if d is None else torch.tensor(d)
    return Probe(target, weights, ys, direction.double(), by_backward)


def cube(x):
    return x**3


# y = x**3: y' = 3 x**2, y'' = 6 x. A graph after adds y'**2, one before y'.
SECOND = {ALONE: [3.0, 6.0], AFTER: [3.5625, 15.0], BEFORE: [3.75, 9.0], BOTH: [4.3125, 18.0]}
# Third derivatives, by t at 0: those of z(x + t + t**2/2), with z = y + (y - y0)**2/2.
THIRD = {ALONE: [6.0, 6.0], AFTER: [12.75, 60.0], BEFORE: [15.0, 24.0], BOTH: [23.4375, 105.0]}


@pytest.mark.filterwarnings("ignore:Using backward")
@pytest.mark.parametrize("by_backward", [False, True])
@pytest.mark.parametrize("setting", Setting)
def test_what_autograd_gives_in_each_setting(setting, by_backward):
    probe = probe_of(cube, [0.5, 1.0], by_backward=by_backward)
    got = reported(probe, setting)
    assert got.vector.tolist() == pytest.approx(SECOND[setting])
    assert got.first.tolist() == [0.75, 3.0]
    assert (got.missing.tolist(), got.text, got.raised_in) == ([False, False], "", "")
    assert reported(probe, setting, order=3).vector.tolist() == pytest.approx(THIRD[setting])


# That what a reader is told to type gives the numbers is tried in `test_diagnosis_functions`.


@pytest.mark.parametrize(
    "probe",
    [
        probe_of(cube, [1.0], by_backward=True),
        probe_of(lambda x: torch.complex(x, x), [1.0]),
        probe_of(lambda x: x.to_sparse(), [1.0]),
        probe_of(lambda z: z.real, [1 + 1j]),
        probe_of(cube, [0.5, 1.0], w=[torch.tensor([1e9, 2e9])]),  # outputs far from 1
    ],
    ids=["by backward", "complex output", "sparse output", "complex input", "far from 1"],
)
def test_where_it_takes_more_there_is_no_recipe(probe):
    assert typed(probe) == ""


# Errors.


class Mute(Exception):
    def __str__(self):
        raise ValueError


@pytest.mark.parametrize(
    "error, line",
    [
        (RuntimeError(" one\ntwo"), "one"),
        (RuntimeError(), ""),
        (NotImplementedError("one\ntwo"), "NotImplementedError: one"),
        (KeyError("k"), "KeyError: 'k'"),
        (Mute(), "Mute: "),
    ],
)
def test_an_error_in_one_line(error, line):
    assert first_line(error) == line


def caught(call, *args):
    try:
        call(*args)
    except Exception as error:
        return error


def test_where_an_error_was_raised():
    def outer():
        inner()

    def inner():
        torch.linalg.inv(torch.ones(1))

    assert raised_in(caught(outer)).startswith("inner, line ")
    assert raised_in(RuntimeError("never raised")) == ""
