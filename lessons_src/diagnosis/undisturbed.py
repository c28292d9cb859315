"""What a call of fn may change is put back."""

import gc
import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


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


@contextmanager
def undisturbed() -> Iterator[list[warnings.WarningMessage]]:
    """Put back gradients, generators, the default dtype, grad mode and warning filters.

    Gives the list of the warnings that are met meanwhile.
    """
    default, python, numpy = torch.get_default_dtype(), random.getstate(), np.random.get_state()
    kept = [_keep(leaf) for leaf in _leaves()]
    fork, mode, grad = torch.random.fork_rng(), torch.inference_mode(False), torch.enable_grad()
    with fork, mode, grad, warnings.catch_warnings(record=True, action="always") as met:
        try:
            yield met
        finally:
            torch.set_default_dtype(default)
            random.setstate(python)
            np.random.set_state(numpy)
            for each in kept:
                each.restore()


def _leaves():
    """Every leaf that could collect a gradient, wherever in Python it lives."""
    kinds = torch.Tensor, torch.nn.Parameter
    return [t for t in gc.get_objects() if type(t) in kinds and t.is_leaf and t.requires_grad]


def _keep(leaf):
    return Kept(leaf, leaf.grad, None if leaf.grad is None else leaf.grad.clone())
