"""Is what backward returns the derivative, and is its own derivative right?

backward is a map G(x, u): the gradients of the inputs x, for grad_out u. The output y and G change
along x + h d and along u + k e, and autograd says what the vjp of G is. A Function can be
differentiated twice where the two agree:

    first        <u, dy>  = <G, d>
    by_input     <v, dG>  = <vjp of v by x, d>       along x + h d
    by_grad_out  <v, dG>  = <vjp of v by u, e>       along u + k e
    tied         both together, where grad_out is made from y: a path counted twice shows here

How G changes is known exactly, by tangents, where the code can be followed and differences agree
roughly; else it is known by differences. Tangents can say that something is right. Since they share
formulas with autograd, nothing is called wrong before differences have confirmed it. How y changes
is known by differences alone.

`measure` takes the changes of y and G once, with several calls of the callable. `check` asks
autograd, with two calls, and says how they agree. Where the same backward is computed in another
way, only `check` is called again.
"""

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache, cached_property, lru_cache, partial
from itertools import chain
from operator import attrgetter

import torch
from torch import Tensor

from . import tangents
from .differences import LAST, NONE, STEPS, Slope, apart, flat, real, slope
from .failures import raise_if_own, unless_gone
from .lines import first_line
from .phrases import Phrase

# Relative tolerances; a path that is lost is off by far more. The row bfloat16 is for whatever
# computes in 16 bits, here and below.
RTOL = {torch.float64: 1e-4, torch.float32: 5e-3, torch.bfloat16: 1e-1}
FOLLOWED = {torch.float64: 1e-5, torch.float32: 1e-4}  # the same, beside tangents
EXACT = {torch.float64: 2e-4, torch.float32: 1e-3, torch.bfloat16: 2e-2}  # of a closed formula
SLIGHT = 1e-2  # times EXACT: a first derivative that is off by less speaks for all of fn
INEXACT = {torch.float64: 2e-3, torch.float32: 4e-3}  # no closed formula is further off
ROUGH = 1e-2  # what is off by more lacks something, and is no rounding
SURROGATE = 0.1  # a first derivative further off than this is not an inexact solver's
NOISE = 0.02  # one further off than this must scatter to both sides, or it is no noise
LINEAR = {  # how far a backward may be from linear in grad_out; autocast rounds to 8 bits
    torch.float64: 1e-4,
    torch.float32: 2e-2,
    torch.bfloat16: 5e-2,
}
FACTORS = {  # a clip shows at a large one, an added term at a small one; float16 ends at 65504
    torch.float64: (-3, 1e4, 1e-4),
    torch.float32: (-3, 1e4, 1e-4),
    torch.bfloat16: (-3, 1e2, 1e-2),
}
BENDS = {  # steps of second differences
    torch.float64: (1e-2, 2e-2),
    torch.float32: (1e-1, 2e-1),
    torch.bfloat16: (3e-1, 5e-1),
}
# By how much, relatively, one number may differ where other code computes it, or before and after
# something was changed.
OTHER_CODE = {torch.float64: 1e-6, torch.float32: 1e-2, torch.bfloat16: 1e-1, torch.float16: 1e-1}
TELLS = 1e-6  # of a gradient: where it changes by less, a lost path would not show
# Of the largest: what is smaller may be what rounding leaves of 0.
LEFT_OF_ZERO = {torch.float64: 1e-12, torch.float32: 1e-6, torch.bfloat16: 1e-12}
LOST_SHARE = 1e-3  # a path that keeps less than this share of its value in float64 is lost
TOLD = 1e-3  # a resolution worse than this is told
TOO_ROUGH = 0.02  # with a resolution worse than this nothing is called right, unless rtol= says so
COARSE = 1e-3  # a callable with an rtol= of this or more is treated like one in 16 bits
ATOL = 1e-10
DEPTH = 0.75  # power of the last digit; a change that is smaller beside G may be rounding
COUNTS = 0.05  # of the largest change: what changes by less is lost beside it
FEW_ELEMENTS = 1000  # elements for which the signs that were drawn are kept
SIGN_DRAWS = 17  # how often signs are drawn; those are taken that hide least in a sum
# By how much one difference may differ from a change by tangents: of itself, and of the others.
ROUGHLY = 0.1, 0.02
# By how much two answers of autograd may differ.
ROUNDED = 10.0  # times what rounding inside leaves
SCATTER = 2.0  # times what rounding makes of autograd's answer in a few runs
# By how much, times the tolerance, a jvp or torch.func may differ: relative, and beside the size of
# what changes. Where a second derivative is 0, the latter is what rounding leaves of the first.
BY_OTHERS = 10.0, 1e-2
LEFT = 1e-4  # relative: by how much a complete list of shares may differ from its sum
# A step so small that only rounding changes, and how much rounding autograd's answer can bear.
ROUNDING = {torch.float64: (1e-9, 1e-4), torch.float32: (1e-6, 1e-3)}
OF_FLOAT32 = 1e45  # 1 by the smallest number of float32: its gradients have no larger weight
TINIEST = 1e-300
STAIR = 16  # last digits
FOLLOWS_MORE = {torch.float64: 1e30, torch.float32: 1e10, torch.bfloat16: 1e10}  # times
BESIDE = 1e-3  # one of the steps that differences take
SMALLEST = 1e-6  # of the mean size: an element known only beside this is weighed as this large
UNCHANGED = 1e-8  # absolute: what changes by less does not change
MASK = 1e4  # an element this large, as of a mask (-1e9, -inf), tells no size of the others
ORDINARY = 1e-3, 1e3  # sizes between these need no unit of their own
# Relative errors that a solver leaves in an eigenvector and in its norm, and in a multiple of 1.
OF_VECTORS = {torch.complex128: 1e-6, torch.complex64: 1e-3}
TIMES_ONE = 1e-3
HALVES = 1e-5  # of the largest element: a matrix whose halves differ by less is symmetric
SHARE = 0.5  # of the elements must be known, or nothing is
# Relative: an element of G whose change is known less precisely is left out.
KNOWN = {torch.float64: 1e-2, torch.float32: 1e-2, torch.bfloat16: 1e-1}


DISAGREE = "differences say otherwise"
SIXTEEN_BITS = {torch.float16, torch.bfloat16}


class Outcome(StrEnum):
    """How a comparison ended."""

    RIGHT = "right"
    WRONG = "wrong"
    RAISES = "raises"
    NOT_FINITE = "not finite"
    UNCLEAR = "unclear"  # differences know too little: not smooth, or noise
    NOT_ASKED = "not asked"  # there was no way to ask, or something before it ended the check


BAD = Outcome.WRONG, Outcome.RAISES, Outcome.NOT_FINITE

# A way to call backward: from a callable, its inputs and its grad_outs to the gradients of the
# inputs, None for an input that gets none. The gradients have a graph where grad mode is on.
GradOuts = list[Tensor | None] | Callable[[Sequence], list[Tensor | None]]  # or made from outputs
Vjp = Callable[[Callable, list[Tensor], GradOuts], Sequence[Tensor | None]]


def autograd_vjp(function: Callable, x: list[Tensor], u: GradOuts) -> list[Tensor | None]:
    """What backward returns, as `torch.autograd.grad` gives it."""
    with torch.enable_grad():
        outs = function(x)
        u = u(outs) if callable(u) else u
    pairs = [
        (y, g)
        for y, g in zip(outs, u, strict=True)
        if g is not None and isinstance(y, Tensor) and y.requires_grad
    ]
    if not pairs:
        return [None] * len(x)
    ys, gs = [y for y, _ in pairs], [g.to(y.dtype) for y, g in pairs]
    options = {"create_graph": torch.is_grad_enabled(), "allow_unused": True}
    return list(torch.autograd.grad(ys, x, gs, **options))


