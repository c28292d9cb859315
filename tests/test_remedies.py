"""detect_intermediates and recompute_intermediates, on Functions whose answer is known."""

import os
import queue
import threading
import traceback
import warnings

import numpy as np
import pytest
import torch
from made_functions import cubic, of_inputs, save_x, saving, x
from made_functions import function as made_function
from test_diagnosis_facts import (
    Once,
    SinhForgotten,
    SinhFunc,
    SinhSaved,
    copying,
    cube_with,
    nested,
    save_both,
    without_grad_out,
)
from torch.autograd import Function, grad, gradcheck, gradgradcheck
from torch.autograd.functional import hvp
from torch.utils.checkpoint import checkpoint

from double_backward import (
    calls,
    detect_intermediates,
    diagnose,
    recompute_intermediates,
    tangents,
)
from double_backward.remedies import SecondDerivativeError, UncheckedFunctionWarning
from lessons_src.saving_inputs import Square
from lessons_src.saving_intermediates import sinh
from lessons_src.saving_outputs import Exp
from lessons_src.untracked_backward import Cube, CubeNumPy, ExpIntegral
from lessons_src.what_not_to_do import SinhBad


def function(forward, backward):
    return made_function(forward, backward).apply


SETTINGS = {
    "alone": lambda f: f,
    "graph after": lambda f: lambda *xs: f(*xs) ** 2,
    "graph before": lambda f: lambda x, *xs: f(x**2, *xs),
    "both": lambda f: lambda x, *xs: f(x, *xs) + x.square().sum(),
}
# One is quick; `make check` tries the others.
QUICK_AND_SLOW = [
    name if name == "graph after" else pytest.param(name, marks=pytest.mark.slow)
    for name in SETTINGS
]


def total(t):
    return torch.view_as_real(t).sum() if t.is_complex() else t.sum()


def second(f, *inputs):
    """The second derivative along all ones, one tensor for each input that requires grad."""
    inputs = [i.detach().requires_grad_(i.requires_grad) for i in inputs]
    wanted = [i for i in inputs if i.requires_grad]
    first = grad(total(f(*inputs)), wanted, create_graph=True)
    return grad(sum(total(g) for g in first), wanted, allow_unused=True)


# Wrong: name -> (the Function, the same in plain torch).


def in_a_dict(ctx, x):
    ctx.cache = {"cosh": [torch.cosh(x)]}
    return torch.sinh(x)


def number(ctx, x):
    ctx.save_for_backward(x)
    ctx.r = x.norm().item()
    return x / ctx.r


def number_backward(ctx, g):
    (x,) = ctx.saved_tensors
    return g / ctx.r - x * (g * x).sum() / ctx.r**3


def array(ctx, x):
    ctx.cosh = np.cosh(x.detach().numpy())
    return torch.sinh(x)


def contiguous(ctx, x):
    x = x.contiguous()
    ctx.save_for_backward(x)
    return x**3


def two_inputs(ctx, a, b):
    ctx.save_for_backward(a, b)
    ctx.s = torch.sigmoid(a)
    return ctx.s * b


def two_inputs_backward(ctx, g):
    a, b = ctx.saved_tensors
    return g * b * ctx.s * (1 - ctx.s), g * ctx.s


def scaled_by(ctx, x, s):
    ctx.save_for_backward(x, s)
    ctx.e = torch.exp(s)
    return x * ctx.e


def scaled_by_backward(ctx, g):
    x, _ = ctx.saved_tensors
    return g * ctx.e, g * x * ctx.e  # autograd sums the second to the shape of s


def cube(x):
    return x**3


def in_fewer_digits(dtype):
    def forward(ctx, x):
        ctx.x = x.to(dtype)
        return x**3

    return function(forward, lambda ctx, g: 3 * g * ctx.x.to(g.dtype) ** 2)


OUTSIDE: dict = {}


def outside_of_ctx(ctx, x):
    ctx.key = len(OUTSIDE)
    OUTSIDE[ctx.key] = x * x
    return x**3


WRONG = {
    "NaN beyond its domain": (
        cubic(lambda g, x: g * torch.where(x > 9, (x - 9).sqrt(), 3 * x**2)), cube),
    "on ctx": (SinhBad.apply, torch.sinh),
    "saved": (SinhSaved.apply, torch.sinh),
    "in a dict": (function(in_a_dict, lambda ctx, g: g * ctx.cache["cosh"][0]), torch.sinh),
    "copy of the input": (copying(lambda x: x.clamp(min=1e-6)), torch.log),
    "number": (function(number, number_backward), lambda x: x / x.norm()),
    "array": (function(array, lambda ctx, g: g * torch.from_numpy(ctx.cosh)), torch.sinh),
    "setup_context": (SinhFunc.apply, torch.sinh),
    "the input in 32 bits": (in_fewer_digits(torch.float32), cube),
    "the input in 16 bits": (in_fewer_digits(torch.bfloat16), cube),
    "outside of ctx": (function(outside_of_ctx, lambda ctx, g: 3 * g * OUTSIDE[ctx.key]), cube),
    "x detached": (cubic(lambda g, x: g * 3 * x.detach() ** 2), cube),
    "x as numbers": (
        cubic(lambda g, x: g * 3 * torch.tensor(x.tolist(), dtype=x.dtype) ** 2), cube),
    "once_differentiable": (Once.apply, cube),
    "grad_out forgotten": (cube_with(without_grad_out), cube),
    "path counted twice": (nested(False), cube),
    "extra gradients ignored": (lambda x: SinhForgotten.apply(x)[0], torch.sinh),
    "broadcast": (function(scaled_by, scaled_by_backward), lambda x, s: x * torch.exp(s)),
    "two inputs": (function(two_inputs, two_inputs_backward), lambda a, b: torch.sigmoid(a) * b),
}  # fmt: skip
INPUTS = {"broadcast": (x(0.5, 1.0), x(0.3)), "two inputs": (x(0.5, 1.0), x(2.0, -1.0))}
# Right in this setting, although the Function is wrong: grad_out is a constant there.
STILL_RIGHT = {("grad_out forgotten", "alone"), ("grad_out forgotten", "graph before"),
               ("path counted twice", "alone"), ("path counted twice", "graph before"),
               ("grad_out forgotten", "both"), ("path counted twice", "both")}  # fmt: skip
