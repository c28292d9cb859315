"""A Function is tried once for each kind of call, then trusted, and tried again now and then."""

import gc
import random
import warnings
import weakref
from contextlib import nullcontext
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from functools import partial
from inspect import isfunction, signature
from logging.handlers import BufferingHandler
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from made_functions import function, save_x
from torch.autograd import grad

from double_backward import (
    SecondDerivativeError,
    UncheckedFunctionWarning,
    detect_intermediates,
    diagnosis,
    recompute_intermediates,
)
from double_backward.remedies import known

CALLS = BufferingHandler(10**9)  # what is logged by a trial, too, stays


def counted(right=True):
    """A cube that counts the calls of its forward, wrong beyond 5 where `right` is "near"."""

    def forward(ctx, x, n=3):
        CALLS.emit("x")
        ctx.save_for_backward(x)
        ctx.kept = x if right is True or (right == "near" and x.max() < 5) else x * 1
        ctx.n = n
        return x**n

    return function(forward, lambda ctx, g: (g * ctx.n * ctx.kept ** (ctx.n - 1), None))


def step(f, point, *args):
    """How often forward is called in a step."""
    before = len(CALLS.buffer)
    point = point.detach().requires_grad_()
    (first,) = grad((f.apply(point, *args) ** 2).sum(), point, create_graph=True)
    try:
        grad(first.sum(), point)
    except SecondDerivativeError:
        return "raises"
    return len(CALLS.buffer) - before


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
        later, before = point(6).requires_grad_(), len(CALLS.buffer)
        grad(f.apply(later).sum(), later, create_graph=True)  # grad_out has no graph
        assert len(CALLS.buffer) - before > 1


def faded():
    """A cube that keeps a constant beyond 5, without a branch: it does the same operations."""

    def forward(ctx, x):
        CALLS.emit("x")
        ctx.save_for_backward(torch.where(x < 5, 1.0, 0.0), x * x, x)
        return x**3

    def backward(ctx, g):
        near, square, x = ctx.saved_tensors
        return 3 * g * (near * x * x + (1 - near) * square)

    return function(forward, backward)


def test_what_is_right_only_at_some_values_is_found_at_a_later_trial():
    f = faded()
    with detect_intermediates():
        said = [step(f, point(6) * 3), *(step(f, point(6) * 20) for _ in range(3))]
    assert said[1:3] == [1, 1] and said[3] == "raises"


@pytest.mark.parametrize("remedy", [detect_intermediates, recompute_intermediates])
def test_a_branch_by_values_is_found_at_once(remedy):
    f = counted("near")
    with remedy():
        said = [step(f, point(6) * size) for size in (1, 1, 20, 1, 20)]
    tried = said[2] == "raises" if remedy is detect_intermediates else said[2] > 10
    assert tried and said[1] == said[3] == 1


@pytest.mark.parametrize("remedy", [detect_intermediates, recompute_intermediates])
@pytest.mark.parametrize("where", range(4))
def test_a_branch_by_values_is_found_among_calls_of_one_step(remedy, where):
    """All of them have run before the first is tried."""
    f = counted("near")
    points = [(point(6) * (20 if n == where else 1)).requires_grad_() for n in range(4)]
    with remedy():
        outs = sum((f.apply(x) ** 2).sum() for x in points)
        first = grad(outs, points, create_graph=True)
        raises = pytest.raises(SecondDerivativeError, match="would be wrong")
        with raises if remedy is detect_intermediates else nullcontext():
            for x, second in zip(points, grad(sum(g.sum() for g in first), points), strict=True):
                torch.testing.assert_close(second, 30 * x.detach() ** 4)


class CubeSlope(torch.autograd.Function):
    """Twice as much as a slope of a cube, and wrong for one number, which no operation is given
    before its own backward runs."""

    @staticmethod
    def forward(ctx, x, g, n):
        ctx.save_for_backward(x, g)
        ctx.n = n
        return 3 * g * x**2

    @staticmethod
    def backward(ctx, gg):
        x, g = ctx.saved_tensors
        return gg * g * (5 if ctx.n == 20 else 6) * x, gg * 3 * x**2, None


class CubeWithSlope(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, n):
        ctx.save_for_backward(x)
        ctx.n = n
        return x**3

    @staticmethod
    def backward(ctx, g):
        return CubeSlope.apply(*ctx.saved_tensors, g, ctx.n), None


@pytest.mark.parametrize("remedy", [detect_intermediates, recompute_intermediates])
def test_a_number_that_only_the_backward_of_a_second_function_takes(remedy):
    known.forget()
    with remedy():
        for n in range(24):
            assert outcome(CubeWithSlope, point(6), n) == expected(remedy, n == 20), n


