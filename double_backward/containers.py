"""Copies the containers among the arguments of a call, which the call may change in place.

A Function may take a key out of a dict that it gets, or append to a list. The call that is met
remembers what it got before that, and each call that is made again gets a new copy.
"""

import array
import collections
import ctypes
import functools
import io
import types
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import is_dataclass
from typing import Any

import torch

MOST_COPIED = 20_000  # objects; if there are more, nothing is copied
SIMPLE_CTYPES: tuple[Any, ...] = ctypes.Array, ctypes.Structure, ctypes.Union, ctypes.c_int.__base__
BUFFERS = bytearray, array.array, memoryview, *SIMPLE_CTYPES, io.StringIO, io.BytesIO
_PLAIN = {
    int, float, bool, complex, str, bytes, type(None), torch.nn.Parameter, torch.Size, torch.dtype,
    torch.device, types.FunctionType, types.BuiltinFunctionType, types.ModuleType,
}  # fmt: skip


def anew(
    args: Sequence, kwargs: Mapping[str, Any], others: Mapping[int, Any] | None = None
) -> tuple[Sequence, Mapping[str, Any]]:
    """The same arguments, in which containers and those inside them, at any depth, are copied:
    lists, dicts, sets, deques, tuples that hold any of these, dataclasses, and objects that hold
    characters or bytes. The arguments themselves if there are none.

    Tensors, arrays and all other objects are not copied; `others` (id -> object) replaces some of
    them in the containers. No code of the user's runs: an instance of a subclass is made by the
    methods of the class from which it derives. An object that cannot be made so is not copied.
    """
    if all(map(_is_plain, args)) and all(map(_is_plain, kwargs.values())):
        return args, kwargs
    copy = _Copy(others or {})
    try:
        return [copy.of(a) for a in args], {name: copy.of(a) for name, a in kwargs.items()}
    except (_TooMany, RecursionError):
        return args, kwargs


def _is_plain(value: Any) -> bool:
    return type(value) in _PLAIN or isinstance(value, torch.Tensor)


class _TooMany(Exception):
    pass


class _Copy:
    """Copies all that is reached through containers; an object that is met twice is copied once."""

    def __init__(self, others: Mapping[int, Any]) -> None:
        self.others = others
        self.made: dict[int, tuple[Any, Any]] = {}  # id -> the object, kept alive, and its copy

    def of(self, value: Any) -> Any:
        if _is_plain(value):
            return self.others.get(id(value), value)
        if id(value) in self.made:
            return self.made[id(value)][1]
        if len(self.made) >= MOST_COPIED:
            raise _TooMany
        self.made[id(value)] = value, value
        with suppress(TypeError, ValueError, AttributeError):  # of a class made in another way
            return self._of(value)
        return value

    def _of(self, value: Any) -> Any:
        if isinstance(value, tuple):
            parts = list(map(self.of, tuple.__iter__(value)))
            if all(map(_identical, parts, tuple.__iter__(value))):
                return value
            return self._known(value, tuple.__new__(type(value), parts))
        if isinstance(value, BUFFERS):
            return self._known(value, _buffer(value))
        made = next((making for kind, making in _MAKING.items() if isinstance(value, kind)), None)
        if made is None and not is_dataclass(value) or isinstance(value, type):
            return value
        empty, fill = made or _made_by(object, _fill_nothing)
        new = self._known(value, empty(value))
        fill(new, value, self.of)
        for name, held in getattr(value, "__dict__", {}).items():
            new.__dict__[name] = self.of(held)
        for slot in slots_of(type(value)):
            with suppress(AttributeError):  # nothing is in it
                slot.__set__(new, self.of(slot.__get__(value)))
        return new

    def _known(self, value: Any, new: Any) -> Any:
        self.made[id(value)] = value, new
        return new


def _identical(a: Any, b: Any) -> bool:
    return a is b


def slots_of(cls: type) -> list[Any]:
    """The slots that a class and its bases declare, the nearest first."""
    declared = [vars(c).values() for c in cls.__mro__ if "__slots__" in vars(c)]
    return [s for slots in declared for s in slots if isinstance(s, types.MemberDescriptorType)]


def _buffer(value: Any) -> Any:
    cls: Any = type(value)
    if isinstance(value, bytearray):
        new = bytearray.__new__(cls)
        bytearray.extend(new, value)
        return new
    if isinstance(value, array.array):
        return array.array.__new__(cls, value.typecode, array.array.tobytes(value))
    if isinstance(value, SIMPLE_CTYPES):
        return cls.from_buffer_copy(value)
    if isinstance(value, memoryview):
        if value.readonly:
            return value
        memory: Any = memoryview(bytearray(value.tobytes()))
        return memory.cast(value.format, value.shape) if value.nbytes else memory
    kind: Any = io.StringIO if isinstance(value, io.StringIO) else io.BytesIO
    new = kind.__new__(cls)
    kind.__setstate__(new, kind.__getstate__(value))
    return new


def contents(value: Any) -> Any:
    """The contents of one of `BUFFERS`, as a value that can be compared."""
    if isinstance(value, (io.StringIO, io.BytesIO)):
        kind: Any = io.StringIO if isinstance(value, io.StringIO) else io.BytesIO
        return None if value.closed else kind.__getstate__(value)[:-1]  # without its attributes
    return memoryview(value).tobytes()


def _empty(kind: Any, value: Any) -> Any:
    return kind.__new__(type(value))


def _empty_defaultdict(value: Any) -> Any:
    new = collections.defaultdict.__new__(type(value))
    collections.defaultdict.__init__(new, value.default_factory)
    return new


def _empty_deque(value: Any) -> Any:
    new: Any = collections.deque.__new__(type(value))
    collections.deque.__init__(new, (), value.maxlen)
    return new


def _fill_dict(kind: Any, new: Any, value: Any, of: Callable) -> None:
    for key, held in kind.items(value):
        kind.__setitem__(new, key, of(held))


def _fill_row(kind: Any, new: Any, value: Any, of: Callable) -> None:
    kind.extend(new, map(of, list(kind.__iter__(value))))


def _fill_set(kind: Any, new: Any, value: Any, of: Callable) -> None:
    kind.update(new, kind.__iter__(value))  # nothing that is in a set can change


def _fill_nothing(kind: Any, new: Any, value: Any, of: Callable) -> None:
    """Do nothing: all contents are in attributes."""


def _made_by(kind: Any, fill: Callable) -> tuple[Callable, Callable]:
    return functools.partial(_empty, kind), functools.partial(fill, kind)


# Kind -> a function that makes an empty object of the same class, and one that fills it. A subclass
# comes before its base.
_MAKING: dict[Any, tuple[Callable, Callable]] = {
    collections.defaultdict: (_empty_defaultdict, functools.partial(_fill_dict, dict)),
    collections.OrderedDict: _made_by(collections.OrderedDict, _fill_dict),
    dict: _made_by(dict, _fill_dict),
    list: _made_by(list, _fill_row),
    collections.deque: (_empty_deque, functools.partial(_fill_row, collections.deque)),
    set: _made_by(set, _fill_set),
    types.SimpleNamespace: _made_by(types.SimpleNamespace, _fill_nothing),
}
