"""A neural ODE with the adjoint method, and a penalty on the gradient by where it starts."""

import torch

STEPS = 20


def field(x, weight):
    return torch.tanh(x @ weight)


class Solve(torch.autograd.Function):
    """Goes back along the path; each step of that is detached."""

    @staticmethod
    def forward(ctx, x, weight):
        path = [x]
        for _ in range(STEPS):
            path.append(path[-1] + field(path[-1], weight) / STEPS)
        ctx.path = path[:-1]
        ctx.save_for_backward(weight)
        return path[-1]

    @staticmethod
    def backward(ctx, adjoint):
        (weight,) = ctx.saved_tensors
        by_weight = torch.zeros_like(weight)
        for x in reversed(ctx.path):
            with torch.enable_grad():
                x, w = x.detach().requires_grad_(), weight.detach().requires_grad_()
                by_x, by_w = torch.autograd.grad(field(x, w), (x, w), adjoint)
            adjoint, by_weight = adjoint + by_x / STEPS, by_weight + by_w / STEPS
        return adjoint, by_weight


torch.manual_seed(0)
weight = torch.randn(2, 2, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.01)
for _ in range(3):
    start = torch.randn(4, 2, requires_grad=True)
    end = Solve.apply(start, weight)
    (slope,) = torch.autograd.grad((end**2).sum(), start, create_graph=True)
    optimizer.zero_grad()
    ((end - 1).square().mean() + 0.1 * slope.square().mean()).backward()
    optimizer.step()
print("trained")