@dataclass(frozen=True, eq=False)
class Subject:
    """A callable at a point.

    Attributes:
        function: from a list of tensors, the inputs, to a sequence of outputs.
        x: the inputs at the point; real or complex, floating.
        u: grad_outs, one for each output; None for an output that is given none.
        follows: which grad_outs depend on something; the others are constants. () means all.
        vjp: how backward is called.
        around: a context for each call of backward, such as one that puts generators back.
    """

    function: Callable
    x: tuple[Tensor, ...]
    u: tuple[Tensor | None, ...]
    follows: tuple[bool, ...] = ()
    vjp: Vjp = autograd_vjp
    around: Callable[[], AbstractContextManager] = nullcontext

    def at(self, x: Sequence[Tensor]) -> "Subject":
        return replace(self, x=tuple(x))

    def backward(self, x: list[Tensor], u: GradOuts, function: Callable | None = None) -> list:
        """The gradients of the inputs, 0 where there is none."""
        with self.around():
            return self.backward_inside(x, u, function)

    def backward_inside(
        self, x: list[Tensor], u: GradOuts, function: Callable | None = None
    ) -> list:
        """The same, for a caller who has entered `around` already and stays in it."""
        grads = self.vjp(function or self.function, x, u)
        return [torch.zeros_like(x[i]) if g is None else g for i, g in enumerate(grads)]


@dataclass(frozen=True)
class Compared:
    """One comparison of two numbers, or of two vectors."""

    outcome: Outcome
    expected: float = 0.0
    got: float = 0.0
    error: float = 0.0  # what `expected` may be off by
    text: str = ""  # first line of the error that autograd raises; why it is unclear
    allowed: float = 0.0  # by how much the two could differ unseen
    least: float = 0.0  # the smallest of the terms of `expected` that counts

    @property
    def resolution(self) -> float:
        """The largest relative error, common to all elements, that would have been missed; 0 where
        nothing was compared, or nothing but 0."""
        if self.outcome is not Outcome.RIGHT or not self.expected or not self.least:
            return 0.0
        return self.allowed / abs(self.expected)

    @property
    def says_nothing(self) -> bool:
        """Whether it is right since so much is allowed, although there is something to compare."""
        return self.outcome is Outcome.RIGHT and bool(self.expected) and not self.resolution

    @property
    def resolution_of_one(self) -> float:
        """The same for an error in one element alone."""
        return self.allowed / self.least if self.resolution else 0.0

    @property
    def bad(self) -> bool:
        return self.outcome in BAD

    def agrees(self, rtol: float) -> bool:
        """Whether the two numbers agree to `rtol`, with no allowance for `error`."""
        size = max(abs(self.expected), abs(self.got))
        return abs(self.expected - self.got) <= rtol * size + ATOL

    @property
    def off(self) -> float:
        """By how much the two numbers surely differ, relative to the larger."""
        beyond = max(0.0, abs(self.expected - self.got) - 5 * self.error)
        return beyond / max(abs(self.expected), abs(self.got), TINIEST)


NOT_ASKED = Compared(Outcome.NOT_ASKED)


FOLLOWING = "by_input", "tied"  # the parts whose truth is known by tangents, where there are any
PARTS = "by_input", "by_grad_out", "tied", "recorded", "constant"


@dataclass(frozen=True)
class Checked:
    """How backward's own derivative, as autograd has it, agrees with what was measured.

    Attributes:
        by_input, by_grad_out, tied: as the docstring of this module defines them.
        constant: by_input, where grad_out has no graph.
        recorded: G with create_graph=True, against G without.
        wrong: the places of the gradients whose own derivative is wrong, or not finite.
        unresolved: autograd says 0 throughout, although G does change.
        error: what autograd raised instead, else None.
    """

    by_input: Compared = NOT_ASKED
    by_grad_out: Compared = NOT_ASKED
    tied: Compared = NOT_ASKED
    recorded: Compared = NOT_ASKED
    constant: Compared = NOT_ASKED
    wrong: tuple[int, ...] = ()
    unresolved: bool = False
    error: Exception | None = None

    @property
    def bad(self) -> bool:
        """Whether something is wrong, not finite, or raises."""
        return any(getattr(self, part).bad for part in PARTS)


@dataclass(frozen=True, eq=False)
class Line:
    """A subject, and where it is moved: x + h d, u + k e."""

    subject: Subject
    d: tuple[Tensor, ...]
    e: tuple[Tensor | None, ...]  # None where grad_out is a constant

    @classmethod
    def of(cls, subject: Subject, symmetric: bool = True) -> "Line":
        """A line in a random direction, the same in each run. With `symmetric`, symmetric matrices
        stay symmetric along it."""
        generator = torch.Generator().manual_seed(2)
        draw = partial(signed, generator=generator, symmetric=symmetric)
        follows = subject.follows or (True,) * len(subject.u)
        d = tuple(size(x) * draw(x) for x in subject.x)
        e = tuple(
            size(u) * draw(u) if u is not None and moves else None
            for u, moves in zip(subject.u, follows, strict=True)
        )
        return cls(subject, d, e)

    def with_constants(self) -> "Line":
        """The same, where no grad_out depends on anything."""
        return replace(self, e=(None,) * len(self.e))

    def by_input_only(self, place: int) -> "Line":
        """The same, where only the input at this place moves."""
        d = tuple(d if i == place else torch.zeros_like(d) for i, d in enumerate(self.d))
        return replace(self, d=d)

    def asking(self, vjp: Vjp) -> "Line":
        """The same, where the gradients are computed by another `vjp`."""
        return replace(self, subject=replace(self.subject, vjp=vjp))

    def x(self, h: float = 0.0) -> list[Tensor]:
        return [
            (x + h * d).detach().requires_grad_()
            for x, d in zip(self.subject.x, self.d, strict=True)
        ]

    def u(self, k: float = 0.0) -> list[Tensor | None]:
        return self.grad_outs(lambda u, e: u + k * e)

    def grad_outs(self, made: Callable[[Tensor, Tensor], Tensor]) -> list[Tensor | None]:
        """The grad_outs, in memory of their own; those that may move are `made` of u and e."""
        pairs = zip(self.subject.u, self.e, strict=True)
        own = [(u if u is None else u.clone(), e) for u, e in pairs]
        return [u if u is None or e is None else made(u, e) for u, e in own]

    @property
    def moving(self) -> bool:
        """Whether grad_out depends on something."""
        return any(e is not None for e in self.e)

    def given(self, outs: Sequence) -> list[Tensor]:
        """Those of the outputs that are given a grad_out."""
        pairs = zip(outs, self.subject.u, strict=True)
        return [y for y, u in pairs if u is not None and isinstance(y, Tensor)]

    def gradients(self, h: float = 0.0, k: float = 0.0) -> Tensor:
        """G, flat, without a graph. Raises what the callable or its backward raises."""
        x = self.x(h)
        with torch.no_grad():
            return flat(self.subject.backward(x, self.u(k)))

    def both(self, h: float = 0.0) -> tuple[list[Tensor], list[Tensor]]:
        """The outputs and G from one call, without a graph."""
        found: list[Tensor] = []

        def noting(x):
            outs = self.subject.function(x)
            found[:] = [y.detach() for y in self.given(outs)]
            return outs

        x = self.x(h)
        with torch.no_grad():
            grads = self.subject.backward(x, self.u(), noting)
        return found, [g.detach() for g in grads]


