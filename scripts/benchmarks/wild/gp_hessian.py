"""The Hessian of a Gaussian process's likelihood, for a Laplace approximation."""

import torch


class SquaredExponential(torch.autograd.Function):
    """Keeps the squared distances that forward has computed."""

    @staticmethod
    def forward(ctx, x, scale):
        distances = torch.cdist(x / scale, x / scale).square()
        kernel = torch.exp(-distances / 2)
        ctx.save_for_backward(distances, kernel, scale)
        return kernel

    @staticmethod
    def backward(ctx, grad_out):
        distances, kernel, scale = ctx.saved_tensors
        return None, (grad_out * kernel * distances / scale).sum()


torch.manual_seed(0)
x = torch.randn(6, 2, dtype=torch.float64)
y = torch.randn(6, dtype=torch.float64)


def loss(scale):
    kernel = SquaredExponential.apply(x, scale) + 0.1 * torch.eye(6, dtype=torch.float64)
    return y @ torch.linalg.solve(kernel, y) + torch.logdet(kernel)


scale = torch.tensor(0.8, dtype=torch.float64, requires_grad=True)
print(torch.autograd.functional.hessian(loss, scale))
