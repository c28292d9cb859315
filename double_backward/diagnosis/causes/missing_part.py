"""Splits what a number in the report lacks by the things that the Functions keep."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from double_backward.check import Line, Outcome
from double_backward.differences import shaped
from double_backward.shares import missed

from ..measurements.measure import Measured, subject_of
from ..preparation.formulas import Row
from ..preparation.functions import Custom, Kind, Saved, look

MOST_KEPT = 16  # things that are kept; with more, the missing part is not split
Shares = dict[str, dict[str, float]]  # a Function -> what it keeps -> its share


def shown_row(rows: Sequence[Row]) -> Row | None:
    """The first row that shows a wrong number; what is missing there is split."""
    return next((r for r in rows if r.outcome is Outcome.WRONG and r.element is not None), None)


def shares(measured: Measured, customs: Sequence[Custom]) -> Shares:
    """The share of each thing that is kept; {} if the missing part cannot be split, since no number
    is shown, or tangents give another one.

    Raises `tangents.Lost`, or what fn raises.
    """
    row, expected = shown_row([*measured.second.values()]), measured.expected
    if row is None or measured.a is None or expected is None or expected.lost:
        return {}
    if measured.first.outcome is not Outcome.RIGHT or measured.dtype is torch.bfloat16:
        return {}
    target, d = measured.probe.target, measured.probe.d
    nodes = look(target).nodes
    if len(nodes) != len(customs):
        return {}
    kept = {
        (node.function, saved.slot): (custom.name, str(saved.title))
        for node, custom in zip(nodes, customs, strict=True)
        for saved in custom.saved
        if _is_asked(saved)
    }
    if not 2 <= len(kept) <= MOST_KEPT:
        return {}
    parts = {(f, slot): (f, lambda where, slot=slot: where[0] == slot) for f, slot in kept}
    step = torch.zeros_like(d)
    step[row.element] = 1.0
    line = Line.of(subject_of(measured.probe))
    line = replace(line, d=tuple(shaped(step, target.point))).with_constants()
    found: Shares = {}
    true, missing = missed(line, d, parts, measured.dtype)
    known = measured.a[row.element].item()
    if abs(true - known) > measured.tolerance * max(abs(true), abs(known)) + 5 * row.uncertain:
        return {}
    for key, share in missing.items():
        name, title = kept[key]
        own = found.setdefault(name, {})
        own[title] = own.get(title, 0.0) + share
    return found


def _is_asked(saved: Saved) -> bool:
    """Whether the share of a thing can be asked: only tensors carry tangents."""
    return saved.kind is not Kind.CONSTANT and not saved.numeric
