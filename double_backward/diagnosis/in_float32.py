"""What autograd says in float32, as fn was given, beside what it says in float64."""

from dataclasses import replace

import torch
from torch import Tensor

from double_backward.check import SURROGATE, Outcome

from .measure import Measured
from .rows import Row
from .settings import Probe, Reported, Setting, reported
from .target import Target


def as_given(measured: Measured, given: Target) -> dict[Setting, Row]:
    """The settings in which autograd says something else in float32, as given, than in float64.

    Some Functions have another kernel for each. Both are in the same units, and what float32 rounds
    away counts for nothing.
    """
    probe, rows = measured.probe, {}
    ys = [y.detach() for y in given.start().ys]
    w = tuple(v.to(y.dtype) for v, y in zip(probe.w, ys, strict=True))
    single = replace(probe, target=given, w=w, y0=tuple(ys))
    size = _size_inside(single)
    for setting in Setting:
        got, right = reported(single, setting), measured.said[setting]
        if right.vector is None or right.first is None:
            continue
        if got.vector is None:
            rows[setting] = Row(Outcome.RAISES, text=got.text, raised_in=got.raised_in)
            continue
        rounding = _rounding_of_second(right, size)
        off = ((got.vector - right.vector).abs() - rounding).clamp(min=0)
        allowed = SURROGATE * right.vector.norm() + 1e-3 * right.first.norm()
        if got.first is not None and off.norm() > allowed:
            i = int(off.abs().argmax())
            numbers = right.vector[i].item(), got.vector[i].item()
            rows[setting] = Row(Outcome.WRONG, None, 0.0, *numbers, probe.target.place(i))
    return rows


def _size_inside(probe: Probe) -> float:
    """Of the numbers that fn computes with: of its outputs, of its inputs or 1."""
    largest = max([1.0, *(x.abs().max().item() for x in probe.target.point if x.numel())])
    each = zip(probe.w, probe.y0, strict=True)
    sizes = [
        v.abs().max().item() * max(y.abs().max().item(), largest) for v, y in each if y.numel()
    ]
    return max(sizes)


def _rounding_of_second(right: Reported, size: float) -> Tensor:
    """What float32 may be off by where outputs of this size change by little.

    A relative rounding `eps` of what it computes with, where that changes on a length of
    first / second: the sigmoid of 17 is 1 to float32, and its derivative 0.
    """
    assert right.vector is not None and right.first is not None
    per_length = right.vector / right.first.abs().clamp(min=1e-300)
    return 16 * torch.finfo(torch.float32).eps * size * per_length.square() + 1e-30