@dataclass(frozen=True, eq=False)
class Expected:
    """How y and G change along the line, by differences, and where that is known."""

    line: Line
    y: Slope
    by_input: Slope  # of G, flat
    by_grad_out: Slope
    g: Tensor  # G itself, flat
    values: Tensor  # the outputs that are given a grad_out, flat
    sizes: tuple[int, ...]  # how many real numbers of G belong to each gradient
    weights: Tensor  # v: 0 where the change of G is not known
    known: float  # the share of elements whose change is known
    dtype: torch.dtype  # the precision in which the callable computes
    rtol: float
    atol: float
    rounding: Tensor | None = None  # what rounding leaves in values and G, if that was measured
    linear: bool = True  # whether G is linear in u; if not, as when clipped, `tied` is not asked
    again: Callable[[], "Expected"] | None = None  # takes differences; None: these are differences
    lost: str = ""  # why tangents could not be followed, or DISAGREE

    @property
    def exact(self) -> bool:
        """Whether `by_input` is known by tangents."""
        return self.again is not None

    @property
    def is_untracked(self) -> bool:
        """Whether differences speak because tangents end in the code, and not because the two
        disagree, as they do where little but rounding is left."""
        return self.lost not in ("", DISAGREE)

    def by_differences(self) -> "Expected":
        """The same by differences alone, with the elements whose change both know."""
        if self.again is None:
            return self
        found = self.again()
        rtol = max(self.rtol, RTOL[found.dtype])
        weights = torch.where(found.is_known, self.weights, 0.0)
        return replace(found, line=self.line, rtol=rtol, atol=self.atol, weights=weights)

    @property
    def has_cancelled(self) -> bool:
        """Whether some element does not change by differences, but does by tangents."""
        change = self.by_input
        return bool((self.g.isfinite() & (change.value == 0) & change.error.isinf()).any())

    @property
    def is_known(self) -> Tensor:
        """Mask of the elements of G whose change is known; a 0 that stays 0 is among them."""
        change = self.by_input
        still = (self.g == 0) & (change.value == 0) & change.error.isfinite()
        return (self.weights != 0) | still

    @property
    def tells(self) -> bool:
        """Whether G changes so much that a lost path would show."""
        change = self.by_input
        return bool((change.value.abs() - 5 * change.error > TELLS * self.g.abs()).any())

    def followed_again(self) -> Tensor:
        """The change of G by tangents, once more. Raises `Lost`."""
        return _followed(self.line).of_g

    def answers(self) -> Tensor:
        """What autograd says: a 0, and then a number for each probe."""
        found = ask(self.line.with_constants(), self.probes.values())
        if found.error is not None:
            raise found.error
        return torch.stack([torch.zeros(()).double(), *(t.sum() for t in found.by_input)])

    def with_rounding(self, of_change: Tensor, of_answers: Tensor) -> "Expected":
        """The same, with what rounding leaves in the change of G and in autograd's answers."""
        change = self.by_input
        error = torch.maximum(change.error, ROUNDED * of_change)
        unsure = self.atol + SCATTER * of_answers.max().item()
        return replace(self, by_input=change._replace(error=error), atol=unsure)

    @property
    def tie(self) -> Tensor:
        """A vector whose product with the change of y is 1, or 0 where y does not change."""
        change = torch.where(self.y.error.isfinite(), self.y.value, torch.zeros_like(self.y.value))
        return change / change.square().sum().clamp(min=TINIEST)

    def with_constants(self) -> "Expected":
        """The same, where no grad_out depends on anything, nor has a graph."""
        return replace(self, line=self.line.with_constants())

    def by_both(self, rate: float) -> Slope:
        """The change of G where grad_out moves with x, at this rate."""
        a, b = self.by_input, self.by_grad_out
        return Slope(a.value + rate * b.value, a.error + abs(rate) * b.error, a.likely)

    @cached_property
    def probes(self) -> dict[int, Tensor]:
        """For each gradient whose change is known, by its place: v, 0 in all other gradients."""
        found = {}
        for place, own in enumerate(self.weights.split(self.sizes)):
            if own.any():
                before, after = sum(self.sizes[:place]), sum(self.sizes[place + 1 :])
                found[place] = torch.nn.functional.pad(own, (before, after))
        return found


def measure(
    line: Line,
    rtol: float | None = None,
    atol: float = ATOL,
    dtype: torch.dtype | None = None,
    rounding: Tensor | None = None,
) -> Expected:
    """Find how y and G change along the line, by tangents or by differences.

    Raises what the callable or its backward raises at the point.

    Args:
        dtype: the precision in which the callable computes, float64, float32, or bfloat16 for 16
            bits; None: that of its tensors, or float32 where its numbers are.
        rounding: what rounding leaves in the outputs and G, flat, where that is more than the last
            digits.
    """
    with tangents.looked_at() as seen:
        outs, grads = line.both()
    here, n = flat([*outs, *grads]), len(flat(outs))
    lost = seen.reason
    if rounding is None and dtype is not torch.bfloat16 and not lost:
        try:
            return _by_tangents(line, rtol, atol, dtype, here, n, grads)
        except tangents.Lost as reason:
            lost = str(reason)
    return _by_differences(line, rtol, atol, dtype, rounding, here, n, grads, lost)


def measure_values(line: Line, like: Expected) -> Expected:
    """What `first` needs: G, and how y changes along the line, by differences; nothing of how G
    changes. It computes in the same precision as `like`.

    Raises what the callable or its backward raises at the point.
    """
    outs, grads = line.both()
    values = flat(outs)
    sizes = _sizes(values)
    noise = None if like.rounding is None else like.rounding[: len(values)] / sizes
    found = slope(
        lambda h: (_values_or_nan(line, h, values) if h else values) / sizes, like.dtype, 1.0, noise
    )
    y = Slope(*(part * sizes for part in found))
    return replace(like, line=line, y=y, g=flat(grads), values=values, rtol=RTOL[like.dtype])


def _followed(line):
    return tangents.changes(line.subject, line.x(), line.u(), line.d, line.given)


def _by_tangents(line, rtol, atol, dtype, here, n, grads):
    """`Expected` with the change of G by tangents, if one difference agrees roughly; else by
    differences. Raises `Lost`."""
    found = _followed(line)
    values, g = here[:n], here[n:]
    if not tangents.agree(found, values, g):
        raise tangents.Lost("another result with tangents")
    at = cache(lambda h: _or_nan(line, h, here))
    beside = at(BESIDE)
    dtype = dtype or _precision(line, beside[beside != here])
    change, g = _without_what_is_left_of_zero(line, found.of_g, g, dtype)
    here = torch.cat([values, g])
    by_differences = cache(lambda: _by_differences(line, rtol, atol, dtype, None, here, n, grads))
    if not _is_confirmed(change, g, lambda h: at(h)[n:], dtype, by_differences):
        return _doubting(by_differences(), change)
    sizes, coarse = _sizes(values), STEPS[dtype][0][0]
    known_at = {0.0: values} | {h: at(h)[:n] for h in (coarse, -coarse)}
    y = slope(
        lambda h: (known_at[h] if h in known_at else _values_or_nan(line, h, values)) / sizes,
        dtype,
        1.0,
    )
    by_input = _exact(change, dtype)
    by_grad_out, linear = _by_grad_out(line, g, dtype)
    places = tuple(real(grad).numel() for grad in grads)
    weights, share = _weights(g, by_input, by_grad_out, places, dtype)
    return Expected(
        line,
        Slope(*(part * sizes for part in y)),
        by_input,
        by_grad_out,
        g,
        values,
        places,
        weights,
        share,
        dtype,
        rtol or _least(y, dtype),
        atol,
        None,
        linear,
        by_differences,
    )


