"""diagnose_all: every custom Function that a training step applies, diagnosed where it was used."""

import html
import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from double_backward.remedies.meet import (
    Call,
    Listener,
    TransformedCall,
    is_left_alone,
    listening,
    outside,
    unheard,
)
from double_backward.remedies.state import Surroundings

from . import Diagnosis, Finding, Verdict, diagnose

KINDS = 3  # different ways of calling one Function that are diagnosed; the worst is shown
LARGE = 20_000  # elements of all inputs together; above, they are cut down
CUT = 3  # to so many along each side
TOO_LARGE = 1_000_000  # elements; above, what cannot be cut down is not diagnosed

UP_TO_SECOND = "right up to second order"
NOT_EVEN_ONCE = (
    Verdict.FIRST_DERIVATIVE_WRONG,
    Verdict.SURROGATE_GRADIENT,
    Verdict.NOT_CHECKED,
)

WORST_FIRST = [
    Verdict.SILENTLY_WRONG,
    Verdict.FIRST_DERIVATIVE_WRONG,
    Verdict.ONCE_DIFFERENTIABLE,
    Verdict.LAYOUT_DEPENDENT,
    Verdict.NOT_FINITE,
    Verdict.RAISES,
    Verdict.SURROGATE_GRADIENT,
    Verdict.NOT_CHECKED,
    Verdict.SUPPORTED,
]


@dataclass(frozen=True)
class Row:
    """One custom Function of a step."""

    function: type
    where: str  # "package.module, line 12", the class itself
    calls: int  # how often the step applied it
    diagnosis: Diagnosis
    in_backward: bool = False  # applied by backwards only: its second derivative is the third
    notes: tuple[str, ...] = ()  # what the table has to add: cut down inputs, a reason

    @property
    def name(self) -> str:
        return self.function.__qualname__.split("<locals>.")[-1]

    @property
    def verdict(self) -> Verdict:
        return self.diagnosis.verdict

    @property
    def ok(self) -> bool:
        """Whether it is right as far as first and second derivatives of the step use it."""
        if self.in_backward:
            return self.verdict not in NOT_EVEN_ONCE
        return self.diagnosis.ok

    @property
    def up_to_second(self) -> bool:
        """Whether only a third derivative of the step would be wrong."""
        return self.ok and not self.diagnosis.ok

    @property
    def cause(self) -> Finding | None:
        """What to read first, or None for a Function that is right."""
        findings = self.diagnosis.findings
        return next((f for f in findings if f.cause), None) or (
            findings[0] if findings and self.verdict is not Verdict.SUPPORTED else None
        )


@dataclass(frozen=True)
class StepDiagnosis:
    """The answer of `diagnose_all`; printed, a table."""

    rows: list[Row] = field(default_factory=list)  # worst first

    @property
    def ok(self) -> bool:
        """Whether every custom Function that the step differentiates twice is right."""
        return all(row.ok for row in self.rows)

    def __getitem__(self, name: str) -> Diagnosis:
        """The full text for one Function of the table."""
        for row in self.rows:
            if row.name == name:
                return row.diagnosis
        raise KeyError(f"{name} is not in the table. It has {[row.name for row in self.rows]}")

    def __str__(self):
        if not self.rows:
            return "The step applies no custom Function."
        lines = [_headline(self.rows), "", *_table(self.rows)]
        notes = [f"{row.name}: {note}" for row in self.rows for note in row.notes]
        return "\n".join(lines + ([""] + notes if notes else []))

    __repr__ = __str__

    def _repr_html_(self):
        return f'<pre style="color: inherit; background: none">{html.escape(str(self))}</pre>'


