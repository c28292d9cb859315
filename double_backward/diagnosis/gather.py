"""The evidence, gathered in order: prepare, measure where it tells most, look at the Functions."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import torch
from torch import Tensor

from double_backward.check import Outcome
from double_backward.explain import Case
from double_backward.lines import first_line
from double_backward.second_functions import second_gradients

from .blocks import blocks
from .company import not_their_own
from .cuts import case_of, undoing
from .dependence import follow
from .evidence import Evidence, SecondGradients
from .functions import custom_functions, uneven_step
from .habits import observe, torch_func
from .in_float32 import as_given
from .judge import Row
from .lifetime import Lifetime, lifetime
from .measure import Measured, measure, measure_elsewhere
from .not_finite import broken
from .overwritten import overwritten
from .places import place_of
from .prepare import Prepared, prepare, raised
from .recipe import typed
from .settings import FORMULAS, Setting
from .surrogates import settled
from .target import Target


def seen(fn, inputs, order, rtol, atol, ignore, known):
    """The evidence; how to get its numbers oneself; and the matrix, where something is wrong.

    What is `known` on the way is added there, in case there is no time for the rest.
    """
    prepared = prepare(fn, inputs)
    prepared = replace(prepared, target=replace(prepared.target, rtol=rtol, atol=atol))
    measured, moved = _measured(prepared, order)
    evidence, measured = _gather(measured, prepared, known)
    evidence = replace(
        evidence,
        functions=with_meant(evidence.functions, ignore),
        moved=moved,
        unchecked=prepared.unchecked,
        forgotten=prepared.forgotten,
    )
    how, formulas, matrix = "", FORMULAS, {}
    if measured.wrong:
        with suppress(Exception):  # of fn
            matrix = blocks(measured)
        with suppress(Exception):  # of fn
            how, formulas = typed(measured.probe)
    return evidence, how, formulas, matrix


def with_meant(functions, ignore):
    """The same, where those that the caller ignores are meant as they are."""
    places = _places(ignore)
    return tuple(replace(f, meant=(f.name, f.place) in places) for f in functions)


def _places(classes):
    """By which a class is known, also where each call of fn makes it anew."""
    return {(c.__name__, place_of(c)) for c in classes}


def _measured(prepared: Prepared, order: int) -> tuple[Measured, bool]:
    try:
        found, moved = _measure_where_it_tells(prepared.target, order)
        if prepared.functions and found.telling and not found.gravity:
            found = measure_elsewhere(found, order)
        if found.dtype is torch.float32 and not prepared.functions:
            found = _doubted(found)
        return found, moved
    except Exception as error:  # of fn, which has worked before
        raise raised(error) from error


def _doubted(found: Measured) -> Measured:
    """What is wrong is unclear: operations of torch by differences that are taken in float32."""

    def doubted(row):
        wrong = row.outcome is Outcome.WRONG
        return replace(row, outcome=Outcome.UNCLEAR) if wrong else row

    rows = ({s: doubted(r) for s, r in rows.items()} for rows in (found.second, found.third))
    second, third = rows
    return replace(found, first=doubted(found.first), second=second, third=third)


def _measure_where_it_tells(target: Target, order: int) -> tuple[Measured, bool]:
    """At the given point; beside it where a derivative is 0 there, or the second jumps."""
    here = measure(target, order)
    if here.wrong or (here.telling == 2 and not here.idle):
        return here, False
    for point in _beside(target):
        try:
            there = measure(target.at(point), order)
            break
        except Exception:  # of fn, which takes the given point and not this one
            continue
    else:
        return here, False
    tells_more = there.gravity > here.gravity or there.telling > here.telling
    exists = there.first.outcome not in (Outcome.RAISES, Outcome.NOT_FINITE)
    return (there, True) if tells_more and exists else (here, False)


def _beside(target: Target) -> Iterator[list[Tensor]]:
    """Other points: to one side, and, away from the edges of a domain, towards the mean."""
    generator, steps = torch.Generator().manual_seed(0), []
    for x in target.point:
        draw = torch.rand(x.shape, generator=generator, dtype=x.dtype)
        steps.append(0.1 * target.scale * draw.to(x.device))
    yield target.point_at(steps)
    yield [x + 0.1 * (x.mean() - x) for x in target.point]


def _gather(
    measured: Measured, prepared: Prepared, known: list[Evidence]
) -> tuple[Evidence, Measured]:
    """Look at fn once more, at the point where it was measured."""
    target, functions, seeded = measured.probe.target, prepared.functions, prepared.seeded
    in_float32: dict[Setting, Row] = {}
    if target is not prepared.target:
        functions = custom_functions(target)
    elif prepared.given and not measured.wrong:
        with suppress(Exception):  # of fn, in float32
            in_float32 = as_given(measured, prepared.given)
        measured = replace(measured, second={**measured.second, **in_float32})
    circular = any(s.circular for f in functions for s in f.saved)
    lives = lifetime(target) if circular else Lifetime.FREED
    found = Evidence(measured.numbers, functions, seeded=seeded, lifetime=lives)
    found = replace(found, broken=broken(measured))
    if measured.a is None:
        return found, measured
    if _asks_its_backwards(measured, functions):
        functions = follow(measured, functions)
    if measured.wrong and measured.first.outcome is Outcome.RIGHT:
        functions = _in_company(target, functions)
    measured = replace(measured, second=settled(measured, functions))
    found = replace(found, measured=measured.numbers, functions=functions)
    known.append(found)
    habits = observe(measured, seeded)
    found = replace(found, habits=habits, differs_in_float32=bool(in_float32))
    found = _explained(found, measured)
    found = replace(found, written=overwritten(measured))
    if not measured.wrong and not measured.telling:  # nothing to compare torch.func with
        return replace(found, raises_beside=_error_beside(target)), measured
    return replace(found, torch_func=torch_func(measured)), measured


def _in_company(target, functions):
    """The same, with those marked that are right at first order in company only."""
    if len(functions) < 2:
        return functions
    with suppress(Exception):  # of fn
        places = _places(not_their_own(target))
        return tuple(replace(f, in_company=(f.name, f.place) in places) for f in functions)
    return functions


def _asks_its_backwards(measured, functions):
    """Something is wrong, or fn as a whole cannot tell: a surrogate, or integers that jump."""
    if measured.first.outcome is Outcome.NOT_FINITE:
        return False
    packed = not measured.exact and any(s.packed for f in functions for s in f.saved)
    return measured.wrong or measured.first.outcome is not Outcome.RIGHT or packed


def _explained(found: Evidence, measured: Measured) -> Evidence:
    """The same, with what experiments on fn as a whole show."""
    functions = found.functions
    undo = measured.wrong and (not functions or any(f.untracked_calls for f in functions))
    ask = measured.dtype is torch.float64 and any(f.inner for f in functions)
    ask = ask and not measured.by_backward  # else autograd.grad is refused
    with suppress(Exception):  # of fn
        case = case_of(measured.probe) if undo or ask else None
        if case and undo:
            undone, left = undoing(case, functions)
            found = replace(found, undone=undone, left_torch=left)
        if case and ask:
            found = replace(found, second_gradients=_second_gradients(case))
    return found


def _second_gradients(case: Case) -> tuple[SecondGradients, ...]:
    """What is wrong with the backwards of the Functions that backward applies, each by itself."""
    return tuple(
        SecondGradients(
            name,
            none=tuple(pair.what for pair in pairs if pair.none),
            zero=tuple(p.what for p in pairs if not p.none and not p.yours.any()),
            wrong=tuple(p.what for p in pairs if not p.none and p.yours.any()),
        )
        for name, pairs in second_gradients(case)
    )


def _error_beside(target):
    """What fn raises some millionth beside the point."""
    try:
        target.start(shift=1e-3 * uneven_step(target))
    except Exception as error:  # of fn
        return first_line(error)
    return ""
