"""What diagnose finds out about each custom Function, and what it says of it."""

import copy
import functools
import itertools
import math
import re
import warnings

import numpy as np
import pytest
import torch
from made_functions import cubic, function, of_inputs, x
from test_diagnosis_facts import ROWS, a, b, cube_with
from torch.autograd import Function, grad
from torch.autograd.function import once_differentiable

from double_backward import diagnose, diagnose_all
from double_backward.diagnosis.preparation.formulas import FORMULAS
from double_backward.diagnosis.preparation.target import Target
from double_backward.names import argument_names, call_names
from lessons_src.saving_intermediates import Sinh
from lessons_src.untracked_backward import Cube
from lessons_src.what_not_to_do import SinhBad


def message(fn, *inputs, code):
    """The message of the finding with this code, which must be there."""
    diagnosis = diagnose(fn, *inputs)
    found = {f.code: f.message for f in diagnosis.findings}
    assert code in found, str(diagnosis)
    return found[code]


def codes_of(fn, *inputs):
    return [f.code for f in diagnose(fn, *inputs).findings]


# What is on ctx and is no tensor.


def normalising(keep, read):
    """x / |x|, whose backward takes the norm from ctx."""

    def normalise(ctx, x):
        ctx.save_for_backward(x)
        keep(ctx, x.norm())
        ctx.size, ctx.label = x.numel(), "norm"  # constants, which are not to be named
        return x / x.norm()

    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        r = read(ctx)
        return g / r - x * (g * x).sum() / r**3

    return function(normalise, backward).apply


class Box:
    def __init__(self, value):
        self.value = value


KEPT = {
    "number": (lambda ctx, r: setattr(ctx, "r", r.item()), lambda ctx: ctx.r),
    "numpy number": (lambda ctx, r: setattr(ctx, "r", np.float64(r.item())), lambda ctx: ctx.r),
    "array": (lambda ctx, r: setattr(ctx, "r", r.numpy()), lambda ctx: float(ctx.r)),
    "list": (lambda ctx, r: setattr(ctx, "r", [2, r.item()]), lambda ctx: ctx.r[1]),
    "dictionary": (lambda ctx, r: setattr(ctx, "r", {"n": r.item()}), lambda ctx: ctx.r["n"]),
    "object": (lambda ctx, r: setattr(ctx, "r", Box(r.item())), lambda ctx: ctx.r.value),
    "text": (lambda ctx, r: setattr(ctx, "r", repr(r.item())), lambda ctx: float(ctx.r)),
    "function": (lambda ctx, r: setattr(ctx, "r", lambda: r.item()), lambda ctx: ctx.r()),
}


@pytest.mark.parametrize("name", KEPT)
def test_what_changes_with_an_input_is_named_whatever_it_is(name):
    fn, point = normalising(*KEPT[name]), x(0.5, -0.4)
    diagnosis = diagnose(fn, point)
    assert diagnosis.verdict == "silently_wrong"
    finding = diagnosis.findings[0]
    assert finding.code == "intermediate_on_ctx" and finding.cause
    assert ": ctx.r. " in finding.message
    assert "what is not a tensor" in finding.message
    assert [s.name for s in diagnosis.saved if s.kind == "intermediate"] == ["r"]


def test_a_second_call_that_spoils_the_first_is_wrong():
    """Right for the last call alone: what backward uses has its graph."""
    last = []

    def forward(ctx, x):
        last[:] = [x]
        return x**3

    diagnosis = diagnose(function(forward, lambda ctx, g: g * 3 * last[0] ** 2).apply, x())
    assert diagnosis.verdict == "first_derivative_wrong"
    assert {row.outcome for row in diagnosis.settings.values()} == {"right"}
    assert diagnosis.findings[0].code == "state_between_calls"


# Extra outputs.


def sinh_with(backward):
    """sinh that returns and saves both exponentials, with a given backward(ctx, g, h, k)."""

    def sinh(ctx, x):
        up, down = torch.exp(x), torch.exp(-x)
        ctx.save_for_backward(up, down)
        return (up - down) / 2, up, down

    f = function(sinh, backward)
    return lambda x: f.apply(x)[0]


def part(ctx, g):
    up, down = ctx.saved_tensors
    return g * (up + down) / 2, up, down


def ignores_down(ctx, g, h, k):
    first, up, _ = part(ctx, g)
    return first + h * up


def halves_up(ctx, g, h, k):
    first, up, down = part(ctx, g)
    return first + h * up / 2 - k * down


def multiplies(ctx, g, h, k):
    first, up, down = part(ctx, g)
    return first + g * h * up - k * down


def squares_up(ctx, g, h, k):
    first, up, down = part(ctx, g)
    return first + h * up**2 - k * down


def complete(ctx, g, h, k):
    first, up, down = part(ctx, g)
    return first + h * up - k * down


