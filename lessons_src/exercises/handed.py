"""What forward hands to ctx by a method, such as save_for_backward, and what became of it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from unittest.mock import patch

import torch
from torch.autograd.function import FunctionCtx

from .reply import readers_line


@dataclass
class Handed:
    """A tensor that forward handed over, a copy as it was then, and the line."""

    tensor: torch.Tensor
    copy: torch.Tensor
    where: str

    @property
    def edited(self) -> bool:
        return not torch.equal(torch.nan_to_num(self.tensor), torch.nan_to_num(self.copy))


@contextmanager
def handed_to(method: str) -> Iterator[list[Handed]]:
    """List of `Handed`, filled while forward calls this method of ctx."""
    found: list[Handed] = []
    original = getattr(FunctionCtx, method)

    def noting(ctx, *tensors):
        where = readers_line(sys._getframe(1))
        found.extend(
            Handed(t.detach(), t.detach().clone(), where)
            for t in tensors
            if isinstance(t, torch.Tensor)
        )
        return original(ctx, *tensors)

    with patch.object(FunctionCtx, method, noting):
        yield found


def edited_afterwards(call) -> str:
    """What to say if forward, in this call, edits a tensor that it handed to save_for_backward."""
    with handed_to("save_for_backward") as found:
        call()
    for each in found:
        if each.edited:
            return (
                "forward edits a tensor that it handed to save_for_backward before "
                f"({each.where}), and backward gets the edited one. Make a new tensor instead."
            )
    return ""


def marked_as_constant(call) -> str:
    """What to say if forward, in this call, marks the result as non-differentiable."""
    with handed_to("mark_non_differentiable") as found:
        out = call()
    for each in found:
        if each.tensor.data_ptr() == out.data_ptr():
            return f"It ends here: {each.where} makes a constant of it. Take that line out."
    return ""
