"""What the backward of each custom Function depends on, found by calling it by itself.

backward is a function of grad_out and of what forward kept. It is called with a stand-in for ctx in
which one kept thing at a time is what it would be beside the point. The change is the truth; beside
it stands what autograd makes of the same thing. So a lost path is found where it is lost.
"""

import copy
import inspect
import math
from contextlib import suppress
from dataclasses import replace
from itertools import zip_longest
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function

from double_backward._torch import grad_outs_of, tree_flatten, tree_map
from double_backward.check import first_line
from double_backward.differences import flat, same, shaped, slope
from double_backward.graphs import walk
from double_backward.origins import origins
from double_backward.steps import Watch

from .functions import (
    Custom,
    Extra,
    Kind,
    Node,
    Path,
    Saved,
    far_beside,
    has_values_of,
    look,
    uneven_step,
)
from .holdings import global_names, reachable
from .judge import Outcome, Row
from .measure import Measured
from .settings import Setting
from .target import Target, readable, seed_generators

CONNECTED = walk.INPUT, walk.OUTPUT, walk.ELSEWHERE
CLOSE = 1e-3  # relative; a path that is lost is off by far more
CLEAR = {  # relative; noise above this says nothing
    torch.float64: 1e-2,
    torch.float32: 1e-2,
    torch.bfloat16: 1e-1,
}
FEW = 8  # inputs of fn that are told apart
COPIES = 8  # of an object that may be a key


class StandIn:
    """A ctx with other tensors and attributes; for the rest it asks the real one."""

    def __init__(self, ctx, tensors, attributes):
        self.__dict__.update(attributes)
        self.__dict__["_stand_in"] = ctx, tensors

    @property
    def saved_tensors(self):
        return self.__dict__["_stand_in"][1]

    def __getattr__(self, name):
        return getattr(self.__dict__["_stand_in"][0], name)


class Backward:
    """The backward of one node as a number: what it returns, weighted and summed.

    Each element is divided by its size at the point (`sizes`), so that a small one counts as much
    as a large one.
    """

    def __init__(self, node: Node, number: int, seed: int):
        self.node, self.number, self.seed = node, number, seed
        self.kept = node.tensors, node.attributes
        self.recorded = False  # grad_out has a graph; some backwards look whether it has
        self.u = [_weights(like, number, k) for k, like in enumerate(_grad_outs(node))]
        self.sizes = self._measured_sizes()
        if len(self.u) > 1:
            self.u = self._of_one_size()

    def _measured_sizes(self):
        try:
            return [_sizes(g) for g in self._grads(*tree_map(_copy, self.kept))]
        except Exception:  # of backward
            return []

    def of(self, node: Node) -> "Backward":
        """The same for another call, with the same weights."""
        other = copy.copy(self)
        other.node, other.kept = node, (node.tensors, node.attributes)
        return other

    def _of_one_size(self):
        """Weights with which each output has the same share, however small it is."""
        found = []
        for k, v in enumerate(self.u):
            alone = [v if i == k else torch.zeros_like(w) for i, w in enumerate(self.u)]
            share = abs(self.value(self.kept, alone))
            found.append(v / share if share > 0 and math.isfinite(share) else v)
        return found

    def __call__(self, tensors, attributes, u=None):
        """May raise what backward raises."""
        grads = self._grads(tensors, attributes, u)
        pairs = zip_longest(grads, self.sizes[: len(grads)], fillvalue=1.0)
        grads = [g / size for g, size in pairs]
        terms = [_dot(g, _weights(g, self.number, k, 7)) for k, g in enumerate(grads)]
        return sum(terms, torch.zeros((), dtype=torch.float64))

    def _grads(self, tensors, attributes, u=None):
        seed_generators(self.seed)
        ctx = StandIn(self.node.fn, tuple(tensors), attributes)
        grads = _method(self.node)(ctx, *(u or self.grad_outs()))
        return [g.to_dense() for g in tree_flatten(grads)[0] if isinstance(g, Tensor)]

    def grad_outs(self):
        """New ones, since backward may write into them."""
        if self.recorded:
            return [v.clone().requires_grad_() * 1 for v in self.u]
        return [v.clone() for v in self.u]

    def value(self, kept, u=None):
        """With copies, since backward may write into what it gets; NaN where it raises."""
        try:
            tensors, attributes = tree_map(_copy, kept)
            return self(tensors, attributes, u).detach().double().item()
        except Exception:  # of backward
            return math.nan


