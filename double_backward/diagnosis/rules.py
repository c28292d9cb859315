"""The rules of `diagnose`: one function for each finding.

A rule gets the `Evidence` and returns its message, or None where it does not apply. The function's
name is the code of the finding. `cause=True` says that it explains a wrong second derivative. The
order in this file is the order in the report, and nothing else.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path as Path_
from typing import Any, TypeVar

import torch

from double_backward._torch import EDITED
from double_backward.check import Outcome
from double_backward.steps import Step, told

from .evidence import Evidence
from .functions import WRONG, Custom, Kind, Saved
from .habits import SAME, SMALL
from .judge import TOLERANCE
from .lifetime import Lifetime
from .linearity import FACTORS, Bend
from .not_finite import Broken
from .settings import Setting
from .verdict import Verdict, verdict_of
from .ways import WRONG_NUMBER


@dataclass(frozen=True)
class Finding:
    """One thing to know or to change: a word to search for, a message, the lesson's number."""

    code: str
    message: str
    lesson: int
    cause: bool = False  # it explains why the second derivative is wrong or raises
    severity: str = "error"  # or "warning": right here, and may be wrong elsewhere; or "note"
    function: str = ""  # the class of the Function it is about; "" where it is about fn
    file: str = ""  # and where that is written
    line: int = 0

    @property
    def where(self) -> str:
        """ "Square, package/module.py:12", or ""."""
        name = f"{_short(self.file)}:{self.line}" if self.file else ""
        return ", ".join(filter(None, [self.function, name]))

    def to_dict(self) -> dict[str, object]:
        """Plain values, for JSON."""
        return asdict(self)


# What to write where a derivative is a call of something that is not torch.
BY_ANOTHER_CALL = (
    "What torch cannot compute (a simulator, a solver) needs a second Function, which backward "
    "applies to the saved input. Its own backward calls the simulator twice more, at x + h v and "
    "x - h v with a small step h: their difference over 2 h is the Hessian times a vector v."
)
AGAIN = "Compute it in backward from a saved input, in torch, or return this very tensor, too."
ERROR, WARNING, NOTE = "error", "warning", "note"
Applies = TypeVar("Applies", bound=Callable[..., str | None])
FIRST = Verdict.FIRST_DERIVATIVE_WRONG


@dataclass(frozen=True)
class Rule:
    """One function below, and what follows where it speaks.

    Attributes:
        applies: the function.
        lesson: its number.
        cause: it explains why a second derivative is wrong, or raises; or a function of the
            evidence, as severity, verdict and minor.
        explains: where that is the verdict, it comes before all other causes.
        severity: "error", "warning" or "note".
        verdict: what it says against fn by itself, whatever the numbers say; None: nothing.
        minor: that counts only where all else is right.
        last: the function gets the `Conclusion` of the others instead.
    """

    applies: Callable[[Any], str | None]
    lesson: int
    cause: Any
    explains: Verdict | None
    severity: Any
    verdict: Any
    minor: Any
    last: bool


RULES: dict[str, Rule] = {}


def rule(
    lesson: int,
    cause: Any = False,
    explains: Verdict | None = None,
    severity: Any = ERROR,
    verdict: Any = None,
    minor: Any = False,
    last: bool = False,
) -> Callable[[Applies], Applies]:
    """Register a function as the rule for the finding of its name; see `Rule`."""

    def register(applies):
        about = cause, explains, severity, verdict, minor, last
        RULES[applies.__name__] = Rule(applies, lesson, *about)
        return applies

    return register


@dataclass(frozen=True)
class Conclusion:
    """What the rules have said, for those that speak where no other does."""

    evidence: Evidence
    verdict: Verdict
    explained: bool  # a cause is known


def concluded(evidence: Evidence) -> tuple[Verdict, list[Finding]]:
    """The verdict, and the findings in the order of the rules."""
    ordinary = {c: r for c, r in RULES.items() if not r.last}
    said = {code: rule.applies(evidence) for code, rule in ordinary.items()}
    spoke = [RULES[code] for code, text in said.items() if text]
    convicted: dict[bool, list[Verdict]] = {False: [], True: []}
    for rule in spoke:
        if verdict := _here(rule.verdict, evidence):
            convicted[_here(rule.minor, evidence)].append(verdict)
    verdict = verdict_of(evidence, convicted[False], minor=convicted[True])
    explained = any(_here(rule.cause, evidence) for rule in spoke)
    so_far = Conclusion(evidence, verdict, explained)
    said |= {code: rule.applies(so_far) for code, rule in RULES.items() if rule.last}
    found = [_finding(code, said[code], evidence) for code in RULES if said[code]]
    return verdict, _ordered(found, verdict)


def _ordered(findings, verdict):
    """In the order of the rules; of the causes, those first that explain the verdict itself, and
    those last that explain something less grave."""

    def rank(finding):
        explains = RULES[finding.code].explains
        return 0 if explains is verdict else 1 if explains is None else 2

    causes = iter(sorted((f for f in findings if f.cause), key=rank))
    return [next(causes) if f.cause else f for f in findings]


def _here(value, e):
    return value(e) if callable(value) else value


def _finding(code, text, evidence):
    rule, about = RULES[code], _about(code, evidence)
    severity, cause = _here(rule.severity, evidence), _here(rule.cause, evidence)
    if code == "compiled_region":
        region = evidence.compiled.regions[0]
        where = region.name, region.file or "", region.line
        return Finding(code, text, rule.lesson, cause, severity, *where)
    if about is None:
        return Finding(code, text, rule.lesson, cause, severity)
    file, line = (about.place.file, about.place.line) if about.place else ("", 0)
    return Finding(code, text, rule.lesson, cause, severity, about.name, file, line)


