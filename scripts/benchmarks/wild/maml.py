"""MAML: a step of learning inside, differentiated from outside."""

import torch


class Linear(torch.autograd.Function):
    """Keeps its inputs."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    def backward(ctx, grad_out):
        x, weight = ctx.saved_tensors
        return grad_out @ weight.t(), x.t() @ grad_out


torch.manual_seed(0)
weight = torch.randn(3, 1, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.01)
for _ in range(3):
    x = torch.randn(8, 3)
    y = x @ torch.randn(3, 1)
    inner = ((Linear.apply(x, weight).tanh() - y) ** 2).mean()
    (step,) = torch.autograd.grad(inner, weight, create_graph=True)
    optimizer.zero_grad()
    ((Linear.apply(x, weight - 0.1 * step).tanh() - y) ** 2).mean().backward()
    optimizer.step()
print("trained")
