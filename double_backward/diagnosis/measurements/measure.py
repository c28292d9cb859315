"""Checks fn as a whole: its first derivative against its values, its second against the first.

`check` compares by its inputs, by grad_out, and by both where grad_out comes from the outputs. For
fn alone and with a graph before it, the first of these counts; with a graph after it, all three. An
error is shown in the formulas that a reader can type, see `formulas`.
"""

import re
from dataclasses import dataclass, field, fields, replace

import torch
from torch import Tensor

from double_backward import check
from double_backward._torch import checkpoints_allowed
from double_backward.check import (
    BAD,
    EXACT,
    RTOL,
    SLIGHT,
    SURROGATE,
    Compared,
    Expected,
    Line,
    Outcome,
    Subject,
)
from double_backward.differences import apart, flat, shaped, taken, vjp
from double_backward.failures import raise_if_gone, raise_if_own
from double_backward.lines import first_line
from double_backward.places import raised_in

from ..preparation.formulas import (
    Probe,
    Reported,
    Row,
    Setting,
    reported,
    shown,
    uneven,
    uneven_probe,
)
from ..preparation.target import Target
from .first_derivative import first_row
from .rounding import scatter
from .ways import Situation, Way, as_models_call

ASKS_FOR_BACKWARD = re.compile(r"\.backward\(\)")  # "use .backward() instead of .grad()", say
MANY_ELEMENTS = 1e6  # elements; with more, only all outputs together are measured
FEW_OUTPUTS = 4  # outputs; with more, they are not tried one by one
GRAVITY = {Outcome.RAISES: 1, Outcome.NOT_FINITE: 1, Outcome.WRONG: 2}  # else 0


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """What was measured, as plain data, which is all that findings and verdict get."""

    first: Row  # the first derivative
    second: dict[Setting, Row]
    third: dict[Setting, Row] = field(default_factory=dict)  # empty unless it was asked for
    dtype: torch.dtype = torch.float64  # the precision in which fn computes
    tolerance: float = EXACT[torch.float32]  # relative
    by_backward: bool = False  # .backward() was used, since fn refuses torch.autograd.grad
    output_alone: int | None = None  # the only output that was used; None: all of them
    changed_by_create_graph: bool = False  # the first derivative changes, which it should not
    situation: Situation | None = None  # how fn was called; None: as it was given
    raises_frozen: tuple[str, str] | None = None  # an input, and the error where it is frozen
    rtol: float | None = None  # the caller's rtol; None: none was given
    idle: bool = False  # the first derivative by some input is 0 in all elements
    grad_out_not_finite: bool = False  # only the derivative of backward by grad_out is not finite
    symmetric: tuple[str, ...] = ()  # names of matrices that were moved so that they stay so
    lost: str = ""  # why differences had to judge, where tangents could not be followed
    drowned: bool = False  # the numbers of fn are mostly what rounding leaves of larger ones

    @property
    def rows(self) -> list[Row]:
        return [*self.second.values(), *self.third.values()]

    @property
    def bad(self) -> bool:
        """Whether something is wrong with the second derivative, or with the third."""
        return any(row.outcome in BAD for row in self.rows)

    @property
    def resolution(self) -> float:
        """The largest relative error in every element that would have been missed."""
        return max((r.resolution for r in self.rows if r.outcome is Outcome.RIGHT), default=0.0)

    @property
    def resolution_of_one(self) -> float:
        """The same for an error in one element alone."""
        right = (r for r in self.rows if r.outcome is Outcome.RIGHT)
        return max((r.resolution_of_one for r in right), default=0.0)

    @property
    def gravity(self) -> int:
        """0 where nothing is wrong, 3 where the first derivative is; else that of the worst row."""
        if self.first.outcome is Outcome.WRONG:
            return 3
        return max((GRAVITY.get(row.outcome, 0) for row in self.rows), default=0)

    @property
    def telling(self) -> int:
        """How much the numbers tell: 2, or 1 where only 0 was expected, or 0 where they are
        unclear."""
        alone = self.second[Setting.ALONE]
        if Outcome.UNCLEAR in (self.first.outcome, alone.outcome):
            return 0
        return 1 if alone.zero else 2