def _about(code, e):
    """The first Function that a finding is about, None where it is about the whole of fn."""
    blamed = {on_ctx: [id(s) for s in e.blamed(on_ctx)] for on_ctx in (False, True)}
    kept = {"input_on_ctx": Kind.INPUT, "output_on_ctx": Kind.OUTPUT}
    concerns = {
        "once_differentiable": lambda f: f.once,
        "extra_output_gradient_ignored": lambda f: f.extras,
        "extra_output_gradient_wrong": lambda f: f.extras,
        "input_copy_saved": lambda f: any(id(s) in blamed[False] for s in f.saved),
        "intermediate_saved": lambda f: any(id(s) in blamed[False] for s in f.saved),
        "intermediate_on_ctx": lambda f: any(id(s) in blamed[True] for s in f.saved),
        "computed_outside_torch": lambda f: any(s.outside for s in f.saved),
        "argument_without_graph": lambda f: f.handed,
        "state_outside_ctx": lambda f: f.hidden,
        "second_function_gradient": lambda f: f.seconds,
        "grad_out_path_cut": lambda f: f.by_grad_out in WRONG,
        "untracked_backward": lambda f: f.cut,
        "path_counted_twice": lambda f: f.counts_twice,
        "gradients_by_convention": lambda f: f in e.by_convention,
        "in_place_without_mark_dirty": lambda f: any(s.edited for s in f.saved),
        "memory_leak": lambda f: any(s.circular for s in f.saved),
    }
    if code in kept:
        found = [f for f in e.functions if any(s.on_ctx and s.kind is kept[code] for s in f.saved)]
    elif code in concerns:
        found = [f for f in e.functions if concerns[code](f)]
        if code in ("grad_out_path_cut", "untracked_backward"):  # by the experiment alone
            found = found or [f for f in e.functions if f.untracked_calls]
        if code == "gradients_by_convention" and len(found) > 1:  # it may be any of them
            return None
        if code == "in_place_without_mark_dirty" and len(e.functions) == 1:
            found = list(e.functions)
    elif _here(RULES[code].severity, e) != ERROR:
        found = []
    else:
        found = [f for f in e.functions if f.suspect] or list(e.functions)
        found = found if len(found) == 1 else []
    return found[0] if found else None


def _short(file):
    try:
        return Path_(file).relative_to(Path_.cwd()).as_posix()
    except (ValueError, OSError):
        in_cell = "ipykernel_" in file or file.startswith("<ipython")
        return "<notebook>" if in_cell else "/".join(Path_(file).parts[-2:])


# What comes of compiling.


@rule(lesson=4, cause=True)
def compiled_region(e: Evidence) -> str | None:
    return e.compiled.said if e.compiled else None


# The first derivative.


@rule(lesson=3, verdict=FIRST)
def mutates_grad_out(e: Evidence) -> str | None:
    if not e.habits.mutates:
        return None
    return "backward writes into grad_out, which others read too: make a new tensor, grad_out * 3."


def _spoilt(e):
    silently = e.first_is_wrong or not e.habits.only_once
    return FIRST if silently else Verdict.RAISES


def _spoils(e):
    """Not where all is as wrong without writing."""
    return not e.habits.wrong_besides or _error_says(e, EDITED)


@rule(lesson=3, cause=_spoils, verdict=_spoilt)
def mutates_saved(e: Evidence) -> str | None:
    if not e.habits.mutates_saved:
        return None
    refused = _error_says(e, "a leaf Variable that requires grad")
    leaf = "; torch refuses that for a leaf" if refused else ""
    return (
        "backward writes into a tensor that forward saved, which others read too, the next "
        f"backward among them{leaf}. Make a new tensor: x * x, not x.mul_(x)."
    )


@rule(lesson=1, cause=True, explains=Verdict.RAISES)
def backward_works_once(e: Evidence) -> str | None:
    if not e.habits.only_once or e.habits.mutates_saved or (e.undone and e.undone.right):
        return None
    return (
        "The first call of backward uses up what it needs: a second one through the same graph, "
        f"with retain_graph=True, raises: {e.habits.only_once}"
    )


@rule(lesson=1, verdict=FIRST)
def backward_not_linear(e: Evidence) -> str | None:
    if not e.habits.not_linear or e.meant:
        return None
    seen = e.habits.not_linear
    if seen == SAME:
        return (
            "backward ignores grad_out: for three times as large a one it returns the same. "
            "Multiply what it returns by grad_out, unless nothing ever follows fn."
        )
    if seen not in (WRONG_NUMBER, SMALL):
        return f"For another grad_out, larger, smaller or negative, backward raises: {seen}"
    return (
        f"backward is not linear in grad_out: {_bent(e)} Return grad_out times something that "
        "grad_out does not change."
    )


def _bent(e):
    """In what way it is not linear, as it was measured."""
    factor = f"{FACTORS[e.measured.dtype][1]:,.0f}"
    said = {
        Bend.ADDS: "for a grad_out of 0 it does not return 0, so it adds something.",
        Bend.SQUARES: "for one twice as large it returns four times as much, or some elements of "
        "that, so it multiplies gradients with one another.",
        Bend.SIGN: "for the negative one it does not return the negative, so it looks at its sign "
        "(abs, a clamp at 0, a comparison).",
        Bend.CLIPS: f"it is for small ones, and returns less for one that is {factor} times "
        "larger, so it clips.",
        Bend.SMALL: f"it is for larger ones, and not for one that is {factor} times smaller, so it "
        "adds something, rounds, or stops at an absolute tolerance, as a solver does: make that "
        "relative.",
    }
    return said.get(e.habits.bend, "for a multiple of it, it does not return that multiple.")


@rule(lesson=1, cause=True, verdict=FIRST, minor=lambda e: not e.first_is_wrong)
def backward_not_repeatable(e: Evidence) -> str | None:
    if not e.habits.not_repeatable or (e.meant and not e.habits.changes_ctx):
        return None
    changed = _listed(f"ctx.{name}" for name in e.habits.changes_ctx)
    given = e.habits.not_repeatable.replace("a wrong number", "another number")
    why = f"it changes {changed}" if changed else "it draws random numbers, or changes what it uses"
    return (
        f"Called again through the same graph, backward gives {given}: {why}. "
        "To differentiate twice, autograd calls backward more than once. Leave what forward kept "
        "as it is, and compute the same each time."
    )


@rule(lesson=4, verdict=FIRST, minor=True)
def state_between_calls(e: Evidence) -> str | None:
    if not e.habits.second_call:
        return None
    return (
        f"If fn is called again before backward: {e.habits.second_call}. Something is kept outside "
        "ctx, and the second call overwrites it. Use save_for_backward."
    )


@rule(lesson=1, verdict=FIRST, minor=True)
def leaf_without_gradient(e: Evidence) -> str | None:
    if not e.forgotten:
        return None
    return (
        f"forward uses a tensor that requires grad and is no argument of apply, "
        f"{_several(e.forgotten)}: the output changes with it, and that part of its gradient is "
        "missing, often without a message. Hand it to apply."
    )


@rule(lesson=1)
def returns_none(e: Evidence) -> str | None:
    if not e.first_is_wrong or not e.habits.no_gradient or e.meant:
        return None
    return (
        f"backward returns None for {e.habits.no_gradient}, but the output depends on it: "
        ".backward() leaves .grad at None without a message. Return its gradient."
    )


