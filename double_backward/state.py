"""What a Function may read or change besides its arguments, taken and put back.

When a Function is called again to see what it does, nobody else may notice: not the random
generators, not running statistics, not the gradients that a backward of its own collects, nor any
memory that it writes into past the version counters (`.data[...] =`, a NumPy view, a kernel).
"""

import collections
import functools
import io
import itertools
import operator
import random
import sys
import threading
import types
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.nn.parameter import is_lazy

from ._torch import is_functorch_wrapped_tensor, set_version, version

MOST = 20_000  # objects looked at
RUNNERS = ("_pytest", "pluggy", "unittest", "logging")  # their objects compute nothing
OF_MODULES = "_modules", "_parameters", "_buffers"  # attributes of a module that hold its parts
# Packages whose functions are not followed, beside the standard library.
NOT_THE_USERS = ("torch", "numpy", "scipy", "sympy", "mpmath", "double_backward")


@dataclass(frozen=True)
class Draws:
    """The random generators at one moment."""

    torch_cpu: torch.Tensor
    torch_cuda: list
    numpy: tuple
    python: tuple

    @classmethod
    def now(cls):
        return cls(
            torch.get_rng_state(),
            torch.cuda.get_rng_state_all() if _uses_cuda() else [],
            np.random.get_state(legacy=True),  # type: ignore[arg-type]
            random.getstate(),
        )

    def are_as_now(self):
        """Whether nothing has been drawn since."""
        now = Draws.now()
        before, after = ([s.torch_cpu, *s.torch_cuda] for s in (self, now))
        return (
            len(before) == len(after)  # CUDA may have begun
            and all(map(torch.equal, before, after))
            and self.python == now.python
            and self.numpy[2:] == now.numpy[2:]
            and np.array_equal(self.numpy[1], now.numpy[1])
        )

    def put_back(self):
        torch.set_rng_state(self.torch_cpu)
        if self.torch_cuda:
            torch.cuda.set_rng_state_all(self.torch_cuda)
        np.random.set_state(self.numpy)
        random.setstate(self.python)


@dataclass(frozen=True)
class State:
    """Autocast at one moment, and the random generators if somebody draws from there on."""

    autocast: tuple  # (device type, enabled, dtype) for each
    draws: Draws | None = None  # 40 KB

    @classmethod
    def now(cls, draws=True):
        autocast = tuple(_autocast(d) for d in (["cpu", "cuda"] if _uses_cuda() else ["cpu"]))
        return cls(autocast, Draws.now()) if draws else _without_draws(autocast)

    def without_draws(self):
        return _without_draws(self.autocast)

    @contextmanager
    def again(self, draws=True):
        """Inside, as it was then; afterwards the generators are as if nothing had been called.

        Args:
            draws: False if what is called is not known to draw. The generators are then left alone
                where other threads are alive: those may be drawing, and there is one for all.
        """
        now = Draws.now()
        if self.draws is not None:
            self.draws.put_back()
        try:
            with self.cast_again():
                yield
        finally:
            if draws or self.draws is not None or threading.active_count() == 1:
                now.put_back()

    @contextmanager
    def cast_again(self):
        """Inside, autocast is as it was then."""
        with ExitStack() as stack:
            for each in self.autocast:
                device, enabled, dtype = each
                if each != _autocast(device):
                    stack.enter_context(torch.autocast(device, dtype=dtype, enabled=enabled))
            yield


@functools.cache
def _without_draws(autocast):
    return State(autocast)  # one for all calls


def _uses_cuda():
    return torch.cuda.is_available() and torch.cuda.is_initialized()


def _autocast(device):
    return device, torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)


