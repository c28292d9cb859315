"""The experiment: derivatives of fn by finite differences, beside those that autograd reports.

The truth is finite differences of fn's own first derivative along a direction d. With the weights
on the outputs held fixed, call that difference A. At the given point, with x = x0 + t + t**2/2
before fn and z = y + (y - y0)**2/2 after it, the second derivative along d is

    alone  A        graph after  A + B        graph before  A + C        both  A + B + C

where B is the first derivative weighted with the change of y, and C the first derivative times d.
"""

import re
from dataclasses import dataclass, field, fields, replace
from functools import partial

import torch
from torch import Tensor

from double_backward.check import BAD, Outcome
from double_backward.differences import Slope, apart, flat, shaped, slope, vjp
from double_backward.lines import first_line, raised_in

from .first import inexact_by, judge_first
from .judge import SURROGATE, TOLERANCE, Row, judge, limits_of_second
from .rounding import in_16_bits, is_clean, scatter
from .settings import (
    Probe,
    Reported,
    Setting,
    by_grad_out,
    reported,
    uneven,
    uneven_direction,
)
from .target import Target
from .ways import Situation, Way, as_models_call

ASKS_FOR_BACKWARD = re.compile(r"\.backward\(\)")  # "use .backward() instead of .grad()", say
MANY = 1e6  # elements; from here on one probe has to do
SECOND = {**TOLERANCE, torch.float64: 3e-4}  # relative; its quotients of small numbers lose digits
SLIGHT = 1e-5  # relative; a first derivative off by more is no closed formula in float64
COARSE = 1e-3  # relative; from here on what the caller says is looked at as 16 bits are
FEW = 4  # outputs; with more, they are not tried one by one
GRAVITY = {Outcome.RAISES: 1, Outcome.NOT_FINITE: 1, Outcome.WRONG: 2}  # else 0


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """What was measured, as plain data: all that findings and verdict get of it."""

    first: Row  # the first derivative
    second: dict[Setting, Row]
    third: dict[Setting, Row] = field(default_factory=dict)  # empty unless it was asked for
    dtype: torch.dtype = torch.float64  # the precision in which fn computes
    tolerance: float = TOLERANCE[torch.float32]  # relative
    by_backward: bool = False  # by .backward(), where torch.autograd.grad is refused
    units: tuple[float, ...] = ()  # in which inputs are moved, those that are not 1
    output_units: tuple[float, ...] = ()  # and by which outputs are divided
    output_alone: int | None = None  # the only output that was used; None: all of them
    changed_by_create_graph: bool = False  # the first derivative, which should not be
    situation: Situation | None = None  # None: as fn was given
    raises_frozen: tuple[str, str] | None = None  # an input, and the error where it is frozen
    rtol: float | None = None  # what the caller said; None: nothing
    idle: bool = False  # the first derivative by some input is 0 altogether
    grad_out_not_finite: bool = False  # the derivative of the first one by grad_out itself
    symmetric: tuple[str, ...] = ()  # names of matrices that were moved so that they stay so
    drowned: bool = False  # the numbers of fn are mostly what rounding leaves of larger ones

    @property
    def rows(self) -> list[Row]:
        return [*self.second.values(), *self.third.values()]

    @property
    def wrong(self) -> bool:
        """Something is wrong with the second derivative, or with the third."""
        return any(row.outcome in BAD for row in self.rows)

    @property
    def exact(self) -> bool:
        """The first derivative is right to the precision in which fn computes."""
        right = self.first.outcome is Outcome.RIGHT
        return right and self.first.relative <= TOLERANCE[self.dtype]

    @property
    def gravity(self) -> int:
        """0 where nothing is wrong, 3 where the first derivative is; else that of the worst row."""
        if self.first.outcome is Outcome.WRONG:
            return 3
        return max((GRAVITY.get(row.outcome, 0) for row in self.rows), default=0)

    @property
    def telling(self) -> int:
        """2, or 1 where nothing but 0 was expected, or 0 where nothing can be trusted."""
        alone = self.second[Setting.ALONE]
        if Outcome.UNCLEAR in (self.first.outcome, alone.outcome):
            return 0
        return 1 if alone.zero else 2


