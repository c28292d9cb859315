"""Activations, and Functions that change only the gradient."""

import torch
import torch.nn.functional as F

from ..listed import listed, load, normal, simple, uniform

TIMM = "timm.layers.activations_me"
simple("timm", f"{TIMM}.SwishAutoFn", bare=True, reference=F.silu)
simple("timm", f"{TIMM}.MishAutoFn", bare=True, reference=F.mish)
simple(
    "timm", f"{TIMM}.HardSigmoidAutoFn", bare=True, reference=lambda x: (x / 6 + 0.5).clamp(0, 1)
)
simple(
    "timm", f"{TIMM}.HardSwishAutoFn", bare=True, reference=lambda x: x * (x + 3).clamp(0, 6) / 6
)
simple(
    "timm", f"{TIMM}.HardMishAutoFn", bare=True, reference=lambda x: 0.5 * x * (x + 2).clamp(0, 2)
)

simple("monai", "monai.networks.blocks.activation.SwishImplementation", reference=F.silu)
simple("monai", "monai.visualize.gradient_based._AutoGradReLU", surrogate=True)


def step_of_exp(x):
    return torch.where(x > 0, torch.exp(-1 / x), torch.zeros_like(x))


simple("e3nn", "e3nn.math._soft_unit_step._SoftUnitStep", bare=True, reference=step_of_exp)

simple(
    "pyro-ppl",
    "pyro.ops.special._SafeLog",
    x=lambda: uniform(2, 3, low=0.5, high=2.0),
    reference=torch.log,
)


# In "graph after" the moving average is no longer the mean of the exponentials.
@listed("pyro-ppl", "pyro.contrib.oed.eig._EwmaLogFn", surrogate=True)
def ewma_log():
    apply = load("pyro.contrib.oed.eig._EwmaLogFn").apply
    return lambda x: apply(x, torch.tensor(1.5, dtype=x.dtype)), [uniform(2, 3, low=0.5, high=2.0)]


def gelu_by_tanh(x):
    return x * 0.5 * (1 + torch.tanh(0.79788456 * x * (1 + 0.044715 * x * x)))


@listed("transformers", "transformers.models.bloom.modeling_bloom.GeLUFunction")
def bloom_gelu():
    apply = load("transformers.models.bloom.modeling_bloom.GeLUFunction").apply
    return apply, [normal(2, 3)], gelu_by_tanh


simple(
    "transformers",
    "transformers.models.recurrent_gemma.modeling_recurrent_gemma.SqrtBoundDerivative",
    x=lambda: uniform(2, 3, low=0.5, high=2.0),
    reference=torch.sqrt,
)

simple(
    "pytorch-adapt",
    "pytorch_adapt.layers.gradient_reversal._GradientReversal",
    1.0,
    surrogate=True,
    absent=("pytorch_metric_learning", "torchvision", "torchmetrics"),
)
simple(
    "speechbrain",
    "speechbrain.lobes.models.beats.GradMultiply",
    0.5,
    surrogate=True,
    bare=True,
    absent=("torchaudio", "soundfile"),
)


@listed(
    "skada",
    "skada.deep.modules.GradientReversalLayer",
    surrogate=True,
    bare=True,
    absent=("ot", "skorch"),
)
def gradient_reversal():
    apply = load("skada.deep.modules.GradientReversalLayer").apply
    return lambda x: apply(x, 0.5), [normal(2, 3)]


@listed("kymatio", "kymatio.backend.torch_backend.ModulusStable")
def modulus():
    apply = load("kymatio.backend.torch_backend.ModulusStable").apply
    return apply, [normal(3, 2)], lambda x: x.norm(dim=-1)


