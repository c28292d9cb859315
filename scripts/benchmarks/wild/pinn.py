"""A physics-informed network for u'' = -u."""

import torch


class Tanh(torch.autograd.Function):
    """Keeps its output."""

    @staticmethod
    def forward(ctx, x):
        y = torch.tanh(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad_out):
        (y,) = ctx.saved_tensors
        return grad_out * (1 - y * y)


torch.manual_seed(0)
first, last = torch.nn.Linear(1, 8), torch.nn.Linear(8, 1)
optimizer = torch.optim.Adam([*first.parameters(), *last.parameters()])
for _ in range(3):
    x = torch.rand(16, 1, requires_grad=True)
    u = last(Tanh.apply(first(x)))
    (u_x,) = torch.autograd.grad(u.sum(), x, create_graph=True)
    (u_xx,) = torch.autograd.grad(u_x.sum(), x, create_graph=True)
    optimizer.zero_grad()
    ((u_xx + u) ** 2).mean().backward()
    optimizer.step()
print("trained")
