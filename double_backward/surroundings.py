"""Records what a Function, or fn, may read or change besides its arguments, and puts it back.

When one is called again to see what it does, no trace may be left: in random generators, in running
statistics, in the gradients that a backward of its own collects, or in memory into which it writes
past the version counters (`.data[...] =`, a NumPy view, a kernel).
"""

import array
import collections
import functools
import io
import itertools
import mmap
import operator
import random
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn.parameter import is_lazy

from ._torch import (
    autocast_now,
    has_saving_hooks,
    is_functorch_wrapped_tensor,
    set_version,
    temporarily_clear_interpreter_stack,
    version,
)
from .containers import BUFFERS, SIMPLE_CTYPES, slots_of
from .phrases import Phrase

MOST_LOOKED_AT = 20_000  # objects that are looked at
# Packages whose objects hold what they have compiled; a kernel may not keep anything else.
COMPILERS = "numba", "triton", "warp"
# Packages whose objects compute nothing, and those of kernels.
LEFT_AS_IT_IS = "_pytest", "pluggy", "unittest", "logging", *COMPILERS
OF_OPERATORS = "torch._ops", "torch.library"  # modules whose objects note how they were dispatched
OF_MODULES = "_modules", "_parameters", "_buffers"  # attributes of a module that hold its parts
# Packages whose functions are not followed, besides the standard library.
NOT_THE_USERS = "torch", "numpy", "scipy", "sympy", "mpmath", "double_backward", *LEFT_AS_IT_IS
EMPTY = types.CellType()  # equal to the cell of a variable that is not bound yet


class Source(NamedTuple):
    """A random generator."""

    get: Callable[[], Any]  # returns its state
    put: Callable[[Any], Any]  # sets its state
    same: Callable[[Any, Any], bool] = operator.eq  # compares two states


def _same_state(a, b):
    """Whether two states of NumPy's generators, which contain arrays, are the same."""
    if isinstance(a, dict):
        return all(_same_state(a[key], b[key]) for key in a)
    if isinstance(a, (tuple, list)):
        return all(map(_same_state, a, b))
    return np.array_equal(a, b)


def _same_tensors(a, b):
    return len(a) == len(b) and all(map(torch.equal, a, b))  # CUDA may have been initialised


FOR_ALL = (
    Source(torch.get_rng_state, torch.set_rng_state, torch.equal),
    Source(
        lambda: torch.cuda.get_rng_state_all() if _uses_cuda() else [],
        lambda states: torch.cuda.set_rng_state_all(states) if states else None,
        _same_tensors,
    ),
    Source(partial(np.random.get_state, legacy=True), np.random.set_state, _same_state),
    Source(random.getstate, random.setstate),
)


@dataclass(frozen=True)
class Draws:
    """Random generators at one moment, each with its state."""

    states: tuple[tuple[Source, Any], ...]

    @classmethod
    def now(cls, own=()):
        """The generators that all code shares, and those in `own`, with their states now."""
        return cls(tuple((each, each.get()) for each in (*FOR_ALL, *own)))

    def used(self):
        """The generators from which something has been drawn since."""
        return Draws(tuple((s, then) for s, then in self.states if not s.same(then, s.get())))

    def are_as_now(self):
        return all(source.same(then, source.get()) for source, then in self.states)

    def of_the_same_now(self):
        return Draws.now([source for source, _ in self.own().states])

    def own(self):
        """The generators that not all code shares."""
        return Draws(tuple(each for each in self.states if each[0] not in FOR_ALL))

    def put_back(self):
        for source, then in self.states:
            source.put(then)


