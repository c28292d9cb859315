"""A second opinion on a second derivative, by nothing of `diagnose`.

For loss(t), a number made from fn(x + s(t)), and two fixed directions u and v, the number

    u . H . v,   H = second derivative of the loss at t = 0,

is computed three times: as autograd gives it through fn ("got"); by central differences of the
first derivative, u . grad(loss), along v; and, where a reference in plain torch exists, by
autograd through that. It touches every entry of the inputs, so a wrong entry shows in it. A wrong
first derivative would make a wrong truth, so that is compared first, with differences of the value.

"got" is what a user gets who asks plainly: `torch.autograd.grad` without `allow_unused`, of all
inputs or, where the second derivative reaches one of them only, of that. What can be had from
`.backward(create_graph=True)` alone says so in `route`.
"""

from dataclasses import dataclass
from math import isfinite

import torch
from torch.autograd import grad

SETTINGS = ("alone", "graph after", "graph before", "both")
TOLERANCE = 1e-4  # relative; central differences with Richardson are good to about 1e-7
FIRST = 1e-2  # for first derivatives: approximations by polynomials have one of their own


@dataclass(frozen=True)
class Number:
    """u . H . v in one setting.

    Attributes:
        setting: one of `SETTINGS`.
        expected: by the reference if there is one, else by central differences; None where even
            the first derivative raises.
        got: as autograd gives it; None where it raises.
        error: the first line of what it raises, or "".
        route: "grad", or "backward" where `torch.autograd.grad` is refused.
    """

    setting: str
    expected: float | None
    got: float | None
    error: str
    route: str = "grad"

    @property
    def wrong(self):
        tolerance = FIRST if self.setting == "first" else TOLERANCE
        known = self.got is not None and isfinite(self.got)
        return known and not close(self.got, self.expected, tolerance)


def close(a, b, tolerance=TOLERANCE):
    return abs(a - b) <= tolerance * max(1.0, abs(a), abs(b))


def compare(fn, inputs, reference=None, surrogate=False):
    """`Number` for each setting; differentiable inputs in float64.

    With a surrogate nothing may follow fn: the number that it returns moves as forward says, and
    its gradient as backward says, so differences of one are not the other.
    """
    if reference:
        need_same_values(fn, reference, inputs)
    given = differentiated(inputs)
    u, v = (directions([inputs[i] for i in given], seed) for seed in (1, 2))
    numbers = []
    for setting in SETTINGS:
        if surrogate and setting in ("graph after", "both"):
            continue
        loss = loss_in(setting, fn, inputs, given)
        truth = loss_in(setting, reference, inputs, given) if reference else None
        numbers.append(number_in(setting, loss, truth, u, v))
    return numbers


def number_in(setting, loss, truth, u, v):
    """u and v have a direction for each input, or None where it is not asked by that."""
    expected, got, error = None, None, ""
    route = "backward" if refuses_grad(loss) else "grad"
    try:
        expected = by_autograd(truth, u, v, needed=False) if truth else by_differences(loss, u, v)
        got = by_autograd(loss, u, v, route=route)
    except Exception as raised:
        error = f"{type(raised).__name__}: {raised}".splitlines()[0]
        no_graph = "element 0 of tensors" in error or "to not have been used" in error
        if no_graph and expected is not None and close(expected, 0):
            got, error = 0.0, ""  # so autograd says 0
    return Number(setting, expected, got, error, route)


def first_derivative(fn, inputs):
    """`Number` of the first derivative by all inputs."""
    return first_derivative_by(differentiated(inputs), fn, inputs)


def first_derivative_by_one(fn, inputs):
    """`Number` of the first that is wrong of those by one input alone, the others being constants;
    None if all are right."""
    given = differentiated(inputs)
    alone = (first_derivative_by([i], fn, constants_but([i], inputs)) for i in given)
    return next((number for number in alone if number.wrong), None)


def differentiated(inputs):
    return [i for i, x in enumerate(inputs) if torch.is_tensor(x) and x.requires_grad]


def constants_but(kept, inputs):
    return [x if i in kept or not torch.is_tensor(x) else x.detach() for i, x in enumerate(inputs)]


def first_derivative_by(given, fn, inputs):
    """v . gradient, against differences of the value along v."""
    v = directions([inputs[i] for i in given], 2)
    loss, like = loss_in("alone", fn, inputs, given)

    def value(size):
        return loss([(size * d).requires_grad_() for d in v]).item()

    def slope(size):
        return (value(size) - value(-size)) / (2 * size)

    try:
        t = [torch.zeros_like(x).requires_grad_() for x in like]
        got = sum((a * b).sum().item() for a, b in zip(gradient(loss(t), t), v, strict=True))
        expected = (4 * slope(5e-4) - slope(1e-3)) / 3
    except Exception as raised:
        return Number("first", None, None, f"{type(raised).__name__}: {raised}".splitlines()[0])
    return Number("first", expected, got, "")


