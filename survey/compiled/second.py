"""A second derivative of an operation f in five settings, by autograd and by differences.

The loss is w . z with fixed numbers w. The second derivative is H u, the Hessian of the loss times
fixed directions u, one for each argument: every entry of every argument is in it.

    alone   z = f(x)
    beside  z = f(x), and the loss has + x^2
    before  z = f(x + (x - x0)^2 / 2)               a graph before f; x0 is x, as a constant
    after   z = y + (y - y0)^2 / 2, y = f(x)        a graph after f
    both    before and after

So f is always evaluated where torch's sample is, and never outside its domain.
"""

import torch
from torch.autograd import grad

from .operations import Operation

SETTINGS = ("alone", "beside", "before", "after", "both")


def second_derivative(name, setting, backend=None):
    """H u of torch's operation `name`, compiled with `backend`, or as it is where that is None.

    Returns:
        one float64 tensor for each differentiable argument, of its shape.

    Raises:
        RuntimeError: what torch says where it refuses.
    """
    operation = Operation(name)
    _, answer = differentiate_twice(*loss_of(operation, operation.function, setting))
    if backend is not None:
        points, loss = loss_of(operation, compiled(operation, backend), setting)
        _, answer = differentiate_twice(points, loss, like=answer)
    return with_zeros(answer, operation.points)


def compiled(operation, backend):
    """The operation compiled anew: a region that has been differentiated before may refuse what
    another one lets pass."""
    torch._dynamo.reset()
    return torch.compile(operation.function, backend=backend)


def loss_of(operation, function, setting, at=None):
    """The arguments, as leaves, and the loss there. The settings bend about operation.points."""
    points = [p.detach().clone().requires_grad_() for p in (at or operation.points)]
    xs = points
    if setting in ("before", "both"):
        xs = [p + (p - p0) ** 2 / 2 for p, p0 in zip(points, operation.points, strict=True)]
    ys = operation(function, xs)
    if setting in ("after", "both"):
        ys = [y + (y - y0) ** 2 / 2 for y, y0 in zip(ys, values(operation), strict=True)]
    loss = sum((w * y).sum() for w, y in zip(directions(ys, 10), ys, strict=True))
    if setting == "beside":
        loss = loss + sum((p**2).sum() for p in points)
    return points, loss


def differentiate_twice(points, loss, like=None, seed=1):
    """First derivatives and H u, by autograd; None for an argument that no way leads back to.

    `like` is eager's H u. Asked for are the arguments that are not None in it, and without
    `allow_unused`, as a user would: so a compiled one raises where the way is lost altogether.
    """
    first = grad(loss, points, create_graph=True, allow_unused=True)
    pairs = zip(first, directions(points, seed), strict=True)
    along = sum((g * u).sum() for g, u in pairs if g is not None)
    asked = [i for i in range(len(points)) if like is None or like[i] is not None]
    found = [None] * len(points)
    if asked and (like is not None or along.requires_grad):
        answer = grad(along, [points[i] for i in asked], allow_unused=like is None)
        for i, h in zip(asked, answer, strict=True):
            found[i] = h
    return first, found


def by_differences(operation, setting, step, seed=1):
    """H u by central differences of eager's first derivative along u, two steps, combined after
    Richardson."""
    u = directions(operation.points, seed)

    def first_derivative(step):
        at = [p + step * d for p, d in zip(operation.points, u, strict=True)]
        points, loss = loss_of(operation, operation.function, setting, at)
        return grad(loss, points, allow_unused=True, materialize_grads=True)

    def slope(step):
        sides = first_derivative(step), first_derivative(-step)
        return [(a - b) / (2 * step) for a, b in zip(*sides, strict=True)]

    return [(4 * a - b) / 3 for a, b in zip(slope(step / 2), slope(step), strict=True)]


def with_zeros(tensors, points):
    return [
        torch.zeros_like(p) if t is None else t.detach()
        for t, p in zip(tensors, points, strict=True)
    ]


def values(operation):
    points = [p.clone().requires_grad_() for p in operation.points]
    return [y.detach() for y in operation(operation.function, points)]


def directions(like, seed):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(x.shape, generator=generator, dtype=torch.float64) for x in like]
