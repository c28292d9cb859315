"""Exercise of lesson 4: artanh(x), with x clamped to stay finite at 1."""

import torch
from torch.autograd import Function

from ..task import Task, numbers


class Given(Function):
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


TASK = Task(
    "artanh",
    4,
    "artanh(x), with x clamped to stay finite at 1",
    lambda x: torch.atanh(x.clamp(-1 + 1e-6, 1 - 1e-6)),
    [
        "Is the tensor that is saved the input?",
        "x = x.clamp(...) makes a new tensor under the old name, in forward.",
        "Save the input first, clamp afterwards. Then backward gets an x of 1, and divides by 0: "
        "clamp there, too, in torch.",
    ],
    points=((torch.tensor([0.5, 0.3, -0.8], dtype=torch.float64),),),
    edges=((numbers(1.0, -1.0),),),
    slips={
        "That is grad_out / (1 - x). In the derivative, x is squared.": (lambda g, x: g / (1 - x)),
        "That is grad_out / (1 + x²). Look at the sign.": lambda g, x: g / (1 + x**2),
    },
    given=Given,
    wide=((numbers(0.0, 0.05, -0.3, 0.95, -0.99, 0.9999),),),
)

# The solution


class Artanh(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        x = x.clamp(-1 + 1e-6, 1 - 1e-6)
        return (torch.log(1 + x) - torch.log(1 - x)) / 2

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        x = x.clamp(-1 + 1e-6, 1 - 1e-6)
        return grad_out / (1 - x**2)


SOLUTION = (Artanh,)

# Wrong answers

WRONG = {
    "clamp removed": """Why did the author clamp? Try x = 1.
          ctx.save_for_backward(x)
        - x = x.clamp(-1 + 1e-6, 1 - 1e-6)

          (x,) = ctx.saved_tensors
        - x = x.clamp(-1 + 1e-6, 1 - 1e-6)
    """,
    "a clone saved": """A clone is a copy, whatever comes after it.
        - ctx.save_for_backward(x)
        + ctx.save_for_backward(x.clone())
          (x,) = ctx.saved_tensors
        - x = x.clamp(-1 + 1e-6, 1 - 1e-6)
    """,
    "input on ctx": """The derivatives are right now. What if the caller edits x?
        - ctx.save_for_backward(x)
        + ctx.x = x
        - (x,) = ctx.saved_tensors
        - x = x.clamp(-1 + 1e-6, 1 - 1e-6)
        + x = ctx.x.clamp(-1 + 1e-6, 1 - 1e-6)
    """,
    "clamped in place": """Print the caller's x afterwards.
        - ctx.save_for_backward(x)
        - x = x.clamp(-1 + 1e-6, 1 - 1e-6)
        + x = x.clamp_(-1 + 1e-6, 1 - 1e-6)
        + ctx.save_for_backward(x)
          (x,) = ctx.saved_tensors
        - x = x.clamp(-1 + 1e-6, 1 - 1e-6)
    """,
    "clamped without a graph in backward": """
        Saving was right. What does the next step do to the graph?
          (x,) = ctx.saved_tensors
        - x = x.clamp(-1 + 1e-6, 1 - 1e-6)
        + x = x.detach().clamp(-1 + 1e-6, 1 - 1e-6)
    """,
    "square lost": """The line that was right before has changed: compare the slopes at x and at -x.
        - return grad_out / (1 - x**2)
        + return grad_out / (1 - x)
    """,
    "clamped in forward only": """The value is finite at x = 1. Is the derivative?
          (x,) = ctx.saved_tensors
        - x = x.clamp(-1 + 1e-6, 1 - 1e-6)
    """,
    "another clamp in backward": """What is the slope at 0.99?
          (x,) = ctx.saved_tensors
        - x = x.clamp(-1 + 1e-6, 1 - 1e-6)
        + x = x.clamp(-0.9, 0.9)
    """,
}
