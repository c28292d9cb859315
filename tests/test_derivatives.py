import pytest
import torch
from formulas import points

from lessons_src.derivatives import derivative, orders_right, second


def test_derivatives_of_a_cube():
    x = points()
    for order, truth in ((1, 3 * x**2), (2, 6 * x), (3, torch.full_like(x, 6))):
        assert torch.allclose(derivative(lambda x: x**3, x, order), truth)
    assert torch.allclose(second(lambda x: x**3, x), 6 * x)


def test_the_result_is_detached_and_x_keeps_no_gradient():
    x = points()
    assert not second(torch.exp, x).requires_grad
    assert x.grad is None


def test_a_missing_graph_raises_autograds_own_error():
    with pytest.raises(RuntimeError, match="does not require grad"):
        second(lambda x: torch.exp(x.detach()), points())


def test_orders_right_stops_at_the_first_that_is_wrong_or_raises():
    x = points()
    truths = [torch.cos, lambda x: -torch.sin(x), lambda x: -torch.cos(x)]
    assert orders_right(torch.sin, truths, x) == 3
    assert orders_right(torch.sin, [torch.cos, torch.cos], x) == 1
    assert orders_right(lambda x: 2 * x, [lambda x: torch.full_like(x, 2), torch.cos], x) == 1
