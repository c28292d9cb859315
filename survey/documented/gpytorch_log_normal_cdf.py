"""GPyTorch: the curvature of the probit likelihood's logarithm

Call: gpytorch.functions.log_normal_cdf(x)
Function: gpytorch:LogNormalCDF
Where: below x = -1; from there on a formula is used that is right
Cost: nothing. Below -1 the package approximates its first derivative, by whose differences the
    second is -0.885; the exact one is -0.886
Instead: `torch.special.log_ndtr(x)`
"""

import gpytorch
import torch

from survey.by_hand import second

x = torch.tensor(-2.0, requires_grad=True)


def f():
    return gpytorch.functions.log_normal_cdf(x)


# Instead

instead = second(lambda: torch.special.log_ndtr(x), x)
