import numpy as np
import pytest
import torch
from torch.autograd import grad

from lessons_src.boundary_problem import LENGTH, by_scipy, train


def residual(u, x):
    (u_x,) = grad(u.sum(), x, create_graph=True)
    (u_xx,) = grad(u_x.sum(), x, create_graph=True)
    return u_xx - u


pytestmark = pytest.mark.slow  # torch's optimizers import Dynamo; lesson 3 trains in every run


def test_training_with_torchs_own_sinh_finds_the_exact_solution():
    trial, loss = train(torch.sinh, residual)
    x = torch.linspace(0, LENGTH, 7, dtype=torch.float64)
    assert loss < 1e-6
    exact = torch.sinh(x) / torch.sinh(x[-1])
    assert torch.allclose(trial(x), exact, atol=1e-3)


def test_the_start_is_the_one_that_the_lessons_curves_begin_with():
    trial, _ = train(torch.sinh, residual, steps=0)
    x = torch.tensor([1.5], dtype=torch.float64)
    units = ((0.3, 0.1), (0.1, 1 / 30), (-0.1, -1 / 30), (-0.3, -0.1))  # weight and bias
    expected = 1.5 * 0.1 * sum(torch.sinh(1.5 * w + torch.tensor(b)) for w, b in units)
    assert torch.allclose(trial(x), expected.double(), atol=1e-7)


def test_training_is_repeatable():
    first, second = (train(torch.sinh, residual, steps=5)[1] for _ in range(2))
    assert first == second


def test_scipy_finds_the_exact_solution():
    points = np.linspace(0, LENGTH, 61)
    assert np.abs(by_scipy(points) - np.sinh(points) / np.sinh(LENGTH)).max() < 1e-4
