"""deepinv: the derivative of a linear spline, by the spline's coefficients

Call: deepinv.models.deal.LinearSplineDerivativeFunc
Function: deepinv:LinearSplineDerivativeFunc
Where: flat coefficients; with the package's own, (channels, knots), backward raises
Why: backward leaves `grad_out` out of the coefficients' gradient
"""

import torch
from deepinv.models.deal import LinearSplineDerivativeFunc

x = torch.tensor(0.5, requires_grad=True)
point, start = torch.zeros(1, 1, 1, 1), torch.zeros(1)
low, high = torch.tensor([-1.0]), torch.tensor([1.0])
W = torch.arange(3.0) ** 2


def f():
    slope = LinearSplineDerivativeFunc.apply(point, x * W, low, high, 3, start)
    return (2 * slope).sum()
