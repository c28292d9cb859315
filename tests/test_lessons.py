"""The Functions of the lessons: value and two derivatives beside plain torch, right or wrong.

What else a lesson says of them it shows itself: its cells are executed and compared in every run.
"""

import csv
import re
from pathlib import Path

import nbformat
import pytest
import torch
from formulas import FORMULAS, points, wrong_formulas
from torch.autograd import grad, gradcheck, gradgradcheck

from double_backward import diagnose
from lessons_src import suspects
from lessons_src import untracked_backward as lesson_5
from lessons_src.derivatives import derivative, second
from lessons_src.operations import CountOperations
from lessons_src.saving_inputs import Square
from lessons_src.saving_intermediates import Sinh, sinh
from lessons_src.saving_outputs import Exp
from lessons_src.what_not_to_do import SinhBad
from lessons_src.your_own_function import (
    Kepler,
    QuadForm,
    Round,
    Softplus,
    Spike,
    by_rounds,
    quad_form,
)
from survey import table

LESSON = Path(__file__).parent.parent / "notebooks" / "4_what_not_to_do.ipynb"
SURVEY = Path(__file__).parent.parent / "survey"


def cube(x):
    return x**3


RIGHT = {
    "Square": (Square.apply, torch.square),
    "Exp": (Exp.apply, torch.exp),
    "sinh": (sinh, torch.sinh),
    "Cube": (lesson_5.Cube.apply, cube),
    "CubeNumPy": (lesson_5.CubeNumPy.apply, cube),
    "Softplus": (Softplus.apply, torch.nn.functional.softplus),
    "cube a": (suspects.cube_a, cube),
    "sigmoid b": (suspects.sigmoid_b, torch.sigmoid),
    "sinh a": (lambda x: suspects.sinh_a(x)[0], torch.sinh),
}
WRONG = {  # and the formulas that show it
    "cube b": (suspects.cube_b, cube, ["after"]),
    "sigmoid a": (suspects.sigmoid_a, torch.sigmoid, list(FORMULAS)),
    "sinh b": (lambda x: suspects.sinh_b(x)[0], torch.sinh, list(FORMULAS)),
}


@pytest.mark.parametrize("name", RIGHT)
def test_the_right_ones(name):
    function, truth = RIGHT[name]
    x = points()
    assert torch.allclose(function(x), truth(x))
    assert gradcheck(function, x) and gradgradcheck(function, x)
    assert wrong_formulas(function, truth) == []


@pytest.mark.parametrize("name", WRONG)
def test_the_wrong_ones_are_wrong_at_second_order_only(name):
    function, truth, formulas = WRONG[name]
    x = points()
    assert torch.allclose(function(x), truth(x)) and gradcheck(function, x)
    assert not gradgradcheck(function, x, raise_exception=False)
    assert wrong_formulas(function, truth) == formulas


def test_sinh_bad_raises_alone_and_is_a_wrong_number_in_a_formula():
    x = points()
    assert torch.allclose(SinhBad.apply(x), torch.sinh(x)) and gradcheck(SinhBad.apply, x)
    with pytest.raises(RuntimeError, match="does not require grad and does not have a grad_fn"):
        second(SinhBad.apply, x)
    for formula in ("after", "before", "beside"):
        ours, truth = (second(FORMULAS[formula](f), x) for f in (SinhBad.apply, torch.sinh))
        assert not torch.allclose(ours, truth, rtol=0.05)


def test_all_outputs_of_sinh_are_right_and_of_its_wrong_twin_are_not():
    x = points()
    for right in (Sinh.apply, suspects.sinh_a):
        assert gradcheck(right, x) and gradgradcheck(right, x)
    assert not gradcheck(suspects.sinh_b, x, raise_exception=False)


ORDERS = {  # how often it can be differentiated, and the derivative then
    "Exp": (Exp.apply, 5, torch.exp),
    "sinh": (sinh, 5, torch.cosh),
    "Cube": (lesson_5.Cube.apply, 3, lambda x: torch.full_like(x, 6)),
    "ExpIntegral": (
        lesson_5.ExpIntegral.apply,
        3,
        lambda x: -torch.exp(-x) * (x**2 + 2 * x + 2) / x**3,
    ),
}