def diagnose_all(step: Callable[[], object]) -> StepDiagnosis:
    """Run `step()` once and `diagnose` every custom Function that it applies.

    Functions in forward and in backward are met, inside modules and libraries, in every thread. The
    step runs as it would without. Then each Function is called by itself, on copies of the inputs
    that it had; where they are large, on a part of them, and the table says so. Progress goes to
    stderr.

    Args:
        step: callable without arguments, such as one training step. Called once.

    Returns:
        `StepDiagnosis`: a table, worst first. `["Name"]` gives the full `Diagnosis` of one.

    Raises:
        Whatever `step` raises.
    """
    met = _Met()
    with listening(met):
        step()
    found = list(met.functions.items())
    rows = []
    for number, (function, uses) in enumerate(found, start=1):
        print(f"diagnose_all: {number} of {len(found)}, {function.__name__}", file=sys.stderr)
        rows.append(_row(function, uses))
    rows.sort(key=lambda row: (row.in_backward, WORST_FIRST.index(row.verdict)))
    return StepDiagnosis(rows)


# What the step does.


@dataclass
class _Uses:
    """How one Function was called."""

    calls: int = 0
    in_backward: bool = True
    kinds: dict = field(default_factory=dict)  # one call of each kind: kind -> arguments
    keywords: dict = field(default_factory=dict)  # and its keyword arguments


class _Met(Listener):
    def __init__(self):
        self.functions: dict[type, _Uses] = {}

    def called(self, call: Call) -> None:
        uses = self.functions.setdefault(call.function, _Uses())
        uses.calls += not call.transformed
        uses.in_backward &= call.in_backward
        if not call.inputs or call.inputs_changed or is_left_alone(call.function):
            return
        with outside(call):
            call = call.plain() if isinstance(call, TransformedCall) else call
            kind = _kind(call)
            if kind not in uses.kinds and len(uses.kinds) < KINDS:
                args = [_copy(call.inputs.get(place, arg)) for place, arg in enumerate(call.args)]
                uses.kinds[kind] = args
                uses.keywords[kind] = dict(call.kwargs)


def _copy(value):
    if not isinstance(value, Tensor):
        return value
    return value.detach().clone().requires_grad_(value.requires_grad)


def _kind(call):
    """What can make one call of a Function right and another wrong; sizes do not."""
    described: list[object] = []
    for place, arg in enumerate(call.args):
        value = call.inputs.get(place, arg)
        if isinstance(value, Tensor):
            contiguous = value.layout is torch.strided and value.is_contiguous()
            described.append((value.dim(), value.dtype, contiguous, place in call.inputs))
        else:
            described.append(value if isinstance(value, (bool, str)) else type(value))
    return tuple(described)


# Each Function by itself.


def _row(function: type, uses: _Uses) -> Row:
    diagnosis, notes = _worst(function, uses)
    if diagnosis.verdict is Verdict.NOT_CHECKED:
        notes += tuple(f"not checked: {f.message}" for f in diagnosis.findings[:1])
    if uses.in_backward:
        notes += ("applied in backward only. Its second derivative is a third one of the step.",)
    return Row(function, _where(function), uses.calls, diagnosis, uses.in_backward, notes)


def _worst(function: type, uses: _Uses) -> tuple[Diagnosis, tuple[str, ...]]:
    if is_left_alone(function):
        return _not_checked(function, "it is part of torch's own machinery, and only counted."), ()
    if not uses.kinds:
        return _not_checked(function, "none of its inputs requires grad in this step."), ()
    diagnosed = [_diagnose(function, a, uses.keywords[k]) for k, a in uses.kinds.items()]
    if all(d.ok and d.first is not None and d.first.zero for d, _ in diagnosed):
        text = (
            "its output does not change with the tensors that it was handed; perhaps it takes a "
            "module's own parameters. Hand `diagnose` a function of these."
        )
        return _not_checked(function, text), ()
    return min(diagnosed, key=lambda d: WORST_FIRST.index(d[0].verdict))


def _diagnose(function: Any, args: list, keywords: dict) -> tuple[Diagnosis, tuple[str, ...]]:
    def fn(*args):
        return function.apply(*args, **keywords)

    fn.__name__ = function.__name__
    with unheard(), Surroundings(function, *args, keywords).unchanged():
        if _elements(args) <= LARGE:
            return diagnose(fn, *args), ()
        for smaller in _cut_down(args):
            if _runs(fn, smaller):
                return diagnose(fn, *smaller), (f"inputs cut down {_change(args, smaller)}.",)
        if _elements(args) <= TOO_LARGE:
            return diagnose(fn, *args), ()
    text = f"its inputs have {_elements(args):,} elements and could not be cut down."
    return _not_checked(function, text), ()


