"""Collects what is to be told about a graph, before it is drawn or written.

Names are the reader's: `out` is the result of the forward pass, a name that starts with `grad` is a
gradient (`grad_out` is the one that comes in), every other name is an input.
"""

import re
from collections import Counter
from dataclasses import dataclass, field

from torch import Tensor

from double_backward._torch import grad_outs_of
from double_backward.graphs.flow import Flow, number_words
from double_backward.graphs.missing import Findings, Missing, Pass, find
from double_backward.graphs.walk import Edge, Graph, Kept, Node, origin, walk

MOST_DRAWN = 100  # nodes: more are neither readable as a picture nor laid out in seconds


@dataclass(eq=False)
class TensorBox:
    """A tensor that gets a line of its own: one named by the reader, kept by a Function, or a leaf.

    Attributes:
        tensor: the tensor.
        maker: the node it comes from, None without a graph.
        number: which of that node's outputs it is.
        names: the reader's names for it, in the order given.
        keepers: the custom Functions that keep it.
        fed: built-in operations that saved it as a constant.
    """

    tensor: Tensor
    maker: Node | None
    number: int
    names: list[str] = field(default_factory=list)
    keepers: list[tuple[Node, Kept]] = field(default_factory=list)
    fed: list[Node] = field(default_factory=list)

    @property
    def called(self) -> str:
        """The reader's names for it, "" where there are none."""
        return " = ".join(self.names)

    @property
    def leaf(self) -> Node | None:
        """The node that collects its gradient where it is a leaf, else None."""
        return None if self.maker is None or self.maker.leaf is None else self.maker


class Sketch:
    """The graph behind named tensors, as boxes, phases and facts.

    Attributes:
        tensors: the tensors by name, in the order given.
        grad_outputs: what a pass from the first of them starts with; None stands for ones.
        graph: `walk.Graph`, the nodes behind them.
        nodes: the nodes, each after its inputs: the order in which the tensors were made.
        shown: the same nodes; empty if there are more than `MOST_DRAWN`.
        boxes: dict from a key to `TensorBox`; the key is (fn, output number) or the id of a tensor
            without a graph.
        phase: dict from node to 0 (forward), 1 (first backward), ...; empty without `out`.
        targets: dict from name to the names that it leads to, of those that it should lead to.
        cut_off: dict from name to the names of which it should lead to at least one, and leads to
            none.
        flow: `flow.Flow` of a backward pass, empty where none was recorded.
        findings: `missing.Findings`, the paths that do not leave what Functions keep.
    """

    def __init__(self, tensors: dict[str, Tensor], grad_outputs: Tensor | None = None):
        self.tensors, self.grad_outputs = tensors, grad_outputs
        self.flow = Flow()
        self.graph = walk(*tensors.values())
        self.phase = _phases(tensors, self.graph)
        # A pass needs the passes before it and nothing else: sorting keeps inputs first.
        last = max(self.phase.values(), default=0) + 1
        backwards = self.graph.nodes[::-1]
        self.nodes = sorted(backwards, key=lambda node: self.phase.get(node, last))
        large = len(self.nodes) > MOST_DRAWN
        self.shown = [] if large else self.nodes
        self._titles = _numbered(self.nodes)
        self.boxes: dict[Edge | int, TensorBox] = {}
        for name, tensor in tensors.items():
            self._make_box(tensor).names.append(name)
        self._add_kept()
        self._add_constants()
        self.targets: dict[str, list[str]] = {}
        self.cut_off: dict[str, list[str]] = {}
        self._find_targets()
        if large:  # too much to run again
            self.findings = Findings(unasked=[node for node in self.nodes if node.custom])
        else:
            self.findings = find(self.graph, list(tensors.values()), self._passes())

    def box(self, node: Node, number: int) -> TensorBox | None:
        """The box of one output of a node, or None where it has none."""
        return self.boxes.get((node.fn, number))

    def box_of(self, tensor: Tensor | None) -> TensorBox:
        """The box of a tensor that has one."""
        assert tensor is not None
        return self.boxes[origin(tensor) or id(tensor)]

    def title(self, node: Node) -> str:
        """The node's title, with a number where several nodes share it."""
        return self._titles[node]

    def outputs(self, node: Node) -> int:
        """How many tensors the operation returned."""
        return len(grad_outs_of(node.fn)) or 1

    def came_back(self, box: TensorBox) -> str | None:
        """What the recorded pass brought back to a tensor; None if it did not reach it."""
        edge = (box.maker.fn, box.number) if box.maker else None
        if edge not in self.flow.arrived:
            return None
        return number_words(self.flow.arrived[edge])

    def sent_back(self, node: Node, position: int) -> str | None:
        """What the recorded pass sent from a node to one of its inputs; None if nothing was
        sent."""
        grad = self.flow.sent.get((node.fn, position))
        return None if grad is None else number_words(grad)

    def missing(self, name: str) -> list[Missing]:
        """The paths that a gradient lacks."""
        return [missing for missing in self.findings.missing if missing.gradient == name]

    def guards(self) -> list[Node]:
        """The nodes that `once_differentiable` put into the graph in order to raise."""
        if not any(node.once_differentiable for node in self.nodes):
            return []
        return [node for node in self.nodes if node.title == "Error" and not node.custom]

    def level(self, thing: Node | TensorBox) -> int | None:
        """The pass in which an operation or a tensor is drawn; None where none is known."""
        if isinstance(thing, Node):
            return self.phase.get(thing)
        home = thing.maker or (thing.keepers[0][0] if thing.keepers else None)
        if home is not None:
            return self.phase.get(home)
        return max((_order(name) for name in thing.names if name.startswith("grad")), default=0)

    def _add_kept(self) -> None:
        """The leaves, and what the custom Functions keep."""
        for node in self.shown:
            if node.leaf is not None:
                self._make_box(node.leaf)
            if node.custom is None:
                continue
            for kept in node.kept:
                if kept.tensor is not None:
                    box = self._make_box(kept.tensor)
                    if not any(n is node and k.name == kept.name for n, k in box.keepers):
                        box.keepers.append((node, kept))

    def _add_constants(self) -> None:
        """Which operations of torch saved a tensor without a graph that has a box already."""
        for node in self.shown:
            if node.custom is not None:
                continue
            for kept in node.kept:
                known = self.boxes.get(id(kept.tensor))
                if known is not None and node not in known.fed:
                    known.fed.append(node)

    def _make_box(self, tensor: Tensor) -> TensorBox:
        edge = origin(tensor)
        new = TensorBox(tensor, self.graph.node_of(tensor), edge[1] if edge else 0)
        return self.boxes.setdefault(edge or id(tensor), new)

    def _passes(self) -> list[Pass]:
        """The backward passes that gave the named gradients, as far as the names tell."""
        found = []
        for name, gradient in self.tensors.items():
            if not is_gradient(name):
                continue
            below = {
                other: tensor
                for other, tensor in self.tensors.items()
                if (base(other) == "out" if _order(name) == 1 else _is_below(other, name))
            }
            seeds = [self.tensors.get(f"grad_{other}") for other in below]
            onwards = self.grad_outputs if name == next(iter(self.tensors)) else None
            for by in self.targets.get(name, []) + self.cut_off.get(name, []):
                if below and self.tensors[by].shape == gradient.shape:
                    of, end = list(below.values()), self.tensors[by]
                    found.append(Pass(name, gradient, of, seeds, by, end, onwards))
        return found

    def _find_targets(self) -> None:
        reached = {name: self.graph.reachable(t) for name, t in self.tensors.items()}
        for name, reach in reached.items():
            box = self.box_of(self.tensors[name])
            if box.maker is None and (box.keepers or box.fed):
                continue  # a constant on purpose: an operation of the graph uses it
            wanted = _should_reach(name, self.tensors, self.graph, reached)
            found = [other for other in wanted if self.graph.node_of(self.tensors[other]) in reach]
            if found:
                self.targets[name] = found
            elif wanted:
                self.cut_off[name] = wanted


