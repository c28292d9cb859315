"""Exercise of lesson 5: a * e**b in NumPy, for two tensors."""

import numpy as np
import torch
from torch.autograd import Function

from lessons_src.untracked_backward import in_numpy

from ..point import applies_a_function_without_exponentials_of_torch
from ..task import Point, Task, numbers

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
        "NumPy in a Function for backward, whose derivative you write",
        applies_a_function_without_exponentials_of_torch,
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

WRONG = {
    "None for grad_out": """In a network grad_out depends on a and b: lesson 5, break it 2.
        - return for_grad_out, for_a, for_b
        + return None, for_a, for_b
    """,
    "None for a": """grad_a does not contain a. Does grad_b?
        - return for_grad_out, for_a, for_b
        + return for_grad_out, None, for_b
    """,
    "each h for its own input": """Which of the two outputs contain b?
        - for_grad_out = (h_a + h_b * a) * exp
        - for_a = h_b * grad_out * exp
        - for_b = (h_a + h_b * a) * grad_out * exp
        - return for_grad_out, for_a, for_b
        + return (h_a + h_b * a) * exp, h_a * grad_out * exp, h_b * grad_out * a * exp
    """,
    "grad_a left out for grad_out": """grad_out is a factor of both outputs.
        - for_grad_out = (h_a + h_b * a) * exp
        - for_a = h_b * grad_out * exp
        - for_b = (h_a + h_b * a) * grad_out * exp
        - return for_grad_out, for_a, for_b
        + return h_b * a * exp, h_b * grad_out * exp, (h_a + h_b * a) * grad_out * exp
    """,
    "grad_a left out for b": """Which of the two outputs contain b?
        - for_grad_out = (h_a + h_b * a) * exp
        - for_a = h_b * grad_out * exp
        - for_b = (h_a + h_b * a) * grad_out * exp
        - return for_grad_out, for_a, for_b
        + return (h_a + h_b * a) * exp, h_b * grad_out * exp, h_b * grad_out * a * exp
    """,
    "h_a and h_b swapped": """In which order does its forward return?
        - def backward(ctx, h_a, h_b):
        + def backward(ctx, h_b, h_a):
    """,
    "gradients swapped": """In which order does its forward get a and b?
        - return for_grad_out, for_a, for_b
        + return for_grad_out, for_b, for_a
    """,
    "grad_out forgotten for b": """Which of the three contain g?
        - for_grad_out = (h_a + h_b * a) * exp
        - for_a = h_b * grad_out * exp
        - for_b = (h_a + h_b * a) * grad_out * exp
        - return for_grad_out, for_a, for_b
        + return (h_a + h_b * a) * exp, h_b * grad_out * exp, (h_a + h_b * a) * exp
    """,
    "two gradients only": """How many arguments has its forward?
        - return for_grad_out, for_a, for_b
        + return for_a, for_b
    """,
    "one h only": """How many outputs has its forward?
        - def backward(ctx, h_a, h_b):
        + def backward(ctx, h):
        - for_grad_out = (h_a + h_b * a) * exp
        - for_a = h_b * grad_out * exp
        - for_b = (h_a + h_b * a) * grad_out * exp
        - return for_grad_out, for_a, for_b
        + return h * exp, h * grad_out * exp, h * grad_out * a * exp
    """,
    "one tensor returned": """How many things does torch.stack return?
        - return for_grad_out, for_a, for_b
        + return torch.stack([for_grad_out, for_a, for_b])
    """,
    "inputs on ctx": """What if b is edited between the two passes?
        - ctx.save_for_backward(grad_out, a, b)
        + ctx.inputs = grad_out, a, b
        - grad_out, a, b = ctx.saved_tensors
        + grad_out, a, b = ctx.inputs
        - for_grad_out = (h_a + h_b * a) * exp
        - for_a = h_b * grad_out * exp
        - for_b = (h_a + h_b * a) * grad_out * exp
        - return for_grad_out, for_a, for_b
        + return (h_a + h_b * a) * exp, h_b * grad_out * exp, (h_a + h_b * a) * grad_out * exp
    """,
    "the first backward swapped": """In which order does forward get a and b?
        - a, b = ctx.saved_tensors
        - return GrowthBackward.apply(grad_out, a, b)
        + grad_a, grad_b = GrowthBackward.apply(grad_out, *ctx.saved_tensors)
        + return grad_b, grad_a
    """,
    "no second Function": """What does detach hide here?
        - return GrowthBackward.apply(grad_out, a, b)
        + exp = in_numpy(np.exp, b)
        + return grad_out * exp, grad_out * a * exp
    """,
    "the exponential on ctx": """Is autograd recording in forward?
        - ctx.save_for_backward(a, b)
        - return a * in_numpy(np.exp, b)
        + ctx.exp = in_numpy(np.exp, b)
        + ctx.save_for_backward(a)
        + return a * ctx.exp
        - a, b = ctx.saved_tensors
        - return GrowthBackward.apply(grad_out, a, b)
        + (a,) = ctx.saved_tensors
        + return grad_out * ctx.exp, grad_out * a * ctx.exp
    """,
}