class Surroundings:
    """What can be reached from `roots`, to be put back after each time that it may be changed.

    Tensors, their memory and their gradients, buffers of modules, NumPy arrays, lists, dicts, sets,
    attributes, slots, generators of random numbers; through closures, defaults, methods, the
    classes of objects and the globals that a function names. `functools.lru_cache`s are replaced by
    empty ones.

    Attributes:
        held: what can be reached, by name: that of a variable, an attribute, a key; "" without one.
        changed: True if anything has had to be put back.
        drew: True if whoever uses this has seen random numbers drawn.
        edited: the names of the tensors and arrays among that.
        beyond: what is there that cannot be put back, in words; "" if there is nothing.
    """

    def __init__(self, *roots):
        self.held, self.beyond = _reachable(roots)
        self.changed, self.drew, self.edited = False, False, []
        self._undo, self._bindings = None, []

    @contextmanager
    def unchanged(self, objects=True):
        """
        Args:
            objects: False to leave lists, dicts, attributes as they become, but for the hooks of
                modules.
        """
        if self._undo is None:  # once: between two uses everything is as it was
            found = [thing for name, thing in self.held if objects or _is_value(name, thing)]
            self._bindings = [each for thing in found for each in _bindings(thing)]
            contents = [*map(_keep, found), *(b.put_back for b in self._bindings)]
            self._undo = [*_keep_memory(self.held), *(("", put_back) for put_back in contents)]
            self._empty = {id(c): _emptied(c) for c in found if isinstance(c, _CACHED)}
        for each in self._bindings if self._empty else ():
            each.replace(self._empty)
        try:
            yield
        finally:
            for name, put_back in self._undo:
                if put_back():
                    self.changed = True
                    self.edited += [name] if name else []


def _is_value(name, thing):
    """Whether it holds numbers, or hooks, rather than objects."""
    return isinstance(thing, (torch.Tensor, *_GENERATORS)) or name.endswith("hooks")


def held_by(*roots: object) -> list[tuple[str, Any]]:
    """(name, object) for all that can be reached from `roots`, the nearest first."""
    return _reachable(roots)[0]


def _reachable(roots):
    """A list of (name, object), and what is beyond reach."""
    found: dict[int, tuple[str, object]] = {}
    todo, beyond = collections.deque(("", root) for root in roots), ""
    while todo:
        name, thing = todo.popleft()
        if id(thing) in found or not _may_change(thing):
            continue
        if len(found) >= MOST:
            return list(found.values()), f"what it could change is more than {MOST:,} objects"
        found[id(thing)] = name, thing
        if _only_goes_on(thing):
            beyond = f"it may go on with a {type(thing).__name__}, which cannot be put back"
        todo += [(_joined(name, part), held) for part, held in _parts(thing)]
    return list(found.values()), beyond


def _joined(name, part):
    """A path of names without the dicts in which a module has its parts."""
    return ".".join(n for n in (name, str(part)) if n and n not in OF_MODULES)


_METHODS = staticmethod, classmethod
_GENERATORS = torch.Generator, np.random.RandomState, np.random.Generator, random.Random
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
        return _is_the_users(getattr(thing, "__module__", None) or "")
    return _package(type(thing).__module__) not in RUNNERS


def _package(name):
    return name.partition(".")[0]


def _is_the_users(name):
    package = _package(name)
    others = package in NOT_THE_USERS or package in sys.stdlib_module_names
    return not others or package == "__main__"


def _only_goes_on(thing):
    """Whether it is an iterator whose state nobody can set: a generator, `itertools.count()`."""
    if not hasattr(type(thing), "__next__") or isinstance(thing, io.IOBase):
        return False
    return not hasattr(thing, "__dict__") and not _slots(thing)


def _parts(thing):
    """[(name, part)] of what it consists of."""
    if isinstance(thing, np.ndarray):
        return []
    if isinstance(thing, types.FunctionType):
        cells = zip(thing.__code__.co_freevars, thing.__closure__ or (), strict=False)
        filled = [(name, c.cell_contents) for name, c in cells if _is_filled(c)]
        named = [b.before.items() for b in _globals_named(thing)]
        defaults = _unnamed(*(thing.__defaults__ or ()), *(thing.__kwdefaults__ or {}).values())
        return [*filled, *itertools.chain(*named), *defaults, *vars(thing).items()]
    if isinstance(thing, types.MethodType):
        return _unnamed(thing.__self__, thing.__func__)
    if isinstance(thing, (types.BuiltinMethodType, types.MethodWrapperType)):
        return _unnamed(thing.__self__)
    if isinstance(thing, functools.partial):
        return [*_unnamed(thing.func, *thing.args), *thing.keywords.items()]
    if isinstance(thing, property):
        return _unnamed(thing.fget, thing.fset)
    if isinstance(thing, type):
        own = list(vars(thing).items())
        own = [(n, v.__func__ if isinstance(v, _METHODS) else v) for n, v in own]
        return [*own, *_unnamed(*thing.__bases__)]
    held: list[Any] = [] if isinstance(thing, torch.Tensor) else _unnamed(type(thing))
    if isinstance(thing, dict):
        held += [*_unnamed(*dict.keys(thing)), *dict.items(thing)]
    elif isinstance(thing, (tuple, frozenset, list, set, collections.deque)):
        held += enumerate(thing)
    attributes = [dict.items(d) for d in _attributes_of(thing)]
    slots = [(slot.__name__, value) for slot, value in _slots(thing).items()]
    return [*held, *itertools.chain(*attributes), *slots]


