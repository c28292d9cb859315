"""What backward does where autograd does not follow: seen while it runs, with the line, and undone.

Observed by running, never read from the text of a Function.
"""

import inspect
import math
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ._torch import engine_replaced, set_grad_enabled, tree_leaves, tree_map
from .lines import OURS, TORCH, is_own, line_of_code
from .methods import around, backward_method

STEPS = {  # how they are told
    "detach": ".detach()",
    "data": ".data",
    "no_grad": "torch.no_grad() or the like",
    "grad": "autograd.grad without create_graph",
    "backward": ".backward() without create_graph",
    "tensor": "torch.tensor()",
    "new_tensor": ".new_tensor()",
    "item": ".item()",
    "tolist": ".tolist()",
    "float": "float()",
    "numpy": "NumPy",
    "long": ".long()",
    "hook": "a hook",
    "inference": "torch.inference_mode()",
    "memory": "a tensor's numbers without its graph (Variable, nn.Parameter)",
}
UNDOABLE = ("detach", "data", "no_grad", "grad", "backward", "tensor", "memory")  # see `Watch`
OF_A_GRAPH = frozenset(STEPS) - {"no_grad", "grad", "backward", "inference"}  # by one tensor
DEEPEST = 20  # backwards that call each other
DATA = inspect.getattr_static(torch.Tensor, "data")  # the descriptor behind tensor.data
HOOKS = inspect.getattr_static(torch.Tensor, "_backward_hooks")
REQUIRES_GRAD = inspect.getattr_static(torch.Tensor, "requires_grad")
_LOSES = {"detach": "detach", "detach_": "detach", "long": "long", "register_hook": "hook"}
_LEAVES = {"item": "item", "tolist": "tolist", "numpy": "numpy", "__array__": "numpy"}
_LEAVES |= {"__float__": "float", "__int__": "float"}
LEAVING = frozenset(_LEAVES.values())


@dataclass(frozen=True)
class Step:
    """A step that autograd does not record: a key of `STEPS`, and the line of the code."""

    kind: str
    where: str
    function: str = field(default="", compare=False)  # the class whose backward takes it


def told(steps: Iterable[Step]) -> str:
    """What they are and where, each once."""
    return "; ".join(
        dict.fromkeys(STEPS[s.kind] + (f" in {s.where}" if s.where else "") for s in steps)
    )


