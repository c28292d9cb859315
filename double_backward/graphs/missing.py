"""The paths that should leave what a Function keeps, and do not.

A Function that keeps a tensor of its own making gets it back without a graph: whatever its backward
computes from it is a constant to autograd. Which paths are missing is measured. First, each thing
that it keeps is moved, as forward moves it with the inputs, to see whether what backward returns
moves along; with a mask it does not. Then the reader's backward pass is run once more, node by
node, with those tensors as leaves that require grad: the edges that only this second graph has are
the missing ones.

Nothing of the reader's is written: Functions get copies, and no hook and no `.grad` is touched.
Where something cannot be asked, nothing is claimed of it.
"""

import contextlib
import functools
import io
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from double_backward._torch import grad_outs_of, number_of, tree_map
from double_backward.calls import Call
from double_backward.change import Notepad, fitting, forward_again
from double_backward.check import Line, Subject, signed
from double_backward.differences import STEPS, close, flat, slope
from double_backward.graphs import walk
from double_backward.graphs.walk import Edge, Graph, Kept, Node, origin
from double_backward.methods import backward_method
from double_backward.operators import operator_of
from double_backward.surroundings import Draws, State, Surroundings


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
    """

    keeper: Node
    kept: Kept | str
    to: Node | None
    gradient: str


@dataclass(eq=False)
class Findings:
    """What is known about the paths that leave what Functions keep.

    Attributes:
        missing: the paths that are missing.
        constant: kept tensors that no path should leave, as masks.
        unasked: Functions that could not be asked.
    """

    missing: list[Missing] = field(default_factory=list)
    constant: list[Kept] = field(default_factory=list)
    unasked: list[Node] = field(default_factory=list)


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


MADE: tuple[walk.Role, ...] = walk.INTERMEDIATE, walk.NO_GRAPH  # by the Function itself
Arrived = dict[Edge | None, Tensor]
Instead = dict[int, Any]  # what stands in for what is kept, by the id of that
Asked = dict[int, Kept | str]  # a tensor, or the name of a number, that a Function keeps, by its id
At = Callable[[float], Instead]  # what they are at a point of a line
# A Function, what it keeps, how that moves, and whether the line goes through the reader's point.
Keeper = tuple[Node, Asked, At, bool]


class NotKnown(Exception):
    """The question cannot be asked of this graph."""


def find(graph: Graph, named: list[Tensor], passes: list[Pass]) -> Findings:
    """Ask every custom Function of a graph which paths do not leave what it keeps.

    Args:
        graph: the graph behind all tensors of `named` and `passes`.
        named: tensors whose values are known, as those that the reader named.
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
            except Exception:  # NotKnown, or whatever forward raises
                found.unasked.append(node)
        for each in passes if any(asked for _, asked, *_ in keepers) else []:
            try:
                passed |= _look(graph, each, keepers, found)
            except Exception:  # NotKnown, or whatever backward raises
                found.unasked += [node for node, asked, *_ in keepers if asked]
    used = {(missing.keeper, missing.kept) for missing in found.missing}
    for node, asked, _, known in keepers:
        made = [kept for kept in asked.values() if _is_made(kept) and node in passed]
        unused = [kept for kept in made if (node, kept) not in used]
        if known:
            found.constant += [kept for kept in unused if isinstance(kept, Kept)]
        elif unused:
            found.unasked.append(node)  # elsewhere it is not used; here it may be
    return found


