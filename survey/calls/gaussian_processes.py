"""Covariances, natural parameters and quadratic forms of Gaussian processes."""

import math

import torch

from ..listed import listed, load, normal, positive_definite, uniform


def squared_distance(x1, x2):
    return (x1.unsqueeze(-2) - x2.unsqueeze(-3)).pow(2).sum(-1)


@listed("gpytorch", "gpytorch.functions.rbf_covariance.RBFCovariance")
def rbf():
    """As `gpytorch.kernels.RBFKernel` calls it: with a length scale that is learned."""
    apply = load("gpytorch.functions.rbf_covariance.RBFCovariance").apply
    x1, x2 = normal(3, 2).detach(), normal(4, 2, seed=1).detach()

    def reference(lengthscale):
        return torch.exp(-squared_distance(x1 / lengthscale, x2 / lengthscale) / 2)

    return (
        lambda s: apply(x1, x2, s, squared_distance),
        [uniform(1, 1, low=0.8, high=1.2)],
        reference,
    )


@listed("gpytorch", "gpytorch.functions.matern_covariance.MaternCovariance")
def matern():
    apply = load("gpytorch.functions.matern_covariance.MaternCovariance").apply
    x1, x2 = normal(3, 2).detach(), normal(4, 2, seed=1).detach()

    def distance(a, b):
        return squared_distance(a, b).sqrt()

    def reference(lengthscale):
        d = math.sqrt(5) * distance(x1 / lengthscale, x2 / lengthscale)
        return (1 + d + d**2 / 3) * torch.exp(-d)

    return lambda s: apply(x1, x2, s, 2.5, distance), [uniform(1, 1, low=0.8, high=1.2)], reference


@listed("gpytorch", "gpytorch.functions._log_normal_cdf.LogNormalCDF")
def log_normal_cdf():
    apply = load("gpytorch.functions._log_normal_cdf.LogNormalCDF").apply
    z = torch.tensor([-2.0, -1.5, 0.5, 1.0], dtype=torch.float64, requires_grad=True)
    return apply, [z]


VARIATIONAL = "gpytorch.variational"


@listed("gpytorch", f"{VARIATIONAL}.large_batch_variational_strategy.QuadFormDiagonal")
def quad_form_diagonal():
    apply = load(f"{VARIATIONAL}.large_batch_variational_strategy.QuadFormDiagonal").apply
    b = normal(3, 4, seed=1)

    def fn(a, b):
        return apply(a + a.T, b)

    return fn, [normal(3, 3), b], lambda a, b: torch.diagonal(b.T @ (a + a.T) @ b)


@listed(
    "gpytorch",
    f"{VARIATIONAL}.natural_variational_distribution._NaturalToMuVarSqrt",
    surrogate=True,
)
def natural():
    return natural_parameters("natural_variational_distribution._NaturalToMuVarSqrt")


@listed(
    "gpytorch",
    f"{VARIATIONAL}.tril_natural_variational_distribution._TrilNaturalToMuVarSqrt",
    surrogate=True,
)
def tril_natural():
    apply = load(
        f"{VARIATIONAL}.tril_natural_variational_distribution._TrilNaturalToMuVarSqrt"
    ).apply

    def fn(mean, tril):
        return apply(mean, tril.tril())

    return fn, [normal(3), torch.linalg.cholesky(positive_definite(3).detach()).requires_grad_()]


def natural_parameters(function):
    apply = load(f"{VARIATIONAL}.{function}").apply

    def fn(mean, covar):
        return apply(mean, -(covar + covar.T) / 4)

    return fn, [normal(3), positive_definite(3)]


@listed("gpytorch", f"{VARIATIONAL}.variational_strategy.ComputePredictiveUpdates")
def predictive_updates():
    apply = load(f"{VARIATIONAL}.variational_strategy.ComputePredictiveUpdates").apply

    def symmetric(fn):
        return lambda chol, cov, mid, values: fn(chol.tril(), cov, (mid + mid.T) / 2, values)

    def reference(chol, cov, mid, values):
        term = torch.linalg.solve_triangular(chol, cov, upper=False)
        return term.T @ values, (term * (mid @ term)).sum(0)

    chol = torch.linalg.cholesky(positive_definite(3).detach()).requires_grad_()
    inputs = [chol, normal(3, 4, seed=1), positive_definite(3, seed=2), normal(3, seed=3)]
    return symmetric(apply), inputs, symmetric(reference)


