"""What a Function may read or change besides its arguments, taken and put back.

When a Function is called again to see what it does, nobody else may notice: not the random
generators, not running statistics, not the gradients that a backward of its own collects, nor any
memory that it writes into past the version counters (`.data[...] =`, a NumPy view, a kernel).
"""

import collections
import dis
import functools
import random
import sys
import threading
import types
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

import numpy as np
import torch

from ._torch import is_functorch_wrapped_tensor, set_version, version

DEPTH = 8  # steps from an argument, a global or a closure to what it holds
MOST = 5_000  # objects looked at
NOT_THE_USERS = ("torch", "numpy", "double_backward")  # packages whose functions are not followed
# Names in code that writes into memory without anybody's knowledge.
WRITERS = {
    "data", "numpy", "data_ptr", "ctypes", "untyped_storage", "storage", "set_", "out", "asarray",
    "from_numpy", "from_dlpack", "frombuffer", "memmap", "__array_interface__",
}  # fmt: skip


@dataclass(frozen=True)
class State:
    """The random generators and autocast at one moment."""

    torch_cpu: torch.Tensor
    torch_cuda: list
    numpy: tuple
    python: tuple
    autocast: dict  # device type -> (enabled, dtype)

    @classmethod
    def now(cls):
        used = torch.cuda.is_available() and torch.cuda.is_initialized()
        return cls(
            torch.get_rng_state(),
            torch.cuda.get_rng_state_all() if used else [],
            np.random.get_state(legacy=True),  # type: ignore[arg-type]
            random.getstate(),
            {device: _autocast(device) for device in (["cpu", "cuda"] if used else ["cpu"])},
        )

    def draws_are_as_now(self):
        """Whether nothing has been drawn since."""
        now = State.now()
        before, after = ([s.torch_cpu, *s.torch_cuda] for s in (self, now))
        return (
            len(before) == len(after)  # CUDA may have begun
            and all(map(torch.equal, before, after))
            and self.python == now.python
            and self.numpy[2:] == now.numpy[2:]
            and np.array_equal(self.numpy[1], now.numpy[1])
        )

    def _put_back(self):
        torch.set_rng_state(self.torch_cpu)
        if self.torch_cuda:
            torch.cuda.set_rng_state_all(self.torch_cuda)
        np.random.set_state(self.numpy)
        random.setstate(self.python)

    @contextmanager
    def again(self, draws=True):
        """Inside, as it was then; afterwards the generators are as if nothing had been called.

        Args:
            draws: False if what is called is not known to draw. The generators are then left alone
                where other threads are alive: those may be drawing, and there is one for all.
        """
        now, alone = State.now(), threading.active_count() == 1
        if draws or alone:
            self._put_back()
        try:
            with self.cast_again():
                yield
        finally:
            if draws or alone:
                now._put_back()

    @contextmanager
    def cast_again(self):
        """Inside, autocast is as it was then."""
        with ExitStack() as stack:
            for device, (enabled, dtype) in self.autocast.items():
                if (enabled, dtype) != _autocast(device):
                    stack.enter_context(torch.autocast(device, dtype=dtype, enabled=enabled))
            yield


def _autocast(device):
    return torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)


class Surroundings:
    """What can be reached from `roots`, to be put back after each time that it may be changed.

    Tensors, their memory and their gradients, buffers of modules, NumPy arrays, lists, dicts, sets
    and attributes, generators of random numbers; through closures, bound methods and the globals
    that a function loads.

    Attributes:
        changed: True if anything has had to be put back.
        may_be_written_unseen: True if there is more than was looked at, and code among it that can
            write into memory past the version counters.
    """

    def __init__(self, *roots):
        self._found, cut_off = _reachable(roots)
        self.may_be_written_unseen = cut_off and any(map(_writes_unseen, self._found))
        self.changed, self._undo = False, None

    @contextmanager
    def unchanged(self):
        if self._undo is None:  # once: between two uses everything is as it was
            self._undo = [*_keep_memory(self._found), *map(_keep, self._found)]
        try:
            yield
        finally:
            for put_back in self._undo:
                self.changed |= bool(put_back())


def _reachable(roots):
    """A list of the objects, and whether there are more."""
    found: dict[int, object] = {}
    level = list(roots)
    for _ in range(DEPTH):
        following = []
        for thing in level:
            if id(thing) in found or not _may_change(thing):
                continue
            if len(found) >= MOST:
                return list(found.values()), True
            found[id(thing)] = thing
            following += _held_by(thing)
        level = following
    return list(found.values()), any(id(t) not in found and _may_change(t) for t in level)


_CONTAINERS = list, dict, set, collections.deque
_PLAIN = str, bytes, int, float, complex, bool, type(None), torch.dtype, torch.device


def _may_change(thing):
    if isinstance(thing, (*_PLAIN, types.ModuleType, types.BuiltinFunctionType)):
        return False
    if isinstance(thing, (type, types.FunctionType, types.MethodType)):
        return _package(getattr(thing, "__module__", None) or "") not in NOT_THE_USERS
    return True


