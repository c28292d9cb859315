"""The four formulas in which fn is differentiated twice, and what autograd says in them.

`FORMULAS` can be typed. What is called t elsewhere is x - x.detach(), moved from 0. The value, the
point and the first derivative are the same in all of them; the second is not.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

import torch
from torch import Tensor

from double_backward.check import unit
from double_backward.differences import filled, flat, shaped, taken, vjp
from double_backward.lines import first_line
from double_backward.places import raised_in

from .target import Target

UNUSED = "appears to not have been used"  # of one input of several


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


def uneven(like: Tensor) -> Tensor:
    """Weights that hide nothing in a sum: 1.5 + cos(0), 1.5 + cos(1), ...; laid out like `like`."""
    weights = 1.5 + torch.arange(like.numel(), device=like.device).cos()
    return torch.empty_like(like).copy_(weights.view(like.shape))


def uneven_direction(like: Tensor) -> Tensor:
    """A direction unlike the weights: 1.5 + sin(0), 1.5 + sin(2), ...

    With w = d, whatever is antisymmetric (a forgotten transpose, a cross product) would vanish.
    """
    return (1.5 + (2 * torch.arange(like.numel(), device=like.device)).sin()).to(like)


@dataclass(frozen=True, eq=False)
class Probe:
    """What is differentiated: the outputs weighted with w, along a direction d."""

    target: Target
    w: tuple[Tensor, ...]  # like the outputs
    y0: tuple[Tensor, ...]  # the outputs at the point
    d: Tensor  # flat, like the inputs
    by_backward: bool = False  # by .backward(), where torch.autograd.grad is refused

    def loss(self, ys: list[Tensor], after: bool = False) -> Tensor:
        """The sum of w * z, where z = y, or y + (y - y0)**2/2 if `after`."""
        terms = [w * y for w, y in zip(self.w, ys, strict=True)]
        if after:
            terms += [w * (y - at) ** 2 / 2 for w, y, at in zip(self.w, ys, self.y0, strict=True)]
        return sum((term.sum() for term in terms), torch.zeros(()))

    def values_and_gradient(self, d: Tensor, h: float) -> Tensor:
        """Outputs and first derivative at the point + h d, flat; NaN outside the domain of fn."""
        try:
            call = self.target.start(shift=h * d)
            return torch.cat([flat(call.ys), vjp(call.ys, call.t, self.w, self.by_backward)])
        except Exception:  # of fn, or of its backward
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
    missing: Tensor | None = None  # mask: where autograd returned None, taken as 0 in `vector`
    text: str = ""  # first line of the error; also of one that `allow_unused=True` avoids
    first: Tensor | None = None  # the first derivative on the way there, None if that raises
    raised_in: str = ""  # "backward, line 7": the reader's code that raises


def reported(probe: Probe, setting: Setting, order: int = 2) -> Reported:
    """`Reported`: the derivative of this order (2 or 3), all but the first time along d.

    As a reader would call autograd: nothing is retained at the last step. Where autograd says that
    an input was not used, once more with `allow_unused=True`; it may mean one of many.
    """
    got = _differentiated(probe, setting, order, strict=True)
    if got.vector is None and says_unused(got.text):
        loose = _differentiated(probe, setting, order, strict=False)
        got = replace(loose, text=loose.text or got.text)
    return got


def says_unused(text: str) -> bool:
    """Whether an error is what autograd says where nothing depends on an input."""
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
