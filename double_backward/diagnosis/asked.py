"""What autograd says of one backward by itself, by leaves in place of what forward kept."""

from contextlib import suppress

import torch
from torch import Tensor
from torch.autograd.graph import allow_mutation_on_saved_tensors

from double_backward._torch import EDITED, tree_map
from double_backward.differences import same
from double_backward.graphs import walk
from double_backward.lines import first_line

from .alone import differentiable, dot, in_slot, slots_of, tensors_in, with_attributes
from .paths import CLOSE

CONNECTED = walk.INPUT, walk.OUTPUT, walk.ELSEWHERE


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
        self.in_new_tensors = False  # answered as if backward wrote into nothing that is saved
        self.error = ""  # that backward raises where grad_out has a graph

    def along(self, slot, moved, led=True):
        """The derivative by the slot's tensors, times what these are beside the point; with `led`,
        by those from which a graph leads on."""
        there = tensors_in(in_slot(moved, slot))
        own = zip(self.gradients.get(slot, ()), self.led_on.get(slot, ()), there, strict=False)
        return sum(dot(g, t).item() for g, on, t in own if g is not None and (on or not led))


def ask_autograd(backward, beside, recorded):
    """With grad_outs that have a graph, if `recorded` and if backward takes them, else without.

    `beside`: the same node beside the point. What has no graph in the real backward gets one here
    where it changes with the inputs, and where backward takes that.
    """
    error = ""
    if recorded and backward.node.once and (asked := _asked_in_new_tensors(backward, beside)):
        return asked
    for backward.recorded in [True, False] if recorded else [False]:
        for other in (beside, backward.node):
            try:
                asked = _ask(backward, other)
                asked.error = error
                return asked
            except Exception as raised:  # of backward, or of a backward of its own
                refused = first_line(raised)
        error = error or refused
    asked = Asked()
    asked.error = error
    return asked


def _asked_in_new_tensors(backward, beside):
    """Of a backward that writes into what autograd keeps, and is guarded: as if it did not. None
    of any other, and of one that raises all the same."""
    backward.recorded = True
    try:
        _ask(backward, beside)
    except Exception as raised:  # of backward
        if EDITED not in str(raised):
            return None
        with suppress(Exception), allow_mutation_on_saved_tensors():
            asked = _ask(backward, beside)
            asked.error, asked.in_new_tensors = first_line(raised), True
            return asked
    return None


def _ask(backward, beside):
    asked, node = Asked(), backward.node
    asked.answered = True
    u = [v.clone().requires_grad_() for v in backward.u] if backward.recorded else []
    there = beside.tensors, beside.attributes
    slots = slots_of(node)
    leaves = {slot: _Leaves(in_slot(backward.kept, slot), in_slot(there, slot)) for slot in slots}
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
        asked.by_grad_out = sum(dot(g, v).item() for g, v in by_u if g is not None)
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
    """A kept thing in which tensors are replaced by some that are made from leaves.

    Those that have a graph, or that are others in `beside`: a constant may go to NumPy.
    """

    def __init__(self, kept, beside):
        self.kept = kept
        self.originals = tensors_in(kept)
        there = tensors_in(beside)
        if len(there) != len(self.originals):
            there = [None] * len(self.originals)
        pairs = zip(self.originals, there, strict=True)
        self.followed = [t.requires_grad or not same(t, other) for t, other in pairs]
        self.leaves = [t.detach().clone().requires_grad_() for t in self.originals]
        self.again()

    def again(self):
        """Anew, since backward may write into them: `value`, and the tensors in it."""
        every = zip(self.leaves, self.originals, self.followed, strict=True)
        made = [
            with_attributes(leaf * 1 if followed else leaf.detach().clone(), original)
            for leaf, original, followed in every
        ]
        left = iter(made)
        self.value = tree_map(lambda t: next(left) if differentiable(t) else t, self.kept)
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
