"""Finds the paths that should leave what a Function keeps, and do not.

A Function that keeps a tensor of its own making gets it back without a graph: all that its backward
computes from it is a constant for autograd. Which paths are missing is measured. First, the
Function is tried by itself, near its inputs: does what its backward returns change with this tensor
alone? With a mask it does not. Then the reader's backward pass is run once more, node by node, with
those tensors as leaves that require grad. The edges that only this second graph has are the missing
ones, and what comes back along them should have come to the reader's input.

Nothing of the reader's is changed: Functions get copies, and no hook and no `.grad` is touched.
Where something cannot be measured, nothing is claimed about it.
"""

import contextlib
import io
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from double_backward import tangents
from double_backward._torch import grad_outs_of, number_of, tree_leaves, unwrapped
from double_backward.calls import Call
from double_backward.change import Notepad, Where, fitting, forward_again, kept_at
from double_backward.check import signed
from double_backward.differences import LAST, STEPS, Slope, close, flat
from double_backward.graphs import walk
from double_backward.graphs.walk import Edge, Graph, Kept, Node, origin
from double_backward.methods import backward_method
from double_backward.operators import operator_of
from double_backward.shares import moves, taken
from double_backward.surroundings import State, Surroundings
from double_backward.trial import Trial, Unknown


@dataclass(frozen=True, eq=False)
class Missing:
    """A path that is missing.

    Attributes:
        keeper: the custom Function's node.
        kept: what it keeps, which the path should leave: a tensor, or a number or an array on ctx,
            by its name.
        to: the operation that takes it for a constant: the keeper itself where that is a step of
            its backward outside autograd, None where it is the gradient, which has no graph at all.
        gradient: the reader's name for the gradient whose backward pass was run once more.
        by: the reader's name for the input at which that ended.
        share: what a pass that starts at the gradient should bring back to that input through this
            thing alone, and does not: a tensor of the input's shape. None where it is not known,
            and for all but the first of several paths that leave one thing.
    """

    keeper: Node
    kept: Kept | str
    to: Node | None
    gradient: str
    by: str
    share: Tensor | None = None


@dataclass(eq=False)
class Findings:
    """What is known about the paths that leave what Functions keep.

    Attributes:
        missing: the paths that are missing.
        constant: kept tensors that no path should leave, such as masks.
        unasked: Functions for which this could not be found out.
    """

    missing: list[Missing] = field(default_factory=list)
    constant: list[Kept] = field(default_factory=list)
    unasked: list[Node] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Pass:
    """A backward pass that the reader ran with `create_graph=True`.

    Attributes:
        name: what the reader calls its gradient.
        gradient: its result, a tensor with or without a graph.
        of: the tensors that it started from, of any shape.
        seeds: the gradients that it started with, one for each of these; None stands for ones.
        by: what the reader calls the input at which it ended.
        end: this input.
        next_seed: the gradient that a pass through `gradient` starts with; None stands for ones.
    """

    name: str
    gradient: Tensor
    of: list[Tensor]
    seeds: list[Tensor | None]
    by: str
    end: Tensor
    next_seed: Tensor | None = None


MADE_INSIDE: tuple[walk.Role, ...] = walk.INTERMEDIATE, walk.NO_GRAPH  # by the Function itself
Arrived = dict[Edge | None, Tensor]
Place = tuple[Node, Where]  # a Function, and where it keeps something
Leaves = dict[Place, Tensor]  # what stands in for a tensor that is kept


class NotKnown(Exception):
    """The question cannot be asked of this graph."""


