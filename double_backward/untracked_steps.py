"""Finds the steps of a backward, or of fn, that autograd does not follow, with their lines.

They are observed while the code runs, and never read from its text.
"""

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ._torch import engine_replaced, overload_called, set_grad_enabled, tree_leaves
from .methods import around, backward_method
from .operators import NO_KERNEL, RESULT_WITHOUT_GRAPH, Watched, writes_in_place
from .phrases import Phrase, joined
from .places import OURS, TORCH, is_own, line_of_code

DETACHING = {  # kind of step -> its name in the report
    "detach": ".detach()",
    "data": ".data",
    "no_grad": Phrase("torch.no_grad() or the like"),
    "grad": Phrase("autograd.grad without create_graph"),
    "backward": Phrase(".backward() without create_graph"),
    "tensor": "torch.tensor()",
    "variable": Phrase("Variable() or nn.Parameter()"),
    "mutates": Phrase("an operator that writes into what it is given (mutates_args)"),
    "operator": Phrase("an operator that has no backward"),
}
LEAVING = {"item": ".item()", "tolist": ".tolist()", "float": "float()", "numpy": "NumPy"}
HOOKS = {  # their results take the place of a gradient
    "hook": Phrase("a hook on a tensor"),
    "module_hook": Phrase("a backward hook of a module"),
    "post_hook": Phrase("a hook after a gradient is accumulated"),
}
OF_FN = HOOKS | {"max_norm": Phrase("max_norm of an embedding, which writes into its weight")}
ALL_STEPS = DETACHING | LEAVING | OF_FN | {"inference": "torch.inference_mode()"}
DATA = inspect.getattr_static(torch.Tensor, "data")  # the descriptor behind tensor.data
GRAD = inspect.getattr_static(torch.Tensor, "grad")
OF_GRAD = "outputs", "inputs", "grad_outputs", "retain_graph", "create_graph"
LEAVING_METHODS = {
    "detach": "detach", "detach_": "detach", "item": "item", "tolist": "tolist",
    "numpy": "numpy", "__array__": "numpy", "__float__": "float", "__int__": "float",
}  # fmt: skip


@dataclass(frozen=True)
class Step:
    """A step that autograd does not record: a key of `STEPS`, and the line of the code."""

    kind: str
    where: str
    function: str = field(default="", compare=False)  # the class whose backward takes it


def told(steps: Iterable[Step]) -> str:
    """The steps and their lines as text, each once."""
    return joined("{}; {}", dict.fromkeys(map(_told, steps)))


def _told(step):
    return (
        Phrase("{} in {}", ALL_STEPS[step.kind], step.where) if step.where else ALL_STEPS[step.kind]
    )


class Watch(TorchFunctionMode):
    """Notes the steps that lose a graph.

    Args:
        own: whether a file is one whose lines are reported.
    """

    def __init__(self, own: Callable[[str], bool] = is_own):
        super().__init__()
        self.own = own
        self.steps: list[Step] = []
        self.running: list[tuple[str, str]] = []  # (class, file) of running backwards
        self.cut_off: set[int] = set()  # the memory of what was detached

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs, frame = kwargs or {}, sys._getframe(1)
        if kind := self.kind(func, args, kwargs, frame):
            self.note(kind, frame)
        if kind in ("detach", "data"):
            self.cut_off.add(address_of(args[0]))
        overload = overload_called(func, args, kwargs) if torch.is_grad_enabled() else None
        watched = overload and Watched(overload, args, kwargs)
        result = func(*args, **kwargs)
        if watched and watched.lost(result)[0] in (NO_KERNEL, RESULT_WITHOUT_GRAPH):
            self.note("operator", frame)
        return result

    def kind(self, func: Any, args: tuple, kwargs: dict, frame: Any) -> str | None:
        """The kind of step that this call is, or None if autograd follows it or nothing is lost."""
        if torch.is_inference_mode_enabled():
            return "inference"
        if not torch.is_grad_enabled():  # such as inside the forward of another Function
            return None
        if func is set_grad_enabled:
            return None if args[0] or _puts_back(frame) else "no_grad"
        if func is torch.autograd.grad:
            asked = kwargs.get("create_graph", args[4] if len(args) > 4 else False)
            return None if asked else "grad"
        if writes_in_place(func):
            given = tree_leaves([args, kwargs])
            return "mutates" if any(getattr(t, "requires_grad", False) for t in given) else None
        if func == DATA.__get__:  # also where a graph is written into it
            return "data"
        name, tensor = getattr(func, "__name__", ""), args[0] if args else None
        if not isinstance(tensor, Tensor):
            return None
        kind = "tensor" if func is torch.tensor else LEAVING_METHODS.get(name)
        lost = tensor.requires_grad or (kind in LEAVING and address_of(tensor) in self.cut_off)
        return kind if lost else None

    def note(self, kind, frame):
        function, home = self.running[-1] if self.running else ("", "")
        if kind in ("mutates", "operator"):  # a hook of ours may stand between
            frame = _before_engine(frame, home)
        self.steps.append(Step(kind, line_of_code(frame, self.own, home), function))

    def made_anew(self, new):
        """`__new__` of Variable and nn.Parameter, for which no mode is called."""

        def watching(cls, *args, **kwargs):
            data = args[0] if args else kwargs.get("data")
            lost = isinstance(data, Tensor) and data.requires_grad and torch.is_grad_enabled()
            if self.running and lost:
                self.note("variable", sys._getframe(1))
            return new(cls, *args, **kwargs)

        return watching

    def engine(self, run):
        """The engine, which notes `.backward()` inside backward; `kind` sees `autograd.grad`."""

        def watching(tensors, grads, retain_graph, create_graph, inputs, *args, **kwargs):
            seen = kwargs.get("accumulate_grad") and self.running and torch.is_grad_enabled()
            if seen and not create_graph:
                self.note("backward", _before_engine(sys._getframe(1), self.running[-1][1]))
            return run(tensors, grads, retain_graph, create_graph, inputs, *args, **kwargs)

        return watching