@rule(lesson=1)
def first_derivative_differs(e: Evidence) -> str | None:
    habits = e.habits
    habit = habits.mutates or habits.mutates_saved or habits.not_linear or habits.not_repeatable
    explained = habit and not habits.wrong_besides
    if not e.first_is_wrong or explained or habits.no_gradient or _situation(e, "linked"):
        return None
    if e.meant:
        return None
    first = e.measured.first
    size = max(abs(first.expected), abs(first.got))
    off = abs(first.expected - first.got) / size if size else 0.0
    if 0 < off <= 0.1:
        return (
            f"The first derivative is off by {_percent(off)}. If fn solves to about that, "
            f"pass rtol={_rounded_up(2 * off)}; if not, backward is wrong."
        )
    names = _listed(f.name for f in e.not_meant if f.first is not Outcome.RIGHT)
    meant = f"; pass ignore=[{names}] then" if names else ""
    return (
        "The first derivative is not that of forward. If you meant that (straight-through, "
        "gradient reversal, surrogate, a solver stopped early), gradcheck fails by "
        f"design{meant}; if not, backward is wrong."
    )


def _rounded_up(number):
    """One digit, not below the number: 0.026 becomes 0.03."""
    exponent = math.floor(math.log10(number))
    return f"{math.ceil(number / 10**exponent) * 10**exponent:.1g}"


@rule(lesson=1, severity=NOTE)
def meant(e: Evidence) -> str | None:
    if not e.meant:
        return None
    open_ = _listed(e.not_apart)
    others = f" Whether that of {open_} is right cannot be told here: diagnose it by itself."
    return (
        f"What backward of {_listed(e.meant)} returns is meant (ignore=): its first derivative was "
        "not judged, and its second one as the derivative of what backward returns."
        f"{others * bool(open_)}"
    )


@rule(lesson=1, severity=lambda e: ERROR if e.inexact else NOTE)
def inexact_first_derivative(e: Evidence) -> str | None:
    first, exact = e.measured.first, TOLERANCE[e.measured.dtype]
    said = e.measured.dtype is not torch.float64 and not e.inexact  # by another finding
    said = said or e.measured.dtype is torch.bfloat16
    if said or first.outcome is not Outcome.RIGHT or first.relative <= exact:
        return None
    told = (
        f"The first derivative is off by up to {first.relative:.2%}, as where fn iterates, or has "
        "a rounded or tabulated formula, or a lower precision inside. "
    )
    if e.inexact:
        told += f"If fn is meant to be so inexact, pass rtol={_rounded_up(2 * first.relative)}. "
    return told + (
        f"So the second derivative was judged to {_percent(e.measured.tolerance)} only; a more "
        "exact fn tells more."
    )


def _percent(part):
    """Two digits: "12%", "1.2%", "0.03%"."""
    return f"{float(f'{100 * part:.2g}'):g}%"


# Causes of a wrong second derivative.


@rule(lesson=4, cause=True, verdict=Verdict.SILENTLY_WRONG)
def changed_by_create_graph(e: Evidence) -> str | None:
    if not e.measured.changed_by_create_graph:
        return None
    steps = [step for f in e.functions for step in f.untracked_calls]
    fact = (
        "With create_graph=True even the first derivative is another one: backward does something "
        "else, or nothing, where autograd records it"
    )
    if not any(step.kind == "backward" for step in steps):
        return f"{fact}. Let it compute the same either way."
    tried = [*e.undone.together] if e.undone else []
    return (
        f"{fact}{_seen(tried or steps)}. What .backward() leaves in .grad, and of which tensors, "
        "is then another thing: use what torch.autograd.grad(..., create_graph=True) returns, of "
        "tensors that have their graph."
    )


@rule(lesson=4, cause=True, verdict=Verdict.ONCE_DIFFERENTIABLE)
def once_differentiable(e: Evidence) -> str | None:
    guarded = [f for f in e.functions if f.once]
    if not guarded:
        return None
    rows = e.measured.second.items()
    leaks = [setting for setting, row in rows if row.outcome is Outcome.WRONG]
    text = (
        "backward is declared @once_differentiable. That raises only where grad_out itself "
        "requires grad"
    )
    if leaks:
        text += f"; here a wrong number comes without a message: {', '.join(leaks)}"
    if all(f.sound for f in guarded):
        return (
            f"{text}. What it guards is torch on saved inputs and can be differentiated: delete "
            "the decorator, and diagnose again."
        )
    if all(f.sound or EDITED in f.refused for f in guarded):
        return (
            f"{text}. What it guards changes a tensor in place that autograd keeps (+=, *=, [...] "
            "=, or a name with an underscore at its end): make a new tensor there, delete the "
            "decorator, and diagnose again."
        )
    return (
        f"{text}. Do not delete the decorator. Write a Function for backward, with a backward of "
        "its own."
    )


@rule(lesson=3, cause=True)
def extra_output_gradient_ignored(e: Evidence) -> str | None:
    ignored = [extra.title for extra in e.extras if extra.ignored]
    if not (e.wrong and ignored):
        return None
    return (
        f"forward returns and saves what backward then ignores the gradient of: "
        f"{_listed(ignored)}. That gradient arrives in the second backward: add it, times the "
        f"derivative of {ignored[0]}."
    )


@rule(lesson=3, cause=True)
def extra_output_gradient_wrong(e: Evidence) -> str | None:
    wrong = [extra.title for extra in e.extras if not extra.ignored]
    if not (e.wrong and wrong):
        return None
    return (
        f"What backward adds for the gradient of an extra output is wrong: {_listed(wrong)}. It "
        "should be that gradient times the derivative of that output."
    )


@rule(lesson=1, cause=True)
def input_copy_saved(e: Evidence) -> str | None:
    kept = [s for s in e.blamed(on_ctx=False) if s.repeats is Kind.INPUT]
    if not (e.wrong and kept):
        return None
    return (
        "forward saves a copy or a view of an input (clone, reshape, clamp; contiguous or .to "
        "where they change something; autocast) or the input detached, and what is made there"
        f"{_which(kept)} has no graph. Convert the input before apply, and save what apply gets."
    )


@rule(lesson=1, cause=True)
def argument_without_graph(e: Evidence) -> str | None:
    handed = [one for f in e.functions for one in f.handed]
    if not (e.wrong and handed):
        return None
    objects = [one.name for one in handed if one.is_object]
    if objects:
        return (
            f"{_listed(objects)}, which apply is handed, computes with something that is made of "
            "the input, without a graph of it. Hand that over as a tensor with its graph, and "
            "return its gradient."
        )
    return (
        f"{_listed(one.name for one in handed)} changes with the input, and comes to apply without "
        "a graph: whoever calls it detached it, or made it under no_grad or in another Function. "
        "Hand it over with its graph, and return its gradient."
    )