@dataclass(eq=False)
class Keeper:
    """A Function in the graph, called once more.

    Attributes:
        node: its node.
        call: a call with the reader's inputs, or with others of their shape.
        known: whether the inputs are the reader's.
        kept: where it keeps something -> a tensor, or the name of a number or an array.
        tried: outputs that are given a grad_out -> a trial of the call with these.
    """

    node: Node
    call: Call
    known: bool
    kept: dict[Where, Kept | str]
    tried: dict[tuple[int, ...], Trial] = field(default_factory=dict)

    def uses(self, where: Where, outputs: tuple[int, ...], leads: set[Node]) -> bool:
        """Whether what backward returns for inputs with nodes in `leads` changes with what is kept
        there, if these outputs are given a grad_out. Raises `Unknown`, or `NotKnown`."""
        if outputs not in self.tried:
            self.tried[outputs] = Trial(self.call, None, anyway=True, outputs=outputs)
        expected = self.tried[outputs].expected
        change = taken(expected, self.node.custom, lambda each: each == where)
        sources = [source[0] in leads for source in self.node.inputs if source]
        asked = torch.repeat_interleave(torch.tensor(sources), torch.tensor(expected.sizes))
        found = moves(Slope(*(part[asked] for part in change)))
        if found is None:
            raise NotKnown
        return found

    def sent(self, where: Where, kept: Tensor, grad: Tensor) -> list[Tensor]:
        """What autograd, if it records forward, sends back from what is kept to each input.

        Raises:
            Lost: tangents say something else, or forward keeps something else now.
        """
        x = [t.detach().clone().requires_grad_() for t in self.call.given]
        again = self._kept_again(where, x)
        exact = all(trial.expected.exact for trial in self.tried.values())
        if not (exact and again.requires_grad and close(again, kept)):
            raise tangents.Lost("forward keeps something else")
        grads = torch.autograd.grad(again, x, grad, allow_unused=True)
        sent = [torch.zeros_like(t) if g is None else g for t, g in zip(x, grads, strict=True)]
        draw = torch.Generator().manual_seed(4)
        d = [signed(t.detach(), draw) for t in x]
        with tangents.following():
            change = tangents.tangent(self._kept_again(where, tangents.moved(x, d)))
        change = torch.zeros_like(kept) if change is None else change
        by_autograd, by_tangents = flat(sent) * flat(d), flat([grad]) * flat([change])
        digits = LAST * torch.finfo(kept.dtype).eps * (by_autograd.norm() + by_tangents.norm())
        if (by_autograd.sum() - by_tangents.sum()).abs() > digits:
            raise tangents.Lost("autograd does not follow forward")
        return sent

    def _kept_again(self, where: Where, x: list[Tensor]) -> Tensor:
        """Call forward once more under autograd, and return what it keeps in a place."""
        name, number = where
        with self.call.state.drawn_again(), torch.enable_grad():
            ctx, _ = forward_again(self.call, dict(enumerate(x)))
        return tree_leaves(kept_at(ctx, name))[number]


def find(graph: Graph, named: list[Tensor], passes: list[Pass]) -> Findings:
    """Find the paths that should leave what the custom Functions of a graph keep, and do not.

    Args:
        graph: the graph behind all tensors of `named` and `passes`.
        named: tensors whose values are known, such as those that the reader named.
        passes: the backward passes that are run once more.
    """
    found, keepers, passed = Findings(), list[Keeper](), set[Node]()
    functions = [node for node in graph.nodes if node.custom and not node.once_differentiable]
    if not (functions and passes):
        return found
    with _nothing_changes(*(node.custom for node in functions)):
        for node in functions:
            try:
                keepers.append(_keeper(graph, node, named))
            except Exception:  # NotKnown, or any error of forward
                found.unasked.append(node)
        for each in passes if any(keeper.kept for keeper in keepers) else []:
            try:
                passed |= _look(graph, each, keepers, found)
            except Exception:  # NotKnown, or any error of backward
                found.unasked += [keeper.node for keeper in keepers if keeper.kept]
    used = {(missing.keeper, missing.kept) for missing in found.missing}
    for keeper in keepers:
        node = keeper.node
        made = [kept for kept in keeper.kept.values() if _is_made(kept) and node in passed]
        unused = [kept for kept in made if (node, kept) not in used]
        if keeper.known:
            found.constant += [kept for kept in unused if isinstance(kept, Kept)]
        elif unused:
            found.unasked.append(node)  # it is not used at other inputs; at these it may be
    return found


