"""Gathers the evidence in order: prepare, measure where it tells most, look at the Functions."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from double_backward import check
from double_backward.check import EXACT, TELLS, Outcome
from double_backward.failures import raise_if_own, unless_gone
from double_backward.graphs import walk
from double_backward.lines import first_line
from double_backward.methods import matches, unmet
from double_backward.untracked_steps import HOOKS, Step, watched_fn, with_create_graph

from .causes.each import judge_each, settled
from .causes.habits import observe
from .causes.in_place_writes import overwritten
from .causes.missing_part import shares
from .causes.not_finite import broken
from .conclusions.evidence import Evidence
from .measurements.as_called import in_float32
from .measurements.hessian_blocks import blocks
from .measurements.measure import Measured
from .measurements.points import measured_where_it_tells
from .measurements.transforms import in_forward_mode_alone, under_torch_func, with_wrong_jvps
from .preparation.formulas import Row, Setting, reported, typed
from .preparation.functions import STEP, Lifetime, custom_functions, lifetime, look, untracked
from .preparation.prepare import Prepared, prepare

HOOK_OF_MODULES = "BackwardHookFunction"  # torch applies it for a module with such a hook


def seen(fn, inputs, order, rtol, atol, ignore, known):
    """The evidence; the code that gives its numbers; and the matrix, where something is wrong.

    What is found on the way is appended to `known`, in case there is no time for the rest.
    """
    prepared = prepare(fn, inputs)
    prepared = replace(prepared, target=replace(prepared.target, rtol=rtol, atol=atol))
    measured, moved = measured_where_it_tells(prepared, order)
    if not_heeded := rtol is not None and _is_cut_off(measured):
        prepared = replace(prepared, target=replace(prepared.target, rtol=None))
        measured, moved = measured_where_it_tells(prepared, order)
    evidence, measured = _gather(measured, prepared, known, ignore)
    if order > 2 and measured.first.outcome is Outcome.WRONG and not measured.bad:
        unasked = Row(Outcome.NOT_ASKED, text="the first derivative is not that of forward")
        numbers = replace(evidence.measured, third=dict.fromkeys(Setting, unasked))
        evidence = replace(evidence, measured=numbers)
    evidence = replace(
        evidence,
        moved=moved,
        unchecked=prepared.unchecked,
        forgotten=prepared.forgotten,
        not_heeded=not_heeded,
    )
    how, matrix = "", {}
    if measured.bad or evidence.first_is_wrong or evidence.inexact or evidence.excused:
        target = measured.probe.target
        evidence = replace(evidence, steps=_steps_of_fn(target, evidence.functions))
        with unless_gone():  # of fn
            evidence = replace(evidence, untracked=untracked(target, ignore))
    met = [(f.names, f.place) for f in evidence.functions]
    met += [((u.name,), None) for u in evidence.untracked]
    evidence = replace(evidence, unmet=unmet(ignore, met))
    if measured.bad:
        with unless_gone():  # of fn
            matrix = blocks(measured)
        with unless_gone():  # of fn
            how = typed(measured.probe)
        try:
            evidence = replace(evidence, shares=shares(measured, evidence.functions))
        except Exception as error:  # of fn, or no tangent
            raise_if_own(error)
    return evidence, how, matrix


def with_meant(functions, ignore):
    """The Functions, of which those that the caller ignores are marked as meant."""
    return tuple(
        replace(f, meant=any(matches(each, f.names, f.place) for each in ignore)) for f in functions
    )


def _gather(
    measured: Measured, prepared: Prepared, known: list[Evidence], ignore: Sequence[type | str]
) -> tuple[Evidence, Measured]:
    """The evidence and the numbers, from a second look at fn at the point where it was measured."""
    target, functions, seeded = measured.probe.target, prepared.functions, prepared.seeded
    other: dict[Setting, Row] = {}
    if target is not prepared.target:
        functions = custom_functions(target)
    elif prepared.given and not measured.bad:
        with unless_gone():  # of fn, in float32
            other = in_float32(measured, prepared.given)
        measured = replace(measured, second={**measured.second, **other})
    functions = with_meant(functions, ignore)
    circular = any(s.circular for f in functions for s in f.saved)
    lives = lifetime(target) if circular else Lifetime.FREED
    found = Evidence(measured.numbers, functions, seeded=seeded, lifetime=lives)
    found = replace(found, broken=broken(measured))
    if measured.gradient is None:
        return found, measured
    known.append(found)
    if _asks_its_backwards(measured) or len({f.meant for f in functions}) > 1:
        with unless_gone():  # of fn
            functions = judge_each(measured, functions)
    measured = replace(measured, second=settled(measured, functions, measured.together))
    found = replace(found, measured=measured.numbers, functions=functions, alone=_alone(target))
    known.append(found)
    habits = observe(measured, seeded)
    differs = any(row.outcome is not Outcome.NOT_FINITE for row in other.values())
    found = replace(found, habits=habits, differs_in_float32=differs)
    found = replace(found, written=overwritten(measured))
    if not measured.bad and not measured.telling:  # nothing to compare anything with
        return replace(found, raises_beside=_error_beside(target)), measured
    found = replace(found, adds_up_to_0=not measured.bad and _adds_up_to_0(measured))
    forward = in_forward_mode_alone(measured, functions)
    transformed = under_torch_func(measured, functions)
    found = replace(found, forward_mode=forward, torch_func=transformed)
    if found.broken_in_forward_mode:
        found = replace(found, functions=with_wrong_jvps(measured, functions))
    return found, measured


def _asks_its_backwards(measured):
    """Whether each backward has to be checked by itself: something is wrong, or fn is a surrogate,
    so that it cannot be checked as a whole."""
    if measured.first.outcome is Outcome.NOT_FINITE:
        return False
    return measured.bad or measured.first.outcome is not Outcome.RIGHT


def _alone(target):
    """Whether fn applies custom Functions and, after its inputs, no other operation."""
    call, nodes = look(target)
    graph = walk.walk(*call.ys)
    given = graph.reachable(*call.xs)
    return bool(nodes) and all(node.custom for node in graph.nodes if node not in given)


def _steps_of_fn(target, functions):
    """The steps of fn itself that autograd does not follow; hooks, which matter most, come
    first."""
    seen = list[Step]()
    with unless_gone(), watched_fn() as steps:  # of fn
        seen = steps
        target.start()
    found = [step for step in seen if step.where]
    if any(f.name == HOOK_OF_MODULES for f in functions):
        found.append(Step("module_hook", ""))
    return tuple(sorted(dict.fromkeys(found), key=lambda step: step.kind not in HOOKS))


def _adds_up_to_0(measured):
    """Whether the second derivative is 0 with equal weights, and not 0 with uneven ones."""
    uneven = measured.said[Setting.ALONE].vector
    if uneven is None or len(uneven) < 2 or measured.by_backward or not uneven.any():
        return False
    probe = measured.probe  # whose weights are as small as its outputs are large
    w = tuple(torch.full_like(v, v.abs().mean().item()) if v.numel() else v for v in probe.w)
    even = replace(probe, w=w, d=torch.ones_like(probe.d))
    added = reported(even, Setting.ALONE).vector
    return added is not None and bool(added.abs().max() <= TELLS * uneven.abs().max())


def _is_cut_off(measured):
    """Whether the first derivative is inexact only because fn takes a gradient without
    create_graph: with it, the derivative is exact. rtol= excuses inexact computations, and not
    this."""
    first, expected = measured.first, measured.expected
    if expected is None or first.outcome is not Outcome.RIGHT:
        return False
    line = expected.line.with_constants()
    if first.relative <= EXACT[expected.dtype]:
        return False
    subject = replace(line.subject, function=with_create_graph(line.subject.function))
    try:
        recorded = check.measure(replace(line, subject=subject))
    except Exception as error:  # raised by fn, of which more is recorded now
        raise_if_own(error)
        return False
    exact = EXACT[recorded.dtype]
    off = check.first(recorded, exact)
    return off.outcome is Outcome.RIGHT and off.agrees(exact)


def _error_beside(target):
    """The error that fn raises some millionths beside the point; "" if it raises none."""
    try:
        target.start(shift=target.uneven_step(1e-3 * STEP))
    except Exception as error:  # of fn
        raise_if_own(error)
        return first_line(error)
    return ""
