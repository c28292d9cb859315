"""The paths that should leave what a Function keeps, and do not.

A Function that keeps a tensor of its own making gets it back without a graph: whatever its backward
computes from it is a constant to autograd. Which paths are missing is measured, in two steps.
Forward is called beside the point, to see which kept tensors change with the inputs; a mask does
not. Then the first backward is run once more, node by node, with those tensors as leaves that
require grad. The edges that only this second graph has are the missing ones.

Nothing of the reader's is written: Functions get copies, and no hook and no `.grad` is touched.
Where one of the two steps cannot be taken, nothing is claimed.
"""

import contextlib
import heapq
import io
import math
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function

from double_backward._torch import grad_outs_of, number_of, tree_map
from double_backward.differences import close
from double_backward.graphs.walk import (
    INPUT,
    INTERMEDIATE,
    NO_GRAPH,
    OUTPUT,
    Edge,
    Graph,
    Kept,
    Node,
    Source,
    origin,
    walk,
)
from double_backward.state import State, Surroundings

STEP = {torch.float64: 1e-5, torch.float32: 1e-3}  # relative, for the inputs of forward
FEW = 20  # connected tensors that are looked at; each costs two backward passes
HALVES = 0.2, 0.8  # of a change, what half a step makes of it; a jump stays whole or goes


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


Key = int | tuple[Node, str]  # the id of a kept tensor; a Function and the name of a number
Leaves = dict[Key, Tensor]  # what stands in for what is kept


class NotKnown(Exception):
    """The question cannot be asked of this graph."""


def find(graph: Graph, named: list[Tensor], passes: list[Pass]) -> Findings:
    """Ask every custom Function of a graph which paths do not leave what it keeps.

    Args:
        graph: the graph behind all tensors of `named` and `passes`.
        named: tensors whose values are known, as those that the reader named.
        passes: the backward passes that are run once more.
    """
    found = Findings()
    taken: list[tuple[Node, Kept]] = []
    uses: list[tuple[Node, Kept | str]] = []
    for node in graph.nodes if passes else []:
        if suspects(node) or _numbers(node):
            try:
                tensors, numbers = changing(graph, node, named)
            except Exception:  # NotKnown, or whatever forward raises
                found.unasked.append(node)
                continue
            taken += [(node, kept) for kept in tensors]
            uses += [(node, name) for name in numbers]
            found.constant += [kept for kept in suspects(node) if kept not in tensors]
        uses += [(node, kept) for kept in _connected(node)]
    keepers = list(dict.fromkeys(node for node, _ in [*taken, *uses[:FEW]]))
    for each in passes if keepers else []:
        try:
            with _nothing_changes(*keepers), torch.enable_grad():
                found.missing += _missing(graph, each, taken)
                for node, kept in uses[:FEW]:
                    if _is_lost(graph, each, node, kept):
                        found.lost.append(Lost(node, kept, each.name))
        except Exception:  # NotKnown, or whatever backward raises
            found.unasked += [node for node in keepers if node not in found.unasked]
    return found


def _connected(node: Node) -> list[Kept]:
    """What a custom Function gets back with its graph."""
    if node.custom is None or node.once_differentiable:
        return []
    return [
        kept
        for kept in node.kept
        if kept.role in (INPUT, OUTPUT) and kept.tensor is not None and kept.tensor.dtype in STEP
    ]


def suspects(node: Node) -> list[Kept]:
    """What a custom Function keeps that autograd takes for a constant, and could differentiate."""
    if node.custom is None or node.once_differentiable:
        return []
    return [
        kept
        for kept in node.kept
        if kept.role in (INTERMEDIATE, NO_GRAPH)
        and kept.tensor is not None
        and kept.tensor.dtype in STEP
        and kept.tensor.layout is torch.strided
        and kept.tensor.device.type != "meta"
    ]


def _numbers(node: Node) -> dict[str, np.ndarray]:
    """The numbers and arrays on the ctx of a custom Function, by name."""
    if node.custom is None or node.once_differentiable:
        return {}
    kinds = float, complex, np.floating, np.ndarray
    held = {name: value for name, value in vars(node.fn).items() if isinstance(value, kinds)}
    return {n: v for n, v in ((n, np.array(v)) for n, v in held.items()) if v.dtype.kind in "fc"}