# What forward or backward hides from autograd cannot be computed again under it.
CANNOT = {"number"}


def near(got, expected):
    for a, b in zip(got, expected, strict=True):
        assert (torch.zeros_like(b) if a is None else a).tolist() == pytest.approx(b.tolist())


@pytest.mark.parametrize("setting", QUICK_AND_SLOW)
@pytest.mark.parametrize("name", WRONG)
def test_wrong_ones_raise(name, setting):
    f, plain = WRONG[name]
    wrap, inputs = SETTINGS[setting], INPUTS.get(name, (x(),))
    with detect_intermediates():
        if (name, setting) in STILL_RIGHT:
            near(second(wrap(f), *inputs), second(wrap(plain), *inputs))
        else:
            with pytest.raises(SecondDerivativeError, match="would be wrong"):
                second(wrap(f), *inputs)


@pytest.mark.parametrize("setting", QUICK_AND_SLOW)
@pytest.mark.parametrize("name", WRONG)
def test_wrong_ones_are_recomputed_or_raise(name, setting):
    f, plain = WRONG[name]
    wrap, inputs = SETTINGS[setting], INPUTS.get(name, (x(),))
    with recompute_intermediates():
        if name in CANNOT:
            with pytest.raises(SecondDerivativeError, match="could not be had"):
                second(wrap(f), *inputs)
        else:
            near(second(wrap(f), *inputs), second(wrap(plain), *inputs))


# Declared once_differentiable, it stays so, whatever numbers it gives; and 16 bits are not judged.
SHOWN = sorted(set(WRONG) - CANNOT - {"once_differentiable", "the input in 16 bits"})
QUICK = {"on ctx", "copy of the input", "extra gradients ignored"}


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in SHOWN]
)
def test_diagnose_finds_nothing_under_recompute(name):
    f, inputs = WRONG[name][0], INPUTS.get(name, (x(),))
    assert not diagnose(f, *inputs).ok
    with recompute_intermediates():
        diagnosis = diagnose(f, *inputs)
    assert diagnosis.ok, diagnosis


# Right: none may raise, and no number may change.


def dropout_saving(ctx, x):
    keep = (torch.rand_like(x) > 0.5).to(x) * 2
    ctx.save_for_backward(x, keep)
    return (x * keep) ** 2


def numpy_noise(ctx, x):
    ctx.save_for_backward(x)
    ctx.noise = torch.from_numpy(np.random.rand(*x.shape))
    return x**2 * ctx.noise


def constant_matrix(ctx, x, m):
    ctx.save_for_backward(x)
    ctx.m = m
    return torch.sin(x @ m)


def unused(ctx, x):
    ctx.save_for_backward(x)
    ctx.peak = x.max()
    return torch.logsumexp(x, 0, keepdim=True)


def unused_backward(ctx, g):
    (x,) = ctx.saved_tensors
    e = torch.exp(x - ctx.peak)  # the shift cancels
    return g * e / e.sum()


def in_place(ctx, x):
    x.exp_()
    ctx.mark_dirty(x)
    ctx.save_for_backward(x)
    return x


def list_of_inputs(ctx, a, b):
    ctx.pair = [a, b]
    return a * b


class Norm(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(1, dtype=torch.float64))


def running(ctx, x, module):
    module.mean += 0.1 * (x.detach().mean() - module.mean)
    ctx.save_for_backward(x)
    return x**3


def view(ctx, x):
    ctx.shape = x.shape
    return x.view(-1)


def needs_backward(ctx, g):
    a, b = ctx.saved_tensors
    return (
        g * b**2 if ctx.needs_input_grad[0] else None,
        g * 2 * a * b if ctx.needs_input_grad[1] else None,
    )


def sorted_(ctx, x):
    out, index = x.sort()
    ctx.save_for_backward(index)
    return out


def sorted_backward(ctx, g):
    return torch.zeros_like(g).scatter(0, ctx.saved_tensors[0], g)


def powered(ctx, x, n):
    ctx.save_for_backward(x)
    ctx.n = n
    return x**n


def powered_backward(ctx, g):
    return g * ctx.n * ctx.saved_tensors[0] ** (ctx.n - 1), None


power = function(powered, powered_backward)
both_saved = function(dropout_saving, lambda ctx, g: 2 * g * ctx.saved_tensors[0] * (
    ctx.saved_tensors[1] ** 2))  # fmt: skip


def masked(ctx, x):
    ctx.save_for_backward(x)
    ctx.mask = torch.arange(len(x)) == 1
    return (x**2).masked_fill(ctx.mask, -torch.inf)


