"""Whose line it is that runs, or raises (the reader's, a package's), and what the error says; and
how long the lines are in which we say it."""

import linecache
import sysconfig
import textwrap
import traceback
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from types import FrameType
from typing import Any

import torch

WIDTH = 88  # of all that is printed
OURS = str(Path(__file__).parent)
TORCH = str(Path(torch.__file__).parent)
PYTHON = sysconfig.get_path("stdlib"), "<frozen ", "<__array_function__", "<string>"
INSTALLED = {"site-packages", "dist-packages"}


def wrapped(text: str, indent: str) -> list[str]:
    """Lines of at most `WIDTH`, all but the first indented, less so for a long word; only one that
    is longer than a line is broken."""
    longest = max(map(len, text.split()), default=0)
    indent = indent[: max(0, WIDTH - longest)]
    return textwrap.wrap(text, WIDTH, subsequent_indent=indent, break_on_hyphens=False)


def is_own(filename: str) -> bool:
    """True for a file that is no part of torch, of Python or of this package."""
    if filename.startswith((OURS, TORCH)) or filename.endswith(".pyx"):
        return False
    return _installed(filename) or not filename.startswith(PYTHON)


@lru_cache(maxsize=1000)
def _installed(path: str | Path) -> bool:
    """Below the standard library, often."""
    return bool(INSTALLED & set(Path(path).parts))


def line_of_code(
    frame: FrameType | None,
    own: Callable[[str], bool] = is_own,
    home: str = "",
    told: Callable[[Any, int], str] | None = None,
) -> str:
    """The innermost line that runs in backward: "backward, line 7: `return g * x`".

    A line outside installed packages comes first, unless the innermost is in `home`, the file of
    that backward; what called us is no part of backward. Of one that is not in `home` its file is
    said, and what led there.
    """
    found: list[tuple[Any, int]] = []
    while frame and not frame.f_code.co_filename.startswith(OURS):
        if frame.f_code.co_name == "decorate_context" and (line := _decorator_of(frame, own)):
            found.append(line)
        elif own(frame.f_code.co_filename) or frame.f_code.co_filename == home:
            found.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    if not found:
        return ""
    outside = [line for line in found if not _installed(line[0].co_filename)]
    at_home = found[0][0].co_filename == home
    code, number = found[0] if at_home else (outside or found)[0]
    if not home or code.co_filename == home:
        return (told or told_line)(code, number)
    led = [f", called from {told_line(*line)}" for line in found if line[0].co_filename == home]
    return told_line(code, number, _file(code.co_filename)) + "".join(led[:1])


def _file(name: str) -> str:
    """ " of package/module.py"; "" for what is in no file of a name: a notebook's cell, exec."""
    path = Path(name)
    if name.startswith("<") or path.parent.name.startswith("ipykernel_"):
        return ""
    return f" of {path.parent.name}/{path.name}"


def _decorator_of(frame: FrameType, own: Callable[[str], bool]) -> tuple[Any, int] | None:
    """The line @torch.no_grad() of the function that torch calls in this frame, or None."""
    code = getattr(frame.f_locals.get("func"), "__code__", None)
    if code is None or not own(code.co_filename):
        return None
    for number in range(code.co_firstlineno, code.co_firstlineno + 9):
        line = linecache.getline(code.co_filename, number)
        if line.lstrip().startswith("def "):
            break
        if "grad" in line or "inference" in line:
            return code, number
    return code, code.co_firstlineno


def told_line(code: Any, number: int, file: str = "") -> str:
    return _told(code.co_filename, code.co_name, number, file)


def told_in_file(code: Any, number: int) -> str:
    """The same, with the file of an installed package."""
    return _told(code.co_filename, code.co_name, number, _of(code.co_filename))


def _told(file: str, name: str, number: int, where: str) -> str:
    text = linecache.getline(file, number).strip()
    return f"{name}, line {number}{where}" + (f": `{text}`" if text else "")


def innermost_of(way: list[tuple[str, str, int]]) -> str:
    """The last of (file, name, line), outermost first, that is the reader's own, else a
    package's; none of what called us."""
    ours = [i for i, (file, _, _) in enumerate(way) if file.startswith(OURS)]
    last = _last_own(way[max(ours, default=-1) + 1 :])
    return _told(*last, _of(last[0])) if last else ""


def raised_in(error: Exception) -> str:
    """The innermost place in the reader's code in the way of an error, else in a package's; "" if
    it is in torch, in Python or here."""
    return innermost(traceback.extract_tb(error.__traceback__))


def innermost(way: traceback.StackSummary) -> str:
    """ "backward, line 7": the last frame of the reader's own code, else of a package's."""
    last = _last_own([(f.filename, f.name, f.lineno or 0) for f in way])
    return f"{last[1]}, line {last[2]}{_of(last[0])}" if last else ""


def _last_own(way: list[tuple[str, str, int]]) -> tuple[str, str, int] | None:
    frames = [frame for frame in way if is_own(frame[0])]
    own = [frame for frame in frames if not _installed(frame[0])] or frames
    return own[-1] if own else None


def _of(file: str) -> str:
    return _file(file) if _installed(file) else ""


def first_line(error: Any) -> str:
    """What an error says, in one line, with its type where that says more."""
    line = (message_of(error).strip().splitlines() or [""])[0]
    return line if type(error) is RuntimeError else f"{type(error).__name__}: {line}"


def described(error: Exception) -> str:
    """All that an error says, with its type and its place."""
    place = raised_in(error)
    return f"{type(error).__name__}: {message_of(error)}{f' (in {place})' if place else ''}."


def message_of(error: Any) -> str:
    try:
        return str(error)
    except Exception:  # of the error's own __str__
        return ""
