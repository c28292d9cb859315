"""What a call of fn may change is put back, and what it did change is told."""

import functools
import gc
import random
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from .target import readable

DEEP = 4  # steps from fn to what it holds
MOST = 1000  # elements of a container that are looked at


@dataclass
class Met:
    """What was met while fn was called."""

    warnings: list[str] = field(default_factory=list)
    edited: list[str] = field(default_factory=list)  # what fn holds and has changed, by name


@dataclass(frozen=True)
class Kept:
    """A leaf tensor, and the gradient it had."""

    leaf: Tensor
    grad: Tensor | None
    values: Tensor | None  # a copy of those of `grad`

    def restore(self):
        self.leaf.grad = self.grad
        if self.grad is not None:
            self.grad.data.copy_(self.values)


@dataclass(frozen=True)
class Held:
    """A tensor that fn holds, and the values it had."""

    name: str
    tensor: Tensor
    values: Tensor

    def restore(self) -> bool:
        """Whether it had changed."""
        if torch.equal(self.tensor.detach().nan_to_num(7.0), self.values.nan_to_num(7.0)):
            return False
        self.tensor.data.copy_(self.values)
        return True


@contextmanager
def undisturbed(fn: Callable) -> Iterator[Met]:
    """Put back what a call of fn may change.

    Gradients, generators, the default dtype, grad mode, anomaly mode, warning filters; and of what
    fn holds (in its closure, among its globals and attributes) the tensors and the hooks of
    modules. Gives what was met; `Met.edited` is filled at the end.
    """
    default, python, numpy = torch.get_default_dtype(), random.getstate(), np.random.get_state()
    anomaly = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
    kept = [_keep(leaf) for leaf in _leaves()]
    held, hooks = _holdings(fn)
    found = Met()
    fork, mode, grad = torch.random.fork_rng(), torch.inference_mode(False), torch.enable_grad()
    with fork, mode, grad, warnings.catch_warnings(record=True, action="always") as met:
        try:
            yield found
        finally:
            torch.set_default_dtype(default)
            torch.set_anomaly_enabled(*anomaly)
            random.setstate(python)
            np.random.set_state(numpy)
            for each in kept:
                each.restore()
            found.warnings.extend(str(warning.message) for warning in met)
            found.edited.extend(each.name for each in held if each.restore())
            for there, before in hooks:
                there.clear()
                there.update(before)


def _leaves():
    """Every leaf that could collect a gradient, wherever in Python it lives."""
    kinds = {torch.Tensor, torch.nn.Parameter}
    return [t for t in gc.get_objects() if type(t) in kinds and t.is_leaf and t.requires_grad]


def _keep(leaf):
    return Kept(leaf, leaf.grad, None if leaf.grad is None else leaf.grad.clone())


def _holdings(fn):
    """The tensors that fn holds, and the dicts of hooks of its modules with what is in them.

    Parameters are left out: they are large, and a call that edits them is a training step.
    """
    held, hooks, seen = [], [], set()
    for name, thing in _reachable(fn, "", DEEP, seen):
        if isinstance(thing, torch.nn.Module):
            tables = [
                t for a, t in vars(thing).items() if a.endswith("hooks") and type(t) is not bool
            ]
            hooks += [(table, dict(table)) for table in tables if hasattr(table, "update")]
        elif type(thing) is Tensor and thing.layout == torch.strided and readable(thing):
            held.append(Held(name, thing, thing.detach().clone()))
    return held, hooks


def _reachable(thing, name, deep, seen):
    """(name, tensor or module) for each that `thing` holds."""
    if id(thing) in seen or deep < 0:
        return
    seen.add(id(thing))
    if isinstance(thing, Tensor):
        yield name, thing
        return
    if isinstance(thing, torch.nn.Module):
        for below, module in thing.named_modules(prefix=name):
            yield below, module
        for below, tensor in [*thing.named_parameters(name), *thing.named_buffers(name)]:
            if id(tensor) not in seen:
                seen.add(id(tensor))
                yield below, tensor
        return
    for below, part in _parts(thing):
        yield from _reachable(
            part, f"{name}.{below}" if name and below else name or below, deep - 1, seen
        )


def _parts(thing):
    """(name, part) of functions, methods, classes of Functions, containers and plain objects."""
    if isinstance(thing, functools.partial):
        return [("", thing.func), *(("", a) for a in thing.args), *thing.keywords.items()]
    if isinstance(thing, types.MethodType):
        return [("", thing.__self__), ("", thing.__func__)]
    if isinstance(thing, types.FunctionType):
        return _parts_of_function(thing)
    if isinstance(thing, (staticmethod, classmethod)):
        return [("", thing.__func__)]
    if isinstance(thing, dict):
        return [(str(key), part) for key, part in list(thing.items())[:MOST]]
    if isinstance(thing, (list, tuple)):
        return [(str(i), part) for i, part in enumerate(thing[:MOST])]
    if isinstance(thing, type):
        own = issubclass(thing, torch.autograd.Function)
        return [(name, part) for name, part in vars(thing).items() if own and name != "__doc__"]
    if isinstance(thing, types.ModuleType) or callable(thing) and not hasattr(thing, "__dict__"):
        return []
    return list(getattr(thing, "__dict__", {}).items())[:MOST]


def _parts_of_function(function):
    parts = list(zip(function.__code__.co_freevars, function.__closure__ or (), strict=False))
    found = []
    for name, cell in parts:
        try:
            found.append((name, cell.cell_contents))
        except ValueError:  # not filled yet
            continue
    names = [name for name in function.__code__.co_names if name in function.__globals__]
    found += [(name, function.__globals__[name]) for name in names]
    return found + [("", part) for part in function.__defaults__ or ()]
