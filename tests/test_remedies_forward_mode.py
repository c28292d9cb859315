"""Second derivatives by forward mode and by batched gradients: right, or an error by name."""

import pytest
import torch
from torch import func
from torch.autograd import Function, forward_ad, grad
from torch.autograd.functional import hessian, jacobian

from double_backward import (
    SecondDerivativeError,
    detect_intermediates,
    diagnose_all,
    recompute_intermediates,
)

POINT = torch.tensor([0.5, 1.0], dtype=torch.float64)


class Keeps(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return torch.sinh(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.cosh = torch.cosh(*inputs)

    @staticmethod
    def backward(ctx, g):
        return g * ctx.cosh

    @staticmethod
    def jvp(ctx, t):
        return t * ctx.cosh


class Right(Keeps):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, g):
        return g * torch.cosh(*ctx.saved_tensors)

    @staticmethod
    def jvp(ctx, t):
        return t * torch.cosh(*ctx.saved_tensors)


def batched(f):
    x = POINT.clone().requires_grad_()
    unit = torch.eye(2, dtype=torch.float64)
    (first,) = grad(f(x), x, unit, is_grads_batched=True, create_graph=True)
    return grad(first.sum(), x)[0]


def reverse_of_tangent(f):
    x = POINT.clone().requires_grad_()
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones_like(x))
        return grad(forward_ad.unpack_dual(f(dual)).tangent.sum(), x)[0]


def tangent_of_gradient(f):
    x = POINT.clone().requires_grad_()
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones_like(x))
        (first,) = grad(f(dual).sum(), dual, create_graph=True)
        return forward_ad.unpack_dual(first).tangent


def by_a_weight(transform):
    """A derivative by a weight outside of what `torch.func` transforms."""

    def second(f):
        w = torch.tensor([0.9, 1.1], dtype=torch.float64, requires_grad=True)
        return grad((transform(lambda x: f(w * x)) ** 2).sum(), w)[0]

    return second


