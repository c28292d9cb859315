"""diagnose: is the second derivative right, and if not, why.

Its findings are the rows of the table in `conclusions.findings`. Where nothing was checked, the one
finding (of lesson 1, 4, 6 or none) says why:
no_input_requires_grad, no_elements, meta_input, lazy_parameters, meta_parameters, took_too_long,
beyond_diagnose, half_precision, memory_freed, not_finite_here, no_call, no_output,
output_without_graph, lost_inside, fn_raises, fn_asks_for_leaves, random_output, and tool_failed,
where this package itself is to blame. A table of diagnose_all may have not_called, too. The
findings of the table and their lessons:
"""

import html
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from double_backward._torch import tree_flatten, tree_unflatten
from double_backward.arguments import Ignored, asked, listed
from double_backward.check import Outcome, is_symmetric
from double_backward.compiled import as_it_was_written, as_written
from double_backward.failures import own, unless_gone
from double_backward.lines import described
from double_backward.operators import named as operator_named
from double_backward.phrases import Phrase
from double_backward.surroundings import undisturbed

from .conclusions.evidence import Evidence
from .conclusions.findings import ROWS, Finding, concluded
from .conclusions.report import text_of
from .conclusions.verdict import Verdict
from .gather import seen
from .measurements.as_called import compiled, written
from .preparation.formulas import Row, Setting
from .preparation.functions import Saved
from .preparation.prepare import TOOL_FAILED, NotChecked
from .preparation.smaller_inputs import LARGE_INPUTS, change_of, cut_down, few_moved, runs, size_of
from .preparation.time_limit import TookTooLong, limited, no_endless_recursion

FIRST_VERDICTS = Verdict.FIRST_DERIVATIVE_WRONG, Verdict.SURROGATE_GRADIENT

__all__ = ["Diagnosis", "Finding", "Verdict", "assert_double_backward", "diagnose"]

if __doc__:  # not under -OO
    __doc__ += "\n" + "".join(f"    {code:<31}{row.lesson[0]}\n" for code, row in ROWS.items())


@dataclass(frozen=True)
class Diagnosis:
    """The answer of `diagnose`. Printed, it is a text to read."""

    name: str  # of what was diagnosed
    verdict: Verdict  # also a string
    findings: list[Finding]  # code, message, lesson; the most important first
    first: Row | None = None  # the first derivative
    settings: dict[Setting, Row] = field(default_factory=dict)  # the second in each setting
    third: dict[Setting, Row] = field(default_factory=dict)  # the same for order=3, else empty
    saved: list[Saved] = field(default_factory=list)  # what custom Functions keep
    recipe: str = ""  # how to get the numbers of `settings` oneself, from `FORMULAS`
    # Rows by name: forward mode through a jvp of the Function's own ("jvp of grad"), and transforms
    # of torch.func ("hessian"). {} where they were not asked.
    forward_mode: dict[str, Row] = field(default_factory=dict)
    torch_func: dict[str, Row] = field(default_factory=dict)
    # matrix[a][b] is what became of the derivative of the gradient of a by b: an `Outcome`, "lost"
    # or "0". It is filled only with several inputs, where something is wrong.
    matrix: dict[str, dict[str, str]] = field(default_factory=dict)
    functions: tuple[str, ...] = ()  # the custom Functions in fn
    meant: tuple[str, ...] = ()  # those in ignore= whose gradient is not forward's derivative
    cut_down: str = ""  # "cut down (1000, 1000) to (22, 22)", where large inputs were made smaller
    # How much of what is missing from the first wrong number goes through what is kept: a Function
    # -> a name -> its share, 0 where autograd follows it, or backward does not use it. {} where
    # fewer than two things are kept, or tangents do not tell.
    shares: dict[str, dict[str, float]] = field(default_factory=dict)
    # Where all is right: the largest relative error of the second derivative that would have been
    # missed, in every element, and in one alone; 0 where nothing was compared.
    resolution: float = 0.0
    resolution_of_one: float = 0.0

    @property
    def ok(self) -> bool:
        return self.verdict is Verdict.SUPPORTED

    @property
    def cause(self) -> Finding | None:
        """The first of the findings that say why the second derivative is wrong, or raises."""
        return next((finding for finding in self.findings if finding.cause), None)

    @property
    def read_first(self) -> Finding | None:
        """The finding that explains the headline best; None where all is right."""
        if self.ok or not self.findings:
            return None
        if self.cause and self.verdict not in FIRST_VERDICTS:
            return self.cause
        errors = [finding for finding in self.findings if finding.severity == "error"]
        return (errors or self.findings)[0]

    @property
    def headline(self) -> str:
        """The name and the verdict in words."""
        second_is_right = all(row.outcome is Outcome.RIGHT for row in self.settings.values())
        order = "third" if self.third and second_is_right else "second"
        words: str = Phrase(self.verdict.headline.replace("second", order))
        first_is_wrong = self.first is not None and self.first.outcome is Outcome.WRONG
        if self.meant:
            words = Phrase("{}, and {}" if self.ok else "{}; {}", self._meant, words)
        elif self.verdict is Verdict.SILENTLY_WRONG and first_is_wrong:
            words = Phrase("{}, and {}", Verdict.SURROGATE_GRADIENT.headline, words)
        rows = [*self.settings.values(), *self.third.values()]
        if self.verdict is Verdict.FIRST_DERIVATIVE_WRONG and any(
            row.outcome is Outcome.WRONG for row in rows
        ):
            also = Verdict.SILENTLY_WRONG.headline.replace("second", order)
            words = Phrase("{}, and {}", words, also)
        return Phrase("{}: {}", self.name, words)

    @property
    def _meant(self):
        """The words "its gradient is meant", or "the gradient of ... is meant"."""
        its = self.meant == (self.name,)
        names = ", ".join(self.meant)
        if its:
            return Phrase("its gradient is meant")
        return Phrase("the gradient of {} is meant", names)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values only, for JSON; a number that is NaN or infinite becomes None."""
        return {
            "name": self.name,
            "ok": self.ok,
            "verdict": self.verdict.value,
            "headline": self.headline,
            "findings": [finding.to_dict() for finding in self.findings],
            "first": self.first.to_dict() if self.first else None,
            "second": {str(setting): row.to_dict() for setting, row in self.settings.items()},
            "third": {str(setting): row.to_dict() for setting, row in self.third.items()},
            "matrix": {name: dict(row) for name, row in self.matrix.items()},
            "shares": {name: dict(kept) for name, kept in self.shares.items()},
            "functions": list(self.functions),
            "meant": list(self.meant),
            "forward_mode": {name: row.to_dict() for name, row in self.forward_mode.items()},
            "torch_func": {name: row.to_dict() for name, row in self.torch_func.items()},
            "cut_down": self.cut_down,
            "resolution": self.resolution,
            "resolution_of_one": self.resolution_of_one,
        }

    def __str__(self):
        return text_of(self)

    __repr__ = __str__

    def _repr_html_(self):
        """The same text as HTML, in the colours of the notebook's theme."""
        return f'<pre style="color: inherit; background: none">{html.escape(str(self))}</pre>'


