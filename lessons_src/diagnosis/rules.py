"""The rules of `diagnose`: one function for each finding.

A rule gets the `Evidence` and returns its message, or None where it does not apply. The function's
name is the code of the finding. `cause=True` says that it explains a wrong second derivative. The
order in this file is the order in the report, and nothing else.
"""

from collections.abc import Callable
from dataclasses import dataclass

from .evidence import Evidence
from .functions import Kind, Path, Saved
from .judge import Outcome
from .settings import Setting
from .verdict import Verdict, verdict_of


@dataclass(frozen=True)
class Finding:
    """One thing to know or to change: a word to search for, a message, the lesson's number."""

    code: str
    message: str
    lesson: int


@dataclass(frozen=True)
class Rule:
    applies: Callable[[Evidence], str | None]
    lesson: int
    cause: bool


RULES: dict[str, Rule] = {}


def rule(lesson: int, cause: bool = False):
    """Register a function as the rule for the finding of its name."""

    def register(applies):
        RULES[applies.__name__] = Rule(applies, lesson, cause)
        return applies

    return register


def findings_of(evidence: Evidence) -> list[Finding]:
    said = {code: rule.applies(evidence) for code, rule in RULES.items()}
    return [Finding(code, text, RULES[code].lesson) for code, text in said.items() if text]


# The first derivative.


@rule(lesson=3)
def mutates_grad_out(e: Evidence) -> str | None:
    if not e.habits.mutates:
        return None
    return (
        f"backward writes into {e.habits.mutates}, which others read too: make a new tensor, "
        "grad_out * 3."
    )


@rule(lesson=1)
def backward_not_linear(e: Evidence) -> str | None:
    if not e.habits.not_linear:
        return None
    return (
        "backward is not linear in grad_out (it clips, takes abs, adds a constant, draws random "
        "numbers or changes ctx). Return grad_out times something that grad_out does not change."
    )


@rule(lesson=1)
def returns_none(e: Evidence) -> str | None:
    if e.measured.first.outcome is not Outcome.WRONG or not e.habits.no_gradient:
        return None
    return (
        f"backward returns None for {e.habits.no_gradient}, but the output depends on it: "
        ".backward() leaves .grad at None without a message. Return its gradient."
    )


@rule(lesson=1)
def first_derivative_differs(e: Evidence) -> str | None:
    explained = e.habits.no_gradient or e.habits.mutates
    if e.measured.first.outcome is not Outcome.WRONG or explained:
        return None
    return (
        "The first derivative is not that of forward. If you meant that (straight-through, "
        "gradient reversal, surrogate), gradcheck fails by design; if not, backward is wrong."
    )


# Causes of a wrong second derivative.


@rule(lesson=4, cause=True)
def once_differentiable(e: Evidence) -> str | None:
    if not any(f.once for f in e.functions):
        return None
    rows = e.measured.second.items()
    leaks = [setting for setting, row in rows if row.outcome is Outcome.WRONG]
    return (
        "backward is declared @once_differentiable. That raises only where grad_out itself "
        "requires grad; elsewhere the second derivative is wrong without a message "
        f"({', '.join(leaks) or 'not seen here'}). Do not delete the decorator: write a Function "
        "for backward, with a backward of its own."
    )


@rule(lesson=3, cause=True)
def extra_output_gradient_ignored(e: Evidence) -> str | None:
    if not (e.wrong and any(f.extra_ignored for f in e.functions)):
        return None
    return (
        "forward returns extra outputs and saves them, but backward does not use their gradients. "
        "They arrive in the second backward: add them, grad_x + grad_expx * expx and so on."
    )


@rule(lesson=1, cause=True)
def input_copy_saved(e: Evidence) -> str | None:
    if not (e.wrong and any(s.repeats is Kind.INPUT for s in e.blamed(on_ctx=False))):
        return None
    return (
        "forward saves a copy of an input (clamp, contiguous, to, clone, detach, autocast make "
        "one), and a copy made there has no graph. Save the input itself, convert it after that."
    )


@rule(lesson=3, cause=True)
def intermediate_saved(e: Evidence) -> str | None:
    kept = [s for s in e.blamed(on_ctx=False) if s.repeats is not Kind.INPUT]
    if not (e.wrong and kept):
        return None
    return (
        "forward saves a tensor it made itself, where autograd does not record: a constant to the "
        f"second backward. {_cure(kept)}"
    )


@rule(lesson=4, cause=True)
def intermediate_on_ctx(e: Evidence) -> str | None:
    kept = e.blamed(on_ctx=True)
    if not (e.wrong and kept):
        return None
    return (
        "Made in forward, where nothing is recorded, so constants to the second backward: "
        f"{_attributes(kept)}. {_cure(kept)}"
    )


@rule(lesson=5, cause=True)
def grad_out_path_cut(e: Evidence) -> str | None:
    cut = [f for f in e.functions if f.by_grad_out in (Path.MISSING, Path.WRONG)]
    if not (e.wrong and cut):
        return None
    return (
        "What backward returns cannot be differentiated by grad_out (detach, NumPy, or a second "
        "Function that returns None for it). Anything non-linear that follows needs that."
    )


@rule(lesson=5, cause=True)
def untracked_backward(e: Evidence) -> str | None:
    if not e.untracked:
        return None
    return (
        "backward computes where autograd cannot follow (detach, .data, .item(), no_grad, NumPy, a "
        "C++ kernel, a second Function without a gradient for the input). Write it in torch "
        "operations, or as a Function with a complete backward."
    )


