"""pytorch-finufft: moving points, a non-uniform Fourier transform

Call: pytorch_finufft.functional.finufft_type2(points, coefficients)
Function: pytorch-finufft:FinufftType2
Cost: with points and coefficients that both need a gradient, a second derivative raises with it
Where: always, by the points; with nothing non-linear before it or behind it autograd raises
"""

import torch
from pytorch_finufft.functional import finufft_type2

x = torch.tensor(1.0, requires_grad=True)
coefficients = torch.tensor([0.5, 1.0, 0.0, -0.5, 0.2]).to(torch.complex128)


def f():
    points = torch.tensor([[0.3, 1.1, 2.0]]) * x
    return finufft_type2(points, coefficients).abs().square().sum()
