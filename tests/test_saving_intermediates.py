import torch
from formulas import points, wrong_formulas
from torch.autograd import gradcheck, gradgradcheck

from lessons_src.derivatives import derivative
from lessons_src.operations import CountOperations
from lessons_src.saving_intermediates import Sinh, sinh


def test_value_and_derivatives_of_the_wrapper():
    x = points()
    assert torch.allclose(sinh(x), torch.sinh(x))
    assert gradcheck(sinh, x) and gradgradcheck(sinh, x)


def test_the_gradients_of_the_extra_outputs_are_right():
    x = points()
    assert gradcheck(Sinh.apply, x) and gradgradcheck(Sinh.apply, x)


def test_second_derivative_is_right_in_every_formula():
    assert wrong_formulas(sinh, torch.sinh) == []


def test_five_orders_are_right():
    x = points()
    for order in range(1, 6):
        truth = torch.sinh(x) if order % 2 == 0 else torch.cosh(x)
        assert torch.allclose(derivative(sinh, x, order), truth)


def test_the_saved_tensors_are_the_extra_outputs_themselves():
    outputs = Sinh.apply(points())
    saved = outputs[0].grad_fn.saved_tensors
    assert [tensor.output_nr for tensor in saved] == [1, 2]
    assert [tensor.data_ptr() for tensor in saved] == [out.data_ptr() for out in outputs[1:]]


def test_each_exponential_is_computed_once():
    with CountOperations() as operations:
        derivative(sinh, points(), order=2)
    assert operations.counts["exp"] == 2