def changing(graph: Graph, node: Node, named: list[Tensor]) -> tuple[list[Kept], list[str]]:
    """Those of `suspects(node)`, and of its numbers, that change with the Function's inputs.

    An input whose value is nowhere to be found gets other values: what changes there, changes.

    Raises:
        NotKnown: forward cannot be called as it was, or makes other tensors now.
    """
    (inputs, known), wanted = _inputs(graph, node, named), suspects(node)
    with _nothing_changes(node):
        here, half, whole = (_kept_beside(node, inputs, part) for part in (0.0, 0.5, 1.0))
    actual = _everything(node)
    if not here.keys() == half.keys() == whole.keys() == actual.keys():
        raise NotKnown
    keys: list[int | str] = list(actual)
    moved = {key for key in keys if _moves(here[key], half[key], whole[key])}
    tensors = [kept for place, kept in enumerate(node.kept) if place in moved and kept in wanted]
    numbers = sorted(key for key in moved if isinstance(key, str))
    if known:
        asked: list[int | str] = [place for place, kept in enumerate(node.kept) if kept in tensors]
        if not all(close(here[key], actual[key]) for key in [*asked, *numbers]):
            raise NotKnown
    elif len(tensors) + len(numbers) < len(wanted) + len(_numbers(node)):
        raise NotKnown  # elsewhere it does not change; here it may
    return tensors, numbers


def _inputs(graph: Graph, node: Node, named: list[Tensor]) -> tuple[list[Tensor], bool]:
    """The tensors that the Function was applied to: named by the reader, leaves, or saved.

    And False where one of them is a stand-in, of the right shape and dtype, between 0.5 and 1.
    """
    args: Any = node.fn
    if len(args.needs_input_grad) != len(node.inputs):
        raise NotKnown  # an argument that is no tensor: nothing tells what it was
    known: dict[Edge, Tensor] = {}
    kept = [kept.tensor for other in graph.nodes for kept in other.kept]
    leaves = [other.leaf for other in graph.nodes]
    for tensor in [*named, *leaves, *kept]:
        if tensor is not None and (edge := origin(tensor)) is not None:
            known.setdefault(edge, tensor)
    found, all_known = [], True
    for source in node.inputs:
        if source is None:
            raise NotKnown
        tensor = known.get((source[0].fn, source[1]))
        if tensor is None:
            tensor, all_known = _stand_in_for(source), False
        if tensor.dtype not in STEP or tensor.layout is not torch.strided:
            raise NotKnown
        found.append(tensor)
    return found, all_known


def _stand_in_for(source: Source) -> Tensor:
    fn: Any = source[0].fn
    meta = grad_outs_of(fn)[source[1]]
    size = math.prod(meta.shape)
    return torch.linspace(0.5, 1, size, dtype=meta.dtype, device=meta.device).reshape(meta.shape)


def _kept_beside(node: Node, inputs: list[Tensor], part: float) -> dict[int | str, Tensor]:
    """What forward keeps when it is called again `part` of a step away from its inputs."""
    assert node.custom is not None
    torch.manual_seed(0)  # a mask drawn at random is the same in every call
    arguments = []
    for x in inputs:
        x = x.detach().clone()
        x = x + part * STEP[x.dtype] * (x.abs() + x.abs().mean())
        arguments.append(x.requires_grad_().clone())  # forward may work in place
    with torch.enable_grad():
        outputs = node.custom.apply(*arguments)
    for output in outputs if isinstance(outputs, tuple) else (outputs,):
        again = walk(output).node_of(output) if isinstance(output, Tensor) else None
        if again is not None and again.custom is node.custom:
            break
    else:
        raise NotKnown
    if [(k.name, k.on_ctx) for k in again.kept] != [(k.name, k.on_ctx) for k in node.kept]:
        raise NotKnown
    return _everything(again)


def _everything(node: Node) -> dict[int | str, Tensor]:
    """What a node keeps: tensors by their place in `node.kept`, numbers by their names."""
    found: dict[int | str, Tensor] = {n: torch.from_numpy(v) for n, v in _numbers(node).items()}
    for place, kept in enumerate(node.kept):
        if kept.tensor is None:
            raise NotKnown
        if kept.tensor.dtype in STEP and kept.tensor.layout is torch.strided:
            found[place] = kept.tensor.detach().clone()
    return found


