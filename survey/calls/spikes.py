"""Spiking neurons: a step forward, another function's derivative backward, by design."""

import torch

from ..listed import listed, load, normal, simple, uniform


def spiking(package, function, *constants, **options):
    simple(package, function, *constants, surrogate=True, **options)


SNN = "snntorch.surrogate"
spiking("snntorch", f"{SNN}.StraightThroughEstimator")
spiking("snntorch", f"{SNN}.Triangular", 1.0)
spiking("snntorch", f"{SNN}.FastSigmoid", 25)
spiking("snntorch", f"{SNN}.ATan", 2.0)
spiking("snntorch", f"{SNN}.Heaviside")
spiking("snntorch", f"{SNN}.Sigmoid", 25)
spiking("snntorch", f"{SNN}.SpikeRateEscape", 1, 25)
spiking("snntorch", f"{SNN}.StochasticSpikeOperator", 0, 0.2)
spiking("snntorch", f"{SNN}.LeakySpikeOperator", 0.1)
spiking("snntorch", f"{SNN}.SparseFastSigmoid", 25, 1.0)


@listed("snntorch", f"{SNN}.CustomSurrogate", surrogate=True)
def custom_surrogate():
    apply = load(f"{SNN}.CustomSurrogate").apply

    def fast_sigmoid(x, grad, spikes):
        return grad / (25 * x.abs() + 1.0) ** 2

    return lambda x: apply(x, fast_sigmoid), [normal(2, 3)]


@listed("snntorch", "snntorch.functional.quant.StateQuant", surrogate=True)
def state_quant():
    apply = load("snntorch.functional.quant.StateQuant").apply
    levels = torch.linspace(-1, 1, 9, dtype=torch.float64)
    return lambda x: apply(x, levels), [uniform(2, 3, low=-1)]


SJ = "spikingjelly.activation_based.surrogate"
spiking("spikingjelly", f"{SJ}.piecewise_quadratic", 1.0)
spiking("spikingjelly", f"{SJ}.piecewise_exp", 1.0)
spiking("spikingjelly", f"{SJ}.sigmoid", 4.0)
spiking("spikingjelly", f"{SJ}.soft_sign", 2.0)
spiking("spikingjelly", f"{SJ}.super_spike", 1.0)
spiking("spikingjelly", f"{SJ}.atan", 2.0)
spiking("spikingjelly", f"{SJ}.nonzero_sign_log_abs", 1.0)
spiking("spikingjelly", f"{SJ}.erf", 2.0)
spiking("spikingjelly", f"{SJ}.piecewise_leaky_relu", 1.0, 0.01)
spiking("spikingjelly", f"{SJ}.squarewave_fourier_series", 2, 8.0)
spiking("spikingjelly", f"{SJ}.s2nn", 4.0, 1.0)
spiking("spikingjelly", f"{SJ}.q_pseudo_spike", 2.0)
spiking("spikingjelly", f"{SJ}.leaky_k_relu", 0.0, 1.0)
spiking("spikingjelly", f"{SJ}.fake_numerical_gradient", 0.3)


NORSE = "norse.torch.functional.threshold"


def norse(name, constant, function=None):
    function = function or f"{NORSE}.{name}"

    def make():
        apply = load(function).apply
        return lambda x: apply(x, torch.tensor(constant, dtype=x.dtype)), [normal(2, 3)]

    listed("norse", function, surrogate=True, absent=("nir", "nirtorch"))(make)


norse("HeaviErfc", 1.0)
norse("HeaviTanh", 1.0)
norse("Logistic", 1.0)
norse("HeaviCirc", 1.0)
norse("CircDist", 1.0)
norse("Triangle", 1.0)
norse("SuperSpike", 10.0, "norse.torch.functional.superspike.SuperSpike")

spiking("spikingtorch", "spikingtorch.layers.Step", 5.0)
spiking("hnn", "hnn.snn.surrogate.rectangle.Rectangle", 0.5)


@listed("rockpool", "rockpool.nn.modules.torch.lif_torch.StepPWL", surrogate=True)
def step():
    apply = load("rockpool.nn.modules.torch.lif_torch.StepPWL").apply
    return lambda x: apply(x, torch.tensor(0.3)), [normal(2, 3)]


@listed("rockpool", "rockpool.nn.modules.torch.lif_bitshift_torch.Bitshift", surrogate=True)
def bitshift():
    apply = load("rockpool.nn.modules.torch.lif_bitshift_torch.Bitshift").apply
    return lambda x: apply(x, torch.tensor(3.0), torch.tensor(0.9)), [normal(2, 3)]


def exact(function, layer):
    """The spike times of a layer as a function of its weights and of the times that come in, ms."""

    def how():
        made = load(layer)(3, 2, dtype=torch.float64)
        weights = uniform(2, 4, low=0.6, high=1.2)

        def fn(weight, times):
            return torch.func.functional_call(made, {"weight": weight}, (times,))

        return fn, [weights, uniform(3, 2, low=1.0, high=6.0)]

    listed("exact-snn-nn", function)(how)


exact("exact_snn.event._ExactEventLayerFn", "exact_snn.event.ExactEventLinear")