@dataclass(frozen=True, kw_only=True, eq=False)
class Measured(Numbers):
    """`Numbers` with what they were measured by, so that more can be measured."""

    probe: Probe
    said: dict[Setting, Reported]  # what autograd reports
    gradient: Tensor | None = None  # flat; None if fn's backward raises
    expected: Expected | None = None  # the differences; None if fn's backward raises
    together: bool = False  # what autograd says of all of fn by its inputs is right
    a: Tensor | None = None  # the second derivative alone, flat, where it is known

    @property
    def is_shown(self) -> bool:
        """Whether all that is wrong shows in a formula, with its numbers."""
        return all(r.where for r in [self.first, *self.rows] if r.outcome is Outcome.WRONG)

    @property
    def numbers(self) -> Numbers:
        return Numbers(**{f.name: getattr(self, f.name) for f in fields(Numbers)})


def measure(target: Target, order: int) -> Measured:
    """Measure all outputs together; where nothing is wrong and they are few, also each alone."""
    found = measure_with(uneven_probe(target), order)
    several = target.outputs or ()
    few = sum(x.numel() for x in target.point) <= MANY_ELEMENTS
    if not few or found.gravity or not 2 <= len(several) <= FEW_OUTPUTS:
        return found
    for i in range(len(several)):
        alone = measure_with(uneven_probe(target.output_alone(i)), order)
        if alone.gravity:
            return replace(alone, output_alone=i)
    return found


def measure_elsewhere(measured: Measured, order: int) -> Measured:
    """`measured`, or what is measured in the first other situation in which something is wrong.

    An error that is raised where an input is frozen is only noted, since no user overlooks it.
    """
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
    """What differs where fn is called in this way: an error, or a wrong number; else ""."""
    known = measured.said[way.setting] if way.plain is measured.probe else None
    return way.differs(measured.tolerance, known)


def _only_raises(found):
    """The text of the error, if nothing else is wrong; else ""."""
    rows = [found.first, *found.rows]
    other = {row.outcome for row in rows} - {Outcome.RIGHT, Outcome.RAISES}
    texts = [row.text for row in rows if row.outcome is Outcome.RAISES]
    return "" if other or not texts else texts[0]


def subject_of(probe: Probe) -> Subject:
    """fn as a `check.Subject`, with the weights of the probe for grad_outs."""
    target = probe.target

    def function(x):
        return target.tensors(target.moved_to(x, leaves=not probe.by_backward))

    if not probe.by_backward:
        return Subject(function, target.point, probe.w)
    around = checkpoints_allowed
    return Subject(function, target.point, probe.w, (), _by_backward, around)


def _by_backward(function, x, u):
    with torch.enable_grad():
        ys = function(x)
        u = u(ys) if callable(u) else u
    given = [(y, w) for y, w in zip(ys, u, strict=True) if y.requires_grad]
    outs, grad_outs = zip(*given, strict=True)
    torch.autograd.backward(outs, grad_outs, create_graph=torch.is_grad_enabled())
    return taken(x)


def measure_with(probe: Probe, order: int) -> Measured:
    """Compare the first derivative with the values, the second with the first, and for order 3 the
    third with the second."""
    try:
        line = Line.of(subject_of(probe), symmetric=False)
        expected = check.measure(line, atol=probe.target.atol or check.ATOL)
    except Exception as error:  # of fn, or of its backward
        raise_if_own(error)
        if not probe.by_backward and _only_grad_is_refused(probe, error):
            return measure_with(replace(probe, by_backward=True), order)
        first = Row(Outcome.RAISES, text=first_line(error), raised_in=raised_in(error))
        said = _all_reported(probe)
        return Measured(first=first, second=unjudged(said), said=said, **_about(probe))
    expected, first, second, drowned = _with_doubts(probe, line, expected)
    said = _all_reported(probe)
    found = Measured(
        first=first,
        second=unjudged(said),
        said=said,
        gradient=expected.g,
        expected=expected,
        together=second.by_input.outcome is Outcome.RIGHT
        and bool(expected.by_input.value.any()),  # a step function gives 0, which tells nothing
        a=said[Setting.ALONE].vector,
        dtype=expected.dtype,
        tolerance=max(expected.rtol, RTOL[expected.dtype]),
        lost=expected.lost if expected.is_untracked else "",
        rtol=probe.target.rtol,
        idle=any(not g.any() for g in shaped(expected.g, probe.target.point)),
        changed_by_create_graph=second.recorded.bad,
        grad_out_not_finite=second.by_grad_out.outcome is Outcome.NOT_FINITE
        and Outcome.NOT_FINITE not in (first.outcome, second.by_input.outcome),
        drowned=drowned,
        **_about(probe),
    )
    if first.outcome in (Outcome.NOT_FINITE, Outcome.WRONG):
        return found  # finite differences do not follow this backward
    otherwise = second.error is not None and all(got.vector is not None for got in said.values())
    if otherwise:  # `check` raises, but the formulas do not: then these decide
        wrong = Compared(Outcome.WRONG)
        second = check.Checked(by_input=wrong, constant=wrong)
    rows = _rows(probe, said, expected, second)
    found = replace(found, second=_handed_no_leaf(probe, said, expected, rows))
    found = shown(found, otherwise) if found.bad else found
    return found if order < 3 or found.bad else replace(found, third=_third(probe, line))


