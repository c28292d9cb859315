"""Exercise of lesson 6: log(cosh(x)), finite to second order wherever it is called."""

import math

import torch
from torch import Tensor
from torch.autograd import Function

from ..task import Task, numbers


def log_cosh(x: Tensor) -> Tensor:
    """In plain torch: each side gets an x that is harmless there, and no |x| is taken at 0."""
    near = x.abs() < 20
    small, large = torch.where(near, x, 0.0), torch.where(near, 20.0, x).abs()
    far = large + torch.log1p(torch.exp(-2 * large)) - math.log(2)
    return torch.where(near, torch.log(torch.cosh(small)), far)


TASK = Task(
    "log_cosh",
    6,
    "log(cosh(x))",
    log_cosh,
    [
        "cosh x is e^|x| (1 + e^(-2|x|)) / 2. The logarithm of a product is a sum.",
        "In forward: |x| + log(1 + e^(-2|x|)) - log 2. Its kink at 0 does no harm there, since "
        "nobody differentiates forward.",
        "The derivative is tanh x, and torch.tanh overflows nowhere: save x.",
    ],
    slips={
        "That is grad_out * sinh(x). It lacks the division by cosh(x).": (
            lambda g, x: g * torch.sinh(x)
        ),
        "That is grad_out / cosh(x). The derivative of cosh is sinh: it should be "
        "grad_out * sinh(x) / cosh(x), which is tanh.": lambda g, x: g / torch.cosh(x),
        "That is grad_out * tanh(|x|). The slope has the sign of x.": (
            lambda g, x: g * torch.tanh(x.abs())
        ),
        "That is grad_out times the sign of x: the slope far from 0 only.": (
            lambda g, x: g * torch.sign(x)
        ),
    },
    wide=((numbers(0.0, 0.01, -0.3, 3.0, -5.0, 12.0, -20.0, 30.0, 1000.0, -1000.0),),),
)

# The solution


class LogCosh(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        size = x.abs()
        return size + torch.log1p(torch.exp(-2 * size)) - math.log(2)

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return grad_out * torch.tanh(x)


SOLUTION = (LogCosh,)

# Wrong answers

WRONG = {
    "the plain formula": """What is cosh 1000 in float64?
        - return size + torch.log1p(torch.exp(-2 * size)) - math.log(2)
        + return torch.log(torch.cosh(size))
    """,
    "sinh over cosh": """The value is stable. Is the slope? What is inf / inf?
        - return grad_out * torch.tanh(x)
        + return grad_out * torch.sinh(x) / torch.cosh(x)
    """,
    "by |x| in backward, too": """What is the slope of |x| at 0, to autograd?
        - return grad_out * torch.tanh(x)
        + return grad_out * torch.sign(x) * torch.tanh(x.abs())
    """,
    "where, once": """Which side does autograd differentiate where x is 1000?
        - return grad_out * torch.tanh(x)
        + far = torch.sinh(x) / torch.cosh(x)
        + return grad_out * torch.where(x.abs() > 20, torch.sign(x), far)
    """,
    "the slope saved": """It was computed in forward: does it have a graph?
        - ctx.save_for_backward(x)
        + ctx.save_for_backward(torch.tanh(x))
        - return grad_out * torch.tanh(x)
        + return grad_out * x
    """,
    "the sign forgotten": """Is the slope positive on the left, too?
        - return grad_out * torch.tanh(x)
        + return grad_out * torch.tanh(x.abs())
    """,
    "log 2 forgotten": """What should the value be at x = 0?
        - return size + torch.log1p(torch.exp(-2 * size)) - math.log(2)
        + return size + torch.log1p(torch.exp(-2 * size))
    """,
}
