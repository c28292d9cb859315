"""Every answer gets the reply that it deserves: right, wrong with its own reason, or neutral."""

import ast
import dataclasses
import functools
import inspect
import linecache
from collections import Counter
from functools import cache
from pathlib import Path

import nbformat
import numpy as np
import pytest
import torch
from chinese import HAN, columns, english_in
from made_functions import function, of_inputs
from right_answers import RIGHT
from scipy import linalg
from scipy.special import dawsn
from torch.autograd import Function, grad
from torch.utils.checkpoint import checkpoint

import lessons_src.exercises as exercises
from lessons_src.exercises import check, hint, solution
from lessons_src.exercises.changes import edited, solution_code, wrong_answers
from lessons_src.exercises.differentiate import first
from lessons_src.exercises.language import in_language
from lessons_src.exercises.review import review
from lessons_src.exercises.task import Setting
from lessons_src.exercises.tasks.dawson import dawson
from lessons_src.operators import new_name
from lessons_src.untracked_backward import in_numpy

NOTEBOOKS = sorted((Path(__file__).resolve().parent.parent / "notebooks").glob("[0-9]_*.ipynb"))
EXERCISES = exercises.exercises()
TASKS = {name: exercise.TASK for name, exercise in EXERCISES.items()}
GIVEN = {"torch": torch, "np": np, "linalg": linalg, "dawsn": dawsn, "grad": grad}
GIVEN |= {"Function": Function, "in_numpy": in_numpy, "new_name": new_name, "check": check}


def reply(name, answer):
    return review(TASKS[name], answer)


def said(got):
    return " ".join(str(got).split())


def assert_chinese(answer):
    """A reader of Chinese is told the same, in lines that a terminal has room for."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COURSE_LANGUAGE", "zh_CN")
        for text in filter(None, [in_language(answer.fact), in_language(answer.advice)]):
            assert HAN.search(text) and not english_in(text), f"without its Chinese: {text}"
        told = answer.told("✗ name: ")
    assert max(map(columns, told.splitlines())) <= 88
    assert answer.told("") == str(answer) and not HAN.search(str(answer))


def run_as_cell(code, filename, names=None):
    """What a cell defines. As a kernel does it: Python can find the source again."""
    linecache.cache[filename] = len(code), None, code.splitlines(keepends=True), filename
    names = dict(GIVEN) if names is None else names
    exec(compile(code, filename, "exec"), names)
    return names


def answer_of(code):
    """The last thing that this code defines."""
    names = run_as_cell(code, f"<cell {hash(code)}>")
    defined = [n for n in ast.parse(code).body if isinstance(n, (ast.ClassDef, ast.FunctionDef))]
    return getattr(names[defined[-1].name], "apply", names[defined[-1].name])


@cache
def code_of(name):
    return solution_code(EXERCISES[name])


def changed(name, change):
    """An answer: the solution of an exercise after a change, see `changes`."""
    return answer_of(edited(code_of(name), change))


@cache
def replies(name):
    """The wrong answers of an exercise's file by their names, each with its reply."""
    return {w.name: (w, reply(name, answer_of(w.code))) for w in wrong_answers(EXERCISES[name])}


class Stub(Function):
    @staticmethod
    def forward(ctx, *inputs):
        raise NotImplementedError

    @staticmethod
    def backward(ctx, *grads):
        raise NotImplementedError


# The truth


def test_no_point_is_so_round_that_float32_is_exact():
    for task in TASKS.values():
        numbers = torch.cat([a.reshape(-1) for a in task.points[0] if torch.is_tensor(a)])
        assert (numbers.float().double() != numbers).any()


def test_the_dawson_series_is_scipys_function_as_far_as_the_check_goes():
    x = torch.linspace(-5, 5, 81, dtype=torch.float64)
    assert torch.allclose(dawson(x), torch.as_tensor(dawsn(x.numpy())), rtol=1e-11, atol=1e-14)


# Right answers: for each exercise a few quick ones, and all of them in `make check`.


def quick_and_slow(cases, quick):
    """The cases as parameters; those that are not quick are marked slow."""
    return [pytest.param(*case, marks=() if quick(*case) else pytest.mark.slow) for case in cases]


@pytest.mark.slow  # `test_the_solution_pasted_into_a_cell_is_right_and_to_the_point` is quick
@pytest.mark.parametrize("name", TASKS)
def test_the_solution_is_right(name):
    answer = reply(name, EXERCISES[name].SOLUTION[-1])
    assert answer.status == "right", answer


FIRST_OF = {which.partition(", ")[0]: which for which in reversed(RIGHT)}


@pytest.mark.parametrize(
    "which", quick_and_slow([(which,) for which in RIGHT], lambda w: w in FIRST_OF.values())
)
def test_a_right_answer_written_differently_is_right(which):
    name = which.partition(", ")[0]
    answer = reply(name, changed(name, RIGHT[which]))
    assert answer.status == "right", answer
    assert_chinese(answer)


def test_a_remark_in_the_first_column_hides_nothing():
    class Standardise(EXERCISES["standardise"].SOLUTION[-1]):
        @staticmethod
        def backward(ctx, grad_out):
            """
            what this does
            """
            return EXERCISES["standardise"].SOLUTION[-1].backward(ctx, grad_out)

    assert reply("standardise", Standardise).status == "right"


class Called:
    def __init__(self, fn):
        self.fn = fn

    def __call__(self, *args):
        return self.fn(*args)