@listed("pytorch-wavelets", "pytorch_wavelets.scatternet.lowlevel.SmoothMagFn")
def smooth_magnitude():
    apply = load("pytorch_wavelets.scatternet.lowlevel.SmoothMagFn").apply

    def reference(x, y):
        return torch.sqrt(x**2 + y**2 + 0.01) - 0.1

    return lambda x, y: apply(x, y, 0.1), [normal(2, 3), normal(2, 3, seed=1)], reference


@listed("geomloss", "geomloss._legacy.kernel_samples.DoubleGrad", surrogate=True, bare=True)
def double_grad():
    return load("geomloss._legacy.kernel_samples.DoubleGrad").apply, [normal(2, 3)]


@listed("magic-clamp", "magic_clamp.autograd.ClampWithConditionalSTEFunction", surrogate=True)
def clamp_with_condition():
    apply = load("magic_clamp.autograd.ClampWithConditionalSTEFunction").apply
    return lambda x: apply(x, -0.5, 0.5, False), [normal(2, 3)]


@listed("magic-clamp", "magic_clamp.autograd.ConstraintWithHyperPGDFunction", surrogate=True)
def constraint():
    apply = load("magic_clamp.autograd.ConstraintWithHyperPGDFunction").apply

    def unit_ball(x):
        return x / x.norm().clamp(min=1)

    return lambda x: apply(x, unit_ball, False), [normal(2, 3)]


@listed(
    "deepinv",
    "deepinv.models.deal.LinearSplineFunc",
    absent=("torchvision", "PIL", "natsort", "h5py"),
)
def linear_spline():
    return deepinv_spline("LinearSplineFunc")


@listed(
    "deepinv",
    "deepinv.models.deal.LinearSplineDerivativeFunc",
    absent=("torchvision", "PIL", "natsort", "h5py"),
)
def linear_spline_derivative():
    """Its gradient for the coefficients is flat, so they are."""
    fn, (x, coefficients) = deepinv_spline("LinearSplineDerivativeFunc")
    return fn, [x, coefficients.detach().flatten().requires_grad_()]


@listed(
    "deepinv",
    "deepinv.models.deal.QuadraticSplineFunc",
    absent=("torchvision", "PIL", "natsort", "h5py"),
)
def quadratic_spline():
    return deepinv_spline("QuadraticSplineFunc")


def deepinv_spline(name):
    apply = load(f"deepinv.models.deal.{name}").apply
    low, high = (torch.tensor([v], dtype=torch.float64) for v in (-2.0, 2.0))
    knots, channels = 9, 2
    offsets = torch.arange(channels) * knots
    x = uniform(1, channels, 3, 1, 1, low=-1.4, high=1.4)
    coefficients = normal(channels, knots, seed=1)
    return lambda x, c: apply(x, c, low, high, knots, offsets), [x, coefficients]


@listed("x-transformers", "x_transformers.belief_state_wrapper.DetachMultiple", absent=("einx",))
def detach_multiple():
    apply = load("x_transformers.belief_state_wrapper.DetachMultiple").apply
    return apply, [normal(2, 3), normal(3, seed=1)], lambda x, y: (x * 1, y * 1)


@listed(
    "spikingjelly",
    "spikingjelly.activation_based.layer.online_learning.ReplaceforGrad",
    surrogate=True,
)
def replace_for_grad():
    apply = load("spikingjelly.activation_based.layer.online_learning.ReplaceforGrad").apply
    return apply, [normal(2, 3), normal(2, 3, seed=1)]


@listed("torchdiffeq", "torchdiffeq._impl.misc._StitchGradient", surrogate=True)
def stitch_gradient():
    apply = load("torchdiffeq._impl.misc._StitchGradient").apply
    return apply, [normal(2, 3), normal(2, 3, seed=1)]


@listed("transformers", "transformers.models.sew_d.modeling_sew_d.XDropout")
def xdropout():
    apply = load("transformers.models.sew_d.modeling_sew_d.XDropout").apply

    def fn(x):
        torch.manual_seed(0)
        return apply(x, 0.5)

    return fn, [normal(2, 3)]
