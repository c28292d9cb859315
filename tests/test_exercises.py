"""Every answer gets the reply that it deserves: right, wrong with its own reason, or neutral."""

import dataclasses
import functools
import inspect
import itertools
import linecache
from collections import Counter
from functools import cache
from pathlib import Path

import nbformat
import numpy as np
import pytest
import torch
from right_answers import RIGHT
from scipy.special import dawsn
from torch.autograd import Function, grad

import lessons_src.exercises as exercises
from lessons_src.exercises import check, hint, solution
from lessons_src.exercises.dawson import dawson
from lessons_src.exercises.review import review
from lessons_src.untracked_backward import in_numpy

NOTEBOOKS = sorted((Path(__file__).resolve().parent.parent / "notebooks").glob("[0-9]_*.ipynb"))
EXERCISES = exercises.exercises()
TASKS = {name: exercise.TASK for name, exercise in EXERCISES.items()}
CATALOGUE = {(name, w.name): w for name, exercise in EXERCISES.items() for w in exercise.wrong}


def reply(name, answer):
    return review(TASKS[name], answer)


@cache
def reply_to(name, wrong):
    """Reply to a wrong answer of the catalogue, worked out once."""
    return reply(name, CATALOGUE[name, wrong].answer)


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


@pytest.mark.slow  # `test_the_solution_pasted_into_a_cell_is_right` is quick
@pytest.mark.parametrize("name", TASKS)
def test_the_solution_is_right(name):
    answer = reply(name, EXERCISES[name].SOLUTION[-1])
    assert answer.status == "right", answer


