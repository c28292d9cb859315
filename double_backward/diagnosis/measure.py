"""The experiment: derivatives of fn by finite differences, beside those that autograd reports.

The truth is finite differences of fn's own first derivative along a direction d. With the weights
on the outputs held fixed, call that difference A. At the given point, with x = x0 + t + t**2/2
before fn and z = y + (y - y0)**2/2 after it, the second derivative along d is

    alone  A        graph after  A + B        graph before  A + C        both  A + B + C

where B is the first derivative weighted with the change of y, and C the first derivative times d.
"""

import math
import re
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor

from double_backward.differences import Slope, flat, same, shaped, slope, vjp

from .judge import (
    NOISE,
    SURROGATE,
    TOLERANCE,
    Outcome,
    Row,
    judge,
    limits_of_first,
    limits_of_second,
    scatters,
)
from .settings import (
    Probe,
    Reported,
    Setting,
    first_line,
    raised_in,
    reported,
    uneven,
    uneven_direction,
)
from .target import Target

ASKS_FOR_BACKWARD = re.compile(r"\.backward\(\)")  # "use .backward() instead of .grad()", say
MANY = 1e6  # elements; from here on one probe has to do
ONE_BY_ONE = 16  # elements; with more, parts of the inputs are compared
AROUND = 0.0, 0.07, -0.05  # how far from the point an inexact first derivative is looked at
PRECISE = 0.03  # relative; how well a fit has to know a slope that is believed in spite of others
NEAR = 1e-6  # a step to which stairs of 16 bits are flat
SECOND = {**TOLERANCE, torch.float64: 3e-4}  # relative; its quotients of small numbers lose digits
FEW = 4  # outputs; with more, they are not tried one by one
BENDS = {  # steps of second differences
    torch.float64: (1e-2, 2e-2),
    torch.float32: (1e-1, 2e-1),
    torch.bfloat16: (3e-1, 5e-1),
}


@dataclass(frozen=True)
class Situation:
    """In what way fn is called otherwise than it was given."""

    kind: str  # "negative", "frozen" or "linked"
    name: str = ""  # of the input that is frozen


@dataclass(frozen=True, eq=False)
class Measured:
    """What was measured with one `Probe`."""

    probe: Probe
    first: Row  # the first derivative
    second: dict[Setting, Row]
    third: dict[Setting, Row] = field(default_factory=dict)  # empty unless it was asked for
    dtype: torch.dtype = torch.float64  # the precision in which fn computes
    tolerance: float = TOLERANCE[torch.float32]  # relative
    a: Tensor | None = None  # the second derivative alone, flat; None if fn's backward raises
    output_alone: int | None = None  # the only output that was used; None: all of them
    changed_by_create_graph: bool = False  # the first derivative, which should not be
    situation: Situation | None = None  # None: as fn was given
    raises_frozen: tuple[str, str] | None = None  # an input, and the error where it is frozen
    rtol: float | None = None  # what the caller said; None: nothing
    idle: bool = False  # the first derivative by some input is 0 altogether

    @property
    def rows(self) -> list[Row]:
        return [*self.second.values(), *self.third.values()]

    @property
    def wrong(self) -> bool:
        """Something is wrong with the second derivative, or with the third."""
        bad = Outcome.WRONG, Outcome.NOT_FINITE, Outcome.RAISES
        return any(row.outcome in bad for row in self.rows)

    @property
    def severity(self) -> int:
        if self.first.outcome is Outcome.WRONG:
            return 3
        if any(row.outcome is Outcome.WRONG for row in self.rows):
            return 2
        return int(self.wrong)

    @property
    def telling(self) -> int:
        """2, or 1 where nothing but 0 was expected, or 0 where nothing can be trusted."""
        alone = self.second[Setting.ALONE]
        if Outcome.UNCLEAR in (self.first.outcome, alone.outcome):
            return 0
        return 1 if alone.zero else 2


