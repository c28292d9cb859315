"""The first derivative of an answer, in every setting: is it right, and is nothing else changed."""

from collections.abc import Callable
from difflib import get_close_matches
from functools import partial

import torch
from torch.autograd import Function, grad

from double_backward.graphs import walk
from double_backward.methods import has_setup_context, recorded

from .handed import edited_afterwards
from .pairs import Pair
from .relations import ENOUGH, close, joined, relation_of
from .reply import Said, raised, survived, wrong
from .returned import check_kind
from .second_order import SHARED
from .single import in_float32
from .task import Setting, Task

ELEMENTS = "the number of elements"
SECOND = (
    "That is grad_out times the second derivative. backward returns the first; autograd "
    "differentiates it where somebody asks for the second."
)


def check_first_derivative(task, fn):
    """With a grad_out of ones, whose numbers a reader knows; then with one that tells more."""
    plain = [check_gradients(task, fn, each, plain=True) for each in task.plain]
    varied = [check_gradients(task, fn, each) for each in task.plain]
    check_memory(task, fn)
    wrong_ones = [pair for group in plain + varied for pair in group if pair.wrong]
    if wrong_ones:
        pair = wrong_ones[0]
        advice = _ignores_grad_out(pair, plain, varied)
        once = partial(check_gradients, task, fn, task.plain[0])
        advice = advice or survived(edited_afterwards, once)
        advice = advice or survived(in_float32, wrong_ones, fn, task.plain[0].fresh())
        advice = advice or relation_of([*plain, *varied, *_elsewhere(task, fn)])
        advice = advice or survived(_by_terms, task, [*plain, *varied])
        if advice.endswith(f"lacks one factor: {ELEMENTS}."):
            advice += " Is there a mean in the place of a sum?"
        wrong(_fact(pair, plain[0]), advice)
    for setting in task.settings:
        group = check_gradients(task, fn, setting)
        for pair in group:
            if pair.wrong:
                wrong(_fact(pair, group))


def check_unchanged(task, who, setting, xs):
    """The arguments belong to the caller: after the call their numbers are as before."""
    for name, before, after in zip(task.inputs, setting.args, xs, strict=True):
        if torch.is_tensor(before) and not _same(before, after):
            fact = f"{who} changes {name}, which belongs to the caller{setting.note}."
            wrong(fact, "Make a new tensor instead.")


def _same(before, after):
    return before.shape == after.shape and torch.equal(before, after.detach())


def _elsewhere(task, fn):
    """Gradients at other numbers too, so that "everywhere" is not said of one point."""
    try:
        return [check_gradients(task, fn, Setting(args)) for args in task.wide[:1]]
    except Said:
        return []


def _fact(pair, group):
    by = f" with respect to {pair.what}" if len(group) > 1 else ""
    return f"the first derivative{by} is wrong {pair}."


def _ignores_grad_out(pair, plain, varied):
    """Is the gradient the same for two values of grad_out, wherever it was tried?"""
    pairs = zip(sum(plain, []), sum(varied, []), strict=True)
    same = [torch.equal(one.yours, two.yours) for one, two in pairs if one.what == pair.what]
    if all(same) and pair.yours.any():
        return "Your gradient does not change when grad_out does. Multiply by grad_out."
    return ""


def _by_terms(task, groups):
    """Which term of the gradient comes how often, if yours is made of the same terms, or ""."""
    pairs = [group[0] for group in groups]
    if not task.terms or any(pair.what != task.inputs[0] for pair in pairs):
        return ""
    columns = [joined([pair.terms[name]() for pair in pairs]) for name in task.terms]
    matrix, yours = torch.stack(columns, 1), joined([pair.yours for pair in pairs])
    if len(yours) < len(columns) + ENOUGH or torch.linalg.matrix_rank(matrix) < len(columns):
        return ""
    often = torch.linalg.lstsq(matrix, yours).solution
    if not close(matrix @ often, yours):
        return ""
    if close(often, often[:1].expand_as(often)):
        return f"At these points, yours is {often[0].item():.6g} times the true one."
    return " ".join(
        _how_often(name, number)
        for name, number in zip(task.terms, often.tolist(), strict=True)
        if abs(number - 1) > 1e-6
    )


def _how_often(name, number):
    if abs(number) < 1e-9:
        return f"The term {name} is missing."
    if abs(number + 1) < 1e-6:
        return f"The term {name} has the wrong sign."
    return f"At these points, the term {name} comes {number:.6g} times. It should come once."


def check_memory(task, fn):
    """Other calls between forward and backward must change nothing."""
    setting = task.plain[0]
    results = []
    every: list[list[Setting]] = [[], task.settings]
    for others in every:
        xs = setting.fresh()
        out = fn(*xs)
        for other in others:
            fn(*other.fresh())
        grad_out = setting.grad_out(out)
        try:
            results.append(grad(out, setting.variables(xs), grad_out, allow_unused=True))
        except Exception as error:
            text = str(error).splitlines()[0] if str(error) else ""
            wrong(
                f"backward raises {type(error).__name__} when F was called with other arguments "
                f"after forward: {text}",
                SHARED,
            )
    for name, a, b in zip(task.differentiated(setting), *results, strict=True):
        if _another(a, b):
            wrong(
                f"the gradient of {name} is another one when F was called with other arguments "
                "after forward.",
                SHARED,
            )


