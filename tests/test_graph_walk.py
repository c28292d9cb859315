"""Reading an autograd graph: a Function for each way to keep a tensor, and what the walk says."""

import gc
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
import torch
from torch.autograd import Function

from double_backward.graphs.walk import (
    ELSEWHERE,
    INPUT,
    INTERMEDIATE,
    NO_GRAPH,
    OUTPUT,
    UNREADABLE,
    origin,
    walk,
)
from lessons_src.saving_inputs import Square
from lessons_src.saving_intermediates import Sinh
from lessons_src.saving_outputs import Exp
from lessons_src.untracked_backward import Cube
from lessons_src.what_not_to_do import SinhBad

ROOT = Path(__file__).resolve().parent.parent


def function(forward):
    """A Function with this forward; its backward is never called."""
    return type(forward.__name__, (Function,), {"forward": staticmethod(forward)})


def saving(value):
    """Saves value(x), and returns its double."""

    def saves(ctx, x):
        kept = value(x)
        ctx.save_for_backward(kept)
        return kept * 2

    return function(saves)


def returning(value, keep):
    """Returns value(x), and keeps keep(value(x)) on ctx."""

    def returns(ctx, x):
        y = value(x)
        ctx.y = keep(y)
        return y

    return function(returns)


@function
def MarksNonDifferentiable(ctx, x):
    e = torch.exp(x)
    ctx.mark_non_differentiable(e)
    ctx.save_for_backward(e)
    return e * 2, e


@function
def SavesMask(ctx, x, mask):
    ctx.save_for_backward(x, mask)
    return x * mask


@function
def TakesNumbers(ctx, n, x, name, y):
    ctx.n = n
    ctx.save_for_backward(y, x, None)
    return x**n + y


@function
def StashesInContainers(ctx, x):
    ctx.things = [x, {"e": torch.exp(x)}, "word"]
    return x * 2


@function
def EditsInPlace(ctx, x):
    ctx.mark_dirty(x)
    x.exp_()
    ctx.save_for_backward(x)
    return x


class SetsUpContext(Function):
    @staticmethod
    def forward(x):
        return torch.exp(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output)
        ctx.e = torch.exp(inputs[0])


class StashesOutsider(Function):
    @staticmethod
    def forward(ctx, x, other):
        ctx.other = other[0]
        return x * 2


def point(**kwargs):
    """A tensor that is not a leaf, as in the lessons."""
    kwargs = {"dtype": torch.float64, **kwargs}
    return torch.tensor([[0.5, 1.0], [2.0, 3.0]], requires_grad=True, **kwargs).clone()


def leaf():
    return torch.ones(2, 2, requires_grad=True)


x, y = point(), point()
SAVED = [
    (Square.apply, [x], [("", False, INPUT, 0)]),
    (Exp.apply, [x], [("", False, OUTPUT, 0)]),
    (Sinh.apply, [x], [("", False, OUTPUT, 1), ("", False, OUTPUT, 2)]),
    (Cube.apply, [x], [("", False, INPUT, 0)]),
    (SinhBad.apply, [x], [(n, True, INTERMEDIATE, None) for n in ("expx", "expnegx")]),
    (saving(torch.exp).apply, [x], [("", False, INTERMEDIATE, None)]),
    (saving(torch.Tensor.contiguous).apply, [x], [("", False, INPUT, 0)]),
    (saving(torch.Tensor.contiguous).apply, [x.t()], [("", False, INTERMEDIATE, None)]),
    (returning(torch.exp, lambda y: y).apply, [x], [("y", True, OUTPUT, 0)]),
    (returning(torch.exp, torch.detach).apply, [x], [("y", True, INTERMEDIATE, None)]),
    (returning(torch.exp, torch.ravel).apply, [x], [("y", True, INTERMEDIATE, None)]),
    (MarksNonDifferentiable.apply, [x], [("", False, INTERMEDIATE, None)]),
    (SavesMask.apply, [x, x > 1], [("", False, INPUT, 0), ("", False, NO_GRAPH, None)]),
    (TakesNumbers.apply, [3, x, "n", y], [("", False, INPUT, 1), ("", False, INPUT, 0)]),
    (
        StashesInContainers.apply,
        [x],
        [("things", True, INPUT, 0), ("things", True, INTERMEDIATE, None)],
    ),
    (EditsInPlace.apply, [point()], [("", False, OUTPUT, 0)]),
    (
        SetsUpContext.apply,
        [x],
        [("", False, INPUT, 0), ("", False, OUTPUT, 0), ("e", True, INTERMEDIATE, None)],
    ),
    (StashesOutsider.apply, [x, [y.sin()]], [("other", True, ELSEWHERE, None)]),
    (Square.apply, [leaf()], [("", False, INPUT, 0)]),
    (Square.apply, [leaf().to_sparse().detach().requires_grad_()], [("", False, INPUT, 0)]),
    (Square.apply, [point(dtype=torch.complex64)], [("", False, INPUT, 0)]),
    (Square.apply, [x[0]], [("", False, INPUT, 0)]),
]


