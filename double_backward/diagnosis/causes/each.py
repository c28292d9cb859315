"""Checks each custom Function by itself: its call is met in fn, and made again near its own inputs.
Where that is wrong, the same check with one change shows what is to blame.

    forward run again under autograd cures it    what forward keeps, or leaves elsewhere
    one kept thing alone changes, and so does G  that is what backward uses
    one output alone has a grad_out              what backward makes of its gradient
    one input alone moves                        which input backward does not follow
"""

from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from math import isclose
from typing import NamedTuple

import torch
from torch import Tensor

from double_backward._torch import base_of, checkpoints_allowed, tree_leaves, unbatched
from double_backward.calls import Call, Listener, call_of, listening_alone
from double_backward.change import (
    Notepad,
    attributes,
    forward_again,
    keep_again,
    kept_at,
    noted,
    reading,
    set_up_again,
    unguarded,
)
from double_backward.check import OTHER_CODE, SURROGATE, Outcome, first, measure, size
from double_backward.differences import close, flat, same, shaped
from double_backward.failures import unless_gone
from double_backward.graphs import walk
from double_backward.lines import first_line
from double_backward.methods import applied_as_is, has_setup_context
from double_backward.names import argument_names
from double_backward.phrases import Phrase
from double_backward.shares import moves, taken, taken_elsewhere
from double_backward.surroundings import held_by
from double_backward.trial import Trial, Unknown, only_used
from double_backward.untracked_steps import LEAVING, Step, Watch, watched

from ..measurements.measure import Measured, Numbers
from ..preparation.formulas import Row, Setting
from ..preparation.functions import (
    MOST_NODES,
    STEP,
    UNTOLD,
    WRONG,
    Custom,
    Extra,
    Kind,
    Saved,
    Second,
    has_values_of,
    look,
)

DETACHES = {"detach", "data"}
MOST_CALLS = 8  # calls of one Function that are made again; further ones are not checked
UNCLIPPED = 1e-3  # times the usual grad_out: so small a one is not clipped
NEAR = 1e-2  # the step along the line that shows what changes


def judge_each(measured: Measured, customs: Sequence[Custom]) -> tuple[Custom, ...]:
    """The Functions, with what is found of each by itself. Raises what fn raises."""
    met, seen, found = _Met(), Counter[str](), []
    calls, steps = _calls(measured.probe, met)
    right = measured.first.outcome is Outcome.RIGHT and not any(c.meant for c in customs)
    sizes = (1.0,) if right else (1.0, UNCLIPPED, 1 / UNCLIPPED)  # a clip shows at one of them
    for custom, call, beside in zip(customs, calls, _beside(measured.probe, calls), strict=True):
        custom = replace(custom, untracked_calls=_own(steps, custom))
        if call is not None and seen[custom.name] < MOST_CALLS:
            seen[custom.name] += 1
            with unless_gone():  # of the Function
                custom = _judged(custom, call, beside, met, measured, sizes)
        found.append(custom)
    return tuple(found)


class _Met(Listener):
    """Notes what the backward of each call was given, and the Functions that it applied."""

    def __init__(self):
        self.grad_outs, self.inner, self._since = {}, {}, []

    def called(self, call):
        if call.in_backward:
            self._since.append(call)

    def after_backward(self, node, call, grad_outs, grads):
        if call is not None and not call.in_backward:
            self.grad_outs[call] = [unbatched(g) for g in only_used(grad_outs)]
            self.inner[call], self._since = self._since, []
        return grads


