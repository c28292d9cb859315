"""Lesson 1: the saved tensor is the input itself."""

from torch.autograd import Function


class Square(Function):
    """Square, elementwise, differentiable any number of times.

    Saves its input, so backward is a function of x that autograd can track.

    Args:
        x: real tensor of any shape; dimensionless.

    Returns:
        Tensor of the shape and dtype of x.

    First derivative 2 x, second 2 (any calculus text).
    """

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**2

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return grad_out * 2 * x
