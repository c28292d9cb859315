"""Compiled regions: what `torch.compile` makes of a function, which is one node of the graph.

With AOTAutograd (the default backend and "aot_eager") a region is a Function of torch's own,
`CompiledFunction`; with the backend "eager" each custom Function in it becomes an `ApplyTemplate`.
Both keep results and intermediates, which come back without a graph. They are judged like any other
Function, in the dtype for which they were compiled.
"""

import inspect
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ._torch import overload_of, uncompiled
from .operators import uncalled
from .phrases import Phrase
from .places import place_of

CLASSES = {  # the class that stands for a region, in torch 2.11 to 2.15 -> its module
    "CompiledFunction": "torch._functorch._aot_autograd.",
    "ApplyTemplate": "torch._functorch.autograd_function",
}
KEEPS = Phrase("keeps results and intermediates, which come back without a graph")
NOT_COMPILED = Phrase(
    'Call it under torch.compiler.set_stance("force_eager"), or compile only what is '
    "differentiated once."
)


@dataclass(frozen=True)
class Region:
    """A compiled region, described by what was compiled.

    Attributes:
        name: the name of the function, or of the module's class.
        file, line: where it is defined; None and 0 for a built-in function.
        module: the Python module in which it is defined, "package.module"; "" if it is not known.
    """

    name: str
    file: str | None
    line: int
    module: str = ""

    @property
    def of(self) -> str:
        """The name of what was compiled, and where it is defined."""
        return f"{self.name} ({self.file}, line {self.line})" if self.file else self.name

    def __str__(self) -> str:
        return f"the compiled region of {self.of}"


def is_region(function: Any) -> bool:
    """Whether this class stands for a compiled region."""
    return function.__module__.startswith(CLASSES.get(function.__name__, "?"))


def is_inside_region(function: Any) -> bool:
    """Whether this class is an inner part of a region's class, and does not stand for a region."""
    return function.__module__.startswith(CLASSES["CompiledFunction"]) and not is_region(function)


def region_here() -> Region:
    """The region that is being called in this thread.

    It is found by the frame of the function that was compiled, which is right outside the frame in
    which Dynamo calls the code that it has made.
    """
    frame, outside = sys._getframe(1), False
    while frame is not None:
        code = frame.f_code
        if outside and code.co_name != "_fn":
            return _of_frame(frame)
        outside = code.co_name == "_fn" and code.co_filename.endswith("eval_frame.py")
        frame = frame.f_back  # type: ignore[assignment]
    return Region("a function", None, 0)  # its node is applied again, by itself


def _of_frame(frame: Any) -> Region:
    fn = frame.f_locals.get("fn") if frame.f_code.co_name == "inner" else None
    if fn is None:  # a function; after a graph break, the rest of one
        name = re.sub(r"^torch_dynamo_resume_in_(.*)_at_\d+$", r"\1", frame.f_code.co_name)
        module = frame.f_globals.get("__name__", "")
        return Region(name, frame.f_code.co_filename, frame.f_code.co_firstlineno, module)
    if (operator := overload_of(fn)) is not None:
        place = place_of(uncalled(operator))
        return Region(operator.name(), place.file or None, place.line, place.module)
    owner = fn if hasattr(fn, "forward") else getattr(fn, "__self__", None)
    if owner is not None and hasattr(owner, "forward"):
        code = inspect.unwrap(type(owner).forward).__code__
        kind = type(owner)
        return Region(kind.__name__, code.co_filename, code.co_firstlineno, kind.__module__)
    return Region(getattr(fn, "__name__", str(fn)), None, 0, getattr(fn, "__module__", None) or "")


def as_it_was_written(fn: Any) -> Any:
    """What `torch.compile` was handed, for what it has returned; anything else as it is."""
    if not inspect.isfunction(fn):
        return fn
    inner = getattr(fn, "_torchdynamo_orig_callable", fn)
    if getattr(inner, "__qualname__", "").startswith("wrap_inline."):  # around an object
        return inspect.getclosurevars(inner).nonlocals.get("fn", inner)
    return inner


@contextmanager
def as_written() -> Iterator[None]:
    """Inside, in all threads, compiled functions run as they were written; they stay compiled."""
    see_to_it(1)
    try:
        yield
    finally:
        see_to_it(-1)


_lock, _depth, _stance = threading.RLock(), 0, None


def see_to_it(more: int = 0) -> None:
    """Set the stance of `as_written`, for `more` open blocks, or put it back when none is open.

    Nothing is set before Dynamo has been imported, which takes seconds and without which nothing is
    compiled: code that meets a region calls this again.
    """
    global _depth, _stance
    with _lock, uncompiled():  # inside a region the stance cannot be set
        _depth += more
        if _depth and _stance is None and "torch._dynamo" in sys.modules:
            import torch

            _stance = torch.compiler.set_stance("force_eager")
        elif not _depth and _stance is not None:
            _stance.__exit__(None, None, None)
            _stance = None