def _calls(probe, met):
    """The calls of the Functions in the graph of fn, in the order in which `look` finds them; and
    the steps in their backwards that autograd does not follow. Their guards are off. grad_out has a
    graph; where that raises, another call has one without."""
    calls, steps = list[Call | None](), list[Step]()
    around = checkpoints_allowed if probe.by_backward else nullcontext
    for recorded in (True, False):
        with listening_alone(met):
            t, _, ys = probe.target.start()
            nodes = [node for node in walk.walk(*ys).nodes if node.custom][:MOST_NODES]
            calls = calls or [call_of(node.fn) for node in nodes]
            given = [(y, w) for y, w in zip(ys, probe.w, strict=True) if y.requires_grad]
            outs, u = [y for y, _ in given], [w.clone().requires_grad_(recorded) for _, w in given]
            classes = [node.custom for node in nodes]
            with unless_gone(), around(), unguarded(classes), watched(classes) as seen:
                try:
                    torch.autograd.grad(outs, t, u, create_graph=True, allow_unused=True)
                    break
                finally:
                    steps += seen
    return calls, steps


def _own(steps, custom):
    """The steps of this Function; none for one that is declared once_differentiable, which says
    enough."""
    own = [step for step in steps if step.function == custom.name and not custom.once]
    numpy = any(step.kind == "numpy" for step in own)  # which needs .detach()
    return tuple(dict.fromkeys(s for s in own if not (numpy and s.kind in DETACHES)))


def _beside(probe, calls):
    """The same calls where the inputs of fn are moved a little; `calls` if other calls come
    there."""
    with unless_gone(), listening_alone(Listener()):  # of fn
        looked = look(probe.target, probe.target.uneven_step(STEP))
        found = [call_of(node.fn) for node in looked.nodes]
        if [c and c.function.__name__ for c in found] == [c and c.function.__name__ for c in calls]:
            return found
    return calls


def _judged(custom, call, beside, met, measured, sizes):
    inner = met.inner.get(call, [])
    dtype = None if measured.dtype is torch.float64 else measured.dtype
    with unguarded([call.function, *(c.function for c in inner)]):
        try:
            truth = Trial(call, met.grad_outs.get(call), dtype=dtype, anyway=True)
            if not truth.expected.probes:  # for these, negative ones say, it returns 0
                truth = Trial(call, None, dtype=dtype, anyway=True)
        except Unknown as reason:
            return replace(custom, refused=str(reason))
        found, refused = _asked(truth)
        custom = replace(
            custom,
            checked=found,
            moves=truth.depends(),
            first=_first(truth, sizes),
            refused=refused,
            inner=tuple(dict.fromkeys(c.function.__name__ for c in inner)),
            handed=tuple(_handed(truth, beside)),
        )
        if found.bad:
            with unless_gone():  # of the Function
                return _explained(custom, truth, inner, dtype)
        return custom


def _asked(truth):
    """`Checked` of its backward, and the error that is raised where grad_out has a graph.

    The check is made with a grad_out that has a graph; where that raises, or shows nothing wrong,
    with one that has none, since some backwards look at that. All later checks use the same kind.
    """
    found = truth.check()
    if not truth.line.moving:
        return found, first_line(found.error) if found.error is not None else ""
    if not truth.expected.by_grad_out.value.any():  # it may be clipped; a smaller one is not
        small = [g if g is None else UNCLIPPED * g for g in truth.grad_outs]
        by_grad_out = Trial(truth.call, small, dtype=truth.dtype, anyway=True).check().by_grad_out
        found = replace(found, by_grad_out=by_grad_out)
    if found.error is None and found.bad:
        return found, ""
    truth.without_graph()
    constant = truth.check()
    if found.error is not None:
        return constant, first_line(found.error)
    return replace(found, by_input=constant.by_input), ""


def _first(truth, sizes):
    """The outcome for the first derivative: of grad_outs of these sizes, the first not right."""
    found = (truth.first(size) for size in sizes)
    return next((one for one in found if one is not Outcome.RIGHT), Outcome.RIGHT)


