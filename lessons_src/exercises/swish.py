"""Exercise of lesson 4: x * sigmoid(x), in the shape of x."""

import torch
import torch.nn.functional as F
from torch.autograd import Function

from .task import TURNED, Task, WrongAnswers, X, numbers


class Given(Function):
    """x * sigmoid(x), elementwise."""

    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad_out * s * (1 + x * (1 - s))


TASK = Task(
    "swish",
    4,
    "x * sigmoid(x), in the shape of x",
    F.silu,
    [
        "Ask in a cell whether the saved tensor is the input: for a matrix, and for its transpose.",
        "x.contiguous() is x itself where x is contiguous already. Otherwise it is a copy.",
        "Save the input first. Or leave out the line: nothing here needs it.",
    ],
    points=((X,), (TURNED,)),
    slips={
        "That is grad_out * s * (1 + x). The factor 1 - s of the second term is missing.": (
            lambda g, x: g * torch.sigmoid(x) * (1 + x)
        ),
        "That is grad_out * s * (1 - x * (1 - s)). Look at the sign of the second term.": (
            lambda g, x: g * torch.sigmoid(x) * (1 - x * torch.sigmoid(-x))
        ),
    },
    terms={
        "grad_out * s": lambda g, x: g * torch.sigmoid(x),
        "grad_out * x * s * (1 - s)": lambda g, x: g * x * torch.sigmoid(x) * torch.sigmoid(-x),
    },
    given=Given,
    wide=((numbers(0.0, 0.01, -0.3, 3.0, -5.0, 12.0, -20.0, 30.0, 100.0, -100.0),),),
)

# The solution


class Swish(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        x = x.contiguous()
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad_out * s * (1 + x * (1 - s))


SOLUTION = (Swish,)

# Wrong answers

wrong = WrongAnswers()


@wrong("clone instead of contiguous", say="Now it is a copy for every x, not for some.")
class CloneInsteadOfContiguous(Swish):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)


@wrong("contiguous inside save_for_backward", say="It is one line shorter. Is the saved tensor x?")
class ContiguousInsideSaveForBackward(Swish):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x.contiguous())
        return x * torch.sigmoid(x)


@wrong("other layouts refused", say="Would you want to use it?")
class OtherLayoutsRefused(Swish):
    @staticmethod
    def forward(ctx, x):
        if not x.is_contiguous():
            raise ValueError("x must be contiguous")
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)


@wrong("flattened", say="What shape does the caller expect?")
class Flattened(Swish):
    @staticmethod
    def forward(ctx, x):
        x = x.reshape(-1)
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)


@wrong(
    "gradient viewed as a row",
    say="A gradient has a layout of its own: try .t() after the Function.",
)
class GradientViewedAsARow(Swish):
    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        grad_out = grad_out.view(-1).view(x.shape)
        return grad_out * s * (1 + x * (1 - s))


@wrong("sigmoid kept from forward", say="The copy is gone. Is s an input or an output?")
class SigmoidKeptFromForward(Swish):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        x = x.contiguous()
        ctx.s = torch.sigmoid(x)
        return x * ctx.s

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        s = ctx.s
        return grad_out * s * (1 + x * (1 - s))


@wrong("a copy in float64", say="Try an x in float32: is the saved tensor x?")
class ACopyInFloat64(Swish):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x.double())
        return x * torch.sigmoid(x)
