"""What is known of a Function, by the kind of call: it is tried once, then trusted.

To try a Function means to call it dozens of times. What comes out holds for the next call too, if
that is of the same kind: the same code, dtypes, shapes and layouts, the same inputs that require
grad, the same numbers and flags, grad_outs that have a graph or none. It need not hold at other
values (a branch, a clamp), so each kind is tried again at its 4th, 16th, 64th … call; and at its
2nd, 4th, 8th … while what backward returns does not change with the inputs, as where all is masked.

Nothing here keeps a Function, a tensor or an object of the user's alive.
"""

import functools
import inspect
import threading
import types
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import numpy as np
import torch
from torch.autograd import Function

from double_backward._torch import plain
from double_backward.calls import requires_grad
from double_backward.check import is_symmetric
from double_backward.containers import BUFFERS, contents
from double_backward.surroundings import EMPTY

AGAIN = 4  # the next trial comes after so many times as many calls
SOON = 2  # the same where the last one could not tell much
MANY = 32  # kinds of one Function; from then on sizes and numbers are not told apart
DEPTH = 3  # of lists in lists that are looked into


@dataclass
class Known:
    """What trials of one kind of call have found.

    Attributes:
        outcome: what the last trial gave; whoever tries knows what it means.
        touches: True if it changes something besides what it returns, so that this has to be put
            back when it is called again.
        draws: True if random numbers are drawn, by forward or by backward.
        was_wrong: True if a trial has found something.
        calls: how many there have been.
    """

    outcome: Any = None
    touches: bool = False
    draws: bool = False
    was_wrong: bool = False
    calls: int = 0
    next_trial: int = 1
    lock: Any = field(default_factory=threading.RLock)  # other threads wait for a trial's outcome

    def is_due(self) -> bool:
        """Count one more call; whether it is one to try the Function at."""
        self.calls += 1
        if self.calls < self.next_trial:
            return False
        self.next_trial = AGAIN * self.calls
        return True


# Code of forward (or the class, if that is not Python) -> identity -> kind -> what is known.
_of_code: weakref.WeakKeyDictionary[Any, dict] = weakref.WeakKeyDictionary()
_of_class: weakref.WeakKeyDictionary[type, tuple[tuple, dict]] = weakref.WeakKeyDictionary()


def recall(find: Callable, call: Any, grad_outs: Any) -> Known:
    """The `Known` of this kind of call, made where it is the first of its kind."""
    kinds = _kinds(call.function)
    kind = (find, kind_of(call, grad_outs))
    if kind not in kinds and len(kinds) >= MANY:
        kind = (find, without_sizes(kind[1]))
    return kinds.setdefault(kind, Known())


def forget() -> None:
    """Try every Function anew."""
    _of_code.clear()
    _of_class.clear()


def _kinds(function: Any) -> dict:
    """Kind -> `Known` for one Function, shared by classes that are made of the same code.

    A class that is written inside a function is another one each time that this is called.
    """
    codes = tuple(_code(getattr(function, name)) for name in ("forward", "backward", "vjp"))
    if function in _of_class and _of_class[function][0] == codes:
        return _of_class[function][1]
    identity = tuple(_attributes(c) for c in function.__mro__ if c not in Function.__mro__)
    owner = codes[0] if isinstance(codes[0], types.CodeType) else function
    kinds = _of_code.setdefault(owner, {}).setdefault(identity, {})
    _of_class[function] = codes, kinds
    return kinds


def _attributes(cls: type) -> tuple:
    pairs = sorted((n, v) for n, v in vars(cls).items() if n[:1] != "_")
    return cls.__qualname__, *((name, _described(value)) for name, value in pairs)


def _code(method: Any) -> Any:
    """The code of a method, below its decorators."""
    method = inspect.unwrap(method)
    return getattr(getattr(method, "__func__", method), "__code__", None)


def kind_of(call: Any, grad_outs: Any = ()) -> tuple:
    """What can make one call of a Function right and another wrong, as something to be compared."""
    args = tuple(map(_described, call.given))
    given = tuple(_described(g) for g in grad_outs)
    keywords = tuple((name, _described(value)) for name, value in sorted(call.kwargs.items()))
    symmetric = tuple(_is_symmetric(x) for x in call.given if requires_grad(x))
    return args, given, keywords, symmetric, call.state.autocast, call.transformed


def _described(value: Any, depth: int = DEPTH) -> tuple:
    """The part of one argument, or of what it holds."""
    if isinstance(value, torch.Tensor):
        return _tensor(value)
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, (float, complex)):
        return (type(value),)
    if isinstance(value, (bool, int, str, bytes, torch.dtype, torch.device)):
        return type(value), value
    if depth:
        held = _held(value)
        if held is not None:
            name, *parts = held
            return name, *(_described(part, depth - 1) for part in parts)
    return type(value).__qualname__, _this_one(value)


def _held(value: Any) -> tuple | None:
    """A name and the parts of which a value consists; None for an object."""
    if isinstance(value, (staticmethod, classmethod)):
        return type(value).__name__, value.__func__
    if isinstance(value, types.FunctionType):
        return value.__code__, *map(_content, value.__closure__ or ())
    if isinstance(value, types.MethodType):
        return "method", value.__func__, value.__self__
    if isinstance(value, types.BuiltinMethodType):
        return value.__name__, value.__self__
    if isinstance(value, functools.partial):
        return "partial", value.func, *value.args, *value.keywords.values()
    if isinstance(value, (tuple, list)):
        return type(value).__name__, *value
    if isinstance(value, dict):
        return "dict", *map(str, value), *value.values()
    if isinstance(value, (set, frozenset)):
        return type(value).__name__, *sorted(value, key=str)
    if is_dataclass(value) and not isinstance(value, type):
        return type(value).__qualname__, *(getattr(value, f.name, None) for f in fields(value))
    return None


def _content(cell: Any) -> Any:
    """What a function closes over; of a float, which is there for good, its hash."""
    held = None if cell == EMPTY else cell.cell_contents
    return hash(held) if isinstance(held, float) else held


def _tensor(value: torch.Tensor) -> tuple:
    strided = value.layout is torch.strided
    layout = (value.is_contiguous(), 0 in value.stride()) if strided else value.layout
    own = type(value).__name__ if type(value) not in (torch.Tensor, torch.nn.Parameter) else ""
    return value.shape, value.dtype, value.device.type, layout, value.requires_grad, own


def _is_symmetric(x: torch.Tensor) -> bool:
    """A trial tells of one that is symmetric as long as it stays so."""
    return x.dim() > 1 and x.shape[-1] == x.shape[-2] and is_symmetric(plain(x))


def _this_one(value: Any) -> Any:
    """Something that is equal for this very object alone and does not keep it alive; of bytes and
    characters, which each call is handed anew, what they are."""
    if isinstance(value, BUFFERS):
        return contents(value)
    if type(value).__eq__ is not object.__eq__ and not isinstance(value, type):
        return None
    try:
        return weakref.ref(value)
    except TypeError:
        return None


def without_sizes(kind: Any) -> Any:
    """The same without sizes, numbers and objects."""
    if isinstance(kind, torch.Size):
        return len(kind)
    if isinstance(kind, tuple):
        return tuple(without_sizes(part) for part in kind)
    if isinstance(kind, (int, weakref.ref)) and not isinstance(kind, bool):
        return None
    return kind