def _moves(here: Tensor, half: Tensor, whole: Tensor) -> bool:
    """True if an element changes with the step; a jump does not grow as the step does."""
    if not here.shape == half.shape == whole.shape or not here.isfinite().all():
        raise NotKnown
    noise = 100 * torch.finfo(here.dtype).eps * here.abs().clamp(min=1e-30)
    change = (whole - here).abs()
    share = (half - here).abs() / change
    return bool(((change > noise) & (share > HALVES[0]) & (share < HALVES[1])).any())


def _missing(graph: Graph, each: Pass, taken: list[tuple[Node, Kept]]) -> list[Missing]:
    """The paths that one gradient lacks."""
    leaves: dict[int, Tensor] = {
        id(tensor): tensor.detach().clone().requires_grad_() for tensor in _tensors(taken)
    }
    again = _backward(graph, each, dict(leaves.items()))
    if again is None or not close(again, each.gradient):
        raise NotKnown
    found = _compare(graph, each.gradient, walk(again), again, leaves)
    keepers = {id(kept.tensor): (node, kept) for node, kept in taken}
    return [Missing(*keepers[which], to, each.name) for which, to in found]


def _is_lost(graph: Graph, each: Pass, node: Node, kept: Kept | str) -> bool:
    """True if a gradient changes with something kept to which its graph would not lead."""
    key: Key
    if isinstance(kept, str):
        key, there = (node, kept), torch.from_numpy(_numbers(node)[kept])
    else:
        assert kept.tensor is not None
        key, there = id(kept.tensor), kept.tensor.detach().clone().requires_grad_()
    again = _backward(graph, each, {key: there})
    if again is None or walk(again).node_of(there) is not None:
        return False
    there, size = there.detach(), there.detach().abs()
    step = STEP.get(there.dtype, STEP[torch.float64]) * (size + size.mean())
    half, whole = (_backward(graph, each, {key: there + part * step}) for part in (0.5, 1.0))
    return half is not None and whole is not None and _moves(again, half, whole)


def _tensors(taken: list[tuple[Node, Kept]]) -> list[Tensor]:
    return [kept.tensor for _, kept in taken if kept.tensor is not None]


def _backward(graph: Graph, each: Pass, leaves: Leaves) -> Tensor | None:
    """A backward pass as torch runs it, node by node and in torch's order, but without hooks.

    Args:
        leaves: what the Functions get in place of what they keep.

    Returns:
        The gradient, or None where no path leads from the results to the input.
    """
    end = graph.node_of(each.by)
    leads: set[Node] = set()  # the nodes from which the input is reached
    for node in reversed(graph.nodes):
        if node is end or any(source and source[0] in leads for source in node.inputs):
            leads.add(node)
    arrived: dict[Edge, Tensor] = {}
    starts = []
    for of, seed in zip(each.of, each.seeds, strict=True):
        edge, start = origin(of), graph.node_of(of)
        if edge is not None and start is not None and start in leads:
            arrived[edge] = torch.ones_like(of) if seed is None else seed.clone()
            starts.append(start)
    passed = graph.reachable(*each.of) & leads
    waits = Counter(source[0] for node in passed for source in node.inputs if source)
    # torch takes the operation that was made last.
    ready: list[tuple[int, int, Node]] = []
    for start in dict.fromkeys(starts):
        if not waits[start]:
            ready.append((0, -len(ready), start))
    heapq.heapify(ready)
    while ready:
        node = heapq.heappop(ready)[-1]
        if node is end:
            return arrived.get((node.fn, each.by.output_nr))
        grads = _sent(node, arrived, leaves)
        for position, source in enumerate(node.inputs):
            if source is None or source[0] not in leads:
                continue
            edge = source[0].fn, source[1]
            grad = grads[position] if position < len(grads) else None
            if grad is not None:
                grad = _fitting(grad, edge)
                arrived[edge] = arrived[edge] + grad if edge in arrived else grad
            waits[source[0]] -= 1
            if not waits[source[0]]:
                made = number_of(source[0].fn)
                heapq.heappush(ready, (-made, -len(arrived), source[0]))
    return None