@rule(lesson=3, cause=True)
def intermediate_saved(e: Evidence) -> str | None:
    kept = [s for s in _used(e, on_ctx=False) if s.repeats is not Kind.INPUT]
    kept = [s for s in kept if not s.outside]
    if not kept:
        return None
    return (
        f"forward saves a tensor it made itself{_which(kept)}, where autograd does not record: a "
        f"constant to the second backward. {_cure(e, kept)}"
    )


@rule(lesson=4, cause=True)
def intermediate_on_ctx(e: Evidence) -> str | None:
    kept = [s for s in _used(e, on_ctx=True) if not s.outside]
    if not kept:
        return None
    return (
        "Made in forward, where nothing is recorded, so constants to the second backward: "
        f"{_attributes(kept)}. {_cure(e, kept)}"
    )


@rule(lesson=5, cause=True)
def computed_outside_torch(e: Evidence) -> str | None:
    kept = [s for s in e.blamed(on_ctx=False) + e.blamed(on_ctx=True) if s.outside]
    if not (e.wrong and kept):
        return None
    return (
        f"forward keeps numbers that come from outside torch ({_listed(s.title for s in kept)}), "
        "where no graph leads on. Compute them in backward, in torch, from a saved input. "
        f"{BY_ANOTHER_CALL}"
    )


@rule(lesson=4, cause=True)
def state_outside_ctx(e: Evidence) -> str | None:
    spoilt = e.habits.edits_input or e.habits.not_repeatable  # which explains it
    if not (e.wrong and any(f.hidden for f in e.functions)) or spoilt:
        return None
    return (
        "backward uses something that forward computes and leaves outside ctx: a constant to "
        "autograd, which another call may overwrite. Save the input, and compute it in backward."
    )


@rule(lesson=5, cause=True)
def second_function_gradient(e: Evidence) -> str | None:
    known = {f.name for f in e.functions}  # one that fn calls, too, is wrong for fn already
    seconds = [s for f in e.functions for s in f.seconds]
    seconds = [s for s in seconds if not (e.first_is_wrong and s.name in known)]
    if not (e.wrong and seconds):
        return None
    return (
        "backward applies another Function, and the backward of that is incomplete: "
        f"{'; '.join(dict.fromkeys(map(_returned, seconds)))}. Derive it for each of its inputs."
    )


def _returned(second):
    parts = {"None": second.none, "0": second.zero, "a wrong gradient": second.wrong}
    said = [f"{what} for {_listed(names)}" for what, names in parts.items() if names]
    return f"{second.name} returns {', '.join(said)}"


@rule(lesson=5, cause=True)
def grad_out_path_cut(e: Evidence) -> str | None:
    cut = [f for f in e.functions if f.by_grad_out in WRONG and not f.seconds]
    known = cut or _mended(e, "by_grad_out")
    if not (e.wrong and known) or (e.habits.not_linear and not e.meant) or e.habits.not_repeatable:
        return None
    if e.measured.changed_by_create_graph:
        return None
    lost = cut and all(f.checked.by_grad_out.got == 0 for f in cut)
    how = "has no graph to grad_out" if lost else "is differentiated wrongly by grad_out"
    steps = _steps(e, cut, "by_grad_out")
    if _by_guard(cut, steps) or (not steps and _in_place(e)):
        return None
    return (
        f"What backward returns {how}{_seen(steps)}. Anything non-linear that follows needs that: "
        "compute with grad_out itself, in torch."
    )


@rule(lesson=5, cause=True)
def untracked_backward(e: Evidence) -> str | None:
    lost = [f for f in e.functions if f.cut and not f.seconds]
    lost = [f for f in lost if f.untracked_calls or not f.refused]
    if e.measured.changed_by_create_graph:
        return None
    seen = any(f.untracked_calls for f in lost)
    if not (e.wrong and (lost or _mended(e, "by_input"))) or (lost and _in_place(e) and not seen):
        return None
    steps = _steps(e, lost, "by_input")
    if _by_guard(lost, steps):
        return None
    names = [name for f in lost for name in f.cut] or ["what it is given"]
    if e.habits.mutates_saved and all(step.kind == "data" for step in steps):
        return None  # x.data.mul_(2) is how it writes
    fact = f"backward computes with {_listed(names)} where autograd cannot follow{_seen(steps)}."
    if steps and e.undone and _mended(e, "by_input"):
        all_of_them = e.undone.right and set(e.undone.together) <= set(steps)
        what = "the numbers are" if all_of_them else "this part is"
        return f"{fact} Without that, {what} right."
    engine = f" {BY_ANOTHER_CALL}" if any(step.kind == "numpy" for step in steps) else ""
    return (
        f"{fact} Write it in torch operations, or as a Function with a complete backward.{engine}"
    )


@rule(lesson=5, cause=True)
def untracked_forward(e: Evidence) -> str | None:
    if e.functions or not (e.wrong and e.undone and e.undone.right):
        return None
    return (
        f"fn computes with its input where autograd does not record{_seen([*e.undone.together])}: "
        "the first derivative may be right without that part, the second is not. Without it, all "
        "is right."
    )


def _in_place(e):
    """Something is another number in a second call, or after a write: that explains what is not
    followed where no step is seen."""
    habits = e.habits
    spoilt = habits.edits_input or habits.mutates or habits.mutates_saved or habits.not_repeatable
    edited = any(s.edited for f in e.functions for s in f.saved)
    return spoilt or edited or _error_says(e, EDITED)


def _by_guard(cut, steps):
    """The guard cuts it, as once_differentiable says, and nothing else is seen."""
    return bool(cut) and all(f.once for f in cut) and not any(step.where for step in steps)


def _mended(e, part):
    """Without steps of backward this part, which is silently wrong, is right."""
    silently = any(row.outcome is Outcome.WRONG for row in e.measured.rows)
    return silently and bool(e.functions) and e.undone is not None and part in e.undone.mended


@rule(lesson=5, cause=True)
def float32_differs(e: Evidence) -> str | None:
    if not e.differs_in_float32:
        return None
    return (
        "In float64 the second derivative is right; in float32, as you gave it, autograd gives "
        "another one, and the rows show that. fn does something else there: another kernel, NumPy."
    )


@rule(lesson=5, cause=True)
def path_counted_twice(e: Evidence) -> str | None:
    blamed = any(f.extras for f in e.functions)
    alone, after = (e.measured.second[s].outcome for s in (Setting.ALONE, Setting.AFTER))
    only_after = alone is not Outcome.WRONG and after is Outcome.WRONG
    twice = any(f.counts_twice for f in e.functions)
    if not twice or blamed or not only_after or e.habits.not_repeatable:
        return None
    return (
        "Wrong with a graph after it: where grad_out depends on x, one path counts twice, as "
        "autograd.grad inside backward does with tensors that are connected. Under "
        "torch.enable_grad(), use x.view_as(x).requires_grad_() there, and the same of grad_out."
    )