def _without_what_is_left_of_zero(line, change, g, dtype):
    """A change and G, with 0 for the elements of G that are what rounding leaves of it, as in the
    gradient of a bias that a norm takes away again: they are small beside the largest, and most are
    others a few last digits away. Weighed by their size, they would count as much as all else."""
    size = torch.maximum(g.abs(), change.abs()).nan_to_num(0.0, 0.0, 0.0)
    largest = size.max() if len(size) else 0.0
    least = (size > 0) & (size <= LEFT_OF_ZERO[dtype] * largest)
    if not least.any():
        return change, g
    near = [one.g for _, one in _nearby_changes(line, dtype)]
    moved = [(there - g).abs()[least] > COUNTS * g.abs()[least] for there in near]
    if not moved or torch.stack(moved).any(0).double().mean() < SHARE:
        return change, g
    return change.masked_fill(least, 0.0), g.masked_fill(least, 0.0)


def _exact(change, dtype):
    """A change by tangents, which rounding alone makes inexact."""
    error = 64 * torch.finfo(dtype).eps * change.abs()
    return Slope(change, error, error)


def _doubting(expected, followed):
    """What differences say, where the change of an element is not known if it is 0 by differences
    and not by tangents: an element that has cancelled to its last digits, such as 1 - sigmoid(36),
    stands still, too."""
    change = expected.by_input
    doubted = (change.value == 0) & (followed != 0) & followed.isfinite()
    by_input = change._replace(error=torch.where(doubted, torch.inf, change.error))
    g, by_grad_out = expected.g, expected.by_grad_out
    weights, known = _weights(g, by_input, by_grad_out, expected.sizes, expected.dtype)
    return replace(expected, by_input=by_input, weights=weights, known=known, lost=DISAGREE)


def _least(y, dtype):
    """The tolerance beside tangents. It is larger where the outputs are noisy, as those of an
    iteration are, whose tangents converge otherwise than its values."""
    if dtype is torch.float32:
        return FOLLOWED[dtype]
    noise = 10 * y.error.norm() / y.value.norm().clamp(min=TINIEST)
    return min(RTOL[dtype], max(FOLLOWED[dtype], noise.nan_to_num(1.0).item()))


def _is_confirmed(change, g, at, dtype, by_differences):
    """Whether one central difference is near the change by tangents, and its two sides are near
    each other; or two, in which a bend shows as one. They are not at a kink or a jump, nor where a
    tangent was lost without an error, as in a bisection. Where they are near, but not to RTOL, all
    differences decide."""
    own, beside = ROUGHLY
    near = torch.zeros_like(g, dtype=torch.bool)
    for there, kink, h in _central_differences(g, at, dtype):
        off, sizes = (there - change).abs(), change.abs() + there.abs()
        rounded = 64 * torch.finfo(dtype).eps * (g.abs() + g.abs().mean()) / h
        allowed = own * sizes + beside * sizes.nanmean() + rounded
        near |= (off <= allowed) & (kink.abs() <= allowed) | ~g.isfinite()
        if near.all():
            break
    else:
        return False
    nearer = (off <= RTOL[dtype] * sizes + rounded) | ~g.isfinite()
    if nearer.all():
        return True
    closer = by_differences().by_input
    off = (closer.value - change).abs()
    nearer |= ~(off > 5 * closer.error + RTOL[dtype] * sizes + rounded)
    return bool(nearer.all())


def _central_differences(g, at, dtype):
    """The first pair of `STEPS`: by the coarse step alone, then by Richardson's extrapolation from
    both. With each come what its two sides differ by, and its smallest step."""
    coarse, fine = STEPS[dtype][0]
    by_coarse, bend = (at(coarse) - at(-coarse)) / (2 * coarse), at(coarse) + at(-coarse) - 2 * g
    yield by_coarse, bend / coarse, coarse
    ratio = coarse / fine
    by_fine, less = (at(fine) - at(-fine)) / (2 * fine), at(fine) + at(-fine) - 2 * g
    there = by_fine + (by_fine - by_coarse) / (ratio**2 - 1)
    yield there, (ratio * less / fine - bend / coarse) / (ratio - 1), fine


def _values_or_nan(line, h, like):
    try:
        with line.subject.around():
            return flat(line.given(line.subject.function(line.x(h))))
    except Exception as error:  # raised by the callable, outside its domain
        raise_if_own(error)
        return torch.full_like(like, torch.nan)


def _by_differences(line, rtol, atol, dtype, rounding, here, n, grads, lost=""):
    beside = _or_nan(line, BESIDE, here)
    dtype = dtype or _precision(line, beside[beside != here])
    sizes = torch.cat([_sizes(here[:n]), _sizes(here[n:])])  # small elements count as much
    known_at = {0.0: here / sizes, BESIDE: beside / sizes}
    stairs = torch.full_like(here, _stair(line, here[:n], dtype))  # in float32 it may overflow
    stairs[:n] = 0.0
    found = slope(
        lambda h: known_at[h] if h in known_at else _or_nan(line, h, here) / sizes,
        dtype,
        1.0,
        None if rounding is None else rounding / sizes,
        stairs / sizes,
    )
    found = Slope(*(part * sizes for part in found))
    y, by_input = (Slope(*(part[s] for part in found)) for s in (slice(n), slice(n, None)))
    g = here[n:]
    by_grad_out, linear = _by_grad_out(line, g, dtype)
    if rounding is not None:
        lost_digits = torch.maximum(by_grad_out.error, rounding[n:])
        by_grad_out = by_grad_out._replace(error=lost_digits)
    places = tuple(real(grad).numel() for grad in grads)
    weights, share = _weights(g, by_input, by_grad_out, places, dtype)
    return Expected(
        line,
        y,
        by_input,
        by_grad_out,
        g,
        here[:n],
        places,
        weights,
        share,
        dtype,
        rtol or RTOL[dtype],
        atol,
        rounding,
        linear,
        lost=lost,
    )


def _stair(line, values, dtype):
    """A few last digits of the largest number that G may be a sum or a difference of."""
    if dtype not in STEPS:
        return 0.0
    x, u = (flat([t for t in given if t is not None]) for given in (line.subject.x, line.subject.u))
    largest = [t[t.isfinite()].abs().max().item() for t in (values, x, u) if t.isfinite().any()]
    return STAIR * torch.finfo(dtype).eps * math.prod(max(1.0, size) for size in largest)


def _precision(line, numbers):
    """float32 where a tensor is, or where all numbers fit into float32 and are not multiples of
    1/1024, as the steps of a staircase are; else float64."""
    tensors = [*line.subject.x, *line.subject.u]
    single = any(t is not None and t.dtype in (torch.float32, torch.complex64) for t in tensors)
    steps = numbers * 1024
    narrow = torch.equal(numbers.float().double(), numbers) and bool((steps != steps.round()).any())
    return torch.float32 if single or narrow else torch.float64


def _weights(g, by_input, by_grad_out, sizes, dtype):
    """v, inversely proportional to the size of each element, 0 where its change is not known; and
    the share of the elements whose change is known."""
    size = torch.maximum(g.abs(), by_input.value.abs())
    by_itself = by_input.error <= KNOWN[dtype] * size  # else only beside the others
    told = size[by_input.error <= size]  # where at least the size is known
    least = SMALLEST * (told.mean() if len(told) else size.new_zeros(()))
    known = by_itself | (by_input.error <= KNOWN[dtype] * least)
    known &= (size > 0) & g.isfinite()
    counts = torch.where(by_itself, size, torch.maximum(size, least)).clamp(min=TINIEST)
    still = (g == 0) & (by_input.value == 0) & by_input.error.isfinite()
    finite = g.isfinite()
    share = (known | still)[finite].double().mean().item() if finite.any() else float(not len(g))
    v = torch.where(known, 1 / counts, torch.zeros_like(g))
    changes = [_weighed(v, change.value) for change in (by_input, by_grad_out)]
    parts = (_telling(list(part)) for part in zip(*(c.split(sizes) for c in changes), strict=True))
    return v * torch.cat([*parts, g.new_zeros(0)]), share


