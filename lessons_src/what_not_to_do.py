"""Lesson 4: the saved tensors are intermediate results, kept where autograd cannot follow."""

import torch
from torch.autograd import Function


class SinhBad(Function):
    """Hyperbolic sine whose second derivative is missing or wrong. Shown, not for use.

    The two exponentials stay on ctx. Autograd was not recording when forward made them, so the
    second backward takes them for constants.

    Args:
        x: real tensor of any shape; dimensionless.

    Returns:
        Tensor of the shape and dtype of x. Its first derivative is right.

    Raises:
        RuntimeError: from autograd, when it is differentiated twice with nothing non-linear around
            it. In a larger function nothing is raised, and the second derivative is a wrong number.
    """

    @staticmethod
    def forward(ctx, x):
        ctx.expx = torch.exp(x)
        ctx.expnegx = torch.exp(-x)
        return (ctx.expx - ctx.expnegx) / 2

    @staticmethod
    def backward(ctx, grad_out):
        return grad_out * (ctx.expx + ctx.expnegx) / 2
