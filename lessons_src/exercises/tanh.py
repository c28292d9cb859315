"""Exercise of lesson 2: tanh(x)."""

import torch
from torch.autograd import Function

from .task import BY_OUTPUT, Task, WrongAnswers, numbers

TASK = Task(
    "tanh",
    2,
    "tanh(x)",
    lambda x: 1 - 2 / (torch.exp(2 * x) + 1),
    [
        "torch.tanh may do the work in forward. backward is yours.",
        "The derivative is 1 - tanh²x: a formula in the output.",
        "Save out and return out. backward returns grad_out times (1 - out²).",
    ],
    slips={
        BY_OUTPUT + " Save out, and take it for 1 - out**2.": lambda g, x: g * (1 - x**2),
        "That is grad_out * (1 - out). The output belongs squared.": (
            lambda g, x: g * (1 - torch.tanh(x))
        ),
        "That is grad_out * (1 + out**2). Look at the sign.": (
            lambda g, x: g * (1 + torch.tanh(x) ** 2)
        ),
        "That is grad_out * out**2. It should be 1 minus that square.": (
            lambda g, x: g * torch.tanh(x) ** 2
        ),
    },
    wide=((numbers(0.0, 0.01, -0.3, 3.0, -5.0, 12.0, -20.0, 30.0),),),
)

# The solution


class Tanh(Function):
    @staticmethod
    def forward(ctx, x):
        out = torch.tanh(x)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx, grad_out):
        (out,) = ctx.saved_tensors
        return grad_out * (1 - out**2)


SOLUTION = (Tanh,)

# Wrong answers

wrong = WrongAnswers()


@wrong(
    "output on ctx",
    say="Drop the result and look with a weak reference whether its node is still there.",
)
class OutputOnCtx(Tanh):
    @staticmethod
    def forward(ctx, x):
        out = torch.tanh(x)
        ctx.out = out
        return out

    @staticmethod
    def backward(ctx, grad_out):
        out = ctx.out
        return grad_out * (1 - out**2)


@wrong("detached output on ctx", say="detach makes a constant of it: compare F(x)² with the truth.")
class DetachedOutputOnCtx(Tanh):
    @staticmethod
    def forward(ctx, x):
        out = torch.tanh(x)
        ctx.out = out.detach()
        return out

    @staticmethod
    def backward(ctx, grad_out):
        out = ctx.out
        return grad_out * (1 - out**2)


@wrong("a copy returned", say="Is the tensor that you save the tensor that you return?")
class ACopyReturned(Tanh):
    @staticmethod
    def forward(ctx, x):
        out = torch.tanh(x)
        ctx.save_for_backward(out)
        return out.clone()


@wrong(
    "input saved, formula in the output",
    say="Which tensor do you hold in backward: what went in, or what came out?",
)
class InputSavedFormulaInTheOutput(Tanh):
    @staticmethod
    def forward(ctx, x):
        out = torch.tanh(x)
        ctx.save_for_backward(x)
        return out


@wrong("square forgotten", say="The slope at x and at -x must be the same: is out enough for that?")
class SquareForgotten(Tanh):
    @staticmethod
    def backward(ctx, grad_out):
        (out,) = ctx.saved_tensors
        return grad_out * (1 - out)


@wrong("plus instead of minus", say="Can tanh be steeper than at 0?")
class PlusInsteadOfMinus(Tanh):
    @staticmethod
    def backward(ctx, grad_out):
        (out,) = ctx.saved_tensors
        return grad_out * (1 + out**2)


@wrong("1 minus forgotten", say="What is the slope of tanh at 0?")
class OneMinusForgotten(Tanh):
    @staticmethod
    def backward(ctx, grad_out):
        (out,) = ctx.saved_tensors
        return grad_out * out**2


@wrong("derivative saved", say="It was computed in forward: does it have a graph?")
class DerivativeSaved(Tanh):
    @staticmethod
    def forward(ctx, x):
        out = torch.tanh(x)
        ctx.save_for_backward(1 - out**2)
        return out

    @staticmethod
    def backward(ctx, grad_out):
        (slope,) = ctx.saved_tensors
        return grad_out * slope


@wrong("x clamped at 5", say="What should the result be at x = 12?")
class XClampedAt5(Tanh):
    @staticmethod
    def forward(ctx, x):
        x = x.clamp(-5, 5)
        out = torch.tanh(x)
        ctx.save_for_backward(out)
        return out


@wrong("a view of the output saved", say="Is a view the tensor that forward returns?")
class AViewOfTheOutputSaved(Tanh):
    @staticmethod
    def forward(ctx, x):
        out = torch.tanh(x)
        ctx.save_for_backward(out.view_as(out))
        return out


@wrong("grad_out changed in place", say="Who else holds grad_out?")
class GradOutChangedInPlace(Tanh):
    @staticmethod
    def backward(ctx, grad_out):
        (out,) = ctx.saved_tensors
        return grad_out.mul_(1 - out**2)


@wrong("output on the class", say="What if F is called twice before backward runs?")
class OutputOnTheClass(Tanh):
    @staticmethod
    def forward(ctx, x):
        OutputOnTheClass.out = torch.tanh(x)
        return OutputOnTheClass.out

    @staticmethod
    def backward(ctx, grad_out):
        out = OutputOnTheClass.out
        return grad_out * (1 - out**2)
