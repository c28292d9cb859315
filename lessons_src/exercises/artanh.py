"""Exercise of lesson 4: artanh(x), with x clamped to stay finite at 1."""

import torch
from torch.autograd import Function

from .task import Task, WrongAnswers, numbers


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

wrong = WrongAnswers()


@wrong("clamp removed", say="Why did the author clamp? Try x = 1.")
class ClampRemoved(Artanh):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (torch.log(1 + x) - torch.log(1 - x)) / 2

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return grad_out / (1 - x**2)


@wrong("a clone saved", say="A clone is a copy, whatever comes after it.")
class ACloneSaved(Artanh):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x.clone())
        x = x.clamp(-1 + 1e-6, 1 - 1e-6)
        return (torch.log(1 + x) - torch.log(1 - x)) / 2

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return grad_out / (1 - x**2)


@wrong("input on ctx", say="The derivatives are right now. What if the caller edits x?")
class InputOnCtx(Artanh):
    @staticmethod
    def forward(ctx, x):
        ctx.x = x
        x = x.clamp(-1 + 1e-6, 1 - 1e-6)
        return (torch.log(1 + x) - torch.log(1 - x)) / 2

    @staticmethod
    def backward(ctx, grad_out):
        x = ctx.x.clamp(-1 + 1e-6, 1 - 1e-6)
        return grad_out / (1 - x**2)


@wrong("clamped in place", say="Print the caller's x afterwards.")
class ClampedInPlace(Artanh):
    @staticmethod
    def forward(ctx, x):
        x.clamp_(-1 + 1e-6, 1 - 1e-6)
        ctx.save_for_backward(x)
        return (torch.log(1 + x) - torch.log(1 - x)) / 2

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return grad_out / (1 - x**2)


@wrong(
    "clamped without a graph in backward",
    say="Saving was right. What does the next step do to the graph?",
)
class ClampedWithoutAGraphInBackward(Artanh):
    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        x = x.detach().clamp(-1 + 1e-6, 1 - 1e-6)
        return grad_out / (1 - x**2)


@wrong(
    "square lost",
    say="The line that was right before has changed: compare the slopes at x and at -x.",
)
class SquareLost(Artanh):
    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        x = x.clamp(-1 + 1e-6, 1 - 1e-6)
        return grad_out / (1 - x)


@wrong("clamped in forward only", say="The value is finite at x = 1. Is the derivative?")
class ClampedInForwardOnly(Artanh):
    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return grad_out / (1 - x**2)


@wrong("another clamp in backward", say="What is the slope at 0.99?")
class AnotherClampInBackward(Artanh):
    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        x = x.clamp(-0.9, 0.9)
        return grad_out / (1 - x**2)