@dataclass(frozen=True, kw_only=True, eq=False)
class Measured(Numbers):
    """The same with what it was measured by, so that more can be."""

    probe: Probe
    said: dict[Setting, Reported]  # what autograd reports
    gradient: Tensor | None = None  # flat; None if fn's backward raises
    a: Tensor | None = None  # the second derivative alone, flat; None if fn's backward raises
    clean: bool = False  # rounding was looked at, and leaves a few last digits
    moves: bool = False  # it is not 0, whatever noise there is

    @property
    def numbers(self) -> Numbers:
        return Numbers(**{f.name: getattr(self, f.name) for f in fields(Numbers)})


def measure(target: Target, order: int) -> Measured:
    """Compare first, second and (for order=3) third derivatives.

    With uneven weights in an uneven direction, since a sum can hide an error. Where that is not
    right, also with sums, whose numbers a reader can recognise; these are returned where they show
    as much. Where nothing is wrong, with each of a few outputs as the only one that is used.
    """
    telling = measure_with(uneven_probe(target), order)
    few = sum(x.numel() for x in target.point) <= MANY
    if few and (telling.gravity or not telling.telling):
        sums = measure_with(even_probe(target), order, telling.clean)
        telling = sums if sums.gravity and _as_bad(sums, telling) else telling
    several = target.outputs or ()
    if not few or telling.gravity or not 2 <= len(several) <= FEW:
        return telling
    for i in range(len(several)):
        alone = measure_with(uneven_probe(target.output_alone(i)), order)
        if alone.gravity:
            return replace(alone, output_alone=i)
    return telling


def _as_bad(one: Measured, other: Measured) -> bool:
    """Whether it shows all that is wrong in the other, in every setting."""
    if one.gravity != other.gravity:
        return one.gravity > other.gravity
    pairs = zip(one.rows, other.rows, strict=False)
    return all(GRAVITY.get(a.outcome, 0) >= GRAVITY.get(b.outcome, 0) for a, b in pairs)


def uneven_probe(target: Target) -> Probe:
    ys = tuple(y.detach().clone() for y in target.start().ys)
    return Probe(target, tuple(map(uneven, ys)), ys, uneven_direction(flat(target.point)))


def even_probe(target: Target) -> Probe:
    ys = tuple(y.detach().clone() for y in target.start().ys)
    return Probe(target, tuple(map(torch.ones_like, ys)), ys, torch.ones_like(flat(target.point)))


def measure_elsewhere(measured: Measured, order: int) -> Measured:
    """The same, or what was measured in the first situation in which something is wrong.

    An error that comes where an input is frozen is only noted: nobody overlooks it.
    """
    got = by_grad_out(measured.probe)
    if got is not None and not got.isfinite().all():
        return replace(measured, grad_out_not_finite=True)
    noted = measured
    for way in as_models_call(measured.probe):
        if not differs(way, measured):
            continue
        found = measure_with(way.probe, order)
        if way.situation.kind == "frozen" and (text := _only_raises(found)):
            noted = replace(noted, raises_frozen=(way.situation.name, text))
        elif found.gravity:
            return replace(found, situation=way.situation)
    return noted


def differs(way: Way, measured: Measured) -> str:
    """ "" or what comes instead, where fn is called in this way."""
    known = measured.said[way.setting] if way.plain is measured.probe else None
    return way.differs(measured.tolerance, known)


def _only_raises(found):
    """The error, where there is nothing else."""
    rows = [found.first, *found.rows]
    other = {row.outcome for row in rows} - {Outcome.RIGHT, Outcome.RAISES}
    texts = [row.text for row in rows if row.outcome is Outcome.RAISES]
    return "" if other or not texts else texts[0]