@dataclass(frozen=True)
class State:
    """The settings for all that runs, at one moment, and the random generators if they are needed.

    Attributes:
        key: equal for two moments with the same settings: autocast of each device, and those in
            `SETTINGS`.
        draws: the generators with their states; None if these are not recorded.
    """

    key: tuple
    draws: Draws | None = None  # takes 40 KB

    @classmethod
    def now(cls, draws=True, own=()):
        return cls(_set_now(), Draws.now(own)) if draws else _without_draws(_set_now())

    @property
    def autocast(self):
        """(device type, dtype) for each device for which autocast was on."""
        return self.key[0]

    def with_draws(self, draws):
        return _without_draws(self.key) if draws is None else State(self.key, draws)

    @contextmanager
    def drawn_again(self, draws=True):
        """Inside, the generators continue from their recorded states; afterwards they are as if
        nothing had been called. Yields the `Draws` at the start.

        Args:
            draws: False if the code that is called is not known to draw. Then the generators are
                left alone while other threads are alive, which share them and may be drawing.
        """
        now = Draws.now() if self.draws is None else self.draws.of_the_same_now()
        if self.draws is not None:
            self.draws.put_back()
        try:
            yield self.draws or now
        finally:
            if draws or self.draws is not None or threading.active_count() == 1:
                now.put_back()

    @contextmanager
    def as_then(self):
        """Inside, all settings are as they were then, and no hook packs saved tensors: such hooks
        are the caller's, and not part of the Function."""
        now, then, grad = _set_now(), self.key, torch.is_grad_enabled()
        mode = torch.inference_mode(False)  # which switches grad mode on
        with mode, torch.set_grad_enabled(grad), no_packing(), ExitStack() as stack:
            if now != then:
                stack.enter_context(_autocast_as(then[0], now[0]))
                stack.callback(_set, then[1], now[1])
                _set(now[1], then[1])
            yield


# A function that returns a setting (besides autocast) -> the function that sets it.
SETTINGS: dict[Callable[[], Any], Callable[[Any], Any]] = {
    torch.get_default_dtype: torch.set_default_dtype,
    torch.is_autocast_cache_enabled: torch.set_autocast_cache_enabled,
    torch.get_deterministic_debug_mode: torch.set_deterministic_debug_mode,
    torch.get_float32_matmul_precision: torch.set_float32_matmul_precision,
    torch.backends.cuda.math_sdp_enabled: torch.backends.cuda.enable_math_sdp,
    torch.backends.cuda.flash_sdp_enabled: torch.backends.cuda.enable_flash_sdp,
    torch.backends.cuda.mem_efficient_sdp_enabled: torch.backends.cuda.enable_mem_efficient_sdp,
    torch.backends.cuda.cudnn_sdp_enabled: torch.backends.cuda.enable_cudnn_sdp,
}


def _set_now():
    """The settings now: (device type, dtype) where autocast is on; and those of SETTINGS."""
    return autocast_now(), tuple([get() for get in SETTINGS])


def _set(before, after):
    for put, old, new in zip(SETTINGS.values(), before, after, strict=True):
        if new != old:
            put(new)


@contextmanager
def _autocast_as(then, now):
    with ExitStack() as stack:
        for device, dtype in now:
            if device not in dict(then):
                stack.enter_context(torch.autocast(device, dtype=dtype, enabled=False))
        for device, dtype in then:
            if (device, dtype) not in now:
                stack.enter_context(torch.autocast(device, dtype=dtype))
        yield


def no_packing():
    """Inside, no hook packs saved tensors."""
    if not has_saving_hooks():
        return nullcontext()
    return torch.autograd.graph.saved_tensors_hooks(_as_it_is, _as_it_is)


def _as_it_is(tensor):
    return tensor


@functools.cache
def _without_draws(key):
    return State(key)  # one for all calls


def _uses_cuda():
    return torch.cuda.is_available() and torch.cuda.is_initialized()


