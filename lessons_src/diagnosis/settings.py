"""The four formulas in which fn is differentiated twice, and what autograd says in them.

With x0 the given point and y0 = fn(x0), both constants:

    alone           y                       where y = fn(x)
    graph after     y + (y - y0)**2/2
    graph before    y                       where y = fn(x0 + t + t**2/2) at t = 0
    both            y + (y - y0)**2/2       where y = fn(x0 + t + t**2/2) at t = 0

The value, the point and the first derivative are the same in all of them; the second is not.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

import torch
from torch import Tensor

from .differences import filled, flat, shaped, taken
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
    by_backward: bool = False  # by .backward(), where torch.autograd.grad is refused

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
    """`Reported`: the derivative of this order, the last `order` - 1 times along d.

    As a reader would call autograd: nothing is retained at the last step. Where autograd says that
    an input was not used, once more with `allow_unused=True`; it may mean one of many.
    """
    got = _differentiated(probe, setting, order, shift, strict=True)
    if got.vector is None and _says_unused(got.text):
        loose = _differentiated(probe, setting, order, shift, strict=False)
        got = replace(loose, text=loose.text or got.text)
    return got


def _says_unused(text):
    return "appears to not have been used" in text or "does not require grad" in text


def _differentiated(probe, setting, order, shift, strict):
    try:
        t, _, ys = probe.target.start(setting.before, shift)
        scalar = probe.loss(ys, setting.after)
        grads = _derivative(probe, scalar, t, create_graph=True, strict=False)
        for step in range(2, order + 1):
            along = zip(grads, shaped(probe.d, t), strict=True)
            scalar = sum(((g * s).sum() for g, s in along if g is not None), torch.zeros(()))
            grads = _derivative(probe, scalar, t, create_graph=step < order, strict=strict)
    except Exception as error:  # whatever fn or its backward raises is the answer
        return Reported(None, text=first_line(error))
    missing = flat([torch.full_like(s, g is None) for g, s in zip(grads, t, strict=True)])
    return Reported(filled(grads, t), missing > 0)


def _derivative(probe, scalar, t, create_graph, strict):
    if not strict and not scalar.requires_grad:
        return [None] * len(t)
    if probe.by_backward:
        scalar.backward(create_graph=create_graph)
        return taken(t)
    return torch.autograd.grad(scalar, t, create_graph=create_graph, allow_unused=not strict)


def first_line(error: Exception) -> str:
    """What an error says, in one line, with its type where that says more."""
    try:
        text = str(error).strip()
    except Exception:  # of the error's own __str__
        text = ""
    line = (text.splitlines() or [""])[0]
    return line if type(error) is RuntimeError else f"{type(error).__name__}: {line}"