def _draws(n):
    generator = torch.Generator().manual_seed(3)
    like = torch.zeros(n, dtype=torch.float64)
    return (signed(like, generator) for _ in range(SIGN_DRAWS))


@lru_cache(maxsize=64)
def _kept_draws(n):
    return list(_draws(n))


def _telling(changes):
    """Numbers of either sign, such that the sum of each of these changes, multiplied by them, hides
    little."""
    most = -1.0
    n = len(changes[0])
    for draw in _kept_draws(n) if n <= FEW_ELEMENTS else _draws(n):
        sums = [((draw * c).sum() / (draw * c).norm()).abs() for c in changes if c.any()]
        told = min((s.nan_to_num(0.0).item() for s in sums), default=1.0)
        if told > most:
            best, most = draw, told
        if most >= 0.99 * n**0.5:
            break
    return best


def _sizes(here):
    """The size of each element; for one that is 0 or not finite, the mean size."""
    sizes = here.abs().nan_to_num(0.0, 0.0, 0.0)
    typical = sizes.mean() if sizes.any() else torch.ones(())
    return torch.where(sizes > 0, sizes, typical).double()


def _or_nan(line, h, like):
    with unless_gone():  # raised by the callable, outside its domain
        outs, grads = line.both(h)
        return flat([*outs, *grads])
    return torch.full_like(like, torch.nan)


def _by_grad_out(line, g, dtype):
    """The change of G along e alone, and whether G is linear in it: then any step will do."""
    none = torch.zeros_like(g)
    if not line.moving:
        return Slope(none, none, none), True
    up, down = line.gradients(k=1.0), line.gradients(k=-1.0)
    if ((up + down - 2 * g).abs() > RTOL[dtype] * (up.abs() + down.abs())).any():
        return slope(lambda k: line.gradients(k=k), dtype, 1.0), False
    digits = 2 if dtype is torch.bfloat16 else 16
    error = digits * torch.finfo(dtype).eps * (up.abs() + down.abs())
    return Slope((up - down) / 2, error, error), True


def without_rounding(expected: Expected) -> Expected:
    """The same, without the elements of G that are mostly rounding, as 1 - tanh(20)**2 is."""
    line, g = expected.line, expected.g
    if expected.dtype not in ROUNDING:
        return expected
    tiny, limit = ROUNDING[expected.dtype]
    jitter, stands = torch.zeros_like(g), torch.ones_like(g, dtype=torch.bool)
    for h in (tiny, 2 * tiny, 3 * tiny):
        up, down = line.gradients(h), line.gradients(-h)
        jitter = torch.maximum(jitter, (up + down - 2 * g).abs())
        stands &= (up == g) & (down == g)
        moved = (up - g).abs(), (down - g).abs()
        if ((torch.minimum(*moved) > 0) & (torch.maximum(*moved) <= limit * g.abs())).all():
            return expected  # all change a little, and none in steps
    solid = jitter <= limit * g.abs()
    with unless_gone():  # raised by the callable, so far away
        solid &= ~(stands & (line.gradients(1.0) != g))  # these move in steps of the last digit
    return replace(expected, weights=expected.weights * solid)


@dataclass(frozen=True, eq=False)
class Answer:
    """What autograd says, at one call.

    Attributes:
        g: G as it is recorded, flat.
        by_input: for each probe, the terms of <vjp by x, d>.
        by_grad_out: for each probe, the terms of <vjp by u, e>.
        rate: how far grad_out moves along e for a step along d, where it is made from the outputs.
        error: what autograd raised instead, else None.
    """

    g: Tensor | None = None
    by_input: tuple[Tensor, ...] = ()
    by_grad_out: tuple[Tensor, ...] = ()
    rate: float = 0.0
    error: Exception | None = None


def ask(line: Line, probes: Collection[Tensor], tie: Tensor | None = None) -> Answer:
    """Autograd's answer to each probe: a vector v like G, flat.

    One graph serves all probes. Where that raises, each has a graph of its own, since some graphs
    survive only one backward.

    Args:
        tie: a flat vector like the outputs; with it, grad_out moves along e as <tie, y> changes.
    """
    together = _ask(line, probes, tie)
    if together.error is None or (len(probes) < 2 and tie is None):
        return together
    each = [_ask(line, [v], tie, rated=False) for v in probes]
    rate = _ask(line, [], tie) if tie is not None else Answer()
    if not each or any(one.error for one in [*each, rate]):
        return together
    by_input, by_grad_out = (
        sum(sides, ())
        for sides in zip(*((one.by_input, one.by_grad_out) for one in each), strict=True)
    )
    return Answer(each[0].g, by_input, by_grad_out, rate.rate)


def _ask(line, probes, tie, rated=True):
    h: list[Tensor] = []

    def tied(outs):
        h.append(_product(tie, line.given(outs)))
        # What stands still has no path to h: a NaN on such a path would make all of h's NaN.
        return line.grad_outs(lambda u, e: torch.where(e == 0, u, u + (h[0] * e).to(u.dtype)))

    try:
        # One block holds all: what forward leaves outside of ctx is there until the end.
        with torch.enable_grad(), line.subject.around():
            x, u = line.x(), line.grad_outs(lambda u, _: u.detach().clone().requires_grad_())
            grads = line.subject.backward_inside(x, u if tie is None else tied)
            # Nothing is differentiated by what does not move: autograd may refuse just that.
            steps = [(t, d) for t, d in zip(x, line.d, strict=True) if d.any()]
            count = len(steps)
            if tie is None:
                steps += [
                    (w, e)
                    for w, e in zip(u, line.e, strict=True)
                    if w is not None and e is not None
                ]
            vjps = [_vjp_terms(grads, v, steps, count) for v in probes]
            rate = sum(t.sum().item() for t in _terms(h[0], steps)) if h and rated else 0.0
    except Exception as error:  # raised by the callable, its backward, or autograd
        raise_if_own(error)
        return Answer(error=error)
    by_input, by_grad_out = (tuple(side) for side in zip(*vjps, strict=True)) if vjps else ((), ())
    return Answer(flat(grads), by_input, by_grad_out, rate)


def _product(v, tensors):
    """<v, tensors - their values here> for a flat vector v: 0, with the graph of <v, tensors>."""
    found = torch.zeros((), dtype=torch.float64)
    parts = v.split([real(t).numel() for t in tensors])
    for t, w in zip(map(real, tensors), parts, strict=True):
        if w.any():
            change = (t - t.detach()).nan_to_num(0.0)  # of a mask, -inf
            found = found + (change * w.view(t.shape).to(t)).double().sum()
    return found


def _vjp_terms(grads, v, steps, count):
    top = v.abs().max().clamp(min=TINIEST)  # so that float32 can hold a large v
    if top > OF_FLOAT32:  # divided, the smallest of a v whose largest is 1e259 would be 0
        top = torch.ones(())
    terms = [top * t for t in _terms(_product(v / top, grads), steps)]
    empty = [torch.zeros(0, dtype=torch.float64)]
    return torch.cat(terms[:count] + empty), torch.cat(terms[count:] + empty)


def _terms(scalar, steps):
    """The derivative of a number along each of the steps, element by element."""
    found: Sequence[Tensor | None] = [None] * len(steps)
    if scalar.requires_grad:
        wanted = [x for x, _ in steps]
        found = torch.autograd.grad(scalar, wanted, retain_graph=True, allow_unused=True)
    return [
        torch.where(step == 0, 0.0, step * (0.0 if w is None else flat([w])))
        for w, step in zip(found, (flat([step]) for _, step in steps), strict=True)
    ]


