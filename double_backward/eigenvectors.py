"""Turns complex eigenvectors, whose phases are the solver's choice, so that the choice is fixed.

A complex eigenvector times any number of size 1 is an eigenvector as well, and the same holds for a
pair of left and right singular vectors. A backward may leave out what depends on the phase, and
torch's own does; all that does not depend on it is judged.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from .check import OF_VECTORS, TIMES_ONE
from .phrases import Phrase

PHASES = Phrase(
    "The phases of its complex eigenvectors were left out: they are the solver's choice."
)
MAYBE = Phrase(
    "its outputs are complex and of norm 1, column by column: right but for their phases, which "
    "are the solver's choice if these are eigenvectors"
)

AS_COLUMNS, AS_ROWS = -2, -1  # the dimension along which a vector lies


class Turn:
    """Turns outputs of a call so that the largest element of each eigenvector is real.

    Vectors that are computed together are turned together: the left and right vectors of a
    decomposition keep their product.

    Attributes:
        sides: number of the output -> the dimension along which its eigenvectors lie.
    """

    def __init__(self, sides: dict[int, int]) -> None:
        self.sides = sides

    def __call__(self, outs: Sequence) -> list:
        first = min(self.sides)
        phases = _phases(outs[first], self.sides[first])
        turned = list(outs)
        for number, side in self.sides.items():
            y = outs[number]
            same = phases if y.shape[_other(side)] == phases.shape[-1] else _phases(y, side)
            turned[number] = y * same.unsqueeze(-2) if side == AS_COLUMNS else y * _of_rows(same)
        return turned

    def before(self, outs: Sequence, u: Any) -> list:
        """The gradients for the outputs, where u holds those for the turned outputs."""
        own = [y if not isinstance(y, Tensor) or y.requires_grad else y.detach().requires_grad_()
               for y in outs]  # fmt: skip
        with torch.enable_grad():
            turned = self(own)
            given = u(turned) if callable(u) else list(u)
            if all(given[number] is None for number in self.sides):
                return given
            for number in self.sides:
                if given[number] is None:
                    given[number] = torch.zeros_like(turned[number])
            numbers = list(self.sides)
            found = torch.autograd.grad(
                [turned[n] for n in numbers],
                [own[n] for n in numbers],
                [given[n] for n in numbers],
                create_graph=torch.is_grad_enabled(),
            )
        for number, g in zip(numbers, found, strict=True):
            given[number] = g
        return given


def _other(side: int) -> int:
    return AS_COLUMNS + AS_ROWS - side


def _phases(y: Tensor, side: int) -> Tensor:
    """The factor for each vector, for one that is a column."""
    largest = y.gather(side, y.detach().abs().argmax(side, keepdim=True)).squeeze(side)
    found = largest.conj() / largest.abs()
    return found if side == AS_COLUMNS else found.conj()


def _of_rows(phases: Tensor) -> Tensor:
    """The factors for vectors that are rows: conjugate, so that U diag(S) V^H stays as it is."""
    return phases.conj().unsqueeze(-1)


def turn_of(inputs: Iterable, outs: Sequence) -> Turn | None:
    """How to turn outputs that are complex eigenvectors, or singular vectors, of an input."""
    matrices = [m for x in inputs if isinstance(x, Tensor) for m in _matrices(x.detach())]
    sides: dict[int, int] = {}
    for number, y in enumerate(outs):
        if _may_hold_vectors(y):
            for side in (AS_COLUMNS, AS_ROWS):
                t = y.detach()
                columns = [t] if side == AS_COLUMNS else [t.mH, t.mT]
                if any(_are_eigenvectors(c, m) for c in columns for m in matrices):
                    sides.setdefault(number, side)
    return Turn(sides) if sides else None


def turn_of_units(outs: Sequence) -> Turn | None:
    """How to turn outputs that are square matrices with columns of norm 1, if no more is known of
    them."""
    sides = {
        number: AS_COLUMNS
        for number, y in enumerate(outs)
        if _may_hold_vectors(y)
        and y.shape[-1] == y.shape[-2]
        and bool(((y.detach().norm(dim=-2) - 1).abs() <= OF_VECTORS[y.dtype]).all())
    }
    return Turn(sides) if sides else None


def _may_hold_vectors(y: Any) -> bool:
    known = isinstance(y, Tensor) and y.dtype in OF_VECTORS and y.layout is torch.strided
    return known and y.dim() > 1 and y.shape[-1] * y.shape[-2] > 1 and bool(y.isfinite().all())


def _matrices(x: Tensor) -> list[Tensor]:
    """The matrices whose eigenvectors a decomposition of x may return. A multiple of the identity
    is left out, since each vector is an eigenvector of it."""
    usual = x.layout is torch.strided and not x.is_nested
    if not usual or not (x.is_floating_point() or x.is_complex()) or x.dim() < 2:
        return []
    if x.numel() == 0 or not x.isfinite().all():
        return []
    found = [x] if x.shape[-1] == x.shape[-2] else []
    found += [x @ x.mH, x.mH @ x] if x.shape[-2] * x.shape[-1] > 1 else []
    return [m for m in found if not _is_multiple_of_one(m)]


def _is_multiple_of_one(m: Tensor) -> bool:
    one = torch.eye(m.shape[-1], dtype=m.dtype, device=m.device)
    rest = m - one * m[..., :1, :1]
    return bool(rest.abs().max() <= TIMES_ONE * m.abs().max())


def _are_eigenvectors(v: Tensor, m: Tensor) -> bool:
    if m.shape[-1] != v.shape[-2] or m.shape[:-2] != v.shape[:-2]:
        return False
    w = m.to(v.dtype) @ v
    square = (v.conj() * v).sum(-2, keepdim=True).real
    if not (square > 0).all():
        return False
    rest = w - v * ((v.conj() * w).sum(-2, keepdim=True) / square)
    top = m.abs().max() * square.sqrt()
    return bool((rest.norm(dim=-2, keepdim=True) <= OF_VECTORS[v.dtype] * top).all())
