"""Cuts inputs down to fewer elements where a check with all of them would take too long."""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from double_backward._torch import tree_leaves
from double_backward.calls import copied
from double_backward.failures import unless_gone
from double_backward.phrases import Phrase, joined

LARGE_INPUTS = 20_000  # elements of all inputs together; above, they are cut down
ENOUGH = 512  # elements of one input whose sides are all cut
LEAST = 3  # elements along a side


def size_of(args: Sequence) -> int:
    """How many elements those of the arguments have that are tensors and can be cut down."""
    return sum(a.numel() for a in args if _can_be_cut(a))


def _can_be_cut(value: Any) -> bool:
    plain = type(value) in (Tensor, torch.nn.Parameter)
    return plain and value.layout is torch.strided and not value.is_nested


def cut_down(args: Sequence) -> Iterator[list]:
    """The arguments with fewer elements, the smallest first; none where that is not possible.

    The elements that are left are evenly spread over all. Sides of equal length keep equal lengths.
    In every second version, numbers that are the length of a side are replaced by the new length.
    """
    tensors = [a for a in args if _can_be_cut(a)]
    short = max(LEAST, int(ENOUGH ** (1 / max([1, *(t.dim() for t in tensors)]))))
    lengths = {n for t in tensors for n in t.shape if n > short}
    for long in (lengths, {t.shape[0] for t in tensors if t.dim() and t.shape[0] > short}):
        for numbers_too in (False, True) if long else ():
            smaller: list[Any] = []
            for arg in args:
                if isinstance(arg, Tensor):
                    smaller.append(_part(arg, long, short))
                elif numbers_too and type(arg) is int and arg in long:
                    smaller.append(short)
                elif numbers_too and isinstance(arg, (tuple, list)):
                    smaller.append(type(arg)(short if n in long else n for n in arg))
                else:
                    smaller.append(arg)
            yield smaller


def _part(tensor: Tensor, long: set[int], short: int) -> Tensor:
    """A copy with `short` of the elements along each side that is long. In memory they have the
    same order as before, and gaps if there were gaps."""
    if not _can_be_cut(tensor) or not long.intersection(tensor.shape):
        return as_leaf(tensor)
    part = tensor.detach()
    for dim, n in enumerate(tensor.shape):
        if n in long:
            apart = (n - 1) // (short - 1)
            part = part.narrow(dim, 0, (short - 1) * apart + 1)
            part = part[(slice(None),) * dim + (slice(None, None, apart),)]
    shape, strides = part.shape, tensor.stride()
    for dim, stride in enumerate(strides):  # one element along an expanded side
        part = part.narrow(dim, 0, 1) if stride == 0 and part.shape[dim] else part
    order = sorted(range(tensor.dim()), key=lambda dim: -strides[dim])
    dense = part.permute(order).clone(memory_format=torch.contiguous_format)
    if not tensor.is_contiguous() and sorted(order) == order and 0 not in strides:
        dense = torch.stack([dense, dense], -1)[..., 0]
    back = [order.index(dim) for dim in range(tensor.dim())]
    return dense.permute(back).expand(shape).requires_grad_(tensor.requires_grad)


def few_moved(fn: Callable, args: Sequence) -> tuple[Callable, list, str]:
    """fn with the same inputs, of which only a few elements, evenly spread, are differentiated.

    Returns another fn, its arguments, and which elements these are, in words. This is for an fn
    that takes no smaller inputs, since it holds tensors of their size.
    """
    given, places, words = list(args), {}, []
    for number, arg in enumerate(args):
        if _can_be_cut(arg) and arg.requires_grad and arg.numel() > ENOUGH:
            flat = torch.linspace(0, arg.numel() - 1, ENOUGH, dtype=torch.float64).long()
            places[number] = torch.unravel_index(flat.to(arg.device), arg.shape)
            given[number] = arg.detach()[places[number]].requires_grad_()
            words.append(f"{ENOUGH} of the {arg.numel():,} elements of {tuple(arg.shape)}")

    @functools.wraps(fn)
    def with_few(*parts: Any) -> Any:
        whole = list(parts)
        for number, place in places.items():
            part = parts[number]
            whole[number] = args[number].detach().to(part.dtype).index_put(place, part)
        return fn(*whole)

    return with_few, given, ", ".join(words)


def runs(fn: Callable, args: Sequence) -> bool:
    """Whether fn takes these inputs, and gives a gradient for them."""
    with unless_gone():  # of fn
        outs = fn(*[a.clone() if isinstance(a, Tensor) else a for a in args])
        outs = [o for o in tree_leaves(outs) if isinstance(o, Tensor) and o.requires_grad]
        inputs = [a for a in args if isinstance(a, Tensor) and a.requires_grad]
        torch.autograd.grad(sum(o.sum() for o in outs), inputs, allow_unused=True)
        return True
    return False


def change_of(args: Sequence, smaller: Sequence) -> str:
    """The shapes before and after, in words."""
    pairs = zip(args, smaller, strict=True)
    shapes = [(tuple(a.shape), tuple(b.shape)) for a, b in pairs if isinstance(a, Tensor)]
    return joined("{}, {}", (Phrase("{} to {}", a, b) for a, b in shapes if a != b))


def as_leaf(value: Any) -> Any:
    """A leaf with the same numbers and strides; a value that is no tensor is returned as it is."""
    if not isinstance(value, Tensor):
        return value
    return copied(value.detach()).requires_grad_(value.requires_grad)
