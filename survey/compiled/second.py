"""A second derivative of a region f in five settings, by autograd and by differences.

The loss is w . z with fixed numbers w. The second derivative is H u, the Hessian of the loss times
fixed directions u, one for each argument that is moved: every entry of it is in the number.

    alone   z = f(x)
    beside  z = f(x), and the loss has + x^2; where weights are asked of a derivative by x, the
            square of the sum of both
    before  z = f(x + (x - x0)^2 / 2)               a graph before f; x0 is x, as a constant;
            weights are Parameters, which have none before them
    after   z = y + (y - y0)^2 / 2, y = f(x)        a graph after f
    both    before and after

So f is always evaluated where the sample is, and never outside its domain.
"""

import torch
from torch.autograd import grad

from .nets import NETS, Net
from .operations import ALL, Operation

SETTINGS = ("alone", "beside", "before", "after", "both")


def region(name, kind="real", sample=0, by=ALL):
    """The `Net` or `Operation` of that name; of a net, `sample` is what it is given."""
    if name in NETS:
        return Net(name, sample or "x", by)
    return Operation(name, kind, int(sample), by)


def second_derivative(name, setting, backend=None, **which):
    """H u of the operation or net `name`, compiled with `backend`, or as it is where that is None.

    Args:
        which: `kind`, `sample` and `by`, as in `region`.

    Returns:
        one float64 tensor for each argument that is asked for, of its shape.

    Raises:
        RuntimeError: what torch says where it refuses.
    """
    f = region(name, **which)
    _, answer = differentiate_twice(f, *loss_of(f, f.function, setting))
    if backend is not None:
        points, loss = loss_of(f, compiled(f, backend), setting)
        _, answer = differentiate_twice(f, points, loss, like=answer)
    return with_zeros(answer, [f.points[i] for i in f.asked])


def compiled(f, backend):
    """The region compiled anew: one that has been differentiated before by a plain `backward()`
    may refuse what another one lets pass."""
    torch._dynamo.reset()
    return torch.compile(f.function, backend=backend)


def loss_of(f, function, setting, at=None):
    """The arguments, as leaves, and the loss there. The settings bend about f.points."""
    # First, because a net has one set of weights.
    constants = values(f) if setting in ("after", "both") else ()
    points = f.leaves_at(at or f.points)
    bent = {*f.moved, *f.asked}
    xs = list(points)
    for i in bent if setting in ("before", "both") else ():
        xs[i] = points[i] + (points[i] - f.points[i]) ** 2 / 2
    ys = f(function, xs)
    if setting in ("after", "both"):
        ys = [y + (y - y0) ** 2 / 2 for y, y0 in zip(ys, constants, strict=True)]
    loss = sum((w * y).sum() for w, y in zip(directions(ys, 10), ys, strict=True))
    if setting == "beside" and f.moved == f.asked:
        loss = loss + sum((points[i] ** 2).sum() for i in bent)
    elif setting == "beside":
        loss = loss + sum(points[i].sum() for i in bent) ** 2
    return points, loss


def differentiate_twice(f, points, loss, like=None, seed=1):
    """First derivatives by what is moved, and H u by what is asked, by autograd; None for an
    argument that no way leads back to.

    `like` is eager's H u. Asked for are the arguments that are not None in it, and without
    `allow_unused`, as a user would: so a compiled one raises where the way is lost altogether.
    """
    first = grad(loss, [points[i] for i in f.moved], create_graph=True, allow_unused=True)
    pairs = zip(first, directions([points[i] for i in f.moved], seed), strict=True)
    along = sum((g * u).sum() for g, u in pairs if g is not None)
    asked = [points[i] for i in f.asked]
    if like is None:
        lost = not torch.is_tensor(along) or not along.requires_grad
        return first, [None] * len(asked) if lost else grad(along, asked, allow_unused=True)
    wanted = [x for x, h in zip(asked, like, strict=True) if h is not None]
    answer = iter(grad(along, wanted) if wanted else ())
    return first, [h if h is None else next(answer) for h in like]


def by_differences(f, setting, step, seed=1):
    """H u by central differences of eager's first derivative along u, two steps, combined after
    Richardson."""
    moved = dict(zip(f.moved, directions([f.points[i] for i in f.moved], seed), strict=True))

    def first_derivative(step):
        at = [p + step * moved[i] if i in moved else p for i, p in enumerate(f.points)]
        points, loss = loss_of(f, f.function, setting, at)
        asked = [points[i] for i in f.asked]
        return grad(loss, asked, allow_unused=True, materialize_grads=True)

    def slope(step):
        sides = first_derivative(step), first_derivative(-step)
        return [(a - b) / (2 * step) for a, b in zip(*sides, strict=True)]

    return [(4 * a - b) / 3 for a, b in zip(slope(step / 2), slope(step), strict=True)]


def with_zeros(tensors, like):
    return [
        torch.zeros_like(p) if t is None else t.detach() for t, p in zip(tensors, like, strict=True)
    ]


def values(f):
    return [y.detach() for y in f(f.function, f.leaves_at(f.points))]


def directions(like, seed):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(x.shape, generator=generator, dtype=torch.float64) for x in like]