def measure(target: Target, order: int) -> Measured:
    """Compare first, second and (for order=3) third derivatives.

    With uneven weights in an uneven direction, since a sum can hide an error. Where that is not
    right, also with sums, whose numbers a reader can recognise; these are returned where they show
    as much. Where nothing is wrong, with each of a few outputs as the only one that is used.
    """
    telling = measure_with(uneven_probe(target), order)
    few = sum(x.numel() for x in target.point) <= MANY
    if few and (telling.severity or not telling.telling):
        sums = measure_with(even_probe(target), order)
        telling = sums if sums.severity and _as_bad(sums, telling) else telling
    several = target.outputs or ()
    if not few or telling.severity or not 2 <= len(several) <= FEW:
        return telling
    for i in range(len(several)):
        alone = measure_with(uneven_probe(target.output_alone(i)), order)
        if alone.severity:
            return replace(alone, output_alone=i)
    return telling


BAD = {Outcome.RAISES: 1, Outcome.NOT_FINITE: 1, Outcome.WRONG: 2}  # else 0


def _as_bad(one: Measured, other: Measured) -> bool:
    """Whether it shows all that is wrong in the other, in every setting."""
    if one.severity != other.severity:
        return one.severity > other.severity
    pairs = zip(one.rows, other.rows, strict=False)
    return all(BAD.get(a.outcome, 0) >= BAD.get(b.outcome, 0) for a, b in pairs)


def uneven_probe(target: Target) -> Probe:
    ys = tuple(y.detach().clone() for y in target.start().ys)
    return Probe(target, tuple(map(uneven, ys)), ys, uneven_direction(flat(target.point)))


def even_probe(target: Target) -> Probe:
    ys = tuple(y.detach().clone() for y in target.start().ys)
    return Probe(target, tuple(map(torch.ones_like, ys)), ys, torch.ones_like(flat(target.point)))


def measure_with(probe: Probe, order: int) -> Measured:
    """First derivative against values, second against the first, third against the second."""
    try:
        call = probe.target.start()
        gradient = vjp(call.ys, call.t, probe.w, probe.by_backward)
    except Exception as raised:  # of fn, or of its backward
        if ASKS_FOR_BACKWARD.search(first_line(raised)) and not probe.by_backward:
            return measure_with(replace(probe, by_backward=True), order)
        place = raised_in(raised)
        first = Row(Outcome.RAISES, text=first_line(raised), raised_in=place)
        return Measured(probe, first, unjudged(_all_reported(probe)))
    dtype, said = _precision(probe), _all_reported(probe)
    found = _compared(probe, order, gradient, said, dtype)
    exact = found.first.relative <= 1e-2 * TOLERANCE[dtype]
    finite = found.first.outcome is not Outcome.NOT_FINITE
    if finite and not (exact and found.first.outcome is Outcome.RIGHT) and _rounds(probe, found):
        rounded = _compared(probe, order, gradient, said, torch.bfloat16)
        return rounded if rounded.first.outcome is Outcome.RIGHT else found
    return found


def _compared(probe, order, gradient, said, dtype):
    target, d, n = probe.target, probe.d, len(flat(probe.y0))
    both = slope(partial(_values_and_gradient, probe, d), dtype, target.scale)
    dy, a = Slope(*(v[:n] for v in both)), Slope(*(v[n:] for v in both))
    first = judge_first(probe, gradient, dy, a, dtype)
    rtol = target.rtol
    tolerance = min(SURROGATE, max(SECOND[dtype], 10 * first.relative))
    if rtol is not None:
        tolerance = max(SECOND[dtype], rtol)
    common = {
        "probe": probe,
        "first": first,
        "dtype": dtype,
        "tolerance": tolerance,
        "rtol": rtol,
        "a": a.value,
        "idle": any(not g.any() for g in shaped(gradient, target.point)),
        "changed_by_create_graph": _changed(gradient, said[Setting.ALONE].first, tolerance),
    }
    if first.outcome is not Outcome.RIGHT:  # finite differences do not go where backward goes
        return Measured(second=unjudged(said), **common)
    second = _judge_second(probe, said, gradient, a, _with_change_of_y(probe, dy), tolerance)
    found = Measured(second=second, **common)
    if order < 3 or found.wrong:
        return found
    return Measured(second=second, third=_judge_third(probe, dtype, tolerance), **common)