def diagnose(
    fn: Callable[..., Any],
    *inputs: Any,
    order: int = 2,
    rtol: float | None = None,
    atol: float = 0.0,
    ignore: Iterable[Ignored] = (),
    timeout: float | None = 60.0,
) -> Diagnosis:
    """Check the first and second derivative of fn, and explain what is wrong.

    Args:
        fn: callable that returns a tensor or a container of tensors: `Function.apply`, a lambda, an
            `nn.Module`. The parameters of a module, and of small ones that fn holds, count as
            inputs.
        *inputs: what to call fn with. The tensors that require grad, also those in lists, are what
            fn is differentiated by. They may have any shape, be real or complex, dense or sparse.
            They are converted to float64 (complex128) where fn allows it, and stay on their device.
        order: 2, or 3 to check the third derivative also.
        rtol: the relative error of fn, where fn is no closed formula: 0.02 for a solver that stops
            at 1e-2, or for 16 bits. None: fn is as exact as its dtype. Of errors
            that were planted in every element, 0.11 % is found with 0.001, and 2.2 % with 0.02; in
            one of six elements, 0.3 % and 10 %.
        atol: the absolute error of fn, in the units of the numbers that are shown.
        ignore: Functions whose gradient is meant as it is, such as a surrogate, as classes or by
            name ("Name" or "module.Name"), and registered operators, themselves or by name
            ("my::name"). That such a gradient is not the derivative of forward is then no error.
            The second derivative is still judged, as the derivative of what backward returns.
        timeout: seconds after which the verdict is "not_checked" and the report says what was
            running; None for no limit. It holds where fn catches every error, too. A single call of
            compiled code is not interrupted.

    Returns:
        `Diagnosis`. An error of fn or of the inputs is a finding and is not raised, except what is
        no `Exception` (SystemExit, KeyboardInterrupt). Gradients, random state and the tensors that
        fn holds (buffers, parameters, what it closes over) are put back; a Python object that fn
        changes is not.

    Raises:
        TypeError, ValueError: `order`, `rtol`, `atol`, `ignore` or `timeout` has a type or a value
            that is not allowed. fn has not been called then.

    Inputs of more than 20,000 elements are cut down where fn takes smaller ones; else only 512 of
    their elements are moved, unless fn is a module, or an input symmetric. The report says so: an
    error that shows only in large inputs, or in the other elements, is not seen then.

    A part of an output, or of a derivative, that is about 100,000 times smaller than the largest
    part is lost beside it: hand such parts over by themselves. Where something is wrong with a
    symmetric matrix, it is moved once more such that it stays symmetric, which fn may rely on.
    """
    asked(order=order, rtol=rtol, atol=atol, timeout=timeout)
    meant = listed(ignore)
    name, known = _name_of(written(fn)), list[Evidence]()
    try:
        return _diagnosed(name, fn, inputs, order, rtol, atol, meant, timeout, known)
    except NotChecked as reason:
        return _not_checked(name, reason)
    except TookTooLong as late:
        running = Phrase(", while this was running: {}", late.running) if late.running else ""
        ended = NotChecked("took_too_long", timeout, running)
        with unless_gone():  # raised by methods of fn or of inputs
            if known and known[-1].bad:
                return _so_far(name, ended, known[-1])
        return _not_checked(name, ended)
    except Exception as error:  # raised by methods of fn or of inputs, which may raise anything
        ours, theirs = own(error), NotChecked("beyond_diagnose", described(error))
        return _not_checked(name, NotChecked(TOOL_FAILED, ours) if ours else theirs)