def follow(measured: Measured, customs: tuple[Custom, ...]) -> tuple[Custom, ...]:
    """The same Functions, with what is known of their backwards.

    Asked where grad_out has a graph and, if that tells nothing, where it has none.
    """
    found = _followed(measured, customs, recorded=True)
    if not any(custom.suspect for custom in found):
        other = _followed(measured, customs, recorded=False)
        found = other if any(custom.suspect for custom in other) else found
    return _with_origins(measured.probe.target, found)


def _with_origins(target, customs):
    """The same, with what is known of where the intermediates come from."""
    made = [s for custom in customs for s in custom.saved if s.kind is Kind.INTERMEDIATE]
    try:
        classes = [node.function for node in look(target).nodes] if made else []
        if not classes:
            return customs
        with origins(classes) as beside:
            moved = look(target, uneven_step(target))
        with origins(classes) as here:
            looked = look(target)
            return tuple(
                replace(
                    custom,
                    saved=tuple(_come_from(s, (node, here), (other, beside)) for s in custom.saved),
                )
                for custom, node, other in zip(customs, looked.nodes, moved.nodes, strict=True)
            )
    except Exception:  # of fn
        return customs


def _come_from(saved, *looked):
    """An intermediate, with what is known of where it comes from; `looked`: here, and beside."""
    if saved.kind is not Kind.INTERMEDIATE:
        return saved
    (value, here), (_, beside) = (
        (_in_slot((node.tensors, node.attributes), saved.slot), found) for node, found in looked
    )
    handed = not isinstance(value, Tensor) and any(value is given for given in here.arguments)
    made = any(map(here.outside(beside), _tensors(value)))
    return replace(
        saved,
        outside=made,
        marked=saved.marked or here.is_marked(value),
        handed_over=saved.handed_over or handed,
        repeats=saved.repeats or _repeated(saved.slot, looked),
    )


def _repeated(slot, looked):
    """INPUT where it has the values of what apply was handed, as x.t().contiguous() has."""
    for node, found in looked:
        value = _in_slot((node.tensors, node.attributes), slot)
        given = [t for t in found.arguments if isinstance(t, Tensor)]
        if not (isinstance(value, Tensor) and has_values_of(value, given)):
            return None
    return Kind.INPUT


def _followed(measured, customs, recorded):
    target = measured.probe.target
    try:
        here = look(target)
        backwards = [Backward(node, i, target.seed) for i, node in enumerate(here.nodes)]
        asked = [_ask_autograd(backward, recorded) for backward in backwards]
        changes = _changes(measured, backwards, asked)
        found = []
        for custom, backward, answer, change in zip(
            customs, backwards, asked, changes, strict=True
        ):
            clear = CLEAR[measured.dtype]
            custom = _with_paths(custom, backward, answer, change, clear)
            moved = abs(change.state.value) > 10 * change.state.error + 1e-9
            if moved or custom.hidden is not None:
                custom = replace(custom, hidden=_changed_state(target, backward.node))
            found.append(replace(custom, extras=_wrong_extras(measured, here, backward, custom)))
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
        there = _matching(far, backward)
        moved, value = (there.tensors, there.attributes), backward.value(backward.kept)
        jumping = {
            s.slot
            for s in custom.saved
            if s.packed and backward.value(_swapped(backward.kept, moved, s.slot)) != value
        }
        if jumping:
            saved = [
                replace(s, path=Path.UNKNOWN) if s.slot in jumping else s for s in custom.saved
            ]
            custom = replace(custom, saved=tuple(saved), by_inputs=Path.UNKNOWN)
        found.append(custom)
    return found