def as_given(measured: Measured, given: Target) -> dict[Setting, Row]:
    """The settings in which autograd says something else in float32, as given, than in float64.

    Some Functions have another kernel for each. Both are in the same units, and what float32 rounds
    away counts for nothing.
    """
    probe, rows = measured.probe, {}
    ys = [y.detach() for y in given.start().ys]
    w = tuple(v.to(y.dtype) for v, y in zip(probe.w, ys, strict=True))
    single = replace(probe, target=given, w=w, y0=tuple(ys))
    size = _size_inside(single)
    for setting in Setting:
        got, right = reported(single, setting), reported(probe, setting)
        if right.vector is None or right.first is None:
            continue
        if got.vector is None:
            rows[setting] = Row(Outcome.RAISES, text=got.text, raised_in=got.raised_in)
            continue
        rounding = _rounding_of_second(right, size)
        off = ((got.vector - right.vector).abs() - rounding).clamp(min=0)
        allowed = SURROGATE * right.vector.norm() + 1e-3 * right.first.norm()
        if got.first is not None and off.norm() > allowed:
            i = int(off.abs().argmax())
            numbers = right.vector[i].item(), got.vector[i].item()
            rows[setting] = Row(Outcome.WRONG, None, 0.0, *numbers, probe.target.place(i))
    return rows


def _size_inside(probe: Probe) -> float:
    """Of the numbers that fn computes with: of its outputs, of its inputs or 1, in output units."""
    units = probe.target.output_units or (1.0,) * len(probe.y0)
    largest = max([1.0, *(x.abs().max().item() for x in probe.target.point if x.numel())])
    each = zip(probe.w, probe.y0, units, strict=True)
    sizes = [
        v.abs().max().item() * max(y.abs().max().item(), largest / unit)
        for v, y, unit in each
        if y.numel()
    ]
    return max(sizes)


def _rounding_of_second(right: Reported, size: float) -> Tensor:
    """What float32 may be off by where outputs of this size change by little.

    A relative rounding `eps` of what it computes with, where that changes on a length of
    first / second: the sigmoid of 17 is 1 to float32, and its derivative 0.
    """
    assert right.vector is not None and right.first is not None
    per_length = right.vector / right.first.abs().clamp(min=1e-300)
    return 16 * torch.finfo(torch.float32).eps * size * per_length.square() + 1e-30


def _with_change_of_y(probe, dy):
    """B. Not judged by where backward, which takes the weights of the probe, takes no others."""
    try:
        return Slope(*(_weighted(probe, flat(probe.w) * v.clamp(max=1e30)) for v in dy))
    except Exception:  # of backward
        none = torch.zeros_like(probe.d)
        return Slope(none, none + 1e30, none + 1e30)


def _weighted(probe, w):
    """The first derivative with other weights, by a fresh graph: some survive one backward only.

    In memory these weights are like those of the probe, which backward takes.
    """
    call = probe.target.start()
    w = [torch.empty_like(v).copy_(s) for v, s in zip(probe.w, shaped(w, probe.w), strict=True)]
    return vjp(call.ys, call.t, w, probe.by_backward)


def _all_reported(probe):
    return {setting: reported(probe, setting) for setting in Setting}


def unjudged(said: dict[Setting, Reported]) -> dict[Setting, Row]:
    """Whether the second derivative exists at all, where there is nothing to compare it with."""
    rows = {}
    for setting, got in said.items():
        if got.vector is None:
            outcome = Outcome.RAISES
        else:
            outcome = Outcome.RIGHT if got.vector.isfinite().all() else Outcome.NOT_FINITE
        text = got.text if got.missing is None or got.missing.all() else ""
        rows[setting] = Row(outcome, text=text, raised_in=got.raised_in, of_backward=True)
    return rows


