"""What is known of each backward by itself: by what it changes, and what autograd makes of that."""

import math

import pytest
import torch
from made_evidence import RAISES, RIGHT, WRONG, custom, extra, measured, rows, sound
from test_diagnosis_facts import (
    Once,
    SinhForgotten,
    cube_with,
    cubic,
    function,
    nested,
    without_grad_out,
    without_x,
    wrong_second_formula,
    x,
)
from test_diagnosis_functions import (
    KEPT,
    OnClass,
    complete,
    halves_up,
    ignores_down,
    multiplies,
    normalising,
    part,
    sinh_with,
)
from torch.autograd import Function

from double_backward import diagnose
from double_backward.diagnosis.dependence import follow
from double_backward.diagnosis.functions import Path
from double_backward.diagnosis.measure import measure
from double_backward.diagnosis.paths import Number, path_of
from double_backward.diagnosis.prepare import prepare
from double_backward.diagnosis.settings import Setting
from double_backward.diagnosis.surrogates import convict_surrogates
from double_backward.steps import STEPS
from lessons_src.untracked_backward import Cube
from lessons_src.what_not_to_do import SinhBad

MISSING, UNUSED, UNKNOWN = Path.MISSING, Path.UNUSED, Path.UNKNOWN


def followed(fn, *inputs):
    """Each custom Function in the graph of fn, the last one called first."""
    prepared = prepare(fn, inputs)
    return follow(measure(prepared.target, order=2), prepared.functions)


def one(fn, *inputs):
    (found,) = followed(fn, *inputs or (x(),))
    return found


def paths(found):
    return {s.title: str(s.path) for s in found.saved}


# A number for which the numbers are of size 1, with no error of their own.


@pytest.mark.parametrize(
    "got, true, path",
    [
        (1.0, 1.0, Path.RIGHT),
        (1.0009, 1.0, Path.RIGHT),
        (1.0011, 1.0, Path.WRONG),
        (-1.0, 1.0, Path.WRONG),
        (0.0, 1.0, MISSING),
        (1e-9, 1.0, Path.WRONG),
        (1.0, 0.0, Path.WRONG),
        (0.0, 0.0, UNUSED),
        (5e-7, -5e-7, UNUSED),
        (0.0, 2e-6, MISSING),
        (math.nan, 1.0, UNKNOWN),
        (1.0, math.nan, UNKNOWN),
    ],
)
def test_a_derivative_beside_the_truth(got, true, path):
    assert path_of(Number(got, 0.0), Number(true, 0.0), size=1.0) is path


def test_errors_excuse_and_too_large_ones_tell_nothing():
    assert path_of(Number(1.04, 0.002), Number(1.0, 0.003), size=1.0) is Path.RIGHT
    assert path_of(Number(1.06, 0.002), Number(1.0, 0.003), size=1.0) is Path.WRONG
    assert path_of(Number(0.0, 0.006), Number(1.0, 0.005), size=1.0) is UNKNOWN
    assert path_of(Number(0.0, 0.006), Number(1.0, 0.005), size=2.0) is MISSING
    assert path_of(Number(0.0, 0.0), Number(1e-5, 0.0), size=100.0) is UNUSED


# By inputs and by grad_out.


def keeping(keep, backward):
    """x**3 with something on ctx."""

    def forward(ctx, x):
        keep(ctx, x)
        return x**3

    return function(forward, backward).apply


def keep_square(ctx, x):
    ctx.square = x**2


def keep_list(ctx, x):
    ctx.things = [x, x**2]


def keep_among_none(ctx, x):
    ctx.save_for_backward(None, torch.ones_like(x), None, x)


def with_random_numbers(g, x):
    noise = torch.rand_like(x)
    return g * 3 * x**2 + 0 * noise if g.requires_grad else g * (3 * x**2 + noise) - g * noise


def writing(g, x):
    return g.mul_(3).mul_(x).mul_(x)


