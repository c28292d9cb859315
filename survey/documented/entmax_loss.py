"""entmax: a layer before the 1.5-entmax loss

Call: entmax.Entmax15Loss()(scores, target)
Function: entmax:Entmax15LossFunction
Where: always; with nothing before it and nothing behind it autograd raises
Cost: scores and target are kept until backward, and where a gradient is to be differentiated the
    projection is computed once more
Tests: entmax/test_losses.py, 42
"""

import entmax
import torch

x = torch.tensor(0.7, requires_grad=True)


def f():
    scores = torch.stack([x**2, torch.sin(x), -x]).reshape(1, 3)
    return entmax.Entmax15Loss()(scores, torch.tensor([1])).sum()
