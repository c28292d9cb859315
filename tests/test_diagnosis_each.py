"""What is known of each Function by itself, as far as no report shows it: how its backward is
differentiated, what is handed to it, and what becomes of the rows where fn cannot judge."""

import torch
from made_evidence import RAISES, RIGHT, WRONG, custom, cutting, extra, measured, rows, sound
from made_functions import cubic, function, x
from test_diagnosis_functions import complete, sinh_with

from double_backward import diagnose
from double_backward.check import Outcome
from double_backward.diagnosis.causes.each import judge_each, settled
from double_backward.diagnosis.measurements.measure import measure
from double_backward.diagnosis.preparation.formulas import Setting
from double_backward.diagnosis.preparation.functions import Custom
from double_backward.diagnosis.preparation.prepare import prepare
from lessons_src.untracked_backward import Cube
from lessons_src.what_not_to_do import SinhBad


def judged(fn, *inputs):
    """Each custom Function in the graph of fn, the last one called first."""
    prepared = prepare(fn, inputs)
    measured = measure(prepared.target, order=2)
    return judge_each(measured, prepared.functions)


def one(fn, *inputs):
    (found,) = judged(fn, *inputs or (x(),))
    return found


def blame_of(found):
    return [*dict.fromkeys(s.title for s in found.lost), *found.cut]


def test_each_of_several_functions():
    last, first = judged(lambda x: Cube.apply(SinhBad.apply(x)), x())
    assert (last.name, last.by_input, last.inner) == ("Cube", RIGHT, ("CubeBackward",))
    assert (first.name, first.by_input, first.inner) == ("SinhBad", WRONG, ())
    assert blame_of(last) == [] and blame_of(first) == ["ctx.expx", "ctx.expnegx"]


def keeping(keep, backward):
    """x**3 with something on ctx."""

    def forward(ctx, x):
        keep(ctx, x)
        return x**3

    return function(forward, backward).apply


def test_what_a_backward_uses_that_counts_its_calls_is_known():
    def backward(ctx, g):
        ctx.calls.append(1)
        return g * 3 * ctx.square * len(ctx.calls)

    def keep(ctx, x):
        ctx.square, ctx.calls = x**2, []

    assert [s.used for s in one(keeping(keep, backward)).saved] == [True]


def test_what_is_kept_is_exchanged_on_the_side_on_which_forward_has_a_value():
    def keep(ctx, x):
        if (x > 1.0).any():
            raise ValueError("outside")
        ctx.square = x**2

    inside = x(0.5, 0.995)
    found = one(keeping(keep, lambda ctx, g: g * 3 * ctx.square), inside)
    assert blame_of(found) == ["ctx.square"] and found.saved[0].used


def test_what_is_wrong_only_without_a_graph_of_grad_out_is_asked_about_without_one():
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        one = (x / x).detach()
        return g * 3 * one * (x**2 if g.requires_grad else ctx.square.detach())

    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.square = x**2
        return x**3

    found = one(function(forward, backward).apply)
    assert (found.by_input, found.by_grad_out) == (WRONG, RIGHT)
    assert blame_of(found) == ["x"]  # ctx.square with a graph cures nothing


# What backward raises.


def refusing(g, x):
    if g.requires_grad:
        raise ValueError("once only")
    return g * 3 * x**2


def test_a_backward_that_refuses_a_graph_of_grad_out_is_asked_without():
    found = one(cubic(refusing))
    assert (found.by_input, found.by_grad_out) == (RIGHT, Outcome.NOT_ASKED)
    assert found.refused == "ValueError: once only" and not found.sound


def test_a_backward_that_takes_no_leaf_is_not_known():
    found = one(cubic(lambda g, x: g * torch.from_numpy(3 * x.numpy() ** 2)))
    assert (found.by_input, found.by_grad_out) == (RAISES, Outcome.NOT_ASKED)
    assert "Can't call numpy()" in found.refused and blame_of(found) == []


# Extra outputs.


def test_extra_outputs_are_judged_where_nothing_before_them_spoils_the_comparison():
    reversal = function(lambda ctx, x: x.view_as(x), lambda ctx, g: -g).apply
    before = judged(lambda x: sinh_with(complete)(reversal(x)), x())
    assert [found.extras for found in before] == [(), ()]


def test_extra_outputs_of_which_backward_returns_another_derivative():
    def halves(ctx, x):
        up, down = x.exp(), (-x).exp()
        ctx.save_for_backward(up, down)
        return up, down

    def of_half(ctx, g, h):
        up, down = ctx.saved_tensors
        return (g * up - h * down) / 2

    def of_up(ctx, g, h):
        return g * ctx.saved_tensors[0]

    wrong, right = (one(function(halves, backward).apply) for backward in (of_half, of_up))
    assert [e.title for e in wrong.extras] == ["down"] and wrong.by_input is WRONG
    assert right.extras == () and right.by_input is RIGHT


# Where the first derivative is no judge.


def convicted(*customs, second=RIGHT, **about):
    given = measured(WRONG, second if isinstance(second, dict) else rows(second, **about))
    return {s.value: r.outcome for s, r in settled(given, customs).items()}


def test_rows_of_a_surrogate_follow_its_backwards():
    assert set(convicted(sound()).values()) == {RIGHT}
    for bad in (custom(), cutting(), extra(by_input=RIGHT)):
        assert set(convicted(sound(), bad).values()) == {WRONG}
    assert set(convicted(custom(), text="nothing there").values()) == {RAISES}
    cut = sound(by_grad_out=WRONG)
    after = {setting for setting, outcome in convicted(cut).items() if outcome is WRONG}
    assert after == {Setting.AFTER, Setting.BOTH}
    assert set(convicted(sound(once=True), text="nothing there").values()) == {RAISES}
    closed = Custom("F", False, (), refused="ValueError: no. Really")
    asked = settled(measured(WRONG), (closed,))[Setting.ALONE]
    assert asked.outcome is Outcome.NOT_ASKED
    assert asked.text == "backward of F could not be asked by itself: ValueError: no"
    assert settled(measured(), (closed,)) == measured().second  # the whole of fn has judged
    still = sound(once=True, moves=False, by_grad_out=Outcome.NOT_ASKED)
    assert convicted(still, text="nothing there")["alone"] is RIGHT
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
    assert "mutates_saved" in {f.code for f in diagnosis.findings if f.cause}