def _keeper(graph: Graph, node: Node, named: list[Tensor]) -> Keeper:
    """A Function, what it keeps, and how it is called.

    Raises:
        NotKnown: nothing tells what it was called with.
    """
    kept = dict(_kept(node))
    inputs, known = _inputs(graph, node, named) if kept else ([], True)
    return Keeper(node, Call(node.custom, inputs, {}, State.now()), known, kept)


def _kept(node: Node) -> Iterator[tuple[Where, Kept | str]]:
    """(where, what) for each thing that is kept and that finite differences can move."""
    ctx: Any = node.fn
    saved = [(place, 0) for place in _places(ctx)]
    leaves = {
        id(unwrapped(leaf)): (name, number)
        for name, value in vars(ctx).items()
        for number, leaf in enumerate(tree_leaves(value))
        if isinstance(leaf, Tensor)
    }
    for number, kept in enumerate(node.kept):
        if kept.role in (*MADE_INSIDE, walk.INPUT, walk.OUTPUT) and _is_plain(kept.tensor):
            yield (saved[number] if number < len(saved) else leaves[id(kept.tensor)]), kept
    kinds = float, complex, np.number, np.ndarray
    yield from (((name, 0), name) for name, v in vars(ctx).items() if isinstance(v, kinds))


def _is_made(kept: Kept | str) -> bool:
    return isinstance(kept, str) or kept.role in MADE_INSIDE


def _is_plain(t: Tensor | None) -> bool:
    if t is None or t.layout is not torch.strided or t.device.type == "meta":
        return False
    return t.dtype in STEPS


def _inputs(graph: Graph, node: Node, named: list[Tensor]) -> tuple[list[Tensor], bool]:
    """The tensors that the Function was applied to: named by the reader, leaves, or saved; and
    whether all of them are known. One that is not is replaced by numbers between 0.5 and 1, of the
    right shape and dtype.
    """
    if len(_needs(node)) != len(node.inputs) or None in node.inputs:
        raise NotKnown  # an argument that is no tensor, or has no graph: nothing tells what it was
    operator = operator_of(node.custom)
    if operator is not None and operator.has_keywords:
        raise NotKnown
    saved = [kept.tensor for other in graph.nodes for kept in other.kept]
    tensors = [*named, *(other.leaf for other in graph.nodes), *saved]
    known = {origin(t): t for t in reversed(tensors) if t is not None}
    edges = [(source[0].fn, source[1]) for source in node.inputs if source]
    found = [known[edge] if edge in known else _stand_in(edge) for edge in edges]
    if not all(map(_is_plain, found)):
        raise NotKnown
    return [x.detach().requires_grad_() for x in found], all(edge in known for edge in edges)


def _needs(node: Node) -> tuple[bool, ...]:
    """Which arguments of forward need a gradient, without the last one that torch adds for an
    operator."""
    needs: tuple[bool, ...] = cast(Any, node.fn).needs_input_grad
    return needs if operator_of(node.custom) is None else needs[:-1]


def _stand_in(edge: Edge) -> Tensor:
    zeros = _zeros(grad_outs_of(edge[0])[edge[1]])
    return torch.linspace(0.5, 1, zeros.numel()).to(zeros).reshape(zeros.shape)


def _zeros(meta: Any) -> Tensor:
    return torch.zeros(meta.shape, dtype=meta.dtype, device=meta.device)