class Watch(TorchFunctionMode):
    """Notes the steps that lose a graph, and does without those in `undo`.

    Where a step in `alter` makes numbers or an array of a tensor, they are others. Into `values`,
    if that is a dictionary, come the tensors that each step is taken with.
    """

    def __init__(
        self,
        undo: Iterable[Step] = (),
        own: Callable[[str], bool] | None = None,
        alter: Iterable[Step] = (),
        until: float = math.inf,
        values: dict[Step, list[Tensor]] | None = None,
    ):
        super().__init__()
        self.undo, self.alter, self.own = set(undo), set(alter), own or is_own
        self.values = values
        self.until = until  # where each step back leads through all before it, that has no end
        self.steps: list[Step] = []
        self.cut_off: set[int] = set()
        self.bare: dict[int, Step] = {}  # memory of what .data returned, of no use to autograd yet
        self.running: list[tuple[str, str]] = []  # the classes whose backward runs, and their files
        self.aliases: list[Tensor] = []  # where a graph would begin, were nothing undone
        self.known: dict[int, list[Tensor]] = {}  # with a graph, by memory, which is theirs so long
        self.grads: list[tuple[Tensor, Tensor | None]] = []  # where .backward() leaves a graph

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func == HOOKS.__set__:  # by torch itself, which holds a lock that grad_fn waits for
            return func(*args, **kwargs)
        if time.process_time() > self.until:
            raise TimeoutError("backward takes far longer without these steps")
        kind = None if _puts_back(func, sys._getframe(1)) else self.kind(func, args, kwargs)
        if kind is None:
            return self._compute(func, args, kwargs, sys._getframe(1))
        step = self._step(kind, sys._getframe(1))
        self.steps.append(step)
        if self.values is not None and kind in OF_A_GRAPH:
            self.values.setdefault(step, []).extend(t.detach().clone() for t in args[:1])
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
        return self._alias(args[0]) if func is not Tensor.detach_ else args[0]

    def _step(self, kind, frame):
        function, home = self.running[-1] if self.running else ("", "")
        return Step(kind, line_of_code(frame, self.own, home), function)

    def _alias(self, tensor):
        """The tensor itself would count twice what leads to it on another way; and a .backward()
        behind it would go on into the graph before it."""
        if tensor.layout != torch.strided:
            return tensor
        self.aliases.append(tensor.view_as(tensor))
        return self.aliases[-1]

    def engine(self, run):
        """The engine, in which `.backward()` inside backward is a step; `grad` is seen above."""

        def watching(tensors, grads, retain_graph, create_graph, inputs, *args, **kwargs):
            given = tensors, grads, retain_graph, create_graph, inputs
            seen = kwargs.get("accumulate_grad") and self.running and torch.is_grad_enabled()
            if create_graph or not seen:
                return run(*given, *args, **kwargs)
            frame = _before_engine(sys._getframe(1), self.running[-1][1])
            step = self._step("backward", frame)
            self.steps.append(step)
            if step not in self.undo:
                return run(*given, *args, **kwargs)
            inputs = inputs or self._sources(tensors)
            self.grads += [(t, t.grad if t.is_leaf else None) for t in inputs]
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="Using backward.. with create_graph")
                return run(tensors, grads, True, True, inputs, *args, **kwargs)

        return watching

    def _sources(self, tensors):
        """The leaves of a graph, and what stands for one that began there: see `aliases`."""
        aliases = {a.grad_fn: a for a in self.aliases}
        found, seen, todo = [], set(), [t.grad_fn for t in tensors if isinstance(t, Tensor)]
        while todo:
            node = todo.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            source = aliases.get(node, getattr(node, "variable", None))
            if source is None:
                todo += [fn for fn, _ in node.next_functions]
            else:
                found.append(source)
        return tuple(found)

    def clear(self):
        """A tensor whose .grad has a graph that leads to it lives for ever."""
        for tensor, before in self.grads:
            tensor.grad = before

    def _compute(self, func, args, kwargs, frame):
        """An operation; a step where it is given numbers that have a graph, and not the graph."""
        if not torch.is_grad_enabled() or torch.is_inference_mode_enabled():
            return self._write(func, args, kwargs)
        bare = {id(t): t for t in tree_leaves((args, kwargs)) if self._is_bare(t, frame)}
        step = self._step("memory", frame) if bare else None
        if step in self.undo:
            args, kwargs = tree_map(
                lambda t: self._with_graph(t) if id(t) in bare else t, (args, kwargs)
            )
        if self.undo and kwargs.get("out") is not None:  # which autograd refuses
            kwargs = {name: value for name, value in kwargs.items() if name != "out"}
        result = self._write(func, args, kwargs)
        made = [t for t in tree_leaves(result) if isinstance(t, Tensor)]
        if step and made:
            self.steps.append(step)
        for tensor in made:
            self._know(tensor)
        return result

    def _know(self, tensor):
        if tensor.requires_grad and (place := _pointer(tensor)):
            self.known.setdefault(place, []).append(tensor)

    def _is_bare(self, value, frame):
        """Whether it has the memory of a tensor with a graph, and nothing that was seen cut it."""
        if not isinstance(value, Tensor) or not (value.is_leaf and value.is_floating_point()):
            return False
        place = _pointer(value)
        if not place or place in self.cut_off:
            return False
        if place not in self.known:
            for tensor in _tensors_around(frame):
                if _pointer(tensor) == place:
                    self._know(tensor)
        others = self.known.get(place, ())
        return any(t.grad_fn is not None or not value.requires_grad for t in others)

    def _with_graph(self, bare):
        same = [t for t in self.known[_pointer(bare)] if t.shape == bare.shape]
        return next((t for t in same if t.stride() == bare.stride()), bare)

    def _is_leaf_for_backward(self, func, args, kwargs):
        """Whether the code wants a leaf to differentiate by, and gets what leads on by now."""
        makes = func == REQUIRES_GRAD.__set__ or func is Tensor.requires_grad_
        wanted = kwargs.get("requires_grad", args[1] if len(args) > 1 else True)
        return bool(self.undo and makes and wanted and args[0].grad_fn is not None)

    def _write(self, func, args, kwargs):
        """What is written through .data has its graph there, and not in the tensor itself."""
        name = getattr(func, "__name__", "")
        if self._is_leaf_for_backward(func, args, kwargs):
            self.aliases.append(args[0])
            return args[0]
        if func is torch.autograd.grad and any(step.kind == "grad" for step in self.undo):
            kwargs = {**kwargs, "retain_graph": True}  # create_graph has kept it, too
        if name == "__get__" and func == DATA.__get__:
            step = self._step("data", sys._getframe(3))
            if step in self.undo:
                return self._alias(args[0])
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


