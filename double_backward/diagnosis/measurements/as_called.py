"""Compares fn as it is called, in its own dtype and compiled, with fn as it is measured.

All other modules of `diagnose` run fn in float64 where that is possible, and as it was written. A
compiled function that is called with other dtypes or layouts, or under `torch.func`, is compiled
anew, and after a few times torch gives up compiling it: it would not be what it was before.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from double_backward._torch import tree_leaves, tree_map_only
from double_backward.calls import Call, Listener, listening
from double_backward.check import BY_OTHERS, COARSE, OTHER_CODE, SURROGATE, TINIEST, Outcome
from double_backward.compiled import KEEPS, NOT_COMPILED, Region, as_written
from double_backward.differences import real
from double_backward.failures import raise_if_gone
from double_backward.phrases import Phrase, joined

from ..preparation.formulas import Probe, Reported, Row, Setting, reported, uneven_probe
from ..preparation.smaller_inputs import as_leaf
from ..preparation.target import Evaluation, Target, seed_generators
from .measure import Measured

OTHER_NUMBERS = "compiled, fn gives other numbers than as it was written: it may draw at random"
THIRD = Row(Outcome.NOT_ASKED, text="fn is compiled, and is differentiated twice only")


def compared(
    got: Reported,
    right: Reported,
    rtol: float,
    beside_first: float,
    place: Callable[[int], str],
    rounding: Any = 0.0,
) -> Row:
    """Compare what autograd says of fn (`got`) with what it says of fn in another way (`right`).

    Args:
        rtol: the relative tolerance of the second derivative.
        beside_first: how large a second derivative of 0 may be, relative to the first derivative.
        place: gives the place of an element of the derivative in words.
        rounding: by how much each element may be off in addition.
    """
    assert right.vector is not None and right.first is not None
    nothing = got.missing is not None and bool(got.missing.all())  # which autograd says in an error
    refused = Row(Outcome.RAISES, text=got.text, raised_in=got.raised_in)
    if got.vector is None:
        return refused
    off = ((got.vector - right.vector).abs() - rounding).clamp(min=0)
    off = torch.where(right.vector.isfinite(), off, 0.0)
    size = right.vector[right.vector.isfinite()].norm()
    if off.norm() <= rtol * size + beside_first * right.first.norm():
        text = got.text if nothing else ""
        return Row(Outcome.RIGHT, text=text, zero=not right.vector.any(), elements=off.numel())
    if nothing and got.text:
        return refused
    if right.vector.isfinite().all() and not got.vector.isfinite().all():
        return Row(Outcome.NOT_FINITE, where=place(int((~got.vector.isfinite()).nonzero()[0])))
    i = int(off.argmax())
    numbers = right.vector[i].item(), got.vector[i].item()
    return Row(Outcome.WRONG, off[i].item(), 0.0, *numbers, place(i))


# In float32.


def in_float32(measured: Measured, given: Target) -> dict[Setting, Row]:
    """The rows of the settings in which autograd says something else of fn as given, in float32,
    than in float64.

    Some Functions have a kernel for each dtype. Both numbers are in the same units, and what
    float32 rounds away is no difference.
    """
    probe, rows = measured.probe, {}
    ys = [y.detach() for y in given.start().ys]
    w = tuple(v.to(y.dtype) for v, y in zip(probe.w, ys, strict=True))
    single = replace(probe, target=given, w=w, y0=tuple(ys))
    size = _size_inside(single)
    for setting in Setting:
        got, right = reported(single, setting), measured.said[setting]
        if right.vector is None or right.first is None:
            continue
        rounding = _rounding_of_second(right.vector, right.first, size)
        there = replace(right, vector=_in_its_range(right.vector))
        rows[setting] = compared(got, there, SURROGATE, COARSE, probe.target.place, rounding)
    return {setting: row for setting, row in rows.items() if row.outcome is not Outcome.RIGHT}


def _in_its_range(second: Tensor) -> Tensor:
    """The numbers, infinite where float32 has none so large: then that says nothing of fn."""
    return second.masked_fill(second.abs() > torch.finfo(torch.float32).max, torch.inf)


def _size_inside(probe: Probe) -> float:
    """The size of the numbers that fn computes with: the largest of its outputs, its inputs and
    1."""
    point = [x[x.isfinite()] for x in probe.target.point]  # without a mask of -inf
    largest = max([1.0, *(x.abs().max().item() for x in point if x.numel())])
    each = zip(probe.w, probe.y0, strict=True)
    sizes = [
        v.abs().max().item() * max(y.abs().max().item(), largest) for v, y in each if y.numel()
    ]
    return max(sizes)


def _rounding_of_second(second: Tensor, first: Tensor, size: float) -> Tensor:
    """By how much a second derivative may be off in float32, where fn computes with numbers of
    this size.

    These numbers have a relative error of `eps`, and change over a length of first / second: in
    float32 the sigmoid of 17 is 1, and its derivative 0.
    """
    per_length = second / first.abs().clamp(min=TINIEST)
    return 16 * torch.finfo(torch.float32).eps * size * per_length.square() + 1e-30


# Compiled.


@dataclass(frozen=True)
class Compiled:
    """What was seen of the compiled regions in fn."""

    regions: tuple[Region, ...]
    second: dict[Setting, Row]

    def beside(self, written: dict[Setting, Row]) -> dict[Setting, Row]:
        """These rows, replaced by those of fn as it was written where that is wrong."""
        good = Outcome.RIGHT, Outcome.UNCLEAR
        return {
            setting: row
            if row.outcome is Outcome.RAISES or written[setting].outcome in good
            else written[setting]
            for setting, row in self.second.items()
        }

    def third(self, written: dict[Setting, Row]) -> dict[Setting, Row]:
        """Rows for the third derivative, if that was asked for: it is not asked of compiled
        code."""
        return dict.fromkeys(written, THIRD)

    @property
    def said(self) -> str:
        """A sentence that says what is wrong; "" if nothing is."""
        told: dict[str, list[Setting]] = {}
        for setting, row in self.second.items():
            if row.outcome is Outcome.WRONG:
                told.setdefault(Phrase("a wrong number without an error"), []).append(setting)
            elif row.outcome is Outcome.RAISES:
                told.setdefault(Phrase('the error "{}"', row.text), []).append(setting)
        if not told:
            return ""
        parts = [Phrase("{} ({})", what, ", ".join(s)) for what, s in sorted(told.items())]
        count, of = len(self.regions), self.regions[0].of
        regions = Phrase("a compiled region")
        if count > 1:
            regions = Phrase("{} compiled regions, the first", count)
        said = "fn calls {} of {}. A region {}, so that a second derivative gives {}. {}"
        return Phrase(said, regions, of, KEEPS, joined("{}, and {}", parts), NOT_COMPILED)


class _Heard(Listener):
    """Collects the compiled regions that are called."""

    def __init__(self) -> None:
        self.regions: dict[Region, None] = {}

    def called(self, call: Call) -> None:
        if call.region is not None:
            self.regions[call.region] = None


def written(fn: Callable) -> Callable:
    """The module of which `torch.compile` made fn; any other fn is returned as it is."""
    children = dict(fn.named_children()) if isinstance(fn, torch.nn.Module) else {}
    return children.get("_orig_mod", fn)


@dataclass(frozen=True)
class AsCalled:
    """fn as it is called, with the methods of `Target` that `reported` needs. Its parameters are
    its own, and are not replaced.

    Attributes:
        leaves: the tensors that fn is differentiated by, by name.
        own: the names of those that are parameters.
    """

    fn: Callable
    inputs: tuple
    leaves: dict[str, Tensor]
    own: frozenset[str]

    @classmethod
    def of(cls, fn: Callable, inputs: tuple) -> "AsCalled":
        inputs = tree_map_only(Tensor, as_leaf, inputs)
        given = [x for x in tree_leaves(inputs) if isinstance(x, Tensor)]
        names = ["x"] if len(given) == 1 else [f"input {i}" for i in range(len(given))]
        module = written(fn)
        own = dict(module.named_parameters()) if isinstance(module, torch.nn.Module) else {}
        leaves = dict(zip(names, given, strict=True)) | own
        return cls(fn, inputs, {n: x for n, x in leaves.items() if x.requires_grad}, frozenset(own))

    def probes(self) -> list[Probe]:
        """Probes that differentiate by all leaves, as in training; by those that are no parameters;
        and by each of the latter alone. Where autograd raises for one, it may be silently wrong for
        another."""
        given = {n: x for n, x in self.leaves.items() if n not in self.own}
        sets = [self.leaves, given, *({n: x} for n, x in given.items())]
        found = {tuple(leaves): replace(self, leaves=leaves) for leaves in sets if leaves}
        return [uneven_probe(one) for one in found.values()]  # type: ignore[arg-type]

    @property
    def point(self) -> list[Tensor]:
        return [x.detach() for x in self.leaves.values()]

    def start(self, bent: bool = False, leaves: bool = True) -> Evaluation:
        """Call fn with its inputs x, or with x + t**2/2."""

        def moved(x: Tensor) -> Tensor:
            return x + (x - x.detach()) ** 2 / 2 if bent and x.requires_grad else x

        inputs = tree_map_only(Tensor, moved, self.inputs)
        seed_generators(0)
        outs = [y for y in tree_leaves(self.fn(*inputs)) if isinstance(y, Tensor)]
        return Evaluation(
            list(self.leaves.values()), [], [real(y) for y in outs if y.requires_grad]
        )

    def place(self, index: int) -> str:
        """The place and value of an element of the flat derivative, in words."""
        for name, x in self.leaves.items():
            if index < x.numel():
                at = [int(i) for i in np.unravel_index(index, x.shape)]
                return f"{name}{at or ''} = {x.flatten()[index].item():.4g}"
            index -= x.numel()
        raise IndexError(index)


def compiled(fn: Callable, inputs: tuple) -> Compiled | None:
    """`Compiled` if fn calls compiled regions with these inputs, else None.

    fn is called only with copies of `inputs`, and with its own parameters.
    """
    if "torch._dynamo" not in sys.modules:
        return None
    heard = _Heard()
    try:
        with listening(heard):
            asked = AsCalled.of(fn, inputs)
            asked.start()
            if not heard.regions:
                return None
            said = [
                (probe, {setting: reported(probe, setting) for setting in Setting})
                for probe in asked.probes()
            ]
        with as_written():
            rows = {s: _worst([_row(probe, got[s], s) for probe, got in said]) for s in Setting}
    except Exception as error:  # raised by fn, and reported where fn runs as it was written
        raise_if_gone(error)
        return None
    return Compiled(tuple(heard.regions), rows)


def _worst(rows: list[Row]) -> Row:
    """The row for all leaves at once, unless another row is a wrong number."""
    return next((row for row in rows if row.outcome is Outcome.WRONG), rows[0])


def _row(probe: Probe, got: Reported, setting: Setting) -> Row:
    """Compare what autograd says of fn as it is called with what it says of fn as written."""
    right = reported(probe, setting)
    if right.vector is None or right.first is None:  # `diagnose` reports that elsewhere
        return Row(Outcome.NOT_ASKED, text=f"as it was written, fn raises: {right.text}")
    rtol = max(OTHER_CODE.get(t.dtype, 0.0) for t in (*probe.target.point, *probe.y0))
    row = compared(got, right, rtol, BY_OTHERS[1] * rtol, probe.target.place)
    first = right.first if got.first is None else got.first
    if row.outcome is Outcome.WRONG and (first - right.first).norm() > rtol * right.first.norm():
        return Row(Outcome.NOT_ASKED, text=OTHER_NUMBERS)
    return row
