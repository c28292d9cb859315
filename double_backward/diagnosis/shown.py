"""The numbers of what is wrong, in the four formulas that a reader can type.

With the weights on the outputs held fixed, call A the change of fn's own first derivative along a
direction d, by finite differences. At the given point, with x = x0 + t + t**2/2 before fn and
z = y + (y - y0)**2/2 after it, the second derivative along d is

    alone  A        graph after  A + B        graph before  A + C        both  A + B + C

where B is the first derivative weighted with the change of y, and C the first derivative times d.
By sums, whose numbers a reader can recognise; by uneven weights where a sum hides the error.
"""

from dataclasses import replace

import torch

from double_backward.check import Outcome, size
from double_backward.differences import Slope, flat, shaped, slope, vjp

from .settings import Setting, even_probe, reported

LARGE = 1e3  # elements of up to this size are moved as those of size 1


def shown(found, asked_otherwise):
    """The same, with the numbers of each row that is wrong.

    Args:
        asked_otherwise: autograd has raised, but not in these formulas: so they tell.
    """
    best = found
    for probe in (
        replace(even_probe(found.probe.target), by_backward=found.by_backward),
        found.probe,
    ):
        try:
            said = found.said if probe is found.probe else {s: reported(probe, s) for s in Setting}
            true = _formulas(probe, found.dtype)
        except Exception:  # of fn, beside the point
            continue
        pairs = {s: (said[s], true[s]) for s in Setting}
        rows = {
            s: _row(row, *pairs[s], found.tolerance, probe.target.place, asked_otherwise)
            for s, row in found.second.items()
        }
        best = replace(found, second=rows, probe=probe, said=said, a=true[Setting.ALONE].value)
        call = probe.target.start()
        best = replace(best, gradient=vjp(call.ys, call.t, probe.w, probe.by_backward))
        if any(row.where for row in rows.values() if row.outcome is Outcome.WRONG):
            break
    return best


def _row(row, got, true, rtol, place, asked_otherwise):
    """With the worst of its elements: of those that are alike, the first."""
    if row.outcome is not Outcome.WRONG or got.vector is None:
        return row
    typical = true.value.abs()
    allowed = rtol * (typical + typical.square().mean().sqrt()) + 5 * true.error
    off = (got.vector - true.value).abs().nan_to_num(0.0)
    off = off * (off > allowed)
    if not off.any():
        return replace(row, outcome=Outcome.RIGHT) if asked_otherwise else row
    numbers = off * ~got.missing  # a wrong number tells more than one that is not there
    told = numbers if numbers.any() else off
    i = int((told >= 0.1 * told.max()).nonzero()[0])
    return replace(
        row,
        outcome=Outcome.RAISES if got.missing[i] else row.outcome,
        text=got.text,
        error=off.max().item(),
        relative=(off.max() / typical.norm().clamp(min=1e-300)).item(),
        expected=true.value[i].item(),
        got=got.vector[i].item(),
        where=place(i),
        uncertain=true.likely[i].item(),
    )


def _formulas(probe, dtype):
    """What each formula should give: see above."""
    target, d, n = probe.target, probe.d, len(flat(probe.y0))
    slopes = [_along(probe, by, dtype) for by in _alike(target, d)]
    both = [sum(parts) for parts in zip(*slopes, strict=True)]
    dy, a = both[0][:n], Slope(*(part[n:] for part in both))
    c, b = probe.values_and_gradient(d, 0.0)[n:] * d, torch.zeros_like(d)
    if dy.any():
        call = target.start()
        # In memory these weights are like those of the probe, which backward takes.
        w = shaped(flat(probe.w) * dy, probe.w)
        w = [torch.empty_like(v).copy_(s) for v, s in zip(probe.w, w, strict=True)]
        b = vjp(call.ys, call.t, w, probe.by_backward)
    return {s: Slope(a.value + s.after * b + s.before * c, a.error, a.likely) for s in Setting}


def _along(probe, by, dtype):
    """The change of the values and of the first derivative along a direction."""
    step, d = by
    return slope(lambda h: probe.values_and_gradient(d, h), dtype, step)


def _alike(target, d):
    """(size of a step, direction) for the elements of each size: small ones are moved by little,
    and what is far above 1 by more."""
    sizes = flat([size(x) for x in target.point])
    steps = 100.0 ** (sizes.log10() / 2).round()
    steps = torch.where((steps >= 1) & (steps <= LARGE), 1.0, steps)
    return [(step, d * (steps == step)) for step in steps.unique().tolist()]
