"""The four formulas in which fn is differentiated twice: what autograd says in them, a row of the
report for each, the numbers of what is wrong, and how a reader can type them.

In the code, t stands for the x - x.detach() of the formulas, and is moved from 0. The value, the
point and the first derivative are the same in all formulas; the second derivative is not. With
fixed weights on the outputs, let A be the change of fn's own first derivative along a direction d,
by finite differences. At the given point, with x = x0 + t + t**2/2 before fn and
z = y + (y - y0)**2/2 after it, the second derivative along d is

    alone  A        graph after  A + B        graph before  A + C        both  A + B + C

where B is the first derivative weighted with the change of y, and C the first derivative times d.
The formulas only show what is wrong; `check` decides whether something is.
"""

import math
from dataclasses import dataclass, replace
from enum import StrEnum

import torch
from torch import Tensor

from double_backward.check import TINIEST, Outcome, size, unit
from double_backward.differences import Slope, filled, flat, shaped, slope, taken, vjp
from double_backward.failures import raise_if_gone, raise_if_own, unless_gone
from double_backward.lines import first_line
from double_backward.places import raised_in

from .target import Target

UNUSED = "appears to not have been used"  # what autograd says of one input of several


class Setting(StrEnum):
    """A formula around fn; as a string, its name in the report."""

    ALONE = "alone"
    AFTER = "graph after"
    BEFORE = "graph before"
    BOTH = "both"

    @property
    def before(self) -> bool:
        return self in (Setting.BEFORE, Setting.BOTH)

    @property
    def after(self) -> bool:
        return self in (Setting.AFTER, Setting.BOTH)


FORMULAS = {
    Setting.ALONE: "y where y = fn(x)",
    Setting.AFTER: "y + (y - y.detach())**2/2",
    Setting.BEFORE: "y where y = fn(x + (x - x.detach())**2/2)",
    Setting.BOTH: "y + (y - y.detach())**2/2 with that y",
}
UNIT_UP_TO = 1e3  # elements of up to this size are moved as those of size 1


@dataclass(frozen=True)
class Row:
    """One comparison, a line of the report."""

    outcome: Outcome
    error: float | None = None  # the largest absolute error
    relative: float = 0.0  # the same error relative to the terms
    expected: float = 0.0  # at the element shown
    got: float = 0.0
    where: str = ""
    element: int | None = None  # the place of this element among those of all inputs
    text: str = ""  # first line of the error that autograd raises
    raised_in: str = ""  # where in the reader's code, "backward, line 7"
    zero: bool = False  # nothing but 0 was expected
    unchecked: int = 0  # elements where finite differences cannot be trusted
    elements: int = 0  # the number of all elements
    of_backward: bool = False  # not compared: the first derivative is not that of forward
    uncertain: float = 0.0  # by how much `expected` may be off
    resolution: float = 0.0  # a smaller relative error in every element would have been missed
    resolution_of_one: float = 0.0  # the same for an error in one element alone

    def to_dict(self) -> dict[str, object]:
        """Return plain values, for JSON; a number that is NaN or infinite becomes None."""
        shown = ("outcome", "error", "relative", "expected", "got", "where", "text", "raised_in")
        values = {name: getattr(self, name) for name in shown}
        plain = {k: str(v) if isinstance(v, str) else v for k, v in values.items()}
        broken = [k for k, v in plain.items() if isinstance(v, float) and not math.isfinite(v)]
        return {**plain, **dict.fromkeys(broken)}


def uneven(like: Tensor) -> Tensor:
    """Weights with which a sum hides no error: 1.5 + cos(0), 1.5 + cos(1), ...; laid out in memory
    like `like`."""
    weights = 1.5 + torch.arange(like.numel(), device=like.device).cos()
    return torch.empty_like(like).copy_(weights.view(like.shape))


def uneven_direction(like: Tensor) -> Tensor:
    """A direction unlike the weights: 1.5 + sin(0), 1.5 + sin(2), ...

    With w = d, an antisymmetric error (a forgotten transpose, a cross product) would vanish.
    """
    return (1.5 + (2 * torch.arange(like.numel(), device=like.device)).sin()).to(like)


@dataclass(frozen=True, eq=False)
class Probe:
    """What is differentiated: the outputs weighted with w, along a direction d."""

    target: Target
    w: tuple[Tensor, ...]  # like the outputs
    y0: tuple[Tensor, ...]  # the outputs at the point
    d: Tensor  # flat, like the inputs
    by_backward: bool = False  # use .backward(), since fn refuses torch.autograd.grad

    def loss(self, ys: list[Tensor], after: bool = False) -> Tensor:
        """The sum of w * z, where z is y, or y + (y - y0)**2/2 if `after`."""
        terms = [w * y for w, y in zip(self.w, ys, strict=True)]
        if after:
            terms += [w * (y - at) ** 2 / 2 for w, y, at in zip(self.w, ys, self.y0, strict=True)]
        return sum((term.sum() for term in terms), torch.zeros(()))

    def values_and_gradient(self, d: Tensor, h: float) -> Tensor:
        """Outputs and first derivative at the point + h d, flat; NaN outside the domain of fn."""
        with unless_gone():  # of fn, or of its backward
            call = self.target.start(shift=h * d)
            return torch.cat([flat(call.ys), vjp(call.ys, call.t, self.w, self.by_backward)])
        return torch.full((len(flat(self.y0)) + len(d),), torch.nan)


