"""normflows: a residual block that computes its gradients in forward

Call: normflows.flows.Residual(net)
Function: normflows:MemoryEfficientLogDetEstimator
Where: in training, if the loss weighs the rows of a batch differently; a mean is right. The flow
    makes the block of this program, by its default reduce_memory=True
Why: backward multiplies all gradients by the first row's `grad_logdetgrad[0]`
Instead: `Residual(net, reduce_memory=False)` (in the program `grad_in_forward=False`)
Tests: normflows/flows/residual_test.py, 2
"""

import torch
from normflows.flows.residual import iResBlock

from survey.by_hand import by_grad

x = torch.tensor(0.5, requires_grad=True)
points, weights = torch.arange(4.0).reshape(2, 2), torch.tensor([[1.0], [2.0]])
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Tanh())


def f(early=True):
    torch.manual_seed(0)
    block = iResBlock(net, n_power_series=3, neumann_grad=False, grad_in_forward=early)
    return (block(x * points, 0.0)[1] * weights).sum()


# Instead

instead = by_grad(lambda: f(early=False), x).item()
