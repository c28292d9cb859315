"""Exercise of lesson 4: (x - mean) / sqrt(var + 1e-5)."""

import torch
import torch.nn.functional as F
from torch.autograd import Function

from ..task import MATRICES, Task, numbers


def _root(x):
    return torch.sqrt(x.var(correction=0) + 1e-5)


def _backward(g, x, root, share=1):
    """Gradient with this root in place of sqrt(var + 1e-5), less a share of the mean of g."""
    out = (x - x.mean()) / _root(x)
    return (g - share * g.mean() - out * (g * out).mean()) / root


class Given(Function):
    """(x - mean) / sqrt(var + 1e-5) over all elements; x is real, of any shape."""

    @staticmethod
    def forward(ctx, x):
        ctx.sqrt_var = torch.sqrt(x.var(correction=0) + 1e-5)
        out = (x - x.mean()) / ctx.sqrt_var
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx, grad_out):
        (out,) = ctx.saved_tensors
        along_out = out * (grad_out * out).mean()
        return (grad_out - grad_out.mean() - along_out) / ctx.sqrt_var


TASK = Task(
    "standardise",
    4,
    "(x - mean) / sqrt(var + 1e-5)",
    lambda x: F.layer_norm(x, x.shape, eps=1e-5),
    [
        "backward uses two tensors that forward made. Which of them comes back with a graph?",
        "out is an output, so it is fine. ctx.sqrt_var is an intermediate: a constant.",
        "Save x as well and compute sqrt_var again in backward; or return it as an extra "
        "output, with its own gradient.",
    ],
    slips={
        "The 1e-5 under the root is missing in backward.": (
            lambda g, x: _backward(g, x, torch.sqrt(x.var(correction=0)))
        ),
        "The mean of grad_out is not subtracted.": (lambda g, x: _backward(g, x, _root(x), 0)),
    },
    terms={
        "grad_out / sqrt_var": lambda g, x: g / _root(x),
        "-grad_out.mean() / sqrt_var": lambda g, x: -g.mean().expand_as(x) / _root(x),
        "-along_out / sqrt_var": lambda g, x: _backward(g, x, _root(x)) - (g - g.mean()) / _root(x),
    },
    weights=torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64),
    given=Given,
    wide=(
        (numbers(0.3, 0.0, -2.0, 7.0, 0.01, 40.0),),
        (numbers(300.0, -4000.0, 20.0, 3500.0),),
        (numbers(0.002, -0.001, 0.003, 0.0),),
    ),
    shapes=MATRICES,
)

# The solution


class Standardise(Function):
    @staticmethod
    def forward(ctx, x):
        sqrt_var = torch.sqrt(x.var(correction=0) + 1e-5)
        out = (x - x.mean()) / sqrt_var
        ctx.save_for_backward(x, out)
        return out

    @staticmethod
    def backward(ctx, grad_out):
        x, out = ctx.saved_tensors
        sqrt_var = torch.sqrt(x.var(correction=0) + 1e-5)
        along_out = out * (grad_out * out).mean()
        return (grad_out - grad_out.mean() - along_out) / sqrt_var


SOLUTION = (Standardise,)

# Wrong answers

WRONG = {
    "sqrt_var through save_for_backward": """
        Lesson 3, break it 1: does save_for_backward give a tensor a graph?
        - ctx.save_for_backward(x, out)
        + ctx.save_for_backward(out, sqrt_var)
        - x, out = ctx.saved_tensors
        - sqrt_var = torch.sqrt(x.var(correction=0) + 1e-5)
        + out, sqrt_var = ctx.saved_tensors
    """,
    "another name on ctx": """The name is new. Where is the tensor made?
        - ctx.save_for_backward(x, out)
        + ctx.scale = 1 / sqrt_var
        + ctx.save_for_backward(out)
        - x, out = ctx.saved_tensors
        - sqrt_var = torch.sqrt(x.var(correction=0) + 1e-5)
        + (out,) = ctx.saved_tensors
        - return (grad_out - grad_out.mean() - along_out) / sqrt_var
        + return (grad_out - grad_out.mean() - along_out) * ctx.scale
    """,
    "declared once_differentiable": """
        That is honest, and the exercise asks for the second derivative.
        - def backward(ctx, grad_out):
        + @torch.autograd.function.once_differentiable
        + def backward(ctx, grad_out):
    """,
    "recomputed from a detached x": """What does detach do to the graph of x?
          x, out = ctx.saved_tensors
        - sqrt_var = torch.sqrt(x.var(correction=0) + 1e-5)
        + sqrt_var = torch.sqrt(x.detach().var(correction=0) + 1e-5)
    """,
    "variance with n - 1 in backward": """Compare the two lines that compute sqrt_var.
          x, out = ctx.saved_tensors
        - sqrt_var = torch.sqrt(x.var(correction=0) + 1e-5)
        + sqrt_var = torch.sqrt(x.var() + 1e-5)
    """,
    "three elements only": """Where does the 3 come from? Try an x of four elements.
        - along_out = out * (grad_out * out).mean()
        - return (grad_out - grad_out.mean() - along_out) / sqrt_var
        + along_out = out * (grad_out * out).sum() / 3
        + return (grad_out - grad_out.sum() / 3 - along_out) / sqrt_var
    """,
    "eps forgotten in backward": """
        Compare the two lines that compute sqrt_var, for a small variance.
          x, out = ctx.saved_tensors
        - sqrt_var = torch.sqrt(x.var(correction=0) + 1e-5)
        + sqrt_var = x.std(correction=0)
    """,
    "sqrt_var as a number": """Can a graph lead from a Python number to x?
        - ctx.save_for_backward(x, out)
        + ctx.sqrt_var = sqrt_var.item()
        + ctx.save_for_backward(out)
        - x, out = ctx.saved_tensors
        - sqrt_var = torch.sqrt(x.var(correction=0) + 1e-5)
        + (out,), sqrt_var = ctx.saved_tensors, ctx.sqrt_var
    """,
}
