"""How often a step differentiates a Function, and that it has to be right so often, no more."""

import pytest
import torch
from made_functions import function, of_inputs, save_x
from torch.autograd import forward_ad, functional, grad
from torch.utils.checkpoint import checkpoint

from double_backward import assert_all_double_backward, detect_intermediates, diagnose_all
from lessons_src.untracked_backward import CubeNumPy


def kept(ctx, x):
    ctx.slope = 3 * x**2
    return x**3


def half(ctx, g):
    return g * 1.5 * ctx.saved_tensors[0] ** 2


# x**3, and up to which derivative it is right
CUBES = {
    0: function(save_x, half, "Half"),
    1: function(kept, lambda ctx, g: g * ctx.slope, "Kept"),
    2: CubeNumPy,
    9: of_inputs(lambda x: x**3, lambda g, x: g * 3 * x**2, "Cube"),
}


def point(*shape):
    generator = torch.Generator().manual_seed(len(shape))
    return (0.5 + torch.rand(*shape or (3,), dtype=torch.float64, generator=generator)).detach()


def leaf(*shape):
    return point(*shape).requires_grad_()


def sgd(f):
    w = leaf(3, 1)
    optimiser = torch.optim.SGD([w], 0.01)
    for _ in range(2):
        optimiser.zero_grad()
        f(point(4, 3) @ w).sum().backward()
        optimiser.step()


def two_optimisers(f):
    """A critic with a penalty, and a generator that is trained by plain gradients."""
    made, w = leaf(3, 3), leaf(3, 1)
    critic, generator = torch.optim.Adam([w], 0.01), torch.optim.SGD([made], 0.01)
    for _ in range(2):
        fake = f(point(4, 3) @ made).detach().requires_grad_()
        (g,) = grad(torch.tanh(fake @ w).sum(), fake, create_graph=True)
        critic.zero_grad()
        ((g.norm(dim=1) - 1) ** 2).mean().backward()
        critic.step()
        generator.zero_grad()
        torch.tanh(f(point(4, 3) @ made) @ w).sum().backward()
        generator.step()


def sharpness_aware(f):
    w = leaf(3, 1)
    (g,) = grad(f(point(4, 3) @ w).sum(), w)
    with torch.no_grad():
        w += 0.1 * g
    f(point(4, 3) @ w).sum().backward()


def first_order_maml(f):
    w = leaf(3, 1)
    (g,) = grad(f(point(4, 3) @ w).sum(), w)
    f(point(4, 3) @ (w - 0.1 * g)).sum().backward()


def maml(f):
    w = leaf(3, 1)
    (g,) = grad(f(point(4, 3) @ w).sum(), w, create_graph=True)
    f(point(4, 3) @ (w - 0.1 * g)).sum().backward()


def maml_without_create_graph_outside(f):
    """The inner step is plain torch."""
    w = leaf(3, 1)
    (g,) = grad(torch.tanh(point(4, 3) @ w).sum(), w, create_graph=True)
    f(point(4, 3) @ (w - 0.1 * g)).sum().backward()


def plain_loss_beside_a_penalty(f):
    w, v, x = leaf(3, 1), leaf(3, 1), leaf(4, 3)
    (g,) = grad(torch.tanh(x @ v).sum(), x, create_graph=True)
    ((g**2).sum() + f(x @ w).sum()).backward()


def penalty_beside_a_plain_loss(f):
    w, v, x = leaf(3, 1), leaf(3, 1), leaf(4, 3)
    (g,) = grad(f(x @ w).sum(), x, create_graph=True)
    ((g**2).sum() + torch.tanh(x @ v).sum()).backward()


def penalty_of_one_of_two(f):
    """One pass records both branches, and only the other one is differentiated again."""
    w, v = leaf(), leaf()
    ((f(w) ** 2).sum() + torch.tanh(v).sum()).backward(create_graph=True)
    g, w.grad, v.grad = v.grad, None, None
    (g**2).sum().backward()