def check(expected: Expected, vjp: Vjp | None = None) -> Checked:
    """Compare what autograd says of backward, or of another `vjp` in its place, with the truth.
    What is wrong by tangents has to be confirmed by differences."""
    found = _settled_check(expected, vjp)
    if found.bad or not (expected.exact or expected.is_untracked):
        return found
    for small in _of_small_changes(expected, vjp):
        found = _with_small_changes(found, small, vjp)
        if found.bad:
            break
    return found


def _of_small_changes(expected: Expected, vjp: Vjp | None) -> Iterator[Expected]:
    """The same along all inputs, and along each of several, with a v for the elements of G whose
    change is known and small beside that of the others, as where an element of an input is near 0,
    or where one input changes the gradient of another a little: such terms are lost in the sum with
    the other ones. Nothing along a line that has no such elements."""
    sizes, digit = expected.g.abs().nan_to_num(0.0, 0.0, 0.0), torch.finfo(expected.dtype).eps
    largest = sizes.max().item() if len(sizes) else 0.0
    least = (digit**DEPTH * sizes).clamp(min=LAST * digit * largest)
    for along in chain([expected], _along_each(expected, vjp)):
        change, v = along.by_input.value, torch.zeros_like(expected.g)
        for probe in expected.probes.values():
            most = COUNTS * _weighed(probe, expected.by_input.value).abs().max()
            small = _weighed(probe, change).abs() < most
            lost = (probe != 0) & small & (change.abs() > least)
            v[lost] = _telling([change[lost]]) / change[lost].abs()
        if v.any():
            yield replace(along, weights=v).with_constants()


def _along_each(expected: Expected, vjp: Vjp | None) -> Iterator[Expected]:
    """The same where only one of several inputs moves, unless tangents are lost there; without
    those by which autograd says that all gradients change a lot, since a lost path would show."""
    for place in _small_beside_others(expected, vjp):
        line = expected.line.by_input_only(place).with_constants()
        if not expected.exact:
            yield _differences_along(line, expected)
            continue
        with suppress(tangents.Lost):
            change = _exact(_followed(line).of_g, expected.dtype)
            again = partial(_differences_along, line, expected)
            yield replace(expected, line=line, by_input=change, again=again)


def _small_beside_others(expected, vjp):
    """The places of the inputs, if several move, by which some gradient changes little, beside its
    whole change, if autograd is right."""
    line = expected.line if vjp is None else expected.line.asking(vjp)
    sizes = {place: real(d).numel() for place, d in enumerate(line.d) if d.any()}
    if len(sizes) < 2:
        return []
    probes = expected.probes.values()
    answer = ask(line.with_constants(), probes)
    if answer.error:
        return list(sizes)
    found = set()
    for v, terms in zip(probes, answer.by_input, strict=True):
        most = COUNTS * _weighed(v, expected.by_input.value).abs().max()
        parts = zip(sizes, terms.split(list(sizes.values())), strict=True)
        found |= {place for place, part in parts if part.abs().max() < most}
    return sorted(found)


def _differences_along(line, expected):
    outs, grads = line.both()
    here, n, given = flat([*outs, *grads]), len(flat(outs)), (expected.rtol, expected.atol)
    return _by_differences(line, *given, expected.dtype, None, here, n, grads)


def _with_small_changes(found: Checked, small: Expected, vjp: Vjp | None) -> Checked:
    """`found`, or what is wrong of small changes, if differences say so, and tangents where there
    are any; unclear, if tangents do and differences know none of them."""
    by_tangents = _checked(small, vjp)
    if by_tangents.by_input.outcome is not Outcome.WRONG:
        return found
    by_differences = small.by_differences()
    change = by_differences.by_input
    roughly = ROUGHLY[0] if small.exact else KNOWN[small.dtype]
    known = change.error <= roughly * change.value.abs()
    weights = torch.where(known, by_differences.weights, 0.0)
    again = partial(_by_input, vjp=vjp)
    if small.exact and not weights.any():
        unknown = Compared(Outcome.UNCLEAR)
        settled = _confirmed(small, by_tangents.by_input, unknown, again)
        is_wrong = settled.outcome is Outcome.WRONG
        return replace(found, by_input=_unclear(settled, unknown)) if is_wrong else found
    small, by_differences = (replace(one, weights=weights) for one in (small, by_differences))
    followed, other = _checked(small, vjp), again(by_differences)
    if small.exact and other.off > RTOL[by_differences.dtype]:
        other = replace(other, outcome=Outcome.WRONG)  # small beside G, but not beside its error
    if followed.by_input.outcome is not Outcome.WRONG or other.outcome is not Outcome.WRONG:
        return found
    settled = _confirmed(small, followed.by_input, other, again)
    is_wrong = settled.outcome is Outcome.WRONG
    return replace(found, by_input=settled, wrong=followed.wrong) if is_wrong else found


def _by_input(expected, vjp):
    return _checked(expected, vjp).by_input


def _settled_check(expected, vjp):
    """`check` of all elements together, in which the larger changes speak."""
    found = _checked(expected, vjp)
    bad = [part for part in FOLLOWING if getattr(found, part).outcome is Outcome.WRONG]
    if expected.exact and found.unresolved and found.by_input.outcome is Outcome.RIGHT:
        other = _checked(expected.by_differences(), vjp)  # it is too small beside G to be seen
        return replace(found, by_input=_unclear(found.by_input, other.by_input))
    if not (expected.exact and bad):
        return found
    by_differences = expected.by_differences()
    other = _checked(by_differences, vjp)
    if not torch.equal(by_differences.weights, expected.weights):
        there = _checked(replace(expected, weights=by_differences.weights), vjp)
        pairs = {
            part: _of_the_same(*(getattr(c, part) for c in (found, there, other))) for part in bad
        }
        found, other = (
            replace(c, **{p: pair[i] for p, pair in pairs.items()})
            for i, c in enumerate((found, other))
        )
    clear = all(_is_clear(getattr(found, part), getattr(other, part)) for part in bad)
    near = [] if clear else [_checked(one, vjp) for one in _nearby(expected)]
    settled = {
        part: _settled(*(getattr(one, part) for one in (found, other, *near))) for part in bad
    }
    if any(one.outcome is Outcome.WRONG for one in settled.values()):
        return replace(found, **settled)
    return replace(other, **settled)


def _of_the_same(everywhere, there, other):
    """What is wrong by tangents, and what differences say, both about the elements whose change
    differences know. If nothing is wrong in these (`there`), differences do not tell."""
    if there.outcome is Outcome.WRONG:
        return there, other
    return everywhere, Compared(Outcome.UNCLEAR)


def _is_clear(followed, other):
    """Whether what is wrong by tangents is so by differences, by more than rounding ever is."""
    return other.outcome is Outcome.WRONG and followed.off > ROUGH


def _confirmed(expected, followed, other, again):
    """`_settled`, where `again` asks nearby what is not clear here."""
    clear = _is_clear(followed, other) or not expected.exact
    near = [] if clear else map(again, _nearby(expected))
    return _settled(followed, other, *near)


def _nearby(expected):
    """The same at two points a few last digits away, where rounding differs."""
    for there, found in _nearby_changes(expected.line, expected.dtype):
        by_input = expected.by_input._replace(value=found.of_g)
        yield replace(expected, line=there, by_input=by_input, g=found.g)


def _nearby_changes(line, dtype):
    """Lines through two points a few last digits away, and how y and G change along them; one along
    which tangents are lost is left out."""
    for h in (ROUNDING[dtype][0], -ROUNDING[dtype][0]):
        there = replace(line, subject=line.subject.at([x.detach() for x in line.x(h)]))
        with suppress(tangents.Lost):
            yield there, _followed(there)


