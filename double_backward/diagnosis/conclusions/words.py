"""The words of findings for which a row of the table is not enough. Each function takes the
evidence and returns None, what to fill into the words of the row, or all of the words."""

import math
import re
from collections.abc import Iterable
from operator import attrgetter
from typing import Any

import torch

from double_backward._torch import EDITED
from double_backward.check import EXACT, SURROGATE, TOLD, TOO_ROUGH, Outcome
from double_backward.operators import writes_in_place
from double_backward.phrases import Phrase, joined
from double_backward.untracked_steps import HOOKS, Step, told

from ..causes.habits import SAME
from ..causes.not_finite import Here
from ..measurements.transforms import GRAD_OF_GRAD, IGNORED, JVP, NESTED
from ..measurements.ways import WRONG_NUMBER
from ..preparation.formulas import Row
from ..preparation.functions import WRONG, Custom, Kind, Saved
from .evidence import Evidence
from .verdict import Verdict

# What to write where a derivative is a call of something that is not torch.
BY_ANOTHER_CALL = Phrase(
    "What torch cannot compute (a simulator, a solver) needs a second Function, which backward "
    "applies to the saved input. Its own backward computes the gradient twice more, at x + h v "
    "and x - h v with a small step h: the difference of these two gradients, over 2 h, is the "
    "Hessian times a vector v."
)
AGAIN = Phrase(
    "Compute it in backward from a saved input, in torch, or return this very tensor, too, and add "
    "what its gradient brings."
)
FORWARD_AGAIN = Phrase(
    "Keep the inputs by save_for_backward, and run forward again in backward: under "
    "torch.enable_grad(), take a = x.view_as(x).requires_grad_() of each input x, compute y from "
    "these, and return what torch.autograd.grad gives for y, each a and grad_out, with "
    "create_graph=True."
)
Filled = dict[str, Any] | None


def listed(names: Iterable[Any]) -> str:
    """The names, each once, separated by commas."""
    return joined("{}, {}", dict.fromkeys(n if isinstance(n, Phrase) else str(n) for n in names))


def several(names: tuple[str, ...]) -> str:
    """The first four names, and ", ..." if there are more."""
    first = joined("{}, {}", names[:4])
    return Phrase("{}, ...", first) if len(names) > 4 else first


def percent(part: float) -> str:
    """A part of 1 in percent with two digits: "12%", "1.2%", "0.03%"."""
    return f"{float(f'{100 * part:.2g}'):g}%"


def _rounded_up(number):
    """The number rounded up to one digit: 0.026 becomes 0.03."""
    exponent = math.floor(math.log10(number))
    return f"{math.ceil(number / 10**exponent) * 10**exponent:.1g}"


# The first derivative.


def backward_not_linear(e: Evidence) -> str | None:
    seen = e.habits.not_linear
    if not seen or e.meant:
        return None
    if seen == SAME:
        return Phrase(
            "backward ignores grad_out: for three times as large a one it returns the same. "
            "Multiply what it returns by grad_out, unless nothing ever follows fn."
        )
    if seen != WRONG_NUMBER:
        return Phrase(
            "For another grad_out, larger, smaller or negative, backward raises: {}", seen
        )
    return Phrase(
        "backward is not linear in grad_out: for a multiple of it, or the negative, it does not "
        "return that multiple, as where it adds something, clips, looks at the sign, multiplies "
        "gradients with one another, or stops at an absolute tolerance. Return grad_out times "
        "something that grad_out does not change."
    )


def backward_works_once(e: Evidence) -> Filled:
    if e.habits.mutates_saved or not e.habits.only_once:
        return None
    inner = any(s.inner for f in e.functions for s in f.saved)
    advice = FORWARD_AGAIN if inner else Phrase("Leave what forward kept as it is.")
    return {"error": e.habits.only_once.rstrip("."), "advice": advice}


def backward_not_repeatable(e: Evidence) -> Filled:
    if not e.habits.not_repeatable or (e.meant and not e.habits.changes_ctx):
        return None
    changed = listed(f"ctx.{name}" for name in e.habits.changes_ctx)
    given = e.habits.not_repeatable
    if given == WRONG_NUMBER:
        given = Phrase("another number")
    why = Phrase("it draws random numbers, or changes what it uses")
    if changed:
        why = Phrase("it changes {}", changed)
    return {"given": given, "why": why}