def test_where_it_is_wrong_each_error_is_of_a_trial_there():
    f = faded()
    with detect_intermediates():
        assert step(f, point(6) * 20) == "raises"
        assert step(f, point(6)) > 1
        assert step(f, point(6) * 20) == 1  # trusted by now


def test_of_many_sizes_few_are_tried():
    f = counted()
    with detect_intermediates():
        tried = [n for n in range(1, 120) if step(f, torch.linspace(0.5, 1, n)) > 1]
    assert 8 < len(tried) < 20


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


# What a kind is.


REMEDIES = detect_intermediates, recompute_intermediates
KEEPS = SimpleNamespace(now=False)  # read as a global


def cube_by(keeps, arithmetic=False):
    """A cube that keeps its square where keeps(*args) is true: by a branch, or times a number."""

    def forward(ctx, x, *args):
        ctx.more, ctx.share = len(args), float(keeps(*args))
        ctx.save_for_backward(x, x * x)
        return x**3

    def backward(ctx, g):
        x, square = ctx.saved_tensors
        share = ctx.share
        if arithmetic:
            slope = share * square + (1 - share) * x * x
        else:
            slope = share * square if share else x * x
        return 3 * g * slope / (1 if arithmetic else share or 1), *[None] * ctx.more

    return function(forward, backward)


def second(f, x, *args):
    x = x.detach().requires_grad_()
    (first,) = grad(f.apply(x, *args).sum(), x, create_graph=True)
    return grad(first.sum() + (x * 0).sum(), x)[0], 6 * x.detach()


def outcome(f, x, *args):
    """Whether a step raises, or the number that comes is right or wrong."""
    try:
        got, expected = second(f, x, *args)
    except SecondDerivativeError:
        return "raises"
    return "right" if torch.allclose(got, expected) else "wrong"


def expected(remedy, wrong):
    return "raises" if wrong and remedy is detect_intermediates else "right"


class Slotted:
    __slots__ = ("p",)

    def __init__(self, p):
        self.p = p


class Level(Enum):
    LOW, HIGH = 0, 1


@pytest.mark.parametrize("remedy", REMEDIES)
@pytest.mark.parametrize("right", [True, False])
def test_what_is_not_finite_at_one_call_says_nothing_of_the_next(right, remedy):
    nan, ordinary = point(6) * torch.nan, point(6)
    f = counted(right)
    with remedy(), warnings.catch_warnings(action="ignore", category=UncheckedFunctionWarning):
        raises = [step(f, x) == "raises" for x in (nan, nan, nan, ordinary, ordinary)]
    detects = remedy is detect_intermediates
    assert raises == [not (right or detects)] * 3 + [detects and not right] * 2


@dataclass
class Scaled:
    p: float


def returning(value):
    return lambda: value


PAIRS = {  # what is handed over in a right call, and in a wrong one
    "float": (0.5, 2.5),
    "integer": (2, 3),
    "complex": (0.5j, 2.5j),
    "string": ("good", "bad"),
    "None": (1.0, None),
    "something": (None, 1.0),
    "flag, not 1": (1, True),
    "float, not integer": (1, 1.0),
    "below zero": (0.0, -0.0),
    "nan": (0.5, float("nan")),
    "fraction": (Fraction(1, 2), Fraction(5, 2)),
    "NumPy": (np.float64(0.5), np.float64(2.5)),
    "array": (np.array([0.5, 1]), np.array([2.5, 1])),
    "enum": (Level.LOW, Level.HIGH),
    "tuple": ((1, (0.5,)), (1, (2.5,))),
    "list": ([[0.5]], [[2.5]]),
    "dict": ({"p": [0.5]}, {"p": [2.5]}),
    "set": ({0.5}, {2.5}),
    "dataclass": (Scaled(0.5), Scaled(2.5)),
    "namespace": (SimpleNamespace(p=0.5), SimpleNamespace(p=2.5)),
    "slots": (Slotted(0.5), Slotted(2.5)),
    "partial": (partial(max, key=0.5), partial(max, key=2.5)),
    "closure": (returning(0.5), returning(2.5)),
    "range": (range(2), range(5)),
    "long": ((0.5,) * 300, (0.5,) * 299 + (2.5,)),
    "tensor of one number": (torch.tensor(0.5), torch.tensor(2.5)),
    "tensor in a dict": ({"t": torch.tensor(True)}, {"t": torch.tensor(False)}),
}


def told(value):
    """What it is, also of a copy."""
    value = value() if isfunction(value) else getattr(value, "p", value)
    return type(value), repr(value)


