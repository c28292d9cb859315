"""What an answer does while it runs: what a method is given and returns, where it leaves autograd.

Observed by running, never read from the text of an answer.
"""

import inspect
import sys
from collections.abc import Iterable
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import FrameType

import torch
from torch.overrides import TorchFunctionMode

from .reply import is_readers, line_of, wrong


@contextmanager
def around(cls, method, wrapper):
    """For a while, `cls.method` is `wrapper(method)`."""
    own, before = method in vars(cls), inspect.getattr_static(cls, method)
    setattr(cls, method, staticmethod(wrapper(getattr(cls, method))))
    try:
        yield
    finally:
        setattr(cls, method, before) if own else delattr(cls, method)


@contextmanager
def recorded(cls, method):
    """List of (arguments, result), one for each call of `cls.method`."""
    calls = []

    def wrapper(function):
        def recording(*args):
            result = function(*args)
            calls.append((args, result))
            return result

        return recording

    with around(cls, method, wrapper):
        yield calls


@dataclass(frozen=True)
class Step:
    """A step of a backward that autograd does not record.

    Attributes:
        kind: key of `STEPS`.
        where: the line of the answer.
    """

    kind: str
    where: str


# What autograd does not see: how it is told. The first ones can be undone, see `Watch`.
STEPS = {
    "detach": "detach",
    "data": ".data",
    "no_grad": "a region without grad mode",
    "grad": "autograd.grad without create_graph",
    "tensor": "torch.tensor of a tensor, a copy without graph",
    "item": ".item()",
    "tolist": ".tolist()",
    "float": "float() of a tensor",
    "numpy": "NumPy",
}
DATA = inspect.getattr_static(torch.Tensor, "data")  # the descriptor behind tensor.data
UNDOABLE = ("detach", "data", "no_grad", "grad", "tensor")
_LEAVES = {"item": "item", "tolist": "tolist", "numpy": "numpy", "__array__": "numpy"}
_LEAVES |= {"__float__": "float", "__int__": "float"}


def told_steps(steps: "Iterable[Step]") -> str:
    """What they are and where, each once."""
    return "; ".join(
        dict.fromkeys(STEPS[s.kind] + (f" in {s.where}" if s.where else "") for s in steps)
    )


class Watch(TorchFunctionMode):
    """Notes the steps that lose a graph; with `undo`, does without those of these kinds."""

    def __init__(self, undo=()):
        super().__init__()
        self.undo, self.steps, self.cut_off = undo, [], set()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        kind = self.kind(func, args, kwargs)
        if kind is None:
            return func(*args, **kwargs)
        self.steps.append(Step(kind, _readers_line()))
        if kind in ("detach", "data"):
            self.cut_off.add(args[0].data_ptr())
        if kind not in self.undo:
            return func(*args, **kwargs)
        if kind == "no_grad":
            return None
        if kind == "grad":
            return func(*args, **{**kwargs, "create_graph": True})
        return args[0]

    def kind(self, func, args, kwargs):
        """Which step this call is, or None for one that autograd sees or that loses nothing."""
        if not torch.is_grad_enabled():  # inside the forward of another Function, for one
            return None
        if func is torch._C._set_grad_enabled:
            return None if args[0] else "no_grad"
        if func is torch.autograd.grad:
            asked = kwargs.get("create_graph", args[4] if len(args) > 4 else False)
            return None if asked else "grad"
        tensor = args[0] if args else None
        if not isinstance(tensor, torch.Tensor):
            return None
        name = getattr(func, "__name__", "")
        if tensor.data_ptr() in self.cut_off and not tensor.requires_grad:
            return _LEAVES.get(name)
        if not tensor.requires_grad:
            return None
        if func is torch.tensor:
            return "tensor"
        if name == "__get__":
            return "data" if func == DATA.__get__ else None
        return "detach" if name in ("detach", "detach_") else _LEAVES.get(name)


def _readers_line():
    frame: FrameType | None = sys._getframe(2)
    while frame and not is_readers(frame.f_code.co_filename):
        if frame.f_code.co_name == "watching":
            return ""
        frame = frame.f_back
    return line_of(frame, frame.f_lineno) if frame else ""


@contextmanager
def watched(classes, undo=()):
    """List of `Step`, filled while backward methods of these Functions run."""
    watch = Watch(undo)

    def wrapper(function):
        def watching(ctx, *grads):
            with watch:
                return function(ctx, *grads)

        return watching

    with ExitStack() as stack:
        for cls in dict.fromkeys(classes):
            stack.enter_context(around(cls, "backward", wrapper))
        yield watch.steps


def check_unchanged(task, who, setting, xs):
    """The arguments belong to the caller: after the call their numbers are as before."""
    for name, before, after in zip(task.inputs, setting.args, xs, strict=True):
        if torch.is_tensor(before) and not _same(before, after):
            fact = f"{who} changes {name}, which belongs to the caller{setting.note}."
            wrong(fact, "Make a new tensor instead.")


def _same(before, after):
    return before.shape == after.shape and torch.equal(before, after.detach())
