"""The methods of a Function: which of them it declares, and each of them wrapped for a while."""

import inspect
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

from torch.autograd import Function
from torch.autograd.function import once_differentiable

from .failures import handed_over

_GUARD = once_differentiable(lambda ctx: None).__code__


def applied(function: Any, *args: Any, **kwargs: Any) -> Any:
    """What torch's own `apply` gives, whatever the class has in its place; a tuple."""
    below = function.__mro__[function.__mro__.index(Function) - 1]
    out = handed_over(super(below, function).apply, *args, **kwargs)
    return out if isinstance(out, tuple) else (out,)


def has_setup_context(function: type) -> bool:
    """Whether its forward takes no ctx."""
    return function.setup_context is not Function.setup_context  # type: ignore[attr-defined]


def backward_method(function: Any) -> str:
    """The name under which its backward is written: "backward" or "vjp"."""
    return "backward" if function.backward is not Function.backward else "vjp"


def is_once_differentiable(function: Any) -> bool:
    """Whether its backward is decorated with `once_differentiable`."""
    backward = getattr(function, "backward", None)
    return without_guard(backward) is not backward


def without_guard(backward: Any) -> Any:
    """A backward without `once_differentiable`; other decorators may stand around that."""
    inner = backward
    while inner is not None:
        if getattr(inner, "__code__", None) is _GUARD:
            return inner.__wrapped__
        inner = getattr(inner, "__wrapped__", None)
    return backward


def is_named(function: Any, names: Collection[type | str]) -> bool:
    """Whether one of these is the class itself, its name, or "module.Name"."""
    called = function.__name__, function.__qualname__
    own = {function, *called, f"{function.__module__}.{function.__qualname__}"}
    return not own.isdisjoint(names)


@contextmanager
def around(cls: Any, method: str, wrapper: Callable) -> Iterator[None]:
    """For a while, `cls.method` is `wrapper(method)`."""
    own, before = method in vars(cls), inspect.getattr_static(cls, method)
    setattr(cls, method, staticmethod(wrapper(getattr(cls, method))))
    try:
        yield
    finally:
        setattr(cls, method, before) if own else delattr(cls, method)
