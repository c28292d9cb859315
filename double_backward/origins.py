"""Where what forward keeps comes from: seen while forward runs, by following what is computed."""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor

from ._torch import Watching, tree_leaves
from .differences import same
from .methods import around, marked

ARGUMENT = -1  # among the numbers of which a tensor is made
# What to write where a derivative is a call of something that is not torch.
BY_ANOTHER_CALL = (
    "What torch cannot compute (a simulator, a solver) needs a second Function, applied in "
    "backward to the saved input, whose own backward makes the next call: for a Hessian times a "
    "vector v, or for two first derivatives, (f(x + h v) - f(x - h v)) / (2 h)."
)


class Origins(Watching):
    """Follows numbers from outside torch, such as a NumPy array, into all that is made of them.

    Attributes:
        arguments: what the Functions were handed, the objects themselves.
        numbers: those that came from outside, in order.
    """

    def __init__(self) -> None:
        super().__init__()
        self.arguments: list[Any] = []
        self.given: set[int] = set()  # memory of those that are tensors
        self.numbers: list[Any] = []
        self.left: set[float] = set()  # numbers that torch gave away by .item()
        self.made: dict[int, tuple[Tensor, set[int]]] = {}  # memory -> of which numbers
        self.running = 0
        self.marked: list[Tensor] = []  # outputs that are marked as non-differentiable

    def after(self, operation, args, kwargs, result):
        given = tree_leaves((args, kwargs))
        tensors = [t for t in given if isinstance(t, Tensor)]
        of = set().union(*(self._of(t) for t in tensors)) | {
            self._note(v) for v in given if isinstance(v, float) and v not in self.left
        }
        name = operation.overloadpacket.__name__
        if name == "lift_fresh":  # what torch.tensor, from_numpy and others return
            of.add(self._note(tensors[0].detach().clone()))
        if name == "_local_scalar_dense" and isinstance(result, float):
            self.left.add(result)
        for made in tree_leaves(result):
            if of and isinstance(made, Tensor) and made.layout == torch.strided:
                self.made[_memory(made)] = made, of | self._of(made)
        return result

    def is_marked(self, value: Any) -> bool:
        """Whether it is an output that forward marks as non-differentiable."""
        if not isinstance(value, Tensor) or value.layout != torch.strided:
            return False
        found = (t for t in self.marked if t.layout == torch.strided)
        return _memory(value) in map(_memory, found)

    def _note(self, number):
        self.numbers.append(number)
        return len(self.numbers) - 1

    def _of(self, tensor):
        if tensor.layout != torch.strided:
            return set()
        given = {ARGUMENT} if _memory(tensor) in self.given else set()
        return given | self.made.get(_memory(tensor), (None, set()))[1]

    def outside(self, beside: "Origins") -> Callable[[Any], set[int]]:
        """Of which numbers from outside a tensor is made, that are others beside the point."""
        pairs = list(zip(self.numbers, beside.numbers, strict=False))
        if len(self.numbers) != len(beside.numbers):
            pairs = []
        changed = {i for i, (here, there) in enumerate(pairs) if not self._alike(here, there)}
        return lambda t: self._of(t) & changed if isinstance(t, Tensor) else set()

    def in_torch(self, tensor: Tensor) -> bool:
        """Whether it is made of arguments of a forward, too, by torch's own operations."""
        return ARGUMENT in self._of(tensor)

    def _alike(self, here: Any, there: Any) -> bool:
        if isinstance(here, Tensor) and here.numel() == 1:
            number = here.item()
            if any(math.isclose(number, known, rel_tol=1e-6) for known in self.left):
                return True  # torch gave it away, and got it back
        return same(here, there)


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


@contextmanager
def origins(classes: Iterable[Any]) -> Iterator[Origins]:
    """Of what the forwards of these Functions make while they run."""
    found = Origins()

    def wrapper(function: Callable) -> Callable:
        def following(*args: Any) -> Any:
            found.arguments += args
            tensors = [t for t in tree_leaves(args) if isinstance(t, Tensor)]
            found.given |= {_memory(t) for t in tensors if t.layout == torch.strided} - {0}
            if found.running:  # in the forward of another one
                return function(*args)
            found.running += 1
            try:
                with found:
                    return function(*args)
            finally:
                found.running -= 1

        return following

    with marked(classes) as found.marked, ExitStack() as stack:
        for cls in dict.fromkeys(classes):
            stack.enter_context(around(cls, "forward", wrapper))
        yield found
