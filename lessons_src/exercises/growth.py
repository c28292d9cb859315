"""Exercise of lesson 5: a * e**b in NumPy, for two tensors."""

import numpy as np
import torch
from torch.autograd import Function

from lessons_src.untracked_backward import in_numpy

from .point import Point, applies_a_function_in_backward
from .task import Task, WrongAnswers, numbers

TASK = Task(
    "growth",
    5,
    "a * e**b",
    lambda a, b: a * torch.exp(b),
    [
        "Growth.backward returns two gradients, g e^b for a and g a e^b for b: let GrowthBackward "
        "compute both in its forward, from g, a and b, and return both.",
        "So the backward of GrowthBackward gets two arguments after ctx: h_a, how the final number "
        "changes with grad_a, and h_b, how it changes with grad_b. It returns three gradients, for "
        "g, a and b.",
        "Each of the three is a sum over both outputs: h_a times the derivative of g e^b, plus h_b "
        "times the derivative of g a e^b. A term is 0 where that letter does not occur.",
        "For g: h_a e^b + h_b a e^b. For a: h_b g e^b. For b: h_a g e^b + h_b g a e^b.",
    ],
    points=((numbers(0.5, 1.0, -1.3), numbers(0.7, -0.4, 1.9)),),
    inputs=("a", "b"),
    wide=(
        (numbers(0.0, -4000.0, 2.0, -0.3, 5.0, 70.0), numbers(3.0, 0.0, -0.01, 9.0, -20.0, -2.0)),
    ),
    point=Point(
        "a Function for backward, whose derivative you write", applies_a_function_in_backward
    ),
    third=False,
)

# The solution


class GrowthBackward(Function):
    @staticmethod
    def forward(ctx, grad_out, a, b):
        ctx.save_for_backward(grad_out, a, b)
        exp = in_numpy(np.exp, b)
        return grad_out * exp, grad_out * a * exp

    @staticmethod
    def backward(ctx, h_a, h_b):
        grad_out, a, b = ctx.saved_tensors
        exp = in_numpy(np.exp, b)
        for_grad_out = (h_a + h_b * a) * exp
        for_a = h_b * grad_out * exp
        for_b = (h_a + h_b * a) * grad_out * exp
        return for_grad_out, for_a, for_b


