"""State that is not on ctx: what forward leaves on a class, in a module, on a tensor, around it."""

import functools
import gc
import inspect
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch import Tensor

from double_backward.differences import flat
from double_backward.state import NOT_THE_USERS

from .alone import Backward, matching, seen_at, weights
from .functions import Custom, Node, numbers_in
from .holdings import global_names, reachable
from .settings import uneven
from .target import Target, readable

DEEP = 3  # steps from a method of the Function through code that it uses
LATEST = 100  # items of a container that are looked at
CACHED = type(functools.lru_cache(lambda: None))


class Seen(NamedTuple):
    """What something holds at one moment."""

    numbers: Counter
    text: str


def changed_state(target: Target, backward: Backward, custom: Custom) -> tuple[str, ...]:
    """The names of what forward leaves elsewhere and what another point changes.

    Of what backward can reach; where nothing of that changes, of what forward can.
    """
    step = 1e-3 * target.scale * weights(flat(target.point), 0, 1)
    first = _state(backward.node, custom)
    again = _state(matching(seen_at(target), backward), custom)
    beside = _state(matching(seen_at(target, step), backward), custom)
    for before, same, after in zip(first, again, beside, strict=True):
        known = [name for name in after if name in same and name in before]
        seen = {name: (before[name], same[name], after[name]) for name in known}
        found = [n for n, s in seen.items() if _new(s[1], s[2]).keys() - _new(s[0], s[1]).keys()]
        found = found or [n for n, s in seen.items() if s[0].text == s[1].text != s[2].text]
        if found:
            return tuple(found)
    return ()


def _new(before: Seen, after: Seen) -> Counter:
    """The numbers that came with a call: into a store that keeps all, once more in each."""
    return after.numbers - before.numbers


def _state(node: Node, custom: Custom) -> tuple[dict[str, Seen], dict[str, Seen]]:
    """What backward, and what forward, can reach that is not kept on ctx."""
    function: Any = node.function
    hanging = dict(_on_tensors(node, custom))
    for name, value in node.attributes.items():
        if not isinstance(value, Tensor) and not callable(value) and hasattr(value, "__dict__"):
            hanging.update({f"{name}.{below}": v for below, v in vars(value).items()})
        elif isinstance(value, torch.nn.Module):
            hanging.update(_named(value, name, DEEP, set()))
    own = dict(_named(function, function.__name__, 0, set()))
    found = []
    for method in (function.backward, function.forward):
        around = dict(_named(method, method.__name__, DEEP, set()))
        found.append({name: _seen(v) for name, v in {**own, **around, **hanging}.items()})
    return found[0], found[1]


def _on_tensors(node: Node, custom: Custom) -> Iterator[tuple[str, Any]]:
    """The attributes of what is saved, as in `x.slope = ...`."""
    titles = {s.slot: s.variable or s.title for s in custom.saved if not s.on_ctx}
    kept: dict[int | str, Any] = {**dict(enumerate(node.tensors)), **node.attributes}
    met = set()
    for slot, tensor in kept.items():
        if isinstance(tensor, Tensor) and id(tensor) not in met:
            met.add(id(tensor))
            title = titles.get(slot, f"ctx.{slot}" if isinstance(slot, str) else "a saved tensor")
            yield from ((f"{title}.{name}", value) for name, value in vars(tensor).items())


def _named(thing: Any, name: str, deep: int, met: set[int]) -> Iterator[tuple[str, Any]]:
    """(name, data) for what code can reach, through the functions and classes that it uses."""
    thing = getattr(thing, "__func__", thing)  # of a method
    if deep < 0 or id(thing) in met:
        return
    met.add(id(thing))
    if isinstance(thing, CACHED):
        held = [each for each in gc.get_referents(thing) if not callable(each)]
        yield f"{name}()", [h for h in held if not (isinstance(h, dict) and "__wrapped__" in h)]
        yield from _named(thing.__wrapped__, name, deep, met)
    elif inspect.isfunction(thing):
        if _is_the_users(thing):
            for below, value in _used_by(thing):
                yield from _named(value, below, deep - 1, met)
            yield from ((f"{thing.__name__}.{key}", value) for key, value in vars(thing).items())
            wrapped = getattr(thing, "__wrapped__", None)
            yield from _named(wrapped, name, deep, met) if wrapped else ()
    elif isinstance(thing, type):
        for owner in (each for each in thing.__mro__ if _is_the_users(each)):
            for key, value in list(vars(owner).items()):
                if not key.startswith("__"):
                    below = f"{thing.__name__}.{key}"
                    yield from _named(value, below, deep - callable(value), met)
    elif isinstance(thing, torch.nn.Module):
        own = {k: v for k, v in vars(thing).items() if k[:1] != "_"}
        for below, value in {**own, **dict(thing.named_buffers())}.items():
            yield f"{name}.{below}", value
    elif not callable(thing) or _is_the_users(type(thing)):
        inside = {} if isinstance(thing, Tensor) else getattr(thing, "__dict__", {})
        yield from ((f"{name}.{below}", value) for below, value in list(inside.items()))
        if not inside:
            yield name, thing


def _used_by(function: Any) -> Iterator[tuple[str, Any]]:
    """What a function takes from around it, its module, and modules of the user's."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        with suppress(ValueError):  # not filled yet
            yield name, cell.cell_contents
    for name in global_names(function):
        value = function.__globals__[name]
        if not inspect.ismodule(value):
            yield name, value
        elif _is_the_users(value):
            known = [n for n in function.__code__.co_names if n in vars(value)]
            yield from ((f"{name}.{n}", vars(value)[n]) for n in known)


def _is_the_users(thing: Any) -> bool:
    module = thing.__name__ if inspect.ismodule(thing) else thing.__module__
    package = (module or "").partition(".")[0]
    return package not in (*NOT_THE_USERS, *sys.stdlib_module_names) or package == "__main__"


def _seen(value: Any) -> Seen:
    if isinstance(value, dict) and len(value) > LATEST:  # a store that nobody empties
        value = dict(list(value.items())[-LATEST:])
    elif isinstance(value, list):
        value = value[-LATEST:]
    held = [thing for _, thing in reachable(value) if isinstance(thing, Tensor)]
    sums = [_number_of(t) for t in held if readable(t)]
    others = [v.tobytes() if hasattr(v, "tobytes") else v for v in numbers_in(value)]
    numbers = Counter("nan" if v != v else v for v in [*sums, *others])
    return Seen(numbers, repr(value)[-2000:])


def _number_of(tensor: Tensor) -> float | complex:
    """Its elements in one number: not their sum, which is 1 for any softmax."""
    dense = tensor.detach().to_dense().double() if not tensor.is_complex() else tensor.to_dense()
    return (uneven(dense.real.contiguous()) * dense.detach()).sum().item()