def uneven_probe(target: Target) -> Probe:
    ys = tuple(y.detach().clone() for y in target.start().ys)
    w = tuple(uneven(y) / unit(y) for y in ys)  # so that large outputs do not hide small ones
    return Probe(target, w, ys, uneven_direction(flat(target.point)))


def even_probe(target: Target) -> Probe:
    ys = tuple(y.detach().clone() for y in target.start().ys)
    return Probe(target, tuple(map(torch.ones_like, ys)), ys, torch.ones_like(flat(target.point)))


@dataclass(frozen=True, eq=False)
class Reported:
    """What autograd gives for a derivative along d, or the error that it raises."""

    vector: Tensor | None  # flat, like the inputs; None if there was an error
    missing: Tensor | None = None  # mask: where autograd returned None, which is 0 in `vector`
    text: str = ""  # first line of the error, even if `allow_unused=True` avoids it
    first: Tensor | None = None  # the first derivative, None if that raises
    raised_in: str = ""  # the place in the reader's code that raises: "backward, line 7"


def reported(probe: Probe, setting: Setting, order: int = 2) -> Reported:
    """`Reported`: the derivative of this order (2 or 3), along d in each step but the first.

    Autograd is called as a reader would: the graph is not retained at the last step. Where autograd
    says that an input was not used, which may be one of many, it is called again with
    `allow_unused=True`.
    """
    got = _differentiated(probe, setting, order, strict=True)
    if got.vector is None and says_unused(got.text):
        loose = _differentiated(probe, setting, order, strict=False)
        got = replace(loose, text=loose.text or got.text)
    return got


def says_unused(text: str) -> bool:
    """Whether this is the text of the error that autograd raises where nothing depends on an
    input."""
    return UNUSED in text or "does not require grad" in text


def _differentiated(probe, setting, order, strict):
    first = None
    try:
        t, _, ys = probe.target.start(setting.before, leaves=True)
        scalar = probe.loss(ys, setting.after)
        grads = _derivative(probe, scalar, t, create_graph=True, strict=False)
        first = filled(grads, t)
        for step in range(2, order + 1):
            along = zip(grads, shaped(probe.d, t), strict=True)
            scalar = sum(((g * s).sum() for g, s in along if g is not None), torch.zeros(()))
            grads = _derivative(probe, scalar, t, create_graph=step < order, strict=strict)
    except Exception as error:  # whatever fn or its backward raises is the answer
        raise_if_own(error)
        place = raised_in(error)
        return Reported(None, text=first_line(error), first=first, raised_in=place)
    missing = flat([torch.full_like(s, g is None) for g, s in zip(grads, t, strict=True)])
    return Reported(filled(grads, t), missing > 0, first=first)


def with_leaves_for_weights(probe: Probe) -> Probe:
    return replace(probe, w=tuple(v.detach().clone().requires_grad_() for v in probe.w))


def _derivative(probe, scalar, t, create_graph, strict):
    if not strict and not scalar.requires_grad:
        return [None] * len(t)
    if probe.by_backward:
        scalar.backward(create_graph=create_graph)
        return taken(t)
    return torch.autograd.grad(scalar, t, create_graph=create_graph, allow_unused=not strict)


# What the formulas should give, and how that is shown.


def shown(found, asked_otherwise):
    """`found` with the numbers of each row that is wrong. They are those of plain sums, which a
    reader can recognise, or of uneven weights where a plain sum hides the error.

    Args:
        asked_otherwise: autograd has raised, but not in these formulas, which therefore decide.
    """
    best = found
    for probe in (
        replace(even_probe(found.probe.target), by_backward=found.by_backward),
        found.probe,
    ):
        try:
            said = found.said if probe is found.probe else {s: reported(probe, s) for s in Setting}
            true, gradient = _expected(probe, found.dtype)
        except Exception as error:  # raised by fn, beside the point
            raise_if_gone(error)
            continue
        pairs = {s: (said[s], true[s]) for s in Setting}
        rows = {
            s: _with_worst(row, *pairs[s], found.tolerance, probe.target.place, asked_otherwise)
            for s, row in found.second.items()
        }
        a = true[Setting.ALONE].value
        best = replace(found, second=rows, probe=probe, said=said, a=a, gradient=gradient)
        if any(row.where for row in rows.values() if row.outcome is Outcome.WRONG):
            break
    return best


