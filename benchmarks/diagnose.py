"""What `diagnose` costs beside `gradcheck` and `gradgradcheck` in their default mode.

    python benchmarks/diagnose.py

The three run side by side on the same tensors in one process, so that the ratios mean something on
any machine; the seconds do not. The calls of fn are the same on every machine.
"""

import time
import warnings

import torch
from torch.autograd import gradcheck, gradgradcheck

from lessons_src import diagnose
from lessons_src.untracked_backward import Cube

REPEATS = {10: 5, 100: 5, 1_000: 1, 10_000: 1}


def seconds(call, repeats):
    """Shortest of several runs."""
    runs = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        runs.append(time.perf_counter() - start)
    return min(runs)


def vector(n):
    generator = torch.Generator().manual_seed(0)
    return torch.rand(n, dtype=torch.float64, generator=generator).requires_grad_()


class Counted:
    """One output, so that the Jacobians of the checks have one row and fit into memory."""

    def __init__(self):
        self.calls = 0

    def __call__(self, x):
        self.calls += 1
        return Cube.apply(x).sum()


def calls(check, x):
    """How often a check calls fn."""
    counted = Counted()
    check(counted, x)
    return counted.calls


def both_checks(fn, x):
    return gradcheck(fn, x) and gradgradcheck(fn, x)


def main():
    warnings.simplefilter("ignore")
    fn = Counted()
    diagnose(fn, vector(2))  # first calls pay for imports
    print(f"{'elements':>8}  {'diagnose':>10}  {'both checks':>11}  ratio  {'calls of fn':>16}")
    for n, repeats in REPEATS.items():
        x = vector(n)
        ours = seconds(lambda x=x: diagnose(fn, x), max(repeats, 3))
        theirs = seconds(lambda x=x: both_checks(fn, x), repeats)
        counts = f"{calls(diagnose, x)} and {calls(both_checks, x)}"
        print(f"{n:>8}  {ours:>8.3f} s  {theirs:>9.3f} s  {ours / theirs:.3f}  {counts:>16}")


if __name__ == "__main__":
    main()
