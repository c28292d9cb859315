"""A symmetric matrix stays symmetric: every verb then says the same of what is made for such."""

import warnings

import pytest
import torch
from made_functions import codes, function, of_inputs, saving

from double_backward import (
    SecondDerivativeError,
    assert_double_backward,
    detect_intermediates,
    diagnose,
    diagnose_all,
    recompute_intermediates,
)

POINTS = torch.tensor([[0.3, -0.2], [1.1, 0.4], [-0.7, 0.9], [0.2, 1.6]], dtype=torch.float64)
TARGETS = torch.tensor([[0.5], [-1.0], [0.3], [1.2]], dtype=torch.float64)


def matrix(dtype=torch.float64):
    """Symmetric, positive definite, requires grad."""
    rows = torch.tensor([[1.0, 0.3, -0.4], [0.2, -0.8, 0.5], [0.7, 0.1, 1.1]], dtype=torch.float64)
    return (rows @ rows.mT + torch.eye(3, dtype=torch.float64)).to(dtype).requires_grad_()


def right_side(dtype=torch.float64):
    return torch.tensor([[0.5, -1.0], [0.3, 1.2], [-0.6, 0.8]], dtype=dtype, requires_grad=True)


def by_cholesky(b, a):
    """A⁻¹ b, from the lower half of A alone."""
    return torch.cholesky_solve(b, torch.linalg.cholesky(a))


def solving(forward, kept=torch.clone):
    """Saves its solution; backward solves again, and takes A for Aᵀ."""

    def save(ctx, b, a):
        x = forward(b, a)
        ctx.save_for_backward(x, a)
        return x

    def backward(ctx, grad_out):
        x, a = ctx.saved_tensors
        by_b = Solve.apply(grad_out, a)
        return by_b, -by_b @ kept(x).mT

    Solve = function(save, backward, "CholeskySolve")
    return Solve


def inverse_saved(ctx, a):
    """The inverse, which is neither an input nor an output, is saved."""
    ctx.save_for_backward(torch.linalg.inv(a))
    return log_det(a)


def log_det(a):
    return 2 * torch.linalg.cholesky(a).diagonal(dim1=-2, dim2=-1).log().sum()


def by_conjugate_gradients(b, a):
    """A⁻¹ b from all of A."""
    x, r = torch.zeros_like(b), b
    p, size = r, (r * r).sum(0)
    for _ in range(12):
        step = size / (p * (a @ p)).sum(0).clamp(min=1e-300)
        x, r = x + step * p, r - step * (a @ p)
        last, size = size, (r * r).sum(0)
        p = r + size / last.clamp(min=1e-300) * p
    return x


def inverse(ctx, a):
    y = torch.linalg.inv(a)
    ctx.save_for_backward(y)
    return y


def nothing_transposed(ctx, g):
    """The inverse of a symmetric matrix is symmetric."""
    (y,) = ctx.saved_tensors
    return -y @ g @ y


def of_half_of_it(g, a):
    inverse = torch.linalg.inv(a)
    return g * (2 * inverse.tril() - inverse.diagonal().diag())


CholeskySolve = solving(by_cholesky)
LogDet = of_inputs(log_det, lambda g, a: g * torch.linalg.inv(a), "LogDet")
LogDetBad = function(inverse_saved, lambda ctx, g: g * ctx.saved_tensors[0], "LogDetBad")


def likelihood(a):
    return (TARGETS[:3] * CholeskySolve.apply(TARGETS[:3], a)).sum() + LogDet.apply(a)


OF_ONE = {
    "cholesky": torch.linalg.cholesky,
    "log of eigenvalues": lambda a: torch.linalg.eigvalsh(a).log().sum(),
    "LogDet": LogDet.apply,
    "Inverse": function(inverse, nothing_transposed).apply,
    "the lower half alone": of_inputs(torch.logdet, of_half_of_it).apply,
    "a likelihood": likelihood,
}
OF_TWO = {
    "cholesky_solve": by_cholesky,
    "CholeskySolve": CholeskySolve.apply,
    "conjugate gradients": solving(by_conjugate_gradients).apply,
}


@pytest.mark.parametrize("name", OF_ONE)
def test_what_is_made_for_symmetric_matrices_is_right(name):
    found = diagnose(OF_ONE[name], matrix())
    assert found.ok and "stays_symmetric" in codes(found), found


@pytest.mark.parametrize("name", OF_TWO)
def test_solves_are_right(name):
    found = diagnose(OF_TWO[name], right_side(), matrix())
    assert found.ok and "stays_symmetric" in codes(found), found


@pytest.mark.parametrize("fn", [torch.logdet, torch.linalg.inv, lambda a: a @ a])
def test_what_is_right_for_any_matrix_is_judged_as_such(fn):
    found = diagnose(fn, matrix())
    assert found.ok and not found.findings, found


def test_in_float32_and_for_complex_numbers():
    assert diagnose(CholeskySolve.apply, right_side(torch.float32), matrix(torch.float32)).ok
    skew = torch.tensor([[0, 0.3, -0.2], [-0.3, 0, 0.5], [0.2, -0.5, 0]], dtype=torch.float64)
    hermitian = torch.complex(matrix().detach(), skew).requires_grad_()
    assert diagnose(torch.linalg.eigvalsh, hermitian).ok


def test_of_several_matrices_and_of_one_that_is_not_contiguous():
    stack = torch.stack([matrix().detach(), 2 * matrix().detach()]).requires_grad_()
    assert diagnose(torch.linalg.cholesky, stack).ok
    wide = torch.zeros(6, 3, dtype=torch.float64)
    wide[::2] = matrix().detach()
    assert diagnose(torch.linalg.cholesky, wide[::2].requires_grad_()).ok


