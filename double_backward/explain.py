"""Why a second derivative is wrong, by experiment: steps of backward, undone or altered."""

import math
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from .check import Checked, Expected, Outcome, check
from .graphs import walk
from .steps import LEAVING, UNDOABLE, Called, Step, watched

Found = TypeVar("Found")


@dataclass(frozen=True, eq=False)
class Case:
    """A callable at a point where its second derivative is wrong.

    Attributes:
        expected: what was measured.
        called: the callable's own steps are undone, and not those of Functions.
    """

    expected: Expected
    called: Called | None = None

    @contextmanager
    def run(self, h: float = 0.0) -> Iterator["Run"]:
        """The callable once more, at x + h d."""
        line = self.expected.line
        with line.subject.around(), torch.enable_grad():
            yield self.run_at(line.x(h))

    def run_at(self, x: list[Tensor]) -> "Run":
        """The same at other inputs, in whatever stands around it."""
        line = self.expected.line
        outs = line.subject.function(x)
        found = [y for y in outs if isinstance(y, Tensor)]
        return Run(x, list(outs), line.u(), [n for n in walk.walk(*found).nodes if n.custom])

    def kinds(self) -> list[Any]:
        """The Functions, or what else is watched."""
        if self.called:
            return [self.called]
        with self.run() as run:
            return list(dict.fromkeys(node.custom for node in run.nodes))


@dataclass
class Run:
    """One call: the inputs, the outputs, grad_outs, and the custom nodes of the graph."""

    x: list[Tensor]
    outs: list
    u: list[Tensor | None]
    nodes: list

    def gradients(self, *more: tuple[Tensor, Tensor], create_graph: bool = False) -> list:
        """What backward returns, also for `more` outputs with a gradient each."""
        pairs = [
            (y, u)
            for y, u in zip(self.outs, self.u, strict=True)
            if u is not None and isinstance(y, Tensor) and y.requires_grad
        ]
        ys, us = [y for y, _ in [*pairs, *more]], [u.to(y.dtype) for y, u in [*pairs, *more]]
        us = [u.clone().requires_grad_(create_graph) for u in us]  # backward may write into them
        options = {"create_graph": create_graph, "allow_unused": True}
        return list(torch.autograd.grad(ys, self.x, us, **options))


def attempted(find: Callable[[Case], Found], case: Case) -> Found | None:
    """What `find` says; None where the Function does not survive the experiment."""
    try:
        return find(case)
    except Exception:
        return None


def same_gradients(ones: list, others: list) -> bool:
    """Are two lists of gradients the same but for rounding?

    A number that cancels, as the shift of a softmax does, changes the last digits alone.
    """
    if len(ones) != len(others):
        return False
    for a, b in zip(ones, others, strict=True):
        if (a is None) != (b is None):
            return False
        if a is not None and not torch.equal(a, b):
            a, b = a.detach(), b.detach()
            size = float(a.abs().max())
            if not float((a - b).abs().max()) <= torch.finfo(a.dtype).eps ** 0.5 * size:
                return False
    return True


@dataclass(frozen=True)
class Undoing:
    """Steps of backward by what is lost by them, as few as will do.

    Attributes:
        by_input, by_grad_out, tied: steps without which that part of the derivative is right; or,
            where something else spoils it, too, those without which it is another number.
        together: those of all parts.
        stuck: steps that cannot be undone: something raises, or backward returns other numbers.
        mended: the parts that are wrong, and right without these steps.
        right: without the steps all is.
    """

    by_input: tuple[Step, ...] = ()
    by_grad_out: tuple[Step, ...] = ()
    tied: tuple[Step, ...] = ()
    together: tuple[Step, ...] = ()
    stuck: tuple[Step, ...] = ()
    mended: frozenset[str] = frozenset()
    right: bool = False


DETACHES = "detach", "data"
PARTS = "by_input", "by_grad_out", "tied"
# In seconds of computing, which are the same where other work waits for the processor, too.
PATIENCE = 20.0  # after which no step is left out any more to see whether it matters
TRIAL = 3.0  # that a trial may take, besides three times as long as the first


