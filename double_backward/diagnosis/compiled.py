"""What `torch.compile` makes of fn: its second derivative as it is called, beside fn as written.

Everything else that `diagnose` does runs fn as it was written. A compiled function that is called
with other dtypes, layouts or under `torch.func` is compiled anew, and given up after a few times:
afterwards it would not be what it was before.
"""

import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor

from double_backward._torch import tree_leaves, tree_map_only
from double_backward.check import BESIDE_FIRST, OTHER_CODE, Outcome
from double_backward.differences import filled, real
from double_backward.lines import first_line
from double_backward.meet import Call, Listener, listening
from double_backward.places import raised_in
from double_backward.regions import NOT_COMPILED, Region, uncompiled

from .rows import Row
from .settings import UNUSED, Setting, says_unused, uneven, uneven_direction
from .smaller import copied
from .target import seed_generators

OTHER_NUMBERS = "compiled, fn gives other numbers than as it was written: it may draw at random"
THIRD = Row(Outcome.NOT_ASKED, text="fn is compiled, and is differentiated twice only")


@dataclass(frozen=True)
class Compiled:
    """What was seen of the compiled regions in fn."""

    regions: tuple[Region, ...]
    second: dict[Setting, Row]

    def beside(self, written: dict[Setting, Row]) -> dict[Setting, Row]:
        """These rows, but where fn is wrong as it was written: that is said first."""
        good = Outcome.RIGHT, Outcome.UNCLEAR
        return {
            setting: row
            if row.outcome is Outcome.RAISES or written[setting].outcome in good
            else written[setting]
            for setting, row in self.second.items()
        }

    def third(self, written: dict[Setting, Row]) -> dict[Setting, Row]:
        """Rows where the third derivative was asked for."""
        return dict.fromkeys(written, THIRD)

    @property
    def said(self) -> str:
        """What is wrong, in words; "" if nothing is."""
        wrong = [s for s, row in self.second.items() if row.outcome is Outcome.WRONG]
        raises = [(row.text, s) for s, row in self.second.items() if row.outcome is Outcome.RAISES]
        if not wrong and not raises:
            return ""
        parts = [f"a wrong number without an error ({_listed(wrong)})"] if wrong else []
        for text, group in groupby(sorted(raises), lambda pair: pair[0]):
            parts.append(f'the error "{text}" ({_listed([s for _, s in group])})')
        several = "s, the first of" if len(self.regions) > 1 else " of"
        return (
            f"fn calls {len(self.regions) if several[0] == 's' else 'a'} compiled region{several} "
            f"{self.regions[0].of}. A region keeps results and intermediates, which come back "
            f"without a graph, so that a second derivative gives {', and '.join(parts)}. "
            f"{NOT_COMPILED}"
        )


def _listed(settings: list[Setting]) -> str:
    return ", ".join(s for s in Setting if s in settings)


class _Heard(Listener):
    """The regions that are called."""

    def __init__(self) -> None:
        self.regions: dict[Region, None] = {}

    def called(self, call: Call) -> None:
        if call.region is not None:
            self.regions[call.region] = None


@contextmanager
def as_written() -> Iterator[None]:
    """Inside, compiled functions run as they were written, and stay as they are."""
    uncompiled.begin()
    try:
        yield
    finally:
        uncompiled.end()


def written(fn: Callable) -> Callable:
    """The module of which `torch.compile` made fn; anything else as it is."""
    children = dict(fn.named_children()) if isinstance(fn, torch.nn.Module) else {}
    return children.get("_orig_mod", fn)


def as_called(fn: Callable, inputs: tuple) -> Compiled | None:
    """`Compiled`, if fn calls compiled regions with these inputs.

    Called with nothing but copies of `inputs`, and its own parameters.
    """
    if "torch._dynamo" not in sys.modules:
        return None
    heard, said = _Heard(), {}
    try:
        with listening(heard):
            asked = Twice.of(fn, inputs)
            asked.call(Setting.ALONE)
            if not heard.regions:
                return None
            said = {setting: asked.second(setting) for setting in Setting}
        with as_written():
            rows = {s: _row(asked, said[s], asked.second(s)) for s in Setting}
    except Exception:  # of fn, which is told of where it is called as it was written
        return None
    return Compiled(tuple(heard.regions), rows)


@dataclass(frozen=True)
class _Said:
    """The derivatives in one setting, flat; None where there is an error."""

    values: Tensor | None = None
    first: Tensor | None = None
    second: Tensor | None = None  # beside a text: NaN by what autograd refuses
    apart: float = 0.0  # what rounding may make of them, relative
    text: str = ""
    raised_in: str = ""


