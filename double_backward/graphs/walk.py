"""Reads an autograd graph: its nodes, their edges, and the tensors that they keep.

No function here is recursive, so that a chain of 100,000 operations can be read, too.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Literal, cast

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import Node as AutogradNode

from double_backward._torch import (
    as_plain_tensors,
    metadata_of,
    saved_attributes,
    unwrapped,
)
from double_backward.lines import first_line
from double_backward.methods import is_once_differentiable
from double_backward.operators import custom_of

# The roles of a tensor for the node that keeps it. Only the first two lead further into the graph.
INPUT: Final = "input"
OUTPUT: Final = "output"
INTERMEDIATE: Final = "intermediate"  # no graph, and neither an input nor an output
# An input that needs no gradient, or an intermediate: the node does not show which.
NO_GRAPH: Final = "no graph"
ELSEWHERE: Final = "elsewhere"  # has a graph, but not that of an input or an output of this node
UNREADABLE: Final = "unreadable"  # freed, or changed in place since

Role = Literal["input", "output", "intermediate", "no graph", "elsewhere", "unreadable"]
Edge = tuple[AutogradNode, int]  # an autograd node, and which of its outputs

FREED_AT_ONCE = 1000  # nodes, see _free_in_steps


@dataclass(frozen=True, eq=False)
class Kept:
    """One tensor that a node keeps for its backward.

    Attributes:
        name: the attribute on ctx ("expx"), the name torch uses in a built-in operation ("self"),
            or "" for a tensor given to `save_for_backward`.
        on_ctx: True for an attribute of ctx, False for a tensor that torch saved.
        tensor: the tensor, or None where it could not be read.
        role: one of the constants above.
        position: which input or which output it is, counted from 0; None for the other roles.
        error: what torch, or a hook, said where it could not be read, else "".
    """

    name: str
    on_ctx: bool
    tensor: Tensor | None
    role: Role
    position: int | None = None
    error: str = ""


@dataclass(eq=False)
class Node:
    """One node of the graph.

    Attributes:
        fn: the autograd node, as in `tensor.grad_fn`.
        title: the class of a custom Function ("Square"), else torch's name ("MulBackward0").
        inputs: one entry for each tensor input of the operation: (node, which of its outputs),
            or None where no graph leads on.
        owner: what keeps `fn` alive, see `owner_of`.
    """

    fn: AutogradNode
    title: str
    owner: AutogradNode = field(repr=False)
    inputs: "list[Source | None]" = field(default_factory=list, repr=False)

    @property
    def custom(self) -> type[Function] | None:
        """The `torch.autograd.Function` subclass, or None for an operation of torch."""
        return custom_of(self.fn)

    @property
    def once_differentiable(self) -> bool:
        """True for a custom Function whose backward is decorated with `once_differentiable`."""
        return is_once_differentiable(self.custom)

    @property
    def leaf(self) -> Tensor | None:
        """The leaf tensor that this node collects the gradient of, else None."""
        return None if self.custom else getattr(self.fn, "variable", None)

    @cached_property
    def kept(self) -> list[Kept]:
        """What torch saved for this node, then what was stored on ctx."""
        if self.custom is None:
            return _saved_by_torch(self)
        return _saved_by_function(self) + _stored_on_ctx(self)


Source = tuple[Node, int]  # where a tensor comes from: a node, and the number of the output


@dataclass(eq=False)
class Graph:
    """Nodes in an order in which each comes before its inputs, the results first."""

    nodes: list[Node]

    def __post_init__(self) -> None:
        self._by_fn = {node.fn: node for node in self.nodes}

    def node_of(self, tensor: Tensor) -> Node | None:
        """The node that made `tensor` (for a leaf: that collects its gradient), or None."""
        if tensor.grad_fn is not None:
            return self._by_fn.get(tensor.grad_fn)
        return self._by_leaf.get(id(tensor))

    @cached_property
    def _by_leaf(self) -> dict[int, Node]:
        """The nodes of the leaves. They are found by these, since behind a leaf of a transform of
        `torch.func` that has ended, as that of `vjp` has, no operation is recorded any more."""
        return {id(node.leaf): node for node in self.nodes if node.leaf is not None}

    @property
    def leaves(self) -> list[Tensor]:
        """The leaf tensors from which the results were computed, each once."""
        return [node.leaf for node in self.nodes if node.leaf is not None]

    def reachable(self, *tensors: Tensor) -> set[Node]:
        """The nodes that can be reached from `tensors`, their own nodes included."""
        todo = [node for node in map(self.node_of, tensors) if node is not None]
        seen = set(todo)
        while todo:
            for edge in todo.pop().inputs:
                if edge is not None and edge[0] not in seen:
                    seen.add(edge[0])
                    todo.append(edge[0])
        return seen


def origin(tensor: Tensor) -> Edge | None:
    """(fn, output number) that autograd would follow from `tensor`, or None without a graph."""
    if not tensor.requires_grad:
        return None
    if tensor.grad_fn is not None:
        return tensor.grad_fn, tensor.output_nr
    # The node of a leaf can be seen only behind an operation. A view that was made where nothing is
    # recorded has no node: its requires_grad is that of its base.
    fn, number = owner_of(tensor).next_functions[0]
    return None if fn is None else (fn, number)


def owner_of(tensor: Tensor) -> AutogradNode:
    """Something that keeps the graph behind `tensor` readable for as long as it is held.

    Up to torch 2.12 the node of a custom Function is dead once its output is gone: it belongs to
    the operations that lead to it, and what Python holds as `grad_fn` reads "already been freed".
    So code that keeps a node has to keep an operation of torch in front of it, as
    `torch.autograd.graph.get_gradient_edge` does, too.
    """
    with torch.enable_grad(), as_plain_tensors():  # a subclass might add a node
        # A sparse tensor has no views.
        behind = tensor.view_as(tensor) if tensor.layout is torch.strided else tensor.clone()
    return cast(AutogradNode, behind.grad_fn)


# The nodes from the start of a walk to the current one, each with the edges still to be followed.
Path = list[tuple[Node, Iterator[Edge]]]


def walk(*tensors: Tensor) -> Graph:
    """Read the graph behind `tensors`.

    Args:
        tensors: tensors of any shape and dtype; those without a graph add nothing.

    Returns:
        `Graph`. The order depends on the graph and on the order of `tensors` alone.
    """
    made: dict[AutogradNode, Node] = {}
    done: list[Node] = []  # every node after its inputs
    for tensor in reversed(tensors):
        edge = origin(tensor)
        if edge is not None and edge[0] not in made:
            _walk_from(edge[0], owner_of(tensor), made, done)
    return Graph(done[::-1])


def _walk_from(
    start: AutogradNode,
    owner: AutogradNode,
    made: dict[AutogradNode, Node],
    done: list[Node],
) -> None:
    """Add the nodes behind `start` that are not in `made` yet to `made` and `done`."""
    path: Path = []

    def enter(fn: AutogradNode) -> None:
        made[fn] = Node(fn, (custom_of(fn) or type(fn)).__name__, owner)
        path.append((made[fn], iter(getattr(fn, "next_functions", ()))))
        _free_in_steps(path)

    enter(start)
    while path:
        node, edges = path[-1]
        for fn, number in edges:
            if fn is None:
                node.inputs.append(None)
                continue
            new = fn not in made
            if new:
                enter(fn)
            node.inputs.append((made[fn], number))
            if new:
                break  # its own inputs first; the other edges of this node when they are done
        else:
            done.append(path.pop()[0])


def _free_in_steps(path: Path) -> None:
    """Let torch free a deep graph whose nodes Python has seen.

    Torch 2.13 frees such nodes recursively, and crashes on a chain of some 50,000 when the reader's
    tensor is deleted. A node that holds another one far behind it ends the recursion there.
    """
    if len(path) % FREED_AT_ONCE == 0:
        metadata_of(path[-FREED_AT_ONCE][0].fn)["double_backward"] = path[-1][0].fn


def _saved_by_function(node: Node) -> list[Kept]:
    try:
        tensors = cast(BackwardCFunction, node.fn).saved_tensors  # the ctx of forward
    except Exception as error:  # a freed graph, an in-place edit, a hook of the reader's
        return [Kept("", False, None, UNREADABLE, error=first_line(error))]
    return [_classify(node, "", False, t) for t in tensors if t is not None]


def _saved_by_torch(node: Node) -> list[Kept]:
    kept: list[Kept] = []
    for attribute in saved_attributes(type(node.fn)):
        name = attribute.removeprefix("_saved_")
        try:
            value = getattr(node.fn, attribute)
        except Exception as error:
            return [Kept(name, False, None, UNREADABLE, error=first_line(error))]
        kept += [_classify(node, name, False, tensor) for tensor in tensors_in(value)]
    return kept


def _stored_on_ctx(node: Node) -> list[Kept]:
    return [
        _classify(node, name, True, tensor)
        for name, value in vars(node.fn).items()
        for tensor in tensors_in(value)
    ]


def tensors_in(value: object) -> list[Tensor]:
    """The tensors in `value`, looking into lists, tuples and dicts."""
    found, todo, seen = [], [value], set()
    while todo:
        value = todo.pop()
        if isinstance(value, Tensor):
            found.append(unwrapped(value))
        elif isinstance(value, (list, tuple, dict)) and id(value) not in seen:
            seen.add(id(value))
            todo.extend(reversed(value.values() if isinstance(value, dict) else value))
    return found


def _classify(node: Node, name: str, on_ctx: bool, tensor: Tensor) -> Kept:
    edge = origin(tensor)
    if edge is None:
        # A missing edge is an input that needs no gradient: this could be that input.
        constant = None in node.inputs and not tensor.requires_grad
        return Kept(name, on_ctx, tensor, NO_GRAPH if constant else INTERMEDIATE)
    if edge[0] is node.fn:
        return Kept(name, on_ctx, tensor, OUTPUT, edge[1])
    for position, source in enumerate(node.inputs):
        if source is not None and (source[0].fn, source[1]) == edge:
            return Kept(name, on_ctx, tensor, INPUT, position)
    return Kept(name, on_ctx, tensor, ELSEWHERE)
