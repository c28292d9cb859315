"""The same inputs with less in them, for what would take too long with all."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from double_backward.calls import copied
from double_backward.phrases import Phrase, joined

LARGE = 20_000  # elements of all inputs together; above, they are cut down
CUT = 3  # to so many along each side


def cut_down(args: list) -> Iterator[list]:
    """The same arguments with less in them, the smallest first.

    Sides of one length stay of one length. Numbers that are the length of a side follow it.
    """
    tensors = [a for a in args if isinstance(a, Tensor)]
    lengths = {n for t in tensors for n in t.shape if n > CUT}
    for cut in (lengths, {t.shape[0] for t in tensors if t.dim() and t.shape[0] > CUT}):
        for numbers_too in (False, True):
            smaller = []
            for arg in args:
                if isinstance(arg, Tensor):
                    part = tuple(slice(CUT if n in cut else n) for n in arg.shape)
                    smaller.append(as_leaf(arg[part]) if arg.layout is torch.strided else arg)
                elif numbers_too and type(arg) is int and arg in cut:
                    smaller.append(CUT)
                elif numbers_too and isinstance(arg, (tuple, list)):
                    smaller.append(type(arg)(CUT if n in cut else n for n in arg))
                else:
                    smaller.append(arg)
            yield smaller


def runs(fn: Callable, args: list) -> bool:
    """Whether the Function takes these inputs, and gives a gradient for them."""
    try:
        outs = fn(*[a.clone() if isinstance(a, Tensor) else a for a in args])
        outs = [o for o in (outs if isinstance(outs, tuple) else (outs,)) if isinstance(o, Tensor)]
        total = sum(o.sum() for o in outs if o.requires_grad)
        inputs = [a for a in args if isinstance(a, Tensor) and a.requires_grad]
        torch.autograd.grad(total, inputs, allow_unused=True)
    except Exception:  # of the Function
        return False
    return True


def change_of(args: list, smaller: list) -> str:
    """The shapes before and after, in words."""
    pairs = zip(args, smaller, strict=True)
    shapes = [(tuple(a.shape), tuple(b.shape)) for a, b in pairs if isinstance(a, Tensor)]
    return joined("{}, {}", (Phrase("{} to {}", a, b) for a, b in shapes if a != b))


def as_leaf(value: Any) -> Any:
    """A leaf with the same numbers and strides; what is no tensor as it is."""
    if not isinstance(value, Tensor):
        return value
    return copied(value.detach()).requires_grad_(value.requires_grad)
