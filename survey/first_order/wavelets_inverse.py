"""pytorch_wavelets: an inverse wavelet transform, by its high bands alone

Call: pytorch_wavelets.DWTInverse()((low, high))
Function: pytorch-wavelets:SFB2D
Where: the low band needs no gradient; the high bands get none, so their part is missing
Thread: https://github.com/fbcotter/pytorch_wavelets/issues/65, of the same line in one dimension
Cost: nothing; it is the change for `DWT1DInverse`, too
Why: backward returns the gradients of both bands only `if ctx.needs_input_grad[0]`
Instead: `low.requires_grad_()`
Needs: "setuptools<81" PyWavelets
"""

import torch
from pytorch_wavelets import DWTInverse

from survey.by_hand import by_grad

x = torch.tensor(0.5, requires_grad=True)
low = torch.arange(16.0).reshape(1, 1, 4, 4).cos()
high = torch.arange(48.0).reshape(1, 1, 3, 4, 4).sin()
inverse = DWTInverse(wave="db2", mode="zero").double()


def f(low=low):
    return inverse((low, [x * high])).sin().sum() + x**2


# Instead

instead = by_grad(lambda: f(low.clone().requires_grad_()), x).item()
