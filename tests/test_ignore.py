"""ignore=: the first derivative of a Function is meant as it is, its second one is judged.

Surrogates, right and wrong, in each verb that a reader calls.
"""

from contextlib import nullcontext
from itertools import cycle

import pytest
import torch
from made_functions import codes, function, of_inputs
from torch.autograd import gradgradcheck
from torch.autograd.function import once_differentiable

from double_backward import (
    SecondDerivativeError,
    assert_all_double_backward,
    assert_double_backward,
    detect_intermediates,
    diagnose,
    diagnose_all,
    recompute_intermediates,
)
from lessons_src.derivatives import second
from lessons_src.what_not_to_do import SinhBad


def slope(x):
    """Of a sigmoid that is steep at 0."""
    s = torch.sigmoid(4 * x)
    return 4 * s * (1 - s)


def slope_made_in_forward(ctx, x):
    ctx.slope = slope(x)
    return (x > 0).to(x.dtype)


# A step forwards, backwards the slope of a sigmoid: of a saved input, and made in forward.
Spike = of_inputs(lambda x: (x > 0).to(x.dtype), lambda g, x: g * slope(x), "Spike")
SpikeBad = function(slope_made_in_forward, lambda ctx, g: g * ctx.slope, "SpikeBad")
StraightThrough = of_inputs(lambda x: x.round(), lambda g, x: g)
StraightThroughBad = of_inputs(lambda x: x.round(), lambda g, x: 1 * g.detach())
Reversal = of_inputs(lambda x: x.view_as(x), lambda g, x: -0.5 * g)
ReversalBad = of_inputs(lambda x: x.view_as(x), lambda g, x: -0.5 * g.data)
# A gradient that is no larger than 0.1: backward is not linear, and that is meant.
Clips = of_inputs(lambda x: x.clone(), lambda g, x: g.clamp(-0.1, 0.1))
ClipsBad = of_inputs(lambda x: x.clone(), lambda g, x: g.detach().clamp(-0.1, 0.1))


Guarded = function(StraightThrough.forward, once_differentiable(lambda ctx, g: g), "Guarded")
Cube = of_inputs(lambda x: x**3, lambda g, x: g * 3 * x**2, "Cube")
# Its first derivative is wrong, and nobody meant that.
CubeWrong = of_inputs(lambda x: x**3, lambda g, x: g * 2 * x**2, "CubeWrong")
RIGHT = [Spike, StraightThrough, Reversal, Clips]
WRONG = [SpikeBad, StraightThroughBad, ReversalBad, ClipsBad]
AROUND = {
    "alone": lambda f, x: f.apply(x),
    "behind operations": lambda f, x: f.apply(x * x),
    "before operations": lambda f, x: f.apply(x) ** 3,
    "between": lambda f, x: torch.sin(f.apply(x * x)) * x,
    "behind a right Function": lambda f, x: f.apply(Cube.apply(x)),
    "before a right Function": lambda f, x: Cube.apply(f.apply(x) + x),
    "of a part": lambda f, x: f.apply(x.expand(2, 3).t()[:, :1]),
}


# Each everywhere would be the same again.
RIGHT_PLACES = list(zip(cycle(RIGHT), AROUND))
WRONG_PLACES = list(zip(cycle(WRONG), AROUND))


def x(*values, dtype=torch.float64):
    values = values or (0.3, -0.4, 0.8)
    return torch.tensor(values, dtype=dtype, requires_grad=True)


def full_name(f):
    return f"{f.__module__}.{f.__name__}"


def found(f, around, given=None, **options):
    return diagnose(lambda x: AROUND[around](f, x), given or x(), **options)


def text_of(diagnosis):
    return " ".join(str(diagnosis).split())


@pytest.mark.parametrize("f, around", RIGHT_PLACES)
def test_what_is_meant_and_right_at_second_order_is_supported(f, around):
    assert not found(f, around).ok
    meant = found(f, around, ignore=[f])
    assert meant.verdict == "supported", meant
    words = f"<lambda>: the gradient of {f.__name__} is meant, and double backward is right"
    assert meant.headline == words
    assert "pass ignore" not in text_of(meant) and "WRONG" not in str(meant)


@pytest.mark.parametrize("f, around", WRONG_PLACES)
def test_what_is_meant_and_wrong_at_second_order_is_so(f, around):
    meant = found(f, around, ignore=[f])
    assert meant.verdict == "silently_wrong", meant
    words = f"<lambda>: the gradient of {f.__name__} is meant; silently wrong at second order"
    assert meant.headline == words and not meant.ok
    assert meant.cause is not None and meant.cause.severity == "error"
    assert "pass ignore" not in text_of(meant)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_headline_of_the_function_itself(dtype):
    given = x(dtype=dtype)
    meant = diagnose(SpikeBad.apply, given, ignore=[SpikeBad])
    assert meant.headline == "SpikeBad: its gradient is meant; silently wrong at second order"
    assert meant.cause.code == "intermediate_on_ctx"
    meant = diagnose(Spike.apply, given, ignore=[Spike])
    assert meant.headline == "Spike: its gradient is meant, and double backward is right"


