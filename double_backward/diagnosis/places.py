"""Places in somebody's code: which file, which line, and how to say it shortly."""

import ast
import inspect
import linecache
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import FrameType

from double_backward.lines import OURS, TORCH

CELL = "ipykernel_"  # the folder in which a notebook's cells have their files


@dataclass(frozen=True)
class Place:
    """A line of a file. As a string `package/module.py:12`, the same wherever it is installed."""

    file: str  # absolute where there is one; "" if it is not known
    line: int  # 0 if it is not known
    module: str  # "package.module", "__main__"

    def __str__(self) -> str:
        line = f":{self.line}" if self.line else ""
        return (_short(self.file, self.module) if self.file else self.module) + line

    def to_dict(self) -> dict[str, object]:
        return {"file": self.file or None, "line": self.line or None, "module": self.module}


def _short(file: str, module: str) -> str:
    path = Path(file)
    if path.parent.name.startswith(CELL) or file.startswith("<"):  # of IPython, of exec
        return "<notebook>" if "ipy" in file else file
    named = module.split(".") + ["__init__"] * (path.stem == "__init__")
    if list(path.with_suffix("").parts[-len(named) :]) == named:
        return "/".join(path.parts[-len(named) :])
    try:
        return path.relative_to(Path.cwd()).as_posix()
    except (ValueError, OSError):  # elsewhere, or the folder is gone
        return file


def place_of(function: type) -> Place:
    """Where a class is written."""
    module = function.__module__
    try:
        file, line = inspect.getsourcefile(function), _line_of(function)
    except (OSError, TypeError):  # made in a cell that is gone, or by a program
        method = inspect.unwrap(getattr(function, "forward", function))
        code = getattr(method, "__code__", None)
        file, line = (code.co_filename, code.co_firstlineno) if code else (None, 0)
    return Place(os.path.abspath(file) if file and file[0] != "<" else file or "", line, module)


def _line_of(function: type) -> int:
    """That of `inspect.getsourcelines`, which parses the whole file anew for each class."""
    file = inspect.getsourcefile(function) or inspect.getfile(function)
    text = "".join(linecache.getlines(file, vars(sys.modules[function.__module__])))
    try:
        return _classes(text)[function.__qualname__]
    except (KeyError, SyntaxError):
        return inspect.getsourcelines(function)[1]


@lru_cache(maxsize=16)
def _classes(text: str) -> dict[str, int]:
    """The first line of each class of a file, by its qualified name."""
    found: dict[str, int] = {}

    def look(node: ast.AST, inside: str) -> None:
        for child in ast.iter_child_nodes(node):
            within = inside
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                within = f"{inside}{child.name}.<locals>."
            elif isinstance(child, ast.ClassDef):
                first = child.decorator_list[0] if child.decorator_list else child
                found.setdefault(inside + child.name, first.lineno)
                within = f"{inside}{child.name}."
            look(child, within)

    look(ast.parse(text), "")
    return found


def calling(besides: Iterable[str] = (OURS, TORCH)) -> Place | None:
    """The innermost line that is running now and is neither ours nor torch's."""
    ours = tuple(folder + os.sep for folder in besides)
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(ours):
        frame = frame.f_back
    if frame is None:
        return None
    name = frame.f_code.co_filename
    return Place(name, frame.f_lineno, frame.f_globals.get("__name__", ""))