def _look(graph: Graph, each: Pass, keepers: list[Keeper], found: Findings) -> set[Node]:
    """Add the paths that a pass lacks to `found`; return the Functions of the keepers that it goes
    through."""
    end = graph.node_of(each.end)
    leads = _leading(graph, end)
    start = {
        origin(of): torch.ones_like(of) if seed is None else seed.clone()
        for of, seed in zip(each.of, each.seeds, strict=True)
    }
    arrived = _again(leads, end, start, {})
    if not close(arrived[origin(each.end)], each.gradient):
        raise NotKnown
    used, passed = dict[Place, Keeper](), set[Node]()
    for keeper in keepers:
        grads = _grads(keeper.node, arrived)
        if all(grad is None for grad in grads):
            continue
        passed.add(keeper.node)
        try:
            used |= {(keeper.node, where): keeper for where in _lost(keeper, grads, leads)}
        except (NotKnown, Unknown, tangents.Lost):
            found.unasked.append(keeper.node)
    leaves = {place: leaf.requires_grad_() for place, leaf in _made(used)}
    again = _again(leads, end, start, leaves)[origin(each.end)]
    ends = _compare(graph, each.gradient, again, leaves)
    ends += [(place, place[0]) for place in used if place not in dict(ends)]
    shares = dict[Place, Tensor]()
    for place, edges in _brought(each, again, leaves, used):
        back = _again(leads, end, edges, {}).get(origin(each.end))
        shares[place] = torch.zeros_like(each.end) if back is None else back
    for place, to in ends:
        (node, where), share = place, shares.pop(place, None)
        kept = used[place].kept[where]
        found.missing.append(Missing(node, kept, to, each.name, each.by, share))
    return passed


def _lost(keeper: Keeper, grads: list[Tensor | None], leads: set[Node]) -> Iterator[Where]:
    """The places of things that are kept and that backward uses, to which no graph leads."""
    alone = [grad if grad is None else grad.detach().clone() for grad in grads]
    returned = [grad for _, grad in _sent(keeper.node, alone, leads, {})]
    outputs = tuple(number for number, grad in enumerate(grads) if grad is not None)
    followed = walk.walk(*returned)
    for where, kept in keeper.kept.items() if returned else []:
        lost = isinstance(kept, str) or kept.tensor is None or not followed.node_of(kept.tensor)
        if lost and keeper.uses(where, outputs, leads):
            yield where


def _made(used: dict[Place, Keeper]) -> Iterator[tuple[Place, Tensor]]:
    """(place, tensor) for each tensor among these that a Function has made itself."""
    for place, keeper in used.items():
        kept = keeper.kept[place[1]]
        if isinstance(kept, Kept) and kept.role in MADE_INSIDE and kept.tensor is not None:
            yield place, kept.tensor.detach()


def _brought(
    each: Pass, again: Tensor, leaves: Leaves, used: dict[Place, Keeper]
) -> Iterator[tuple[Place, Arrived]]:
    """What a pass from the gradient would bring to the inputs of a Function through each thing that
    it keeps, where that is known."""
    if not (leaves and again.requires_grad):
        return
    seed = torch.ones_like(again) if each.next_seed is None else each.next_seed
    grads = torch.autograd.grad(again, list(leaves.values()), seed, allow_unused=True)
    for (place, leaf), grad in zip(leaves.items(), grads, strict=True):
        keeper = used[place]
        if grad is None or not keeper.known:
            continue
        with contextlib.suppress(tangents.Lost):
            back = keeper.sent(place[1], leaf, grad)
            edges = [(source[0].fn, source[1]) for source in keeper.node.inputs if source]
            yield place, _summed(edges, back)


def _summed(edges: list[Edge], tensors: list[Tensor]) -> Arrived:
    arrived: Arrived = {}
    for edge, tensor in zip(edges, tensors, strict=True):
        arrived[edge] = arrived[edge] + tensor if edge in arrived else tensor
    return arrived


def _leading(graph: Graph, end: Node | None) -> set[Node]:
    """The nodes through which a pass comes to `end`."""
    leads: set[Node] = set()
    for node in reversed(graph.nodes):
        if node is end or any(source and source[0] in leads for source in node.inputs):
            leads.add(node)
    return leads


