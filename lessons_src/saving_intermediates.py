"""Lesson 3: the saved tensors are intermediate results, returned as extra outputs."""

import torch
from torch.autograd import Function


class Sinh(Function):
    """Hyperbolic sine, elementwise, differentiable any number of times. Call it through `sinh`.

    The two exponentials that forward makes are saved *and returned*: only as outputs do they come
    back in backward with a graph. Their own gradients arrive in the second backward, and are added.

    Args:
        x: real tensor of any shape; dimensionless.

    Returns:
        sinh(x), exp(x) and exp(-x): three tensors of the shape and dtype of x.

    sinh x = (e^x - e^-x) / 2, its derivative (e^x + e^-x) / 2 = cosh x (any calculus text).
    """

    @staticmethod
    def forward(ctx, x):
        expx = torch.exp(x)
        expnegx = torch.exp(-x)
        ctx.save_for_backward(expx, expnegx)
        return (expx - expnegx) / 2, expx, expnegx

    @staticmethod
    def backward(ctx, grad_out, grad_expx, grad_expnegx):
        expx, expnegx = ctx.saved_tensors
        grad_x = grad_out * (expx + expnegx) / 2
        grad_x = grad_x + grad_expx * expx
        grad_x = grad_x - grad_expnegx * expnegx
        return grad_x


def sinh(x):
    """Hyperbolic sine of a real tensor of any shape: `Sinh` without its extra outputs."""
    out, _expx, _expnegx = Sinh.apply(x)
    return out