def _not_checked(function, text):
    return Diagnosis(
        function.__name__, Verdict.NOT_CHECKED, [Finding("not_called", text, lesson=1)]
    )


def _elements(args):
    return sum(a.numel() for a in args if isinstance(a, Tensor))


def _cut_down(args: list) -> Iterator[list]:
    """The same arguments with less in them, the smallest first.

    Sides of one length stay of one length. Numbers that are the length of a side follow it.
    """
    tensors = [a for a in args if isinstance(a, Tensor)]
    lengths = {n for t in tensors for n in t.shape if n > CUT}
    for cut in (lengths, {t.shape[0] for t in tensors if t.dim() and t.shape[0] > CUT}):
        for numbers_too in (False, True):
            smaller = []
            for arg in args:
                if isinstance(arg, Tensor):
                    part = tuple(slice(CUT if n in cut else n) for n in arg.shape)
                    smaller.append(_copy(arg[part]) if arg.layout is torch.strided else arg)
                elif numbers_too and type(arg) is int and arg in cut:
                    smaller.append(CUT)
                elif numbers_too and isinstance(arg, (tuple, list)):
                    smaller.append(type(arg)(CUT if n in cut else n for n in arg))
                else:
                    smaller.append(arg)
            yield smaller


def _runs(fn, args):
    """Whether the Function takes these inputs, and gives a gradient for them."""
    try:
        outs = fn(*[a.clone() if isinstance(a, Tensor) else a for a in args])
        outs = [o for o in (outs if isinstance(outs, tuple) else (outs,)) if isinstance(o, Tensor)]
        sum(o.sum() for o in outs if o.requires_grad).backward(
            inputs=[a for a in args if isinstance(a, Tensor) and a.requires_grad]
        )
    except Exception:  # of the Function
        return False
    finally:
        for a in args:
            if isinstance(a, Tensor):
                a.grad = None
    return True


# Words.


def _where(function):
    try:
        return f"{function.__module__}, line {inspect.getsourcelines(function)[1]}"
    except (OSError, TypeError):  # made in a notebook cell that is gone, or by a program
        code = getattr(inspect.unwrap(function.forward), "__code__", None)
        return function.__module__ + (f", line {code.co_firstlineno}" if code else "")


def _change(args, smaller):
    pairs = zip(args, smaller, strict=True)
    shapes = [(tuple(a.shape), tuple(b.shape)) for a, b in pairs if isinstance(a, Tensor)]
    return ", ".join(f"{a} to {b}" for a, b in shapes if a != b)


def _headline(rows):
    right = sum(row.diagnosis.ok for row in rows)
    known = [row for row in rows if row.verdict is not Verdict.NOT_CHECKED]
    enough = sum(row.up_to_second for row in rows)
    many = "custom Functions" if len(rows) > 1 else "custom Function"
    said = [f"{len(rows)} {many}", f"{right} right"]
    said += [f"{enough} {UP_TO_SECOND}"] if enough else []
    said += [f"{len(known) - right - enough} not"]
    said += [f"{len(rows) - len(known)} not checked"] if len(rows) > len(known) else []
    return ", ".join(said)


def _table(rows):
    cells = [("verdict", "Function", "where", "calls", "cause", "lesson")]
    for row in rows:
        cause, lesson = (row.cause.code, str(row.cause.lesson)) if row.cause else ("", "")
        verdict = UP_TO_SECOND if row.up_to_second else row.verdict.value
        cells.append((verdict, row.name, row.where, str(row.calls), cause, lesson))
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(f"{c:<{w}}" for c, w in zip(cell, widths, strict=True)) for cell in cells]
    return [line.rstrip() for line in lines]
