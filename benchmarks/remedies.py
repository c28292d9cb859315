"""What detect_intermediates and recompute_intermediates cost, on two small training steps.

    python benchmarks/remedies.py

Each step runs plain and under either remedy, side by side in one process, so that the ratios mean
something on any machine; the seconds do not. The custom Function is once a right one, which both
only have to check, and once one that keeps an intermediate, which `recompute_intermediates` mends.
"""

import time

import torch
from torch.autograd import Function, grad

from double_backward import detect_intermediates, recompute_intermediates
from double_backward.remedies import SecondDerivativeError

REPEATS = 20


class Swish(Function):
    """x sigmoid(x), from its saved input: right."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad_out * s * (1 + x * (1 - s))


class SwishKept(Function):
    """The same with sigmoid(x) kept: silently wrong at second order."""

    @staticmethod
    def forward(ctx, x):
        s = torch.sigmoid(x)
        ctx.save_for_backward(x, s)
        return x * s

    @staticmethod
    def backward(ctx, grad_out):
        x, s = ctx.saved_tensors
        return grad_out * s * (1 + x * (1 - s))


class Network(torch.nn.Module):
    def __init__(self, activation, sizes):
        super().__init__()
        pairs = zip(sizes[:-1], sizes[1:], strict=True)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(a, b) for a, b in pairs)
        self.activation = activation

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = self.activation(layer(x))
        return self.layers[-1](x)


def pinn(activation):
    """One step for u'' = u on 256 points."""
    network = Network(activation, (1, 64, 64, 64, 1))
    points = torch.linspace(0, 1, 256)[:, None].requires_grad_()

    def step():
        u = network(points)
        (u_x,) = grad(u.sum(), points, create_graph=True)
        (u_xx,) = grad(u_x.sum(), points, create_graph=True)
        ((u_xx - u) ** 2).mean().backward()
        network.zero_grad()

    return step


def critic(activation):
    """One step of a WGAN-GP critic on a batch of 64."""
    network = Network(activation, (128, 256, 256, 1))
    real, fake, mix = torch.randn(64, 128), torch.randn(64, 128), torch.rand(64, 1)

    def step():
        between = (mix * real + (1 - mix) * fake).requires_grad_()
        (slope,) = grad(network(between).sum(), between, create_graph=True)
        penalty = ((slope.norm(dim=1) - 1) ** 2).mean()
        (network(fake).mean() - network(real).mean() + 10 * penalty).backward()
        network.zero_grad()

    return step


def seconds(step):
    """Shortest of several runs, or None where the step raises what it should."""
    runs = []
    try:
        step()
        for _ in range(REPEATS):
            start = time.perf_counter()
            step()
            runs.append(time.perf_counter() - start)
    except SecondDerivativeError:
        return None
    return min(runs)


def ratio(remedy, step, plain):
    with remedy():
        measured = seconds(step)
    return "raises" if measured is None else f"{measured / plain:.1f}"


def main():
    print(f"{'step':<8}{'Function':<12}{'plain':>9}{'detect':>9}{'recompute':>11}")
    for build in (pinn, critic):
        for function in (Swish, SwishKept):
            torch.manual_seed(0)
            step = build(function.apply)
            plain = seconds(step)
            ratios = [
                ratio(r, step, plain) for r in (detect_intermediates, recompute_intermediates)
            ]
            print(
                f"{build.__name__:<8}{function.__name__:<12}{plain * 1e3:>6.1f} ms"
                f"{ratios[0]:>9}{ratios[1]:>11}"
            )


if __name__ == "__main__":
    main()