class VectorJacobian(Function):
    """Its backward is called vjp."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def vjp(ctx, g):
        return g * 3 * ctx.saved_tensors[0].detach() ** 2


BY = {  # fn, by inputs, by grad_out, what is kept and the path through it
    "right": (cubic(lambda g, x: g * 3 * x**2), "right", "right", {"x": "right"}),
    "input detached": (
        cubic(lambda g, x: g * 3 * x.detach() ** 2),
        "missing",
        "right",
        {"x": "missing"},
    ),
    "a factor detached": (
        cubic(lambda g, x: g * 3 * x * x.detach()),
        "wrong",
        "right",
        {"x": "wrong"},
    ),
    "grad_out detached": (
        cubic(lambda g, x: g.detach() * 3 * x**2),
        "right",
        "missing",
        {"x": "right"},
    ),
    "half of grad_out detached": (
        cubic(lambda g, x: (g + g.detach()) * 1.5 * x**2),
        "right",
        "wrong",
        {"x": "right"},
    ),
    "intermediate": (
        keeping(keep_square, lambda ctx, g: g * 3 * ctx.square),
        "missing",
        "right",
        {"ctx.square": "missing"},
    ),
    "list": (
        keeping(keep_list, lambda ctx, g: g * (ctx.things[0] ** 2 + 2 * ctx.things[1])),
        "wrong",
        "right",
        {"ctx.things": "wrong"},
    ),
    "beside None": (
        keeping(keep_among_none, lambda ctx, g: g * 3 * ctx.saved_tensors[3].detach() ** 2),
        "missing",
        "right",
        {"torch.ones_like(x)": "unused", "x": "missing"},
    ),
    "does not depend on x": (
        cubic(lambda g, x: g * torch.ones_like(x)),
        "unused",
        "right",
        {"x": "unused"},
    ),
    "asks ctx": (
        keeping(
            keep_square, lambda ctx, g: g * 3 * ctx.square if ctx.needs_input_grad[0] else None
        ),
        "missing",
        "right",
        {"ctx.square": "missing"},
    ),
    "guarded": (Once.apply, "right", "right", {"x": "right"}),
    "vjp": (VectorJacobian.apply, "missing", "right", {"x": "missing"}),
    "random numbers": (cubic(with_random_numbers), "right", "right", {"x": "right"}),
    "writes into grad_out": (cubic(writing), "right", "right", {"x": "right"}),
    "second Function": (Cube.apply, "right", "right", {"x": "right"}),
    "without grad_out": (cube_with(without_grad_out), "right", "missing", {"x": "right"}),
    "without x": (cube_with(without_x), "missing", "right", {"x": "missing"}),
    "wrong formula": (cube_with(wrong_second_formula), "wrong", "right", {"x": "wrong"}),
}


@pytest.mark.parametrize("name", BY)
def test_what_a_backward_depends_on(name):
    fn, by_inputs, by_grad_out, kept = BY[name]
    found = one(fn)
    assert (found.by_inputs, found.by_grad_out, paths(found)) == (by_inputs, by_grad_out, kept)
    # Only where a graph leads to it, be it a graph from an intermediate.
    assert found.reaches_grad_out == (name != "grad_out detached")
    assert [s.reached for s in found.saved] == [
        s.path is not UNUSED and not (".detach()" in _called(found) and s.path is MISSING)
        for s in found.saved
    ]
    second = name.startswith(("second", "without", "wrong formula"))
    assert bool(found.inner) == second
    assert (found.hidden, found.extras, found.refused, found.counts_twice) == (None, (), "", False)


def test_each_of_several_functions():
    last, first = followed(lambda x: Cube.apply(SinhBad.apply(x)), x())
    assert (last.name, last.by_inputs, last.inner) == ("Cube", Path.RIGHT, ("CubeBackward",))
    assert (first.name, first.by_inputs, first.inner) == ("SinhBad", MISSING, ())


@pytest.mark.parametrize("name", ["text", "function"])
def test_what_on_ctx_is_neither_tensor_nor_number_is_found(name):
    found = one(normalising(*KEPT[name]), x(0.5, -0.4))
    (kept,) = [s for s in found.saved if s.name == "r"]
    assert (kept.path, kept.slot, kept.holder) == (MISSING, "r", name == "function")
    assert "size" not in paths(found) and "label" not in str(paths(found))


# What backward raises.


def refusing(g, x):
    if g.requires_grad:
        raise ValueError("once only")
    return g * 3 * x**2


def test_a_backward_that_refuses_a_graph_of_grad_out_is_asked_without():
    found = one(cubic(refusing))
    assert (found.by_inputs, found.by_grad_out) == (Path.RIGHT, UNKNOWN)
    assert found.refused == "ValueError: once only" and paths(found) == {"x": "right"}


def test_a_backward_that_takes_no_leaf_is_not_known():
    found = one(cubic(lambda g, x: g * torch.from_numpy(3 * x.numpy() ** 2)))
    assert (found.by_inputs, found.by_grad_out) == (UNKNOWN, UNKNOWN)
    assert "Can't call numpy()" in found.refused and paths(found) == {"x": "unknown"}


# Where it cannot be followed, nothing is claimed.


@pytest.mark.parametrize("first", [SinhBad.apply, Cube.apply], ids=["other", "fewer"])
def test_another_graph_beside_the_point(first):
    def fn(x):
        at_the_point = torch.equal(x, x.round(decimals=1))
        return Cube.apply(first(x)) if at_the_point else first(x) ** 3

    assert [f.by_inputs for f in followed(fn, x())] == [UNKNOWN, UNKNOWN]


# What was seen in backward, in words.


def in_inference_mode(g, x):
    with torch.inference_mode():
        slope = 3 * x**2
    return g * slope.clone()


def enabling(g, x):
    with torch.enable_grad():
        return g * 3 * x**2


def asking_autograd(g, x):
    with torch.enable_grad():
        alias = x.view_as(x)
        return torch.autograd.grad(alias**3, alias, g, create_graph=True)[0]


CALLS = [
    (lambda g, x: g * 3 * x.clone().detach_() ** 2, (".detach()",)),
    (lambda g, x: g * 3 * x * torch.stack([x[0] * 0 + float(x[0]), x[1]]), ("float()",)),
    (lambda g, x: g * 3 * x.new_tensor(x.tolist()) ** 2, (".tolist()",)),
    (lambda g, x: g * 3 * torch.tensor(x.tolist()) ** 2, (".tolist()",)),
    (in_inference_mode, ("torch.inference_mode()",)),
    (asking_autograd, ()),
    (enabling, ()),
]


@pytest.mark.filterwarnings("ignore:Converting")
@pytest.mark.parametrize("backward, seen", CALLS)
def test_what_a_backward_calls(backward, seen):
    assert _called(one(cubic(backward))) == seen


def _called(found):
    return tuple(STEPS[step.kind] for step in found.untracked_calls)


# State that is not on ctx.

seen_by_both = {}


def keep_outside(ctx, x):
    seen_by_both["x"] = x.detach()
    ctx.save_for_backward(x)
    return x**3


def test_state_is_named():
    assert one(OnClass.apply).hidden == ("OnClass.slope",)
    uses_it = function(keep_outside, lambda ctx, g: g * 3 * seen_by_both["x"] ** 2)
    assert one(uses_it.apply).hidden == ("seen_by_both",)
    does_not = function(keep_outside, lambda ctx, g: g * 3 * ctx.saved_tensors[0].detach() ** 2)
    assert one(does_not.apply).hidden is None


# Extra outputs and paths that count twice.


def squares_up(ctx, g, h, k):
    first, up, down = part(ctx, g)
    return first + h * up**2 - k * down


WRONG_EXTRAS = [
    (sinh_with(complete), []),
    (sinh_with(ignores_down), [(2, "down", {"x": 0.0}, False)]),
    (sinh_with(halves_up), [(1, "up", {"x": pytest.approx(0.5)}, False)]),
    (sinh_with(squares_up), [(1, "up", {"x": pytest.approx(math.nan, nan_ok=True)}, False)]),
    (sinh_with(multiplies), [(1, "up", {"x": 0.0}, True)]),
]


@pytest.mark.parametrize("fn, extras", WRONG_EXTRAS)
def test_wrong_parts_for_extra_outputs(fn, extras):
    found = one(fn)
    assert [(e.position, e.variable, e.by, e.times_grad_out) for e in found.extras] == extras


def test_only_the_inputs_by_which_a_part_is_wrong_are_named():
    def product(ctx, a, b):
        both = a * b
        ctx.save_for_backward(both, a, b)
        return both**2, both

    def backward(ctx, g, h):
        both, a, b = ctx.saved_tensors
        return g * 2 * both * b + h * b, g * 2 * both * a

    f = function(product, backward)
    (wrong_part,) = one(lambda a, b: f.apply(a, b)[0], x(), x(0.3, 0.7)).extras
    assert wrong_part.by == {"b": 0.0}


def test_extra_outputs_are_judged_where_nothing_before_them_spoils_the_comparison():
    reversal = function(lambda ctx, x: x.view_as(x), lambda ctx, g: -g).apply
    before = followed(lambda x: sinh_with(complete)(reversal(x)), x())
    assert [found.extras for found in before] == [(), ()]
    assert [e.variable for e in one(SinhForgotten.apply).extras] == ["expx", "expnegx"]


def test_no_extra_output_is_blamed_where_backward_means_another_derivative_for_all():
    def halves(ctx, x):
        up, down = x.exp(), (-x).exp()
        ctx.save_for_backward(up, down)
        return up, down

    def of_half(ctx, g, h):
        up, down = ctx.saved_tensors
        return (g * up - h * down) / 2

    def of_up(ctx, g, h):
        return g * ctx.saved_tensors[0]

    found = [one(function(halves, backward).apply).extras for backward in (of_half, of_up)]
    assert [[e.variable for e in extras if e.whole] for extras in found] == [["down"], []]
    assert [e.variable for e in found[1]] == ["down"]


def test_paths_that_count_twice():
    assert one(nested(False)).counts_twice
    assert not one(nested(True)).counts_twice


# Where the first derivative is no judge.


def convicted(*customs, second=RIGHT, **about):
    given = measured(second=second if isinstance(second, dict) else rows(second, **about))
    return {s.value: r.outcome for s, r in convict_surrogates(given, customs).items()}


def test_rows_of_a_surrogate_follow_its_backwards():
    assert set(convicted(sound()).values()) == {RIGHT}
    for bad in (custom(), custom(by_inputs=Path.WRONG), extra({"x": 0.0}, by_inputs=Path.RIGHT)):
        assert set(convicted(sound(), bad).values()) == {WRONG}
    assert set(convicted(custom(), text="nothing there").values()) == {RAISES}
    cut = sound(by_grad_out=MISSING)
    after = {setting for setting, outcome in convicted(cut).items() if outcome is WRONG}
    assert after == {Setting.AFTER, Setting.BOTH}
    guarded = [sound(once=True), sound(once=True, by_grad_out=Path.UNUSED)]
    assert set(convicted(*guarded, text="nothing there").values()) == {RAISES}
    idle = {"by_inputs": Path.UNUSED, "by_grad_out": Path.UNUSED}
    assert set(convicted(custom(once=True, **idle), text="nothing there").values()) == {RIGHT}
    assert set(convicted(custom(), second=RAISES).values()) == {RAISES}


def test_a_backward_that_differentiates_a_graph_on_ctx_is_not_said_to_raise():
    """With a copy of ctx.y there is no way to ctx.x: that is the doing of who calls it so."""

    def forward(ctx, x):
        with torch.enable_grad():
            ctx.x = x.detach().requires_grad_()
            ctx.y = ctx.x.exp()
        ctx.save_for_backward(torch.ones_like(x))
        return ctx.y.detach()

    def backward(ctx, g):
        (d,) = torch.autograd.grad(ctx.y, ctx.x, g, allow_unused=True, retain_graph=True)
        return ctx.saved_tensors[0].mul_(2).mul_(d)

    diagnosis = diagnose(function(forward, backward).apply, x())
    assert diagnosis.verdict == "first_derivative_wrong"
    outcomes = [str(row.outcome) for row in diagnosis.settings.values()]
    assert outcomes == ["raises", "raises", "wrong", "wrong"], str(diagnosis)
    causes = {f.code: f.cause for f in diagnosis.findings}
    assert not causes["mutates_saved"] and causes["grad_out_path_cut"]


class Coupled(Function):
    """y1 = x1 + sin(x2), y2 = x2 + sin(y1), whose backward computes x anew from the output."""

    @staticmethod
    def forward(ctx, x):
        x1, x2 = x.chunk(2)
        y1 = x1 + x2.sin()
        y = torch.cat([y1, x2 + y1.sin()])
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        with torch.no_grad():
            y1, y2 = ctx.saved_tensors[0].chunk(2)
            g1, g2 = g.chunk(2)
        with torch.enable_grad():
            z = y1.detach().requires_grad_()
            x2 = (y2 - z.sin()).detach().requires_grad_()
            (d,) = torch.autograd.grad(x2 + z.sin(), z, g2)
            (e,) = torch.autograd.grad(x2.sin(), x2, d + g1)
        return torch.cat([d + g1, e + g2])


def test_a_detach_that_cannot_be_undone_does_not_keep_other_steps_from_being_undone():
    told = {f.code: f.message for f in diagnose(Coupled.apply, x(0.3, 0.8)).findings}
    assert "torch.no_grad()" in told["grad_out_path_cut"]
    assert told["grad_out_path_cut"].count("autograd.grad without") == 2
    assert "detach" not in told["grad_out_path_cut"]
    assert "`z = y1.detach()" in told["untracked_backward"]
