import pytest
import torch
from formulas import FORMULAS, points
from torch.autograd import gradcheck, gradgradcheck

from lessons_src.derivatives import second
from lessons_src.what_not_to_do import SinhBad


def test_value_and_first_derivative_are_right():
    x = points()
    assert torch.allclose(SinhBad.apply(x), torch.sinh(x))
    assert gradcheck(SinhBad.apply, x)


def test_alone_it_raises():
    with pytest.raises(RuntimeError, match="does not require grad and does not have a grad_fn"):
        second(SinhBad.apply, points())


@pytest.mark.parametrize(
    "formula, lie",
    [("after", [2.5431, 4.7622]), ("before", [2.0628, 3.0862]), ("beside", [2.0, 2.0])],
)
def test_in_a_formula_it_gives_the_wrong_number_that_the_lesson_prints(formula, lie):
    x = points()
    ours = second(FORMULAS[formula](SinhBad.apply), x)
    assert torch.allclose(ours, torch.tensor(lie, dtype=torch.float64), atol=1e-4)
    assert not torch.allclose(ours, second(FORMULAS[formula](torch.sinh), x), rtol=0.05)


def test_gradgradcheck_fails():
    assert not gradgradcheck(SinhBad.apply, points(), raise_exception=False)


def test_the_exponentials_are_on_ctx_without_a_graph():
    out = SinhBad.apply(points())
    node = out.grad_fn
    assert sorted(vars(node)) == ["expnegx", "expx"]
    assert not node.expx.requires_grad
    assert node.saved_tensors == ()
