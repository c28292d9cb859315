"""Lesson 2: the saved tensor is the output."""

import torch
from torch.autograd import Function


class Exp(Function):
    """Exponential, elementwise, differentiable any number of times.

    Saves its result. After forward, autograd marks that tensor as this Function's output, so it
    comes back in backward with this Function's own node as its grad_fn.

    Args:
        x: real tensor of any shape; dimensionless.

    Returns:
        Tensor of the shape and dtype of x.

    Every derivative of exp is exp (any calculus text).
    """

    @staticmethod
    def forward(ctx, x):
        out = torch.exp(x)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx, grad_out):
        (out,) = ctx.saved_tensors
        return grad_out * out
