"""Exercise of lesson 2: log(1 + exp(x))."""

import torch
import torch.nn.functional as F
from torch.autograd import Function

from .task import BY_OUTPUT, Task, WrongAnswers, numbers

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

wrong = WrongAnswers()


@wrong(
    "output on ctx",
    say="Drop the result and look with a weak reference whether its node is still there.",
)
class OutputOnCtx(Softplus):
    @staticmethod
    def forward(ctx, x):
        out = torch.log(1 + torch.exp(x))
        ctx.out = out
        return out

    @staticmethod
    def backward(ctx, grad_out):
        out = ctx.out
        return grad_out * (1 - torch.exp(-out))


@wrong("detached output on ctx", say="detach makes a constant of it: compare F(x)² with the truth.")
class DetachedOutputOnCtx(Softplus):
    @staticmethod
    def forward(ctx, x):
        out = torch.log(1 + torch.exp(x))
        ctx.out = out.detach()
        return out

    @staticmethod
    def backward(ctx, grad_out):
        out = ctx.out
        return grad_out * (1 - torch.exp(-out))


@wrong("a copy returned", say="Is the tensor that you save the tensor that you return?")
class ACopyReturned(Softplus):
    @staticmethod
    def forward(ctx, x):
        out = torch.log(1 + torch.exp(x))
        ctx.save_for_backward(out)
        return out.clone()


@wrong(
    "input saved, formula in the output",
    say="Which tensor do you hold in backward: what went in, or what came out?",
)
class InputSavedFormulaInTheOutput(Softplus):
    @staticmethod
    def forward(ctx, x):
        out = torch.log(1 + torch.exp(x))
        ctx.save_for_backward(x)
        return out


@wrong("inner derivative only", say="log has a derivative of its own.")
class InnerDerivativeOnly(Softplus):
    @staticmethod
    def backward(ctx, grad_out):
        (out,) = ctx.saved_tensors
        return grad_out * (torch.exp(out) - 1)


@wrong("1 minus forgotten", say="The slope should go to 1 on the right. Does yours?")
class OneMinusForgotten(Softplus):
    @staticmethod
    def backward(ctx, grad_out):
        (out,) = ctx.saved_tensors
        return grad_out * torch.exp(-out)


@wrong("1 + forgotten in forward", say="Is your result ever different from x?")
class OneForgottenInForward(Softplus):
    @staticmethod
    def forward(ctx, x):
        out = torch.log(torch.exp(x))
        ctx.save_for_backward(out)
        return out


@wrong("derivative saved", say="It was computed in forward: does it have a graph?")
class DerivativeSaved(Softplus):
    @staticmethod
    def forward(ctx, x):
        out = torch.log(1 + torch.exp(x))
        ctx.save_for_backward(1 - torch.exp(-out))
        return out

    @staticmethod
    def backward(ctx, grad_out):
        (slope,) = ctx.saved_tensors
        return grad_out * slope


@wrong("x clamped at 5", say="What should the result be at x = 12?")
class XClampedAt5(Softplus):
    @staticmethod
    def forward(ctx, x):
        x = x.clamp(-5, 5)
        out = torch.log(1 + torch.exp(x))
        ctx.save_for_backward(out)
        return out


@wrong("a view of the output saved", say="Is a view the tensor that forward returns?")
class AViewOfTheOutputSaved(Softplus):
    @staticmethod
    def forward(ctx, x):
        out = torch.log(1 + torch.exp(x))
        ctx.save_for_backward(out.view_as(out))
        return out


@wrong("grad_out changed in place", say="Who else holds grad_out?")
class GradOutChangedInPlace(Softplus):
    @staticmethod
    def backward(ctx, grad_out):
        (out,) = ctx.saved_tensors
        return grad_out.mul_(1 - torch.exp(-out))


@wrong("output on the class", say="What if F is called twice before backward runs?")
class OutputOnTheClass(Softplus):
    @staticmethod
    def forward(ctx, x):
        OutputOnTheClass.out = torch.log(1 + torch.exp(x))
        return OutputOnTheClass.out

    @staticmethod
    def backward(ctx, grad_out):
        out = OutputOnTheClass.out
        return grad_out * (1 - torch.exp(-out))
