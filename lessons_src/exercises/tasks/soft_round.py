"""Exercise of lesson 6: rounding, with the slope of a smooth staircase as its gradient."""

import torch
from torch import Tensor
from torch.autograd import Function

from ..task import Task, numbers


def soft_round(x: Tensor) -> Tensor:
    """In plain torch: the value of the steps, the gradient of the smooth staircase."""
    soft = x - torch.sin(2 * torch.pi * x) / (2 * torch.pi)
    return soft + (torch.round(x) - soft).detach()


TASK = Task(
    "soft_round",
    6,
    "x rounded to the nearest integer",
    soft_round,
    [
        "The derivative of the staircase x - sin(2 pi x) / (2 pi) is 1 - cos(2 pi x).",
        "forward returns torch.round(x). What does backward need, x or the result? At an integer "
        "that slope is 0.",
        "Save x, and compute 1 - torch.cos(2 * torch.pi * x) in backward, where it is recorded.",
    ],
    points=((numbers(0.4, 1.2, -1.3),),),
    slips={
        "That is grad_out: straight-through, the slope 1 everywhere.": lambda g, x: g,
        "That is grad_out * (1 + cos(2 pi x)). The derivative of -sin(u) is -cos(u).": (
            lambda g, x: g * (1 + torch.cos(2 * torch.pi * x))
        ),
        "That is grad_out * (1 - 2 pi cos(2 pi x)). The inner derivative, 2 pi, and the division "
        "by 2 pi cancel.": (lambda g, x: g * (1 - 2 * torch.pi * torch.cos(2 * torch.pi * x))),
        "It is 0 everywhere. Is it the slope at x, or at the rounded x?": lambda g, x: g * 0,
        "That is grad_out times the staircase itself. backward returns grad_out times its "
        "derivative.": lambda g, x: g * (x - torch.sin(2 * torch.pi * x) / (2 * torch.pi)),
        "That is grad_out * (1 - sin(2 pi x)). The derivative of sin(u) is cos(u).": (
            lambda g, x: g * (1 - torch.sin(2 * torch.pi * x))
        ),
        "That is grad_out * (1 - cos(x)). In cos stands what stood in sin: 2 pi x.": (
            lambda g, x: g * (1 - torch.cos(x))
        ),
    },
    terms={
        "grad_out": lambda g, x: g,
        "-grad_out * cos(2 pi x)": lambda g, x: -g * torch.cos(2 * torch.pi * x),
    },
    wide=((numbers(0.01, -0.3, 3.2, -5.4, 12.3, -20.1, 30.2, 100.4, -0.2, 7.7),),),
    meant=True,
)

# The solution


class SoftRound(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.round(x)

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return grad_out * (1 - torch.cos(2 * torch.pi * x))


SOLUTION = (SoftRound,)

# Wrong answers

WRONG = {
    "the slope kept on ctx": """It is meant, and differentiated all the same.
        - ctx.save_for_backward(x)
        + ctx.slope = 1 - torch.cos(2 * torch.pi * x)
        - (x,) = ctx.saved_tensors
        - return grad_out * (1 - torch.cos(2 * torch.pi * x))
        + return grad_out * ctx.slope
    """,
    "straight-through": """Is the slope 1 in the middle of a step?
        - return grad_out * (1 - torch.cos(2 * torch.pi * x))
        + return grad_out
    """,
    "the result saved": """What is the slope of the staircase at an integer?
        - ctx.save_for_backward(x)
        - return torch.round(x)
        + out = torch.round(x)
        + ctx.save_for_backward(out)
        + return out
    """,
    "grad_out forgotten": """What if the loss is twice as large?
        - return grad_out * (1 - torch.cos(2 * torch.pi * x))
        + return 1 - torch.cos(2 * torch.pi * x)
    """,
    "x detached in backward": """The values are the same. What of the graph?
        - (x,) = ctx.saved_tensors
        + x = ctx.saved_tensors[0].detach()
    """,
    "rounded down": """What is the nearest integer to 0.7?
        - return torch.round(x)
        + return torch.floor(x)
    """,
}
