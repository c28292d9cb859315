"""Exercise of lesson 5: scipy.special.dawsn of x, as a tensor."""

import torch
from scipy.special import dawsn
from torch.autograd import Function

from lessons_src.untracked_backward import in_numpy

from ..point import leaves_torch_in_backward
from ..task import NO_NUMBER, Point, Task, numbers


def dawson(x):
    """Dawson function, exp(-x²) times the integral of exp(t²) from 0 to x, by a power series.

    The terms of the integral all have one sign, so nothing cancels; enough of them for |x| <= 5.
    """
    k = torch.arange(110, dtype=torch.float64)
    terms = x[..., None] ** (2 * k + 1) / (2 * k + 1) / torch.exp(torch.lgamma(k + 1))
    return torch.exp(-(x**2)) * terms.sum(-1)


def first(x):
    return 1 - 2 * x * dawson(x)


TASK = Task(
    "dawson",
    5,
    "scipy.special.dawsn of x, as a tensor",
    dawson,
    [
        "in_numpy(dawsn, x) calls dawsn on the array behind x and makes the result a tensor.",
        "Write a function of one array for D', with dawsn in it, and call it through in_numpy.",
        "def first(x): return 1 - 2 * x * dawsn(x) is that function; backward returns grad_out "
        "times in_numpy(first, x).",
    ],
    order=1,
    terms={
        "grad_out": lambda g, x: g,
        "-2 * grad_out * x * D(x)": lambda g, x: -2 * g * x * dawson(x),
    },
    slips={
        "That is grad_out * (1 + 2 x D). Look at the sign.": (
            lambda g, x: g * (1 + 2 * x * dawson(x))
        ),
        "That is grad_out * (1 - x D). The factor 2 is missing.": (
            lambda g, x: g * (1 - x * dawson(x))
        ),
        "That is grad_out * (1 - 2 x). The factor D(x) is missing.": lambda g, x: g * (1 - 2 * x),
        "That is grad_out * (1 - 2 x² D). One x is enough.": (
            lambda g, x: g * (1 - 2 * x**2 * dawson(x))
        ),
        "That is grad_out * (1 - 2 D). A factor x is missing in the second term.": (
            lambda g, x: g * (1 - 2 * dawson(x))
        ),
        "That is grad_out * (-2 x D). The 1 is missing.": lambda g, x: g * (-2 * x * dawson(x)),
    },
    wide=((numbers(0.0, 0.01, -0.3, 2.2, -3.5, 5.0),),),
    shapes=NO_NUMBER,
    point=Point(
        "a derivative that torch does not compute: the next one gives it a second derivative",
        leaves_torch_in_backward,
    ),
    third=False,
)

# The solution


def dawson_first(x):
    return 1 - 2 * x * dawsn(x)


class Dawson(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return in_numpy(dawsn, x)

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return grad_out * in_numpy(dawson_first, x)


SOLUTION = (
    dawson_first,
    Dawson,
)

# Wrong answers

WRONG = {
    "plus instead of minus": """
        The curve falls for a large x. Can this derivative be negative there?
        - return 1 - 2 * x * dawsn(x)
        + return 1 + 2 * x * dawsn(x)
    """,
    "x forgotten": """Copy the formula once more, slowly.
        - return 1 - 2 * x * dawsn(x)
        + return 1 - 2 * dawsn(x)
    """,
    "1 forgotten": """What is the slope at 0?
        - return 1 - 2 * x * dawsn(x)
        + return -2 * x * dawsn(x)
    """,
    "grad_out forgotten": """backward returns a product. Of what?
        - return grad_out * in_numpy(dawson_first, x)
        + return in_numpy(dawson_first, x)
    """,
    "an array returned": """What type does autograd expect from backward?
        - return grad_out * in_numpy(dawson_first, x)
        + return grad_out.numpy() * dawson_first(x.detach().numpy())
    """,
    "an array as the result": """What type does forward return?
        - return in_numpy(dawsn, x)
        + return dawsn(x.numpy())
    """,
    "x changed through NumPy": """The array and the tensor share their memory.
        - return 1 - 2 * x * dawsn(x)
        + slope = 1 - 2 * x * dawsn(x)
        + x *= 0
        + return slope
    """,
    "grad_out changed through NumPy": """The array and the tensor share their memory.
        - def dawson_first(x):
        -     return 1 - 2 * x * dawsn(x)
        + def dawson_first(grad_out, x):
        +     grad_out *= 1 - 2 * x * dawsn(x)
        +     return grad_out
        - return grad_out * in_numpy(dawson_first, x)
        + return in_numpy(dawson_first, grad_out, x)
    """,
    "input on ctx": """What if the caller edits x before backward runs?
        - ctx.save_for_backward(x)
        + ctx.x = x
        - (x,) = ctx.saved_tensors
        - return grad_out * in_numpy(dawson_first, x)
        + return grad_out * in_numpy(dawson_first, ctx.x)
    """,
}
