import pytest
import torch
from formulas import FORMULAS, points, wrong_formulas
from torch.autograd import grad, gradcheck, gradgradcheck

from double_backward import diagnose
from lessons_src.derivatives import derivative, second
from lessons_src.your_own_function import QuadForm, Round, Softplus, Spike, quad_form
from survey import table

FAR = torch.tensor([-1000.0, -30.0, 0.0, 30.0, 1000.0], dtype=torch.float64, requires_grad=True)
MATRICES = {
    "not symmetric": torch.tensor([[2.0, 0.5], [0.0, 1.0]], dtype=torch.float64),
    "symmetric": torch.tensor([[2.0, 0.5], [0.5, 1.0]], dtype=torch.float64),
}


def test_softplus_is_right_in_every_formula():
    x = points()
    assert gradcheck(Softplus.apply, x) and gradgradcheck(Softplus.apply, x)
    assert wrong_formulas(Softplus.apply, torch.nn.functional.softplus) == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_softplus_is_finite_and_right_far_from_0_and_at_its_kinks(dtype):
    x = FAR.detach().to(dtype).requires_grad_()
    s = torch.sigmoid(x.detach())
    truths = [torch.logaddexp(x, torch.zeros_like(x)).detach(), s, s * (1 - s)]
    for order, truth in enumerate([*truths, s * (1 - s) * (1 - 2 * s)]):
        assert torch.allclose(derivative(Softplus.apply, x, order), truth, atol=1e-12)


def smooth_step(x):
    return torch.sigmoid(4 * x)


@pytest.mark.parametrize(
    "function, hard, soft",
    [(Round, torch.round, lambda x: x), (Spike, lambda x: (x > 0).to(x.dtype), smooth_step)],
)
@pytest.mark.parametrize("formula", FORMULAS)
def test_a_gradient_of_its_own_is_the_meant_one_to_second_order(function, hard, soft, formula):
    def meant(x):
        return soft(x) + (hard(x) - soft(x)).detach()

    x = torch.tensor([-0.3, 0.1, 0.45, 1.2], dtype=torch.float64, requires_grad=True)
    assert torch.equal(function.apply(x), hard(x))
    for order in (1, 2):
        try:
            expected = derivative(lambda x: FORMULAS[formula](meant)(x), x, order)
        except RuntimeError:  # straight-through, alone: nothing depends on x any more
            with pytest.raises(RuntimeError):
                derivative(lambda x: FORMULAS[formula](function.apply)(x), x, order)
        else:
            ours = derivative(lambda x: FORMULAS[formula](function.apply)(x), x, order)
            assert torch.allclose(ours, expected)


@pytest.mark.parametrize("function", [Round, Spike])
def test_a_gradient_of_its_own_is_told_to_diagnose(function):
    x = torch.tensor([0.1, 0.3], dtype=torch.float64, requires_grad=True)
    assert not diagnose(function.apply, x).ok
    assert diagnose(function.apply, x, ignore=[function]).ok


@pytest.mark.parametrize("kind", MATRICES)
def test_quad_form_and_its_product(kind):
    A, x = MATRICES[kind].clone().requires_grad_(), points()
    out, product = QuadForm.apply(A, x)
    assert torch.allclose(out, x @ A @ x) and torch.allclose(product, A @ x)
    assert gradcheck(QuadForm.apply, (A, x)) and gradgradcheck(QuadForm.apply, (A, x))
    assert torch.allclose(second(lambda x: quad_form(A, x), x), (A + A.T).sum(0))
    (for_x,) = grad(quad_form(A, x), x, create_graph=True)
    expected = torch.stack([grad(t, A, retain_graph=True)[0] for t in (A + A.T) @ x])
    assert torch.allclose(torch.stack([grad(g, A, retain_graph=True)[0] for g in for_x]), expected)


def test_nearly_half_of_the_surveyed_functions_have_a_gradient_of_their_own():
    """As lesson 6 says."""
    rows = table.read()
    assert 0.45 < sum(bool(row["surrogate"]) for row in rows) / len(rows) < 0.5
