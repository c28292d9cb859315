"""The paths that should leave what a Function keeps, and do not.

A Function that keeps a tensor of its own making gets it back without a graph: whatever its backward
computes from it is a constant to autograd. Which paths are missing is measured, in two steps.
Each thing that it keeps is exchanged for what forward keeps beside the point, to see whether
backward then returns something else; with a mask it does not. Then the first backward is run once
more, node by node, with those tensors as leaves that require grad. The edges that only this second
graph has are the missing ones.

Nothing of the reader's is written: Functions get copies, and no hook and no `.grad` is touched.
Where one of the two steps cannot be taken, nothing is claimed.
"""

import contextlib
import functools
import heapq
import io
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from double_backward._torch import grad_outs_of, number_of, tree_map
from double_backward.change import Notepad, fitting, forward_again
from double_backward.check import Line, Subject, signed
from double_backward.differences import STEPS, close, flat, slope
from double_backward.graphs import walk
from double_backward.graphs.walk import Edge, Graph, Kept, Node, origin
from double_backward.meet import Call
from double_backward.methods import backward_method
from double_backward.state import Draws, State, Surroundings

FEW = 20  # connected tensors that are looked at; each costs a backward pass


@dataclass(frozen=True, eq=False)
class Missing:
    """A path that is missing.

    Attributes:
        keeper: the custom Function's node.
        kept: the tensor that it keeps, which the path should leave.
        to: the operation that takes it for a constant; None where that is the gradient itself,
            which has no graph at all.
        gradient: the reader's name for the gradient whose backward pass was run once more.
    """

    keeper: Node
    kept: Kept
    to: Node | None
    gradient: str


@dataclass(frozen=True, eq=False)
class Pass:
    """A backward pass that the reader ran with `create_graph=True`.

    Attributes:
        name: what the reader calls its gradient.
        gradient: what it gave, a tensor with or without a graph.
        of: what it started from, tensors of any shape.
        seeds: what it started with, one tensor of the shape of each; None stands for ones.
        by: the input at which it ended.
    """

    name: str
    gradient: Tensor
    of: list[Tensor]
    seeds: list[Tensor | None]
    by: Tensor


@dataclass(frozen=True, eq=False)
class Lost:
    """Something that a gradient depends on and can have no path to.

    Attributes:
        keeper: the custom Function's node.
        kept: a number or an array on ctx, by its name; or a tensor that comes back with its graph,
            and that backward uses where autograd does not follow.
        gradient: the reader's name for the gradient.
    """

    keeper: Node
    kept: Kept | str
    gradient: str


@dataclass(eq=False)
class Findings:
    """What is known about the paths that leave what Functions keep.

    Attributes:
        missing, lost: the paths that are missing.
        constant: kept tensors that do not change with the inputs, as masks.
        unasked: Functions that could not be asked.
    """

    missing: list[Missing] = field(default_factory=list)
    lost: list[Lost] = field(default_factory=list)
    constant: list[Kept] = field(default_factory=list)
    unasked: list[Node] = field(default_factory=list)


Instead = dict[int, Any]  # what stands in for what is kept, by the id of that
Again = Callable[[Instead], Tensor]  # a backward pass once more: its gradient
At = Callable[[float], Instead]  # the same at a point of a line; at 0.0 it is where it was
Use = tuple[Node, Kept | str, At]  # a Function, and a tensor or the name of a number that it keeps


class NotKnown(Exception):
    """The question cannot be asked of this graph."""


