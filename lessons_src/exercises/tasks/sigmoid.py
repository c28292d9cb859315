"""Exercise of lesson 2: 1 / (1 + exp(-x))."""

import torch
from torch.autograd import Function

from ..point import keeps_the_result
from ..task import BY_OUTPUT, Point, Task, numbers

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
    far=(numbers(710.0, -710.0),),
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

WRONG = {
    "output on ctx": """
        Drop the result and look with a weak reference whether its node is still there.
        - ctx.save_for_backward(out)
        + ctx.out = out
        - (out,) = ctx.saved_tensors
        + out = ctx.out
    """,
    "detached output on ctx": """detach makes a constant of it: compare F(x)² with the truth.
        - ctx.save_for_backward(out)
        + ctx.out = out.detach()
        - (out,) = ctx.saved_tensors
        + out = ctx.out
    """,
    "a copy returned": """Is the tensor that you save the tensor that you return?
        - return out
        + return out.clone()
    """,
    "input saved, formula in the output": """
        Which tensor do you hold in backward: what went in, or what came out?
        - ctx.save_for_backward(out)
        + ctx.save_for_backward(x)
    """,
    "1 - out forgotten": """What is the slope far out on the right, where out is 1?
        - return grad_out * out * (1 - out)
        + return grad_out * out
    """,
    "plus instead of minus": """The curve is flat at both ends: both factors must be able to vanish.
        - return grad_out * out * (1 - out)
        + return grad_out * out * (1 + out)
    """,
    "sign in forward": """Is the result near 1 or near 0 for a large x?
        - out = 1 / (1 + torch.exp(-x))
        + out = 1 / (1 + torch.exp(x))
    """,
    "derivative saved": """It was computed in forward: does it have a graph?
        - ctx.save_for_backward(out)
        + ctx.save_for_backward(out * (1 - out))
        - (out,) = ctx.saved_tensors
        - return grad_out * out * (1 - out)
        + (slope,) = ctx.saved_tensors
        + return grad_out * slope
    """,
    "x clamped at 5": """What should the result be at x = 12?
          def forward(ctx, x):
        +     x = x.clamp(-5, 5)
    """,
    "a view of the output saved": """Is a view the tensor that forward returns?
        - ctx.save_for_backward(out)
        + ctx.save_for_backward(out.view_as(out))
    """,
    "grad_out changed in place": """Who else holds grad_out?
        - return grad_out * out * (1 - out)
        + return grad_out.mul_(out * (1 - out))
    """,
    "output on the class": """What if F is called twice before backward runs?
        - out = 1 / (1 + torch.exp(-x))
        - ctx.save_for_backward(out)
        - return out
        + Sigmoid.out = 1 / (1 + torch.exp(-x))
        + return Sigmoid.out
        - (out,) = ctx.saved_tensors
        + out = Sigmoid.out
    """,
}
