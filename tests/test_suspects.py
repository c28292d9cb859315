"""Of each pair one is wrong, where its lesson says, and right where the lesson tries it."""

import pytest
import torch
from formulas import points, wrong_formulas
from torch.autograd import grad, gradcheck, gradgradcheck

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


SYMMETRIC = torch.tensor([[2.0, 0.5], [0.5, 1.0]], dtype=torch.float64, requires_grad=True)
OTHER = torch.tensor([[2.0, 0.5], [0.0, 1.0]], dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("A", [SYMMETRIC, OTHER], ids=["symmetric", "other"])
@pytest.mark.parametrize("quad", [suspects.quad_a, suspects.quad_b], ids=["a", "b"])
def test_the_wrong_quadratic_form_passes_both_checks_at_a_symmetric_matrix(quad, A):
    right = quad is suspects.quad_b or A is SYMMETRIC
    assert torch.allclose(quad(A, points()), points() @ A @ points())
    assert gradcheck(quad, (A, points()), raise_exception=False) == right
    assert gradgradcheck(quad, (A, points()))


def test_the_wrong_quadratic_form_is_wrong_at_second_order_even_there():
    mixed = []
    for quad in (suspects.quad_a, suspects.quad_b, lambda A, x: x @ A @ x):
        x = points()
        (grad_x,) = grad(quad(SYMMETRIC, x), x, create_graph=True)
        mixed += grad(grad_x[0], SYMMETRIC)
    assert torch.equal(mixed[1], mixed[2]) and not torch.allclose(mixed[0], mixed[2])