def test_the_extra_output_whose_gradient_is_ignored_is_named():
    text = message(sinh_with(ignores_down), x(), code="extra_output_gradient_ignored")
    assert "returns and saves: down." in text and "up" not in text
    _, fn, *_ = ROWS["extra outputs' gradients ignored"]
    said = message(fn, x(), code="extra_output_gradient_ignored")
    assert "returns and saves: expx, expnegx." in said


@pytest.mark.parametrize("backward", [halves_up, multiplies, squares_up])
def test_the_extra_output_for_whose_gradient_something_wrong_is_added_is_named(backward):
    text = message(sinh_with(backward), x(), code="extra_output_gradient_wrong")
    assert "an extra output is wrong: up." in text


def test_complete_extra_gradients_are_right():
    assert diagnose(sinh_with(complete), x()).ok


def test_a_part_that_one_input_lacks():
    def scaled(ctx, a, b):
        both = a * b
        ctx.save_for_backward(both, a, b)
        return both**2, both

    def backward(ctx, g, h):
        both, a, b = ctx.saved_tensors
        return g * 2 * both * b + h * b, g * 2 * both * a

    f = function(scaled, backward)
    text = message(lambda a, b: f.apply(a, b)[0], x(), x(), code="extra_output_gradient_wrong")
    assert "an extra output is wrong: both." in text


# Functions inside backward.


# sin(k x): its second Function gets each input twice, so that none of them is lost.
SinOfProduct = of_inputs(
    lambda x, k: torch.sin(k * x),
    lambda g, x, k: (SlopeOfProduct.apply(x, k, g), SlopeOfProduct.apply(k, x, g)),
    "SinOfProduct",
)


def slope_of_product_backward(h, one, other, g):
    by_one = -h * g * other * other * torch.sin(other * one)
    return by_one, None, h * other * torch.cos(other * one)


SlopeOfProduct = of_inputs(
    lambda one, other, g: g * other * torch.cos(other * one),
    slope_of_product_backward,
    "SlopeOfProduct",
)


def test_a_second_function_is_asked_by_itself_by_its_own_names():
    text = message(SinOfProduct.apply, x(), x(0.7, 0.4), code="second_function_gradient")
    assert "SlopeOfProduct returns None for other." in text


def test_a_wrong_gradient_of_a_second_function_is_told_from_none():
    def second(ctx, h):
        g, x = ctx.saved_tensors
        return h * 2 * x**2, h * g * 6 * x

    text = message(cube_with(second), x(), code="second_function_gradient")
    assert "returns a wrong gradient for grad_out." in text

    def without(ctx, h):
        _, x = ctx.saved_tensors
        return h * 3 * x**2, torch.zeros_like(x)

    text = message(cube_with(without), x(), code="second_function_gradient")
    assert "returns 0 for x." in text


# What backward calls.