@rule(lesson=5, cause=True)
def gradients_by_convention(e: Evidence) -> str | None:
    if not (e.wrong and e.by_convention):
        return None
    names = _listed(f.name for f in e.by_convention)
    return (
        f"By itself, backward is not the derivative of forward in {names}, and all of fn is right "
        "at first order: what it gives does not count here, or gradients are handed over in a "
        "convention of their own, such as those by a step on a group. What such a backward "
        "computes in torch, autograd differentiates as a formula of the numbers, which "
        "does not follow that convention: apply Functions that do."
    )


@rule(lesson=5, cause=True, severity=lambda e: ERROR if e.wrong else WARNING)
def in_place_without_mark_dirty(e: Evidence) -> str | None:
    edited = e.habits.edits_input or any(s.edited for f in e.functions for s in f.saved)
    if not edited:
        return None
    if not e.wrong:
        return (
            "forward changes an input in place and does not say so. By itself fn is right, but "
            "whoever uses that input afterwards, as in fn(x) + x**2, gets the changed one, "
            "without its graph: make a new tensor, or return it and call ctx.mark_dirty(x)."
        )
    return (
        "forward changes an input in place and does not say so: to autograd it is still what it "
        "was before. Make a new tensor, or return it and call ctx.mark_dirty(x)."
    )


@rule(lesson=5, cause=True)
def no_derivative_formula(e: Evidence) -> str | None:
    warned = any("an autograd kernel was not" in text for text in e.warnings)
    if not (warned and (e.wrong or e.first_is_wrong)) and not _error_says(
        e, "no autograd formula was", "derivative for"
    ):
        return None
    return (
        "An operation in the first derivative has no derivative that autograd knows. Register one "
        "(register_autograd), use other operations, or write a Function with its own backward."
    )


@rule(lesson=5, cause=True)
def numpy_in_backward(e: Evidence) -> str | None:
    refusal = "Can't call numpy()"
    if not _error_says(e, refusal):
        if not any(refusal in f.refused for f in e.functions):
            return None
        return (
            "backward hands a tensor to NumPy, where no graph leads. Put the NumPy code into a "
            "Function with its own backward."
        )
    return (
        "backward hands a tensor to NumPy. Do not follow the advice to detach: that turns the "
        "error into a wrong number. Put the NumPy code into a Function with its own backward."
    )


@rule(lesson=5, cause=True, verdict=lambda e: FIRST if e.first_is_wrong else None)
def inputs_of_one_another(e: Evidence) -> str | None:
    if not _situation(e, "linked"):
        return None
    return (
        "The numbers are for inputs of which one is made from another; for inputs by themselves "
        "all is right. autograd.grad inside backward then counts a path twice: under "
        "torch.enable_grad(), use x.view_as(x) there for each of them, and the same of grad_out."
    )


@rule(lesson=5, cause=True)
def sign_of_grad_out(e: Evidence) -> str | None:
    if not _situation(e, "negative") or e.meant:
        return None
    return (
        "The numbers are for a negative grad_out, or a negative gradient in the second backward; "
        "for positive ones all is right. A backward must not look at the sign of what it gets "
        "(abs, clamp, a root, a comparison)."
    )


@rule(lesson=1, cause=True)
def input_frozen(e: Evidence) -> str | None:
    if not _situation(e, "frozen"):
        return None
    name = e.measured.situation.name if e.measured.situation else ""
    return (
        f"The numbers are for {name} with requires_grad=False; where all "
        "inputs are differentiated it is right. A backward looks at needs_input_grad, its own or "
        "that of a second Function, or meets a None: look there."
    )


def _situation(e, kind):
    return e.measured.situation is not None and e.measured.situation.kind == kind


@rule(lesson=5, cause=True)
def third_order_not_tracked(e: Evidence) -> str | None:
    rows = e.measured.third.values()
    late = any(row.outcome in (Outcome.WRONG, Outcome.RAISES) for row in rows)
    early = any(row.outcome is not Outcome.RIGHT for row in e.measured.second.values())
    if early or not late:
        return None
    if not e.functions:
        return (
            "Right at second order, not at third: in the second derivative of an operation of "
            "torch something is taken for a constant, as in those of layer_norm and batch_norm. "
            "Write it from plain operations (mean, var, sqrt)."
        )
    inner = _listed(name for f in e.functions for name in f.inner)
    return (
        "Right at second order, not at third: the backward of your backward keeps intermediates or "
        f"is not tracked. Diagnose {inner or 'the Function that backward applies'} by itself."
    )


# Causes that an error of torch names. It is found in a row of the report.


def _error_says(e: Evidence, *words: str) -> bool:
    return any(word in text for text in e.errors for word in words)


@rule(lesson=3, cause=True, explains=Verdict.RAISES)
def saved_tensor_edited(e: Evidence) -> str | None:
    told = e.habits.mutates or e.habits.mutates_saved
    if told or not _error_says(e, EDITED):
        return None
    if e.written is None:
        return (
            "A tensor that autograd keeps for the next backward is changed in place (+=, *=, or a "
            "name with an underscore at its end). Make a new tensor there."
        )
    by, lines = e.written.kept_in, e.written.lines
    more = f"; and {len(lines) - 3} more" if len(lines) > 3 else ""
    return (
        f"A tensor that autograd keeps for the next backward{f' ({by})' if by else ''} is changed "
        f"in place afterwards, in {'; '.join(lines[:3])}{more}. Make a new tensor there."
    )


@rule(lesson=3, cause=True, explains=Verdict.RAISES)
def leaf_edited(e: Evidence) -> str | None:
    told = e.habits.mutates or e.habits.mutates_saved
    if told or not _error_says(e, "leaf Variable that requires grad"):
        return None
    return (
        f"A tensor that requires grad and is the result of nothing (a leaf){_where(e)} is written "
        "into in place, which torch refuses where autograd records. If backward makes it, as "
        "new_zeros(..., requires_grad=True) does, leave requires_grad out: what is written there "
        "brings its graph. Else make a new tensor."
    )


@rule(lesson=5, cause=True, explains=Verdict.RAISES)
def graph_freed(e: Evidence) -> str | None:
    freed = _error_says(e, "backward through the graph a second time")
    if not (freed and e.functions) or e.habits.only_once:
        return None
    return (
        "A graph that the second derivative needs is freed before: torch.autograd.grad or "
        f".backward() inside backward{_where(e)} does that. What is returned from there has to "
        "keep its graph: use create_graph=True. With retain_graph=True instead, the error goes and "
        "a wrong number can come."
    )


