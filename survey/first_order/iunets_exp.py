"""iUNets: the weight of an invertible downsampling, by the matrix exponential

Call: iunets.layers.InvertibleDownsampling2D(channels, stride=2, method="exp")
Function: iunets:expm
Where: always with method="exp"
"""

import torch
from iunets.layers import InvertibleDownsampling2D

x = torch.tensor(0.5, requires_grad=True)
W, image = torch.arange(16.0).reshape(1, 4, 4).cos(), torch.arange(16.0).reshape(1, 1, 4, 4).cos()
layer = InvertibleDownsampling2D(1, stride=2, method="exp")


def f():
    return torch.func.functional_call(layer, {"weight": x * W}, image).sin().sum()
