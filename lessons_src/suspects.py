"""Pairs of Functions for "Which of the two?" (lessons 1 to 3, and 6): one is right, one is not.

Of every one the value and the first derivative are right where the lesson tries it. Read this after
you have found out: in a lesson only the names are imported, so that a formula, a check or a graph
has to tell.
"""

import torch
from torch.autograd import Function


class CubeA(Function):
    """x**3, elementwise. Right: every factor of backward is tracked."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return grad_out * 3 * x**2


class CubeB(CubeA):
    """Wrong where grad_out depends on x: backward detaches it."""

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return grad_out.detach() * 3 * x**2


class SigmoidA(Function):
    """1 / (1 + exp(-x)), elementwise. Wrong: 1 - out is made in forward, and kept on ctx."""

    @staticmethod
    def forward(ctx, x):
        out = torch.sigmoid(x)
        ctx.save_for_backward(out)
        ctx.rest = 1 - out
        return out

    @staticmethod
    def backward(ctx, grad_out):
        (out,) = ctx.saved_tensors
        return grad_out * out * ctx.rest


class SigmoidB(Function):
    """Right: 1 - out is made in backward, where autograd records."""

    @staticmethod
    def forward(ctx, x):
        out = torch.sigmoid(x)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx, grad_out):
        (out,) = ctx.saved_tensors
        return grad_out * out * (1 - out)


class SinhA(Function):
    """sinh and cosh, elementwise. Right, though the kept derivative is a constant on ctx.

    It is used only where autograd does not record; where it does, backward computes it again.
    """

    @staticmethod
    def forward(ctx, x):
        out, cosh = torch.sinh(x), torch.cosh(x)
        ctx.save_for_backward(x)
        ctx.slope = cosh.clone()  # the output itself on ctx would be a circle
        return out, cosh

    @staticmethod
    def backward(ctx, grad_out, grad_cosh):
        (x,) = ctx.saved_tensors
        slope = torch.cosh(x) if torch.is_grad_enabled() else ctx.slope
        return grad_out * slope + grad_cosh * torch.sinh(x)


class SinhB(Function):
    """Wrong: the gradient of the extra output lacks the derivative of cosh, which is sinh."""

    @staticmethod
    def forward(ctx, x):
        out, cosh = torch.sinh(x), torch.cosh(x)
        ctx.save_for_backward(cosh)
        return out, cosh

    @staticmethod
    def backward(ctx, grad_out, grad_cosh):
        (cosh,) = ctx.saved_tensors
        return grad_out * cosh + grad_cosh


class QuadA(Function):
    """x . A x for A of shape (n, n). Wrong unless A is symmetric: backward takes A^T x for A x."""

    @staticmethod
    def forward(ctx, A, x):
        ctx.save_for_backward(A, x)
        return x @ A @ x

    @staticmethod
    def backward(ctx, grad_out):
        A, x = ctx.saved_tensors
        return grad_out * torch.outer(x, x), grad_out * 2 * (A @ x)


class QuadB(QuadA):
    """Right: x stands in two places, and each has a product of its own."""

    @staticmethod
    def backward(ctx, grad_out):
        A, x = ctx.saved_tensors
        return grad_out * torch.outer(x, x), grad_out * (A @ x + A.T @ x)


cube_a, cube_b = CubeA.apply, CubeB.apply
sigmoid_a, sigmoid_b = SigmoidA.apply, SigmoidB.apply
sinh_a, sinh_b = SinhA.apply, SinhB.apply
quad_a, quad_b = QuadA.apply, QuadB.apply
