"""Is an answer's value that of plain torch, and its first and second derivative?

The first thing that is wrong ends the review. What is said of it is measured: the numbers are
compared with the `truth` of the exercise, in every setting of it. Why they are wrong is asked in
`causes`.
"""

import ast
import traceback
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from types import FunctionType
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function, grad

from double_backward.graphs import walk

from . import causes
from .differentiate import called, first, formulas, functions_of, in_formula, second, summed
from .errors import raised, readers_frames, tree_of
from .language import Phrase, sentences
from .relations import Pair
from .reply import Reply, Said, neutral, survived, wrong
from .returned import look_at_returned, recorded
from .task import Setting, Task, uneven

NO_GRAPH = (  # parts of the two errors of autograd for a result that does not depend on x
    "does not require grad and does not have a grad_fn",
    "appears to not have been used in the graph",
)


def review(task: Task, answer: object) -> Reply:
    """`Reply` to an answer, which is a callable or a Function. Raises nothing for a wrong one."""
    with torch.inference_mode(False), torch.enable_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return _review(task, function_of(answer))
        except Said as said:
            return said.args[0]
        except (Exception, SystemExit) as error:
            return _unexpected(error)


def _review(task, fn):
    check_as_given(task, fn)
    for setting in [*task.plain, *task.more, *map(Setting, task.edges), task.constant]:
        check_value(task, fn, setting)
    check_graph(fn, task.plain[0])
    check_first_derivative(task, fn)
    diagnosis = causes.diagnosed(task, fn, task.plain[0])
    if said := causes.of_conduct(diagnosis):
        wrong(Phrase("the first derivative is right, and yet one thing is left to mend."), said)
    check_whose_derivative(fn, task.plain[0])
    if task.order > 1:
        check_second_derivative(task, fn)
    check_edges(task, fn)
    check_what_is_kept(task, fn)
    if task.order == 1:
        return Reply("right", Phrase("right. Checked: value and first derivative."))
    if not diagnosis.ok:
        fact = "right in every setting of this exercise, and yet: {}."
        said = sentences(*(found.message for found in diagnosis.findings[:1]))
        wrong(Phrase(fact, diagnosis.verdict.headline), said)
    checked = (
        "right. Checked: value, first and second derivative, alone and inside larger formulas."
    )
    return Reply("right", Phrase(checked))


def _unexpected(error):
    """An error where none was expected: of the answer, on some calls only, or of the course."""
    try:
        if readers_frames(error) or isinstance(error, SystemExit):
            raised(Phrase("one of the calls"), error)
    except Said as said:
        return said.args[0]
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{last.name}, line {last.lineno} of {last.filename.rpartition('/')[2]}"
    failed = "the check itself failed, which is a mistake of the course and not yours: {}: {} ({})."
    return Reply("wrong", Phrase(failed, type(error).__name__, error, where))


# What was handed over


def function_of(answer: object) -> Callable:
    """The answer as something to call with the arguments of the exercise."""
    if isinstance(answer, type) and issubclass(answer, Function):
        return answer.apply
    if isinstance(answer, Function):
        name = type(answer).__name__
        advice = Phrase("Hand over {}.apply, without brackets.", name)
        wrong(Phrase("this is an instance of {}.", name), advice)
    if isinstance(answer, type):
        fact = "{} is a class, and no torch.autograd.Function."
        advice = Phrase("Write class {0}(Function), and hand over {0}.apply.", answer.__name__)
        wrong(Phrase(fact, answer.__name__), advice)
    if isinstance(answer, Tensor):
        advice = Phrase("Hand over the function itself: Name.apply, without brackets behind it.")
        wrong(Phrase("this is a tensor, the result of a call."), advice)
    if not callable(answer):
        advice = Phrase("Hand over the Function's apply: Name.apply")
        wrong(Phrase("there is nothing to call."), advice)
    owner, _, method = getattr(answer, "__qualname__", "").rpartition(".")
    if method in ("forward", "backward", "setup_context"):
        name = owner.rpartition(".")[2]
        advice = Phrase("Hand over {}.apply, which calls it.", name)
        wrong(Phrase("this is {} itself.", method), advice)
    return answer