IN_FN = {  # kinds of step -> what to do about them
    ("grad", "backward"): Phrase("Use torch.autograd.grad there, with create_graph=True."),
    ("detach", "data", "tensor", "variable"): Phrase("Use the tensor itself."),
    ("no_grad", "inference"): Phrase("Compute it outside of that block."),
    ("mutates",): Phrase("Have the operator return a new tensor, and register its backward."),
    ("item", "tolist", "float", "numpy"): Phrase("Compute it in torch."),
    ("max_norm",): Phrase("Scale the weight after the optimizer's step instead."),
    tuple(HOOKS): Phrase(
        "What a hook returns takes the place of the gradient: return the true one, computed in "
        "torch where autograd records, or drop the hook."
    ),
}


def steps_in_fn(e: Evidence) -> Filled:
    """The steps of fn itself that autograd does not follow, if no custom Function is to blame."""
    to_blame = any(f.first is Outcome.WRONG or f.suspect or not f.sound for f in e.functions)
    if not e.steps or to_blame:
        return None
    said = advice({step.kind for step in e.steps})
    if e.not_heeded:
        said = Phrase("{} rtol= was not heeded: it is for what is computed inexactly.", said)
    return {"steps": told(e.steps), "advice": said}


def advice(kinds: set[str]) -> str:
    """What to do about steps of these kinds."""
    return joined("{} {}", [said for of, said in IN_FN.items() if not kinds.isdisjoint(of)])


def operator_not_followed(e: Evidence) -> str | None:
    """The operators for which torch has no derivative, and why."""
    if not (e.bad or e.first_is_wrong):
        return None
    groups: dict[str, list[str]] = {}
    for each in e.untracked:
        if not each.meant:
            groups.setdefault(each.why, []).append(each.name)
    said = (Phrase("{}: {}", listed(names), why) for why, names in groups.items())
    return joined("{}; {}", said) if groups else None


def first_derivative_differs(e: Evidence) -> str | None:
    habits = e.habits
    habit = habits.mutates or habits.mutates_saved or habits.not_linear or habits.not_repeatable
    explained = bool(habit or habits.no_gradient or e.is_in("linked") or operator_not_followed(e))
    if any(f.meant for f in e.functions):  # the habit may be that of a Function that is meant
        explained = all(f.first is not Outcome.WRONG for f in e.not_meant)
    if not e.first_is_wrong or explained or e.meant:
        return None
    first = e.measured.first
    size = max(abs(first.expected), abs(first.got))
    off = abs(first.expected - first.got) / size if size else 0.0
    if 0 < off <= SURROGATE and steps_in_fn(e):
        return None  # since it is no solver that makes it inexact
    if 0 < off <= SURROGATE:
        return Phrase(
            "The first derivative is off by {}. If fn solves to about that, pass rtol={}; if not, "
            "backward is wrong.",
            percent(off),
            _rounded_up(2 * off),
        )
    wrong = [f for f in e.not_meant if f.first is not Outcome.RIGHT]
    names = listed(f'"{f.name}"' if f.operator else f.name for f in wrong)
    return Phrase(
        "The first derivative is not that of forward. If you meant that (straight-through, "
        "gradient reversal, surrogate, a solver stopped early), gradcheck fails by "
        "design{}; if not, backward is wrong.",
        Phrase("; pass ignore=[{}] then", names) if names else "",
    )


def meant(e: Evidence) -> Filled:
    if not e.meant:
        return None
    open_ = listed(e.not_apart)
    others = Phrase(
        " Whether the backward of {} is right cannot be told here: diagnose it by itself.",
        open_,
    )
    return {"names": listed(e.meant), "others": others if open_ else ""}