class Module(torch.nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def forward(self, *args):
        return self.fn(*args)


HANDED_OVER = {
    "a function around it": lambda fn: lambda *args: fn(*args),
    "an object that can be called": Called,
    "a module": Module,
    "partial": functools.partial,
    "reshaped": lambda fn: lambda x, *n: fn(x.reshape(x.shape), *n),
}


@pytest.mark.parametrize(("name", "style"), list(zip(TASKS, HANDED_OVER, strict=False)))
def test_a_right_answer_may_be_anything_that_can_be_called(name, style):
    last = EXERCISES[name].SOLUTION[-1]
    answer = HANDED_OVER[style](getattr(last, "apply", last))
    assert reply(name, answer).status == "right", reply(name, answer)


def anew(code):
    """An answer whose classes are made in each call."""
    return lambda *args: answer_of(code)(*args)


@pytest.mark.parametrize(
    "name",
    quick_and_slow(zip(TASKS, strict=True), lambda name: name in ("power", "dawson_twice")),
)
def test_a_class_that_is_made_in_each_call_is_the_readers_own(name):
    got = reply(name, anew(code_of(name)))
    assert got.status == "right", got


@pytest.mark.parametrize(
    "which",
    [
        ("product", "one gradient only"),
        ("tanh_exp", "extra gradients ignored"),
        ("reciprocal", "plain torch around a Function that does nothing"),
    ],
    ids=", ".join,
)
def test_a_wrong_class_that_is_made_in_each_call_is_told_as_any_other(which):
    wrong, got = replies(which[0])[which[1]]
    assert str(reply(which[0], anew(wrong.code))) == str(got)


def test_a_function_of_torchs_is_not_the_readers_own():
    def recorded(x):
        return checkpoint(lambda x: 1 / x, x, use_reentrant=True)

    assert reply("reciprocal", recorded).status == "wrong"


# Wrong answers


@pytest.mark.parametrize("name", TASKS)
def test_each_wrong_answer_of_its_file_is_told_in_its_own_words(name):
    told = {}
    for wrong, got in replies(name).values():
        assert wrong.say.endswith((".", "?")), f"{wrong.name} has no sentence for the teacher"
        assert got.status == "wrong", f"{wrong.name}: {got}"
        assert str(got) not in told, f"{wrong.name} is told like {told[str(got)]}: {got}"
        assert_chinese(got)
        told[str(got)] = wrong.name
    assert len(told) >= 4, "an exercise has at least four wrong answers"


SAID = {
    ("product", "gradients swapped"): "belongs in the place of the other",
    ("product", "the whole product as a gradient"): "For b: everywhere, yours has one factor too",
    ("product", "grad_out changed in place"): "backward writes into grad_out, which other code",
    ("product", "one gradient only"): "one for each argument of forward after ctx (a, b)",
    ("power", "factor n forgotten"): "lacks one factor: n",
    ("power", "n in save_for_backward"): "save_for_backward takes tensors only",
    ("reciprocal", "grad_out forgotten"): "Multiply by grad_out",
    ("reciprocal", "plain torch around a Function that does nothing"): "the derivative is torch's",
    ("reciprocal", "a copy saved"): "What forward saves is a copy of an input",
    ("reciprocal", "detached in backward"): "(it uses .detach() in backward, line",
    ("tanh_exp", "second exponential added"): "second extra output of forward is 1",
    ("tanh_exp", "extra gradients ignored"): "returns and saves: expx, expnegx",
    ("tanh_exp", "names of the extra gradients swapped"): "What backward returns for x is wrong",
    ("dawson", "grad_out changed through NumPy"): "backward writes into grad_out",
    ("normalise", "extra gradient subtracted"): "wrong sign",
    ("swish", "contiguous inside save_for_backward"): "(x transposed)",
    ("artanh", "clamp removed"): "at x[0] = 1.0: yours inf",
    ("tanh_exp", "4 forgotten"): "Everywhere, yours is 0.25 times the true one",
    ("gate", "extra gradient added to grad_a"): "returns for a is wrong when the gradient of the",
    ("logsumexp", "total as an array on ctx"): "for a constant: ctx.total.",
    ("learned_power", "alpha as a number"): "for a constant: ctx.alpha.",
    ("standardise", "declared once_differentiable"): "is declared @once_differentiable",
    ("dawson_twice", "None for grad_out"): "returns None for grad_out",
    ("dawson_twice", "products swapped"): "Each of the two gradients is what belongs in the",
    ("dawson_twice", "grad_grad_x forgotten for grad_out"): "F(x²)² at",
    ("dawson_twice", "no second Function"): "where autograd cannot follow (it uses NumPy in",
    ("dawson_twice", "h changed in place"): "backward of backward changes the gradient that it",
    ("growth", "None for a"): "GrowthBackward returns None for a. That one has to",
    ("growth", "grad_a left out for b"): "The derivative of grad_a by b, at",
    ("growth", "h_a and h_b swapped"): "takes the gradients of its two outputs in the wrong order",
    ("growth", "gradients swapped"): "Each of these gradients is what belongs in the place of",
    ("growth", "one tensor returned"): "tuple(...) around it takes it apart",
    ("growth", "one h only"): "one gradient for each output of forward",
    ("solve", "solved in NumPy in backward"): "apply FullSolve itself for this solve",
    ("tanh_exp", "saved and not returned"): "saves a tensor it made itself (expx, expnegx)",
    ("tanh_exp", "extra gradients without the exponential"): "true 1.6487. Yours is the gradient",
    ("gate", "extra gradient without its derivative"): "Yours is the gradient of that output",
    ("learned_power", "mean instead of sum"): "Is there a mean in the place of a sum",
    ("standardise", "variance with n - 1 in backward"): "At these points, yours is 0.816",
    ("normalise", "norm taken for a constant"): "x too, so a second term is missing.",
}


@pytest.mark.parametrize("which", SAID, ids=", ".join)
def test_the_sentence_is_the_one_for_this_mistake(which):
    name, wrong = which
    assert SAID[which] in said(replies(name)[wrong][1])


def slipping(task, formula, place):
    """An answer whose gradient for the input at this place is this one; the others are right."""

    def forward(ctx, *args):
        ctx.args = tuple(a.detach() if torch.is_tensor(a) else a for a in args)
        return task.truth(*args)

    def backward(ctx, grad_out):
        setting = Setting(ctx.args)
        with torch.enable_grad():
            grads = iter(first(task.truth, setting, grad_out)[1])
        grads = [next(grads) if i in setting.places else None for i in range(len(ctx.args))]
        grads[place] = formula(grad_out, *ctx.args)
        return tuple(grads)

    return function(forward, backward).apply


SLIPS_KNOWN = [(name, advice) for name, task in TASKS.items() for advice in task.slips]


@pytest.mark.parametrize(("name", "advice"), SLIPS_KNOWN)
def test_a_known_slip_is_told_by_its_advice(name, advice):
    task = TASKS[name]
    told = (
        reply(name, slipping(task, task.slips[advice], place)).advice
        for place in Setting(task.points[0]).places
    )
    assert advice in told  # which ends at the first that is


MISTAKES = {  # of learners: the exercise, what is said of it, and what they change in the solution
    "a tuple whose first result is another number": """log_det: It should be log(det(A)).
        - return torch.linalg.slogdet(A)[1]
        + return torch.linalg.slogdet(A)
    """,
    "a formula that overflows": """log_cosh: The first inf or nan is the result of cosh here: for
        - return size + torch.log1p(torch.exp(-2 * size)) - math.log(2)
        + return torch.log(torch.cosh(x))
    """,
    "a formula that overflows, no backward yet": """log_cosh: is the result of cosh here: forward,
        - return size + torch.log1p(torch.exp(-2 * size)) - math.log(2)
        + return torch.log(torch.cosh(x))
        - return grad_out * torch.tanh(x)
        + raise NotImplementedError
    """,
    "a backward that overflows": """log_cosh: The first inf or nan is the result of sinh here: back
        - return grad_out * torch.tanh(x)
        + return grad_out * torch.sinh(x) / torch.cosh(x)
    """,
    "a division by each entry": """log_det: That is grad_out / A. It divides by each entry
        - return grad_out * torch.linalg.inv(A).T
        + return grad_out / A
    """,
    "all saved tensors as one": """sigmoid: out is all of ctx.saved_tensors, a tuple. Take it apart
        - (out,) = ctx.saved_tensors
        + out = ctx.saved_tensors
    """,
    "a tuple inside the tuple": """tanh_exp: A tuple inside the tuple that forward returns is not an
        - return (expx - expnegx) / (expx + expnegx), expx, expnegx
        + return (expx - expnegx) / (expx + expnegx), (expx, expnegx)
        - out, _expx, _expnegx = TanhExp.apply(x)
        + out, _both = TanhExp.apply(x)
    """,
    "what SciPy returns in the place of its function": """\
dawson: in_numpy takes the function itself, and the tensors after it: in_numpy(function, x).
        - return in_numpy(dawsn, x)
        + return in_numpy(dawsn(x))
    """,
    "several tensors in brackets": """reciprocal: one by one
        - ctx.save_for_backward(x)
        + ctx.save_for_backward([x])
    """,
    "a new leaf in the place of the input": """\
reciprocal: What forward saves is a copy of an input, another view of it
        - ctx.save_for_backward(x)
        - return 1 / x
        + x = x.detach().requires_grad_()
        + ctx.save_for_backward(x)
        + return 1 / x.detach()
    """,
    "a Function in backward without apply": """power: Call it through apply: Power.apply
        - return grad_out * ctx.n * x ** (ctx.n - 1), None
        + return Power(grad_out, x), None
    """,
    "all of saved_tensors": """reciprocal: x is all of ctx.saved_tensors
        - (x,) = ctx.saved_tensors
        - return -grad_out / x**2
        + x = ctx.saved_tensors
        + return -grad_out * torch.exp(x)
    """,
    "no return": """reciprocal: It has no return.
        - return -grad_out / x**2
        + -grad_out / x**2
    """,
    "None returned": """reciprocal: backward returns None for x, but the result depends on it
        - return -grad_out / x**2
        + return print()
    """,
    "a raise left below new code": """reciprocal: still raises NotImplementedError in line
        - return -grad_out / x**2
        + grad_x = -grad_out / x**2
        + raise NotImplementedError
    """,
    "forward not written": """\
reciprocal: Reciprocal.forward still raises NotImplementedError in line
        - return 1 / x
        + raise NotImplementedError
    """,
    "a slope kept from an earlier backward": """reciprocal: another one when backward ran before
        - return -grad_out / x**2
        + if not hasattr(ctx, "slope"):
        +     ctx.slope = -1 / x**2
        + return grad_out * ctx.slope
    """,
    "nan, which is not another gradient each time": """\
reciprocal: the first derivative is wrong at x[0] = 0.5: yours nan
        - return -grad_out / x**2
        + return grad_out * torch.nan
    """,
    "an error inside NumPy": """reciprocal: `return np.linalg.inv(grad_out.numpy())`
        - return -grad_out / x**2
        + return np.linalg.inv(grad_out.numpy())
    """,
    "wrong for n = 4 only": """power: n = 4
        - return grad_out * ctx.n * x ** (ctx.n - 1), None
        + return grad_out * ctx.n * x ** (ctx.n - 1) * (1 + (ctx.n == 4)), None
    """,
    "three dimensions copied only": """swish: x of shape (n, 2, 1), not contiguous
        - ctx.save_for_backward(x)
        - x = x.contiguous()
        + x = x.contiguous() if x.dim() == 3 else x
        + ctx.save_for_backward(x)
    """,
    "save_for_backward with an equals sign": """reciprocal: save_for_backward is a method: call it
        - ctx.save_for_backward(x)
        + ctx.save_for_backward = x
        - (x,) = ctx.saved_tensors
        + x = ctx.save_for_backward
    """,
    "the same, and saved_tensors": """reciprocal: save_for_backward is a method: call it
        - ctx.save_for_backward(x)
        + ctx.save_for_backward = x
    """,
    "a value that is wrong in float32 alone": """\
reciprocal: the value is wrong at x[0] = 0.5 (x in float32)
        - return 1 / x
        + return 1 / x if x.dtype == torch.float64 else 1.01 / x
    """,
    "five per cent too much": """reciprocal: Everywhere, yours is 1.05 times the true one.
        - return -grad_out / x**2
        + return -1.05 * grad_out / x**2
    """,
    "a number of grad_out": """reciprocal: grad_out.item() makes a number of one element
        - return -grad_out / x**2
        + return -grad_out.item() / x**2
    """,
    "a shift that cancels, beside a detach": """logsumexp: (it uses .detach() in backward, line 15
        - out = torch.log(torch.exp(x).sum())
        - ctx.save_for_backward(x, out)
        + out = x.max() + torch.log(torch.exp(x - x.max()).sum())
        + ctx.m = x.max().item(); ctx.save_for_backward(x)
        - x, out = ctx.saved_tensors
        - return grad_out * torch.exp(x - out)
        + (x,) = ctx.saved_tensors; e = torch.exp(x - ctx.m)
        + return grad_out * e / e.sum().detach()
    """,
    "no_grad as a decorator": """\
gate: torch.no_grad() or the like in gate, line 20: `@torch.no_grad()`
        - def gate(a, b):
        + @torch.no_grad()
        + def gate(a, b):
    """,
    "no_grad as a decorator of backward": """\
reciprocal: torch.no_grad() or the like in backward, line 11: `@torch.no_grad()`
        - def backward(ctx, grad_out):
        + @torch.no_grad()
        + def backward(ctx, grad_out):
    """,
    "an extra output that is a mask": """tanh_exp: (it uses .detach() in backward, line 16
        - ctx.save_for_backward(expx, expnegx)
        - return (expx - expnegx) / (expx + expnegx), expx, expnegx
        + one = torch.ones_like(x); ctx.save_for_backward(expx, expnegx, one)
        + return (expx - expnegx) / (expx + expnegx), expx, expnegx, one
        - def backward(ctx, grad_out, grad_expx, grad_expnegx):
        -     expx, expnegx = ctx.saved_tensors
        -     grad_x = grad_out * 4 / (expx + expnegx) ** 2
        + def backward(ctx, grad_out, grad_expx, grad_expnegx, grad_one):
        +     expx, expnegx, one = ctx.saved_tensors
        +     grad_x = one * grad_out.detach() * 4 / (expx + expnegx) ** 2
        - out, _expx, _expnegx = TanhExp.apply(x)
        + out, *_ = TanhExp.apply(x)
    """,
    "a list returned from a second Function": """\
growth: GrowthBackward.backward returns an object of type list. Return a tensor, or several
        - return for_grad_out, for_a, for_b
        + return [for_grad_out, for_a, for_b]
    """,
    "arrays returned from a second Function": """\
growth: what GrowthBackward.backward returns for a is of type ndarray, and no tensor
        - return for_grad_out, for_a, for_b
        + return for_grad_out, for_a.numpy(), for_b
    """,
    "a printed number beside an array": """reciprocal: NumPy in backward, line 14
        - return -grad_out / x**2
        + print(x.sum().item())
        + s = torch.as_tensor(x.detach().numpy() ** 2)
        + return -grad_out / s
    """,
    "ctx.grad_out": """dawson_twice: one thing is left to mend: in DawsonBackward, ctx.g is an input
        - ctx.save_for_backward(grad_out, x)
        + ctx.g = grad_out; ctx.save_for_backward(x)
        - grad_out, x = ctx.saved_tensors
        + (x,) = ctx.saved_tensors; grad_out = ctx.g
    """,
    "a list of inputs on ctx": """product: ctx.kept holds an input
        - ctx.save_for_backward(a, b)
        + ctx.kept = [a, b]
        - a, b = ctx.saved_tensors
        + a, b = ctx.kept
    """,
    "float32": """\
sigmoid: It becomes float32 here: forward, line 9: `ctx.save_for_backward(out.float())`
        - ctx.save_for_backward(out)
        + ctx.save_for_backward(out.float())
    """,
    "float32 in backward": """reciprocal: It becomes float32 here: backward, line 13
        - return -grad_out / x**2
        + return -grad_out / x.float() ** 2
    """,
    "the second derivative in backward": """reciprocal: That is grad_out times the second derivative
        - return -grad_out / x**2
        + return grad_out * 2 / x**3
    """,
    "a name slightly off": """reciprocal: It has backwards: is that meant?
        - def backward(ctx, grad_out):
        + def backwards(ctx, grad_out):
    """,
    "saved_tensor": """reciprocal: Is ctx.saved_tensors meant?
        - (x,) = ctx.saved_tensors
        + (x,) = ctx.saved_tensor
    """,
    "grad_output": """reciprocal: Is grad_out meant?
        - return -grad_out / x**2
        + return -grad_output / x**2
    """,
    "an argument of forward in backward": """power: n is an argument of forward. backward has what
        - return grad_out * ctx.n * x ** (ctx.n - 1), None
        + return grad_out * n * x ** (ctx.n - 1), None
    """,
    "marked as non-differentiable": """\
sigmoid: `ctx.mark_non_differentiable(out)` makes a constant of it
        - ctx.save_for_backward(out)
        + ctx.mark_non_differentiable(out)
        + ctx.save_for_backward(out)
    """,
    "a saved tensor edited afterwards": """\
reciprocal: forward edits a tensor that it handed to save_for_backward before (forward, line 7
        - ctx.save_for_backward(x)
        + z = x * 1; ctx.save_for_backward(z); z += 1
    """,
    "a saved tensor edited in backward": """\
artanh: backward writes into a tensor that forward saved and that is read again
          (x,) = ctx.saved_tensors
        - x = x.clamp(-1 + 1e-6, 1 - 1e-6)
        + x.clamp_(-1 + 1e-6, 1 - 1e-6)
    """,
    "a tensor from outside the second Function": """\
dawson_twice: Inner.forward reads x from outside: to autograd a constant
        - return DawsonBackward.apply(grad_out, x)
        + class Inner(Function):
        +     @staticmethod
        +     def forward(inner, g):
        +         return g * in_numpy(dawson_first, x)
        +     @staticmethod
        +     def backward(inner, h):
        +         return h * in_numpy(dawson_first, x)
        + return Inner.apply(grad_out)
    """,
    "an error in a function of NumPy": """dawson: name 'D' is not defined (<lambda>, line 19
        - return grad_out * in_numpy(dawson_first, x)
        + return grad_out * in_numpy(lambda v: 1 - D(v), x)
    """,
    "a forward that fails in backward": """\
solve: called in backward, line 17: `w = FullSolve.apply(grad_out, A.t())`
        - w = FullSolve.apply(A.t(), grad_out)
        + w = FullSolve.apply(grad_out, A.t())
    """,
    "a gradient that is None": """\
gate: grad_s is None here: that output was not used (set_materialize_grads(False)).
        - ctx.save_for_backward(a, s)
        + ctx.save_for_backward(a, s); ctx.set_materialize_grads(False)
    """,
    "a power too many": """power: Everywhere, yours is the true one, times x².
        - return grad_out * ctx.n * x ** (ctx.n - 1), None
        + return grad_out * ctx.n * x ** (ctx.n + 1), None
    """,
    "abs": """power: yours has the right size, and in places the wrong sign
        - return grad_out * ctx.n * x ** (ctx.n - 1), None
        + return grad_out * ctx.n * x.abs() ** (ctx.n - 1), None
    """,
    "a term with the wrong sign": """standardise: The term -along_out / sqrt_var has the wrong sign.
        - return (grad_out - grad_out.mean() - along_out) / sqrt_var
        + return (grad_out - grad_out.mean() + along_out) / sqrt_var
    """,
    "a term twice": """dawson: the term grad_out comes 2 times. It should come
        - return 1 - 2 * x * dawsn(x)
        + return 2 - 2 * x * dawsn(x)
    """,
    "a sum in the place of a product": """\
library: Everywhere, yours adds grad_out where it should multiply by it.
        - return -grad_out * x * out
        + return grad_out + -x * out
    """,
    "a detach that the third derivative meets": """\
tanh_exp: and the third is a wrong number. F, differentiated three times, at x[0] = 0.5: yours 0.58
        - grad_x = grad_x + grad_expx * expx
        + grad_x = grad_x + grad_expx * expx.detach()
    """,
    "the gradient of another input": """product: For a: that is the gradient of b.
        - ctx.save_for_backward(a, b)
        + ctx.save_for_backward(a, a)
    """,
    "half of a gradient, of two inputs": """\
gate: For b: everywhere, yours is 0.5 times the true one.
        - grad_b = grad_out * a * s * (1 - s) + grad_s * s * (1 - s)
        + grad_b = 0.5 * grad_out * a * s * (1 - s) + grad_s * s * (1 - s)
    """,
    "the second extra gradient without its derivative": """\
tanh_exp: Yours is the gradient of that output itself, with a minus. Multiply it by the output's
        - grad_x = grad_x - grad_expnegx * expnegx
        + grad_x = grad_x - grad_expnegx
    """,
    "the extra gradient of one number without its derivative": """\
normalise: Yours is the gradient of that output itself. Multiply it by the output's own derivative.
        - grad_x = grad_x + grad_norm * out
        + grad_x = grad_x + grad_norm
    """,
    "ctx in the second place": """reciprocal: ctx comes first: def
        - def forward(ctx, x):
        + def forward(x, ctx):
    """,
    "brackets behind saved_tensors": """reciprocal: ctx.saved_tensors is written without brackets
        - (x,) = ctx.saved_tensors
        + (x,) = ctx.saved_tensors()
    """,
    "backward outside the class": """reciprocal: There is a function backward outside of the class
        - @staticmethod
        - def backward(ctx, grad_out):
        -     (x,) = ctx.saved_tensors
        -     return -grad_out / x**2

        + def backward(ctx, grad_out):
        +     (x,) = ctx.saved_tensors
        +     return -grad_out / x**2
        +
        + def reciprocal(x):
        +     return Reciprocal.apply(x)
    """,
    "an array on ctx": """\
reciprocal: takes this for a constant: ctx.x. No graph leads on from what is not a tensor
        - ctx.save_for_backward(x)
        + ctx.x = x.detach().numpy().copy()
        - (x,) = ctx.saved_tensors
        + x = torch.as_tensor(ctx.x)
    """,
    "a forward that applies its own Function": """power: forward calls itself again and again.
        - return x**n
        + return x * Power.apply(x, n - 1)
    """,
    "apply forgotten in backward": """\
dawson_twice: backward returns an instance of DawsonBackward. Call it through apply
        - return DawsonBackward.apply(grad_out, x)
        + return DawsonBackward(grad_out, x)
    """,
    "an element of the one result": """\
tanh_exp: This is an element of the one tensor that apply returns: forward returns no extra
        - return (expx - expnegx) / (expx + expnegx), expx, expnegx
        + return (expx - expnegx) / (expx + expnegx)
    """,
    "a path that autograd.grad counts twice": """softplus: depends on x, one path counts twice
        - ctx.save_for_backward(out)
        + ctx.save_for_backward(x)
        - (out,) = ctx.saved_tensors
        - return grad_out * (1 - torch.exp(-out))
        + (x,) = ctx.saved_tensors
        + with torch.enable_grad():
        +     total = (grad_out * torch.log(1 + torch.exp(x))).sum()
        +     return torch.autograd.grad(total, x, create_graph=True)[0]
    """,
    "a factor near 1": """reciprocal: Everywhere, yours is 1.0001 times the true one.
        - return -grad_out / x**2
        + return -1.0001 * grad_out / x**2
    """,
    "a formula in x, of the result": """reciprocal: gradient with the result in the place of x
        - ctx.save_for_backward(x)
        - return 1 / x
        + out = 1 / x; ctx.save_for_backward(out)
        + return out
    """,
    "a constant in float32, in the value": """log_cosh: It becomes float32 here: forward, line
        - return size + torch.log1p(torch.exp(-2 * size)) - math.log(2)
        + return size + torch.log1p(torch.exp(-2 * size)) - torch.tensor(2.0).log()
    """,
    "grad_out changed in place, before it is used again": """\
product: Make a new tensor, as in grad_out * 3. For b: everywhere, yours has one factor too many: b.
        - return grad_out * b, grad_out * a
        + grad_a = grad_out.mul_(b)
        + return grad_a, grad_out * a
    """,
    "divided by a mean": """logsumexp: one factor too many: the number of elements. Is there
        - return grad_out * torch.exp(x - out)
        + return grad_out * torch.exp(x) / torch.exp(x).mean()
    """,
    "a softmax along the last dimension": """logsumexp: In one dimension it is right. Does a sum,
        - return grad_out * torch.exp(x - out)
        + return grad_out * torch.softmax(x, -1)
    """,
    "a mean along the last dimension": """standardise: In one dimension it is right. Does a sum,
        - along_out = out * (grad_out * out).mean()
        + along_out = out * (grad_out * out).mean(-1, keepdim=True)
    """,
    "a copy of what SciPy made": """solve: If it is the result, save the very tensor that you return
        - ctx.save_for_backward(A, u)
        + ctx.save_for_backward(A, u.clone())
    """,
    "a detach beside the solve": """solve: (w, u.detach()), w`). Leave that out, or compute
        - return -torch.outer(w, u), w
        + return -torch.outer(w, u.detach()), w
    """,
    "1 - x D": """dawson: The factor 2 is
        - return 1 - 2 * x * dawsn(x)
        + return 1 - x * dawsn(x)
    """,
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_by_its_name_and_line(mistake):
    head, _, change = MISTAKES[mistake].strip().partition("\n")
    name, _, expected = head.partition(": ")
    answer = reply(name, changed(name, change))
    assert answer.status == "wrong" and expected in said(answer)
    assert_chinese(answer)


def reciprocal_with(backward, forward=lambda x: 1 / x):
    """An answer to "reciprocal" with another backward, a function of ctx and grad_out."""

    def forward_and_save(ctx, x):
        ctx.save_for_backward(x)
        return forward(x)

    parts = {"forward": staticmethod(forward_and_save), "backward": staticmethod(backward)}
    return type("Answer", (Function,), parts).apply


def at(ctx, grad_out):
    (x,) = ctx.saved_tensors
    return -grad_out / x**2


calls = Counter()


def fails_later(ctx, grad_out):
    calls["backward"] += 1
    if calls["backward"] > 6:
        raise RuntimeError("out of luck")
    return at(ctx, grad_out)


UNCATALOGUED = {
    "zero": lambda ctx, g: g * 0,
    "noise": lambda ctx, g: at(ctx, g) * torch.rand_like(g),
    "constant": lambda ctx, g: torch.ones_like(g),
    "cubic": lambda ctx, g: at(ctx, g) * ctx.saved_tensors[0] ** 3,
    "abs of grad_out": lambda ctx, g: at(ctx, g.abs()),
    "square of grad_out": lambda ctx, g: at(ctx, g * g),
    "grad_out clipped": lambda ctx, g: at(ctx, g.clamp(-10, 1)),
    "one element": lambda ctx, g: at(ctx, g) * torch.tensor([1.0, 1.0, 1.000001]),
    "float32": lambda ctx, g: at(ctx, g).float().double(),
    "a number": lambda ctx, g: 3.0,
    "too small": lambda ctx, g: at(ctx, g)[:2],
    "a bug": lambda ctx, g: at(ctx, g).no_such_thing(),
    "grad_out detached": lambda ctx, g: at(ctx, g.detach()),
    "result detached": lambda ctx, g: at(ctx, g).detach(),
    "item": lambda ctx, g: -g / torch.tensor(ctx.saved_tensors[0].tolist(), dtype=g.dtype) ** 2,
    "half detached": lambda ctx, g: at(ctx, g) / 2 + at(ctx, g).detach() / 2,
    "numpy": lambda ctx, g: -g / torch.as_tensor(ctx.saved_tensors[0].numpy() ** 2),
    "wrong from the second on": lambda ctx, g: at(ctx, g) * (1 + torch.is_grad_enabled()),
    "fails later": fails_later,
    "in place": lambda ctx, g: g.neg_().div_(ctx.saved_tensors[0] ** 2),
}


@pytest.mark.parametrize("name", UNCATALOGUED)
def test_a_wrong_backward_nobody_catalogued_is_never_called_right(name):
    answer = reply("reciprocal", reciprocal_with(UNCATALOGUED[name]))
    assert answer.status == "wrong"
    assert len(str(answer)) > 40 and "Traceback" not in str(answer)
    assert_chinese(answer)


def test_wrong_forwards_and_things_that_are_no_answer():
    for forward in (lambda x: x, lambda x: (1 / x).float(), lambda x: (1 / x).sum(), lambda x: 1):
        assert reply("reciprocal", reciprocal_with(at, forward)).status == "wrong"
    for no_answer in (None, 3, torch.reciprocal, lambda: 1, lambda x: 1 / x.detach(), "Reciprocal"):
        assert reply("reciprocal", no_answer).status == "wrong"


@pytest.mark.parametrize("call", range(1, 6))
def test_an_answer_that_fails_on_one_call_is_told_without_an_exception(call):
    calls = Counter()

    def moody(x):
        calls["forward"] += 1
        if calls["forward"] == call:
            raise RuntimeError("out of luck")
        return 1 / x

    answer = reply("reciprocal", reciprocal_with(at, moody))
    assert answer.status == "wrong" and "out of luck" in str(answer)


def test_the_place_the_two_numbers_and_what_to_change_are_named(capsys):
    check("reciprocal", reciprocal_with(lambda ctx, g: g / ctx.saved_tensors[0] ** 2))
    assert capsys.readouterr().out == (
        "✗ reciprocal: the first derivative is wrong at x[0] = 0.5: yours 4.0000, true -4.0000.\n"
        "Everywhere, yours has the wrong sign.\n"
    )


def test_an_error_of_the_answer_is_told_with_its_message_and_line():
    answer = reply("reciprocal", reciprocal_with(UNCATALOGUED["a bug"]))
    assert "AttributeError: 'Tensor' object has no attribute 'no_such_thing'" in answer.fact
    assert '`"a bug": lambda ctx, g: at(ctx, g).no_such_thing(),`' in answer.fact


class Doubled(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad_out):
        return grad_out * 2


SLIPS = {
    "arguments swapped": ((Doubled.apply, "sigmoid"), 'check("sigmoid", Doubled.apply)'),
    "no name": ((EXERCISES["tanh_exp"].SOLUTION[0],), 'check("tanh_exp", TanhExp.apply)'),
    "no answer": (("sigmoid",), 'check("sigmoid", Name.apply)'),
    "a name slightly off": (("normalize", Doubled.apply), 'check("normalise", Doubled.apply)'),
    "a name in a list": ((["sigmoid"], Doubled.apply), 'check("sigmoid", Doubled.apply)'),
    "an instance": (
        ("sigmoid", Doubled.__new__(Doubled)),
        "Hand over Doubled.apply, without brackets.",
    ),
    "forward": (("sigmoid", Doubled.forward), "Hand over Doubled.apply, which calls it."),
    "a result": (("sigmoid", torch.ones(3)), "Name.apply, without brackets behind it."),
    "another class": (("sigmoid", Counter), "Write class Counter(Function)"),
    "apply forgotten": (("sigmoid", lambda x: Doubled(x)), "Call it through apply: Doubled.apply"),
}


@pytest.mark.parametrize("slip", SLIPS)
def test_a_slip_in_the_call_of_check_is_told_with_the_call_to_write(slip, capsys, monkeypatch):
    args, told = SLIPS[slip]
    check(*args)
    assert told in " ".join(capsys.readouterr().out.split())
    monkeypatch.setenv("COURSE_LANGUAGE", "zh_CN")
    check(*args)
    out = capsys.readouterr().out
    assert HAN.search(out) and not english_in(out)


def test_a_right_answer_is_right_where_nothing_is_recorded(capsys):
    with torch.no_grad():
        check("sigmoid", EXERCISES["sigmoid"].SOLUTION[-1])
    with torch.inference_mode():
        check("sigmoid", EXERCISES["sigmoid"].SOLUTION[-1])
    assert capsys.readouterr().out.count("✓ sigmoid: right.") == 2


def test_an_error_of_the_course_is_told_as_its_own():
    task = dataclasses.replace(TASKS["reciprocal"], inputs=())
    answer = review(task, EXERCISES["reciprocal"].SOLUTION[-1])
    assert "the check itself failed, which is a mistake of the course" in answer.fact


def cut_off(limit, task):
    """The gradients by autograd, but 0 for what lies beyond the limit."""

    def forward(ctx, *args):
        ctx.save_for_backward(*(a for a in args if torch.is_tensor(a)))
        ctx.numbers = [a for a in args if not torch.is_tensor(a)]
        return task.truth(*args)

    def backward(ctx, grad_out):
        with torch.enable_grad():
            xs = [
                x.view_as(x) if x.requires_grad else x.clone().requires_grad_()
                for x in ctx.saved_tensors
            ]
            out = task.truth(*xs, *ctx.numbers)
        grads = grad(out, xs, grad_out, create_graph=torch.is_grad_enabled())
        grads = [g * (x.abs() <= limit) for g, x in zip(grads, xs, strict=True)]
        return *grads, *(None for _ in ctx.numbers)

    return function(forward, backward).apply


BOUNDED = ("artanh", "dawson", "dawson_twice")  # 1 and 5 are as far as these go
FLAT = ("sigmoid", "tanh_exp", "library")  # beyond 50 the derivatives are 0, up to rounding


@pytest.mark.parametrize("name", [n for n in TASKS if n not in BOUNDED + FLAT])
def test_a_gradient_that_is_cut_off_far_away_is_refused(name):
    answer = reply(name, cut_off(50, TASKS[name]))
    seen = "the first derivative" in answer.fact and "yours 0" in answer.fact
    assert seen, "give its TASK `wide` numbers beyond 50, or name it in BOUNDED or FLAT"


INNER = {
    "Inner.backward returns 1 gradient. It should return 2 gradients": lambda h, g, x: -h / x**2,
    "what Inner.backward returns for x is of shape (7,), and x is of shape (3,)": lambda h, g, x: (
        -h / x**2,
        h.new_ones(7),
    ),
}


@pytest.mark.parametrize("fact", INNER)
def test_what_the_backward_of_a_second_function_should_return_is_said(fact):
    inner = of_inputs(lambda g, x: -g / x**2, INNER[fact], "Inner")
    backward = lambda ctx, g: inner.apply(g, ctx.saved_tensors[0])  # noqa: E731
    answer = reply("reciprocal", reciprocal_with(backward))
    assert answer.fact.startswith(fact)


def test_a_function_with_other_arguments_is_told_with_the_call_that_failed():
    answer = reply("reciprocal", EXERCISES["product"].SOLUTION[-1].apply)
    assert answer.fact.startswith("F(x) raises TypeError: Product.forward() missing 1")


def test_a_constant_that_was_handed_in_is_not_told_as_a_sum():
    change = "- grad_x = grad_x + grad_expx * expx\n+ grad_x = grad_x + 2 * grad_expx"
    assert "a sum or a mean too many" not in said(reply("tanh_exp", changed("tanh_exp", change)))


# What an exercise tries an answer with


@pytest.mark.parametrize("name", ["reciprocal", "product", "power"])
def test_a_clamp_like_that_of_lesson_1_is_refused(name):
    def clamped(*args):
        args = [a.clamp(-1000, 1000) if torch.is_tensor(a) else a for a in args]
        return EXERCISES[name].SOLUTION[0].apply(*args)

    assert reply(name, clamped).status == "wrong"


def test_an_empty_tensor_is_nobodys_question():
    for task in TASKS.values():
        for setting in [*task.plain, *task.more]:
            assert all(a.numel() for a in setting.args if torch.is_tensor(a))


# Right, but around the point

AROUND = {  # the point, and a way around it
    "sigmoid": """to save the result
        - ctx.save_for_backward(out)
        + ctx.save_for_backward(x)
        - (out,) = ctx.saved_tensors
        + out = torch.sigmoid(*ctx.saved_tensors)
    """,
    "dawson": """a derivative that torch does not compute
        - ctx.save_for_backward(x)
        - return in_numpy(dawsn, x)
        + out = in_numpy(dawsn, x); ctx.save_for_backward(x, out); return out
        - (x,) = ctx.saved_tensors
        - return grad_out * in_numpy(dawson_first, x)
        + x, out = ctx.saved_tensors
        + return grad_out * (1 - 2 * x * out)
    """,
    "growth": """NumPy in a Function for backward
        - exp = in_numpy(np.exp, b)
        + exp = torch.exp(b)
    """,
    "solve": """a backward that applies its own Function
        - w = FullSolve.apply(A.t(), grad_out)
        + w = torch.linalg.solve(A.t(), grad_out)
    """,
    "tanh_exp": """to keep the exponentials""",
    "gate": """to keep s""",
    "normalise": """to keep r""",
}
BY = {"tanh_exp": "out saved", "gate": "recomputed", "normalise": "x saved"}  # of the right ones


@pytest.mark.parametrize("name", AROUND)
def test_a_right_answer_that_goes_around_the_point_is_told_so(name, capsys):
    point, _, change = AROUND[name].partition("\n")
    with torch.no_grad():
        check(name, changed(name, change or RIGHT[f"{name}, {BY[name]}"]))
    got = said(capsys.readouterr().out)
    assert got.startswith(f"✓ {name}: right.") and f"of this exercise, which is {point}" in got


TO_THE_POINT = [  # a derivative partly in NumPy; an extra output that stands before the result
    ("dawson", """
        - return grad_out * in_numpy(dawson_first, x)
        + return grad_out * (1 - 2 * x * in_numpy(dawsn, x))
    """),
    ("gate", """
        - return a * s, s
        + return s, a * s
        - def backward(ctx, grad_out, grad_s):
        + def backward(ctx, grad_s, grad_out):
        - out, _s = Gate.apply(a, b)
        + _s, out = Gate.apply(a, b)
    """),
]  # fmt: skip


@pytest.mark.parametrize(("name", "change"), TO_THE_POINT)
def test_an_answer_to_the_point_is_right_alone(name, change, capsys):
    check(name, changed(name, change))
    got = capsys.readouterr().out
    assert got.startswith(f"✓ {name}: right.") and "On to the next cell." in got
    assert "But" not in got


@pytest.mark.parametrize(
    ("derivative", "overflows"), [("exp(x) / (1 + torch.exp(x))", True), ("sigmoid(x)", False)]
)
def test_a_right_answer_that_overflows_far_away_is_told_so(derivative, overflows, capsys):
    change = f"""
        - ctx.save_for_backward(out)
        + ctx.save_for_backward(x)
        - (out,) = ctx.saved_tensors
        - return grad_out * (1 - torch.exp(-out))
        + (x,) = ctx.saved_tensors
        + return grad_out * torch.{derivative}
    """
    check("softplus", changed("softplus", change))
    got = said(capsys.readouterr().out)
    assert got.startswith("✓ softplus: right.")
    assert ("But it overflows: at x = 710 the first derivative is nan, true 1." in got) == overflows


def test_a_first_derivative_that_cannot_be_recorded_is_right_where_only_it_is_asked():
    change = """
        - return grad_out * in_numpy(dawson_first, x)
        + return grad_out * (1 - 2 * x * dawsn(x.numpy()))
    """
    assert reply("dawson", changed("dawson", change)).status == "right"


def printing(what):
    class Reciprocal(EXERCISES["reciprocal"].SOLUTION[0]):
        @staticmethod
        def forward(ctx, x):
            print(what(x))
            return EXERCISES["reciprocal"].SOLUTION[0].forward(ctx, x)

    return Reciprocal


def test_what_an_answer_prints_comes_once(capsys):
    check("reciprocal", printing(lambda x: "in forward"))
    assert capsys.readouterr().out.startswith("in forward\n✓ reciprocal: right.")
    check("reciprocal", printing(lambda x: x.detach().reshape(-1).tolist()))
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "[0.5, 1.0, -1.3]"
    assert said[10].startswith("(Your code prints ") and said[11].startswith("✓ reciprocal")


# Neutral


def test_forward_without_backward_is_neither_right_nor_wrong():
    answer = reply("reciprocal", reciprocal_with(Stub.backward))
    assert (answer.status, answer.fact[:12]) == ("neutral", "right so far")


def test_a_wrong_forward_is_told_before_a_missing_backward():
    assert reply("reciprocal", reciprocal_with(Stub.backward, lambda x: -x)).status == "wrong"


def test_the_bug_is_there_in_what_is_given():
    for task in TASKS.values():
        if task.given:
            got = reply(task.name, lambda *args, given=task.given: given.apply(*args))
            assert got.status == "wrong" and "second derivative" in got.fact


def test_nothing_written_is_neutral(capsys):
    change = """
        - ctx.save_for_backward(x)
        - return 1 / x
        + raise NotImplementedError
    """
    check("reciprocal", changed("reciprocal", change))
    check("reciprocal", Stub.apply)
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "reciprocal: Reciprocal.forward is not written yet."
    assert said[1] == "reciprocal: not attempted yet."


def test_in_a_hunt_for_a_bug_the_second_check_names_the_cause(capsys):
    exercises.tries.clear()
    change = """
        - ctx.save_for_backward(x)
        - x = x.contiguous()
        + x = x.contiguous() + 0
        + ctx.save_for_backward(x)
    """
    for _ in range(2):
        check("swish", changed("swish", change))
    first, second = said(capsys.readouterr().out).split("✗ swish: ")[1:]
    assert "yours" in first and "from the second time on, check names the cause" in first
    assert "copy" not in first and "saves is a copy of an input" in second


def test_the_third_try_is_shown_its_graph_beside_that_of_the_solution(capsys):
    exercises.tries.clear()
    wrong = changed("gate", "- grad_a = grad_out * s\n+ grad_a = grad_out * s.detach()")
    shown = []
    for _ in range(4):
        check("gate", wrong)
        shown.append(capsys.readouterr().out.count("Graph of a, b, grad_a, grad_b and out"))
    assert shown == [0, 0, 2, 0]


def test_two_graphs_with_the_same_paths_are_not_shown(capsys):
    exercises.tries.clear()
    for _ in range(3):
        check("gate", changed("gate", "- grad_a = grad_out * s\n+ grad_a = 2 * grad_out * s"))
    assert "Graph of" not in capsys.readouterr().out


def stubs(notebook):
    """Sources of the cells that check an exercise, and of those they build on."""
    cells = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    return [source for source in cells if source.count("\ncheck(") == 1]


@pytest.mark.parametrize("change", ["", "  # a remark", "\n", " + 0"])
def test_only_a_change_of_the_code_makes_a_mend_of_what_is_given(change):
    source = inspect.getsource(TASKS["artanh"].given).rstrip() + change + "\n"
    names = run_as_cell(source, f"<cell with {change!r}>")
    neutral = reply("artanh", names["Given"].apply).status == "neutral"
    assert neutral == (change != " + 0")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_cells_of_the_notebook_are_neutral(path, capsys):
    cells = stubs(nbformat.read(path, as_version=4))
    if not cells:
        pytest.skip("no exercises in this notebook yet")
    names = dict(GIVEN)
    for number, source in enumerate(cells):
        run_as_cell(source, f"<cell {number} of {path.stem}>", names)
        *_, out = capsys.readouterr().out.splitlines(keepends=True)  # a cell may print before
        assert out.endswith(("not attempted yet.\n", "not written yet.\n", "and mend it here.\n"))


# Hints, solutions and names


def test_each_call_gives_one_more_hint(capsys):
    every = TASKS["reciprocal"].hints
    exercises.hints_given.clear()
    for text in [*every[:-1], every[-1] + " That was the last one.", every[0]]:
        hint("reciprocal")
        assert text in " ".join(capsys.readouterr().out.split())


def test_hints_are_sentences_and_at_least_three():
    for task in TASKS.values():
        assert len(task.hints) >= 3 and all(text[-1] in ".?" for text in task.hints)


@pytest.mark.parametrize("name", TASKS)
def test_the_solution_pasted_into_a_cell_is_right_and_to_the_point(name, capsys):
    solution(name)
    names = run_as_cell(capsys.readouterr().out, f"<solution of {name}>")
    check(name, names[EXERCISES[name].SOLUTION[-1].__name__])
    got = capsys.readouterr().out
    assert got.startswith(f"✓ {name}: right.") and got.endswith("On to the next cell.\n")
    assert "But" not in got


@pytest.mark.parametrize("call", [lambda n: check(n, None), hint, solution])
def test_an_unknown_name_lists_the_names(call, capsys):
    call("reciprokal")
    out = capsys.readouterr().out
    assert "'reciprokal'" in out and all(name in out for name in TASKS)
    assert max(map(len, out.splitlines())) <= 100


def test_an_exercise_without_its_solution_says_so(capsys, monkeypatch):
    monkeypatch.delattr(EXERCISES["sigmoid"], "SOLUTION")
    solution("sigmoid")
    assert capsys.readouterr().out == "This edition of the course comes without solutions.\n"
