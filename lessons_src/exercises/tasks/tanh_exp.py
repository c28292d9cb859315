"""Exercise of lesson 3: (exp(x) - exp(-x)) / (exp(x) + exp(-x))."""

import torch
from torch.autograd import Function

from ..point import RETURN_IT, keeps_an_extra_output
from ..task import Point, Task, numbers

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
    cures=RETURN_IT,
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

WRONG = {
    "saved and not returned": """Which of the saved tensors is an input or an output?
        - return (expx - expnegx) / (expx + expnegx), expx, expnegx
        + return (expx - expnegx) / (expx + expnegx)
        - def backward(ctx, grad_out, grad_expx, grad_expnegx):
        + def backward(ctx, grad_out):
        - grad_x = grad_x + grad_expx * expx
        - grad_x = grad_x - grad_expnegx * expnegx

        - out, _expx, _expnegx = TanhExp.apply(x)
        - return out
        + return TanhExp.apply(x)
    """,
    "extra gradients ignored": """Print the three gradients in both passes. In which are they not 0?
        - grad_x = grad_x + grad_expx * expx
        - grad_x = grad_x - grad_expnegx * expnegx
    """,
    "extra gradients without the exponential": """
        The extra gradient, too, is multiplied by the derivative of its own output.
        - grad_x = grad_x + grad_expx * expx
        + grad_x = grad_x + grad_expx
    """,
    "second exponential added": """What is the derivative of exp(-x)?
        - grad_x = grad_x - grad_expnegx * expnegx
        + grad_x = grad_x + grad_expnegx * expnegx
    """,
    "second extra gradient forgotten": """Each extra output has its own line.
        - grad_x = grad_x - grad_expnegx * expnegx
    """,
    "kept on ctx": """Is autograd recording in forward?
        - ctx.save_for_backward(expx, expnegx)
        - return (expx - expnegx) / (expx + expnegx), expx, expnegx
        + ctx.expx, ctx.expnegx = expx, expnegx
        + return (expx - expnegx) / (expx + expnegx)
        - def backward(ctx, grad_out, grad_expx, grad_expnegx):
        -     expx, expnegx = ctx.saved_tensors
        + def backward(ctx, grad_out):
        +     expx, expnegx = ctx.expx, ctx.expnegx
        - grad_x = grad_x + grad_expx * expx
        - grad_x = grad_x - grad_expnegx * expnegx

        - out, _expx, _expnegx = TanhExp.apply(x)
        - return out
        + return TanhExp.apply(x)
    """,
    "the Function without the function": """How many results does apply return?
        - out, _expx, _expnegx = TanhExp.apply(x)
        - return out
        + return TanhExp.apply(x)
    """,
    "sum not squared": """Write the quotient rule down.
        - grad_x = grad_out * 4 / (expx + expnegx) ** 2
        + grad_x = grad_out * 4 / (expx + expnegx) / 2
    """,
    "4 forgotten": """What is the slope at 0, where both exponentials are 1?
        - grad_x = grad_out * 4 / (expx + expnegx) ** 2
        + grad_x = grad_out / (expx + expnegx) ** 2
    """,
    "names of the extra gradients swapped": """In which order does forward return its outputs?
        - def backward(ctx, grad_out, grad_expx, grad_expnegx):
        + def backward(ctx, grad_out, grad_expnegx, grad_expx):
        - grad_x = grad_x + grad_expx * expx
        - grad_x = grad_x - grad_expnegx * expnegx
        - return grad_x
        + return grad_x + grad_expx * expx - grad_expnegx * expnegx
    """,
    "extra gradients times grad_out": """
        Each output has a gradient of its own: is grad_out in that of expx?
        - grad_x = grad_x + grad_expx * expx
        - grad_x = grad_x - grad_expnegx * expnegx
        - return grad_x
        + return grad_x + grad_out * (grad_expx * expx - grad_expnegx * expnegx)
    """,
    "extra gradients averaged": """Where does the half come from?
        - grad_x = grad_x + grad_expx * expx
        - grad_x = grad_x - grad_expnegx * expnegx
        - return grad_x
        + return grad_x + (grad_expx * expx - grad_expnegx * expnegx) / 2
    """,
    "marked as non-differentiable": """What does the mark say to autograd?
        - expx = torch.exp(x)
        - expnegx = torch.exp(-x)
        + expx, expnegx = torch.exp(x), torch.exp(-x)
        + ctx.mark_non_differentiable(expx, expnegx)
    """,
}