# By arithmetic, no operation tells the two apart.
@pytest.mark.parametrize("remedy", REMEDIES)
@pytest.mark.parametrize(
    "pair, arithmetic", [*((pair, True) for pair in PAIRS), ("float", False), ("list", False)]
)
def test_all_that_is_handed_over_tells_calls_apart_by_its_value(pair, arithmetic, remedy):
    good, bad = PAIRS[pair]
    f = cube_by(lambda given: told(given) == told(bad), arithmetic)
    for first, then in ((good, bad), (bad, good)):
        known.forget()
        with remedy():
            for given in (first, then, first, then):
                assert outcome(f, point(6), given) == expected(remedy, given is bad)


@pytest.mark.parametrize("remedy", REMEDIES)
@pytest.mark.parametrize("where", ["class", "closure", "global", "object"])
def test_what_a_function_reads_elsewhere_tells_calls_apart(where, remedy):
    held = [False]
    holder = SimpleNamespace(p=False)
    reads = {
        "class": lambda: f.keeps,
        "closure": lambda: held[0],
        "global": lambda: KEEPS.now,
        "object": lambda: holder.p,
    }
    f = cube_by(reads[where], arithmetic=True)
    with remedy():
        for wrong in (False, True, False, True):
            f.keeps = held[0] = KEEPS.now = holder.p = wrong
            assert outcome(f, point(6)) == expected(remedy, wrong)


@pytest.mark.parametrize("remedy", REMEDIES)
@pytest.mark.parametrize("limit", [30, 90])
@pytest.mark.parametrize("arithmetic", [False, True])
def test_no_number_of_sizes_is_trusted_in_silence(arithmetic, limit, remedy):
    def forward(ctx, x):
        ctx.share = float(len(x) > limit)
        ctx.save_for_backward(x, x * x)
        return x**3

    def backward(ctx, g):
        x, square = ctx.saved_tensors
        if arithmetic:
            return 3 * g * (ctx.share * square + (1 - ctx.share) * x * x)
        return 3 * g * (square if ctx.share else x * x)

    f = function(forward, backward)
    for n in (*range(20, limit + 5), 10, limit + 4, 20):
        with remedy():  # what was found in one block holds in the next
            assert outcome(f, torch.linspace(0.5, 1, n)) == expected(remedy, n > limit), n


@pytest.mark.parametrize("remedy", REMEDIES)
def test_which_of_two_gradients_is_returned_is_part_of_what_was_done(remedy):
    def forward(ctx, x):
        ctx.save_for_backward(x, x * x)
        return x**3

    def backward(ctx, g):
        x, square = ctx.saved_tensors
        both = 3 * g * x * x, 3 * g * square
        return both[len(x) > 60]

    f = function(forward, backward)
    with remedy():
        for n in range(40, 80):
            assert outcome(f, torch.linspace(0.5, 1, n)) == expected(remedy, n > 60)


@pytest.mark.parametrize("remedy", REMEDIES)
@pytest.mark.parametrize(
    "decides", [torch.all, lambda mask: all(mask.tolist()), lambda mask: np.asarray(mask).all()]
)
def test_values_of_tensors_that_select_a_branch_tell_calls_apart(decides, remedy):
    f = cube_by(lambda mask: bool(decides(mask)))
    with remedy():
        for n in (1, 2, 0, 3, 0, 1):
            assert outcome(f, point(6), torch.arange(50) >= n) == expected(remedy, n == 0)


OWN_RANDOM, OWN_NUMPY, OWN_TORCH = random.Random(3), np.random.default_rng(3), torch.Generator()


DRAWS = {
    "random of its own": lambda: OWN_RANDOM.random(),
    "NumPy of its own": lambda: OWN_NUMPY.random(),
    "torch of its own": lambda: torch.rand((), generator=OWN_TORCH).item(),
    "random": random.random,
    "NumPy": np.random.rand,
    "torch": lambda: torch.rand(()).item(),
}


@pytest.mark.parametrize("remedy", REMEDIES)
@pytest.mark.parametrize("draws", DRAWS)
def test_what_is_drawn_may_select_a_branch(draws, remedy):
    """As in layers that are left out at random."""
    draw = DRAWS[draws]

    def keeps():
        CALLS.emit(found := draw() < 0.5)
        return found

    random.seed(3)
    np.random.seed(3)
    torch.manual_seed(3)
    f = cube_by(keeps)
    with remedy():
        for _ in range(20):
            before = len(CALLS.buffer)
            said = outcome(f, point(6))
            assert said == expected(remedy, CALLS.buffer[before])


