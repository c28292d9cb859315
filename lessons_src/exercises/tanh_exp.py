"""Exercise of lesson 3: (exp(x) - exp(-x)) / (exp(x) + exp(-x))."""

import torch
from torch.autograd import Function

from .point import Point, keeps_an_extra_output
from .task import Task, WrongAnswers, numbers

TASK = Task(
    "tanh_exp",
    3,
    "(exp(x) - exp(-x)) / (exp(x) + exp(-x))",
    torch.tanh,
    [
        "How many tensors does forward return, and how many gradients does backward get, then?",
        "Save both exponentials and return both besides the result. The function below the "
        "class returns the first output only.",
        "backward gets three gradients. Each extra one is multiplied by the derivative of its "
        "own output: e^x for e^x, -e^-x for e^-x. Add both to grad_x.",
    ],
    slips={
        "That is grad_out / cosh(x). The sum of the exponentials belongs squared.": (
            lambda g, x: g / torch.cosh(x)
        ),
        "That is grad_out * 4 / (e^x + e^-x). The sum belongs squared.": (
            lambda g, x: g * 2 / torch.cosh(x)
        ),
        "That is grad_out * 4 / (e^x - e^-x)². The denominator is that of tanh, squared: a sum.": (
            lambda g, x: g / torch.sinh(x) ** 2
        ),
        "That is grad_out * (1 + tanh(x)²). In the quotient rule the second product is "
        "subtracted.": lambda g, x: g * (1 + torch.tanh(x) ** 2),
    },
    wide=((numbers(0.0, 0.01, -0.3, 3.0, -5.0, 12.0),),),
    point=Point(
        "to keep the exponentials: save what backward needs, and return it as an extra output",
        keeps_an_extra_output,
    ),
)

# The solution


class TanhExp(Function):
    @staticmethod
    def forward(ctx, x):
        expx = torch.exp(x)
        expnegx = torch.exp(-x)
        ctx.save_for_backward(expx, expnegx)
        return (expx - expnegx) / (expx + expnegx), expx, expnegx

    @staticmethod
    def backward(ctx, grad_out, grad_expx, grad_expnegx):
        expx, expnegx = ctx.saved_tensors
        grad_x = grad_out * 4 / (expx + expnegx) ** 2
        grad_x = grad_x + grad_expx * expx
        grad_x = grad_x - grad_expnegx * expnegx
        return grad_x


def tanh_exp(x):
    out, _expx, _expnegx = TanhExp.apply(x)
    return out


SOLUTION = (
    TanhExp,
    tanh_exp,
)

# Wrong answers

wrong = WrongAnswers()


@wrong("saved and not returned", say="Which of the saved tensors is an input or an output?")
class SavedAndNotReturned(TanhExp):
    @staticmethod
    def forward(ctx, x):
        expx = torch.exp(x)
        expnegx = torch.exp(-x)
        ctx.save_for_backward(expx, expnegx)
        return (expx - expnegx) / (expx + expnegx)

    @staticmethod
    def backward(ctx, grad_out):
        expx, expnegx = ctx.saved_tensors
        grad_x = grad_out * 4 / (expx + expnegx) ** 2
        return grad_x


@wrong(
    "extra gradients ignored",
    say="Print the three gradients in both passes. In which are they not 0?",
)
class ExtraGradientsIgnored(TanhExp):
    @staticmethod
    def backward(ctx, grad_out, grad_expx, grad_expnegx):
        expx, expnegx = ctx.saved_tensors
        grad_x = grad_out * 4 / (expx + expnegx) ** 2
        return grad_x


@wrong(
    "extra gradients without the exponential",
    say="The extra gradient, too, is multiplied by the derivative of its own output.",
)
class ExtraGradientsWithoutTheExponential(TanhExp):
    @staticmethod
    def backward(ctx, grad_out, grad_expx, grad_expnegx):
        expx, expnegx = ctx.saved_tensors
        grad_x = grad_out * 4 / (expx + expnegx) ** 2
        grad_x = grad_x + grad_expx
        grad_x = grad_x - grad_expnegx * expnegx
        return grad_x


