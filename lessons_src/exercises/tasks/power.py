"""Exercise of lesson 1: x**n."""

import torch
from torch.autograd import Function

from ..task import Task, X, numbers

TASK = Task(
    "power",
    1,
    "x**n",
    lambda x, n: torch.stack([x] * n).prod(0),
    [
        "n is an integer, not a tensor: save_for_backward refuses it. Plain ctx.n = n is fine.",
        "The derivative is n times x to the n - 1.",
        "backward returns one gradient for each argument after ctx: for n, that is None.",
    ],
    points=((X, 3), (X, 2), (X, 5)),
    inputs=("x", "n"),
    slips={
        "That is right for n = 3 only. Use the n that forward was given.": (
            lambda g, x, n: g * 3 * x**2
        ),
        "x ** n - 1 is 1 less than x ** n. Put brackets around n - 1.": (
            lambda g, x, n: g * n * x**n - 1
        ),
    },
    wide=(
        (numbers(0.0, -3000.0, 2.2, -0.3), 2),
        (numbers(0.0, 3000.0, -2.2, 0.01), 4),
        (numbers(0.0, 300.0, -2.2, 0.01), 7),
    ),
)

# The solution


class Power(Function):
    @staticmethod
    def forward(ctx, x, n):
        ctx.save_for_backward(x)
        ctx.n = n
        return x**n

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return grad_out * ctx.n * x ** (ctx.n - 1), None


SOLUTION = (Power,)

# Wrong answers

WRONG = {
    "exponent not lowered": """Try n = 1: what should the derivative of x be?
        - return grad_out * ctx.n * x ** (ctx.n - 1), None
        + return grad_out * ctx.n * x**ctx.n, None
    """,
    "factor n forgotten": """The exponent comes down as a factor.
        - return grad_out * ctx.n * x ** (ctx.n - 1), None
        + return grad_out * x ** (ctx.n - 1), None
    """,
    "no gradient for n": """Count the arguments of forward after ctx.
        - return grad_out * ctx.n * x ** (ctx.n - 1), None
        + return grad_out * ctx.n * x ** (ctx.n - 1)
    """,
    "a gradient for n": """Can one move an integer a little?
        - return grad_out * ctx.n * x ** (ctx.n - 1), None
        + return grad_out * ctx.n * x ** (ctx.n - 1), grad_out * x**ctx.n * torch.log(x.abs())
    """,
    "n in save_for_backward": """What may save_for_backward hold?
        - ctx.save_for_backward(x)
        - ctx.n = n
        + ctx.save_for_backward(x, n)
        - (x,) = ctx.saved_tensors
        - return grad_out * ctx.n * x ** (ctx.n - 1), None
        + x, n = ctx.saved_tensors
        + return grad_out * n * x ** (n - 1), None
    """,
    "written for n = 3": """It was tested with one n. Test with another.
        - return grad_out * ctx.n * x ** (ctx.n - 1), None
        + return grad_out * 3 * x**2, None
    """,
    "`x**(n - 1)` computed in forward": """Where was this power made, and was autograd recording?
        - ctx.save_for_backward(x)
        + ctx.save_for_backward(x ** (n - 1))
        - (x,) = ctx.saved_tensors
        - return grad_out * ctx.n * x ** (ctx.n - 1), None
        + (lower,) = ctx.saved_tensors
        + return grad_out * ctx.n * lower, None
    """,
    "divided by x": """What happens at x = 0?
        - ctx.save_for_backward(x)
        + out = x**n
        + ctx.save_for_backward(x, out)
        - return x**n
        + return out
        - (x,) = ctx.saved_tensors
        - return grad_out * ctx.n * x ** (ctx.n - 1), None
        + x, out = ctx.saved_tensors
        + return grad_out * ctx.n * out / x, None
    """,
    "n on the class": """What if F is called with another n before backward runs?
        - ctx.n = n
        + Power.n = n
        - return grad_out * ctx.n * x ** (ctx.n - 1), None
        + n = Power.n
        + return grad_out * n * x ** (n - 1), None
    """,
    "x detached": """Does autograd see the step that detach makes?
        - return grad_out * ctx.n * x ** (ctx.n - 1), None
        + return grad_out * ctx.n * x.detach() ** (ctx.n - 1), None
    """,
}
