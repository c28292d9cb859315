"""The names of a Function and what it declares; its methods, and how to wrap one for a while."""

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from torch.autograd import Function
from torch.autograd.function import once_differentiable

from .failures import handed_over
from .operators import flattened, operator_of
from .places import Place, place_of

_GUARD = once_differentiable(lambda ctx: None).__code__


def applied(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Call torch's own `apply`, whatever the class has in its place, or a registered operator;
    return a flat tuple."""
    return flattened(applied_as_is(function, *args, **kwargs))


def applied_as_is(function: Any, *args: Any, **kwargs: Any) -> Any:
    """`applied`, with the result as setup_context gets it."""
    below = function.__mro__[function.__mro__.index(Function) - 1]
    apply = function.apply if operator_of(function) else super(below, function).apply
    return handed_over(apply, *args, **kwargs)


def has_setup_context(function: type) -> bool:
    """Whether a Function has a setup_context, so that its forward takes no ctx."""
    return function.setup_context is not Function.setup_context  # type: ignore[attr-defined]


def has_jvp(function: type) -> bool:
    """Whether a Function has a jvp, so that forward mode goes through it."""
    return function.jvp is not Function.jvp  # type: ignore[attr-defined]


def backward_method(function: Any) -> str:
    """The name of the method that is a Function's backward: "backward" or "vjp"."""
    return "backward" if function.backward is not Function.backward else "vjp"


def is_once_differentiable(function: Any) -> bool:
    """Whether a Function's backward is decorated with `once_differentiable`."""
    backward = getattr(function, "backward", None)
    return without_guard(backward) is not backward


def without_guard(backward: Any) -> Any:
    """A backward without `once_differentiable`, even if other decorators are around that."""
    inner = backward
    while inner is not None:
        if getattr(inner, "__code__", None) is _GUARD:
            return inner.__wrapped__
        inner = getattr(inner, "__wrapped__", None)
    return backward


def names_of(function: Any) -> tuple[str, ...]:
    """The names that a user may use for a Function: "Name" and "module.Name", inside a function
    also "f.<locals>.Name"; for a registered operator "my::name"."""
    operator = operator_of(function)
    if operator is not None:
        return operator.names
    names = dict.fromkeys((function.__name__, function.__qualname__))
    return *names, *(f"{function.__module__}.{name}" for name in names)


def full_name(function: Any) -> str:
    """The name "module.Name" of a Function, or "my::name" of a registered operator."""
    return names_of(function)[0 if operator_of(function) else -1]


def is_named(function: Any, names: Collection[type | str]) -> bool:
    """Whether one of these is the class itself, or a name of it."""
    return not {function, *names_of(function)}.isdisjoint(names)


def matches(each: type | str, names: Collection[str], place: Place | None) -> bool:
    """Whether an entry of `ignore=` stands for the Function with these names and this place, even
    if each call makes the class anew."""
    if isinstance(each, str):
        return each in names
    return each.__name__ in names and place_of(each) == place


def unmet(
    ignore: Iterable[type | str], met: Collection[tuple[Collection[str], Place | None]]
) -> tuple[str, ...]:
    """The names of the entries of `ignore=` that stand for no Function that was met."""
    left = [each for each in ignore if not any(matches(each, *function) for function in met)]
    return tuple(each if isinstance(each, str) else each.__name__ for each in left)


def loaded() -> Iterator[type]:
    """All classes of Functions that exist now."""
    found = list[type](Function.__subclasses__())
    for each in found:  # it grows
        found += type.__subclasses__(each)
        yield each


@contextmanager
def around(cls: Any, method: str, wrapper: Callable) -> Iterator[None]:
    """Inside, `cls.method` is `wrapper(method)`; so is the backward of a registered operator."""
    own, before = method in vars(cls), inspect.getattr_static(cls, method)
    operator = operator_of(cls)
    setattr(cls, method, staticmethod(wrapper(getattr(cls, method))))
    try:
        with operator.with_backward(wrapper) if operator else nullcontext():
            yield
    finally:
        setattr(cls, method, before) if own else delattr(cls, method)