class Surroundings:
    """All that can be reached from `roots`, which is put back each time that it may be changed.

    These are tensors, their memory and their gradients, buffers of modules, NumPy arrays, lists,
    dicts, sets, attributes, slots, bytes and characters in memory, and generators of random
    numbers. They are reached through closures, defaults, methods, the classes of objects and the
    globals that a function names. `functools.lru_cache`s are replaced by empty ones.

    Attributes:
        held: list of (name, object). A name is that of a variable, an attribute or a key, or "".
        changed: True if anything has had to be put back.
        drew: True if the user of this object has seen that random numbers were drawn.
        edited: the names of the tensors and arrays that have had to be put back.
        beyond: a sentence about something that cannot be put back; "" if there is nothing.
    """

    def __init__(self, *roots):
        self.held, self.beyond = _reachable(roots)
        self.changed, self.drew, self.edited = False, False, []
        self._kept: Any = None
        self._ids: set[int] | None = None

    @property
    def sources(self):
        """A `Source` for each random generator that can be reached."""
        return [_generator(thing) for _, thing in self.held if isinstance(thing, GENERATORS)]

    def looked_at(self, objects=True):
        """Record all that can be reached, as it is now; return self."""
        if self._kept is None:  # only once, since all is put back after each use
            found = [thing for name, thing in self.held if objects or _is_value(name, thing)]
            self._kept = [*_memory(self.held), *itertools.chain(*map(_kept, found))]
            self._empty = {id(c): _emptied(c) for c in found if isinstance(c, _CACHED)}
        return self

    def changes(self):
        """What has changed since it was recorded, as it was then, in a form for `as_now`. States of
        generators are not included: `Draws` has these."""
        others = [each for each in self._kept if not isinstance(each, _OfGenerator)]
        return tuple([each for each in others if not each.same(each.before, each.now())])

    @contextmanager
    def unchanged(self, objects=True):
        """Inside, anything may be changed; it is put back afterwards.

        Args:
            objects: False to put back no lists, dicts and attributes, except the hooks of modules.
        """
        self.looked_at(objects)
        if self._empty:
            self._replace(self._empty)
        try:
            yield
        finally:
            for each in self._kept:
                if each.put_back():
                    self.changed = True
                    self.edited += [each.name] if each.name else []

    def exchange(self, others):
        """Inside `unchanged`: replace tensors by others (id -> tensor) wherever they are held, and
        return whether any is held."""
        if self._ids is None:
            self._ids = {id(thing) for _, thing in self.held}
        others = {key: other for key, other in others.items() if key in self._ids}
        if others:
            for _, thing in reversed(self.held):  # the parts of a tuple come before it
                if type(thing) is tuple and any(id(part) in others for part in thing):
                    others[id(thing)] = tuple([others.get(id(part), part) for part in thing])
            self._replace(others)
        return bool(others)

    def write(self, changes, others):
        """Inside `unchanged`: write what `changes` has returned, as it was then, with tensors
        replaced by others (id -> tensor). No transform of torch.func may see that memory is
        written."""
        with temporarily_clear_interpreter_stack():
            for each in changes:
                each.write(each.before)
        others = self._empty | others
        for each in changes:
            each.replace(others)

    def _replace(self, others):
        for each in self._kept:
            each.replace(others)


def _is_value(name, thing):
    """Whether a thing holds numbers, or hooks, and not other objects."""
    return isinstance(thing, (torch.Tensor, *GENERATORS)) or name.endswith("hooks")


def held_by(*roots: object) -> list[tuple[str, Any]]:
    """A list of (name, object) for all that can be reached from `roots`, the nearest first."""
    return _reachable(roots)[0]


@contextmanager
def as_now(changes):
    """In the end, put what `Surroundings.changes` has returned back to what it is now."""
    now = [(each, _own(each.now())) for each in changes]
    try:
        yield
    finally:
        for each, then in now:
            each.write(then)


def _own(value):
    """A copy of a value that may be memory in use; any other value as it is."""
    if isinstance(value, torch.Tensor) and value.dtype is torch.uint8:
        return value.clone()
    return value.copy() if isinstance(value, np.ndarray) else value


