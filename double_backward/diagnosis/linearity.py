"""In what way a backward is not linear in grad_out, by what it returns for other ones."""

from collections.abc import Callable
from enum import StrEnum

import torch
from torch import Tensor

from double_backward.differences import apart

LINEAR = {  # relative; autocast rounds to 8 bits
    torch.float64: 1e-4,
    torch.float32: 2e-2,
    torch.bfloat16: 5e-2,
}
FACTORS = {  # a clip shows at a large one, what is added at a small one; 16 bits end at 65504
    torch.float64: (-3, 1e4, 1e-4),
    torch.float32: (-3, 1e4, 1e-4),
    torch.bfloat16: (-3, 1e2, 1e-2),
}


class Bend(StrEnum):
    """What is seen of a backward G that is not linear in its grad_out g."""

    ADDS = "adds"  # G(0) is not 0
    SQUARES = "squares"  # G(2g) is 4 G(g), where it is not 2 G(g)
    SIGN = "sign"  # G(-g) is not -G(g)
    CLIPS = "clips"  # linear for small ones, and less for a large one
    SMALL = "small"  # linear but for a small one
    OTHER = "other"


def bend_of(ask: Callable[[float], Tensor | None], dtype: torch.dtype, only_small: bool) -> Bend:
    """Of a backward that is not linear.

    Args:
        ask: what it returns, flat, for so many times grad_out; None where it raises.
        dtype: the precision in which it computes.
        only_small: it is linear for all of `FACTORS` but the small one.
    """
    _, large, small = FACTORS[dtype]

    def off(got, expected):
        return apart(got, expected, LINEAR[dtype])

    if only_small:
        return Bend.SMALL
    zero = ask(0.0)
    if zero is not None and zero.isfinite().all() and zero.any():
        return Bend.ADDS
    asked = {f: ask(f) for f in (-small, small / 10, small, 2 * small, 1, 2, large, 2 * large)}
    found = {f: g for f, g in asked.items() if g is not None and g.isfinite().all()}
    if len(found) < len(asked):
        return Bend.OTHER
    for size in (small, 1, large):
        once, twice = found[size], found[2 * size]
        bent = off(twice, 2 * once)
        if bent.any() and not off(twice, 4 * once)[bent].any():
            return Bend.SQUARES
    if off(found[-small], -found[small]).any():
        return Bend.SIGN
    straight = not off(found[small], 10 * found[small / 10]).any()
    grown = found[small] * (large / small)
    bent = off(found[large], grown)
    if straight and bent.any() and (found[large].abs() < grown.abs())[bent].all():
        return Bend.CLIPS
    return Bend.OTHER
