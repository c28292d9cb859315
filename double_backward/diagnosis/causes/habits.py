"""Observes how fn and its backward behave when they are called as a larger model calls them."""

from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from double_backward._torch import EDITED, version
from double_backward.calls import Listener, listening
from double_backward.check import EXACT, FACTORS, LINEAR, size
from double_backward.differences import filled, flat, same, vjp
from double_backward.failures import raise_if_gone, raise_if_own, unless_gone
from double_backward.lines import first_line
from double_backward.phrases import Phrase

from ..measurements.measure import Measured, differs
from ..measurements.ways import WRONG_NUMBER, agree, gives_the_same, grad_out_layouts, input_layouts
from ..preparation.functions import STEP, look
from .in_place_writes import Writes, memory

SAME = Phrase("the same result")


@dataclass(frozen=True)
class Habits:
    """What was seen: strings are words for the report, "" where nothing was seen."""

    edits_input: bool = False  # fn writes into an input, without mark_dirty
    no_gradient: str = ""  # names of inputs for which autograd returns None, though they matter
    unused: str = ""  # names of inputs with which fn does not change
    mutates: bool = False  # backward writes into grad_out
    mutates_saved: bool = False  # backward writes into a tensor that it saved
    only_once: str = ""  # the error that a second backward through the same graph raises
    not_repeatable: str = ""  # what a second call through the same graph gives
    changes_ctx: tuple[str, ...] = ()  # the attributes of ctx that backward has changed
    not_linear: str = ""  # what happens if grad_out is scaled
    grad_out_layout: str = ""  # what happens if grad_out is not contiguous
    input_layout: str = ""  # what happens if an input is not contiguous
    second_call: str = ""  # what happens if fn is called elsewhere before backward


def observe(measured: Measured, seeded: bool = False) -> Habits:
    """Call backward on its own, with other grad_outs, and for other layouts.

    Args:
        measured: has the point, and how close numbers must be.
        seeded: whether fn draws random numbers, so that another layout gives other outputs.
    """
    probe = measured.probe
    if probe.by_backward:  # fn refuses autograd.grad, the only call that is made here
        return Habits()
    found = _through_one_graph(measured)
    if found.mutates or found.mutates_saved or found.only_once or found.not_repeatable:
        return found
    return replace(
        found,
        grad_out_layout=_try(measured, grad_out_layouts(probe, measured.bad)),
        input_layout="" if seeded else _try(measured, input_layouts(probe), same_values=True),
        second_call=_try_second_call(measured),
    )


def _try(measured, ways, same_values=False):
    """What happens in the first of these ways that differs from the plain call; "" if none does."""
    for way in ways:
        text = differs(way, measured)
        if text and (not same_values or gives_the_same(way, measured.tolerance)):
            return text
    return ""


def _through_one_graph(measured):
    """What one call of fn and several of its backward change, and whether their results agree."""
    probe = measured.probe
    target = probe.target
    t, xs, ys = target.start()
    edits = _edits_input(target, t, xs) or (measured.bad and _writes_into_an_input(target))
    before, given = [v.detach().clone() for v in [*xs, *ys]], [v.clone() for v in probe.w]
    found, text = Habits(edits_input=edits), ""
    expected = got = torch.empty(0)
    options = {"retain_graph": True, "allow_unused": True}
    try:
        once = torch.autograd.grad(ys, t, given, **options)
        without = [i for i, g in enumerate(once) if g is None]
        matters = {target.names[i]: _matters(target, i, ys) for i in without}
        names = [", ".join(n for n, so in matters.items() if so is kind) for kind in (True, False)]
        found = replace(found, no_gradient=names[0], unused=names[1])
        expected = filled(once, t)
        got = vjp(ys, t, probe.w)
    except Exception as error:  # raised by backward, which has worked before
        raise_if_own(error)
        text = first_line(error)
    if not all(map(torch.equal, given, probe.w)):
        return replace(found, mutates=True)
    if EDITED in text or not all(map(same, [*xs, *ys], before)):
        return replace(found, mutates_saved=True, only_once=text)
    if text:
        return replace(found, only_once=text)
    again = "" if agree(got, expected, LINEAR[measured.dtype]) else WRONG_NUMBER
    anew = partial(_anew, target)
    not_linear = _try_scaled(measured, expected, partial(_vjp, ys, t), anew)
    if not_linear and not _try_scaled(measured, expected, anew, anew):
        again = again or not_linear
    if again:
        return replace(found, not_repeatable=again, changes_ctx=_changes_of_ctx(measured))
    return replace(found, not_linear=not_linear)


