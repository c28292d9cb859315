"""In what way a backward is not linear, and whether a habit explains a wrong first derivative."""

import pytest
import torch
from torch.autograd import Function

from double_backward import diagnose

BENDS = {
    "adds": (lambda g, x: g * 2 * x + 1, "for a grad_out of 0"),
    "multiplies": (lambda g, x: g * 2 * x + g * g, "four times as much"),
    "takes its size": (lambda g, x: g.abs() * 2 * x, "looks at its sign"),
    "guided": (lambda g, x: g.clamp(min=0) * 2 * x, "looks at its sign"),
    "clips": (lambda g, x: (g * 2 * x).clamp(-10, 10), "so it clips"),
    "clips lopsidedly": (lambda g, x: g.clamp(-2, 5) * 2 * x, "so it clips"),
    "adds a little": (lambda g, x: g * 2 * x + 1e-6, "10,000 times smaller"),
    "scales": (lambda g, x: g * 2 * x * g.norm(), "four times as much"),
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


@pytest.mark.parametrize("name", BENDS)
def test_in_what_way_it_is_not_linear(name):
    backward, words = BENDS[name]
    assert words in said(square(backward))["backward_not_linear"]


def test_only_a_large_grad_out_shows_that_it_is_written_into():
    writes = said(square(lambda g, x: g.clamp_(-9, 9) * 2 * x))
    assert {"backward_not_linear", "mutates_grad_out"} <= set(writes)
    assert "mutates_grad_out" not in said(square(lambda g, x: g.clamp(-9, 9) * 2 * x))


def overwriting(factor):
    def backward(g, x):
        with torch.no_grad():
            twice = x.mul_(2) * 1
        return g * factor * twice

    return backward


def discarding(g, x):
    with torch.no_grad():
        x.mul_(g)
    return g * 5 * (x * 0 + 1)


HABITS = {  # a backward with one, the same with a first derivative that is another one besides
    "sign": (
        "backward_not_linear",
        lambda g, x: (
            torch.where(g > 0, g * 2 * x, 0.0) if (g < 0).any() else g.clamp(max=2) * 2 * x
        ),
        lambda g, x: torch.where(g > 0, g, 0.0),
    ),
    "adds": ("backward_not_linear", lambda g, x: g * 2 * x + 1, lambda g, x: g + 1),
    "random": (
        "backward_not_repeatable",
        lambda g, x: g * 2 * x * (0.5 + torch.rand(3).double()),
        lambda g, x: g * 6 * x * (0.5 + torch.rand(3).double()),
    ),
    "overwrites": ("mutates_saved", overwriting(1), discarding),
}


@pytest.mark.parametrize("name", HABITS)
def test_a_habit_hides_no_first_derivative_that_is_wrong_without_it(name):
    code, with_habit, and_wrong = HABITS[name]
    explained, besides = said(square(with_habit)), said(square(and_wrong))
    assert code in explained and "first_derivative_differs" not in explained
    assert code in besides and "first_derivative_differs" in besides


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
