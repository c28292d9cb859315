"""Steps of backward: each stands in the finding about what is lost by it, and nowhere else."""

import torch
from made_functions import cubic, function, save_x, x

from double_backward import diagnose


def messages(fn):
    found = diagnose(fn, x())
    return {f.code: f.message for f in found.findings if f.cause}


def recomputed(leaf_of, differentiate):
    """x**3, whose backward computes it again and differentiates that."""

    def backward(g, x):
        with torch.enable_grad():
            leaf = leaf_of(x)
            return differentiate(leaf**3, leaf, g)

    return backward


def a_view(x):
    return x.view_as(x).requires_grad_()


def detached(x):
    return x.detach().requires_grad_()


def by_backward(y, leaf, g):
    y.backward(g)
    return leaf.grad


def by_grad(y, leaf, g):
    return torch.autograd.grad(y, leaf, g, create_graph=True)[0]


def test_a_backward_in_backward_and_the_detach_before_it_are_told():
    cut = messages(cubic(recomputed(detached, by_backward)))
    for code in ("grad_out_path_cut", "untracked_backward"):
        assert "(by one or more of .detach() in detached, line" in cut[code]
        assert ".backward() without create_graph in by_backward" in cut[code]
    assert diagnose(cubic(recomputed(a_view, by_grad)), x()).ok


def test_beside_a_lost_intermediate_what_cuts_grad_out_is_told():
    def forward(ctx, x):
        ctx.y = x.detach()
        return x**3

    def backward(ctx, g):
        with torch.enable_grad():
            leaf = ctx.y.clone()
            leaf.requires_grad = True
            return by_backward(leaf**3, leaf, g)

    cut = messages(function(forward, backward).apply)
    assert "ctx.y" in cut["intermediate_on_ctx"]
    assert ".backward() without create_graph" in cut["grad_out_path_cut"]


def test_a_leaf_that_is_computed_where_nothing_is_recorded():
    def backward(g, x):
        with torch.no_grad():
            twice = 2 * x
        with torch.enable_grad():
            twice.requires_grad = True
            slope = by_backward(twice**3, twice, g)
        return slope / 4

    cut = messages(function(lambda ctx, x: save_x(ctx, x), lambda ctx, g: backward(
        g, *ctx.saved_tensors)).apply)  # fmt: skip
    assert ".backward()" in cut["grad_out_path_cut"], cut
    assert "torch.no_grad()" in cut["untracked_backward"]


class Holds:
    def __init__(self, tensor):
        self.tensor = tensor


def held_on_ctx(make):
    def forward(ctx, x):
        ctx.held = Holds(make(x))
        return x**3

    def backward(ctx, g):
        return g * 3 * ctx.held.tensor.detach() ** 2

    return function(forward, backward).apply


def test_an_object_on_ctx_whose_tensor_has_a_graph_is_no_constant():
    cut = messages(held_on_ctx(lambda x: x))
    assert "intermediate_on_ctx" not in cut and ".detach()" in cut["untracked_backward"]
    assert "ctx.held" in messages(held_on_ctx(lambda x: 1 * x))["intermediate_on_ctx"]


def test_what_fn_detaches_rightly_is_no_finding():
    def logsumexp(x):
        top = x.max().detach()
        return top + (x - top).exp().sum().log()

    assert diagnose(logsumexp, x()).ok


def test_of_what_cannot_be_undone_nobody_knows_which_step_cuts_which_part():
    def backward(g, x):
        scale = g.detach().numpy()
        return torch.from_numpy(scale * 3 * x.detach().numpy() ** 2)

    cut = messages(cubic(backward))
    for code in ("grad_out_path_cut", "untracked_backward"):
        assert "(by one or more of NumPy in backward, line" in cut[code], cut
        assert "`scale = g" in cut[code] and "`return" in cut[code]
