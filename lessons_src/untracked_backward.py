"""Lesson 5: a backward that autograd cannot track is itself a Function with its own backward.

The mathematics of the cube stands in four functions of plain arithmetic. `Cube` calls them on
tensors, `CubeNumPy` on NumPy arrays, where autograd sees nothing of it. `ExpIntegral` is a SciPy
function whose derivative torch can write, so it needs no second Function.
"""

import torch
from scipy.special import exp1
from torch.autograd import Function


def cube_forward(x):
    """x**3, for an array or tensor of any shape."""
    return x**3


def cube_backward(grad_out, x):
    """grad_x, the VJP of the cube: grad_out * 3 x**2. Arrays or tensors of one shape."""
    return grad_out * 3 * x**2


def cube_backward_backward_grad_out(grad_grad_x, x):
    """VJP of `cube_backward` with respect to grad_out: grad_grad_x * 3 x**2."""
    return grad_grad_x * 3 * x**2


def cube_backward_backward(grad_grad_x, grad_out, x):
    """VJP of `cube_backward` with respect to x: grad_grad_x * grad_out * 6 x."""
    return grad_grad_x * grad_out * 6 * x


class Cube(Function):
    """Cube, elementwise, whose backward is the Function `CubeBackward`.

    Args:
        x: real tensor of any shape; dimensionless.

    Returns:
        Tensor of the shape and dtype of x.

    First derivative 3 x**2, second 6 x (any calculus text).
    """

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return cube_forward(x)

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return CubeBackward.apply(grad_out, x)


class CubeBackward(Function):
    """The first backward of `Cube`, with a backward of its own.

    Args:
        grad_out: real tensor, gradient of the outcome with respect to the cube.
        x: real tensor of the same shape.

    Returns:
        grad_x, a tensor of that shape. It depends on both arguments, so backward returns a gradient
        for both.
    """

    @staticmethod
    def forward(ctx, grad_out, x):
        ctx.save_for_backward(grad_out, x)
        return cube_backward(grad_out, x)

    @staticmethod
    def backward(ctx, grad_grad_x):
        grad_out, x = ctx.saved_tensors
        return (
            cube_backward_backward_grad_out(grad_grad_x, x),
            cube_backward_backward(grad_grad_x, grad_out, x),
        )


def in_numpy(function, *tensors):
    """Call `function` on the arrays behind CPU tensors; the result is a tensor without graph."""
    arrays = [tensor.detach().numpy() for tensor in tensors]
    return torch.as_tensor(function(*arrays))


class CubeNumPy(Function):
    """`Cube` computed by NumPy on the CPU: right to second order, and no further.

    Args and returns as for `Cube`. The third derivative raises a RuntimeError from autograd, or is
    a wrong number inside a larger function: the backward of `CubeNumPyBackward` is not tracked.
    """

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return in_numpy(cube_forward, x)

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return CubeNumPyBackward.apply(grad_out, x)


class CubeNumPyBackward(Function):
    """`CubeBackward` computed by NumPy; arguments and result as there."""

    @staticmethod
    def forward(ctx, grad_out, x):
        ctx.save_for_backward(grad_out, x)
        return in_numpy(cube_backward, grad_out, x)

    @staticmethod
    def backward(ctx, grad_grad_x):
        grad_out, x = ctx.saved_tensors
        return (
            in_numpy(cube_backward_backward_grad_out, grad_grad_x, x),
            in_numpy(cube_backward_backward, grad_grad_x, grad_out, x),
        )


class ExpIntegral(Function):
    """Exponential integral E1(x), elementwise, by SciPy on the CPU; differentiable at every order.

    Only forward leaves torch. Backward is plain torch on the saved input, so autograd tracks it.

    Args:
        x: real float32 or float64 tensor of any shape, every element > 0; dimensionless.

    Returns:
        Tensor of the shape and dtype of x.

    First derivative -e^-x / x (NIST Digital Library of Mathematical Functions, 6.2.1).
    """

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return in_numpy(exp1, x)

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return -grad_out * torch.exp(-x) / x
