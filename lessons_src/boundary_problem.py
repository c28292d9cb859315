"""u'' = u on [0, 3] with u(0) = 0 and u(3) = 1, solved by training (lessons 3 and 4).

The trial function is x times a layer of four units, so u(0) = 0 holds exactly; the other conditions
stand in the loss. The exact solution is sinh(x) / sinh(3). All quantities are dimensionless.
"""

import numpy as np
import torch
from scipy.integrate import solve_bvp

LENGTH = 3.0


def train(function, residual, steps=300):
    """Fit the twelve parameters of the trial function by L-BFGS, always from the same start.

    Args:
        function: the layer's activation, callable from tensor to tensor of the same shape.
        residual: callable (u, x) to tensor of x's shape; zero where the equation holds.
        steps: int, the most iterations to take.

    Returns:
        (trial, loss): trial is a callable from a float64 tensor of shape (n,) to one of shape (n,),
        loss the final value as a float.

    Raises:
        RuntimeError: from autograd, when `residual` or the loss cannot be differentiated.
    """
    w, b = torch.linspace(0.3, -0.3, 4), torch.linspace(0.1, -0.1, 4)
    parameters = [p.double().requires_grad_() for p in (w, b, torch.full((4,), 0.1))]
    x = torch.linspace(0, LENGTH, 21, dtype=torch.float64, requires_grad=True)

    def trial(x):
        w, b, c = parameters
        return x * (function(x[:, None] * w + b) @ c)

    def loss():
        optimizer.zero_grad()
        u = trial(x)
        value = (residual(u, x) ** 2).mean() + (u[-1] - 1) ** 2
        value.backward()
        return value

    optimizer = torch.optim.LBFGS(
        parameters,
        max_iter=steps,
        line_search_fn="strong_wolfe",
        tolerance_grad=1e-10,
        tolerance_change=1e-14,
    )
    optimizer.step(loss)
    return trial, loss().item()


def by_scipy(points):
    """u at the points, by SciPy's collocation with piecewise polynomials.

    Args:
        points: float64 array (n,) from 0 to 3, increasing; also the mesh that SciPy starts from.

    Returns:
        float64 array (n,).
    """
    found = solve_bvp(
        lambda x, u: np.vstack([u[1], u[0]]),  # u' and u'' of [u, u']
        lambda left, right: np.array([left[0], right[0] - 1]),
        points,
        np.zeros((2, len(points))),
    )
    return found.sol(points)[0]
