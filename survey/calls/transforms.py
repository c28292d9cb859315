"""Wavelets, non-uniform Fourier transforms, tomography, denoisers."""

import torch

from ..listed import listed, load, normal, uniform

DWT = "pytorch_wavelets.dwt.lowlevel"


@listed("pytorch-wavelets", f"{DWT}.AFB2D")
def afb2d():
    from pytorch_wavelets import DWTForward

    transform = DWTForward(J=1, wave="db2", mode="zero").double()
    return lambda x: (transform(x)[0], transform(x)[1][0]), [normal(1, 1, 6, 6)]


@listed("pytorch-wavelets", f"{DWT}.SFB2D")
def sfb2d():
    from pytorch_wavelets import DWTInverse

    transform = DWTInverse(wave="db2", mode="zero").double()
    return lambda low, high: transform((low, [high])), [normal(1, 1, 4, 4), normal(1, 1, 3, 4, 4)]


@listed("pytorch-wavelets", f"{DWT}.AFB1D")
def afb1d():
    from pytorch_wavelets import DWT1DForward

    transform = DWT1DForward(J=1, wave="db2", mode="zero").double()
    return lambda x: (transform(x)[0], transform(x)[1][0]), [normal(1, 1, 8)]


@listed("pytorch-wavelets", f"{DWT}.SFB1D")
def sfb1d():
    from pytorch_wavelets import DWT1DInverse

    transform = DWT1DInverse(wave="db2", mode="zero").double()
    return lambda low, high: transform((low, [high])), [normal(1, 1, 5), normal(1, 1, 5, seed=1)]


DTCWT = "pytorch_wavelets.dtcwt.transform_funcs"


@listed("pytorch-wavelets", f"{DTCWT}.FWD_J1")
def fwd_j1():
    from pytorch_wavelets import DTCWTForward

    transform = DTCWTForward(J=1).double()
    return lambda x: (transform(x)[0], transform(x)[1][0]), [normal(1, 1, 8, 8)]


@listed("pytorch-wavelets", f"{DTCWT}.FWD_J2PLUS")
def fwd_j2():
    from pytorch_wavelets import DTCWTForward

    transform = DTCWTForward(J=2).double()
    return lambda x: (transform(x)[0], *transform(x)[1]), [normal(1, 1, 8, 8)]


@listed("pytorch-wavelets", f"{DTCWT}.INV_J1")
def inv_j1():
    from pytorch_wavelets import DTCWTInverse

    transform = DTCWTInverse().double()
    return lambda low, high: transform((low, [high])), [
        normal(1, 1, 8, 8),
        normal(1, 1, 6, 4, 4, 2),
    ]


SCAT = "pytorch_wavelets.scatternet.lowlevel"


@listed("pytorch-wavelets", f"{SCAT}.ScatLayerj1_f")
def scat_j1():
    from pytorch_wavelets import ScatLayer

    return ScatLayer().double(), [normal(1, 1, 8, 8)]


KB = "torchkbnufft._autograd.interp"


def kb_points():
    return uniform(2, 5, low=-3.0, high=3.0, seed=3).detach()


@listed("torchkbnufft", f"{KB}.KbTableInterpForward")
def kb_forward():
    from torchkbnufft import KbInterp

    transform = KbInterp(im_size=(4, 4), grid_size=(8, 8), numpoints=3).double()

    def fn(image):
        return torch.view_as_real(transform(torch.view_as_complex(image), kb_points()))

    return fn, [normal(1, 1, 8, 8, 2)]


@listed("torchkbnufft", f"{KB}.KbTableInterpAdjoint")
def kb_adjoint():
    from torchkbnufft import KbInterpAdjoint

    transform = KbInterpAdjoint(im_size=(4, 4), grid_size=(8, 8), numpoints=3).double()

    def fn(data):
        return torch.view_as_real(transform(torch.view_as_complex(data), kb_points()))

    return fn, [normal(1, 1, 5, 2)]


def kb_sparse(adjoint):
    import torchkbnufft as kb

    kind = kb.KbInterpAdjoint if adjoint else kb.KbInterp
    transform = kind(im_size=(4, 4), grid_size=(8, 8), numpoints=3).double()
    matrices = kb.calc_tensor_spmatrix(kb_points(), im_size=(4, 4), grid_size=(8, 8), numpoints=3)
    matrices = tuple(m.double() for m in matrices)

    def fn(x):
        return torch.view_as_real(transform(torch.view_as_complex(x), kb_points(), matrices))

    return fn, [normal(1, 1, 5, 2) if adjoint else normal(1, 1, 8, 8, 2)]


@listed("torchkbnufft", f"{KB}.KbSpmatInterpForward")
def kb_sparse_forward():
    return kb_sparse(adjoint=False)


@listed("torchkbnufft", f"{KB}.KbSpmatInterpAdjoint")
def kb_sparse_adjoint():
    return kb_sparse(adjoint=True)


@listed(
    "deepinv", "deepinv.models.mmse.MMSEFunction", absent=("torchvision", "PIL", "natsort", "h5py")
)
def mmse():
    """The best denoiser for data that are known: a mean weighted by a softmax of distances."""
    apply = load("deepinv.models.mmse.MMSEFunction").apply
    data = normal(5, 3, seed=1).detach()
    sigma = torch.tensor([[0.8]], dtype=torch.float64)

    def reference(x):
        distance = (x[:, None] - data).pow(2).sum(-1)
        return (-distance / (2 * sigma**2)).softmax(1) @ data

    return lambda x: apply(x, sigma, data, "cpu", torch.float64, False), [normal(2, 3)], reference


@listed("pytorch-finufft", "pytorch_finufft.functional.FinufftType1")
def finufft1():
    from pytorch_finufft.functional import finufft_type1

    def fn(points, values):
        return torch.view_as_real(
            finufft_type1(points, torch.view_as_complex(values), (6,), eps=1e-13)
        )

    return fn, [uniform(5, low=-3, high=3), normal(5, 2)]


@listed("pytorch-finufft", "pytorch_finufft.functional.FinufftType2")
def finufft2():
    from pytorch_finufft.functional import finufft_type2

    def fn(points, modes):
        return torch.view_as_real(finufft_type2(points, torch.view_as_complex(modes), eps=1e-13))

    return fn, [uniform(5, low=-3, high=3), normal(6, 2)]


@listed("torchesnufft", "torchesnufft.utils.spreadinterp.SpreadFunction")
def spread():
    return spreading("SpreadFunction")


@listed("torchesnufft", "torchesnufft.utils.spreadinterp.InterpFunction")
def interp():
    return spreading("InterpFunction")


def spreading(name):
    """One dimension, 12 cells of width 2 pi / 12, a kernel of width three cells on each side."""
    apply = load(f"torchesnufft.utils.spreadinterp.{name}").apply
    cells = torch.tensor([12])
    h = 2 * torch.pi / cells.double()
    x = uniform(1, 5, low=-2.9, high=2.9)
    values = normal(1, 1, 12 if name == "InterpFunction" else 5, seed=1)
    return lambda x, v: apply(x, v, 3 * h, 6.9, 1, h, cells), [x, values]
