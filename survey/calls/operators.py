"""Operators that packages register with torch, in Python (`torch.library`) or in C++.

Each is called as a user of its package does, by the public call: what is differentiated around the
operator are operations of torch.
"""

import torch

from ..listed import listed, load, normal, uniform

DISCO = "torch_harmonics.disco.optimized.disco_optimized."
GRID = {"in_shape": (4, 8), "out_shape": (4, 8)}


@listed(
    "torch-harmonics",
    "disco_kernels::_disco_s2_contraction_optimized",
    at=DISCO + "_disco_s2_contraction_optimized",
)
def contraction():
    return convolution("DiscreteContinuousConvS2")


@listed(
    "torch-harmonics",
    "disco_kernels::_disco_s2_fused_conv_optimized",
    at=DISCO + "_disco_s2_fused_conv_optimized",
)
def fused():
    return convolution("DiscreteContinuousConvS2", fused=True)


@listed(
    "torch-harmonics",
    "disco_kernels::_disco_s2_transpose_contraction_optimized",
    at=DISCO + "_disco_s2_transpose_contraction_optimized",
)
def transpose_contraction():
    return convolution("DiscreteContinuousConvTransposeS2")


def convolution(name, **options):
    """The layer as a function of its input and its weight, and the same without its kernels."""
    layer = load(f"torch_harmonics.{name}")

    def built(**more):
        torch.manual_seed(0)
        return layer(1, 1, kernel_shape=(2, 2), **GRID, **more).double()

    def called(module):
        return lambda x, weight: torch.func.functional_call(module, {"weight": weight}, (x,))

    module = built(**options)
    inputs = [normal(1, 1, 4, 8), module.weight.detach().clone().requires_grad_()]
    return called(module), inputs, called(built(optimized_kernel=False))


@listed(
    "torch-harmonics",
    "attention_kernels::_neighborhood_s2_attention_optimized",
    at="torch_harmonics.attention.optimized.attention_optimized"
    "._neighborhood_s2_attention_optimized",
)
def attention():
    layer = load("torch_harmonics.NeighborhoodAttentionS2")(in_channels=2, **GRID)
    for weight in layer.parameters():  # its other tensors have to stay in float32
        weight.data = weight.data.double()
    return layer, [normal(1, 2, 4, 8)]


def spherical(operator, made_by, method, at):
    @listed(
        "sphericart-torch", f"sphericart_torch::{operator}", at=f"sphericart.torch.register.{at}"
    )
    def how():
        return getattr(load(f"sphericart.torch.{made_by}")(2), method), [normal(3, 3)]


for prefix in "spherical", "solid":
    made_by = f"{prefix.title()}Harmonics"
    spherical(f"{prefix}_harmonics", made_by, "compute", "_register_value_autograd")
    spherical(
        f"{prefix}_harmonics_with_gradients",
        made_by,
        "compute_with_gradients",
        "_register_gradients_autograd",
    )


CELL = 5 * torch.eye(3, dtype=torch.float64)[None]
SPLINE = "nvalchemiops.torch.spline."


def atoms():
    return uniform(4, 3, low=0.5, high=4.5, seed=3)


@listed("nvalchemi-toolkit-ops", "nvalchemiops::spline_spread", at=SPLINE + "_spline_spread")
def spread():
    spline_spread = load(SPLINE + "spline_spread")
    return lambda x, q: spline_spread(x, q, CELL, (6, 6, 6)), [atoms(), normal(4, seed=1)]


@listed("nvalchemi-toolkit-ops", "nvalchemiops::spline_gather", at=SPLINE + "_spline_gather")
def gather():
    spline_gather = load(SPLINE + "spline_gather")
    return lambda x, mesh: spline_gather(x, mesh, CELL), [atoms(), normal(6, 6, 6, seed=2)]


COULOMB = "nvalchemiops.torch.interactions.electrostatics.coulomb."


@listed(
    "nvalchemi-toolkit-ops",
    "nvalchemiops::_coulomb_energy_list",
    at=COULOMB + "_coulomb_energy_list",
)
def coulomb():
    energy = load(COULOMB + "coulomb_energy")
    pairs = [(i, j) for i in range(4) for j in range(4) if i != j]
    listed_pairs = {
        "neighbor_list": torch.tensor(pairs).T.int().contiguous(),
        "neighbor_ptr": 3 * torch.arange(5).int(),
        "neighbor_shifts": torch.zeros(len(pairs), 3).int(),
    }
    return lambda x, q: energy(x, q, CELL, 9.0, **listed_pairs), [atoms(), normal(4, seed=1)]


@listed("vesin-torch", "vesin::_NeighborList", at="vesin_torch._neighbors.NeighborList")
def distances():
    neighbors = load("vesin_torch.NeighborList")
    box = torch.zeros(3, 3, dtype=torch.float64)

    def fn(x):
        found = neighbors(cutoff=9.0, full_list=False, sorted=True)
        return found.compute(points=x, box=box, periodic=False, quantities="d")[0]

    i, j = torch.triu_indices(4, 4, 1)
    return fn, [atoms()], lambda x: (x[i] - x[j]).norm(dim=1)


@listed(
    "metatomic-torch",
    "metatomic::register_autograd_neighbors",
    at="metatomic.torch.documentation.register_autograd_neighbors",
)
def registered_neighbors():
    from metatensor.torch import Labels, TensorBlock

    system = load("metatomic.torch.System")
    register = load("metatomic.torch.register_autograd_neighbors")
    i, j = torch.triu_indices(4, 4, 1)
    pairs = ["first_atom", "second_atom", "cell_shift_a", "cell_shift_b", "cell_shift_c"]
    samples = Labels(pairs, torch.stack([i, j, 0 * i, 0 * i, 0 * i], 1).int())
    xyz = Labels(["xyz"], torch.arange(3).int()[:, None])
    distance = Labels(["distance"], torch.zeros(1, 1).int())
    none = {"cell": torch.zeros(3, 3).double(), "pbc": torch.zeros(3).bool()}

    def fn(x):
        vectors = (x[j] - x[i]).detach()[..., None]
        block = TensorBlock(vectors, samples, [xyz], distance)
        register(system(torch.ones(4).int(), x, **none), block, False)
        return block.values

    return fn, [atoms()], lambda x: (x[j] - x[i])[..., None]


@listed(
    "featomic-torch",
    "featomic::CalculatorHolder",
    at="featomic.torch.calculator_base.CalculatorModule",
)
def soap():
    system = load("metatomic.torch.System")
    calculator = load("featomic.torch.SoapRadialSpectrum")(
        cutoff={"radius": 3.0, "smoothing": {"type": "ShiftedCosine", "width": 0.5}},
        density={"type": "Gaussian", "width": 0.3},
        basis={"radial": {"type": "Gto", "max_radial": 2}},
    )
    none = {"cell": torch.zeros(3, 3).double(), "pbc": torch.zeros(3).bool()}

    def fn(x):
        return calculator.compute(system(torch.ones(3).int(), x, **none)).block(0).values

    return fn, [normal(3, 3)]