def _with_doubts(probe, line, expected):
    """What `_judged` finds, and whether fn's numbers are mostly rounding. Before something is
    called wrong, all excuses are tried: that fn computes in 16 bits, that its caller said that it
    is inexact, or that little but rounding is left."""
    found = _judged(probe, expected)
    _, first, second = found
    wrong = first.outcome is Outcome.WRONG or (second.bad and second.error is None)
    unclear = Outcome.UNCLEAR in (first.outcome, second.by_input.outcome)
    inexact = (probe.target.rtol or 0.0) >= check.COARSE
    slightly = first.relative > SLIGHT * EXACT[expected.dtype]
    if not (wrong or unclear or second.bad or slightly or inexact):
        return *found, False
    plain = torch.cat([expected.values, expected.g])
    noise = scatter(lambda: flat(sum(line.both(), [])), plain)
    if noise.in_16_bits or (inexact and (wrong or unclear)):
        fitted = check.measure(line, atol=expected.atol, dtype=torch.bfloat16)
        least = None if noise.in_16_bits else probe.target.rtol
        fitted, first, second = _judged(probe, fitted, least)
        dtype = torch.bfloat16 if noise.in_16_bits else expected.dtype
        return replace(fitted, dtype=dtype), first, second, False
    doubted = expected.exact and second.bad and second.error is None
    if doubted and not (noise.is_clean and _is_far_off(second)):
        expected, first, second = found = _judged(probe, _with_rounding(expected))
        if second.by_input.says_nothing:  # the rounding is larger than what it should excuse
            second = check.in_doubt(expected, second)
            found = expected, first, second
        wrong = first.outcome is Outcome.WRONG or second.bad
        wrong |= second.by_input.outcome is Outcome.UNCLEAR
    if not wrong or noise.is_clean:
        return *found, False
    rounded = check.measure(line, atol=expected.atol, rounding=noise.by)
    rounded, first_again, again = _judged(probe, rounded)
    if not expected.exact:
        bad = [part for part in check.PARTS if getattr(second, part).bad]
        second = replace(second, **{part: getattr(again, part) for part in bad})
    first = first_again if first.outcome is Outcome.WRONG else first
    drowned = Outcome.UNCLEAR in (first.outcome, second.by_input.outcome)
    still_wrong = first.outcome is Outcome.WRONG or second.bad
    return rounded if still_wrong or drowned else found[0], first, second, drowned


def _is_far_off(second):
    """Whether an error is larger than that of digits which are lost without a sign of rounding."""
    return max(getattr(second, part).off for part in check.PARTS) > check.ROUGH


def _with_rounding(expected):
    """`expected` with what rounding leaves in the change by tangents and in autograd's answers."""
    runs = expected.followed_again, expected.answers
    lost = [scatter(run).by for run in runs]
    return expected if any(by is None for by in lost) else expected.with_rounding(*lost)


def _judged(probe, expected, least=None):
    """What is expected, the row of the first derivative, and `Checked` of the second. The second is
    compared to as many digits as the first has, or to the tolerance `least` if that is given."""
    first = first_row(probe.target, expected)
    right = first.outcome is Outcome.RIGHT
    own = expected.rtol if expected.exact else RTOL[expected.dtype]
    least = max(own, probe.target.rtol or 0.0) if least is None else least
    own = min(SURROGATE, 10 * first.relative) if right and probe.target.rtol is None else 0.0
    expected, second = _checked(replace(expected, rtol=max(least, own)), right)
    return expected, first, second


def _checked(expected, is_gradient):
    """What is expected, and `Checked`. Where something is wrong, elements that are mostly rounding
    are left out, and the check is repeated. If backward is a gradient, its derivative is also
    checked to be symmetric."""
    found = check.check(expected)
    if found.bad and found.error is None:
        solid = check.without_rounding(expected)
        if solid is not expected:
            followed = expected.exact and found.by_input.outcome is Outcome.WRONG
            doubted = followed and not solid.probes
            found = check.in_doubt(expected, found) if doubted else check.check(solid)
        expected = solid
    speaks = expected.is_known.all() or expected.tells
    if (
        found.unresolved
        and found.by_input.outcome is Outcome.UNCLEAR
        and (found.by_input.text or not speaks)
    ):
        constant = found.by_input
    elif is_gradient and expected.known == 1 and speaks:
        constant = check.symmetric(expected)
    else:
        constant = check.check(expected.with_constants()).by_input
    return expected, replace(found, constant=constant)


