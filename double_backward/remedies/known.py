"""What is known of a Function, by the kind of call: it is tried once, then trusted.

To try a Function means to call it dozens of times. What comes out holds for the next call too, if
that is of the same kind: the same code, dtypes, sizes and layouts, the same inputs that require
grad, grad_outs that have a graph or none, and the same numbers, strings and flags, by value, among
its arguments and in all that those, its class, its closures and the globals that it names hold.

A Function that is called in more than `SEVERAL` kinds, that reads values of tensors, draws, or
changes something besides what it returns is watched from then on: `operations` notes what it does
at each call. Where it does what it did at a call that was tried, it is trusted; where that is new,
it is tried.

    sizes differ           the same operations, on the same, with the same numbers handed over
    numbers differ, too    the same operations, with the same numbers in them
    else                   it is tried; after `MANY` such kinds that is said, or each call is tried

It need not hold at other values of tensors (a clamp, `torch.where`), so each kind is tried again at
its 4th, 16th, 64th … call; and at its 2nd, 4th, 8th … while what backward returns does not change
with the inputs, as where all is masked.

Nothing here keeps a Function, a tensor or an object of the user's alive.
"""

import collections
import enum
import functools
import numbers
import threading
import types
import weakref
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import numpy as np
import torch
from torch.autograd import Function

from double_backward._torch import plain, unusual
from double_backward.calls import Call, requires_grad
from double_backward.check import is_symmetric
from double_backward.containers import BUFFERS, contents, slots_of
from double_backward.names import argument_names
from double_backward.operations import Did
from double_backward.surroundings import EMPTY, RUNNERS, is_the_users, names_in

AGAIN = 4  # the next trial comes after so many times as many calls
SOON = 2  # the same where the last one could not tell much
SEVERAL = 8  # kinds of one Function that are tried each; from then on it is watched
MANY = 32  # further ones that are tried since they do something else, or with other numbers
MOST = 64  # that are found without watching
DEPTH = 4  # of lists in lists that are looked into
FEW = 16  # elements of a tensor whose values are looked at
LONG = 100  # parts of what an object, a class or a closure holds; of longer ones only the type


@dataclass
class Known:
    """What trials of one kind of call have found.

    Attributes:
        outcome: what the last trial gave; whoever tries knows what it means.
        said: what is said of it, where it is wrong; None until that was asked.
        touches: True if it changes something besides what it returns, so that this has to be put
            back when it is called again.
        draws: True if random numbers are drawn, by forward or by backward.
        was_wrong: True if a trial has found something.
        calls: how many there have been.
    """

    outcome: Any = None
    said: str | None = None
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


@dataclass
class _Kinds:
    """Those of one Function.

    Attributes:
        exact: a kind -> what is known of it.
        given: what is seen at a glance of calls that need not be watched.
        alike: what calls have in common that did the same -> what is known of them.
        always: True if it has to be watched at each call: values of tensors select what it does, or
            kinds differ in what is not seen at a glance.
    """

    exact: dict = field(default_factory=dict)
    given: set[tuple] = field(default_factory=set)
    alike: dict = field(default_factory=dict)
    always: bool = False

    def is_watched(self, call: Call) -> bool:
        if self.always or len(self.exact) < SEVERAL:
            return self.always or not (self.exact or self.alike)
        return _at_a_glance(call) not in self.given

    def add(self, call: Call, kind: tuple, known: Known) -> Known:
        self.given.add(_at_a_glance(call))
        return self.exact.setdefault(kind, known)


# Code of forward (or the class, if that is not Python) -> identity -> its kinds.
_of_code: weakref.WeakKeyDictionary[Any, dict] = weakref.WeakKeyDictionary()
_of_class: weakref.WeakKeyDictionary[type, tuple[tuple, _Kinds]] = weakref.WeakKeyDictionary()


def recall(find: Callable, call: Call, grad_outs: Iterable, doubt: Callable | None = None) -> Known:
    """The `Known` of this kind of call, made where it is the first of its kind.

    Args:
        doubt: is called where there are too many kinds to try each, and given a callable that says
            what makes them; calls that do the same operations are then one kind. Without it each
            call is tried.
    """
    kinds, did = _kinds(call.function), call.did_both
    kind = find, *kind_of(call, grad_outs)
    if did is None:
        known = kinds.exact.get(kind)
        unwatched = call.transformed or call.region is not None
        if known is None and len(kinds.exact) < (MANY if unwatched else SEVERAL):
            known = kinds.add(call, kind, Known())
        if known is not None:
            return known
        if not unwatched:
            kinds.always |= _at_a_glance(call) in kinds.given
            return Known()
    else:
        kinds.always |= did.reads
        few = len(kinds.exact) < SEVERAL and not kinds.always
        new = Known() if few and kind not in kinds.exact else None
        known = _alike(kinds, call, kind, did, new)
        if known is not None:
            if len(kinds.exact) < MOST and not kinds.always:
                kinds.add(call, kind, known)
            return known
    if doubt is None or len(kinds.alike) > 4 * MANY:
        return Known()
    doubt(functools.partial(_what_differs, call, kinds))
    anything = _without(kind, (), values=True)
    return kinds.alike.setdefault((anything, did and did.steps), Known())


