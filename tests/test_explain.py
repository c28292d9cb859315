"""explain: why a second derivative is wrong, by experiment."""

import numpy as np
import pytest
import torch
from test_check import NoGradOut, Twice, cubic, measured
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from double_backward.explain import Case, explain
from lessons_src.what_not_to_do import SinhBad


def function(forward, backward):
    body = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type("F", (Function,), body).apply


def number(ctx, x):
    ctx.save_for_backward(x)
    ctx.r = x.norm().item()
    return x / ctx.r


def array(ctx, x):
    ctx.cosh = np.cosh(x.detach().numpy())
    return torch.sinh(x)


def a_copy(ctx, x):
    ctx.save_for_backward(x.clone())
    return x**3


def result_detached(ctx, x):
    out = torch.exp(x)
    ctx.save_for_backward(out.detach())
    return out


def two(ctx, x):
    e, n = torch.exp(x), torch.exp(-x)
    ctx.save_for_backward(e, n)
    return (e - n) / 2, e, n


def ignored(ctx, g, *_):
    e, n = ctx.saved_tensors
    return g * (e + n) / 2


def subtracted(ctx, g, g_e, g_n):
    e, n = ctx.saved_tensors
    return g * (e + n) / 2 - g_e * e - g_n * n


def harmless_and_not(g, x):
    shift = x.max().detach()
    other = x.detach()
    return g * 3 * (x - shift + shift) * other


def both_needed(g, x):
    one = x.detach()
    other = x.detach()
    return g * 3 * one * other


def in_numpy(g, x):
    return g * 3 * torch.from_numpy(x.detach().numpy() ** 2)


WRONG = {  # the cause, and words of it
    "on ctx": (SinhBad.apply, "kept", "ctx.expx and ctx.expnegx"),
    "a number": (
        function(number, lambda ctx, g: g / ctx.r - (g * ctx.saved_tensors[0]).sum() * (
            ctx.saved_tensors[0] / ctx.r**3)), "kept", "ctx.r (a number)"),
    "an array": (
        function(array, lambda ctx, g: g * torch.from_numpy(ctx.cosh)),
        "kept", "ctx.cosh (an array)"),
    "a copy": (
        function(a_copy, lambda ctx, g: g * 3 * ctx.saved_tensors[0] ** 2),
        "copy", "The saved tensor is a copy of x"),
    "the result, detached": (
        function(result_detached, lambda ctx, g: g * ctx.saved_tensors[0]),
        "copy", "another tensor on the memory of the result"),
    "extra gradients ignored": (
        lambda x: function(two, ignored)(x)[0], "extra_outputs", "uses the first extra output"),
    "extra gradients subtracted": (
        lambda x: function(two, subtracted)(x)[0], "extra_outputs", "has the wrong sign"),
    "grad_out forgotten": (cubic(NoGradOut.apply), "second_function", "returns None for g"),
    "a path twice": (cubic(Twice.apply), "counted_twice", "one path counts twice"),
    "a detach": (
        cubic(lambda g, x: g * 3 * x.detach() ** 2),
        "undone", "cubic(lambda g, x: g * 3 * x.detach() ** 2)"),
    "one detach of two": (cubic(harmless_and_not), "undone", "`other = x.detach()`"),
    "NumPy": (cubic(in_numpy), "left_torch", "NumPy in in_numpy, line"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_the_cause_is_found(name):
    fn, code, words = WRONG[name]
    cause = explain(Case(measured(fn), ("x",)))
    assert cause and cause.code == code and words in str(cause), cause


def test_what_equals_the_result_at_this_point_alone_is_no_copy_of_it():
    def forward(ctx, x):
        s = torch.sigmoid(x)
        ctx.save_for_backward(x, s)
        return x * s

    def backward(ctx, g):
        x, s = ctx.saved_tensors
        return g * (s + x * s * (1 - s))

    one = torch.ones(2, dtype=torch.float64)
    cause = explain(Case(measured(function(forward, backward), one), ("x",)))
    assert cause.code == "kept", cause


def test_as_few_steps_are_named_as_will_do():
    harmless = str(explain(Case(measured(cubic(harmless_and_not)), ("x",))))
    assert "shift" not in harmless
    needed = explain(Case(measured(cubic(both_needed)), ("x",)))
    assert len(needed.steps) == 2


def test_of_a_right_function_nothing_is_said():
    assert (
        explain(Case(measured(cubic(lambda g, x: g * 3 * x**2 + x.detach() * 0)), ("x",))) is None
    )


def test_what_is_declared_once_differentiable_says_so():
    fn = cubic(lambda g, x: None)
    fn.__self__.backward = staticmethod(
        once_differentiable(lambda ctx, g: g * 3 * ctx.saved_tensors[0] ** 2)
    )
    assert explain(Case(measured(fn), ("x",))).code == "declared_once"


def test_an_experiment_leaves_the_memory_behind_what_is_kept_as_it_was():
    scratch = torch.full((6,), 2.0, dtype=torch.float64)

    def forward(ctx, x):
        scratch[:3].copy_(3 * x.detach() ** 2)
        ctx.slope = scratch[:3]
        return x**3

    expected = measured(function(forward, lambda ctx, g: g * ctx.slope))
    cause = explain(Case(expected, ("x",)))
    assert cause.code == "kept" and cause.names == ("ctx.slope",)
    assert torch.equal(scratch[3:], torch.full((3,), 2.0, dtype=torch.float64))
