"""Powers of ten in which fn is measured, where its numbers are far from 1."""

import math
from collections.abc import Iterable

from torch import Tensor

from .target import Target

ORDINARY = 1e-3, 1e3  # sizes that need no unit of their own


def units_of(target: Target) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """One for each input, and one for each output; empty where all of them are 1.

    By the sizes of the inputs, and of the outputs or, where these are smaller, of their changes.
    Raises what fn raises.
    """
    inputs = _units(_size(x) for x in target.point)
    alone = target.in_units(inputs, ())
    step = 1e-2 * alone.scale
    here, beside = alone.start().ys, alone.start(shift=step).ys
    pairs = zip(here, beside, strict=True)
    return inputs, _units(max(_size(y), _size(there - y) / step) for y, there in pairs)


def _units(sizes: Iterable[float]) -> tuple[float, ...]:
    units = tuple(map(_unit, sizes))
    return () if set(units) <= {1.0} else units


def _size(tensor: Tensor) -> float:
    return tensor.detach().double().abs().mean().item() if tensor.numel() else 0.0


def _unit(size: float) -> float:
    low, high = ORDINARY
    if size == 0 or not math.isfinite(size) or low <= size <= high:
        return 1.0
    return 10.0 ** math.floor(math.log10(size))
