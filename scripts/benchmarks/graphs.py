"""How the walk and the outline of a chain grow with its length: CPU seconds and their ratio.

Run from the folder of the repository: python scripts/benchmarks/graphs.py
"""

import time
from statistics import median

import torch

from double_backward.graphs.outline import outline_text
from double_backward.graphs.sketch import Sketch


def seconds(length, repeats=5):
    """Median of the first walk and outline of a chain of `length` operations, each time a new one:
    the first walk of a graph makes the Python objects that a second one finds."""
    times = []
    for _ in range(repeats):
        x = out = torch.ones(1, requires_grad=True)
        for _ in range(length):
            out = out.sin()
        start = time.process_time()
        outline_text(Sketch({"out": out, "x": x}))
        times.append(time.process_time() - start)
    return median(times)


def main():
    short, long = seconds(10_000), seconds(100_000)
    print(f"first walk and outline of  10,000 operations  {short:7.3f} s")
    print(f"first walk and outline of 100,000 operations  {long:7.3f} s")
    print(f"ratio {long / short:.1f} (at most 15)")


if __name__ == "__main__":
    main()