def _with_worst(row, got, true, rtol, place, asked_otherwise):
    """The row with the numbers of its worst element, or of the first that is about as bad."""
    if row.outcome is not Outcome.WRONG or got.vector is None:
        return row
    typical, error = true.value.abs(), true.error + true.error.mean()  # B and C are rounded, too
    allowed = rtol * (typical + typical.square().mean().sqrt()) + 5 * error
    off = (got.vector - true.value).abs().nan_to_num(0.0)
    off = off * (off > allowed)
    if not off.any():
        return replace(row, outcome=Outcome.RIGHT) if asked_otherwise else row
    numbers = off * ~got.missing  # a wrong number tells more than a missing one
    told = numbers if numbers.any() else off
    i = int((told >= 0.1 * told.max()).nonzero()[0])
    return replace(
        row,
        outcome=Outcome.RAISES if got.missing[i] else row.outcome,
        text=got.text,
        error=off.max().item(),
        relative=(off.max() / typical.norm().clamp(min=TINIEST)).item(),
        expected=true.value[i].item(),
        got=got.vector[i].item(),
        where=place(i),
        element=i,
        uncertain=true.likely[i].item(),
    )


def _expected(probe, dtype):
    """What each formula should give, as the docstring of this module says; and the first
    derivative."""
    target, d, n = probe.target, probe.d, len(flat(probe.y0))
    slopes = [_change_along(probe, by, dtype) for by in _alike(target, d)]
    both = [sum(parts) for parts in zip(*slopes, strict=True)]
    dy, a = both[0][:n], Slope(*(part[n:] for part in both))
    gradient, b = probe.values_and_gradient(d, 0.0)[n:], torch.zeros_like(d)
    if dy.any():
        call = target.start()
        # These weights have the layout of those of the probe, which backward accepts.
        w = shaped(flat(probe.w) * dy, probe.w)
        w = [torch.empty_like(v).copy_(s) for v, s in zip(probe.w, w, strict=True)]
        b = vjp(call.ys, call.t, w, probe.by_backward)
    c = gradient * d
    added = {s: s.after * b + s.before * c for s in Setting}
    return {s: Slope(a.value + more, a.error, a.likely) for s, more in added.items()}, gradient


def _change_along(probe, by, dtype):
    """The change of the values and of the first derivative along a direction."""
    step, d = by
    return slope(lambda h: probe.values_and_gradient(d, h), dtype, step)


def _alike(target, d):
    """A list of (step, direction), one for the elements of each size: small elements are moved by
    less, and elements far above 1 by more."""
    sizes = flat([size(x) for x in target.point])
    steps = 100.0 ** (sizes.log10() / 2).round()
    steps = torch.where((steps >= 1) & (steps <= UNIT_UP_TO), 1.0, steps)
    return [(step, d * (steps == step)) for step in steps.unique().tolist()]


# How a reader types the formulas.


def typed(probe: Probe) -> str:
    """The code that gives the numbers of a row from z, which `FORMULAS` defines.

    It is "" where that takes more than a line: without grad, or with inputs or outputs that are not
    used as they are. Raises what fn raises.
    """
    target = probe.target
    ys = target.returned(target.inputs([torch.zeros_like(x) for x in target.point]))
    given = [*(target.slots[i] for i in target.where), *ys]
    plain = all(t.layout == torch.strided and not t.is_complex() for t in given)
    known = _is_printed(probe.d, uneven_direction) and all(_is_printed(v, uneven) for v in probe.w)
    if probe.by_backward or not (target.is_as_given and known and plain):
        return ""
    return _recipe(probe, one=len(target.where) == len(probe.w) == 1)


def _is_printed(vector, made):
    """Whether the vector is one that `_recipe` can print: ones, or `made` of it, of either sign."""
    known = torch.ones_like(vector), made(vector), -made(vector)
    return any(torch.equal(vector, each) for each in known)


def _recipe(probe, one):
    even = all((v == 1).all() for v in [*probe.w, probe.d])
    z, g = ("z", "g") if even else ("(w * z)", "(d * g)")
    if one:
        how = f"(g,) = grad({z}.sum(), x, create_graph=True), then grad({g}.sum(), x)"
    else:
        how = (
            f"gs = grad(sum({z}.sum() for z in zs), inputs, create_graph=True), g = "
            f"torch.cat([g.reshape(-1) for g in gs]), then grad({g}.sum(), inputs)"
        )
    end = f"where {'z' if one else 'each z in zs'} is"
    if even:
        return f"{how}, {end}"
    w, d = ("-1.5 -" if (v < 0).all() else "1.5 +" for v in (probe.w[0], probe.d))
    return (
        f"{how}, with w = {w} torch.arange(z.numel()).cos().view_as(z), "
        f"d = {d} (2 * torch.arange(g.numel())).sin().view_as(g), {end}"
    )