def weights_in_the_way_of_nothing(f):
    v, x = leaf(3, 3), leaf(4, 3)
    (g,) = grad(torch.tanh(x @ f(v)).sum(), x, create_graph=True)
    (g**2).sum().backward()


def graph_kept(f):
    w = leaf()
    loss = (f(w) ** 2).sum()
    loss.backward(retain_graph=True)
    loss.backward()


def logged(f):
    w, x = leaf(3, 1), point(4, 3)
    loss = f(x @ w).sum()
    (g,) = grad(loss, w, create_graph=True)
    assert g.norm().item()
    loss.backward()


def logged_with_a_graph(f):
    w, x = leaf(3, 1), leaf(4, 3)
    (g,) = grad((f(x @ w) ** 2).sum(), x, create_graph=True)
    assert g.norm().item()
    ((f(x @ w) ** 2).sum() + (w**2).sum()).backward()


def logged_at_the_end(f):
    w = leaf()
    (f(w) ** 2).sum().backward()
    (g,) = grad(f(w).sum(), w, create_graph=True)
    assert g.norm().item()


def never_asked(f):
    w, v = leaf(), leaf()
    assert f(w).mean().item()
    with torch.no_grad():
        f(w)
    f(point())
    torch.tanh(v).sum().backward()


def only_forward(f):
    f(leaf())


def checkpointed(f, reentrant=False):
    w = leaf(3, 1)
    checkpoint(lambda w: f(point(4, 3) @ w), w, use_reentrant=reentrant).sum().backward()


def checkpointed_twice(f):
    w = leaf(3, 1)
    y = checkpoint(lambda w: f(point(4, 3) @ w), w, use_reentrant=False)
    (g,) = grad((y**2).sum(), w, create_graph=True)
    (g**2).sum().backward()


def func_grad(f):
    torch.func.grad(lambda x: plain(f, x).sum())(point())


def func_grad_of_grad(f):
    torch.func.grad(lambda x: torch.func.grad(lambda x: plain(f, x).sum())(x).sum())(point())


def func_jacobian_of_jacobian(f):
    """The backward that `jacrev` runs is outside of its own level."""
    torch.func.jacrev(torch.func.jacrev(lambda x: plain(f, x).sum()))(point())


def func_grad_of_vjp(f):
    def norm(x):
        y, back = torch.func.vjp(lambda x: plain(f, x), x)
        return back(torch.ones_like(y))[0].sum()

    torch.func.grad(norm)(point())


def func_jacobian_inside_autograd(f):
    x = leaf()
    (torch.func.jacrev(lambda x: plain(f, x).sum())(x) ** 2).sum().backward()


def func_grad_inside_autograd(f):
    x = leaf()
    (torch.func.grad(lambda x: plain(f, x).sum())(x) ** 2).sum().backward()


def func_grad_beside_autograd(f):
    torch.func.grad(lambda x: plain(f, x).sum())(point())
    (torch.tanh(leaf()) ** 2).sum().backward()


def new_style(right_to):
    """The same with setup_context, as `torch.func` asks for."""

    class New(torch.autograd.Function):
        @staticmethod
        def forward(x):
            return x**3

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)
            ctx.save_for_forward(*inputs)
            ctx.slope = 3 * inputs[0].detach() ** 2

        @staticmethod
        def jvp(ctx, tangent):
            return tangent * 3 * ctx.saved_tensors[0] ** 2

        @staticmethod
        def backward(ctx, g):
            slope = ctx.slope if right_to == 1 else 3 * ctx.saved_tensors[0] ** 2
            return g * slope / (1 if right_to else 2)

    return New


NEW_STYLE = {cube: new_style(right_to) for right_to, cube in CUBES.items()}


def plain(f, x):
    return NEW_STYLE[f.__self__].apply(x)


def func_hvp_forward_over_reverse(f):
    torch.func.jvp(torch.func.grad(lambda x: (plain(f, x) ** 2).sum()), (point(),), (point(),))


def hvp_by_hand(f):
    x, v = leaf(), point()
    (g,) = grad((f(x) ** 2).sum(), x, create_graph=True)
    grad(g, x, v)