def inexact_first_derivative(e: Evidence) -> str | None:
    first, exact = e.measured.first, EXACT[e.measured.dtype]
    said = e.measured.dtype is not torch.float64 and not e.inexact  # by another finding
    said = said or e.measured.dtype is torch.bfloat16
    if said or first.outcome is not Outcome.RIGHT or first.relative <= exact or steps_in_fn(e):
        return None
    rtol = _rounded_up(2 * first.relative)
    solved = e.inexact and first.relative <= SURROGATE  # one further off is no solver's
    return Phrase(
        "The first derivative is off by up to {:.2%}, as where fn iterates, or has a rounded or "
        "tabulated formula, or a lower precision inside. {}So the second derivative was judged to "
        "{} only; a more exact fn tells more.",
        first.relative,
        Phrase("If fn is meant to be so inexact, pass rtol={}. ", rtol) if solved else "",
        percent(e.measured.tolerance),
    )


# Causes of a wrong second derivative.


def changed_by_create_graph(e: Evidence) -> str | None:
    if not e.measured.changed_by_create_graph:
        return None
    steps = [step for f in e.functions for step in f.untracked_calls]
    fact = Phrase(
        "With create_graph=True even the first derivative is another one: backward does something "
        "else, or nothing, where autograd records it"
    )
    if not any(step.kind == "backward" for step in steps):
        return Phrase("{}. Let it compute the same either way.", fact)
    return Phrase(
        "{}{}. What .backward() leaves in .grad, and of which tensors, is then another thing: use "
        "what torch.autograd.grad(..., create_graph=True) returns, of tensors that have their "
        "graph.",
        fact,
        _seen(steps),
    )


def once_differentiable(e: Evidence) -> Filled:
    guarded = [f for f in e.functions if f.once]
    if not guarded:
        return None
    rows = e.measured.second.items()
    silent = listed(setting for setting, row in rows if row.outcome is Outcome.WRONG)
    leaks = Phrase("; here a wrong number comes without a message: {}", silent) if silent else ""
    if all(f.sound for f in guarded):
        advice = Phrase(
            "What it guards is torch on saved inputs and can be differentiated: delete the "
            "decorator, and diagnose again."
        )
    elif all(f.sound or EDITED in f.refused for f in guarded):
        advice = Phrase(
            "What it guards changes a tensor in place that autograd keeps: make a new tensor "
            "there, delete the decorator, and diagnose again."
        )
    else:
        advice = Phrase(
            "Do not delete the decorator. Write a Function for backward, with a backward of its "
            "own."
        )
    return {"leaks": leaks, "advice": advice}


def ignored_outputs(e: Evidence) -> Filled:
    ignored = [extra.title for extra in e.extras if extra.ignored]
    return {"names": listed(ignored), "first": ignored[0]} if ignored else None


def input_copy_saved(e: Evidence) -> Filled:
    kept = [s for s in e.blamed if s.repeats is Kind.INPUT and not s.on_ctx]
    return {"maker": _maker(e), "which": _which(kept)} if kept else None


MADE_UNRECORDED = Phrase(
    "{} saves a tensor it made itself{}. Autograd does not record there, so that the second "
    "backward takes this tensor for a constant."
)
MADE_ON_CTX = Phrase(
    "{} keeps on ctx what it made itself. Autograd does not record there, so that the second "
    "backward takes this for a constant: {}."
)
MARKED_OUTPUT = Phrase("{} saves an output{}, which the second backward takes for a constant.")
MARKED_ON_CTX = Phrase(
    "{} keeps on ctx an output, which the second backward takes for a constant: {}."
)


def intermediate_saved(e: Evidence) -> Filled:
    kept = [s for s in e.blamed if not (s.on_ctx or s.outside or s.repeats is Kind.INPUT)]
    return _facts(e, kept, MADE_UNRECORDED, MARKED_OUTPUT, _which)


def intermediate_on_ctx(e: Evidence) -> Filled:
    kept = [s for s in e.blamed if s.on_ctx and not s.outside]
    return _facts(e, kept, MADE_ON_CTX, MARKED_ON_CTX, lambda kept: listed(s.title for s in kept))


