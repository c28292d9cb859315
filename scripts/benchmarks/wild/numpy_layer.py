"""A layer in NumPy, inside a penalty."""

import numpy as np
import torch


class SoftSign(torch.autograd.Function):
    """Its backward is NumPy too."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        values = x.detach().numpy()
        return torch.from_numpy(values / (1 + np.abs(values)))

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return grad_out * torch.from_numpy((1 + np.abs(x.detach().numpy())) ** -2.0)


torch.manual_seed(0)
x = torch.randn(5, dtype=torch.float64, requires_grad=True)
(slope,) = torch.autograd.grad((SoftSign.apply(x) ** 2).sum(), x, create_graph=True)
slope.square().sum().backward()
print("trained")
