"""Finds the first operation whose derivative is not finite, and its line."""

import math
import re
import warnings
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch
from torch import Tensor

from double_backward._torch import metadata_of
from double_backward.check import LEFT_OF_ZERO, Outcome
from double_backward.differences import shaped
from double_backward.failures import raise_if_gone, unless_gone
from double_backward.graphs import walk
from double_backward.places import OURS, Place, innermost

from ..measurements.measure import Measured
from ..preparation.formulas import Setting, with_leaves_for_weights

FRAME = re.compile(r'File "(.+)", line (\d+), in (.+)')
CHOOSES = {"WhereBackward0", "MaskedFillBackward0", "MaskedScatterBackward0", "IndexPutBackward0"}
SIDES = 1e-2, 1e-3  # steps
LIKE_SQUARES, LIKE_STEPS = 30.0, 5.0  # least ratios of two differences; 100 and 10 are expected
OLDER = 9  # how many operations are gone back, each of which made the next in its backward


class Here(StrEnum):
    """What the values of fn say of a derivative at the point."""

    SMOOTH = "smooth"  # there is a derivative, although the formula does not give it
    KINK = "kink"
    STEEP = "steep"  # or fn ends here
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Broken:
    """An operation that is given finite gradients, and returns gradients that are not finite."""

    name: str  # torch's name, "SqrtBackward0", or that of the class of a Function
    where: str  # its line, "" where none of the reader's is known
    masked: bool = False  # fn contains an operation such as where, which may not use this number
    here: Here = Here.UNKNOWN


def broken(measured: Measured) -> Broken | None:
    """The operation that is to blame; None if all is finite, or none is found."""
    orders = (1, {Setting.ALONE: measured.first}), (2, measured.second), (3, measured.third)
    rows = ((order, setting, row) for order, rows in orders for setting, row in rows.items())
    lost = (row[:2] for row in rows if row[2].outcome is Outcome.NOT_FINITE)
    probe, (order, setting) = measured.probe, next(lost, (0, Setting.ALONE))
    if measured.grad_out_not_finite:
        probe, order = with_leaves_for_weights(probe), 2
    if not order or probe.by_backward:
        return None
    with unless_gone():  # of fn
        node = _first(probe, order, setting)
        masked = bool(CHOOSES & {node.title for node in walk.walk(*probe.target.start().ys).nodes})
        return node and Broken(node.title, _line_of(node.fn), masked, _here(probe))
    return None


def _here(probe):
    """`Here`, by how much the two sides of the point differ for a step and for a smaller one: the
    difference shrinks like the step squared where fn is smooth, like the step at a kink, and by
    less where fn is steep."""
    middle = probe.loss(probe.target.start().ys).item()

    def sides(h):
        up, down = (
            probe.loss(probe.target.start(shift=probe.target.uneven_step(by)).ys).item()
            for by in (h, -h)
        )
        return abs(up - 2 * middle + down)

    try:
        wide, near = map(sides, SIDES)
    except Exception as error:  # of fn, beside the point
        raise_if_gone(error)
        return Here.STEEP
    if not math.isfinite(wide + near):
        return Here.STEEP
    if near <= LEFT_OF_ZERO[torch.float64] * abs(middle) or near * LIKE_SQUARES < wide:
        return Here.SMOOTH
    return Here.KINK if near * LIKE_STEPS < wide else Here.STEEP


def _first(probe, order, setting):
    """The first node of the last pass that returns something that is not finite."""
    # Anomaly mode notes where each operation is called; its warnings are of no use here.
    with warnings.catch_warnings(action="ignore"), torch.autograd.set_detect_anomaly(True, False):
        t, _, ys = probe.target.start(setting.before, leaves=order > 1)
        scalar = probe.loss(ys, setting.after)
        for _ in range(order - 1):
            grads = torch.autograd.grad(scalar, t, create_graph=True, allow_unused=True)
            along = zip(grads, shaped(probe.d, t), strict=True)
            scalar = sum(((g * s).sum() for g, s in along if g is not None), torch.zeros(()))
        found: list[walk.Node] = []
        for node in walk.walk(scalar).nodes:
            node.fn.register_hook(_watching(node, found))
        wanted = [*t, *(v for v in probe.w if v.requires_grad)]
        torch.autograd.grad(scalar, wanted, allow_unused=True)
    return found[0] if found else None


def _watching(node, found):
    def look(grads: Any, grad_outs: Any) -> None:
        if _finite(grad_outs) and not _finite(grads):
            found.append(node)

    return look


def _finite(things):
    numbers = [t for t in things if isinstance(t, Tensor) and t.layout == torch.strided]
    # A zero tensor that torch has not allocated has no memory: reading it ends the process.
    return all(t.isfinite().all() for t in numbers if t.data_ptr())


def _line_of(fn):
    """The reader's line of an operation, or of the one whose backward has made it."""
    for _ in range(OLDER):
        if fn is None:
            break
        about = metadata_of(fn)
        frames = [FRAME.search(text) for text in about.get("traceback_", ())]
        way = [Place(m[1], int(m[2]), function=m[3]) for m in frames if m]
        called = max((i for i, place in enumerate(way) if place.file.startswith(OURS)), default=-1)
        if place := innermost(way[called + 1 :]):  # without the frames that called this package
            return place.quoted()
        fn = about.get("parent_")
    return ""