def _unnamed(*parts: object) -> list[tuple[str, object]]:
    return [("", part) for part in parts]


def _attributes_of(thing):
    """[its attributes], or [] where it has none of its own."""
    attributes = getattr(thing, "__dict__", None)
    return [attributes] if isinstance(attributes, dict) else []


def _slots(thing):
    """Slot -> what is in it, of an object whose class declares any."""
    filled = {}
    for cls in type(thing).__mro__:
        for slot in vars(cls).values() if "__slots__" in vars(cls) else ():
            if isinstance(slot, types.MemberDescriptorType):
                with suppress(AttributeError):  # nothing is in it
                    filled[slot] = slot.__get__(thing)
    return filled


def _names_in(code):
    """All names in code and in what is defined inside it, those of attributes, too."""
    inside = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return set(code.co_names).union(*map(_names_in, inside))


def _is_filled(cell):
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _keep(thing):
    """A call that puts `thing` back as it is now, and says whether it was changed."""
    if isinstance(thing, torch.Tensor) and not is_lazy(thing):
        return _keep_tensor(thing)
    if isinstance(thing, torch.Generator):
        return _put_back(thing.set_state, thing.get_state())
    if isinstance(thing, np.random.RandomState):
        return _put_back(thing.set_state, thing.get_state())
    if isinstance(thing, np.random.Generator):
        numbers = thing.bit_generator
        return _put_back(partial(setattr, numbers, "state"), numbers.state)
    if isinstance(thing, random.Random):
        return _put_back(thing.setstate, thing.getstate())
    if isinstance(thing, (list, set, collections.deque)):
        return _keep_elements(thing)
    return lambda: False


def _put_back(setter, state):
    def put_back():
        setter(state)
        return True  # it is there to be used

    return put_back


def _keep_memory(held):
    """(name, call) for each block of memory of tensors, which the call puts back; and of arrays."""
    blocks: dict[tuple, tuple[str, torch.Tensor]] = {}
    for name, thing in held:
        for block in _memory(thing):
            blocks.setdefault((block.device, block.data_ptr(), block.numel()), (name, block))
            name = ""  # the gradient
    arrays = [(name, _keep_array(thing)) for name, thing in held if isinstance(thing, np.ndarray)]
    kept = [(name, _keep_bytes(block)) for name, block in blocks.values() if block.numel()]
    return [*kept, *arrays]


def _memory(thing):
    """The bytes of a tensor, and of its gradient, as tensors that share them."""
    if not isinstance(thing, torch.Tensor) or is_lazy(thing) or thing.device.type == "meta":
        return []
    if thing.layout is not torch.strided or is_functorch_wrapped_tensor(thing):
        return []
    grad = _memory(thing.grad) if thing.is_leaf and thing.grad is not None else []
    with suppress(RuntimeError, NotImplementedError):  # a subclass without memory of its own
        storage = thing.untyped_storage()
        with torch.inference_mode(False):
            return [torch.empty(0, dtype=torch.uint8, device=thing.device).set_(storage), *grad]
    return grad


def _keep_bytes(block):
    before = block.clone()

    def put_back():
        if not torch.equal(block, before):
            block.copy_(before)
            return True
        return False

    return put_back


def _keep_tensor(tensor):
    before = version(tensor)
    grad = tensor.grad if tensor.is_leaf else None

    def put_back():
        if tensor.is_leaf and tensor.grad is not grad:
            tensor.grad = grad
        if before is not None and version(tensor) != before:
            set_version(tensor, before)
            return True
        return False

    return put_back


