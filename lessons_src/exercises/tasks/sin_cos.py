"""Exercise of lesson 6: an operator with two outputs, whose kernel is NumPy."""

import numpy as np
import torch
from torch import Tensor

from lessons_src.operators import new_name
from lessons_src.untracked_backward import in_numpy

from ..task import NO_NUMBER, Task, numbers


def truth(x: Tensor) -> Tensor:
    """In plain torch."""
    return torch.stack([torch.sin(x), torch.cos(x)])


TASK = Task(
    "sin_cos",
    6,
    "torch.stack([sin(x), cos(x)])",
    truth,
    [
        "The kernel returns both results, so backward gets two gradients, in that order. What does "
        "it need beside them, and which of the tensors that setup_context sees is that?",
        "The derivative of sin is cos, that of cos is -sin: grad_sin * cos - grad_cos * sin.",
        "sin and cos are the two outputs, and outputs have a graph: "
        "ctx.save_for_backward(*output).",
    ],
    slips={
        "That is grad_sin * cos + grad_cos * sin. The derivative of cos is -sin.": (
            lambda g, x: g[0] * torch.cos(x) + g[1] * torch.sin(x)
        ),
        "That is grad_sin * sin - grad_cos * cos: each times its own output. The derivative of "
        "sin is cos.": lambda g, x: g[0] * torch.sin(x) - g[1] * torch.cos(x),
        "That is grad_sin * sin + grad_cos * cos: each times its own output. The derivative of "
        "sin is cos, that of cos is -sin.": lambda g, x: g[0] * torch.sin(x) + g[1] * torch.cos(x),
        "That is grad_sin * cos alone. Add what the gradient of the second output brings.": (
            lambda g, x: g[0] * torch.cos(x)
        ),
        "That is -grad_cos * sin alone. Add what the gradient of the first output brings.": (
            lambda g, x: -g[1] * torch.sin(x)
        ),
        "That is grad_cos * cos - grad_sin * sin: the two gradients are swapped.": (
            lambda g, x: g[1] * torch.cos(x) - g[0] * torch.sin(x)
        ),
    },
    wide=((numbers(0.0, 0.01, -0.3, 3.0, -5.0, 60.0),),),
    shapes=NO_NUMBER,
)

# The solution


def kernel(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return in_numpy(np.sin, x), in_numpy(np.cos, x)


def setup_context(ctx, inputs, output):
    ctx.save_for_backward(*output)


def backward(ctx, grad_sin, grad_cos):
    sin, cos = ctx.saved_tensors
    return grad_sin * cos - grad_cos * sin


op = torch.library.custom_op(new_name("sin_cos"), kernel, mutates_args=())
op.register_autograd(backward, setup_context=setup_context)


def sin_cos(x):
    return torch.stack(op(x))


SOLUTION = (sin_cos,)

# Wrong answers

WRONG = {
    "cos made in setup_context": """What does setup_context see that was recorded?
        - ctx.save_for_backward(*output)
        + ctx.save_for_backward(torch.sin(inputs[0]), torch.cos(inputs[0]))
    """,
    "the outputs detached": """What does detach do to the graph of an output?
        - ctx.save_for_backward(*output)
        + ctx.save_for_backward(*(out.detach() for out in output))
    """,
    "the kernel again in backward": """Can autograd follow NumPy?
        - ctx.save_for_backward(*output)
        + ctx.save_for_backward(*inputs)
        - sin, cos = ctx.saved_tensors
        + sin, cos = kernel(*ctx.saved_tensors)
    """,
    "kept on ctx": """What happens to a tensor on ctx that is an output?
        - ctx.save_for_backward(*output)
        + ctx.sin, ctx.cos = output
        - sin, cos = ctx.saved_tensors
        - return grad_sin * cos - grad_cos * sin
        + return grad_sin * ctx.cos - grad_cos * ctx.sin
    """,
    "the sign": """Is cos rising or falling at x = 0.5?
        - return grad_sin * cos - grad_cos * sin
        + return grad_sin * cos + grad_cos * sin
    """,
    "the second gradient forgotten": """How many results does the kernel return?
        - return grad_sin * cos - grad_cos * sin
        + return grad_sin * cos
    """,
    "each times its own output": """What is the derivative of sin?
        - return grad_sin * cos - grad_cos * sin
        + return grad_sin * sin - grad_cos * cos
    """,
    "the two gradients swapped": """In which order does the kernel return its outputs?
        - def backward(ctx, grad_sin, grad_cos):
        + def backward(ctx, grad_cos, grad_sin):
    """,
    "a gradient for each output": """How many inputs does the kernel have?
        - return grad_sin * cos - grad_cos * sin
        + return grad_sin * cos, -grad_cos * sin
    """,
}