def _facts(e: Evidence, kept: list[Saved], made: str, marked: str, names: Any) -> Filled:
    """What is said of what was made unrecorded, and of outputs that a mark makes constants."""
    if not kept:
        return None
    returned = [s for s in kept if s.marked or (s.numeric and s.repeats is Kind.OUTPUT)]
    each = (made, [s for s in kept if s not in returned]), (marked, returned)
    said = (Phrase(template, _maker(e), names(group)) for template, group in each if group)
    return {"facts": joined("{} {}", said), "cure": _cure(kept)}


def computed_outside_torch(e: Evidence) -> Filled:
    kept = [s.title for s in e.blamed if s.outside]
    return {"maker": _maker(e), "names": listed(kept)} if kept else None


def _maker(e: Evidence) -> str:
    """The method that keeps something: for an operator, this can only be its setup_context."""
    keepers = [f for f in e.suspects if f.lost]
    return "setup_context" if all(f.set_up for f in keepers) else "forward"


def _which(kept: list[Saved]) -> str:
    """The names, " (e, n)", and where they are saved if that is not in the Function itself."""
    names = listed(s.title for s in kept)
    places = listed(s.saved_in for s in kept if s.saved_in)
    said = joined("{}; {}", filter(None, [names, places and Phrase("saved in {}", places)]))
    return Phrase(" ({})", said) if said else ""


def _cure(kept: list[Saved]) -> str:
    """What to do instead, for each thing that is kept if that is not the same for all."""
    if any(s.inner for s in kept):
        return Phrase("A graph that begins at a detached input ends there. {}", FORWARD_AGAIN)
    engine = any(s.dtype.startswith("NumPy") for s in kept)
    groups: dict[str, list[Saved]] = {}
    for each in kept:
        groups.setdefault(_cure_of(each, engine), []).append(each)
    if len(groups) == 1:
        return next(iter(groups))
    each_of = (Phrase("{}: {}", listed(s.title for s in g), cure) for cure, g in groups.items())
    return joined("{} {}", each_of)


def _cure_of(s: Saved, engine: bool) -> str:
    if s.marked:
        return Phrase(
            "It is returned, but marked non-differentiable: leave mark_non_differentiable out, and "
            "add the part for its gradient."
        )
    if s.repeats is Kind.INPUT:
        return Phrase(
            "It repeats an input: give save_for_backward the very tensor that apply gets."
        )
    if s.repeats is Kind.OUTPUT and not s.numeric:
        return Phrase("It repeats the output: save the very tensor that you return, not a copy.")
    if s.numeric:
        return Phrase(
            "No graph leads on from what is not a tensor: compute it in backward from a saved "
            "input, in torch, or return it as a tensor, too, and save that.{}",
            Phrase(" {}", BY_ANOTHER_CALL) if engine else "",
        )
    return AGAIN


def second_function_gradient(e: Evidence) -> str:
    known = {f.name for f in e.functions}  # fn calls these, too, for which they are wrong already
    seconds = [s for f in e.suspects for s in f.seconds]
    seconds = [s for s in seconds if not (e.first_is_wrong and s.name in known)]
    said = (Phrase("{} returns {} for {}", s.name, s.returned, s.argument) for s in seconds)
    return joined("{}; {}", dict.fromkeys(said))


def grad_out_path_cut(e: Evidence) -> Filled:
    cut = [f for f in e.suspects if f.by_grad_out in WRONG and not (f.seconds or f.once)]
    spoilt = (e.habits.not_linear and not e.meant) or e.habits.not_repeatable
    if spoilt or _is_told_otherwise(e, cut):
        return None
    lost = all(f.checked.by_grad_out.got == 0 for f in cut)
    how = "has no graph to grad_out" if lost else "is differentiated wrongly by grad_out"
    fact = Phrase("What backward returns {}{}.", Phrase(how), _seen(_steps(cut)))
    also = listed(name for f in cut for name in f.cut)
    advice = Phrase(
        "Compute with grad_out itself{}, in torch where autograd records, or in a Function with a "
        "complete backward.",
        Phrase(" and with {}", also) if also else "",
    )
    return {"fact": fact, "advice": FORWARD_AGAIN if _differentiates(cut) else advice}


