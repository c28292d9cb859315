"""Checks the arguments of the public functions: a wrong one raises before anything is run."""

from collections.abc import Callable, Iterable
from math import inf
from numbers import Integral, Real
from typing import Any

from torch.autograd import Function

from .operators import named
from .phrases import Phrase, both

HIGHEST = 3  # the highest order that is judged
Ignored = type | str | Callable[..., Any]  # a Function, a name, a registered operator


TAKES = "{} takes {}, not {!r}"


def asked(*, order: Any = 2, rtol: Any = None, atol: Any = 0.0, timeout: Any = None) -> None:
    """Raise TypeError or ValueError, with one sentence, unless these values are allowed."""
    _check("order", order, Integral, lambda n: 2 <= n <= HIGHEST, Phrase("2 or {}", HIGHEST))
    size = Phrase("a finite number, 0 or more")
    if rtol is not None:
        _check("rtol", rtol, Real, lambda r: 0 <= r < inf, Phrase("{}, or None", size))
    _check("atol", atol, Real, lambda a: 0 <= a < inf, size)
    if timeout is not None:
        limit = Phrase("a number of seconds above 0, or None for no limit")
        _check("timeout", timeout, Real, lambda s: 0 < s < inf, limit)


def _check(name: str, given: Any, kind: type, is_right: Callable[[Any], bool], takes: str) -> None:
    of_kind = isinstance(given, kind) and not isinstance(given, bool)
    if not (of_kind and is_right(given)):
        error = ValueError if of_kind else TypeError
        raise error(both(Phrase(TAKES, name, takes, given)))


def listed(ignore: Iterable[Ignored]) -> tuple[type | str, ...]:
    """The entries of `ignore=`, with registered operators replaced by their names. Raises TypeError
    for anything else, such as a single string, which would be a list of letters."""
    is_one = isinstance(ignore, (str, type)) or named(ignore) is not None
    is_list = isinstance(ignore, Iterable) and not is_one
    found: list[type | str] = []
    for given in ignore if is_list else [ignore]:
        each: Any = named(given) or given
        is_function = isinstance(each, type) and issubclass(each, Function)
        if not is_list or not (is_function or isinstance(each, str)):
            takes = Phrase("a list of Function classes, registered operators, or their names")
            raise TypeError(both(Phrase(TAKES, "ignore", takes, each)))
        found.append(each)
    return tuple(found)
