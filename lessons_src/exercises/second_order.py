"""The second derivative of an answer: is it right, and what would a reader see."""

import inspect
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

import torch
from torch.autograd import grad

from double_backward.check import Line, Subject, measure
from double_backward.diagnosis import diagnose
from double_backward.diagnosis.words import AGAIN
from double_backward.explain import Case
from double_backward.graphs import walk
from double_backward.methods import has_setup_context, recorded

from .gradients import extra_gradient, extra_outputs, second_function
from .pairs import Pair
from .relations import relation_of
from .reply import Said, raised, survived, wrong
from .returned import check_kind
from .task import Setting, Task

NO_GRAPH = (  # parts of the two errors of autograd for a result that does not depend on x
    "does not require grad and does not have a grad_fn",
    "appears to not have been used in the graph",
)


LATER = "Compute it again in backward from a saved input or output."
EXTRA = (  # lesson 3
    "Compute it again in backward from a saved input or output; or return it from forward, too, in "
    "one flat tuple, and hand over a function that returns the first result alone."
)
COPY = (
    "What forward saves is a copy of an input, another view of it, or the input detached: to "
    "autograd a constant. Save the input itself, as forward gets it."
)
SHARED = "Keep what backward needs on the ctx of its own call, not in a place that all calls share."


def check_second_derivative(task: Task, fn: Callable) -> None:
    """Differentiate backward by each of its variables, the inputs and grad_out.

    If all of these are right, every second derivative is right, whatever stands around fn, as long
    as backward does the same each time and follows no graph outside itself. That is tried in
    formulas.
    """
    for setting in [*task.settings, *task.single]:
        pairs = derivatives_of_backward(task, fn, setting)
        if any(pair.wrong for pair in pairs):
            _tell(task, fn, setting, pairs)
    for setting in task.plain:
        for label, formula in _formulas(task, setting).items():
            seen = _in_formula(task, fn, setting, label, formula)
            if seen:
                wrong(
                    f"the second derivative is wrong in a formula. {seen}.", _forgets(fn, setting)
                )
    _check_backward_twice(task, fn, task.plain[0])
    case, names = survived(_case, fn, task.plain[0]), task.differentiated(task.plain[0])
    if said := case and survived(extra_gradient, case, names):
        wrong("the second derivative is right, and one thing is left to mend.", said)
    for setting in task.plain if task.third else []:
        _check_third_derivative(task, fn, setting)


def check_edges(task, fn):
    """Where the derivatives only have to be finite."""
    for args in task.edges:
        setting = Setting(args)
        xs = setting.fresh()
        first = grad(fn(*xs).sum(), setting.variables(xs), create_graph=True)
        results = [("first", first)]
        if task.order > 1:
            total = sum(g.sum() for g in first)
            second = grad(total, setting.variables(xs), allow_unused=True)
            results.append(("second", [s for s in second if s is not None]))
        for which, tensors in results:
            for name, g in zip(task.differentiated(setting), tensors, strict=False):
                if not g.isfinite().all():
                    bad = (~g.isfinite()).nonzero()[0].item()
                    place = f"{name}[{bad}] = {xs[0][bad].item():.6g}"
                    fact = f"the {which} derivative is {g[bad].item()} at {place}"
                    wrong(f"{fact}. It should be finite there, as the value is.")


def _tell(task, fn, setting, pairs):
    some = [*task.plain, *map(Setting, task.wide[:1])]
    plain = [derivatives_of_backward(task, fn, each) for each in some]
    case, names = survived(_case, fn, setting), task.differentiated(setting)
    advice = (
        (case and survived(extra_outputs, case, names))
        or (case and survived(_of_second_function, task, setting, case))
        or survived(_taken_from_outside, fn, setting)
        or survived(_diagnosed, task, fn, setting)
        or _unreached(pairs)
        or relation_of(plain)
    )
    pair = next(pair for pair in pairs if pair.wrong)
    seen = _seen(task, fn, setting) if not setting.said else ""
    seen = seen or f"The derivative of grad_x by {pair.what}, {pair}"
    wrong(f"the second derivative is wrong. {seen}.", advice, names_cause=bool(advice))


def _alone(fn, setting):
    """The answer as a function of its differentiated inputs, and these."""

    def function(*xs):
        left, args = iter(xs), setting.fresh()
        variables = {id(a) for a in setting.variables(args)}
        return fn(*[next(left) if id(a) in variables else a for a in args])

    return function, setting.variables(setting.fresh())


def _case(fn, setting):
    """For experiments of the tool."""
    function, xs = _alone(fn, setting)
    x = tuple(a.detach() for a in xs)
    u = setting.grad_out(function(*x).detach())
    return Case(measure(Line.of(Subject(lambda xs: [function(*xs)], x, (u,)))))


def _of_second_function(task, setting, case):
    found = second_function(case)
    if not found:
        return ""
    fact, related, pair = found
    return f"{fact} {_slip(task, setting, pair) or related}".rstrip()