def untracked_backward(e: Evidence) -> str | None:
    lost = [f for f in e.suspects if f.cut and not f.seconds and f not in e.by_convention]
    lost = [f for f in lost if f.untracked_calls or not (f.refused or f.lost or _follows(f))]
    lost = [f for f in lost or _cut_by_what_they_do(e) if not f.once]
    steps = _steps(lost)
    if _is_told_otherwise(e, lost):
        return None
    if e.habits.mutates_saved and all(step.kind == "data" for step in steps):
        return None  # x.data.mul_(2) is how it writes
    names = [name for f in lost for name in f.cut] or [Phrase("what it is given")]
    engine = any(step.kind == "numpy" for step in steps)
    fact = Phrase(
        "backward computes with {} where autograd cannot follow{}.", listed(names), _seen(steps)
    )
    if _differentiates(lost):
        return Phrase("{fact} {advice}", fact=fact, advice=FORWARD_AGAIN)
    return Phrase(
        "{fact} Write it in torch operations that autograd records, or as a Function with a "
        "complete backward.{engine}",
        fact=fact,
        engine=Phrase(" {}", BY_ANOTHER_CALL) if engine else "",
    )


def _differentiates(functions):
    """Whether these Functions take a gradient, and lose its graph or that of their inputs."""
    steps = {step.kind for step in _steps(functions)}
    inner = any(s.inner for f in functions for s in f.saved)
    return inner or not steps.isdisjoint({"grad", "backward"})


def _follows(f):
    """Whether autograd follows the inputs through backward, so that another cause makes the number
    wrong."""
    return bool(f.checked.by_input.got) and not f.untracked_calls


def _cut_by_what_they_do(e):
    """The Functions with steps that lose a graph, if nothing is known of any Function by itself."""
    known = any(f.explained or f.by_grad_out in WRONG for f in e.functions)
    return [] if known or not e.has_wrong_number else [f for f in e.functions if f.untracked_calls]


def _is_told_otherwise(e, functions):
    """Whether another finding is to say it: no Function is left; or create_graph changes the first
    derivative; or no step is seen, and a second call or a write changes a number."""
    habits = e.habits
    spoilt = habits.edits_input or habits.mutates or habits.mutates_saved or habits.not_repeatable
    edited = any(s.edited for f in e.functions for s in f.saved)
    unseen = (spoilt or edited or e.error_says(EDITED)) and not _steps(functions)
    return not functions or e.measured.changed_by_create_graph or unseen


def _steps(functions: list[Custom]) -> list[Step]:
    return [step for f in functions for step in f.untracked_calls]


def _seen(steps: list[Step]) -> str:
    """The step that cuts the graph, or the steps of which one or more do."""
    if not steps:
        return Phrase(" (what cuts it was not seen)")
    if len(steps) == 1:
        return Phrase(" (it uses {})", told(steps))
    return Phrase(" (by one or more of {})", told(steps))


OTHER_OPERATIONS = {  # a word in an error -> advice for an operation with a second derivative
    "scaled_dot_product": Phrase(
        "Inside `with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):` "
        "attention is computed in operations that have one."
    ),
    "cudnn": Phrase(
        "Inside `with torch.backends.cudnn.flags(enabled=False):` it is computed in operations "
        "that have one."
    ),
    "cdist": Phrase("The formula has one: (x[:, None] - y).square().sum(-1), and .sqrt() of it."),
    "": Phrase(
        "Register one (register_autograd), use other operations, or write a Function with its own "
        "backward."
    ),
}


def no_derivative_formula(e: Evidence) -> Filled:
    warned = any("an autograd kernel was not" in text for text in e.warnings) and not e.untracked
    spoilt = warned and (e.bad or e.first_is_wrong)
    said = [t for t in e.errors if "no autograd formula was" in t or "derivative for" in t]
    if not (spoilt or said):
        return None
    advice = next(a for name, a in OTHER_OPERATIONS.items() if any(name in t for t in said or [""]))
    named = re.search(r"backward through (\w+)\.(\w+)\.(\w+) but", " ".join(said))
    if not named:
        return {"what": Phrase("An operation in the first derivative"), "advice": advice}
    space, name, overload = named.groups()
    if writes_in_place(attrgetter(f"{space}.{name}.{overload}")(torch.ops)):
        advice = IN_FN["mutates",]  # torch refuses to register one
    return {"what": Phrase("The operator {}", f"{space}::{name}"), "advice": advice}


