"""Notes what a Function did at one call: its operations in order, on what, and what had a graph.

Two calls of a Function that did the same are right or wrong together, even if their sizes or
numbers differ: the notes show which path it takes, what it keeps, and whether autograd follows
that. They do not show what NumPy or a kernel computes in between.
"""

import functools
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ._torch import Watching

NUMBERS = int, float, complex
DETACH = torch.ops.aten.detach.default
SMALL_INTEGER = 3  # integers up to this are as often dimensions and powers as sizes
VALUES = torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape


class Did(NamedTuple):
    """What a call did, as two hashes to be compared.

    Attributes:
        steps: a hash of the operations and of what they used; of the numbers among their arguments,
            only 0, 1, -1, small integers and those that are not finite, and no sizes of the call's
            own tensors.
        exactly: the same with all numbers except those sizes.
        reads: True if values of tensors decided something, or a size.
        kept: by turns, the address of something that forward returned or kept, and the number of
            the operation that made it; a dict would need four times the memory for each call.
    """

    steps: int
    exactly: int
    reads: bool
    kept: tuple[int, ...]


class Operations(Watching):
    """Notes the operations that run inside.

    Args:
        given: the arguments of the call.
        grad_outs, before: for a backward, its grad_outs, and the `Did` of its forward.
    """

    def __init__(self, given: Iterable, grad_outs: Iterable = (), before: Did | None = None):
        super().__init__()
        tensors = list(_tensors(given))
        self.steps: list[Any] = [before and before.steps]
        self.numbers: list[Any] = [before and before.exactly]
        self.in_backward = before is not None
        self.reads = before is not None and before.reads
        self.sizes = {n for t in tensors for n in (*t.shape, t.numel())}
        self.made = dict(zip(before.kept[::2], before.kept[1::2], strict=True)) if before else {}
        self.count, self.is_paused = 0, False
        self.came_back: Tensor | None = None  # the last tensor that a hook has given back
        for t in (*tensors, *_tensors(grad_outs)):
            self._made(t)
        self.kept = dict(self.made)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Inside, nothing is noted."""
        before, self.is_paused = self.is_paused, True
        try:
            yield
        finally:
            self.is_paused = before

    def unpacked(self, tensor: Tensor, place: int) -> None:
        """Note that a hook has given back what forward kept at this address."""
        self.came_back = tensor
        if place in self.kept:
            self.made[address(tensor)] = self.kept[place]

    def applied(self, function: Any, kind: Any) -> None:
        """Note that a Function has been applied, in this kind of call."""
        self.steps += [function.__qualname__, kind]

    def after(self, operation: Any, args: tuple, kwargs: dict[str, Any], result: Any) -> Any:
        given_back = operation is DETACH and args[0] is self.came_back  # torch itself does that
        if self.is_paused or given_back:
            return result
        self.steps.append(operation)
        for value in args:
            self._note(value)
        for name, value in kwargs.items():
            self.steps.append(name)
            self._note(value)
        self.reads |= _reads_values(operation)
        for t in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(t, Tensor):
                self._made(t)
        return result

    def did(self, result: Any, ctx: Any = None) -> Did | None:
        """The `Did` of what was noted, of the result, and of what forward has kept on ctx; None if
        that could not be followed."""
        if self.error is not None:
            return None
        try:
            for t in _tensors([result]):
                self._note(t)
            kept = self._kept(ctx, result) if ctx is not None else ()
            steps = hash(tuple(self.steps))
        except Exception:  # of an argument that has no hash
            return None
        return Did(steps, hash((steps, *self.numbers)), self.reads, kept)

    def _made(self, tensor: Tensor) -> None:
        self.count += 1
        self.made[address(tensor)] = self.count

    def _note(self, value: Any) -> None:
        note = self.steps.append
        if isinstance(value, Tensor):
            # In forward nothing is recorded, and a view has the requires_grad of its base.
            follows = self.in_backward and value.requires_grad
            note((self.made.get(address(value)), follows, value.dim(), value.dtype))
        elif isinstance(value, (list, tuple)):
            note(len(value))
            for each in value:
                self._note(each)
        elif type(value) in NUMBERS:
            size = type(value) is int and value > 1 and value in self.sizes
            note(int if size else _roughly(value))
            self.numbers.append("size" if size else repr(value))
        else:  # a generator is wrapped anew for each operation
            note(torch.Generator if isinstance(value, torch.Generator) else value)

    def _kept(self, ctx: Any, result: Any) -> tuple[int, ...]:
        named = {n: v for n, v in vars(ctx).items() if not n.startswith("_double_backward")}
        kept = [result, ctx.to_save, *named.values()]
        places = [address(t) for t in _tensors(kept)]
        self.steps += [*named, *map(self.made.get, places)]
        return tuple(n for p in dict.fromkeys(places) if p in self.made for n in (p, self.made[p]))


def address(tensor: Tensor) -> int:
    """The address of a tensor's first element; 0 for a tensor without memory."""
    try:
        return tensor.data_ptr()
    except RuntimeError:  # sparse, batched, a subclass
        return 0


def _tensors(values: Iterable) -> Iterable[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from _tensors(value)


def _roughly(number: Any) -> Any:
    """The part of a number that can select how something is computed: 0 switches a term off."""
    if type(number) is int:
        return number if abs(number) <= SMALL_INTEGER else int
    special = number in (0, 1, -1) or not math.isfinite(abs(number))
    return repr(number) if special else type(number)


# These give values to Python without an operation that `Operations` sees.
READING = "numpy", "tolist", "__array__", "__dlpack__", "data_ptr", "untyped_storage"


class _Reading(TorchFunctionMode):
    """Notes whether values are given to Python by one of `READING`."""

    found = False

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.found |= getattr(func, "__name__", "") in READING
        return func(*args, **(kwargs or {}))


def reads_values(call: Callable) -> bool:
    """Whether a callable branches on the values of tensors, or may do so."""
    with Operations(()) as operations, _Reading() as reading:
        call()
    return operations.reads or reading.found


@functools.cache
def _reads_values(operation: Any) -> bool:
    return any(tag in operation.tags for tag in VALUES)