def _held_by(thing):
    if isinstance(thing, (torch.Tensor, np.ndarray)):
        return []
    if isinstance(thing, torch.nn.Module):
        return [*thing.modules(), *thing.parameters(), *thing.buffers(), vars(thing)]
    if isinstance(thing, types.FunctionType):
        cells = [c.cell_contents for c in thing.__closure__ or () if _is_filled(c)]
        used = [thing.__globals__.get(name) for name in _globals_loaded(thing.__code__)]
        used += [value for module in used for value in _used_of(module, thing.__code__)]
        wrapped = [thing.__wrapped__] if hasattr(thing, "__wrapped__") else []
        return cells + used + wrapped
    if isinstance(thing, types.MethodType):
        return [thing.__self__, thing.__func__]
    if isinstance(thing, functools.partial):
        return [thing.func, *thing.args, *thing.keywords.values()]
    if isinstance(thing, type):
        methods = staticmethod, classmethod
        bases = [base for base in thing.__bases__ if base is not object]
        return [getattr(v, "__func__", v) if isinstance(v, methods) else v
                for v in list(vars(thing).values())] + bases  # fmt: skip
    if isinstance(thing, dict):
        return list(thing.values())
    if isinstance(thing, (tuple, *_CONTAINERS)):
        return list(thing)
    slots = [n for cls in type(thing).__mro__ for n in vars(cls).get("__slots__", ())]
    return [*getattr(thing, "__dict__", {}).values(), *(getattr(thing, n, None) for n in slots)]


def _used_of(module, code):
    """What code may use of one of the user's own modules."""
    if not isinstance(module, types.ModuleType):
        return []
    if _package(module.__name__) in (*NOT_THE_USERS, *sys.stdlib_module_names):
        return []
    return [vars(module)[name] for name in code.co_names if name in vars(module)]


def _package(name):
    return name.partition(".")[0]


@functools.lru_cache(maxsize=1000)
def _globals_loaded(code):
    """Names of the globals that this code uses, and the functions inside it."""
    names = {i.argval for i in dis.get_instructions(code) if i.opname in _LOADS_GLOBAL}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _globals_loaded(constant)
    return frozenset(names)


_LOADS_GLOBAL = "LOAD_GLOBAL", "LOAD_NAME"


def _writes_unseen(thing):
    code = getattr(thing, "__code__", None) if isinstance(thing, types.FunctionType) else None
    return code is not None and _names_a_writer(code)


@functools.lru_cache(maxsize=1000)
def _names_a_writer(code):
    keywords = [word for c in code.co_consts if isinstance(c, tuple) for word in c]
    inside = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    named = any(word in WRITERS for word in (*code.co_names, *keywords) if isinstance(word, str))
    return named or any(map(_names_a_writer, inside))


def _is_filled(cell):
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _keep(thing):
    """A call that puts `thing` back as it is now, and says whether it was changed."""
    if isinstance(thing, torch.Tensor):
        return _keep_tensor(thing)
    if isinstance(thing, np.ndarray):
        return _keep_array(thing)
    if isinstance(thing, torch.Generator):
        return _put_back(thing.set_state, thing.get_state())
    if isinstance(thing, np.random.RandomState):
        return _put_back(thing.set_state, thing.get_state())
    if isinstance(thing, np.random.Generator):
        numbers = thing.bit_generator
        return _put_back(functools.partial(setattr, numbers, "state"), numbers.state)
    if isinstance(thing, random.Random):
        return _put_back(thing.setstate, thing.getstate())
    if isinstance(thing, type):
        return _keep_class(thing)
    if isinstance(thing, types.FunctionType):
        return _keep_names(thing)
    if isinstance(thing, _CONTAINERS):
        return _keep_container(thing)
    if isinstance(vars(thing) if hasattr(thing, "__dict__") else None, dict):
        return _keep_container(vars(thing))
    return lambda: False


def _put_back(setter, state):
    def put_back():
        setter(state)
        return True  # it is there to be used

    return put_back


def _keep_memory(things):
    """Calls that put the memory of all tensors and arrays back, each block of memory once."""
    blocks: dict[tuple, torch.Tensor] = {}
    for thing in things:
        for block in _memory(thing):
            blocks.setdefault((block.device, block.data_ptr(), block.numel()), block)
    return [_keep_bytes(block) for block in blocks.values() if block.numel()]


def _memory(thing):
    """The bytes of a tensor and of its gradient, as tensors that share them."""
    if not isinstance(thing, torch.Tensor) or thing.device.type == "meta":
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


def _keep_class(cls):
    before = _attributes(cls)

    def put_back():
        now = _attributes(cls)
        gone = set(now) - set(before)
        other = {name: value for name, value in before.items() if now.get(name) is not value}
        for name in gone:
            delattr(cls, name)
        for name, value in other.items():
            setattr(cls, name, value)
        return bool(gone or other)

    return put_back


def _attributes(cls):
    """Its attributes that are no methods: among those a hook comes and goes."""
    methods = staticmethod, classmethod, types.FunctionType
    return {
        name: value
        for name, value in vars(cls).items()
        if not isinstance(value, methods) and not getattr(value, "is_ours", False)
    }


def _keep_names(function):
    """The globals that a function names, and its closure."""
    names = function.__globals__
    before = {name: names[name] for name in _globals_loaded(function.__code__) if name in names}
    cells = [(c, c.cell_contents) for c in function.__closure__ or () if _is_filled(c)]

    def put_back():
        changed = False
        for name, value in before.items():
            if names.get(name) is not value:
                names[name], changed = value, True
        for cell, value in cells:
            if cell.cell_contents is not value:
                cell.cell_contents, changed = value, True
        return changed

    return put_back


def _keep_container(container):
    before = container.copy()

    def put_back():
        if isinstance(container, dict):
            same = list(container) == list(before) and all(
                container[key] is value for key, value in before.items()
            )
        else:
            same = len(container) == len(before) and all(
                a is b for a, b in zip(container, before, strict=True)
            )
        if same:
            return False
        container.clear()
        (container.extend if hasattr(container, "extend") else container.update)(before)
        return True

    return put_back