@rule(lesson=5, cause=True, explains=Verdict.RAISES)
def checkpoint_refuses_grad(e: Evidence) -> str | None:
    if not _error_says(e, "compatible with .grad()"):
        return None
    return (
        "A checkpoint that runs backward inside backward refuses autograd.grad. With .backward() "
        "it runs, but the second derivative is not to be trusted: use_reentrant=False for torch's."
    )


@rule(lesson=5, cause=True, explains=Verdict.RAISES)
def endless_recursion(e: Evidence) -> str | None:
    said = [text for text in e.errors if "endless recursion: " in text]
    if not said:
        return None
    if said[0].endswith("inside one another"):
        return "backward applies Functions whose backwards call it again, without end."
    name = said[0].split()[-1]
    return (
        f"{name} saves its output, whose grad_fn is {name} itself, whatever graph it had inside "
        "forward. backward differentiates it, which calls the same backward again, without end. "
        "Compute it anew in backward, from the saved inputs under torch.enable_grad()."
    )


@rule(lesson=1, cause=True, explains=Verdict.RAISES)
def number_of_gradients(e: Evidence) -> str | None:
    if not _error_says(e, "incorrect number of gradients"):
        return None
    return (
        "backward must return one value for each argument of forward after ctx, in their order, "
        "and None for those that are no tensors; several of them as a tuple, since a list counts "
        "as one."
    )


@rule(lesson=1, cause=True, explains=Verdict.RAISES)
def gradient_for_no_tensor(e: Evidence) -> str | None:
    if not _error_says(e, "gradient different than None at position"):
        return None
    return "backward returns a gradient for an argument that is no tensor. Return None there."


@rule(lesson=1, cause=True, explains=Verdict.RAISES)
def gradient_of_another_kind(e: Evidence) -> str | None:
    if not _error_says(e, "returned an invalid gradient", "expected Variable or None"):
        return None
    return "backward must return tensors, each in the shape of the argument it belongs to, or None."


@rule(lesson=1, cause=True, explains=Verdict.RAISES)
def gradient_can_be_none(e: Evidence) -> str | None:
    if e.habits.only_once or not _error_says(e, "'NoneType'", "NoneType object"):
        return None
    return (
        "backward meets a None: the gradient of an output that is not used, after "
        "ctx.set_materialize_grads(False), or a saved value that is None. Test for it."
    )


@rule(lesson=1, cause=True, explains=Verdict.RAISES)
def view_in_backward(e: Evidence) -> str | None:
    if e.habits.grad_out_layout or not _error_says(e, "view size is not compatible"):
        return None
    return "backward calls .view on a tensor that is not contiguous. Use reshape."


@rule(lesson=1, cause=True, explains=Verdict.RAISES)
def no_backward(e: Evidence) -> str | None:
    if not _error_says(e, "must implement either the backward or vjp"):
        return None
    return "A Function has no backward, fn itself or one that its backward applies. Write it."


@rule(lesson=5, cause=True, explains=Verdict.RAISES)
def out_argument(e: Evidence) -> str | None:
    if not _error_says(e, "functions with out="):
        return None
    return (
        "backward writes a result with out=, which autograd does not follow. Use what it returns."
    )


@rule(lesson=5, last=True)
def raises_in(so_far: Conclusion) -> str | None:
    """Where the error comes from, if no rule knows its cause."""
    e = so_far.evidence
    places = _places(e)
    if not places or so_far.verdict is not Verdict.RAISES or so_far.explained:
        return None
    if e.measured.first.outcome is Outcome.RAISES:
        return f"Already the first derivative raises, in {places}."
    return f"The error comes from {places}."


@rule(lesson=5, last=True)
def cause_unknown(so_far: Conclusion) -> str | None:
    """The last resort."""
    e = so_far.evidence
    if so_far.explained:
        return None
    if so_far.verdict is Verdict.RAISES and not _places(e):
        return "Why is not known. Halve fn to find the operation that raises."
    if so_far.verdict is not Verdict.SILENTLY_WRONG:
        return None
    if e.edited:
        return (
            "Autograd finds another derivative than there is. Nothing that a Function keeps "
            f"explains it; what each call of fn changes may ({_several(e.edited)}): computed from "
            "the inputs, and a constant to autograd."
        )
    if not e.functions:
        return (
            "Autograd finds another derivative than there is, and no custom Function is in fn: an "
            "operation of torch, a compiled region, or something detached. One of them is "
            "torch.sparse_coo_tensor(i, v), which loses the second derivative by v: build it "
            "dense, with index_put, and call .to_sparse()."
        )
    return (
        "Autograd finds another derivative than there is, and why is not known: nothing that is "
        "kept explains it. Halve fn to find the place, then look at that backward step by step."
    )


def _where(e):
    """ ", in backward, line 7,", or ""."""
    places = _places(e)
    return f", in {places}," if places else ""


def _places(e):
    """Where in the reader's code autograd meets an error."""
    rows = [e.measured.first, *e.measured.rows]
    return _listed(row.raised_in for row in rows if row.raised_in)


# What else there is to know.


@rule(lesson=2, cause=lambda e: not e.has_wrong_number, explains=Verdict.NOT_FINITE)
def nan_in_first(e: Evidence) -> str | None:
    if e.measured.first.outcome is not Outcome.NOT_FINITE:
        return None
    if e.broken is None:
        return (
            "The first derivative is not finite here, so neither is the second: often 0/0 or "
            "0 * inf, from a root or a norm at 0, or NaN in the input. Stay away from there."
        )
    return f"The first derivative is not finite here, so neither is the second. {_broken(e.broken)}"


@rule(
    lesson=2,
    cause=lambda e: not e.has_wrong_number,
    explains=Verdict.NOT_FINITE,
    verdict=lambda e: Verdict.NOT_FINITE if e.measured.grad_out_not_finite else None,
)
def nan_in_second(e: Evidence) -> str | None:
    second = any(row.outcome is Outcome.NOT_FINITE for row in e.measured.rows)
    by_grad_out = e.measured.grad_out_not_finite
    if not (second or by_grad_out) or e.measured.first.outcome is Outcome.NOT_FINITE:
        return None
    if by_grad_out and not second:
        said = (
            "What backward returns is finite; differentiated by grad_out it is not. That shows "
            "where grad_out comes from elsewhere, as from weights of a loss that are trained."
        )
        return f"{said} {_broken(e.broken)}" if e.broken else said
    if e.broken is None:
        return (
            "The first derivative is finite, the second is not: often 0 * inf, from a root or a "
            "power at 0, or from torch.where, which differentiates both sides. Stay away from "
            "there."
        )
    return f"The first derivative is finite, the second is not. {_broken(e.broken)}"


