"""Exercise of lesson 1: 1 / x."""

import torch
from torch.autograd import Function

from .task import Task, WrongAnswers, numbers

TASK = Task(
    "reciprocal",
    1,
    "1 / x",
    lambda x: x**-1,
    [
        "Which tensor does the formula for the derivative need? Save that one, unchanged.",
        "Write 1/x as a power, x to the -1. The power rule gives the derivative.",
        "The derivative is -1/x². backward returns grad_out times that.",
    ],
    wide=((numbers(0.05, -0.3, 2.0, -7.0, 40.0, 1e-3, 3000.0, -3000.0),),),
)

# The solution


class Reciprocal(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return 1 / x

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return -grad_out / x**2


SOLUTION = (Reciprocal,)

# Wrong answers

wrong = WrongAnswers()


@wrong("sign lost", say="Which way does 1/x go when x grows?")
class SignLost(Reciprocal):
    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return grad_out / x**2


@wrong("exponent not lowered", say="Write 1/x as a power and apply the power rule aloud.")
class ExponentNotLowered(Reciprocal):
    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return -grad_out / x


@wrong(
    "grad_out forgotten",
    say="What would backward return if the result were multiplied by 5 afterwards?",
)
class GradOutForgotten(Reciprocal):
    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return -1 / x**2


@wrong(
    "input on ctx",
    say="Edit x in place between forward and backward, as lesson 1 does, and watch the numbers.",
)
class InputOnCtx(Reciprocal):
    @staticmethod
    def forward(ctx, x):
        ctx.x = x
        return 1 / x

    @staticmethod
    def backward(ctx, grad_out):
        x = ctx.x
        return -grad_out / x**2


@wrong("a copy saved", say="Ask whether the saved tensor is x: `saved is x`, as in lesson 1.")
class ACopySaved(Reciprocal):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        ctx.save_for_backward(x)
        return 1 / x


@wrong(
    "1/x saved, another 1/x returned",
    say="Two tensors with the same values: which of them has a node?",
)
class InverseSavedAnotherInverseReturned(Reciprocal):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(1 / x)
        return 1 / x

    @staticmethod
    def backward(ctx, grad_out):
        (inverse,) = ctx.saved_tensors
        return -grad_out * inverse**2


@wrong("detached in backward", say="Does autograd see the step that detach makes?")
class DetachedInBackward(Reciprocal):
    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return -grad_out / x.detach() ** 2


@wrong("no return in backward", say="What does a Python function return without a return?")
class NoReturnInBackward(Reciprocal):
    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        grad_x = -grad_out / x**2  # noqa: F841


@wrong("x on the class", say="What if F is called twice before backward runs?")
class XOnTheClass(Reciprocal):
    @staticmethod
    def forward(ctx, x):
        XOnTheClass.x = x
        return 1 / x

    @staticmethod
    def backward(ctx, grad_out):
        return -grad_out / XOnTheClass.x**2


@wrong("derivative clamped", say="What is the slope at 0.05?")
class DerivativeClamped(Reciprocal):
    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return grad_out * (-1 / x**2).clamp(-20, 20)


@wrong("converted to float64", say="Try an x in float32: is the saved tensor x?")
class ConvertedToFloat64(Reciprocal):
    @staticmethod
    def forward(ctx, x):
        x = x.double()
        ctx.save_for_backward(x)
        return 1 / x


@wrong(
    "saved tensors not taken apart",
    say="What does ctx.saved_tensors return, when one tensor is saved?",
)
class SavedTensorsNotTakenApart(Reciprocal):
    @staticmethod
    def backward(ctx, grad_out):
        x = ctx.saved_tensors
        return -grad_out / x**2


@wrong("no_grad in backward", say="Is autograd recording there?")
class NoGradInBackward(Reciprocal):
    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        with torch.no_grad():
            slope = -1 / x**2
        return grad_out * slope


@wrong("torch.tensor of x", say="Is a copy made by torch.tensor in the graph?")
class TorchTensorOfX(Reciprocal):
    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return -grad_out / torch.tensor(x) ** 2


@wrong("autograd.grad without create_graph", say="Lesson 1: what does create_graph do?")
class AutogradGradWithoutCreateGraph(Reciprocal):
    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            x = x.view_as(x)
            out = 1 / x
        return torch.autograd.grad(out, x, grad_out)[0]


@wrong("numbers on ctx", say="Can a graph lead from a Python number to x?")
class NumbersOnCtx(Reciprocal):
    @staticmethod
    def forward(ctx, x):
        ctx.numbers = x.tolist()
        return 1 / x

    @staticmethod
    def backward(ctx, grad_out):
        x = torch.tensor(ctx.numbers, dtype=grad_out.dtype)
        return -grad_out / x**2


class Identity(Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad_out):
        return grad_out


@wrong("plain torch around a Function that does nothing", say="Whose derivative is this?")
def around_identity(x):
    return 1 / Identity.apply(x)


@wrong("apply forgotten", say="What does Python do with Reciprocal(x)?")
def apply_forgotten(x):
    return Reciprocal(x)


@wrong("applied to a detached x", say="Where does the graph of the result begin?")
def applied_to_a_detached_x(x):
    return Reciprocal.apply(x.detach())
