"""A Function is tried once for each kind of call, then trusted, and tried again now and then."""

import gc
import io
import weakref
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from made_functions import function, save_x
from torch.autograd import grad

from double_backward import (
    SecondDerivativeError,
    detect_intermediates,
    recompute_intermediates,
)
from double_backward.remedies import known

CALLS = io.StringIO()  # a file: what is written there by a trial, too, stays


def counted(right=True):
    """A cube that counts the calls of its forward, wrong beyond 5 where `right` is "near"."""

    def forward(ctx, x, n=3):
        CALLS.write("x")
        ctx.save_for_backward(x)
        ctx.kept = x if right is True or (right == "near" and x.max() < 5) else x * 1
        ctx.n = n
        return x**n

    return function(forward, lambda ctx, g: (g * ctx.n * ctx.kept ** (ctx.n - 1), None))


def step(f, point, *args):
    """How often forward is called in a step."""
    before = CALLS.tell()
    point = point.detach().requires_grad_()
    (first,) = grad((f.apply(point, *args) ** 2).sum(), point, create_graph=True)
    try:
        grad(first.sum(), point)
    except SecondDerivativeError:
        return "raises"
    return CALLS.tell() - before


def point(*shape, dtype=torch.float64):
    return torch.linspace(0.5, 1.0, 6, dtype=dtype).reshape(shape)


@pytest.mark.parametrize("remedy", [detect_intermediates, recompute_intermediates])
def test_trials_become_rare(remedy):
    f = counted()
    with remedy():
        tried = [number for number in range(1, 70) if step(f, point(6)) > 1]
    assert tried == [1, 4, 16, 64]
    with remedy():  # in another block as well
        assert step(f, point(6)) == 1


def test_where_it_is_repaired_forward_is_called_twice():
    f = counted(right=False)
    with recompute_intermediates():
        assert [step(f, point(6)) for _ in range(3)][1:] == [2, 2]


def test_each_kind_is_tried():
    f = counted()
    strided = point(6).repeat_interleave(2)[::2]
    kinds = [(point(6),), (point(2, 3),), (point(6).float(),), (strided,), (point(6), 2)]
    with detect_intermediates():
        assert all(step(f, *kind) > 1 for kind in kinds)
        assert all(step(f, *kind) == 1 for kind in kinds)
        later, before = point(6).requires_grad_(), CALLS.tell()
        grad(f.apply(later).sum(), later, create_graph=True)  # grad_out has no graph
        assert CALLS.tell() - before > 1


def test_what_is_right_only_at_some_values_is_found_at_a_later_trial():
    f = counted("near")
    with detect_intermediates():
        said = [step(f, point(6) * 3), *(step(f, point(6) * 20) for _ in range(3))]
    assert said[1:3] == [1, 1] and said[3] == "raises"


def test_where_it_is_wrong_each_error_is_of_a_trial_there():
    f = counted("near")
    with detect_intermediates():
        assert step(f, point(6) * 20) == "raises"
        assert step(f, point(6)) > 1
        assert step(f, point(6) * 20) == 1  # trusted by now


def test_many_sizes_are_not_all_tried():
    f = counted()
    with detect_intermediates():
        tried = [n for n in range(1, 120) if step(f, torch.linspace(0.5, 1, n)) > 1]
    assert len(tried) < 40


def test_a_class_made_anew_at_each_call_is_known():
    with detect_intermediates():
        assert step(counted(), point(6)) > 1
        assert step(counted(), point(6)) == 1
        assert step(counted(False), point(6)) == "raises"


def test_nothing_is_kept_alive():
    Mine = function(
        lambda ctx, x, net: save_x(ctx, x),
        lambda ctx, g: (g * 3 * ctx.saved_tensors[0] ** 2, None),
    )
    net, start = torch.nn.Linear(1, 1), point(6).requires_grad_()
    with detect_intermediates():
        (first,) = grad((Mine.apply(start, net) ** 2).sum(), start, create_graph=True)
    gone = [weakref.ref(thing) for thing in (Mine, net, start, first)]
    del Mine, net, start, first
    gc.collect()
    assert [ref() for ref in gone] == [None] * 4