constants = torch.rand(2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def in_a_table(ctx, x, table):
    i = x.floor().long()
    ctx.save_for_backward(x - i, i, table)
    return table[i] * (1 - (x - i)) + table[i + 1] * (x - i)


def in_a_table_backward(ctx, g):
    _, i, table = ctx.saved_tensors
    return g * (table[i + 1] - table[i]), None


RIGHT = {
    "input": Square.apply,
    "output": Exp.apply,
    "returned": sinh,
    "second Function": Cube.apply,
    "in NumPy": CubeNumPy.apply,
    "in SciPy": ExpIntegral.apply,
    "mask": saving(torch.relu, lambda x: (x > 0).to(x), torch.mul),
    "random mask": both_saved,
    "NumPy's random numbers": function(
        numpy_noise, lambda ctx, g: 2 * g * ctx.saved_tensors[0] * ctx.noise),
    "constant matrix": lambda x: function(constant_matrix, lambda ctx, g: (
        (g * torch.cos(ctx.saved_tensors[0] @ ctx.m)) @ ctx.m.T, None))(x, constants),
    "kept, and it cancels": function(unused, unused_backward),
    "in place": lambda x: function(in_place, lambda ctx, g: g * ctx.saved_tensors[0])(x * 1),
    "list of inputs": lambda x: function(
        list_of_inputs, lambda ctx, g: (g * ctx.pair[1], g * ctx.pair[0]))(x, x.sin()),
    "a mask of -inf": lambda x: function(
        masked, lambda ctx, g: (2 * g * ctx.saved_tensors[0]).masked_fill(
            ctx.mask, 0.0))(torch.cat([x, x])).softmax(0),
    "running statistics": lambda x: function(
        running, lambda ctx, g: (3 * g * ctx.saved_tensors[0] ** 2, None))(x, Norm()),
    "view of the input": function(view, lambda ctx, g: g.view(ctx.shape)),
    "needs_input_grad": lambda x: function(save_both, needs_backward)(x, x.detach()),
    "a penalty that backward adds": saving(
        lambda x: x * 1, torch.sign, lambda g, s: g + 0.1 * s),
    "straight through": saving(torch.round, torch.ones_like, lambda g, _: g),
    "between the entries of a table": lambda x: function(
        in_a_table, in_a_table_backward)(2 * x, torch.tensor([0.0, 1.0, 0.5, 2.0]).to(x)),
    "index": function(sorted_, sorted_backward),
    "number that is an argument": lambda x: power(x, 3),
    "an input that needs no gradient": lambda x: function(
        two_inputs, lambda ctx, g: (None, g * ctx.s))(x.detach(), x),
}  # fmt: skip


@pytest.mark.parametrize("remedy", [detect_intermediates, recompute_intermediates])
@pytest.mark.parametrize("setting", QUICK_AND_SLOW[1:])  # alone, the linear ones have none
@pytest.mark.parametrize("name", RIGHT)
def test_right_ones_are_left_alone(name, setting, remedy):
    f, point = SETTINGS[setting](RIGHT[name]), x(0.7, 0.4)

    def results():
        torch.manual_seed(0)
        np.random.seed(0)
        return [*second(f, point), torch.rand(1), torch.tensor(np.random.rand())]

    expected = results()
    with warnings.catch_warnings(), remedy():
        if remedy is detect_intermediates:
            warnings.simplefilter("error", UncheckedFunctionWarning)
        got = results()
    for a, b in zip(got, expected, strict=True):
        assert (a is None and b is None) or torch.equal(a, b)


@pytest.mark.parametrize("by", ["grad_out", "input", "grad_out, recorded"])
def test_what_is_right_by_grad_out_is_stopped_only_by_an_input(by):
    """`torch.autograd.functional.jvp` differentiates a backward by grad_out alone."""
    x = torch.tensor([0.5, 1.0], dtype=torch.float64, requires_grad=True)
    v = torch.ones(2, dtype=torch.float64, requires_grad=True)
    with detect_intermediates():
        (g,) = grad(SinhBad.apply(x), x, v, create_graph=True)
        if by == "grad_out":
            torch.testing.assert_close(grad(g, v, v.detach())[0], x.detach().cosh())
            of_jvp = torch.autograd.functional.jvp(SinhBad.apply, x, v.detach())[1]
            torch.testing.assert_close(of_jvp, x.detach().cosh())
        else:
            with pytest.raises(SecondDerivativeError, match="SinhBad"):
                grad(g.sum(), x if by == "input" else v, create_graph=by != "input")


def test_what_draws_nothing_for_no_elements_is_still_drawn_again_for_others():
    def forward(ctx, x):
        mask = (torch.rand_like(x) > 0.3).to(x)
        ctx.kept = x.cosh() * mask
        return x.sinh() * mask

    f, point = function(forward, lambda ctx, g: g * ctx.kept), torch.linspace(0.1, 1.0, 8)
    torch.manual_seed(0)
    mask = (torch.rand_like(point) > 0.3).to(point)
    expected = second(lambda x: (x.sinh() * mask) ** 2, point.requires_grad_())
    with recompute_intermediates():
        f(point[:0])
        torch.manual_seed(0)
        near(second(lambda x: f(x) ** 2, point), expected)


def test_keyword_arguments_reach_forward():
    try:
        expected = power(x(), n=3)
    except TypeError:
        pytest.skip("this torch takes no keywords")
    with detect_intermediates():
        assert torch.equal(power(x(), n=3), expected)


class Family(Function):
    """forward and backward are classmethods, shared by classes that differ in one thing."""

    @classmethod
    def forward(cls, ctx, x):
        ctx.kept = cls.kept(x)
        return torch.sinh(x)

    @classmethod
    def backward(cls, ctx, g):
        return g * torch.cosh(ctx.kept) if cls.right else g * ctx.kept


class Member(Family):
    kept, right = staticmethod(torch.cosh), False


class RightMember(Family):
    kept, right = staticmethod(lambda x: x), True


def test_classmethods():
    with detect_intermediates():
        near(second(RightMember.apply, x()), second(torch.sinh, x()))
        with pytest.raises(SecondDerivativeError, match=r"Member:\n[\s\S]*\sctx\.kept"):
            second(Member.apply, x())
    with recompute_intermediates():
        near(second(Member.apply, x()), second(torch.sinh, x()))
    assert isinstance(vars(Family)["forward"], classmethod) and "forward" not in vars(Member)


def test_first_derivatives_are_untouched():
    point = x()
    with detect_intermediates():
        (plain,) = grad(SinhBad.apply(point).sum(), point)
        (recorded,) = grad(SinhBad.apply(point).sum(), point, create_graph=True)
        assert gradcheck(SinhBad.apply, point)
        assert gradgradcheck(sinh, point)
    assert torch.equal(plain, torch.cosh(point)) and torch.equal(plain, recorded)
    assert not plain.requires_grad


def test_training_step():
    w, data = x(0.3, -0.2), torch.linspace(0, 1, 2, dtype=torch.float64).requires_grad_()

    def loss():
        (u_x,) = grad(SinhBad.apply(w * data).sum(), data, create_graph=True)
        return (u_x**2).sum()

    with detect_intermediates(), pytest.raises(SecondDerivativeError, match=r"ctx\.expx"):
        loss().backward()
    w.grad = None
    with recompute_intermediates():
        loss().backward()
    got, w.grad = w.grad, None
    (u_x,) = grad(torch.sinh(w * data).sum(), data, create_graph=True)
    (u_x**2).sum().backward()
    assert got.tolist() == pytest.approx(w.grad.tolist())


def test_the_message_names_function_what_it_keeps_and_lesson():
    with detect_intermediates(), pytest.raises(SecondDerivativeError) as error:
        second(SinhBad.apply, x())
    for word in ("SinhBad", "ctx.expx", "ctx.expnegx", "lesson 4"):
        assert word in str(error.value)
    printed = "".join(traceback.format_exception_only(error.value))
    assert max(map(len, printed.splitlines())) <= 88
    with (
        detect_intermediates(),
        pytest.raises(SecondDerivativeError, match=r"itself .e,\sn."),
    ):
        second(WRONG["saved"][0], x())


def test_a_gradient_that_nobody_differentiates_raises_nothing():
    point = x()
    with detect_intermediates():
        (g,) = grad(SinhBad.apply(point).sum(), point, create_graph=True)
        (h,) = grad((point**3).sum() + 0 * g.detach().sum(), point, create_graph=True)
        assert grad(h.sum(), point)[0].tolist() == [3.0, 6.0]


LAYOUTS = {
    "contiguous": lambda m: m,
    "transposed": lambda m: m.t(),
    "columns": lambda m: m[:, 1:],
    "every second": lambda m: m[0, ::2],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_copy_made_only_for_some_layouts(layout):
    f = function(contiguous, lambda ctx, g: g * 3 * ctx.saved_tensors[0] ** 2)
    point = torch.rand(2, 3, dtype=torch.float64).requires_grad_()

    def g(m):
        return f(LAYOUTS[layout](m)) ** 2

    expected = second(lambda m: LAYOUTS[layout](m) ** 6, point)
    with detect_intermediates():
        if layout == "contiguous":
            near([second(g, point)[0].flatten()], [expected[0].flatten()])
        else:
            with pytest.raises(SecondDerivativeError):
                second(g, point)
    with recompute_intermediates():
        near([second(g, point)[0].flatten()], [expected[0].flatten()])


def test_a_cast_under_autocast():
    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx, g):
        return g * 3 * ctx.saved_tensors[0] ** 2

    cast = function(forward, backward)
    for dtype, right in ((torch.float32, True), (torch.bfloat16, False)):
        point = torch.tensor([0.5, 1.0], dtype=dtype, requires_grad=True)
        with detect_intermediates(), torch.autocast("cpu", dtype=torch.bfloat16):
            if right:
                near(second(lambda x: cast(x) ** 2, point), [torch.tensor([1.875, 30.0])])
            else:
                with pytest.raises(SecondDerivativeError):
                    second(lambda x: cast(x) ** 2, point)


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex128])
def test_other_dtypes(dtype):
    f = function(save_x, lambda ctx, g: g * (3 * ctx.saved_tensors[0] ** 2).conj())
    point = torch.tensor([0.5, 1.0], dtype=dtype, requires_grad=True)
    with detect_intermediates():
        second(lambda x: f(x).abs() ** 2, point)
        with pytest.raises(SecondDerivativeError):
            second(lambda x: WRONG["saved"][0](x).abs() ** 2, point)


