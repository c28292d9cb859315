"""What a call of fn may change is put back, and what it did change is told."""

import gc
import random
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from double_backward._torch import versions_kept
from double_backward.differences import same

from .holdings import reachable
from .target import readable


@dataclass
class SideEffects:
    """What was met while fn was called."""

    warnings: list[str] = field(default_factory=list)
    edited: list[str] = field(default_factory=list)  # what fn holds and has changed, by name


@dataclass(frozen=True)
class KeptGradient:
    """A leaf tensor, and the gradient it had."""

    leaf: Tensor
    grad: Tensor | None
    values: Tensor | None  # a copy of those of `grad`

    def restore(self):
        self.leaf.grad = self.grad
        if self.grad is not None and self.values is not None:
            self.grad.data.copy_(self.values)


@dataclass(frozen=True)
class Held:
    """A tensor that fn holds, and the values it had."""

    name: str
    tensor: Tensor
    values: Tensor

    def restore(self) -> bool:
        """Whether it had changed."""
        if same(self.tensor, self.values):
            return False
        self.tensor.data.copy_(self.values)
        return True


@contextmanager
def undisturbed(fn: Callable) -> Iterator[SideEffects]:
    """Put back what a call of fn may change.

    Gradients, generators, the default dtype, grad mode, anomaly mode, warning filters, the number
    of torch's threads; and of what fn holds (in its closure, among its globals and attributes) the
    tensors and the hooks of modules. Gives what was met; `SideEffects.edited` is filled at the end.
    """
    default, python, numpy = torch.get_default_dtype(), random.getstate(), np.random.get_state()
    anomaly = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
    threads = torch.get_num_threads()  # Numba's, which share a library with torch, set them too
    held, leaves, hooks = _holdings(fn)
    kept = [_keep(leaf) for leaf in leaves]
    found = SideEffects()
    fork, mode, grad = torch.random.fork_rng(), torch.inference_mode(False), torch.enable_grad()
    caught = warnings.catch_warnings(record=True, action="always")
    counted = tuple(each.tensor for each in held if not each.tensor.is_inference())
    versions = versions_kept(counted)  # the values are restored
    with fork, mode, grad, caught as met, _keeping_before_backward(kept), versions:
        try:
            yield found
        finally:
            torch.set_default_dtype(default)
            torch.set_anomaly_enabled(*anomaly)
            if torch.get_num_threads() != threads:
                torch.set_num_threads(threads)
            random.setstate(python)
            np.random.set_state(numpy)
            for each in reversed(kept):  # so that what was kept first comes last
                each.restore()
            found.warnings.extend(str(warning.message) for warning in met)
            found.edited.extend(each.name for each in held if each.restore())
            for there, before in hooks:
                there.clear()
                there.update(before)


@contextmanager
def _keeping_before_backward(kept: list[KeptGradient]) -> Iterator[None]:
    """Add every leaf there is to `kept` when .backward() is first called, by fn or by diagnose.

    `torch.autograd.grad` writes into no .grad, and for most of fn nothing else is called. To look
    through all objects of Python takes longer than to diagnose a small Function.
    """
    plain, looked = torch.autograd.backward, False

    def backward(*args, **kwargs):
        nonlocal looked
        if not looked:
            looked = True
            kept.extend(map(_keep, _leaves()))
        return plain(*args, **kwargs)

    torch.autograd.backward = backward
    try:
        yield
    finally:
        torch.autograd.backward = plain


def _leaves():
    """Every leaf that could collect a gradient, wherever in Python it lives."""
    kinds = {torch.Tensor, torch.nn.Parameter}
    return [t for t in gc.get_objects() if type(t) in kinds and _collects(t)]


def _collects(tensor):
    """Whether it is a leaf that requires grad. On torch 2.9 the garbage collector knows objects
    whose tensor is gone; to ask these raises."""
    try:
        return tensor.is_leaf and tensor.requires_grad
    except RuntimeError:
        return False


def _keep(leaf):
    return KeptGradient(leaf, leaf.grad, None if leaf.grad is None else leaf.grad.clone())


def _holdings(fn):
    """The tensors that fn holds, those of them that require grad and are leaves, and the dicts of
    hooks of its modules with what is in them.

    Parameters count as leaves only: they are large, and a call that edits them is a training step.
    """
    held, leaves, hooks = [], [], []
    for name, thing in reachable(fn):
        if isinstance(thing, torch.nn.Module):
            tables = [
                t for a, t in vars(thing).items() if a.endswith("hooks") and type(t) is not bool
            ]
            hooks += [(table, dict(table)) for table in tables if hasattr(table, "update")]
            continue
        if thing.is_leaf and thing.requires_grad:
            leaves.append(thing)
        if type(thing) is Tensor and thing.layout == torch.strided and readable(thing):
            held.append(Held(name, thing, thing.detach().clone()))
    return held, leaves, hooks
