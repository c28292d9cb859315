"""Exercise of lesson 1: a * b."""

import torch
from torch.autograd import Function

from .task import Task, WrongAnswers, X, numbers

TASK = Task(
    "product",
    1,
    "a * b",
    lambda a, b: ((a + b) ** 2 - (a - b) ** 2) / 4,
    [
        "forward has two arguments after ctx: backward returns two gradients, in that order.",
        "The derivative of a * b with respect to a is b. So backward needs both inputs.",
        "save_for_backward takes several tensors; ctx.saved_tensors gives back as many.",
    ],
    points=((X, torch.tensor([3.0, -1.5, 0.7], dtype=torch.float64)),),
    inputs=("a", "b"),
    slips={
        "The chain rule multiplies: grad_out * b, not grad_out + b.": (lambda g, a, b: g + b),
        "The chain rule multiplies: grad_out * a, not grad_out + a.": (lambda g, a, b: g + a),
    },
    wide=((numbers(0.0, -3000.0, 2.0, -0.3), numbers(3.0, 0.0, 3000.0, 12.0)),),
)

# The solution


class Product(Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * b

    @staticmethod
    def backward(ctx, grad_out):
        a, b = ctx.saved_tensors
        return grad_out * b, grad_out * a


SOLUTION = (Product,)

# Wrong answers

wrong = WrongAnswers()


@wrong("gradients swapped", say="Say the derivative with respect to a aloud: is it a, or b?")
class GradientsSwapped(Product):
    @staticmethod
    def backward(ctx, grad_out):
        a, b = ctx.saved_tensors
        return grad_out * a, grad_out * b


@wrong(
    "one gradient only", say="How many arguments has forward? So many gradients backward returns."
)
class OneGradientOnly(Product):
    @staticmethod
    def backward(ctx, grad_out):
        a, b = ctx.saved_tensors
        return grad_out * b


@wrong("None for b", say="None says that the result does not depend on b. Does it?")
class NoneForB(Product):
    @staticmethod
    def backward(ctx, grad_out):
        a, b = ctx.saved_tensors
        return grad_out * b, None


@wrong("grad_out forgotten for b", say="The chain rule holds for each of the inputs.")
class GradOutForgottenForB(Product):
    @staticmethod
    def backward(ctx, grad_out):
        a, b = ctx.saved_tensors
        return grad_out * b, a


@wrong(
    "the whole product as a gradient", say="Differentiate 7 * b with respect to b. What remains?"
)
class TheWholeProductAsAGradient(Product):
    @staticmethod
    def backward(ctx, grad_out):
        a, b = ctx.saved_tensors
        return grad_out * b, grad_out * a * b


@wrong("b detached", say="Try F(a, b)² with respect to b, and compare.")
class BDetached(Product):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b.detach())
        return a * b


@wrong("grad_out changed in place", say="Who else holds this tensor?")
class GradOutChangedInPlace(Product):
    @staticmethod
    def backward(ctx, grad_out):
        a, b = ctx.saved_tensors
        grad_b = grad_out * a
        return grad_out.mul_(b), grad_b


@wrong("flags swapped", say="Which flag belongs to which input?")
class FlagsSwapped(Product):
    @staticmethod
    def backward(ctx, grad_out):
        a, b = ctx.saved_tensors
        grad_a = grad_out * b if ctx.needs_input_grad[1] else None
        grad_b = grad_out * a if ctx.needs_input_grad[0] else None
        return grad_a, grad_b


@wrong("a list of gradients", say="Is a list a tensor, or several?")
class AListOfGradients(Product):
    @staticmethod
    def backward(ctx, grad_out):
        a, b = ctx.saved_tensors
        return [grad_out * b, grad_out * a]


@wrong("a on the class", say="What if F is called twice before backward runs?")
class AOnTheClass(Product):
    @staticmethod
    def forward(ctx, a, b):
        AOnTheClass.a = a
        ctx.save_for_backward(b)
        return a * b

    @staticmethod
    def backward(ctx, grad_out):
        (b,) = ctx.saved_tensors
        return grad_out * b, grad_out * AOnTheClass.a


@wrong("a number on ctx", say="Can a graph lead from a Python number to b?")
class ANumberOnCtx(Product):
    @staticmethod
    def forward(ctx, a, b):
        ctx.numbers = b.tolist()
        ctx.save_for_backward(a)
        return a * b

    @staticmethod
    def backward(ctx, grad_out):
        (a,) = ctx.saved_tensors
        b = torch.tensor(ctx.numbers, dtype=a.dtype)
        return grad_out * b, grad_out * a


@wrong("b detached before", say="Where does the graph of the result lead?")
def b_detached_before(a, b):
    return Product.apply(a, b.detach())
