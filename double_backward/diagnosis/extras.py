"""The gradients of extra outputs: what backward adds for each, beside differences."""

import math
from dataclasses import replace

import torch

from double_backward.check import Outcome
from double_backward.differences import flat, shaped, slope, vjp
from double_backward.graphs import walk

from .alone import dot, seen_at, weights
from .first import is_off
from .functions import Extra, Kind, Path
from .paths import CLEAR, Number, path_of

FEW = 8  # inputs of fn that are told apart


def wrong_extras(measured, here, backward, custom):
    """What backward adds for each output beyond the first that is saved, where it is wrong."""
    alone = len(here.nodes) == 1  # a surrogate before it would spoil the comparison
    if not (alone or measured.first.outcome is Outcome.RIGHT):
        return ()
    outputs = {s.position: s for s in custom.saved if s.kind is Kind.OUTPUT and s.position}
    extras = [_extra(measured, here, backward, saved) for saved in outputs.values()]
    found = [extra for extra in extras if extra is not None]
    wrong = measured.first.outcome is Outcome.WRONG
    whole = bool(found) and wrong and _first_is_off(measured, here, backward, custom)
    return tuple(replace(extra, whole=whole) for extra in found)


def _first_is_off(measured, here, backward, custom):
    """Whether backward is another derivative for the first output as well, or for those of fn that
    are none of the outputs beyond: all of it, not what it adds for an extra one."""
    first = [s for s in custom.saved if s.kind is Kind.OUTPUT and s.position == 0]
    if first and _extra(measured, here, backward, first[0]):
        return True
    probe, ys = measured.probe, here.call.ys
    later = [y.grad_fn is backward.node.fn and y.output_nr > 0 for y in ys]
    if not any(later) or all(later):
        return False
    w = tuple(v * (not extra) for v, extra in zip(probe.w, later, strict=True))
    try:
        gradient = vjp(ys, here.call.t, w)
    except Exception:  # of backward
        return False
    target = probe.target.in_units(probe.target.units, ())
    y0 = tuple(y.detach() for y in ys)
    return is_off(replace(probe, target=target, w=w, y0=y0), gradient, measured.dtype)


def _extra(measured, here, backward, saved):
    """None where backward has the right part for this output."""
    target, number = measured.probe.target, backward.number
    node = backward.node
    own = _output(node, saved.position)
    weight = weights(own, number, saved.position, 3)
    try:
        grads = torch.autograd.grad(
            dot(own, weight), here.call.t, allow_unused=True, retain_graph=True
        )
    except Exception:  # of backward
        return None
    wrong = {}
    for j, name in enumerate(target.names[:FEW]):
        ratios = []
        for draw in (1, 2):
            direction = _only(target, j, weights(flat(target.point), draw, j))
            true = _change_of_output(measured, number, saved.position, weight, direction)
            step = shaped(direction, here.call.t)[j]
            got = 0.0 if grads[j] is None else dot(grads[j], step).item()
            size = max(abs(true.value), abs(got))
            if path_of(Number(got, 0.0), true, size, CLEAR[measured.dtype]) in (
                Path.MISSING,
                Path.WRONG,
            ):
                ratios.append(got / true.value if true.value else math.nan)
        if ratios:
            same = len(ratios) == 2 and abs(ratios[0] - ratios[1]) <= 1e-3 * abs(ratios[0])
            wrong[name] = 0.0 if not any(ratios) else ratios[0] if same else math.nan
    if not wrong:
        return None
    times = _times_another(backward, saved.position)
    return Extra(saved.position, saved.variable, wrong, times)


def _output(node, position):
    kept = [k for k in node.kept if k.role == walk.OUTPUT and k.position == position]
    return kept[0].tensor


def _only(target, j, vector):
    parts = vector.split([x.numel() for x in target.point])
    return torch.cat([p if i == j else torch.zeros_like(p) for i, p in enumerate(parts)])


def _change_of_output(measured, number, position, weight, direction):
    target = measured.probe.target

    def at(h):
        node = seen_at(target, h * direction).nodes[number]
        return dot(_output(node, position).detach(), weight).double().reshape(1)

    value, error, _ = slope(at, measured.dtype, target.scale)
    return Number(value.item(), error.item())


def _times_another(backward, position):
    """Whether the part for one output changes with the gradients of the others."""
    mine = [v if k == position else torch.zeros_like(v) for k, v in enumerate(backward.u)]
    others = [torch.zeros_like(v) if k == position else v for k, v in enumerate(backward.u)]
    together = backward.value(backward.kept)
    parts = [backward.value(backward.kept, u) for u in (mine, others)]
    return abs(together - sum(parts)) > 1e-6 * sum(map(abs, parts))