def check_as_given(task, fn):
    """Lesson 4: has anything been changed? Comments and layout do not count.

    Bytecode will not do: it depends on where torch was imported.
    """
    if task.given:
        yours = _trees(getattr(fn, "__self__", fn))
        if yours and yours == _trees(task.given):
            neutral(Phrase("as given. It has a bug: find it and mend it here."))


def _trees(cls):
    """Syntax tree of each method; None if Python cannot find or read the source of one."""
    methods = {name: getattr(f, "__func__", f) for name, f in getattr(cls, "__dict__", {}).items()}
    trees = {name: tree_of(f) for name, f in methods.items() if isinstance(f, FunctionType)}
    if None in trees.values():
        return None
    return {name: ast.dump(tree) for name, tree in trees.items()}


# The value


def check_value(task, fn, setting):
    args, _ = setting.fresh()
    true = task.truth(*setting.fresh(double=True)[0]).detach()
    try:
        out = fn(*args)
    except (Exception, SystemExit) as error:
        inside = any(frame.f_code.co_name == "forward" for frame, _ in readers_frames(error))
        called = "forward" if inside else f"F({', '.join(task.inputs)})"
        raised(Phrase("{}{}", called, setting.note), error)
    _check_kind(task, setting, out, true)
    for name, before, after in zip(task.inputs, setting.args, args, strict=True):
        if isinstance(before, Tensor) and not torch.equal(before, after.detach()):
            fact = Phrase("forward changes {}, which belongs to the caller{}.", name, setting.note)
            wrong(fact, Phrase("Make a new tensor instead."))
    dtype = torch.float32 if setting.single else torch.float64
    given = task.named(setting.args)
    pair = Pair("value", out.detach().to(dtype), true.to(dtype), given, setting.note)
    if pair.wrong:
        asked = Phrase("It should be {}.", task.asks)
        advice = (
            survived(causes.of_inf, fn, setting, pair)
            or survived(causes.in_float32, fn, setting, [pair])
            or asked
        )
        wrong(Phrase("the value is wrong {}.", pair.said), advice)


def _of_several(task, outs, true):
    """What to do with a result that is a tuple or a list."""
    if len(outs) == 1:
        return Phrase("Return the tensor itself.")
    first = outs[0] if outs else None
    if isinstance(first, Tensor) and first.shape == true.shape and torch.allclose(first, true):
        return Phrase(
            "Let a function call apply and return the first result alone, and check that function."
        )
    return Phrase("It should be {}.", task.asks)


def _check_kind(task, setting, out, true):
    """One tensor of the right shape and dtype."""
    if out is None:
        wrong(Phrase("the result is None."), Phrase("Is a return missing?"))
    if isinstance(out, (tuple, list)):
        several = Phrase("the result is a {} of {}.", type(out).__name__, len(out))
        wrong(several, _of_several(task, out, true))
    if isinstance(out, Function):
        name = type(out).__name__
        advice = Phrase("Call it through apply: {}.apply", name)
        wrong(Phrase("the result is an instance of {}.", name), advice)
    if not isinstance(out, Tensor):
        wrong(Phrase("the result is of type {}, and no tensor.", type(out).__name__))
    if out.shape != true.shape:
        advice = Phrase("It should be {}, of shape {}.", task.asks, tuple(true.shape))
        node: Any = out.grad_fn
        taken = type(node).__name__ in ("UnbindBackward0", "SelectBackward0")
        if taken and hasattr(node.next_functions[0][0], "_forward_cls"):
            advice = Phrase(
                "This is an element of the one tensor that apply returns: forward returns no extra "
                "outputs."
            )
        wrong(Phrase("the result is of shape {}{}.", tuple(out.shape), setting.note), advice)
    if not setting.single and out.dtype != torch.float64:
        advice = Phrase("It should be {}, like the input.", true.dtype)
        wrong(Phrase("the result is of dtype {}.", out.dtype), advice)