@pytest.mark.parametrize("name", ORDERS)
def test_higher_orders(name):
    function, order, truth = ORDERS[name]
    assert torch.allclose(derivative(function, points(), order), truth(points()))


def test_the_third_order_ends_with_numpy():
    x, in_numpy = points(), lesson_5.CubeNumPy.apply
    with CountOperations() as operations:
        second(in_numpy, x)
    assert not {"pow", "mul"} & set(operations.counts)  # NumPy computes all of it
    with pytest.raises(RuntimeError, match="does not require grad"):
        derivative(in_numpy, x, 3)
    wrong = derivative(lambda x: in_numpy(x) ** 2, x, 3)
    assert torch.allclose(wrong, torch.tensor([4.5, 36.0], dtype=torch.float64))


@pytest.mark.parametrize("backward", [lesson_5.CubeBackward, lesson_5.CubeNumPyBackward])
def test_backward_has_a_gradient_for_grad_out_and_for_x(backward):
    grad_out = torch.tensor([2.0, -1.0], dtype=torch.float64, requires_grad=True)
    assert gradcheck(backward.apply, (grad_out, points()))


def test_the_exponential_integral():
    x, value = points(), torch.tensor([0.55977359, 0.21938393], dtype=torch.float64)
    assert torch.allclose(lesson_5.ExpIntegral.apply(x), value)
    assert gradgradcheck(lesson_5.ExpIntegral.apply, x)


@pytest.mark.parametrize("shape", [(6,), (2, 3), (1,)])
def test_log_sum_exp_of_any_shape(shape):
    x = torch.linspace(-2, 3, 6, dtype=torch.float64)[: torch.Size(shape).numel()]
    x = x.reshape(shape).requires_grad_()
    assert torch.allclose(lesson_5.LogSumExp.apply(x), torch.logsumexp(x.reshape(-1), 0))
    assert gradcheck(lesson_5.LogSumExp.apply, x) and gradgradcheck(lesson_5.LogSumExp.apply, x)


ROW, COL = torch.tensor([[0, 0, 1, 1, 1, 2, 2], [0, 1, 0, 1, 2, 1, 2]])


def dense_solve(values, b):
    return torch.linalg.solve(values.new_zeros(3, 3).index_put((ROW, COL), values), b)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_solve_that_applies_itself_is_right_at_each_order(order):
    values = torch.tensor([2, -1, -0.5, 2.5, -1, -1, 3], dtype=torch.float64, requires_grad=True)
    b = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)

    def squared(solve):
        return lambda v: solve(v, b * v[:3]) ** 2

    ours = derivative(squared(lambda *a: lesson_5.Solve.apply(*a, ROW, COL)), values, order)
    assert torch.allclose(ours, derivative(squared(dense_solve), values, order))


@pytest.mark.parametrize("order", [1, 2, 3])
def test_a_fixed_point_is_differentiated_as_its_rounds_are(order):
    x, e = points(), torch.tensor([0.5, -0.3], dtype=torch.float64, requires_grad=True)
    u = Kepler.apply(x, e)
    assert torch.allclose(u, x + e * torch.sin(u), rtol=1e-14)
    assert gradcheck(Kepler.apply, (x, e)) and gradgradcheck(Kepler.apply, (x, e))
    for of in (lambda f: lambda x: f(x, e) ** 2, lambda f: lambda x: f(x**2, e * x)):
        ours, rounds = (derivative(of(f), x, order) for f in (Kepler.apply, by_rounds))
        assert torch.allclose(ours, rounds)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_softplus_is_finite_and_right_far_from_0_and_at_its_kinks(dtype):
    x = torch.tensor([-1000.0, -30.0, 0.0, 30.0, 1000.0], dtype=dtype, requires_grad=True)
    s = torch.sigmoid(x.detach())
    truths = [torch.logaddexp(x, torch.zeros_like(x)).detach(), s, s * (1 - s)]
    for order, truth in enumerate([*truths, s * (1 - s) * (1 - 2 * s)]):
        assert torch.allclose(derivative(Softplus.apply, x, order), truth, atol=1e-12)