def measure_with(probe: Probe, order: int, clean: bool = False) -> Measured:
    """First derivative against values, second against the first, third against the second.

    Args:
        clean: it is known that nothing cancels at this point.
    """
    try:
        call = probe.target.start()
        gradient = vjp(call.ys, call.t, probe.w, probe.by_backward)
    except Exception as raised:  # of fn, or of its backward
        if not probe.by_backward and _only_grad_is_refused(probe, raised):
            return measure_with(replace(probe, by_backward=True), order, clean)
        place = raised_in(raised)
        first = Row(Outcome.RAISES, text=first_line(raised), raised_in=place)
        said = _all_reported(probe)
        return Measured(first=first, second=unjudged(said), said=said, **_about(probe))
    dtype, said = _precision(probe), _all_reported(probe)
    found = _compared(probe, order, gradient, said, dtype)
    right = found.first.outcome is Outcome.RIGHT
    if found.first.outcome is Outcome.NOT_FINITE:
        return found
    exact = right and found.first.relative <= 1e-2 * TOLERANCE[dtype]
    if not exact and in_16_bits(partial(probe.values_and_gradient, probe.d, 0.0)):
        in_16 = _compared(probe, order, gradient, said, torch.bfloat16)
        return in_16 if in_16.first.outcome is Outcome.RIGHT else found
    coarse = (probe.target.rtol or 0.0) >= COARSE  # smaller steps than that mean nothing
    if coarse and (found.gravity or not found.telling):
        fitted = _compared(probe, order, gradient, said, torch.bfloat16)
        found = found if fitted.gravity or not fitted.telling else replace(fitted, dtype=dtype)
    if clean or (right and not any(row.outcome is Outcome.WRONG for row in found.rows)):
        return found
    rounding = _rounding(probe, found)
    if rounding is None:
        return replace(found, clean=True)
    known = _compared(probe, order, gradient, said, dtype, rounding)
    return replace(known, drowned=_judged(found) and not _judged(known))


def _only_grad_is_refused(probe, error):
    """Whether .backward() goes where autograd.grad has raised this, and raises it again."""
    if ASKS_FOR_BACKWARD.search(first_line(error)):
        return True
    try:
        call = probe.target.start()
        vjp(call.ys, call.t, probe.w, by_backward=True)
        call = probe.target.start()
    except Exception:  # of fn, or of its backward
        return False
    try:
        vjp(call.ys, call.t, probe.w)
    except Exception as again:  # of backward
        return first_line(again) == first_line(error)
    return False


def _judged(found):
    return found.first.outcome is not Outcome.UNCLEAR and not all(
        row.outcome is Outcome.UNCLEAR for row in found.rows
    )


@dataclass(frozen=True, eq=False)
class Rounding:
    """What rounding inside fn leaves in its numbers."""

    both: Tensor | None  # in its outputs and the first derivative, flat, one after the other
    said: dict[Setting, Tensor | None]  # in the second derivative that autograd reports, if asked


def _rounding(probe, found):
    """None where it leaves no more than a few last digits."""
    plain = torch.cat([flat(probe.y0), found.gradient])
    both = scatter(partial(probe.values_and_gradient, probe.d, 0.0), plain)
    said: dict[Setting, Tensor | None] = {}
    for setting, row in found.second.items():
        if row.outcome is Outcome.WRONG:
            vector = found.said[setting].vector
            said[setting] = moved = scatter(partial(_second, probe, setting), vector)
            if is_clean(both, plain) and is_clean(moved, vector):
                return None  # the other rows are of the same numbers
    return Rounding(both, said)


def _second(probe, setting):
    return reported(probe, setting).vector


