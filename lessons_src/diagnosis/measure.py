"""The experiment: derivatives of fn by finite differences, beside those that autograd reports.

The truth is finite differences of fn's own first derivative along a direction d. With the weights
on the outputs held fixed, call that difference A. At the given point, with x = x0 + t + t**2/2
before fn and z = y + (y - y0)**2/2 after it, the second derivative along d is

    alone  A        graph after  A + B        graph before  A + C        both  A + B + C

where B is the first derivative weighted with the change of y, and C the first derivative times d.
"""

from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from .differences import Slope, flat, shaped, slope, vjp
from .judge import SURROGATE, TOLERANCE, Outcome, Row, judge, limits_of_first, limits_of_second
from .settings import Probe, Reported, Setting, first_line, reported
from .target import Target

MANY = 1e6  # elements; from here on one probe has to do
ONE_BY_ONE = 16  # elements; with more, parts of the inputs are compared


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


def measure(target: Target, order: int, generator: torch.Generator) -> Measured:
    """Compare first, second and (for order=3) third derivatives.

    Twice: with sums, whose numbers a reader can recognise, and with random weights in a random
    direction, since a sum can hide an error. The worse of the two is returned.
    """

    def random(like):
        return torch.randn(like.shape, generator=generator, dtype=like.dtype)

    large = sum(x.numel() for x in target.point) > MANY
    draws = [random] if large else [torch.ones_like, random]
    several = [measure_with(make_probe(target, draw), order) for draw in draws]
    worst = max(several, key=lambda measured: measured.severity)
    return worst if worst.severity else several[-1]


def make_probe(target: Target, draw) -> Probe:
    ys = [y.detach().clone() for y in target.start().ys]
    return Probe(target, tuple(draw(y) for y in ys), tuple(ys), draw(flat(target.point)))


def measure_with(probe: Probe, order: int) -> Measured:
    """First derivative against values, second against the first, third against the second."""
    target, d = probe.target, probe.d
    try:
        call = target.start()
        gradient = vjp(call.ys, call.t, probe.w)
    except Exception as error:  # of fn, or of its backward
        first = Row(Outcome.RAISES, text=first_line(error))
        return Measured(probe, first, unjudged(probe))
    dtype = _precision(probe)
    n = len(flat(probe.y0))
    value, error = slope(partial(_values_and_gradient, probe, d), dtype, target.scale)
    dy, a = Slope(value[:n], error[:n]), Slope(value[n:], error[n:])
    first = judge_first(probe, gradient, dy, dtype)
    tolerance = min(SURROGATE, max(TOLERANCE[dtype], 10 * first.relative))
    common = {"probe": probe, "first": first, "dtype": dtype, "tolerance": tolerance, "a": a.value}
    if first.outcome is not Outcome.RIGHT:  # finite differences do not go where backward goes
        return Measured(second=unjudged(probe), **common)
    changes = (shaped(flat(probe.w) * v.clamp(max=1e30), probe.y0) for v in dy)
    b = Slope(*(vjp(call.ys, call.t, change) for change in changes))
    second = _judge_second(probe, gradient, a, b, tolerance)
    found = Measured(second=second, **common)
    if order < 3 or found.wrong:
        return found
    return Measured(second=second, third=_judge_third(probe, dtype, tolerance), **common)


def unjudged(probe: Probe) -> dict[Setting, Row]:
    """Whether the second derivative exists at all, where there is nothing to compare it with."""
    rows = {}
    for setting in Setting:
        got = reported(probe, setting)
        if got.vector is None:
            outcome = Outcome.RAISES
        else:
            outcome = Outcome.RIGHT if got.vector.isfinite().all() else Outcome.NOT_FINITE
        rows[setting] = Row(outcome, text=got.text)
    return rows


def judge_first(probe: Probe, gradient: Tensor, dy: Slope, dtype: torch.dtype) -> Row:
    """First derivative against values: along d and, where that differs, part by part."""
    target, w, d = probe.target, flat(probe.w), probe.d
    if not (gradient.isfinite().all() and flat(probe.y0).isfinite().all()):
        return Row(Outcome.NOT_FINITE)

    def compare(dy, along):
        """Expected, got, error and size of the change of the loss along a direction."""
        a, b = w * dy.value, gradient * along
        sizes = a.square().sum().sqrt(), b.square().sum().sqrt(), a.sum().abs(), b.sum().abs()
        return torch.stack([a.sum(), b.sum(), (w * dy.error).square().sum().sqrt(), max(sizes)])

    whole = expected, got, _, terms = compare(dy, d)
    if (expected - got).abs() <= TOLERANCE[dtype] * terms:
        return _judge_parts([whole], target.place)
    names, parts = _parts(target)
    rows = []
    for part in parts:
        value, error = slope(partial(_values_and_gradient, probe, d * part), dtype, target.scale)
        rows.append(compare(Slope(value[: len(w)], error[: len(w)]), d * part))
    return _judge_parts(rows, names)


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
    expected, got, error, terms = torch.stack(rows).T
    reported_parts = Reported(got, torch.zeros_like(got, dtype=torch.bool))
    return judge(reported_parts, Slope(expected, error), limits_of_first(terms, error), place)


def _judge_second(probe, gradient, a, b, tolerance):
    target, c, rows = probe.target, gradient * probe.d, {}
    sizes = [x.numel() for x in target.point]
    for setting in Setting:
        after, before = setting.after, setting.before
        expected = Slope(
            a.value + after * b.value + before * c,
            a.error + after * b.error.abs(),
        )
        terms = a.value.abs() + after * b.value.abs() + before * c.abs()
        limits = limits_of_second(terms, expected.error, gradient.abs(), sizes, tolerance)
        rows[setting] = judge(reported(probe, setting), expected, limits, target.place)
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
        return torch.cat([flat(call.ys), vjp(call.ys, call.t, probe.w)])
    except Exception:  # of fn, or of its backward
        return torch.full((len(flat(probe.y0)) + len(d),), torch.nan)


def _precision(probe):
    """float32 if fn computes in it, also where it hands its result over in float64."""
    beside = _values_and_gradient(probe, probe.d, 1e-3 * probe.target.scale)
    single = (beside.float().double() == beside).all() and (beside != beside.round()).any()
    if single or any(t.dtype != torch.float64 for t in [*probe.y0, *probe.target.point]):
        return torch.float32
    return torch.float64
