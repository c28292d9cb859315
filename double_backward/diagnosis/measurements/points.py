"""Chooses the point at which fn is measured: the given one, or one beside it that tells more."""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from double_backward.check import Outcome, size
from double_backward.failures import raise_if_gone

from ..preparation.prepare import NotChecked, Prepared, raised
from ..preparation.target import Target
from .measure import Measured, measure, measure_elsewhere


def measured_where_it_tells(prepared: Prepared, order: int) -> tuple[Measured, bool]:
    """The numbers, and whether they are those of a point beside the given one."""
    try:
        found, moved = _told_both_ways(prepared.target, order)
        if prepared.functions and found.telling and not (found.gravity and found.is_shown):
            found = measure_elsewhere(found, order)
        if found.dtype is torch.float32 and not prepared.functions:
            found = _doubted(found)
        return found, moved
    except NotChecked:
        raise
    except Exception as error:  # raised by fn, which has worked before
        raise raised(error) from error


def _told_both_ways(target: Target, order: int) -> tuple[Measured, bool]:
    """Measure with symmetric matrices moved like any others and, where something is wrong then, or
    unclear, so that they stay symmetric, which fn may rely on."""
    found, moved = _at_a_telling_point(target, order)
    if found.telling and not found.gravity:
        return found, moved
    symmetric = target.symmetric()
    if not symmetric.stays_symmetric:
        return found, moved
    kept, there = _at_a_telling_point(symmetric, order)
    one, other = ([row.outcome for row in [m.first, *m.rows]] for m in (found, kept))
    if one == other:
        return found, moved
    return replace(kept, symmetric=symmetric.stays_symmetric), there


def _doubted(found: Measured) -> Measured:
    """The same with "wrong" replaced by "unclear": only operations of torch are in the graph, and
    differences were taken in float32."""

    def doubted(row):
        wrong = row.outcome is Outcome.WRONG
        return replace(row, outcome=Outcome.UNCLEAR) if wrong else row

    rows = ({s: doubted(r) for s, r in rows.items()} for rows in (found.second, found.third))
    second, third = rows
    return replace(found, first=doubted(found.first), second=second, third=third)


def _at_a_telling_point(target: Target, order: int) -> tuple[Measured, bool]:
    """Measure at the given point, or beside it where a derivative is 0 there, or the second
    jumps."""
    here = measure(target, order)
    if here.bad or (here.telling == 2 and not here.idle):
        return here, False
    for point in _beside(target):
        try:
            there = measure(target.at(point), order)
            break
        except Exception as error:  # of fn, which takes the given point and not this one
            raise_if_gone(error)
            continue
    else:
        return here, False
    told = 0 if there.telling == 1 and _has_cancelled(here) else there.telling
    tells_more = there.gravity > here.gravity or told > here.telling
    exists = there.first.outcome not in (Outcome.RAISES, Outcome.NOT_FINITE)
    return (there, True) if tells_more and exists else (here, False)


def _has_cancelled(here: Measured) -> bool:
    """Whether terms have cancelled, so that fn stands still by differences only, or whether its
    rows are unclear; then a derivative of 0 beside the point tells nothing."""
    unclear = any(row.outcome is Outcome.UNCLEAR and row.text for row in here.second.values())
    return here.drowned or unclear or (here.expected is not None and here.expected.has_cancelled)


def _beside(target: Target) -> Iterator[list[Tensor]]:
    """Other points: one to one side, and one towards the mean, away from the edges of a domain."""
    generator, steps = torch.Generator().manual_seed(0), []
    for x in target.point:
        draw = torch.rand(x.shape, generator=generator, dtype=x.dtype)
        steps.append(0.1 * size(x) * draw.to(x.device))
    yield target.point_at(steps)
    yield [x + 0.1 * (x.mean() - x) for x in target.point]