def third_order_not_tracked(e: Evidence) -> str | None:
    rows = e.measured.third.values()
    late = any(row.outcome in (Outcome.WRONG, Outcome.RAISES) for row in rows)
    early = any(row.outcome is not Outcome.RIGHT for row in e.measured.second.values())
    if early or not late:
        return None
    inner = listed(name for f in e.functions for name in f.inner)
    if not inner and all(f.sound for f in e.functions):
        return Phrase(
            "Right at second order, not at third: in the second derivative of an operation of "
            "torch something is taken for a constant, as in those of layer_norm and batch_norm. "
            "Write it from plain operations (mean, var, sqrt)."
        )
    return Phrase(
        "Right at second order, not at third: the backward of your backward keeps intermediates or "
        "is not tracked. Diagnose {} by itself.",
        inner or Phrase("the Function that backward applies"),
    )


# Errors of torch.


def saved_tensor_edited(e: Evidence) -> str | None:
    if e.habits.mutates or e.habits.mutates_saved or not e.error_says(EDITED):
        return None
    if e.written is None:
        return Phrase(
            "A tensor that autograd keeps for the next backward is changed in place (+=, *=, or a "
            "name with an underscore at its end). Make a new tensor there."
        )
    by, lines = e.written.kept_in, e.written.lines
    return Phrase(
        "A tensor that autograd keeps for the next backward{} is changed in place afterwards, in "
        "{}. Make a new tensor there.",
        Phrase(" ({})", by) if by else "",
        joined("{}; {}", lines),
    )


def endless_recursion(e: Evidence) -> str | None:
    said = [text for text in e.errors if "endless recursion: " in text]
    if not said:
        return None
    what = said[0].partition("endless recursion: ")[2]
    return Phrase(
        "{}: an output that is saved has its Function as its grad_fn, whatever graph it had inside "
        "forward, so that whoever differentiates it in backward calls the same backward again, "
        "without end. Compute it anew in backward, from the saved inputs under "
        "torch.enable_grad().",
        what[0].upper() + what[1:],
    )


def where(e: Evidence) -> str:
    """The place of an error, ", in backward, line 7,", or ""."""
    places = raised_in(e)
    return Phrase(", in {},", places) if places else ""


def raised_in(e: Evidence) -> str:
    """The places in the reader's code where autograd raises an error."""
    rows = [e.measured.first, *e.measured.rows]
    return listed(row.raised_in for row in rows if row.raised_in)


def cause_unknown(e: Evidence) -> str | None:
    """The words for a wrong or raising second derivative that no other finding explains."""
    if e.explained:
        return None
    if e.verdict is Verdict.RAISES and not raised_in(e):
        return Phrase(
            "The cause is not known. Diagnose the halves of fn by themselves to find "
            "the operation that raises."
        )
    if e.verdict is not Verdict.SILENTLY_WRONG:
        return None
    followed = listed(name for f in e.functions if _follows(f) for name in f.cut)
    if followed:
        return Phrase(
            "Autograd follows {} through backward, and computes a derivative that is not the "
            "true one; nothing that is kept explains it. Where backward applies a Function or an "
            "operator that is not torch's own, check that for each of its inputs.",
            followed,
        )
    if e.alone or not all(f.sound for f in e.functions):
        return Phrase(
            "Autograd computes a derivative that is not the true one, and the cause is not "
            "known: nothing that is kept explains it. Diagnose the halves of fn by themselves to "
            "find the place, then look at that backward step by step."
        )
    return Phrase(
        "Autograd computes a derivative that is not the true one, and no custom Function in fn "
        "is to blame: an operation of torch is, or a compiled region, or something detached. One "
        "such operation is torch.sparse_coo_tensor(i, v), which loses the second derivative by "
        "v: build it dense, with index_put, and call .to_sparse()."
    )


# What else there is to know.


