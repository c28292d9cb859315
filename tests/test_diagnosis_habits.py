"""Backwards that are not linear, and whether a habit explains a wrong first derivative."""

import pytest
import torch
from torch.autograd import Function

from double_backward import diagnose

BENT = {
    "adds": lambda g, x: g * 2 * x + 1,
    "multiplies": lambda g, x: g * 2 * x + g * g,
    "takes its size": lambda g, x: g.abs() * 2 * x,
    "guided": lambda g, x: g.clamp(min=0) * 2 * x,
    "clips": lambda g, x: (g * 2 * x).clamp(-10, 10),
    "clips lopsidedly": lambda g, x: g.clamp(-2, 5) * 2 * x,
    "adds a little": lambda g, x: g * 2 * x + 1e-6,
    "scales": lambda g, x: g * 2 * x * g.norm(),
}


def x():
    return torch.tensor([0.5, 1.0, 1.5], dtype=torch.float64, requires_grad=True)


def square(backward):
    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**2

    Square.backward = staticmethod(lambda ctx, g: backward(g, *ctx.saved_tensors))
    return Square.apply


def said(fn):
    return {finding.code: finding.message for finding in diagnose(fn, x()).findings}


@pytest.mark.parametrize("name", BENT)
def test_a_backward_that_is_not_linear(name):
    told = said(square(BENT[name]))["backward_not_linear"]
    assert "for a multiple of it, or the negative" in told


def overwriting(g, x):
    with torch.no_grad():
        twice = x.mul_(2) * 1
    return g * twice


HABITS = {
    "sign": ("backward_not_linear", lambda g, x: torch.where(g > 0, g * 2 * x, 0.0)),
    "adds": ("backward_not_linear", lambda g, x: g * 2 * x + 1),
    "random": (
        "backward_not_repeatable",
        lambda g, x: g * 2 * x * (0.5 + torch.rand(3).double()),
    ),
    "overwrites": ("mutates_saved", overwriting),
}


@pytest.mark.parametrize("name", HABITS)
def test_a_habit_is_what_is_wrong_with_a_first_derivative(name):
    code, backward = HABITS[name]
    found = said(square(backward))
    assert code in found and "first_derivative_differs" not in found


class Root(Function):
    @staticmethod
    def forward(ctx, x):
        y = x.sqrt()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad_out):
        (y,) = ctx.saved_tensors
        return grad_out / (2 * y)


class RootBad(Root):
    """grad_out is forgotten."""

    @staticmethod
    def backward(ctx, grad_out):
        (y,) = ctx.saved_tensors
        return 1 / (2 * y)


INFINITE = {
    "sqrt": (torch.sqrt, (0.0, 0.0)),
    "power": (lambda x: x**0.5, (0.0, 0.0)),
    "asin": (torch.asin, (1.0, 1.0)),
    "acos": (torch.acos, (1.0, -1.0)),
    "Root": (Root.apply, (0.0, 0.0)),
    "Root, partly": (Root.apply, (0.0, 1.0)),
}


@pytest.mark.parametrize("name", INFINITE)
def test_an_infinite_derivative_is_not_one_that_ignores_grad_out(name):
    fn, values = INFINITE[name]
    found = diagnose(fn, torch.tensor(values, dtype=torch.float64, requires_grad=True))
    assert found.verdict == "not_finite", found
    assert "backward_not_linear" not in [finding.code for finding in found.findings]


def test_beside_an_infinite_one_the_others_show_that_grad_out_is_ignored():
    x = torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64, requires_grad=True)
    found = diagnose(RootBad.apply, x)
    assert "backward_not_linear" in [finding.code for finding in found.findings], found
