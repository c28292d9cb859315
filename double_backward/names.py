"""The reader's names for what a Function gets and keeps, from its signature and from its variables
while it runs. Nothing is read from its source.
"""

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import CodeType, FrameType, FunctionType
from typing import Any, NamedTuple

from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import FunctionCtx

from . import operators
from .methods import has_setup_context
from .places import OURS, TORCH, Place, is_in_notebook, place_in

METHODS = FunctionType, staticmethod, classmethod


def argument_names(function: type[Function]) -> list[str]:
    """The names of forward's parameters without ctx; empty if they are not known."""
    known = operators.argument_names(function)
    if known is not None:
        return known
    try:
        parameters = list(inspect.signature(function.forward).parameters.values())
    except (TypeError, ValueError):
        return []
    if any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters):
        return []
    return [p.name for p in parameters[not has_setup_context(function) :]]


def call_names(fn: Callable, count: int) -> list[str]:
    """The names of the first `count` arguments of fn; empty if it has no names for them."""
    function, known = getattr(fn, "__self__", None), operators.argument_names(fn)
    if known is not None:
        names = known
    elif inspect.isclass(function) and issubclass(function, Function):
        names = argument_names(function)
    else:
        try:
            parameters = inspect.signature(fn).parameters.values()
        except (TypeError, ValueError):
            return []
        plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        names = [p.name for p in parameters if p.kind in plain]
    return names[:count] if len(names) >= count else []


class Save(NamedTuple):
    """One call of save_for_backward."""

    names: tuple[str, ...]  # for each tensor, the name of a variable that holds it, else ""
    code: CodeType  # the function that makes the call
    place: Place  # the line of the call

    def is_in(self, function: type) -> bool:
        """Whether the call is in a method of the class itself, not of one of its bases."""
        methods = (value for value in vars(function).values() if isinstance(value, METHODS))
        plain = (inspect.unwrap(m if isinstance(m, FunctionType) else m.__func__) for m in methods)
        return any(getattr(method, "__code__", None) is self.code for method in plain)

    @property
    def told(self) -> str:
        """The function and the place, "Base.forward, package/module.py:12"."""
        name = self.code.co_qualname.split("<locals>.")[-1]
        if is_in_notebook(self.place.file):
            return replace(self.place, function=name).said()
        return f"{name}, {self.place}"


@contextmanager
def saves_noted() -> Iterator[dict[Any, Save]]:
    """Dict: ctx -> its last `Save`, filled while forwards run inside."""
    found: dict[Any, Save] = {}
    plain = FunctionCtx.save_for_backward

    def save_for_backward(self: Any, *tensors: Any) -> None:
        found[self] = _save(sys._getframe(1), tensors)
        plain(self, *tensors)

    FunctionCtx.save_for_backward = save_for_backward  # type: ignore[method-assign]
    try:
        yield found
    finally:
        FunctionCtx.save_for_backward = plain  # type: ignore[method-assign]


def _save(frame: FrameType, tensors: tuple) -> Save:
    """A `Save` with the names in the innermost frame first: a helper may get a tuple of tensors."""
    names: dict[int, str] = {}
    way: FrameType | None = frame
    while way is not None and not way.f_code.co_filename.startswith((OURS, TORCH)):
        for name, value in way.f_locals.items():
            if isinstance(value, Tensor) and not name.startswith((".", "_")):
                names.setdefault(id(value), name)
        way = way.f_back
    return Save(tuple(names.get(id(t), "") for t in tensors), frame.f_code, place_in(frame))