def _handed(truth, beside):
    """The arguments that are not inputs, but change with the inputs of fn, and change what backward
    returns: the code that calls apply has lost their graph."""
    call, g = truth.call, truth.line.gradients()
    for place, (arg, other) in enumerate(zip(call.given, beside.given, strict=True)):
        if place in call.inputs or arg is other or _is_followed(arg):
            continue
        other = other.detach().to(arg) if isinstance(arg, Tensor) else other
        with unless_gone(), call.exchanged(place, other):  # of the Function
            if not torch.equal(truth.line.gradients(), g):
                yield _name(call, place)


def _explained(custom, truth, inner, dtype):
    """`custom` with what is to blame."""
    seconds = (second for call in inner for second in _seconds(call, dtype))
    custom = replace(custom, seconds=tuple(dict.fromkeys(seconds)))
    if custom.by_input is not Outcome.WRONG or custom.checked.recorded.bad:
        return custom
    with_graph, leaves_torch = _recorded(truth)
    custom = replace(custom, saved=_used(custom.saved, truth, with_graph, leaves_torch))
    returns = [s for s in custom.saved if s.kind is Kind.OUTPUT]
    extras = {s.position: s for s in returns if s.position}
    wrong = [_extra(saved, truth) for saved in extras.values()]
    custom = replace(custom, extras=tuple(filter(None, wrong)))
    followed = _followed(truth)
    cured = _is_cured(followed)
    if custom.lost or custom.extras:
        if cured or not custom.untracked_calls:
            return custom
        if isclose(
            followed.by_input.got, custom.checked.by_input.got, rel_tol=OTHER_CODE[torch.float64]
        ):
            # A graph for what is kept changes nothing, so that it is not to blame.
            saved = (replace(s, used=s.slot not in with_graph and s.used) for s in custom.saved)
            custom = replace(custom, saved=tuple(saved))
    elif custom.first is Outcome.WRONG and (own := tuple(_own_results(truth, returns))):
        # Autograd follows a saved output through the Function's own backward.
        meant = custom.meant or truth.first(rtol=SURROGATE) is Outcome.WRONG
        if meant and (cured or (leaves_torch and not custom.untracked_calls)):
            return replace(custom, own_result=own)
        if cured:  # an inexact solver's
            return replace(custom, checked=replace(custom.checked, by_input=followed.by_input))
    elif cured or _leaves_state(truth):
        return replace(custom, hidden=True)
    return replace(custom, cut=tuple(_cut(truth)))


def _own_results(truth, returns):
    """The names of the outputs that backward uses, even if one is a step function, which does not
    change with the inputs."""
    g = truth.line.gradients()
    for saved in returns:

        def elsewhere(where, own, slot=saved.slot):
            return own + NEAR * size(own) if where[0] == slot else own

        with unless_gone(), reading(truth.call.function, elsewhere):  # of the Function
            if not close(g, truth.line.gradients()):
                yield saved.title


def _followed(truth):
    """`Checked` of its backward where what it keeps has a graph, since forward is recorded or, if
    that does not help, setup_context alone."""
    changes = [keep_again, *[set_up_again] * has_setup_context(truth.call.function)]
    found = [truth.check(partial(change, decorated=True)) for change in changes]
    return next(filter(_is_cured, found), found[0])


def _is_cured(found):
    return not (found.by_input.bad or found.recorded.bad)


def _extra(saved, truth):
    """`Extra` if backward returns something wrong for the gradient of this output, else None. The
    output may get a gradient only in the second backward."""
    truth = Trial(truth.call, None, dtype=truth.dtype, anyway=True)
    if truth.first(output=saved.position) is not Outcome.WRONG:
        return None
    line = truth.line
    u = [2 * u if i == saved.position else u for i, u in enumerate(line.u())]
    ignored = torch.equal(line.gradients(), flat(line.subject.backward(line.x(), u)))
    return Extra(saved.title, ignored)