def test_the_row_of_the_first_derivative_says_that_it_is_meant():
    row = str(diagnose(Reversal.apply, x(), ignore=[Reversal])).splitlines()[2]
    assert row == ("first derivative    meant   forward's is 1.0000, backward's -0.5000 at x = 0.3")


# As guided backpropagation has it: what comes back is never negative.
Rectified = of_inputs(lambda x: x.clamp(min=0), lambda g, x: g.clamp(min=0) * (x > 0))


Writes = of_inputs(lambda x: x.round(), lambda g, x: g.mul_(2), "Writes")


def test_a_gradient_that_looks_at_its_sign_is_meant_one_that_writes_into_others_is_not():
    meant = diagnose(Rectified.apply, x(), ignore=[Rectified])
    assert meant.ok and codes(meant) == ["meant"]
    writes = diagnose(Writes.apply, x(), ignore=[Writes])
    assert writes.headline == "Writes: the first derivative is wrong"
    assert writes.read_first.code == "mutates_grad_out"


def test_a_guard_is_no_matter_of_the_first_derivative():
    meant = diagnose(Guarded.apply, x(), ignore=[Guarded])
    assert meant.verdict == "once_differentiable"
    words = "Guarded: its gradient is meant; declared differentiable only once"
    assert meant.headline == words


BESIDE = {
    "before it": lambda f, x: f.apply(SinhBad.apply(x)),
    "after it": lambda f, x: SinhBad.apply(f.apply(x) + x),
    "beside it": lambda f, x: f.apply(x) + SinhBad.apply(x),
}


@pytest.mark.parametrize("f, place", list(zip([Spike, Reversal, ClipsBad], BESIDE, strict=True)))
def test_another_function_that_is_wrong_is_not_excused(f, place):
    both = diagnose(lambda x: BESIDE[place](f, x), x(), ignore=[f])
    assert both.verdict == "silently_wrong"
    assert "ctx.expx" in both.cause.message or f in WRONG


@pytest.mark.parametrize("f", [Spike, Clips])
def test_another_wrong_first_derivative_is_named_and_no_other(f):
    both = diagnose(lambda x: f.apply(x) + CubeWrong.apply(x), x(), ignore=[f])
    assert not both.ok and both.verdict in ("surrogate_gradient", "first_derivative_wrong")
    assert f"pass ignore=[{CubeWrong.__name__}]" in text_of(both)
    assert "is meant" not in both.headline
    assert diagnose(lambda x: f.apply(x) + CubeWrong.apply(x), x(), ignore=[f, CubeWrong]).ok


def test_another_one_that_clips_only_large_gradients_is_not_excused():
    clip = of_inputs(lambda x: x**3, lambda g, x: (g * 3 * x**2).clamp(-10, 10), "Clip")
    diagnosis = diagnose(
        lambda x: StraightThrough.apply(clip.apply(x)), x(), ignore=[StraightThrough]
    )
    assert diagnosis.verdict == "first_derivative_wrong"


def behind_a_product_only(x):
    if x.grad_fn is None or "Mul" not in x.grad_fn.name():
        raise ValueError("behind a product only")
    return x**3


def test_a_function_whose_first_derivative_cannot_be_told_leaves_it_open():
    Refuses = of_inputs(behind_a_product_only, lambda g, x: g * 3 * x**2, "Refuses")
    both = diagnose(lambda x: Refuses.apply(3 * x) + Spike.apply(x), x(), ignore=[Spike])
    assert both.verdict == "not_checked" and "Refuses" in text_of(both)


def test_a_function_that_is_right_or_only_wrong_at_second_order_is_not_excused():
    assert diagnose(Cube.apply, x(), ignore=[Cube]).headline == "Cube: double backward is right"
    assert diagnose(SinhBad.apply, x(), ignore=[SinhBad]).verdict == "silently_wrong"


def test_the_third_derivative_of_what_is_meant_is_not_said_to_be_right():
    third = diagnose(Spike.apply, x(), order=3, ignore=[Spike])
    assert third.verdict == "not_checked"
    assert all(row.outcome == "right" for row in third.settings.values())
    assert all(row.outcome == "not asked" for row in third.third.values())


def step_of(f):
    def step():
        point = x()
        (g,) = torch.autograd.grad((f.apply(point * point) ** 3).sum(), point, create_graph=True)
        (g**2).sum().backward()

    return step