def _generator(thing):
    if isinstance(thing, torch.Generator):
        return Source(thing.get_state, thing.set_state, torch.equal)
    if isinstance(thing, np.random.RandomState):
        return Source(partial(thing.get_state, legacy=True), thing.set_state, _same_state)
    if isinstance(thing, random.Random):
        return Source(thing.getstate, thing.setstate)
    bits = thing.bit_generator
    return Source(lambda: bits.state, partial(setattr, bits, "state"), _same_state)


# All that a call of fn may change.


@dataclass
class SideEffects:
    """What was met while fn was called."""

    warnings: list[str] = field(default_factory=list)
    edited: list[str] = field(default_factory=list)  # tensors that fn holds, by name


@contextmanager
def undisturbed(fn: Callable) -> Iterator[SideEffects]:
    """Inside, fn may be called; afterwards all that this may change is put back.

    That is gradients, generators, the default dtype, grad mode, anomaly mode, warning filters, the
    number of torch's threads, and the tensors, arrays, generators and hooks of modules that fn
    holds. Yields `SideEffects`, which are filled at the end.
    """
    default, draws = torch.get_default_dtype(), Draws.now()
    anomaly = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
    threads = torch.get_num_threads()  # Numba's, which share a library with torch, set them too
    held, found = Surroundings(fn), SideEffects()
    mode, grad = torch.inference_mode(False), torch.enable_grad()
    caught = warnings.catch_warnings(record=True, action="always")
    with mode, grad, caught as met, held.unchanged(objects=False):
        try:
            yield found
        finally:
            torch.set_default_dtype(default)
            torch.set_anomaly_enabled(*anomaly)
            if torch.get_num_threads() != threads:
                torch.set_num_threads(threads)
            draws.put_back()
    found.warnings.extend(str(warning.message) for warning in met)
    found.edited.extend(held.edited)


# The walk.


def _reachable(roots):
    """A list of (name, object), and a sentence about something that cannot be put back, or ""."""
    found: dict[int, tuple[str, object]] = {}
    todo, beyond = collections.deque(("", root) for root in roots), ""
    while todo:
        name, thing = todo.popleft()
        if id(thing) in found or not _may_change(thing):
            continue
        if len(found) >= MOST_LOOKED_AT:
            return list(
                found.values()
            ), f"what it could change is more than {MOST_LOOKED_AT:,} objects"
        found[id(thing)] = name, thing
        beyond = _cannot_be_put_back(thing) or beyond
        parts = itertools.chain(*(b.before.items() for b in _bindings(thing)), _parts(thing))
        todo += [(_joined(name, part), held) for part, held in parts]
    return list(found.values()), beyond


def _joined(name, part):
    """A path of names, without those of the dicts in which a module holds its parts."""
    return ".".join(n for n in (name, str(part)) if n and n not in OF_MODULES)


_METHODS = staticmethod, classmethod
GENERATORS = torch.Generator, np.random.RandomState, np.random.Generator, random.Random
_CACHED = type(functools.lru_cache(lambda: None))
_PLAIN = (
    str, bytes, int, float, complex, bool, type(None), torch.dtype, torch.device, np.generic,
    types.ModuleType, types.CodeType, types.GetSetDescriptorType, types.MemberDescriptorType,
    types.WrapperDescriptorType, types.MethodDescriptorType, types.ClassMethodDescriptorType,
)  # fmt: skip


def _may_change(thing):
    if isinstance(thing, _PLAIN):
        return False
    if isinstance(thing, (type, types.FunctionType)):
        return is_the_users(getattr(thing, "__module__", None) or "")
    kind = type(thing).__module__
    return _package(kind) not in LEFT_AS_IT_IS and kind not in OF_OPERATORS


def _package(name):
    return name.partition(".")[0]


def is_the_users(name):
    package = _package(name)
    others = package in NOT_THE_USERS or package in sys.stdlib_module_names
    return not others or package == "__main__"


