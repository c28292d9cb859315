"""What detect_intermediates and recompute_intermediates cost, on three small training steps.

    python scripts/benchmarks/remedies.py

Each step runs plain and under either remedy, side by side in one process, so that the ratios mean
something on any machine; the seconds, of processor time, do not. "first" is the first step, in
which every kind of call is tried; "known" the median of those after it. The custom Function is once
a right one, which both only have to check, and once one that keeps an intermediate, which
`recompute_intermediates` mends. Plain, that one computes less than it should: the graph of the
second derivative is missing. "of right" is the known step beside that of the right Function.

Then a step whose size is another one each time, after its first steps, beside the same sizes plain:
"known" is the median of the ratios, "with trials" all seconds beside all seconds. And a chain of
wrong Functions, up to the error of `detect_intermediates`, and mended, beside the plain chain.

Last, the memory of a process per application of a Function that is alive and that nobody
differentiates, beside plain: of one that saves its input, and of one that saves nothing, where the
input lives on only for the remedy.
"""

import gc
import resource
import statistics
import subprocess
import sys
import time
from contextlib import nullcontext, suppress
from pathlib import Path

import torch
from torch.autograd import Function, grad

from double_backward import (
    SecondDerivativeError,
    detect_intermediates,
    recompute_intermediates,
)
from double_backward.remedies import known

REPEATS = 15
torch.set_num_threads(1)  # what other programs do at the same time counts less


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


class Doubled(Function):
    """2 x: saves nothing."""

    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, grad_out):
        return 2 * grad_out


class Activation(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function.apply(x)


def layers(function, *sizes):
    found = []
    for a, b in zip(sizes[:-1], sizes[1:], strict=True):
        found += [torch.nn.Linear(a, b), Activation(function)]
    return torch.nn.Sequential(*found[:-1])


def pinn(function):
    """One step for u'' = u on 256 points, with three layers of 64."""
    network = layers(function, 1, 64, 64, 64, 1)
    points = torch.linspace(0, 1, 256)[:, None].requires_grad_()

    def step():
        u = network(points)
        (u_x,) = grad(u.sum(), points, create_graph=True)
        (u_xx,) = grad(u_x.sum(), points, create_graph=True)
        ((u_xx - u) ** 2).mean().backward()
        network.zero_grad()

    return step


def critic(function):
    """One step of a WGAN-GP critic of three convolutions on 16 pictures of 32 by 32."""
    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 4, 2, 1), Activation(function),
        torch.nn.Conv2d(16, 32, 4, 2, 1), Activation(function),
        torch.nn.Conv2d(32, 64, 4, 2, 1), Activation(function),
        torch.nn.Flatten(), torch.nn.Linear(64 * 16, 1),
    )  # fmt: skip
    real, fake, mix = (
        torch.randn(16, 3, 32, 32),
        torch.randn(16, 3, 32, 32),
        torch.rand(16, 1, 1, 1),
    )

    def step():
        between = (mix * real + (1 - mix) * fake).requires_grad_()
        (slope,) = grad(network(between).sum(), between, create_graph=True)
        penalty = ((slope.flatten(1).norm(dim=1) - 1) ** 2).mean()
        (network(fake).mean() - network(real).mean() + 10 * penalty).backward()
        network.zero_grad()

    return step


def forces(function):
    """One step on energies and forces of 32 molecules of 20 atoms."""
    network = layers(function, 60, 128, 128, 1)
    positions, targets = torch.randn(32, 60).requires_grad_(), torch.randn(32, 60)

    def step():
        energy = network(positions)
        (gradient,) = grad(energy.sum(), positions, create_graph=True)
        (energy.square().mean() + (gradient + targets).square().mean()).backward()
        network.zero_grad()

    return step


def seconds(step):
    """(the first run, the median of those after it), or None where the step raises."""
    runs = []
    try:
        for _ in range(REPEATS + 1):
            start = time.process_time()
            step()
            runs.append(time.process_time() - start)
    except SecondDerivativeError:
        return None
    return runs[0], statistics.median(runs[1:])


def under(remedy, step):
    known.forget()
    with remedy():
        return seconds(step)


def ratios(measured, plain):
    if measured is None:
        return "raises", ""
    return f"{measured[0] / plain:.0f}", f"{measured[1] / plain:.1f}"


def bytes_alive(function, remedy, count=50_000):
    """What one more application of a chain of them adds to the memory of this process."""
    with remedy():
        y = function.apply(torch.ones(1, requires_grad=True))
        gc.collect()
        before = resident()
        for _ in range(count):
            y = function.apply(y)
        return (resident() - before) / count


