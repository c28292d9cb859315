"""One derivative beside the true one: right, lost or wrong, unless noise hides it."""

import math
from typing import NamedTuple

import torch

from .functions import Path

CLOSE = 1e-3  # relative; a path that is lost is off by far more

CLEAR = {  # relative; noise above this says nothing
    torch.float64: 1e-2,
    torch.float32: 1e-2,
    torch.bfloat16: 1e-1,
}


class Number(NamedTuple):
    value: float
    error: float


def path_of(got: Number, true: Number, size: float, clear: float = CLEAR[torch.float64]) -> Path:
    """Compare a derivative with the truth; `size` is that of the numbers it is taken of."""
    error = got.error + true.error
    noise = 10 * error + 1e-6 * size
    if math.isnan(got.value + true.value) or error > clear * size:
        return Path.UNKNOWN  # not a number, or lost in noise
    if abs(true.value) <= noise and abs(got.value) <= noise:
        return Path.UNUSED
    if abs(got.value - true.value) <= CLOSE * abs(true.value) + noise:
        return Path.RIGHT
    return Path.MISSING if got.value == 0 else Path.WRONG
