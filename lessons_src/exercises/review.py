"""Compare an answer with its exercise: value, first derivative, second derivative, and the rest.

The first thing that is wrong ends the review. What is said of it is measured: in every setting of
the exercise the numbers are compared with its `truth`, and a cause is named where an experiment
leaves no doubt. Otherwise the wrong number is told, and where it stands.
"""

import ast
import inspect
import traceback
import warnings
from collections.abc import Callable
from functools import partial
from types import FunctionType

import torch
from torch.autograd import Function, grad

from lessons_src.diagnosis import diagnose
from lessons_src.graphs import walk

from .compare import Pair, explain
from .observe import UNDOABLE, Watch, recorded, told_steps
from .reply import PACKAGE, Reply, Said, neutral, raised, readers_frames, tree_of, wrong
from .second_order import SHARED, check_edges, check_second_derivative
from .task import Setting, Task


def review(task: Task, answer: object) -> Reply:
    """`Reply` to an answer, which is a callable or a Function. Raises nothing for a wrong one."""
    with torch.inference_mode(False), torch.enable_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            fn = function_of(answer)
            check_as_given(task, fn)
            return _review(task, fn)
        except Said as said:
            return said.args[0]
        except (Exception, SystemExit) as error:
            return _unexpected(error)


def _review(task, fn):
    for setting in [*task.settings, *map(Setting, task.edges), task.constant]:
        check_value(task, fn, setting)
    check_graph(task, fn, task.plain[0])
    check_first_derivative(task, fn)
    check_whose_derivative(fn, task.plain[0])
    for setting in task.single:
        check_value(task, fn, setting)
        check_gradients(task, fn, setting)
    if task.order == 1:
        check_edges(task, fn)
        check_what_is_kept(task, fn)
        return Reply("right", "right. Checked: value and first derivative.")
    check_second_derivative(task, fn)
    check_edges(task, fn)
    check_what_is_kept(task, fn)
    check_the_rest(task, fn)
    checked = "value, first and second derivative, alone and inside larger formulas."
    return Reply("right", f"right. Checked: {checked}")


def _unexpected(error):
    """An error where none was expected: of the answer, on some calls only, or of the course."""
    if readers_frames(error) or isinstance(error, SystemExit):
        try:
            raised("one of the calls", error)
        except Said as said:
            return said.args[0]
    last = traceback.extract_tb(error.__traceback__)[-1]
    if last.filename.startswith(PACKAGE):
        where = f"{last.name}, line {last.lineno} of {last.filename.rpartition('/')[2]}"
        return Reply(
            "wrong",
            f"the check itself failed, which is a mistake of the course and not yours: "
            f"{type(error).__name__}: {error} ({where}).",
        )
    return Reply("wrong", f"one of the calls raises {type(error).__name__}: {error}")


# What was handed over


def function_of(answer):
    """The answer as something to call with the arguments of the exercise."""
    if isinstance(answer, type) and issubclass(answer, Function):
        return answer.apply
    if isinstance(answer, Function):
        name = type(answer).__name__
        wrong(f"this is an instance of {name}.", f"Hand over {name}.apply, without brackets.")
    if isinstance(answer, type):
        wrong(
            f"{answer.__name__} is a class, and no torch.autograd.Function.",
            f"Write class {answer.__name__}(Function), and hand over {answer.__name__}.apply.",
        )
    if isinstance(answer, torch.Tensor):
        advice = "Hand over the function itself: Name.apply, without brackets behind it."
        wrong("this is a tensor, the result of a call.", advice)
    if not callable(answer):
        wrong("there is nothing to call.", "Hand over the Function's apply: Name.apply")
    owner, _, method = getattr(answer, "__qualname__", "").rpartition(".")
    if method in ("forward", "backward", "setup_context"):
        name = owner.rpartition(".")[2]
        wrong(f"this is {method} itself.", f"Hand over {name}.apply, which calls it.")
    return answer


def check_as_given(task, fn):
    """Lesson 4: has anything been changed? Comments and layout do not count.

    Bytecode will not do: it depends on where torch was imported.
    """
    if task.given:
        yours = _trees(getattr(fn, "__self__", fn))
        if yours and yours == _trees(task.given):
            neutral("as given. It has a bug: find it and mend it here.")


