"""Exercise of lesson 3: log((exp(x) + exp(-x)) / 2)."""

import torch
from torch.autograd import Function

from .task import Task, WrongAnswers, numbers

TASK = Task(
    "logcosh",
    3,
    "log((exp(x) + exp(-x)) / 2)",
    lambda x: torch.log(torch.cosh(x)),
    [
        "Keep the two exponentials: backward needs them again.",
        "The derivative is (e^x - e^-x) / (e^x + e^-x).",
        "Save both exponentials and return both. In backward add the two extra gradients, each "
        "times the derivative of its own output.",
    ],
    slips={
        "That is grad_out * sinh(x). By the chain rule of log, divide by cosh(x).": (
            lambda g, x: g * torch.sinh(x)
        ),
        "That is grad_out / tanh(x), upside down: the difference belongs on top.": (
            lambda g, x: g / torch.tanh(x)
        ),
    },
    wide=((numbers(0.0, 0.01, -0.3, 3.0, -5.0, 12.0),),),
)

# The solution


class LogCosh(Function):
    @staticmethod
    def forward(ctx, x):
        expx = torch.exp(x)
        expnegx = torch.exp(-x)
        ctx.save_for_backward(expx, expnegx)
        return torch.log((expx + expnegx) / 2), expx, expnegx

    @staticmethod
    def backward(ctx, grad_out, grad_expx, grad_expnegx):
        expx, expnegx = ctx.saved_tensors
        grad_x = grad_out * (expx - expnegx) / (expx + expnegx)
        grad_x = grad_x + grad_expx * expx
        grad_x = grad_x - grad_expnegx * expnegx
        return grad_x


def logcosh(x):
    out, _expx, _expnegx = LogCosh.apply(x)
    return out


SOLUTION = (
    LogCosh,
    logcosh,
)

# Wrong answers

wrong = WrongAnswers()


@wrong("saved and not returned", say="Which of the saved tensors is an input or an output?")
class SavedAndNotReturned(LogCosh):
    @staticmethod
    def forward(ctx, x):
        expx = torch.exp(x)
        expnegx = torch.exp(-x)
        ctx.save_for_backward(expx, expnegx)
        return torch.log((expx + expnegx) / 2)

    @staticmethod
    def backward(ctx, grad_out):
        expx, expnegx = ctx.saved_tensors
        grad_x = grad_out * (expx - expnegx) / (expx + expnegx)
        return grad_x


@wrong(
    "extra gradients ignored",
    say="Print the three gradients in both passes, as the spy of lesson 3 does.",
)
class ExtraGradientsIgnored(LogCosh):
    @staticmethod
    def backward(ctx, grad_out, grad_expx, grad_expnegx):
        expx, expnegx = ctx.saved_tensors
        grad_x = grad_out * (expx - expnegx) / (expx + expnegx)
        return grad_x


@wrong(
    "extra gradients without the exponential",
    say="The extra gradient, too, is multiplied by the derivative of its own output.",
)
class ExtraGradientsWithoutTheExponential(LogCosh):
    @staticmethod
    def backward(ctx, grad_out, grad_expx, grad_expnegx):
        expx, expnegx = ctx.saved_tensors
        grad_x = grad_out * (expx - expnegx) / (expx + expnegx)
        grad_x = grad_x + grad_expx
        grad_x = grad_x - grad_expnegx * expnegx
        return grad_x


@wrong("second exponential added", say="What is the derivative of exp(-x)?")
class SecondExponentialAdded(LogCosh):
    @staticmethod
    def backward(ctx, grad_out, grad_expx, grad_expnegx):
        expx, expnegx = ctx.saved_tensors
        grad_x = grad_out * (expx - expnegx) / (expx + expnegx)
        grad_x = grad_x + grad_expx * expx
        grad_x = grad_x + grad_expnegx * expnegx
        return grad_x


