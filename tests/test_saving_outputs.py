import weakref

import torch
from formulas import points, wrong_formulas
from torch.autograd import gradcheck, gradgradcheck

from lessons_src.derivatives import derivative
from lessons_src.saving_outputs import Exp


def test_value_and_derivatives():
    x = points()
    assert torch.equal(Exp.apply(x), torch.exp(x))
    assert gradcheck(Exp.apply, x) and gradgradcheck(Exp.apply, x)


def test_second_derivative_is_right_in_every_formula():
    assert wrong_formulas(Exp.apply, torch.exp) == []


def test_five_derivatives_are_all_equal():
    x = points()
    for order in range(1, 6):
        assert torch.allclose(derivative(Exp.apply, x, order), torch.exp(x))


def test_the_saved_tensor_is_the_output_with_this_functions_node_and_memory():
    out = Exp.apply(points())
    (saved,) = out.grad_fn.saved_tensors
    assert saved.grad_fn is out.grad_fn
    assert saved.data_ptr() == out.data_ptr()


def test_no_reference_cycle():
    out = Exp.apply(points())
    node = weakref.ref(out.grad_fn)
    del out
    assert node() is None
