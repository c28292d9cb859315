"""The first derivative of an answer, in every setting: is it right, and is nothing else changed."""

import inspect
from collections.abc import Callable
from functools import partial

import torch
from torch.autograd import Function, grad

from double_backward.graphs import walk
from double_backward.pairs import Pair, relation_of
from double_backward.steps import recorded

from .reply import Said, has_return, raised, wrong
from .second_order import SHARED
from .task import Setting, Task


def check_first_derivative(task, fn):
    """With a grad_out of ones, whose numbers a reader knows; then with one that tells more."""
    plain = [check_gradients(task, fn, each, plain=True) for each in task.plain]
    varied = [check_gradients(task, fn, each) for each in task.plain]
    check_memory(task, fn)
    wrong_ones = [pair for group in plain + varied for pair in group if pair.wrong]
    if wrong_ones:
        pair = wrong_ones[0]
        advice = _ignores_grad_out(pair, plain, varied)
        advice = advice or relation_of([*plain, *varied, *_elsewhere(task, fn)])
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
    return [
        Pair(name, a.detach(), b.to(a.dtype), given, setting.note, factors, slips)
        for name, a, b in zip(names, yours, true, strict=True)
    ]


def _backward(task, fn, setting, xs, out, grad_out):
    """The gradients, twice the same, with everything unchanged that belongs to others."""
    variables, before, value = setting.variables(xs), grad_out.clone(), out.detach().clone()
    try:
        once = grad(out, variables, grad_out, retain_graph=True, allow_unused=True)
    except (Exception, SystemExit) as error:
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
    if len(forward) != 1 or len(backward) != 1:
        return
    args, returned = forward[0][0], backward[0][1]
    if cls and cls.setup_context is Function.setup_context:
        args = args[1:]
    _check_gradients_kind(cls, args, returned, setting.note)


def _named_like(cls, args):
    """Names of the arguments of forward, as its author calls them."""
    names = list(inspect.signature(cls.forward).parameters)
    names = names if len(names) == len(args) else names[1:]
    return names if len(names) == len(args) else [f"argument {i + 1}" for i in range(len(args))]


def _check_gradients_kind(cls, args, returned, note):
    names = list(_named_like(cls, args))
    if returned is None and not has_return(cls.backward):
        wrong("backward returns None.", "It has no return.")
    if isinstance(returned, torch.Tensor) or not isinstance(returned, tuple):
        if returned is not None and not isinstance(returned, torch.Tensor):
            kind = type(returned).__name__
            if isinstance(returned, Function):
                wrong(
                    f"backward returns an instance of {kind}.",
                    f"Call it through apply: {kind}.apply",
                )
            advice = "Return a tensor, or several with a comma between them."
            wrong(f"backward returns an object of type {kind}.", advice)
        returned = (returned,)
    if len(returned) < len(args) or any(g is not None for g in returned[len(args) :]):
        got, needed = (_counted(len(each), "gradient") for each in (returned, args))
        wrong(
            f"backward returns {got}. It should return {needed}, one for each argument of forward "
            f"after ctx ({', '.join(names)}), in that order.",
            stacked(returned, len(args)),
        )
    for name, arg, g in zip(names, args, returned, strict=False):
        if not torch.is_tensor(arg):
            if g is not None:
                fact = f"backward returns a gradient for {name}, which is no tensor."
                wrong(fact, "Return None in its place.")
        elif g is None:
            if arg.requires_grad:
                wrong(f"backward returns None for {name}, but the result depends on it{note}.")
        elif not torch.is_tensor(g):
            kind = type(g).__name__
            advice = f"Call it through apply: {kind}.apply" if isinstance(g, Function) else ""
            wrong(f"what backward returns for {name} is of type {kind}, and no tensor.", advice)
        elif g.shape != arg.shape and not _can_be_summed(g.shape, arg.shape):
            fact = (
                f"what backward returns for {name} is of shape {tuple(g.shape)}, and {name} is of"
            )
            wrong(f"{fact} shape {tuple(arg.shape)}.{_fits_the_other_way(args, returned)}")


def stacked(returned, needed):
    """What to say of one tensor in which all the gradients that are needed stand, or ""."""
    only = returned[0] if len(returned) == 1 else None
    if needed > 1 and torch.is_tensor(only) and only.dim() and len(only) == needed:
        return (
            f"This is one tensor of shape {tuple(only.shape)}, as in_numpy makes of an array. "
            "tuple(...) around it takes it apart."
        )
    return ""


def _counted(number, noun):
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _can_be_summed(shape, to):
    """Autograd sums a gradient over dimensions that were broadcast."""
    try:
        return torch.broadcast_shapes(shape, to) == shape
    except RuntimeError:
        return False


def _fits_the_other_way(args, returned):
    if len(args) != 2 or not all(torch.is_tensor(t) for t in (*args, *returned)):
        return ""
    fits = [g.shape for g in returned] == [a.shape for a in args][::-1]
    return " The two would fit the other way round." if fits else ""