def _only_grad_is_refused(probe, error):
    """Whether .backward() works where autograd.grad has raised this error, and raises it again."""
    if ASKS_FOR_BACKWARD.search(first_line(error)):
        return True
    try:
        call = probe.target.start()
        vjp(call.ys, call.t, probe.w, by_backward=True)
        call = probe.target.start()
    except Exception as refused:  # of fn, or of its backward
        raise_if_gone(refused)
        return False
    try:
        vjp(call.ys, call.t, probe.w)
    except Exception as again:  # of backward
        return first_line(again) == first_line(error)
    return False


def _about(probe):
    return {"probe": probe, "by_backward": probe.by_backward}


def _all_reported(probe):
    return {setting: reported(probe, setting) for setting in Setting}


def unjudged(said: dict[Setting, Reported]) -> dict[Setting, Row]:
    """Rows that say only whether the second derivative exists, with nothing to compare it with."""
    rows = {}
    for setting, got in said.items():
        if got.vector is None:
            outcome = Outcome.RAISES
        else:
            outcome = Outcome.RIGHT if got.vector.isfinite().all() else Outcome.NOT_FINITE
        text = got.text if got.missing is None or got.missing.all() else ""
        rows[setting] = Row(outcome, text=text, raised_in=got.raised_in, of_backward=True)
    return rows


def _rows(probe, said, expected, checked):
    """A row for each formula, which is as bad as the parts of which the formula consists."""
    count, zero = len(expected.g), not expected.by_input.value.any()
    lost = round((1 - expected.known) * count)
    still = zero and not lost and not expected.probes  # there is nothing to get wrong
    rows = {}
    for setting, row in unjudged(said).items():
        parts = [checked.constant]
        if setting.after:
            parts = [checked.by_input, checked.by_grad_out, checked.tied]
        bad = (part for part in parts if part.bad and part.outcome is not Outcome.NOT_FINITE)
        worst = next(bad, parts[0])
        row = replace(row, of_backward=False, zero=zero, unchecked=lost, elements=count)
        if row.outcome is Outcome.NOT_FINITE:
            broken = (~said[setting].vector.isfinite()).nonzero()
            row = replace(row, where=probe.target.place(int(broken[0])))
        elif row.outcome is Outcome.RIGHT and not (still and not worst.bad):
            nothing = worst.outcome is Outcome.WRONG and row.text  # which autograd says in an error
            outcome = Outcome.RAISES if nothing else worst.outcome
            row = replace(
                row,
                outcome=outcome,
                text=worst.text if outcome is Outcome.UNCLEAR else worst.text or row.text,
                # `tied` is the sum of the other two, which may cancel in it.
                resolution=max(part.resolution for part in parts[:2]),
                resolution_of_one=max(part.resolution_of_one for part in parts[:2]),
            )
        rows[setting] = row
    return rows


def _handed_no_leaf(probe, said, expected, rows):
    """The rows, compared also where fn gets no leaf: what x + t**2/2 adds is known."""
    plain, got = (said[s].vector for s in (Setting.ALONE, Setting.BEFORE))
    if plain is None or got is None or rows[Setting.ALONE].outcome is not Outcome.RIGHT:
        return rows
    c = expected.g * probe.d
    if not apart(got, plain + c, expected.rtol, expected.rtol * c.abs().mean()).any():
        return rows
    wrong = {s: replace(rows[s], outcome=Outcome.WRONG) for s in Setting if s.before}
    return {**rows, **wrong}


def _third(probe, line):
    """The rows of the third derivative: those of the gradient in the place of fn."""
    subject = line.subject

    def gradient(x):
        with torch.enable_grad():
            return subject.backward(x, list(subject.u))

    weights = tuple(uneven(x) for x in subject.x)
    own = replace(subject, function=gradient, u=weights, vjp=check.autograd_vjp)
    expected = check.measure(Line.of(own, symmetric=False))
    expected, third = _checked(expected, is_gradient=True)
    return _rows(probe, {s: reported(probe, s, 3) for s in Setting}, expected, third)
