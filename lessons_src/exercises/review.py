"""Compare an answer with its exercise: value, first derivative, second derivative, and the rest.

The first thing that is wrong ends the review. What is said of it is measured: in every setting of
the exercise the numbers are compared with its `truth`, and a cause is named where an experiment
leaves no doubt. Otherwise the wrong number is told, and where it stands.
"""

import ast
import traceback
import warnings
from types import FunctionType

import torch
from torch.autograd import Function, grad

from double_backward.diagnosis import diagnose
from double_backward.graphs import walk
from double_backward.steps import UNDOABLE, Watch, told

from .first_order import check_first_derivative, check_gradients, check_unchanged
from .handed import marked_as_constant
from .pairs import Pair
from .reply import (
    PACKAGE,
    Reply,
    Said,
    is_readers,
    neutral,
    raised,
    readers_frames,
    survived,
    tree_of,
    wrong,
)
from .second_order import check_edges, check_second_derivative
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
        raised(("forward" if inside else f"F({', '.join(task.inputs)})") + setting.note, error)
    asked = {a.dtype for a in setting.args if torch.is_tensor(a)}
    _check_kind(task, setting, out, true)
    check_unchanged(task, "forward", setting, xs)
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
                "This is an element of the one tensor that apply returns: forward returns no extra "
                "outputs."
            )
        wrong(f"the result is of shape {tuple(out.shape)}{setting.note}.", advice)
    asked = {a.dtype for a in setting.args if torch.is_tensor(a)}
    if asked == {torch.float64} and out.dtype != torch.float64:
        wrong(f"the result is of dtype {out.dtype}.", f"It should be {true.dtype}, like the input.")


def _taken_apart(out):
    """True if the result is an element of the one tensor that a Function of the reader returns."""
    taken = type(out.grad_fn).__name__ in ("UnbindBackward0", "SelectBackward0")
    return taken and hasattr(out.grad_fn.next_functions[0][0], "_forward_cls")


def check_graph(task, fn, setting):
    """The result comes from a Function of the reader's, and so does its derivative."""
    xs = setting.fresh()
    with Watch(own=is_readers) as watch:
        out = fn(*xs)
    if not out.requires_grad:
        steps = [s for s in watch.steps if s.kind in UNDOABLE]
        with Watch(undo=steps, own=is_readers):
            mended = fn(*xs).requires_grad
        advice = (
            f"It ends here: {told(steps)}."
            if mended
            else survived(marked_as_constant, lambda: fn(*xs))
        )
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
    setting = task.plain[0]
    xs = setting.fresh()
    out = fn(*xs)
    g = setting.grad_out(out).requires_grad_()
    graph = grad(out, setting.variables(xs), g, create_graph=task.order > 1)
    nodes = [n for n in walk.walk(out, *graph).nodes if n.custom]
    for node in nodes:
        place = f"in {node.title}, " if len({n.custom for n in nodes}) > 1 else ""
        for kept in node.kept:
            if kept.on_ctx and kept.role in (walk.INPUT, walk.OUTPUT):
                what, why = KEPT_ON_CTX[kept.role]
                direct = isinstance(vars(node.fn).get(kept.name), torch.Tensor)
                wrong(
                    f"every number is right, and one thing is left to mend: {place}ctx.{kept.name} "
                    f"{'is' if direct else 'holds'} {what}. {why} Use save_for_backward."
                )


def check_the_rest(task, fn):
    """What the numbers at these points do not show, by `diagnose`."""
    diagnosis = diagnose(fn, *task.plain[0].fresh())
    if not diagnosis.ok:
        first = diagnosis.findings[0].message if diagnosis.findings else ""
        wrong(
            f"right in every setting of this exercise, and yet: {diagnosis.verdict.headline}.",
            first,
        )
