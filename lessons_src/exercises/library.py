"""Exercise of lesson 4: a training with three Functions of a library, one of them wrong."""

import torch
from torch.autograd import Function, grad

from .task import Task, numbers


class Leaky(Function):
    """x where x > 0, a tenth of x elsewhere."""

    @staticmethod
    def forward(ctx, x):
        ctx.slope = torch.where(x > 0, 1.0, 0.1).to(x.dtype)
        return x * ctx.slope

    @staticmethod
    def backward(ctx, grad_out):
        return grad_out * ctx.slope


class Bell(Function):
    """exp(-x**2 / 2), elementwise."""

    @staticmethod
    def forward(ctx, x):
        ctx.minus_x = -x
        out = torch.exp(ctx.minus_x * x / 2)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx, grad_out):
        (out,) = ctx.saved_tensors
        return grad_out * ctx.minus_x * out


class Wave(Function):
    """sin(x), elementwise."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.sin(x)

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return grad_out * torch.cos(x)


def train(steps=3):
    """Gradient descent on a penalty, the mean squared slope of a small model by its inputs.

    Returns:
        The penalty after each step, a list of float to three digits.
    """
    x = torch.tensor([0.4, -0.7, 1.2], dtype=torch.float64, requires_grad=True)
    w = torch.tensor([0.8, -0.5], dtype=torch.float64, requires_grad=True)
    penalties = []
    for _ in range(steps):
        out = Bell.apply(Leaky.apply(w[0] * x)) + Wave.apply(w[1] * x)
        (slope,) = grad(out.sum(), x, create_graph=True)
        penalty = (slope**2).mean()
        (step,) = grad(penalty, w)
        w = (w - 0.2 * step).detach().requires_grad_()
        penalties.append(round(penalty.item(), 3))
    return penalties


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
