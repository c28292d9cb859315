"""Comparing what autograd reports with finite differences: rows, limits, tolerances."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from double_backward.check import Outcome
from double_backward.differences import Slope

from .settings import Reported

LINEAR = {  # relative, of a backward in grad_out; autocast rounds to 8 bits
    torch.float64: 1e-4,
    torch.float32: 2e-2,
    torch.bfloat16: 5e-2,
}
FACTORS = {  # a clip shows at a large one, what is added at a small one; 16 bits end at 65504
    torch.float64: (-3, 1e4, 1e-4),
    torch.float32: (-3, 1e4, 1e-4),
    torch.bfloat16: (-3, 1e2, 1e-2),
}
TOLERANCE = {torch.float64: 2e-4, torch.float32: 1e-3, torch.bfloat16: 2e-2}  # relative
INEXACT = {torch.float64: 2e-3, torch.float32: 4e-3}  # relative; no closed formula is further off
SURROGATE = 0.1  # a first derivative further off than this is not an inexact solver's
NOISE = 0.02  # one further off than this must scatter to both sides, or it is no noise
ROUNDING = 1e-3  # of the tolerance is what large elements leave in small ones
OWN = 0.1  # of its own size is what an element may be off by, however large the others are


@dataclass(frozen=True)
class Row:
    """One comparison, a line of the report."""

    outcome: Outcome
    error: float | None = None  # the largest, absolute
    relative: float = 0.0  # the same in proportion to the terms
    expected: float = 0.0  # at the element shown
    got: float = 0.0
    where: str = ""
    text: str = ""  # first line of the error that autograd raises
    raised_in: str = ""  # where in the reader's code, "backward, line 7"
    zero: bool = False  # nothing but 0 was expected
    unchecked: int = 0  # elements where finite differences cannot be trusted
    elements: int = 0  # all of them
    of_backward: bool = False  # not compared: the first derivative is not that of forward
    within: float = 0.0  # of most elements: a relative error below this does not show
    uncertain: float = 0.0  # what `expected` may be off by

    def to_dict(self) -> dict[str, object]:
        """Plain values, for JSON."""
        shown = ("outcome", "error", "relative", "expected", "got", "where", "text", "raised_in")
        values = {name: getattr(self, name) for name in shown}
        plain = {k: str(v) if isinstance(v, str) else v for k, v in values.items()}
        broken = [k for k, v in plain.items() if isinstance(v, float) and not math.isfinite(v)]
        return {**plain, **dict.fromkeys(broken)}


@dataclass(frozen=True, eq=False)
class Limits:
    """How far apart two numbers may be, elementwise: tolerance * scale + noise."""

    tolerance: float
    scale: Tensor  # the size of what is added up
    noise: Tensor  # what finite differences are off by
    floor: Tensor  # below this, an error is small whatever the scale is

    def trusted(self, error: Tensor) -> Tensor:
        """Mask: where finite differences are good enough to judge by."""
        return error <= SURROGATE * self.scale + self.floor


def limits_of_first(terms: Tensor, error: Tensor) -> Limits:
    """For a first derivative: inexact solvers and surrogates differ, which is no conviction."""
    floor = 1e-2 * terms + 1e-8
    return Limits(SURROGATE, terms, 5 * error + 1e-4 * floor, floor)


def limits_of_second(
    terms: Tensor, error: Tensor, gradient: Tensor, sizes: list[int], tolerance: float
) -> Limits:
    """For a second derivative, or a third: no element is asked more than its input is.

    Args:
        terms: the size of the terms that a chain rule adds up, flat like the inputs.
        error: what finite differences are off by.
        gradient: the size of the derivative before, against which an error may be small.
        sizes: the number of elements of each input.
        tolerance: relative.
    """
    floor = 1e-2 * gradient + 1e-8
    solid = terms * (error <= SURROGATE * terms + floor)
    rms = torch.cat([p.square().mean().sqrt().expand(len(p)) for p in solid.split(sizes)])
    noise = 5 * (error + error.median()) + 1e-4 * floor
    scale = torch.minimum(terms + rms, OWN / tolerance * terms + ROUNDING * rms)
    return Limits(tolerance, scale, noise, floor)


def scatters(deviations: Tensor) -> bool:
    """Whether a first derivative that is not exact is off as an iterative solver's is.

    Args:
        deviations: relative to the terms, of single elements or parts, at several points. A wrong
            factor makes all of them alike; a wrong formula, large ones of one sign.
    """
    told = deviations[deviations.abs() > 0.1 * deviations.abs().max()]
    mean, spread = told.mean().abs(), told.max() - told.min()
    alike = len(told) < 2 or bool(spread <= 0.2 * mean)
    both_sides = bool((told > 0).any() and (told < 0).any())
    return not alike and (both_sides or bool(told.abs().max() <= NOISE))


def judge(got: Reported, expected: Slope, limits: Limits, place: Callable[[int], str]) -> Row:
    """Compare a vector with finite differences.

    Args:
        got: what autograd reports.
        expected: the truth and its errors.
        limits: how far apart they may be.
        place: where an element is, in words, for the row.
    """
    truth, error, likely = expected
    zero = bool((truth.abs() <= limits.noise).all())
    if got.vector is None:
        return Row(Outcome.RAISES, text=got.text, zero=zero, raised_in=got.raised_in)
    broken = ~got.vector.isfinite()
    off = (got.vector - truth).abs().nan_to_num(0.0)
    wrong = (off > limits.tolerance * limits.scale + limits.noise) & ~broken
    trusted = limits.trusted(error) & ~broken
    sure = bool(trusted.any())
    worst = off[trusted].max().item() if sure else None
    relative = (off / (limits.scale + limits.floor))[trusted].max().item() if sure else 0.0
    count = int((~trusted).sum()), len(trusted)
    if not (broken.any() or wrong.any()):
        text = got.text if got.missing is not None and got.missing.all() else ""
        outcome = Outcome.RIGHT if sure else Outcome.UNCLEAR
        allowed = (limits.tolerance * limits.scale + limits.noise) / (limits.scale + limits.floor)
        within = allowed[trusted].median().item() if sure else 0.0
        return Row(outcome, worst, relative, 0.0, 0.0, "", text, "", zero, *count, within=within)
    i, outcome = _shown(broken, wrong, got.missing, off)
    numbers = truth[i].item(), got.vector[i].item()
    known = Row(outcome, worst, relative, *numbers, place(i), got.text, "", zero, *count)
    return replace(known, uncertain=likely[i].item())


def _shown(broken, wrong, missing, off):
    """The element to show, and what it is: of the worst ones, the first."""
    if broken.any():
        return int(broken.nonzero()[0]), Outcome.NOT_FINITE
    numbers = wrong & ~missing  # a wrong number tells more than one that is not there
    shown = numbers if numbers.any() else wrong
    shown = shown & (off >= 0.1 * off[shown].max())
    i = int(shown.nonzero()[0])
    return i, Outcome.RAISES if missing[i] else Outcome.WRONG
