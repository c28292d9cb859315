"""Exercise of lesson 6: the logarithm of a determinant, its backward from paper."""

import torch
from torch.autograd import Function

from ..task import Task

A = torch.tensor([[2.1, 1.0], [0.5, 1.4]], dtype=torch.float64)
LARGE = torch.tensor(
    [[3.0, 1.0, 0.0, -2.0], [0.0, 4.0, 1.0, 0.5], [1.0, 0.0, 0.9, 0.0], [1.0, 0.0, -1.0, 55.0]],
    dtype=torch.float64,
)

TASK = Task(
    "log_det",
    6,
    "log(det(A))",
    torch.logdet,
    [
        "A small change dA changes the logarithm by the sum of (A^-1)_ij dA_ji: beside dA_ij "
        "stands the entry of the inverse in row j and column i.",
        "So the gradient is grad_out, a number, times the transposed inverse.",
        "Save A, and compute torch.linalg.inv(A).T in backward, where it is recorded. Or return "
        "the inverse, too.",
    ],
    points=((A,), (A.t(),)),
    inputs=("A",),
    slips={
        "That is grad_out times the inverse. It should be the transposed inverse: which entry "
        "stands beside dA_ij?": lambda g, A: g * torch.linalg.inv(A),
        "That is grad_out / A. It divides by each entry: it should be the inverse of the matrix, "
        "transposed.": lambda g, A: g / A,
        "The sign is wrong: log det grows with A, where the inverse is positive.": (
            lambda g, A: -g * torch.linalg.inv(A).t()
        ),
        "That is the derivative of det, not of its logarithm: it lacks a division by det(A).": (
            lambda g, A: g * torch.linalg.det(A) * torch.linalg.inv(A).t()
        ),
    },
    wide=((LARGE,), (torch.tensor([[4000.0, 90.0], [-7000.0, 3500.0]]).double(),)),
    shapes=(),
)

# The solution


class LogDet(Function):
    @staticmethod
    def forward(ctx, A):
        ctx.save_for_backward(A)
        return torch.linalg.slogdet(A)[1]

    @staticmethod
    def backward(ctx, grad_out):
        (A,) = ctx.saved_tensors
        return grad_out * torch.linalg.inv(A).T


SOLUTION = (LogDet,)

# Wrong answers

WRONG = {
    "the inverse saved": """The inverse was made in forward: a constant to the second pass.
        - ctx.save_for_backward(A)
        + ctx.save_for_backward(torch.linalg.inv(A))
        - (A,) = ctx.saved_tensors
        + (inverse,) = ctx.saved_tensors
        - return grad_out * torch.linalg.inv(A).T
        + return grad_out * inverse.T
    """,
    "not transposed": """Which entry of the inverse stands beside dA_ij?
        - return grad_out * torch.linalg.inv(A).T
        + return grad_out * torch.linalg.inv(A)
    """,
    "the derivative of det": """That would be det(A) times as much: log has a derivative of its own.
        - return grad_out * torch.linalg.inv(A).T
        + return grad_out * torch.linalg.det(A) * torch.linalg.inv(A).T
    """,
    "det without log": """What is asked for is the logarithm.
        - return torch.linalg.slogdet(A)[1]
        + return torch.linalg.det(A)
    """,
    "the sign of det returned": """slogdet returns two results: which of them is the logarithm?
        - return torch.linalg.slogdet(A)[1]
        + return torch.linalg.slogdet(A)[0]
    """,
    "grad_out forgotten": """What if the loss is twice as large?
        - return grad_out * torch.linalg.inv(A).T
        + return torch.linalg.inv(A).T
    """,
}