def nan_in_second(e: Evidence) -> str | None:
    second = any(row.outcome is Outcome.NOT_FINITE for row in e.measured.rows)
    if e.measured.first.outcome is Outcome.NOT_FINITE:
        return None
    if second:
        return Phrase("The first derivative is finite, the second is not. {}", not_finite(e))
    if not e.measured.grad_out_not_finite:
        return None
    return Phrase(
        "What backward returns is finite; differentiated by grad_out, as where weights of a loss "
        "are trained, it is not. {}",
        not_finite(e),
    )


INSTEAD = {  # where the number is used
    Here.SMOOTH: Phrase(
        "That number is used, and fn itself is smooth here: another formula for the same function "
        "has the derivative, as (x * x).sum() in the place of norm(x)**2. Masks (torch.where, "
        "nan_to_num) would give another number."
    ),
    Here.KINK: Phrase(
        "fn has a kink here, as |x| and a norm have at 0, and so no second derivative. Stay away "
        "from there, or take a smooth function: torch.sqrt((x * x).sum() + 1e-12) is nearly the "
        "norm."
    ),
    Here.STEEP: Phrase(
        "fn is infinitely steep here, or ends, as a root does at 0, and so has no derivative. Stay "
        "away from there, or take another function: torch.sqrt(x + 1e-6)."
    ),
}


def not_finite(e: Evidence) -> str:
    """Where the first number that is not finite comes from, and what to do."""
    if e.broken is None:
        return Phrase(
            "Often that is 0/0 or 0 * inf, from a root, a norm or a power at 0, from torch.where, "
            "which differentiates both sides, or NaN in the input. Stay away from there."
        )
    line = Phrase(", in {}", e.broken.where) if e.broken.where else ""
    said = INSTEAD.get(e.broken.here)
    if said and not e.broken.masked:
        return Phrase(
            "The first operation whose result is not finite is {}{}. {}", e.broken.name, line, said
        )
    return Phrase(
        "The first operation whose result is not finite is {}{}, as that of a root, a power or a "
        "quotient at 0 is, or of one without a value there. If that number is not used, "
        "torch.where alone does not help, since both sides are differentiated: hand the "
        "operation a harmless one, torch.where(ok, f(torch.where(ok, x, 1.0)), 0.0), with ok "
        "such as x > 0. What is chosen instead counts with its own derivatives: those of a plain "
        "number are 0, so that near 0 the choice in the place of sin(x)/x is 1 - x**2 / 6.",
        e.broken.name,
        line,
    )


def differences_disagree(e: Evidence) -> str | None:
    """Why nothing is said of it, where nobody else knows why."""
    known = e.too_little or e.raises_beside or e.inexact or e.not_apart or e.unasked
    if e.verdict is not Verdict.NOT_CHECKED or known or e.measured.drowned:
        return None
    unclear = (row.text for row in e.rows if row.outcome is Outcome.UNCLEAR and row.text)
    if text := next(unclear, ""):
        said = "What the second derivative should be is unclear: {}. Pass another point."
        return Phrase(said, text)
    return Phrase(
        "Finite differences can be trusted at no element: around this point fn or its derivative "
        "jumps, has a kink or is not finite, or is noisy. Pass another point, or a fn without "
        "the noise."
    )


def nothing_but_zero(e: Evidence) -> str | None:
    """A note on a 0 that is right, and that the reader may not expect."""
    if e.verdict is not Verdict.SUPPORTED or e.first_is_wrong:
        return None
    said = []
    if e.habits.unused:
        said.append(
            Phrase(
                "fn does not change with {}: autograd gives None for that, or 0.",
                e.habits.unused,
            )
        )
    if e.measured.telling == 1:
        said.append(
            Phrase(
                "The second derivative is 0 throughout, as that of a straight line is, and of a "
                "net of ReLU: a loss on it trains nothing."
            )
        )
    elif e.adds_up_to_0:
        said.append(
            Phrase(
                "With ones for weights, as in grad(y.sum(), x) and then grad(g.sum(), x), 0 is "
                "right here: ones add up the outputs, and each row of the Hessian. With other "
                "weights the second derivative is not 0."
            )
        )
    return joined("{} {}", said) or None


