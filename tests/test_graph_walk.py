"""Reading an autograd graph, against Functions whose graph is known."""

import torch

from lessons_src.graph_walk import INPUT, walk
from lessons_src.saving_inputs import Square


def leaf():
    return torch.tensor([0.5, 1.0], dtype=torch.float64, requires_grad=True)


def test_walk_lists_each_node_before_its_inputs():
    x = leaf()
    a = x.sin()
    graph = walk(a * x + a)
    place = {node: i for i, node in enumerate(graph.nodes)}
    assert [n.title for n in graph.nodes] == [
        "AddBackward0",
        "MulBackward0",
        "SinBackward0",
        "AccumulateGrad",
    ]
    for node in graph.nodes:
        assert all(place[node] < place[edge[0]] for edge in node.inputs if edge)


def test_saved_input_is_found_as_that_input():
    x = leaf()
    graph = walk(Square.apply(x))
    (kept,) = graph.nodes[0].kept
    assert (kept.role, kept.position, kept.on_ctx) == (INPUT, 0, False)
    assert graph.nodes[0].title == "Square"