def _so_far(name, reason, evidence):
    """The diagnosis of what was measured, and found wrong, before the time was over."""
    found = _answer(name, evidence)
    said = Phrase("{} What stands here was seen before.", reason.message)
    late = Finding(reason.code, said, reason.lesson)
    return replace(found, findings=[late, *found.findings])


def _not_checked(name, reason):
    finding = Finding(reason.code, reason.message, reason.lesson)
    saved = [saved for function in reason.functions for saved in function.saved]
    return Diagnosis(name, Verdict.NOT_CHECKED, [finding], saved=saved)


def _name_of(fn: object) -> str:
    fn = as_it_was_written(fn)
    operator = operator_named(fn)
    if operator is not None:
        return operator
    for named in ("__self__.__name__", "__name__"):
        with suppress(Exception):  # raised by the object's own attributes
            name = attrgetter(named)(fn)
            if isinstance(name, str):
                return name
    return type(fn).__name__


def _diagnosed(name, fn, inputs, order, rtol, atol, ignore, timeout, known):
    with undisturbed(fn) as met, no_endless_recursion(), limited(timeout):
        with as_written():
            asked = partial(seen, order=order, rtol=rtol, atol=atol, ignore=ignore, known=known)
            (evidence, how, matrix), change = _seen(written(fn), inputs, asked)
        called = compiled(fn, inputs)
    evidence = replace(
        evidence, compiled=called, warnings=tuple(met.warnings), edited=tuple(met.edited)
    )
    return _answer(name, evidence, recipe=how, matrix=matrix, cut_down=change)


def _seen(fn, inputs, asked):
    """Return what `asked` finds, and how large inputs were changed for it, "" if they were not.

    Large inputs are cut down where fn takes smaller ones; else only a few elements are moved.
    """
    given, tree = tree_flatten(inputs)
    if size_of(given) <= LARGE_INPUTS:
        return asked(fn, inputs), ""

    @wraps(fn)
    def of_leaves(*leaves):
        return fn(*tree_unflatten(leaves, tree))

    for smaller in cut_down(given):
        if runs(of_leaves, smaller):
            with suppress(NotChecked):  # all of the inputs may be checked nevertheless
                change = f"cut down {change_of(given, smaller)}"
                return asked(fn, tree_unflatten(smaller, tree)), change
    symmetric = any(isinstance(x, Tensor) and is_symmetric(x) for x in given)  # has to stay so
    if not symmetric and not isinstance(fn, torch.nn.Module):
        few, parts, words = few_moved(of_leaves, given)
        if runs(few, parts):
            with suppress(NotChecked):
                return asked(few, tuple(parts)), f"moved: {words}"
    return asked(fn, inputs), ""


def _answer(name, evidence, **more):
    """The `Diagnosis` that the evidence gives, with `more` of its fields."""
    verdict, findings = concluded(evidence)
    return Diagnosis(
        name,
        verdict,
        findings,
        first=evidence.measured.first,
        settings=evidence.second,
        third=evidence.third,
        saved=[saved for function in evidence.functions for saved in function.saved],
        forward_mode=evidence.forward_mode,
        torch_func=evidence.torch_func,
        functions=tuple(dict.fromkeys(f.name for f in evidence.functions)),
        shares={} if evidence.compiled else evidence.shares,  # of fn as written
        meant=() if verdict in FIRST_VERDICTS else evidence.meant,
        resolution=evidence.measured.resolution,
        resolution_of_one=evidence.measured.resolution_of_one,
        **more,
    )


def assert_double_backward(
    fn: Callable[..., Any],
    *inputs: Any,
    order: int = 2,
    rtol: float | None = None,
    atol: float = 0.0,
    ignore: Iterable[Ignored] = (),
    timeout: float | None = 60.0,
) -> None:
    """Raise AssertionError with the text of `diagnose` unless its verdict is "supported".

    All arguments are those of `diagnose`, whose TypeError and ValueError are raised, too.
    """
    __tracebackhide__ = True  # pytest then shows the test and the whole text
    diagnosis = diagnose(
        fn, *inputs, order=order, rtol=rtol, atol=atol, ignore=ignore, timeout=timeout
    )
    if not diagnosis.ok:
        raise AssertionError(str(diagnosis))