def _cannot_be_put_back(thing):
    """The reason why a thing cannot be put back, or "". Such things are iterators whose state
    cannot be set (a generator, `itertools.count()`), and files."""
    kind = type(thing).__name__
    if isinstance(thing, io.IOBase):
        known = isinstance(thing, BUFFERS) or thing in (sys.stdin, sys.stdout, sys.stderr)
        return "" if known or thing.closed else Phrase("it may use a file ({})", kind)
    if isinstance(thing, mmap.mmap):
        return Phrase("it may write into a file ({})", kind)
    if isinstance(thing, memoryview) and not (thing.readonly or thing.c_contiguous):
        return Phrase("it may write into a {} that has gaps", kind)
    goes_on = hasattr(type(thing), "__next__")
    if goes_on and not hasattr(thing, "__dict__") and not _slots(thing):
        return Phrase("it may go on with a {}, which cannot be put back", kind)
    return ""


def _parts(thing):
    """A list of (name, part) for the parts of a thing, without those that it binds to names."""
    if isinstance(thing, types.FunctionType):
        return _unnamed(*(thing.__defaults__ or ()), *(thing.__kwdefaults__ or {}).values())
    if isinstance(thing, types.MethodType):
        return _unnamed(thing.__self__, thing.__func__)
    if isinstance(thing, (types.BuiltinMethodType, types.MethodWrapperType)):
        return _unnamed(thing.__self__)
    if isinstance(thing, functools.partial):
        return [*_unnamed(thing.func, *thing.args), *thing.keywords.items()]
    if isinstance(thing, property):
        return _unnamed(thing.fget, thing.fset)
    if isinstance(thing, type):
        return [*((n, _inside(v)) for n, v in vars(thing).items()), *_unnamed(*thing.__bases__)]
    if isinstance(thing, (tuple, frozenset, list, set, collections.deque)):
        return [*_unnamed(type(thing)), *enumerate(thing)]
    keys = dict.keys(thing) if isinstance(thing, dict) else ()
    return _unnamed(*keys, *([] if isinstance(thing, torch.Tensor) else [type(thing)]))


def _unnamed(*parts: object) -> list[tuple[str, object]]:
    return [("", part) for part in parts]


def _inside(value):
    """The function of a static method or a class method; any other value as it is."""
    return value.__func__ if isinstance(value, _METHODS) else value


# The recorded things, and how they are put back.


class _Kept:
    """Something as it was.

    Args:
        before: the value that was there.
        now: returns the value that is there now.
        write: puts a value back.
        same: compares two values.
        name: a name for `edited`, or "".
    """

    def __init__(self, before, now, write, same, name=""):
        self.before, self.now, self.write, self.same, self.name = before, now, write, same, name

    def put_back(self):
        """Put the value back; return whether that was necessary."""
        if self.same(self.before, self.now()):
            return False
        self.write(self.before)
        return True

    def replace(self, others):
        """Replace the objects that it holds by others (id -> object)."""


class _Bindings(_Kept):
    """Names, keys or slots, and the objects that they are bound to.

    Args:
        now: returns the bindings as a dict.
        put: binds a key to an object.
        drop: removes a key.
        ordered: whether their order counts.
    """

    def __init__(self, now, put, drop, ordered=False):
        super().__init__(now(), now, self._write, self._same)
        self.put, self.drop, self.ordered = put, drop, ordered

    def _same(self, before, now):
        if before.keys() != now.keys() or (self.ordered and list(before) != list(now)):
            return False
        return all(now[key] is value for key, value in before.items())

    def _write(self, before):
        now = self.now()
        anew = self.ordered and list(before) != list(now)
        for key in now if anew else now.keys() - before.keys():
            self.drop(key)
        for key, value in before.items():
            if anew or key not in now or now[key] is not value:
                self.put(key, value)

    def replace(self, others):
        for key, value in self.before.items():
            if id(_inside(value)) in others:
                other = others[id(_inside(value))]
                self.put(key, other if _inside(value) is value else type(value)(other))