def test_what_refuses_another_matrix_is_judged():
    def symmetric(a):
        if not torch.equal(a, a.mT):
            raise ValueError("not symmetric")
        return torch.logdet(a)

    assert diagnose(symmetric, torch.eye(2, dtype=torch.float64, requires_grad=True)).ok


@pytest.mark.parametrize(
    ("fn", "inputs"),
    [(LogDetBad.apply, 1), (solving(by_cholesky, torch.detach).apply, 2)],
)
def test_what_is_wrong_for_symmetric_matrices_too_stays_wrong(fn, inputs):
    found = diagnose(fn, *[right_side(), matrix()][-inputs:])
    assert found.verdict == "silently_wrong" and found.first.outcome == "right", found
    assert "cause_unknown" not in codes(found)


def test_symmetry_is_not_spoken_of_where_it_does_not_matter():
    squared = saving(torch.square, lambda a: 2 * a, torch.mul)
    found = diagnose(squared, matrix())
    assert found.verdict == "silently_wrong" and "stays_symmetric" not in codes(found), found


def test_numbers_that_are_all_alike_are_not_meant_as_symmetric():
    Transposed = of_inputs(lambda a: a**2, lambda g, a: 2 * a * g.mT)

    ones = torch.ones(3, 3, dtype=torch.float64, requires_grad=True)
    assert diagnose(Transposed.apply, ones).verdict == "surrogate_gradient"


def kernel(scale):
    z = POINTS / scale
    apart = (z[:, None] - z[None]).square().sum(-1)
    return torch.exp(-apart / 2) + 0.1 * torch.eye(4, dtype=torch.float64)


def curvature(solve, logdet):
    """The Hessian of a Gaussian process's likelihood by two length scales, times ones."""
    scale = torch.tensor([0.7, 1.2], dtype=torch.float64, requires_grad=True)
    k = kernel(scale)
    loss = (TARGETS * solve(TARGETS, k)).sum() + logdet(k)
    (slope,) = torch.autograd.grad(loss, scale, create_graph=True)
    return torch.autograd.grad(slope.sum(), scale)[0]


def test_all_verbs_say_that_a_likelihood_is_right():
    def step():
        return curvature(CholeskySolve.apply, LogDet.apply)

    true = curvature(lambda b, a: torch.linalg.solve(a, b), torch.logdet)
    with warnings.catch_warnings(action="error"):
        for verb in (detect_intermediates, recompute_intermediates):
            with verb():
                assert torch.allclose(step(), true)
    table = diagnose_all(step)
    assert [row.verdict for row in table.rows] == ["supported"] * 2, table
    assert_double_backward(CholeskySolve.apply, right_side(), matrix())


def test_all_verbs_say_that_a_likelihood_is_wrong():
    def step():
        return curvature(CholeskySolve.apply, LogDetBad.apply)

    true = curvature(lambda b, a: torch.linalg.solve(a, b), torch.logdet)
    assert not torch.allclose(step(), true)
    with pytest.raises(SecondDerivativeError, match="LogDetBad"), detect_intermediates():
        step()
    with recompute_intermediates():
        assert torch.allclose(step(), true)
    wrong = [row.name for row in diagnose_all(step).rows if row.verdict != "supported"]
    assert wrong == ["LogDetBad"]


def test_a_trial_with_a_symmetric_matrix_tells_nothing_of_another():
    def curved(a):
        solution = CholeskySolve.apply(right_side().detach(), a)
        (slope,) = torch.autograd.grad((solution**2).sum(), a, create_graph=True)
        return torch.autograd.grad((slope**2).sum(), a)[0]

    other = (matrix() + torch.eye(3).roll(1, 1)).detach().requires_grad_()
    with detect_intermediates():
        curved(matrix())
        with pytest.raises(SecondDerivativeError, match="CholeskySolve"):
            curved(other)


def decomposed(ctx, a):
    found = tuple(torch.linalg.eigh(a))
    ctx.save_for_backward(*found)
    return found


def symmetrised(ctx, by_values, by_vectors):
    """Right for a symmetric matrix alone: eigh reads one half of it."""
    values, vectors = ctx.saved_tensors
    apart = values.unsqueeze(-2) - values.unsqueeze(-1)
    inverse = torch.where(apart == 0, 0.0, 1 / (apart + (apart == 0)))
    inside = inverse * (vectors.mT @ by_vectors) + torch.diag_embed(by_values)
    found = vectors @ inside @ vectors.mT
    return (found + found.mT) / 2


@pytest.mark.parametrize("remedy", [detect_intermediates, recompute_intermediates])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_what_is_symmetric_up_to_rounding_is_symmetric(dtype, remedy):
    """A generalised problem becomes a symmetric one by products, whose halves round apart."""
    eigh = function(decomposed, symmetrised, "Eigh").apply
    a, left = matrix(dtype), right_side(dtype)[:, :1] * torch.eye(3, dtype=dtype) + 0.3
    whole = left @ (a @ left.mT)
    assert not torch.equal(whole, whole.mT)

    def step():
        (first,) = torch.autograd.grad((eigh(whole)[0] ** 2).sum(), whole, create_graph=True)
        return first

    with remedy(), warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.autograd.grad(step().sum(), a, retain_graph=True)
    assert diagnose(lambda a: eigh(a)[0], whole.detach().requires_grad_()).ok