def hvp_of_torch(f):
    """It differentiates three times, once by a vector in which all is linear."""
    torch.autograd.functional.hvp(lambda x: (f(x) ** 2).sum(), point(), point())


def vhp_of_torch(f):
    torch.autograd.functional.vhp(lambda x: (f(x) ** 2).sum(), point(), point())


def hessian_of_torch(f):
    torch.autograd.functional.hessian(lambda x: (f(x) ** 2).sum(), point())


def jacobian_of_rows(f):
    x = leaf()
    y = f(x)
    grad(y, x, torch.eye(3, dtype=x.dtype), is_grads_batched=True)


def third(f):
    x, w = leaf(4, 1), leaf(1, 3)
    (u_x,) = grad(f(x @ w).sum(), x, create_graph=True)
    (u_xx,) = grad(u_x.sum(), x, create_graph=True)
    ((u_xx - 1) ** 2).mean().backward()


def source_of_a_third(f):
    """Of the other side of the equation only the weights matter."""
    x, w, v = leaf(4, 1), leaf(1, 3), leaf(1, 3)
    (u_x,) = grad(torch.tanh(x @ w).sum(), x, create_graph=True)
    (u_xx,) = grad(u_x.sum(), x, create_graph=True)
    ((u_xx - f(x @ v).sum(1, keepdim=True)) ** 2).mean().backward()


def lost_in_a_loss(f):
    """What has no graph goes into the loss in silence."""
    w, v = leaf(), leaf()
    (g,) = grad(f(w).sum(), w, create_graph=True)
    ((g**2).sum() + torch.tanh(v).sum()).backward()


STEPS = {
    only_forward: 0,
    never_asked: 0,
    sgd: 1,
    two_optimisers: 1,
    sharpness_aware: 1,
    first_order_maml: 1,
    maml: 2,
    maml_without_create_graph_outside: 1,
    plain_loss_beside_a_penalty: 1,
    penalty_beside_a_plain_loss: 2,
    penalty_of_one_of_two: 1,
    weights_in_the_way_of_nothing: 1,
    graph_kept: 1,
    logged: 1,
    logged_with_a_graph: 1,
    logged_at_the_end: 1,
    checkpointed: 1,
    checkpointed_twice: 2,
    func_grad: 1,
    func_grad_of_grad: 2,
    func_jacobian_of_jacobian: 2,
    func_grad_of_vjp: 2,
    func_jacobian_inside_autograd: 2,
    func_grad_inside_autograd: 2,
    func_grad_beside_autograd: 1,
    func_hvp_forward_over_reverse: 2,
    hvp_by_hand: 2,
    hvp_of_torch: 2,
    vhp_of_torch: 2,
    jacobian_of_rows: 1,
    hessian_of_torch: 2,
    third: 3,
    source_of_a_third: 1,
    lost_in_a_loss: 2,
}


CASES = [
    (step, order, right_to)
    for step, order in STEPS.items()
    for right_to in sorted(CUBES)[max(order - 1, 0) : order + 1]
]


@pytest.mark.parametrize(
    "step, order, right_to", CASES, ids=[f"{s.__name__}-{r}" for s, _, r in CASES]
)
def test_the_order_is_that_of_the_step_and_a_function_has_to_be_right_so_often(
    step, order, right_to
):
    table = diagnose_all(lambda: step(CUBES[right_to].apply))
    torchs = "torch."  # up to 2.12 a checkpoint applies a Function of its own
    rows = [row for row in table.rows if not row.function.__module__.startswith(torchs)]
    (row,) = [row for row in rows if not row.in_backward]
    assert table.ok == row.ok == (right_to >= order)
    assert table.error or row.order == order
    if row.ok:
        enough = {0: "not differentiated", 1: "right at first order"}
        assert row.said == enough.get(min(order, right_to + 1), "supported")


