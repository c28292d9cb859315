"""The operation whose derivative is the first that is not finite, and its line."""

import re
import sys
import warnings
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from double_backward._torch import Watching, metadata_of, tree_leaves
from double_backward.check import Outcome
from double_backward.differences import shaped
from double_backward.graphs import walk
from double_backward.places import OURS, Place, innermost, line_of_code

from .formulas import Setting, with_leaves_for_weights
from .measure import Measured

FRAME = re.compile(r'File "(.+)", line (\d+), in (.+)')
NOTHING = nullcontext()
OLDER = 9  # operations, each made by the backward of the next


@dataclass(frozen=True)
class Broken:
    """An operation that is handed finite gradients, and returns others."""

    name: str  # torch's, "SqrtBackward0", or the class of a Function
    where: str  # its line, "" where none of the reader's is known


class _Operations(Watching):
    """Notes the lines in which finite numbers become others."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.was_finite = True

    def before(self, operation, args, kwargs):
        self.was_finite = _finite(tree_leaves((args, kwargs)))

    def after(self, operation, args, kwargs, result):
        if self.was_finite and not _finite(tree_leaves(result)):
            self.lines.append(line_of_code(sys._getframe(2)))
        return result


def broken(measured: Measured) -> Broken | None:
    """None where all is finite, or no operation is found that is to blame."""
    if measured.grad_out_not_finite:
        with suppress(Exception):  # of fn
            return _found(with_leaves_for_weights(measured.probe), 2, Setting.ALONE)
        return None
    rows = [(1, Setting.ALONE, measured.first)]
    rows += [(2, setting, row) for setting, row in measured.second.items()]
    rows += [(3, setting, row) for setting, row in measured.third.items()]
    for order, setting, row in rows:
        if row.outcome is Outcome.NOT_FINITE and not measured.by_backward:
            with suppress(Exception):  # of fn
                return _found(measured.probe, order, setting)
            return None
    return None


def _found(probe, order, setting):
    node = _first(probe, order, setting)
    if node is None or not node.custom:
        return node and Broken(node.title, _line_of(node.fn))
    operations = _Operations()
    _first(probe, order, setting, operations)
    return Broken(node.title, next(filter(None, operations.lines), "") or _line_of(node.fn))


def _first(probe, order, setting, last=NOTHING):
    """The node of the last pass that is the first to return what is not finite."""
    # Torch notes where each operation is called, and says nothing of it.
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
        with last:
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
    # A zero that torch has not written out has no memory: reading it ends the process.
    return all(t.isfinite().all() for t in numbers if t.data_ptr())


def _line_of(fn):
    """Of an operation in fn, in a backward, or of that whose derivative it is part of."""
    for _ in range(OLDER):
        if fn is None:
            break
        about = metadata_of(fn)
        frames = [FRAME.search(text) for text in about.get("traceback_", ())]
        way = [Place(m[1], int(m[2]), function=m[3]) for m in frames if m]
        called = max((i for i, place in enumerate(way) if place.file.startswith(OURS)), default=-1)
        if place := innermost(way[called + 1 :]):  # none of what called us
            return place.quoted()
        fn = about.get("parent_")
    return ""