def _again(leads: set[Node], end: Node | None, start: Arrived, leaves: Leaves) -> Arrived:
    """Run a backward pass, node by node in torch's order and without hooks; return the gradient
    that arrives at each edge."""
    arrived, nodes = dict(start), leads - {end}
    for node in sorted(nodes, key=lambda node: number_of(node.fn), reverse=True):
        for edge, grad in _sent(node, _grads(node, arrived), leads, leaves):
            arrived[edge] = arrived[edge] + grad if edge in arrived else grad
    return arrived


def _grads(node: Node, arrived: Arrived) -> list[Tensor | None]:
    """What has arrived at a node, for each of its outputs."""
    return [arrived.get((node.fn, number)) for number in range(len(grad_outs_of(node.fn)))]


def _sent(
    node: Node, grads: list[Tensor | None], leads: set[Node], leaves: Leaves
) -> list[tuple[Edge, Tensor]]:
    """(edge, gradient) for each gradient that a node sends on; [] if none has arrived. No hook
    runs."""
    fn: Any = node.fn
    if all(grad is None for grad in grads):
        return []
    if node.custom is None:
        sent = fn(*grads)
    else:
        full = [_zeros(m) if g is None else g for g, m in zip(grads, grad_outs_of(fn), strict=True)]
        sent = getattr(node.custom, backward_method(node.custom))(_notepad(node, leaves), *full)
    sent = list(sent) if isinstance(sent, (tuple, list)) else [sent]
    if node.custom is not None:  # one for each argument of forward; only tensors have edges
        needed = (g for g, needed in zip(sent, _needs(node), strict=False) if needed)
        sent = [None if source is None else next(needed) for source in node.inputs]
    return [
        ((source[0].fn, source[1]), fitting(grad, grad_outs_of(source[0].fn)[source[1]]))
        for source, grad in zip(node.inputs, sent, strict=False)
        if source is not None and source[0] in leads and grad is not None
    ]


def _notepad(node: Node, leaves: Leaves) -> Notepad:
    """A stand-in for ctx, with copies of what is kept, or with leaves where there are any."""

    def copied(where: Where, value: Any) -> Any:
        value = leaves.get((node, where), value)
        if isinstance(value, Tensor):
            return value.clone()
        return value.copy() if isinstance(value, np.ndarray) else value

    notepad = Notepad.of(node.fn, copied)
    notepad.needs_input_grad = _needs(node)
    return notepad


def _places(ctx: Any) -> list[int]:
    """The numbers of the saved tensors that are not None."""
    return [number for number, t in enumerate(ctx.saved_tensors) if t is not None]


def _compare(
    graph: Graph, actual: Tensor, again: Tensor, leaves: Leaves
) -> list[tuple[Place, Node | None]]:
    """(place of what is kept, operation) for each edge that only the graph with leaves has."""
    graph_again = walk.walk(again)
    own = {graph_again.node_of(leaf): key for key, leaf in leaves.items()}
    behind: dict[Node, set[Place]] = {}  # the leaves that a node leads back to
    for node in reversed(graph_again.nodes):
        sources = (behind[source[0]] for source in node.inputs if source)
        behind[node] = {own[node]} if node in own else set().union(*sources)
    found: list[tuple[Place, Node | None]] = []
    todo: list[tuple[Node | None, ...]] = [
        (None, graph.node_of(actual), graph_again.node_of(again))
    ]
    seen = set()
    while todo:
        to, here, there = todo.pop()
        if there is None or not behind[there] or (here, there) in seen:
            continue
        if here is None:
            found += [(key, to) for key in leaves if key in behind[there]]
            continue
        if here.title != there.title:
            raise NotKnown
        seen.add((here, there))
        for source, source_again in zip(here.inputs, there.inputs, strict=True):
            todo.append((here, source and source[0], source_again and source_again[0]))
    return list(dict.fromkeys(found))


@contextlib.contextmanager
def _nothing_changes(*functions: Any) -> Iterator[None]:
    """Inside, Functions are called; no state, text or warning of theirs is seen outside."""
    with (
        State.now().drawn_again(),
        Surroundings(*functions).unchanged(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        warnings.catch_warnings(action="ignore"),
        torch.enable_grad(),
    ):
        yield