class NotFollowed(Exception):
    """fn raises, or beside the point there is another graph."""


class Number(NamedTuple):
    value: float
    error: float


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
    direction = _weights(flat(target.point), 0, 1)

    def beside(h):
        there = _look(target, h * direction)
        numbers = []
        for backward in backwards:
            other = _matching(there, backward)
            # The class too may be another one, made anew in each call.
            apart = backward.of(other)
            numbers += [apart.value(apart.kept), apart.value(backward.kept)]
        _look(target)  # so that what fn leaves elsewhere is again that of here
        for backward, answer in zip(backwards, asked, strict=True):
            moved = _matching(there, backward)
            kept, moved = backward.kept, (moved.tensors, moved.attributes)
            slots = slots_of(backward.node)
            numbers.append(backward.value(kept, [(1 + h) * v for v in backward.grad_outs()]))
            numbers += [backward.value(_swapped(kept, moved, slot)) for slot in slots]
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


def _look(target, shift=0.0):
    try:
        return look(target, shift)
    except Exception as error:  # of fn
        raise NotFollowed from error


def _with_paths(custom, backward, answer, change, clear):
    size = max(change.size, *(abs(n.value) for n in [change.everything, *change.parts.values()]))
    paths = {
        slot: _path(change.seen[slot], part, size, clear) for slot, part in change.parts.items()
    }
    connected = {
        slot: _path(change.connected[slot], part, size, clear)
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
            if _is_key(backward, slot):
                hidden = ()
                continue
            kind = type(backward.node.attributes[slot]).__name__
            held = [thing for _, thing in reachable(backward.node.attributes[slot])]
            holder = any(isinstance(thing, Tensor) for thing in held)
            there = Saved(slot, Kind.INTERMEDIATE, (), kind, 0)
            saved.append(replace(there, slot=slot, path=path, holder=holder))
    seen = Number(*map(sum, zip(*change.seen.values(), strict=True))) if paths else Number(0.0, 0.0)
    by_grad_out = Path.UNKNOWN
    if answer.by_grad_out is not None:
        by_grad_out = _path(Number(answer.by_grad_out, 0.0), change.grad_out, size, clear)
    return replace(
        custom,
        saved=tuple(saved),
        by_inputs=_path(seen, change.everything, size, clear) if answer.answered else Path.UNKNOWN,
        by_grad_out=by_grad_out,
        hidden=hidden,
        reaches_grad_out=answer.reaches_grad_out,
        inner=answer.inner,
        counts_twice=answer.counts_twice,
        refused=answer.error,
        untracked_calls=_untracked_calls(backward),
    )


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


def _path(got: Number, true: Number, size: float, clear: float = CLEAR[torch.float64]) -> Path:
    """Compare a derivative with the truth; `size` is that of the numbers it is taken of."""
    error = got.error + true.error
    noise = 10 * error + 1e-6 * size
    if math.isnan(got.value + true.value) or error > clear * size:
        return Path.UNKNOWN  # not a number, or lost in noise
    if abs(true.value) <= noise and abs(got.value) <= noise:
        return Path.UNUSED
    if abs(got.value - true.value) <= CLOSE * abs(true.value) + noise:
        return Path.RIGHT
    return Path.MISSING if got.value == 0 else Path.WRONG


class Asked:
    """What autograd says of one backward, differentiated by leaves in place of what is kept."""

    def __init__(self):
        self.answered = False  # backward, and its own, did not raise
        self.gradients = {}  # slot -> gradients of its tensors
        self.led_on = {}  # slot -> for each of them, whether a graph leads on from it
        self.reached = set()  # slots to which the graph leads
        self.by_grad_out = None  # the derivative along grad_out itself; None: not known
        self.reaches_grad_out = False
        self.inner: tuple[str, ...] = ()
        self.counts_twice = False  # what grad_out has from an input, in both their gradients
        self.error = ""  # that backward raises where grad_out has a graph

    def along(self, slot, moved, led=True):
        """The derivative by the slot's tensors, times what these are beside the point; with `led`,
        by those from which a graph leads on."""
        there = _tensors(_in_slot(moved, slot))
        own = zip(self.gradients.get(slot, ()), self.led_on.get(slot, ()), there, strict=False)
        return sum(_dot(g, t).item() for g, on, t in own if g is not None and (on or not led))


def _ask_autograd(backward, recorded):
    """With grad_outs that have a graph, if `recorded` and if backward takes them, else without."""
    error = ""
    for backward.recorded in [True, False] if recorded else [False]:
        try:
            asked = _ask(backward)
            asked.error = error
            return asked
        except Exception as raised:  # of backward, or of a backward of its own
            error = error or first_line(raised)
    asked = Asked()
    asked.error = error
    return asked


def _ask(backward):
    asked, node = Asked(), backward.node
    asked.answered = True
    u = [v.clone().requires_grad_() for v in backward.u] if backward.recorded else []
    leaves = {slot: _Leaves(_in_slot(backward.kept, slot)) for slot in slots_of(node)}
    wanted = [*u, *(leaf for made in leaves.values() for leaf in made.leaves)]
    grads: list[Tensor | None] = [None] * len(wanted)
    value = _value_of(backward, leaves, [v * 1 for v in u])
    if value.requires_grad:
        grads = list(torch.autograd.grad(value, wanted, retain_graph=True, allow_unused=True))
    graph = walk.walk(value) if value.requires_grad else None
    inside = [n.custom for n in graph.nodes if n.custom] if graph else []
    asked.inner = tuple(dict.fromkeys(function.__name__ for function in inside))
    if u:
        by_u = zip(grads[: len(u)], u, strict=True)
        asked.by_grad_out = sum(_dot(g, v).item() for g, v in by_u if g is not None)
        asked.counts_twice = _counts_twice(backward, leaves, u, grads)
    if graph:
        asked.reaches_grad_out = any(graph.node_of(v) for v in u)
    rest = iter(grads[len(u) :])
    for slot, made in leaves.items():
        own = [next(rest) for _ in made.leaves]
        asked.gradients[slot] = own
        asked.led_on[slot] = _led_on(node, slot, made.originals)
        if graph and any(graph.node_of(leaf) for leaf in made.leaves):
            asked.reached.add(slot)
    return asked


def _value_of(backward, leaves, u):
    tensors, attributes = list(backward.kept[0]), dict(backward.kept[1])
    for slot, made in leaves.items():
        (tensors if isinstance(slot, int) else attributes)[slot] = made.value
    return backward(tensors, attributes, u or None)


def _counts_twice(backward, leaves, u, grads):
    """Whether autograd breaks the chain rule where grad_out depends on what is kept.

    As it does after fn, once what follows is not linear. The value stays what it was.
    """
    sources = [made.again() for made in leaves.values()]
    sources = [t for made in sources for t in made]
    slopes = [g for g in grads[: len(u)] if g is not None]
    if not (sources and slopes) or any(t.is_complex() for t in [*sources, *u]):
        return False
    change = sum((t - t.detach()).sum() for t in sources)
    wanted = [leaf for made in leaves.values() for leaf in made.leaves]
    found = []
    try:
        for factor in (0, 1):
            value = _value_of(backward, leaves, [v + factor * change for v in u])
            found.append(torch.autograd.grad(value, wanted, retain_graph=True, allow_unused=True))
    except Exception:  # of backward
        return False
    added = sum(slope.sum() for slope in slopes)
    for first, again, got in zip(grads[len(u) :], *found, strict=True):
        if again is None or got is None or first is not None and not torch.allclose(first, again):
            continue  # not repeatable, among others
        expected = again + added
        if ((got - expected).abs() > CLOSE * (got.abs() + expected.abs() + added.abs())).any():
            return True
    return False


class _Leaves:
    """A kept thing in which every differentiable tensor is replaced by one made from a leaf."""

    def __init__(self, kept):
        self.kept = kept
        self.originals = _tensors(kept)
        self.leaves = [t.detach().clone().requires_grad_() for t in self.originals]
        self.again()

    def again(self):
        """Anew, since backward may write into them: `value`, and the tensors in it."""
        made = [leaf * 1 for leaf in self.leaves]
        left = iter(made)
        self.value = tree_map(lambda t: next(left) if _differentiable(t) else t, self.kept)
        return made


def _led_on(node, slot, tensors):
    """For each tensor of a slot: does a graph lead on from it, in the real backward?"""
    if not tensors:
        return []
    if isinstance(slot, int):
        own = [kept for kept in node.kept if not kept.on_ctx]
        places = [i for i, tensor in enumerate(node.tensors) if tensor is not None]
        return [_is_connected(own[places.index(slot)])]
    on_ctx = [kept for kept in node.kept if kept.on_ctx and _is_connected(kept)]
    return [any(kept.tensor is t for kept in on_ctx) for t in tensors]


def _is_connected(kept):
    """A leaf that is no input, made in forward, only looks as if a graph led on from it."""
    made_here = kept.role == walk.ELSEWHERE and kept.tensor is not None and kept.tensor.is_leaf
    return kept.role in CONNECTED and not made_here


# What is kept, by its place: a number in saved_tensors, or an attribute of ctx.


def slots_of(node):
    data = [isinstance(t, Tensor) and t.dtype != torch.bool for t in node.tensors]
    return [*(i for i, is_data in enumerate(data) if is_data), *node.attributes]


def _in_slot(kept, slot):
    tensors, attributes = kept
    return tensors[slot] if isinstance(slot, int) else attributes.get(slot)


def _swapped(kept, moved, slot):
    """`kept`, with one thing as it is in `moved`."""
    tensors, attributes = list(kept[0]), dict(kept[1])
    (tensors if isinstance(slot, int) else attributes)[slot] = _in_slot(moved, slot)
    return tensors, attributes


def _tensors(value):
    return [t for t in tree_flatten(value)[0] if _differentiable(t)]


def _differentiable(value):
    if not isinstance(value, Tensor):
        return False
    return value.is_floating_point() or value.is_complex()


def _copy(value):
    """A tensor that backward may write into, and that requires grad if the original does."""
    if not isinstance(value, Tensor):
        return value
    return value.detach().clone().requires_grad_(value.requires_grad).clone()


def _matching(there, backward):
    """The same node beside the point; a graph of another shape cannot be compared."""
    if backward.number >= len(there.nodes):
        raise NotFollowed
    node, other = backward.node, there.nodes[backward.number]
    if [t is None for t in node.tensors] != [t is None for t in other.tensors]:
        raise NotFollowed
    return other


def _grad_outs(node):
    """Empty tensors like the gradients that backward gets."""
    likes = []
    for meta in grad_outs_of(node.fn):
        dtype = torch.promote_types(meta.dtype, torch.half)
        likes.append(torch.empty(meta.shape, dtype=dtype, device=meta.device))
    return likes


def _weights(like, *key):
    """Normal numbers, the same for the same key."""
    seed = 0
    for k in key:
        seed = 101 * seed + k + 1
    generator = torch.Generator().manual_seed(seed)
    dtype = torch.complex128 if like.is_complex() else torch.float64
    return torch.randn(like.shape, generator=generator, dtype=dtype).to(like)


def _sizes(g):
    """What to divide the elements of a gradient by; for those that are 0, that of the largest."""
    size = g.detach().abs()
    largest = size.max() if size.numel() else size.new_ones(())
    largest = largest if largest > 0 else torch.ones_like(largest)
    return torch.where(size > 1e-9 * largest, size, largest)


def _dot(a, b):
    """The sum of products; of complex numbers, as pairs of real ones."""
    a, b = a.to_dense(), b.to_dense()
    if a.is_complex() or b.is_complex():
        dtype = torch.promote_types(a.dtype, b.dtype)
        a, b = torch.view_as_real(a.to(dtype)), torch.view_as_real(b.to(dtype))
    return (a * b).sum()


def _method(node):
    """backward, without the guard of once_differentiable."""
    cls = node.function
    method = cls.backward if cls.backward is not Function.backward else cls.vjp
    inner = method if node.once else None
    while inner is not None and hasattr(inner, "__wrapped__"):
        guarded = inner.__code__.co_qualname.startswith("once_differentiable.")
        inner = inner.__wrapped__
        if guarded:
            return inner
    return method


def _untracked_calls(backward):
    """What is called in backward that autograd does not follow."""
    watch, copies = Watch(), tree_map(_copy, backward.kept)
    with suppress(Exception), watch:  # of backward
        backward(*copies)
    numpy = any(step.kind == "numpy" for step in watch.steps)  # which needs .detach()
    return tuple(dict.fromkeys(s for s in watch.steps if not (numpy and s.kind == "detach")))


# State that is not on ctx.


def _changed_state(target: Target, node: Node) -> tuple[str, ...]:
    """The names of what forward leaves elsewhere and what another point changes."""
    before = _state(node)
    _look(target, 1e-3 * target.scale * _weights(flat(target.point), 0, 1))
    after = _state(node)
    return tuple(name for name, text in after.items() if before.get(name) != text)


def _state(node):
    """Class attributes, what hangs on an object on ctx, and what backward and forward see around
    them, as texts to compare."""
    function = node.function
    found = {
        f"{function.__name__}.{name}": value
        for name, value in vars(function).items()
        if not name.startswith("_") and not callable(value) and not hasattr(value, "__func__")
    }
    for method in (function.forward, function.backward):
        try:
            outside = inspect.getclosurevars(method)
        except (TypeError, ValueError):
            continue
        names = global_names(method) if inspect.isfunction(method) else outside.globals
        around = {**{name: outside.globals.get(name) for name in names}, **outside.nonlocals}
        data = {k: v for k, v in around.items() if not callable(v) and not inspect.ismodule(v)}
        found.update(data)
    for name, value in node.attributes.items():
        hanging = {} if isinstance(value, Tensor) else getattr(value, "__dict__", {})
        found.update({f"{name}.{below}": v for below, v in hanging.items() if below[:1] != "_"})
    return {name: _text(value) for name, value in found.items()}


def _text(value):
    held = [thing for _, thing in reachable(value) if isinstance(thing, Tensor)]
    sums = [t.detach().to_dense().sum().item() for t in held if readable(t)]
    return f"{repr(value)[-2000:]} {sums}"


# The gradients of extra outputs.


def _wrong_extras(measured, here, backward, custom):
    """What backward adds for each output beyond the first that is saved, where it is wrong."""
    alone = len(here.nodes) == 1  # a surrogate before it would spoil the comparison
    if not (alone or measured.first.outcome is Outcome.RIGHT):
        return ()
    outputs = {s.position: s for s in custom.saved if s.kind is Kind.OUTPUT and s.position}
    extras = [_extra(measured, here, backward, saved) for saved in outputs.values()]
    return tuple(extra for extra in extras if extra is not None)


def _extra(measured, here, backward, saved):
    """None where backward has the right part for this output."""
    target, number = measured.probe.target, backward.number
    node = backward.node
    own = _output(node, saved.position)
    weight = _weights(own, number, saved.position, 3)
    try:
        grads = torch.autograd.grad(
            _dot(own, weight), here.call.t, allow_unused=True, retain_graph=True
        )
    except Exception:  # of backward
        return None
    wrong = {}
    for j, name in enumerate(target.names[:FEW]):
        ratios = []
        for draw in (1, 2):
            direction = _only(target, j, _weights(flat(target.point), draw, j))
            true = _change_of_output(measured, number, saved.position, weight, direction)
            step = shaped(direction, here.call.t)[j]
            got = 0.0 if grads[j] is None else _dot(grads[j], step).item()
            size = max(abs(true.value), abs(got))
            if _path(Number(got, 0.0), true, size, CLEAR[measured.dtype]) in (
                Path.MISSING,
                Path.WRONG,
            ):
                ratios.append(got / true.value if true.value else math.nan)
        if ratios:
            same = len(ratios) == 2 and abs(ratios[0] - ratios[1]) <= 1e-3 * abs(ratios[0])
            wrong[name] = 0.0 if not any(ratios) else ratios[0] if same else math.nan
    if not wrong:
        return None
    times = _times_another(backward, saved.position)
    return Extra(saved.position, saved.variable, wrong, times)


def _output(node, position):
    kept = [k for k in node.kept if k.role == walk.OUTPUT and k.position == position]
    return kept[0].tensor


def _only(target, j, vector):
    parts = vector.split([x.numel() for x in target.point])
    return torch.cat([p if i == j else torch.zeros_like(p) for i, p in enumerate(parts)])


def _change_of_output(measured, number, position, weight, direction):
    target = measured.probe.target

    def at(h):
        node = _look(target, h * direction).nodes[number]
        return _dot(_output(node, position).detach(), weight).double().reshape(1)

    value, error, _ = slope(at, measured.dtype, target.scale)
    return Number(value.item(), error.item())


def _times_another(backward, position):
    """Whether the part for one output changes with the gradients of the others."""
    mine = [v if k == position else torch.zeros_like(v) for k, v in enumerate(backward.u)]
    others = [torch.zeros_like(v) if k == position else v for k, v in enumerate(backward.u)]
    together = backward.value(backward.kept)
    parts = [backward.value(backward.kept, u) for u in (mine, others)]
    return abs(together - sum(parts)) > 1e-6 * sum(map(abs, parts))


def convict_surrogates(measured: Measured, customs: tuple[Custom, ...]) -> dict[Setting, Row]:
    """The rows of the second derivative where the first could not be judged as a whole.

    A surrogate has no finite differences to compare with, but its backwards by themselves do.
    """
    bad = Path.MISSING, Path.WRONG
    by_inputs = any(c.by_inputs in bad or c.extras for c in customs)
    by_grad_out = any(c.by_grad_out in bad for c in customs)
    rows = {}
    for setting, row in measured.second.items():
        if row.outcome is Outcome.RIGHT and (by_inputs or (by_grad_out and setting.after)):
            row = replace(row, outcome=Outcome.RAISES if row.text else Outcome.WRONG)
        if row.outcome is Outcome.RIGHT and (reason := _unanswered(customs, setting)):
            row = replace(row, outcome=Outcome.NOT_ASKED, text=reason)
        rows[setting] = row
    return rows


def doubt_packed(measured: Measured, customs: tuple[Custom, ...]) -> dict[Setting, Row]:
    """The rows of the second derivative where a small step shows nothing of integers that jump."""
    reason = next(filter(None, map(_jumping, customs)), "")
    return {
        setting: replace(row, outcome=Outcome.NOT_ASKED, text=reason)
        if reason and row.outcome is Outcome.RIGHT
        else row
        for setting, row in measured.second.items()
    }


def _jumping(custom):
    names = [s.title for s in custom.saved if s.packed and s.path is Path.UNKNOWN]
    if not names:
        return ""
    return f"{custom.name} keeps integers ({', '.join(names)}) that jump with the inputs"


def _unanswered(customs, setting):
    """Why nothing is known of one of these backwards, "" where all is."""
    for custom in customs:
        paths = [custom.by_inputs] + [custom.by_grad_out] * setting.after
        if said := _jumping(custom):
            return said
        if Path.UNKNOWN in paths:
            raised = custom.refused.split("[")[0].split(". ")[0].rstrip(": ")
            why = f"raises: {raised}" if raised else "could not be followed"
            return f"backward of {custom.name}, called by itself, {why}"
    return ""
