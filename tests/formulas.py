"""The formulas in which the tests differentiate each lesson's Function twice."""

import torch

from lessons_src.derivatives import second

FORMULAS = {
    "alone": lambda f: f,
    "after": lambda f: lambda x: f(x) ** 2,
    "before": lambda f: lambda x: f(x**2),
    "beside": lambda f: lambda x: f(x) + x**2,
}


def points():
    """The course's test point, x = 0.5 and 1.0."""
    return torch.tensor([0.5, 1.0], dtype=torch.float64, requires_grad=True)


def wrong_formulas(ours, truth):
    """Names of the formulas in which the second derivative of `ours` is not that of `truth`."""
    x = points()
    wrong = []
    for name, formula in FORMULAS.items():
        if not torch.allclose(second(formula(ours), x), second(formula(truth), x)):
            wrong.append(name)
    return wrong
