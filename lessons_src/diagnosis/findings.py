"""The rules of `diagnose`: one method for each finding, in one place.

A method's name is the code, its docstring the message. It returns something false where it does not
apply, else True or the text for the {} in its docstring. Numbers convict; what is kept, and how
backward is written, only explains. Adding a finding means adding one method.
"""

import inspect
from dataclasses import dataclass
from enum import StrEnum

from .evidence import Evidence


class Verdict(StrEnum):
    """What `diagnose` concludes, the first that applies; `headline` says it in words."""

    FIRST_DERIVATIVE_WRONG = "first_derivative_wrong", "the first derivative is wrong"
    ONCE_DIFFERENTIABLE = "once_differentiable", "declared differentiable only once"
    SILENTLY_WRONG = "silently_wrong", "silently wrong at second order"
    LAYOUT_DEPENDENT = "layout_dependent", "right for contiguous tensors only"
    NOT_FINITE = "not_finite", "a derivative is not finite"
    RAISES = "raises", "raises an error when differentiated"
    SURROGATE_GRADIENT = "surrogate_gradient", "backward is not the derivative of forward"
    SUPPORTED = "supported", "double backward is right"
    NOT_CHECKED = "not_checked", "not checked"

    def __new__(cls, value, headline):
        verdict = str.__new__(cls, value)
        verdict._value_, verdict.headline = value, headline
        return verdict


@dataclass(frozen=True)
class Finding:
    """One thing to know or to change: a word to search for, a message, the lesson's number."""

    code: str
    message: str
    lesson: int


def lesson(number):
    return lambda method: setattr(method, "lesson", number) or method


NOT_CHECKED = {
    "no_input_requires_grad": "Pass x.double().requires_grad_(), also for an integer x.",
    "complex_or_sparse_input": "Pass real, dense tensors, and build the other one from them in fn.",
    "half_precision": "16 bits are too few for finite differences. Pass float64 or float32.",
    "output_without_graph": "No output has a graph: fn detaches, or a Function got a list.",
    "fn_raises": "fn itself raises {}",
    "random_output": "fn gives different outputs for one input and one seed. Fix what is random.",
}


def cure(kept):
    if all(s.copy == "output" for s in kept):
        return "It repeats the output: save the very tensor that you return, not a copy."
    return "Compute it in backward from a saved input, in torch, or return this very tensor, too."


