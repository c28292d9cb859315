"""What forward keeps for backward, exchanged one by one for what it keeps beside the point.
If backward then returns something else, it uses that."""

import copy
from contextlib import suppress
from dataclasses import replace

import torch
from torch import Tensor

from double_backward._torch import tree_leaves
from double_backward.change import backward_again, forward_again
from double_backward.differences import flat, same
from double_backward.state import held_by
from double_backward.steps import LEAVING, Watch
from double_backward.trial import Unknown

from .functions import Kind, Saved, has_values_of

NEAR, FAR = 1e-2, 0.1  # along the line, to see what changes; FAR: integers that jump


def with_use(custom, truth):
    """The same, with whether backward returns something else where one kept thing alone is another;
    where none alone does that, whether all that forward made does."""
    here, there, far = (_kept(truth, h) for h in (0.0, NEAR, FAR))
    g, found = _returned(truth, here), []
    if _changes(g, _returned(truth, here)):  # in any case
        return custom
    for saved in custom.saved:
        used = _changes(g, _returned(truth, here, far if saved.packed else there, [saved.slot]))
        repeats = saved.repeats or _repeats(truth, [(0.0, here), (NEAR, there)], saved.slot)
        marked = saved.marked or any(here.kept(saved.slot) is t for t in here.non_differentiable)
        found.append(replace(saved, used=used, repeats=repeats, marked=marked))
    known = {s.slot for s in custom.saved}
    for name, value in here.attributes.items():  # neither a tensor nor a number
        if name in known or is_followed(value):
            continue
        if _changes(g, _returned(truth, here, there, [name])):
            holder = any(isinstance(thing, Tensor) for _, thing in held_by(value))
            new = Saved(name, Kind.INTERMEDIATE, (), type(value).__name__, 0, slot=name)
            found.append(replace(new, used=True, holder=holder))
    made = [s for s in found if s.kind is Kind.INTERMEDIATE]
    if made and not any(s.used for s in made):
        together = _changes(g, _returned(truth, here, there, [s.slot for s in made]))
        found = [replace(s, used=together) if s in made else s for s in found]
    return replace(custom, saved=tuple(found))


def _changes(one, other):
    """Whether something else is returned; None where nothing is."""
    pairs = [(a, b) for a, b in zip(one, other, strict=True) if a is not None]
    changed = [b is not None and not same(a, b) for a, b in pairs]
    return any(changed) if changed else None


def _repeats(truth, kept, slot):
    """INPUT where it has the values of what apply was handed, as x.t().contiguous() has."""
    for h, ctx in kept:
        value = ctx.kept(slot)
        if not (isinstance(value, Tensor) and has_values_of(value, truth.line.x(h))):
            return None
    return Kind.INPUT


def with_origin(custom, truth):
    """The same, with what something outside torch makes: where autograd records forward, it has no
    graph, and forward leaves torch."""
    subject, call, ctx = truth.line.subject, truth.call, None
    with subject.around(), torch.enable_grad(), Watch() as watch:
        try:
            ctx, _ = forward_again(call, truth.inputs())
            leaves = any(step.kind in LEAVING for step in watch.steps)
        except Exception as error:  # of forward
            leaves = "numpy" in str(error)
    found = []
    for saved in custom.saved:
        made = leaves and saved.used and saved.kind is Kind.INTERMEDIATE and not saved.numeric
        if made and ctx is not None:
            made = not has_graph(ctx.kept(saved.slot))
        found.append(replace(saved, outside=bool(made)))
    return replace(custom, saved=tuple(found))


def has_graph(value):
    return any(isinstance(t, Tensor) and t.requires_grad for t in tree_leaves(value))


def with_jumping(custom, truth):
    """The same, with the integers that jump with the inputs, so that no small step shows how."""
    packed = [s for s in custom.saved if s.packed]
    if not packed:
        return custom
    here, far = _kept(truth, 0.0), _kept(truth, FAR)
    g = _returned(truth, here)
    jumping = {s.slot for s in packed if _changes(g, _returned(truth, here, far, [s.slot]))}
    saved = (replace(s, jumps=s.slot in jumping) for s in custom.saved)
    return replace(custom, saved=tuple(saved))


def _kept(truth, h):
    """What forward keeps at a point of the line; on the other side where it has no value here."""
    subject, call = truth.line.subject, truth.call
    for side in (h, -h):
        with suppress(Exception), subject.around(), torch.no_grad():
            return forward_again(call, truth.inputs(side))[0]
    raise Unknown("forward raises beside the point")


def _returned(truth, ctx, other=None, slots=()):
    """What backward returns where grad_out has no graph, and where it has one; with what another
    call keeps in these places. None: it raises."""
    ctx = copy.copy(ctx)
    for slot in slots:
        ctx.exchange(slot, other.kept(slot))
    return [_returned_once(truth, ctx, recorded) for recorded in (False, True)]


def _returned_once(truth, ctx, recorded):
    call = truth.call
    with suppress(Exception), truth.line.subject.around(), torch.set_grad_enabled(recorded):
        u = [u if u is None else u.clone().requires_grad_(recorded) for u in truth.line.u()]
        return flat(list(backward_again(call, truth.inputs(), u, ctx).values()))
    return None


def leaves_state(truth):
    """Whether backward returns something else after forward has run at another point."""
    subject, call, found = truth.line.subject, truth.call, []
    for between in ([], [NEAR]):
        with subject.around(), torch.no_grad():
            ctx, _ = forward_again(call, truth.inputs())
            for h in between:
                forward_again(call, truth.inputs(h))
            grads = backward_again(call, truth.inputs(), truth.line.u(), ctx)
            found.append(flat(list(grads.values())))
    return not (call.drew or same(*found))


def is_followed(value):
    """Whether it is an object that holds a tensor with a graph."""
    held = (thing for _, thing in held_by(value))
    return any(isinstance(t, Tensor) and t.requires_grad for t in held)