class Net(torch.nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f, self.weight = f, torch.nn.Parameter(POINT.clone())

    def forward(self, x):
        return self.f(self.weight * x).sum()


def functional_call(f):
    """The gradient of a penalty on each sample's gradient, by the weights."""
    net = Net(f)

    def penalty(weight):
        def value(x):
            return func.functional_call(net, {"weight": weight}, (x,))

        return func.vmap(func.grad(value))(BATCH).square().sum()

    return func.grad(penalty)(POINT)


BATCH = torch.stack([POINT, 2 * POINT])


def summed(f):
    return lambda x: f(x).sum()


FORMS = {
    "jacrev(jacfwd)": lambda f: func.jacrev(func.jacfwd(f))(POINT),
    "func.hessian": lambda f: func.hessian(summed(f))(POINT),
    "jacrev(jacrev)": lambda f: func.jacrev(func.jacrev(f))(POINT),
    "jacfwd(jacfwd)": lambda f: func.jacfwd(func.jacfwd(f))(POINT),
    "hessian": lambda f: hessian(summed(f), POINT),
    "vectorize": lambda f: hessian(summed(f), POINT, vectorize=True),
    "forward over reverse": lambda f: hessian(
        summed(f), POINT, vectorize=True, outer_jacobian_strategy="forward-mode"),
    "is_grads_batched": batched,
    "reverse of tangent": reverse_of_tangent,
    "tangent of gradient": tangent_of_gradient,
    "vmap(jacrev), by a weight": by_a_weight(lambda f: func.vmap(func.jacrev(f))(BATCH)),
    "vmap(vmap), by a weight": by_a_weight(
        lambda f: func.vmap(lambda x: func.jacrev(func.vmap(f))(x[None]))(BATCH)),
    "vmap(vjp), by a weight": by_a_weight(
        lambda f: func.vmap(lambda x: func.vjp(f, x)[1](x)[0])(BATCH)),
    "vmap(vmap(grad)), by a weight": by_a_weight(
        lambda f: func.vmap(func.vmap(func.grad(summed(f))))(BATCH[:, None])),
    "jacrev(vmap(jacrev))": lambda f: func.jacrev(func.vmap(func.jacrev(f)))(BATCH),
    "jacfwd, by a weight": by_a_weight(lambda f: func.jacfwd(f)(POINT)),
    "jvp, by a weight": by_a_weight(lambda f: func.jvp(f, (POINT,), (POINT,))[1]),
    "functional_call": lambda f: functional_call(f),
    "vmap(grad(grad))": lambda f: func.vmap(func.grad(func.grad(f)))(POINT),
}  # fmt: skip
REMEDIES = [detect_intermediates, recompute_intermediates]


def square_of(function):
    return lambda x: function(x) ** 2


@pytest.mark.parametrize("remedy", REMEDIES)
@pytest.mark.parametrize("name", FORMS)
def test_right_or_named(name, remedy):
    second = FORMS[name]
    truth = second(square_of(torch.sinh))
    try:
        with remedy():
            got = second(square_of(Keeps.apply))
    except SecondDerivativeError as error:
        assert "Keeps" in str(error)
    else:
        torch.testing.assert_close(got, truth)


@pytest.mark.parametrize("remedy", REMEDIES)
@pytest.mark.parametrize("name", FORMS)
def test_right_functions(name, remedy):
    second = FORMS[name]
    plain = second(square_of(Right.apply))
    if name == "jacfwd(jacfwd)":  # torch's own number is wrong there, for any Function
        assert not torch.allclose(plain, second(square_of(torch.sinh)))
        with remedy(), pytest.raises(SecondDerivativeError, match="forward mode once more"):
            second(square_of(Right.apply))
    else:
        with remedy():
            assert torch.equal(second(square_of(Right.apply)), plain)


class KeepsForBackward(Right):
    """Its jvp is right."""

    @staticmethod
    def setup_context(ctx, inputs, output):
        Keeps.setup_context(ctx, inputs, output)
        Right.setup_context(ctx, inputs, output)

    backward = Keeps.backward


class KeepsForJvp(KeepsForBackward):
    """Its backward is right."""

    backward, jvp = Right.backward, Keeps.jvp


FORWARD = "jvp", "jacfwd", "hessian", "forward", "tangent"
BY_REVERSE = [name for name in FORMS if not any(word in name for word in FORWARD)]


@pytest.mark.parametrize("name", BY_REVERSE)
def test_recompute_repairs_what_goes_by_reverse_mode_alone(name):
    second = FORMS[name]
    with recompute_intermediates():
        got = second(square_of(Keeps.apply))
    torch.testing.assert_close(got, second(square_of(torch.sinh)))


class DetachedProduct(Function):
    """Wrong by what multiplies its first factor."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, y):
        return x * y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * y.detach(), g * x

    @staticmethod
    def jvp(ctx, t, s):
        x, y = ctx.saved_tensors
        return (0 if t is None else t * y) + (0 if s is None else s * x)


@pytest.mark.parametrize("name", [*BY_REVERSE, "func.hessian"])
def test_recompute_takes_an_input_that_was_computed_from_another_for_another(name):
    second = FORMS[name]
    with recompute_intermediates():
        got = second(lambda x: DetachedProduct.apply(x, torch.tanh(x)))
    torch.testing.assert_close(got, second(lambda x: x * torch.tanh(x)))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FORMS)
def test_the_table_says_whether_the_number_is_right(name):
    second = FORMS[name]
    truth = second(square_of(torch.sinh))
    for function in (Right, Keeps, KeepsForBackward, KeepsForJvp):
        number = second(square_of(function.apply))
        found = diagnose_all(lambda f=function: second(square_of(f.apply)))
        unused = name == "reverse of tangent" and function is KeepsForBackward
        assert unused or found.ok == torch.allclose(number, truth), (function.__name__, str(found))
        assert found.order > 1


@pytest.mark.parametrize("remedy", REMEDIES)
def test_a_batch_inside_a_batch_of_another_kind_is_an_error_of_the_verbs_own(remedy):
    def step():
        def bent(x):
            return hessian(summed(square_of(Keeps.apply)), x, create_graph=True, vectorize=True)

        return func.jacrev(bent)(POINT)

    with remedy(), pytest.raises(SecondDerivativeError, match="Keeps"):
        step()


class Times(Function):
    """A right product with a weight, applied by a backward."""

    @staticmethod
    def forward(ctx, g, w):
        ctx.save_for_backward(g, w)
        return g * w

    @staticmethod
    def backward(ctx, g):
        grad_out, w = ctx.saved_tensors
        return g * w, g * grad_out


class AppliesTimes(Right):
    @staticmethod
    def backward(ctx, g):
        return Times.apply(g, torch.cosh(*ctx.saved_tensors))


def test_a_function_applied_to_a_batch_of_gradients_loses_its_graph():
    def step():
        return batched(lambda x: AppliesTimes.apply(x) + x**2)

    assert not torch.allclose(step(), POINT.sinh() + 2)  # torch's own number
    for remedy in REMEDIES:
        with remedy(), pytest.raises(SecondDerivativeError, match=r"Times.*\n?.*batch"):
            step()
        with remedy(ignore=[Times]):
            step()
    found = diagnose_all(step)
    assert not found.ok and {row.name: row.ok for row in found.rows}["Times"] is False


@pytest.mark.parametrize("remedy", REMEDIES)
def test_first_derivatives_in_a_batch_lose_nothing(remedy):
    x, unit = POINT.clone().requires_grad_(), torch.eye(2, dtype=torch.float64)
    with remedy():
        y = AppliesTimes.apply(x)
        (first,) = grad(y, x, unit, is_grads_batched=True, retain_graph=True)
        (gone,) = grad(y, x, POINT, create_graph=True)
        assert torch.allclose(first, POINT.cosh().diag())
        assert torch.allclose(grad(gone.sum(), x)[0], POINT * POINT.sinh())


def test_a_wrong_jvp_waits_for_whoever_differentiates_it():
    w = POINT.clone().requires_grad_()
    with detect_intermediates():
        _, tangent = func.jvp(lambda x: Keeps.apply(w * x), (POINT,), (POINT,))
        assert torch.equal(tangent, (w * POINT).cosh() * w * POINT)
        with pytest.raises(SecondDerivativeError, match="of its jvp"):
            grad(tangent.sum(), w)


def test_first_derivatives_by_forward_mode():
    with detect_intermediates():
        assert torch.equal(func.jvp(Keeps.apply, (POINT,), (POINT,))[1], POINT * POINT.cosh())


@pytest.mark.parametrize("name", FORMS)
def test_what_is_ignored_is_torchs_own(name):
    second, keeps = FORMS[name], square_of(Keeps.apply)
    with detect_intermediates(ignore=[Keeps]):
        inside = second(keeps)
    torch.testing.assert_close(inside, second(keeps))


class Doubles(Function):
    """Right, with a backward that torch cannot run for a batch of gradients."""

    @staticmethod
    def forward(ctx, x, how):
        ctx.how = how
        return 2 * x

    @staticmethod
    def backward(ctx, g):
        return 2 * (g.data if ctx.how == "data" else g.detach()), None


class Within(Function):
    """Keeps what it computes, by another Function."""

    @staticmethod
    def forward(ctx, x, how):
        ctx.cosh = torch.cosh(Doubles.apply(x / 2, how))
        return torch.sinh(x)

    @staticmethod
    def backward(ctx, g):
        return g * ctx.cosh, None


@pytest.mark.parametrize("how", ["data", "detach"])
@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("where", ["before", "inside"])
def test_a_new_path_hands_no_batch_to_a_backward(where, create_graph, how):
    # torch's own pass ends before Doubles; with a batch of gradients, .data ends the process
    def by_function(x):
        before = Keeps.apply(Doubles.apply(x, how))
        return (Within.apply(2 * x, how) if where == "inside" else before).sum()

    truth = hessian(lambda x: torch.sinh(2 * x).sum(), POINT)
    with recompute_intermediates():
        found = hessian(by_function, POINT, vectorize=True, create_graph=create_graph)
    assert torch.allclose(found, truth)


class LetsGo(Doubles):
    """Right, with a backward that can be called once."""

    @staticmethod
    def backward(ctx, g):
        del ctx.how
        return 2 * g, None


def test_where_nothing_is_repaired_a_backward_gets_the_whole_batch():
    with recompute_intermediates():
        found = jacobian(lambda x: LetsGo.apply(x, ""), POINT, vectorize=True)
    assert torch.equal(found, 2 * torch.eye(2, dtype=torch.float64))