class Rules(Evidence):
    """The evidence, and what follows from it; most important first."""

    @classmethod
    def all(cls):
        return [method for method in vars(cls).values() if hasattr(method, "lesson")]

    def findings(self):
        for rule in self.all():
            if said := rule(self):
                message = " ".join(inspect.cleandoc(rule.__doc__).split()).format(said)
                yield Finding(rule.__name__, message, rule.lesson)

    @property
    def verdict(self):
        outcomes = {self.probe.first.outcome} | {row.outcome for row in self.probe.rows}
        applies = (
            {"mutates", "nonlinear"} & set(self.habits),
            any(f.once for f in self.functions),
            any(row.outcome == "wrong" for row in self.probe.rows),
            {"noncontiguous", "layout"} & set(self.habits),
            "not finite" in outcomes,
            "raises" in outcomes,
            self.probe.first.outcome == "wrong",
            self.probe.telling > 0,
            True,
        )
        return next(v for v, yes in zip(Verdict, applies, strict=True) if yes)

    @lesson(3)
    def mutates_grad_out(self):
        """backward writes into {}, which others read too: make a new tensor, grad_out * 3."""
        return self.habits.get("mutates")

    @lesson(1)
    def backward_not_linear(self):
        """backward is not linear in grad_out (it clips, takes abs, adds a constant, draws random
        numbers or changes ctx). Return grad_out times something that grad_out does not change."""
        return self.habits.get("nonlinear")

    @lesson(1)
    def returns_none(self):
        """backward returns None for {}, but the output depends on it: .backward() leaves .grad at
        None without a message. Return its gradient."""
        return self.probe.first.outcome == "wrong" and self.habits.get("none")

    @lesson(1)
    def first_derivative_differs(self):
        """The first derivative is not that of forward. If you meant that (straight-through,
        gradient reversal, surrogate), gradcheck fails by design; if not, backward is wrong."""
        return self.probe.first.outcome == "wrong" and not {"none", "mutates"} & set(self.habits)

    @lesson(4)
    def once_differentiable(self):
        """backward is declared @once_differentiable. That raises only where grad_out itself
        requires grad; elsewhere the second derivative is wrong without a message ({}). Do not
        delete the decorator: write a Function for backward, with a backward of its own."""
        leaks = [name for name, row in self.probe.second.items() if row.outcome == "wrong"]
        return any(f.once for f in self.functions) and (", ".join(leaks) or "not seen here")

    @lesson(3)
    def extra_output_gradient_ignored(self):
        """forward returns extra outputs and saves them, but backward does not use their gradients.
        They arrive in the second backward: add them, grad_x + grad_expx * expx and so on."""
        return self.wrong and any(f.ignored for f in self.functions)

    @lesson(1)
    def input_copy_saved(self):
        """forward saves a copy of an input (clamp, contiguous, to, clone, detach, autocast make
        one), and a copy made there has no graph. Save the input itself, convert it after that."""
        return self.wrong and any(s.copy == "input" for s in self.saved("intermediate", False))

    @lesson(3)
    def intermediate_saved(self):
        """forward saves a tensor it made itself, where autograd does not record: a constant to the
        second backward. {}"""
        kept = [s for s in self.saved("intermediate", False) if s.copy != "input"]
        return self.wrong and kept and cure(kept)

    @lesson(4)
    def intermediate_on_ctx(self):
        """Made in forward, where nothing is recorded, so constants to the second backward: {}"""
        if self.wrong and (kept := self.saved("intermediate", True)):
            return ", ".join(f"ctx.{s.name}" for s in kept) + ". " + cure(kept)

    @lesson(5)
    def grad_out_path_cut(self):
        """What backward returns cannot be differentiated by grad_out (detach, NumPy, or a second
        Function that returns None for it). Anything non-linear that follows needs that."""
        return self.wrong and any(f.path_u in ("missing", "wrong") for f in self.functions)

    @lesson(5)
    def untracked_backward(self):
        """backward computes where autograd cannot follow (detach, .item(), no_grad, NumPy, a C++
        kernel). Write it in torch operations, or as a Function with a complete backward."""
        return self.untracked

    @lesson(5)
    def path_counted_twice(self):
        """Wrong with a graph after it: backward calls autograd.grad on tensors that are connected,
        so one path counts twice. Use x.view_as(x) and grad_out.view_as(grad_out) there."""
        blamed = any({f.path_x, f.path_u} - {"right"} for f in self.functions)
        alone, after = (self.probe.second[name].outcome for name in ("alone", "graph after"))
        return self.functions and not blamed and alone != "wrong" and after == "wrong"

    @lesson(3)
    def in_place_without_mark_dirty(self):
        """forward changes an input in place and does not say so: call ctx.mark_dirty(x)."""
        return self.wrong and self.habits.get("in place")

    @lesson(5)
    def no_derivative_formula(self):
        """An operation in the first derivative has no derivative that autograd knows. Register one
        (register_autograd), use other operations, or write a Function with its own backward."""
        known = ("no autograd formula was", "an autograd kernel was not", "derivative for")
        return any(words in text for text in self.texts for words in known)

    @lesson(5)
    def numpy_in_backward(self):
        """backward hands a tensor to NumPy. Do not follow the advice to detach: that turns the
        error into a wrong number. Put the NumPy code into a Function with its own backward."""
        return any("Can't call numpy()" in text for text in self.texts)

    @lesson(5)
    def third_order_not_tracked(self):
        """Right at second order, not at third: the backward of your backward is not tracked."""
        late = any(row.outcome in ("wrong", "raises") for row in self.probe.third.values())
        return late and all(row.outcome == "right" for row in self.probe.second.values())

    @lesson(5)
    def wrong_formula(self):
        """Autograd finds another derivative than there is, and nothing that is kept explains it.
        Look for a wrong formula in backward and in its own backward, or halve fn to find it."""
        rules = self.all()
        causes = rules[rules.index(Rules.once_differentiable) : rules.index(Rules.wrong_formula)]
        return self.verdict is Verdict.SILENTLY_WRONG and not any(rule(self) for rule in causes)

    @lesson(2)
    def nan_in_second(self):
        """The first derivative is finite, the second is not: often 0 * inf, from a root or a power
        at 0, or from torch.where, which differentiates both sides. Stay away from there."""
        second = any(row.outcome == "not finite" for row in self.probe.rows)
        return second and self.probe.first.outcome != "not finite"

    @lesson(1)
    def noncontiguous_input(self):
        """For a non-contiguous x: {}. Save x first: x.contiguous() may be a copy without graph."""
        return self.habits.get("noncontiguous")

    @lesson(1)
    def grad_out_layout(self):
        """For a grad_out that is not contiguous (.sum() or .t() after fn): {}. Use reshape."""
        return self.habits.get("layout")

    @lesson(1)
    def input_on_ctx(self):
        """On ctx, {} misses in-place edits, and lives longer. Use save_for_backward."""
        return ", ".join(f"ctx.{s.name}" for s in self.saved("input", on_ctx=True))

    @lesson(2)
    def output_on_ctx(self):
        """{} is an output. Use save_for_backward."""
        return ", ".join(f"ctx.{s.name}" for s in self.saved("output", on_ctx=True))

    @lesson(2)
    def reference_cycle(self):
        """An output on ctx refers to its own graph: it lives until the garbage collector runs."""
        return self.saved("output", on_ctx=True)

    @lesson(1)
    def no_setup_context(self):
        """torch.func cannot use it: it has no setup_context."""
        return "must override the setup_context" in self.torch_func

    @lesson(1)
    def computes_in_float32(self):
        """fn computes in float32, so the tolerance was loose."""
        return str(self.probe.dtype) == "torch.float32"

    @lesson(1)
    def seed_fixed(self):
        """fn draws random numbers. It was checked with the seed fixed."""
        return self.seeded

    @lesson(4)
    def another_point(self):
        """At your point the second derivative is 0 or jumps: the numbers are from beside it."""
        return self.moved
