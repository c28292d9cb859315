"""Large inputs: `diagnose` asks with less in them, says so, and finds what is wrong."""

import pytest
import torch
from made_functions import function, of_inputs, saving

import double_backward.diagnosis as diagnosis
from double_backward import diagnose
from double_backward.diagnosis.preparation import smaller_inputs


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch):
    monkeypatch.setattr(diagnosis, "LARGE_INPUTS", 50)
    monkeypatch.setattr(smaller_inputs, "ENOUGH", 16)


def x(*shape):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_()


def turned(*shape):
    return x(*shape).detach().t().requires_grad_()


def with_gaps(*shape):
    return x(shape[0], 2 * shape[1]).detach()[:, ::2].requires_grad_()


def kept(ctx, x):
    ctx.save_for_backward(x)
    ctx.slope = 3 * x**2
    return x**3


def where(ctx, x):
    """Wrong where x is large, which few of them are."""
    ctx.save_for_backward(x)
    ctx.exp = x.exp()
    return torch.where(x > 1, x.exp(), x**3)


def where_backward(ctx, g):
    (x,) = ctx.saved_tensors
    return g * torch.where(x > 1, ctx.exp, 3 * x**2)


right = of_inputs(lambda x: x**3, lambda g, x: g * 3 * x**2, "Cube").apply
wrong = function(kept, lambda ctx, g: g * ctx.slope, "Kept").apply
behind_a_branch = function(where, where_backward, "Where").apply
copying = saving(lambda x: x**3, torch.Tensor.contiguous, lambda g, x: g * 3 * x**2)
weights = x(100).detach()
net = torch.nn.Linear(10, 2, dtype=torch.float64)

CUT = {
    "right": (right, [x(100)], "cut down (100,) to (16,)", "supported"),
    "wrong": (wrong, [x(10, 20)], "cut down (10, 20) to (4, 4)", "silently_wrong"),
    "a list": (
        lambda xs: wrong(xs[0]) * xs[1],
        [[x(10, 20), x(10, 20)]],
        "cut down (10, 20) to (4, 4), (10, 20) to (4, 4)",
        "silently_wrong",
    ),
    "a size that is handed over": (
        lambda x, n: wrong(x).reshape(n),
        [x(100), 100],
        "cut down (100,) to (16,)",
        "silently_wrong",
    ),
    "few show it": (behind_a_branch, [x(100)], "cut down (100,) to (16,)", "silently_wrong"),
    "turned": (copying, [turned(10, 20)], "cut down (20, 10) to (4, 4)", "silently_wrong"),
    "with gaps": (copying, [with_gaps(10, 20)], "cut down (10, 20) to (4, 4)", "silently_wrong"),
    "of a net": (
        lambda x: net(wrong(x)),
        [x(20, 10)],
        "cut down (20, 10) to (4, 10)",
        "silently_wrong",
    ),
    "closed over": (
        lambda x: wrong(x) * weights,
        [x(100)],
        "moved: 16 of the 100 elements of (100,)",
        "silently_wrong",
    ),
    "closed over, right": (
        lambda x: right(x) * weights,
        [x(100)],
        "moved: 16 of the 100 elements of (100,)",
        "supported",
    ),
    "small": (wrong, [x(2, 20)], "", "silently_wrong"),
    "of a net that is square": (
        lambda x: net(wrong(x)),
        [x(10, 10)],
        "moved: 16 of the 100 elements of (10, 10)",
        "silently_wrong",
    ),
}


@pytest.mark.parametrize("name", CUT)
def test_less_is_asked_and_says_the_same(name):
    fn, inputs, change, verdict = CUT[name]
    found = diagnose(fn, *inputs)
    assert (found.cut_down, found.verdict) == (change, verdict)
    assert found.to_dict()["cut_down"] == change
    assert (f"inputs              {change}"[:60] in str(found)) == bool(change)


def test_a_matrix_that_has_to_stay_symmetric_is_moved_as_a_whole():
    """Few of its elements alone would not leave it symmetric, for which the Function is made."""
    root = x(8, 8).detach()
    matrix = (root @ root.T + 8 * torch.eye(8, dtype=torch.float64)).requires_grad_()

    def inverse(ctx, a):
        ctx.save_for_backward(y := torch.linalg.inv(a))
        return y

    def as_of_a_symmetric_one(ctx, g):
        (y,) = ctx.saved_tensors
        return -y @ g @ y

    fn = function(inverse, as_of_a_symmetric_one, "Inverse").apply
    found = diagnose(lambda a: fn(a) * root, matrix)
    assert (found.cut_down, found.ok) == ("", True)


@pytest.mark.parametrize("make", [x, turned, with_gaps])
def test_what_is_cut_lies_in_memory_as_before(make):
    given = make(20, 30)
    small = next(smaller_inputs.cut_down([given]))[0]
    assert small.is_contiguous() == given.is_contiguous() and small.requires_grad
    assert (small.stride(0) < small.stride(1)) == (given.stride(0) < given.stride(1))
    expanded = torch.ones(1, dtype=torch.float64).expand(30)
    assert next(smaller_inputs.cut_down([expanded]))[0].stride() == (0,)
