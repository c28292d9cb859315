"""Of each pair one is wrong, only at second order, and by the formulas that the lessons name."""

import pytest
import torch
from formulas import points, wrong_formulas
from torch.autograd import gradcheck, gradgradcheck

from lessons_src import suspects
from lessons_src.derivatives import second


def first_output(function):
    return lambda x: function(x)[0]


RIGHT = {
    "cube": (suspects.cube_a, lambda x: x**3),
    "sigmoid": (suspects.sigmoid_b, torch.sigmoid),
    "sinh": (first_output(suspects.sinh_a), torch.sinh),
}
WRONG = {
    "cube": (suspects.cube_b, lambda x: x**3),
    "sigmoid": (suspects.sigmoid_a, torch.sigmoid),
    "sinh": (first_output(suspects.sinh_b), torch.sinh),
}


@pytest.mark.parametrize("name", RIGHT)
def test_the_right_one(name):
    function, truth = RIGHT[name]
    x = points()
    assert gradcheck(function, x) and gradgradcheck(function, x)
    assert wrong_formulas(function, truth) == []


@pytest.mark.parametrize("name", WRONG)
def test_the_wrong_one_is_wrong_at_second_order_only(name):
    function, truth = WRONG[name]
    x = points()
    assert torch.allclose(function(x), truth(x)) and gradcheck(function, x)
    assert not gradgradcheck(function, x, raise_exception=False)
    assert wrong_formulas(function, truth) != []


def test_the_cube_shows_it_after_the_function_only():
    x, (function, truth) = points(), WRONG["cube"]
    right = {
        "alone": lambda f: second(f, x),
        "before": lambda f: second(lambda x: f(x**2), x),
        "beside": lambda f: second(lambda x: f(x) + x**2, x),
    }
    assert all(torch.allclose(of(function), of(truth)) for of in right.values())
    after = [second(lambda x, f=f: f(x) ** 2, x) for f in (function, truth)]
    assert not torch.allclose(*after)


def test_the_wrong_sinh_fails_gradcheck_on_all_outputs():
    x = points()
    assert gradcheck(suspects.sinh_a, x)
    assert not gradcheck(suspects.sinh_b, x, raise_exception=False)
