"""Lesson 6: a Function of one's own: a stable one, two with a gradient of their own, one on paper.

`Softplus` is finite to every order wherever it is called. `Round` and `Spike` return a gradient
that is not the derivative of forward, on purpose. `QuadForm` has its backward from paper, and
returns the product that it keeps. `Kepler` differentiates an equation, not the rounds that solve
it.
"""

import torch
from torch.autograd import Function


class Softplus(Function):
    """log(1 + exp(x)), elementwise, without overflow; differentiable any number of times.

    Args:
        x: real tensor of any shape; dimensionless.

    Returns:
        Tensor of the shape and dtype of x.

    max(x, 0) + log(1 + exp(-abs(x))) is the same and does not overflow. Its two kinks at 0 cancel,
    but autograd would take each by itself; in a forward nobody differentiates it. The derivative
    is the logistic sigmoid (any calculus text).
    """

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.relu(x) + torch.log1p(torch.exp(-x.abs()))

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return grad_out * torch.sigmoid(x)


class Round(Function):
    """Nearest integer, elementwise, with the gradient of the identity: straight-through.

    Args:
        x: real tensor of any shape.

    Returns:
        Tensor of the shape and dtype of x. Its gradient is grad_out, by intent; the second
        derivative is that of this gradient.

    Bengio, Léonard and Courville, Estimating or Propagating Gradients Through Stochastic Neurons
    for Conditional Computation, 2013.
    """

    @staticmethod
    def forward(ctx, x):
        return torch.round(x)

    @staticmethod
    def backward(ctx, grad_out):
        return grad_out


class Spike(Function):
    """1 where x > 0, else 0, elementwise, with the slope of a sigmoid: a surrogate gradient.

    Args:
        x: real tensor of any shape, how far a neuron is above its threshold; dimensionless.

    Returns:
        Tensor of the shape and dtype of x. Its gradient is grad_out 4 s (1 - s), s = sigmoid(4 x),
        by intent; the second derivative is that of this gradient.

    Neftci, Mostafa and Zenke, Surrogate Gradient Learning in Spiking Neural Networks, 2019.
    """

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (x > 0).to(x.dtype)

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(4 * x)
        return grad_out * 4 * s * (1 - s)


def by_rounds(x, e):
    """The fixed point u = x + e sin u after sixty rounds; tensors of one shape, |e| at most 0.5."""
    u = x
    for _ in range(60):
        u = x + e * torch.sin(u)
    return u


class Kepler(Function):
    """Solution u of Kepler's equation u = x + e sin u, elementwise, right at every order.

    Args:
        x: real tensor of any shape, the mean anomaly in radians.
        e: real tensor of the same shape and dtype, |e| at most 0.5, the eccentricity.

    Returns:
        u, a tensor of that shape and dtype, the eccentric anomaly in radians.

    du (1 - e cos u) = dx + de sin u: the change of the equation's both sides. It is as exact as u.
    """

    @staticmethod
    def forward(ctx, x, e):
        u = by_rounds(x, e)
        ctx.save_for_backward(u, e)
        return u

    @staticmethod
    def backward(ctx, g):
        u, e = ctx.saved_tensors
        w = g / (1 - e * torch.cos(u))
        return w, w * torch.sin(u)


class QuadForm(Function):
    """x . A x, and the product A x as an extra output. Call it through `quad_form`.

    Args:
        A: real tensor (n, n), symmetric or not.
        x: real tensor (n,) of the same dtype.

    Returns:
        x . A x, tensor (), and A x, tensor (n,).

    d(x . A x) = dx . A x + x . dA x + x . A dx, and d(A x) = dA x + A dx. With g and k for the
    gradients of the two results, what stands beside dA is g x x^T + k x^T, and beside dx
    g (A x + A^T x) + A^T k.
    """

    @staticmethod
    def forward(ctx, A, x):
        Ax = A @ x
        ctx.save_for_backward(A, x, Ax)
        return x @ Ax, Ax

    @staticmethod
    def backward(ctx, g, k):
        A, x, Ax = ctx.saved_tensors
        for_A = g * torch.outer(x, x) + torch.outer(k, x)
        for_x = g * (Ax + A.T @ x) + A.T @ k
        return for_A, for_x


def quad_form(A, x):
    """x . A x for tensors of shapes (n, n) and (n,): `QuadForm` without its extra output."""
    return QuadForm.apply(A, x)[0]
