"""tangents: how what backward returns changes, exactly; what they cannot follow is noticed."""

import importlib.util
from pathlib import Path

import pytest
import torch
from made_functions import cubic, of_inputs
from test_check import measured, outcomes
from torch.utils.checkpoint import checkpoint

from double_backward import diagnose, tangents
from double_backward.check import Outcome, check
from lessons_src.saving_inputs import Square
from lessons_src.saving_intermediates import Sinh
from lessons_src.saving_outputs import Exp
from lessons_src.untracked_backward import Cube
from lessons_src.what_not_to_do import SinhBad


def x(*values, dtype=torch.float64):
    return torch.tensor(values or (0.5, 1.0, -1.3), dtype=dtype)


def writes(x):
    x.mul_(1.0)
    return x**3


def item(g, x):
    return g * 3 * x.detach().square().sum().item()


@pytest.mark.parametrize("fn", [Square.apply, Exp.apply, Sinh.apply, SinhBad.apply, torch.tanh])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_what_stays_in_torch_is_known_exactly(fn, dtype):
    expected = measured(fn, x(dtype=dtype))
    assert expected.exact and not expected.lost
    slow = measured(fn, x()).by_differences()
    digits = 1e-7 if dtype is torch.float64 else 1e-5
    assert torch.allclose(expected.by_input.value, slow.by_input.value, rtol=digits)


LOST = {  # what ends there, and what is said of it
    "NumPy": (cubic(lambda g, x: g * torch.from_numpy(3 * x.detach().numpy() ** 2)), "numpy"),
    "a number": (cubic(item), "item in item"),
    "written into": (of_inputs(writes, lambda g, x: g * 3 * x**2).apply, "written into"),
    "hooks": (lambda x: checkpoint(Square.apply, x, use_reentrant=False), "hooks"),
    "no formula": (lambda x: x.to_sparse().to_dense() ** 2, ""),
}


@pytest.mark.parametrize("name", LOST)
def test_what_cannot_be_followed_is_told_with_its_line(name):
    fn, told = LOST[name]
    expected = measured(fn)
    assert not expected.exact and told in expected.lost, expected.lost


def test_without_tangents_differences_say_what_they_said(monkeypatch):
    monkeypatch.setattr(tangents, "available", lambda: False)
    for fn, ends in ((Cube.apply, "right"), (SinhBad.apply, "wrong")):
        expected = measured(fn)
        assert not expected.exact and outcomes(check(expected))[0] == ends
        assert diagnose(fn, x().requires_grad_()).ok == (ends == "right")


def test_a_bisection_is_judged_by_differences():
    """Its tangents are those of the interval it began with."""

    def root(y):
        low, high = torch.zeros_like(y), torch.full_like(y, 4.0) + 0 * y
        for _ in range(60):
            middle = (low + high) / 2
            below = middle**3 < y
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        return (low + high) / 2

    class Root(torch.autograd.Function):
        @staticmethod
        def forward(ctx, y):
            out = root(y)
            ctx.save_for_backward(out)
            return out

        @staticmethod
        def backward(ctx, g):
            (out,) = ctx.saved_tensors
            return g / (3 * out**2)

    expected = measured(Root.apply, x(0.5, 1.0, 7.0))
    assert not expected.exact and check(expected).by_input.outcome is Outcome.RIGHT
    assert diagnose(Root.apply, x(0.5, 1.0, 7.0).requires_grad_()).ok


STAIRS = {  # x to nine digits, in steps of which tangents and autograd both say that they are flat
    "round": lambda x: x.round(decimals=9),
    "floor": lambda x: (x * 2**30).floor() / 2**30,
    "whole numbers": lambda x: (x * 2**30).long().to(x.dtype) / 2**30,
    "remainder": lambda x: x.detach() - torch.remainder(x.detach(), 2**-30),
}


@pytest.mark.parametrize("name", STAIRS)
@pytest.mark.parametrize("share", [0.003, 0.03, 0.15])
def test_what_is_flat_by_tangents_and_rises_by_differences_is_no_truth(name, share):
    """A share of the second derivative is lost on the way through it."""

    part = 6 * share
    stairs = cubic(lambda g, x: g * x * ((3 - part) * x + part * STAIRS[name](x)))
    assert diagnose(stairs, x(0.5, 1.3, -0.7).requires_grad_()).verdict == "silently_wrong"


def second_times(factor, only=None):
    """x**3, of which backward applies a second Function that is off by a factor."""

    class Back(torch.autograd.Function):
        @staticmethod
        def forward(ctx, g, x):
            ctx.save_for_backward(g, x)
            return 3 * g * x**2

        @staticmethod
        def backward(ctx, h):
            g, x = ctx.saved_tensors
            return h * 3 * x**2, h * g * 6 * x * factor

    class Of(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            assert only in (None, x.dtype)
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, g):
            return Back.apply(g, ctx.saved_tensors[0])

    return Of.apply


@pytest.mark.parametrize("factor", [1.0003, 0.96, 1.08])
@pytest.mark.parametrize("only", [None, torch.float32])
def test_a_small_error_is_found_and_its_function_named(factor, only):
    for seed in range(2):
        draw = torch.Generator().manual_seed(seed)
        at = (torch.rand(6, generator=draw) * 0.9 + 0.3).requires_grad_()
        found = diagnose(second_times(factor, only), at)
        assert found.verdict == "silently_wrong", str(found)
        if only is None:
            assert found.cause.code == "second_function_gradient", str(found)
    right = diagnose(second_times(1.0, only), at)
    assert right.ok and 0 < right.resolution < 1e-3
    assert right.to_dict()["resolution"] == right.resolution


@pytest.mark.parametrize("rtol", [1e-3, 0.02])
def test_a_tolerance_excuses_nothing_larger(rtol):
    for factor in (1.1, 0.75):
        found = diagnose(second_times(factor), x().requires_grad_(), rtol=rtol)
        assert found.verdict == "silently_wrong", str(found)


def test_what_is_judged_roughly_is_not_called_right():
    """Rounded to one digit behind the point, in NumPy: no difference knows much of these."""

    def rough(g, x):
        return g * torch.from_numpy((3 * x.detach().numpy() ** 2).round(1))

    found = diagnose(cubic(rough), x().requires_grad_())
    assert not found.ok or found.resolution <= 0.02, str(found)


ROOT = Path(__file__).parents[1]


def planted():
    """The benchmark that writes the table, and the table of the page."""
    path = ROOT / "scripts" / "benchmarks" / "planted_errors.py"
    spec = importlib.util.spec_from_file_location("planted_errors", path)
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    page = (ROOT / "docs" / "tool" / "limits.md").read_text()
    begin, end = benchmark.MARKS
    return benchmark, page.partition(begin)[2].partition(end)[0].strip().splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["float64", "float32 only", "NumPy"])
def test_the_page_says_the_smallest_error_that_is_found(kind):
    benchmark, lines = planted()
    (line,) = [line for line in lines if line.startswith(f"| {kind} |")]
    assert benchmark.row(kind).split("|")[:5] == line.split("|")[:5]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["float64", "float32", "float32 only", "16 bits", "NumPy"])
def test_the_page_says_what_the_remedies_find(kind):
    benchmark, lines = planted()
    assert benchmark.row(kind, remedies=True) in lines


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["float64", "float32 only"])
@pytest.mark.parametrize("rtol", [0.001, 0.02])
def test_the_page_says_what_is_found_where_an_error_is_permitted(kind, rtol):
    benchmark, lines = planted()
    assert benchmark.row(kind, rtol) in lines