LINEAR = "linear_operator.functions"


def exactly(compute):
    """Run by conjugate gradients, as linear_operator does for large matrices, to rounding."""
    from linear_operator import settings

    def fn(*inputs):
        with (
            settings.max_cholesky_size(1),
            settings.cg_tolerance(1e-12),
            settings.num_trace_samples(0),
        ):
            return compute(*inputs)

    return fn


def operator(a):
    from linear_operator.operators import to_linear_operator

    return to_linear_operator((a + a.T) / 2)


def symmetric(a):
    return (a + a.T) / 2


@listed("linear-operator", f"{LINEAR}._matmul.Matmul")
def matmul():
    """A Kronecker product, as of a Gaussian process with several outputs."""
    from linear_operator.operators import KroneckerProductLinearOperator

    def fn(p, q, b):
        return KroneckerProductLinearOperator(operator(p), operator(q)).matmul(b)

    def reference(p, q, b):
        return torch.kron(symmetric(p), symmetric(q)) @ b

    return fn, [normal(2, 2), normal(2, 2, seed=1), normal(4, 2, seed=2)], reference


@listed("linear-operator", f"{LINEAR}._solve.Solve")
def solve():
    """A vector on the right: what forward keeps is then not what it returns."""
    b = normal(4).detach()
    fn = exactly(lambda a: operator(a).solve(b))
    return fn, [positive_definite(4)], lambda a: torch.linalg.solve(symmetric(a), b)


@listed("linear-operator", f"{LINEAR}._inv_quad.InvQuad")
def inv_quad():
    fn = exactly(lambda a, b: operator(a).inv_quad(b))
    return (
        fn,
        [positive_definite(4), normal(4, 2)],
        lambda a, b: (b * torch.linalg.solve(symmetric(a), b)).sum(),
    )


@listed("linear-operator", f"{LINEAR}._inv_quad_logdet.InvQuadLogdet")
def inv_quad_logdet():
    from linear_operator import settings

    def fn(a, b):
        with (
            settings.max_cholesky_size(1),
            settings.cg_tolerance(1e-12),
            settings.deterministic_probes(True),
            settings.num_trace_samples(50),
        ):
            return operator(a).inv_quad_logdet(b, logdet=True)[0]

    def reference(a, b):
        return (b * torch.linalg.solve(symmetric(a), b)).sum()

    return fn, [positive_definite(4), normal(4, 2)], reference


@listed("linear-operator", f"{LINEAR}._sqrt_inv_matmul.SqrtInvMatmul")
def sqrt_inv_matmul():
    def reference(a, b):
        values, vectors = torch.linalg.eigh(symmetric(a))
        return vectors @ (values**-0.5).diag() @ vectors.T @ b

    return (
        exactly(lambda a, b: operator(a).sqrt_inv_matmul(b)),
        [positive_definite(4), normal(4, 2)],
        reference,
    )


@listed("linear-operator", f"{LINEAR}._pivoted_cholesky.PivotedCholesky")
def pivoted_cholesky():
    from linear_operator.functions import pivoted_cholesky

    return lambda a: pivoted_cholesky(operator(a), 2), [positive_definite(4)]


@listed("linear-operator", f"{LINEAR}._diagonalization.Diagonalization")
def diagonalization():
    return exactly(lambda a: operator(a).diagonalization(method="lanczos")[0]), [
        positive_definite(4)
    ]


@listed("linear-operator", f"{LINEAR}._root_decomposition.RootDecomposition")
def root_decomposition():
    def fn(a):
        return operator(a).root_decomposition(method="lanczos").to_dense()

    return exactly(fn), [positive_definite(4)], lambda a: symmetric(a)