@rule(lesson=5, cause=True)
def path_counted_twice(e: Evidence) -> str | None:
    wrong = Path.WRONG, Path.MISSING, Path.UNKNOWN
    blamed = any(f.by_inputs in wrong or f.by_grad_out in wrong for f in e.functions)
    alone, after = (e.measured.second[s].outcome for s in (Setting.ALONE, Setting.AFTER))
    only_after = alone is not Outcome.WRONG and after is Outcome.WRONG
    if not e.functions or blamed or not only_after:
        return None
    return (
        "Wrong with a graph after it: backward calls autograd.grad on tensors that are connected, "
        "so one path counts twice. Use x.view_as(x) and grad_out.view_as(grad_out) there."
    )


@rule(lesson=3, cause=True)
def in_place_without_mark_dirty(e: Evidence) -> str | None:
    if not (e.wrong and e.habits.edits_input):
        return None
    return "forward changes an input in place and does not say so: call ctx.mark_dirty(x)."


@rule(lesson=5, cause=True)
def no_derivative_formula(e: Evidence) -> str | None:
    known = ("no autograd formula was", "an autograd kernel was not", "derivative for")
    if not any(words in text for text in e.texts for words in known):
        return None
    return (
        "An operation in the first derivative has no derivative that autograd knows. Register one "
        "(register_autograd), use other operations, or write a Function with its own backward."
    )


@rule(lesson=5, cause=True)
def numpy_in_backward(e: Evidence) -> str | None:
    if not any("Can't call numpy()" in text for text in e.texts):
        return None
    return (
        "backward hands a tensor to NumPy. Do not follow the advice to detach: that turns the "
        "error into a wrong number. Put the NumPy code into a Function with its own backward."
    )


@rule(lesson=5, cause=True)
def third_order_not_tracked(e: Evidence) -> str | None:
    rows = e.measured.third.values()
    late = any(row.outcome in (Outcome.WRONG, Outcome.RAISES) for row in rows)
    early = any(row.outcome is not Outcome.RIGHT for row in e.measured.second.values())
    if early or not late:
        return None
    return "Right at second order, not at third: the backward of your backward is not tracked."


@rule(lesson=5)
def wrong_formula(e: Evidence) -> str | None:
    """The last resort: no cause is known."""
    causes = [rule for rule in RULES.values() if rule.cause]
    explained = any(rule.applies(e) for rule in causes)
    if explained or verdict_of(e) is not Verdict.SILENTLY_WRONG:
        return None
    return (
        "Autograd finds another derivative than there is, and nothing that is kept explains it. "
        "Look for a wrong formula in backward and in its own backward, or halve fn to find it."
    )


# What else there is to know.


@rule(lesson=2)
def nan_in_second(e: Evidence) -> str | None:
    second = any(row.outcome is Outcome.NOT_FINITE for row in e.measured.rows)
    if not second or e.measured.first.outcome is Outcome.NOT_FINITE:
        return None
    return (
        "The first derivative is finite, the second is not: often 0 * inf, from a root or a power "
        "at 0, or from torch.where, which differentiates both sides. Stay away from there."
    )


@rule(lesson=1)
def noncontiguous_input(e: Evidence) -> str | None:
    if not e.habits.input_layout:
        return None
    return (
        f"For a non-contiguous x: {e.habits.input_layout}. Save x first: x.contiguous() may be a "
        "copy without graph."
    )


@rule(lesson=1)
def grad_out_layout(e: Evidence) -> str | None:
    if not e.habits.grad_out_layout:
        return None
    return (
        "For a grad_out that is not contiguous (.sum() or .t() after fn): "
        f"{e.habits.grad_out_layout}. Use reshape."
    )


@rule(lesson=1)
def input_on_ctx(e: Evidence) -> str | None:
    if not (kept := e.kept(Kind.INPUT, on_ctx=True)):
        return None
    return (
        f"On ctx, {_attributes(kept)} misses in-place edits, and lives longer. Use "
        "save_for_backward."
    )


@rule(lesson=2)
def output_on_ctx(e: Evidence) -> str | None:
    if not (kept := e.kept(Kind.OUTPUT, on_ctx=True)):
        return None
    return f"{_attributes(kept)} is an output. Use save_for_backward."


@rule(lesson=2)
def reference_cycle(e: Evidence) -> str | None:
    if not e.kept(Kind.OUTPUT, on_ctx=True):
        return None
    return "An output on ctx refers to its own graph: it lives until the garbage collector runs."


@rule(lesson=1)
def no_setup_context(e: Evidence) -> str | None:
    if "must override the setup_context" not in e.torch_func:
        return None
    return "torch.func cannot use it: it has no setup_context."


@rule(lesson=1)
def computes_in_float32(e: Evidence) -> str | None:
    if str(e.measured.dtype) != "torch.float32":
        return None
    return "fn computes in float32, so the tolerance was loose."


@rule(lesson=1)
def seed_fixed(e: Evidence) -> str | None:
    return "fn draws random numbers. It was checked with the seed fixed." if e.seeded else None


@rule(lesson=4)
def another_point(e: Evidence) -> str | None:
    if not e.moved:
        return None
    return "At your point the second derivative is 0 or jumps: the numbers are from beside it."


def _attributes(kept: list[Saved]) -> str:
    return ", ".join(f"ctx.{s.name}" for s in kept)


def _cure(kept: list[Saved]) -> str:
    if all(s.repeats is Kind.OUTPUT for s in kept):
        return "It repeats the output: save the very tensor that you return, not a copy."
    return "Compute it in backward from a saved input, in torch, or return this very tensor, too."