def _keep_array(array):
    if not array.flags.writeable or array.dtype == object:
        return lambda: False
    before = array.copy()

    def put_back():
        if array.tobytes() != before.tobytes():
            array[...] = before
            return True
        return False

    return put_back


def _keep_elements(thing):
    kinds: tuple[Any, ...] = list, set, collections.deque
    kind = next(kind for kind in kinds if isinstance(thing, kind))
    before = list(kind.__iter__(thing))

    def put_back():
        if len(before) == len(thing) and all(map(operator.is_, before, kind.__iter__(thing))):
            return False
        kind.clear(thing)
        (kind.update if kind is set else kind.extend)(thing, before)
        return True

    return put_back


class _Bindings:
    """Names, keys or slots, and the objects that they are bound to.

    Args:
        now: gives them as a dict.
        put, drop: bind one, given its key and the object; take one away, given its key.
        clear: take all away, where the order matters.
    """

    def __init__(self, now, put, drop, clear=None):
        self.now, self.put, self.drop, self.clear = now, put, drop, clear
        self.before = now()

    def replace(self, others):
        """In the place of an object another one; `others` has them by id."""
        for key, value in self.before.items():
            inside = value.__func__ if isinstance(value, _METHODS) else value
            if id(inside) in others:
                other = others[id(inside)]
                self.put(key, other if inside is value else type(value)(other))

    def put_back(self):
        before, now = self.before, self.now()
        moved = [k for k, v in before.items() if now.get(k, _NONE) is not v]
        if not moved and len(now) == len(before) and (not self.clear or list(now) == list(before)):
            return False
        if self.clear:
            self.clear()
        for key in () if self.clear else now.keys() - before.keys():
            self.drop(key)
        for key in before if self.clear else moved:
            self.put(key, before[key])
        return True


_NONE = object()


def _bindings(thing):
    """What `thing` binds, to be put back."""
    if isinstance(thing, type):
        put, drop = (partial(f, thing) for f in (type.__setattr__, type.__delattr__))
        return [_Bindings(partial(_attributes, thing), put, drop)]
    found = [_of_dict(thing)] if isinstance(thing, dict) else []
    found += map(_of_dict, _attributes_of(thing))
    if isinstance(thing, types.FunctionType):
        return [*found, _of_cells(thing), *_globals_named(thing)]
    if _slots(thing):
        found.append(
            _Bindings(
                partial(_slots, thing),
                lambda slot, value: slot.__set__(thing, value),
                lambda slot: slot.__delete__(thing),
            )
        )
    return found


def _of_dict(d):
    """By the methods of its own kind: those of a subclass may do more."""
    kind = collections.OrderedDict if isinstance(d, collections.OrderedDict) else dict
    methods = kind.__setitem__, kind.__delitem__, kind.clear
    return _Bindings(lambda: dict(kind.items(d)), *(partial(method, d) for method in methods))


def _of_cells(function):
    cells = function.__closure__ or ()
    return _Bindings(
        lambda: {i: c.cell_contents for i, c in enumerate(cells) if _is_filled(c)},
        lambda i, value: setattr(cells[i], "cell_contents", value),
        lambda i: delattr(cells[i], "cell_contents"),
    )


def _globals_named(function):
    """Those globals whose names stand in its code; the same of the user's modules among them."""
    names, spaces, found = _names_in(function.__code__), [function.__globals__], []
    for space in spaces:  # it grows
        now = partial(_of_these, names, space)
        found.append(_Bindings(now, space.__setitem__, space.__delitem__))
        modules = [m for m in found[-1].before.values() if isinstance(m, types.ModuleType)]
        own = [vars(m) for m in modules if _is_the_users(m.__name__)]
        spaces += [each for each in own if not any(each is known for known in spaces)]
    return found


def _of_these(names, space):
    return {name: space[name] for name in names if name in space}


def _emptied(cached):
    """The same function with a cache of its own."""
    return functools.lru_cache(**cached.cache_parameters())(cached.__wrapped__)


def _attributes(cls):
    """Its attributes that are no methods: among those a hook comes and goes."""
    return {
        name: value
        for name, value in vars(cls).items()
        if not isinstance(value, (*_METHODS, types.FunctionType))
        and not getattr(value, "is_ours", False)
        or isinstance(getattr(value, "__func__", None), _CACHED)
    }