def _numbered(nodes: list[Node]) -> dict[Node, str]:
    """The titles of the nodes: "Exp", or "Exp #1", "Exp #2" where several share one."""
    count = Counter(node.title for node in nodes)
    seen: Counter[str] = Counter()
    titles = {}
    for node in nodes:
        seen[node.title] += 1
        many = count[node.title] > 1
        titles[node] = f"{node.title} #{seen[node.title]}" if many else node.title
    return titles


def stem(name: str) -> str:
    """The name of what a gradient belongs to: "x" for "grad_x", "grad2_x" or "grad_grad_x[0]"."""
    return re.sub(r"^(grad\d*_?)+", "", base(name))


def base(name: str) -> str:
    """The reader's name without the place in a list: "out" for "out[1]"."""
    return name.partition("[")[0]


def is_gradient(name: str) -> bool:
    """True for the name of a gradient that a backward pass returned."""
    return name.startswith("grad") and stem(name) != "out"


def is_input(name: str) -> bool:
    """True for a name that is neither the result nor a gradient."""
    return base(name) != "out" and not name.startswith("grad")


def _phases(tensors: dict[str, Tensor], graph: Graph) -> dict[Node, int]:
    results = [tensor for name, tensor in tensors.items() if base(name) == "out"]
    if not results:
        return {}
    phase = dict.fromkeys(graph.reachable(*results), 0)
    gradients = [
        (name, graph.reachable(tensor)) for name, tensor in tensors.items() if is_gradient(name)
    ]
    levels: dict[Node | None, int] = {}  # node of a gradient -> its level
    for name, reached in sorted(gradients, key=lambda gradient: len(gradient[1])):
        node = graph.node_of(tensors[name])
        below = [level for other, level in levels.items() if other in reached and other is not node]
        levels[node] = max([_order(name) - 1, *below]) + 1
        for each in reached:
            phase.setdefault(each, levels[node])
    return phase


def _order(name: str) -> int:
    """The order in a gradient's name: 2 for "grad2_x" and "grad_grad_x"."""
    digits = re.match(r"grad(\d+)", name)
    return int(digits[1]) if digits else max(1, len(re.findall("grad", name)))


def _is_below(name: str, other: str) -> bool:
    """True for the gradient that `other` is the gradient of: "grad_x" for "grad2_x"."""
    return is_gradient(name) and stem(name) == stem(other) and _order(name) == _order(other) - 1


def _should_reach(
    name: str, tensors: dict[str, Tensor], graph: Graph, reached: dict[str, set[Node]]
) -> list[str]:
    """The names of which the graph behind `name` has to lead to at least one; else it is cut
    off."""
    inputs = [other for other in tensors if is_input(other) and other != name]
    if is_gradient(name):
        return [other for other in inputs if base(other) == stem(name)] or inputs
    if base(name) == "out":
        return inputs
    node = graph.node_of(tensors[name])
    if name.startswith("grad") or any(
        node in reach for other, reach in reached.items() if other != name
    ):
        return []
    if node is None:
        return inputs
    # Another input: results come before inputs in a call, so only later names count.
    later = list(tensors)[list(tensors).index(name) :]
    return [other for other in inputs if other in later and graph.node_of(tensors[other])]
