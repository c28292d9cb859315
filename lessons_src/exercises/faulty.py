"""Lesson 4's exercises as the reader gets them: four Functions, each with one bug.

Each is modelled on a mistake in published code and written anew. The same classes stand in the
notebook, where the reader mends them.
"""

import torch
from torch.autograd import Function


class Standardise(Function):
    """(x - mean) / sqrt(var + 1e-5) over all elements; x is real, of any shape."""

    @staticmethod
    def forward(ctx, x):
        ctx.sqrt_var = torch.sqrt(x.var(correction=0) + 1e-5)
        out = (x - x.mean()) / ctx.sqrt_var
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx, grad_out):
        (out,) = ctx.saved_tensors
        along_out = out * (grad_out * out).mean()
        return (grad_out - grad_out.mean() - along_out) / ctx.sqrt_var


class Artanh(Function):
    """Inverse hyperbolic tangent, elementwise, finite at x = 1 and -1."""

    @staticmethod
    def forward(ctx, x):
        x = x.clamp(-1 + 1e-6, 1 - 1e-6)
        ctx.save_for_backward(x)
        return (torch.log(1 + x) - torch.log(1 - x)) / 2

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return grad_out / (1 - x**2)


class Swish(Function):
    """x * sigmoid(x), elementwise."""

    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad_out * s * (1 + x * (1 - s))


class LearnedPower(Function):
    """x ** alpha, elementwise, for x > 0 and one alpha (shape ()) that is learned too."""

    @staticmethod
    def forward(ctx, x, alpha):
        ctx.alpha = alpha.expand_as(x)
        ctx.save_for_backward(x)
        return x**ctx.alpha

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        grad_x = grad_out * ctx.alpha * x ** (ctx.alpha - 1)
        grad_alpha = grad_out * x**ctx.alpha * torch.log(x)
        return grad_x, grad_alpha.sum()