def test_a_guard_around_sound_torch_may_go_and_another_may_not():
    def sound(ctx, g):
        return g * 3 * ctx.saved_tensors[0] ** 2

    def unsound(ctx, g):
        return g * 3 * ctx.saved_tensors[0].detach() ** 2

    def save_x(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    guarded = [function(save_x, once_differentiable(b)).apply for b in (sound, unsound)]
    texts = [message(fn, x(), code="once_differentiable") for fn in guarded]
    assert ": delete the decorator" in texts[0]
    assert "Do not delete the decorator" in texts[1]


def test_the_first_of_many_functions_is_found():
    def chain(x):
        x = SinhBad.apply(x)
        for _ in range(30):
            x = Cube.apply(x) * 0.1 + x * 0.5
        return x

    diagnosis = diagnose(chain, x(0.3, 0.2))
    assert "ctx.expx, ctx.expnegx" in diagnosis.findings[0].message
    assert "30 times" in str(diagnosis)


# Where an error comes from.


def test_a_point_at_the_edges_of_a_domain():
    def in_a_box(x):
        assert ((x >= 0) & (x <= 1)).all(), "outside"
        return SinhBad.apply(x) if x.requires_grad else x

    diagnosis = diagnose(in_a_box, x(0.0, 0.5, 1.0))
    assert diagnosis.verdict == "silently_wrong"
    assert "fn has no value just beyond it" in diagnosis.findings[-1].message


# A small part of the whole.


def test_forward_may_ask_whether_its_input_requires_grad():
    def asks(ctx, x):
        ctx.needed = x.requires_grad
        ctx.save_for_backward(x.cos())
        return x.sin()

    def backward(ctx, g):
        return g * ctx.saved_tensors[0] if ctx.needed else None

    found = codes_of(function(asks, backward).apply, x())
    assert "intermediate_saved" in found and "untracked_backward" not in found


def test_an_intermediate_is_blamed_however_small_its_part_is():
    def mixed(ctx, a, b):
        ctx.save_for_backward(a, b)
        ctx.k = a * 1.0
        return a**2 * 1e-8 + b**3

    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return 2e-8 * g * ctx.k, 3 * g * b * b

    fn = function(mixed, backward).apply
    assert "ctx.k" in message(fn, x(0.3, -1.0), x(0.7, 0.5), code="intermediate_on_ctx")


def test_the_imaginary_part_of_a_gradient_counts():
    def turned(ctx, x):
        ctx.save_for_backward(x)
        ctx.s = x.sin()
        return torch.complex(x, -x.cos())

    def backward(ctx, g):
        return g.real + g.imag * ctx.s

    assert "ctx.s" in message(function(turned, backward).apply, x(0.3), code="intermediate_on_ctx")


# The rows can be computed again.


def hidden_in_a_sum(ctx, x):
    """log(sum(exp(x))): what a shift of all does not change shows in uneven weights only."""
    p = torch.softmax(x, 0)
    ctx.save_for_backward(p)
    return torch.logsumexp(x, 0)


Hidden = function(hidden_in_a_sum, lambda ctx, g: g * ctx.saved_tensors[0])


def standardised(ctx, w):
    """The sum of what it returns is 0, but for rounding, and so are all derivatives of that."""
    ctx.std = w.std((1, 2), keepdim=True)
    ctx.save_for_backward(w)
    return (w - w.mean((1, 2), keepdim=True)) / ctx.std


def of_standardised(ctx, g):
    c = ctx.saved_tensors[0] - ctx.saved_tensors[0].mean((1, 2), keepdim=True)
    along = c * (g * c).sum((1, 2), keepdim=True) / (ctx.std**2 * (c[0].numel() - 1))
    return ((g - along) - (g - along).mean((1, 2), keepdim=True)) / ctx.std


Standardised = function(standardised, of_standardised)
weights = torch.rand(2, 2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

TYPED = {
    "sums": (SinhBad.apply, x(0.5, 1.0)),
    "uneven": (Hidden.apply, x(0.5, 1.0, 0.1)),
    "uneven, as a sum is 0": (Standardised.apply, (3 * weights - 1.5).requires_grad_()),
    "several": (lambda a, b: (SinhBad.apply(a * b), b + SinhBad.apply(a)), x(0.5, 1.0), x(0.3)),
    "several, uneven": (lambda a, b: (Hidden.apply(a), Hidden.apply(b)), x(0.5, 1), x(1, 2, 3)),
    "outputs scaled": (lambda x: 1e-9 * SinhBad.apply(x), x(0.5, 1.0)),
    "inputs scaled": (lambda x: SinhBad.apply(x / 1e7), x(5e6, 1e7)),
    "elements scaled": (lambda x: SinhBad.apply(x[:1]) + x[1:].sum() / 1e9, x(0.5, 0.0, 1e9)),
    "two inputs, one scaled": (lambda a, b: SinhBad.apply(a * b / 1e6), x(0.5, 1.0), x(1e6)),
}


@pytest.mark.parametrize("name", TYPED)
def test_the_numbers_can_be_recomputed(name):
    """As they are printed, typed by the reader."""
    fn, *xs = TYPED[name]
    diagnosis = diagnose(fn, *xs)
    assert diagnosis.verdict == "silently_wrong"
    assert ("w * z" in diagnosis.recipe) == ("uneven" in name)
    wrong = 0
    for setting, row in diagnosis.settings.items():
        assert FORMULAS[setting] in " ".join(str(diagnosis).split())
        if row.outcome != "wrong" or not row.where:
            continue
        seconds = typed(diagnosis.recipe, setting, fn, xs)
        assert (seconds - row.got).abs().min() <= 1e-6 * abs(row.got)
        assert not math.isclose(row.expected, row.got, rel_tol=1e-3)
        wrong += 1
    assert wrong >= (1 if "inputs scaled" in name else 2)


def typed(recipe, setting, fn, xs):
    """The second derivative as the text says."""
    said = dict(re.findall(r"\b([wd]) = (.+?)(?=, (?:[wd] = |where ))", recipe))
    inside = re.search(r"fn\((.*)\)", FORMULAS["graph before" if setting.before else "alone"])[1]
    ys = fn(*(eval(inside, {"x": x}) for x in xs))
    ys = ys if isinstance(ys, tuple) else (ys,)
    zs = [eval(FORMULAS["graph after"], {"y": y}) for y in ys] if setting.after else ys
    weighted = "(w * z)" if "w" in said else "z"
    assert f"{weighted}.sum()" in recipe
    gs = grad(
        sum((eval(said.get("w", "1"), {"torch": torch, "z": z}) * z).sum() for z in zs),
        xs,
        create_graph=True,
    )
    g = torch.cat([g.reshape(-1) for g in gs])
    d = eval(said.get("d", "1"), {"torch": torch, "g": g})
    return torch.cat([s.reshape(-1) for s in grad((d * g).sum(), xs)])


def test_the_formula_that_is_printed_has_the_sign_that_was_tried():
    _, fn, *_ = ROWS["sign of grad_out"]
    found = diagnose(fn, a)
    assert "w = -1.5 - torch.arange(z.numel()).cos().view_as(z), d = -1.5 -" in found.recipe
    w = -1.5 - torch.arange(a.numel()).cos()
    d = -1.5 - (2 * torch.arange(a.numel())).sin()
    (g,) = torch.autograd.grad((w * fn(a)).sum(), a, create_graph=True)
    (h,) = torch.autograd.grad((d * g).sum(), a)
    row = found.settings["alone"]
    assert row.got == pytest.approx(h[0].item()) and row.expected == pytest.approx(-h[0].item())


def test_no_formula_is_printed_where_another_direction_was_tried():
    """The first of two inputs is frozen, so that the direction is the second half of another."""

    def half_detached(ctx, g):
        a, b = ctx.saved_tensors
        turned = torch.stack([b[0], -b[0]])
        lost = 0 if ctx.needs_input_grad[0] else turned - turned.detach()
        return g * b**2, 2 * g * a * b + lost

    def product(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * b**2

    found = diagnose(function(product, half_detached).apply, a, b)
    assert found.verdict == "silently_wrong" and found.recipe == ""


def test_no_formula_is_printed_for_inputs_made_from_one_another():
    _, fn, *_ = ROWS["one made from another"]
    assert diagnose(fn, a, b).recipe == ""


def test_a_missing_gradient_that_is_0_just_here():
    def sum_of_squares(ctx, x, k):
        ctx.save_for_backward(x)
        return x**2 + k**2

    fn = function(sum_of_squares, lambda ctx, g: (g * 2 * ctx.saved_tensors[0], None)).apply
    found = diagnose(fn, x(), x(0.0, 0.0))
    assert found.verdict == "surrogate_gradient"
    assert {"returns_none", "another_point"} <= {finding.code for finding in found.findings}


# The reader's names.


def test_names():
    assert argument_names(Sinh) == ["x"]
    assert argument_names(type("Star", (Function,), {"forward": lambda ctx, *xs: xs})) == []
    assert call_names(lambda a, b=1: a, 1) == ["a"]
    assert call_names(lambda a: a, 2) == []
    assert call_names(Cube.apply, 1) == ["x"]
    assert call_names(torch.relu, 1) in ([], ["input"])


def test_rows_use_the_names_of_the_reader():
    def product(first, second):
        return SinhBad.apply(first) * second

    text = str(diagnose(product, x(0.5, 0.7), x(1.0, 2.0)))
    assert "at first = " in text or "at second = " in text


# What backward does for one grad_out and not for another.


def recomputing_where(asks):
    """sin, whose backward computes the cosine again only where `asks(grad_out)`."""

    def sin(ctx, x):
        c = torch.cos(x)
        ctx.save_for_backward(x, c)
        return torch.sin(x)

    def backward(ctx, g):
        x, c = ctx.saved_tensors
        return g * (torch.cos(x) if asks(g) else c)

    return function(sin, backward).apply


@pytest.mark.parametrize("graph", [True, False])
def test_an_intermediate_used_only_with_or_without_a_graph_of_grad_out(graph):
    fn = recomputing_where(lambda g: g.requires_grad == graph)
    causes = [f for f in diagnose(fn, x()).findings if f.cause]
    assert [f.code for f in causes] == ["intermediate_saved"] and "(c)" in causes[0].message


def through_x_and_its_cube():
    """Here autograd.grad is called in a right way, and something else is wrong after a graph."""

    def backward(g, x):
        g.register_hook(lambda h: 2 * h) if g.requires_grad else None
        with torch.enable_grad():
            alias = x.view_as(x)
            (slope,) = grad((alias**3).sum(), alias, create_graph=True)
        return g * slope

    return cubic(backward)


def test_a_path_that_counts_once_is_not_told_as_one_that_counts_twice():
    diagnosis = diagnose(through_x_and_its_cube(), x(0.5, 1.0))
    assert diagnosis.verdict == "silently_wrong"
    assert "path_counted_twice" not in [f.code for f in diagnosis.findings], str(diagnosis)


@once_differentiable
def cosine_of_numpy(ctx, g):
    (x,) = ctx.saved_tensors
    return g * torch.from_numpy(3 * x.numpy() ** 2)


def test_numpy_behind_a_guard_is_named():
    fn = function(lambda ctx, x: (ctx.save_for_backward(x), x**3)[1], cosine_of_numpy).apply
    diagnosis = diagnose(fn, x())
    assert [f.code for f in diagnosis.findings[:2]] == ["once_differentiable", "numpy_in_backward"]


# What rows and places say.


BAD = """
class Bad(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.twice = [2 * each for each in x.detach().numpy()]
        return x**2

    @staticmethod
    def backward(ctx, grad_out):
        return grad_out * torch.stack([torch.as_tensor(each.item()) for each in ctx.twice])


def step():
    z = torch.ones(2, dtype=torch.float64, requires_grad=True)
    (g,) = grad((Bad.apply(z) + z**2).sum(), z, create_graph=True)
    (g**2).sum().backward()
"""


@pytest.mark.parametrize("file", ["/tmp/ipykernel_12/345.py", "<ipython-input-5-4a5b>"])
def test_in_a_notebook_a_function_says_where_since_a_line_could_be_any_cells(file):
    given = {"__name__": "__main__", "Function": Function, "torch": torch, "grad": grad}
    exec(compile(BAD, file, "exec"), given)
    assert diagnose(given["Bad"].apply, x()).findings[0].where == "Bad"
    told = str(diagnose_all(given["step"]))
    assert "Bad, applied in step, line 15:" in told and "<notebook>:" not in told


def test_a_line_of_a_comprehension_is_one_of_its_function():
    def triple(g, x):
        return [(g * 3 * each**2).detach() for each in (x,)][0]

    told = message(cubic(triple), x(), code="untracked_backward")
    assert "triple, line" in told and "listcomp" not in told


def test_an_error_inside_python_is_placed_where_the_reader_calls_it():
    def copying(g, x):
        return copy.deepcopy(g) * 3 * x**2

    line = copying.__code__.co_firstlineno + 1
    assert f"comes from copying, line {line}." in message(cubic(copying), x(), code="raises_in")


def test_the_line_that_writes_into_what_autograd_keeps_is_named():
    def edits(g, x):
        half = g * x
        half *= 3  # before it is kept
        whole = half * x
        half += whole
        whole[0] = 0  # nothing keeps that
        return whole

    told = message(cubic(edits), x(), code="saved_tensor_edited")
    first = edits.__code__.co_firstlineno
    assert f"(edits, line {first + 3}: `whole = half * x`) is changed in place" in told
    assert f"afterwards, in edits, line {first + 4}: `half += whole`. Make a new" in told


def test_lines_that_write_are_told_in_their_order():
    def edits(g, x):
        half = g * x
        whole = half * x * 3
        half.add_(1)
        for _ in range(2):
            half.add_(2)
        half[0] = 3
        half.mul_(4)
        return whole

    told = message(cubic(edits), x(), code="saved_tensor_edited")
    lines = ["half.add_(1)", "half.add_(2)", "half[0] = 3", "half.mul_(4)"]
    assert re.findall("`([^`]*)`", told)[-4:] == lines


def test_the_lines_that_write_are_those_of_the_tensor_whose_line_is_named():
    def edits(g, x):
        early, late = g * x, g * 2
        first = early * x
        early += 1  # before the other is kept, which is used first
        second = late * x
        late += 1
        return first * 3 + 0 * second

    told = message(cubic(edits), x(), code="saved_tensor_edited")
    assert "(edits" in told and told.count("`early +=") + told.count("`late +=") == 1
    by = "late" if "`second = " in told else "early"
    assert f"`{by} += 1`. Make a new" in told


def power_above_0(root):
    """x**1.5 for positive x, else 0, by a root that is handed x and where it is wanted."""

    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(min=0) ** 1.5

    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 1.5 * root(x, x > 0)

    return function(forward, backward).apply


def test_the_operation_whose_derivative_is_not_finite_is_named_with_its_line():
    def hidden(x, ok):
        return torch.where(ok, x.sqrt(), 0.0)

    def safe(x, ok):
        return torch.where(ok, torch.where(ok, x, 1.0).sqrt(), 0.0)

    found = diagnose(power_above_0(hidden), x(-0.5, 1.0))
    assert found.verdict == "not_finite" and only(found) == "nan_in_second"
    told, line = found.findings[0].message, hidden.__code__.co_firstlineno + 1
    assert f"is SqrtBackward0, in hidden, line {line}: `return torch.where(ok, x.sq" in told
    assert diagnose(power_above_0(safe), x(-0.5, 1.0)).ok


def test_what_is_not_finite_by_grad_out_alone_is_found_and_named():
    """After fn that leads back through fn, whose backward hides it there."""

    def pairs(divide):
        def forward(ctx, x):
            y = (x[:, None] - x).abs()
            ctx.save_for_backward(x, y)
            return y

        def backward(ctx, g):
            x, y = ctx.saved_tensors
            slopes = divide(g, y) * (x[:, None] - x)
            return slopes.sum(1) - slopes.sum(0)

        return function(forward, backward).apply

    def hidden(g, y):
        return (g / y).nan_to_num(0, 0, 0)

    def safe(g, y):
        return g / torch.where(y > 0, y, 1.0)

    found = diagnose(pairs(hidden), x(0.5, 1.0, -0.3))
    assert found.verdict == "not_finite" and only(found) == "nan_in_second"
    told, line = found.findings[0].message, hidden.__code__.co_firstlineno + 1
    assert "by grad_out" in told
    assert f"is DivBackward0, in hidden, line {line}: `return (g / y)" in told
    assert diagnose(pairs(safe), x(0.5, 1.0, -0.3)).ok


def test_the_same_of_the_first_derivative_and_of_a_backward():
    def backward(ctx, g):
        return g / 2 / ctx.saved_tensors[0].sqrt()

    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sqrt()

    told = message(function(forward, backward).apply, x(0.0, 1.0), code="nan_in_first")
    assert "not finite is forward. fn is infinitely steep" in told  # a class of that name
    told = message(lambda x: (x * x).sum().sqrt(), x(0.0, 0.0), code="nan_in_first")
    assert "is SqrtBackward0, in <lambda>, line" in told


def test_what_explains_the_verdict_comes_before_what_explains_a_wrong_number():
    def forward(ctx, x):
        e = x.exp()
        ctx.save_for_backward(x, e)
        return e * x.clamp(min=0) ** 1.5

    def backward(ctx, g):
        x, e = ctx.saved_tensors
        up = x.clamp(min=0) ** 1.5
        return g * e * (up + torch.where(x > 0, 1.5 * x.sqrt(), 0.0))

    found = diagnose(function(forward, backward).apply, x(-0.5, 1.0))
    codes = [f.code for f in found.findings if f.cause]
    assert (found.verdict, codes) == ("not_finite", ["nan_in_second", "intermediate_saved"])
    (row,) = diagnose_all(lambda: function(forward, backward).apply(x(-0.5, 1.0)).sum()).rows
    assert row.cause.code == "nan_in_second"


def test_a_write_that_leaves_the_numbers_of_an_input_is_no_edit():
    def forward(ctx, x):
        ctx.save_for_backward(x)
        first, _ = x.detach().chunk(2)
        value = x**3
        with torch.no_grad():
            first.set_()  # frees its part of the memory, one hopes; the counter of x moves
        return value

    def backward(ctx, g):
        return 3 * g * ctx.saved_tensors[0] ** 2

    point = x(0.5, 1.0)
    assert diagnose(function(forward, backward).apply, point).ok
    assert "in_place_without_mark_dirty" not in codes_of(function(forward, backward).apply, point)


def writing_into(made):
    """x**3, whose backward puts its result into what `made` makes."""

    def filling(g, x):
        out = made(g, x)
        out[:] = 3 * g * x**2
        return out

    return filling


def test_a_backward_that_torch_refuses_to_record_is_not_one_that_autograd_cannot_follow():
    def forward(ctx, x):
        ctx.save_for_backward(3 * x**2)
        return x**3

    def backward(ctx, g):
        of_x = g * ctx.saved_tensors[0]
        out = of_x.new_zeros(of_x.shape, requires_grad=of_x.requires_grad)
        out[:] = of_x
        return out

    found = codes_of(function(forward, backward).apply, x())
    assert "leaf_edited" in found and "untracked_backward" not in found


def test_the_old_name_of_saved_tensors():
    def forward(ctx, x):
        ctx.save_for_backward(torch.cosh(x))
        return torch.sinh(x)

    def backward(ctx, g):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it is old
            (cosh,) = ctx.saved_variables
        return g * cosh

    assert only(diagnose(function(forward, backward).apply, x())) == "intermediate_saved"


def test_a_function_that_applies_itself_is_not_another_one():
    def forward(ctx, x, shift):
        ctx.save_for_backward(x)
        ctx.shift = shift
        return torch.sin(x + shift)

    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return -g * Wave.apply(x, ctx.shift + math.pi / 2), None

    Wave = function(forward, backward)
    found = codes_of(lambda x: Wave.apply(x, 0.0), x())
    assert "second_function_gradient" not in found and "first_derivative_differs" in found


def test_a_leaf_that_backward_makes_and_writes_into():
    leaf = writing_into(lambda g, x: x.new_zeros(x.shape, requires_grad=g.requires_grad))
    found = diagnose(cubic(leaf), x())
    assert found.verdict == "raises" and found.findings[0].code == "leaf_edited" == only(found)
    line = leaf.__code__.co_firstlineno + 2
    assert f"(a leaf), in filling, line {line}, is" in found.findings[0].message
    assert diagnose(cubic(writing_into(lambda g, x: x.new_zeros(x.shape))), x()).ok


def only(diagnosis):
    (code,) = [f.code for f in diagnosis.findings]
    return code


def test_rows_of_a_wrong_backward_do_not_call_the_second_derivative_right():
    diagnosis = diagnose(cubic(lambda g, x: g * 3.1 * x**2), x())
    assert diagnosis.verdict == "surrogate_gradient"
    assert str(diagnosis).count("as the derivative of what backward returns") == 4


def test_nothing_is_said_to_depend_on_nothing_where_one_input_is_used():
    """The gradient of a depends on b; only the other gradient is missing."""

    def product_sum(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * b * b

    fn = function(product_sum, lambda ctx, g: (g * ctx.saved_tensors[1] ** 2, None)).apply
    text = str(diagnose(fn, x(0.5, 1.0), x(0.8, -0.3)))
    assert "no input matters" not in text, text


def test_grad_is_not_taken_for_autograd_grad():
    def backward(g, x):
        with torch.enable_grad():
            alias = x.detach().requires_grad_()
            torch.autograd.backward((alias**3).sum())
        return g * alias.grad

    seen = message(cubic(backward), x(), code="untracked_backward").partition(". ")[0]
    assert "autograd.grad" not in seen and ".detach()" in seen and ".backward()" in seen


@pytest.mark.parametrize("guarded", [True, False])
def test_a_leaf_that_backward_edits_is_as_the_reader_hands_it_over(guarded):
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        with torch.set_grad_enabled(not guarded and torch.is_grad_enabled()):
            x.mul_(2)
        return g * x

    fn = function(lambda ctx, x: (ctx.save_for_backward(x), x**2)[1], backward).apply
    diagnosis = diagnose(fn, x())
    assert "mutates_saved" in [f.code for f in diagnosis.findings]
    assert (diagnosis.settings["alone"].outcome == "raises") == (not guarded)


def test_rows_are_asked_with_a_leaf_where_the_reader_hands_over_one():
    _, fn, *_ = ROWS["x.detach() where it is no leaf"]
    rows = diagnose(fn, x()).settings
    assert [row.outcome for row in rows.values()] == ["right", "right", "wrong", "wrong"]


# What is kept in another form, elsewhere, or in part.


def sigmoid_with(kept):
    """x * sigmoid(x), whose backward gets the sigmoid as `kept(sigmoid)` gives it."""

    def silu(ctx, x):
        s = torch.sigmoid(x)
        ctx.save_for_backward(x, kept(s))
        return x * s

    def backward(ctx, g):
        x, s = ctx.saved_tensors
        s = s.view(x.dtype) if s.dtype == torch.int64 else s.to(x.dtype)
        return g * (s + x * s * (1 - s))

    return function(silu, backward).apply


@pytest.mark.parametrize("kept", [torch.Tensor.half, lambda s: s.view(torch.int64)])
def test_an_intermediate_in_another_form_is_still_one(kept):
    diagnosis = diagnose(sigmoid_with(kept), x(0.11, -0.7, 1.3, 0.4))
    assert diagnosis.verdict == "silently_wrong"
    assert diagnosis.findings[0].code == "intermediate_saved", str(diagnosis)


VIEWS = {
    "part": lambda x: x[:, :2],
    "other order": lambda x: x.t(),
    "expanded": lambda x: x[:1].expand_as(x),
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_of_an_input_is_named_as_that(name):
    view = VIEWS[name]

    def forward(ctx, x):
        ctx.save_for_backward(view(x))
        ctx.shape = x.shape
        return view(x) ** 3

    def backward(ctx, g):
        (v,) = ctx.saved_tensors
        whole = torch.zeros(ctx.shape, dtype=g.dtype, requires_grad=True)
        with torch.enable_grad():
            part = view(whole)
        return grad(part, whole, g * 3 * v**2, create_graph=torch.is_grad_enabled())[0]

    point = torch.linspace(0.3, 1.4, 9, dtype=torch.float64).view(3, 3).requires_grad_()
    assert "a view of an input" in message(
        function(forward, backward).apply, point, code="input_copy_saved"
    )


def test_an_intermediate_behind_a_small_output_is_found():
    def two(ctx, x):
        c = x.cos()
        ctx.save_for_backward(x, c)
        return 1e6 * x**2, 1e-3 * x.sin()

    def backward(ctx, g, h):
        x, c = ctx.saved_tensors
        return g * 2e6 * x + h * 1e-3 * c

    assert "(c)" in message(function(two, backward).apply, x(), code="intermediate_saved")
    assert "state_outside_ctx" not in codes_of(function(two, backward).apply, x())


class Key:
    pass


def keyed(hang):
    """sin, whose cosine lies where backward finds it by an object on ctx."""
    cache = {}

    def sin(ctx, x):
        ctx.key = Key()
        hang(ctx.key, cache, x.cos())
        return x.sin()

    def backward(ctx, g):
        return g * (ctx.key.cosine if hasattr(ctx.key, "cosine") else cache[id(ctx.key)])

    return function(sin, backward).apply


def test_a_key_is_not_what_it_leads_to():
    def in_cache(key, cache, value):
        cache[id(key)] = value

    fn = keyed(in_cache)
    assert "outside ctx:" in message(fn, x(), code="state_outside_ctx")
    assert "intermediate_on_ctx" not in codes_of(fn, x())
    fn = keyed(lambda key, cache, value: setattr(key, "cosine", value))
    assert "ctx.key" in message(fn, x(), code="intermediate_on_ctx")


def test_state_that_hangs_on_an_object_is_told():
    class Owner:
        pass

    owner, box = Owner(), []

    def sin(ctx, x):
        ctx.owner = owner
        owner.cosine = x.cos()
        return x.sin()

    def boxed(ctx, x):
        box.append(x.cos())
        return x.sin()

    fn = function(sin, lambda ctx, g: g * ctx.owner.cosine).apply
    assert "outside ctx:" in message(fn, x(), code="state_outside_ctx")
    fn = function(boxed, lambda ctx, g: g * box[-1]).apply
    assert "outside ctx:" in message(fn, x(), code="state_outside_ctx")


def reading(leave, read):
    """sin, which leaves its cosine somewhere by `leave`, and gets it by `read` in backward."""

    def sin(ctx, x):
        ctx.save_for_backward(x)
        y = x.sin()
        leave(ctx, x, y, x.cos())
        return y

    return function(sin, lambda ctx, g: g * read(ctx, *ctx.saved_tensors)).apply


class Store:
    """A class that is none of the Function's, with what all calls share."""

    found: dict = {}
    counter = itertools.count()


@functools.lru_cache
def shared(kind):
    return {}


def by_counter(ctx, x, y, cosine):
    ctx.number = next(Store.counter)
    Store.found[ctx.number] = cosine


def on_output(ctx, x, y, cosine):
    ctx.y, y.slope = y, cosine


LEFT = {
    "behind a counter": (by_counter, lambda ctx, x: Store.found[ctx.number]),
    "in another class": (
        lambda ctx, x, y, cosine: Store.found.update(last=cosine),
        lambda ctx, x: Store.found["last"],
    ),
    "on an input": (
        lambda ctx, x, y, cosine: setattr(x, "_cosine", cosine),
        lambda ctx, x: x._cosine,
    ),
    "a softmax on an input": (  # whose sum is 1 everywhere
        lambda ctx, x, y, cosine: setattr(x, "shares", cosine.log_softmax(0).exp()),
        lambda ctx, x: x.shares * (x.cos() / x.cos().softmax(0)),
    ),
    "on an output": (on_output, lambda ctx, x: ctx.y.slope),
    "behind a helper": (
        lambda ctx, x, y, cosine: shared(1).update(cosine=cosine),
        lambda ctx, x: shared(1)["cosine"],
    ),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_is_left_outside_ctx_is_told(name):
    leave, read = LEFT[name]
    found = {f.code: f.message for f in diagnose(reading(leave, read), x()).findings}
    assert "outside ctx:" in found.get("state_outside_ctx", ""), found
    assert not {"intermediate_on_ctx", "untracked_backward", "cause_unknown"} & found.keys()


@pytest.mark.parametrize("name", ["behind a counter", "on an input", "on an output"])
def test_what_is_left_outside_ctx_and_not_used_is_not_blamed(name):
    leave = LEFT[name][0]
    found = codes_of(reading(leave, lambda ctx, x: x.detach().cos()), x())
    assert "untracked_backward" in found and "state_outside_ctx" not in found


def against(target, slope):
    """(x - target)**4 of a constant that backward hands to NumPy, which may do so."""

    def forward(ctx, x):
        ctx.save_for_backward(x, target)
        return (x - target) ** 4

    def backward(ctx, g):
        x, target = ctx.saved_tensors
        return g * 4 * slope(x, torch.from_numpy(target.numpy().copy()))

    return function(forward, backward).apply


def test_numpy_of_a_constant_is_not_blamed():
    target = torch.tensor([0.2, 0.1], dtype=torch.float64)
    fn = against(target, lambda x, target: (x.detach() - target) ** 3)
    assert codes_of(fn, x()) == ["untracked_backward"]
    assert ".detach()" in message(fn, x(), code="untracked_backward")
    assert not codes_of(against(target, lambda x, target: (x - target) ** 3), x())


def keeping(keep, read):
    def forward(ctx, x):
        ctx.save_for_backward(x)
        keep(ctx, x)
        return x**3

    return function(forward, lambda ctx, g: g * read(ctx, *ctx.saved_tensors)).apply


def test_each_of_several_kinds_has_its_own_cure():
    def keep(ctx, x):
        ctx.x, ctx.slope = x.clone(), 3 * x.detach().numpy()

    fn = keeping(keep, lambda ctx, x: ctx.x * torch.from_numpy(ctx.slope))
    told = message(fn, x(), code="intermediate_on_ctx")
    assert "ctx.x: It repeats an input" in told and "ctx.slope: No graph leads" in told
    fn = keeping(keep, lambda ctx, x: x * torch.from_numpy(ctx.slope))
    assert "ctx.slope. No graph leads" in message(fn, x(), code="intermediate_on_ctx")


def test_a_step_beside_the_point_is_no_sum_of_rows_and_columns():
    m = torch.zeros(3, 4, dtype=torch.float64, requires_grad=True)
    step = Target.of(torch.sin, (m,)).uneven_step(1e-3).view(3, 4)
    squares = step[1:, 1:] - step[1:, :-1] - step[:-1, 1:] + step[:-1, :-1]
    assert (squares.abs() > 1e-6).all()


def test_what_a_layout_changes_is_told_by_what_is_kept():
    def backward(g, x):
        slope = 3 * x**2 if x.is_contiguous() else 3 * x.detach() ** 2
        return g * slope

    point = torch.linspace(0.3, 1.4, 6, dtype=torch.float64).view(2, 3).requires_grad_()
    told = message(cubic(backward), point, code="noncontiguous_input")
    assert "is_contiguous" in told and "save x itself" in told