def check_graph(fn, setting):
    """The result comes from a Function of the reader's."""
    out = fn(*setting.fresh()[0])
    if not out.requires_grad:
        fact = Phrase("the value is right, but no graph leads from it to the input.")
        wrong(fact, survived(causes.cut_off, fn, setting))
    if not any(node.custom for node in walk.walk(out).nodes):
        advice = Phrase("Write one, with forward and backward, and call it through apply.")
        wrong(Phrase("right numbers, but there is no Function of yours in the graph."), advice)


def check_whose_derivative(fn, setting):
    """Is it a Function of the reader's that makes the derivative?"""
    out, xs = called(fn, setting)
    with ExitStack() as stack:
        calls = [stack.enter_context(recorded(cls)) for cls in functions_of(out)]
        grad(out, xs, uneven(out), allow_unused=True)
    for (_, *got), gave in sum(calls, []):
        for g in gave if isinstance(gave, tuple) else (gave,):
            came = [u for u in got if u is not None and u.any()]
            if g is not None and came and not any(_proportional(g, u) for u in came):
                return
    fact = Phrase(
        "right numbers, but the derivative is torch's: the Function in the graph has no part in "
        "it, or hands the gradient on, at most times a number."
    )
    wrong(fact, Phrase("Compute the result in forward, and its derivative in backward."))


def _proportional(a, b):
    """True if one is the other times one number."""
    a, b = a.reshape(-1), b.reshape(-1)
    return a.shape == b.shape and torch.allclose(a * b[:1], b * a[:1], rtol=1e-9, atol=0)


# The first derivative


def check_first_derivative(task, fn):
    """With a grad_out of ones, whose numbers a reader knows; then with one that tells more."""
    ones = [first_pairs(task, fn, each, plain=True) for each in task.plain]
    uneven = [first_pairs(task, fn, each) for each in task.plain]

    def advise(name):
        found = [survived(first_pairs, task, fn, Setting(args)) for args in task.wide[:1]]
        return causes.of_first_derivative(task, fn, name, ones, uneven, list(filter(None, found)))

    for setting, group in zip([*task.plain] * 2, ones + uneven, strict=True):
        _compare_first(fn, setting, group, advise)
    for setting in task.plain:
        _check_memory(task, fn, setting)
    for setting in [*task.more, *task.single]:
        check_value(task, fn, setting)
        group = first_pairs(task, fn, setting)
        _compare_first(
            fn, setting, group, lambda _, group=group: causes.of_dimensions([*ones, group])
        )


def _compare_first(fn, setting, group, advise=lambda name: ""):
    for pair in group:
        if pair.wrong:
            by = Phrase(" with respect to {}", pair.what) if len(group) > 1 else ""
            fact = Phrase("the first derivative{} is wrong {}.", by, pair.said)
            wrong(fact, survived(causes.of_inf, fn, setting, pair) or advise(pair.what))


def first_pairs(task, fn, setting, plain=False, between=()):
    """What backward returns in one setting: a `Pair` for each input that is differentiated."""
    names, note, true_value = task.differentiated(setting), setting.note, task.truth(*setting.args)
    ones = torch.ones_like(true_value) if task.weights is None else task.weights
    try:
        out, yours, u = first(fn, setting, ones if plain else None, between=between)
    except (Exception, SystemExit) as error:
        look_at_returned(fn, setting)
        raised(Phrase("{}{}", "backward", note), error)
    for name, gradient in zip(names, yours, strict=True):
        if gradient is None:
            look_at_returned(fn, setting)
            fact = "no gradient comes back for {}, but the result depends on it{}."
            wrong(Phrase(fact, name, note))
    _, true, _ = first(task.truth, setting, u, double=True)
    given = task.named(setting.args)
    factors = {"grad_out": u, **given, Phrase("the result"): out.detach()}
    elements = max(t.numel() for t in (out, *yours))
    factors |= {Phrase("the number of elements"): torch.tensor(elements, dtype=torch.float64)}
    if not plain or task.weights is not None:
        given = {**given, "grad_out": u}
    at = u, *setting.args
    return Pair.each(names, yours, true, yours, given=given, note=note, factors=factors, at=at)


