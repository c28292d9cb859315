"""Exercise of lesson 3: x / sqrt(sum of x²)."""

import torch
from torch.autograd import Function

from ..point import RETURN_IT, keeps_an_extra_output
from ..task import MATRICES, Point, Task, numbers


def _length(x):
    return torch.linalg.vector_norm(x)


TASK = Task(
    "normalise",
    3,
    "x / sqrt(sum of x²), with the sum over all elements",
    lambda x: x / _length(x),
    [
        "backward needs y and r. Which of the two is an output already, and what is the other?",
        "Every x is in r, so the derivative has two terms: "
        "(g - y * sum(g * y)) / r, with g for grad_out and y for the result.",
        "The derivative of r with respect to x is x / r, which is y. So add, with "
        "grad_r for the gradient of r, grad_r * y to grad_x.",
    ],
    slips={
        "That is grad_out / norm. The norm depends on x too, so a second term is missing.": (
            lambda g, x: g / _length(x)
        ),
        "In your second term, every x knows of itself only: take the sum of grad_out * out "
        "over all elements.": lambda g, x: g * (1 - (x / _length(x)) ** 2) / _length(x),
        "You divide by the norm twice. Once is enough, for both terms.": (
            lambda g, x: (g - x * (g * x).sum() / _length(x) ** 2) / _length(x) ** 2
        ),
        "In your second term stands a mean. It should be the sum of grad_out * out.": (
            lambda g, x: (g - x * (g * x).mean() / _length(x) ** 2) / _length(x)
        ),
        "Your two terms are added. The second belongs subtracted.": (
            lambda g, x: (g + x * (g * x).sum() / _length(x) ** 2) / _length(x)
        ),
    },
    terms={
        "grad_out / r": lambda g, x: g / _length(x),
        "-y * sum(grad_out * y) / r": lambda g, x: -x * (g * x).sum() / _length(x) ** 3,
    },
    wide=(
        (numbers(0.3, 0.0, -2.0, 7.0, 0.01, 40.0),),
        (numbers(300.0, -3000.0),),
        (numbers(0.002, -0.001),),
    ),
    shapes=MATRICES,
    cures=RETURN_IT,
    point=Point(
        "to keep r: save what backward needs, and return it as an extra output",
        keeps_an_extra_output,
    ),
)

# The solution


class Normalise(Function):
    @staticmethod
    def forward(ctx, x):
        norm = torch.sqrt((x**2).sum())
        out = x / norm
        ctx.save_for_backward(out, norm)
        return out, norm

    @staticmethod
    def backward(ctx, grad_out, grad_norm):
        out, norm = ctx.saved_tensors
        grad_x = (grad_out - out * (grad_out * out).sum()) / norm
        grad_x = grad_x + grad_norm * out
        return grad_x


def normalise(x):
    out, _norm = Normalise.apply(x)
    return out


SOLUTION = (
    Normalise,
    normalise,
)

# Wrong answers

WRONG = {
    "norm taken for a constant": """If one element grows, what happens to the others?
        - grad_x = (grad_out - out * (grad_out * out).sum()) / norm
        + grad_x = grad_out / norm
    """,
    "sum forgotten": """Does the third result depend on the first x?
        - grad_x = (grad_out - out * (grad_out * out).sum()) / norm
        + grad_x = (grad_out - out * (grad_out * out)) / norm
    """,
    "terms added": """Stretch x as a whole: the result must not move, so the terms must cancel.
        - grad_x = (grad_out - out * (grad_out * out).sum()) / norm
        + grad_x = (grad_out + out * (grad_out * out).sum()) / norm
    """,
    "saved and not returned": """out is an output. What is norm?
        - return out, norm
        + return out
        - def backward(ctx, grad_out, grad_norm):
        + def backward(ctx, grad_out):
        - grad_x = grad_x + grad_norm * out

        - out, _norm = Normalise.apply(x)
        - return out
        + return Normalise.apply(x)
    """,
    "extra gradient ignored": """When does grad_norm differ from 0?
        - grad_x = grad_x + grad_norm * out
    """,
    "extra gradient subtracted": """Does norm grow or shrink with a positive x?
        - grad_x = grad_x + grad_norm * out
        + grad_x = grad_x - grad_norm * out
    """,
    "norm on ctx": """ctx holds it, and does autograd know where it comes from?
        - ctx.save_for_backward(out, norm)
        - return out, norm
        + ctx.save_for_backward(out)
        + ctx.norm = norm
        + return out
        - def backward(ctx, grad_out, grad_norm):
        -     out, norm = ctx.saved_tensors
        + def backward(ctx, grad_out):
        +     (out,), norm = ctx.saved_tensors, ctx.norm
        - grad_x = grad_x + grad_norm * out

        - out, _norm = Normalise.apply(x)
        - return out
        + return Normalise.apply(x)
    """,
    "along one axis": """Try an x of shape (2, 3): is its length one number?
        - norm = torch.sqrt((x**2).sum())
        + norm = torch.sqrt((x**2).sum(0))
        - grad_x = (grad_out - out * (grad_out * out).sum()) / norm
        - grad_x = grad_x + grad_norm * out
        - return grad_x
        + grad_x = (grad_out - out * (grad_out * out).sum(0)) / norm
        + return grad_x + grad_norm * out
    """,
    "norm as a number on ctx": """Can a graph lead from a Python number to x?
        - norm = torch.sqrt((x**2).sum())
        - out = x / norm
        - ctx.save_for_backward(out, norm)
        - return out, norm
        + ctx.norm = x.norm().item()
        + out = x / ctx.norm
        + ctx.save_for_backward(out)
        + return out
        - def backward(ctx, grad_out, grad_norm):
        -     out, norm = ctx.saved_tensors
        -     grad_x = (grad_out - out * (grad_out * out).sum()) / norm
        -     grad_x = grad_x + grad_norm * out
        -     return grad_x
        + def backward(ctx, grad_out):
        +     (out,) = ctx.saved_tensors
        +     return (grad_out - out * (grad_out * out).sum()) / ctx.norm
        - out, _norm = Normalise.apply(x)
        - return out
        + return Normalise.apply(x)
    """,
}