MEANT = [  # a Function, its values, and the function whose gradient it has
    (Round, torch.round, lambda x: x),
    (Spike, lambda x: (x > 0).to(x.dtype), lambda x: torch.sigmoid(4 * x)),
]


@pytest.mark.parametrize("function, hard, soft", MEANT)
def test_a_gradient_of_its_own_is_the_meant_one_to_second_order(function, hard, soft):
    def meant(x):
        return soft(x) + (hard(x) - soft(x)).detach()

    x = torch.tensor([-0.3, 0.1, 0.45, 1.2], dtype=torch.float64, requires_grad=True)
    assert torch.equal(function.apply(x), hard(x))
    for formula in ("after", "before", "beside"):
        for order in (1, 2):
            ours, expected = (
                derivative(FORMULAS[formula](f), x, order) for f in (function.apply, meant)
            )
            assert torch.allclose(ours, expected)
    assert not diagnose(function.apply, x).ok
    assert diagnose(function.apply, x, ignore=[function]).ok


MATRICES = {
    "symmetric": torch.tensor([[2.0, 0.5], [0.5, 1.0]], dtype=torch.float64),
    "other": torch.tensor([[2.0, 0.5], [0.0, 1.0]], dtype=torch.float64),
}


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


@pytest.mark.parametrize("kind", MATRICES)
@pytest.mark.parametrize("quad", [suspects.quad_a, suspects.quad_b], ids=["a", "b"])
def test_the_wrong_quadratic_form_passes_both_checks_at_a_symmetric_matrix(quad, kind):
    A = MATRICES[kind].clone().requires_grad_()
    right = quad is suspects.quad_b or kind == "symmetric"
    assert torch.allclose(quad(A, points()), points() @ A @ points())
    assert gradcheck(quad, (A, points()), raise_exception=False) == right
    assert gradgradcheck(quad, (A, points()))


def test_the_wrong_quadratic_form_is_wrong_at_second_order_even_there():
    mixed, A = [], MATRICES["symmetric"].clone().requires_grad_()
    for quad in (suspects.quad_a, suspects.quad_b, lambda A, x: x @ A @ x):
        x = points()
        (grad_x,) = grad(quad(A, x), x, create_graph=True)
        mixed += grad(grad_x[0], A)
    assert torch.equal(mixed[1], mixed[2]) and not torch.allclose(mixed[0], mixed[2])


# What the lessons tell of the survey.


def test_what_was_met_in_the_wild_is_what_the_survey_stores():
    text = "\n".join(cell.source for cell in nbformat.read(LESSON, as_version=4).cells)
    told = text.split("## Met in the wild")[1].split("\n## ")[0]
    program = (SURVEY / "documented" / "gpytorch_matern.py").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```python\n(.*?)```", told, re.DOTALL)
    assert shown.strip() in program
    with (SURVEY / "documented.csv").open(encoding="utf-8") as file:
        row = next(row for row in csv.DictReader(file) if row["name"] == "gpytorch_matern")
    numbers = [row["got"], row["expected"], row["instead"]]
    assert re.findall(r"\*\*([-.\d]+)\*\*", told) == numbers[:2] and numbers[2] == numbers[1]
    assert re.search(r"GPyTorch (\S+),", told)[1] in (SURVEY / "packages.txt").read_text("utf-8")
    for written in re.findall(r"\]\((https.*?)\)|\"(.*?)\"", told):
        assert max(written) in program


def test_nearly_half_of_the_surveyed_functions_have_a_gradient_of_their_own():
    """As lesson 6 says."""
    rows = table.read()
    assert 0.45 < sum(bool(row["surrogate"]) for row in rows) / len(rows) < 0.5
