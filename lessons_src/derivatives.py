"""Derivatives of elementwise functions, by calling `torch.autograd.grad` again and again."""

import torch
from torch.autograd import grad


def derivative(f, x, order):
    """Derivative of an elementwise function, taken by repeated backward passes.

    The outputs are summed before each pass, because `grad`, told nothing else, starts from one
    number. In an elementwise function each output depends on its own x only, so every element of
    the result is the derivative at that x.

    Args:
        f: callable, tensor of x's shape to tensor of x's shape.
        x: real tensor of any shape that requires grad.
        order: how many times to differentiate; 0 gives the value.

    Returns:
        Tensor of the shape and dtype of x, detached from the graph.

    Raises:
        RuntimeError: from autograd, when no graph leads from a derivative back to x.
    """
    out = f(x)
    for _ in range(order):
        (out,) = grad(out.sum(), x, create_graph=True)
    return out.detach()


def second(f, x):
    """Second derivative of an elementwise function: `derivative(f, x, order=2)`."""
    return derivative(f, x, order=2)


def orders_right(f, truths, x):
    """How many derivatives of `f` are right, up to the first that is wrong or raises.

    Args:
        f: callable as in `derivative`.
        truths: list of callables, the true first, second, third ... derivative of f.
        x: real tensor that requires grad.

    Returns:
        int from 0 to len(truths). Right means equal within the tolerances of `torch.allclose`.
    """
    for order, truth in enumerate(truths, start=1):
        try:
            ours = derivative(f, x, order)
        except RuntimeError:
            return order - 1
        if not torch.allclose(ours, truth(x)):
            return order - 1
    return len(truths)