@pytest.mark.parametrize(
    "fn, inputs, expected",
    SAVED,
    ids=[f"{i}-{case[0].__self__.__name__}" for i, case in enumerate(SAVED)],
)
def test_what_a_function_keeps_is_told_as_input_output_or_intermediate(fn, inputs, expected):
    out = fn(*inputs)
    node = walk(*(out if isinstance(out, tuple) else [out])).nodes[0]
    assert node.title == fn.__self__.__name__
    found = [(kept.name, kept.on_ctx, kept.role, kept.position) for kept in node.kept]
    assert found == expected


def test_a_built_in_operation_tells_what_torch_saved():
    x, constant = leaf(), torch.ones(2, 2)
    (kept,) = walk(x * constant).nodes[0].kept
    assert (kept.name, kept.role) == ("other", NO_GRAPH)
    assert kept.tensor is constant
    roles = {kept.name: (kept.role, kept.position) for kept in walk(x * x.sin()).nodes[0].kept}
    assert roles == {"self": (INPUT, 0), "other": (INPUT, 1)}


def test_nodes_stand_before_their_inputs_and_once_each():
    x = leaf()
    a = x.sin()
    graph = walk(a * x + a, a)
    place = {node: i for i, node in enumerate(graph.nodes)}
    assert [node.title for node in graph.nodes] == [
        "AddBackward0",
        "MulBackward0",
        "SinBackward0",
        "AccumulateGrad",
    ]
    assert all(place[node] < place[edge[0]] for node in graph.nodes for edge in node.inputs if edge)


def test_edges_name_the_output_they_start_from():
    out, expx, expnegx = Sinh.apply(leaf())
    node = walk(expnegx - out).nodes[0]
    assert [(source.title, number) for source, number in node.inputs] == [("Sinh", 2), ("Sinh", 0)]


def test_a_leaf_is_found_by_its_tensor():
    x = leaf()
    graph = walk(x * 2)
    assert graph.node_of(x).leaf is x
    assert graph.node_of(x.detach()) is None


def test_reachable_is_the_way_autograd_would_go():
    x, y = leaf(), leaf()
    a = x * 2
    graph = walk(a * y)
    assert graph.node_of(x) in graph.reachable(a)
    assert graph.node_of(y) not in graph.reachable(a)


@pytest.mark.parametrize(
    "spoil, words",
    [
        (lambda z, out: out.sum().backward(), "retain_graph=True"),
        (lambda z, out: z.mul_(2), "modified by an inplace operation"),
    ],
)
@pytest.mark.parametrize("fn", [Square.apply, torch.square], ids=["custom", "built-in"])
def test_what_cannot_be_read_is_told_with_torchs_words(fn, spoil, words):
    z = leaf() * 1
    out = fn(z)
    spoil(z, out)
    (kept,) = walk(out).nodes[0].kept
    assert kept.role == UNREADABLE and words in kept.error


def test_depth_costs_no_recursion():
    x = leaf()
    for _ in range(3 * sys.getrecursionlimit()):
        x = x.sin()
    assert len(walk(x).nodes) == 3 * sys.getrecursionlimit() + 1


def test_a_walk_keeps_nothing_alive():
    out = Square.apply(leaf())
    node = weakref.ref(out.grad_fn)
    gc.disable()
    try:
        assert [node.kept for node in walk(out).nodes]
        del out
        assert node() is None
    finally:
        gc.enable()


def test_a_node_is_read_after_its_output_is_gone():
    """Up to torch 2.12 nothing but `Node.owner` keeps it readable."""
    first, behind = (node for node in walk(Square.apply(Square.apply(leaf()))).nodes if node.custom)
    for node in (first, behind):
        assert [kept.role for kept in node.kept] == [INPUT]
        assert node.fn.next_functions


FREE_A_DEEP_GRAPH = """
import torch
from double_backward.graphs.walk import walk
out = torch.ones(1, requires_grad=True)
for _ in range(100_000):
    out = out.sin()
assert len(walk(out).nodes) == 100_001
del out
print("freed")
"""


@pytest.mark.slow
def test_a_deep_graph_that_was_walked_can_be_freed():
    done = subprocess.run(
        [sys.executable, "-c", FREE_A_DEEP_GRAPH], cwd=ROOT, capture_output=True, text=True
    )
    assert (done.stdout, done.returncode) == ("freed\n", 0)


def test_a_leaf_may_be_a_view():
    x = torch.tensor([1.0, 2.0])[:, None].requires_grad_()
    fn, _ = origin(x)
    assert fn.variable is x and fn in {node.fn for node in walk(x**2).nodes}


def test_a_view_that_was_not_recorded_leads_nowhere():
    x = torch.ones(2, requires_grad=True)
    with torch.no_grad():
        view = x[:1]
    assert view.requires_grad and origin(view) is None