class SigmoidRecomputed(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return grad_out * torch.exp(-x) / (1 + torch.exp(-x)) ** 2


class TanhRecomputed(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.sinh(x) / torch.cosh(x)

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return grad_out * 4 / (torch.exp(x) + torch.exp(-x)) ** 2


class SigmoidWithSetupContext(Function):
    @staticmethod
    def forward(x):
        return torch.sigmoid(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, grad_out):
        (out,) = ctx.saved_tensors
        return grad_out * out * (1 - out)


class PowerInNumPy(Function):
    @staticmethod
    def forward(ctx, x, n):
        ctx.save_for_backward(x)
        ctx.n = n
        return torch.as_tensor(np.power(x.detach().numpy(), n))

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return PowerBackwardInNumPy.apply(grad_out, x, ctx.n), None


class PowerBackwardInNumPy(Function):
    @staticmethod
    def forward(ctx, grad_out, x, n):
        ctx.save_for_backward(grad_out, x)
        ctx.n = n
        return grad_out * n * torch.as_tensor(np.power(x.detach().numpy(), n - 1))

    @staticmethod
    def backward(ctx, h):
        grad_out, x = ctx.saved_tensors
        first, second = (np.power(x.detach().numpy(), ctx.n - k) for k in (1, 2))
        first, second = torch.as_tensor(first), torch.as_tensor(second)
        return h * ctx.n * first, h * grad_out * ctx.n * (ctx.n - 1) * second, None


class SoftplusWithExtraOutput(Function):
    @staticmethod
    def forward(ctx, x):
        expx = torch.exp(x)
        ctx.save_for_backward(expx)
        return torch.log(1 + expx), expx

    @staticmethod
    def backward(ctx, grad_out, grad_expx):
        (expx,) = ctx.saved_tensors
        return grad_out * expx / (1 + expx) + grad_expx * expx


class ReciprocalOfOutput(Function):
    @staticmethod
    def forward(ctx, x):
        out = 1 / x
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx, grad_out):
        (out,) = ctx.saved_tensors
        return -grad_out * out * out


class StandardiseWithExtraOutput(Function):
    @staticmethod
    def forward(ctx, x):
        sqrt_var = torch.sqrt(x.var(correction=0) + 1e-5)
        out = (x - x.mean()) / sqrt_var
        ctx.save_for_backward(out, sqrt_var)
        return out, sqrt_var

    @staticmethod
    def backward(ctx, grad_out, grad_sqrt_var):
        out, sqrt_var = ctx.saved_tensors
        along_out = out * (grad_out * out).mean()
        grad_x = (grad_out - grad_out.mean() - along_out) / sqrt_var
        return grad_x + grad_sqrt_var * out / out.numel()


class DawsonByItsOutput(Function):
    @staticmethod
    def forward(ctx, x):
        out = torch.as_tensor(dawsn(x.detach().numpy()))
        ctx.save_for_backward(x, out)
        return out

    @staticmethod
    def backward(ctx, grad_out):
        x, out = ctx.saved_tensors
        return grad_out * (1 - 2 * x * out)


OTHERWISE_RIGHT = [(name, answer) for name, _, answer in RIGHT] + [
    ("sigmoid", SigmoidRecomputed.apply),
    ("tanh_exp", TanhRecomputed.apply),
    ("sigmoid", SigmoidWithSetupContext.apply),
    ("power", PowerInNumPy.apply),
    ("softplus", lambda x: SoftplusWithExtraOutput.apply(x)[0]),
    ("reciprocal", ReciprocalOfOutput),
    ("standardise", lambda x: StandardiseWithExtraOutput.apply(x)[0]),
    ("artanh", lambda x: ArtanhInside.apply(x.clamp(-1 + 1e-6, 1 - 1e-6))),
    ("dawson_twice", DawsonByItsOutput.apply),
]


class ArtanhInside(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (torch.log(1 + x) - torch.log(1 - x)) / 2

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return grad_out / (1 - x**2)


FIRST_OF = dict(reversed(OTHERWISE_RIGHT))


@pytest.mark.parametrize(
    ("name", "answer"),
    quick_and_slow(OTHERWISE_RIGHT, lambda name, answer: answer is FIRST_OF[name]),
    ids=lambda v: v if v in TASKS else "",
)
def test_a_right_answer_written_differently_is_right(name, answer):
    assert reply(name, answer).status == "right", reply(name, answer)


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


STYLE_OF = dict(zip(TASKS, itertools.cycle(HANDED_OVER), strict=False))


@pytest.mark.parametrize(
    ("name", "style"),
    quick_and_slow(
        itertools.product(TASKS, HANDED_OVER), lambda name, style: STYLE_OF[name] == style
    ),
)
def test_a_right_answer_may_be_anything_that_can_be_called(name, style):
    last = EXERCISES[name].SOLUTION[-1]
    answer = HANDED_OVER[style](getattr(last, "apply", last))
    assert reply(name, answer).status == "right", reply(name, answer)


# Wrong answers


@pytest.mark.parametrize("name", TASKS)
def test_each_catalogued_wrong_answer_is_told_in_its_own_words(name):
    said = {}
    for answer in EXERCISES[name].wrong:
        got = reply_to(name, answer.name)
        assert got.status == "wrong", f"{answer.name}: {got}"
        text = str(got)
        assert text not in said, f"{answer.name} is told like {said[text]}: {text}"
        said[text] = answer.name
    assert len(said) >= 4, "an exercise has at least four wrong answers"


SAID = {
    ("product", "gradients swapped"): "belongs in the place of the other",
    ("product", "the whole product as a gradient"): "For b: everywhere, yours has one factor too",
    ("product", "grad_out changed in place"): "backward changes grad_out",
    ("product", "one gradient only"): "one for each argument of forward after ctx (a, b)",
    ("power", "factor n forgotten"): "lacks one factor: n",
    ("power", "n in save_for_backward"): "save_for_backward takes tensors only",
    ("reciprocal", "grad_out forgotten"): "Multiply by grad_out",
    ("reciprocal", "a copy saved"): "What forward saves is a copy of an input",
    ("reciprocal", "detached in backward"): "(it uses .detach() in backward, line",
    ("tanh_exp", "second exponential added"): "second extra output of forward is 1",
    ("tanh_exp", "extra gradients ignored"): "uses the first extra output of forward, and not the",
    ("tanh_exp", "names of the extra gradients swapped"): "What backward returns for x is wrong",
    ("dawson", "grad_out changed through NumPy"): "backward changes grad_out",
    ("normalise", "extra gradient subtracted"): "wrong sign",
    ("swish", "contiguous inside save_for_backward"): "(x transposed)",
    ("artanh", "clamp removed"): "at x[0] = 1.0: yours inf",
    ("tanh_exp", "4 forgotten"): "Everywhere, yours is 0.25 times the true one",
    ("gate", "extra gradient added to grad_a"): "returns for a is wrong when the gradient of the",
    ("logsumexp", "total as an array on ctx"): "constants to the second backward: ctx.total.",
    ("learned_power", "alpha as a number"): "constants to the second backward: ctx.alpha.",
    ("standardise", "declared once_differentiable"): "is declared @once_differentiable",
    ("dawson_twice", "None for grad_out"): "returns None for grad_out",
    ("dawson_twice", "products swapped"): "in the wrong order: return those of grad_out, x",
    ("dawson_twice", "grad_grad_x forgotten for grad_out"): "F(x²)² at",
    ("dawson_twice", "no second Function"): "where autograd cannot follow (it uses NumPy in",
    ("growth", "None for a"): "returns None for a, and its result depends on that",
    ("growth", "grad_a left out for b"): "for b is wrong (h is the gradient of its first output",
    ("growth", "h_a and h_b swapped"): "takes the gradients of its two outputs in the wrong order",
    ("growth", "gradients swapped"): "in the wrong order: return those of grad_out, a, b",
    ("growth", "one tensor returned"): "tuple(...) around it takes it apart",
    ("growth", "one h only"): "one gradient for each output of forward",
}


@pytest.mark.parametrize("which", SAID, ids=", ".join)
def test_the_sentence_is_the_one_for_this_mistake(which):
    assert SAID[which] in " ".join(str(reply_to(*which)).split())


def test_the_catalogue_names_each_answer_once_and_has_a_sentence_for_the_teacher():
    assert len(CATALOGUE) == sum(len(exercise.wrong) for exercise in EXERCISES.values())
    assert all(answer.say.strip().endswith((".", "?")) for answer in CATALOGUE.values())


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
    "nan": lambda ctx, g: at(ctx, g) * torch.nan,
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
def test_a_slip_in_the_call_of_check_is_told_with_the_call_to_write(slip, capsys):
    args, told = SLIPS[slip]
    check(*args)
    assert told in " ".join(capsys.readouterr().out.split())


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


def test_an_error_inside_numpy_names_the_line_of_the_answer():
    answer = reply("reciprocal", reciprocal_with(lambda ctx, g: np.linalg.inv(g.numpy())))
    assert "LinAlgError" in answer.fact and "np.linalg.inv(g.numpy())" in answer.fact


def backward_left_half(ctx, grad_out):
    (x,) = ctx.saved_tensors
    grad_x = -grad_out / x**2  # noqa: F841
    raise NotImplementedError


def test_a_raise_left_below_new_code_is_named():
    answer = reply("reciprocal", reciprocal_with(backward_left_half))
    assert answer.status == "wrong" and "still raises NotImplementedError in line" in answer.fact


def cut_off_beyond(limit, task):
    """The gradients by autograd, but 0 for what lies beyond the limit."""

    class CutOff(Function):
        @staticmethod
        def forward(ctx, *args):
            ctx.save_for_backward(*(a for a in args if torch.is_tensor(a)))
            ctx.numbers = [a for a in args if not torch.is_tensor(a)]
            return task.truth(*args)

        @staticmethod
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

    return CutOff.apply


BOUNDED = ("artanh", "dawson", "dawson_twice")  # 1 and 5 are as far as these go
FLAT = ("sigmoid", "tanh_exp", "library")  # beyond 50 the derivatives are 0, up to rounding


@pytest.mark.parametrize("name", [n for n in TASKS if n not in BOUNDED + FLAT])
def test_a_gradient_that_is_cut_off_far_away_is_refused(name):
    assert reply(name, cut_off_beyond(torch.inf, TASKS[name])).status == "right"
    answer = reply(name, cut_off_beyond(50, TASKS[name]))
    seen = "the first derivative" in answer.fact and "yours 0" in answer.fact
    assert seen, "give its TASK `wide` numbers beyond 50, or name it in BOUNDED or FLAT"


def cached_slope(ctx, grad_out):
    (x,) = ctx.saved_tensors
    if not hasattr(ctx, "slope"):
        ctx.slope = -1 / x**2
    return grad_out * ctx.slope


def test_a_slope_kept_from_an_earlier_backward_is_refused():
    answer = reply("reciprocal", reciprocal_with(cached_slope))
    assert "is another one when backward ran before" in answer.fact


def test_nan_is_not_taken_for_another_gradient_each_time():
    answer = reply("reciprocal", reciprocal_with(lambda ctx, g: at(ctx, g) * torch.nan))
    assert answer.fact.startswith("the first derivative is wrong") and "yours nan" in answer.fact


class InverseSquare(Function):
    """-g / x²; `with_backward` gives it a backward and puts it into an answer."""

    @staticmethod
    def forward(ctx, g, x):
        ctx.save_for_backward(g, x)
        return -g / x**2

    @classmethod
    def with_backward(cls, returned):
        def backward(ctx, h):
            g, x = ctx.saved_tensors
            return returned(h, g, x)

        inner = type("Inner", (cls,), {"backward": staticmethod(backward)})
        return reciprocal_with(lambda ctx, g: inner.apply(g, ctx.saved_tensors[0]))


INNER = {
    "Inner.backward returns 1 gradient. It should return 2 gradients": lambda h, g, x: -h / x**2,
    "what Inner.backward returns for x is of shape (7,), and x is of shape (3,)": lambda h, g, x: (
        -h / x**2,
        h.new_ones(7),
    ),
}


@pytest.mark.parametrize("fact", INNER)
def test_what_the_backward_of_a_second_function_should_return_is_said(fact):
    answer = reply("reciprocal", InverseSquare.with_backward(INNER[fact]))
    assert answer.fact.startswith(fact)


def no_return(ctx, grad_out):
    (x,) = ctx.saved_tensors
    -grad_out / x**2


def returns_none(ctx, grad_out):
    return print()


def test_a_missing_return_is_told_only_where_there_is_none():
    assert reply("reciprocal", reciprocal_with(no_return)).advice == "It has no return."
    answer = reply("reciprocal", reciprocal_with(returns_none))
    assert "backward returns None for x, but the result depends on it" in answer.fact


def test_a_function_with_other_arguments_is_told_with_the_call_that_failed():
    answer = reply("reciprocal", InverseSquare.apply)
    assert answer.fact.startswith("F(x) raises TypeError: InverseSquare.forward() missing 1")


def test_all_of_saved_tensors_is_named_whatever_complains_of_the_tuple():
    def backward(ctx, grad_out):
        x = ctx.saved_tensors
        return -grad_out * torch.exp(x)

    answer = reply("reciprocal", reciprocal_with(backward))
    assert answer.advice.startswith("x is all of ctx.saved_tensors")


def test_a_second_function_called_without_apply_is_named_beside_a_number_too():
    class Cubed(Function):
        @staticmethod
        def forward(ctx, x, n):
            ctx.save_for_backward(x)
            return x**n

        @staticmethod
        def backward(ctx, grad_out):
            return InverseSquare(grad_out, *ctx.saved_tensors), None

    assert reply("power", Cubed).advice == "Call it through apply: InverseSquare.apply"


def test_several_tensors_in_brackets_are_not_told_as_a_number():
    class Bracketed(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward([x])
            return 1 / x

    assert "one by one" in reply("reciprocal", Bracketed.apply).advice


def test_a_new_leaf_in_the_place_of_the_input_is_told():
    class Leaf(Function):
        @staticmethod
        def forward(ctx, x):
            x = x.detach().requires_grad_()
            ctx.save_for_backward(x)
            return 1 / x.detach()

        @staticmethod
        def backward(ctx, grad_out):
            (x,) = ctx.saved_tensors
            return -grad_out / x**2

    assert (
        "What forward saves is a copy of an input, another view of it"
        in reply("reciprocal", Leaf).advice
    )


# Neutral


@pytest.mark.parametrize("name", TASKS)
def test_the_untouched_stub_prints_one_neutral_line(name, capsys):
    task = TASKS[name]
    check(name, (task.given or Stub).apply)
    expected = "as given. It has a bug: find it and mend it here."
    expected = expected if task.given else "not attempted yet."
    assert capsys.readouterr().out == f"{name}: {expected}\n"


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


def stubs(notebook):
    """Sources of the cells that check an exercise, and of those they build on."""
    cells = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    return [source for source in cells if source.count("\ncheck(") == 1]


def run_as_cell(source, filename, names):
    """As a kernel does it: Python can find the source again."""
    linecache.cache[filename] = len(source), None, source.splitlines(keepends=True), filename
    exec(compile(source, filename, "exec"), names)


@pytest.mark.parametrize("change", ["", "  # a remark", "\n", " + 0"])
def test_only_a_change_of_the_code_makes_a_mend_of_what_is_given(change):
    source = inspect.getsource(TASKS["artanh"].given).rstrip() + change + "\n"
    names = {"torch": torch, "Function": Function}
    run_as_cell(source, f"<cell with {change!r}>", names)
    neutral = reply("artanh", names["Given"].apply).status == "neutral"
    assert neutral == (change != " + 0")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_cells_of_the_notebook_are_neutral(path, capsys):
    cells = stubs(nbformat.read(path, as_version=4))
    if not cells:
        pytest.skip("no exercises in this notebook yet")
    names = {"torch": torch, "np": np, "Function": Function, "grad": grad, "check": check}
    names["in_numpy"] = in_numpy
    for number, source in enumerate(cells):
        run_as_cell(source, f"<cell {number} of {path.stem}>", names)
        *_, out = capsys.readouterr().out.splitlines(keepends=True)  # a cell may print before
        assert out.endswith(("not attempted yet.\n", "not written yet.\n", "and mend it here.\n"))


# Hints, solutions and names


def test_each_call_gives_one_more_hint(capsys):
    every = TASKS["reciprocal"].hints
    exercises._hints_given.clear()
    for text in [*every[:-1], every[-1] + " That was the last one.", every[0]]:
        hint("reciprocal")
        assert text in " ".join(capsys.readouterr().out.split())


def test_hints_are_sentences_and_at_least_three():
    for task in TASKS.values():
        assert len(task.hints) >= 3 and all(text[-1] in ".?" for text in task.hints)


@pytest.mark.parametrize("name", TASKS)
def test_the_solution_pasted_into_a_cell_is_right(name, capsys):
    solution(name)
    source = capsys.readouterr().out
    names = {}
    run_as_cell(source, f"<solution of {name}>", names)
    last = EXERCISES[name].SOLUTION[-1].__name__
    assert reply(name, names[last]).status == "right"


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
