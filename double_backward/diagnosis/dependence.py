"""What the backward of each custom Function depends on, found by calling it by itself.

backward is a function of grad_out and of what forward kept. It is called with one kept thing at a
time as it would be beside the point. The change is the truth; beside it stands what autograd makes
of the same thing. So a lost path is found where it is lost.
"""

import copy
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from double_backward.check import Outcome
from double_backward.differences import flat, same, slope

from .alone import (
    Backward,
    NotFollowed,
    differentiable,
    dressed,
    matching,
    seen_at,
    slots_of,
    swapped,
    weights,
)
from .asked import ask_autograd
from .cuts import with_steps
from .elsewhere import changed_state
from .extras import wrong_extras
from .functions import Custom, Kind, Path, Saved, far_beside, look, uneven_step
from .holdings import reachable
from .measure import Measured
from .paths import CLEAR, Number, path_of
from .settings import Setting
from .sources import with_sources

COPIES = 8  # of an object that may be a key
SMALL = 1e-3  # of the usual size: a grad_out that nobody clips


def follow(measured: Measured, customs: tuple[Custom, ...]) -> tuple[Custom, ...]:
    """The same Functions, with what is known of their backwards.

    Asked where grad_out has a graph and, if that tells nothing, where it has none.
    """
    found = _followed(measured, customs, recorded=True)
    if any(custom.by_grad_out is Path.UNUSED for custom in found):  # as one that is clipped
        pairs = zip(found, _followed(measured, customs, recorded=True, size=SMALL), strict=True)
        found = tuple(replace(c, by_grad_out=small.by_grad_out) for c, small in pairs)
    if not any(custom.suspect for custom in found):
        other = _followed(measured, customs, recorded=False)
        if any(custom.suspect for custom in other):
            pairs = zip(other, found, strict=True)
            found = tuple(replace(o, refused=o.refused or c.refused) for o, c in pairs)
    found = _with_no_graph(measured, found)
    return with_sources(measured.probe.target, with_steps(measured.probe, found))


def _with_no_graph(measured, customs):
    """Of one that cannot be called by itself, as one that differentiates a graph which it keeps:
    what the first derivative of fn shows, if it has no graph at all."""
    if len(customs) != 1 or customs[0].by_inputs is not Path.UNKNOWN or not measured.moves:
        return customs
    rows, missing = measured.second, {}
    for path, setting in (("by_inputs", Setting.ALONE), ("by_grad_out", Setting.AFTER)):
        no_graph = rows[setting].of_backward and rows[setting].outcome is Outcome.RIGHT
        if no_graph and rows[setting].text and getattr(customs[0], path) is Path.UNKNOWN:
            missing[path] = Path.MISSING
    return (replace(customs[0], **missing),)


def _followed(measured, customs, recorded, size=1.0):
    target = measured.probe.target
    try:
        beside = seen_at(target, uneven_step(target))
        here = look(target)
        backwards = [Backward(node, i, target.seed, size) for i, node in enumerate(here.nodes)]
        asked = [ask_autograd(b, matching(beside, b), recorded) for b in backwards]
        changes = _changes(measured, backwards, asked)
        again = seen_at(target)
        found = []
        for custom, backward, answer, change in zip(
            customs, backwards, asked, changes, strict=True
        ):
            clear = CLEAR[measured.dtype]
            keys = _keys(backward, matching(again, backward))
            there = matching(beside, backward).attributes
            custom = _with_paths(custom, backward, answer, change, clear, keys, there)
            moved = abs(change.state.value) > 10 * change.state.error + 1e-9
            if moved or custom.hidden is not None:
                custom = replace(custom, hidden=changed_state(target, backward, custom))
            found.append(replace(custom, extras=wrong_extras(measured, here, backward, custom)))
        if not measured.exact:  # else the differences have judged these
            found = _with_packed(target, here, found, backwards)
        return tuple(found)
    except NotFollowed:  # an explanation is missing, not the verdict
        return customs


def _with_packed(target, here, customs, backwards):
    """Integers that jump with the inputs, and what backward returns with them: no small step shows
    how, so the path through them is not known."""
    if not any(s.packed for custom in customs for s in custom.saved):
        return customs
    far, found = far_beside(target, here), []
    for custom, backward in zip(customs, backwards, strict=True):
        there = matching(far, backward)
        moved, value = (there.tensors, there.attributes), backward.value(backward.kept)
        jumping = {
            s.slot
            for s in custom.saved
            if s.packed and backward.value(swapped(backward.kept, moved, s.slot)) != value
        }
        if jumping:
            saved = [
                replace(s, path=Path.UNKNOWN) if s.slot in jumping else s for s in custom.saved
            ]
            custom = replace(custom, saved=tuple(saved), by_inputs=Path.UNKNOWN)
        found.append(custom)
    return found


class Change(NamedTuple):
    """How the number of one backward changes when the inputs move, by what makes it change."""

    size: float  # of the number itself
    everything: Number
    state: Number  # what fn leaves elsewhere
    grad_out: Number  # not with the inputs: with the size of grad_out
    parts: dict  # slot -> Number
    seen: dict  # slot -> Number: what autograd makes of it
    connected: dict  # the same, if what is kept there had a graph


