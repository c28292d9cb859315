"""Lesson 5: a backward that autograd cannot track is itself a Function with its own backward.

The mathematics of the cube stands in four functions of plain arithmetic. `Cube` calls them on
tensors, `CubeNumPy` on NumPy arrays, where autograd sees nothing of it. `LogSumExp` does the same
for one result of many elements. `Solve` needs no second Function, since its backward applies
itself; nor does `ExpIntegral`, a SciPy function whose derivative torch can write.
"""

import torch
from scipy.sparse import coo_array
from scipy.sparse.linalg import spsolve
from scipy.special import exp1, logsumexp, softmax
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


# What comes back to each input of `CubeBackward`, as factors: h · 3x², and h · 6x · g.
CUBE_PRODUCTS = {"grad_out": ["h", 3, "x", "x"], "x": ["h", 6, "x", "g"]}


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


def logsumexp_backward(grad_out, x):
    """VJP of log(sum(exp(x))) over all elements of an array: grad_out, a number, times softmax."""
    return grad_out * softmax(x)


def logsumexp_backward_backward_grad_out(grad_grad_x, x):
    """VJP of `logsumexp_backward` with respect to grad_out: a number."""
    return (grad_grad_x * softmax(x)).sum()


def logsumexp_backward_backward(grad_grad_x, grad_out, x):
    """VJP of `logsumexp_backward` with respect to x, in the shape of x: grad_out Hessian h."""
    s = softmax(x)
    return grad_out * s * (grad_grad_x - (grad_grad_x * s).sum())


class LogSumExp(Function):
    """log(sum(exp(x))) over all elements, by SciPy on the CPU: right to second order.

    Args:
        x: real tensor of any shape with at least one element; dimensionless.

    Returns:
        Tensor of shape () and the dtype of x.

    The gradient is softmax(x), the Hessian diag(s) - s s^T with s = softmax(x) (Boyd and
    Vandenberghe, Convex Optimization, 3.1.5).
    """

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return in_numpy(logsumexp, x)

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return LogSumExpBackward.apply(grad_out, x)


class LogSumExpBackward(Function):
    """The first backward of `LogSumExp`: grad_out of shape () times softmax(x)."""

    @staticmethod
    def forward(ctx, grad_out, x):
        ctx.save_for_backward(grad_out, x)
        return in_numpy(logsumexp_backward, grad_out, x)

    @staticmethod
    def backward(ctx, grad_grad_x):
        grad_out, x = ctx.saved_tensors
        return (
            in_numpy(logsumexp_backward_backward_grad_out, grad_grad_x, x),
            in_numpy(logsumexp_backward_backward, grad_grad_x, grad_out, x),
        )


def sparse_solve(values, b, row, col):
    """Solution u of A u = b, as a tensor, where A[row[k], col[k]] = values[k] and else 0."""
    places = row.numpy(), col.numpy()
    A = coo_array((values.detach().numpy(), places), shape=(len(b), len(b)))
    return torch.from_numpy(spsolve(A.tocsc(), b.detach().numpy()))


class Solve(Function):
    """Solution u of A u = b for a sparse A, by SciPy on the CPU; differentiable at every order.

    Args:
        values: float64 tensor (k,), the entries of A; entries at one place are added up.
        b: float64 tensor (n,).
        row, col: int64 tensors (k,), the places of the entries in A, which must not be singular.

    Returns:
        u, tensor (n,).

    With w, the solution of A^T w = grad_out, the VJP for b is w, and for the entry at (i, j) it is
    -w[i] u[j]: differentiate A u = b. Both use nothing but `Solve` and torch.
    """

    @staticmethod
    def forward(ctx, values, b, row, col):
        u = sparse_solve(values, b, row, col)
        ctx.save_for_backward(values, u, row, col)
        return u

    @staticmethod
    def backward(ctx, grad_out):
        values, u, row, col = ctx.saved_tensors
        w = Solve.apply(values, grad_out, col, row)
        return -w[row] * u[col], w, None, None


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