def test_what_is_lost_without_a_graph_counts_as_used():
    """Whether a later loss holds it nobody can see."""

    def step():
        w, v = leaf(), leaf()
        (CUBES[1].apply(w).sum() + torch.tanh(v).sum()).backward(create_graph=True)
        g, w.grad, v.grad = v.grad, None, None
        (g**2).sum().backward()

    (row,) = diagnose_all(step).rows
    assert (row.order, row.said) == (2, "silently_wrong")


@pytest.mark.parametrize("by", ["w", "v", "both", "no leaf"])
def test_what_is_lost_does_not_count_by_a_leaf_on_which_it_does_not_depend(by):
    def step():
        w, v = leaf(), leaf()
        (g,) = grad(CUBES[1].apply(w).sum(), w, create_graph=True)
        u = 2 * v
        grad((g * u * torch.tanh(w)).sum(), {"w": w, "v": v, "both": (w, v), "no leaf": u}[by])

    (row,) = diagnose_all(step).rows
    assert row.order == (1 if by == "v" else 2)
    assert row.ok is (by == "v")


@pytest.mark.filterwarnings("ignore:Using backward")
def test_what_is_lost_in_a_reentrant_checkpoint_counts_by_any_leaf():
    def step():
        w, v = leaf(), leaf()
        inside = checkpoint(lambda w: torch.sin(w * v), w, use_reentrant=True)
        inside.sum().backward(create_graph=True)
        grad((w.grad * torch.tanh(v)).sum(), v)

    (row,) = diagnose_all(step).rows
    assert row.order == 2


def test_what_is_lost_counts_by_a_leaf_of_a_grad_out():
    detaches = function(save_x, lambda ctx, g: g.detach() * 2, "Detaches")

    def step():
        w, v = leaf(), leaf()
        (g,) = grad(detaches.apply(w), w, torch.tanh(v), create_graph=True)
        grad((g * v).sum(), v)

    (row,) = diagnose_all(step).rows
    assert row.order == 2


def test_what_is_lost_again_and_again_counts_once_more():
    """As where each step of a training records a gradient, and moves the weights under no_grad."""

    def step():
        w = leaf(3, 1)
        for _ in range(4):
            (g,) = grad(CUBES[1].apply(point(4, 3) @ w).sum(), w, create_graph=True)
            with torch.no_grad():
                w -= 0.1 * g

    (row,) = diagnose_all(step).rows
    assert row.order == 2


def test_edges_of_the_graph_are_differentiated_as_tensors():
    def step():
        w, v = leaf(), leaf()
        edge = torch.autograd.graph.get_gradient_edge(CUBES[1].apply(w) + v)
        torch.autograd.backward([edge], [point()], create_graph=True)
        w.grad = v.grad = None

    table = diagnose_all(step)
    assert table.error is None and table.rows[0].order == 1


def by_mode(ctx, x, right):
    ctx.slope = 3 * x**2
    ctx.right = right
    ctx.save_for_backward(x)
    return x**3


def by_mode_backward(ctx, g):
    return g * (3 * ctx.saved_tensors[0] ** 2 if ctx.right else ctx.slope), None


Mode = function(by_mode, by_mode_backward, "Mode")


@pytest.mark.parametrize("right", [True, False])
def test_each_way_of_calling_is_judged_as_often_as_that_is_differentiated(right):
    def step():
        x, w = leaf(), leaf()
        (g,) = grad(Mode.apply(x, right).sum(), x, create_graph=True)
        ((g**2).sum() + Mode.apply(w, not right).sum()).backward()

    table = diagnose_all(step)
    assert table.ok is right and table.order == 2
    assert table.rows[0].said == ("supported" if right else "silently_wrong")


def test_ways_that_are_never_differentiated_leave_room_for_those_that_are():
    def step():
        with torch.no_grad():
            for shape in (1, 2), (1, 2, 3), (1, 2, 3, 4):
                CUBES[1].apply(leaf(*shape))
        x = leaf()
        (g,) = grad((CUBES[1].apply(x) ** 2).sum(), x, create_graph=True)
        (g**2).sum().backward()

    (row,) = diagnose_all(step).rows
    assert (row.calls, row.order, row.said) == (4, 2, "silently_wrong")