def _diagnosed(task: Task, fn: Callable, setting: Setting, order: int = 2) -> str:
    """The cause that `diagnose` names, with the cure that the lesson knows."""
    function, xs = _alone(fn, setting)
    cause = diagnose(function, *xs, order=order).cause
    if cause is None:
        return ""
    if cause.code == "input_copy_saved":
        return COPY
    return cause.message.replace(AGAIN, EXTRA if task.lesson >= 3 else LATER)


def _slip(task, setting, pair):
    """The advice for a known mistake in the derivative of a second Function by x, or ""."""
    first, x = setting.args[0], pair.given[pair.what]
    if pair.none or x.shape != first.shape or not torch.equal(x, first):
        return ""
    h = pair.given["h"]
    formulas = {
        advice: partial(formula, h, setting.grad_out(h), *setting.args)
        for advice, formula in task.second_slips.items()
    }
    said = relation_of([[replace(pair, slips=formulas)]])
    return said if said in formulas else ""


def _taken_from_outside(fn, setting):
    """Does a Function that backward applies read a tensor which is no argument of it?"""
    _, first = _first_backward(fn, setting)
    for cls in dict.fromkeys(n.custom for n in walk.walk(*first).nodes if n.custom):
        for name, value in inspect.getclosurevars(cls.forward).nonlocals.items():
            if isinstance(value, torch.Tensor) and value.requires_grad:
                return (
                    f"{cls.__name__}.forward reads {name} from outside: to autograd a constant. "
                    f"Hand {name} over in apply, and return a gradient for it."
                )
    return ""


def _unreached(pairs):
    """The variables of backward to which no graph leads from what it returns."""
    names = [pair.what for pair in pairs if pair.wrong and pair.none]
    if not names:
        return ""
    return (
        f"To autograd, what backward returns does not depend on {' and '.join(names)}. In truth "
        "it does."
    )


def derivatives_of_backward(
    task: Task, fn: Callable, setting: Setting, catch: bool = True
) -> list[Pair]:
    """`Pair` for each input, and for grad_out last, of the derivative of sum(h * grad_x)."""
    try:
        yours, unreached, *_ = _derivatives(fn, setting, setting.args)
    except Exception as error:
        if not catch or isinstance(error, Said):
            raise
        with suppress(RuntimeError):
            _check_second_returned(fn, setting)
        raised(f"backward, differentiated itself{setting.note},", error)
    doubles = tuple(a.double() if torch.is_tensor(a) else a for a in setting.args)
    true, _, g, hs = _derivatives(task.truth, setting, doubles)
    given = {**task.named(setting.args), "grad_out": g}
    factors = {"h": hs[0], **given} if len(hs) == 1 else given
    slips = {
        advice: partial(formula, hs[0], g, *setting.args)
        for advice, formula in task.second_slips.items()
    }
    names = [*task.differentiated(setting), "grad_out"]
    return [
        Pair(
            name,
            a.detach(),
            b.to(a.dtype),
            {**given, "h": hs[0]} if len(hs) == 1 else given,
            setting.note,
            factors,
            slips if name == names[0] else {},
            none,
        )
        for name, a, b, none in zip(names, yours, true, unreached, strict=True)
    ]


def _check_second_returned(fn, setting):
    """If backward applies a Function: does the backward of that one return the right kind?"""
    out, first = _first_backward(fn, setting)
    here = {node.custom for node in walk.walk(out).nodes}
    for cls in {n.custom for n in walk.walk(*first).nodes if n.custom} - here:
        with (
            recorded(cls, "forward") as forward,
            recorded(cls, "backward") as backward,
            suppress(Exception),
        ):
            sum(each.sum() for each in _first_backward(fn, setting)[1]).backward()
        if len(forward) == len(backward) == 1:
            args = forward[0][0] if has_setup_context(cls) else forward[0][0][1:]
            check_kind(cls, args, backward[0][1], setting.note, f"{cls.__name__}.backward")


def _first_backward(fn, setting):
    """The result, and those gradients by the inputs that have a graph."""
    xs = setting.fresh()
    out = fn(*xs)
    g = setting.grad_out(out).requires_grad_()
    first = grad(out, setting.variables(xs), g, create_graph=True, allow_unused=True)
    return out, [each for each in first if each is not None and each.requires_grad]


def _check_backward_twice(task, fn, setting):
    """A backward without create_graph, before, must change nothing."""
    once, *_ = _derivatives(fn, setting, setting.args)
    again, *_ = _derivatives(fn, setting, setting.args, plain_first=True)
    for name, a, b in zip([*task.differentiated(setting), "grad_out"], once, again, strict=True):
        if Pair(name, a, b, {}).wrong:
            wrong(
                f"the derivative of grad_x by {name} is another one when backward ran before, "
                "without create_graph.",
                "backward should compute everything anew each time it runs.",
            )


