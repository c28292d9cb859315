"""Rounding, clipping and signs with a gradient of their own, by design."""

import torch

from ..listed import listed, load, normal, simple, uniform


def rounding(package, function, *constants, **options):
    simple(package, function, *constants, surrogate=True, **options)


BREVITAS = "brevitas.ops.autograd_ste_ops"
for name in (
    "RoundSteFn",
    "RoundToZeroSteFn",
    "DPURoundSteFn",
    "CeilSteFn",
    "FloorSteFn",
    "BinarySignSteFn",
    "TernarySignSteFn",
    "AbsBinarySignGradFn",
):
    rounding("brevitas", f"{BREVITAS}.{name}")
rounding("brevitas", f"{BREVITAS}.ScalarClampSteFn", -0.5, 0.5)
rounding("brevitas", f"{BREVITAS}.ScalarClampMinSteFn", -0.5)


@listed("brevitas", f"{BREVITAS}.TensorClampSteFn", surrogate=True)
def tensor_clamp():
    apply = load(f"{BREVITAS}.TensorClampSteFn").apply
    return lambda x: apply(x, torch.tensor(-0.5), torch.tensor(0.5)), [normal(2, 3)]


rounding("bnn", "bnn.ops.SignActivation")

BITORCH = "bitorch.quantizations"
rounding("bitorch", f"{BITORCH}.approx_sign.ApproxSignFunction", bare=True)
rounding("bitorch", f"{BITORCH}.dorefa.WeightDoReFaFunction", 15, bare=True)
rounding("bitorch", f"{BITORCH}.dorefa.InputDoReFaFunction", 4, bare=True)
rounding("bitorch", f"{BITORCH}.progressive_sign.ProgressiveSignFunctionTrain", 0.5, bare=True)
rounding("bitorch", f"{BITORCH}.swish_sign.SwishSignFunction", 1.0, bare=True)
rounding("bitorch", "bitorch.layers.qactivation.GradientCancellation", 1.0, bare=True)


@listed("bitorch", "bitorch.layers.pact.PactActFn", surrogate=True, bare=True)
def pact():
    apply = load("bitorch.layers.pact.PactActFn").apply
    alpha = torch.tensor([0.8], dtype=torch.float64, requires_grad=True)
    return lambda x, alpha: apply(x, alpha, 4), [normal(2, 3), alpha]


rounding("botorch", "botorch.utils.rounding.RoundSTE", bare=True)
rounding(
    "diffsptk", "diffsptk.modules.quantize.Floor", bare=True, absent=("torchaudio", "soundfile")
)
rounding(
    "diffsptk", "diffsptk.modules.quantize.Round", bare=True, absent=("torchaudio", "soundfile")
)

for name in ("FakeQuantize", "FakeQuantizeFloor", "FakeQuantizeINT32", "FakeQuantizeINT28"):
    rounding("hnn", f"hnn.grad.{name}", torch.tensor(8.0))
rounding("hnn", "hnn.grad.DifferentiableFloor")

OMNIBIAS = "omnibias.binary.torch.ops"
rounding("omnibias-binary", f"{OMNIBIAS}.quantize._BinarizeFn", 2.0)
rounding("omnibias-binary", f"{OMNIBIAS}.quantize._Binarize01Fn", 2.0)
rounding("omnibias-binary", f"{OMNIBIAS}.quantize._TernarizeFn", 2.0, 0.5)
rounding("omnibias-binary", f"{OMNIBIAS}.quantize._KBitQuantizeFn", 2, -1.0, 1.0, 2.0)

rounding("pyro-ppl", "pyro.distributions.relaxed_straight_through.QuantizeCategorical")
rounding(
    "pyro-ppl",
    "pyro.distributions.relaxed_straight_through.QuantizeBernoulli",
    x=lambda: uniform(2, 3),
)

QSPARSE = "qsparse.quantize"
rounding("qsparse", f"{QSPARSE}.DecimalQuantization", 8, 5)
rounding("qsparse", f"{QSPARSE}.ScalerQuantization", 8, 0.1)
rounding("qsparse", f"{QSPARSE}.LineQuantization", 8)

rounding("sinabs", "sinabs.activation.quantize.Quantize", bare=True)

SJ = "spikingjelly.activation_based.quantize"
rounding("spikingjelly", f"{SJ}.RoundATGF")
rounding("spikingjelly", f"{SJ}.CeilATGF")
rounding("spikingjelly", f"{SJ}.FloorATGF")
rounding("spikingjelly", f"{SJ}.ClampATGF", -0.5, 0.5)
rounding("spikingjelly", f"{SJ}.StepQuantizeATGF", 0.25)
rounding("spikingjelly", f"{SJ}.KBitQuantizeATGF", 4, x=lambda: uniform(2, 3))

rounding(
    "torchquantum",
    "torchquantum.util.quantization.clifford_quantization.QuantizeFunction",
    bare=True,
)

AO = "torchao"
rounding(AO, "torchao.quantization.quant_primitives._Round")
rounding(
    AO, "torchao.prototype.quantization.module_swap.quantizers.RoundStraightThrough", bare=True
)


@listed(AO, "torchao.sparsity.supermask.ApplyMask", surrogate=True)
def apply_mask():
    return load("torchao.sparsity.supermask.ApplyMask").apply, [normal(2, 3), uniform(2, 3)]


for name in ("LsqBinaryTernaryExtension", "StretchedElasticQuant"):

    def make(name=name):
        apply = load(f"torchao.prototype.paretoq.models.utils_quant.{name}").apply
        return lambda x, a: apply(x, a, 2, False), [normal(2, 3), uniform(2, 1, low=0.4)]

    listed(AO, f"torchao.prototype.paretoq.models.utils_quant.{name}", surrogate=True, bare=True)(
        make
    )

IBERT = "transformers.models.ibert.quant_modules"
rounding("transformers", f"{IBERT}.floor_ste")
rounding("transformers", f"{IBERT}.round_ste")


@listed("transformers", f"{IBERT}.SymmetricQuantFunction", surrogate=True)
def symmetric_quant():
    apply = load(f"{IBERT}.SymmetricQuantFunction").apply
    scale = torch.tensor([0.1, 0.2], dtype=torch.float64)
    return lambda x: apply(x, 8, False, scale), [normal(2, 3)]


@listed(
    "spikingjelly",
    "spikingjelly.activation_based.quantize.MultiLevelSpikeCountATGF",
    surrogate=True,
)
def multi_level():
    apply = load("spikingjelly.activation_based.quantize.MultiLevelSpikeCountATGF").apply
    return lambda x: apply(x, 4, 0.0, 4.0), [uniform(2, 3, high=5)]
