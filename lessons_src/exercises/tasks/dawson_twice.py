"""Exercise of lesson 5: scipy.special.dawsn of x, as a tensor."""

from scipy.special import dawsn
from torch.autograd import Function

from lessons_src.untracked_backward import in_numpy

from ..point import applies_a_function_in_backward
from ..task import NO_NUMBER, Point, Task, numbers
from .dawson import dawson, first

TASK = Task(
    "dawson_twice",
    5,
    "scipy.special.dawsn of x, as a tensor",
    dawson,
    [
        "DawsonBackward computes grad_x = g D'(x), a function of two variables, g and x.",
        "Its backward gets h and returns two products: h D'(x) for g, and h g D''(x) for x.",
        "D'' is the derivative of 1 - 2 x D: by the product rule -2 D - 2 x D'.",
    ],
    terms={
        "grad_out": lambda g, x: g,
        "-2 * grad_out * x * D(x)": lambda g, x: -2 * g * x * dawson(x),
    },
    slips={
        "That is grad_out * (1 - x D). The factor 2 is missing.": (
            lambda g, x: g * (1 - x * dawson(x))
        ),
    },
    second_slips={
        "That is h g (-2 D - x D'). The second term has a factor 2, too.": (
            lambda h, g, x: h * g * (-2 * dawson(x) - x * first(x))
        ),
        "That is h g (-2 D + 2 x D'). Both terms have a minus.": (
            lambda h, g, x: h * g * (-2 * dawson(x) + 2 * x * first(x))
        ),
        "That is h g (-2 D): the product rule has a second term, -2 x D'.": (
            lambda h, g, x: h * g * (-2 * dawson(x))
        ),
        "That is h g (-2 x D'): the product rule has a second term, -2 D.": (
            lambda h, g, x: h * g * (-2 * x * first(x))
        ),
        "That is h g D', with the first derivative: for x, the second one is needed.": (
            lambda h, g, x: h * g * first(x)
        ),
    },
    wide=((numbers(0.0, 0.01, -0.3, 2.2, -3.5, 5.0),),),
    shapes=NO_NUMBER,
    point=Point(
        "a Function for backward, whose derivative you write", applies_a_function_in_backward
    ),
    third=False,
)

# The solution


def dawson_first(x):
    return 1 - 2 * x * dawsn(x)


def dawson_second(x):
    return -2 * dawsn(x) - 2 * x * dawson_first(x)


class DawsonBackward(Function):
    @staticmethod
    def forward(ctx, grad_out, x):
        ctx.save_for_backward(grad_out, x)
        return grad_out * in_numpy(dawson_first, x)

    @staticmethod
    def backward(ctx, grad_grad_x):
        grad_out, x = ctx.saved_tensors
        return (
            grad_grad_x * in_numpy(dawson_first, x),
            grad_grad_x * grad_out * in_numpy(dawson_second, x),
        )


class DawsonTwice(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return in_numpy(dawsn, x)

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return DawsonBackward.apply(grad_out, x)


SOLUTION = (dawson_first, dawson_second, DawsonBackward, DawsonTwice)

# Wrong answers

WRONG = {
    "None for grad_out": """In a network grad_out depends on x: lesson 5, break it 2.
        - grad_grad_x * in_numpy(dawson_first, x),
        + None,
    """,
    "None for x": """What is the second derivative alone?
        - grad_grad_x * grad_out * in_numpy(dawson_second, x),
        + None,
    """,
    "products swapped": """In which order does DawsonBackward get its arguments?
          return (
        +     grad_grad_x * grad_out * in_numpy(dawson_second, x),
        - grad_grad_x * grad_out * in_numpy(dawson_second, x),
    """,
    "grad_out forgotten": """Which of the two products still contains g?
        - grad_grad_x * grad_out * in_numpy(dawson_second, x),
        + grad_grad_x * in_numpy(dawson_second, x),
    """,
    "grad_grad_x forgotten for grad_out": """Both products begin with h.
        - grad_grad_x * in_numpy(dawson_first, x),
        + in_numpy(dawson_first, x),
    """,
    "product rule stopped halfway": """2 x D is a product of two functions of x.
        - return -2 * dawsn(x) - 2 * x * dawson_first(x)
        + return -2 * x * dawson_first(x)
    """,
    "sign of the second derivative": """
        D begins with slope 1 at 0 and bends down: which sign has D'' at 0.5?
        - return -2 * dawsn(x) - 2 * x * dawson_first(x)
        + return 2 * dawsn(x) + 2 * x * dawson_first(x)
    """,
    "the first derivative again": """For x you need one derivative more.
        - grad_grad_x * grad_out * in_numpy(dawson_second, x),
        + grad_grad_x * grad_out * in_numpy(dawson_first, x),
    """,
    "no second Function": """What does detach hide here?
        - return DawsonBackward.apply(grad_out, x)
        + return grad_out * in_numpy(dawson_first, x)
    """,
    "grad_out detached on the way": """What does detach cut off here?
        - return DawsonBackward.apply(grad_out, x)
        + return DawsonBackward.apply(grad_out.detach(), x)
    """,
    "one gradient only": """How many arguments has the forward of DawsonBackward?
        - return (
        -     grad_grad_x * in_numpy(dawson_first, x),
        -     grad_grad_x * grad_out * in_numpy(dawson_second, x),
        - )
        + return grad_grad_x * grad_out * in_numpy(dawson_second, x)
    """,
    "h changed in place": """Who else holds the gradient that backward gets?
        - return (
        -     grad_grad_x * in_numpy(dawson_first, x),
        -     grad_grad_x * grad_out * in_numpy(dawson_second, x),
        - )
        + grad_x = grad_grad_x * grad_out * in_numpy(dawson_second, x)
        + return grad_grad_x.mul_(in_numpy(dawson_first, x)), grad_x
    """,
}