def _keeper(graph: Graph, node: Node, named: list[Tensor]) -> Keeper:
    """A Function and what it keeps: inputs and outputs moved by themselves, what it has made as
    forward moves it with the inputs.

    Raises:
        NotKnown: forward cannot be called as it was.
    """
    kinds = float, complex, np.number, np.ndarray
    made: Asked = {id(v): name for name, v in vars(node.fn).items() if isinstance(v, kinds)}
    made |= {id(kept.tensor): kept for kept in _kept(node, *MADE)}
    others = {id(kept.tensor): kept for kept in _kept(node, walk.INPUT, walk.OUTPUT)}
    own_lines = {key: _line([kept.tensor]) for key, kept in others.items()}
    inputs, known = _inputs(graph, node, named) if made else ([], True)
    call = Call(node.custom, inputs, {}, State.now(draws=False))
    line, draws = _line(inputs), Draws.now()

    @functools.cache
    def at(h: float) -> Instead:
        moved: Instead = {key: own.x(h)[0] for key, own in own_lines.items()}
        if not made:
            return moved
        draws.put_back()
        with torch.no_grad():
            ctx, _ = forward_again(call, dict(enumerate(line.x(h))))
        again = [*(t for t in ctx.saved_tensors if t is not None), *walk.tensors_in(ctx.attributes)]
        tensors = {id(kept.tensor): t for kept, t in zip(node.kept, again, strict=True)}
        numbers = {key: ctx.kept(name) for key, name in made.items() if isinstance(name, str)}
        return tensors | numbers | moved

    return node, made | others, at, known


def _kept(node: Node, *roles: walk.Role) -> list[Any]:
    """What a custom Function keeps in these roles, and finite differences can move."""
    return [kept for kept in node.kept if kept.role in roles and _is_plain(kept.tensor)]


def _is_made(kept: Kept | str) -> bool:
    return isinstance(kept, str) or kept.role in MADE


def _is_plain(t: Tensor | None) -> bool:
    if t is None or t.layout is not torch.strided or t.device.type == "meta":
        return False
    return t.dtype in STEPS


def _line(tensors: list[Tensor]) -> Line:
    """From some tensors on, in proportion to them."""
    return Line.of(Subject(list, tuple(tensors), ()))


def _inputs(graph: Graph, node: Node, named: list[Tensor]) -> tuple[list[Tensor], bool]:
    """The tensors that the Function was applied to: named by the reader, leaves, or saved.

    And False where one of them is a stand-in, of the right shape and dtype, between 0.5 and 1.
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
    """Which arguments of forward need a gradient; torch hands a last one to that of an operator."""
    needs: tuple[bool, ...] = cast(Any, node.fn).needs_input_grad
    return needs if operator_of(node.custom) is None else needs[:-1]


def _stand_in(edge: Edge) -> Tensor:
    zeros = _zeros(grad_outs_of(edge[0])[edge[1]])
    return torch.linspace(0.5, 1, zeros.numel()).to(zeros).reshape(zeros.shape)


def _zeros(meta: Any) -> Tensor:
    return torch.zeros(meta.shape, dtype=meta.dtype, device=meta.device)


def _look(graph: Graph, each: Pass, keepers: list[Keeper], found: Findings) -> set[Node]:
    """Find the paths that a pass lacks; the Functions among the keepers that it goes through."""
    leads = _leading(graph, graph.node_of(each.by))
    arrived = _again(graph, each, leads, {})
    if not close(arrived[origin(each.by)], each.gradient):
        raise NotKnown
    used, passed = dict[int, tuple[Node, Any]](), set[Node]()
    for node, asked, at, _ in keepers:
        grads = _grads(node, arrived)
        if any(grad is not None for grad in grads):
            passed.add(node)
            used |= {
                k: (node, kept) for k, kept in asked.items() if _uses(node, grads, leads, k, at)
            }
    leaves = {
        key: kept.tensor.detach().requires_grad_()
        for key, (_, kept) in used.items()
        if _is_made(kept) and not isinstance(kept, str)
    }
    again = _again(graph, each, leads, leaves)[origin(each.by)]
    ends = _compare(graph, each.gradient, again, leaves)
    ends += [(key, node) for key, (node, _) in used.items() if key not in dict(ends)]
    found.missing += [Missing(*used[key], to, each.name) for key, to in ends]
    return passed


def _leading(graph: Graph, end: Node | None) -> set[Node]:
    """The nodes through which a pass comes to `end`."""
    leads: set[Node] = set()
    for node in reversed(graph.nodes):
        if node is end or any(source and source[0] in leads for source in node.inputs):
            leads.add(node)
    return leads


def _uses(node: Node, grads: list[Tensor | None], leads: set[Node], key: int, at: At) -> bool:
    """Whether what backward returns moves with something, and not by a graph; a jump is no move."""

    def returned(h: float) -> list[Tensor]:
        draw = torch.Generator().manual_seed(4)
        u = [None if g is None else signed(g, draw) for g in grads]  # backward may write into it
        return [grad for _, grad in _sent(node, u, leads, {key: at(h)[key]})]

    here, value = returned(0.0), at(0.0)[key]
    if not here or isinstance(value, Tensor) and walk.walk(*here).node_of(value):
        return False
    found = slope(lambda h: flat(returned(h)), here[0].dtype, 1.0)
    moves = bool((found.value.abs() > 5 * found.error).any())
    if not (moves or found.error.isfinite().all()):
        raise NotKnown
    return moves


def _again(graph: Graph, each: Pass, leads: set[Node], instead: Instead) -> Arrived:
    """A backward pass, node by node and in torch's order, but without hooks; what arrives where."""
    arrived: Arrived = {}
    for of, seed in zip(each.of, each.seeds, strict=True):
        arrived[origin(of)] = torch.ones_like(of) if seed is None else seed.clone()
    nodes = graph.reachable(*each.of) & leads - {graph.node_of(each.by)}
    for node in sorted(nodes, key=lambda node: number_of(node.fn), reverse=True):
        grads = _grads(node, arrived)
        for edge, grad in _sent(node, grads, leads, instead):
            arrived[edge] = arrived[edge] + grad if edge in arrived else grad
    return arrived