@wrong("second extra gradient forgotten", say="Each extra output has its own line.")
class SecondExtraGradientForgotten(LogCosh):
    @staticmethod
    def backward(ctx, grad_out, grad_expx, grad_expnegx):
        expx, expnegx = ctx.saved_tensors
        grad_x = grad_out * (expx - expnegx) / (expx + expnegx)
        grad_x = grad_x + grad_expx * expx
        return grad_x


@wrong("kept on ctx", say="Is autograd recording in forward?")
class KeptOnCtx(LogCosh):
    @staticmethod
    def forward(ctx, x):
        expx = torch.exp(x)
        expnegx = torch.exp(-x)
        ctx.expx, ctx.expnegx = expx, expnegx
        return torch.log((expx + expnegx) / 2)

    @staticmethod
    def backward(ctx, grad_out):
        expx, expnegx = ctx.expx, ctx.expnegx
        grad_x = grad_out * (expx - expnegx) / (expx + expnegx)
        return grad_x


@wrong("the Function without the function", say="How many results does apply return?")
def three_results(x):
    return LogCosh.apply(x)


@wrong("inner derivative only", say="log has a derivative of its own.")
class InnerDerivativeOnly(LogCosh):
    @staticmethod
    def backward(ctx, grad_out, grad_expx, grad_expnegx):
        expx, expnegx = ctx.saved_tensors
        grad_x = grad_out * (expx - expnegx) / 2
        grad_x = grad_x + grad_expx * expx
        grad_x = grad_x - grad_expnegx * expnegx
        return grad_x


@wrong("upside down", say="What is the slope at 0?")
class UpsideDown(LogCosh):
    @staticmethod
    def backward(ctx, grad_out, grad_expx, grad_expnegx):
        expx, expnegx = ctx.saved_tensors
        grad_x = grad_out * (expx + expnegx) / (expx - expnegx)
        grad_x = grad_x + grad_expx * expx
        grad_x = grad_x - grad_expnegx * expnegx
        return grad_x


@wrong("half forgotten in forward", say="What should the value at 0 be?")
class HalfForgottenInForward(LogCosh):
    @staticmethod
    def forward(ctx, x):
        expx = torch.exp(x)
        expnegx = torch.exp(-x)
        ctx.save_for_backward(expx, expnegx)
        return torch.log(expx + expnegx), expx, expnegx


@wrong(
    "names of the extra gradients swapped", say="In which order does forward return its outputs?"
)
class NamesSwapped(LogCosh):
    @staticmethod
    def backward(ctx, grad_out, grad_expnegx, grad_expx):
        expx, expnegx = ctx.saved_tensors
        grad_x = grad_out * (expx - expnegx) / (expx + expnegx)
        return grad_x + grad_expx * expx - grad_expnegx * expnegx


@wrong(
    "extra gradients times grad_out",
    say="Each output has a gradient of its own: is grad_out in that of expx?",
)
class ExtraGradientsTimesGradOut(LogCosh):
    @staticmethod
    def backward(ctx, grad_out, grad_expx, grad_expnegx):
        expx, expnegx = ctx.saved_tensors
        grad_x = grad_out * (expx - expnegx) / (expx + expnegx)
        return grad_x + grad_out * (grad_expx * expx - grad_expnegx * expnegx)


@wrong("extra gradients averaged", say="Where does the half come from?")
class ExtraGradientsAveraged(LogCosh):
    @staticmethod
    def backward(ctx, grad_out, grad_expx, grad_expnegx):
        expx, expnegx = ctx.saved_tensors
        grad_x = grad_out * (expx - expnegx) / (expx + expnegx)
        return grad_x + (grad_expx * expx - grad_expnegx * expnegx) / 2


@wrong("marked as non-differentiable", say="What does the mark say to autograd?")
class MarkedAsNonDifferentiable(LogCosh):
    @staticmethod
    def forward(ctx, x):
        expx, expnegx = torch.exp(x), torch.exp(-x)
        ctx.mark_non_differentiable(expx, expnegx)
        ctx.save_for_backward(expx, expnegx)
        return torch.log((expx + expnegx) / 2), expx, expnegx
