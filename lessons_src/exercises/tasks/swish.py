"""Exercise of lesson 4: x * sigmoid(x), in the shape of x."""

import torch
import torch.nn.functional as F
from torch.autograd import Function

from ..task import TURNED, Task, X, numbers


class Given(Function):
    """x * sigmoid(x), elementwise."""

    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad_out * s * (1 + x * (1 - s))


TASK = Task(
    "swish",
    4,
    "x * sigmoid(x), in the shape of x",
    F.silu,
    [
        "Ask in a cell whether the saved tensor is the input: for a matrix, and for its transpose.",
        "x.contiguous() is x itself where x is contiguous already. Otherwise it is a copy.",
        "Save the input first. Or leave out the line: nothing here needs it.",
    ],
    points=((X,), (TURNED,)),
    slips={
        "That is grad_out * s * (1 + x). The factor 1 - s of the second term is missing.": (
            lambda g, x: g * torch.sigmoid(x) * (1 + x)
        ),
        "That is grad_out * s * (1 - x * (1 - s)). Look at the sign of the second term.": (
            lambda g, x: g * torch.sigmoid(x) * (1 - x * torch.sigmoid(-x))
        ),
    },
    terms={
        "grad_out * s": lambda g, x: g * torch.sigmoid(x),
        "grad_out * x * s * (1 - s)": lambda g, x: g * x * torch.sigmoid(x) * torch.sigmoid(-x),
    },
    given=Given,
    wide=((numbers(0.0, 0.01, -0.3, 3.0, -5.0, 12.0, -20.0, 30.0, 100.0, -100.0),),),
    far=(numbers(710.0, -710.0),),
)

# The solution


class Swish(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        x = x.contiguous()
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad_out * s * (1 + x * (1 - s))


SOLUTION = (Swish,)

# Wrong answers

WRONG = {
    "clone instead of contiguous": """Now it is a copy for every x, not for some.
          def forward(ctx, x):
        +     x = x.clone()
        - x = x.contiguous()
    """,
    "contiguous inside save_for_backward": """It is one line shorter. Is the saved tensor x?
        - ctx.save_for_backward(x)
        - x = x.contiguous()
        + ctx.save_for_backward(x.contiguous())
    """,
    "other layouts refused": """Would you want to use it?
          def forward(ctx, x):
        +     if not x.is_contiguous():
        +         raise ValueError("x must be contiguous")
        - x = x.contiguous()
    """,
    "flattened": """What shape does the caller expect?
          def forward(ctx, x):
        +     x = x.reshape(-1)
        - x = x.contiguous()
    """,
    "gradient viewed as a row": """A gradient has a layout of its own: try .t() after the Function.
          s = torch.sigmoid(x)
        + grad_out = grad_out.view(-1).view(x.shape)
    """,
    "sigmoid kept from forward": """The copy is gone. Is s an input or an output?
        - return x * torch.sigmoid(x)
        + ctx.s = torch.sigmoid(x)
        + return x * ctx.s
        - s = torch.sigmoid(x)
        + s = ctx.s
    """,
    "a copy in float64": """Try an x in float32: is the saved tensor x?
        - ctx.save_for_backward(x)
        - x = x.contiguous()
        + ctx.save_for_backward(x.double())
    """,
}
