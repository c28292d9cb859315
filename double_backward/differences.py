"""Finite differences, vector-Jacobian products, flat vectors, and comparisons of tensors."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

STEPS = {  # pairs, tried until the two of a pair agree, which they do not at a kink or under noise
    torch.float64: ((1e-3, 1e-4), (1e-5, 1e-6), (2e-2, 1e-2), (1e-7, 1e-8)),
    torch.float32: ((3e-2, 1e-2), (1e-1, 3e-2), (1e-2, 1e-3)),
}
TINY = {torch.float64: 1e-11, torch.float32: 1e-5}  # a step on which nothing smooth bends
WIDE = 2e-1, 1e-1  # for functions that lose so many digits that only large steps tell
STRIDE = 1e-1  # what does not move at all over this step is flat
NONE = 1e-12  # absolute; a difference of gradients below this is none
LAST = 1e3  # times the last digit: how far two sums of the same numbers in another order differ
AGREED = 1e-2  # a mean relative error below this ends the trying


class Slope(NamedTuple):
    """A derivative by finite differences, elementwise."""

    value: Tensor
    error: Tensor  # by how much the value may be off, for judgements
    likely: Tensor  # by how much it is off where all is smooth, for the number of digits that count


def slope(
    at: Callable[[float], Tensor],
    dtype: torch.dtype,
    scale: float,
    rounding: Tensor | None = None,
    stair: Tensor | None = None,
) -> Slope:
    """d at(h)/dh at h = 0, by central differences.

    Args:
        at: a flat vector as a function of a number; NaN where it has no value.
        dtype: the precision in which `at` computes: float64, float32, or bfloat16 for 16 bits.
        scale: a factor for all steps.
        rounding: what rounding leaves in `at`, where that is known to be more than the last digits.
        stair: an element that moves by less may do so in steps, each a digit of larger numbers that
            have cancelled, as in 1 - sigmoid(36): that it stands still between two steps tells
            nothing.

    Returns:
        `Slope`, by Richardson's extrapolation from two steps. The error is the sum of what the two
        disagree by, of what is left between the two sides as the step goes to 0, and of rounding;
        it is infinite where `at` is not finite.
    """
    if dtype not in STEPS:
        return _fitted(at, scale)
    zero, best, least = at(0.0), Slope(*[torch.empty(0)] * 3), math.inf
    tried: list[tuple[Tensor, Tensor]] = []
    seen: list[tuple[float, Tensor]] = []  # steps and their slopes
    moves = torch.full_like(zero, torch.inf)  # what stands still moves less than a digit,
    jump = torch.zeros_like(zero)  # or than its smallest jump, which is larger if terms cancelled
    digit = torch.finfo(dtype).eps * zero.abs().nan_to_num(0.0, 0.0, 0.0)  # of a mask, -inf
    noise = 16 * (digit + digit.mean())
    steps, stood = STEPS[dtype], []
    if rounding is not None:
        noise, digit = torch.maximum(noise, rounding), torch.maximum(digit, rounding)
        steps = (*steps, WIDE) if rounding.norm() > 1e-6 * zero.norm() else steps
    for number, (coarse_step, fine_step) in enumerate(steps):
        if number == 1:  # it is not smooth, or noisier than its size tells
            noise = torch.maximum(noise, _noise(at, TINY[dtype] * scale))
        ratio = coarse_step / fine_step
        coarse, coarse_sides, by_coarse = _central(at, coarse_step * scale, zero)
        fine, fine_sides, by_fine = _central(at, fine_step * scale, zero)
        stands = (coarse == 0) & (coarse_sides == 0)
        unseen = torch.where(stands, jump, 0.0)
        extrapolated = (fine - coarse) / (ratio**2 - 1)
        value = fine + extrapolated
        kink = (ratio * fine_sides - coarse_sides).abs() / (ratio - 1)
        rounded = torch.maximum(noise, unseen) / (fine_step * scale)
        likely = (extrapolated.abs() + kink + rounded).nan_to_num(torch.inf)
        error = ((fine - coarse).abs() + kink + rounded).nan_to_num(torch.inf)
        for h, slope_there in seen:  # what is off the line within the step, as a narrow bump is
            if h < fine_step:
                off = ((slope_there - value) * h / fine_step).abs().nan_to_num(0.0)
                error = torch.maximum(error, off)
        seen += [(coarse_step, coarse), (fine_step, fine)]
        size = value.abs() + 1e-6 * (value.abs().nanmean() + zero.abs())
        stood.append((stands, torch.maximum(digit, unseen), coarse_step * scale))
        for by in (by_coarse, by_fine):
            jump = torch.where((by > 0) & ((by < jump) | (jump == 0)), by, jump)
        tried.append((value, error))
        doubt = (error / (error + size)).nan_to_num(1.0).mean().item()
        if doubt < least:
            best, least = Slope(value.nan_to_num(0.0, 0.0, 0.0), error, likely), doubt
        if doubt < AGREED:
            break
    stairs = _stairs(at, zero, stair, torch.stack([stands for stands, *_ in stood]).any(0), scale)
    for stands, by, step in stood:
        moves = torch.where(stands & (stairs == 0), torch.minimum(moves, by / step), moves)
    # Between two rounded numbers all looks smooth, with a slope that is not the function's: another
    # pair of steps shows that.
    beyond = [((v - best.value).abs() - 5 * e).nan_to_num(0.0, 0.0, 0.0) for v, e in tried]
    error = torch.stack([best.error, *beyond]).amax(0)
    # What stood still over a step is flat there, whatever a wider step says.
    value = torch.where(moves < error, torch.zeros_like(best.value), best.value)
    error = torch.minimum(error, moves)
    return best._replace(
        value=value, error=error.masked_fill((stairs > 0) & (value == 0), torch.inf)
    )


def _stairs(at, zero, stair, stands, scale):
    """By how much an element that stands still over small steps moves over a wide one; 0 if that is
    more than `stair`."""
    none = torch.zeros_like(zero)
    if stair is None or not (stands & (stair > 0)).any():
        return none
    up, down = ((at(h * scale) - zero).abs() for h in (STRIDE, -STRIDE))
    least = torch.where((up == 0) | (down == 0), torch.maximum(up, down), torch.minimum(up, down))
    return torch.where(least <= stair, least, none)


def _noise(at, h):
    """What rounding leaves in a value: how far values at steps too small to bend are off a line.

    Where terms cancel, as in exp(x) - 1 - x, that is more than the value's own last digits.
    """
    values = torch.stack([at(k * h).double() for k in (-3, -1, 0.5, 2, 3.5)])
    times = torch.tensor([-3, -1, 0.5, 2, 3.5], dtype=torch.float64)
    lines = torch.stack([torch.ones(5, dtype=torch.float64), times], 1)
    off = values - lines @ (torch.linalg.pinv(lines) @ values)
    return off.abs().amax(0).nan_to_num(0.0, 0.0, 0.0)


def _fitted(at, scale):
    """The slope by least squares, since each value is rounded: an odd cubic through many points."""
    steps = torch.linspace(0.05, 0.4, 8, dtype=torch.float64) * scale
    odd = torch.stack([(at(h) - at(-h)) / 2 for h in steps.tolist()])
    powers = torch.stack([steps, steps**3], 1)
    fit = torch.linalg.pinv(powers)
    value = (fit @ odd)[0]
    off = odd - powers @ (fit @ odd)
    error = (off.square().sum(0) / (len(steps) - 2)).sqrt() * fit[0].norm()
    error = error.nan_to_num(torch.inf)
    return Slope(value.nan_to_num(0.0, 0.0, 0.0), error, error)


def _central(at, h, zero):
    """The central difference; by how much its two sides differ, which goes to 0 with the step
    except at a kink; and the smaller of the two moves, 0 unless one is up and the other down.
    """
    up, down = at(h) - zero, at(-h) - zero
    across = torch.where(up.sign() * down.sign() < 0, torch.minimum(up.abs(), down.abs()), 0.0)
    return (up - down) / (2 * h), (up + down) / h, across


def vjp(
    ys: Sequence[Tensor], t: Sequence[Tensor], w: Sequence[Tensor], by_backward: bool = False
) -> Tensor:
    """The first derivative by `t` of the sum of w * y, flat, float64; 0 where it does not depend.

    It is taken by `torch.autograd.grad`, or by `.backward()`. Raises whatever backward raises.
    """
    used = [i for i, y in enumerate(ys) if y.requires_grad]
    if not used:
        return filled([None] * len(t), t)
    outputs = [ys[i] for i in used]
    weights = [w[i].clone() for i in used]  # backward may write into them
    if by_backward:
        torch.autograd.backward(outputs, weights, retain_graph=True)
        return filled(taken(t), t)
    options = {"retain_graph": True, "allow_unused": True}
    return filled(torch.autograd.grad(outputs, t, weights, **options), t)


def taken(t: Sequence[Tensor]) -> list[Tensor | None]:
    """Take what `.backward()` left in the .grad of leaves, and set that to None."""
    grads = [s.grad for s in t]
    for s in t:
        s.grad = None
    return grads


def filled(grads: Sequence[Tensor | None], t: Sequence[Tensor]) -> Tensor:
    """Gradients as a flat vector, 0 for None."""
    return flat([torch.zeros_like(s) if g is None else g for g, s in zip(grads, t, strict=True)])


def apart(got: Tensor, expected: Tensor, rtol: float, atol: Any = NONE) -> Tensor:
    """Mask of the elements that differ by more than `rtol` of their size plus the mean size (and
    `atol`), or are not finite, among those whose expected value is finite.
    """
    size = expected.abs()
    off = (got - expected).abs() > rtol * (size + size.nanmean()) + atol
    return (off | ~got.isfinite()) & expected.isfinite()


def close(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are the same but for the last digits of the coarser dtype; NaN is NaN.

    The digits are those of the largest element, since small ones may be differences of large ones.
    """
    if a.shape != b.shape:
        return False
    if not (a.is_floating_point() or a.is_complex()):
        return same(a, b)
    if a.layout is b.layout is torch.strided and torch.equal(a, b):
        return True
    digits = LAST * max(torch.finfo(t.dtype).eps for t in (a, b))
    a, b = flat([a]), flat([b])
    top = b.abs().nan_to_num(0.0, 0.0, 0.0).max().item() if b.numel() else 0.0
    return torch.allclose(a, b, rtol=digits, atol=digits * top, equal_nan=True)


def same(a: Any, b: Any) -> bool:
    """Whether two tensors, arrays or numbers are equal, also in shape; NaN is equal to NaN."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        a, b = a.detach().to_dense(), b.detach().to_dense()
    if getattr(a, "shape", ()) != getattr(b, "shape", ()):
        return False
    equal = (a == b) | ((a != a) & (b != b))
    return bool(equal.all()) if hasattr(equal, "all") else bool(equal)


def flat(tensors: Sequence[Tensor]) -> Tensor:
    """All elements in one float64 vector on the CPU, complex ones as pairs, without a graph."""
    parts = [real(t.detach()).reshape(-1).to("cpu", torch.float64) for t in tensors]
    return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.float64)


def real(t: Tensor) -> Tensor:
    """The tensor with complex numbers as pairs of real ones, and dense if it was sparse."""
    t = t if t.layout == torch.strided else t.to_dense()
    return torch.view_as_real(t.resolve_conj()) if t.is_complex() else t


def shaped(vector: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """A flat vector in the shapes and dtypes of `like`."""
    parts = vector.split([t.numel() for t in like])
    return [part.view(t.shape).to(t) for part, t in zip(parts, like, strict=True)]