class Growth(Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * in_numpy(np.exp, b)

    @staticmethod
    def backward(ctx, grad_out):
        a, b = ctx.saved_tensors
        return GrowthBackward.apply(grad_out, a, b)


SOLUTION = (GrowthBackward, Growth)

# Wrong answers


def growth_with(backward):
    """`Growth` with another Function in the place of GrowthBackward."""

    class Other(Growth):
        @staticmethod
        def backward(ctx, grad_out):
            return backward.apply(grad_out, *ctx.saved_tensors)

    return Other.apply


wrong = WrongAnswers()


@wrong(
    "None for grad_out",
    say="In a network grad_out depends on a and b: lesson 5, break it 2.",
    answer=growth_with,
)
class NoneForGradOut(GrowthBackward):
    @staticmethod
    def backward(ctx, h_a, h_b):
        _, for_a, for_b = GrowthBackward.backward(ctx, h_a, h_b)
        return None, for_a, for_b


@wrong(
    "None for a",
    say="grad_a does not contain a. Does grad_b?",
    answer=growth_with,
)
class NoneForA(GrowthBackward):
    @staticmethod
    def backward(ctx, h_a, h_b):
        for_grad_out, _, for_b = GrowthBackward.backward(ctx, h_a, h_b)
        return for_grad_out, None, for_b


@wrong("each h for its own input", say="Which of the two outputs contain b?", answer=growth_with)
class EachHForItsOwnInput(GrowthBackward):
    @staticmethod
    def backward(ctx, h_a, h_b):
        grad_out, a, b = ctx.saved_tensors
        exp = in_numpy(np.exp, b)
        return (h_a + h_b * a) * exp, h_a * grad_out * exp, h_b * grad_out * a * exp


@wrong(
    "grad_a left out for grad_out",
    say="grad_out is a factor of both outputs.",
    answer=growth_with,
)
class GradALeftOutForGradOut(GrowthBackward):
    @staticmethod
    def backward(ctx, h_a, h_b):
        grad_out, a, b = ctx.saved_tensors
        exp = in_numpy(np.exp, b)
        return h_b * a * exp, h_b * grad_out * exp, (h_a + h_b * a) * grad_out * exp


@wrong("grad_a left out for b", say="Which of the two outputs contain b?", answer=growth_with)
class GradALeftOutForB(GrowthBackward):
    @staticmethod
    def backward(ctx, h_a, h_b):
        grad_out, a, b = ctx.saved_tensors
        exp = in_numpy(np.exp, b)
        return (h_a + h_b * a) * exp, h_b * grad_out * exp, h_b * grad_out * a * exp


@wrong("h_a and h_b swapped", say="In which order does its forward return?", answer=growth_with)
class HSwapped(GrowthBackward):
    @staticmethod
    def backward(ctx, h_a, h_b):
        return GrowthBackward.backward(ctx, h_b, h_a)


@wrong("gradients swapped", say="In which order does its forward get a and b?", answer=growth_with)
class GradientsSwapped(GrowthBackward):
    @staticmethod
    def backward(ctx, h_a, h_b):
        for_grad_out, for_a, for_b = GrowthBackward.backward(ctx, h_a, h_b)
        return for_grad_out, for_b, for_a


@wrong("grad_out forgotten for b", say="Which of the three contain g?", answer=growth_with)
class GradOutForgottenForB(GrowthBackward):
    @staticmethod
    def backward(ctx, h_a, h_b):
        grad_out, a, b = ctx.saved_tensors
        exp = in_numpy(np.exp, b)
        return (h_a + h_b * a) * exp, h_b * grad_out * exp, (h_a + h_b * a) * exp


@wrong("two gradients only", say="How many arguments has its forward?", answer=growth_with)
class TwoGradientsOnly(GrowthBackward):
    @staticmethod
    def backward(ctx, h_a, h_b):
        return GrowthBackward.backward(ctx, h_a, h_b)[1:]


@wrong("one h only", say="How many outputs has its forward?", answer=growth_with)
class OneHOnly(GrowthBackward):
    @staticmethod
    def backward(ctx, h):
        grad_out, a, b = ctx.saved_tensors
        exp = in_numpy(np.exp, b)
        return h * exp, h * grad_out * exp, h * grad_out * a * exp


@wrong("one tensor returned", say="How many things does torch.stack return?", answer=growth_with)
class OneTensorReturned(GrowthBackward):
    @staticmethod
    def backward(ctx, h_a, h_b):
        return torch.stack(GrowthBackward.backward(ctx, h_a, h_b))


@wrong("inputs on ctx", say="What if b is edited between the two passes?", answer=growth_with)
class InputsOnCtx(GrowthBackward):
    @staticmethod
    def forward(ctx, grad_out, a, b):
        ctx.inputs = grad_out, a, b
        exp = in_numpy(np.exp, b)
        return grad_out * exp, grad_out * a * exp

    @staticmethod
    def backward(ctx, h_a, h_b):
        grad_out, a, b = ctx.inputs
        exp = in_numpy(np.exp, b)
        return (h_a + h_b * a) * exp, h_b * grad_out * exp, (h_a + h_b * a) * grad_out * exp


@wrong("the first backward swapped", say="In which order does forward get a and b?")
class TheFirstBackwardSwapped(Growth):
    @staticmethod
    def backward(ctx, grad_out):
        grad_a, grad_b = GrowthBackward.apply(grad_out, *ctx.saved_tensors)
        return grad_b, grad_a


@wrong("no second Function", say="What does detach hide here?")
class NoSecondFunction(Growth):
    @staticmethod
    def backward(ctx, grad_out):
        a, b = ctx.saved_tensors
        exp = in_numpy(np.exp, b)
        return grad_out * exp, grad_out * a * exp


@wrong("the exponential on ctx", say="Is autograd recording in forward?")
class TheExponentialOnCtx(Growth):
    @staticmethod
    def forward(ctx, a, b):
        ctx.exp = in_numpy(np.exp, b)
        ctx.save_for_backward(a)
        return a * ctx.exp

    @staticmethod
    def backward(ctx, grad_out):
        (a,) = ctx.saved_tensors
        return grad_out * ctx.exp, grad_out * a * ctx.exp