def find(graph: Graph, named: list[Tensor], passes: list[Pass]) -> Findings:
    """Ask every custom Function of a graph which paths do not leave what it keeps.

    Args:
        graph: the graph behind all tensors of `named` and `passes`.
        named: tensors whose values are known, as those that the reader named.
        passes: the backward passes that are run once more.
    """
    found, taken, uses = Findings(), list[tuple[Node, Kept]](), list[Use]()
    for node in graph.nodes if passes else []:
        if node.custom is None or node.once_differentiable:
            continue
        if asked := _without_graph(node):
            try:
                with _nothing_changes(node):
                    used, constant = _used(graph, node, asked, named)
            except Exception:  # NotKnown, or whatever the Function raises
                found.unasked.append(node)
                continue
            found.constant += constant
            taken += [(node, kept) for _, kept, _ in used if isinstance(kept, Kept)]
            uses += [use for use in used if isinstance(use[1], str)]
        uses += [(node, kept, _beside(kept)) for kept in _kept(node, walk.INPUT, walk.OUTPUT)]
    del uses[FEW:]
    keepers = dict.fromkeys([node for node, _ in taken] + [node for node, _, _ in uses])
    for each in passes if keepers else []:
        try:
            with _nothing_changes(*keepers):
                again = _again(graph, each)
                found.missing += _missing(graph, each, again, taken)
                lost = [(node, kept) for node, kept, at in uses if _is_lost(again, kept, at)]
                found.lost += [Lost(node, kept, each.name) for node, kept in lost]
        except Exception:  # NotKnown, or whatever backward raises
            found.unasked += [node for node in keepers if node not in found.unasked]
    return found


def _kept(node: Node, *roles: walk.Role) -> list[Kept]:
    """What a custom Function keeps in these roles, and autograd could differentiate."""
    return [kept for kept in node.kept if kept.role in roles and _is_plain(kept.tensor)]


def _is_plain(t: Tensor | None) -> bool:
    if t is None or t.layout is not torch.strided or t.device.type == "meta":
        return False
    return t.dtype in STEPS


def _without_graph(node: Node) -> dict[int, Kept | str]:
    """What a custom Function keeps without a graph, by id: tensors, and the names of numbers."""
    kinds = float, complex, np.number, np.ndarray
    held = {id(v): (name, v) for name, v in vars(node.fn).items() if isinstance(v, kinds)}
    numbers = {key: name for key, (name, v) in held.items() if np.asarray(v).dtype.kind in "fc"}
    return {id(k.tensor): k for k in _kept(node, walk.INTERMEDIATE, walk.NO_GRAPH)} | numbers


def _used(
    graph: Graph, node: Node, asked: dict[int, Kept | str], named: list[Tensor]
) -> tuple[list[Use], list[Kept]]:
    """What backward depends on, of what is asked about; and the tensors that no input changes.

    An input whose value is nowhere to be found gets other values: what is used there, is used.

    Raises:
        NotKnown: forward cannot be called as it was, or makes other tensors now.
    """
    inputs, known = _inputs(graph, node, named)
    call, line = Call(node.custom, inputs, {}, None), _line(inputs)
    draws = Draws.now()

    @functools.cache
    def kept_at(h: float) -> Instead:
        draws.put_back()
        with torch.no_grad():
            ctx, _ = forward_again(call, dict(enumerate(line.x(h))))
        made = [*(t for t in ctx.saved_tensors if t is not None), *walk.tensors_in(ctx.attributes)]
        found: Instead = {id(k.tensor): t for k, t in zip(node.kept, made, strict=True)}
        return found | {k: ctx.kept(name) for k, name in asked.items() if isinstance(name, str)}

    def alone(key: int, h: float) -> Instead:
        return {key: kept_at(h)[key]}

    draw = torch.Generator().manual_seed(4)
    u: list = [signed(_zeros(meta), draw) for meta in grad_outs_of(node.fn)]

    def returned(instead: Instead) -> list[Tensor]:
        return [grad for grad in _sent(node, u, instead) if grad is not None]

    used, constant, dtype = list[Use](), list[Kept](), inputs[0].dtype
    for key, kept in asked.items():
        at = functools.partial(alone, key)
        if _moves(returned, at, dtype):
            used.append((node, kept, at))
            if known and not all(map(close, returned(at(0.0)), returned({}))):
                raise NotKnown
        elif not known:
            raise NotKnown  # elsewhere it is not used; here it may be
        elif isinstance(kept, Kept) and not _moves(lambda instead: [*instead.values()], at, dtype):
            constant.append(kept)
    return used, constant


def _line(tensors: list[Tensor]) -> Line:
    """From some tensors on, in proportion to them."""
    return Line.of(Subject(list, tuple(tensors), ()))


def _beside(kept: Kept) -> At:
    assert kept.tensor is not None
    line = _line([kept.tensor])
    return lambda h: {id(kept.tensor): line.x(h)[0]}


