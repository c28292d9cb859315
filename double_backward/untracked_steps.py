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

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ._torch import engine_replaced, set_grad_enabled
from .methods import around, backward_method
from .phrases import Phrase, joined
from .places import OURS, TORCH, is_own, line_of_code

UNDOABLE = {  # and how they are told
    "detach": ".detach()",
    "data": ".data",
    "no_grad": Phrase("torch.no_grad() or the like"),
    "grad": Phrase("autograd.grad without create_graph"),
    "backward": Phrase(".backward() without create_graph"),
    "tensor": "torch.tensor()",
    "variable": Phrase("Variable() or nn.Parameter()"),
}
LEAVING = {"item": ".item()", "tolist": ".tolist()", "float": "float()", "numpy": "NumPy"}
STEPS = UNDOABLE | LEAVING | {"inference": "torch.inference_mode()"}
DATA = inspect.getattr_static(torch.Tensor, "data")  # the descriptor behind tensor.data
REQUIRES_GRAD = inspect.getattr_static(torch.Tensor, "requires_grad")
METHODS = {"detach": "detach", "detach_": "detach", "item": "item", "tolist": "tolist"}
METHODS |= {"numpy": "numpy", "__array__": "numpy", "__float__": "float", "__int__": "float"}


@dataclass(frozen=True)
class Step:
    """A step that autograd does not record: a key of `STEPS`, and the line of the code."""

    kind: str
    where: str
    function: str = field(default="", compare=False)  # the class whose backward takes it


def told(steps: Iterable[Step]) -> str:
    """What they are and where, each once."""
    return joined("{}; {}", dict.fromkeys(map(_told, steps)))


def _told(step):
    return Phrase("{} in {}", STEPS[step.kind], step.where) if step.where else STEPS[step.kind]


