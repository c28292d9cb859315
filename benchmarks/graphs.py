"""How the walk and the outline of a chain grow with its length: prints seconds and their ratio.

Run from the folder of the repository: python -m benchmarks.graphs
"""

import time

import torch

from lessons_src.graphs.outline import outline_text
from lessons_src.graphs.sketch import Sketch


def seconds(length, repeats=3):
    """Fastest of `repeats` walks and outlines of a chain of `length` operations."""
    x = out = torch.ones(1, requires_grad=True)
    for _ in range(length):
        out = out.sin()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        outline_text(Sketch({"out": out, "x": x}))
        times.append(time.perf_counter() - start)
    return min(times)


def main():
    short, long = seconds(10_000), seconds(100_000)
    print(f"walk and outline of  10,000 operations  {short:7.3f} s")
    print(f"walk and outline of 100,000 operations  {long:7.3f} s")
    print(f"ratio {long / short:.1f} (at most 15)")


if __name__ == "__main__":
    main()