def _seconds(call, dtype):
    """The wrong results of the backward of a Function that another's backward applies."""
    with unless_gone():  # of the Function
        truth = Trial(call, None, dtype=dtype, anyway=True)
        subject, x = truth.line.subject, truth.line.x()
        with subject.around(), torch.no_grad():
            grads = subject.vjp(subject.function, x, truth.line.u())
        for number, (place, grad) in enumerate(zip(call.inputs, grads, strict=True)):
            if _first_is_wrong(truth, number, dtype):
                wrong = Phrase("a wrong gradient")
                returned = "None" if grad is None else wrong if grad.any() else "0"
                yield Second(call.function.__name__, returned, _name(call, place))


def _first_is_wrong(truth, number, dtype):
    """Whether the first derivative by one input is wrong, in a direction that hides nothing."""
    line = truth.line.with_constants().by_input_only(number)
    d = flat(line.d)
    d = torch.where(line.gradients() * d < 0, -d, d)
    line = replace(line, d=tuple(shaped(d, line.d)))
    return first(measure(line, dtype=dtype)).outcome is Outcome.WRONG


def _cut(truth):
    """The inputs by which backward is differentiated wrongly, by their names."""
    for number, place in enumerate(truth.call.inputs):
        if len(truth.call.inputs) == 1 or truth.check(place=number).by_input.bad:
            yield _name(truth.call, place)


def _name(call, place):
    """The name of an argument in forward."""
    names = argument_names(call.function)
    return names[place] if place < len(names) else f"argument {place}"


# What forward keeps: how much of the change of G comes through it.


def _used(kept, truth, with_graph, leaves_torch):
    """What is kept, each with what is known of it, such as whether backward returns something else
    if it alone changes."""
    here, there, found = _forward(truth), _forward(truth, NEAR), []
    known = {s.slot for s in kept}
    for saved in [*kept, *_objects(here.ctx, known)]:
        value, other = kept_at(here.ctx, saved.slot), kept_at(there.ctx, saved.slot)
        if saved.kind is Kind.CONSTANT and not same(value, other):  # a step function stood still
            saved = replace(saved, kind=Kind.INTERMEDIATE)
        saved = replace(saved, used=_is_used(saved.slot, truth))
        if saved.kind is Kind.INTERMEDIATE and isinstance(value, Tensor):
            pairs = (value, here.tensors), (other, there.tensors)
            alike = [{k for k in tensors if _repeats(v, tensors[k])} for v, tensors in pairs]
            saved = replace(
                saved,
                marked=any(value is t for t in here.ctx.non_differentiable),
                outside=bool(saved.used) and leaves_torch and saved.slot not in with_graph,
                repeats=min(alike[0] & alike[1], default=None),  # an input comes first
            )
        elif saved.kind is Kind.INTERMEDIATE and _is_in(value, here) and _is_in(other, there):
            saved = replace(saved, repeats=Kind.OUTPUT)
        if saved.used or saved.slot in known:
            found.append(saved)
    return tuple(found)


def _is_used(slot, truth):
    """Whether backward's result changes with what is kept in this slot; None if that is not
    known."""
    with unless_gone():  # of the Function
        part = truth.expected, truth.call.function, lambda where: where[0] == slot
        return moves(taken(*part))
    return None


def _is_in(number, call):
    """Whether a number is one that forward returns beside its tensors."""
    return any(type(y) is type(number) and same(y, number) for y in call.numbers)


def _repeats(value, tensors):
    """Whether a tensor has the values of one of these, in any shape, or is a view of one."""
    return has_values_of(value, tensors) or any(base_of(value) is t for t in tensors)


def _objects(ctx, known):
    """The objects on ctx that are neither tensors nor numbers, and hold no tensor with a graph."""
    for name, value in attributes(ctx).items():
        if name not in known and not _is_followed(value):
            yield Saved(name, Kind.INTERMEDIATE, (), type(value).__name__, 0)


class _Forward(NamedTuple):
    """What a call of forward keeps, the tensors that it is given and returns, and what else it
    returns."""

    ctx: Notepad
    tensors: dict[Kind, list[Tensor]]
    numbers: list[object]