@pytest.mark.parametrize("remedy", REMEDIES)
def test_how_dimensions_lie_in_memory_tells_calls_apart(remedy):
    def forward(ctx, x):
        x = x.contiguous(memory_format=torch.channels_last)
        ctx.save_for_backward(x)
        return x**3

    f = function(forward, lambda ctx, g: 3 * g * ctx.saved_tensors[0] ** 2)
    numbers = torch.linspace(0.5, 1, 120, dtype=torch.float64).reshape(2, 3, 4, 5)
    last, first = numbers.contiguous(memory_format=torch.channels_last), numbers
    turned = numbers.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0)
    with remedy():
        for x in (last, turned, first, last, turned):
            assert outcome(f, x) == expected(remedy, x is not last)


@pytest.mark.parametrize("remedy", REMEDIES)
def test_a_batch_without_samples_is_right(remedy):
    f = cube_by(lambda: True)
    with remedy(), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert outcome(f, torch.empty(0, 3)) == "right"
        assert outcome(f, point(6)) == expected(remedy, True)


@pytest.mark.parametrize("remedy", REMEDIES)
def test_a_number_that_is_another_one_at_each_step(remedy):
    """0 at first: what it switches on is found, and so is that these were too many to try each."""
    f = cube_by(lambda share: max(share - 50, 0) / 100, arithmetic=True)
    f.forward.__signature__ = signature(lambda ctx, x, share: None)
    with remedy(), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for number in range(100):
            assert outcome(f, point(6), number * 1.0) == expected(remedy, number > 50)
    if remedy is recompute_intermediates:
        assert said == []
    else:
        (warning,) = said
        assert warning.category is UncheckedFunctionWarning
        assert "has met forward with more than 32 values of share. From" in str(warning.message)


@pytest.mark.parametrize("remedy", REMEDIES)
def test_a_number_that_makes_no_difference_is_soon_not_tried(remedy):
    f = counted()
    f.forward, forward = staticmethod(lambda ctx, x, count: forward(ctx, x)), f.forward
    with remedy(), warnings.catch_warnings():
        warnings.simplefilter("error")
        tried = [number for number in range(100) if step(f, point(6), number) > 1]
    assert len(tried) < 15


# What an error costs.


def chain(f, n):
    """How often forward is called, and how often a cause is looked for, until the error."""
    x = point(6).requires_grad_()
    y, before = x, len(CALLS.buffer)
    for _ in range(n):
        y = 0.5 * f.apply(y).tanh()
    (first,) = grad((y**2).sum(), x, create_graph=True)
    with pytest.raises(SecondDerivativeError, match="ctx.kept"):
        grad(first.sum(), x)
    return len(CALLS.buffer) - before


def test_a_cause_is_looked_for_once_a_kind(monkeypatch):
    asked = []
    diagnose = diagnosis.diagnose

    def noted(fn, *args, **options):
        asked.append(fn)
        return diagnose(fn, *args, **options)

    monkeypatch.setattr(diagnosis, "diagnose", noted)
    f = counted(right=False)
    with detect_intermediates():
        assert chain(f, 3) > 100
        assert chain(f, 43) < 200  # each is called once more, few are tried
        assert len(asked) == 1


def saturated(keep):
    """A sigmoid that keeps its output as `keep` makes it; from 17 on 1 - y is 0 in float32."""

    def forward(ctx, x):
        y = 1 / (1 + torch.exp(-x))
        ctx.save_for_backward(keep(y))
        return y

    def backward(ctx, grad_out):
        (y,) = ctx.saved_tensors
        return grad_out * y * (1 - y)

    return function(forward, backward, name="Saturated")


def second_of(fn, x):
    (g,) = grad(fn.apply(x).sum(), x, create_graph=True)
    return grad(g.sum() + (0 * x).sum(), x)


def test_what_has_cancelled_is_told_and_tried_again_soon():
    """There nothing can be seen: the next call of this kind is asked what it is."""
    wrong = saturated(lambda y: y.detach().clone())
    with detect_intermediates():
        with pytest.warns(UncheckedFunctionWarning):
            second_of(wrong, torch.full((20,), 40.0, dtype=torch.float64, requires_grad=True))
        with pytest.raises(SecondDerivativeError):
            second_of(wrong, torch.ones(20, dtype=torch.float64, requires_grad=True))


def test_a_right_one_that_is_saturated_in_float32_has_lost_no_path():
    with detect_intermediates(), warnings.catch_warnings():
        warnings.simplefilter("error")
        second_of(saturated(lambda y: y), torch.full((20,), 20.0, requires_grad=True))
