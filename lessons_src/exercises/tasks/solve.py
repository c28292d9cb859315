"""Exercise of lesson 5: the solution u of A u = b, with SciPy."""

import torch
from scipy import linalg
from torch.autograd import Function

from lessons_src.untracked_backward import in_numpy

from ..point import applies_itself_in_backward
from ..task import Point, Task, numbers

A = torch.tensor([[2.0, 1.0], [0.5, -1.0]], dtype=torch.float64)
LARGE = torch.tensor(
    [[3.0, 1.0, 0.0, -2.0], [0.0, -4.0, 1.0, 0.5], [1.0, 0.0, 0.2, 0.0], [7.0, 0.0, -1.0, 5.0]],
    dtype=torch.float64,
)

TASK = Task(
    "solve",
    5,
    "the solution u of A u = b",
    lambda A, b: torch.linalg.solve(A, b),
    [
        "in_numpy(linalg.solve, A, b) is u. backward needs A and u.",
        "w solves the transposed system: what does FullSolve.apply(A.t(), grad_out) return?",
        "-w u^T is -torch.outer(w, u). Nothing else is needed: both gradients are torch, or the "
        "Function itself.",
    ],
    points=((A, numbers(1.1, -3.0)), (A.t(), numbers(0.5, 2.0))),
    inputs=("A", "b"),
    slips={
        "A is not transposed in the solve for w.": (
            lambda g, A, b: -torch.outer(torch.linalg.solve(A, g), torch.linalg.solve(A, b))
        ),
        "The minus sign is missing: differentiate A u = b by A.": (
            lambda g, A, b: torch.outer(torch.linalg.solve(A.t(), g), torch.linalg.solve(A, b))
        ),
        "That is u w^T. Both the order and the sign are wrong: -w u^T.": (
            lambda g, A, b: torch.outer(torch.linalg.solve(A, b), torch.linalg.solve(A.t(), g))
        ),
        "That is the transpose of the right matrix: -w u^T, not -u w^T.": (
            lambda g, A, b: -torch.outer(torch.linalg.solve(A, b), torch.linalg.solve(A.t(), g))
        ),
    },
    wide=(
        (LARGE, numbers(0.3, 0.0, -20.0, 7.0)),
        (torch.tensor([[4000.0, 90.0], [-7000.0, 3500.0]]).double(), numbers(9000.0, -60.0)),
    ),
    point=Point("a backward that applies its own Function", applies_itself_in_backward),
    shapes=(),
    cures=dict.fromkeys(
        ("grad_out_path_cut", "untracked_backward"),
        "FullSolve has a backward already: apply FullSolve itself for this solve, to tensors with "
        "their graph.",
    ),
)

# The solution


class FullSolve(Function):
    @staticmethod
    def forward(ctx, A, b):
        u = in_numpy(linalg.solve, A, b)
        ctx.save_for_backward(A, u)
        return u

    @staticmethod
    def backward(ctx, grad_out):
        A, u = ctx.saved_tensors
        w = FullSolve.apply(A.t(), grad_out)
        return -torch.outer(w, u), w


SOLUTION = (FullSolve,)

# Wrong answers

WRONG = {
    "solved in NumPy in backward": """Who differentiates this solve?
        - w = FullSolve.apply(A.t(), grad_out)
        + w = in_numpy(linalg.solve, A.t(), grad_out)
    """,
    "not transposed": """Write u = A^-1 b: what is the transpose of its Jacobian for b?
        - w = FullSolve.apply(A.t(), grad_out)
        + w = FullSolve.apply(A, grad_out)
    """,
    "the sign": """Differentiate A u = b by one entry of A.
        - return -torch.outer(w, u), w
        + return torch.outer(w, u), w
    """,
    "the product transposed": """Which of w and u stands for the row of A?
        - return -torch.outer(w, u), w
        + return -torch.outer(u, w), w
    """,
    "the factorisation kept": """Was lu made in forward, from an input? Then it is constant.
        - u = in_numpy(linalg.solve, A, b)
        - ctx.save_for_backward(A, u)
        + ctx.lu = linalg.lu_factor(A.detach().numpy())
        + u = torch.as_tensor(linalg.lu_solve(ctx.lu, b.detach().numpy()))
        + ctx.save_for_backward(u)
        - A, u = ctx.saved_tensors
        - w = FullSolve.apply(A.t(), grad_out)
        + (u,) = ctx.saved_tensors
        + w = in_numpy(lambda g: linalg.lu_solve(ctx.lu, g, trans=1), grad_out)
    """,
    "the inverse kept": """The inverse was made in forward: a constant to the second pass.
        - u = in_numpy(linalg.solve, A, b)
        - ctx.save_for_backward(A, u)
        + ctx.inverse = in_numpy(linalg.inv, A)
        + u = ctx.inverse @ b
        + ctx.save_for_backward(u)
        - A, u = ctx.saved_tensors
        - w = FullSolve.apply(A.t(), grad_out)
        + (u,) = ctx.saved_tensors
        + w = ctx.inverse.t() @ grad_out
    """,
}