def _check_memory(task, fn, setting):
    """Other calls between forward and backward must change nothing."""
    halved = Setting(tuple(a / 2 if isinstance(a, Tensor) else a for a in setting.args))
    for others in ([halved], [*task.plain, *reversed(task.more)]):
        try:
            if not any(pair.wrong for pair in first_pairs(task, fn, setting, between=others)):
                continue
        except Said:
            pass
        fact = Phrase(
            "the gradient is another one, or none, when F was called with other arguments after "
            "forward."
        )
        wrong(fact, causes.SHARED)


# The second derivative


def check_second_derivative(task, fn):
    for setting in [*task.plain, *task.more, *task.single]:
        groups = second_pairs(task, fn, setting)
        for pair in sum(groups, []):
            if pair.wrong:
                _tell_second(task, fn, setting, groups, pair)
    for setting in task.plain:
        for label, formula in formulas(task, setting).items():
            if seen := in_one_formula(task, fn, setting, label, formula):
                fact = Phrase("the second derivative is wrong in a formula. {}.", seen)
                wrong(fact, causes.told_to(task, causes.cause_of(task, fn, setting)))
    for pair in sum(second_pairs(task, fn, task.plain[0], again=True), []):
        if pair.wrong:
            fact = Phrase(
                "the derivative of grad_x by {} is another one when backward ran before, without "
                "create_graph.",
                pair.what,
            )
            wrong(fact, Phrase("backward should compute everything anew each time it runs."))
    if said := survived(causes.of_extra_outputs, task, fn, task.plain[0]):
        wrong(Phrase("the second derivative is right, and one thing is left to mend."), said)
    for setting in task.plain if task.third else []:
        _check_third_derivative(task, fn, setting)


def _check_third_derivative(task, fn, setting):
    """A wrong number is refused; an error is not, for it is honest."""
    label = Phrase("F, differentiated three times,")
    seen = survived(in_one_formula, task, fn, setting, label, lambda f, xs: f(*xs), 3)
    if seen and " raises: " not in seen:
        wrong(
            Phrase("the second derivative is right, and the third is a wrong number. {}.", seen),
            survived(lambda: causes.told_to(task, causes.cause_of(task, fn, setting, order=3))),
        )


def second_pairs(task, fn, setting, again=False):
    """For each gradient, `Pair`s for its derivative by each input, and by grad_out last."""
    names, groups = task.differentiated(setting), []
    for which in range(len(names)):
        try:
            yours, u, h = second(fn, setting, which, again=again)
        except Said:
            raise
        except Exception as error:
            look_at_returned(fn, setting)
            raised(Phrase("backward, differentiated itself{},", setting.note), error)
        true, *_ = second(task.truth, setting, which, double=True)
        given = {**task.named(setting.args), "grad_out": u, "h": h}
        like, at = [*setting.fresh()[1], u], (h, u, *setting.args)
        more = {"given": given, "note": setting.note, "factors": given, "at": at}
        groups.append(Pair.each([*names, "grad_out"], yours, true, like, **more))
    return groups


def _tell_second(task, fn, setting, groups, pair):
    which = next(k for k, group in enumerate(groups) if pair in group)
    alike = [second_pairs(task, fn, s)[which] for s in [*task.plain, *map(Setting, task.wide[:1])]]
    advice = causes.of_second_derivative(task, fn, setting, groups, alike)
    seen = "" if setting.said else _seen(task, fn, setting)
    said = "The derivative of grad_{} by {}, {}"
    seen = seen or Phrase(said, groups[0][which].what, pair.what, pair.said)
    fact = Phrase("the second derivative is wrong. {}.", seen)
    wrong(fact, advice, names_cause=bool(advice))


