"""What a call of fn may change is put back, and what it did change is told."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from double_backward._torch import tree_leaves
from double_backward.state import Draws, Surroundings

from .holdings import leaves_behind


@dataclass
class SideEffects:
    """What was met while fn was called."""

    warnings: list[str] = field(default_factory=list)
    edited: list[str] = field(default_factory=list)  # tensors that fn holds, by name


@contextmanager
def undisturbed(fn: Callable) -> Iterator[SideEffects]:
    """Put back what a call of fn may change.

    Gradients, generators, the default dtype, grad mode, anomaly mode, warning filters, the number
    of torch's threads; of what fn holds the tensors, arrays, generators and hooks of modules. Gives
    what was met; it is filled at the end.
    """
    default, draws = torch.get_default_dtype(), Draws.now()
    anomaly = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
    threads = torch.get_num_threads()  # Numba's, which share a library with torch, set them too
    held, found = Surroundings(fn), SideEffects()
    mode, grad = torch.inference_mode(False), torch.enable_grad()
    caught = warnings.catch_warnings(record=True, action="always")
    with mode, grad, caught as met, held.unchanged(objects=False), _gradients_unchanged():
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


@contextmanager
def _gradients_unchanged() -> Iterator[None]:
    """Of each leaf behind what .backward() is called for, by fn or by us, wherever it lives."""
    plain, kept = torch.autograd.backward, dict[Tensor, tuple]()

    def backward(tensors, *args, **kwargs):
        for leaf in leaves_behind(t for t in tree_leaves(tensors) if isinstance(t, Tensor)):
            grad = leaf.grad
            kept.setdefault(leaf, (grad, None if grad is None else grad.clone()))
        return plain(tensors, *args, **kwargs)

    torch.autograd.backward = backward
    try:
        yield
    finally:
        torch.autograd.backward = plain
        for leaf, (grad, values) in kept.items():
            leaf.grad = grad
            if grad is not None:
                grad.data.copy_(values)
