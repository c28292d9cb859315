"""Other ways in which a model calls fn, each with what has to follow for it from the plain call.

In each, fn is differentiated twice with a graph before and after it, where all that backward
returns matters; or once, where the second derivative is known to be wrong. That takes one call, and
no finite differences: the answer is compared with another answer of autograd. More is measured, or
said, only where the two differ.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from double_backward.check import ROUNDED
from double_backward.differences import NONE, apart, flat
from double_backward.failures import unless_gone
from double_backward.phrases import Phrase

from ..preparation.formulas import Probe, Reported, Setting, reported
from .rounding import scatter

WRONG_NUMBER = Phrase("a wrong number")
FEW_INPUTS = 4  # inputs; with more, they are not tried one by one


@dataclass(frozen=True)
class Situation:
    """How a call of fn differs from the one that was given.

    Attributes:
        kind: "negative": grad_out, and the gradient in the second backward, are negative; "frozen":
            an input does not require grad; "linked": inputs are made from one another;
            "transposed", "contiguous" or "expanded": grad_out is so; "strided": the inputs are so.
        name: the name of the input that is frozen.
    """

    kind: str
    name: str = ""


@dataclass(frozen=True, eq=False)
class Way:
    """A way to call fn, and how the result follows from that of another call.

    Attributes:
        situation: the name of the way.
        probe: fn, called in this way.
        plain: the probe with whose answer it is compared.
        follows: computes what the first derivative should be from the plain one.
        second: the same for the second derivative; None: it is not compared.
    """

    situation: Situation
    probe: Probe
    plain: Probe
    follows: Callable[[Tensor], Tensor]
    second: Callable[[Tensor], Tensor] | None
    setting: Setting = Setting.BOTH

    def differs(self, tolerance: float, known: Reported | None = None) -> str:
        """The error that is raised, or "a wrong number"; "" where the result is as it should be.

        Args:
            tolerance: relative.
            known: what autograd reports for the plain probe, if that was asked before.
        """
        expected = known or reported(self.plain, self.setting)
        got = reported(self.probe, self.setting)
        parts = [("first", self.follows)]
        if self.second is not None:
            parts.append(("vector", self.second))
        for part, follows in parts:
            plain, here = getattr(expected, part), getattr(got, part)
            if plain is None:
                continue
            again = partial(self._again, part, follows)
            if here is None or not agree(here, follows(plain), tolerance, again):
                return got.text or WRONG_NUMBER
        return ""

    def _again(self, part, follows):
        found = getattr(reported(self.plain, self.setting), part)
        return None if found is None else follows(found)


def agree(
    got: Tensor,
    expected: Tensor,
    tolerance: float,
    again: Callable[[], Tensor | None] | None = None,
) -> bool:
    """Whether they differ by no more than tolerance and, where `again` computes what is expected,
    by no more than rounding inside it explains."""
    off = apart(got, expected, tolerance)
    if again is None or not off.any():
        return not off.any()
    rounding = scatter(again).by
    if rounding is None:
        return False
    return not apart(got, expected, tolerance, NONE + ROUNDED * rounding).any()


def as_models_call(probe: Probe) -> Iterator[Way]:
    """Ways with other signs, with an input that does not require grad, and with linked inputs."""
    minus = partial(torch.mul, -1)
    # The second derivative is linear in the direction, too.
    negative = replace(probe, w=tuple(-v for v in probe.w), d=-probe.d)
    yield Way(Situation("negative"), negative, probe, minus, _same)
    if not 2 <= len(probe.target.where) <= FEW_INPUTS:
        return
    sizes = [x.numel() for x in probe.target.point]
    for i, name in enumerate(probe.target.names):
        left = torch.cat([torch.full((n,), k != i) for k, n in enumerate(sizes)])
        plain = replace(probe, d=probe.d * left)
        frozen = replace(probe, target=probe.target.frozen(i), d=probe.d[left])
        yield Way(
            Situation("frozen", name), frozen, plain, partial(_part, left), partial(_part, left)
        )
    if sizes[0]:
        linked = replace(probe, target=probe.target.linked())
        yield Way(Situation("linked"), linked, probe, partial(_chained, sizes[0]), None)


def grad_out_layouts(probe: Probe, wrong: bool) -> Iterator[Way]:
    """Ways in which the outputs are read so that grad_out has another layout and the same values.

    If the second derivative is `wrong`, only the first is compared. A grad_out of one element has
    no layout.
    """
    if all(v.numel() == 1 for v in probe.w):
        return
    follows = (_same, None, Setting.ALONE) if wrong else (_same, _same)
    yield Way(Situation("transposed"), _read(probe, turn), probe, *follows)
    if not all(v.is_contiguous() for v in probe.w):
        yield Way(Situation("contiguous"), _read(probe, _copied), probe, *follows)
    plain = _summed(probe, lambda y: torch.sum(_copied(y)))
    yield Way(Situation("expanded"), _summed(probe, torch.sum), plain, *follows)


def input_layouts(probe: Probe) -> Iterator[Way]:
    """A way with inputs that are not contiguous. It is of no use where fn then gives other values,
    as random draws in the order of memory do, or raises, which is no error of a backward."""
    if probe.target.is_linked or probe.target.layout:  # the layout would undo that
        return
    other = replace(probe, target=probe.target.in_layout(strided))
    yield Way(Situation("strided"), other, probe, _same, _same)


def gives_the_same(way: Way, tolerance: float) -> bool:
    """Whether fn has the same values when it is called in this way."""
    with unless_gone():  # of fn
        return agree(flat(way.probe.target.start().ys), flat(way.plain.y0), tolerance)
    return False


def _same(vector):
    return vector


def _part(left, vector):
    return vector[left]


def _chained(count, vector):
    """The first derivative where the others are linked to the first input, by the chain rule."""
    first = vector[:count] + vector[count:].sum() / count
    return torch.cat([first, vector[count:]])


def _read(probe, reading):
    """The probe, with its outputs, their values at the point and their weights read in this way."""
    w, y0 = (tuple(reading(v).contiguous() for v in vs) for vs in (probe.w, probe.y0))
    return replace(probe, target=probe.target.reading_as(reading), w=w, y0=y0)


def _summed(probe, reading):
    """The probe with each output summed, so that grad_out is the same number for all elements."""
    y0 = tuple(map(torch.sum, probe.y0))
    w = tuple(map(torch.ones_like, y0))
    return replace(probe, target=probe.target.reading_as(reading), w=w, y0=y0)


def _copied(y):
    """y with the same numbers; in backward, its grad_out is copied into a contiguous tensor."""
    return (y.reshape(-1) * torch.ones(y.numel()).to(y)).view(y.shape)


def turn(y: Tensor) -> Tensor:
    """y with the same numbers; in backward, its grad_out is transposed, or has gaps in memory."""
    return y.mT if y.dim() > 1 else strided(y)


def strided(x: Tensor) -> Tensor:
    """The same values in another order or with gaps in memory, still in the graph."""
    if x.dim() > 1:
        return x.mT.clone(memory_format=torch.contiguous_format).mT
    return torch.stack([x, torch.zeros_like(x)], -1)[..., 0]
