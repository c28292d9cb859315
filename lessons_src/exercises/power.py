"""Exercise of lesson 1: x**n."""

import torch
from torch.autograd import Function

from .task import Task, WrongAnswers, X, numbers

TASK = Task(
    "power",
    1,
    "x**n",
    lambda x, n: torch.stack([x] * n).prod(0),
    [
        "n is an integer, not a tensor: save_for_backward refuses it. Plain ctx.n = n is fine.",
        "The derivative is n times x to the n - 1.",
        "backward returns one gradient for each argument after ctx: for n, that is None.",
    ],
    points=((X, 3), (X, 2), (X, 5)),
    inputs=("x", "n"),
    slips={
        "That is right for n = 3 only. Use the n that forward was given.": (
            lambda g, x, n: g * 3 * x**2
        ),
        "x ** n - 1 is 1 less than x ** n. Put brackets around n - 1.": (
            lambda g, x, n: g * n * x**n - 1
        ),
    },
    wide=(
        (numbers(0.0, -3000.0, 2.2, -0.3), 2),
        (numbers(0.0, 3000.0, -2.2, 0.01), 4),
        (numbers(0.0, 300.0, -2.2, 0.01), 7),
    ),
)

# The solution


class Power(Function):
    @staticmethod
    def forward(ctx, x, n):
        ctx.save_for_backward(x)
        ctx.n = n
        return x**n

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return grad_out * ctx.n * x ** (ctx.n - 1), None


SOLUTION = (Power,)

# Wrong answers

wrong = WrongAnswers()


@wrong("exponent not lowered", say="Try n = 1: what should the derivative of x be?")
class ExponentNotLowered(Power):
    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return grad_out * ctx.n * x**ctx.n, None


@wrong("factor n forgotten", say="The exponent comes down as a factor.")
class FactorNForgotten(Power):
    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return grad_out * x ** (ctx.n - 1), None


@wrong("no gradient for n", say="Count the arguments of forward after ctx.")
class NoGradientForN(Power):
    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return grad_out * ctx.n * x ** (ctx.n - 1)


@wrong("a gradient for n", say="Can one move an integer a little?")
class AGradientForN(Power):
    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return grad_out * ctx.n * x ** (ctx.n - 1), grad_out * x**ctx.n * torch.log(x.abs())


@wrong("n in save_for_backward", say="What may save_for_backward hold?")
class NInSaveForBackward(Power):
    @staticmethod
    def forward(ctx, x, n):
        ctx.save_for_backward(x, n)
        return x**n

    @staticmethod
    def backward(ctx, grad_out):
        x, n = ctx.saved_tensors
        return grad_out * n * x ** (n - 1), None


@wrong("written for n = 3", say="It was tested with one n. Test with another.")
class WrittenForNThree(Power):
    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return grad_out * 3 * x**2, None


@wrong(
    "x**(n - 1) computed in forward", say="Where was this power made, and was autograd recording?"
)
class XN1ComputedInForward(Power):
    @staticmethod
    def forward(ctx, x, n):
        ctx.save_for_backward(x ** (n - 1))
        ctx.n = n
        return x**n

    @staticmethod
    def backward(ctx, grad_out):
        (lower,) = ctx.saved_tensors
        return grad_out * ctx.n * lower, None


@wrong("divided by x", say="What happens at x = 0?")
class DividedByX(Power):
    @staticmethod
    def forward(ctx, x, n):
        out = x**n
        ctx.save_for_backward(x, out)
        ctx.n = n
        return out

    @staticmethod
    def backward(ctx, grad_out):
        x, out = ctx.saved_tensors
        return grad_out * ctx.n * out / x, None


@wrong("n on the class", say="What if F is called with another n before backward runs?")
class NOnTheClass(Power):
    @staticmethod
    def forward(ctx, x, n):
        ctx.save_for_backward(x)
        NOnTheClass.n = n
        return x**n

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        n = NOnTheClass.n
        return grad_out * n * x ** (n - 1), None


@wrong("x detached", say="Does autograd see the step that detach makes?")
class XDetached(Power):
    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return grad_out * ctx.n * x.detach() ** (ctx.n - 1), None