def _identical(a, b):
    return len(a) == len(b) and all(map(operator.is_, a, b))


def _kept(thing):
    """`_Kept` for each part of a thing that can be changed, except memory."""
    if isinstance(thing, torch.Tensor) and not is_lazy(thing):
        yield from _of_tensor(thing)
    elif isinstance(thing, GENERATORS):
        source = _generator(thing)
        yield _OfGenerator(source.get(), source.get, source.put, source.same)
    for kind in (list, set, collections.deque):
        if isinstance(thing, kind):
            yield _Elements(thing, kind)
    yield from _of_buffer(thing)
    yield from _bindings(thing)


def _of_buffer(thing):
    """`_Kept` for the bytes or characters that a thing holds, and for the position of a stream."""
    kind: Any
    if isinstance(thing, (io.StringIO, io.BytesIO)) and not thing.closed:
        kind = io.StringIO if isinstance(thing, io.StringIO) else io.BytesIO
        before, now = kind.__getstate__(thing), partial(kind.__getstate__, thing)
        yield _Kept(before, now, partial(kind.__setstate__, thing), operator.eq)
    elif isinstance(thing, (bytearray, array.array)):
        kind = bytearray if isinstance(thing, bytearray) else array.array
        yield _Kept(bytes(thing), partial(bytes, thing), partial(_refill, kind, thing), operator.eq)
    elif isinstance(thing, (*SIMPLE_CTYPES, memoryview)):
        memory = memoryview(thing)  # type: ignore[arg-type]  # all of these have one
        if not memory.readonly and memory.c_contiguous and memory.nbytes:
            memory = memory.cast("B")
            write = partial(memory.__setitem__, slice(None))
            yield _Kept(memory.tobytes(), memory.tobytes, write, operator.eq)


def _refill(kind, thing, before):
    """Fill a buffer again, in place if it has the same length, since other code may use its
    memory."""
    held = before if kind is bytearray else array.array(thing.typecode, before)
    kind.__setitem__(thing, slice(None), held)


def _of_tensor(tensor):
    if tensor.is_leaf:
        put = partial(setattr, tensor, "grad")
        yield _Kept(tensor.grad, lambda: tensor.grad, put, operator.is_)
    now = partial(version, tensor)
    yield _Kept(now(), now, partial(set_version, tensor), operator.eq)


class _OfGenerator(_Kept):
    """The state of a generator of random numbers."""


class _Elements(_Kept):
    """The elements of a list, a set or a deque."""

    def __init__(self, thing, kind):
        def write(before):
            kind.clear(thing)
            (kind.update if kind is set else kind.extend)(thing, before)

        now = partial(list, thing) if type(thing) is kind else lambda: list(kind.__iter__(thing))
        super().__init__(now(), now, write, _identical)

    def replace(self, others):
        if any(id(part) in others for part in self.before):
            self.write([others.get(id(part), part) for part in self.before])


def _memory(held):
    """`_Kept` for each block of memory of tensors, their gradients, and arrays, with its name."""
    blocks: dict[tuple, tuple[str, torch.Tensor]] = {}
    for name, thing in held:
        for block in _blocks(thing):
            blocks.setdefault((block.device, block.data_ptr(), block.numel()), (name, block))
            name = ""  # the next block is the gradient
    found = [_array(name, thing) for name, thing in held if isinstance(thing, np.ndarray)]
    found += [
        _Kept(block.clone(), lambda block=block: block, block.copy_, torch.equal, name)
        for name, block in blocks.values()
        if block.numel()
    ]
    return filter(None, found)


def _blocks(thing):
    """The bytes of a tensor, and of its gradient, as tensors that share their memory."""
    if not isinstance(thing, torch.Tensor) or is_lazy(thing) or thing.device.type == "meta":
        return []
    if thing.layout is not torch.strided or is_functorch_wrapped_tensor(thing):
        return []
    grad = _blocks(thing.grad) if thing.is_leaf and thing.grad is not None else []
    with suppress(RuntimeError, NotImplementedError):  # a subclass without memory of its own
        storage = thing.untyped_storage()
        if not storage.data_ptr():  # a subclass that only holds other tensors
            return grad
        with torch.inference_mode(False):
            return [torch.empty(0, dtype=torch.uint8, device=thing.device).set_(storage), *grad]
    return grad