def _changes(measured, backwards, asked):
    target = measured.probe.target
    direction = weights(flat(target.point), 0, 1)

    def beside(h):
        there = seen_at(target, h * direction)
        numbers = []
        for backward in backwards:
            other = matching(there, backward)
            # The class too may be another one, made anew in each call.
            apart = backward.of(other)
            hanging = dressed(backward.kept, apart.kept)
            numbers += [apart.value(apart.kept), apart.value(hanging)]
        seen_at(target)  # so that what fn leaves elsewhere is again that of here
        for backward, answer in zip(backwards, asked, strict=True):
            moved = matching(there, backward)
            kept, moved = backward.kept, (moved.tensors, moved.attributes)
            slots = slots_of(backward.node)
            numbers.append(backward.value(kept, [(1 + h) * v for v in backward.grad_outs()]))
            numbers += [backward.value(swapped(kept, moved, slot)) for slot in slots]
            numbers += [answer.along(slot, moved) for slot in slots]
            numbers += [answer.along(slot, moved, led=False) for slot in slots]
        return torch.tensor(numbers, dtype=torch.float64)

    numbers = iter(
        [
            Number(v.item(), e.item())
            for v, e, _ in zip(*slope(beside, measured.dtype, target.scale), strict=True)
        ]
    )
    first = [(next(numbers), next(numbers)) for _ in backwards]
    found = []
    for backward, (everything, state) in zip(backwards, first, strict=True):
        slots, by_grad_out = slots_of(backward.node), next(numbers)
        parts = {slot: next(numbers) for slot in slots}
        seen = {slot: next(numbers) for slot in slots}
        connected = {slot: next(numbers) for slot in slots}
        size = abs(backward.value(backward.kept))
        found.append(Change(size, everything, state, by_grad_out, parts, seen, connected))
    return found


def _with_paths(custom, backward, answer, change, clear, keys, there):
    size = max(change.size, *(abs(n.value) for n in [change.everything, *change.parts.values()]))
    paths = {
        slot: path_of(change.seen[slot], part, size, clear) for slot, part in change.parts.items()
    }
    connected = {
        slot: path_of(change.connected[slot], part, size, clear)
        for slot, part in change.parts.items()
        if answer.gradients.get(slot)  # a number or an array can have no graph
    }
    if not answer.answered:
        paths = dict.fromkeys(paths, Path.UNKNOWN)
    saved = [
        replace(
            s,
            path=paths.get(s.slot, Path.UNKNOWN),
            if_connected=connected.get(s.slot, Path.UNKNOWN),
            reached=s.slot in answer.reached,
        )
        for s in custom.saved
    ]
    known, hidden = {s.slot for s in saved}, None
    for slot, path in paths.items():  # an object on ctx that is neither tensor nor number
        if path is Path.MISSING and slot not in known and isinstance(slot, str):
            if slot in keys or _is_key(backward, slot):
                hidden = ()
                continue
            kind = type(backward.node.attributes[slot]).__name__
            held = [thing for _, thing in reachable(backward.node.attributes[slot])]
            if _leads_on(held, [thing for _, thing in reachable(there.get(slot))]):
                continue
            holder = any(isinstance(thing, Tensor) for thing in held)
            new = Saved(slot, Kind.INTERMEDIATE, (), kind, 0)
            saved.append(replace(new, slot=slot, path=path, holder=holder))
    seen = Number(*map(sum, zip(*change.seen.values(), strict=True))) if paths else Number(0.0, 0.0)
    by_inputs, by_grad_out = path_of(seen, change.everything, size, clear), Path.UNKNOWN
    if answer.by_grad_out is not None:
        by_grad_out = path_of(Number(answer.by_grad_out, 0.0), change.grad_out, size, clear)
    return replace(
        custom,
        saved=tuple(saved),
        by_inputs=by_inputs if answer.answered else Path.UNKNOWN,
        by_grad_out=by_grad_out,
        hidden=hidden,
        reaches_grad_out=answer.reaches_grad_out,
        inner=answer.inner,
        counts_twice=answer.counts_twice,
        refused=answer.error,
        in_new_tensors=answer.in_new_tensors,
    )


def _keys(backward, again):
    """Attributes that are another number or string in each call, at the same inputs too: a counter
    or an id, by which backward finds something elsewhere."""
    here, there = backward.node.attributes, again.attributes
    plain = {name: value for name, value in here.items() if isinstance(value, (int, str, bytes))}
    return {name for name, value in plain.items() if there.get(name, value) != value}


def _leads_on(held, beside):
    """Whether an object on ctx is no constant: what it holds, and is another beside the point, has
    a graph of its own."""
    pairs = zip(held, beside, strict=False)
    moving = [t for t, other in pairs if differentiable(t) and not same(t, other)]
    return bool(moving) and all(t.requires_grad for t in moving)


def _is_key(backward, slot):
    """Whether an object on ctx holds nothing, and backward only finds something else by it.

    A copy may have the id() of an object that is gone, and so still lead to something: several have
    to, all at once there.
    """
    try:
        others = [copy.deepcopy(backward.node.attributes[slot]) for _ in range(COPIES)]
    except Exception:  # of the object's own
        return False
    here, (tensors, attributes) = backward.value(backward.kept), backward.kept
    there = [backward.value((tensors, {**attributes, slot: other})) for other in others]
    return not all(same(value, here) for value in there)