def _broken(broken: Broken) -> str:
    where = f", in {broken.where}" if broken.where else ""
    return (
        f"The first to return what is not finite is {broken.name}{where}: of a root, a power or a "
        "quotient at 0, or beyond where it has a value. If that number is not used, torch.where "
        "alone does not help, since both sides are differentiated: hand the operation a harmless "
        "one, torch.where(ok, f(torch.where(ok, x, 1.0)), 0.0), with ok such as x > 0."
    )


@rule(lesson=1, verdict=Verdict.LAYOUT_DEPENDENT)
def noncontiguous_input(e: Evidence) -> str | None:
    if not e.habits.input_layout:
        return None
    told = f"For a non-contiguous x: {e.habits.input_layout.rstrip('.')}."
    if e.habits.copies_input:
        return f"{told} Save x first: x.contiguous() may be a copy without graph."
    if "view size is not compatible" in told:
        return told
    return (
        f"{told} fn does something else for such a layout, of x or of grad_out: look for strides, "
        "is_contiguous and copies."
    )


@rule(lesson=1, verdict=Verdict.LAYOUT_DEPENDENT)
def grad_out_layout(e: Evidence) -> str | None:
    if not e.habits.grad_out_layout or e.habits.not_linear:
        return None
    return (
        "For a grad_out that is not contiguous (.sum() or .t() after fn): "
        f"{e.habits.grad_out_layout.rstrip('.')}. Use reshape, and keep its graph."
    )


def _not_mixed(e, kind):
    """What is kept on ctx and of this kind; not a list in which there are intermediates, too."""
    found = []
    for f in e.functions:
        made = {s.name for s in f.saved if s.kind is Kind.INTERMEDIATE}
        found += [s for s in f.saved if s.kind is kind and s.on_ctx and s.name not in made]
    return found


@rule(lesson=1, severity=WARNING)
def input_on_ctx(e: Evidence) -> str | None:
    if not (kept := _not_mixed(e, Kind.INPUT)):
        return None
    return (
        f"On ctx, {_attributes(kept)} misses in-place edits, and lives longer. Use "
        "save_for_backward."
    )


@rule(lesson=2, severity=WARNING)
def output_on_ctx(e: Evidence) -> str | None:
    if not (kept := _not_mixed(e, Kind.OUTPUT)):
        return None
    return f"{_attributes(kept)} is an output. Use save_for_backward."


@rule(lesson=2, severity=WARNING)
def reference_cycle(e: Evidence) -> str | None:
    if e.lifetime is not Lifetime.CYCLE:
        return None
    return "An output on ctx refers to its own graph: it lives until the garbage collector runs."


@rule(lesson=2, severity=WARNING)
def memory_leak(e: Evidence) -> str | None:
    if e.lifetime is not Lifetime.FOREVER:
        return None
    kept = _listed(s.title for f in e.functions for s in f.saved if s.circular)
    return (
        f"{kept or 'What forward keeps'} keeps its own graph alive, in a cycle that the garbage "
        "collector cannot see: every call leaks memory. Keep outputs with save_for_backward, each "
        "the very tensor that you return."
    )


@rule(lesson=3)
def output_used_alone(e: Evidence) -> str | None:
    alone = e.measured.output_alone
    if alone is None:
        return None
    return (
        f"The numbers are for output {alone} alone; all outputs together are right. For an output "
        "that nobody uses, backward gets zeros, or None after set_materialize_grads(False)."
    )


@rule(lesson=1, severity=WARNING)
def raises_if_frozen(e: Evidence) -> str | None:
    if e.measured.raises_frozen is None:
        return None
    name, error = e.measured.raises_frozen
    return (
        f"With requires_grad=False for {name} it raises: {error.rstrip('.')}. Ask "
        "ctx.needs_input_grad in backward, in that of a second Function, too."
    )


@rule(lesson=5, severity=NOTE)
def only_by_backward(e: Evidence) -> str | None:
    if not e.measured.by_backward:
        return None
    return (
        "torch.autograd.grad is refused here (a reentrant checkpoint does that), so fn was "
        "differentiated by .backward(create_graph=True)."
    )


@rule(lesson=1, severity=WARNING)
def elements_not_checked(e: Evidence) -> str | None:
    rows = [row for row in e.measured.rows if row.outcome is Outcome.RIGHT]
    worst = max(rows, key=lambda row: row.unchecked, default=None)
    if worst is None or not worst.unchecked:
        return None
    return (
        f"{worst.unchecked} of {worst.elements} elements not checked: finite differences cannot "
        "be trusted there (a kink, noise, or an element that is far smaller than the others)."
    )


@rule(lesson=1, last=True)
def differences_disagree(so_far: Conclusion) -> str | None:
    e = so_far.evidence
    told = e.raises_beside or e.inexact or e.not_apart or e.measured.drowned or _unasked(e)
    if so_far.verdict is not Verdict.NOT_CHECKED or told:
        return None
    return (
        "Finite differences can be trusted at no element: around this point fn or its derivative "
        "jumps, has a kink or is not finite, or is noisy. Hand in another point, or a fn without "
        "the noise."
    )


@rule(lesson=1, last=True)
def lost_in_rounding(so_far: Conclusion) -> str | None:
    drowned = so_far.evidence.measured.drowned
    if so_far.verdict is not Verdict.NOT_CHECKED or not drowned:
        return None
    return (
        "Larger numbers cancel inside fn, and what they leave is mostly rounding, as in "
        "exp(x) - 1 - x for a small x: neither its values nor its derivatives can be judged here. "
        "Hand in a point where less cancels, or write it so that nothing does: expm1, log1p."
    )


@rule(lesson=1)
def raises_beside(e: Evidence) -> str | None:
    if not e.raises_beside:
        return None
    return (
        "fn raises where its input is moved a little, as finite differences need: "
        f"{e.raises_beside.rstrip('.')}. Hand in a point inside its domain, or a fn that leads "
        "back there: lambda x: fn(x.clamp(0, 1))."
    )


@rule(lesson=1, severity=NOTE)
def far_from_one(e: Evidence) -> str | None:
    inputs, outputs = _in_words(e.measured.units), _in_words(e.measured.output_units)
    if not (inputs or outputs):
        return None
    told = [f"inputs in units of {inputs}"] * bool(inputs)
    told += [f"outputs in units of {outputs}"] * bool(outputs)
    return f"Numbers far from 1 were scaled, {' and '.join(told)}: expected and got are in these."


def _in_words(units):
    if len(units) > 3:
        return f"{units[0]:g} to {units[-1]:g}"
    return ", ".join(f"{u:g}" for u in units)


