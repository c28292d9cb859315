"""The findings of `diagnose`: tables of what was seen, what it means, and which lesson explains it.

A row says when its finding is reported, and in which words. Words that depend on more than a name
or a number are in `words`. The order of the rows is that of the report, and means nothing else.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from double_backward.check import Outcome
from double_backward.phrases import Phrase
from double_backward.places import is_in_notebook, short

from ..preparation.functions import WRONG, Custom, Kind, Lifetime
from . import words
from .evidence import Evidence
from .verdict import Verdict, of_numbers, verdict_of
from .words import listed, several

ERROR, WARNING, NOTE = "error", "warning", "note"
FIRST = Verdict.FIRST_DERIVATIVE_WRONG


@dataclass(frozen=True)
class Finding:
    """One thing to know or to change: a code to search for, a message, and the number of the
    lesson, or 0 if none says more."""

    code: str
    message: str
    lesson: int
    cause: bool = False  # it explains why the second derivative is wrong or raises
    severity: str = "error"  # or "warning": right here, and may be wrong elsewhere; or "note"
    function: str = ""  # the class of the Function it is about; "" where it is about fn
    file: str = ""  # where that class is written, with `line`
    line: int = 0

    @property
    def where(self) -> str:
        """The Function and its place, "Square, package/module.py:12"; in a notebook, where a line
        is one of many cells', its name; "" if it is about fn."""
        named = self.file and not is_in_notebook(self.file)
        name = f"{short(self.file)}:{self.line}" if named else ""
        return ", ".join(filter(None, [self.function, name]))

    def to_dict(self) -> dict[str, object]:
        """Return plain values, for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Rule:
    """A row of the table: when a finding is reported, and what follows from it.

    Three attributes may be functions of the evidence instead: cause, severity and verdict.

    Attributes:
        lesson: the number of the lesson, and words from it that are about this.
        seen: takes the evidence; returns a false value, True, or what to fill into `says`.
        says: the words, with {} for what `seen` returns; None: `seen` returns all of them.
        cause: whether it explains why a second derivative is wrong, or raises.
        of: takes the evidence; returns the Functions that the finding is about. None: it is about
            the only one that is suspect.
        explains: the verdict for which it comes before all other causes.
        kept: whether its place is where something is kept: for an operator, its setup_context.
        severity: "error", "warning" or "note".
        verdict: a verdict that follows from it, whatever the numbers say; None: none does.
    """

    lesson: tuple[int, str]
    seen: Callable[[Any], Any]
    says: str | None = None
    cause: Any = False
    of: Callable[[Evidence], list[Custom]] | None = None
    explains: Verdict | None = None
    kept: bool = False
    severity: Any = ERROR
    verdict: Any = None

    def text(self, evidence: Evidence) -> str:
        """The words for this evidence; "" if the finding is not reported."""
        seen = self.seen(evidence)
        if not seen:
            return ""
        if self.says is None:
            return seen
        return Phrase(self.says, **seen) if isinstance(seen, dict) else Phrase(self.says, seen)


def those(known: Callable[[Custom], Any]) -> Callable[[Evidence], list[Custom]]:
    """A function of the evidence that returns the Functions for which `known` is true."""
    return lambda e: [f for f in e.functions if known(f)]


def _lost(on_ctx):
    return those(lambda f: any(s.on_ctx == on_ctx for s in f.lost))


def _kept_on_ctx(kind):
    return those(lambda f: any(s.on_ctx and s.kind is kind for s in f.saved))


def _on_ctx(e, kind):
    """What is kept on ctx and is of this kind, without lists that hold intermediates, too."""
    kept = [(f.name, s) for f in e.functions for s in f.saved if s.on_ctx]
    made = {(name, s.slot) for name, s in kept if s.kind is Kind.INTERMEDIATE}
    return listed(s.title for name, s in kept if s.kind is kind and (name, s.slot) not in made)


def _raised(name, error):
    return {"name": name, "error": error.rstrip(".")}


def _edited(e):
    alone = len(e.functions) == 1
    return [f for f in e.functions if alone or any(s.edited for s in f.saved)]


def _by_steps(known):
    """The Functions for which `known` is true, or else those with steps that autograd does not
    follow."""
    return lambda e: those(known)(e) or those(lambda f: f.untracked_calls)(e)


def _where_numbers_are_right(e):
    """The verdict of findings that count only where no number is wrong."""
    return None if any(of_numbers(e)) else FIRST


OF_THE_FIRST = {
    "mutates_grad_out": Rule(
        (3, "grad_out is not yours"),
        lambda e: e.habits.mutates,
        "backward writes into grad_out, which other code reads too. Make a new tensor, as in "
        "grad_out * 3.",
        verdict=FIRST,
    ),
    "mutates_saved": Rule(
        (3, "In place"),
        lambda e: e.habits.mutates_saved,
        "backward writes into a tensor that forward saved and that is read again, by the next "
        "backward among others. Make a new tensor: x * x, not x.mul_(x).",
        cause=True,
        verdict=lambda e: FIRST if e.first_is_wrong or not e.habits.only_once else Verdict.RAISES,
    ),
    "backward_works_once": Rule(
        (1, "backward"),
        words.backward_works_once,
        "The first call of backward uses up what it needs: a second one through the same graph, "
        "with retain_graph=True, raises: {error}. {advice}",
        cause=True,
        explains=Verdict.RAISES,
    ),
    "backward_not_linear": Rule((1, "gradcheck"), words.backward_not_linear, verdict=FIRST),
    "backward_not_repeatable": Rule(
        (1, "random draw"),
        words.backward_not_repeatable,
        "Called again through the same graph, backward gives {given}: {why}. To differentiate "
        "twice, autograd calls backward more than once. Leave what forward kept as it is, and "
        "compute the same each time.",
        cause=True,
        verdict=lambda e: FIRST if e.first_is_wrong else _where_numbers_are_right(e),
    ),
    "state_between_calls": Rule(
        (4, "on ctx"),
        lambda e: e.habits.second_call,
        "If fn is called again before backward: {}. Something is kept outside ctx, and the second "
        "call overwrites it. Keep inputs and outputs by save_for_backward, and arguments that are "
        "no tensors on ctx; compute the rest in backward.",
        verdict=_where_numbers_are_right,
    ),
    "leaf_without_gradient": Rule(
        (1, "make it an input"),
        lambda e: several(e.forgotten),
        "forward uses a tensor that requires grad and is no argument of apply, {}: the output "
        "changes with it, and that part of its gradient is missing, often without a message. Hand "
        "it to apply.",
        verdict=_where_numbers_are_right,
    ),
    "returns_none": Rule(
        (1, "returns_none"),
        lambda e: e.first_is_wrong and not (e.meant or e.untracked) and e.habits.no_gradient,
        "backward returns None for {}, but the output depends on it: .backward() leaves .grad at "
        "None without a message. Return its gradient.",
        of=those(lambda f: f.first is Outcome.WRONG),
    ),
    "operator_not_followed": Rule(
        (6, "A Function or an operator?"),
        words.operator_not_followed,
        "A part of the derivative is missing. {}. Register a backward; what that computes outside "
        "torch belongs into an operator of its own.",
        cause=True,
        of=lambda e: [],
        verdict=FIRST,
    ),
    "steps_in_fn": Rule(
        (4, "detach"),
        words.steps_in_fn,
        "fn itself leaves autograd: {steps}. The part of the derivative that goes through there is "
        "missing, or another one. {advice} If that is meant, compute what is cut off before, and "
        "hand it in as an input that does not require grad.",
        cause=lambda e: e.bad,
        of=lambda e: [],
        severity=lambda e: ERROR if e.bad or e.first_is_wrong or e.inexact else WARNING,
    ),
    "first_derivative_differs": Rule((6, "straight-through"), words.first_derivative_differs),
    "meant": Rule(
        (6, "ignore="),
        words.meant,
        "What backward of {names} returns is meant (ignore=): its first derivative was not "
        "judged, and its second one as the derivative of what backward returns.{others}",
        severity=NOTE,
    ),
    "inexact_first_derivative": Rule(
        (1, "gradcheck"),
        words.inexact_first_derivative,
        severity=lambda e: ERROR if e.inexact else NOTE,
    ),
}

CAUSES = {
    "changed_by_create_graph": Rule(
        (4, "create_graph"),
        words.changed_by_create_graph,
        verdict=Verdict.SILENTLY_WRONG,
    ),
    "once_differentiable": Rule(
        (4, "once_differentiable"),
        words.once_differentiable,
        "backward is declared @once_differentiable. That raises only where grad_out itself "
        "requires grad{leaks}. {advice}",
        verdict=Verdict.ONCE_DIFFERENTIABLE,
        of=those(lambda f: f.once),
    ),
    "extra_output_gradient_ignored": Rule(
        (3, "extra_output_gradient_ignored"),
        words.ignored_outputs,
        "backward ignores the gradient of what forward returns and saves: {names}. That gradient "
        "arrives in the second backward: add it, times the derivative of {first}.",
        of=those(lambda f: f.extras),
    ),
    "extra_output_gradient_wrong": Rule(
        (3, "extra gradients"),
        lambda e: listed(extra.title for extra in e.extras if not extra.ignored),
        "What backward adds for the gradient of an extra output is wrong: {}. It should be that "
        "gradient times the derivative of that output.",
        of=those(lambda f: f.extras),
    ),
    "grad_out_path_cut": Rule(
        (5, "grad_out_path_cut"),
        words.grad_out_path_cut,
        "{fact} Anything non-linear after fn needs that derivative. {advice}",
        of=_by_steps(lambda f: f.by_grad_out in WRONG),
    ),
    "result_of_meant_gradient": Rule(
        (6, "saved *result*"),
        lambda e: listed(name for f in e.suspects for name in f.own_result),
        "backward uses its own result ({}), which autograd differentiates by the gradient that you "
        "mean, and not as forward computes it. Save the input, and compute the result anew in "
        "backward.",
        of=those(lambda f: f.own_result),
    ),
    "input_copy_saved": Rule(
        (1, "input_copy_saved"),
        words.input_copy_saved,
        "{maker} saves a copy or a view of an input (clone, reshape, clamp; contiguous or .to "
        "where they change something; autocast) or the input detached, and what is made there"
        "{which} has no graph. Convert the input before apply, and save what apply gets.",
        of=_lost(on_ctx=False),
        kept=True,
    ),
    "argument_without_graph": Rule(
        (1, "input_copy_saved"),
        lambda e: listed(name for f in e.suspects for name in f.handed),
        "What apply is handed as {} changes with the input, and comes without a graph: detached, "
        "made under no_grad or in another Function, or inside an object. Hand it over as a tensor "
        "with its graph, and return its gradient.",
        of=those(lambda f: f.handed),
    ),
    "intermediate_saved": Rule(
        (3, "intermediate_saved"),
        words.intermediate_saved,
        "{facts} {cure}",
        of=_lost(on_ctx=False),
        kept=True,
    ),
    "intermediate_on_ctx": Rule(
        (4, "intermediate_on_ctx"),
        words.intermediate_on_ctx,
        "{facts} {cure}",
        of=_lost(on_ctx=True),
        kept=True,
    ),
    "computed_outside_torch": Rule(
        (5, "NumPy"),
        words.computed_outside_torch,
        "{maker} keeps numbers that come from outside torch ({names}) and have no graph. "
        f"Compute them in backward, in torch, from a saved input. {words.BY_ANOTHER_CALL}",
        of=those(lambda f: any(s.outside for s in f.saved)),
        kept=True,
    ),
    "state_outside_ctx": Rule(
        (4, "computed from an input"),
        lambda e: (
            any(f.hidden for f in e.suspects)
            and not (e.habits.edits_input or e.habits.not_repeatable)  # which explains it
        ),
        "backward uses something that forward computes and leaves outside ctx: a constant to "
        "autograd, which another call may overwrite. Save the input, and compute it in backward.",
        of=those(lambda f: f.hidden),
        kept=True,
    ),
    "second_function_gradient": Rule(
        (5, "second_function_gradient"),
        words.second_function_gradient,
        "backward applies another Function, whose own backward is incomplete: {}. That one has "
        "to return the derivative by each of its inputs.",
        of=those(lambda f: f.seconds),
    ),
    "untracked_backward": Rule(
        (5, "untracked_backward"),
        words.untracked_backward,
        of=_by_steps(lambda f: f.cut),
    ),
    "float32_differs": Rule(
        (5, "float32"),
        lambda e: e.differs_in_float32,
        "In float64 the second derivative is right; in float32, as you gave it, autograd gives "
        "another one, and the rows show that. fn does something else there: another kernel, NumPy. "
        "Let it do the same as in float64, or write that as a Function with a complete backward.",
    ),
    "path_counted_twice": Rule(
        (5, "path_counted_twice"),
        lambda e: (
            e.only_after
            and any(f.counts_twice for f in e.functions)
            and not (e.extras or e.habits.not_repeatable)
        ),
        "Wrong with a graph after it: where grad_out depends on x, one path counts twice, as "
        "autograd.grad inside backward does with tensors that are connected. Under "
        "torch.enable_grad(), use x.view_as(x).requires_grad_() there, and the same of grad_out.",
        of=those(lambda f: f.counts_twice),
    ),
    "gradients_by_convention": Rule(
        (5, "the first backward's formula"),
        lambda e: e.bad and listed(f.name for f in e.by_convention),
        "By itself, backward is not the derivative of forward in {}, and all of fn is right at "
        "first order: what it gives does not count here, or gradients are handed over in a "
        "convention of their own, such as those by a step on a group. What such a backward "
        "computes in torch, autograd differentiates as a formula of the numbers, which does not "
        "follow that convention: apply Functions that do.",
        of=lambda e: e.by_convention if len(e.by_convention) == 1 else [],
    ),
    "in_place_without_mark_dirty": Rule(
        (5, "in_place_without_mark_dirty"),
        lambda e: e.habits.edits_input or any(s.edited for f in e.functions for s in f.saved),
        "forward changes an input in place and does not say so: to autograd it is still what it "
        "was before, and whoever uses it afterwards, as in fn(x) + x**2, gets the changed one. "
        "Make a new tensor, or return it and call ctx.mark_dirty(x).",
        severity=lambda e: ERROR if e.bad else WARNING,
        of=_edited,
    ),
    "no_derivative_formula": Rule(
        (5, "no_derivative_formula"),
        words.no_derivative_formula,
        "{what} has no derivative that autograd knows. {advice}",
    ),
    "numpy_in_backward": Rule(
        (5, "numpy_in_backward"),
        lambda e: (
            e.error_says("Can't call numpy()")
            or any("Can't call numpy()" in f.refused for f in e.functions)
        ),
        "backward hands a tensor to NumPy, which has no graph. Do not follow the advice to "
        "detach: that turns the error into a wrong number. Put the NumPy code into a Function "
        "with its own backward.",
    ),
    "inputs_of_one_another": Rule(
        (5, "inputs_of_one_another"),
        lambda e: e.is_in("linked"),
        "The numbers are for inputs of which one is made from another; for inputs by themselves "
        "all is right. autograd.grad inside backward then counts a path twice: under "
        "torch.enable_grad(), use x.view_as(x) there for each of them, and the same of grad_out.",
        verdict=lambda e: FIRST if e.first_is_wrong else None,
    ),
    "sign_of_grad_out": Rule(
        (5, "sign"),
        lambda e: e.is_in("negative") and not e.meant,
        "The numbers are for a negative grad_out, or a negative gradient in the second backward; "
        "for positive ones all is right. A backward must not look at the sign of what it gets "
        "(abs, clamp, a root, a comparison).",
    ),
    "input_frozen": Rule(
        (1, "w does not require grad"),
        lambda e: e.is_in("frozen") and {"name": e.measured.situation.name},
        "The numbers are for {name} with requires_grad=False; where all inputs are differentiated "
        "it is right. A backward looks at needs_input_grad, its own or that of a second Function, "
        "or meets a None: look there.",
    ),
    "third_order_not_tracked": Rule((5, "third_order_not_tracked"), words.third_order_not_tracked),
}


def _of_torch(lesson, errors, says, unless=lambda e: False):
    """A rule that says what an error of torch means; `errors` are words of it to search for."""

    def seen(e):
        return e.error_says(*errors) and not unless(e) and {"where": words.where(e)}

    return Rule(lesson, seen, says)


TORCH_SAYS = {
    "saved_tensor_edited": Rule((3, "in place"), words.saved_tensor_edited),
    "leaf_edited": _of_torch(
        (3, "in place"),
        ["leaf Variable that requires grad"],
        "A tensor that requires grad and is the result of no operation (a leaf){where} is written "
        "into in place, which torch refuses where autograd records. If backward makes it, as "
        "new_zeros(..., requires_grad=True) does, leave requires_grad out: what is written there "
        "brings its graph. Otherwise make a new tensor.",
        unless=lambda e: e.habits.mutates or e.habits.mutates_saved,
    ),
    "graph_freed": _of_torch(
        (5, "create_graph"),
        ["backward through the graph a second time"],
        "A graph that the second derivative needs is freed before: torch.autograd.grad or "
        ".backward() inside backward{where} does that. What is returned from there has to keep its "
        "graph: use create_graph=True. With retain_graph=True instead, the error goes and a wrong "
        "number can come.",
        unless=lambda e: e.habits.only_once or not e.functions,
    ),
    "checkpoint_refuses_grad": _of_torch(
        (5, "checkpoint_refuses_grad"),
        ["compatible with .grad()"],
        "A checkpoint that runs backward inside backward refuses autograd.grad. With .backward() "
        "it runs, but the second derivative is not to be trusted: use_reentrant=False for torch's.",
    ),
    "endless_recursion": Rule((5, "endless_recursion"), words.endless_recursion),
    "number_of_gradients": _of_torch(
        (1, "each argument of"),
        ["incorrect number of gradients"],
        "backward must return one value for each argument of forward after ctx, in their order, "
        "and None for those that are no tensors; several of them as a tuple, since a list counts "
        "as one.",
    ),
    "gradient_of_another_kind": _of_torch(
        (1, "each argument of"),
        [
            "gradient different than None at position",
            "returned an invalid gradient",
            "expected Variable or None",
        ],
        "backward must return tensors, each in the shape of the argument it belongs to, and None "
        "for an argument that is no tensor.",
    ),
    "gradient_can_be_none": _of_torch(
        (1, "set_materialize_grads"),
        ["'NoneType'", "NoneType object"],
        "backward meets a None: the gradient of an output that is not used, after "
        "ctx.set_materialize_grads(False), or a saved value that is None. Test for it.",
        unless=lambda e: e.habits.only_once,
    ),
    "view_in_backward": _of_torch(
        (1, "another layout"),
        ["view size is not compatible"],
        "backward calls .view on a tensor that is not contiguous. Use reshape.",
        unless=lambda e: e.habits.grad_out_layout,
    ),
    "no_backward": _of_torch(
        (1, "backward"),
        ["must implement either the backward or vjp"],
        "A Function has no backward, fn itself or one that its backward applies. Write it.",
    ),
    "out_argument": _of_torch(
        (5, "out="),
        ["functions with out="],
        "backward writes a result with out=, which autograd does not follow. Use what it returns.",
    ),
}

WHERE_NO_OTHER_SPEAKS = {
    "raises_in": Rule(
        (5, "raises"),
        lambda e: e.verdict is Verdict.RAISES and not e.explained and words.raised_in(e),
        "The error comes from {}.",
    ),
    "cause_unknown": Rule((5, "draw"), words.cause_unknown),
}

BESIDES = {
    "nan_in_first": Rule(
        (2, "A root of the output"),
        lambda e: e.measured.first.outcome is Outcome.NOT_FINITE and words.not_finite(e),
        "The first derivative is not finite here, so neither is the second. {}",
        cause=lambda e: not e.has_wrong_number,
        explains=Verdict.NOT_FINITE,
    ),
    "nan_in_second": Rule(
        (2, "A root of the output"),
        words.nan_in_second,
        cause=lambda e: not e.has_wrong_number,
        explains=Verdict.NOT_FINITE,
        verdict=lambda e: Verdict.NOT_FINITE if e.measured.grad_out_not_finite else None,
    ),
    "wrong_in_forward_mode": Rule(
        (2, "forward mode"),
        words.wrong_in_forward_mode,
        verdict=Verdict.WRONG_IN_FORWARD_MODE,
        of=those(lambda f: f.wrong_jvp),
    ),
    "torch_in_forward_mode": Rule(
        (2, "forward mode"),
        words.torch_in_forward_mode,
        "In forward mode {name} gives {said}, and each jvp is right by itself: an operation of "
        "torch in fn is wrong there, as logdet and linalg.solve are by reverse mode over forward "
        "mode. Differentiate fn by backward, or write that operation otherwise.",
        severity=WARNING,
        of=lambda e: [],
    ),
    "operator_in_forward_mode": Rule(
        (6, "A Function or an operator?"),
        words.operator_in_forward_mode,
        "In forward mode jvp gives {}: torch drops the tangent of what goes into a registered "
        "operator, and says nothing. An operator takes no jvp: differentiate it by backward, or "
        "write a Function with a jvp.",
        severity=WARNING,
        of=those(lambda f: f.operator),
    ),
    "nested_forward_mode": Rule(
        (2, "forward mode"),
        words.nested_forward_mode,
        "jacfwd of jacfwd gives {}: torch takes what a jvp computes from saved tensors for a "
        "constant there, so that this is so of every Function that is not linear. Take one of the "
        "two by reverse mode, as torch.func.hessian does.",
        severity=WARNING,
        of=those(lambda f: f.jvp),
    ),
    "torch_func_differs": Rule(
        (4, "torch.func"),
        words.torch_func_differs,
        "torch.func.grad of torch.func.grad gives {}, and torch.autograd.grad is right. What uses "
        "autograd itself inside fn or a backward (autograd.grad, .data, a tensor that is kept "
        "elsewhere) is not seen by these transforms: write it in plain operations.",
        cause=True,
        verdict=words.of_torch_func,
    ),
    "noncontiguous_input": Rule(
        (1, "noncontiguous_input"),
        lambda e: e.habits.input_layout.rstrip("."),
        "For a non-contiguous x: {}. fn does something else for such a layout of x or of "
        "grad_out: look for strides, is_contiguous, view, and for copies. What x.contiguous() "
        "makes in forward has no graph, so save x itself.",
        verdict=Verdict.LAYOUT_DEPENDENT,
    ),
    "grad_out_layout": Rule(
        (1, "another layout"),
        lambda e: not e.habits.not_linear and e.habits.grad_out_layout.rstrip("."),
        "For a grad_out that is not contiguous (.sum() or .t() after fn): {}. Begin backward, and "
        "that of a Function it applies, with grad_out = grad_out.contiguous(), and keep its graph.",
        verdict=Verdict.LAYOUT_DEPENDENT,
    ),
    "input_on_ctx": Rule(
        (1, "input_on_ctx"),
        lambda e: _on_ctx(e, Kind.INPUT),
        "{} is kept on ctx, where an edit in place is not noticed, and where it lives longer. "
        "Use save_for_backward.",
        severity=WARNING,
        of=_kept_on_ctx(Kind.INPUT),
        kept=True,
    ),
    "output_on_ctx": Rule(
        (2, "output_on_ctx"),
        lambda e: _on_ctx(e, Kind.OUTPUT),
        "{} is an output that is kept on ctx. Use save_for_backward.",
        severity=WARNING,
        of=_kept_on_ctx(Kind.OUTPUT),
        kept=True,
    ),
    "reference_cycle": Rule(
        (2, "reference_cycle"),
        lambda e: e.lifetime is Lifetime.CYCLE,
        "An output on ctx refers to its own graph: it lives until the garbage collector runs.",
        severity=WARNING,
    ),
    "memory_leak": Rule(
        (2, "memory"),
        lambda e: (
            e.lifetime is Lifetime.FOREVER
            and listed(s.title for f in e.functions for s in f.saved if s.circular)
        ),
        "{} keeps its own graph alive, in a cycle that the garbage collector cannot see: every "
        "call leaks memory. Keep outputs with save_for_backward, each the very tensor that you "
        "return.",
        severity=WARNING,
        of=those(lambda f: any(s.circular for s in f.saved)),
        kept=True,
    ),
    "output_used_alone": Rule(
        (3, "outputs"),
        lambda e: e.measured.output_alone is not None and {"n": e.measured.output_alone},
        "The numbers are for output {n} alone; all outputs together are right. For an output that "
        "nobody uses, backward gets zeros, or None after set_materialize_grads(False).",
    ),
    "raises_if_frozen": Rule(
        (1, "needs_input_grad"),
        lambda e: e.measured.raises_frozen and _raised(*e.measured.raises_frozen),
        "With requires_grad=False for {name} it raises: {error}. Ask ctx.needs_input_grad in "
        "backward, in that of a second Function, too.",
        severity=WARNING,
    ),
    "only_by_backward": Rule(
        (6, "backward()"),
        lambda e: e.measured.by_backward,
        "torch.autograd.grad is refused here (a reentrant checkpoint does that), so fn was "
        "differentiated by .backward(create_graph=True).",
        severity=NOTE,
    ),
    "elements_not_checked": Rule(
        (1, "gradcheck"),
        words.elements_not_checked,
        "{unchecked} of {elements} elements were not checked: finite differences cannot be "
        "trusted there (a kink, noise, or an element that is far smaller than the others). To "
        "check these, pass a point beside this one, or a part by itself.{too_few}",
        severity=lambda e: ERROR if e.mostly_unknown else WARNING,
    ),
    "differences_disagree": Rule(
        (1, "gradcheck"),
        words.differences_disagree,
    ),
    "lost_in_rounding": Rule(
        (1, "gradcheck"),
        lambda e: e.verdict is Verdict.NOT_CHECKED and e.measured.drowned,
        "Larger numbers cancel inside fn, and what they leave is mostly rounding, as in exp(x) - "
        "1 - x for a small x: neither its values nor its derivatives can be judged here. Pass a "
        "point where less cancels, or write it so that nothing does: expm1, log1p.",
    ),
    "raises_beside": Rule(
        (1, "gradcheck"),
        lambda e: e.raises_beside.rstrip("."),
        "fn raises where its input is moved a little, as finite differences need: {}. Pass a "
        "point inside its domain, or a fn that leads back there: lambda x: fn(x.clamp(0, 1)).",
    ),
    "computes_in_float32": Rule(
        (1, "float32"),
        lambda e: e.measured.dtype is torch.float32,
        "fn computes in float32, so that its last digits are rounding.",
        severity=NOTE,
    ),
    "judged_roughly": Rule(
        (1, "gradcheck"),
        words.judged_roughly,
        "Errors of less than {every} in every element of the second derivative, or of less than "
        "{one} in one alone, would not have been seen.{ends}{rough}",
        severity=lambda e: ERROR if e.too_rough else NOTE,
    ),
    "computes_in_16_bits": Rule(
        (1, "bfloat16"),
        words.computes_in_16_bits,
        "An operation in fn or its backward computes in 16 bits (float16, bfloat16), so errors "
        "below {least} do not show. {rtol}To know more, compute in float64 throughout, and "
        "diagnose again.",
        severity=lambda e: ERROR if e.inexact else NOTE,
    ),
    "seed_fixed": Rule(
        (1, "random draw"),
        lambda e: e.seeded,
        "fn draws random numbers. It was checked with the seed fixed.",
        severity=NOTE,
    ),
    "edits_what_it_holds": Rule(
        (1, "in place"),
        lambda e: several(e.edited),
        "Each call of fn changes {}. That is put back now; to check fn without it, call .eval() on "
        "the module, or hand the tensor in.",
        severity=WARNING,
    ),
    "other_leaves": Rule(
        (1, "make it an input"),
        lambda e: several(e.unchecked),
        "fn also depends on tensors that require grad and are no inputs: {}. Derivatives by these "
        "were not checked: hand them in, or a smaller module that holds them.",
        severity=WARNING,
    ),
    "stays_symmetric": Rule(
        (6, "handed a symmetric matrix"),
        lambda e: several(e.measured.symmetric),
        "The input was symmetric and was kept so, as in fn((A + A.mT) / 2): {}. Moved otherwise, "
        "it shows other derivatives than these. If fn is meant for any matrix, pass one that is "
        "not symmetric.",
        severity=WARNING,
    ),
    "ignored_not_applied": Rule(
        (6, "ignore="),
        lambda e: several(e.unmet),
        "ignore names {}: fn applies no custom Function of this name.",
        severity=WARNING,
    ),
    "nothing_but_zero": Rule(
        (1, "Hessian"),
        words.nothing_but_zero,
        severity=NOTE,
    ),
    "another_point": Rule(
        (4, "Test at several x"),
        lambda e: e.moved,
        "At your point a derivative is 0 or jumps, or fn has no value just beyond it. The "
        "numbers are from a point beside it.",
        severity=NOTE,
    ),
}


def _causes(rows, explains=None):
    return {code: replace(row, cause=True, explains=explains) for code, row in rows.items()}


COMPILED = Rule((4, "force_eager"), lambda e: e.compiled and e.compiled.said, cause=True)
ROWS: dict[str, Rule] = {
    "compiled_region": COMPILED,
    **OF_THE_FIRST,
    **_causes(CAUSES),
    **_causes(TORCH_SAYS, explains=Verdict.RAISES),
    **WHERE_NO_OTHER_SPEAKS,
    **BESIDES,
}


def concluded(evidence: Evidence) -> tuple[Verdict, list[Finding]]:
    """The verdict, and the findings in the order of the rows."""
    spoke = [row for row in ROWS.values() if row.text(evidence)]
    verdict = verdict_of(evidence, filter(None, (_here(row.verdict, evidence) for row in spoke)))
    explained = any(_here(row.cause, evidence) for row in spoke)
    evidence = replace(evidence, verdict=verdict, explained=explained)
    said = {code: row.text(evidence) for code, row in ROWS.items()}
    return verdict, _ordered([_finding(c, said[c], evidence) for c in ROWS if said[c]], verdict)


def _ordered(findings, verdict):
    """The findings in the order of the rows, except that causes which explain the verdict come
    first among the causes, and those that explain another verdict come last."""

    def rank(finding):
        explains = ROWS[finding.code].explains
        return 0 if explains is verdict else 1 if explains is None else 2

    causes = iter(sorted((f for f in findings if f.cause), key=rank))
    return [next(causes) if f.cause else f for f in findings]


def _here(value, e):
    return value(e) if callable(value) else value


def _finding(code, text, evidence):
    row = ROWS[code]
    severity, cause = _here(row.severity, evidence), _here(row.cause, evidence)
    return Finding(code, text, row.lesson[0], cause, severity, *_where(row, severity, evidence))


def _where(row, severity, e):
    """The name, file and line of the first Function that a finding is about, or of a region."""
    if row is COMPILED:
        region = e.compiled.regions[0]
        return region.name, region.file or "", region.line
    if row is ROWS["operator_not_followed"]:
        return (next(u.name for u in e.untracked if not u.meant),)
    if row.of is not None:
        about = row.of(e)[:1]
    else:
        about = [f for f in e.functions if f.suspect]
        about = about or [f for f in e.functions if not f.sound]
        about = about if len(about) == 1 and severity == ERROR else []
    if not about:
        return ()
    place = row.kept and about[0].set_up or about[0].place
    return (about[0].name, place.file, place.line) if place else (about[0].name,)