def _moves(of: Callable[[Instead], list[Tensor]], at: At, dtype: torch.dtype) -> bool:
    """Whether some element changes with what is kept; a jump does not count."""
    found = slope(lambda h: flat(of(at(h))), dtype, 1.0)
    moves = bool((found.value.abs() > 5 * found.error).any())
    if not (moves or found.error.isfinite().all()):
        raise NotKnown
    return moves


def _inputs(graph: Graph, node: Node, named: list[Tensor]) -> tuple[list[Tensor], bool]:
    """The tensors that the Function was applied to: named by the reader, leaves, or saved.

    And False where one of them is a stand-in, of the right shape and dtype, between 0.5 and 1.
    """
    args: Any = node.fn
    if len(args.needs_input_grad) != len(node.inputs) or None in node.inputs:
        raise NotKnown  # an argument that is no tensor, or has no graph: nothing tells what it was
    saved = [kept.tensor for other in graph.nodes for kept in other.kept]
    tensors = [*named, *(other.leaf for other in graph.nodes), *saved]
    known = {origin(t): t for t in reversed(tensors) if t is not None}
    edges = [(source[0].fn, source[1]) for source in node.inputs if source]
    found = [known[edge] if edge in known else _stand_in(edge) for edge in edges]
    if not all(map(_is_plain, found)):
        raise NotKnown
    return [x.detach().requires_grad_() for x in found], all(edge in known for edge in edges)


def _stand_in(edge: Edge) -> Tensor:
    zeros = _zeros(grad_outs_of(edge[0])[edge[1]])
    return torch.linspace(0.5, 1, zeros.numel()).to(zeros).reshape(zeros.shape)


def _zeros(meta: Any) -> Tensor:
    return torch.zeros(meta.shape, dtype=meta.dtype, device=meta.device)


def _missing(
    graph: Graph, each: Pass, again: Again, taken: list[tuple[Node, Kept]]
) -> list[Missing]:
    """The paths that one gradient lacks."""
    keepers = {id(kept.tensor): (node, kept) for node, kept in taken}
    leaves = {key: leaf for _, kept in taken for key, leaf in _beside(kept)(0.0).items()}
    gradient = again(leaves)
    if not close(gradient, each.gradient):
        raise NotKnown
    found = _compare(graph, each.gradient, gradient, leaves)
    return [Missing(*keepers[which], to, each.name) for which, to in found]


def _is_lost(again: Again, kept: Kept | str, at: At) -> bool:
    """True if a gradient changes with something kept to which its graph would not lead."""
    here = at(0.0)
    gradient = again(here)
    if isinstance(kept, Kept) and walk.walk(gradient).node_of(*here.values()) is not None:
        return False
    return _moves(lambda instead: [again(instead)], at, gradient.dtype)


def _again(graph: Graph, each: Pass) -> Again:
    """A backward pass as torch runs it, node by node and in torch's order, but without hooks."""
    end = graph.node_of(each.by)
    assert end is not None
    leads: set[Node] = set()  # the nodes from which the input is reached
    for node in reversed(graph.nodes):
        if node is end or any(source and source[0] in leads for source in node.inputs):
            leads.add(node)
    order = _order(graph.reachable(*each.of) & leads - {end})

    def again(instead: Instead) -> Tensor:
        arrived: dict[Edge | None, Tensor] = {}
        for of, seed in zip(each.of, each.seeds, strict=True):
            arrived[origin(of)] = torch.ones_like(of) if seed is None else seed.clone()
        for node in order:
            count = len(grad_outs_of(node.fn))
            grads = [arrived.get((node.fn, number)) for number in range(count)]
            sent = [] if all(grad is None for grad in grads) else _sent(node, grads, instead)
            for source, grad in zip(node.inputs, sent, strict=False):
                if source is not None and source[0] in leads and grad is not None:
                    edge = to, number = source[0].fn, source[1]
                    grad = fitting(grad, grad_outs_of(to)[number])
                    arrived[edge] = arrived[edge] + grad if edge in arrived else grad
        return arrived[end.fn, each.by.output_nr]

    return again