def _compared(probe, order, gradient, said, dtype, rounding=None):
    target, d, n = probe.target, probe.d, len(flat(probe.y0))
    in_both = rounding.both if rounding else None
    here = torch.cat([flat(probe.y0), gradient])

    def at(h):
        return probe.values_and_gradient(d, h) if h else here

    both = slope(at, dtype, target.scale, in_both)
    dy, a = Slope(*(v[:n] for v in both)), Slope(*(v[n:] for v in both))
    first = judge_first(probe, gradient, dy, a, dtype, in_both)
    rtol = target.rtol
    tolerance = min(SURROGATE, max(SECOND[dtype], 10 * first.relative))
    if rtol is not None:
        tolerance = max(SECOND[dtype], rtol)
    common = {
        **_about(probe),
        "said": said,
        "gradient": gradient,
        "first": first,
        "dtype": dtype,
        "tolerance": tolerance,
        "rtol": rtol,
        "a": a.value,
        "moves": bool((a.value.abs() > 10 * a.error + 1e-6 * gradient.abs().sum()).any()),
        "idle": any(not g.any() for g in shaped(gradient, target.point)),
        "changed_by_create_graph": _changed(gradient, said[Setting.ALONE].first, tolerance),
    }
    if first.outcome is not Outcome.RIGHT:  # finite differences do not go where backward goes
        return Measured(second=unjudged(said), **common)
    b = _with_change_of_y(probe, dy)
    second = _judge_second(probe, said, gradient, a, b, tolerance, rounding)
    if _little_is_wrong(second):
        off, size = inexact_by(probe, dtype)
        if off > SLIGHT:
            if rtol is None:
                tolerance = min(SURROGATE, max(tolerance, 10 * off))
            second = _judge_second(probe, said, gradient, a, b, tolerance, rounding, size)
            more = {"first": replace(first, relative=max(first.relative, off))}
            common = {**common, **more, "tolerance": tolerance}
    found = Measured(second=second, **common)
    if order < 3 or found.wrong:
        return found
    return Measured(second=second, third=_judge_third(probe, dtype, tolerance), **common)


def _little_is_wrong(rows):
    """As little as what an inexact first derivative might explain."""
    wrong = [row for row in rows.values() if row.outcome is Outcome.WRONG]
    return bool(wrong) and all(row.relative <= SURROGATE for row in wrong)


def _about(probe):
    target = probe.target
    return {
        "probe": probe,
        "by_backward": probe.by_backward,
        "units": unusual(target.units),
        "output_units": unusual(target.output_units),
    }


def unusual(units):
    """Those that are not 1, sorted."""
    each = [torch.as_tensor(unit, dtype=torch.float64).reshape(-1).tolist() for unit in units]
    return tuple(sorted(set().union(*each) - {1.0}))


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
    if not w.any():
        return torch.zeros_like(probe.d)
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


def _judge_second(probe, said, gradient, a, b, tolerance, rounding=None, size=None):
    """Row for row; `size` of the terms that make up a, where more is known than their sum."""
    target, c, rows = probe.target, gradient * probe.d, {}
    size = a.value.abs() if size is None else size
    sizes = [x.numel() for x in target.point]
    for setting in Setting:
        after, before = setting.after, setting.before
        expected = Slope(
            a.value + after * b.value + before * c,
            a.error + after * b.error.abs(),
            a.likely + after * b.likely.abs(),
        )
        terms = size + after * b.value.abs() + before * c.abs()
        limits = limits_of_second(terms, expected.error, gradient.abs(), sizes, tolerance)
        limits = replace(limits, noise=limits.noise + target.atol)
        own = rounding.said.get(setting) if rounding else None
        if own is not None:
            limits = replace(limits, noise=limits.noise + 5 * own)
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


def _changed(gradient, recorded, tolerance):
    """Whether the first derivative is another one with create_graph=True."""
    if recorded is None:
        return False
    return bool(apart(recorded, gradient, tolerance).any())


def _precision(probe):
    """float32 if fn computes in it, also where it hands its result over in float64."""
    target = probe.target
    steps = shaped(1e-3 * target.scale * probe.d, target.point)
    moved = target.at(target.point_at(steps)).in_units((), ())  # divided, it would not show
    there = replace(probe, target=moved)
    beside = there.values_and_gradient(torch.zeros_like(probe.d), 0.0)
    steps = beside * 1024  # whole ones are a staircase's
    single = (beside.float().double() == beside).all() and (steps != steps.round()).any()
    if single or any(t.dtype != torch.float64 for t in [*probe.y0, *probe.target.point]):
        return torch.float32
    return torch.float64