def _sent(node: Node, arrived: dict[Edge, Tensor], leaves: Leaves) -> list[Any]:
    """What one node sends to its inputs; no hook runs."""
    fn: Any = node.fn
    grads = [arrived.get((fn, number)) for number in range(len(grad_outs_of(fn)))]
    if all(grad is None for grad in grads):
        return []
    if node.custom is None:
        sent = fn(*grads)
    else:
        full = [
            torch.zeros(meta.shape, dtype=meta.dtype, device=meta.device) if grad is None else grad
            for grad, meta in zip(grads, grad_outs_of(fn), strict=True)
        ]
        written = node.custom.backward
        if written is Function.backward:
            written = node.custom.vjp
        sent = written(_StandIn(node, leaves), *full)
    sent = list(sent) if isinstance(sent, (tuple, list)) else [sent]
    if node.custom is None:
        return sent
    # backward answers for every argument of forward; only tensors have an edge.
    if len(sent) != len(node.inputs):
        sent = [g for g, needed in zip(sent, fn.needs_input_grad, strict=False) if needed]
        places = [i for i, source in enumerate(node.inputs) if source]
        if len(sent) != len(places):
            raise NotKnown
        given = dict(zip(places, sent, strict=True))
        sent = [given.get(i) for i in range(len(node.inputs))]
    return sent


class _StandIn:
    """A ctx that hands out copies, and a leaf for each tensor in `leaves`."""

    def __init__(self, node: Node, leaves: Leaves):
        def swapped(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            return leaves.get(id(value), value).clone()

        ctx: Any = node.fn
        self.__dict__.update({name: tree_map(swapped, v) for name, v in vars(ctx).items()})
        for name, number in _numbers(node).items():
            now = leaves[node, name].numpy() if (node, name) in leaves else number
            self.__dict__[name] = now.copy() if isinstance(vars(ctx)[name], np.ndarray) else now[()]
        self.__dict__["_stand_in_for"] = ctx
        self.__dict__["saved_tensors"] = tuple(swapped(t) for t in ctx.saved_tensors)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_stand_in_for"], name)


def _fitting(grad: Tensor, edge: Edge) -> Tensor:
    """The gradient in the shape and dtype that torch makes of it on the way to `edge`."""
    fn: Any = edge[0]
    like = fn.variable if hasattr(fn, "variable") else grad_outs_of(fn)[edge[1]]
    if grad.shape != torch.Size(like.shape):
        grad = grad.sum_to_size(*like.shape)
    return grad if grad.dtype == like.dtype else grad.to(like.dtype)


def _compare(
    graph: Graph, actual: Tensor, graph_again: Graph, again: Tensor, leaves: dict[int, Tensor]
) -> list[tuple[int, Node | None]]:
    """(id of the kept tensor, operation) for each edge that only the graph with leaves has."""
    own = {node: which for which, leaf in leaves.items() if (node := graph_again.node_of(leaf))}
    behind: dict[Node, set[int]] = {}  # the leaves that a node leads back to
    for node in reversed(graph_again.nodes):
        behind[node] = {own[node]} if node in own else set()
        for source in node.inputs:
            behind[node] |= behind[source[0]] if source else set()
    order = list(leaves)
    found: list[tuple[int, Node | None]] = []
    first, second = graph.node_of(actual), graph_again.node_of(again)
    if second is None or not behind[second]:
        return []
    if first is None:
        return [(which, None) for which in sorted(behind[second], key=order.index)]
    todo, seen = [(first, second)], {(first, second)}
    while todo:
        here, there = todo.pop()
        if not _match(here, there):
            raise NotKnown
        for source, source_again in zip(here.inputs, there.inputs, strict=True):
            if source_again is None or not behind[source_again[0]]:
                continue
            if source is None:
                which = sorted(behind[source_again[0]], key=order.index)
                found += [(w, here) for w in which if (w, here) not in found]
            elif (pair := (source[0], source_again[0])) not in seen:
                seen.add(pair)
                todo.append(pair)
    return found


def _match(here: Node, there: Node) -> bool:
    """Whether two nodes are the same operation on the same numbers."""
    if here.title != there.title or len(here.inputs) != len(there.inputs):
        return False
    if here.custom is not None:
        return True
    # What needs no gradient is not saved: only the graph with leaves has all of it.
    saved = {kept.name: kept.tensor for kept in there.kept}
    return all(
        kept.tensor is None
        or kept.name not in saved
        or saved[kept.name] is None
        or close(saved[kept.name], kept.tensor)  # type: ignore[arg-type]
        for kept in here.kept
    )


@contextlib.contextmanager
def _nothing_changes(*nodes: Node) -> Iterator[None]:
    """Functions are called inside; outside nothing is seen of it: no state, no text, no warning."""
    roots = [node.custom for node in nodes]
    with (
        State.now().again(),
        Surroundings(*roots).unchanged(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        yield