def _forward(truth, h=0.0):
    """`_Forward` at a point of the line, or on its other side if forward has no value here."""
    for side in (h, -h):
        inputs = truth.inputs(side)
        with unless_gone(), truth.line.subject.around(), torch.no_grad():
            ctx, outs = forward_again(truth.call, inputs)
            given = [*inputs.values(), *(noted(ctx).handed_over[place] for place in inputs)]
            returned = [y for y in outs if isinstance(y, Tensor)]
            numbers = [y for y in outs if not isinstance(y, Tensor)]
            return _Forward(ctx, {Kind.INPUT: given, Kind.OUTPUT: returned}, numbers)
    raise Unknown("forward raises beside the point")


def _recorded(truth):
    """The slots whose contents have a graph if forward, or setup_context alone, is recorded; and
    whether forward leaves torch."""
    with_graph, leaves_torch = set(), False
    for apply in [None, *[applied_as_is] * has_setup_context(truth.call.function)]:
        with truth.line.subject.around(), torch.enable_grad(), Watch() as watch:
            try:
                ctx, _ = forward_again(truth.call, truth.inputs(), apply)
            except Exception as error:  # of forward
                leaves_torch |= "numpy" in str(error)
                continue
        kept = dict(enumerate(ctx.saved_tensors)) | attributes(ctx)
        with_graph |= {slot for slot, v in kept.items() if any(map(_follows, tree_leaves(v)))}
        leaves_torch |= noted(ctx).calls_numpy
        leaves_torch |= any(step.kind in LEAVING for step in watch.steps)
    return with_graph, leaves_torch


def _follows(value):
    return isinstance(value, Tensor) and value.requires_grad


def _leaves_state(truth):
    """Whether what backward returns changes through something that is not on ctx."""
    with unless_gone():  # of the Function
        return bool(moves(taken_elsewhere(truth.expected, truth.call.function)))
    return False


def _is_followed(value):
    """Whether an object holds a tensor with a graph."""
    return any(_follows(thing) for _, thing in held_by(value))


# The second derivative where differences of fn cannot judge it, since the gradient is a surrogate,
# and not the derivative of the values. Then each backward is judged by itself.


def settled(
    numbers: Numbers, customs: Sequence[Custom], together: bool = False
) -> dict[Setting, Row]:
    """The rows of the second derivative. They stay where the first is that of the values.

    Elsewhere, a difference of fn as a whole shows no error: for autograd, what is made of a
    surrogate's output changes by its backward, and in truth by its forward. But if fn as a whole is
    right by its inputs (`together`), no Function's derivative by its inputs counts as wrong.
    """
    if numbers.first.outcome is Outcome.RIGHT:
        return numbers.second
    by_input = not together and any(
        c.by_input in WRONG
        or c.extras
        or c.handed
        or (c.once and c.moves and c.by_input is Outcome.RIGHT)
        for c in customs
    )
    by_grad_out = any(
        c.by_grad_out in WRONG or (c.once and c.by_grad_out is Outcome.RIGHT) for c in customs
    )
    rows = {}
    for setting, row in numbers.second.items():
        if row.outcome is Outcome.RIGHT and (by_input or (by_grad_out and setting.after)):
            row = replace(row, outcome=Outcome.RAISES if row.text else Outcome.WRONG)
        if row.outcome is Outcome.RIGHT and (reason := _unanswered(customs, setting)):
            row = replace(row, outcome=Outcome.NOT_ASKED, text=reason)
        rows[setting] = row
    return rows


def _unanswered(customs, setting):
    """The reason why nothing is known of one of these backwards; "" if all are known."""
    for custom in customs:
        if custom.by_input in UNTOLD or (setting.after and custom.by_grad_out in UNTOLD):
            why = custom.refused.split("[")[0].split(". ")[0].rstrip(": ")
            said = f"backward of {custom.name} could not be asked by itself"
            return f"{said}: {why}" if why else said
    return ""