@pytest.mark.parametrize("by", [lambda f: f, lambda f: f.__name__, full_name])
@pytest.mark.parametrize("f", [Spike, SpikeBad])
def test_a_function_is_ignored_by_its_class_and_by_name_in_every_verb(f, by):
    ignore = [by(f)]
    assert diagnose(f.apply, x(), ignore=ignore).meant == (f.__name__,)
    assert diagnose_all(step_of(f), ignore=ignore).rows[0].meant
    for asserted in (
        lambda: assert_all_double_backward(step_of(f), ignore=ignore),
        lambda: assert_double_backward(f.apply, x(), ignore=ignore),
    ):
        with pytest.raises(AssertionError) if f is SpikeBad else nullcontext():
            asserted()
    for remedy in (detect_intermediates, recompute_intermediates):
        with remedy(ignore=ignore):
            step_of(f)()


@pytest.mark.parametrize("remedy", [detect_intermediates, recompute_intermediates])
def test_a_function_that_is_ignored_is_not_called_again(remedy):
    calls = []

    def forward(ctx, x):
        calls.append(1)
        return slope_made_in_forward(ctx, x)

    f = function(forward, SpikeBad.backward, "Logs")
    with remedy(ignore=["Logs"]):
        own = second(lambda v: f.apply(v) ** 2, x())
    assert len(calls) == 1 and torch.equal(own, second(lambda v: f.apply(v) ** 2, x()))


def test_a_class_that_each_call_makes_anew_has_the_same_name():
    def made(x):
        class Local(torch.autograd.Function):
            forward, backward = Spike.forward, Spike.backward

        return Local.apply(x)

    for name in ("Local", f"{__name__}.Local"):
        assert diagnose(made, x(), ignore=[name]).ok
        assert diagnose_all(lambda: made(x()), ignore=[name]).ok


NOT_MET = "ignore names {}: {} applies no custom Function of this name."


@pytest.mark.parametrize("name", ["Speke", "elsewhere.Spike", "Cube"])
def test_what_is_ignored_and_not_applied_is_told(name):
    (told,) = [
        f
        for f in diagnose(Spike.apply, x(), ignore=["Spike", name]).findings
        if f.code == "ignored_not_applied"
    ]
    assert told.message == NOT_MET.format(name, "fn")
    table = diagnose_all(step_of(Spike), ignore=[name, Spike])
    assert table.ok and str(table).endswith(NOT_MET.format(name, "the step"))
    assert table.to_dict()["unmet"] == [name]
    assert "not_applied" not in str(table.rows[0].diagnosis)


@pytest.mark.parametrize("remedy", [detect_intermediates, recompute_intermediates])
def test_a_remedy_tells_a_name_that_there_is_not(remedy):
    """One that is there may be applied another time."""
    names = ["Speke", "Spike", "Cube", full_name(SpikeBad), CubeWrong]
    with pytest.warns(UserWarning) as warned, remedy(ignore=names):
        step_of(Spike)()
    (said,) = warned
    assert str(said.message).startswith("ignore names Speke: no custom Function of this name")
    assert said.filename == __file__


@pytest.mark.parametrize("f", [Spike, ClipsBad])
def test_every_verb_says_the_same(f):
    wrong, step = f in WRONG, step_of(f)
    (row,) = diagnose_all(step, ignore=[f]).rows
    assert row.ok is row.diagnosis.ok is not wrong
    assert row.said == ("silently_wrong" if wrong else "supported, meant")
    for asserted in (
        lambda: assert_all_double_backward(step, ignore=[f]),
        lambda: assert_double_backward(f.apply, x(), ignore=[f]),
    ):
        if wrong:
            with pytest.raises(AssertionError, match="its gradient is meant; silently wrong"):
                asserted()
        else:
            asserted()
    with detect_intermediates():
        if wrong:
            with pytest.raises(SecondDerivativeError, match=f.__name__):
                step()
        else:
            step()


def save_result(ctx, x):
    out = x.round()
    ctx.save_for_backward(out)
    return out


# What lesson 6 says of a gradient that is meant and uses its own result.
ByResult = function(save_result, lambda ctx, g: g * ctx.saved_tensors[0], "ByResult")
ByInput = of_inputs(torch.round, lambda g, x: g * x.round(), "ByInput")


@pytest.mark.parametrize("f, says", [(ByResult, 2), (ByInput, 0)])
def test_a_result_is_differentiated_by_the_gradient_that_is_meant(f, says):
    point = x(2.2)
    assert second(f.apply, point).item() == says
    meant = diagnose(f.apply, point, ignore=[f])
    assert meant.ok == (f is ByInput) == gradgradcheck(f.apply, point, raise_exception=False)
    assert meant.ok or meant.cause.code == "result_of_meant_gradient"
