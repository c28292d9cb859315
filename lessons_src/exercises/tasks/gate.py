"""Exercise of lesson 3: a * sigmoid(b)."""

import torch
from torch.autograd import Function

from ..point import RETURN_IT, keeps_an_extra_output
from ..task import Point, Task, numbers

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
    cures=RETURN_IT,
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

WRONG = {
    "saved and not returned": """Which of the two saved tensors is an input or an output?
        - return a * s, s
        + return a * s
        - def backward(ctx, grad_out, grad_s):
        + def backward(ctx, grad_out):
        - grad_a = grad_out * s
        - grad_b = grad_out * a * s * (1 - s) + grad_s * s * (1 - s)
        - return grad_a, grad_b
        + return grad_out * s, grad_out * a * s * (1 - s)
        - out, _s = Gate.apply(a, b)
        - return out
        + return Gate.apply(a, b)
    """,
    "kept on ctx": """Is autograd recording in forward?
        - s = torch.sigmoid(b)
        - ctx.save_for_backward(a, s)
        - return a * s, s
        + ctx.s = torch.sigmoid(b)
        + ctx.save_for_backward(a)
        + return a * ctx.s
        - def backward(ctx, grad_out, grad_s):
        -     a, s = ctx.saved_tensors
        -     grad_a = grad_out * s
        -     grad_b = grad_out * a * s * (1 - s) + grad_s * s * (1 - s)
        -     return grad_a, grad_b
        + def backward(ctx, grad_out):
        +     (a,) = ctx.saved_tensors
        +     return grad_out * ctx.s, grad_out * a * ctx.s * (1 - ctx.s)
        - out, _s = Gate.apply(a, b)
        - return out
        + return Gate.apply(a, b)
    """,
    "extra gradient ignored": """When does grad_s differ from 0?
        - grad_a = grad_out * s
        - grad_b = grad_out * a * s * (1 - s) + grad_s * s * (1 - s)
        - return grad_a, grad_b
        + return grad_out * s, grad_out * a * s * (1 - s)
    """,
    "extra gradient added to grad_a": """On which input does s depend?
        - grad_a = grad_out * s
        - grad_b = grad_out * a * s * (1 - s) + grad_s * s * (1 - s)
        - return grad_a, grad_b
        + return grad_out * s + grad_s * s * (1 - s), grad_out * a * s * (1 - s)
    """,
    "extra gradient without its derivative": """What is the derivative of s?
        - grad_a = grad_out * s
        - grad_b = grad_out * a * s * (1 - s) + grad_s * s * (1 - s)
        - return grad_a, grad_b
        + return grad_out * s, grad_out * a * s * (1 - s) + grad_s
    """,
    "1 - s forgotten": """What is the slope of the sigmoid where it is nearly 1?
        - grad_a = grad_out * s
        - grad_b = grad_out * a * s * (1 - s) + grad_s * s * (1 - s)
        - return grad_a, grad_b
        + return grad_out * s, grad_out * a * s + grad_s * s
    """,
    "gradients swapped": """In which order does forward get its arguments?
        - grad_a = grad_out * s
        - grad_b = grad_out * a * s * (1 - s) + grad_s * s * (1 - s)
        - return grad_a, grad_b
        + return grad_out * a * s * (1 - s) + grad_s * s * (1 - s), grad_out * s
    """,
    "a detached in backward": """Differentiate by a and then by b: is a still there?
        - grad_a = grad_out * s
        - grad_b = grad_out * a * s * (1 - s) + grad_s * s * (1 - s)
        - return grad_a, grad_b
        + return grad_out * s, (grad_out * a.detach() + grad_s) * s * (1 - s)
    """,
    "the Function without the function": """How many results does apply return?
        - out, _s = Gate.apply(a, b)
        - return out
        + return Gate.apply(a, b)
    """,
}
