"""PyTorch: checkpointing in its older form, by .backward(create_graph=True)

Call: torch.utils.checkpoint.checkpoint(fn, x, use_reentrant=True)
Function: torch:CheckpointFunction
Where: by .backward(create_graph=True) alone; `torch.autograd.grad` raises, with the reason
Instead: `use_reentrant=False`
"""

import torch
from torch.utils.checkpoint import checkpoint

from survey.by_hand import by_backward, second

x = torch.tensor(0.5, requires_grad=True)
slope = by_backward


def f(reentrant=True):
    return checkpoint(torch.tanh, x**2, use_reentrant=reentrant) ** 2


# Instead

instead = second(lambda: f(reentrant=False), x, slope)