class Watch(TorchFunctionMode):
    """Notes the steps that lose a graph, and does without those in `undo`.

    Args:
        own: the files whose lines are told.
        until: when to raise TimeoutError: where each step back leads through all before it,
            undoing one has no end.
    """

    def __init__(
        self,
        undo: Iterable[Step] = (),
        own: Callable[[str], bool] = is_own,
        until: float = math.inf,
    ):
        super().__init__()
        self.undo, self.own, self.until = set(undo), own, until
        self.steps: list[Step] = []
        self.running: list[tuple[str, str]] = []  # the classes whose backward runs, and their files
        self.cut_off: set[int] = set()  # the memory of what was detached
        self.sources: list[Tensor] = []  # where a graph would begin, were nothing undone
        self.grads: list[tuple[Tensor, Tensor | None]] = []  # where .backward() leaves a graph

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs, frame = kwargs or {}, sys._getframe(1)
        if time.process_time() > self.until:
            raise TimeoutError("backward takes far longer without these steps")
        kind = self.kind(func, args, kwargs, frame)
        step = self._noted(kind, frame) if kind else None
        if kind in ("detach", "data"):
            self.cut_off.add(_pointer(args[0]))
        if step in self.undo:
            return self._without(kind, func, args, kwargs)
        if self.undo and torch.is_grad_enabled():
            if kwargs.get("out") is not None:  # which autograd refuses
                kwargs = {name: value for name, value in kwargs.items() if name != "out"}
            if self._makes_leaf(func, args, kwargs):
                self.sources.append(args[0])
                return args[0]
        return func(*args, **kwargs)

    def kind(self, func: Any, args: tuple, kwargs: dict, frame: Any) -> str | None:
        """Which step this call is, or None for one that autograd sees or that loses nothing."""
        if torch.is_inference_mode_enabled():
            return "inference"
        if not torch.is_grad_enabled():  # inside the forward of another Function, for one
            return None
        if func is set_grad_enabled:
            return None if args[0] or _puts_back(frame) else "no_grad"
        if func is torch.autograd.grad:
            asked = kwargs.get("create_graph", args[4] if len(args) > 4 else False)
            return None if asked else "grad"
        if func == DATA.__get__:  # also where a graph is written into it
            return "data"
        name, tensor = getattr(func, "__name__", ""), args[0] if args else None
        if not isinstance(tensor, Tensor):
            return None
        kind = "tensor" if func is torch.tensor else METHODS.get(name)
        lost = tensor.requires_grad or (kind in LEAVING and _pointer(tensor) in self.cut_off)
        return kind if lost else None

    def _noted(self, kind, frame):
        function, home = self.running[-1] if self.running else ("", "")
        self.steps.append(Step(kind, line_of_code(frame, self.own, home), function))
        return self.steps[-1]

    def _without(self, kind, func, args, kwargs):
        if kind == "no_grad":
            return None
        if kind == "grad":
            return func(*args, **{**kwargs, "create_graph": True, "retain_graph": True})
        return args[0] if func is Tensor.detach_ else self._alias(args[0])

    def _alias(self, tensor):
        """The tensor itself would count twice what leads to it on another way; and a .backward()
        behind it would go on into the graph before it."""
        if tensor.layout != torch.strided:
            return tensor
        self.sources.append(tensor.view_as(tensor))
        return self.sources[-1]

    def _makes_leaf(self, func, args, kwargs):
        """Whether the code wants a leaf to differentiate by, and gets what leads on by now."""
        makes = func == REQUIRES_GRAD.__set__ or func is Tensor.requires_grad_
        wanted = kwargs.get("requires_grad", args[1] if len(args) > 1 else True)
        return makes and wanted and args[0].grad_fn is not None

    def made_anew(self, new):
        """Variable and nn.Parameter, of which no mode hears."""

        def watching(cls, *args, **kwargs):
            data = args[0] if args else kwargs.get("data")
            lost = isinstance(data, Tensor) and data.requires_grad and torch.is_grad_enabled()
            if self.running and lost and self._noted("variable", sys._getframe(1)) in self.undo:
                return self._alias(data)
            return new(cls, *args, **kwargs)

        return watching

    def engine(self, run):
        """The engine, in which `.backward()` inside backward is a step; `grad` is seen above."""

        def watching(tensors, grads, retain_graph, create_graph, inputs, *args, **kwargs):
            given = tensors, grads, retain_graph, create_graph, inputs
            seen = kwargs.get("accumulate_grad") and self.running and torch.is_grad_enabled()
            if create_graph or not seen:
                return run(*given, *args, **kwargs)
            step = self._noted("backward", _before_engine(sys._getframe(1), self.running[-1][1]))
            if step not in self.undo:
                return run(*given, *args, **kwargs)
            inputs = inputs or self._sources_of(tensors)
            self.grads += [(t, t.grad if t.is_leaf else None) for t in inputs]
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="Using backward.. with create_graph")
                return run(tensors, grads, True, True, inputs, *args, **kwargs)

        return watching

    def _sources_of(self, tensors):
        """The leaves of a graph, and what stands for one that began there."""
        known = {source.grad_fn: source for source in self.sources}
        found, seen, todo = [], set(), [t.grad_fn for t in tensors if isinstance(t, Tensor)]
        while todo:
            node = todo.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            source = known.get(node, getattr(node, "variable", None))
            if source is None:
                todo += [fn for fn, _ in node.next_functions]
            else:
                found.append(source)
        return tuple(found)

    def clear(self):
        """A tensor whose .grad has a graph that leads to it lives for ever."""
        for tensor, before in self.grads:
            tensor.grad = before


def _puts_back(frame):
    """Whether it is the end of a `with torch.enable_grad()`, inside torch.no_grad()."""
    return frame.f_code.co_name == "__exit__" and frame.f_code.co_filename.startswith(TORCH)


def _before_engine(frame, home):
    """The frame that called .backward(): behind torch's own, and what of ours stands between."""
    while frame and frame.f_code.co_filename.startswith((OURS, TORCH)):
        if frame.f_code.co_filename == home:
            break
        frame = frame.f_back
    return frame


def _pointer(tensor: Tensor) -> int:
    """The address of its numbers; 0 for a sparse tensor, and for one that has none."""
    try:
        return tensor.data_ptr()
    except RuntimeError:
        return 0


@contextmanager
def watched(
    classes: Iterable[Any], undo: Iterable[Step] = (), until: float = math.inf
) -> Iterator[list[Step]]:
    """List of `Step`, filled while backward methods of these Functions run."""
    watch = Watch(undo, until=until)

    def wrapper_of(cls):
        def wrapper(function):
            code = getattr(inspect.unwrap(function), "__code__", None)
            home = cls.__name__, code.co_filename if code else ""

            def watching(ctx, *grads):
                watch.running.append(home)
                try:
                    with watch:
                        return function(ctx, *grads)
                finally:
                    watch.running.pop()

            return watching

        return wrapper

    with ExitStack() as stack:
        stack.callback(watch.clear)
        stack.enter_context(engine_replaced(watch.engine))
        for made in (torch.autograd.Variable, torch.nn.Parameter):
            stack.enter_context(around(made, "__new__", watch.made_anew))
        for cls in dict.fromkeys(classes):
            stack.enter_context(around(cls, backward_method(cls), wrapper_of(cls)))
        yield watch.steps
