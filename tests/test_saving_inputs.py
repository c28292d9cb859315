import pytest
import torch
from formulas import points, wrong_formulas
from torch.autograd import gradcheck, gradgradcheck

from lessons_src.saving_inputs import Square


def test_value_and_derivatives():
    x = points()
    assert torch.equal(Square.apply(x), x**2)
    assert gradcheck(Square.apply, x) and gradgradcheck(Square.apply, x)


def test_second_derivative_is_right_in_every_formula():
    assert wrong_formulas(Square.apply, torch.square) == []


def test_the_saved_tensor_is_the_input_itself():
    x = points()
    out = Square.apply(x)
    (saved,) = out.grad_fn.saved_tensors
    assert saved is x
    assert not vars(out.grad_fn), "nothing is kept on ctx"


def test_an_edit_in_place_is_noticed():
    x = points()
    z = x * 1
    out = Square.apply(z)
    z.mul_(100)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()
