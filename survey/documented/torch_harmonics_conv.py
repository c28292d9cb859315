"""torch-harmonics: a convolution on the sphere in a gradient penalty

Call: torch_harmonics.DiscreteContinuousConvS2(1, 1, (4, 8), (4, 8), kernel_shape=(2, 2))
Function: torch-harmonics:disco_kernels::_disco_s2_contraction_optimized
Where: with optimized_kernel=True, the default; on torch 2.13 and on 2.14.1, which it is built
    for
Cost: nothing; it leaves as it is the Function `_DiscoSaveXConvFn`, by which a layer goes that has
    at least twice as many channels in as out
Why: the registered backward calls the kernel `disco_kernels.backward` itself, which has no
    derivative; the operator around that kernel has one
Torch: 2.14.1
Instead: `DiscreteContinuousConvS2(..., optimized_kernel=False)`
"""

import torch
from torch_harmonics import DiscreteContinuousConvS2

from survey.by_hand import second

torch.manual_seed(0)
conv = DiscreteContinuousConvS2(1, 1, (4, 8), (4, 8), kernel_shape=(2, 2)).double()
field = torch.linspace(-2, 2, 32).reshape(1, 1, 4, 8)
x = torch.tensor(0.5, requires_grad=True)


def f():
    return conv(torch.sin(field * x)).square().sum()


# Instead

plain = DiscreteContinuousConvS2(
    1, 1, (4, 8), (4, 8), kernel_shape=(2, 2), optimized_kernel=False
).double()
plain.load_state_dict(conv.state_dict(), strict=False)
instead = second(lambda: plain(torch.sin(field * x)).square().sum(), x)
