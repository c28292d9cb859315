"""Exercise of lesson 4: a training with three Functions of a library, one of them wrong."""

import torch
from torch.autograd import Function

from lessons_src.library import Bell

from ..task import Task, numbers

TASK = Task(
    "library",
    4,
    "exp(-x**2 / 2)",
    lambda x: torch.exp(-(x**2) / 2),
    [
        "with detect_intermediates(): and, indented below it, library.train(). The error begins "
        "with the name of the Function.",
        "The message also names what it keeps on ctx. Was that an input, an output, or made in "
        "forward?",
        "-x is made in forward: a constant. Save x itself beside out, and take -x in backward.",
    ],
    given=Bell,
    wide=((numbers(0.0, 0.01, -0.3, 3.0, -5.0, 12.0),),),
)

# The solution


class Mended(Function):
    @staticmethod
    def forward(ctx, x):
        out = torch.exp(-(x**2) / 2)
        ctx.save_for_backward(x, out)
        return out

    @staticmethod
    def backward(ctx, grad_out):
        x, out = ctx.saved_tensors
        return -grad_out * x * out


SOLUTION = (Mended,)

# Wrong answers

WRONG = {
    "the sine mended": """Which name stands first in the error of detect_intermediates?
        - out = torch.exp(-(x**2) / 2)
        - ctx.save_for_backward(x, out)
        - return out
        + ctx.save_for_backward(x)
        + return torch.sin(x)
        - x, out = ctx.saved_tensors
        - return -grad_out * x * out
        + (x,) = ctx.saved_tensors
        + return grad_out * torch.cos(x)
    """,
    "-x through save_for_backward": """Does save_for_backward give a tensor a graph?
        - out = torch.exp(-(x**2) / 2)
        - ctx.save_for_backward(x, out)
        + minus_x = -x
        + out = torch.exp(minus_x * x / 2)
        + ctx.save_for_backward(minus_x, out)
        - x, out = ctx.saved_tensors
        - return -grad_out * x * out
        + minus_x, out = ctx.saved_tensors
        + return grad_out * minus_x * out
    """,
    "the slope on ctx": """The slope was made in forward, like -x before it.
        - ctx.save_for_backward(x, out)
        + ctx.slope = -x * out
        - x, out = ctx.saved_tensors
        - return -grad_out * x * out
        + return grad_out * ctx.slope
    """,
    "x detached": """What does detach do to the graph of x?
        - return -grad_out * x * out
        + return -grad_out * x.detach() * out
    """,
    "declared once_differentiable": """That is honest. The training differentiates twice.
          @staticmethod
        - def backward(ctx, grad_out):
        + @torch.autograd.function.once_differentiable
        + def backward(ctx, grad_out):
    """,
    "the sign": """Is the bell rising or falling at x = 0.5?
        - return -grad_out * x * out
        + return grad_out * x * out
    """,
}