@dataclass(frozen=True)
class Twice:
    """fn, and the tensors by which it is differentiated, twice."""

    fn: Callable
    inputs: tuple
    leaves: list[Tensor]
    names: list[str]
    given: list[Tensor]  # those of the leaves that are no parameters

    @classmethod
    def of(cls, fn: Callable, inputs: tuple, parameters: Collection[int] = ()) -> "Twice":
        """
        Args:
            parameters: places of tensors among the inputs that are parameters of a module.
        """
        inputs = tree_map_only(Tensor, copied, inputs)
        given = [x for x in tree_leaves(inputs) if isinstance(x, Tensor)]
        names = ["x"] if len(given) == 1 else [f"input {i}" for i in range(len(given))]
        named = [pair for pair in zip(names, given, strict=True) if pair[1].requires_grad]
        trained = [x for i, x in enumerate(given) if i in parameters]
        own = [x for _, x in named if not any(x is t for t in trained)]
        module = written(fn)
        if isinstance(module, torch.nn.Module):
            named += [pair for pair in module.named_parameters() if pair[1].requires_grad]
        return cls(fn, inputs, [x for _, x in named], [name for name, _ in named], own)

    def call(self, setting: Setting) -> list[Tensor]:
        """The outputs that have a graph, as real numbers."""

        def bent(x: Tensor) -> Tensor:
            return x + (x - x.detach()) ** 2 / 2 if x.requires_grad else x

        inputs = tree_map_only(Tensor, bent, self.inputs) if setting.before else self.inputs
        seed_generators(0)
        out = self.fn(*inputs)
        return [real(y) for y in tree_leaves(out) if isinstance(y, Tensor) and y.requires_grad]

    def second(self, setting: Setting) -> _Said:
        """As a reader would ask for it; `allow_unused` where some of several inputs are not.

        Where autograd refuses that, by each input alone: it may be silent there.
        """
        said = self._second(setting, self.leaves)
        if UNUSED in said.text and len(self.leaves) > 1:
            loose = self._second(setting, self.leaves, strict=False)
            return said if loose.second is not None and not loose.second.any() else loose
        if said.second is None and said.first is not None and len(self.leaves) > 1:
            return replace(said, second=self._by_each(setting))
        return said

    def _by_each(self, setting: Setting) -> Tensor | None:
        """By each input alone, NaN where autograd refuses; None if it does so throughout."""
        found = {id(x): self._second(setting, [x]).second for x in self.given}
        if all(vector is None for vector in found.values()):
            return None
        parts = [found.get(id(x)) for x in self.leaves]
        nothing = [torch.full_like(real(x.detach()), torch.nan).flatten() for x in self.leaves]
        pairs = zip(parts, nothing, strict=True)
        return torch.cat([(b if a is None else a).double() for a, b in pairs])

    def _second(self, setting: Setting, by: list[Tensor], strict: bool = True) -> _Said:
        values, first, apart = None, None, 0.0
        try:
            ys = self.call(setting)
            apart = max(OTHER_CODE.get(t.dtype, 0.0) for t in [*self.leaves, *ys])
            values = torch.cat([y.detach().flatten().double() for y in ys])
            terms = [y + (y - y.detach()) ** 2 / 2 if setting.after else y for y in ys]
            loss = _sum(uneven(term) * term for term in terms)
            grads = torch.autograd.grad(loss, self.leaves, create_graph=True, allow_unused=True)
            first = filled(grads, self.leaves)
            given = [real(g) for g in grads if g is not None]
            along = _sum(uneven_direction(g).view(g.shape) * g for g in given)
            seconds = torch.autograd.grad(along, by, allow_unused=not strict)
        except Exception as error:  # whatever torch or fn raises is the answer
            return _Said(values, first, None, apart, first_line(error), raised_in(error))
        return _Said(values, first, filled(seconds, by), apart)

    def place(self, index: int) -> str:
        """Where an element of the flat derivative is."""
        which, sizes = 0, [real(x.detach()).numel() for x in self.leaves]
        while index >= sizes[which]:
            index -= sizes[which]
            which += 1
        x = real(self.leaves[which].detach())
        at = [int(i) for i in np.unravel_index(index, x.shape)]
        return f"{self.names[which]}{at or ''} = {x.flatten()[index].item():.4g}"


def _sum(terms: Iterator[Tensor]) -> Any:
    return sum(term.sum() for term in terms)


def _row(asked: Twice, got: _Said, right: _Said) -> Row:
    """What is said by fn as it is called, beside what it says as it was written."""
    if right.second is None or right.first is None:
        return _row_of_nothing(got, right)
    refused = Row(Outcome.RAISES, text=got.text, raised_in=got.raised_in)
    if got.second is None:
        return refused
    asked_for = ~(got.second.isnan() & bool(got.text))
    second = torch.where(asked_for, got.second, right.second)
    off = (second - right.second).abs()
    if _close(second, right.second, right.apart, BESIDE_FIRST * right.first.norm()):
        return refused if got.text else Row(Outcome.RIGHT, elements=off.numel())
    if not (_close(got.values, right.values, right.apart) and
            _close(got.first, right.first, right.apart)):  # fmt: skip
        return Row(Outcome.NOT_ASKED, text=OTHER_NUMBERS)
    worst = int(off.argmax())
    expected, seen = right.second[worst].item(), second[worst].item()
    return Row(Outcome.WRONG, off.max().item(), 0.0, expected, seen, asked.place(worst))


def _row_of_nothing(got: _Said, right: _Said) -> Row:
    """The same where fn, as it was written, raises: nothing depends on an input, or it is wrong."""
    if not says_unused(right.text):  # where `diagnose` met the same, it tells of it
        return Row(Outcome.NOT_ASKED, text=f"as it was written, fn raises: {right.text}")
    if got.second is None and not says_unused(got.text):
        return Row(Outcome.RAISES, text=got.text, raised_in=got.raised_in)
    return Row(Outcome.RIGHT, text=got.text, zero=True)


def _close(got: Any, right: Any, apart: float, beside: Any = 0.0) -> bool:
    if got is None or right is None or got.shape != right.shape:
        return False
    off = (got - right)[right.isfinite()]
    return bool(off.norm() <= apart * (right[right.isfinite()].norm() + beside))