def _array(name, array):
    if not array.flags.writeable or array.dtype == object:
        return None
    write = partial(array.__setitem__, ...)
    return _Kept(array.copy(), lambda: array, write, _same_bytes, name)


def _same_bytes(a, b):
    return a.tobytes() == b.tobytes()


def _bindings(thing):
    """`_Bindings` for each set of names, keys or slots of a thing."""
    if isinstance(thing, type):
        put, drop = (partial(f, thing) for f in (type.__setattr__, type.__delattr__))
        return [_Bindings(partial(_class_attributes, thing), put, drop)]
    found = [_of_dict(thing)] if isinstance(thing, dict) else []
    attributes = getattr(thing, "__dict__", None)
    found += [_of_dict(attributes)] if isinstance(attributes, dict) else []
    if isinstance(thing, types.FunctionType):
        return [*found, _of_cells(thing), *_globals_named(thing)]
    if _slots(thing):
        put, drop = (partial(f, thing) for f in (object.__setattr__, object.__delattr__))
        found.append(_Bindings(partial(_slots, thing), put, drop))
    return found


def _of_dict(d):
    """`_Bindings` of a dict, by the methods of dict or OrderedDict: those of a subclass may do
    more."""
    kind = collections.OrderedDict if isinstance(d, collections.OrderedDict) else dict
    put, drop = partial(kind.__setitem__, d), partial(kind.__delitem__, d)
    return _Bindings(lambda: dict(kind.items(d)), put, drop, ordered=True)


def _of_cells(function):
    names, cells = function.__code__.co_freevars, function.__closure__ or ()
    named = dict(zip(names, cells, strict=False))
    return _Bindings(
        lambda: {name: cell.cell_contents for name, cell in named.items() if cell != EMPTY},
        lambda name, value: setattr(named[name], "cell_contents", value),
        lambda name: delattr(named[name], "cell_contents"),
    )


def _globals_named(function):
    """`_Bindings` for the globals that a function names, and for attributes of the user's modules
    that it names."""
    names, spaces, found = names_in(function.__code__), [function.__globals__], []
    for space in spaces:  # the list grows
        now = partial(_of_these, names, space)
        found.append(_Bindings(now, space.__setitem__, space.__delitem__))
        modules = [m for m in found[-1].before.values() if isinstance(m, types.ModuleType)]
        own = [vars(m) for m in modules if is_the_users(m.__name__)]
        spaces += [each for each in own if not any(each is known for known in spaces)]
    return found


def names_in(code):
    """All names in code and in functions defined inside it, including names of attributes."""
    inside = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return set(code.co_names).union(*map(names_in, inside))


def _of_these(names, space):
    return {name: space[name] for name in names if name in space}


def _slots(thing):
    """Dict: the name of a slot -> what is in it, for an object whose class declares slots."""
    found: dict[str, object] = {}
    for slot in slots_of(type(thing)):
        with suppress(AttributeError):  # nothing is in it
            found.setdefault(slot.__name__, slot.__get__(thing))
    return found


def _class_attributes(cls):
    """The attributes of a class without its methods, among which hooks come and go."""
    return {
        name: value
        for name, value in vars(cls).items()
        if not isinstance(value, (*_METHODS, types.FunctionType))
        and not getattr(type(value), "is_ours", False)  # an object may have any attribute
        or isinstance(value, _METHODS)
        and isinstance(value.__func__, _CACHED)
    }


def _emptied(cached):
    """The same function with a new, empty cache."""
    return functools.lru_cache(**cached.cache_parameters())(cached.__wrapped__)