def _order(nodes: set[Node]) -> list[Node]:
    """As torch takes them: of those that wait for no other, the one that was made last."""
    waits = Counter(source[0] for node in nodes for source in node.inputs if source)
    ready = [(-number_of(node.fn), id(node), node) for node in nodes if not waits[node]]
    heapq.heapify(ready)
    order = list[Node]()
    while ready:
        order.append(heapq.heappop(ready)[-1])
        for source in order[-1].inputs:
            if source and source[0] in nodes:
                waits[source[0]] -= 1
                if not waits[source[0]]:
                    heapq.heappush(ready, (-number_of(source[0].fn), id(source[0]), source[0]))
    return order


def _sent(node: Node, grads: list[Tensor | None], instead: Instead) -> list[Any]:
    """What one node sends to its inputs; no hook runs."""
    fn: Any = node.fn
    if node.custom is None:
        sent = fn(*grads)
        return list(sent) if isinstance(sent, (tuple, list)) else [sent]
    full = [_zeros(m) if g is None else g for g, m in zip(grads, grad_outs_of(fn), strict=True)]
    sent = getattr(node.custom, backward_method(node.custom))(_notepad(node, instead), *full)
    sent = sent if isinstance(sent, (tuple, list)) else [sent]
    # backward answers for every argument of forward; only tensors have an edge.
    needed = (g for g, needed in zip(sent, fn.needs_input_grad, strict=False) if needed)
    return [None if source is None else next(needed) for source in node.inputs]


def _notepad(node: Node, instead: Instead) -> Notepad:
    """Stands in for a ctx: with copies, and with what is there `instead`."""

    def copied(value: Any) -> Any:
        value = instead.get(id(value), value)
        if isinstance(value, Tensor):
            return value.clone()
        return value.copy() if isinstance(value, np.ndarray) else value

    ctx: Any = node.fn
    notepad = Notepad(ctx.needs_input_grad)
    notepad.saved_tensors = tuple(map(copied, ctx.saved_tensors))
    for name, value in vars(ctx).items():
        setattr(notepad, name, tree_map(copied, value))
    return notepad


def _compare(
    graph: Graph, actual: Tensor, again: Tensor, leaves: dict[int, Tensor]
) -> list[tuple[int, Node | None]]:
    """(id of the kept tensor, operation) for each edge that only the graph with leaves has."""
    graph_again = walk.walk(again)
    own = {graph_again.node_of(leaf): which for which, leaf in leaves.items()}
    behind: dict[Node, set[int]] = {}  # the leaves that a node leads back to
    for node in reversed(graph_again.nodes):
        sources = (behind[source[0]] for source in node.inputs if source)
        behind[node] = {own[node]} if node in own else set().union(*sources)
    found: list[tuple[int, Node | None]] = []
    todo: list[tuple[Node | None, ...]] = [
        (None, graph.node_of(actual), graph_again.node_of(again))
    ]
    seen = set()
    while todo:
        to, here, there = todo.pop()
        if there is None or not behind[there] or (here, there) in seen:
            continue
        if here is None:
            found += [(which, to) for which in leaves if which in behind[there]]
            continue
        if not _match(here, there):
            raise NotKnown
        seen.add((here, there))
        for source, source_again in zip(here.inputs, there.inputs, strict=True):
            todo.append((here, source and source[0], source_again and source_again[0]))
    return list(dict.fromkeys(found))


def _match(here: Node, there: Node) -> bool:
    """Whether two nodes are the same operation on the same numbers."""
    if here.title != there.title or len(here.inputs) != len(there.inputs):
        return False
    # What needs no gradient is not saved: only the graph with leaves has all of it.
    saved = {kept.name: kept.tensor for kept in there.kept}
    pairs = [(saved.get(kept.name), kept.tensor) for kept in here.kept]
    return here.custom is not None or all(a is None or b is None or close(a, b) for a, b in pairs)


@contextlib.contextmanager
def _nothing_changes(*nodes: Node) -> Iterator[None]:
    """Functions are called inside; outside nothing is seen of it: no state, no text, no warning."""
    with (
        State.now().again(),
        Surroundings(*(node.custom for node in nodes)).unchanged(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        warnings.catch_warnings(),
        torch.enable_grad(),
    ):
        warnings.simplefilter("ignore")
        yield