@wrong("second exponential added", say="What is the derivative of exp(-x)?")
class SecondExponentialAdded(TanhExp):
    @staticmethod
    def backward(ctx, grad_out, grad_expx, grad_expnegx):
        expx, expnegx = ctx.saved_tensors
        grad_x = grad_out * 4 / (expx + expnegx) ** 2
        grad_x = grad_x + grad_expx * expx
        grad_x = grad_x + grad_expnegx * expnegx
        return grad_x


@wrong("second extra gradient forgotten", say="Each extra output has its own line.")
class SecondExtraGradientForgotten(TanhExp):
    @staticmethod
    def backward(ctx, grad_out, grad_expx, grad_expnegx):
        expx, expnegx = ctx.saved_tensors
        grad_x = grad_out * 4 / (expx + expnegx) ** 2
        grad_x = grad_x + grad_expx * expx
        return grad_x


@wrong("kept on ctx", say="Is autograd recording in forward?")
class KeptOnCtx(TanhExp):
    @staticmethod
    def forward(ctx, x):
        expx = torch.exp(x)
        expnegx = torch.exp(-x)
        ctx.expx, ctx.expnegx = expx, expnegx
        return (expx - expnegx) / (expx + expnegx)

    @staticmethod
    def backward(ctx, grad_out):
        expx, expnegx = ctx.expx, ctx.expnegx
        grad_x = grad_out * 4 / (expx + expnegx) ** 2
        return grad_x


@wrong("the Function without the function", say="How many results does apply return?")
def three_results(x):
    return TanhExp.apply(x)


@wrong("sum not squared", say="Write the quotient rule down.")
class SumNotSquared(TanhExp):
    @staticmethod
    def backward(ctx, grad_out, grad_expx, grad_expnegx):
        expx, expnegx = ctx.saved_tensors
        grad_x = grad_out * 4 / (expx + expnegx) / 2
        grad_x = grad_x + grad_expx * expx
        grad_x = grad_x - grad_expnegx * expnegx
        return grad_x


@wrong("4 forgotten", say="What is the slope at 0, where both exponentials are 1?")
class FourForgotten(TanhExp):
    @staticmethod
    def backward(ctx, grad_out, grad_expx, grad_expnegx):
        expx, expnegx = ctx.saved_tensors
        grad_x = grad_out / (expx + expnegx) ** 2
        grad_x = grad_x + grad_expx * expx
        grad_x = grad_x - grad_expnegx * expnegx
        return grad_x


@wrong(
    "names of the extra gradients swapped", say="In which order does forward return its outputs?"
)
class NamesSwapped(TanhExp):
    @staticmethod
    def backward(ctx, grad_out, grad_expnegx, grad_expx):
        expx, expnegx = ctx.saved_tensors
        grad_x = grad_out * 4 / (expx + expnegx) ** 2
        return grad_x + grad_expx * expx - grad_expnegx * expnegx


@wrong(
    "extra gradients times grad_out",
    say="Each output has a gradient of its own: is grad_out in that of expx?",
)
class ExtraGradientsTimesGradOut(TanhExp):
    @staticmethod
    def backward(ctx, grad_out, grad_expx, grad_expnegx):
        expx, expnegx = ctx.saved_tensors
        grad_x = grad_out * 4 / (expx + expnegx) ** 2
        return grad_x + grad_out * (grad_expx * expx - grad_expnegx * expnegx)


@wrong("extra gradients averaged", say="Where does the half come from?")
class ExtraGradientsAveraged(TanhExp):
    @staticmethod
    def backward(ctx, grad_out, grad_expx, grad_expnegx):
        expx, expnegx = ctx.saved_tensors
        grad_x = grad_out * 4 / (expx + expnegx) ** 2
        return grad_x + (grad_expx * expx - grad_expnegx * expnegx) / 2


@wrong("marked as non-differentiable", say="What does the mark say to autograd?")
class MarkedAsNonDifferentiable(TanhExp):
    @staticmethod
    def forward(ctx, x):
        expx, expnegx = torch.exp(x), torch.exp(-x)
        ctx.mark_non_differentiable(expx, expnegx)
        ctx.save_for_backward(expx, expnegx)
        return (expx - expnegx) / (expx + expnegx), expx, expnegx