def need_same_values(fn, reference, inputs):
    torch.manual_seed(0)
    ours, theirs = (dict(real_outputs(f(*inputs))) for f in (fn, reference))
    for n in ours.keys() & theirs.keys():
        torch.testing.assert_close(ours[n], theirs[n], rtol=1e-5, atol=1e-5)


def directions(like, seed):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(x.shape, generator=generator, dtype=x.dtype) for x in like]


def loss_in(setting, fn, inputs, given):
    """The loss as a function of t: value of fn unchanged at t = 0 in every setting."""

    def loss(t):
        xs = list(inputs)
        for i, s in zip(given, t, strict=True):
            bent = s + s**2 / 2 if setting in ("graph before", "both") else s
            xs[i] = inputs[i].detach() + bent
        torch.manual_seed(0)
        total = 0.0
        for n, y in real_outputs(fn(*xs)):
            w = directions([y], 10 + n)[0]
            if setting in ("graph after", "both"):
                y = y + y**2 / 2
            total = total + (w * y).sum()
        return total

    return loss, [inputs[i] for i in given]


def real_outputs(out):
    """Position and output, of those that require grad."""
    out = out if isinstance(out, (tuple, list)) else (out,)
    for n, y in enumerate(out):
        if torch.is_tensor(y) and y.requires_grad:
            yield n, torch.view_as_real(y) if y.is_complex() else y


def refuses_grad(loss):
    """Whether `torch.autograd.grad` is refused in words, as checkpoints do."""
    loss, like = loss
    try:
        t = [torch.zeros_like(x).requires_grad_() for x in like]
        grad(loss(t), t, allow_unused=True)
    except RuntimeError as error:
        return ".grad()" in str(error)
    except Exception:
        pass
    return False


def gradient(total, t, create_graph=False):
    """The first derivative of a number, by whichever way is allowed; zeros where there is none."""
    try:
        options = {"create_graph": create_graph, "allow_unused": True, "materialize_grads": True}
        return grad(total, t, retain_graph=True, **options)
    except RuntimeError as error:
        if ".grad()" not in str(error):
            raise
    return by_backward(total, t, create_graph)


def by_backward(total, t, create_graph=False):
    for x in t:
        x.grad = None
    total.backward(create_graph=create_graph)
    gradients = [torch.zeros_like(x) if x.grad is None else x.grad for x in t]
    for x in t:
        x.grad = None
    return gradients


def plainly(total, t):
    """`grad(total, t)`, or of the inputs that it reaches; raises where it reaches none."""
    try:
        return grad(total, t, retain_graph=True)
    except RuntimeError as error:
        if "to not have been used" not in str(error):
            raise
        found = grad(total, t, retain_graph=True, allow_unused=True)
        if all(g is None for g in found):
            raise
    return [torch.zeros_like(x) if g is None else g for g, x in zip(found, t, strict=True)]


def by_autograd(loss, u, v, needed=True, route="grad"):
    loss, like = loss
    t = [torch.zeros_like(x).requires_grad_() for x in like]
    g = gradient(loss(t), with_direction(t, u), create_graph=True)
    along = sum((a * b).sum() for a, b in zip(g, with_direction(u, u), strict=True))
    asked = with_direction(t, v)
    if not along.requires_grad and not needed:
        return 0.0
    if needed:
        h = by_backward(along, asked) if route == "backward" else plainly(along, asked)
    else:
        h = gradient(along, asked)
    return sum((a * b).sum().item() for a, b in zip(h, with_direction(v, v), strict=True))


def with_direction(each, directions):
    return [x for x, d in zip(each, directions, strict=True) if d is not None]


def by_differences(loss, u, v, step=1e-3):
    """Central differences of u . grad(loss) along v, two steps, combined after Richardson."""
    loss, like = loss

    def moved(x, direction, size):
        step = torch.zeros_like(x) if direction is None else (size * direction).to(x.dtype)
        return step.requires_grad_()

    def along(size):
        t = [moved(x, d, size) for x, d in zip(like, v, strict=True)]
        g = gradient(loss(t), with_direction(t, u))
        return sum((a * b).sum().item() for a, b in zip(g, with_direction(u, u), strict=True))

    def slope(size):
        return (along(size) - along(-size)) / (2 * size)

    return (4 * slope(step / 2) - slope(step)) / 3
