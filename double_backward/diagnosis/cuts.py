"""Steps of backward that lose a graph: met in a real first backward, and undone to see which part
of its derivative each is needed for."""

from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace

import torch

from double_backward import explain
from double_backward._torch import checkpoints_allowed
from double_backward.explain import Case, Undoing
from double_backward.steps import UNDOABLE, Called, Step, watched

from .functions import Custom, look
from .measure import Measured
from .settings import Probe


def with_steps(probe: Probe, customs: tuple[Custom, ...]) -> tuple[Custom, ...]:
    """The same, with the steps that each backward takes. A new graph for each try, since there are
    backwards that work once; with a grad_out that has a graph, and where that raises with none."""
    target, found = probe.target, list[Step]()
    for recorded in (True, False):
        try:
            with _around(probe)(), watched(_classes(target)) as met:
                try:
                    ys, xs = (call := target.start()).ys, call.t
                    given = [(y, w) for y, w in zip(ys, probe.w, strict=True) if y.requires_grad]
                    u = [w.clone().requires_grad_(recorded) for _, w in given]
                    outs = [y for y, _ in given]
                    torch.autograd.grad(outs, xs, u, create_graph=True, allow_unused=True)
                finally:
                    found += met
            break
        except Exception:  # of fn, or of a backward
            continue
    return tuple(replace(c, untracked_calls=_of(c, found)) for c in customs)


def _of(custom, steps):
    own = [step for step in steps if step.function == custom.name]
    if custom.once:
        own = [step for step in own if step.where]  # not those of the guard itself
    if (
        custom.lost or custom.handed or any(step.kind != "memory" for step in own)
    ):  # which make such tensors, too
        own = [step for step in own if step.kind != "memory"]
    numpy = any(step.kind == "numpy" for step in own)  # which needs .detach()
    return tuple(dict.fromkeys(s for s in own if not (numpy and s.kind == "detach")))


def _classes(target):
    return [node.function for node in look(target).nodes]


def _around(probe):
    return checkpoints_allowed if probe.by_backward else nullcontext


def case_of(measured: Measured, customs: Sequence[Custom]) -> Case:
    """What was measured of fn, for the experiments of `explain`; of a fn in which no Function is,
    its own steps are those to be undone."""
    assert measured.expected is not None
    line = measured.expected.line
    given = line.subject.function

    def function(x):
        return given([s * 1 for s in x])  # no leaves

    called = None if customs else Called(lambda _, x: function(x))
    subject = replace(line.subject, function=called or function)
    return Case(replace(measured.expected, line=replace(line, subject=subject)), called)


Steps = tuple[Step, ...]


def undoing(
    case: Case, customs: tuple[Custom, ...]
) -> tuple[Undoing | None, Steps, dict[str, Steps]]:
    """What becomes of backward's own derivative without the steps, of fn's without its own where no
    Function is in it; those that leave torch, and matter; and, by the part of the derivative, those
    that have nothing to do with it. (None, (), {}): that cannot be told."""
    with suppress(Exception):  # of fn
        lost = any(
            c.lost or c.handed for c in customs
        )  # tensors without a graph, and not by a step
        kinds = [kind for kind in UNDOABLE if not (lost and kind == "memory")]
        found = explain.undoing(case, kinds)
        left = None if found.right else explain.attempted(explain.left_torch, case)
        still = explain.attempted(explain.still, case) if found.stuck or left else None
        return found, left or (), still or {}
    return None, (), {}