def _said(row: Row) -> str:
    return row.text if row.outcome is Outcome.WRONG else Phrase("NaN or infinity")


def wrong_in_forward_mode(e: Evidence) -> str | None:
    """The words for the first row that goes through a jvp once and is wrong."""
    wrong = e.broken_in_forward_mode
    if not wrong or not any(f.wrong_jvp for f in e.functions):
        return None
    name, row = next(iter(wrong.items()))
    if row.text == IGNORED:
        return Phrase(
            "jvp returns the same, whatever the tangents are: it forgets them. Of x**2 it is 2 * x "
            "* t, with the tangent t of x."
        )
    if name == JVP:
        return Phrase(
            "What jvp returns is not the change of the outputs: it is {}. Return the sum, over all "
            "inputs, of the derivative by this input times its tangent, for each output.",
            _said(row),
        )
    return Phrase(
        "jvp is right, and a second derivative with it is not: {} gives {}. backward or jvp uses "
        "something that has no graph or no tangent there, detached or made by forward. Compute it "
        "in both from saved inputs, after save_for_backward and save_for_forward.",
        name,
        _said(row),
    )


def torch_in_forward_mode(e: Evidence) -> Filled:
    wrong, operator = e.broken_in_forward_mode, any(f.operator for f in e.functions)
    if not wrong or operator or wrong_in_forward_mode(e) or torch_func_differs(e):
        return None
    name, row = next(iter(wrong.items()))
    return {"name": name, "said": _said(row)}


def operator_in_forward_mode(e: Evidence) -> str | None:
    row = e.forward_mode.get(JVP, Row(Outcome.NOT_ASKED))
    broken = row.outcome in WRONG and any(f.operator for f in e.functions)
    return _said(row) if broken and not wrong_in_forward_mode(e) else None


def nested_forward_mode(e: Evidence) -> str | None:
    row = e.torch_func.get(NESTED, Row(Outcome.NOT_ASKED))
    broken = row.outcome in WRONG and not e.broken_in_forward_mode
    return _said(row) if broken else None


def torch_func_differs(e: Evidence) -> str | None:
    row = e.torch_func.get(GRAD_OF_GRAD, Row(Outcome.NOT_ASKED))
    return _said(row) if row.outcome in WRONG and not e.bad else None


def of_torch_func(e: Evidence) -> Verdict:
    wrong = e.torch_func[GRAD_OF_GRAD].outcome is Outcome.WRONG
    return Verdict.SILENTLY_WRONG if wrong else Verdict.NOT_FINITE


def elements_not_checked(e: Evidence) -> Filled:
    rows = [row for row in e.measured.rows if row.outcome is Outcome.RIGHT]
    worst = max(rows, key=lambda row: row.unchecked, default=None)
    if worst is None or not worst.unchecked:
        return None
    too_few = Phrase(" What is left is too little to call it right.")
    return {
        "unchecked": worst.unchecked,
        "elements": worst.elements,
        "too_few": too_few if e.mostly_unknown else "",
    }


def computes_in_16_bits(e: Evidence) -> Filled:
    if e.measured.dtype is not torch.bfloat16:
        return None
    least = _rounded_up(max(TOO_ROUGH, e.measured.resolution / 2))
    rtol = Phrase("If it is meant to, pass rtol={}. ", least) if e.inexact else ""
    return {"least": percent(e.measured.resolution or e.measured.tolerance), "rtol": rtol}


def judged_roughly(e: Evidence) -> Filled:
    m = e.measured
    if m.resolution <= TOLD and m.resolution_of_one <= TOO_ROUGH:
        return None
    if e.inexact or m.drowned or not m.telling:
        return None
    ends = Phrase(" Tangents, which are exact, end at {}, so that differences judge.", m.lost)
    rough = Phrase(" That is too much to call it right: pass fewer elements, or float64.")
    return {
        "every": percent(m.resolution),
        "one": percent(m.resolution_of_one),
        "ends": ends if m.lost else "",
        "rough": rough if e.too_rough else "",
    }
