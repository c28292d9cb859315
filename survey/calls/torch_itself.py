"""PyTorch's own Functions, and a parametrisation that computes under no_grad."""

import torch

from ..listed import listed, normal


@listed("torch", "torch.nn.utils.parametrizations.spectral_norm")
def spectral_norm():
    """Not a Function: its singular vectors are found under no_grad, with the same effect.

    A new parametrisation for each weight, with enough steps for them to be exact, as they are after
    some steps of training.
    """
    from torch.nn.utils.parametrizations import _SpectralNorm

    def fn(w):
        torch.manual_seed(0)
        return _SpectralNorm(w.detach(), n_power_iterations=30)(w)

    def reference(w):
        return w / torch.linalg.matrix_norm(w, 2)

    return fn, [normal(3, 4)], reference


def layer():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh()).double()


@listed("torch", "torch.utils.checkpoint.CheckpointFunction")
def checkpoint():
    from torch.utils.checkpoint import checkpoint

    f = layer()
    return lambda x: checkpoint(f, x, use_reentrant=True), [normal(2, 3)], f
