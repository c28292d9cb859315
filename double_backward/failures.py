"""Tells whether an error is one of the user's code, or of this package ("ours").

Where a call of the user's code can itself raise (a wrong number of arguments, a callable written in
C), it is made by `handed_over`. An error whose innermost line is anywhere else in this package is
ours; so is a name that torch lacks where this package has called torch. An error from a `raise` in
this package is meant, and is left as it is. `loud` wraps all that is ours alone: a public function,
a rehearsal, each hook that torch calls. `unless_gone` is used where an error of the user's code may
be dropped; one about a name that torch lacks may not.
"""

import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dis import opmap
from types import ModuleType, TracebackType
from typing import Any, TypeVar

import torch

from ._torch import TESTED, missing, not_for_dynamo
from .places import OURS

T = TypeVar("T")
OF_THE_MACHINE = MemoryError, RecursionError, torch.OutOfMemoryError


class ToolFailure(RuntimeError):
    """This package itself has failed, so that nothing is known of the user's code."""


def handed_over(function: Callable, *args: Any, **kwargs: Any) -> Any:
    """Call the user's code: an error that is raised by the line of the call is not ours."""
    return function(*args, **kwargs)


def by_itself(function: Callable[[], T]) -> T:
    """Call a function in a new thread, in which no autocast, transform, mode or hook of the caller
    is active, and return its result. An error is raised here."""
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
    """`ToolFailure` in the place of an error of ours, by the line that has raised it; else None."""
    if isinstance(error, ToolFailure):
        return error
    way = error.__traceback__
    on_purpose = type(error).__module__.startswith("double_backward")
    if way is None or on_purpose or isinstance(error, OF_THE_MACHINE):
        return None
    if not isinstance(error, Exception):  # Ctrl-C may come at any line
        return None
    ways = [way]
    while ways[-1].tb_next is not None:
        ways.append(ways[-1].tb_next)
    while len(ways) > 1 and _is_gone_from_torch(error) and _is_in_torch(ways[-1]):
        ways.pop()
    way = ways[-1]
    code = way.tb_frame.f_code
    if not code.co_filename.startswith(OURS) or code is handed_over.__code__ or _is_said(way):
        return None
    place = f"double_backward/{code.co_filename.removeprefix(OURS)}, line {way.tb_lineno}"
    return failure(f"it raised {type(error).__name__}: {error} ({place})")


def _is_gone_from_torch(error: BaseException) -> bool:
    """Whether torch lacks an attribute, or misses a name in a line of its own."""
    if not isinstance(error, AttributeError):
        return isinstance(error, NameError)
    owner = getattr(error, "obj", None)
    kind = owner if isinstance(owner, type) else type(owner)
    home = owner.__name__ if isinstance(owner, ModuleType) else kind.__module__
    return home.partition(".")[0] == "torch"


def _is_said(way: TracebackType) -> bool:
    """Whether the error comes from a `raise` statement, or from an assertion."""
    return way.tb_frame.f_code.co_code[way.tb_lasti] == opmap["RAISE_VARARGS"]


def _is_in_torch(way: TracebackType) -> bool:
    return way.tb_frame.f_code.co_filename.startswith(os.path.dirname(torch.__file__) + os.sep)


def raise_if_own(error: BaseException) -> None:
    """Raise `ToolFailure` in the place of an error of ours, so that no other code is blamed."""
    ours = own(error)
    if ours is not None:
        raise ours from (None if ours is error else error)


class loud(AbstractContextManager[None]):
    """Inside, an error of ours is raised as `ToolFailure`, and any other as it is."""

    @not_for_dynamo
    def __enter__(self) -> None: ...

    @not_for_dynamo
    def __exit__(self, _: Any, error: BaseException | None, way: Any) -> None:
        if error is not None:
            raise_if_own(error)


class unless_gone(AbstractContextManager[None]):
    """Inside, an `Exception` ends the block and is dropped, except for a name that torch lacks and
    this package needs, which is a `ToolFailure`."""

    def __exit__(self, _: Any, error: BaseException | None, way: Any) -> bool:
        if error is not None:
            raise_if_gone(error)
        return isinstance(error, Exception)


def raise_if_gone(error: BaseException) -> None:
    """Raise `ToolFailure` in the place of an error of ours which says that torch lacks a name."""
    if isinstance(error, ToolFailure) or _is_gone_from_torch(error):
        raise_if_own(error)


def failure(what: str) -> ToolFailure:
    """The error to raise where this package fails, which says what can be done.

    Args:
        what: what has happened, as words that can follow "because".
    """
    try:
        lost = " ".join(by_itself(missing))
    except Exception as error:
        lost = f"What it lacks cannot be asked: {type(error).__name__}: {error}."
    return ToolFailure(
        f"double_backward itself has failed, and not what it was given, because {what}. "
        f"This is torch {torch.__version__}; the package is tested with torch {TESTED}. "
        f"{lost or 'All private hooks of torch that it uses are there.'} "
        "Use another torch, or a newer double_backward, and report this text to its authors."
    )
