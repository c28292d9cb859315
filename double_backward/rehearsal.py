"""Tests each public function of the tool with two Functions of ours before it judges any other.

One Function is right and one is silently wrong. With a version of torch that calls Functions in
another way than this package expects, it would see no Function, which looks like "right". So a
public function that does not give the expected result for these two raises. This rehearsal is done
once in a process, and again if a hook of torch that the tool uses has been replaced since.
"""

import contextvars
import itertools
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from ._torch import hooks, missing
from .failures import ToolFailure, by_itself, failure

_passed: dict[str, list[Any]] = {}  # what was rehearsed -> the hooks of torch at that time
_attempts = itertools.count()
_one_at_a_time = threading.Lock()
_rehearsing: contextvars.ContextVar[bool] = contextvars.ContextVar("rehearsing", default=False)


def rehearsed(what: str, way: Callable[[type, Tensor], str], *expected: str) -> None:
    """Rehearse a public function with a right Function and with a wrong one, unless that was done.

    This runs in a new thread, in which nothing of the caller's is active: no autocast, no
    transform, no mode, no hooks on saved tensors.

    Args:
        what: the name of what is rehearsed, "detect_intermediates()".
        way: takes a Function and its input, of shape (2,), float64; returns the result in words.
        expected: the result for the right Function, and for the wrong one.

    Raises:
        ToolFailure: the result is another one, or a private hook of torch is gone.
    """
    if _rehearsing.get():
        return
    now = hooks()
    if _has_passed(what, now):
        return
    with _one_at_a_time:  # two at once would both draw, seed or set something
        if not _has_passed(what, now):
            try:
                _rehearse(what, way, expected)
            except ToolFailure:
                raise
            except Exception as error:  # all code here is ours
                said = f"{type(error).__name__}: {error}"
                raise failure(f"the rehearsal of {what} raised {said}") from error
            _passed[what] = now


def _has_passed(what: str, now: list[Any]) -> bool:
    return what in _passed and all(a is b for a, b in zip(_passed[what], now, strict=True))


def _rehearse(what: str, way: Callable[[type, Tensor], str], expected: tuple[str, ...]) -> None:
    if by_itself(missing):
        raise failure("torch lacks what it stands on")
    for function, outcome in zip(_made(), expected, strict=True):
        problem = None
        try:
            found = by_itself(partial(_gone, way, function))
        except ToolFailure:
            raise
        except Exception as error:
            problem, found = error, f"{type(error).__name__}: {error}"
        if problem is not None or found != outcome:
            raise failure(
                f"the rehearsal of {what} with {function.__name__}, a Function of its own, ended "
                f"with {found!r} instead of {outcome!r}"
            ) from problem


def _gone(way: Callable[[type, Tensor], str], function: type) -> str:
    """The result of `way`, without another rehearsal inside it."""
    _rehearsing.set(True)
    x = torch.tensor([0.5, 1.0], dtype=torch.float64, device="cpu", requires_grad=True)
    return way(function, x)


def _made() -> tuple[type, type]:
    """A new right Function and a new wrong one, which no earlier trial has met."""
    number = next(_attempts)

    class RightRehearsal(Function):
        attempt = number

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sinh()

        @staticmethod
        def backward(ctx, grad_out):
            return grad_out * ctx.saved_tensors[0].cosh()

    class WrongRehearsal(Function):
        attempt = number

        @staticmethod
        def forward(ctx, x):
            ctx.kept = x.cosh()
            return x.sinh()

        @staticmethod
        def backward(ctx, grad_out):
            return grad_out * ctx.kept

    return RightRehearsal, WrongRehearsal


def second_derivative(function: Any, x: Tensor) -> Tensor:
    """The second derivative of `function(x)**2`, whose error would be silent."""
    with torch.enable_grad():
        (first,) = torch.autograd.grad((function.apply(x) ** 2).sum(), x, create_graph=True)
        return torch.autograd.grad(first.sum(), x)[0]


def right_number(x: Tensor) -> Tensor:
    """The second derivative of sinh(x)**2: 2 cosh(2 x)."""
    return 2 * (2 * x.detach()).cosh()
