"""The four formulas in which fn is differentiated twice, and what autograd says in them.

With x0 the given point and y0 = fn(x0), both constants:

    alone           y                       where y = fn(x)
    graph after     y + (y - y0)**2/2
    graph before    y                       where y = fn(x0 + t + t**2/2) at t = 0
    both            y + (y - y0)**2/2       where y = fn(x0 + t + t**2/2) at t = 0

The value, the point and the first derivative are the same in all of them; the second is not.
"""

from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor

from .differences import filled, flat, shaped
from .target import Target


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


@dataclass(frozen=True, eq=False)
class Probe:
    """What is differentiated: the outputs weighted with w, along a direction d."""

    target: Target
    w: tuple[Tensor, ...]  # like the outputs
    y0: tuple[Tensor, ...]  # the outputs at the point
    d: Tensor  # flat, like the inputs

    def loss(self, ys: list[Tensor], after: bool = False) -> Tensor:
        """The sum of w * z, where z = y, or y + (y - y0)**2/2 if `after`."""
        terms = [w * y for w, y in zip(self.w, ys, strict=True)]
        if after:
            terms += [w * (y - at) ** 2 / 2 for w, y, at in zip(self.w, ys, self.y0, strict=True)]
        return sum(term.sum() for term in terms)


@dataclass(frozen=True, eq=False)
class Reported:
    """What autograd gives for a derivative along d, or the error that it raises."""

    vector: Tensor | None  # flat, like the inputs; None if there was an error
    missing: Tensor | None = None  # mask: where autograd returned None, taken as 0 in `vector`
    text: str = ""  # first line of the error; also of one that `allow_unused=True` avoids


def reported(probe: Probe, setting: Setting, order: int = 2, shift: float | Tensor = 0.0):
    """`Reported`: the derivative of this order, the last `order` - 1 times along d."""
    try:
        t, _, ys = probe.target.start(setting.before, shift)
        loss = probe.loss(ys, setting.after)
        grads = torch.autograd.grad(loss, t, create_graph=True, allow_unused=True)
    except Exception as error:  # whatever fn or its backward raises is the answer
        return Reported(None, text=first_line(error))
    text = ""
    for step in range(2, order + 1):
        along = zip(grads, shaped(probe.d, t), strict=True)
        scalar = sum(((g * s).sum() for g, s in along if g is not None), torch.zeros(()))
        try:
            grads, text = _differentiate(scalar, t, create_graph=step < order)
        except Exception as error:
            return Reported(None, text=first_line(error))
    missing = flat([torch.full_like(s, g is None) for g, s in zip(grads, t, strict=True)])
    return Reported(filled(grads, t), missing > 0, text)


def _differentiate(scalar, t, create_graph):
    """Gradients, None where there is no graph, and the error that a reader would see there."""
    options = {"retain_graph": True, "create_graph": create_graph}
    try:
        return torch.autograd.grad(scalar, t, **options), ""
    except RuntimeError as error:
        text = first_line(error)
        if "appears to not have been used" in text:  # perhaps not by one of many inputs
            return torch.autograd.grad(scalar, t, allow_unused=True, **options), text
        if "does not require grad" in text:
            return [None] * len(t), text
        raise


def first_line(error: Exception) -> str:
    """What an error says, in one line, with its type where that says more."""
    line = (str(error).strip().splitlines() or [""])[0]
    return line if type(error) is RuntimeError else f"{type(error).__name__}: {line}"
