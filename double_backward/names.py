"""The reader's names for what a Function gets, keeps and returns: from its signature, from the
variables while it runs, and where its source can be read.

Names only: nothing is concluded from the source.
"""

import ast
import inspect
import linecache
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from types import CodeType, FrameType, FunctionType
from typing import Any

from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import FunctionCtx

from .methods import has_setup_context
from .places import OURS, TORCH, Place, place_in

METHODS = FunctionType, staticmethod, classmethod
SHORT = 40  # characters of an expression that is told as a name


def argument_names(function: type[Function]) -> list[str]:
    """The parameters of forward without ctx; empty where they cannot be known."""
    try:
        parameters = list(inspect.signature(function.forward).parameters.values())
    except (TypeError, ValueError):
        return []
    if any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters):
        return []
    return [p.name for p in parameters[not has_setup_context(function) :]]


def call_names(fn: Callable, count: int) -> list[str]:
    """The names of the first `count` arguments of fn; empty where it has none for them."""
    function = getattr(fn, "__self__", None)
    if inspect.isclass(function) and issubclass(function, Function):
        names = argument_names(function)
    else:
        try:
            parameters = inspect.signature(fn).parameters.values()
        except (TypeError, ValueError):
            return []
        plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        names = [p.name for p in parameters if p.kind in plain]
    return names[:count] if len(names) >= count else []


def returned_names(function: type[Function]) -> list[str]:
    """The variables that forward returns in a tuple, "" for what is not a plain name."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function.forward)))
    except (OSError, TypeError, SyntaxError):
        return []
    returns = [node for node in ast.walk(tree) if isinstance(node, ast.Return)]
    value = returns[-1].value if returns else None
    parts = value.elts if isinstance(value, ast.Tuple) else []
    return [part.id if isinstance(part, ast.Name) else "" for part in parts]


@dataclass(frozen=True)
class Save:
    """One call of save_for_backward.

    Attributes:
        names: of each tensor: of a variable, else what the call says, else "".
        code: the function that calls it.
        place: the line of the call.
    """

    names: tuple[str, ...]
    code: CodeType
    place: Place

    def is_in(self, function: type) -> bool:
        """Whether it stands in a method of the class itself, not of one that it inherits from."""
        methods = (value for value in vars(function).values() if isinstance(value, METHODS))
        plain = (inspect.unwrap(m if isinstance(m, FunctionType) else m.__func__) for m in methods)
        return any(getattr(method, "__code__", None) is self.code for method in plain)

    @property
    def told(self) -> str:
        """ "Base.forward, package/module.py:12"."""
        return f"{self.code.co_qualname.split('<locals>.')[-1]}, {self.place}"


@contextmanager
def saves_noted() -> Iterator[dict[Any, Save]]:
    """ctx -> its last save, filled while forwards run."""
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
    """Names of the innermost frame first; a helper may be handed a tuple of them."""
    names: dict[int, str] = {}
    way: FrameType | None = frame
    while way is not None and not way.f_code.co_filename.startswith((OURS, TORCH)):
        for name, value in way.f_locals.items():
            if isinstance(value, Tensor) and not name.startswith((".", "_")):
                names.setdefault(id(value), name)
        way = way.f_back
    written = call_arguments(frame)
    if len(written) != len(tensors):
        written = [""] * len(tensors)
    found = (names.get(id(t), text) for t, text in zip(tensors, written, strict=True))
    return Save(tuple(found), frame.f_code, place_in(frame))


def call_arguments(frame: FrameType) -> list[str]:
    """What is written for each argument of the call that runs in a frame, "" for a long one; empty
    where that is not known."""
    # Not by inspect.getframeinfo, which goes through all modules for a file that is none of theirs.
    code, instruction = frame.f_code, frame.f_lasti // 2
    first, last, begin, end = next(islice(code.co_positions(), instruction, None))
    if first is None or last is None or begin is None or end is None:  # -X no_debug_ranges
        return []
    lines = [linecache.getline(code.co_filename, n).encode() for n in range(first, last + 1)]
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][begin:]
    try:
        call = ast.parse(b"".join(lines).decode(), mode="eval").body
    except (SyntaxError, ValueError):
        return []
    if not isinstance(call, ast.Call) or any(isinstance(a, ast.Starred) for a in call.args):
        return []
    told = map(ast.unparse, call.args)
    return [text if len(text) <= SHORT else "" for text in told]
