"""What tells two calls of a Function apart, of which one may be right and the other wrong."""

import collections
import enum
import functools
import numbers
import types
import weakref
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import torch
from torch.autograd import Function

from ._torch import plain, unusual
from .check import is_symmetric
from .containers import BUFFERS, contents, slots_of
from .surroundings import EMPTY, LEFT_AS_IT_IS, is_the_users, names_in

DEPTH_OF_LISTS = 4  # how deep lists in lists are looked into
FEW_VALUES = 16  # of a tensor with more elements the values are not looked at
HELD = 2  # the place in a kind of what the class holds
LONG = 100  # of a longer container that an object, class or closure holds, only the type counts


class Value(tuple):
    """The name of a type, and the value: of a number, a string, a flag, an object."""

    __slots__ = ()


class Numbers(tuple):
    """The numbers of a small tensor."""

    __slots__ = ()


def requires_grad(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def kind_of(call: Any, grad_outs: Iterable = ()) -> tuple:
    """What can make one call of a Function right and another wrong, as something to be compared."""
    args = tuple([_described(value) for value in call.given])
    keywords = tuple([(name, _described(value)) for name, value in sorted(call.kwargs.items())])
    given = tuple([_layout(g) if isinstance(g, torch.Tensor) else None for g in grad_outs])
    symmetric = tuple([_is_symmetric(x) for x in call.given if requires_grad(x)])
    held = held_by_class(call.function)
    return args, keywords, held, given, symmetric, call.state.key, call.transformed


PLAIN = frozenset((bool, int, float, complex, str, bytes, type(None)))
TOLD_BY_NAME = torch.dtype, torch.device, torch.layout, torch.memory_format, range, slice
WRAPPED_METHODS = staticmethod, classmethod
CONTAINERS = tuple, list, dict, set, frozenset


def _described(value: Any, depth: int = DEPTH_OF_LISTS) -> Any:
    """The part of the kind that one argument makes, or one thing that it holds."""
    kind = type(value)
    if kind in PLAIN:
        exact = kind is not float and kind is not complex
        return Value((kind.__name__, value if exact else repr(value)))
    if isinstance(value, torch.Tensor):
        return *_layout(value), *_numbers(value)
    if isinstance(value, np.ndarray):
        few = value.size <= FEW_VALUES and value.dtype != object
        return "ndarray", torch.Size(value.shape), str(value.dtype), few and Numbers(value.flat)
    if isinstance(value, enum.Enum):
        return Value((kind.__qualname__, value.name))
    if isinstance(value, (numbers.Number, str, bytes, np.generic, *TOLD_BY_NAME)):
        return Value((kind.__qualname__, repr(value)))
    if depth:
        held = _held(value, depth)
        if held is not None:
            return held
    return Value((kind.__qualname__, _this_one(value)))


def _held(value: Any, depth: int) -> tuple | None:
    """The name of the type and the parts, described; None for a value without parts."""
    kind = type(value)
    parts: Iterable[Any]
    if isinstance(value, WRAPPED_METHODS):
        return _described(value.__func__, depth)
    if isinstance(value, types.FunctionType):
        return _of_function(value, depth)
    if isinstance(value, types.MethodType):
        parts = value.__func__, value.__self__
    elif isinstance(value, (types.BuiltinMethodType, types.MethodWrapperType)):
        parts = value.__name__, value.__self__
    elif isinstance(value, functools.partial):
        parts = value.func, *value.args, value.keywords
    elif isinstance(value, (tuple, list, collections.deque)):
        parts = list(value)
    elif isinstance(value, (set, frozenset)):
        parts = sorted(value, key=str)
    elif isinstance(value, dict):
        return kind.__qualname__, *((str(k), _described(v, depth - 1)) for k, v in value.items())
    elif is_dataclass(value) and not isinstance(value, type):
        parts = [getattr(value, f.name, None) for f in fields(value)]
    elif not isinstance(value, (type, types.ModuleType)):
        return _of_object(value, depth)
    else:
        return None
    return kind.__qualname__, *(_described(part, depth - 1) for part in parts)


def _of_object(value: Any, depth: int) -> tuple | None:
    """The attributes of an object; of a module, neither its parameters nor the modules in it."""
    held = getattr(value, "__dict__", None)
    slots = slots_of(type(value))
    left_out = type(value).__module__.partition(".")[0] in LEFT_AS_IT_IS
    if isinstance(value, BUFFERS) or left_out or not (isinstance(held, dict) or slots):
        return None
    held = dict(held or {})
    for slot in slots:
        with suppress(AttributeError):  # nothing is in it
            held[slot.__name__] = slot.__get__(value)
    if isinstance(value, torch.nn.Module):
        held = {n: v for n, v in held.items() if type(v) in PLAIN}
    found = ((n, _of_held(v, depth - 1)) for n, v in held.items())
    # A namespace may be made anew for each call.
    itself = None if isinstance(value, types.SimpleNamespace) else _this_one(value)
    return Value((type(value).__qualname__, itself)), *found


def _of_held(value: Any, depth: int) -> Any:
    """The part that a value makes which is no argument: it may be as long as a data set, or grow
    with each call, so that of a long one only the type counts."""
    long = isinstance(value, (*CONTAINERS, collections.deque)) and len(value) > LONG
    if long or isinstance(value, BUFFERS):
        return type(value).__qualname__
    return _described(value, depth)


def held_by_class(function: type) -> tuple:
    """The attributes of a Function's class, and what its methods read besides their arguments."""
    return tuple(
        (name, _of_held(value, DEPTH_OF_LISTS - 1))
        for cls in own_classes(function)
        for name, value in vars(cls).items()
        if name[:2] != "__" and not isinstance(inside(value), type) and not _is_ours(value)
    )


def inside(value: Any) -> Any:
    return value.__func__ if isinstance(value, WRAPPED_METHODS) else value


def _is_ours(value: Any) -> Any:
    return getattr(type(value), "is_ours", False)


def _of_function(function: types.FunctionType, depth: int) -> tuple:
    """The code of a function, its defaults, what it closes over, and the globals that it names."""
    parts = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    for cell in function.__closure__ or ():
        parts.append(None if cell == EMPTY else cell.cell_contents)
    names, space = _names(function.__code__), function.__globals__
    for name in names:
        value = space.get(name, _MISSING)
        if isinstance(value, types.ModuleType) and is_the_users(value.__name__):
            held = vars(value)
            parts += [held[n] for n in names if type(held.get(n, _MISSING)) in PLAIN]
        elif value is not _MISSING and not isinstance(value, (type, types.ModuleType)):
            others = isinstance(value, types.FunctionType) and not is_the_users(value.__module__)
            parts += [] if others else [value]
    return "function", hash(function.__code__), *(_of_held(part, depth - 1) for part in parts)


_MISSING = object()
_names_of: weakref.WeakKeyDictionary[types.CodeType, tuple] = weakref.WeakKeyDictionary()


def _names(code: types.CodeType) -> tuple:
    if code not in _names_of:
        _names_of[code] = tuple(sorted(names_in(code)))
    return _names_of[code]


def _layout(value: torch.Tensor) -> tuple:
    layout: Any = value.layout
    if layout is torch.strided:
        layout = value.is_contiguous() or _order(value)
    own = type(value).__name__ if type(value) not in (torch.Tensor, torch.nn.Parameter) else ""
    return value.shape, value.dtype, value.device.type, layout, value.requires_grad, own


def _order(value: torch.Tensor) -> tuple:
    """For a tensor that is not contiguous: its dimensions in their order in memory, which of them
    are expanded, and whether there are no gaps."""
    strides = value.stride()
    order = tuple(sorted(range(value.dim()), key=lambda dim: -strides[dim]))
    expanded = tuple([stride == 0 for stride in strides])
    return order, expanded, value.permute(order).is_contiguous()


def _numbers(value: torch.Tensor) -> tuple:
    """The numbers of a small tensor that does not require grad; of one element, as a plain
    number."""
    if value.requires_grad or unusual(value) or value.numel() > FEW_VALUES:
        return ()
    found = plain(value).flatten().tolist()
    return (repr(found[0]),) if len(found) == 1 else (Numbers(map(repr, found)),)


def _is_symmetric(x: torch.Tensor) -> bool:
    """Whether x is symmetric: then a trial, which keeps it so, speaks of such inputs only."""
    return x.dim() > 1 and x.shape[-1] == x.shape[-2] and is_symmetric(plain(x))


def _this_one(value: Any) -> Any:
    """Something that is equal for this very object alone and does not keep it alive. For arrays of
    bytes or characters, which may be made anew for each call, it is their contents."""
    if isinstance(value, BUFFERS):
        return contents(value)
    if type(value).__eq__ is not object.__eq__ and not isinstance(value, type):
        return None
    try:
        return weakref.ref(value)
    except TypeError:
        return None


def nested_kind_of(call: Any, sizes: Collection) -> tuple:
    """The kind of a call that is made within another call, without sizes.

    Args:
        sizes: the sizes in the outer call; a number that is among them counts as a size.
    """
    return without(kind_of(call), sizes, objects=True)


def regardless(call: Any) -> tuple[tuple, tuple, tuple]:
    """The kind of a call without its sizes; and without its numbers, too; and `held_by_class`.

    Objects are told apart by what they hold.
    """
    kind, sizes = kind_of(call), sizes_of(call)
    return without(kind, sizes, objects=True), without(kind, (), values=True), kind[HELD]


def sizes_of(call: Any) -> set[int]:
    return {n for x in call.given if isinstance(x, torch.Tensor) for n in x.shape if n > 1}


def without(kind: Any, sizes: Collection, values: bool = False, objects: bool = False) -> Any:
    """The kind without sizes. A size of 0 or 1 stays, and so does the fact that a number is a size.

    Args:
        sizes: numbers that count as sizes.
        values: leave out values, too, except that of a tensor with one element.
        objects: leave out which object it is.
    """
    if isinstance(kind, Value):
        if values or objects and isinstance(kind[1], weakref.ref):
            return kind[0]
        return Value(("int", "size")) if kind[0] == "int" and kind[1] in sizes else kind
    if isinstance(kind, torch.Size):
        return tuple([n if n < 2 else -1 for n in kind])
    if isinstance(kind, Numbers):
        return None
    if isinstance(kind, tuple):
        return tuple([without(part, sizes, values, objects) for part in kind])
    return kind


def own_classes(function: type) -> list[type]:
    return [c for c in function.__mro__ if c not in Function.__mro__]
