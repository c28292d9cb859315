"""Each tolerance of `check` at work: something just below it, and the same just above it.

The two are apart by less than ten times, so that a tolerance ten times as large, or as small, gives
one of them the other answer.
"""

import pytest
import torch
from made_evidence import measured as made
from made_evidence import rows, seen
from made_functions import codes, cubic, message, of_inputs, saving
from test_check import measured

from double_backward import (
    SecondDerivativeError,
    detect_intermediates,
    diagnose,
    recompute_intermediates,
)
from double_backward.check import Outcome, by_element, check, is_symmetric, size
from double_backward.diagnosis.conclusions.findings import concluded
from double_backward.diagnosis.conclusions.report import shares_text
from double_backward.diagnosis.preparation.formulas import Row
from double_backward.differences import Slope
from double_backward.eigenvectors import turn_of

X = torch.tensor([0.5, 1.0, -1.3], dtype=torch.float64, requires_grad=True)
SINGLE = X.detach().float().requires_grad_()
OTHER = (0.7 * SINGLE.detach()).requires_grad_()


def detached(part):
    """x**3, whose backward lacks a part of its derivative."""
    return cubic(lambda g, x: g * 3 * x**2 * (1 - part) + g * 3 * x.detach() ** 2 * part)


def off(factor):
    """x**3 with a first derivative that is off, and is differentiated as it is."""
    return cubic(lambda g, x: g * 3 * (1 + factor) * x**2)


def scattering(by, around=0.0):
    """The same, off to both sides; or to one, around a factor."""
    return cubic(lambda g, x: g * 3 * x**2 * (1 + by * (around + torch.cos(2 * x))))


def by_size(factor):
    """x**3, whose backward gives more of a large grad_out."""
    return cubic(lambda g, x: g * 3 * x**2 * (1 + factor * (g.detach().abs() > 100)))


def bent(slope):
    """3 x, whose backward has a slope of its own, and no change."""
    return of_inputs(lambda x: 3 * x, lambda g, x: g * (3 + slope * (x - x.detach()))).apply


def in_steps(x):
    """x**3 to three places, and the derivative of x**3."""
    return of_inputs(
        lambda x: (x**3 / 1e-3).round() * 1e-3, lambda g, x: g * 3 * x**2
    ).apply(x)  # fmt: skip


def other_in_float32(factor):
    return lambda x: x**3 * (1 + factor) if x.dtype is torch.float32 else x**3 + 0


def verdict(fn, x=X, **tolerances):
    return str(diagnose(fn, x, **tolerances).verdict)


def advised(code):
    """How the second sentence of a finding begins."""
    return lambda fn: message(diagnose(fn, X), code).split(". ")[1][:6]


def raises(remedy, fn, *inputs):
    try:
        with remedy():
            torch.autograd.grad(fn(*inputs).sum(), inputs[0], create_graph=True)[0].sum().backward()
    except SecondDerivativeError:
        return True
    return False


def kept(factor):
    """sinh, which keeps cosh, with a first derivative that is off."""
    return saving(torch.sinh, torch.cosh, lambda g, cosh: g * cosh * (1 + factor))


def lost_in_float32(size):
    """a² + size a b, whose backward takes b for a constant where it is in float32."""

    def backward(g, a, b):
        kept = b.detach() if b.dtype is torch.float32 else b
        return g * (2 * a + size * kept), g * size * a

    return of_inputs(lambda a, b: a * a + size * a * b, backward).apply


def rounded(of_change, of_answer):
    """What is said of 2 % that are lost, where rounding leaves so much."""
    expected = measured(detached(0.02))
    change = of_change * expected.by_input.value.abs()
    return check(expected.with_rounding(change, torch.tensor([of_answer]))).by_input.outcome


def by_another_way(of, off):
    """Elements of this size, beside 1, that another way of asking gives otherwise."""
    change = torch.full((2,), of, dtype=torch.float64)
    none = torch.zeros_like(change)
    return by_element(Slope(change, none, none), change + off, 1e-4, 1.0)[0]


def known_by_element(of, error, share=1.0):
    """What is said of elements of this size that are off, where such a share is known so well."""
    change = torch.full((10,), of, dtype=torch.float64)
    errors = torch.where(torch.arange(10) < 10 * share, error, 1e9).double()
    return by_element(Slope(change, errors, torch.zeros_like(change)), change + 10, 1e-4, 1.0)[0]


def shares(rest):
    row = Row(Outcome.WRONG, expected=3.086, got=2.543)
    found = {"F": {"a": 0.3258 / (1 + rest), "b": 0.2172 / (1 + rest)}}
    return "elsewhere" if "elsewhere" in shares_text(row, found) else "all"