def resident():
    """Bytes of memory that this process has, on Linux."""
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * resource.getpagesize()


class Sinh(Function):
    """sinh with cosh kept: silently wrong at second order."""

    @staticmethod
    def forward(ctx, x):
        ctx.cosh = x.cosh()
        return x.sinh()

    @staticmethod
    def backward(ctx, grad_out):
        return grad_out * ctx.cosh


def jagged(function):
    """A step of the network of `pinn` on as many points as it is told."""
    network = layers(function, 1, 64, 64, 64, 1)

    def step(n):
        points = torch.linspace(0, 1, n)[:, None].requires_grad_()
        u = network(points)
        (u_x,) = grad(u.sum(), points, create_graph=True)
        ((u_x - u) ** 2).mean().backward()
        network.zero_grad()

    return step


def chain(function, n):
    x = torch.tensor([0.5, 0.2], dtype=torch.float64, requires_grad=True)
    y = x
    for _ in range(n):
        y = 0.98 * torch.tanh(function.apply(y))
    (first,) = grad((y**2).sum(), x, create_graph=True)
    with suppress(SecondDerivativeError):
        grad(first.sum(), x)


def timed(step, *args):
    start = time.process_time()
    step(*args)
    return time.process_time() - start


def other_sizes():
    """Each size once plain and once inside, in turn."""
    print(f"\n{'other size each time':20}{'':>12}{'detect':>24}{'recompute':>24}")
    print(f"{'step':8}{'Function':12}" + f"{'known':>12}{'with trials':>12}" * 2)
    for function in (Swish, SwishKept):
        step, cells = jagged(function), []
        for remedy in (detect_intermediates, recompute_intermediates):
            if function is SwishKept and remedy is detect_intermediates:
                cells += ["raises", ""]
                continue
            known.forget()
            with remedy():
                for n in range(100, 140):
                    step(n)
            pairs = []
            for n in range(140, 260):
                plain = timed(step, n)
                with remedy():
                    pairs.append((timed(step, n), plain))
            cells.append(f"{statistics.median(a / b for a, b in pairs):.1f}")
            cells.append(f"{sum(a for a, _ in pairs) / sum(b for _, b in pairs):.1f}")
        print(f"{'jagged':8}{function.__name__:12}" + "".join(f"{c:>12}" for c in cells))


def chains():
    """The remedies have met the Function before: what an import takes is no part of it."""
    print(f"\n{'chain of Sinh':20}{'plain':>12}{'detect':>16}{'recompute':>16}")
    for n in (2, 50, 200):
        plain = statistics.median(timed(chain, Sinh, n) for _ in range(5))
        cells = []
        for remedy in (detect_intermediates, recompute_intermediates):
            known.forget()
            with remedy():
                cells.append(timed(chain, Sinh, n) / plain)
        row = f"{n:<20}{plain * 1e3:>9.1f} ms"
        print(row + "".join(f"{c:>16.1f}" for c in cells))


def memory():
    """Each in a process of its own: memory that was freed does not go back."""
    print(f"\n{'bytes per application':24}{'plain':>8}{'detect':>8}{'ratio':>8}")
    for name in ("Swish", "Doubled"):
        plain, inside = (
            float(subprocess.check_output([sys.executable, __file__, name, way]))
            for way in ("plain", "detect")
        )
        print(f"{name:24}{plain:8.0f}{inside:8.0f}{inside / plain:8.1f}")


def main():
    if sys.argv[1:]:
        remedies = {"plain": nullcontext, "detect": detect_intermediates}
        print(bytes_alive(globals()[sys.argv[1]], remedies[sys.argv[2]]))
        return
    print(f"{'':20}{'':>12}{'detect':>16}{'recompute':>16}")
    head = f"{'step':8}{'Function':12}{'plain':>12}" + f"{'first':>8}{'known':>8}" * 2
    print(f"{head}{'of right':>10}")
    for build in (critic, pinn, forces):
        right = None
        for function in (Swish, SwishKept):
            torch.manual_seed(0)
            step = build(function)
            step()
            plain = seconds(step)[1]
            right = right or plain
            detected, mended = (
                under(remedy, step) for remedy in (detect_intermediates, recompute_intermediates)
            )
            row = f"{build.__name__:8}{function.__name__:12}{plain * 1e3:>9.1f} ms"
            cells = [*ratios(detected, plain), *ratios(mended, plain)]
            print(row + "".join(f"{c:>8}" for c in cells) + f"{mended[1] / right:>10.1f}")
    other_sizes()
    chains()
    memory()


if __name__ == "__main__":
    main()
