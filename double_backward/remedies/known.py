"""What is known of a Function for each kind of call, so that it is tried once and then trusted.

Trying a Function means calling it dozens of times. The outcome holds for the next call too, if that
is of the same kind: the same code, dtypes, sizes and layouts, the same inputs that require
grad, grad_outs that have a graph or none, and the same numbers, strings and flags, by value, among
its arguments and in all that those, its class, its closures and the globals that it names hold.

A Function that is called in more than `SEVERAL` kinds, that reads values of tensors, draws, or
changes something besides what it returns is watched from then on: `operations` notes what it does
at each call. Where it does what it did at a call that was tried, it is trusted; where it does
something new, it is tried. Calls are of one kind

    if sizes differ           for the same operations, on the same, with the same numbers given
    if numbers differ, too    for the same operations, with the same numbers in them
    else                      never; from `FURTHER_KINDS` on a warning comes, or each is tried

The outcome need not hold at other values of tensors (a clamp, `torch.where`), so each kind is tried
again at its 4th, 16th, 64th … call; and at its 2nd, 4th, 8th … while what backward returns does not
change with the inputs, as where all is masked.

This module keeps no Function, tensor or object of the user's alive.
"""

import functools
import threading
import types
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from double_backward.calls import Call
from double_backward.kinds import PLAIN, inside, kind_of, own_classes, sizes_of, without
from double_backward.names import argument_names
from double_backward.operations import Did
from double_backward.phrases import Phrase, joined
from double_backward.surroundings import EMPTY

NEXT_TRIAL = 4  # the next trial comes after this many times as many calls
SOON = 2  # the same factor where the last trial could not tell much
SEVERAL = 8  # after this many kinds, each of which is tried, a Function is watched
FURTHER_KINDS = 32  # so many more are tried, which do other operations or have other numbers
UNWATCHED_KINDS = 64  # how many kinds are known without watching


@dataclass
class Known:
    """What trials of one kind of call have found.

    Attributes:
        outcome: the result of the last trial, whose meaning is known to the caller of `recall`.
        said: the text of the error for it, where it is wrong; None until it is needed.
        touches: True if the Function changes something besides what it returns, which then has to
            be put back when it is called again.
        draws: True if random numbers are drawn, by forward or by backward.
        was_wrong: True if a trial has found something.
        calls: how many calls there have been.
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
        """Count one more call, and return whether the Function is to be tried at it."""
        self.calls += 1
        if self.calls < self.next_trial:
            return False
        self.next_trial = NEXT_TRIAL * self.calls
        return True


@dataclass
class _Kinds:
    """The kinds of calls of one Function.

    Attributes:
        exact: a kind -> what is known of it.
        given: the shapes and plain values (`_at_a_glance`) of calls that need not be watched.
        alike: what calls that did the same have in common -> what is known of them.
        always: True if each call has to be watched: values of tensors select what the Function
            does, or calls that look alike at a glance are of different kinds.
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
    """The `Known` of this kind of call, a new one for the first of its kind.

    Args:
        doubt: called where there are too many kinds to try each, with a callable that returns in
            words what the kinds differ by; calls that do the same operations are then one kind.
            Without `doubt`, each call is tried.
    """
    kinds, did = _kinds(call.function), call.did_both
    kind = find, *kind_of(call, grad_outs)
    if did is None:
        known = kinds.exact.get(kind)
        unwatched = call.transformed or call.region is not None
        if known is None and len(kinds.exact) < (FURTHER_KINDS if unwatched else SEVERAL):
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
            if len(kinds.exact) < UNWATCHED_KINDS and not kinds.always:
                kinds.add(call, kind, known)
            return known
    if doubt is None or len(kinds.alike) > 4 * FURTHER_KINDS:
        return Known()
    doubt(functools.partial(_what_differs, call, kinds))
    anything = without(kind, (), values=True)
    return kinds.alike.setdefault((anything, did and did.steps), Known())


def _alike(
    kinds: _Kinds, call: Call, kind: tuple, did: Did, new: Known | None = None
) -> Known | None:
    """The `Known` of calls that did the same, which may be new; None if there are too many kinds.

    Args:
        new: the `Known` of a kind that is tried in any case.
    """
    other_sizes = without(kind, sizes_of(call)), did.steps
    known = kinds.alike.get(other_sizes) if new is None else None
    if known is None:
        other_numbers = without(kind, (), values=True), did.exactly
        known = new or kinds.alike.get(other_numbers)
        if known is None and len(kinds.alike) < 2 * FURTHER_KINDS:
            known = Known()
        if known is not None and len(kinds.alike) < 3 * FURTHER_KINDS:
            kinds.alike.setdefault(other_numbers, known)
            kinds.alike[other_sizes] = known
    return known


def watches(call: Call) -> bool:
    """Whether what this call does has to be noted, for `recall`."""
    return _kinds(call.function).is_watched(call)


def watch(function: Any) -> None:
    """Watch all calls of a Function from now on, since it was seen to read values of tensors, to
    draw, or to change something."""
    _kinds(function).always = True


def forget() -> None:
    """Forget all kinds, so that every Function is tried anew."""
    _of_code.clear()
    _of_class.clear()


def _kinds(function: Any) -> _Kinds:
    """The kinds of one Function, shared by classes that are made of the same code.

    A class that is written inside a function is a new class each time the function is called.
    """
    codes = tuple(_code(getattr(function, name)) for name in ("forward", "backward", "vjp"))
    if function in _of_class and _of_class[function][0] == codes:
        return _of_class[function][1]
    identity = tuple((c.__qualname__, *_codes(c)) for c in own_classes(function))
    owner = codes[0] if isinstance(codes[0], types.CodeType) else function
    kinds = _of_code.setdefault(owner, {}).setdefault(identity, _Kinds())
    _of_class[function] = codes, kinds
    return kinds


def _codes(cls: type) -> list[int]:
    """The code of the methods of a class, and of the functions that these close over; hashed, so
    that nothing is kept alive."""
    methods = [f for f in map(inside, vars(cls).values()) if isinstance(f, types.FunctionType)]
    cells = [cell.cell_contents for f in methods for cell in f.__closure__ or () if cell != EMPTY]
    functions = [*methods, *(f for f in cells if isinstance(f, types.FunctionType))]
    return [hash(f.__code__) for f in functions]


def _code(method: Any) -> Any:
    """The code of a method, below its decorators."""
    while hasattr(method, "__wrapped__"):
        method = method.__wrapped__
    return getattr(getattr(method, "__func__", method), "__code__", None)


def _at_a_glance(call: Call) -> tuple:
    return tuple([x.shape if isinstance(x, torch.Tensor) else x if type(x) in PLAIN else None
                  for x in call.given])  # fmt: skip


def _what_differs(call: Call, kinds: _Kinds) -> str:
    """Which arguments have had other values than in this call, in words."""
    args, keywords, held, *_ = without(kind_of(call), ())
    others = [without(kind[1:], ()) for kind in kinds.exact]
    names = argument_names(call.function)
    told = [
        names[place] if place < len(names) else f"argument {place + 1}"
        for place, here in enumerate(args)
        if any(place < len(other[0]) and other[0][place] != here for other in others)
    ]
    told += [name for name, here in keywords if any((name, here) not in o[1] for o in others)]
    if told:
        return Phrase("values of {}", joined("{}, {}", told))
    elsewhere = any(other[2] != held for other in others)
    beside = Phrase("values of what it reads besides its arguments")
    return beside if elsewhere else Phrase("kinds of calls")