def tells(bend):
    return measured(lambda x: x + bend * x**2).tells


def halves_apart(by):
    return is_symmetric(torch.tensor([[1.0, 0.5], [0.5 + by, 0.2]]))


def a_zero_beside(element):
    """Whether a zero is moved in proportion to this element too, beside 1."""
    return bool(size(torch.tensor([1.0, element, 0.0]))[2] > 0.1)


def judged_to(resolution):
    """Whether it is said how large an error would not have been seen."""
    _, found = concluded(seen(made(second=rows(resolution=resolution, resolution_of_one=0.01))))
    return "judged_roughly" in [finding.code for finding in found]


def nearly_one(by):
    """Whether the axes are taken for eigenvectors of diag(1, 1 + by), and not of any matrix."""
    axes = torch.eye(2, dtype=torch.complex128)
    return turn_of([axes * torch.tensor([1, 1 + by])], [axes]) is not None


RIGHT, WRONG, UNCLEAR = Outcome.RIGHT, Outcome.WRONG, Outcome.UNCLEAR
SUPPORTED, SILENT, FIRST, SURROGATE, NOT_CHECKED = (
    "supported", "silently_wrong", "first_derivative_wrong", "surrogate_gradient", "not_checked",
)  # fmt: skip
DIFFERS, INEXACT = "first_derivative_differs", "inexact_first_derivative"
ROWS = {  # what is asked; just below, just above; the two answers
    "FOLLOWED": (lambda k: verdict(detached(k)), 5e-6, 2e-5, SUPPORTED, SILENT),
    "FOLLOWED, float32": (lambda k: verdict(detached(k), SINGLE), 1e-5, 5e-5, SUPPORTED, SILENT),
    "ATOL": (lambda k: verdict(bent(k)), 3e-10, 2e-9, SUPPORTED, SILENT),
    "SURROGATE": (lambda k: advised(DIFFERS)(off(k)), 0.08, 0.13, "If fn ", "If you"),
    "NOISE": (lambda k: verdict(scattering(k)), 0.015, 0.03, NOT_CHECKED, SURROGATE),
    "NOISE, one side": (lambda k: verdict(scattering(k, 1.5)), 6e-3, 0.01, NOT_CHECKED, SURROGATE),
    "INEXACT": (lambda k: advised(INEXACT)(scattering(k)), 1.5e-3, 3e-3, "So the", "If fn "),
    "LINEAR": (lambda k: verdict(by_size(k)), 5e-5, 2e-4, SUPPORTED, FIRST),
    "COARSE": (lambda k: verdict(in_steps, rtol=k), 5e-4, 2e-3, SURROGATE, NOT_CHECKED),
    "OTHER_CODE": (lambda k: codes(diagnose(other_in_float32(k), SINGLE)), 4e-3, 0.03, [],
                   ["computes_in_float32"]),
    "ROUGH": (lambda k: raises(recompute_intermediates, kept(k), X), 0.015, 0.03, False, True),
    "LOST": (lambda k: raises(detect_intermediates, lost_in_float32(k), SINGLE, OTHER),
             2e-3, 1e-2, False, True),
    "ROUNDED": (lambda k: rounded(k, 0.0), 3e-4, 1e-3, WRONG, RIGHT),
    "SCATTER": (lambda k: rounded(0.0, k), 1e-2, 3e-2, WRONG, RIGHT),
    "BY_OTHERS": (lambda k: by_another_way(1.0, k), 1e-3, 4e-3, RIGHT, WRONG),
    "BY_OTHERS, of 0": (lambda k: by_another_way(0.0, k), 5e-7, 3e-6, RIGHT, WRONG),
    "COUNTS": (lambda k: known_by_element(1.0, k), 0.06, 0.2, WRONG, UNCLEAR),
    "UNCHANGED": (lambda k: known_by_element(0.0, k), 5e-9, 3e-8, WRONG, UNCLEAR),
    "SHARE": (lambda k: known_by_element(1.0, 0.0, k), 0.4, 0.6, UNCLEAR, WRONG),
    "LEFT": (shares, 5e-5, 3e-4, "all", "elsewhere"),
    "TELLS": (tells, 1e-7, 5e-7, False, True),
    "HALVES": (halves_apart, 5e-6, 3e-5, True, False),
    "TOLD": (judged_to, 5e-4, 3e-3, False, True),
    "MASK": (a_zero_beside, 5e3, 2e4, True, False),
    "TIMES_ONE": (nearly_one, 5e-4, 3e-3, False, True),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_what_is_just_below_a_tolerance_and_just_above_it_differ(name):
    asked, below, above, *answers = ROWS[name]
    assert above < 10 * below
    assert [asked(below), asked(above)] == answers
