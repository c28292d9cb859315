"""iUNets: the weight of an invertible downsampling, by the matrix exponential

Call: iunets.layers.InvertibleDownsampling2D(channels, stride=2, method="exp")
Function: iunets:expm
Where: in float32 always; in float64 right if the 1-norm of weight - weightᵀ is between 1.8 and 4.7
Why: below order 13 `V = U + b[0]*I` overwrites V; squaring adds R @ L twice, and never L @ R
"""

import torch
from iunets.layers import InvertibleDownsampling2D

x = torch.tensor(0.5, requires_grad=True)
W, image = torch.arange(16.0).reshape(1, 4, 4).cos(), torch.arange(16.0).reshape(1, 1, 4, 4).cos()
layer = InvertibleDownsampling2D(1, stride=2, method="exp")


def f():
    return torch.func.functional_call(layer, {"weight": x * W}, image).sin().sum()