@rule(lesson=1, severity=NOTE)
def computes_in_float32(e: Evidence) -> str | None:
    if e.measured.dtype is not torch.float32:
        return None
    if _within(e) >= 1:
        return f"fn computes in float32, {_beyond(e)}."
    return f"fn computes in float32, so it was judged to {_within(e):.1%} only."


@rule(lesson=1, severity=lambda e: ERROR if e.inexact else NOTE)
def computes_in_16_bits(e: Evidence) -> str | None:
    if e.measured.dtype is not torch.bfloat16:
        return None
    hidden = f"so errors below {_percent(_within(e))} do not show" if _within(e) < 1 else _beyond(e)
    return (
        f"An operation in fn or its backward computes in 16 bits (float16, bfloat16), {hidden}. "
        f"{'If it is meant to, pass rtol=0.02. ' if e.inexact else ''}"
        "To know more, compute in float64 throughout, and diagnose again."
    )


def _beyond(e):
    """Where an error of the size of the numbers themselves does not show."""
    rows = [*e.measured.second.items(), *e.measured.third.items()]
    names = _listed(setting for setting, row in rows if row.within >= 1)
    where = f" in the rows {names}" if names else ""
    return f"and nothing can be judged{where}: differences there are mostly noise"


def _within(e):
    """The smallest relative error that shows in every row."""
    return max([e.measured.tolerance, *(row.within for row in e.measured.rows)])


@rule(lesson=1, severity=NOTE)
def seed_fixed(e: Evidence) -> str | None:
    return "fn draws random numbers. It was checked with the seed fixed." if e.seeded else None


@rule(lesson=1, severity=WARNING)
def edits_what_it_holds(e: Evidence) -> str | None:
    if not e.edited:
        return None
    return (
        f"Each call of fn changes {_several(e.edited)}. That is put back now; to check fn without "
        "it, call .eval() on the module, or hand the tensor in."
    )


@rule(lesson=1, severity=WARNING)
def other_leaves(e: Evidence) -> str | None:
    if not e.unchecked:
        return None
    return (
        "fn also depends on tensors that require grad and are no inputs: "
        f"{_several(e.unchecked)}. Derivatives by these were not checked: hand them in, or a "
        "smaller module that holds them."
    )


@rule(lesson=1, severity=WARNING)
def stays_symmetric(e: Evidence) -> str | None:
    if not e.measured.symmetric:
        return None
    names = _several(e.measured.symmetric)
    return (
        f"Symmetric and moved as such, in fn((A + A.mT) / 2): {names}. Moved otherwise, it shows "
        "other derivatives than these. If fn is meant for any matrix, hand in one that is not "
        "symmetric."
    )


@rule(lesson=4, severity=NOTE)
def another_point(e: Evidence) -> str | None:
    if not e.moved:
        return None
    return (
        "At your point a derivative is 0 or jumps, or it is at the edge of where fn has a "
        "value: the numbers are from beside it."
    )


def _several(names):
    """The first of them."""
    return ", ".join(names[:4]) + ", ..." * (len(names) > 4)


def _attributes(kept: list[Saved]) -> str:
    return ", ".join(dict.fromkeys(f"ctx.{s.name}" for s in kept))


def _which(kept: list[Saved]) -> str:
    """ " (e, n)", the names, and where they are saved if that is not in the Function itself."""
    names = _listed(s.title for s in kept)
    places = _listed(s.saved_in for s in kept if s.saved_in)
    told = "; ".join(filter(None, [names, places and f"saved in {places}"]))
    return f" ({told})" if told else ""


def _used(e: Evidence, on_ctx: bool) -> list[Saved]:
    """What explains a wrong second derivative; integers that jump, where it could not be judged."""
    if e.wrong:
        return e.blamed(on_ctx)
    return [s for s in e.blamed(on_ctx) if s.packed] if _unasked(e) else []


def _unasked(e: Evidence) -> bool:
    return any(row.outcome is Outcome.NOT_ASKED for row in e.measured.rows)


def _cure(e: Evidence, kept: list[Saved]) -> str:
    """What to do instead; where that is not the same for all, for each."""
    by_convention = {id(s) for f in e.by_convention for s in f.saved}
    if any(id(s) in by_convention for s in kept):
        return (
            "Compute it in backward from a saved input, by Functions that hand gradients over in "
            "the same convention."
        )
    engine = any(s.dtype.startswith("NumPy") for s in kept)
    groups: dict[str, list[Saved]] = {}
    for each in kept:
        groups.setdefault(_cure_of(each, engine), []).append(each)
    if len(groups) == 1:
        return next(iter(groups))
    return " ".join(f"{_listed(s.title for s in g)}: {cure}" for cure, g in groups.items())


def _cure_of(s: Saved, engine: bool) -> str:
    if s.dtype.startswith(("int", "uint")) and s.bytes:
        return (
            "No graph leads on from integers, into which a derivative may be packed to save "
            "memory: save the input, too, and compute with it where torch.is_grad_enabled() in "
            "backward."
        )
    if s.repeats is Kind.INPUT:
        return "It repeats an input: give save_for_backward the very tensor that apply gets."
    if s.repeats is Kind.OUTPUT:
        return "It repeats the output: save the very tensor that you return, not a copy."
    if s.marked:
        return (
            "It is returned, but marked non-differentiable: leave mark_non_differentiable out, and "
            "add the part for its gradient."
        )
    if s.numeric:
        return (
            "No graph leads on from what is not a tensor: compute it in backward from a saved "
            "input, in torch, or return it as a tensor, too, and save that."
            f"{f' {BY_ANOTHER_CALL}' if engine else ''}"
        )
    return AGAIN


def _listed(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names))


def _steps(e: Evidence, functions: list[Custom], part: str) -> list[Step]:
    """The steps of these backwards by which this part of their derivative is lost."""
    met = [step for f in functions for step in f.untracked_calls]
    if e.undone is None:  # nobody knows more
        return met
    needed = [*getattr(e.undone, part)]
    if part in e.undone.mended:
        return needed
    numpy = any(step.kind == "numpy" for step in e.left_torch)  # which needs .detach()
    stuck = [] if numpy else [*e.undone.stuck]
    if stuck:  # nobody knows what would be without them; these give constants in any case
        stuck += [s for s in met if s.kind in ("grad", "backward") and s not in stuck]
    others = [s for s in [*stuck, *e.left_torch] if s not in e.still.get(part, ())]
    # Nothing matters where a constant comes first.
    return list(dict.fromkeys([*needed, *others])) or met


def _seen(steps: list[Step]) -> str:
    return f" (it uses {told(steps)})" if steps else " (what cuts it was not seen)"
