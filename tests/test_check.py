"""check: backward's own derivative, beside differences, for a callable at a point."""

import pytest
import torch
from made_functions import cubic, of_inputs
from test_diagnosis_facts import Once, cube_with, nested, without_grad_out

from double_backward.check import Line, Outcome, Subject, check, first, measure
from lessons_src.saving_inputs import Square
from lessons_src.saving_intermediates import Sinh
from lessons_src.saving_outputs import Exp
from lessons_src.untracked_backward import Cube
from lessons_src.what_not_to_do import SinhBad

RIGHT, WRONG = Outcome.RIGHT, Outcome.WRONG


def x(*values, dtype=torch.float64):
    return torch.tensor(values or (0.5, 1.0, -1.3), dtype=dtype)


def measured(fn, *inputs, follows=(), **tolerances):
    """For a callable of tensors that returns one or a tuple of them."""
    calls = []

    def function(given):
        calls.append(1)
        out = fn(*given)
        return out if isinstance(out, tuple) else (out,)

    inputs = inputs or (x(),)
    u = tuple(torch.linspace(1, 2, y.numel()).to(y).view_as(y) for y in function(inputs))
    calls.clear()
    expected = measure(Line.of(Subject(function, inputs, u, follows=follows)), **tolerances)
    expected.line.subject.__dict__["calls"] = calls
    return expected


def outcomes(found):
    return [str(one.outcome) for one in (found.by_input, found.by_grad_out, found.tied)]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("fn", [Square.apply, Exp.apply, Sinh.apply, Cube.apply, torch.tanh])
def test_what_is_right_is_right_in_every_respect(fn, dtype):
    expected = measured(fn, x(dtype=dtype))
    found = check(expected)
    assert outcomes(found) == ["right"] * 3 and not found.bad and not found.wrong
    assert first(expected).outcome is RIGHT


WRONG_ONES = {  # how by_input, by_grad_out and tied end
    "on ctx": (SinhBad.apply, ["wrong", "right", "wrong"]),
    "x detached": (cubic(lambda g, x: g * 3 * x.detach() ** 2), ["wrong", "right", "wrong"]),
    "half of it": (
        cubic(lambda g, x: g * 3 * (x**2 + x.detach() ** 2) / 2), ["wrong", "right", "wrong"]),
    "grad_out detached": (cubic(lambda g, x: g.detach() * 3 * x**2), ["right", "wrong", "wrong"]),
    "grad_out forgotten": (cube_with(without_grad_out), ["right", "wrong", "wrong"]),
    "a path twice": (nested(False), ["right", "right", "wrong"]),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_ONES)
def test_what_is_wrong_is_found_where_it_is_wrong(name):
    fn, ends = WRONG_ONES[name]
    expected = measured(fn)
    found = check(expected)
    assert outcomes(found) == ends and found.wrong == (0,)
    assert first(expected).outcome is RIGHT


def test_a_constant_grad_out_is_not_asked_for():
    found = check(measured(WRONG_ONES["grad_out forgotten"][0], follows=(False,)))
    assert outcomes(found) == ["right", "not asked", "not asked"] and not found.bad


def test_the_gradient_that_is_wrong_is_told():
    product = of_inputs(lambda a, b: a * b**2, lambda g, a, b: (g * b**2, g * 2 * a.detach() * b))
    assert check(measured(product.apply, x(), x(2.0, 0.3, 0.7))).wrong == (1,)


def test_an_answer_that_raises_is_neither_right_nor_wrong():
    found = check(measured(cubic(lambda g, x: g * torch.from_numpy(3 * x.numpy() ** 2))))
    assert found.by_input.outcome is Outcome.RAISES and "numpy()" in found.by_input.text
    assert found.by_grad_out.outcome is Outcome.NOT_ASKED and found.bad and not found.wrong


def test_the_guard_of_once_differentiable_lets_zeros_through():
    found = check(measured(Once.apply))
    assert found.by_input.outcome is WRONG and found.by_input.got == 0 and found.unresolved


def test_where_nothing_is_smooth_nothing_is_claimed():
    noise = torch.Generator().manual_seed(0)
    fn = cubic(lambda g, x: g * torch.rand(x.shape, generator=noise, dtype=x.dtype))
    found = check(measured(fn))
    assert found.by_input.outcome is Outcome.UNCLEAR and not found.wrong


def test_another_gradient_where_it_is_recorded():
    found = check(measured(cubic(lambda g, x: g * 3 * x**2 * (1 + torch.is_grad_enabled()))))
    assert found.recorded.outcome is WRONG


def test_a_first_derivative_that_is_another():
    expected = measured(cubic(lambda g, x: g * 3.1 * x**2))
    assert first(expected).outcome is WRONG and not check(expected).bad


@pytest.mark.parametrize("rtol, ends", [(None, "wrong"), (0.05, "right"), (1e-3, "wrong")])
def test_the_tolerance_is_given(rtol, ends):
    def two_percent_less(g, x):
        return (
            g * 3 * x**2 * (0.98 + 0.02 * (x.detach() / x)) ** 2
            if x.requires_grad
            else g * 3 * x**2
        )

    assert check(measured(cubic(two_percent_less), rtol=rtol)).by_input.outcome == ends
    assert check(measured(cubic(two_percent_less), rtol=1e-3, atol=1e3)).by_input.outcome is RIGHT


def test_small_elements_count_as_much_as_large_ones():
    point = x(1e-4, 1.0, 1e4)
    keep_small = cubic(lambda g, x: g * 3 * torch.cat([x[:1].detach(), x[1:]]) ** 2)
    assert check(measured(keep_small, point)).by_input.outcome is WRONG
    assert not check(measured(cubic(lambda g, x: g * 3 * x**2), point)).bad


def test_complex_numbers_and_several_outputs():
    def fn(z):
        return z**2, (z.conj() * z).real

    assert not check(measured(fn, torch.tensor([0.5 + 0.2j, -1.0 + 1j]).to(torch.complex128))).bad


def test_a_square_takes_ten_calls():
    expected = measured(Square.apply)
    check(expected)
    assert len(expected.line.subject.calls) == 10
