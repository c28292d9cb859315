"""Differential equations, roots, integrals and fixed points, solved forward and adjoint."""

import torch

from ..listed import listed, load, normal, skip_init, uniform


class Linear(torch.nn.Module):
    """dy/dt = tanh(y A), the matrix A a parameter."""

    def __init__(self):
        super().__init__()
        self.A = torch.nn.Parameter(normal(2, 2, scale=0.5).detach())

    def forward(self, t, y):
        return torch.tanh(y @ self.A)


@listed("torchdiffeq", "torchdiffeq._impl.adjoint.OdeintAdjointMethod")
def odeint_adjoint():
    from torchdiffeq import odeint, odeint_adjoint

    field, t = Linear(), torch.linspace(0, 1, 3, dtype=torch.float64)
    options = {"method": "rk4", "options": {"step_size": 0.02}}
    return (
        lambda y: odeint_adjoint(field, y, t, **options)[1:],
        [normal(2, 2)],
        lambda y: odeint(field, y, t, **options)[1:],
    )


@listed(
    "torchdyn", "torchdyn.numerics.sensitivity._ODEProblemFunc", absent=("torchcde",), bare=True
)
def torchdyn_adjoint():
    skip_init("torchdyn.core.problems.ODEProblem")
    ODEProblem = load("torchdyn.core.problems.ODEProblem")

    field = Linear()
    problem = ODEProblem(field, solver="rk4", sensitivity="adjoint")
    t = torch.linspace(0, 1, 30, dtype=torch.float64)
    return lambda y: problem(y, t)[1][-1], [normal(2, 2)]


@listed("zuko", "zuko.utils.Bisection")
def bisection():
    from zuko.utils import bisection

    def fn(y, a):
        return bisection(lambda x: x**3 + a * x, y, -5.0, 5.0, n=60, phi=(a,))

    def reference(y, a):
        """Cardano's formula for the one real root of x**3 + a x = y, a > 0."""
        root = torch.sqrt(y**2 / 4 + a**3 / 27)
        up = (y / 2 + root).pow(1 / 3)
        return up - a / (3 * up)

    return fn, [uniform(3, low=0.5, high=1.5), uniform(3, low=1, high=2, seed=1)], reference


@listed("zuko", "zuko.utils.GaussLegendre")
def gauss_legendre():
    from zuko.utils import gauss_legendre

    def fn(a, b, k):
        return gauss_legendre(lambda x: x**3 + k * x, a, b, n=5, phi=(k,))

    def reference(a, b, k):
        return (b**4 - a**4) / 4 + k * (b**2 - a**2) / 2

    return fn, [normal(3), normal(3, seed=1), normal(3, seed=2)], reference


@listed("zuko", "zuko.utils.AdaptiveCheckpointAdjoint")
def zuko_odeint():
    from zuko.utils import odeint

    def fn(x, k):
        t = torch.tensor(1.0, dtype=x.dtype)
        return odeint(
            lambda t, x: -k * x, x, torch.zeros_like(t), t, phi=(k,), atol=1e-10, rtol=1e-10
        )

    return fn, [normal(3), uniform(3, seed=1)], lambda x, k: x * torch.exp(-k)


@listed("xitorch", "xitorch.optimize.rootfinder._RootFinder")
def rootfinder():
    from xitorch.optimize import rootfinder

    def fn(a):
        return rootfinder(lambda y, a: y**3 + y - a, torch.zeros_like(a), params=(a,), f_tol=1e-12)

    def reference(a):
        root = torch.sqrt(a**2 / 4 + 1 / 27)
        up = (a / 2 + root).pow(1 / 3)
        return up - 1 / (3 * up)

    return fn, [uniform(3, low=0.5, high=2)], reference


@listed("xitorch", "xitorch.integrate.quad._Quadrature")
def quad():
    from xitorch.integrate import quad

    def fn(a):
        low, high = (torch.tensor(v, dtype=a.dtype) for v in (0.0, 1.0))
        return quad(lambda x, a: torch.sin(a * x), low, high, params=(a,), n=10)

    return fn, [uniform(2, low=0.5, high=2)], lambda a: (1 - torch.cos(a)) / a


@listed("xitorch", "xitorch.integrate.solve_ivp._SolveIVP")
def solve_ivp():
    from xitorch.integrate import solve_ivp

    def fn(y, k):
        t = torch.linspace(0, 1, 3, dtype=y.dtype)
        return solve_ivp(lambda t, y, k: -k * y, t, y, params=(k,), atol=1e-10, rtol=1e-10)[-1]

    return fn, [normal(3), uniform(3, seed=1)], lambda y, k: y * torch.exp(-k)


@listed("torchidl", "torchidl.implicit_function.ImplicitFunction", bare=True)
def implicit_function():
    implicit = load("torchidl.implicit_function.ImplicitFunction")
    implicit.set_parameters(mitr=300, grad_mitr=300, tol=1e-13, grad_tol=1e-13)
    start = torch.zeros(3, 2, dtype=torch.float64)

    def reference(a, b, u):
        x = start
        for _ in range(200):
            x = (a @ x + b @ u).clamp(min=0)
        return x

    inputs = [normal(3, 3, scale=0.15), normal(3, 2, seed=1), normal(2, 2, seed=2)]
    return lambda a, b, u: implicit.apply(a, b, start, u), inputs, reference
