"""Is the first derivative that of the values: along a direction and, where it differs, by parts."""

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from double_backward.check import Outcome
from double_backward.differences import Slope, flat, slope, vjp

from .judge import NOISE, SURROGATE, TOLERANCE, Row, judge, limits_of_first, scatters
from .settings import Probe, Reported

ONE_BY_ONE = 16  # elements; with more, parts of the inputs are compared
AROUND = 0.0, 0.07, -0.05  # how far from the point an inexact first derivative is looked at
BENDS = {  # steps of second differences
    torch.float64: (1e-2, 2e-2),
    torch.float32: (1e-1, 2e-1),
    torch.bfloat16: (3e-1, 5e-1),
}


def judge_first(
    probe: Probe,
    gradient: Tensor,
    dy: Slope,
    a: Slope,
    dtype: torch.dtype,
    rounding: Tensor | None = None,
) -> Row:
    """First derivative against values: along d and, where that differs, part by part.

    One that is inexact is right where it scatters as noise does, and where its own derivative `a`
    is that of the values' all the same.
    """
    target = probe.target
    if not (gradient.isfinite().all() and flat(probe.y0).isfinite().all()):
        return Row(Outcome.NOT_FINITE)
    of_gradient = None if rounding is None else rounding[len(flat(probe.y0)) :]
    whole = _change_of_loss(probe, gradient, dy, probe.d, of_gradient)
    expected, got, _, _, terms = whole
    close = TOLERANCE[dtype] if target.rtol is None else target.rtol
    if (expected - got).abs() <= close * terms + target.atol:
        return _judge_parts([whole], target.place)
    names, parts = _parts(target)
    compared = _by_parts(probe, parts, dtype, rounding)
    row = _judge_parts(compared, names)
    if rounding is not None and row.outcome is Outcome.RIGHT:
        row = replace(row, relative=_beyond(compared))
    if row.outcome is not Outcome.RIGHT or row.relative <= max(close, 10 * TOLERANCE[dtype]):
        return row
    if row.error is not None and row.error <= target.atol:
        return row
    deviations = [_deviations(probe, parts, dtype, shift) for shift in AROUND]
    apart = torch.cat(deviations)
    noise = dtype is not torch.float64 or apart.abs().max() <= NOISE
    if noise and scatters(apart) and _bends_alike(probe, a, dtype):
        return row
    off = deviations[0].abs()
    worst = int((off >= 0.99 * off.max()).nonzero()[0])  # the first of those that are alike
    expected, got, _, likely, _ = compared[worst].tolist()
    shown = Row(Outcome.WRONG, row.error, row.relative, expected, got, names(worst))
    return replace(shown, uncertain=likely)


def inexact_by(probe: Probe, dtype: torch.dtype) -> tuple[float, Tensor]:
    """By how much the first derivative is off, relative, in the part of the inputs where that is
    most, and the size of the second, all parts together: what they add up to may be far smaller."""
    found = list(_along_parts(probe, _parts(probe.target)[1], dtype))
    return _beyond([row for row, _ in found]), sum(a.value.abs() for _, a in found)


def _beyond(compared):
    """The largest relative error, less what differences may be off by."""
    expected, got, error, _, terms = torch.stack(compared).T
    beyond = ((expected - got).abs() - 5 * error).clamp(min=0) / terms.clamp(min=1e-30)
    return beyond.max().item()


def _change_of_loss(probe, gradient, dy, along, rounding=None):
    """Expected, got, error, likely error and size of the change of the loss along a direction."""
    w = flat(probe.w)
    a, b = w * dy.value, gradient * along
    own = 0.0 if rounding is None else (rounding * along).norm()
    errors = (w * dy.error).norm() + own, (w * dy.likely).norm() + own
    sizes = a.norm(), b.norm(), a.sum().abs(), b.sum().abs()
    return torch.stack([a.sum(), b.sum(), *errors, max(sizes)])


def _bends_alike(probe, a, dtype):
    """Whether the second derivative that follows from a first one that is not exact is near that of
    the values, along d. True where that cannot be told."""

    def loss(h):
        ys = flat(probe.target.start(shift=h * probe.d).ys)
        return (flat(probe.w) * ys).sum()

    along, here = (a.value * probe.d).sum(), loss(0.0)
    steps = [h * probe.target.scale for h in BENDS[dtype]]
    try:
        first, second = ((loss(h) - 2 * here + loss(-h)) / h**2 for h in steps)
    except Exception:  # of fn, beside the point
        return True
    size = max(first.abs(), along.abs())
    told = (first - second).abs() <= NOISE * size
    return not told or bool((first - along).abs() <= SURROGATE * size)


def _by_parts(probe, parts, dtype, rounding=None):
    return [row for row, _ in _along_parts(probe, parts, dtype, rounding)]


def _along_parts(probe, parts, dtype, rounding=None):
    """For each part, the change of the loss and that of the first derivative."""
    call = probe.target.start()
    gradient, n = vjp(call.ys, call.t, probe.w, probe.by_backward), len(flat(probe.y0))
    for part in parts:
        along = probe.d * part
        at = partial(probe.values_and_gradient, along)
        both = slope(at, dtype, probe.target.scale, rounding)
        dy, a = Slope(*(v[:n] for v in both)), Slope(*(v[n:] for v in both))
        of_gradient = None if rounding is None else rounding[n:]
        yield _change_of_loss(probe, gradient, dy, along, of_gradient), a


def _deviations(probe, parts, dtype, shift):
    """How far the first derivative is off, part by part, in proportion to the terms.

    Positive where it is too large, so that a wrong factor is the same for both signs.
    """
    target = probe.target
    steps = [shift * target.scale * torch.ones_like(x) for x in target.point]
    moved = replace(probe, target=target.at(target.point_at(steps)))
    try:
        compared = _by_parts(moved, parts, dtype)
    except Exception:  # of fn, which has no value there
        return torch.empty(0, dtype=torch.float64)
    expected, got, _, _, terms = torch.stack(compared).T
    too_large = (got - expected) * expected.sign()
    return (too_large / terms.clamp(min=1e-30)).nan_to_num(0.0, 0.0, 0.0)


def _parts(target):
    """Where a part is, as a function of its number, and the masks of the parts."""
    sizes = [x.numel() for x in target.point]
    n, parts_each = sum(sizes), max(1, ONE_BY_ONE // len(sizes))
    if n <= ONE_BY_ONE:
        return target.place, [torch.arange(n) == k for k in range(n)]
    parts = [torch.arange(size) % parts_each + k * parts_each for k, size in enumerate(sizes)]
    index = torch.cat(parts)
    masks = [index == k for k in range(int(index.max()) + 1)]
    return lambda k: target.names[k // parts_each], masks


def _judge_parts(rows, place):
    expected, got, error, likely, terms = torch.stack(rows).T
    reported_parts = Reported(got, torch.zeros_like(got, dtype=torch.bool))
    truth = Slope(expected, error, likely)
    return judge(reported_parts, truth, limits_of_first(terms, error), place)
