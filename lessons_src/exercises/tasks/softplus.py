"""Exercise of lesson 2: log(1 + exp(x))."""

import torch
import torch.nn.functional as F
from torch.autograd import Function

from ..task import BY_OUTPUT, Task, numbers

TASK = Task(
    "softplus",
    2,
    "log(1 + exp(x))",
    F.softplus,
    [
        "The derivative is e^x / (1 + e^x). Can you write it with out = log(1 + e^x)?",
        "e^out is 1 + e^x. So e^x / (1 + e^x) is 1 minus something in out.",
        "The derivative is 1 - e^(-out). A formula in x, with x saved, is right as well.",
    ],
    slips={
        "That is grad_out * exp(x). Divide by 1 + exp(x), the inner function of log.": (
            lambda g, x: g * torch.exp(x)
        ),
        "That is grad_out / (1 + exp(x)), or grad_out * exp(-out). It should be 1 minus that "
        "fraction.": (lambda g, x: g / (1 + torch.exp(x))),
        "That is grad_out * (1 + exp(-out)). Look at the sign between the two terms.": (
            lambda g, x: g * (1 + 1 / (1 + torch.exp(x)))
        ),
        "That is grad_out * (1 - exp(out)). A minus is missing in the exponent.": (
            lambda g, x: -g * torch.exp(x)
        ),
        BY_OUTPUT + " Save out, and take it for 1 - exp(-out).": (
            lambda g, x: g * (1 - torch.exp(-x))
        ),
    },
    terms={
        "grad_out": lambda g, x: g,
        "-grad_out * exp(-out)": lambda g, x: -g / (1 + torch.exp(x)),
    },
    wide=((numbers(0.0, 0.01, -0.3, 3.0, -5.0, 12.0, -20.0, 30.0, 100.0, -100.0),),),
    far=(numbers(710.0, -710.0),),
)

# The solution


class Softplus(Function):
    @staticmethod
    def forward(ctx, x):
        out = torch.log(1 + torch.exp(x))
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx, grad_out):
        (out,) = ctx.saved_tensors
        return grad_out * (1 - torch.exp(-out))


SOLUTION = (Softplus,)

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
    "inner derivative only": """log has a derivative of its own.
        - return grad_out * (1 - torch.exp(-out))
        + return grad_out * (torch.exp(out) - 1)
    """,
    "1 minus forgotten": """The slope should go to 1 on the right. Does yours?
        - return grad_out * (1 - torch.exp(-out))
        + return grad_out * torch.exp(-out)
    """,
    "1 + forgotten in forward": """Is your result ever different from x?
        - out = torch.log(1 + torch.exp(x))
        + out = torch.log(torch.exp(x))
    """,
    "derivative saved": """It was computed in forward: does it have a graph?
        - ctx.save_for_backward(out)
        + ctx.save_for_backward(1 - torch.exp(-out))
        - (out,) = ctx.saved_tensors
        - return grad_out * (1 - torch.exp(-out))
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
        - return grad_out * (1 - torch.exp(-out))
        + return grad_out.mul_(1 - torch.exp(-out))
    """,
    "output on the class": """What if F is called twice before backward runs?
        - out = torch.log(1 + torch.exp(x))
        - ctx.save_for_backward(out)
        - return out
        + Softplus.out = torch.log(1 + torch.exp(x))
        + return Softplus.out
        - (out,) = ctx.saved_tensors
        + out = Softplus.out
    """,
}
