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
    """A quadratic programme of which one bound holds with equality, the others are far away."""
    from omnibias.convex.torch.layer import qp_layer

    q, far = positive_definite(2).detach(), torch.eye(2).double()
    b = torch.tensor([0.3, 50.0, 50.0], dtype=torch.float64)
    cost = torch.tensor([-3.0, 0.4], dtype=torch.float64, requires_grad=True)
    bound = torch.tensor([1.0, 0.2], dtype=torch.float64, requires_grad=True)

    def fn(cost, bound):
        return qp_layer(q, cost, torch.cat([bound[None], far]), b)

    def reference(cost, bound):
        top, bottom = torch.cat([q, bound[:, None]], 1), torch.cat([bound, bound.new_zeros(1)])
        return torch.linalg.solve(torch.cat([top, bottom[None]]), torch.cat([-cost, b[:1]]))[:2]

    return fn, [cost, bound], reference


@listed("torchsolve", "torchsolve._cg._ImplicitSolve")
def conjugate_gradient():
    from torchsolve import conjugate_gradient

    matrix = positive_definite(3).detach()

    def fn(b):
        return conjugate_gradient(lambda x: matrix @ x, b, max_iter=30, rtol=1e-14).solution

    return fn, [normal(3)], lambda b: torch.linalg.solve(matrix, b)
