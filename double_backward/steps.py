"""What backward does where autograd does not follow: seen while it runs, with the line, and undone.

Observed by running, never read from the text of a Function.
"""

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ._torch import set_grad_enabled
from .lines import is_own, line_of_code
from .names import has_setup_context

STEPS = {  # how they are told
    "detach": ".detach()",
    "data": ".data",
    "no_grad": "torch.no_grad() or the like",
    "grad": "autograd.grad without create_graph",
    "tensor": "torch.tensor()",
    "new_tensor": ".new_tensor()",
    "item": ".item()",
    "tolist": ".tolist()",
    "float": "float()",
    "numpy": "NumPy",
    "long": ".long()",
    "hook": "a hook",
    "inference": "torch.inference_mode()",
}
UNDOABLE = ("detach", "data", "no_grad", "grad", "tensor")  # see `Watch`
DEEPEST = 20  # backwards that call each other
DATA = inspect.getattr_static(torch.Tensor, "data")  # the descriptor behind tensor.data
_LOSES = {"detach": "detach", "detach_": "detach", "long": "long", "register_hook": "hook"}
_LEAVES = {"item": "item", "tolist": "tolist", "numpy": "numpy", "__array__": "numpy"}
_LEAVES |= {"__float__": "float", "__int__": "float"}
LEAVING = frozenset(_LEAVES.values())


@dataclass(frozen=True)
class Step:
    """A step that autograd does not record: a key of `STEPS`, and the line of the code."""

    kind: str
    where: str


def told(steps: Iterable[Step]) -> str:
    """What they are and where, each once."""
    return "; ".join(
        dict.fromkeys(STEPS[s.kind] + (f" in {s.where}" if s.where else "") for s in steps)
    )


class Watch(TorchFunctionMode):
    """Notes the steps that lose a graph, and does without those in `undo`.

    Where a step in `alter` makes numbers or an array of a tensor, they are others.
    """

    def __init__(
        self,
        undo: Iterable[Step] = (),
        own: Callable[[str], bool] | None = None,
        alter: Iterable[Step] = (),
    ):
        super().__init__()
        self.undo, self.alter, self.own = set(undo), set(alter), own or is_own
        self.steps: list[Step] = []
        self.cut_off: set[int] = set()
        self.bare: dict[int, Step] = {}  # memory of what .data returned, of no use to autograd yet

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        kind = self.kind(func, args, kwargs)
        if kind is None:
            return self._write(func, args, kwargs)
        step = Step(kind, line_of_code(sys._getframe(1), self.own))
        self.steps.append(step)
        if kind in ("detach", "data"):
            self.cut_off.add(_pointer(args[0]))
        if step in self.alter:
            return altered(func(*args, **kwargs))
        if step not in self.undo or kind not in UNDOABLE:
            return func(*args, **kwargs)
        if kind == "no_grad":
            return None
        if kind == "grad":
            return func(*args, **{**kwargs, "create_graph": True})
        return args[0]

    def _write(self, func, args, kwargs):
        """What is written through .data has its graph there, and not in the tensor itself."""
        name = getattr(func, "__name__", "")
        if name == "__get__" and func == DATA.__get__:
            step = Step("data", line_of_code(sys._getframe(2), self.own))
            if step in self.undo:
                return args[0]
            self.bare[_pointer(args[0])] = step
        writes = name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))
        given = [a for a in args[1:] if isinstance(a, Tensor) and a.requires_grad]
        if writes and given and isinstance(args[0], Tensor):
            self.steps += filter(None, [self.bare.get(_pointer(args[0]))])
        return func(*args, **kwargs)

    def kind(self, func: Any, args: tuple, kwargs: dict) -> str | None:
        """Which step this call is, or None for one that autograd sees or that loses nothing."""
        if torch.is_inference_mode_enabled():
            return "inference"
        if not torch.is_grad_enabled():  # inside the forward of another Function, for one
            return None
        if func is set_grad_enabled:
            return None if args[0] else "no_grad"
        if func is torch.autograd.grad:
            asked = kwargs.get("create_graph", args[4] if len(args) > 4 else False)
            return None if asked else "grad"
        name, tensor = getattr(func, "__name__", ""), args[0] if args else None
        if name == "new_tensor":
            tensor = kwargs.get("data", args[1] if len(args) > 1 else None)
        if not isinstance(tensor, Tensor):
            return None
        if _pointer(tensor) in self.cut_off and not tensor.requires_grad:
            return _LEAVES.get(name)
        if not tensor.requires_grad:
            return None
        if func is torch.tensor or name == "new_tensor":
            return "tensor" if func is torch.tensor else name
        if name == "__get__":
            return "data" if func == DATA.__get__ else None
        return _LOSES.get(name) or _LEAVES.get(name)


def altered(value: Any) -> Any:
    """Other numbers in the place of a number, of an array, or of a list of numbers."""
    if isinstance(value, list):
        return [altered(each) for each in value]
    return value + 1 if isinstance(value, int) else value * 1.37 + 0.11


def _pointer(tensor: Tensor) -> int:
    """The address of its numbers; 0 for a sparse tensor, and for one that has none."""
    try:
        return tensor.data_ptr()
    except RuntimeError:
        return 0


@contextmanager
def watched(
    classes: Iterable[Any],
    undo: Iterable[Step] = (),
    own: Callable[[str], bool] | None = None,
    alter: Iterable[Step] = (),
) -> Iterator[list[Step]]:
    """List of `Step`, filled while backward methods of these Functions run.

    Without a detach, a backward that differentiates what it computes from its own output calls
    itself, and so on: `RecursionError`, which torch does not raise.
    """
    watch = Watch(undo, own, alter)
    running: list[Any] = []

    def wrapper(function):
        def watching(ctx, *grads):
            if len(running) > DEEPEST:
                raise RecursionError(f"{DEEPEST} backwards inside one another")
            running.append(ctx)
            try:
                with watch:
                    return function(ctx, *grads)
            finally:
                running.pop()

        return watching

    with ExitStack() as stack:
        for cls in dict.fromkeys(classes):
            method = "backward" if cls.backward is not torch.autograd.Function.backward else "vjp"
            stack.enter_context(around(cls, method, wrapper))
        yield watch.steps


@contextmanager
def marked(classes: Iterable[Any]) -> Iterator[list[Tensor]]:
    """The outputs that these Functions mark as non-differentiable, while forward runs."""
    found: list[Tensor] = []

    def wrapper(function):
        def recording(*args):
            result = function(*args)
            found.extend(getattr(args[0], "non_differentiable", None) or ())
            return result

        return recording

    with ExitStack() as stack:
        for cls in dict.fromkeys(classes):
            method = "setup_context" if has_setup_context(cls) else "forward"
            stack.enter_context(around(cls, method, wrapper))
        yield found


@contextmanager
def around(cls: Any, method: str, wrapper: Callable) -> Iterator[None]:
    """For a while, `cls.method` is `wrapper(method)`."""
    own, before = method in vars(cls), inspect.getattr_static(cls, method)
    setattr(cls, method, staticmethod(wrapper(getattr(cls, method))))
    try:
        yield
    finally:
        setattr(cls, method, before) if own else delattr(cls, method)


@contextmanager
def recorded(cls: Any, method: str) -> Iterator[list[tuple[tuple, Any]]]:
    """List of (arguments, result), one for each call of `cls.method`."""
    calls: list[tuple[tuple, Any]] = []

    def wrapper(function):
        def recording(*args):
            result = function(*args)
            calls.append((args, result))
            return result

        return recording

    with around(cls, method, wrapper):
        yield calls
