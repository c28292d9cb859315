"""Where a model calls fn, grad_out may be negative, an input frozen, or made from another input.

Each is compared with what is known from the plain call, exactly and without finite differences.
Only where that differs is everything measured again there.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from double_backward.differences import vjp

from .judge import Outcome
from .measure import FEW, Measured, Situation, measure_with
from .settings import Probe, Reported, Setting, reported


def elsewhere(measured: Measured, order: int) -> Measured:
    """The same, or what was measured in the first situation in which something is wrong.

    An error that comes where an input is frozen is only noted: nobody overlooks it.
    """
    noted = measured
    for situation, probe in _suspicious(measured):
        found = measure_with(probe, order)
        if situation.kind == "frozen" and (text := _only_raises(found)):
            noted = replace(noted, raises_frozen=(situation.name, text))
        elif found.severity:
            return replace(found, situation=situation)
    return noted


def _only_raises(found):
    """The error, where there is nothing else."""
    rows = [found.first, *found.rows]
    other = {row.outcome for row in rows} - {Outcome.RIGHT, Outcome.RAISES}
    texts = [row.text for row in rows if row.outcome is Outcome.RAISES]
    return "" if other or not texts else texts[0]


def _suspicious(measured: Measured) -> Iterator[tuple[Situation, Probe]]:
    yield from _negative(measured)
    if 2 <= len(measured.probe.target.where) <= FEW:
        yield from _frozen(measured)
        if measured.probe.target.point[0].numel():
            yield from _linked(measured)


def _negative(measured):
    """A second derivative is linear in the weights, and in the direction."""
    probe = measured.probe
    said = reported(probe, Setting.BOTH).vector
    negative = replace(probe, w=tuple(-v for v in probe.w)), replace(probe, d=-probe.d)
    for other in negative:
        got = reported(other, Setting.BOTH).vector
        if said is not None and not _agree(got, -said, measured):
            yield Situation("negative"), other


def _frozen(measured):
    """What is found for the other inputs does not depend on whether one requires grad."""
    probe = measured.probe
    sizes = [x.numel() for x in probe.target.point]
    for i, name in enumerate(probe.target.names):
        others = torch.cat([torch.full((n,), k != i) for k, n in enumerate(sizes)])
        said = reported(replace(probe, d=probe.d * others), Setting.BOTH)
        frozen = replace(probe, target=probe.target.frozen(i), d=probe.d[others])
        if not _as_before(reported(frozen, Setting.BOTH), said, others, measured):
            yield Situation("frozen", name), frozen


def _as_before(got: Reported, said: Reported, others: Tensor, measured: Measured) -> bool:
    pairs = (got.first, said.first), (got.vector, said.vector)
    return all(b is None or _agree(a, b[others], measured) for a, b in pairs)


def _linked(measured):
    """By the chain rule, the first input adds what it changes in the others."""
    probe = measured.probe
    target, linked = probe.target, replace(probe, target=probe.target.linked())
    try:
        grads, got = (
            vjp(call.ys, call.t, probe.w, probe.by_backward)
            for call in (target.start(), linked.target.start())
        )
    except Exception:  # of fn or of its backward, which is measured then
        yield Situation("linked"), linked
        return
    n = target.point[0].numel()
    first = grads[:n] + grads[n:].sum() / n
    if not _agree(got, torch.cat([first, grads[n:]]), measured):
        yield Situation("linked"), linked


def _agree(got, expected, measured):
    if got is None:
        return False
    size = measured.tolerance * (expected.abs() + expected.abs().mean()) + 1e-12
    return bool(((got - expected).abs() <= size).all())
