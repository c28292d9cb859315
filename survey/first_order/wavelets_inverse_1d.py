"""pytorch_wavelets: an inverse wavelet transform in one dimension, by its high bands alone

Call: pytorch_wavelets.DWT1DInverse()((low, high))
Function: pytorch-wavelets:SFB1D
Where: the low band needs no gradient; the high bands get none, so their part is missing
Thread: https://github.com/fbcotter/pytorch_wavelets/issues/65
Cost: nothing; it is the change for `DWTInverse`, too
Why: backward returns the gradients of both bands only `if ctx.needs_input_grad[0]`
Instead: `low.requires_grad_()`
Needs: "setuptools<81" PyWavelets
"""

import torch
from pytorch_wavelets import DWT1DInverse

from survey.by_hand import by_grad

x = torch.tensor(0.5, requires_grad=True)
low = torch.arange(5.0).reshape(1, 1, 5).cos()
high = torch.arange(5.0).reshape(1, 1, 5).sin()
inverse = DWT1DInverse(wave="db2", mode="zero").double()


def f(low=low):
    return inverse((low, [x * high])).sin().sum() + x**2


# Instead

instead = by_grad(lambda: f(low.clone().requires_grad_()), x).item()
