"""Places in code: whose they are (the reader's, a package's, torch's, ours), which of them is
running or raises, and a short text for them."""

import inspect
import linecache
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch

from .phrases import Phrase, joined

OURS = str(Path(__file__).parent) + os.sep
TORCH = str(Path(torch.__file__).parent) + os.sep
PYTHON = sysconfig.get_path("stdlib"), "<frozen ", "<__array_function__", "<string>"
INSTALLED = {"site-packages", "dist-packages"}
NOTEBOOK = "<notebook>"
GENERATED = "<eval_with_key>"  # beginning of the name of a file that torch.compile writes
COMPREHENSION = re.compile(r"\.<locals>\.<(list|dict|set)comp>$")
WRITTEN = "_double_backward_written"  # attribute of a generated class: the function it is made of


@dataclass(frozen=True)
class Place:
    """A line of a file. As a string, it is `package/module.py:12` wherever that is installed."""

    file: str  # absolute where there is one; "" if it is not known
    line: int  # 0 if it is not known
    module: str = ""  # "package.module", "__main__"
    function: str = ""  # the function that contains the line

    def __str__(self) -> str:
        if is_in_notebook(self.file):  # a cell has no name: a line alone is nowhere
            return self.said() if self.function else NOTEBOOK
        return (short(self.file) or self.module) + (f":{self.line}" if self.line else "")

    def to_dict(self) -> dict[str, object]:
        return {"file": self.file or None, "line": self.line or None, "module": self.module}

    def said(self, with_file: bool | None = None) -> str:
        """The text "backward, line 7", with the file if asked for; None: only in an installed
        package."""
        with_file = _is_installed(self.file) if with_file is None else with_file
        told = with_file and not _is_cell(self.file)
        of = Phrase(" of {}", short(self.file)) if told else ""
        return Phrase("{}, line {}{}", self.function, self.line, of)

    def quoted(self, with_file: bool | None = None) -> str:
        """The text "backward, line 7: `return g * x`"."""
        text = linecache.getline(self.file, self.line).strip()
        return Phrase("{}: `{}`", self.said(with_file), text) if text else self.said(with_file)


def short(file: str) -> str:
    """A path that begins at the package, or in the working folder."""
    path = Path(file)
    if _is_cell(file):
        return NOTEBOOK if is_in_notebook(file) else file
    if _is_installed(file):
        last = max(i for i, part in enumerate(path.parts) if part in INSTALLED)
        return "/".join(path.parts[last + 1 :])
    try:
        return path.relative_to(Path.cwd()).as_posix()
    except (ValueError, OSError):  # elsewhere, or the folder is gone
        return "/".join(path.parts[-2:])


def _is_cell(file):
    """Whether code is in no named file: in a notebook's cell, or in exec."""
    return file.startswith("<") or Path(file).parent.name.startswith("ipykernel_")


def is_in_notebook(file: str) -> bool:
    """Whether code is in a cell, of Jupyter or of IPython."""
    return "ipy" in file and _is_cell(file)


@lru_cache(maxsize=1000)
def _is_installed(file: str) -> bool:
    """Whether a file belongs to an installed package; these are often below the standard
    library."""
    return bool(INSTALLED & set(Path(file).parts))


def is_own(file: str) -> bool:
    """Whether a file is no part of torch, of Python or of this package."""
    if file.startswith((OURS, TORCH)) or file.endswith(".pyx"):
        return False
    return _is_installed(file) or not file.startswith(PYTHON)


def undecorated(function: Any) -> Any:
    """The function that is finally called: below decorators, by a `partial`, by an object."""
    while inner := getattr(function, "func", None) or getattr(function, "__wrapped__", None):
        function = inner
    is_object = not (inspect.isroutine(function) or isinstance(function, type))
    return type(function).__call__ if is_object else function


@lru_cache(maxsize=256)
def place_of(function: Any) -> Place:
    """The place where a class is written, or a function below its decorators; for a registered
    operator, that of its backward."""
    written = vars(function).get(WRITTEN, function)
    if isinstance(written, Place):
        return written
    function = undecorated(written)
    try:
        file, line = inspect.getsourcefile(function), inspect.getsourcelines(function)[1]
    except (OSError, TypeError):  # made in a cell that is gone, or by a program
        method = inspect.unwrap(getattr(function, "forward", function))
        code = getattr(method, "__code__", None)
        file, line = (code.co_filename, code.co_firstlineno) if code else (None, 0)
    file = os.path.abspath(file) if file and file[0] != "<" else file or ""
    return Place(file, line, getattr(function, "__module__", ""))


def place_in(frame: FrameType) -> Place:
    """The line that is running in a frame."""
    code, module = frame.f_code, frame.f_globals.get("__name__", "")
    return Place(code.co_filename, frame.f_lineno, module, name_of(code))


def name_of(code: CodeType) -> str:
    """The name of a function; of a comprehension, which has code of its own up to Python 3.11, that
    of the function around it."""
    return COMPREHENSION.sub("", code.co_qualname).rpartition(".")[2]


def calling() -> Place | None:
    """The innermost line that is running now and is neither in this package nor in torch, nor in
    what torch has compiled."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith((OURS, TORCH, GENERATED)):
        frame = frame.f_back
    return frame and place_in(frame)


def line_of_code(
    frame: FrameType | None, own: Callable[[str], bool] = is_own, home: str = ""
) -> str:
    """The innermost line that is running in backward: "backward, line 7: `return g * x`".

    A line outside installed packages is preferred, unless the innermost one is in `home`, the file
    of that backward. Frames that called this package do not count. For a line that is not in
    `home`, the text also names its file, and the line in `home` that led there.
    """
    found: list[Place] = []
    while frame and not frame.f_code.co_filename.startswith(OURS):
        decorator = _decorator_of(frame, own)
        if decorator or own(frame.f_code.co_filename) or frame.f_code.co_filename == home:
            found.append(decorator or place_in(frame))
        frame = frame.f_back
    place = found[0] if found and found[0].file == home else innermost(found[::-1])
    if place is None:
        return ""
    if not home or place.file == home:
        return place.quoted(False if home else None)
    led = [p.quoted(False) for p in found if p.file == home]
    return joined("{}, called from {}", [place.quoted(True), *led[:1]])


def _decorator_of(frame: FrameType, own: Callable[[str], bool]) -> Place | None:
    """The line @torch.no_grad() of the function that torch calls in this frame, or None."""
    code = getattr(frame.f_locals.get("func"), "__code__", None)
    if frame.f_code.co_name != "decorate_context" or code is None or not own(code.co_filename):
        return None
    first = code.co_firstlineno
    for number in range(first, first + 9):
        line = linecache.getline(code.co_filename, number)
        if line.lstrip().startswith("def "):
            break
        if "grad" in line or "inference" in line:
            first = number
            break
    return Place(code.co_filename, first, function=code.co_name)


def innermost(way: Iterable[Place]) -> Place | None:
    """The last of these places, outermost first, that is in the reader's code, or else in a
    package."""
    own = [place for place in way if is_own(place.file)]
    own = [place for place in own if not _is_installed(place.file)] or own
    return own[-1] if own else None


def innermost_of(stack: traceback.StackSummary) -> str:
    """The text for the innermost place in a stack, "backward, line 7", or ""."""
    place = innermost(Place(f.filename, f.lineno or 0, function=f.name) for f in stack)
    return place.said() if place else ""


def raised_in(error: Exception) -> str:
    """The innermost place in the traceback of an error that is in the reader's code, or else in a
    package; "" if all are in torch, in Python or in this package."""
    return innermost_of(traceback.extract_tb(error.__traceback__))
