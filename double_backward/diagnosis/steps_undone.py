"""Steps of backward that lose a graph: met in a real first backward, and undone to see what is
right without them."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

from double_backward.check import SAME_NUMBER, Checked, Expected, Outcome, check
from double_backward.graphs import walk
from double_backward.untracked_steps import UNDOABLE, Step, watched

DETACHES = {"detach", "data"}
PATIENCE = 20.0  # seconds of computing, after which no step is looked at by itself
TRIAL = 3.0  # that a trial may take, besides three times as long as the first


@dataclass(frozen=True)
class Undone:
    """What became of backward's own derivative without steps of it.

    Attributes:
        by_input, by_grad_out: the steps that change this part of it, each by itself.
        mended: the parts that are right without the steps of both.
        right: all is, then.
    """

    by_input: tuple[Step, ...] = ()
    by_grad_out: tuple[Step, ...] = ()
    mended: frozenset[str] = frozenset()
    right: bool = False

    @property
    def together(self) -> list[Step]:
        return list(dict.fromkeys([*self.by_input, *self.by_grad_out]))


class _Called:
    """A callable whose own steps are watched, as those of a backward are."""

    __name__ = ""

    def __init__(self, function: Callable):
        self.backward = lambda _, x: function(x)

    def __call__(self, x):
        return self.backward(None, x)


def undone(expected: Expected) -> Undone:
    """Undo all steps of the backwards, or where there is no Function those of the callable itself,
    on a new graph for each trial; then all but one, to see what that one changes.

    Raises what the callable raises.
    """
    expected, classes = _watchable(expected)
    began, first = time.process_time(), math.inf

    @cache
    def without(steps: frozenset[Step]) -> tuple[Checked, list[Step]]:
        with watched(classes, steps, time.process_time() + 3 * first + TRIAL) as met:
            return check(expected), list(dict.fromkeys(met))

    before, met = without(frozenset())
    first = time.process_time() - began
    after, steps = _all_undone(without, before, met)
    but_one: dict[Step, Checked] = {}
    needed: dict[str, tuple[Step, ...]] = {}
    for step in steps:
        if time.process_time() - began < PATIENCE:
            but_one[step] = without(frozenset(steps) - {step})[0]
    for part in ("by_input", "by_grad_out"):
        goal = getattr(after, part)
        if not _agree(goal, getattr(before, part)):
            same = [s for s in but_one if _agree(goal, getattr(but_one[s], part))]
            needed[part] = tuple([s for s in steps if s not in same] or steps)
    found = Undone(needed.get("by_input", ()), needed.get("by_grad_out", ()))
    last = without(frozenset(found.together))[0]
    mended = frozenset(part for part in needed if getattr(last, part).outcome is Outcome.RIGHT)
    return replace(found, mended=mended, right=before.bad and _right(last, before))


def _watchable(expected: Expected) -> tuple[Expected, list[Any]]:
    """The same, and the Functions in it, or what else is to be watched."""
    subject = expected.line.subject
    with subject.around(), torch.enable_grad():
        outs = [y for y in subject.function(expected.line.x()) if isinstance(y, Tensor)]
    classes = [node.custom for node in walk.walk(*outs).nodes if node.custom]

    def function(x):
        return subject.function([s * 1 for s in x])  # no leaves

    called = function if classes else _Called(function)
    line = replace(expected.line, subject=replace(subject, function=called))
    return replace(expected, line=line), classes or [called]


def _all_undone(without, before, met):
    """How it is without all steps, and which these are: none that leaves torch, and a detach only
    where backward can do without it."""
    for kinds in (UNDOABLE, UNDOABLE.keys() - DETACHES):
        after, seen, steps = before, met, list[Step]()
        while new := [s for s in seen if s.kind in kinds and s not in steps]:
            steps += new  # inside a no_grad, for one, that hid them
            after, seen = without(frozenset(steps))
        if not _spoils(after, before):
            return after, steps
    return before, []


def _spoils(tried, before):
    """Whether backward raises without steps, or returns something else, as where autograd.grad
    inside it stopped at what was detached."""
    raises = tried.by_input.outcome is Outcome.RAISES
    return raises or (tried.recorded.bad and not before.recorded.bad)


def _right(tried, before):
    """Whether all is, but for a backward that can be called once only."""
    once = before.tied.outcome is tried.tied.outcome is Outcome.RAISES
    parts = [tried.by_input, tried.by_grad_out, tried.recorded, *([] if once else [tried.tied])]
    return not any(part.bad for part in parts)


def _agree(one, other):
    """Whether two comparisons ended alike, with the same number."""
    if one.outcome is not other.outcome:
        return False
    return abs(one.got - other.got) <= SAME_NUMBER * (abs(one.got) + abs(other.got))