def _grads(node: Node, arrived: Arrived) -> list[Tensor | None]:
    """What has arrived at a node, for each of its outputs."""
    return [arrived.get((node.fn, number)) for number in range(len(grad_outs_of(node.fn)))]


def _sent(
    node: Node, grads: list[Tensor | None], leads: set[Node], instead: Instead
) -> list[tuple[Edge, Tensor]]:
    """What one node sends on; nothing where nothing has arrived. No hook runs."""
    fn: Any = node.fn
    if all(grad is None for grad in grads):
        return []
    if node.custom is None:
        sent = fn(*grads)
    else:
        full = [_zeros(m) if g is None else g for g, m in zip(grads, grad_outs_of(fn), strict=True)]
        sent = getattr(node.custom, backward_method(node.custom))(_notepad(node, instead), *full)
    sent = list(sent) if isinstance(sent, (tuple, list)) else [sent]
    if node.custom is not None:  # answers for every argument of forward; only tensors have an edge
        needed = (g for g, needed in zip(sent, _needs(node), strict=False) if needed)
        sent = [None if source is None else next(needed) for source in node.inputs]
    return [
        ((source[0].fn, source[1]), fitting(grad, grad_outs_of(source[0].fn)[source[1]]))
        for source, grad in zip(node.inputs, sent, strict=False)
        if source is not None and source[0] in leads and grad is not None
    ]


def _notepad(node: Node, instead: Instead) -> Notepad:
    """Stands in for a ctx: with copies, and with what is there `instead`."""

    def copied(value: Any) -> Any:
        value = instead.get(id(value), value)
        if isinstance(value, Tensor):
            return value.clone()
        return value.copy() if isinstance(value, np.ndarray) else value

    ctx: Any = node.fn
    notepad: Any = Notepad(_needs(node))
    read = iter(node.kept)  # begins with what is saved: torch hands out others each time
    saved = [None if t is None else copied(next(read).tensor) for t in ctx.saved_tensors]
    notepad.saved_tensors = tuple(saved)
    for name, value in vars(ctx).items():
        setattr(notepad, name, tree_map(copied, value))
    return notepad


def _compare(
    graph: Graph, actual: Tensor, again: Tensor, leaves: Instead
) -> list[tuple[int, Node | None]]:
    """(id of the kept tensor, operation) for each edge that only the graph with leaves has."""
    graph_again = walk.walk(again)
    own = {graph_again.node_of(leaf): key for key, leaf in leaves.items()}
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
    """Functions are called inside; outside nothing is seen of it: no state, no text, no warning."""
    with (
        State.now().drawn_again(),
        Surroundings(*functions).unchanged(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        warnings.catch_warnings(action="ignore"),
        torch.enable_grad(),
    ):
        yield
