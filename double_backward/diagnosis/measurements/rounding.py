"""Measures what rounding leaves in a number: a few runs, in which all results change in their last
digits.

This is Monte Carlo arithmetic (D. S. Parker, 1997). It shows that 1 - cos(x) has lost all digits
but two at x = 1e-7, and that the entropy of a softmax has lost its largest part where one
probability is 1 in all its digits: there differences are those of another, smooth function. It
shows, too, in which precisions torch computes.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from double_backward._torch import Watching, returns_a_view, tree_leaves, tree_map_only
from double_backward.check import SIXTEEN_BITS
from double_backward.failures import raise_if_own, unless_gone
from double_backward.lines import described

from ..preparation.prepare import NotChecked

RUNS = 3
CLEAN = 1e-12  # relative: if a run moves nothing further than this, only a few digits are lost
MOST_SEARCHED = 100_000  # elements; larger results are not searched for elements of the arguments
UNROUNDED_OPERATIONS = {  # operations that do not round
    "round", "floor", "ceil", "trunc", "sign", "heaviside", "clamp", "clamp_min", "clamp_max",
    "cat", "stack",
}  # fmt: skip
WHOLE = {"add", "sub", "mul"}  # exact for whole numbers; a moved index would be another index
ROUNDED_DTYPES = SIXTEEN_BITS | {torch.float32, torch.float64, torch.complex64, torch.complex128}


class Scatter(NamedTuple):
    """How a vector changes with the last digits of all that it is computed from."""

    by: Tensor | None  # how much its elements change; None where there is no vector
    is_clean: bool  # they change so little that nothing has cancelled
    in_16_bits: bool  # torch computes something in float16 or bfloat16


class _Moved(Watching):
    """Moves each result by half of its last digit or more, up or down at random.

    The result of an operation that sums (a product of matrices, a softmax) is as inexact as its
    largest element. An operation that only passes elements on is exact, and so are views and what
    is written in place.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(seed)
        self.precisions: set[torch.dtype] = set()  # in which operations compute, in backward, too

    def after(self, operation: Any, args: tuple, kwargs: dict[str, Any], result: Any) -> Any:
        self.precisions |= {t.dtype for t in tree_leaves(result) if _is_rounded(t)}
        given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        if any(t.is_meta for t in given):  # with which forward mode asks for layouts
            return result
        random = torch.Tag.nondeterministic_seeded in operation.tags
        name = operation.overloadpacket.__name__
        if not given or returns_a_view(operation) or random or name in UNROUNDED_OPERATIONS:
            return result
        if name in WHOLE and all(map(_is_whole, [*given, result])):
            return result
        by_element = torch.Tag.pointwise in operation.tags or name == "_to_copy"  # to another dtype
        return tree_map_only(Tensor, lambda t: self._moved(t, given, by_element), result)

    def _moved(self, result: Tensor, given: list[Tensor], by_element: bool) -> Tensor:
        if not _is_rounded(result) or not result.numel():
            return result
        if result.numel() <= MOST_SEARCHED and any(_holds(t, result) for t in given):
            return result
        draw = torch.rand(result.shape, generator=self.generator, dtype=torch.float64)
        by = torch.where(draw > 0.5, draw, draw - 1).to(result)  # half a digit or more, up or down
        own, eps = result.abs().nan_to_num(0.0, 0.0, 0.0), torch.finfo(result.dtype).eps
        if by_element:
            return result + by * eps * own
        some = (eps * own.max()).expand_as(own)  # and no element changes its sign
        return result + by * torch.where(own > 0, torch.minimum(some, own / 2), some)


def _is_whole(tensor: Tensor) -> bool:
    if not tensor.is_floating_point():
        return not tensor.is_complex()
    return tensor.layout == torch.strided and torch.equal(tensor, tensor.round())


def _is_rounded(tensor: object) -> bool:
    if not isinstance(tensor, Tensor) or tensor.layout != torch.strided or tensor.is_nested:
        return False
    return tensor.dtype in ROUNDED_DTYPES


def _holds(tensor: Tensor, result: Tensor) -> bool:
    """Whether all elements of the result are elements of the tensor."""
    if tensor.dtype != result.dtype or result.is_complex() or not _is_rounded(tensor):
        return False
    if tensor.numel() > MOST_SEARCHED:
        return False
    # In memory of their own: of a slice, isin raises.
    return bool(torch.isin(result.contiguous(), tensor.contiguous()).all())


def scatter(run: Callable[[], Tensor | None], plain: Tensor | None = None) -> Scatter:
    """By how much the elements of a vector change with the last digits of all that leads to them.

    That is 0 where it cannot be seen: in NumPy, in compiled code. Raises `NotChecked` where the
    operations cannot be watched.

    Args:
        plain: the vector itself, where it is known.
    """
    plain = run() if plain is None else plain
    if plain is None:
        return Scatter(None, False, False)
    largest, precisions = torch.zeros_like(plain), set[torch.dtype]()
    for seed in range(RUNS):
        moved = None
        with unless_gone(), _Moved(seed) as mode:  # of what runs
            moved = run()
        if mode.error is not None:
            raise_if_own(mode.error)
            raise NotChecked("beyond_diagnose", described(mode.error))
        precisions |= mode.precisions
        if moved is not None:
            off = (moved - plain).abs().nan_to_num(0.0, 0.0, 0.0)
            largest = torch.maximum(largest, off)
            if (largest <= CLEAN * plain.abs()).all():
                break
    is_clean = bool((largest <= CLEAN * plain.abs()).all())
    return Scatter(largest, is_clean, bool(precisions & SIXTEEN_BITS))
