"""WGAN-GP: a gradient penalty through a critic with its own LeakyReLU."""

import torch


class LeakyReLU(torch.autograd.Function):
    """Keeps slopes that forward has computed: right, since they are constants."""

    @staticmethod
    def forward(ctx, x):
        slope = torch.where(x > 0, 1.0, 0.2).to(x.dtype)
        ctx.save_for_backward(slope)
        return x * slope

    @staticmethod
    def backward(ctx, grad_out):
        (slope,) = ctx.saved_tensors
        return grad_out * slope


torch.manual_seed(0)
first, last = torch.nn.Linear(3, 8), torch.nn.Linear(8, 1)
optimizer = torch.optim.Adam([*first.parameters(), *last.parameters()])
for _ in range(3):
    real, fake = torch.randn(16, 3), torch.rand(16, 3)
    mixed = torch.lerp(real, fake, torch.rand(16, 1)).requires_grad_()
    score = last(LeakyReLU.apply(first(mixed)) ** 2)
    (slope,) = torch.autograd.grad(score.sum(), mixed, create_graph=True)
    penalty = ((slope.norm(dim=1) - 1) ** 2).mean()
    optimizer.zero_grad()
    (last(LeakyReLU.apply(first(fake))).mean() - score.mean() + 10 * penalty).backward()
    optimizer.step()
print("trained")