@pytest.mark.parametrize("right_to", [0, 1])
def test_all_verbs_agree_of_what_is_differentiated_once(right_to):
    def step():
        return sgd(CUBES[right_to].apply)

    with detect_intermediates():
        step()
    right = right_to > 0
    assert diagnose_all(step).ok is right
    if right:
        assert_all_double_backward(step)
    else:
        with pytest.raises(AssertionError, match="1 not"):
            assert_all_double_backward(step)


def test_a_step_that_raises_is_judged_as_if_it_came_to_what_it_had_recorded():
    def step(recorded):
        w = leaf()
        grad((CUBES[1].apply(w) ** 2).sum(), w, create_graph=recorded)
        raise ValueError

    for recorded in (True, False):
        table = diagnose_all(lambda recorded=recorded: step(recorded))
        assert (table.rows[0].order, table.rows[0].ok) == (1 + recorded, not recorded)
        assert not table.ok


class SlopeOfTwo(torch.autograd.Function):
    """x sigma**2, whose gradient holds a constant: no way leads from it to sigma."""

    @staticmethod
    def forward(ctx, x, sigma):
        ctx.square = sigma**2
        ctx.save_for_backward(x, sigma)
        return x**2 * ctx.square

    @staticmethod
    def backward(ctx, g):
        x, sigma = ctx.saved_tensors
        return g * 2 * x * ctx.square, (g * 2 * x**2 * sigma).sum()


def test_a_gradient_that_is_fitted_counts_where_the_way_to_the_weight_is_missing():
    """`.backward(inputs=[sigma])` runs no node of the gradient then: the weight gets nothing."""
    x, sigma = leaf(3), leaf()

    def fitted():
        (force,) = grad(SlopeOfTwo.apply(x, sigma).sum(), x, create_graph=True)
        (force**2 + sigma**2).sum().backward(inputs=[sigma])

    found = diagnose_all(fitted)
    assert [r.order for r in found.rows] == [2] and not found.ok


# Which of its gradients a step differentiates.


def product(ctx, x, w):
    ctx.save_for_backward(x, w)
    ctx.sinh = x.sinh()
    return x.sinh() * w


def gradients(by_w):
    """Of x right, of w as said."""

    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g * x.cosh() * w, by_w(ctx, g, x)

    return function(product, backward, "Product")


OF_W = {  # up to which derivative it is right
    0: gradients(lambda ctx, g, x: 1.5 * g * x.sinh()),
    1: gradients(lambda ctx, g, x: g * ctx.sinh),
    9: gradients(lambda ctx, g, x: g * x.sinh()),
}
BY_X, BY_W = 0, 1
STEPS = {  # by what the first pass differentiates, what a second one does; how often that is by w
    "first, by x": (BY_X, None, 0),
    "first, by w": (BY_W, None, 1),
    "of x, by x": (BY_X, BY_X, 0),
    "of x, by both": (BY_X, "all", 1),
    "of w, by x": (BY_W, BY_X, 2),
    "of w, by both": (BY_W, "all", 2),
}


@pytest.mark.parametrize("linear", (True, False))
@pytest.mark.parametrize("way", STEPS, ids=str)
def test_a_gradient_has_to_be_right_as_often_as_it_is_differentiated(way, linear):
    by_first, by_second, times = STEPS[way]
    if linear and way == "of x, by both":
        times = 0  # the second pass goes through what was recorded, and not through the Function

    def step(f):
        ends = leaf(), leaf()
        y = f.apply(*ends)
        (g,) = grad((y if linear else y**2).sum(), ends[by_first], create_graph=True)
        if by_second is not None:
            by = ends if by_second == "all" else ends[by_second]
            grad((g**2).sum(), by, allow_unused=True)

    for right_up_to, f in OF_W.items():
        table = diagnose_all(lambda f=f: step(f))
        assert table.ok is (right_up_to >= times), (right_up_to, table)
        assert table.order == 1 + (by_second is not None)
        if table.ok and right_up_to < table.order:
            assert "Product: The step differentiates its gradient for w fewer than" in str(table)


