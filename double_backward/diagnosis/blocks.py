"""With several inputs: which part of which gradient is right, by which input it is differentiated.

Of a potential of positions and parameters, forces may be right by one and lost by the other.
"""

from dataclasses import replace
from typing import Any

import torch

from double_backward.check import Outcome
from double_backward.differences import flat, shaped, slope

from .measure import Measured
from .settings import Probe, Setting, uneven, uneven_direction

MOST = 6  # inputs
RIGHT, LOST, WRONG, ZERO, UNKNOWN = "right", "lost", "wrong", "0", "unclear"
RAISES = "raises"


def blocks(measured: Measured) -> dict[str, dict[str, str]]:
    """Name of an input, whose gradient it is -> name of an input -> a word; {} with one input.

    Never along ones, where the second derivative of a softmax, a norm or a loss is 0; in the first
    setting in which something is wrong, alone or with a graph after fn. Raises what fn raises.
    """
    probe = _uneven(measured.probe)
    if not 2 <= len(probe.target.where) <= MOST or measured.a is None:
        return {}
    bad = Outcome.WRONG, Outcome.RAISES
    shown = [s for s in (Setting.ALONE, Setting.AFTER) if measured.second[s].outcome in bad]
    if not shown or measured.first.outcome is not Outcome.RIGHT or probe.by_backward:
        return {}
    after, names = shown[0].after, probe.target.names
    true = [_changes(measured, probe, after, j) for j in range(len(names))]
    said = [_reported(probe, after, i) for i in range(len(names))]
    size = max(abs(value[i]).item() for value, _ in true for i in range(len(names)))
    found: dict[str, dict[str, str]] = {}
    for i, name in enumerate(names):
        found[name] = {}
        for j, by in enumerate(names):
            value, error = true[j][0][i].item(), true[j][1][i].item()
            allowed = 10 * measured.tolerance * abs(value) + 1e-6 * size + 5 * error
            found[name][by] = _word(said[i][j], value, allowed)
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


def _changes(measured, probe, after, j):
    """How <d, gradient> of each input changes along the j-th, by differences; and the errors."""
    zeros = [torch.zeros_like(x) for x in probe.target.point]
    parts = shaped(probe.d, zeros)
    along = flat(
        [part if k == j else zero for k, (part, zero) in enumerate(zip(parts, zeros, strict=True))]
    )

    def at(h):
        grads = _gradient(probe, after, h * along)[1]
        sums = [
            0.0 if g is None else (g * d).sum().item() for g, d in zip(grads, parts, strict=True)
        ]
        return torch.tensor(sums, dtype=torch.float64)

    found = slope(at, measured.dtype, probe.target.scale)
    return found.value, found.error


def _reported(probe: Probe, after: bool, i: int) -> list[Any]:
    """What autograd says of the same numbers for the i-th gradient: None where it has no graph,
    `RAISES` where it raises."""
    t, grads = _gradient(probe, after, 0.0, create_graph=True)
    parts, grad = shaped(probe.d, t), grads[i]
    if grad is None or not grad.requires_grad:
        return [None] * len(t)
    try:
        again = torch.autograd.grad((grad * parts[i]).sum(), t, allow_unused=True)
    except Exception:  # of backward
        return [RAISES] * len(t)
    return [None if g is None else (g * d).sum().item() for g, d in zip(again, parts, strict=True)]


def _gradient(probe, after, shift, create_graph=False):
    call = probe.target.start(shift=shift)
    loss = probe.loss(call.ys, after)
    if not loss.requires_grad:
        return call.t, [None] * len(call.t)
    options = {"create_graph": create_graph, "allow_unused": True}
    return call.t, torch.autograd.grad(loss, call.t, **options)
