"""diagnose: is the second derivative right, and if not, why."""

import contextlib
import html
import random
import textwrap
import warnings
from dataclasses import dataclass, field

import numpy as np
import torch

from . import evidence as ev
from .evidence import Evidence, Verdict
from .findings import findings
from .measure import Row, measure, step_scale

HEADLINES = {
    Verdict.FIRST_DERIVATIVE_WRONG: "the first derivative is wrong",
    Verdict.ONCE_DIFFERENTIABLE: "declared differentiable once only",
    Verdict.SILENTLY_WRONG: "silently wrong at second order",
    Verdict.LAYOUT_DEPENDENT: "right for contiguous tensors only",
    Verdict.NOT_FINITE: "not finite",
    Verdict.RAISES: "raises at second order",
    Verdict.SURROGATE_GRADIENT: "consistent, but its first derivative is not that of forward",
    Verdict.SUPPORTED: "double backward is right",
    Verdict.NOT_CHECKED: "not checked",
}


@dataclass
class Diagnosis:
    """The answer of `diagnose`."""

    name: str
    verdict: Verdict
    findings: list = field(default_factory=list)
    first: Row | None = None
    settings: dict = field(default_factory=dict)
    third: dict = field(default_factory=dict)
    saved: list = field(default_factory=list)
    torch_func: str = ""
    places: dict = field(default_factory=dict)

    @property
    def ok(self):
        return self.verdict is Verdict.SUPPORTED

    def __str__(self):
        lines = [f"{self.name}: {HEADLINES[self.verdict]}", ""]
        if self.first:
            lines += self._line("first derivative", "", self.first)
            for i, (name, row) in enumerate(self.settings.items()):
                lines += self._line("" if i else "second derivative", name, row)
            for i, (name, row) in enumerate(self.third.items()):
                lines += self._line("" if i else "third derivative", name, row)
            lines += self._saved()
            lines += [""]
        width = max([len(f.code) for f in self.findings], default=0) + 2
        for f in self.findings:
            text = textwrap.wrap(f.message, 96 - width)
            mark = f"-> lesson {f.lesson}"
            if len(text[-1]) + len(mark) + 2 > 96 - width:
                text.append("")
            text[-1] = text[-1].ljust(98 - width - len(mark)) + mark
            lines += [(f.code if not i else "").ljust(width) + t for i, t in enumerate(text)]
        return "\n".join(lines).rstrip()

    __repr__ = __str__

    def _line(self, title, setting, row):
        head = title.ljust(20) + setting.ljust(16 if setting else 0)
        if row.outcome == "wrong":
            text = f"WRONG   expected {row.expected:7.4f}, got {row.got:.4f}"
            text += (
                f" at {self.places[row.index]}"
                if row.index is not None
                else " along a random direction"
            )
        elif row.outcome == "raises":
            text = f"raises: {row.text}"
        elif row.outcome == "right" and row.text:
            text = "right   (it is 0; autograd raises because nothing depends on x any more)"
        else:
            text = row.outcome
        return textwrap.wrap(head + text, 100, subsequent_indent=" " * 44, drop_whitespace=True)

    def _saved(self):
        lines = []
        for s in self.saved:
            where = f"ctx.{s.name}" if s.on_ctx else "save_for_backward"
            lines.append(
                ("" if lines else "saved").ljust(20)
                + f"{s.kind} {s.shape} {s.dtype}, {s.bytes} bytes, {where}"
            )
        return lines

    def _repr_mimebundle_(self, include=None, exclude=None):
        text = str(self)
        return {"text/plain": text, "text/html": f"<pre>{html.escape(text)}</pre>"}


@contextlib.contextmanager
def no_trace():
    """Leave RNG states, default dtype, grad mode and warning filters as they were."""
    dtype, state, numpy_state = torch.get_default_dtype(), random.getstate(), np.random.get_state()
    with (
        torch.random.fork_rng(),
        torch.inference_mode(False),
        torch.enable_grad(),
        warnings.catch_warnings(record=True) as met,
    ):
        warnings.simplefilter("always")
        try:
            yield met
        finally:
            torch.set_default_dtype(dtype)
            random.setstate(state)
            np.random.set_state(numpy_state)


def diagnose(fn, *inputs, order=2):
    with no_trace() as met:
        return _diagnose(fn, inputs, order, met)


def assert_double_backward(fn, *inputs):
    """Raise AssertionError with the text of `diagnose` unless the verdict is "supported"."""
    diagnosis = diagnose(fn, *inputs)
    assert diagnosis.ok, str(diagnosis)


def _diagnose(fn, inputs, order, met):
    name = getattr(getattr(fn, "__self__", fn), "__name__", type(fn).__name__)
    target = ev.Target(fn, inputs, torch.float64)
    generator = torch.Generator().manual_seed(0)
    target([x.clone().requires_grad_() for x in target.point])
    measured, moved = measure(target, target.point, order, generator), False
    if not measured.wrong and not measured.telling:
        beside = [
            x + 0.1 * torch.rand(x.shape, generator=generator, dtype=torch.float64).to(x)
            for x in target.point
        ]
        with contextlib.suppress(Exception):
            other = measure(target, beside, order, generator)
            if other.first.outcome != "not finite" and (
                other.wrong or other.telling or other.clear > measured.clear
            ):
                measured, moved = other, True
                target.point = beside
    step = 1e-4 * step_scale(target.point)
    functions = ev.functions(target, step)
    if measured.wrong:
        ev.blame(target, functions, step, generator)
    tolerance = max(1e-6, measured.tolerance)
    habits = ev.habits(target, measured.probe, tolerance)
    func = ev.torch_func(target, measured.probe, measured.a, tolerance)
    e = Evidence(
        target.names, measured, functions, habits, func, moved, [str(w.message) for w in met]
    )
    rows = [measured.first, *measured.second.values(), *measured.third.values()]
    places = {r.index: target.place(r.index) for r in rows if r.index is not None}
    saved = [s for f in functions for s in f.saved]
    return Diagnosis(
        name,
        e.verdict,
        findings(e),
        measured.first,
        measured.second,
        measured.third,
        saved,
        func,
        places,
    )