def _settled(followed: Compared, other: Compared, *near: Compared) -> Compared:
    """The outcome of what is wrong by tangents (`followed`), given what differences say (`other`)
    and what tangents say a few digits away (`near`): what comes and goes there is rounding."""
    off = [one.got - one.expected for one in (followed, *near)]
    stays = all(one.outcome is Outcome.WRONG for one in near)
    stays &= min(off) * max(off) > 0 and 3 * min(map(abs, off)) > max(map(abs, off))
    apart = abs(followed.expected - other.expected)
    if other.outcome is Outcome.WRONG:
        if 2 * apart > max(abs(off[0]), abs(other.got - other.expected)):
            return _unclear(followed, other)
        allowed = max(followed.allowed, *map(abs, off))
        return followed if stays else replace(followed, outcome=Outcome.RIGHT, allowed=allowed)
    if other.outcome is Outcome.RIGHT:
        if apart > 2 * other.allowed:
            if other.expected:
                return other
            return _unclear(followed, other)
        return followed if stays and near else other
    if other.outcome is Outcome.UNCLEAR:
        return followed if stays and near else other
    return other


def _unclear(followed, other):
    """What tangents and differences say, and autograd: the two disagree about the truth, or it is
    lost beside the first derivative, or differences know nothing of it."""
    truths, got = (followed.expected, other.expected), f"{followed.got:.4g}"
    one, two = (f"{number:.4g}" for number in truths)
    if other.outcome is Outcome.UNCLEAR:
        text = Phrase("differences know nothing of it; tangents give {}, autograd {}", one, got)
    elif abs(truths[0] - truths[1]) > COUNTS * max(map(abs, truths)):
        said = "tangents give {}, differences {}, which disagree; autograd {}"
        text = Phrase(said, one, two, got)
    else:
        said = "too small to judge: tangents give {}, differences {}, autograd {}"
        text = Phrase(said, one, two, got)
    return replace(followed, outcome=Outcome.UNCLEAR, text=text)


def in_doubt(expected: Expected, found: Checked) -> Checked:
    """What tangents find wrong, where little but rounding is left of it: with both numbers."""
    other = _checked(expected.by_differences(), None).by_input
    return replace(found, by_input=_unclear(found.by_input, other))


def _checked(expected, vjp):
    line = expected.line if vjp is None else expected.line.asking(vjp)
    probes = expected.probes
    answer, tied = ask(line, probes.values()), None
    if error := answer.error:
        return Checked(by_input=Compared(Outcome.RAISES, text=first_line(error)), error=error)
    change = expected.by_input
    by_input = _rows(expected, change, answer.by_input)
    by_grad_out = _rows(expected, expected.by_grad_out, answer.by_grad_out) if line.moving else {}
    finite = all(row.outcome is not Outcome.NOT_FINITE for row in by_grad_out.values())
    if line.moving and expected.linear and expected.tie.any() and finite:
        tied = ask(line, probes.values(), expected.tie)
    together: dict[int, Compared] = {}
    if tied and tied.error:
        together = {0: Compared(Outcome.RAISES, text=first_line(tied.error))}
    elif tied:
        together = _rows(expected, expected.by_both(tied.rate), tied.by_input)
        if _worst(together).outcome is Outcome.WRONG and not _worst(by_input).bad:
            together = _where_it_follows_more(expected, line) or together
        if _worst(together).bad and not _is_homogeneous(expected):
            together = {}  # a term that is added comes once for each part of a gradient
    rows = [*by_input.items(), *by_grad_out.items(), *together.items()]
    return Checked(
        _worst(by_input) if probes else Compared(Outcome.UNCLEAR),
        _worst(by_grad_out),
        _worst(together),
        _same(expected.g, answer.g, max(expected.rtol, RTOL[expected.dtype])),
        wrong=tuple(sorted({place for place, row in rows if row.bad})),
        unresolved=bool((change.value.abs() > 5 * change.error).any())
        and not any(t.any() for t in answer.by_input),
        error=tied.error if tied else None,
    )


def _where_it_follows_more(expected, line):
    """The rows of `tied`, where grad_out follows the outputs `FOLLOWS_MORE` times as much. A path
    that counts twice does so then, too, and what autograd rounds as it adds up, as in
    log(sum(exp(x))) at 1e20, is small beside it. {} where a number is not finite."""
    tie = FOLLOWS_MORE[expected.dtype] * expected.tie
    tied = ask(line, expected.probes.values(), tie)
    if tied.error:
        return {}
    rows = _rows(expected, expected.by_both(tied.rate), tied.by_input)
    return rows if all(math.isfinite(row.expected + row.got) for row in rows.values()) else {}


def _is_homogeneous(expected):
    """Whether G doubles with the grad_outs, which it does not if backward adds a constant."""
    line = expected.line
    u = tuple(None if u is None else 2 * u for u in line.subject.u)
    twice = replace(line, subject=replace(line.subject, u=u)).gradients()
    rtol = max(expected.rtol, RTOL[expected.dtype])
    return not apart(twice, 2 * expected.g, rtol).any()


def symmetric(expected: Expected) -> Compared:
    """`_symmetric`, where what is wrong by tangents has to be confirmed by differences."""
    v = _even_terms(expected)
    found = _symmetric(expected, v)
    if not expected.exact or found.outcome is not Outcome.WRONG:
        return found
    by_differences = expected.by_differences()
    same = torch.where(by_differences.is_known, v, 0.0)
    other = _symmetric(by_differences, same)
    if not torch.equal(same, v):
        found, other = _of_the_same(found, _symmetric(expected, same), other)
    return _confirmed(expected, found, other, lambda one: _symmetric(one, v))


def _even_terms(expected):
    """d with signs such that the sum of its product with the change of G hides little, in a unit in
    which G is about 1."""
    d, change = flat(expected.line.d), expected.by_input.value
    sizes = torch.maximum(expected.g.abs(), change.abs()).nan_to_num(0.0, 0.0, 0.0)
    return _telling([d * change]) * d / (d.abs() * sizes).mean().clamp(min=TINIEST)


def _symmetric(expected, v):
    """Compare the gradient of <G, d>, as autograd has it, with the change of G along d. Where G is
    the first derivative near the point, too, the two are equal in each element, as the Hessian is
    symmetric. grad_out has no graph.
    """
    d, change = flat(expected.line.d), expected.by_input
    answer = ask(expected.line.with_constants(), [d])
    if answer.error is not None:
        return Compared(Outcome.RAISES, text=first_line(answer.error))
    return _compared(expected, change, v, torch.where(d == 0, 0.0, v / d) * answer.by_input[0])


def _rows(expected, change, answers):
    """One comparison for each probe, by the place of its gradient."""
    probes = expected.probes.items()
    return {p: _compared(expected, change, v, a) for (p, v), a in zip(probes, answers, strict=True)}


def by_place(expected: Expected) -> dict[int, Compared]:
    """For each gradient whose change is known: whether its derivative by the inputs is right."""
    found = {}
    for place, v in expected.probes.items():
        answer = ask(expected.line.with_constants(), [v])
        if answer.error is not None:
            found[place] = Compared(Outcome.RAISES, text=first_line(answer.error))
        else:
            found[place] = _compared(expected, expected.by_input, v, answer.by_input[0])
    return found


def _worst(rows):
    """The first row that is bad; else the row that would have missed the largest error."""
    bad = next((row for row in rows.values() if row.bad), None)
    return bad or max(rows.values(), key=attrgetter("resolution"), default=NOT_ASKED)


