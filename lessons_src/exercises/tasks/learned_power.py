"""Exercise of lesson 4: x**alpha."""

import torch
from torch.autograd import Function

from ..task import Task, numbers


class Given(Function):
    """x ** alpha, elementwise, for x > 0 and one alpha (shape ()) that is learned too."""

    @staticmethod
    def forward(ctx, x, alpha):
        ctx.alpha = alpha.expand_as(x)
        ctx.save_for_backward(x)
        return x**ctx.alpha

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        grad_x = grad_out * ctx.alpha * x ** (ctx.alpha - 1)
        grad_alpha = grad_out * x**ctx.alpha * torch.log(x)
        return grad_x, grad_alpha.sum()


TASK = Task(
    "learned_power",
    4,
    "x**alpha",
    lambda x, alpha: torch.exp(alpha * torch.log(x)),
    [
        "Differentiate twice by x, then twice by alpha: which of the two is wrong?",
        "alpha.expand_as(x) is a new tensor, made in forward. And it is kept on ctx.",
        "alpha is an input: save it beside x, as it came.",
    ],
    points=(
        (
            torch.tensor([0.5, 1.0, 1.7], dtype=torch.float64),
            torch.tensor(2.5, dtype=torch.float64),
        ),
        (
            torch.tensor([0.4, 1.1, 2.0], dtype=torch.float64),
            torch.tensor(0.7, dtype=torch.float64),
        ),
    ),
    inputs=("x", "alpha"),
    slips={
        "For alpha you multiply by log(alpha). It should be log(x).": (
            lambda g, x, alpha: (g * x**alpha * torch.log(alpha)).sum()
        ),
        "For alpha the factor log(x) is missing.": lambda g, x, alpha: (g * x**alpha).sum(),
    },
    given=Given,
    wide=(
        (numbers(0.2, 1.0, 3.0, 7.0), numbers(3.0)[0]),
        (numbers(0.01, 4000.0, 2.0, 0.3), numbers(-1.3)[0]),
    ),
)

# The solution


class LearnedPower(Function):
    @staticmethod
    def forward(ctx, x, alpha):
        ctx.save_for_backward(x, alpha)
        return x**alpha

    @staticmethod
    def backward(ctx, grad_out):
        x, alpha = ctx.saved_tensors
        grad_x = grad_out * alpha * x ** (alpha - 1)
        grad_alpha = grad_out * x**alpha * torch.log(x)
        return grad_x, grad_alpha.sum()


SOLUTION = (LearnedPower,)

# Wrong answers

WRONG = {
    "expanded alpha saved": """save_for_backward does not make an input of it.
          def forward(ctx, x, alpha):
        +     alpha = alpha.expand_as(x)
    """,
    "alpha itself on ctx": """
        Right numbers now. And if the optimiser changes alpha in place before backward?
        - ctx.save_for_backward(x, alpha)
        - return x**alpha
        + ctx.alpha = alpha
        + ctx.save_for_backward(x)
        + return x**ctx.alpha
        - x, alpha = ctx.saved_tensors
        - grad_x = grad_out * alpha * x ** (alpha - 1)
        - grad_alpha = grad_out * x**alpha * torch.log(x)
        + (x,) = ctx.saved_tensors
        + grad_x = grad_out * ctx.alpha * x ** (ctx.alpha - 1)
        + grad_alpha = grad_out * x**ctx.alpha * torch.log(x)
    """,
    "alpha as a number": """Can autograd see a Python number change?
        - ctx.save_for_backward(x, alpha)
        - return x**alpha
        + ctx.alpha = alpha.item()
        + ctx.save_for_backward(x)
        + return x**ctx.alpha
        - x, alpha = ctx.saved_tensors
        - grad_x = grad_out * alpha * x ** (alpha - 1)
        - grad_alpha = grad_out * x**alpha * torch.log(x)
        + (x,) = ctx.saved_tensors
        + grad_x = grad_out * ctx.alpha * x ** (ctx.alpha - 1)
        + grad_alpha = grad_out * x**ctx.alpha * torch.log(x)
    """,
    "None for alpha": """Is alpha learned or not?
        - grad_alpha = grad_out * x**alpha * torch.log(x)
        - return grad_x, grad_alpha.sum()
        + return grad_x, None
    """,
    "log of the wrong variable": """Differentiate 2 to the alpha with respect to alpha.
        - grad_alpha = grad_out * x**alpha * torch.log(x)
        + grad_alpha = grad_out * x**alpha * torch.log(alpha)
    """,
    "mean instead of sum": """
        Each result depends on the one alpha: how do their gradients come together?
        - return grad_x, grad_alpha.sum()
        + return grad_x, grad_alpha.mean()
    """,
    "gradients swapped": """In which order does forward get its arguments?
        - grad_alpha = grad_out * x**alpha * torch.log(x)
        - return grad_x, grad_alpha.sum()
        + grad_alpha = (grad_out * x**alpha * torch.log(x)).sum()
        + return grad_alpha, grad_x
    """,
    "alpha detached in backward": """Differentiate by alpha a second time: is it still there?
          x, alpha = ctx.saved_tensors
        + alpha = alpha.detach()
        - grad_alpha = grad_out * x**alpha * torch.log(x)
        - return grad_x, grad_alpha.sum()
        + return grad_x, (grad_out * x**alpha * torch.log(x)).sum()
    """,
}