def _derivatives(function, setting, args, plain_first=False):
    """By the variables of backward; which got none; grad_out and the vectors h of the setting."""
    here = Setting(args, setting.said, setting.constant)
    xs = here.fresh()
    variables = here.variables(xs)
    out = function(*xs)
    grad_out = setting.grad_out(out).requires_grad_()
    hs = [setting.grad_grad(x, which) for which, x in enumerate(variables)]
    if plain_first:
        grad(out, variables, grad_out.detach(), retain_graph=True, allow_unused=True)
    first = grad(out, variables, grad_out, create_graph=True, allow_unused=True)
    tracked = [(g, h) for g, h in zip(first, hs, strict=True) if g is not None and g.requires_grad]
    second: list[torch.Tensor | None] = [None] * (len(variables) + 1)
    if tracked:
        before = [h.clone() for _, h in tracked]
        results, weights = zip(*tracked, strict=True)
        second = list(grad(results, [*variables, grad_out], weights, allow_unused=True))
        if not all(map(torch.equal, before, weights)):
            wrong(
                "the backward of backward changes the gradient that it gets.", "Make a new tensor."
            )
    zeros = map(torch.zeros_like, [*variables, grad_out])
    unreached = [s is None for s in second]
    filled = [z if s is None else s for s, z in zip(second, zeros, strict=True)]
    return filled, unreached, grad_out.detach(), hs


# Formulas that a reader can type


def _formulas(task, setting):
    """What is differentiated twice, by how it is told: a function of F and the arguments."""
    names = task.differentiated(setting)
    inner = ", ".join(task.inputs)
    squared = ", ".join(f"{n}²" if n in names else n for n in task.inputs)
    halved = ", ".join(f"{n}/2" if n in names else n for n in task.inputs)
    return {
        f"F({inner})": lambda f, xs: f(*xs),
        f"F({inner})²": lambda f, xs: f(*xs) ** 2,
        f"F({squared})": lambda f, xs: f(*_each(xs, lambda x: x**2)),
        f"F({squared})²": lambda f, xs: f(*_each(xs, lambda x: x**2)) ** 2,
        f"F({inner}) * F({halved})": lambda f, xs: f(*xs) * f(*_each(xs, lambda x: x / 2)),
    }


def _each(xs, function):
    return [function(x) if torch.is_tensor(x) else x for x in xs]


def _in_formula(task, fn, setting, label, formula):
    """The first wrong number of this formula, or the error that it raises, or ""."""
    note = setting.note
    if task.weights is not None:
        note = f", each result times {task.weights.tolist()}{note}"
    true = _twice(task, task.truth, formula, setting)
    try:
        yours = _twice(task, fn, formula, setting)
    except Exception as error:
        text = str(error).splitlines()[0].rstrip(".")
        if not any(part in text for part in NO_GRAPH):
            raised(f"{label}, differentiated twice,", error)
        # Where the second derivative is 0, autograd raises without a mistake too.
        return f"{label} raises: {text}" if any(t.abs().max() > 1e-9 for t in true) else ""
    names = task.differentiated(setting)
    for name, a, b in zip(names, yours, true, strict=True):
        pair = Pair(name, a, b, task.named(setting.args), note)
        if pair.wrong:
            by = f", its gradients added and differentiated by {name}," if len(names) > 1 else ""
            return f"{label}{by} {pair}"
    return ""


def _seen(task, fn, setting):
    """What a reader sees: the first formula with a wrong number, and if F alone raises."""
    alone = ""
    for label, formula in _formulas(task, setting).items():
        seen = _in_formula(task, fn, setting, label, formula)
        if " raises: " not in seen and seen:
            return f"{alone.partition(':')[0]} an error; {seen}" if alone else seen
        alone = alone or seen
    return alone


def _twice(task, function, formula, setting):
    xs = setting.fresh()
    out = formula(function, xs)
    total = out.sum() if task.weights is None else (task.weights * out).sum()
    first = grad(total, setting.variables(xs), create_graph=True)
    return grad(sum(g.sum() for g in first), setting.variables(xs))


def _forgets(fn, setting):
    """Does the backward of one call change when F is called once more in between?"""
    results = []
    for again in (False, True):
        xs = setting.fresh()
        out = fn(*xs)
        if again:
            fn(*_each(setting.fresh(), lambda x: x.detach() / 2))
        results.append(grad(out.sum(), setting.variables(xs)))
    return "" if all(map(torch.equal, *results)) else SHARED


def _check_third_derivative(task, fn, setting):
    """A wrong number is refused; an error is not, for it is honest."""
    try:
        true = _three_times(task.truth, setting)
        yours = _three_times(fn, setting)
    except Exception:
        return
    for name, a, b in zip(task.differentiated(setting), yours, true, strict=True):
        pair = Pair(name, a, b, task.named(setting.args), setting.note)
        if pair.wrong:
            wrong(
                "the second derivative is right, and the third is a wrong number. F, "
                f"differentiated three times, {pair}.",
                survived(_diagnosed, task, fn, setting, 3),
            )


def _three_times(function, setting):
    xs = setting.fresh()
    total = function(*xs).sum()
    for _ in range(2):
        total = sum(g.sum() for g in grad(total, setting.variables(xs), create_graph=True))
    return grad(total, setting.variables(xs))
