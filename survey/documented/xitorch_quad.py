"""xitorch: an integral, squared; its own gradcheck and gradgradcheck pass

Call: xitorch.integrate.quad(fcn, xl, xu, params)
Function: xitorch:_Quadrature
Where: always, once something non-linear follows
Why: in the second backward the nested `torch.autograd.grad` by the parameters also follows
    `grad_ys`, which depends on them, so that this share is counted twice
Promise: its front page differentiates another of its functions twice
"""

import torch
from xitorch.integrate import quad

x = torch.tensor(0.7, requires_grad=True)


def f():
    ends = torch.tensor(0.0), torch.tensor(1.0)
    bell = quad(lambda t, a: torch.exp(-a * t * t), *ends, params=(x,))
    return bell**2