def _tensors_around(frame):
    """Those that have a name where an operation is called, back to where backward begins."""
    while frame and not frame.f_code.co_filename.startswith(OURS):
        for value in list(frame.f_locals.values()):
            parts = value if isinstance(value, (list, tuple)) else [value]
            yield from (t for t in parts if isinstance(t, Tensor))
        frame = frame.f_back


def _puts_back(func, frame):
    """Whether it is the end of a `with torch.enable_grad()`, inside torch.no_grad()."""
    code = frame.f_code
    return (
        func is set_grad_enabled
        and code.co_name == "__exit__"
        and code.co_filename.startswith(TORCH)
    )


def _before_engine(frame, home):
    """The frame that called .backward(): behind torch's own, and what of ours stands between."""
    while frame and frame.f_code.co_filename.startswith((OURS, TORCH)):
        if frame.f_code.co_filename == home:
            break
        frame = frame.f_back
    return frame


def altered(value: Any, place: int = 0) -> Any:
    """Other numbers in the place of a number, of an array, or of a list of numbers.

    Each by another factor, since a direction, say, is the same for multiples.
    """
    if isinstance(value, list):
        return [altered(each, i) for i, each in enumerate(value)]
    if isinstance(value, int):
        return value + 1
    if isinstance(value, np.ndarray):
        places = np.arange(value.size, dtype=value.real.dtype).reshape(value.shape)
        return value * (1.37 + 0.2 * np.sin(places)) + 0.11
    return value * (1.37 + 0.2 * math.sin(place)) + 0.11


def _pointer(tensor: Tensor) -> int:
    """The address of its numbers; 0 for a sparse tensor, and for one that has none."""
    try:
        return tensor.data_ptr()
    except RuntimeError:
        return 0


class Called:
    """A callable whose own steps are watched, as those of a backward are."""

    __name__ = ""

    def __init__(self, function: Callable):
        self.backward = function

    def __call__(self, *args: Any) -> Any:
        return self.backward(None, *args)


@contextmanager
def watched(
    classes: Iterable[Any],
    undo: Iterable[Step] = (),
    alter: Iterable[Step] = (),
    until: float = math.inf,
    values: dict[Step, list[Tensor]] | None = None,
) -> Iterator[list[Step]]:
    """List of `Step`, filled while backward methods of these Functions run, or `Called`.

    Without a detach, a backward that differentiates what it computes from its own output calls
    itself, and so on: `RecursionError`, which torch does not raise.
    """
    watch = Watch(undo, alter=alter, until=until, values=values)

    def wrapper_of(cls):
        def wrapper(function):
            code = getattr(inspect.unwrap(function), "__code__", None)
            home = cls.__name__, code.co_filename if code else ""

            def watching(ctx, *grads):
                if len(watch.running) > DEEPEST:
                    raise RecursionError(f"{DEEPEST} backwards inside one another")
                watch.running.append(home)
                try:
                    with watch:
                        return function(ctx, *grads)
                finally:
                    watch.running.pop()
                    if not watch.running:
                        watch.known.clear()

            return watching

        return wrapper

    with ExitStack() as stack:
        stack.callback(watch.clear)
        stack.enter_context(engine_replaced(watch.engine))
        for cls in dict.fromkeys(classes):
            stack.enter_context(around(cls, backward_method(cls), wrapper_of(cls)))
        yield watch.steps
