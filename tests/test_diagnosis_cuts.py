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


def test_a_backward_in_backward_cuts_grad_out_and_the_detach_before_it_the_input():
    cut = messages(cubic(recomputed(detached, by_backward)))
    assert ".backward() without create_graph in by_backward" in cut["grad_out_path_cut"]
    assert ".detach()" not in cut["grad_out_path_cut"]
    assert ".detach() in detached" in cut["untracked_backward"]
    assert diagnose(cubic(recomputed(a_view, by_grad)), x()).ok


def test_without_some_of_the_steps_a_part_is_right_and_without_all_the_numbers_are():
    def with_a_constant(y, leaf, g):
        return by_backward(y, leaf, g.detach())

    all_of_them = messages(cubic(recomputed(detached, by_backward)))
    assert all_of_them["untracked_backward"].endswith("Without that, the numbers are right.")
    not_all = messages(cubic(recomputed(detached, with_a_constant)))
    assert "g.detach()" in not_all["grad_out_path_cut"]
    assert not_all["untracked_backward"].endswith("Without that, this part is right.")


def test_what_runs_after_all_is_computed_is_no_step():
    def backward(g, x):
        found = recomputed(detached, by_grad)(g, x)
        g.detach()
        return found

    cut = messages(cubic(backward))
    assert list(cut) == ["untracked_backward"]
    assert "g.detach()" not in cut["untracked_backward"]


def works_once(differentiate):
    def forward(ctx, x):
        with torch.enable_grad():
            ctx.leaf = a_view(x)
            ctx.y = torch.sin(ctx.leaf)
        return ctx.y.detach()

    return function(forward, lambda ctx, g: differentiate(ctx.y, ctx.leaf, g)).apply


def test_a_backward_that_frees_its_graph_is_asked_on_new_ones():
    def once(y, leaf, g):
        return torch.autograd.grad(y, leaf, g)[0]

    cut = messages(works_once(once))
    assert list(cut) == ["grad_out_path_cut", "untracked_backward"], cut
    assert all("autograd.grad without create_graph in once" in text for text in cut.values())


def test_a_backward_that_refuses_to_be_called_twice_is_asked_on_new_graphs():
    def forward(ctx, x):
        ctx.inputs = [x]
        return x**3

    def backward(differentiate):
        def popping(ctx, g):
            return recomputed(detached, differentiate)(g, ctx.inputs.pop())

        return function(forward, popping).apply

    def once(y, leaf, g):
        return torch.autograd.grad(y, leaf, g)[0]

    cut = messages(backward(once))
    assert ".detach() in detached" in cut["untracked_backward"], cut
    assert ".detach()" not in cut["grad_out_path_cut"]
    found = diagnose(backward(once), x())
    assert {f.function for f in found.findings if f.cause} == {"forward"}


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


def largest_singular_value(mode):
    """By power iteration, whose vectors are functions of the matrix, too."""

    def norm(a):
        v = torch.ones(2, dtype=a.dtype)
        with mode():
            for _ in range(60):
                u = torch.mv(a, v)
                u = torch.div(u, u.norm(), out=torch.empty_like(u) if not u.requires_grad else None)
                v = torch.mv(a.T, u)
                v = v / v.norm()
        return u @ a @ v

    return norm


def test_where_no_function_is_in_it_the_steps_of_fn_itself_are_undone():
    a = torch.tensor([[3.0, 1.0], [0.5, 1.0]], dtype=torch.float64, requires_grad=True)
    found = diagnose(largest_singular_value(torch.no_grad), a)
    (cause,) = [f for f in found.findings if f.cause]
    assert cause.code == "untracked_forward" and "`with mode():`" in cause.message
    assert diagnose(largest_singular_value(torch.enable_grad), a).ok


def test_what_fn_detaches_rightly_is_no_finding():
    def logsumexp(x):
        top = x.max().detach()
        return top + (x - top).exp().sum().log()

    assert diagnose(logsumexp, x()).ok


def test_a_step_by_which_backward_returns_something_else_is_not_undone():
    """autograd.grad stops at what is detached: undone, it would count what leads there."""

    def backward(g, x):
        with torch.enable_grad():
            a = detached(x)
            b = a * a
            c = detached(b)
            by_a, by_c = torch.autograd.grad(a * c, (a, c), g)
            return by_a + torch.autograd.grad(b, a, by_c)[0]

    cut = messages(cubic(backward))
    assert ".detach()" not in cut["grad_out_path_cut"], cut
    assert cut["grad_out_path_cut"].count("autograd.grad without create_graph") == 2
    assert ".detach() in detached" in cut["untracked_backward"]


def test_of_what_cannot_be_undone_nobody_knows_which_step_cuts_which_part():
    def backward(g, x):
        scale = g.detach().numpy()
        return torch.from_numpy(scale * 3 * x.detach().numpy() ** 2)

    cut = messages(cubic(backward))
    for code in ("grad_out_path_cut", "untracked_backward"):
        assert "(by one or more of NumPy in backward, line" in cut[code], cut
        assert "`scale = g" in cut[code] and "`return" in cut[code]