def _seen(task, fn, setting):
    """What a reader sees: the first formula with a wrong number, and if F alone raises."""
    raising = ""
    for label, formula in formulas(task, setting).items():
        seen = in_one_formula(task, fn, setting, label, formula)
        if seen and " raises: " not in seen:
            return Phrase("{} raises an error; {}", raising, seen) if raising else seen
        if seen:
            raising = raising or label
    return ""


def in_one_formula(task, fn, setting, label, formula, order=2):
    """The first wrong number of this formula, or the error that it raises, or ""."""
    true = in_formula(task.truth, setting, formula, task.weights, order)
    try:
        yours = in_formula(fn, setting, formula, task.weights, order)
    except Exception as error:
        text = str(error).partition("\n")[0].rstrip(".")
        if not any(part in text for part in NO_GRAPH):
            raise
        # Where the second derivative is 0, autograd raises without a mistake too.
        matters = any(t.abs().max() > 1e-9 for t in true)
        return Phrase("{} raises: {}", label, text) if matters else ""
    note, names = setting.note, task.differentiated(setting)
    if task.weights is not None:
        note = Phrase(", each result times {}{}", task.weights.tolist(), note)
    for pair in Pair.each(names, yours, true, yours, given=task.named(setting.args), note=note):
        if pair.wrong:
            by = Phrase(", its gradients added and differentiated by {},", pair.what)
            return Phrase("{}{} {}", label, by if len(names) > 1 else "", pair.said)
    return ""


# The rest


def check_edges(task, fn):
    """Where the derivatives only have to be finite."""
    for args in task.edges:
        setting = Setting(args)
        given, xs = setting.fresh()
        gradients = grad(fn(*given).sum(), xs, create_graph=True)
        twice = grad(summed(gradients), xs, allow_unused=True, materialize_grads=True)
        results = {
            Phrase("the first derivative"): gradients,
            Phrase("the second derivative"): twice,
        }
        for which, tensors in results.items():
            for name, x, g in zip(task.differentiated(setting), xs, tensors, strict=True):
                for bad in (~g.isfinite()).nonzero()[:1]:
                    place = f"{name}[{bad.item()}] = {x[bad].item():.6g}"
                    fact = Phrase("{} is {} at {}.", which, g[bad].item(), place)
                    there = Phrase("It should be finite there, as the value is.")
                    wrong(sentences(fact, there))


KEPT_ON_CTX = {
    walk.INPUT: (
        Phrase("an input"),
        Phrase(
            "If the caller edits it in place before backward runs, the numbers are wrong and no "
            "error says so."
        ),
    ),
    walk.OUTPUT: (
        Phrase("an output"),
        Phrase(
            "It leads to its node, and the node to it: a circle, which is not freed with the "
            "result."
        ),
    ),
}


def check_what_is_kept(task, fn):
    """Right numbers, and something kept in a way that harms the caller."""
    args, xs = task.plain[0].fresh()
    out = fn(*args)
    graph = grad(out, xs, uneven(out).requires_grad_(), create_graph=task.order > 1)
    nodes = [n for n in walk.walk(out, *graph).nodes if n.custom]
    for node in nodes:
        place = Phrase("in {}, ", node.title) if len({n.custom for n in nodes}) > 1 else ""
        for kept in node.kept:
            if kept.on_ctx and kept.role in KEPT_ON_CTX:
                what, why = KEPT_ON_CTX[kept.role]
                is_it = "is" if isinstance(vars(node.fn).get(kept.name), Tensor) else "holds"
                fact = Phrase(
                    "every number is right, and one thing is left to mend: {}ctx.{} {} {}.",
                    place,
                    kept.name,
                    Phrase(is_it),
                    what,
                )
                wrong(sentences(fact, why, causes.to_save(node.fn)))
