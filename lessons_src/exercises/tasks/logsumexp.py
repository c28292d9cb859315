"""Exercise of lesson 4: log(sum of exp(x))."""

import torch
from torch.autograd import Function

from ..task import MATRICES, Task, numbers


class Given(Function):
    """log(sum of exp(x)) over all elements, a number; x is real, of any shape."""

    @staticmethod
    def forward(ctx, x):
        total = torch.exp(x).sum()
        ctx.total = total.item()
        ctx.save_for_backward(x)
        return torch.log(total)

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return grad_out * torch.exp(x) / ctx.total


TASK = Task(
    "logsumexp",
    4,
    "log(sum of exp(x)) over all elements",
    lambda x: torch.logsumexp(x, tuple(range(x.dim()))),
    [
        "The sum is a number on ctx. What was it computed from?",
        "If one x grows, the total grows with it. Can autograd see that of a Python number?",
        "Compute the total again in backward, from x. Or save the result: exp(x) / total is "
        "exp(x - out).",
    ],
    slips={
        "That is grad_out * exp(out - x). Turn it round: exp(x - out).": (
            lambda g, x: g * torch.exp(torch.logsumexp(x.reshape(-1), 0) - x)
        )
    },
    wide=((numbers(0.3, 0.0, -2.0, 7.0, 0.01, -12.0),), (numbers(100.0, 99.0),)),
    shapes=MATRICES,
    given=Given,
)

# The solution


class LogSumExp(Function):
    @staticmethod
    def forward(ctx, x):
        out = torch.log(torch.exp(x).sum())
        ctx.save_for_backward(x, out)
        return out

    @staticmethod
    def backward(ctx, grad_out):
        x, out = ctx.saved_tensors
        return grad_out * torch.exp(x - out)


SOLUTION = (LogSumExp,)

# Wrong answers

WRONG = {
    "total as a tensor on ctx": """It is a tensor now. Where was it made?
        - out = torch.log(torch.exp(x).sum())
        - ctx.save_for_backward(x, out)
        - return out
        + ctx.total = torch.exp(x).sum()
        + ctx.save_for_backward(x)
        + return torch.log(ctx.total)
        - x, out = ctx.saved_tensors
        - return grad_out * torch.exp(x - out)
        + (x,) = ctx.saved_tensors
        + return grad_out * torch.exp(x) / ctx.total
    """,
    "total through save_for_backward": """Does save_for_backward give a tensor a graph?
        - out = torch.log(torch.exp(x).sum())
        - ctx.save_for_backward(x, out)
        - return out
        + total = torch.exp(x).sum()
        + ctx.save_for_backward(x, total)
        + return torch.log(total)
        - x, out = ctx.saved_tensors
        - return grad_out * torch.exp(x - out)
        + x, total = ctx.saved_tensors
        + return grad_out * torch.exp(x) / total
    """,
    "total as an array on ctx": """Can a graph lead from an array to x?
        - out = torch.log(torch.exp(x).sum())
        - ctx.save_for_backward(x, out)
        - return out
        + total = torch.exp(x).sum()
        + ctx.total = total.numpy()
        + ctx.save_for_backward(x)
        + return torch.log(total)
        - x, out = ctx.saved_tensors
        - return grad_out * torch.exp(x - out)
        + (x,) = ctx.saved_tensors
        + return grad_out * torch.exp(x) / torch.as_tensor(ctx.total)
    """,
    "total taken with item in backward": """The line has moved. Is the number still a number?
        - x, out = ctx.saved_tensors
        - return grad_out * torch.exp(x - out)
        + x, _out = ctx.saved_tensors
        + return grad_out * torch.exp(x) / torch.exp(x).sum().item()
    """,
    "result as a number on ctx": """Which of the tensors was an output?
        - ctx.save_for_backward(x, out)
        + ctx.out = out.item()
        + ctx.save_for_backward(x)
        - x, out = ctx.saved_tensors
        - return grad_out * torch.exp(x - out)
        + (x,) = ctx.saved_tensors
        + return grad_out * torch.exp(x - ctx.out)
    """,
    "along one axis": """Try an x of shape (2, 3): of what shape is the result?
        - out = torch.log(torch.exp(x).sum())
        + out = torch.log(torch.exp(x).sum(0))
    """,
    "division forgotten": """log has a derivative of its own.
        - x, out = ctx.saved_tensors
        - return grad_out * torch.exp(x - out)
        + x, _out = ctx.saved_tensors
        + return grad_out * torch.exp(x)
    """,
}
