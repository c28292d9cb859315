"""A force field that is fitted to forces: the loss holds a gradient of the energy."""

import torch


class LennardJones(torch.autograd.Function):
    """Keeps a power of the distance on ctx."""

    @staticmethod
    def forward(ctx, r, sigma):
        ctx.power = (sigma / r) ** 6
        ctx.save_for_backward(r, sigma)
        return 4 * (ctx.power**2 - ctx.power)

    @staticmethod
    def backward(ctx, grad_out):
        r, sigma = ctx.saved_tensors
        slope = 4 * (12 * ctx.power**2 - 6 * ctx.power)
        return -grad_out * slope / r, (grad_out * slope).sum() / sigma


torch.manual_seed(0)
sigma = torch.tensor(1.1, dtype=torch.float64, requires_grad=True)
r = torch.linspace(1.0, 2.0, 5, dtype=torch.float64).requires_grad_()
forces = torch.randn(5, dtype=torch.float64)
optimizer = torch.optim.SGD([sigma], lr=1e-6)
for _ in range(3):
    energy = LennardJones.apply(r, sigma).sum()
    (slope,) = torch.autograd.grad(energy, r, create_graph=True)
    optimizer.zero_grad()
    ((-slope - forces) ** 2).mean().backward(inputs=[sigma])
    optimizer.step()
print("trained")
