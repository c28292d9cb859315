"""Finds the lines that write into a tensor which autograd keeps for the next backward."""

import sys
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from double_backward._torch import EDITED, Watching, version, written_by
from double_backward.failures import unless_gone
from double_backward.places import line_of_code

from ..measurements.measure import Measured
from ..preparation.formulas import reported


@dataclass(frozen=True)
class Written:
    """A tensor that had been changed when a backward used it.

    Attributes:
        kept_in: the line of the operation that keeps it, "" where it is not the reader's.
        lines: the lines that write into it afterwards, in their order.
    """

    kept_in: str
    lines: tuple[str, ...]


class Write(NamedTuple):
    """A write of one operation into a tensor."""

    memory: int
    numbers: bool  # False if only the shape or the memory of the tensor changes: t_(), set_()
    line: str  # the line of code


class Writes(Watching):
    """Notes each `Write`."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Write] = []

    def before(self, operation, args, kwargs):
        for given in written_by(operation, args, kwargs):
            if isinstance(given, Tensor) and given.layout == torch.strided:
                line = line_of_code(sys._getframe(2))
                numbers = torch.Tag.inplace_view not in operation.tags
                self.seen.append(Write(memory(given), numbers, line))


class _Kept(NamedTuple):
    tensor: Tensor
    version: int | None
    written: int  # how much had been written when it was kept
    line: str


def memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def overwritten(measured: Measured) -> Written | None:
    """The tensor that was written into; None if torch raises no error for that, or no line is
    seen."""
    orders = (2, measured.second), (3, measured.third)
    rows = ((order, setting, row) for order, rows in orders for setting, row in rows.items())
    refused = next(((setting, order) for order, setting, row in rows if EDITED in row.text), None)
    if refused is None:
        return None
    writes, edited = Writes(), list[_Kept]()

    def keep(tensor: Tensor) -> _Kept:
        line = line_of_code(sys._getframe(1))
        return _Kept(tensor, version(tensor), len(writes.seen), line)

    def use(kept: Any) -> Tensor:  # with hooks, torch does not check versions
        if version(kept.tensor) != kept.version:
            edited.append(kept)
        return kept.tensor

    with unless_gone(), torch.autograd.graph.saved_tensors_hooks(keep, use), writes:
        reported(measured.probe, *refused)
    for kept in edited:
        later = writes.seen[kept.written :]
        lines = [w.line for w in later if w.line and w.memory == memory(kept.tensor)]
        if lines:
            return Written(kept.line, tuple(dict.fromkeys(lines)))
    return None
