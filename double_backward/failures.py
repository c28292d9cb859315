"""Whose failure an error is: that of the code which was handed in, or this package's own.

Code that was handed in is called by `handed_over` alone, where the call itself can raise (a wrong
number of arguments, a callable written in C). An error whose innermost line is anywhere else in
this package is ours, and nothing that is wrong with what was handed in; so is a name that torch
lacks where this package has called torch.
"""

import os
import threading
from collections.abc import Callable
from types import ModuleType, TracebackType
from typing import Any, TypeVar

import torch

from ._torch import TESTED, missing
from .places import OURS

T = TypeVar("T")
OF_THE_MACHINE = MemoryError, RecursionError, torch.OutOfMemoryError


class ToolFailure(RuntimeError):
    """This package itself has failed, and says nothing of what it was given."""


def handed_over(function: Callable, *args: Any, **kwargs: Any) -> Any:
    """Call what the user has handed in: an error that is raised by this line is not ours."""
    return function(*args, **kwargs)


def by_itself(function: Callable[[], T]) -> T:
    """What it returns, called in a thread of its own: there no autocast, transform, mode or hook of
    the caller's is active. What it raises is raised here."""
    found: list[Any] = []

    def go() -> None:
        try:
            found.append((function(), None))
        except BaseException as error:
            found.append((None, error))

    thread = threading.Thread(target=go, name="double_backward", daemon=True)
    thread.start()
    thread.join()
    ((result, error),) = found
    if error is not None:
        raise error
    return result


def own(error: BaseException) -> ToolFailure | None:
    """What to say in the place of an error of ours, by the line that has raised it; else None."""
    if isinstance(error, ToolFailure):
        return error
    way = error.__traceback__
    on_purpose = type(error).__module__.startswith("double_backward")
    if way is None or on_purpose or isinstance(error, OF_THE_MACHINE):
        return None
    if not isinstance(error, Exception):  # Ctrl-C may come anywhere
        return None
    ways = [way]
    while ways[-1].tb_next is not None:
        ways.append(ways[-1].tb_next)
    while len(ways) > 1 and _is_gone_from_torch(error) and _is_in_torch(ways[-1]):
        ways.pop()
    way = ways[-1]
    code = way.tb_frame.f_code
    if not code.co_filename.startswith(OURS) or code is handed_over.__code__:
        return None
    place = f"double_backward/{code.co_filename.removeprefix(OURS)}, line {way.tb_lineno}"
    return failure(f"it raised {type(error).__name__}: {error} ({place})")


def _is_gone_from_torch(error: BaseException) -> bool:
    if not isinstance(error, AttributeError):
        return False
    owner = getattr(error, "obj", None)
    kind = owner if isinstance(owner, type) else type(owner)
    home = owner.__name__ if isinstance(owner, ModuleType) else kind.__module__
    return home.partition(".")[0] == "torch"


def _is_in_torch(way: TracebackType) -> bool:
    return way.tb_frame.f_code.co_filename.startswith(os.path.dirname(torch.__file__) + os.sep)


def raise_if_own(error: BaseException) -> None:
    """Raise `ToolFailure` in the place of an error of ours, so that nobody else is blamed."""
    ours = own(error)
    if ours is not None:
        raise ours from (None if ours is error else error)


def failure(what: str) -> ToolFailure:
    """The one error that is raised where this package fails, with what can be done.

    Args:
        what: has happened, as it stands behind "because".
    """
    lost = " ".join(by_itself(missing))
    return ToolFailure(
        f"double_backward itself has failed, and not what it was given, because {what}. "
        f"This is torch {torch.__version__}; the package is tested with torch {TESTED}. "
        f"{lost or 'All private hooks of torch that it uses are there.'} "
        "Use another torch, or a newer double_backward, and report this text to its authors."
    )
