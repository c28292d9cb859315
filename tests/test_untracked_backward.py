import pytest
import torch
from formulas import points, wrong_formulas
from torch.autograd import grad, gradcheck, gradgradcheck

from double_backward import diagnose
from lessons_src import untracked_backward as lesson
from lessons_src.derivatives import derivative, second
from lessons_src.operations import CountOperations

CUBES = [lesson.Cube.apply, lesson.CubeNumPy.apply]
BACKWARDS = [lesson.CubeBackward.apply, lesson.CubeNumPyBackward.apply]


@pytest.mark.parametrize("cube", CUBES)
def test_value_and_derivatives(cube):
    x = points()
    assert torch.equal(cube(x), x**3)
    assert gradcheck(cube, x) and gradgradcheck(cube, x)


@pytest.mark.parametrize("cube", CUBES)
def test_second_derivative_is_right_in_every_formula(cube):
    assert wrong_formulas(cube, lambda x: x**3) == []


@pytest.mark.parametrize("backward", BACKWARDS)
def test_backward_has_a_gradient_for_grad_out_and_for_x(backward):
    grad_out = torch.tensor([2.0, -1.0], dtype=torch.float64, requires_grad=True)
    assert gradcheck(backward, (grad_out, points()))


def test_the_first_derivative_is_made_by_the_second_function():
    x = points()
    (grad_x,) = grad(lesson.Cube.apply(x).sum(), x, create_graph=True)
    assert grad_x.grad_fn.name() == "CubeBackwardBackward"


def test_numpy_computes_everything_and_torch_nothing():
    with CountOperations() as operations:
        second(lesson.CubeNumPy.apply, points())
    assert not {"pow", "mul"} & set(operations.counts)


def test_the_third_order_ends_with_numpy():
    x = points()
    assert torch.allclose(derivative(lesson.Cube.apply, x, 3), torch.full_like(x, 6))
    with pytest.raises(RuntimeError, match="does not require grad"):
        derivative(lesson.CubeNumPy.apply, x, 3)
    in_a_formula = derivative(lambda x: lesson.CubeNumPy.apply(x) ** 2, x, 3)
    assert torch.allclose(in_a_formula, torch.tensor([4.5, 36.0], dtype=torch.float64))


def test_exponential_integral_needs_one_function():
    x = points()
    assert torch.allclose(
        lesson.ExpIntegral.apply(x), torch.tensor([0.55977359, 0.21938393], dtype=torch.float64)
    )
    assert gradcheck(lesson.ExpIntegral.apply, x) and gradgradcheck(lesson.ExpIntegral.apply, x)
    third = -torch.exp(-x) * (x**2 + 2 * x + 2) / x**3
    assert torch.allclose(derivative(lesson.ExpIntegral.apply, x, 3), third)


@pytest.mark.parametrize("shape", [(6,), (2, 3), (1,)])
def test_log_sum_exp_of_any_shape(shape):
    x = torch.linspace(-2, 3, 6, dtype=torch.float64)[: shape[-1] * (shape[0] if shape[1:] else 1)]
    x = x.reshape(shape).requires_grad_()
    assert torch.allclose(lesson.LogSumExp.apply(x), torch.logsumexp(x.reshape(-1), 0))
    assert gradcheck(lesson.LogSumExp.apply, x) and gradgradcheck(lesson.LogSumExp.apply, x)
    assert diagnose(lesson.LogSumExp.apply, x).ok


ROW, COL = torch.tensor([[0, 0, 1, 1, 1, 2, 2], [0, 1, 0, 1, 2, 1, 2]])


def dense_solve(values, b):
    return torch.linalg.solve(values.new_zeros(3, 3).index_put((ROW, COL), values), b)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_solve_that_applies_itself_is_right_at_each_order(order):
    values = torch.tensor([2, -1, -0.5, 2.5, -1, -1, 3], dtype=torch.float64, requires_grad=True)
    b = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64, requires_grad=True)

    def squared(solve, v):
        return solve(v, b * v[:3]) ** 2

    ours = derivative(
        lambda v: squared(lambda *a: lesson.Solve.apply(*a, ROW, COL), v), values, order
    )
    assert torch.allclose(ours, derivative(lambda v: squared(dense_solve, v), values, order))
    assert diagnose(lambda v, b: lesson.Solve.apply(v, b, ROW, COL), values, b).ok