class WatchFn(Watch):
    """Notes the steps of fn, a model or a loss, and the hooks that it puts on tensors.

    Much of what fn does outside of autograd loses nothing: a buffer, a number for the log. So a
    `no_grad` counts only if something that requires grad is used inside it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.running.append(("", ""))
        self.open: list[Step] = []  # a no_grad in which nothing is used yet

    def note(self, kind: str, frame: Any) -> None:
        if kind != "operator":  # which has a finding of its own, by its name
            super().note(kind, frame)

    def kind(self, func: Any, args: tuple, kwargs: dict, frame: Any) -> str | None:
        if func is set_grad_enabled and torch.is_grad_enabled() != args[0]:
            self.open = [] if args[0] else [Step("no_grad", line_of_code(frame, self.own))]
            return None
        if func is torch.Tensor.register_hook:
            return "hook"
        if self.open and not torch.is_grad_enabled():
            if any(isinstance(a, Tensor) and a.requires_grad for a in tree_leaves([args, kwargs])):
                self.steps.append(self.open.pop())
            return None
        return super().kind(func, args, kwargs, frame)


def _puts_back(frame):
    """Whether a call only puts grad mode back, as at the end of a `with torch.enable_grad()`."""
    return frame.f_code.co_name == "__exit__" and frame.f_code.co_filename.startswith(TORCH)


def _before_engine(frame, home):
    """The frame that called torch, outside the frames of torch and of this package."""
    while frame and frame.f_code.co_filename.startswith((OURS, TORCH)):
        if frame.f_code.co_filename == home:
            break
        frame = frame.f_back
    return frame


def address_of(tensor: Tensor) -> int:
    """The address of a tensor's numbers; 0 for a sparse tensor, and for one without memory."""
    try:
        return tensor.data_ptr()
    except RuntimeError:
        return 0


@contextmanager
def beyond_modes(watch: Watch) -> Iterator[None]:
    """Inside, a watch also notes what no mode is called for: the engine, and new Variables."""
    with ExitStack() as stack:
        stack.enter_context(engine_replaced(watch.engine))
        for made in (torch.autograd.Variable, torch.nn.Parameter):
            stack.enter_context(around(made, "__new__", watch.made_anew))
        yield


@contextmanager
def watched_fn() -> Iterator[list[Step]]:
    """A list of `Step`, filled while fn runs inside; steps of backwards are not noted."""
    watch = WatchFn()
    with beyond_modes(watch), watch:
        yield watch.steps


class _CreateGraph(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is torch.autograd.grad and len(args) <= len(OF_GRAD):
            kwargs = {**dict(zip(OF_GRAD, args, strict=False)), **kwargs, "create_graph": True}
            args = ()
        return func(*args, **kwargs)


def with_create_graph(function: Callable) -> Callable:
    """The same function, in which each `torch.autograd.grad` has create_graph=True."""

    def run(*args, **kwargs):
        with _CreateGraph():
            return function(*args, **kwargs)

    return run


@contextmanager
def watched(classes: Iterable[Any]) -> Iterator[list[Step]]:
    """A list of `Step`, filled while backwards of these Functions run inside."""
    watch = Watch()

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
        stack.enter_context(beyond_modes(watch))
        for cls in dict.fromkeys(classes):
            stack.enter_context(around(cls, backward_method(cls), wrapper_of(cls)))
        yield watch.steps