def check_gradients(task: Task, fn: Callable, setting: Setting, plain: bool = False) -> list[Pair]:
    """What backward returns in one setting: a `Pair` for each input that is differentiated."""
    xs = setting.fresh()
    out = fn(*xs)
    if not out.requires_grad:
        wrong(f"no graph leads from the result to the input{setting.note}.")
    grad_out = setting.grad_out(out, plain)
    if plain and task.weights is not None:
        grad_out = task.weights.clone()
    yours = _backward(task, fn, setting, xs, out, grad_out)
    doubles = tuple(a.double() if torch.is_tensor(a) else a for a in setting.args)
    ts = Setting(doubles, "", setting.constant).fresh()
    true = grad(task.truth(*ts), setting.variables(ts), grad_out.double())
    given = task.named(setting.args)
    factors = {"grad_out": grad_out, **given, "the result": out.detach()}
    if not plain or task.weights is not None:
        given = {**given, "grad_out": grad_out}
    slips = {
        advice: partial(formula, grad_out, *setting.args) for advice, formula in task.slips.items()
    }
    names = task.differentiated(setting)
    if len(names) == 1:
        slips[SECOND] = partial(_second_derivative, task, setting, grad_out)
    terms = {
        name: partial(formula, grad_out, *setting.args) for name, formula in task.terms.items()
    }
    factors[ELEMENTS] = torch.tensor(out.numel(), dtype=torch.float64)
    return [
        Pair(name, a.detach(), b.to(a.dtype), given, setting.note, factors, slips, terms=terms)
        for name, a, b in zip(names, yours, true, strict=True)
    ]


def _second_derivative(task, setting, grad_out):
    """grad_out times the second derivative of an elementwise function of one tensor."""
    xs = setting.fresh()
    (x,) = setting.variables(xs)
    (first,) = grad(task.truth(*xs).sum(), x, create_graph=True)
    if not first.requires_grad or first.shape != grad_out.shape:
        return first.new_tensor(torch.nan)
    return grad_out * grad(first.sum(), x)[0]


def _backward(task, fn, setting, xs, out, grad_out):
    """The gradients, twice the same, with everything unchanged that belongs to others."""
    variables, before, value = setting.variables(xs), grad_out.clone(), out.detach().clone()
    try:
        once = grad(out, variables, grad_out, retain_graph=True, allow_unused=True)
    except (Exception, SystemExit) as error:
        _check_written(out)
        _check_returned(task, fn, setting)
        raised(f"backward{setting.note}", error)
    if not torch.equal(grad_out, before):
        wrong(f"backward changes grad_out{setting.note}.", "Others use it too: make a new tensor.")
    check_unchanged(task, "backward", setting, xs)
    if not torch.equal(torch.nan_to_num(out.detach()), torch.nan_to_num(value)):
        wrong(
            f"backward changes the result of forward{setting.note}.", "Make a new tensor instead."
        )
    for name, gradient in zip(task.differentiated(setting), once, strict=True):
        if gradient is None:
            _check_returned(task, fn, setting)
            wrong(f"no gradient comes back for {name}, but the result depends on it{setting.note}.")
    try:
        again = grad(out, variables, before, allow_unused=True, create_graph=task.order > 1)
    except (Exception, SystemExit) as error:
        raised(f"backward, with create_graph=True{setting.note},", error)
    for name, a, b in zip(task.differentiated(setting), once, again, strict=True):
        if _another(a, b):
            wrong(
                f"the gradient of {name} is another one when backward runs a second time"
                f"{setting.note}. backward should return the same each time."
            )
    return once


def _another(a, b):
    """Do two gradients of one input differ by more than rounding?

    torch computes some gradients otherwise with create_graph, with other last digits.
    """
    if b is None or a.shape != b.shape:
        return True
    return Pair("", torch.nan_to_num(a), torch.nan_to_num(b.detach()), {}).wrong


def _check_written(out):
    """Has each Function a backward, under that name?"""
    for cls in {node.custom for node in walk.walk(out).nodes if node.custom}:
        if cls.backward is Function.backward and cls.vjp is Function.vjp:
            own = [name for name in vars(cls) if not name.startswith("_")]
            near = get_close_matches("backward", own, n=1, cutoff=0.7)
            advice = f"It has {near[0]}: is that meant?" if near else ""
            if "backward" in cls.forward.__globals__:
                advice = "There is a function backward outside of the class. Indent it, as forward."
            wrong(f"{cls.__name__} has no method backward.", advice)


def _check_returned(task, fn, setting):
    """Is what backward returns of the right kind? Looked at before autograd gets it."""
    out = fn(*setting.fresh())
    nodes = [node for node in walk.walk(out).nodes if node.custom]
    if len(nodes) != 1:
        return
    cls = nodes[0].custom
    with recorded(cls, "forward") as forward, recorded(cls, "backward") as backward:
        try:
            xs = setting.fresh()
            out = fn(*xs)
            grad(out, setting.variables(xs), setting.grad_out(out), allow_unused=True)
        except Exception:
            pass
    if not forward or len(backward) != 1:
        return
    args, returned = forward[0][0], backward[0][1]
    if cls and not has_setup_context(cls):
        args = args[1:]
    check_kind(cls, args, returned, setting.note)
