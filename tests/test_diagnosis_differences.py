"""Finite differences: known derivatives, known errors, kinks, float32; and flat vectors."""

import math

import pytest
import torch
from made_functions import function

from double_backward.differences import STEPS, filled, flat, same, shaped, slope, vjp

DOUBLE, SINGLE = torch.float64, torch.float32


def vector(*values, dtype=DOUBLE):
    return torch.tensor(values, dtype=dtype)


KNOWN = {  # value at h, its derivative at 0
    "linear": (lambda h: vector(3 * h + 1), 3.0),
    "sine": (lambda h: vector(math.sin(h + 0.5)), math.cos(0.5)),
    "exponential": (lambda h: vector(math.exp(2 * h)), 2.0),
    "cubic": (lambda h: vector((h + 2) ** 3), 12.0),
    "constant": (lambda h: vector(7.0), 0.0),
    "steep": (lambda h: vector(math.sin(1000 * h)), 1000.0),
}


@pytest.mark.parametrize("name", KNOWN)
def test_known_derivative_and_an_error_that_holds(name):
    at, true = KNOWN[name]
    value, error, _ = slope(at, DOUBLE, 1.0)
    assert value.item() == pytest.approx(true, rel=1e-6, abs=1e-9)
    assert abs(value.item() - true) <= error.item()


@pytest.mark.parametrize("name", KNOWN)
def test_the_error_is_not_much_too_large(name):
    at, true = KNOWN[name]
    assert slope(at, DOUBLE, 1.0).error.item() <= 1e-2 * abs(true) + 1e-8


def test_central_differences_are_exact_for_a_square():
    value, _, _ = slope(lambda h: vector((h + 3) ** 2), DOUBLE, 1.0)
    assert value.item() == pytest.approx(6.0, rel=1e-9)  # one-sided ones would give 6.0001


def test_what_two_steps_disagree_by_is_taken_off():
    # The fine step alone is off by 1e-8 * 120 / 6 = 2e-7.
    value, error, likely = slope(lambda h: vector(1 / (1 - 2 * h) ** 3), DOUBLE, 1.0)
    off = abs(value.item() - 6.0)
    assert off < 1e-9
    assert off < likely.item() < 1e-5 < error.item() < 1e-3


def test_a_kink_shows_in_the_error():
    value, error, _ = slope(lambda h: vector(abs(h), 2 * h), DOUBLE, 1.0)
    assert value.tolist() == pytest.approx([0.0, 2.0])
    assert error[0] > 1.0  # the two sides: -1 and 1
    assert error[1] < 1e-6


def test_a_kink_close_by_is_stepped_around():
    # At a distance of 1e-5 the middle pair of steps does not reach it.
    value, error, _ = slope(lambda h: vector(abs(h + 2e-5)), DOUBLE, 1.0)
    assert value.item() == pytest.approx(1.0)
    assert error.item() < 1e-6


def test_a_jump_is_never_trusted():
    _, error, _ = slope(lambda h: vector(float(h > 0)), DOUBLE, 1.0)
    assert error.item() > 10


def test_noise_wants_the_longest_steps():
    # A tread of 1e-4: short steps see stairs, long ones the slope.
    value, error, _ = slope(lambda h: vector(round(1e4 * math.sin(h)) / 1e4), DOUBLE, 1.0)
    assert value.item() == pytest.approx(1.0, abs=0.02)
    assert abs(value.item() - 1.0) <= error.item()


def test_what_jumps_within_a_step_is_not_known_by_the_step():
    """A bump between the widest steps, of a number that is mostly rounding: flat to these."""
    bump = slope(
        lambda h: vector(math.exp(-(((h - 0.01) / 0.005) ** 2))), DOUBLE, 1.0, vector(0.01)
    )
    true = 2 * 0.01 / 0.005**2 * math.exp(-4)
    assert abs(bump.value.item() - true) <= bump.error.item()


def test_a_number_that_is_not_finite_leaves_the_others_known():
    found = slope(lambda h: vector(math.sin(1 + h), -math.inf), DOUBLE, 1.0)
    assert found.error[0] < 1e-8 and found.error[1] > 1e300


