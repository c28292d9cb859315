"""linear_operator: the curvature of a quadratic form's square

Call: linear_operator.inv_quad(A, b)
Function: linear-operator:InvQuad
Where: always; with nothing non-linear before it or behind it autograd raises
Cost: where a gradient is to be differentiated, the system is solved once more
Thread: https://github.com/cornellius-gp/gpytorch/pull/603
Promise: of its origin, GPyTorch's InvQuad, in 2019: "twice differentiable", in that thread
Instead: `b @ torch.linalg.solve(A, b)`
Tests: test/functions/test_inv_quad.py and test/functions/test_inv_quad_logdet.py, 34
"""

import linear_operator
import torch

from survey.by_hand import second

A, b = torch.tensor([[2.0, 0.5], [0.5, 1.0]]), torch.tensor([1.0, 2.0])
x = torch.tensor(0.3, requires_grad=True)


def f():
    return linear_operator.inv_quad(A + x * torch.eye(2), b) ** 2 / 2


# Instead

instead = second(lambda: (b @ torch.linalg.solve(A + x * torch.eye(2), b)) ** 2 / 2, x)