def judge_first(probe: Probe, gradient: Tensor, dy: Slope, a: Slope, dtype: torch.dtype) -> Row:
    """First derivative against values: along d and, where that differs, part by part.

    One that is inexact is right where it scatters as noise does, and where its own derivative `a`
    is that of the values' all the same.
    """
    target = probe.target
    if not (gradient.isfinite().all() and flat(probe.y0).isfinite().all()):
        return Row(Outcome.NOT_FINITE)
    whole = expected, got, _, _, terms = _change_of_loss(probe, gradient, dy, probe.d)
    close = TOLERANCE[dtype] if target.rtol is None else target.rtol
    if (expected - got).abs() <= close * terms + target.atol:
        return _judge_parts([whole], target.place)
    names, parts = _parts(target)
    compared = _by_parts(probe, parts, dtype)
    row = _judge_parts(compared, names)
    if row.outcome is not Outcome.RIGHT or row.relative <= max(close, 10 * TOLERANCE[dtype]):
        return row
    if row.error is not None and row.error <= target.atol:
        return row
    deviations = [_deviations(probe, parts, dtype, shift) for shift in AROUND]
    apart = torch.cat(deviations)
    noise = dtype is not torch.float64 or apart.abs().max() <= NOISE
    if noise and scatters(apart) and _bends_alike(probe, a, dtype):
        return row
    off = deviations[0].abs()
    worst = int((off >= 0.99 * off.max()).nonzero()[0])  # the first of those that are alike
    expected, got, _, likely, _ = compared[worst].tolist()
    shown = Row(Outcome.WRONG, row.error, row.relative, expected, got, names(worst))
    return replace(shown, uncertain=likely)


def _change_of_loss(probe, gradient, dy, along):
    """Expected, got, error, likely error and size of the change of the loss along a direction."""
    w = flat(probe.w)
    a, b = w * dy.value, gradient * along
    errors = (w * dy.error).norm(), (w * dy.likely).norm()
    sizes = a.norm(), b.norm(), a.sum().abs(), b.sum().abs()
    return torch.stack([a.sum(), b.sum(), *errors, max(sizes)])


def _bends_alike(probe, a, dtype):
    """Whether the second derivative that follows from a first one that is not exact is near that of
    the values, along d. True where that cannot be told."""

    def loss(h):
        ys = flat(probe.target.start(shift=h * probe.d).ys)
        return (flat(probe.w) * ys).sum()

    along, here = (a.value * probe.d).sum(), loss(0.0)
    steps = [h * probe.target.scale for h in BENDS[dtype]]
    try:
        first, second = ((loss(h) - 2 * here + loss(-h)) / h**2 for h in steps)
    except Exception:  # of fn, beside the point
        return True
    size = max(first.abs(), along.abs())
    told = (first - second).abs() <= NOISE * size
    return not told or bool((first - along).abs() <= SURROGATE * size)


def _by_parts(probe, parts, dtype):
    call = probe.target.start()
    gradient, n = vjp(call.ys, call.t, probe.w, probe.by_backward), len(flat(probe.y0))
    rows = []
    for part in parts:
        along = probe.d * part
        both = slope(partial(_values_and_gradient, probe, along), dtype, probe.target.scale)
        dy = Slope(*(v[:n] for v in both))
        rows.append(_change_of_loss(probe, gradient, dy, along))
    return rows


def _deviations(probe, parts, dtype, shift):
    """How far the first derivative is off, part by part, in proportion to the terms.

    Positive where it is too large, so that a wrong factor is the same for both signs.
    """
    target = probe.target
    steps = [shift * target.scale * torch.ones_like(x) for x in target.point]
    moved = replace(probe, target=target.at(target.point_at(steps)))
    try:
        compared = _by_parts(moved, parts, dtype)
    except Exception:  # of fn, which has no value there
        return torch.empty(0, dtype=torch.float64)
    expected, got, _, _, terms = torch.stack(compared).T
    too_large = (got - expected) * expected.sign()
    return (too_large / terms.clamp(min=1e-30)).nan_to_num(0.0, 0.0, 0.0)


