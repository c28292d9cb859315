"""Powers of ten in which fn is measured, where its numbers are far from 1."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from .target import Target

ORDINARY = 1e-3, 1e3  # sizes that need no unit of their own
FAR = 100.0  # elements that differ by more than this factor


def units_of(
    target: Target, here: Sequence[Tensor]
) -> tuple[tuple[float | Tensor, ...], tuple[float, ...]]:
    """One for each input, and one for each output; empty where all of them are 1.

    By the sizes of the inputs, and of the outputs `here` or, where these are smaller, of their
    changes.
    Raises what fn raises.
    """
    inputs = tuple(_input_unit(x) for x in target.point)
    if all(isinstance(unit, float) and unit == 1.0 for unit in inputs):
        inputs = ()
    alone = target.in_units(inputs, ())
    step = 1e-2 * alone.scale
    pairs = zip(here, alone.start(shift=step).ys, strict=True)
    outputs = tuple(_unit(max(_size(y), _size(there - y) / step)) for y, there in pairs)
    return inputs, () if set(outputs) <= {1.0} else outputs


def _input_unit(x: Tensor) -> float | Tensor:
    """One for the whole tensor, or one for each element where these differ by far."""
    unit, sizes = _unit(_size(x)), x.detach().abs()
    if unit == 1.0 or sizes.max() <= FAR * sizes[sizes > 0].min():
        return unit
    return 10.0 ** torch.where(sizes > 0, sizes, unit).log10().floor()


def _size(tensor: Tensor) -> float:
    return tensor.detach().double().abs().mean().item() if tensor.numel() else 0.0


def _unit(size: float) -> float:
    low, high = ORDINARY
    if size == 0 or not math.isfinite(size) or low <= size <= high:
        return 1.0
    return 10.0 ** math.floor(math.log10(size))