def test_a_gradient_that_is_another_one_where_it_is_recorded():
    f = cubic(lambda g, x: g * 3 * x**2 * (1.0 - torch.is_grad_enabled()))
    for remedy in (detect_intermediates, recompute_intermediates):
        with remedy(), pytest.raises(SecondDerivativeError):
            second(lambda x: f(x) ** 2 + f(x**2), x())


def recomputing(f, right):
    """f, whose backward differentiates it again, on an alias of x or on a detached one."""

    def backward(g, point):
        with torch.enable_grad():
            again = point.view_as(point) if right else point.detach()
            again = again if again.requires_grad else again.requires_grad_()
            out = f(again)
        return grad(out, again, g, create_graph=torch.is_grad_enabled())[0]

    return of_inputs(f, backward).apply


HARD = {  # what is difficult for finite differences: name -> (f, the inputs, wrong ones are seen)
    "saturated": (torch.tanh, torch.tensor([16.3, 33.0, -38.5, 9.0]), False),
    "tiny": (torch.exp, torch.full((64,), 1e-6), True),
    "huge": (lambda x: torch.sin(x / 1e6), torch.tensor([0.4e6, 1.3e6]), True),
    "of many sizes": (cube, torch.tensor([1e-4, 1.0, 1e4]), True),
    "at a kink": (lambda x: torch.relu(x) ** 2 + x**3, torch.tensor([0.0, 0.0, 0.5]), True),
    "jumping": (lambda x: x * x.round(), torch.tensor([0.001, 1.2, -2.4]), False),
    "ties": (lambda x: x.sort()[0] ** 3, torch.ones(6), True),
    "cancelling": (lambda x: torch.softmax(x, 0), torch.tensor([30.0, -20.0, 1.0]), False),
}