def _alike(
    kinds: _Kinds, call: Call, kind: tuple, did: Did, new: Known | None = None
) -> Known | None:
    """What is known of calls that did the same, or is to be found; None if these are too many.

    Args:
        new: of a kind that is tried whatever others did.
    """
    other_sizes = _without(kind, _sizes(call)), did.steps
    known = kinds.alike.get(other_sizes) if new is None else None
    if known is None:
        other_numbers = _without(kind, (), values=True), did.exactly
        known = new or kinds.alike.get(other_numbers)
        if known is None and len(kinds.alike) < 2 * MANY:
            known = Known()
        if known is not None and len(kinds.alike) < 3 * MANY:
            kinds.alike.setdefault(other_numbers, known)
            kinds.alike[other_sizes] = known
    return known


def watches(call: Call) -> bool:
    """Whether what this call does has to be noted, for `recall`."""
    return _kinds(call.function).is_watched(call)


def watch(function: Any) -> None:
    """It was seen to read values of tensors, to draw, or to change something: from here on all that
    it does is noted."""
    _kinds(function).always = True


def forget() -> None:
    """Try every Function anew."""
    _of_code.clear()
    _of_class.clear()


def _kinds(function: Any) -> _Kinds:
    """Those of one Function, shared by classes that are made of the same code.

    A class that is written inside a function is another one each time that this is called.
    """
    codes = tuple(_code(getattr(function, name)) for name in ("forward", "backward", "vjp"))
    if function in _of_class and _of_class[function][0] == codes:
        return _of_class[function][1]
    identity = tuple((c.__qualname__, *_codes(c)) for c in _own_classes(function))
    owner = codes[0] if isinstance(codes[0], types.CodeType) else function
    kinds = _of_code.setdefault(owner, {}).setdefault(identity, _Kinds())
    _of_class[function] = codes, kinds
    return kinds


def _own_classes(function: type) -> list[type]:
    return [c for c in function.__mro__ if c not in Function.__mro__]


def _codes(cls: type) -> list[int]:
    """Of its methods, and of the functions that those close over; hashed, to keep nothing alive."""
    methods = [f for f in map(_inside, vars(cls).values()) if isinstance(f, types.FunctionType)]
    cells = [cell.cell_contents for f in methods for cell in f.__closure__ or () if cell != EMPTY]
    functions = [*methods, *(f for f in cells if isinstance(f, types.FunctionType))]
    return [hash(f.__code__) for f in functions]


def _code(method: Any) -> Any:
    """The code of a method, below its decorators."""
    while hasattr(method, "__wrapped__"):
        method = method.__wrapped__
    return getattr(getattr(method, "__func__", method), "__code__", None)


# What makes a kind.


class Value(tuple):
    """A number, a string, a flag, an object: what its type is called, and the value."""

    __slots__ = ()


class Numbers(tuple):
    """Those of a small tensor."""

    __slots__ = ()


def kind_of(call: Call, grad_outs: Iterable = ()) -> tuple:
    """What can make one call of a Function right and another wrong, as something to be compared."""
    args = tuple([_described(value) for value in call.given])
    keywords = tuple([(name, _described(value)) for name, value in sorted(call.kwargs.items())])
    given = tuple([_layout(g) if isinstance(g, torch.Tensor) else None for g in grad_outs])
    symmetric = tuple([_is_symmetric(x) for x in call.given if requires_grad(x)])
    held = _held_by_class(call.function)
    return args, keywords, held, given, symmetric, call.state.key, call.transformed


def _at_a_glance(call: Call) -> tuple:
    return tuple([x.shape if isinstance(x, torch.Tensor) else x if type(x) in PLAIN else None
                  for x in call.given])  # fmt: skip


PLAIN = frozenset((bool, int, float, complex, str, bytes, type(None)))
NAMED = torch.dtype, torch.device, torch.layout, torch.memory_format, range, slice
METHODS = staticmethod, classmethod
CONTAINERS = tuple, list, dict, set, frozenset


def _described(value: Any, depth: int = DEPTH) -> Any:
    """The part of one argument, or of what it holds."""
    kind = type(value)
    if kind in PLAIN:
        exact = kind is not float and kind is not complex
        return Value((kind.__name__, value if exact else repr(value)))
    if isinstance(value, torch.Tensor):
        return *_layout(value), *_numbers(value)
    if isinstance(value, np.ndarray):
        few = value.size <= FEW and value.dtype != object
        return "ndarray", torch.Size(value.shape), str(value.dtype), few and Numbers(value.flat)
    if isinstance(value, enum.Enum):
        return Value((kind.__qualname__, value.name))
    if isinstance(value, (numbers.Number, str, bytes, np.generic, *NAMED)):
        return Value((kind.__qualname__, repr(value)))
    if depth:
        held = _held(value, depth)
        if held is not None:
            return held
    return Value((kind.__qualname__, _this_one(value)))


