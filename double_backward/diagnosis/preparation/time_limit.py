"""Limits time, and backwards that call themselves, so that `diagnose` returns whatever fn does."""

import ctypes
import functools
import os
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from double_backward._torch import engine_replaced
from double_backward.operators import custom_of
from double_backward.places import innermost_of

DEEPEST = 100  # backwards inside one another
ENGINE = os.path.join("torch", "autograd", "function.py")  # it calls a backward in Python


class TookTooLong(BaseException):
    """The time is over. This is not an `Exception`, since fn may catch those.

    Attributes:
        running: the place in the reader's code that was running, such as "backward, line 7"; "" if
            none was.
    """

    running = ""

    def __init__(self) -> None:  # in the thread that it was sent to
        super().__init__()
        for limit in _ended():
            limit.again_without(self)


class EndlessRecursion(RuntimeError):
    """A backward differentiates something whose graph leads to this backward again."""


@contextmanager
def limited(seconds: float | None) -> Iterator[None]:
    """Inside, raise `TookTooLong` after so many seconds; never if that is None.

    It is raised as soon as Python code runs again in this thread, or in one in which autograd calls
    a backward; a single call of compiled code is not interrupted, nor is an import: what is half
    loaded makes errors of whatever uses it later. If fn catches it, it is raised again.
    """
    if seconds is None:
        yield
        return
    limit = _Limit(threading.get_ident())
    timer = threading.Timer(min(float(seconds), threading.TIMEOUT_MAX), limit.end)
    timer.daemon = True
    try:
        timer.start()
        yield
    except TookTooLong as error:
        error.running = limit.running
        raise
    finally:
        limit.over()
        timer.cancel()
        timer.join()


def look_at_the_clock() -> None:
    """Raise `TookTooLong` if the time is over, even if fn has caught and kept the error."""
    if any(limit.thread == threading.get_ident() for limit in _ended()):
        raise TookTooLong


_late: list[weakref.ref["_Limit"]] = []


def _ended() -> list["_Limit"]:
    """The limits whose time is over, and whose work is not."""
    limits = [each() for each in list(_late)]
    return [limit for limit in limits if limit is not None and not limit.is_over]


class _Limit:
    """Ends the work of one thread, and of those that autograd began for it."""

    def __init__(self, thread: int):
        self.thread, self.before = thread, set(sys._current_frames())
        self.lock, self.is_over = threading.Lock(), False
        self.threads, self.sent = set[int](), list[weakref.ref]()
        self.known_by = weakref.ref(self)
        self.running = ""
        self.imports = _imports(sys._getframe())  # the caller's module may be loaded just now

    def end(self) -> None:
        while not self.is_over and self._is_importing():
            time.sleep(0.01)
        with self.lock:
            if self.is_over:
                return
            mine, others = self._frames()
            stacks = [traceback.extract_stack(f) for f in [*others.values(), mine] if f]
            self.running = next(filter(None, map(innermost_of, stacks)), "")
            self.threads = {*others, self.thread}
            _late.append(self.known_by)
            for thread in self.threads:
                _raise_in(thread, TookTooLong)

    def _frames(self) -> tuple[FrameType | None, dict[int, FrameType]]:
        """What runs in the thread, and in each one that autograd began for it."""
        frames = dict(sys._current_frames())
        mine = frames.pop(self.thread, None)
        return mine, {k: f for k, f in frames.items() if k not in self.before and _backward(f)}

    def _is_importing(self) -> bool:
        mine, others = self._frames()
        return _imports(mine) > self.imports or any(map(_imports, others.values()))

    def over(self) -> None:
        """End the limit, and take back an error that was sent and has not been raised yet."""
        late = []
        while not self.is_over or self.known_by in _late:
            try:
                with self.lock:
                    self.is_over = True
                    if self.known_by in _late:
                        _raise_in(self.thread, None)
                        self.sent.clear()
                        _late.remove(self.known_by)
            except TookTooLong as error:  # raised here; kept, since a dropped one comes again
                late.append(error)

    def again_without(self, error: TookTooLong) -> None:
        """Raise another error in this thread when this one is dropped, since code has caught it."""
        thread = threading.get_ident()
        if thread in self.threads:
            again = functools.partial(_RAISE, thread, TookTooLong)
            self.sent.append(weakref.ref(error, again))


def _imports(frame: FrameType | None) -> int:
    """How many imports, one inside another, a thread is in."""
    count = 0
    while frame is not None:
        count += frame.f_code.co_filename == "<frozen importlib._bootstrap>"
        frame = frame.f_back
    return count


def _backward(frame: FrameType | None) -> bool:
    """Whether a thread runs nothing but a backward."""
    while frame is not None and frame.f_back is not None:
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.endswith(ENGINE)


# This must not be a Python function: as it is called when an error is dropped, the new error would
# be raised inside it and be lost. The C function ignores its third argument, a weak reference.
_RAISE = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_ulong, ctypes.py_object, ctypes.py_object)(
    ("PyThreadState_SetAsyncExc", ctypes.pythonapi)
)


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    _RAISE(thread, ctypes.py_object(error) if error else ctypes.py_object(), None)


@contextmanager
def no_endless_recursion() -> Iterator[None]:
    """Raise `EndlessRecursion` where a backward differentiates the output of its own node.

    A saved output has the Function as its grad_fn, whatever graph it had inside forward, so that
    differentiating it calls the same backward, and so on. Torch itself does not end that.
    """
    with engine_replaced(_ending_recursion):
        yield


def _ending_recursion(engine: Callable) -> Callable:
    running: list[list[Any]] = []  # the nodes that each run differentiates, the innermost last

    @functools.wraps(engine)
    def run(t_outputs: Any, *args: Any, **kwargs: Any) -> Any:
        look_at_the_clock()
        nodes = [getattr(t, "grad_fn", None) for t in t_outputs]
        mine = [node for node in nodes if custom_of(node) is not None]
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
    name = custom_of(node).__name__
    return f"endless recursion: backward of {name} differentiates an output of {name}"
