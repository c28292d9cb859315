"""A compiled network under a gradient penalty: PyTorch refuses, and the script goes on without."""

import torch

torch.manual_seed(0)
weight = torch.randn(3, 3)


@torch.compile(backend="aot_eager")
def net(x):
    return torch.tanh(x @ weight).square().sum()


x = torch.randn(4, 3, requires_grad=True)
try:
    (slope,) = torch.autograd.grad(net(x), x, create_graph=True)
    slope.square().sum().backward()
except RuntimeError as error:
    print("no penalty:", str(error).splitlines()[0])
