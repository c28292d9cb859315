"""Decides whether a first derivative that is not that of the values is wrong, or only inexact.

A solver that stops early is off by a little, to both sides, and differently at each point; a wrong
factor is off by the same everywhere, and a surrogate by more.
"""

from dataclasses import replace

import torch
from torch import Tensor

from double_backward import check
from double_backward.check import (
    BENDS,
    EXACT,
    NOISE,
    SURROGATE,
    Compared,
    Expected,
    Line,
    Outcome,
)
from double_backward.differences import flat, shaped
from double_backward.failures import raise_if_gone, unless_gone

from ..preparation.formulas import Row
from ..preparation.target import Target

ONE_BY_ONE = 16  # elements; with more, parts of the inputs are compared
AROUND = 0.07, -0.05  # how far away are the other points at which it is compared


def first_row(target: Target, expected: Expected) -> Row:
    """Compare the first derivative with the values, along the line and, where they differ, for each
    part of the inputs."""
    rtol, close = target.rtol, EXACT[expected.dtype] if target.rtol is None else target.rtol
    whole = check.first(expected, close)
    row = Row(whole.outcome, whole.error, whole.off, elements=len(expected.g))
    if whole.outcome not in (Outcome.RIGHT, Outcome.WRONG) or whole.agrees(close):
        return replace(row, zero=not expected.y.value.any())
    parts, names = _parts(target)
    here = _compared(expected, parts, 0.0)
    if whole.outcome is Outcome.RIGHT and not (_beyond(here)[0] > close).any():
        return row
    beyond, off = _beyond(torch.cat([here, *(_compared(expected, parts, by) for by in AROUND)]))
    largest = beyond.max().item()
    slight = expected.dtype is not torch.float64 or off.abs().max() <= NOISE
    noise = rtol is None and slight and largest <= SURROGATE and scatters(off)
    if noise and _bends_alike(expected):
        return Row(Outcome.RIGHT, whole.error, largest)
    here = beyond[: len(parts)]
    i = int((here >= 0.99 * here.max()).nonzero()[0])  # the first of those that are alike
    one = _typed(expected, parts[i])
    about = one.expected, one.got, names(i)
    return Row(Outcome.WRONG, whole.error, 1.0, *about, uncertain=one.error)


def _beyond(compared):
    """The relative error in each part: how much is certain; and how much there is, negative if the
    derivative is too small."""
    true, got, error = compared.T
    size = torch.maximum(true.abs(), got.abs()).clamp(min=check.TINIEST)
    surely = ((got - true).abs() - 5 * error).clamp(min=0) / size
    return surely.nan_to_num(0.0), ((got - true) * true.sign() / size).nan_to_num(0.0, 0.0, 0.0)


def _typed(expected, part):
    """The derivative of the sum of the outputs by a part of the inputs, or, if that is right, of
    the sum with the weights."""
    subject, step = expected.line.subject, flat(expected.line.d).abs()[part].mean()
    d = tuple(shaped(step * part.double(), expected.line.d))

    def asked(u):
        line = Line(replace(subject, u=u), d, (None,) * len(u))
        return check.first(check.measure_values(line, expected))

    one = asked(tuple(map(torch.ones_like, subject.u)))
    if one.outcome is not Outcome.WRONG:
        one = asked(subject.u)
    by_one = (n / step.item() for n in (one.expected, one.got, one.error))
    return Compared(one.outcome, *by_one)


def _compared(expected, parts, shift):
    """The change of <u, y> by each part (expected, got, error) at a point moved by `shift`."""
    line, found = expected.line, []
    x = [x + shift * check.size(x) for x in line.subject.x]
    line = Line(line.subject.at(x), line.d, (None,) * len(line.e))
    for part in parts:
        d = tuple(shaped(flat(line.d) * part, line.d))
        with unless_gone():  # of fn, which has no value there
            one = check.first(check.measure_values(replace(line, d=d), expected))
            found.append([one.expected, one.got, one.error])
    return torch.tensor(found, dtype=torch.float64).view(-1, 3)


def scatters(off: Tensor) -> bool:
    """Whether a first derivative that is not exact is off as an iterative solver's is.

    Args:
        off: relative errors of the parts at several points, positive where the derivative is too
            large. A wrong factor makes all of them alike; a wrong formula makes them large and of
            one sign.
    """
    told = off[off.abs() > 0.1 * off.abs().max()]
    if len(told) < 2:
        return False
    alike = told.max() - told.min() <= 0.2 * told.mean().abs()
    both_sides = bool((told > 0).any() and (told < 0).any())
    return not alike and (both_sides or bool(told.abs().max() <= NOISE))


def _bends_alike(expected):
    """Whether the change of an inexact first derivative is near the second derivative of the
    values, along the line; True where that cannot be told."""
    line = expected.line
    u = flat([u for u in line.subject.u if u is not None])

    def loss(h):
        return (u * flat(line.both(h)[0])).sum()

    along, here = (expected.by_input.value * flat(line.d)).sum(), (u * expected.values).sum()
    try:
        first, second = ((loss(h) - 2 * here + loss(-h)) / h**2 for h in BENDS[expected.dtype])
    except Exception as error:  # of fn, beside the point
        raise_if_gone(error)
        return True
    size = max(first.abs(), along.abs())
    told = (first - second).abs() <= NOISE * size
    return not told or bool((first - along).abs() <= SURROGATE * size)


def _parts(target):
    """The masks of the parts of the inputs, and a function from the number of a part to its
    place."""
    sizes = [x.numel() for x in target.point]
    n, parts_each = sum(sizes), max(1, ONE_BY_ONE // len(sizes))
    if n <= ONE_BY_ONE:
        return [torch.arange(n) == k for k in range(n)], target.place
    parts = [torch.arange(size) % parts_each + k * parts_each for k, size in enumerate(sizes)]
    index = torch.cat(parts)
    masks = [index == k for k in range(int(index.max()) + 1)]
    return masks, lambda k: target.names[k // parts_each]
