"""diagnose, where the numbers themselves are the difficulty."""

import pytest
import torch
from torch.autograd import Function

from lessons_src import diagnose
from lessons_src.diagnosis.judge import scatters

x = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64, requires_grad=True)


def codes(diagnosis):
    return {finding.code for finding in diagnosis.findings}


class Cubed(Function):
    @staticmethod
    def forward(ctx, x, unit_x, unit_y):
        ctx.save_for_backward(x)
        ctx.units = unit_x, unit_y
        return (x / unit_x) ** 3 * unit_y

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        unit_x, unit_y = ctx.units
        return grad_out * 3 * x**2 / unit_x**3 * unit_y, None, None


class CubedDetached(Cubed):
    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        unit_x, unit_y = ctx.units
        return grad_out * 3 * x.detach() * x / unit_x**3 * unit_y, None, None


UNITS = [(1, 1), (1, 1e-30), (1e-12, 1), (1e6, 1e-15), (1e12, 1e12)]


@pytest.mark.parametrize("unit_x, unit_y", UNITS)
def test_a_power_of_ten_changes_no_verdict(unit_x, unit_y):
    there = (x * unit_x).detach().requires_grad_()
    right = diagnose(lambda x: Cubed.apply(x, unit_x, unit_y), there)
    wrong = diagnose(lambda x: CubedDetached.apply(x, unit_x, unit_y), there)
    assert (right.verdict, wrong.verdict) == ("supported", "silently_wrong")
    assert ("far_from_one" in codes(right)) == ((unit_x, unit_y) != (1, 1))


def test_one_output_far_smaller_than_the_other():
    def both(x):
        return torch.sin(x), CubedDetached.apply(x, 1.0, 1e-9)

    assert diagnose(both, x).verdict == "silently_wrong"


class Scaled(Function):
    """Twice differentiable, and its first derivative is off by a factor."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x**3

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return grad_out * 3 * x**2 * ctx.factor, None


@pytest.mark.parametrize("factor", [1.1, 1.05, 0.98, 1.005])
def test_a_first_derivative_off_by_a_factor_is_no_solver(factor):
    found = diagnose(lambda x: Scaled.apply(x, factor), x)
    assert found.verdict == "surrogate_gradient"
    assert "first_derivative_differs" in codes(found)


def test_deviations_that_scatter_are_noise():
    assert scatters(torch.tensor([0.01, -0.02, 0.015, -0.005]))
    assert scatters(torch.tensor([0.05, -0.04]))  # to both sides
    assert scatters(torch.tensor([0.001, 0.004, 0.002]))  # to one side, and small
    assert not scatters(torch.tensor([0.05, 0.02, 0.04]))  # to one side, and large
    assert not scatters(torch.tensor([0.005, 0.005, 0.0051]))  # a factor
    assert not scatters(torch.tensor([0.005]))


class Softmax(Function):
    """Its second derivative is wrong, and a shift common to all x shows nothing of it."""

    @staticmethod
    def forward(ctx, x):
        ctx.p = torch.softmax(x, 0)
        return torch.logsumexp(x, 0)

    @staticmethod
    def backward(ctx, grad_out):
        return grad_out * ctx.p


def test_an_error_that_a_sum_hides_is_shown():
    found = diagnose(Softmax.apply, x)
    assert found.verdict == "silently_wrong"
    assert all(row.outcome in ("wrong", "raises") for row in found.settings.values())
    assert "intermediate_on_ctx" in codes(found)


class TwoOutputs(Function):
    """Right with both outputs, silently 0 if only the first is used."""

    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x)
        return x**3, x**2

    @staticmethod
    def backward(ctx, grad_cube, grad_square):
        (x,) = ctx.saved_tensors
        if grad_square is None:
            return torch.zeros_like(x)
        return (0 if grad_cube is None else grad_cube * 3 * x**2) + grad_square * 2 * x


def test_an_output_used_alone():
    found = diagnose(TwoOutputs.apply, x)
    assert not found.ok and "output_used_alone" in codes(found)


class OtherWithGraph(Function):
    """The first derivative is right, and 0 as soon as create_graph=True."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        factor = 0 if torch.is_grad_enabled() else 1
        return factor * grad_out * 3 * x**2


def test_a_first_derivative_that_create_graph_changes():
    found = diagnose(OtherWithGraph.apply, x)
    assert found.verdict == "silently_wrong" and "changed_by_create_graph" in codes(found)


def test_a_reentrant_checkpoint_is_followed_by_backward():
    def block(x):
        return torch.utils.checkpoint.checkpoint(lambda x: x**3, x, use_reentrant=True)

    found = diagnose(block, x)
    assert "only_by_backward" in codes(found)
    assert found.verdict == "silently_wrong"


def test_elements_at_a_kink_are_counted():
    found = diagnose(torch.relu, torch.tensor([0.0, 0.5, 1.0], requires_grad=True))
    (said,) = [f.message for f in found.findings if f.code == "elements_not_checked"]
    assert said.startswith("1 of 3 elements not checked")


class FreesAtTheLastStep(Function):
    """Its second backward works only while the first graph is retained."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return Once.apply(grad_out, x)


class Once(Function):
    @staticmethod
    def forward(ctx, grad_out, x):
        ctx.save_for_backward(grad_out, x)
        return grad_out * 3 * x**2

    @staticmethod
    def backward(ctx, h):
        grad_out, x = ctx.saved_tensors
        inner = x.detach().requires_grad_()
        with torch.enable_grad():
            out = inner**3
        (slope,) = torch.autograd.grad(out.sum(), inner)
        torch.autograd.grad(out.sum(), inner)  # freed, unless somebody retains it
        return h * slope, h * grad_out * 6 * x


def test_an_error_that_a_reader_gets_is_a_row():
    found = diagnose(FreesAtTheLastStep.apply, x)
    assert found.verdict == "raises"


class SquareOfBits(Function):
    """Takes float32 apart as pairs; of float64 there would be twice as many, and other numbers."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.view_as_real(x.view(torch.complex64)) ** 2

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return grad_out.reshape(x.shape) * 2 * x


def test_bits_seen_as_another_dtype_are_not_converted():
    single = torch.tensor([0.5, 1.0, 2.0, 1.5], requires_grad=True)
    found = diagnose(SquareOfBits.apply, single)
    assert found.verdict == "supported" and "computes_in_float32" in codes(found)