@pytest.mark.parametrize(
    "dtype", [torch.float64, pytest.param(torch.float32, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("name", HARD)
def test_where_finite_differences_are_hard(name, dtype):
    f, point, seen = HARD[name]
    point = point.to(dtype).requires_grad_()
    right, wrong = recomputing(f, True), recomputing(f, False)
    (expected,) = second(lambda x: right(x) ** 2, point)
    with detect_intermediates():
        assert torch.equal(second(lambda x: right(x) ** 2, point)[0], expected)
    if seen:
        with detect_intermediates(), pytest.raises(SecondDerivativeError):
            second(lambda x: wrong(x) ** 2, point)


EDGES = {  # a function and its derivative, beside which there is nothing on one side
    "arcosh": (torch.acosh, lambda x: 1 / torch.sqrt(x**2 - 1), x(1.0005, 2.0, 1.0005, 1.0001)),
    "artanh": (torch.atanh, lambda x: 1 / (1 - x**2), x(0.9999, -0.9999, 0.1)),
    "log1p": (torch.log1p, lambda x: 1 / (1 + x), x(-0.99999, 0.5)),
}


@pytest.mark.parametrize("name", EDGES)
def test_at_the_edge_of_a_domain(name):
    value, slope, point = EDGES[name]

    def keep(ctx, x):
        ctx.slope = slope(x)
        return value(x)

    keeping = function(keep, lambda ctx, grad_out: grad_out * ctx.slope)
    saving = of_inputs(value, lambda g, x: g * slope(x)).apply
    (truth,) = second(lambda x: value(x) ** 2, point)
    with pytest.raises(SecondDerivativeError, match="ctx.slope"), detect_intermediates():
        second(lambda x: keeping(x) ** 2, point)
    for remedy, f in (
        (recompute_intermediates, keeping),
        (recompute_intermediates, saving),
        (detect_intermediates, saving),
    ):
        with remedy():
            (got,) = second(lambda x, f=f: f(x) ** 2, point)
        torch.testing.assert_close(got, truth, rtol=1e-6, atol=0)


def flat_sigmoid(x):
    y = torch.sigmoid(x).detach()
    return y * (1 - y)


TOO_LITTLE = {
    "rounding": (of_inputs(torch.sigmoid, lambda g, x: g * flat_sigmoid(x)), [30.0] * 20),
    "below a last digit": (
        of_inputs(torch.nn.functional.softplus, lambda g, x: g / (1 + torch.exp(-x.detach()))),
        [40.0] * 3,
    ),
}


@pytest.mark.parametrize("name", TOO_LITTLE)
def test_what_is_too_little_to_be_seen_is_not_right(name):
    function, numbers = TOO_LITTLE[name]
    point = torch.tensor(numbers, dtype=torch.float64, requires_grad=True)
    with detect_intermediates(), pytest.warns(UncheckedFunctionWarning, match="gradients"):
        second(lambda x: function.apply(x) ** 2, point)
    with recompute_intermediates(), pytest.raises(SecondDerivativeError):
        second(lambda x: function.apply(x) ** 2, point)
    assert not diagnose(function.apply, point).ok


def test_what_cannot_be_called_again(monkeypatch):
    monkeypatch.setenv("NOISE", "1")  # which nobody puts back

    def noisy(ctx, x):
        monkeypatch.setenv("NOISE", str(int(os.environ["NOISE"]) + 1))
        ctx.noise = int(os.environ["NOISE"])
        ctx.cosh = torch.cosh(x)
        return torch.sinh(x) * ctx.noise

    f = function(noisy, lambda ctx, g: g * ctx.cosh * ctx.noise)
    with detect_intermediates(), pytest.warns(UncheckedFunctionWarning):
        second(lambda x: f(x) ** 2, x())
    with recompute_intermediates(), pytest.raises(SecondDerivativeError):
        second(lambda x: f(x) ** 2, x())


@pytest.mark.parametrize("where", ["forward", "backward"])
@pytest.mark.parametrize("remedy", [detect_intermediates, recompute_intermediates])
def test_a_function_that_counts_its_calls_is_called_again_as_it_was(remedy, where):
    """It is wrong at each third call, or the third backward, of which one step makes several."""
    calls = [0]

    def is_wrong(here):
        calls[0] += here == where
        return here == where and calls[0] % 3 == 0

    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.kept = torch.exp(x) if is_wrong("forward") else None
        return torch.exp(x)

    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        detached = x.detach() if is_wrong("backward") else x
        return g * (torch.exp(detached) if ctx.kept is None else ctx.kept)

    f = function(forward, backward)
    (truth,) = second(lambda x: (torch.exp(x) + torch.exp(2 * x)).square(), x())
    for _ in range(3):
        made, before = remedy(), calls[0]
        bad = before // 3 != (before + 2) // 3
        try:
            with made:
                (got,) = second(lambda x: (f(x) + f(2 * x)).square(), x())
        except SecondDerivativeError:
            assert bad
            calls[0] = before + 2 * (1 + (where == "backward"))
        else:
            torch.testing.assert_close(got, truth)


def test_a_generator_of_its_own_draws_the_same_again():
    generator = torch.Generator().manual_seed(0)

    def noisy(ctx, x):
        ctx.noise = torch.rand(x.shape, generator=generator, dtype=x.dtype)
        ctx.cosh = torch.cosh(x)
        return torch.sinh(x) * ctx.noise

    f = function(noisy, lambda ctx, g: g * ctx.cosh * ctx.noise)
    drawn = torch.rand(x().shape, generator=torch.Generator().manual_seed(0), dtype=x().dtype)
    (truth,) = second(lambda x: (torch.sinh(x) * drawn) ** 2, x())
    with recompute_intermediates():
        (got,) = second(lambda x: f(x) ** 2, x())
    torch.testing.assert_close(got, truth)


def test_a_surrogate_that_keeps_an_intermediate_cannot_be_had():
    f = function(in_a_dict, lambda ctx, g: 2 * g * ctx.cache["cosh"][0])
    with recompute_intermediates(), pytest.raises(SecondDerivativeError, match="its first deriv"):
        second(lambda x: f(x) ** 2, x())


def test_inputs_changed_in_place():
    f = WRONG["saved"][0]
    with recompute_intermediates():
        point = x()
        middle = point * 1
        out = f(middle).sum()
        middle.mul_(2)
        (g,) = grad(out, point, create_graph=True)
        with pytest.raises(SecondDerivativeError, match="changed in place"):
            grad(g.sum(), point)


def test_a_forward_before_the_with():
    point = x()
    out = (SinhBad.apply(point) ** 2).sum()
    with recompute_intermediates():
        (g,) = grad(out, point, create_graph=True)
        with pytest.raises(SecondDerivativeError, match="forward ran before"):
            grad(g.sum(), point)


def test_hessian_vector_products_of_functional():
    v = torch.ones(2, dtype=torch.float64)
    with pytest.raises(SecondDerivativeError, match="SinhBad"), detect_intermediates():
        hvp(lambda x: SinhBad.apply(x).sum(), x().detach(), v)
    for remedy in (detect_intermediates, recompute_intermediates):
        with remedy():
            _, product = hvp(lambda x: sinh(x).sum(), x().detach(), v)
        torch.testing.assert_close(product, torch.sinh(x().detach()))


class Weighted(Function):
    """x w², which keeps w²: the derivatives of its gradients by x are right, those by w wrong."""

    @staticmethod
    def forward(ctx, x, w):
        square = w * w
        ctx.save_for_backward(x, w, square)
        return x * square

    @staticmethod
    def backward(ctx, grad_out):
        x, w, square = ctx.saved_tensors
        return grad_out * square, 2 * grad_out * x * w


@pytest.mark.parametrize("by", ["x", "w", "both", "w of x", "x, with a graph"])
def test_an_error_is_raised_for_those_inputs_alone_by_which_it_is_wrong(by):
    """As in a Hessian by the positions, of a network whose parameters require grad. With a graph,
    what comes next may go to the others."""
    point, weight = x(), (0.5 * x().detach()).requires_grad_()
    w = torch.exp(point) * weight if by == "w of x" else weight
    asked = {"w": [weight], "both": [point, weight]}.get(by, [point])

    def second(f):
        (g,) = grad(f(point, w).sin().sum(), point, create_graph=True)
        return grad(g.square().sum(), asked, create_graph="graph" in by)

    with detect_intermediates():
        if by == "x":
            near(second(Weighted.apply), second(lambda x, w: x * w * w))
        else:
            with pytest.raises(SecondDerivativeError, match="Weighted"):
                second(Weighted.apply)


def test_third_order():
    with recompute_intermediates():
        point = x()
        first = grad(SinhBad.apply(point).sum(), point, create_graph=True)[0]
        again = grad(first.sum(), point, create_graph=True)[0]
        near(grad(again.sum(), point), [torch.cosh(point)])
    with detect_intermediates(), pytest.raises(SecondDerivativeError, match="CubeNumPyBackward"):
        first = grad((CubeNumPy.apply(point) ** 2).sum(), point, create_graph=True)[0]
        again = grad(first.sum(), point, create_graph=True)[0]
        grad(again.sum(), point)


# Afterwards everything is as before.


def test_who_came_first_may_leave_first():
    """As two threads do, one at the end of its `with` while the other is in a trial."""
    node = torch.autograd.function.BackwardCFunction
    before = dict(vars(node))
    first, then = calls.listening(calls.Listener()), tangents.looked_at()
    first.__enter__()
    then.__enter__()
    first.__exit__(None, None, None)
    assert calls.is_anything_hooked()
    then.__exit__(None, None, None)
    assert not calls.is_anything_hooked() and dict(vars(node)) == before


def test_torch_is_as_before():
    node, func = calls.functions.BackwardCFunction, calls.transforms
    owners = node, func, SinhBad, SinhFunc, Member
    before = [dict(vars(owner)) for owner in owners]
    with pytest.raises(ZeroDivisionError), detect_intermediates():
        with recompute_intermediates(), detect_intermediates():
            assert calls.is_anything_hooked()
        assert calls.is_anything_hooked()
        SinhBad.apply(x()), SinhFunc.apply(x()), Member.apply(x())
        assert [dict(vars(owner)) for owner in owners[2:]] == before[2:]
        raise ZeroDivisionError
    assert not calls.is_anything_hooked()
    assert [dict(vars(owner)) for owner in owners] == before
    assert second(lambda x: SinhBad.apply(x) ** 2, x())[0][0].item() == pytest.approx(2.5431, 1e-4)


def test_other_threads_are_covered_and_leave_in_any_order():
    inside, leave, said = threading.Barrier(3), threading.Event(), []

    def work():
        with detect_intermediates():
            inside.wait()
            leave.wait()
            try:
                second(lambda x: SinhBad.apply(x) ** 2, x())
            except SecondDerivativeError as error:
                said.append(str(error))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    inside.wait()
    with pytest.raises(SecondDerivativeError):
        second(lambda x: SinhBad.apply(x) ** 2, x())
    leave.set()
    for thread in threads:
        thread.join()
    assert len(said) == 2 and not calls.is_anything_hooked()


def test_random_numbers_of_other_threads_are_left_alone():
    ask, done, going_on = (queue.SimpleQueue() for _ in range(3))

    def forward(ctx, x):
        if not going_on.empty():  # the other thread draws just now
            ask.put("draw")
            done.get()
        ctx.save_for_backward(torch.cosh(x))
        return torch.sinh(x)

    def backward(ctx, g):
        return g * ctx.saved_tensors[0]

    def draw():
        torch.manual_seed(7)
        while ask.get() == "draw":
            numbers.append(torch.rand(()).item())
            done.put("drawn")

    numbers, keeps = [], function(forward, backward)
    thread = threading.Thread(target=draw)
    with recompute_intermediates():
        second(lambda x: keeps(x) ** 2, x())  # nobody else draws yet
        thread.start()
        going_on.put("yes")
        for _ in range(4):
            second(lambda x: keeps(x) ** 2, x())
    ask.put("end")
    thread.join()
    assert len(numbers) > 20
    seeded = torch.Generator().manual_seed(7)
    assert numbers == [torch.rand((), generator=seeded).item() for _ in numbers]


def test_a_functions_own_error_stays_itself():
    def fails(ctx, g):
        raise KeyError("mine")

    with detect_intermediates(), pytest.raises(KeyError, match="mine"):
        second(function(save_x, fails), x())

    with detect_intermediates(), pytest.raises(RuntimeError, match="hardsigmoid_backward"):
        point = x()
        first = grad(torch.nn.functional.hardsigmoid(point).sum(), point, create_graph=True)
        grad(first[0].sum(), point)


# A gradient from outside, and what forward writes into by NumPy.


def handed(forward, backward=lambda ctx, g: (g * ctx.saved_tensors[0], None, None)):
    def keeping(ctx, x, value, slope):
        ctx.save_for_backward(slope)
        return forward(x, value, slope)

    return function(keeping, backward)


VALUE = handed(lambda x, value, slope: value.clone())
ENERGY = handed(lambda x, value, slope: x**3)
SCALED = handed(lambda x, value, slope: x * slope)
ROUNDED = handed(lambda x, value, slope: value.clone(), lambda ctx, g: (g, None, None))


@pytest.mark.parametrize("f", [VALUE, ENERGY], ids=["value", "energy"])
def test_a_gradient_that_was_computed_outside_is_said(f):
    def cube(x):
        outside = x.detach()
        return f(x, outside**3, 3 * outside**2)

    with detect_intermediates(), pytest.warns(UncheckedFunctionWarning, match="handed to apply"):
        second(lambda x: cube(x) ** 2, x())
    with recompute_intermediates(), pytest.raises(SecondDerivativeError, match="handed to apply"):
        second(lambda x: cube(x) ** 2, x())


@pytest.mark.parametrize("remedy", [detect_intermediates, recompute_intermediates])
@pytest.mark.parametrize("f", [SCALED, ROUNDED], ids=["scaled", "rounded"])
def test_a_tensor_that_is_handed_as_well_is_no_such_gradient(f, remedy):
    def g(x):
        return f(x**2, x.detach().round(), torch.tensor([2.0, 3.0], dtype=x.dtype)) ** 2

    expected = second(g, x())
    with warnings.catch_warnings(), remedy():
        warnings.simplefilter("error", UncheckedFunctionWarning)
        near(second(g, x()), expected)


@pytest.mark.parametrize("remedy", [detect_intermediates, recompute_intermediates])
def test_an_input_that_numpy_writes_into(remedy):
    def exp_(ctx, x):
        np.exp(x.detach().numpy(), out=x.detach().numpy())
        ctx.mark_dirty(x)
        ctx.save_for_backward(x)
        return x

    f = function(exp_, lambda ctx, g: g * ctx.saved_tensors[0])
    (expected,) = second(lambda x: torch.exp(x * 1) ** 2, x())
    with warnings.catch_warnings(), remedy():
        warnings.simplefilter("error", UncheckedFunctionWarning)
        near(second(lambda x: f(x * 1) ** 2, x()), [expected])


# What could not be checked is said.


def validating(accept):
    """A Function that takes no other input than this, and keeps an intermediate."""

    def forward(ctx, x):
        if not torch.equal(x.detach(), accept):
            raise ValueError("not on the grid")
        ctx.cosh = torch.cosh(x)
        return torch.sinh(x)

    return function(forward, lambda ctx, g: g * ctx.cosh)


def test_what_could_not_be_checked_is_said_once():
    f, point = validating(x().detach()), x()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with detect_intermediates():
            for _ in range(6):
                second(lambda x: f(x) ** 2, point)
    assert len(said) == 1 and said[0].category is UncheckedFunctionWarning
    assert (
        "could not check forward, because calling it again raises ValueError: not on the grid"
        in (str(said[0].message))
    )
    assert said[0].filename == __file__
    with detect_intermediates(), pytest.warns(UncheckedFunctionWarning):
        second(lambda x: f(x) ** 2, point)  # in the next block, again
    said_so = pytest.raises(SecondDerivativeError, match=r"not\son the grid")
    with recompute_intermediates(), said_so:
        second(lambda x: f(x) ** 2, point)


def test_a_forward_before_detect_is_said():
    point = x()
    out = (SinhBad.apply(point) ** 2).sum()
    with detect_intermediates(), pytest.warns(UncheckedFunctionWarning, match="forward ran before"):
        grad(out, point, create_graph=True)


def test_inference_mode():
    point, plus = x(), function(lambda ctx, x, s: x + s, lambda ctx, g: (g, None))
    for remedy in (detect_intermediates, recompute_intermediates):
        with remedy():
            with torch.inference_mode():
                shift = torch.ones(2, dtype=torch.float64)
                assert torch.equal(SinhBad.apply(shift), torch.sinh(shift))
                assert torch.equal(SinhBad.apply(point), torch.sinh(point))
                assert torch.equal(SinhFunc.apply(point), torch.sinh(point))
            (first,) = grad((plus(point, shift) ** 3).sum(), point, create_graph=True)
            near(grad(first.sum(), point), [6 * (point + 1)])
    with torch.inference_mode(), detect_intermediates():
        SinhBad.apply(shift)


# What is left alone.


class Renamed(SinhBad):
    pass


@pytest.mark.parametrize("ignore", [[SinhBad], ["SinhBad"], [f"{SinhBad.__module__}.SinhBad"]])
def test_what_is_ignored_is_torchs_own_also_for_a_block_around_it(ignore):
    wrong, another = (SETTINGS["graph after"](f.apply) for f in (SinhBad, Renamed))
    expected = second(wrong, x())
    with detect_intermediates():
        with detect_intermediates(ignore=ignore):
            assert torch.equal(expected[0], second(wrong, x())[0])
            with pytest.raises(SecondDerivativeError, match="Renamed"):
                second(another, x())
        with pytest.raises(SecondDerivativeError, match="SinhBad"):
            second(wrong, x())


def test_of_what_is_ignored_nothing_is_said():
    out = (SinhBad.apply(point := x()) ** 2).sum()
    with warnings.catch_warnings(), detect_intermediates(ignore=["SinhBad"]):
        warnings.simplefilter("error", UncheckedFunctionWarning)
        grad(out, point, create_graph=True)


@pytest.mark.parametrize("ignore", ["SinhBad", SinhBad, [torch.sinh], [int]])
def test_ignore_takes_a_list_of_classes_or_names(ignore):
    with pytest.raises(TypeError, match="a list of Function classes, registered"):
        detect_intermediates(ignore=ignore).__enter__()
    with detect_intermediates(), pytest.raises(SecondDerivativeError):
        second(SETTINGS["graph after"](SinhBad.apply), x())


def test_weights_that_float32_cannot_hold_are_no_loss():
    """The second derivative of exp(-1/x) is far too small for float32 near 0."""
    f = of_inputs(lambda x: torch.exp(-1 / x), lambda g, x: g * torch.exp(-1 / x) / x**2).apply
    x = torch.linspace(0.003, 1, 5, requires_grad=True)
    with detect_intermediates():
        (g,) = torch.autograd.grad(f(x).sum(), x, create_graph=True)
        assert torch.autograd.grad(g.sum(), x)[0].isfinite().all()


class SinhByNumPy(Function):
    """forward leaves torch; what setup_context keeps, it computes in torch."""

    @staticmethod
    def forward(x):
        return torch.from_numpy(np.sinh(x.detach().numpy()))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward((1 + output**2).sqrt())

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0]


def test_setup_context_alone_is_run_again_where_forward_leaves_torch():
    def third(f):
        (g,) = grad((f(point := x()) ** 2).sum(), point, create_graph=True)
        (h,) = grad(g.sum(), point, create_graph=True)
        return grad(h.sum(), point)[0]

    with recompute_intermediates():
        assert torch.allclose(third(SinhByNumPy.apply), third(torch.sinh))


class KeptBeforeNumPy(Function):
    """forward hands x to NumPy without detach, which torch allows where nothing is recorded."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x.cosh())
        return torch.from_numpy(np.sinh(x.numpy()))

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0]


class KeptAfterNumPy(KeptBeforeNumPy):
    @staticmethod
    def forward(ctx, x):
        y = torch.from_numpy(np.sinh(np.asarray(x)))
        ctx.save_for_backward(x.cosh())
        return y


@pytest.mark.parametrize("function", [KeptBeforeNumPy, KeptAfterNumPy])
def test_numpy_beside_what_is_kept_is_neither_the_cause_nor_in_the_way(function):
    found = diagnose(function.apply, x())
    assert found.cause.code == "intermediate_saved", found
    with recompute_intermediates():
        (number,) = second(lambda x: function.apply(x) ** 2, x())
    assert torch.allclose(number, second(lambda x: x.sinh() ** 2, x())[0])
    with pytest.raises(RuntimeError, match=r"Can't call numpy\(\)"):
        x().numpy()


def test_a_second_function_is_the_cause_in_the_error_too():
    half = of_inputs(torch.cosh, lambda g, x: g * x.sinh() / 2, "Half")
    f = of_inputs(torch.sinh, lambda g, x: g * half.apply(x)).apply
    said = r"Half returns a\s+wrong\s+gradient\s+for"
    with detect_intermediates(), pytest.raises(SecondDerivativeError, match=said):
        second(lambda x: f(x) ** 2, x())


def test_a_lost_part_that_is_small_beside_the_others_is_not_lost_by_recompute():
    """Beside x³ it is nothing, but it is all that there is of a gradient by y."""

    def plain(x, y):
        return x**3 + 1e-7 * x * y

    f = of_inputs(plain, lambda g, x, y: (g * (3 * x**2 + 1e-7 * y.detach()), g * 1e-7 * x)).apply

    def by_y(f, x, y):
        (g,) = grad(f(x, y).sum(), x, create_graph=True)
        return grad(g.sum(), y, allow_unused=True)[0]

    assert by_y(f, x(), x(2.0, 3.0)) is None
    with recompute_intermediates():
        assert torch.allclose(by_y(f, x(), x(2.0, 3.0)), torch.full((2,), 1e-7).double())
    with detect_intermediates(), pytest.raises(SecondDerivativeError):
        by_y(f, x(), x(2.0, 3.0))


@pytest.mark.filterwarnings("ignore:Using backward")
@pytest.mark.parametrize("remedy", [detect_intermediates, recompute_intermediates])
def test_a_penalty_beyond_a_reentrant_checkpoint_raises(remedy):
    point = x()
    with remedy():
        y = checkpoint(torch.sinh, point, use_reentrant=True).sum()
        y.backward(create_graph=True)
        with pytest.raises(SecondDerivativeError, match="CheckpointFunction"):
            grad((point.grad**2).sum(), point)
    point.grad = None
