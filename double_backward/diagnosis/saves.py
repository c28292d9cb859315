"""Each call of save_for_backward while it runs: the reader's names of the tensors, and its line."""

import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from torch import Tensor
from torch.autograd.function import FunctionCtx

from double_backward.names import call_arguments

from .places import OURS, TORCH, Place

WAY = 20  # frames from the call out to forward


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
        methods = (inspect.unwrap(getattr(m, "__func__", m)) for m in vars(function).values())
        return any(getattr(method, "__code__", None) is self.code for method in methods)

    @property
    def told(self) -> str:
        """ "Base.forward, package/module.py:12"."""
        return f"{self.code.co_qualname.split('<locals>.')[-1]}, {self.place}"


@contextmanager
def noted() -> Iterator[dict[Any, Save]]:
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
    code, line = frame.f_code, frame.f_lineno
    place = Place(code.co_filename, line, frame.f_globals.get("__name__", ""))
    names: dict[int, str] = {}
    way: FrameType | None = frame
    for _ in range(WAY):
        if way is None or way.f_code.co_filename.startswith((OURS, TORCH)):
            break
        for name, value in way.f_locals.items():
            if isinstance(value, Tensor) and not name.startswith((".", "_")):
                names.setdefault(id(value), name)
        way = way.f_back
    written = call_arguments(frame)
    if len(written) != len(tensors):
        written = [""] * len(tensors)
    found = (names.get(id(t), text) for t, text in zip(tensors, written, strict=True))
    return Save(tuple(found), code, place)