def undoing(case: Case, kinds: Collection[str] = UNDOABLE) -> Undoing:
    """Undo steps of backward, again and again on a new graph, and see what becomes of each part."""
    known: dict[frozenset[Step], tuple[Checked, list[Step]]] = {}
    classes, began, first = case.kinds(), time.process_time(), 0.0

    def without(steps):
        nonlocal first
        key = frozenset(steps)
        if key not in known:
            now = time.process_time()
            until = now + 3 * first + TRIAL if known else math.inf
            with watched(classes, steps, until=until) as met:
                known[key] = _asked(case.expected), list(dict.fromkeys(met))
            first = first or time.process_time() - now
        return known[key]

    before, met = without(())
    every = [s for s in met if s.kind in kinds]
    if any(s.kind != "memory" for s in every):  # which make such tensors, too
        kinds = [kind for kind in kinds if kind != "memory"]
        every = [s for s in every if s.kind in kinds]
    at_first = list(every)
    while new := [s for s in without(every)[1] if s.kind in kinds and s not in every]:
        every += new  # inside a no_grad, for one, that hid them
    if not every:
        return Undoing()
    stuck: list[Step] = []
    if _spoils(without(every)[0], before):  # not all of them can be undone
        possible = [] if _spoils(without(at_first)[0], before) else at_first
        left = [s for s in every if s not in possible]
        # A detach last: where a graph begins anew, what is behind it may have no end.
        for step in sorted(left, key=lambda s: s.kind in DETACHES):
            if time.process_time() - began > PATIENCE:
                break
            tried = without([*possible, step])[0]
            if not _spoils(tried, before) or (tried.error and before.error):
                possible.append(step)
            elif not isinstance(tried.error, TimeoutError):
                stuck.append(step)
        every = possible
    after, found, mended = without(every)[0], {}, set[str]()
    # Without a detach, where a graph begins anew, something may be counted twice.
    ends = [s for s in at_first if s.kind not in DETACHES]
    for part in PARTS:
        start = every
        if getattr(after, part).bad and getattr(without(ends)[0], part).outcome is Outcome.RIGHT:
            start = ends
        goal, needed = getattr(without(start)[0], part), list(start)
        if _agree(getattr(before, part), goal):
            continue
        for step in list(needed):
            if time.process_time() - began > PATIENCE:
                break
            fewer = [s for s in needed if s is not step]
            needed = fewer if _agree(getattr(without(fewer)[0], part), goal) else needed
        found[part] = tuple(needed)
        if not goal.bad:
            mended.add(part)
    together = tuple(s for s in every if any(s in needed for needed in found.values()))
    if without(together)[0].bad:
        together = tuple(every)
    return Undoing(
        **found,
        together=together,
        stuck=tuple(stuck),
        mended=frozenset(mended),
        right=before.bad and not after.bad,
    )


def _asked(expected):
    """As `check`; of a backward that works once, and is called again where grad_out is made from
    the output, at least the rest."""
    found = check(expected)
    if found.error is None:
        return found
    still = expected.y._replace(value=torch.zeros_like(expected.y.value))
    untied = check(replace(expected, y=still))
    return found if untied.error else replace(untied, tied=found.by_input)


def _spoils(tried, before):
    """Whether backward raises without steps, or returns something else, as where autograd.grad
    inside it stopped at what was detached."""
    return tried.error or (tried.recorded.bad and not before.recorded.bad)


def _agree(one, other):
    """Whether two comparisons ended alike, with the same number."""
    if one.outcome is not other.outcome:
        return False
    return abs(one.got - other.got) <= 1e-6 * (abs(one.got) + abs(other.got))


def left_torch(case: Case) -> tuple[Step, ...]:
    """Steps of backward that make a number or an array of a tensor with a graph, and use it."""
    classes = case.kinds()
    with watched(classes) as steps:
        check(case.expected)
    return tuple(
        step
        for step in dict.fromkeys(steps)
        if step.kind not in UNDOABLE and (step.kind not in LEAVING or _matters(case, classes, step))
    )


def _matters(case, classes, step):
    """Do other numbers there change what backward returns? Those that are printed do not."""
    results = []
    for alter in ([], [step]):
        with case.run() as run, watched(classes, alter=alter):
            try:
                results.append(run.gradients(create_graph=True))
            except Exception:  # an index out of range, for one
                return True
    return not same_gradients(*results)


def still(case: Case) -> dict[str, tuple[Step, ...]]:
    """The steps taken with a tensor that does not change with the inputs, or with grad_out."""
    classes = case.kinds()

    def taken_with(h, factor):
        found: dict[Step, list[Tensor]] = {}
        with watched(classes, values=found), case.run(h) as run:
            run.u = [u if u is None else factor * u for u in run.u]
            run.gradients(create_graph=True)
        return found

    here, parts = taken_with(0.0, 1.0), {"by_input": (1e-2, 1.0), "by_grad_out": (0.0, 1.37)}
    there = {part: taken_with(*changed) for part, changed in parts.items()}
    return {
        part: tuple(s for s in here if same_gradients(here[s], other.get(s, [])))
        for part, other in there.items()
    }
