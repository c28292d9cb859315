"""Compare an answer with its exercise: value, first derivative, second derivative, and the rest.

The first thing that is wrong ends the review. What is said of it is measured, never read from the
text of the answer.
"""

import ast
import inspect
import textwrap
from types import FunctionType

import torch
from torch.autograd import Function, grad

from lessons_src.diagnosis import diagnose
from lessons_src.graphs import walk

from .compare import Pair, explain
from .reply import Reply, Said, is_stub, neutral, raised, wrong
from .second_order import check_second_derivative

MISTAKES_WITH_RIGHT_NUMBERS = (  # findings of diagnose
    "input_on_ctx",
    "output_on_ctx",
    "reference_cycle",
    "computes_in_float32",
)
NO_MISTAKES = ("no_setup_context", "another_point", "seed_fixed")


def review(task, answer):
    """`Reply` to an answer, which is a callable or a Function. Raises nothing for a wrong one."""
    is_class = isinstance(answer, type) and issubclass(answer, Function)
    fn = answer.apply if is_class else answer
    try:
        if not callable(fn):
            wrong("there is nothing to call.", "Hand over the Function's apply: Name.apply")
        check_as_given(task, fn)
        for args in [*task.points, *task.values]:
            check_value(task, fn, args)
        check_first_derivative(task, fn)
        if task.order == 1:
            return Reply("right", "right. Checked: value and first derivative.")
        check_second_derivative(task, fn)
        check_the_rest(task, fn)
    except Said as said:
        return said.args[0]
    except Exception as error:  # an answer that fails on some calls only
        return Reply("wrong", f"one of the calls raises {type(error).__name__}: {error}")
    checked = "value, first and second derivative, alone and inside larger formulas."
    return Reply("right", f"right. Checked: {checked}")


def check_as_given(task, fn):
    """Lesson 4: has anything been changed? Comments and layout do not count.

    Bytecode will not do: it depends on where torch was imported.
    """
    if task.given and _trees(getattr(fn, "__self__", fn)) == _trees(task.given):
        neutral("as given. It has a bug: find it and mend it here.")


def _trees(cls):
    """Syntax tree of each method; None if Python cannot find the source."""
    methods = {name: getattr(f, "__func__", f) for name, f in getattr(cls, "__dict__", {}).items()}
    methods = {name: f for name, f in methods.items() if isinstance(f, FunctionType)}
    try:
        sources = {name: textwrap.dedent(inspect.getsource(f)) for name, f in methods.items()}
    except OSError:
        return None
    return {name: ast.dump(ast.parse(source)) for name, source in sources.items()}


def check_value(task, fn, args):
    xs, true = task.fresh(args), task.truth(*args)
    try:
        out = fn(*xs)
    except Exception as error:
        if is_stub(error):
            neutral("not attempted yet.")
        raised(f"forward{task.note(args)}", error)
    _check_kind(task, out, true)
    if not all(map(torch.equal, task.tensors(xs), task.tensors(args))):
        advice = "The caller still needs it. Use the operation without the underscore at its end."
        wrong("forward changes its input in place.", advice)
    pair = Pair("value", out.detach(), true, task.named(args), note=task.note(args))
    if pair.wrong:
        wrong(f"the value is wrong {pair}.", f"forward should return {task.asks}.")
    _check_graph(out)


def _check_kind(task, out, true):
    """One tensor of the right shape and dtype."""
    should = f"forward should return {task.asks}."
    if out is None:
        wrong("forward returns None.", "A return is missing.")
    if isinstance(out, (tuple, list)):
        advice = "Let a function call apply and return the result alone, and check that function."
        wrong(f"you hand over {len(out)} results.", advice)
    if not isinstance(out, torch.Tensor):
        wrong(f"forward returns a result of type {type(out).__name__}, not a tensor.", should)
    if (out.shape, out.dtype) != (true.shape, true.dtype):
        yours, asked = (f"of shape {tuple(t.shape)} and {t.dtype}" for t in (out, true))
        wrong(f"the result is {yours}. It should be {asked}.", should)


def _check_graph(out):
    if not out.requires_grad:
        advice = "Call the Function through apply, and detach nothing around it."
        wrong("the value is right, but no graph leads from it to the input.", advice)
    if not any(node.custom for node in walk.walk(out).nodes):
        advice = "Write one, with forward and backward, and call it through apply."
        wrong("right numbers, but there is no Function of yours in the graph.", advice)


def check_first_derivative(task, fn):
    """Two values of grad_out: the plain one gives numbers a reader knows, the other tells more."""
    plain = [_gradients(task, fn, args, varied=False) for args in task.points]
    varied = [_gradients(task, fn, args, varied=True) for args in task.points]
    bad = [pair for group in plain + varied for pair in group if pair.wrong]
    if not bad:
        return
    fact = f"the first derivative is wrong {bad[0]}."
    if len({pair.what for group in plain for pair in group}) > 1:
        fact = fact.replace("is wrong", f"with respect to {bad[0].what} is wrong")
    pairs = zip(sum(plain, []), sum(varied, []), strict=True)
    same = [one.what for one, two in pairs if torch.equal(one.yours, two.yours)]
    if bad[0].what in same and bad[0].yours.any():
        wrong(fact, "Your gradient does not change when grad_out does. Multiply by grad_out.")
    otherwise = (
        f"forward is right. backward should be grad_out times the derivative of {task.asks}."
    )
    wrong(fact, explain(plain + varied) or otherwise)


def _gradients(task, fn, args, varied):
    """What backward returns for one point: a `Pair` for each input that is a tensor."""
    xs, ts = task.fresh(args), task.fresh(args)
    out, true_out = fn(*xs), task.truth(*ts)
    grad_out = task.grad_out(true_out, varied)
    names = task.differentiated(args)
    try:
        yours = grad(out, task.tensors(xs), grad_out.clone(), allow_unused=True)
    except Exception as error:
        raised(f"backward{task.note(args)}", error)
    for name, gradient in zip(names, yours, strict=True):
        if gradient is None:
            fact = f"backward returns None for {name}, but the result depends on it."
            wrong(fact, f"Return a gradient in the place of {name}. Is there a return at all?")
    true = grad(true_out, task.tensors(ts), grad_out)
    given = task.named(args)
    factors = {"grad_out": grad_out, **given, "out": true_out.detach()}
    slips = {advice: formula(grad_out, *args) for advice, formula in task.slips.items()}
    note = f", grad_out = {grad_out.tolist()}" if varied or task.weights is not None else ""
    note += task.note(args)
    triples = zip(names, yours, true, strict=True)
    return [Pair(name, a, b, given, factors, slips, note) for name, a, b in triples]


def check_the_rest(task, fn):
    """What the numbers at these points do not show, by `diagnose`."""
    diagnosis = diagnose(fn, *task.fresh(task.points[0]))
    found = {f.code: f.message for f in diagnosis.findings if f.code not in NO_MISTAKES}
    if not diagnosis.ok:
        headline = str(diagnosis).splitlines()[0].partition(": ")[2]
        rows = [diagnosis.first, *diagnosis.settings.values()]
        told = [*found.values(), *(f"It says: {row.text}" for row in rows if row and row.text), ""]
        wrong(f"right at the points of this exercise, and yet: {headline}.", told[0])
    for code in MISTAKES_WITH_RIGHT_NUMBERS:
        if code in found:
            wrong("every number is right, and one thing is left to mend.", found[code])