def _held(value: Any, depth: int) -> tuple | None:
    """A name and what it consists of, described; None for what has no parts."""
    kind = type(value)
    parts: Iterable[Any]
    if isinstance(value, METHODS):
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
    """Its own attributes; of a module no parameters and no modules in it."""
    held = getattr(value, "__dict__", None)
    slots = slots_of(type(value))
    runs_tests = type(value).__module__.partition(".")[0] in RUNNERS
    if isinstance(value, BUFFERS) or runs_tests or not (isinstance(held, dict) or slots):
        return None
    held = dict(held or {})
    for slot in slots:
        with suppress(AttributeError):  # nothing is in it
            held[slot.__name__] = slot.__get__(value)
    if isinstance(value, torch.nn.Module):
        held = {n: v for n, v in held.items() if type(v) in PLAIN}
    found = ((n, _of_held(v, depth - 1)) for n, v in held.items())
    # A namespace is handed over anew at each call.
    itself = None if isinstance(value, types.SimpleNamespace) else _this_one(value)
    return Value((type(value).__qualname__, itself)), *found


def _of_held(value: Any, depth: int) -> Any:
    """The part of what is no argument: that may be as long as a data set, or grow at each call."""
    long = isinstance(value, (*CONTAINERS, collections.deque)) and len(value) > LONG
    if long or isinstance(value, BUFFERS):
        return type(value).__qualname__
    return _described(value, depth)


def _held_by_class(function: type) -> tuple:
    """The attributes of a Function's class, and what its methods read besides their arguments."""
    return tuple(
        (name, _of_held(value, DEPTH - 1))
        for cls in _own_classes(function)
        for name, value in vars(cls).items()
        if name[:2] != "__" and not isinstance(_inside(value), type) and not _is_ours(value)
    )


def _inside(value: Any) -> Any:
    return value.__func__ if isinstance(value, METHODS) else value


def _is_ours(value: Any) -> Any:
    return getattr(type(value), "is_ours", False)


def _of_function(function: types.FunctionType, depth: int) -> tuple:
    """Its code, its defaults, what it closes over, and the globals that it names."""
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
    """Of what is not contiguous: the dimensions as they lie in memory, which are expanded, and
    whether there are gaps."""
    strides = value.stride()
    order = tuple(sorted(range(value.dim()), key=lambda dim: -strides[dim]))
    expanded = tuple([stride == 0 for stride in strides])
    return order, expanded, value.permute(order).is_contiguous()


def _numbers(value: torch.Tensor) -> tuple:
    """Of a small tensor that nothing is differentiated by: of a single one, as of a number."""
    if value.requires_grad or unusual(value) or value.numel() > FEW:
        return ()
    found = plain(value).flatten().tolist()
    return (repr(found[0]),) if len(found) == 1 else (Numbers(map(repr, found)),)


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


def nested_kind_of(call: Call, sizes: Collection) -> tuple:
    """What tells a call that another one makes from others of this kind, whatever the sizes.

    Args:
        sizes: of the call that makes it; a number may be one.
    """
    return _without(kind_of(call), sizes, objects=True)


def regardless(call: Call) -> tuple[tuple, tuple]:
    """The kind of a call, whatever its sizes; and whatever its numbers, too.

    Objects are told apart by what they hold.
    """
    kind, sizes = kind_of(call), _sizes(call)
    return _without(kind, sizes, objects=True), _without(kind, (), values=True)


def _sizes(call: Call) -> set[int]:
    return {n for x in call.given if isinstance(x, torch.Tensor) for n in x.shape if n > 1}


def _without(kind: Any, sizes: Collection, values: bool = False, objects: bool = False) -> Any:
    """The same without sizes; those that are 0 or 1, and which numbers are one, stay.

    Args:
        sizes: that a number may be.
        values: leave out values, too, but that of a tensor that is one number.
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
        return tuple([_without(part, sizes, values, objects) for part in kind])
    return kind


def _what_differs(call: Call, kinds: _Kinds) -> str:
    """Which arguments have had other values than in this call, in words."""
    args, keywords, held, *_ = _without(kind_of(call), ())
    others = [_without(kind[1:], ()) for kind in kinds.exact]
    names = argument_names(call.function)
    told = [
        names[place] if place < len(names) else f"argument {place + 1}"
        for place, here in enumerate(args)
        if any(place < len(other[0]) and other[0][place] != here for other in others)
    ]
    told += [name for name, here in keywords if any((name, here) not in o[1] for o in others)]
    if told:
        return "values of " + ", ".join(told)
    elsewhere = any(other[2] != held for other in others)
    return "values of what it reads besides its arguments" if elsewhere else "kinds of calls"
