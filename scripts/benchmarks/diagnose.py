"""What `diagnose` costs beside `gradcheck` and `gradgradcheck` in their default mode.

Run from the folder of the repository: python scripts/benchmarks/diagnose.py

The three run side by side on the same tensors, so that the ratios mean something on any machine;
the seconds do not. The calls of fn are the same on every machine. Memory is the most that a fresh
process needs on top of what it has when all is imported; Linux alone tells it.
"""

import gc
import re
import subprocess
import sys
import time
import warnings
from pathlib import Path

import torch
from torch.autograd import gradcheck, gradgradcheck

from double_backward import diagnose
from lessons_src.saving_inputs import Square
from lessons_src.saving_intermediates import Sinh
from lessons_src.saving_outputs import Exp
from lessons_src.untracked_backward import Cube
from lessons_src.what_not_to_do import SinhBad

REPEATS = {10: 5, 100: 5, 1_000: 1, 10_000: 1}
MEMORY_OF = 10, 100, 1_000  # elements
STATUS = Path("/proc/self/status")


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


def product(x):
    """Two inputs and a custom Function twice."""
    a, b = x.chunk(2)
    return (Square.apply(a) * Exp.apply(b)).sum()


SMALL = {
    "Square": lambda x: Square.apply(x).sum(),
    "Exp": lambda x: Exp.apply(x).sum(),
    "Sinh": lambda x: Sinh.apply(x)[0].sum(),
    "Square * Exp": product,
    "SinhBad (wrong)": lambda x: SinhBad.apply(x).sum(),
}


def calls(check, x):
    """How often a check calls fn."""
    counted = Counted()
    check(counted, x)
    return counted.calls


def both_checks(fn, x):
    first = gradcheck(fn, x, raise_exception=False)
    return gradgradcheck(fn, x, raise_exception=False) and first


CHECKS = {"diagnose": diagnose, "both": both_checks}


def kib(name):
    return int(re.search(rf"{name}:\s+(\d+)", STATUS.read_text())[1])


def print_peak(check, n):
    """What this process does for `peak`: KiB for a check of n elements."""
    check(Counted(), vector(2))
    x, fn = vector(n), Counted()
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the peak is what there is now
    before = kib("VmRSS")
    check(fn, x)
    print(kib("VmHWM") - before)


def peak(name, n):
    """KiB that one check of n elements needs, in a process of its own."""
    run = [sys.executable, __file__, name, str(n)]
    return int(subprocess.run(run, capture_output=True, text=True, check=True).stdout)


def main():
    fn = Counted()
    diagnose(fn, vector(2))  # first calls pay for imports
    print(f"{'elements':>8}  {'diagnose':>10}  {'both checks':>11}  ratio  {'calls of fn':>16}")
    for n, repeats in REPEATS.items():
        x = vector(n)
        ours = seconds(lambda x=x: diagnose(fn, x), max(repeats, 3))
        theirs = seconds(lambda x=x: both_checks(fn, x), repeats)
        counts = f"{calls(diagnose, x)} and {calls(both_checks, x)}"
        print(f"{n:>8}  {ours:>8.3f} s  {theirs:>9.3f} s  {ours / theirs:.3f}  {counts:>16}")
    print("\nratio for small Functions, 10 elements")
    for name, small in SMALL.items():
        x = vector(10)
        ours = seconds(lambda x=x, small=small: diagnose(small, x), 5)
        theirs = seconds(lambda x=x, small=small: both_checks(small, x), 5)
        print(f"{name:18}{ours / theirs:5.1f}")
    if not STATUS.exists():
        return
    print("\nelements  diagnose  both checks  memory, median of three processes")
    for n in MEMORY_OF:
        ours, theirs = (sorted(peak(name, n) for _ in range(3))[1] for name in CHECKS)
        print(f"{n:>8}  {ours:>5} KiB  {theirs:>7} KiB")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if sys.argv[1:]:
        print_peak(CHECKS[sys.argv[1]], int(sys.argv[2]))
    else:
        main()