def _compared(expected, change, v, terms):
    right, error = _weighed(v, change.value), _weighed(v, change.error).norm()
    got = terms.sum()
    size = right.norm() + terms.norm()
    usual = min(expected.rtol, RTOL[expected.dtype]) * size
    asked = torch.maximum(usual, expected.rtol * right.sum().abs())  # all that a larger rtol allows
    digits = min(1e-8, 64 * torch.finfo(expected.dtype).eps) if expected.exact else 1e-8
    floor = digits * _weighed(v, expected.g).norm() + expected.atol
    allowed = asked + 5 * error + floor
    about = right.sum().item(), got.item(), error.item()
    if not got.isfinite():
        return Compared(Outcome.NOT_FINITE, *about)
    counting = right.abs()[right.abs() > COUNTS * right.abs().max()] if len(right) else right
    by_grad_out = change is expected.by_grad_out and expected.linear
    digits_of_0 = (10 if expected.exact or by_grad_out else 1) * error
    tells = right.norm() > 100 * floor + digits_of_0 and _tells(expected, change.value, v)
    least = counting.min().item() if tells else 0.0
    wrong = (right.sum() - got).abs() > allowed
    outcome = Outcome.WRONG if wrong else Outcome.RIGHT
    return Compared(outcome, *about, allowed=allowed.item(), least=least)


def _tells(expected, change, v):
    """Whether there is more to get wrong than what rounding leaves of 0."""
    sizes = torch.maximum(expected.g.abs(), change.abs())
    least = LEFT_OF_ZERO[expected.dtype] * sizes[sizes.isfinite()].max()
    return bool(sizes[v != 0].max() > least)


def _weighed(v, change):
    """v * change, and 0 where v is 0, even if the change is not finite there."""
    return torch.where(v == 0, 0.0, v * change)


def _same(expected, got, rtol):
    """Compare two vectors where `expected` is finite: the numbers are of the first element that
    differs."""
    off = apart(got, expected, rtol)
    if not off.any():
        return Compared(Outcome.RIGHT)
    i = int(off.nonzero()[0])
    return Compared(Outcome.WRONG, expected[i].item(), got[i].item())


def first(expected: Expected, rtol: float = 0.0) -> Compared:
    """Compare the change of <u, y> along d with <G, d>, which backward says that it is.

    Where the change of some outputs is not known, the others are compared, with their own G.
    """
    line, dy = expected.line, expected.y
    u, g = flat([u for u in line.subject.u if u is not None]), expected.g
    if not (g.isfinite().all() and dy.value.isfinite().all()):
        return Compared(Outcome.NOT_FINITE)
    found = _first(expected, u, g, rtol)
    change = (u * dy.value).abs()
    known = (u * dy.error).abs() <= KNOWN[expected.dtype] * (change + change.mean()) + UNCHANGED
    if found.outcome is Outcome.UNCLEAR and not known.all() and known.double().mean() >= SHARE:
        return _first(expected, u * known, _with_known(line, known), rtol)
    return found


def _first(expected, u, g, rtol):
    dy, d = expected.y, flat(expected.line.d)
    right, own = _weighed(u, dy.value), _weighed(d, g)
    error = (u * dy.error.clamp(max=1 / TINIEST)).norm()
    size = right.norm() + own.norm()
    about = right.sum().item(), own.sum().item(), error.item()
    least = 1e-2 * max(expected.rtol, RTOL[expected.dtype])
    nothing = UNCHANGED + least * _weighed(u, expected.values).norm()
    if not error.isfinite() or error > 0.1 * size + nothing:
        return Compared(Outcome.UNCLEAR, *about)
    rtol = rtol or max(expected.rtol, RTOL[expected.dtype])
    allowed = rtol * size + 5 * error + expected.atol
    off = (right.sum() - own.sum()).abs() > allowed
    return Compared(Outcome.WRONG if off else Outcome.RIGHT, *about, allowed=allowed.item())


def by_element(change: Slope, got: Tensor, rtol: float, beside: float) -> tuple[Outcome, Tensor]:
    """Compare a change of a vector that was found in another way (`got`) with the known one,
    element by element; return the outcome and a mask of the elements that are off.

    Args:
        beside: the usual size of what changes; its last digits are not compared.
    """
    size = change.value.abs()
    known = change.error <= COUNTS * (size + size.nanmean()) + UNCHANGED
    if known.double().mean() < SHARE:
        return Outcome.UNCLEAR, ~known
    relative, absolute = BY_OTHERS
    unsure = 5 * change.error + absolute * rtol * beside + NONE
    off = known & apart(got, change.value, relative * rtol, unsure)
    if not off.any():
        return Outcome.RIGHT, off
    broken = off & ~got.isfinite()
    return (Outcome.NOT_FINITE, broken) if broken.any() else (Outcome.WRONG, off)


def _with_known(line, known):
    """G, flat, for a grad_out that is 0 for the elements of outputs whose change is not known."""
    given = [w for w in line.subject.u if w is not None]
    parts = iter(known.split([real(w).numel() for w in given]))

    def masked(w):
        left = real(w) * next(parts).view(real(w).shape).to(w.device)
        return torch.view_as_complex(left) if w.is_complex() else left

    with torch.no_grad():
        own = [None if w is None else masked(w) for w in line.subject.u]
        return flat(line.subject.backward(line.x(), own))


def is_symmetric(x: Tensor) -> bool:
    """Whether x is a matrix, or a batch of them, that is symmetric (Hermitian) up to rounding, as
    products such as L A L^T are, so that it may have to stay so. A matrix whose elements are all
    equal is none: any fn may be tried with such."""
    square = x.layout == torch.strided and x.dim() > 1 and x.shape[-1] == x.shape[-2] > 1
    return square and _equals_its_transpose(x) and not bool((x == x[..., :1, :1]).all())


def _equals_its_transpose(x: Tensor) -> bool:
    rounding = HALVES * x.abs().amax((-2, -1), keepdim=True)
    return torch.equal(x, x.mH) or bool(((x - x.mH).abs() <= rounding).all())


def signed(like: Tensor, generator: torch.Generator, symmetric: bool = False) -> Tensor:
    """Numbers of either sign, between 0.5 and 1, that hide nothing in a sum."""

    def draw():
        sign = torch.randint(0, 2, like.shape, generator=generator) * 2 - 1
        return sign * (0.5 + 0.5 * torch.rand(like.shape, generator=generator).double())

    drawn = torch.complex(draw(), draw()) if like.is_complex() else draw()
    drawn = (drawn + drawn.mH) / 2 if symmetric and is_symmetric(like) else drawn
    return drawn.to(like)


def size(x: Tensor) -> Tensor:
    """By how much each element may be moved: in proportion to itself, and a zero in proportion to
    the others without those of a mask; 0 for an element that is not finite, or would not be if it
    were moved."""
    sizes = x.detach().abs()
    still = ~(sizes < torch.finfo(sizes.dtype).max / 4)
    if not sizes.any():
        return torch.ones_like(sizes)
    sizes = torch.where(still, 0.0, sizes)
    ordinary = sizes[(sizes > 0) & (sizes < MASK)]
    others = ordinary if len(ordinary) else sizes
    typical = others.mean() if others.any() else torch.ones_like(others).mean()
    return torch.where((sizes > 0) | still, sizes, 1e-3 * typical)


def unit(x: Tensor) -> float:
    """The power of ten by which its elements are brought near 1; 1 if they are not far from it."""
    mean = x.detach().double().abs().mean().item() if x.numel() else 0.0
    low, high = ORDINARY
    if mean == 0 or not math.isfinite(mean) or low <= mean <= high:
        return 1.0
    return 10.0 ** math.floor(math.log10(mean))
