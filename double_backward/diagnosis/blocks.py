"""With several inputs: which part of which gradient is right, by which input it is differentiated.

Of a potential of positions and parameters, forces may be right by one and lost by the other.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from double_backward.check import Outcome
from double_backward.differences import flat, shaped, slope

from .measure import Measured
from .settings import Probe, Setting, uneven, uneven_direction

MOST = 6  # inputs
RIGHT, LOST, WRONG, ZERO, UNKNOWN = "right", "lost", "wrong", "0", "unclear"
RAISES = "raises"
WORDS = RAISES, WRONG, LOST, UNKNOWN, RIGHT, ZERO  # of two trials, the first of these


def blocks(measured: Measured) -> dict[str, dict[str, str]]:
    """Name of an input, whose gradient it is -> name of an input -> a word; {} with one input.

    Never along ones, where the second derivative of a softmax, a norm or a loss is 0; in the first
    setting in which something is wrong, alone or with a graph after fn. Raises what fn raises.
    """
    probe = _uneven(measured.probe)
    if not 2 <= len(probe.target.where) <= MOST or measured.gradient is None:
        return {}
    bad = Outcome.WRONG, Outcome.RAISES
    shown = [s for s in (Setting.ALONE, Setting.AFTER) if measured.second[s].outcome in bad]
    if not shown or measured.first.outcome is not Outcome.RIGHT or probe.by_backward:
        return {}
    after, names = shown[0].after, probe.target.names
    other = probe.d * torch.arange(len(probe.d)).cos().to(probe.d)
    one, two = (
        _words(measured, probe, after, *weights) for weights in ((probe.d, other), (other, probe.d))
    )
    found = {
        name: {by: min(one[i][j], two[i][j], key=WORDS.index) for j, by in enumerate(names)}
        for i, name in enumerate(names)
    }
    said = {word for row in found.values() for word in row.values()}
    return found if said - {RIGHT, ZERO} else {}  # it tells nothing of what is wrong


def _words(measured, probe, after, d, e):
    """For each input, whose gradient is weighted with e: a word for each input, moved along d.

    With the same vector twice, whatever is antisymmetric would vanish.
    """
    count = len(probe.target.names)
    true = [_changes(measured, probe, after, d, e, j) for j in range(count)]
    said = [_reported(probe, after, d, e, i) for i in range(count)]
    size = max(abs(value[i]).item() for value, _ in true for i in range(count))
    found: list[list[str]] = []
    for i in range(count):
        found.append([])
        for j in range(count):
            value, error = true[j][0][i].item(), true[j][1][i].item()
            allowed = 10 * measured.tolerance * abs(value) + 1e-6 * size + 5 * error
            found[i].append(_word(said[i][j], value, allowed))
    return found


def _uneven(probe):
    if not all((v == 1).all() for v in (*probe.w, probe.d)):
        return probe
    return replace(probe, w=tuple(map(uneven, probe.w)), d=uneven_direction(probe.d))


def _word(got: float | str | None, true: float, allowed: float) -> str:
    if isinstance(got, str):
        return got
    if allowed > 0.5 * abs(true) and abs(true) > allowed:
        return UNKNOWN
    if abs((got or 0.0) - true) <= allowed:
        return RIGHT if abs(true) > allowed else ZERO
    return WRONG if got else LOST


def _changes(measured, probe, after, d, e, j):
    """How <e, gradient> of each input changes along the j-th, by differences; and the errors."""
    zeros = [torch.zeros_like(x) for x in probe.target.point]
    parts, weights = shaped(d, zeros), shaped(e, zeros)
    along = flat(
        [part if k == j else zero for k, (part, zero) in enumerate(zip(parts, zeros, strict=True))]
    )

    def at(h):
        grads = _gradient(probe, after, h * along)[1]
        sums = [
            0.0 if g is None else (g * w).sum().item() for g, w in zip(grads, weights, strict=True)
        ]
        return torch.tensor(sums, dtype=torch.float64)

    found = slope(at, measured.dtype, probe.target.scale)
    return found.value, found.error


def _reported(probe: Probe, after: bool, d: Tensor, e: Tensor, i: int) -> list[Any]:
    """What autograd says of the same numbers for the i-th gradient: None where it has no graph,
    `RAISES` where it raises."""
    t, grads = _gradient(probe, after, 0.0, create_graph=True)
    parts, weights, grad = shaped(d, t), shaped(e, t), grads[i]
    if grad is None or not grad.requires_grad:
        return [None] * len(t)
    try:
        again = torch.autograd.grad((grad * weights[i]).sum(), t, allow_unused=True)
    except Exception:  # of backward
        return [RAISES] * len(t)
    return [None if g is None else (g * s).sum().item() for g, s in zip(again, parts, strict=True)]


def _gradient(probe, after, shift, create_graph=False):
    call = probe.target.start(shift=shift)
    loss = probe.loss(call.ys, after)
    if not loss.requires_grad:
        return call.t, [None] * len(call.t)
    options = {"create_graph": create_graph, "allow_unused": True}
    return call.t, torch.autograd.grad(loss, call.t, **options)