def _trees(cls):
    """Syntax tree of each method; None if Python cannot find or read the source of one."""
    methods = {name: getattr(f, "__func__", f) for name, f in getattr(cls, "__dict__", {}).items()}
    trees = {name: tree_of(f) for name, f in methods.items() if isinstance(f, FunctionType)}
    if None in trees.values():
        return None
    return {name: ast.dump(tree) for name, tree in trees.items()}


# The value


def check_value(task, fn, setting):
    xs = setting.fresh()
    true = task.truth(*(a.double() if torch.is_tensor(a) else a for a in setting.args))
    try:
        out = fn(*xs)
    except (Exception, SystemExit) as error:
        inside = any(frame.f_code.co_name == "forward" for frame, _ in readers_frames(error))
        raised(("forward" if inside else "the call") + setting.note, error)
    asked = {a.dtype for a in setting.args if torch.is_tensor(a)}
    _check_kind(task, setting, out, true)
    _check_unchanged(task, "forward", setting, xs)
    given = task.named(setting.args)
    dtype = torch.float32 if torch.float32 in asked else torch.float64
    pair = Pair("value", out.detach().to(dtype), true.to(dtype), given, setting.note)
    if pair.wrong:
        wrong(f"the value is wrong {pair}.", f"It should be {task.asks}.")


def _check_kind(task, setting, out, true):
    """One tensor of the right shape and dtype."""
    if out is None:
        wrong("the result is None.", "Is a return missing?")
    if isinstance(out, (tuple, list)):
        advice = (
            "Let a function call apply and return the first result alone, and check that function."
        )
        several = f"the result is a {type(out).__name__} of {len(out)}."
        wrong(several, advice if len(out) > 1 else "Return the tensor itself.")
    if isinstance(out, Function):
        name = type(out).__name__
        wrong(f"the result is an instance of {name}.", f"Call it through apply: {name}.apply")
    if not isinstance(out, torch.Tensor):
        wrong(f"the result is of type {type(out).__name__}, and no tensor.")
    if out.shape != true.shape:
        advice = f"It should be {task.asks}, of shape {tuple(true.shape)}."
        if _taken_apart(out):
            advice = (
                "The one tensor that apply returns is taken apart here, element by element: "
                "forward returns no extra outputs."
            )
        wrong(f"the result is of shape {tuple(out.shape)}{setting.note}.", advice)
    asked = {a.dtype for a in setting.args if torch.is_tensor(a)}
    if asked == {torch.float64} and out.dtype != torch.float64:
        wrong(f"the result is of dtype {out.dtype}.", f"It should be {true.dtype}, like the input.")


def _taken_apart(out):
    """True if the result is an element of the one tensor that a Function of the reader returns."""
    before = out.grad_fn.next_functions[0][0] if _is_unbind(out) else None
    return hasattr(before, "_forward_cls")


def _is_unbind(out):
    return type(out.grad_fn).__name__ == "UnbindBackward0"


def _check_unchanged(task, who, setting, xs):
    for name, before, after in zip(task.inputs, setting.args, xs, strict=True):
        if torch.is_tensor(before) and not _same(before, after):
            fact = f"{who} changes {name}, which belongs to the caller{setting.note}."
            wrong(fact, "Make a new tensor instead.")


def _same(before, after):
    return before.shape == after.shape and torch.equal(before, after.detach())


def check_graph(task, fn, setting):
    """The result comes from a Function of the reader's, and so does its derivative."""
    xs = setting.fresh()
    with Watch() as watch:
        out = fn(*xs)
    if not out.requires_grad:
        steps = [s for s in watch.steps if s.kind in UNDOABLE]
        with Watch(undo={s.kind for s in steps}):
            mended = fn(*xs).requires_grad
        advice = f"It ends here: {told_steps(steps)}." if mended else ""
        wrong("the value is right, but no graph leads from it to the input.", advice)
    nodes = [node for node in walk.walk(out).nodes if node.custom]
    if not nodes:
        advice = "Write one, with forward and backward, and call it through apply."
        wrong("right numbers, but there is no Function of yours in the graph.", advice)


def check_whose_derivative(fn, setting):
    """Is it a Function of the reader's that makes the derivative?"""
    xs = setting.fresh()
    out = fn(*xs)
    came, changed = [], []

    def hook(gave, got):
        got = [g for g in got if g is not None and g.any()]
        gave = [g for g in gave if g is not None]
        same = [any(_proportional(a, b) for b in got) for a in gave]
        came.append(bool(got))
        changed.append(bool(got) and not all(same))

    for node in walk.walk(out).nodes:
        if node.custom:
            node.fn.register_hook(hook)
    grad(out, setting.variables(xs), setting.grad_out(out), allow_unused=True)
    if any(changed):
        return
    what = "hands the gradient on, at most times a number" if any(came) else "has no part in it"
    wrong(
        f"right numbers, but the derivative is torch's: the Function in the graph {what}.",
        "Compute the result in forward, and its derivative in backward.",
    )


