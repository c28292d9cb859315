"""GPyTorch: the curvature of a Gaussian process's likelihood by its lengthscale

Call: gpytorch.kernels.MaternKernel(nu=2.5)
Function: gpytorch:MaternCovariance
Where: one lengthscale for all inputs (the default), inputs that need no gradient
Thread: https://github.com/cornellius-gp/gpytorch/issues/831
Promise: "all relevant custom GPyTorch functions are twice differentiable", in 2019, in that thread
Instead: inside `with gpytorch.settings.trace_mode(True):`
Cost: one more tensor of the size of the kernel matrix is kept until backward
Tests: test/functions/test_matern_covariance.py and test/kernels/test_matern_kernel.py, 53
"""

import gpytorch
import torch

from survey.by_hand import second

X = torch.linspace(0, 1, 8)
kernel = gpytorch.kernels.MaternKernel(nu=2.5)
x = kernel.raw_lengthscale


def f():
    K = kernel(X).add_jitter(0.1)
    prior = gpytorch.distributions.MultivariateNormal(torch.zeros(8), K)
    return -prior.log_prob(torch.sin(6 * X))


# Instead

with gpytorch.settings.trace_mode(True):
    instead = second(f, x)
