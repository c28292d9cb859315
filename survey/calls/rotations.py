"""Rotations, rigid motions and other Lie groups."""

import importlib
import os

import numpy as np
import torch

from ..listed import listed, load, normal, positive_definite, uniform

PYPOSE = "pypose.lietensor.operation"

# PyPose's gradient for a group element is one for a step on the group, written into as many numbers
# as the element has. So its Functions are called as formulas from tangent vectors to tangent or
# plain vectors, where a derivative is what it is everywhere else.
GROUPS = {"so3": ("SO3", 3), "se3": ("SE3", 6)}


def pypose(name, make):
    def prepared():
        def apply(name, *inputs):
            return load(f"{PYPOSE}.{name}").apply(*inputs)

        return make(apply)

    listed("pypose", f"{PYPOSE}.{name}", absent=("torchvision",))(prepared)


def hat(group, x):
    """The generator of a group element, a 4 x 4 matrix, from its tangent vector."""
    a, b, c = x[..., -3:].unbind(-1)
    zero = torch.zeros_like(a)
    move = x[..., :3].unbind(-1) if group == "se3" else (zero, zero, zero)
    rows = ((zero, -c, b, move[0]), (c, zero, -a, move[1]), (-b, a, zero, move[2]))
    rows = [torch.stack(row, -1) for row in (*rows, (zero,) * 4)]
    return torch.stack(rows, -2)


def moved(group, x, p):
    one = torch.ones_like(p[..., :1])
    matrix = torch.linalg.matrix_exp(hat(group, x))
    return (matrix @ torch.cat([p, one], -1).unsqueeze(-1)).squeeze(-1)[..., :3]


def functions_of(group):
    big, numbers = GROUPS[group]
    x, y = normal(1, numbers, scale=0.5), normal(1, numbers, scale=0.3, seed=1)
    p = normal(1, 3, seed=2)

    def exp(apply, x):
        return apply(f"{group}_Exp", x)

    def act(apply):
        return (
            lambda x, p: apply(f"{big}_Act", exp(apply, x), p),
            [x, p],
            lambda x, p: moved(group, x, p),
        )

    def act_inverse(apply):
        def fn(x, p):
            return apply(f"{big}_Act", apply(f"{big}_Inv", exp(apply, x)), p)

        return fn, [x, p], lambda x, p: moved(group, -x, p)

    def log_of_product(apply):
        return lambda x, y: apply(
            f"{big}_Log", apply(f"{big}_Mul", exp(apply, x), exp(apply, y))
        ), [x, y]

    def log(apply):
        return lambda x: apply(f"{big}_Log", exp(apply, x)), [x], lambda x: x * 1

    def adjoint(apply):
        return lambda x, y: apply(f"{big}_AdjXa", exp(apply, x), y), [x, y]

    def adjoint_transposed(apply):
        return lambda x, y: apply(f"{big}_AdjTXa", exp(apply, x), y), [x, y]

    pypose(f"{big}_Act", act)
    pypose(f"{big}_Inv", act_inverse)
    pypose(f"{big}_Mul", log_of_product)
    pypose(f"{big}_Log", log)
    pypose(f"{big}_AdjXa", adjoint)
    pypose(f"{big}_AdjTXa", adjoint_transposed)


for group in GROUPS:
    functions_of(group)


@listed("roma", "roma.mappings._ProcrustesManualDerivatives")
def procrustes():
    from roma import procrustes

    def reference(m):
        u, _, vt = torch.linalg.svd(m)
        return u @ vt

    return procrustes, [normal(1, 3, 3)], reference


@listed("roma", "roma.mappings._HornEigenvectorManualDerivatives")
def horn():
    apply = load("roma.mappings._HornEigenvectorManualDerivatives").apply
    return lambda m: apply(m, 0.0), [normal(2, 3, 3)]


@listed("roma", "roma.mappings._ProcrustesRegularization", surrogate=True)
def procrustes_regularization():
    apply = load("roma.mappings._ProcrustesRegularization").apply
    return lambda m, r: apply(m, r, 0.1), [normal(1, 3, 3), normal(1, 3, 3, seed=1)]


@listed("kornia", "kornia.geometry.epipolar.essential._NullSpaceBasis", bare=True)
def null_space():
    """Through the projector on the space, which does not depend on the basis chosen in it.

    Six points: five, and nine or more, go another way.
    """
    apply = load("kornia.geometry.epipolar.essential._NullSpaceBasis").apply

    def fn(x):
        basis = apply(x)[0]
        return basis @ basis.mT

    def reference(x):
        _, vectors = torch.linalg.eigh(x.mT @ x)
        return vectors[..., :4] @ vectors[..., :4].mT

    return fn, [normal(1, 6, 9)], reference


@listed("geomstats", "geomstats._backend.pytorch.linalg._Logm")
def logm():
    def symmetric(fn):
        return lambda a: fn((a + a.T) / 2)

    def reference(a):
        values, vectors = torch.linalg.eigh(a)
        return vectors @ values.log().diag() @ vectors.T

    np.trapz = np.trapezoid  # the name that geomstats imports, and NumPy gave up
    os.environ["GEOMSTATS_BACKEND"] = "pytorch"
    importlib.import_module("geomstats.backend")
    apply = load("geomstats._backend.pytorch.linalg._Logm").apply
    return symmetric(apply), [positive_definite(3)], symmetric(reference)


@listed("hypll", "hypll.manifolds.poincare_ball.math.stats.FrechetMean")
def frechet_mean():
    apply = load("hypll.manifolds.poincare_ball.math.stats.FrechetMean").apply
    c = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
    return lambda x, c: apply(x, c, -1, [0], False), [uniform(4, 2, low=-0.4, high=0.4), c]
