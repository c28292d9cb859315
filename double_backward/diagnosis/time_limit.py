"""A limit of time, and of backwards that call themselves: whatever fn does, `diagnose` returns."""

import ctypes
import functools
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from double_backward._torch import class_of, engine_replaced
from double_backward.places import innermost_of

DEEPEST = 100  # backwards that call each other
ENGINE = os.path.join("torch", "autograd", "function.py")  # what calls a backward in Python


class TookTooLong(BaseException):
    """Not an `Exception`, since fn may catch those.

    Attributes:
        running: "backward, line 7": the reader's code that was running; "" if none was.
    """

    running = ""


class EndlessRecursion(RuntimeError):
    """A backward differentiates what leads to itself."""


@contextmanager
def limited(seconds: float | None) -> Iterator[None]:
    """Raise `TookTooLong` inside after so many seconds; None: never.

    It comes as soon as Python runs again in this thread, or in one in which autograd calls a
    backward; a single call of compiled code is waited for.
    """
    if seconds is None:
        yield
        return
    limit = _Limit(threading.get_ident())
    timer = threading.Timer(seconds, limit.end)
    timer.daemon = True
    timer.start()
    try:
        yield
    except TookTooLong as error:
        error.running = limit.running
        raise
    finally:
        timer.cancel()
        limit.over()


class _Limit:
    """Ends the work of one thread, and of those that autograd began for it."""

    def __init__(self, thread: int):
        self.thread, self.before = thread, set(sys._current_frames())
        self.lock, self.is_over, self.ended = threading.Lock(), False, False
        self.running = ""

    def end(self) -> None:
        with self.lock:
            if self.is_over:
                return
            frames = dict(sys._current_frames())
            mine = frames.pop(self.thread, None)
            others = {k: f for k, f in frames.items() if k not in self.before and _backward(f)}
            stacks = [traceback.extract_stack(f) for f in [*others.values(), mine] if f]
            self.running = next(filter(None, map(innermost_of, stacks)), "")
            self.ended = True
            for thread in [*others, self.thread]:
                _raise_in(thread, TookTooLong)

    def over(self) -> None:
        """What was sent and has not come is taken back."""
        with self.lock:
            self.is_over = True
            if self.ended:
                _raise_in(self.thread, None)


def _backward(frame: FrameType | None) -> bool:
    """Whether a thread runs nothing but a backward."""
    while frame is not None and frame.f_back is not None:
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.endswith(ENGINE)


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    wanted = ctypes.py_object(error) if error else None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), wanted)


@contextmanager
def no_endless_recursion() -> Iterator[None]:
    """Raise `EndlessRecursion` where a backward differentiates the output of its own node.

    A saved output has the Function as its grad_fn, whatever graph it had inside forward: to
    differentiate it calls the same backward, and so on. Torch itself does not end that.
    """
    with engine_replaced(_ending_recursion):
        yield


def _ending_recursion(engine: Callable) -> Callable:
    running: list[list[Any]] = []  # the nodes that each run differentiates, the innermost last

    @functools.wraps(engine)
    def run(t_outputs: Any, *args: Any, **kwargs: Any) -> Any:
        nodes = [getattr(t, "grad_fn", None) for t in t_outputs]
        mine = [node for node in nodes if class_of(node) is not None]
        for node in mine:
            if any(node is other for others in running for other in others):
                raise EndlessRecursion(_recursion(node))
        if len(running) > DEEPEST:
            raise EndlessRecursion(f"endless recursion: {DEEPEST} backwards inside one another")
        running.append(mine)
        try:
            return engine(t_outputs, *args, **kwargs)
        finally:
            running.pop()

    return run


def _recursion(node: Any) -> str:
    name = class_of(node).__name__
    return f"endless recursion: backward of {name} differentiates an output of {name}"