def _proportional(a, b):
    """True if one is the other times one number."""
    if a.shape != b.shape:
        return False
    a, b = a.reshape(-1), b.reshape(-1)
    return torch.allclose(a * b[:1], b * a[:1], rtol=1e-9, atol=0)


# The first derivative


def check_first_derivative(task, fn):
    """With a grad_out of ones, whose numbers a reader knows; then with one that tells more."""
    plain = [check_gradients(task, fn, each, plain=True) for each in task.plain]
    varied = [check_gradients(task, fn, each) for each in task.plain]
    check_memory(task, fn)
    wrong_ones = [pair for group in plain + varied for pair in group if pair.wrong]
    if wrong_ones:
        pair = wrong_ones[0]
        advice = _ignores_grad_out(pair, plain, varied)
        advice = advice or explain([*plain, *varied, *_elsewhere(task, fn)])
        wrong(_fact(pair, plain[0]), advice)
    for setting in task.settings:
        group = check_gradients(task, fn, setting)
        for pair in group:
            if pair.wrong:
                wrong(_fact(pair, group))


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
        if b is None or a.shape != b.shape or not torch.equal(a, b):
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
    _check_unchanged(task, "backward", setting, xs)
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
        if b is None or not torch.equal(torch.nan_to_num(a), torch.nan_to_num(b)):
            wrong(
                f"the gradient of {name} is another one when backward runs a second time"
                f"{setting.note}. backward should return the same each time."
            )
    return once


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
    _check_gradients_kind(args, returned, list(_named_like(cls, args)), setting.note)


def _named_like(cls, args):
    """Names of the arguments of forward, as its author calls them."""
    names = list(inspect.signature(cls.forward).parameters)
    names = names if len(names) == len(args) else names[1:]
    return names if len(names) == len(args) else [f"argument {i + 1}" for i in range(len(args))]


def _check_gradients_kind(args, returned, names, note):
    if returned is None:
        wrong("backward returns None.", "Is a return missing?")
    if isinstance(returned, torch.Tensor) or not isinstance(returned, tuple):
        if not isinstance(returned, torch.Tensor):
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
            f"after ctx ({', '.join(names)}), in that order."
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
            fact = f"what backward returns for {name} is of type {type(g).__name__}, and no tensor."
            wrong(fact)
        elif g.shape != arg.shape and not _can_be_summed(g.shape, arg.shape):
            fact = (
                f"what backward returns for {name} is of shape {tuple(g.shape)}, and {name} is of"
            )
            wrong(f"{fact} shape {tuple(arg.shape)}.{_fits_the_other_way(args, returned)}")


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


# The rest

KEPT_ON_CTX = {
    walk.INPUT: (
        "an input",
        "If the caller edits it in place before backward runs, the numbers are wrong and no error "
        "says so.",
    ),
    walk.OUTPUT: (
        "an output",
        "It leads to its node, and the node to it: a circle, which is not freed with the result.",
    ),
}


def check_what_is_kept(task, fn):
    """Right numbers, and something kept in a way that harms the caller."""
    nodes = [n for n in walk.walk(fn(*task.plain[0].fresh())).nodes if n.custom]
    for node in nodes:
        for kept in node.kept:
            if kept.on_ctx and kept.role in (walk.INPUT, walk.OUTPUT):
                what, why = KEPT_ON_CTX[kept.role]
                wrong(
                    f"every number is right, and one thing is left to mend: ctx.{kept.name} is "
                    f"{what}. {why} Use save_for_backward."
                )


def check_the_rest(task, fn):
    """What the numbers at these points do not show, by `diagnose`."""
    diagnosis = diagnose(fn, *task.plain[0].fresh())
    if not diagnosis.ok:
        first = diagnosis.findings[0].message if diagnosis.findings else ""
        wrong(f"right in every setting of this exercise, and yet: {_headline(diagnosis)}.", first)


def _headline(diagnosis):
    return str(diagnosis).splitlines()[0].partition(": ")[2]
