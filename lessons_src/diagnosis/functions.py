"""The custom Functions in the graph of fn: what they keep, and what their backward depends on."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

import torch
from torch import Tensor

from lessons_src.graphs import walk

from .differences import flat, shaped, slope
from .judge import Outcome, Row
from .measure import Measured
from .settings import Setting
from .target import Call, Target

MOST = 20  # nodes that are looked at


class Kind(StrEnum):
    """What a kept tensor is to the Function that keeps it."""

    INPUT = "input"
    OUTPUT = "output"
    INTERMEDIATE = "intermediate"  # made in forward, and it changes with the inputs
    CONSTANT = "constant"  # a mask, for example


class Path(StrEnum):
    """What autograd says of backward as a function of something, beside the truth."""

    RIGHT = "right"
    MISSING = "missing"  # nothing
    WRONG = "wrong"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Saved:
    """A tensor that a custom Function keeps."""

    name: str  # the attribute of ctx, "" for save_for_backward
    kind: Kind
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    repeats: Kind | None = None  # INPUT or OUTPUT: an intermediate that only repeats one

    @property
    def on_ctx(self) -> bool:
        return bool(self.name)


@dataclass(frozen=True)
class Custom:
    """One custom Function in the graph of fn."""

    once: bool  # declared once_differentiable
    saved: tuple[Saved, ...]
    by_inputs: Path = Path.UNKNOWN  # backward differentiated by the inputs of fn
    by_grad_out: Path = Path.UNKNOWN
    extra_ignored: bool = False  # backward does not use the gradient of an output that is saved

    @property
    def intermediates(self) -> list[Saved]:
        return [s for s in self.saved if s.kind is Kind.INTERMEDIATE]


# What is kept.


def custom_functions(target: Target) -> tuple[Custom, ...]:
    """The custom Functions in the order of the graph, the last one called first."""
    here = target.start()
    beside = target.start(shift=_uneven_step(here.xs, target.scale))
    nodes, moved = _nodes(here), _nodes(beside)
    if [len(n.kept) for n in moved] != [len(n.kept) for n in nodes]:
        moved = nodes
    found = []
    for node, other in zip(nodes, moved, strict=True):
        pairs = zip(node.kept, other.kept, strict=True)
        saved = (_saved(k, there, here, target) for k, there in pairs if k.tensor is not None)
        found.append(Custom(node.once_differentiable, tuple(saved)))
    return tuple(found)


def kinds(target: Target) -> list[list[Kind]]:
    """The kind of every tensor that the custom Functions keep."""
    return [[s.kind for s in custom.saved] for custom in custom_functions(target)]


def _nodes(call: Call):
    """The nodes of custom Functions. Keep `call` as long as you use them."""
    return [node for node in walk.walk(*call.ys).nodes if node.custom][:MOST]


def _uneven_step(xs, scale):
    """A step that changes whatever depends on the inputs, also on their differences only."""
    far = 1e-3 if xs[0].dtype == torch.float64 else 1e-2
    return torch.linspace(1, 2, len(flat(xs)), dtype=xs[0].dtype) * far * scale


def _saved(kept, beside, call, target):
    tensor, repeats = kept.tensor, None
    if kept.role == walk.INPUT:
        kind = Kind.INPUT
    elif kept.role == walk.OUTPUT:
        kind = Kind.OUTPUT
    elif tensor.is_floating_point() and not _repeats(tensor, [beside.tensor]):
        kind = Kind.INTERMEDIATE
        if _repeats(tensor, call.xs):
            repeats = Kind.INPUT
        elif _repeats(tensor, call.ys):
            repeats = Kind.OUTPUT
    else:
        kind = Kind.INPUT if _repeats(tensor, target.constants) else Kind.CONSTANT
    count = tensor.numel() if tensor.layout == torch.strided else tensor._nnz()
    dtype = str(tensor.dtype).removeprefix("torch.")
    size = count * tensor.element_size()
    return Saved(kept.name, kind, tuple(tensor.shape), dtype, size, repeats)


def _repeats(tensor: Tensor, others: list[Tensor]) -> bool:
    """Whether one of the others has the same values, in whatever shape."""
    tensor = tensor.to_dense().reshape(-1)
    same = [o for o in others if o.numel() == tensor.numel()]
    return any(torch.equal(o.to_dense().reshape(-1).to(tensor.dtype), tensor) for o in same)


# What backward depends on.


class Followed(NamedTuple):
    """Backward of one node, called by itself with a grad_out u."""

    node: object
    t: list[Tensor]
    u: list[Tensor]
    value: Tensor  # what backward returns, weighted and summed
    call: Call  # keeps the node alive


def follow(
    measured: Measured, customs: tuple[Custom, ...], generator: torch.Generator
) -> tuple[Custom, ...]:
    """The same Functions, with what is known of their backwards by calling each by itself.

    Its change with the inputs is compared with what autograd says, and what autograd says of
    grad_out with the result itself, which is linear in grad_out.
    """
    probe, weights = measured.probe, {}

    def draw(like, *key):
        if key not in weights:
            weights[key] = torch.randn(like.shape, generator=generator, dtype=torch.float64)
        return weights[key].detach().to(like.dtype)

    def values(h):
        backwards = _call_backwards(probe.target, h * probe.d, draw)
        return torch.stack([followed.value.detach() for followed in backwards]).double()

    try:
        change, error = slope(values, measured.dtype, probe.target.scale)
        backwards = list(_call_backwards(probe.target, 0.0, draw))
    except Exception:  # of fn, or of a backward; then an explanation is missing, not the verdict
        return customs
    found = []
    for i, (custom, followed) in enumerate(zip(customs, backwards, strict=True)):
        if not custom.once:
            steps = shaped(probe.d, followed.t)
            custom = _compare(custom, followed, steps, change[i].item(), error[i].item())
        found.append(custom)
    return tuple(found)


def _call_backwards(target, shift, draw) -> Iterator[Followed]:
    """May raise what fn or a backward raises."""
    call = target.start(shift=shift)
    for i, node in enumerate(_nodes(call)):
        u = []
        for k, meta in enumerate(node.fn._input_metadata):
            dtype = torch.promote_types(meta.dtype, torch.half)
            like = torch.empty(meta.shape, dtype=dtype)
            u.append(draw(like, i, k).requires_grad_(True))
        grads = node.fn.apply(*u)
        grads = [g for g in (grads if isinstance(grads, tuple) else [grads]) if g is not None]
        value = sum((g * draw(g, i, k, "v")).sum() for k, g in enumerate(grads))
        yield Followed(node, call.t, u, value, call)


def _compare(custom, followed, steps, change, error):
    node, t, u, value, _ = followed
    grads = [None] * len(t + u)
    if value.requires_grad:
        try:
            grads = torch.autograd.grad(value, t + u, allow_unused=True, retain_graph=True)
        except Exception:  # of a backward of backward
            return custom
    pairs = zip(grads, steps + u, strict=True)
    terms = [0.0 if g is None else (g * s).sum().item() for g, s in pairs]
    outputs = [k for k in node.kept if k.role == walk.OUTPUT and k.position]
    extra = [grads[len(t) + k.position] for k in outputs]
    return replace(
        custom,
        by_inputs=_path(sum(terms[: len(t)]), change, error),
        by_grad_out=_path(sum(terms[len(t) :]), value.item(), 1e-9),
        extra_ignored=value.requires_grad and any(g is None or not g.any() for g in extra),
    )


def _path(got, expected, error):
    if abs(got - expected) <= 1e-3 * abs(expected) + 10 * error:
        return Path.RIGHT
    if got == 0:
        return Path.MISSING
    return Path.WRONG if got == got else Path.UNKNOWN  # nan says nothing


def convict_surrogates(measured: Measured, customs: tuple[Custom, ...]) -> dict[Setting, Row]:
    """The rows of the second derivative where the first could not be judged as a whole.

    A surrogate has no finite differences to compare with, but its backwards by themselves do.
    """
    one = len(customs) == 1  # an inner one sees x through a backward that is not its derivative
    by_inputs = any(
        c.by_inputs is Path.MISSING or (one and c.by_inputs is Path.WRONG) for c in customs
    )
    by_grad_out = any(c.by_grad_out in (Path.MISSING, Path.WRONG) for c in customs)
    rows = {}
    for setting, row in measured.second.items():
        if row.outcome is Outcome.RIGHT and (by_inputs or (by_grad_out and setting.after)):
            row = replace(row, outcome=Outcome.RAISES if row.text else Outcome.WRONG)
        rows[setting] = row
    return rows