def _parts(target):
    """Where a part is, as a function of its number, and the masks of the parts."""
    sizes = [x.numel() for x in target.point]
    n, parts_each = sum(sizes), max(1, ONE_BY_ONE // len(sizes))
    if n <= ONE_BY_ONE:
        return target.place, [torch.arange(n) == k for k in range(n)]
    parts = [torch.arange(size) % parts_each + k * parts_each for k, size in enumerate(sizes)]
    index = torch.cat(parts)
    masks = [index == k for k in range(int(index.max()) + 1)]
    return lambda k: target.names[k // parts_each], masks


def _judge_parts(rows, place):
    expected, got, error, likely, terms = torch.stack(rows).T
    reported_parts = Reported(got, torch.zeros_like(got, dtype=torch.bool))
    truth = Slope(expected, error, likely)
    return judge(reported_parts, truth, limits_of_first(terms, error), place)


def _judge_second(probe, said, gradient, a, b, tolerance):
    target, c, rows = probe.target, gradient * probe.d, {}
    sizes = [x.numel() for x in target.point]
    for setting in Setting:
        after, before = setting.after, setting.before
        expected = Slope(
            a.value + after * b.value + before * c,
            a.error + after * b.error.abs(),
            a.likely + after * b.likely.abs(),
        )
        terms = a.value.abs() + after * b.value.abs() + before * c.abs()
        limits = limits_of_second(terms, expected.error, gradient.abs(), sizes, tolerance)
        limits = replace(limits, noise=limits.noise + target.atol)
        rows[setting] = judge(said[setting], expected, limits, target.place)
    return rows


def _judge_third(probe, dtype, tolerance):
    target, rows = probe.target, {}
    sizes = [x.numel() for x in target.point]
    for setting in Setting:

        def second(h, setting=setting):
            got = reported(probe, setting, 2, h * probe.d).vector
            return torch.full_like(probe.d, torch.nan) if got is None else got

        expected, here = slope(second, dtype, target.scale), second(0.0).abs()
        terms = expected.value.abs() + here
        limits = limits_of_second(terms, expected.error, here, sizes, tolerance)
        rows[setting] = judge(reported(probe, setting, 3), expected, limits, target.place)
    return rows


def _values_and_gradient(probe, d, h):
    """Outputs and first derivative at the point + h d, flat; NaN outside the domain of fn."""
    try:
        call = probe.target.start(shift=h * d)
        return torch.cat([flat(call.ys), vjp(call.ys, call.t, probe.w, probe.by_backward)])
    except Exception:  # of fn, or of its backward
        return torch.full((len(flat(probe.y0)) + len(d),), torch.nan)


def _changed(gradient, recorded, tolerance):
    """Whether the first derivative is another one with create_graph=True."""
    if recorded is None:
        return False
    size = tolerance * (gradient.abs() + gradient.abs().mean()) + 1e-12
    return bool(((recorded - gradient).abs() > size).any())


def _precision(probe):
    """float32 if fn computes in it, also where it hands its result over in float64."""
    target = probe.target
    steps = shaped(1e-3 * target.scale * probe.d, target.point)
    moved = target.at(target.point_at(steps)).in_units((), ())  # divided, it would not show
    beside = _values_and_gradient(replace(probe, target=moved), torch.zeros_like(probe.d), 0.0)
    steps = beside * 1024  # whole ones are a staircase's
    single = (beside.float().double() == beside).all() and (steps != steps.round()).any()
    if single or any(t.dtype != torch.float64 for t in [*probe.y0, *probe.target.point]):
        return torch.float32
    return torch.float64


def _rounds(probe, found):
    """Whether the first derivative is computed in 16 bits, wholly or in part, or as roughly.

    Then it rises in stairs, and far from the point by another slope than near it; or 16 bits hold
    it, whatever it is multiplied with.
    """
    n = len(flat(probe.y0))
    at = partial(_values_and_gradient, probe, probe.d)
    if not same(at(0.0), at(0.0)):
        return False  # backward changes something, and that is another matter
    fit = slope(at, torch.bfloat16, probe.target.scale)
    far, error = fit.value[n:], fit.error[n:]
    near = found.a
    if found.dtype is torch.float64:
        h = NEAR * probe.target.scale
        near = (at(h)[n:] - at(-h)[n:]) / (2 * h)
    precise = error <= PRECISE * far.abs()
    apart = (far - near).abs() > SURROGATE * far.abs()
    if (precise & apart).any() and (precise | (far == 0)).double().mean() > 0.5:
        return True
    one, other = (
        _values_and_gradient(replace(probe, w=tuple(uneven(w) / k for w in probe.w)), probe.d, 0.0)
        for k in (math.pi, math.e)
    )
    kinds = torch.float16, torch.bfloat16
    held = any(torch.equal(one[n:].to(k).double(), one[n:]) for k in kinds)
    return held and not torch.equal(one[n:], other[n:])  # neither 0 nor without a size
