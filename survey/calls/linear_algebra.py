"""Matrix functions, eigenvalues, linear and quadratic programmes, Hadamard and projections."""

import torch

from ..listed import listed, load, normal, positive_definite


@listed("iunets", "iunets.cayley.cayley", bare=True)
def cayley():
    def skew(fn):
        return lambda a: fn(a - a.mT)

    def reference(m):
        eye = torch.eye(3, dtype=m.dtype)
        return torch.linalg.solve(eye + m, eye - m)

    return skew(load("iunets.cayley.cayley").apply), [normal(1, 3, 3, scale=0.3)], skew(reference)


@listed("iunets", "iunets.expm.expm", bare=True)
def expm():
    def skew(fn):
        return lambda a: fn(a - a.mT)

    apply = load("iunets.expm.expm").apply
    return skew(apply), [normal(1, 3, 3, scale=0.3)], skew(torch.linalg.matrix_exp)


@listed("xitorch", "xitorch.linalg.solve.solve_torchfcn")
def xitorch_solve():
    from xitorch import LinearOperator
    from xitorch.linalg import solve

    def fn(a, b):
        return solve(LinearOperator.m(a), b, method="exactsolve")

    return fn, [positive_definite(3), normal(3, 2)], torch.linalg.solve


@listed("xitorch", "xitorch.linalg.symeig.symeig_torchfcn")
def xitorch_symeig():
    from xitorch import LinearOperator
    from xitorch.linalg import symeig

    def fn(a):
        return symeig(LinearOperator.m((a + a.mT) / 2), neig=2, method="davidson")[0]

    return fn, [positive_definite(4)], lambda a: torch.linalg.eigvalsh((a + a.mT) / 2)[:2]


@listed("omnibias-convex", "omnibias.convex.torch.layer._QPLayerFn")
def qp_layer():
    """A quadratic programme whose bounds are far from the solution."""
    from omnibias.convex.torch.layer import qp_layer

    a = torch.cat([torch.eye(2), -torch.eye(2)]).double()
    b = torch.full((4,), 50.0, dtype=torch.float64)

    def reference(q, c):
        return -torch.linalg.solve((q + q.T) / 2, c)

    return (
        lambda q, c: qp_layer((q + q.T) / 2, c, a, b),
        [positive_definite(2), normal(2)],
        reference,
    )


@listed("torchsolve", "torchsolve._cg._ImplicitSolve")
def conjugate_gradient():
    from torchsolve import conjugate_gradient

    matrix = positive_definite(3).detach()

    def fn(b):
        return conjugate_gradient(lambda x: matrix @ x, b, max_iter=30, rtol=1e-14).solution

    return fn, [normal(3)], lambda b: torch.linalg.solve(matrix, b)