@pytest.fixture(autouse=True)
def nothing_known():
    known.forget()


@dataclass
class Config:
    keep: bool


def cube_kept(ctx, x, flag):
    ctx.flag, square = flag, x * x
    ctx.save_for_backward(x, square)
    return x * square


def by_flag(ctx, g):
    x, square = ctx.saved_tensors
    keep = ctx.flag.keep if isinstance(ctx.flag, Config) else bool(ctx.flag)
    return 3 * g * (square if keep else x * x), None


@pytest.mark.parametrize("kind", [Config, np.bool_, lambda keep: {"keep"} if keep else set()])
def test_a_flag_in_an_object_tells_calls_apart(kind):
    cube = function(cube_kept, by_flag).apply
    with detect_intermediates():
        for keep in (False, False, True):
            x = point(6).requires_grad_()
            (first,) = grad((cube(x, kind(keep)) ** 2).sum(), x, create_graph=True)
            with pytest.raises(SecondDerivativeError) if keep else nullcontext():
                grad(first.sum(), x)


def test_a_number_that_a_class_is_made_with_tells_classes_apart():
    def leaking(share):
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 3 * g * x * (x + share * (x.detach() - x))

        return function(save_x, backward).apply

    with detect_intermediates():
        for share in (0.0, 0.5):
            x = point(6).requires_grad_()
            (first,) = grad((leaking(share)(x) ** 2).sum(), x, create_graph=True)
            with pytest.raises(SecondDerivativeError) if share else nullcontext():
                grad(first.sum(), x)


def exp_of_twice(ctx, x):
    """exp(2 x) under autocast, exp(x) without, of a kept intermediate."""
    ctx.factor = 2.0 if torch.is_autocast_enabled("cpu") else 1.0
    ctx.result = (ctx.factor * x).exp()
    return ctx.result.clone()


ExpOfTwice = function(exp_of_twice, lambda ctx, g: g * ctx.factor * ctx.result)


@pytest.mark.parametrize("then, factor", [(True, 2), (False, 1)])
@pytest.mark.parametrize("now", [True, False])
def test_a_function_is_called_again_under_the_autocast_of_its_call(then, now, factor):
    x = torch.tensor([0.3, 0.5], dtype=torch.float64, requires_grad=True)
    with recompute_intermediates():
        with torch.autocast("cpu", enabled=then):
            y = ExpOfTwice.apply(x)
        with torch.autocast("cpu", enabled=now):
            (first,) = grad(y.sum(), x, create_graph=True)
            (second,) = grad(first.sum(), x)
    assert torch.allclose(second, factor**2 * (factor * x).exp())


def test_a_mended_function_that_draws_draws_as_its_forward_did_and_nobody_notices():
    def forward(ctx, x):
        ctx.noise = torch.rand_like(x)
        ctx.slope = 3 * x**2 * ctx.noise
        ctx.save_for_backward(x)
        return x**3 * ctx.noise

    noisy = function(forward, lambda ctx, g: g * ctx.slope).apply

    def three():
        torch.manual_seed(3)
        for _ in range(3):
            x = point(6).requires_grad_()
            (first,) = grad(noisy(x).sum(), x, create_graph=True)
            yield first, x

    plain = [first.tolist() for first, _ in three()]
    with recompute_intermediates():
        for (first, x), expected in zip(three(), plain, strict=True):
            assert first.tolist() == expected
            (second,) = grad(first.sum(), x)
            assert torch.allclose(second, 2 * first.detach() / x.detach())


def masked(ctx, x, mask):
    ctx.kept = x.cosh() * mask
    return x.sinh() * mask


@pytest.mark.parametrize("before", [[0], [0, 1], [0, 1, 0, 0, 0], [1, 0, 0, 0, 0, 0, 0]])
def test_what_tells_little_is_not_trusted_for_long(before):
    """The second of two wrong calls raises, and so does each after one that was found wrong."""
    f = function(masked, lambda ctx, g: (g * ctx.kept, None))
    with detect_intermediates():
        for mask in before:
            step(f, point(6), torch.tensor(float(mask), dtype=torch.float64))
        assert step(f, point(6), torch.tensor(1.0, dtype=torch.float64)) == "raises"
