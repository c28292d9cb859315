"""What a Function may read or change besides its arguments, taken and put back.

When a Function is called again to see what it does, nobody else may notice: not the random
generators, not running statistics, not the gradients that a backward of its own collects.
"""

import collections
import functools
import random
import types
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np
import torch

DEPTH = 4  # steps from an argument, a global or a closure to what it holds
MOST = 2_000  # objects looked at


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
            np.random.get_state(),
            random.getstate(),
            {
                device: (torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))
                for device in (["cpu", "cuda"] if used else ["cpu"])
            },
        )

    def _put_back(self):
        torch.set_rng_state(self.torch_cpu)
        if self.torch_cuda:
            torch.cuda.set_rng_state_all(self.torch_cuda)
        np.random.set_state(self.numpy)
        random.setstate(self.python)

    @contextmanager
    def again(self):
        """Inside, as it was then; afterwards the generators are as if nothing had been called."""
        now = State.now()
        self._put_back()
        try:
            with ExitStack() as stack:
                for device, (enabled, dtype) in self.autocast.items():
                    stack.enter_context(torch.autocast(device, dtype=dtype, enabled=enabled))
                yield
        finally:
            now._put_back()


class Surroundings:
    """What can be reached from `roots`, to be put back after each time that it may be changed.

    Tensors and their gradients, buffers of modules, lists, dicts, sets and attributes, generators
    of random numbers; through closures, bound methods and the globals that a function names.
    """

    def __init__(self, *roots):
        self._found = _reachable(roots)

    @contextmanager
    def unchanged(self):
        undo = [_keep(thing) for thing in self._found]
        try:
            yield
        finally:
            for put_back in undo:
                put_back()


def _reachable(roots):
    found, level = {}, list(roots)
    for _ in range(DEPTH):
        following = []
        for thing in level:
            if id(thing) in found or not _may_change(thing) or len(found) > MOST:
                continue
            found[id(thing)] = thing
            following += _held_by(thing)
        level = following
    return list(found.values())


_CONTAINERS = list, dict, set, collections.deque
_PLAIN = str, bytes, int, float, complex, bool, type(None), torch.dtype, torch.device, np.ndarray


def _may_change(thing):
    return not isinstance(thing, (*_PLAIN, types.ModuleType, types.BuiltinFunctionType))


def _held_by(thing):
    if isinstance(thing, torch.Tensor):
        return []
    if getattr(thing, "is_ours", False):  # a hook: what it stands in for
        return [thing.__wrapped__] if hasattr(thing, "__wrapped__") else []
    if isinstance(thing, torch.nn.Module):
        return [*thing.modules(), *thing.parameters(), *thing.buffers(), vars(thing)]
    if isinstance(thing, types.FunctionType):
        cells = [c.cell_contents for c in thing.__closure__ or () if _is_filled(c)]
        used = [thing.__globals__.get(name) for name in thing.__code__.co_names]
        wrapped = [thing.__wrapped__] if hasattr(thing, "__wrapped__") else []
        return cells + [t for t in used if not isinstance(t, type)] + wrapped
    if isinstance(thing, types.MethodType):
        return [thing.__self__, thing.__func__]
    if isinstance(thing, functools.partial):
        return [thing.func, *thing.args, *thing.keywords.values()]
    if isinstance(thing, type):
        return [v.__func__ if isinstance(v, staticmethod) else v for v in vars(thing).values()]
    if isinstance(thing, dict):
        return list(thing.values())
    if isinstance(thing, (tuple, *_CONTAINERS)):
        return list(thing)
    return list(getattr(thing, "__dict__", {}).values())


def _is_filled(cell):
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _keep(thing):
    """A call that puts `thing` back as it is now."""
    if getattr(thing, "is_ours", False):
        return lambda: None
    if isinstance(thing, torch.Tensor):
        return _keep_tensor(thing)
    if isinstance(thing, torch.Generator):
        state = thing.get_state()
        return lambda: thing.set_state(state)
    if isinstance(thing, np.random.RandomState):
        state = thing.get_state()
        return lambda: thing.set_state(state)
    if isinstance(thing, np.random.Generator):
        numbers, state = thing.bit_generator, thing.bit_generator.state
        return lambda: setattr(numbers, "state", state)
    if isinstance(thing, random.Random):
        state = thing.getstate()
        return lambda: thing.setstate(state)
    if isinstance(thing, type):
        return _keep_class(thing)
    if isinstance(thing, types.FunctionType):
        return _keep_names(thing)
    if isinstance(thing, _CONTAINERS):
        return _keep_container(thing)
    if isinstance(vars(thing) if hasattr(thing, "__dict__") else None, dict):
        return _keep_container(vars(thing))
    return lambda: None


def _keep_tensor(tensor):
    # A parameter is not written into by a forward or a backward, and may be large.
    values, version = None if tensor.requires_grad else tensor.clone(), tensor._version
    grad = tensor.grad if tensor.is_leaf else None
    grad_values = None if grad is None else grad.detach().clone()

    def put_back():
        if values is not None and tensor._version != version:
            tensor.data.copy_(values)
        if tensor.is_leaf and (tensor.grad is not grad or grad is not None):
            tensor.grad = grad
            if grad is not None:
                grad.data.copy_(grad_values)

    return put_back


def _keep_class(cls):
    methods = staticmethod, classmethod, types.FunctionType  # hooks come and go on those
    before = {name: value for name, value in vars(cls).items() if not isinstance(value, methods)}

    def put_back():
        now = {name: value for name, value in vars(cls).items() if not isinstance(value, methods)}
        for name in set(now) - set(before):
            delattr(cls, name)
        for name, value in before.items():
            if now.get(name) is not value:
                setattr(cls, name, value)

    return put_back


def _keep_names(function):
    """The globals that a function names, and its closure."""
    names = function.__globals__
    before = {name: names[name] for name in function.__code__.co_names if name in names}
    cells = [(c, c.cell_contents) for c in function.__closure__ or () if _is_filled(c)]

    def put_back():
        for name, value in before.items():
            if names.get(name) is not value:
                names[name] = value
        for cell, value in cells:
            if cell.cell_contents is not value:
                cell.cell_contents = value

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
            return
        container.clear()
        (container.extend if hasattr(container, "extend") else container.update)(before)

    return put_back