def _edits_input(target, t, xs):
    """Whether an input of fn has other values than were handed in, which its graph does not
    show."""
    moved = any(version(x) and x.grad_fn.name().startswith("Add") for x in xs)
    return moved and not all(map(same, xs, target.inputs(t)))


class _Edited(Listener):
    """Notes the memory of inputs into which a forward writes without marking them as dirty."""

    def __init__(self):
        self.memory = set()

    def called(self, call):
        if call.inputs_changed:
            self.memory |= {memory(x) for x in call.inputs.values()}


def _writes_into_an_input(target):
    """Whether a Function inside fn writes into the numbers of an input. x1.set_() of a part of an
    input changes its version, too, but none of its numbers."""
    met, writes = _Edited(), Writes()
    with unless_gone(), listening(met), writes:  # raised by fn while it is watched
        target.start()
    return any(write.memory in met.memory and write.numbers for write in writes.seen)


def _matters(target, i, ys):
    """Whether an output changes with the i-th input at all."""
    steps = [torch.zeros_like(x) for x in target.point]
    steps[i] = 0.1 * size(target.point[i])
    with unless_gone():  # of fn, which has no value there
        return not all(map(same, ys, target.start(shift=flat(steps)).ys))
    return True


def _changes_of_ctx(measured):
    """The attributes of ctx that backward writes."""
    call, nodes = look(measured.probe.target)
    before = [{name: _state_of(v) for name, v in node.attributes.items()} for node in nodes]
    _vjp(call.ys, call.t, measured.probe.w)
    changed = []
    for node, versions in zip(nodes, before, strict=True):
        now = vars(node.fn).items()
        changed += [name for name, v in now if versions.get(name) != _state_of(v)]
    return tuple(dict.fromkeys(changed))


def _state_of(value):
    """A value that differs after an attribute was assigned or written into."""
    size = len(value) if isinstance(value, (list, dict, set)) else 0
    return id(value), version(value) if isinstance(value, Tensor) else size


def _try_scaled(measured, expected, ask, anew):
    """What happens for multiples of the weights, for which `ask` gives the first derivative; "" if
    it is the same multiple.

    Args:
        anew: like `ask`, with a new graph for each call.
    """
    w = measured.probe.w
    for factor in FACTORS[measured.dtype]:
        scaled = [factor * v for v in w]
        if not all(v.isfinite().all() for v in [*scaled, factor * expected[expected.isfinite()]]):
            continue  # beyond the largest number of the dtype
        got, text = ask(scaled)
        if got is not None and _unmoved(got, expected):
            return SAME
        # An inexact solver may be inexact here, but it is linear.
        tolerance = LINEAR[measured.dtype]
        if got is None or not agree(got / factor, expected, tolerance, lambda: anew(w)[0]):
            return text or WRONG_NUMBER
    return ""


def _unmoved(got, expected):
    """Whether a vector is still the same; elements that are not finite are not compared."""
    finite = expected.isfinite()
    return bool(expected[finite].any()) and torch.equal(got[finite], expected[finite])


def _try_second_call(measured):
    """What happens to the first derivative of a call after another call at another point."""
    target, w = measured.probe.target, measured.probe.w
    expected = measured.gradient
    try:
        t, _, ys = target.start()
        target.start(shift=target.uneven_step(STEP))
    except Exception as error:  # raised by fn, which is not what is tried here
        raise_if_gone(error)
        return ""
    got, text = _vjp(ys, t, w)
    if expected is None or got is not None and agree(got, expected, EXACT[measured.dtype]):
        return ""
    return text or WRONG_NUMBER


def _vjp(ys, t, w):
    """(first derivative, "") or (None, the error that backward raises)."""
    try:
        return vjp(ys, t, w), ""
    except Exception as error:
        raise_if_own(error)
        return None, first_line(error)


def _anew(target, w):
    """`_vjp` through a new graph."""
    t, _, ys = target.start()
    return _vjp(ys, t, w)
