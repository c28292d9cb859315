"""A linear solver as a layer, and a product of its Hessian with a vector."""

import torch


class Solve(torch.autograd.Function):
    """Keeps the matrix and its output."""

    @staticmethod
    def forward(ctx, matrix, b):
        x = torch.linalg.solve(matrix, b)
        ctx.save_for_backward(matrix, x)
        return x

    @staticmethod
    def backward(ctx, grad_out):
        matrix, x = ctx.saved_tensors
        by_b = torch.linalg.solve(matrix.t(), grad_out)
        return -torch.outer(by_b, x), by_b


torch.manual_seed(0)
matrix = torch.randn(3, 3, dtype=torch.float64) + 4 * torch.eye(3, dtype=torch.float64)
b = torch.randn(3, dtype=torch.float64)
loss, product = torch.autograd.functional.hvp(
    lambda matrix, b: (Solve.apply(matrix, b) ** 3).sum(),
    (matrix, b),
    (torch.ones_like(matrix), torch.ones_like(b)),
)
print(product[1])