def both(by_cosh):
    """sinh and cosh of x; what backward adds for cosh is as said."""

    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.sinh = x.sinh()
        return x.sinh(), x.cosh()

    def backward(ctx, g, h):
        (x,) = ctx.saved_tensors
        return g * x.cosh() + by_cosh(ctx, h, x)

    return function(forward, backward, "Both")


OF_COSH = {
    0: both(lambda ctx, h, x: 1.5 * h * x.sinh()),
    1: both(lambda ctx, h, x: h * ctx.sinh),
    9: both(lambda ctx, h, x: h * x.sinh()),
}


def test_an_output_that_gets_its_gradient_in_the_second_backward_is_differentiated_once():
    def step(f, uses):
        x = leaf()
        y, z = f.apply(x)
        (g,) = grad((y**2 + (z**2 if uses == 2 else 0)).sum(), x, create_graph=True)
        ((g * z if uses else g) ** 2).sum().backward()

    for right_up_to, f in OF_COSH.items():
        for uses in range(3):
            table = diagnose_all(lambda f=f, uses=uses: step(f, uses))
            assert table.ok is (right_up_to >= uses), (uses, table)
            assert table.order == 2


def cuts_grad_out(ctx, g):
    return g.detach() * 3 * ctx.saved_tensors[0] ** 2


def test_what_functional_takes_for_zero_is_counted():
    """It does not enter the engine for a gradient without a graph, nor for one that lacks a way."""
    kept, cut, x = CUBES[1], function(save_x, cuts_grad_out, "Cut"), point()
    hessian = diagnose_all(lambda: functional.hessian(lambda x: kept.apply(x).sum(), x))
    assert (hessian.order, hessian.ok) == (2, False)  # it was all 0
    for f, ok in ((kept, True), (cut, False), (CUBES[9], True)):
        squared = square_of(f)
        assert diagnose_all(lambda s=squared: functional.jvp(s, x, x)).ok is ok, f


def test_a_cut_of_grad_out_counts_where_a_grad_out_has_a_graph():
    def step(*uses):
        for use in uses:
            x = leaf()
            (g,) = grad(use(cut.apply(x)).sum(), x, create_graph=True)
            g.sum().backward()

    cut, x = function(save_x, cuts_grad_out, "Cut"), point()
    alone = diagnose_all(lambda: functional.hessian(lambda x: cut.apply(x).sum(), x))
    assert (alone.order, alone.ok) == (2, True)
    assert "this step does not come to that" in str(alone)
    assert alone["Cut"].findings[0].severity != "error"
    for uses in ([torch.square], [torch.abs, torch.square], [cut.apply]):
        assert not diagnose_all(lambda uses=uses: step(*uses)).ok, uses
    wrong = function(save_x, lambda ctx, g: g.detach() * 3 * ctx.saved_tensors[0].detach() ** 2)
    assert not diagnose_all(lambda: functional.hessian(lambda x: wrong.apply(x).sum(), x)).ok


def square_of(function):
    return lambda x: function.apply(x) ** 2


class WithJvp(CUBES[1]):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_forward(x)
        return kept(ctx, x)

    @staticmethod
    def jvp(ctx, t):
        return t * 3 * ctx.saved_tensors[0] ** 2


def test_a_tangent_is_a_first_derivative_until_a_pass_goes_back_through_it():
    def tangent():
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x, torch.ones_like(x))
            return forward_ad.unpack_dual(WithJvp.apply(dual)).tangent

    x = leaf()
    once = diagnose_all(tangent)
    assert (once.order, once.ok) == (1, True)
    (number,) = grad((tangent() * x).sum(), x)
    torch.testing.assert_close(number, 9 * x**2)  # its backward, which is wrong, does not run
    again = diagnose_all(lambda: grad((tangent() * x).sum(), x))
    assert (again.order, again.ok) == (2, True)
    assert "its backward is wrong" in again.rows[0].notes[0]
