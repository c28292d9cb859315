"""Exercise of lesson 3: a * sigmoid(b)."""

import torch
from torch.autograd import Function

from .point import Point, keeps_an_extra_output
from .task import Task, WrongAnswers, numbers

TASK = Task(
    "gate",
    3,
    "a * sigmoid(b)",
    lambda a, b: a * (torch.tanh(b / 2) + 1) / 2,
    [
        "Both gradients contain s = sigmoid(b). Compute it once in forward, and keep it.",
        "The gradient of a is grad_out * s, that of b is grad_out * a * s * (1 - s).",
        "s is neither an input nor the result. Save it and return it besides the result; the "
        "function below the class returns the result alone.",
        "backward gets a second gradient, that of s. s depends on b only: add grad_s * s * (1 - s) "
        "to grad_b.",
    ],
    points=((numbers(0.5, 1.0, -1.3), numbers(0.7, -0.4, 1.9)),),
    inputs=("a", "b"),
    slips={
        "For b you return grad_out * a * s. The factor 1 - s is missing.": (
            lambda g, a, b: g * a * torch.sigmoid(b)
        )
    },
    point=Point(
        "to keep s: save what backward needs, and return it as an extra output",
        keeps_an_extra_output,
    ),
    wide=(
        (numbers(0.0, -3000.0, 2.0, -0.3, 5.0, 70.0), numbers(3.0, 0.0, -0.01, 12.0, -20.0, 100.0)),
    ),
)

# The solution


class Gate(Function):
    @staticmethod
    def forward(ctx, a, b):
        s = torch.sigmoid(b)
        ctx.save_for_backward(a, s)
        return a * s, s

    @staticmethod
    def backward(ctx, grad_out, grad_s):
        a, s = ctx.saved_tensors
        grad_a = grad_out * s
        grad_b = grad_out * a * s * (1 - s) + grad_s * s * (1 - s)
        return grad_a, grad_b


def gate(a, b):
    out, _s = Gate.apply(a, b)
    return out


SOLUTION = (Gate, gate)

# Wrong answers

wrong = WrongAnswers()


@wrong("saved and not returned", say="Which of the two saved tensors is an input or an output?")
class SavedAndNotReturned(Gate):
    @staticmethod
    def forward(ctx, a, b):
        s = torch.sigmoid(b)
        ctx.save_for_backward(a, s)
        return a * s

    @staticmethod
    def backward(ctx, grad_out):
        a, s = ctx.saved_tensors
        return grad_out * s, grad_out * a * s * (1 - s)


@wrong("kept on ctx", say="Is autograd recording in forward?")
class KeptOnCtx(Gate):
    @staticmethod
    def forward(ctx, a, b):
        ctx.s = torch.sigmoid(b)
        ctx.save_for_backward(a)
        return a * ctx.s

    @staticmethod
    def backward(ctx, grad_out):
        (a,) = ctx.saved_tensors
        return grad_out * ctx.s, grad_out * a * ctx.s * (1 - ctx.s)


@wrong("extra gradient ignored", say="When does grad_s differ from 0?")
class ExtraGradientIgnored(Gate):
    @staticmethod
    def backward(ctx, grad_out, grad_s):
        a, s = ctx.saved_tensors
        return grad_out * s, grad_out * a * s * (1 - s)


@wrong("extra gradient added to grad_a", say="On which input does s depend?")
class ExtraGradientAddedToGradA(Gate):
    @staticmethod
    def backward(ctx, grad_out, grad_s):
        a, s = ctx.saved_tensors
        return grad_out * s + grad_s * s * (1 - s), grad_out * a * s * (1 - s)


@wrong("extra gradient without its derivative", say="What is the derivative of s?")
class ExtraGradientWithoutItsDerivative(Gate):
    @staticmethod
    def backward(ctx, grad_out, grad_s):
        a, s = ctx.saved_tensors
        return grad_out * s, grad_out * a * s * (1 - s) + grad_s


@wrong("1 - s forgotten", say="What is the slope of the sigmoid where it is nearly 1?")
class OneMinusSForgotten(Gate):
    @staticmethod
    def backward(ctx, grad_out, grad_s):
        a, s = ctx.saved_tensors
        return grad_out * s, grad_out * a * s + grad_s * s


@wrong("gradients swapped", say="In which order does forward get its arguments?")
class GradientsSwapped(Gate):
    @staticmethod
    def backward(ctx, grad_out, grad_s):
        a, s = ctx.saved_tensors
        return grad_out * a * s * (1 - s) + grad_s * s * (1 - s), grad_out * s


@wrong("a detached in backward", say="Differentiate by a and then by b: is a still there?")
class ADetachedInBackward(Gate):
    @staticmethod
    def backward(ctx, grad_out, grad_s):
        a, s = ctx.saved_tensors
        return grad_out * s, (grad_out * a.detach() + grad_s) * s * (1 - s)


@wrong("the Function without the function", say="How many results does apply return?")
def two_results(a, b):
    return Gate.apply(a, b)