def test_float32():
    def single(h):
        return torch.sin(torch.tensor([0.5 + h], dtype=SINGLE)).double()

    value, error, _ = slope(single, SINGLE, 1.0)
    assert value.item() == pytest.approx(math.cos(0.5), rel=1e-3)
    assert 1e-7 < error.item() < 1e-2
    assert abs(value.item() - math.cos(0.5)) <= error.item()


def test_not_finite_is_zero_with_an_infinite_error():
    value, error, _ = slope(lambda h: vector(math.nan, h), DOUBLE, 1.0)
    assert value.tolist() == pytest.approx([0.0, 1.0])
    assert error[0] == math.inf


def test_outside_the_domain_on_one_side():
    def root(h):
        return vector(math.sqrt(h) if h >= 0 else math.nan)

    assert slope(root, DOUBLE, 1.0).error.item() == math.inf


def test_steps_grow_with_the_scale():
    steps = []

    def at(h):
        steps.append(abs(h))
        return vector(h)

    slope(at, DOUBLE, 1e-3)
    assert max(steps) == pytest.approx(1e-3 * STEPS[DOUBLE][0][0])


def test_vjp():
    x = vector(0.5, 1.0).requires_grad_()
    z = vector(2.0).requires_grad_()
    ys = [x**3, x.sum() * z, vector(1.0)]  # the last one has no graph
    w = [vector(1.0, 10.0), vector(100.0), vector(5.0)]
    assert vjp(ys, [x, z], w).tolist() == [0.75 + 200, 30 + 200, 150]
    assert vjp(ys, [x, z], w).tolist() == [0.75 + 200, 30 + 200, 150]  # the graph is still there


def test_vjp_of_nothing_is_zero():
    x = vector(0.5, 1.0).requires_grad_()
    assert vjp([vector(3.0)], [x], [vector(1.0)]).tolist() == [0.0, 0.0]
    assert vjp([(2 * vector(1.0).requires_grad_())], [x], [vector(1.0)]).tolist() == [0.0, 0.0]


def test_vjp_hands_over_a_copy_of_the_weights():
    overwriting = function(lambda ctx, x: 2 * x, lambda ctx, g: g.mul_(2)).apply
    x, w = vector(0.5).requires_grad_(), vector(1.0)
    assert vjp([overwriting(x)], [x], [w]).item() == 2.0
    assert w.item() == 1.0


def test_flat_and_shaped_are_inverse():
    like = [torch.zeros(2, 3, dtype=SINGLE), torch.zeros((), dtype=DOUBLE)]
    pieces = shaped(torch.arange(7.0, dtype=DOUBLE), like)
    assert [(p.shape, p.dtype) for p in pieces] == [(p.shape, p.dtype) for p in like]
    assert flat(pieces).tolist() == list(range(7))
    assert flat(pieces).dtype == DOUBLE
    assert filled([None, pieces[1]], pieces).tolist() == [0, 0, 0, 0, 0, 0, 6]


def test_same():
    nan = torch.tensor([1.0, torch.nan, torch.inf])
    assert same(nan, nan.clone()) and same(torch.nan, torch.nan) and same(2, 2.0)
    assert same(nan.numpy(), nan.numpy().copy()) and same(nan > 1, nan > 1)
    assert same(torch.eye(2), torch.eye(2).to_sparse())
    assert not same(nan, nan[:1]) and not same(nan, nan + torch.tensor([1e-7, 0, 0]))
    assert not same(1.0, torch.nan) and not same(nan.numpy(), 1.0)


def test_values_of_16_bits_are_fitted_over_many_steps():
    def at(h):
        return torch.tensor([torch.e**h, 3 * h, 1.0]).bfloat16().double()

    found = slope(at, torch.bfloat16, scale=1.0)
    assert torch.allclose(found.value, torch.tensor([1.0, 3.0, 0.0]).double(), atol=0.05)
    assert 0 < found.error[0] < 0.02 and found.error[2] == 0
    assert torch.equal(found.likely, found.error)
    assert (found.value - torch.tensor([1.0, 3.0, 0.0])).abs()[0] < 10 * found.error[0]
