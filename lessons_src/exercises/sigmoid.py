"""Exercise of lesson 2: 1 / (1 + exp(-x))."""

import torch
from torch.autograd import Function

from .point import Point, keeps_the_result
from .task import BY_OUTPUT, Task, WrongAnswers, numbers

TASK = Task(
    "sigmoid",
    2,
    "1 / (1 + exp(-x))",
    torch.sigmoid,
    [
        "Write the derivative on paper, then look for the result of forward in it.",
        "The derivative is out * (1 - out). Which tensor do you save, then?",
        "Compute out, save that very tensor, return that very tensor.",
    ],
    slips={
        BY_OUTPUT + " Save out, and take it for out * (1 - out).": (lambda g, x: g * x * (1 - x)),
        "That is grad_out * out. The factor 1 - out is missing.": (
            lambda g, x: g * torch.sigmoid(x)
        ),
        "That is grad_out * out * (1 + out). Look at the sign inside the brackets.": (
            lambda g, x: g * torch.sigmoid(x) * (1 + torch.sigmoid(x))
        ),
    },
    point=Point("to save the result, of which the derivative is a formula", keeps_the_result),
    terms={
        "grad_out * out": lambda g, x: g * torch.sigmoid(x),
        "-grad_out * out²": lambda g, x: -g * torch.sigmoid(x) ** 2,
    },
    wide=((numbers(0.0, 0.01, -0.3, 3.0, -5.0, 12.0, -20.0, 30.0, 100.0, -100.0),),),
)

# The solution


class Sigmoid(Function):
    @staticmethod
    def forward(ctx, x):
        out = 1 / (1 + torch.exp(-x))
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx, grad_out):
        (out,) = ctx.saved_tensors
        return grad_out * out * (1 - out)


SOLUTION = (Sigmoid,)

# Wrong answers

wrong = WrongAnswers()


@wrong(
    "output on ctx",
    say="Drop the result and look with a weak reference whether its node is still there.",
)
class OutputOnCtx(Sigmoid):
    @staticmethod
    def forward(ctx, x):
        out = 1 / (1 + torch.exp(-x))
        ctx.out = out
        return out

    @staticmethod
    def backward(ctx, grad_out):
        out = ctx.out
        return grad_out * out * (1 - out)


@wrong("detached output on ctx", say="detach makes a constant of it: compare F(x)² with the truth.")
class DetachedOutputOnCtx(Sigmoid):
    @staticmethod
    def forward(ctx, x):
        out = 1 / (1 + torch.exp(-x))
        ctx.out = out.detach()
        return out

    @staticmethod
    def backward(ctx, grad_out):
        out = ctx.out
        return grad_out * out * (1 - out)


@wrong("a copy returned", say="Is the tensor that you save the tensor that you return?")
class ACopyReturned(Sigmoid):
    @staticmethod
    def forward(ctx, x):
        out = 1 / (1 + torch.exp(-x))
        ctx.save_for_backward(out)
        return out.clone()


@wrong(
    "input saved, formula in the output",
    say="Which tensor do you hold in backward: what went in, or what came out?",
)
class InputSavedFormulaInTheOutput(Sigmoid):
    @staticmethod
    def forward(ctx, x):
        out = 1 / (1 + torch.exp(-x))
        ctx.save_for_backward(x)
        return out


@wrong("1 - out forgotten", say="What is the slope far out on the right, where out is 1?")
class OneOutForgotten(Sigmoid):
    @staticmethod
    def backward(ctx, grad_out):
        (out,) = ctx.saved_tensors
        return grad_out * out


@wrong(
    "plus instead of minus",
    say="The curve is flat at both ends: both factors must be able to vanish.",
)
class PlusInsteadOfMinus(Sigmoid):
    @staticmethod
    def backward(ctx, grad_out):
        (out,) = ctx.saved_tensors
        return grad_out * out * (1 + out)


@wrong("sign in forward", say="Is the result near 1 or near 0 for a large x?")
class SignInForward(Sigmoid):
    @staticmethod
    def forward(ctx, x):
        out = 1 / (1 + torch.exp(x))
        ctx.save_for_backward(out)
        return out


@wrong("derivative saved", say="It was computed in forward: does it have a graph?")
class DerivativeSaved(Sigmoid):
    @staticmethod
    def forward(ctx, x):
        out = 1 / (1 + torch.exp(-x))
        ctx.save_for_backward(out * (1 - out))
        return out

    @staticmethod
    def backward(ctx, grad_out):
        (slope,) = ctx.saved_tensors
        return grad_out * slope


@wrong("x clamped at 5", say="What should the result be at x = 12?")
class XClampedAt5(Sigmoid):
    @staticmethod
    def forward(ctx, x):
        x = x.clamp(-5, 5)
        out = 1 / (1 + torch.exp(-x))
        ctx.save_for_backward(out)
        return out


@wrong("a view of the output saved", say="Is a view the tensor that forward returns?")
class AViewOfTheOutputSaved(Sigmoid):
    @staticmethod
    def forward(ctx, x):
        out = 1 / (1 + torch.exp(-x))
        ctx.save_for_backward(out.view_as(out))
        return out


@wrong("grad_out changed in place", say="Who else holds grad_out?")
class GradOutChangedInPlace(Sigmoid):
    @staticmethod
    def backward(ctx, grad_out):
        (out,) = ctx.saved_tensors
        return grad_out.mul_(out * (1 - out))


@wrong("output on the class", say="What if F is called twice before backward runs?")
class OutputOnTheClass(Sigmoid):
    @staticmethod
    def forward(ctx, x):
        OutputOnTheClass.out = 1 / (1 + torch.exp(-x))
        return OutputOnTheClass.out

    @staticmethod
    def backward(ctx, grad_out):
        out = OutputOnTheClass.out
        return grad_out * out * (1 - out)
