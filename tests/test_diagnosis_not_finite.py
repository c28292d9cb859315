"""A derivative that is not finite: the advice depends on whether fn has one there, and mends. What
is 0 throughout is noted."""

import pytest
import torch
from made_functions import x
from torch.autograd import grad

from double_backward import diagnose
from lessons_src.saving_inputs import Square

CENTRE = torch.tensor([1.0, 2.0], dtype=torch.float64)


def zeros():
    return x(0.0, 0.0)


def second(fn, point):
    (g,) = grad(fn(point).sum(), point, create_graph=True)
    return grad(g.sum(), point)[0]


def chosen(x):
    return torch.where(x > 0, torch.sqrt(x), 0.0)


def chosen_twice(x):
    ok = x > 0
    return torch.where(ok, torch.sqrt(torch.where(ok, x, 1.0)), 0.0)


def sinc_by_where(x):
    return torch.where(x == 0, 1.0, x.sin() / x)


def sinc_by_a_series(x):
    near = x.abs() < 1e-3
    far = torch.where(near, 1.0, x)
    return torch.where(near, 1 - x**2 / 6, far.sin() / far)


def to_the_fourth(x):
    return torch.linalg.norm(x) ** 4


MENDED = {  # fn, a point, what is said; the same as advised, and its second derivative
    "norm squared": (
        lambda x: torch.linalg.norm(x) ** 2,
        zeros(),
        "(x * x).sum()",
        lambda x: (x * x).sum(),
        [2.0, 2.0],
    ),
    "a kernel at equal points": (
        lambda x: torch.exp(-(torch.linalg.norm(x - CENTRE) ** 2)),
        x(1.0, 2.0),
        "(x * x).sum()",
        lambda x: torch.exp(-((x - CENTRE) ** 2).sum()),
        [-2.0, -2.0],
    ),
    "a root of a square": (
        lambda x: ((x * x).sum().sqrt()) ** 2,
        zeros(),
        "(x * x).sum()",
        lambda x: (x * x).sum(),
        [2.0, 2.0],
    ),
    "to the fourth": (
        to_the_fourth,
        zeros(),
        "(x * x).sum()",
        lambda x: (x * x).sum() ** 2,
        [0.0, 0.0],
    ),
    "norm": (
        torch.linalg.norm,
        zeros(),
        "has a kink here",
        lambda x: torch.sqrt((x * x).sum() + 1e-12),
        [1e6, 1e6],
    ),
    "root": (
        torch.sqrt,
        x(0.0, 1.0),
        "infinitely steep",
        lambda x: torch.sqrt(x + 1e-6),
        [-0.25e9, -0.25],
    ),
    "a branch that is not chosen": (
        chosen,
        x(-1.0, 4.0, 0.0),
        "torch.where(ok, f(torch.where(ok, x, 1.0)), 0.0)",
        chosen_twice,
        [0.0, -1 / 32, 0.0],
    ),
    "a plain number is chosen": (
        sinc_by_where,
        zeros(),
        "in the place of sin(x)/x is 1 - x**2 / 6",
        sinc_by_a_series,
        [-1 / 3, -1 / 3],
    ),
}


@pytest.mark.parametrize("name", MENDED)
def test_the_advice_mends(name):
    fn, point, said, cure, expected = MENDED[name]
    found = diagnose(fn, point)
    assert found.verdict == "not_finite", found
    assert said in found.read_first.message, found
    number = second(cure, point)
    assert torch.allclose(number, torch.tensor(expected, dtype=torch.float64), rtol=1e-3), number


def test_a_mask_is_not_advised_where_the_number_is_used():
    message = diagnose(*MENDED["norm squared"][:2]).read_first.message
    assert "would give another number" in message and "torch.where(ok" not in message


# 0 throughout.


def relu(x):
    return torch.relu(x @ torch.tensor([[1.0, 2.0], [0.5, -1.0]], dtype=torch.float64))


NOTED = {  # -> what is noted
    "a net of ReLU": (relu, "0 throughout", x(0.7, 1.2)),
    "an input that is not used": (lambda a, b: a**2 + 0 * a, "does not change with b", x(), x()),
    "a product with ones": (lambda x: x.logsumexp(0), "each row of the Hessian", x()),
}
NOT = {
    "plain": (torch.sin, x()),
    "a Function": (Square.apply, x()),
    "one number": (torch.exp, x(1.0)),
}


@pytest.mark.parametrize("name", NOTED)
def test_what_is_0_is_noted_and_convicts_nobody(name):
    fn, said, *inputs = NOTED[name]
    found = diagnose(fn, *inputs)
    (note,) = [f for f in found.findings if f.code == "nothing_but_zero"]
    assert found.ok and note.severity == "note" and said in note.message, found


@pytest.mark.parametrize("name", NOT)
def test_what_is_not_0_is_not_noted(name):
    fn, *inputs = NOT[name]
    assert "nothing_but_zero" not in [f.code for f in diagnose(fn, *inputs).findings]


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_a_small_input_makes_no_second_derivative_0(scale):
    at = scale * torch.tensor([0.5, -1.2, 0.8], dtype=torch.float64)
    assert not diagnose(lambda x: (x**2).sum(), at.requires_grad_()).findings
