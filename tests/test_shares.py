"""shares: what a second derivative lacks, split by what is kept; the shares add up to it."""

import json

import numpy as np
import pytest
import torch
from made_functions import function, of_inputs, x
from test_check import measured
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from double_backward import diagnose, tangents
from double_backward.check import Outcome
from double_backward.shares import moves, taken, taken_elsewhere
from lessons_src.saving_intermediates import Sinh
from lessons_src.what_not_to_do import SinhBad

BAD = SinhBad.apply


def missing_from(found):
    """What the first wrong number lacks."""
    row = next(r for r in found.settings.values() if r.outcome is Outcome.WRONG and r.where)
    return row.expected - row.got


def flat(shares):
    return {title: share for kept in shares.values() for title, share in kept.items()}


def keeping(keep, value, backward, name="F"):
    """keep(ctx, *inputs), what forward returns, backward(ctx, *grad_outs)."""

    def forward(ctx, *inputs):
        keep(ctx, *inputs)
        return value(*inputs)

    return function(forward, backward, name).apply


def saves(*made):
    return lambda ctx, *inputs: ctx.save_for_backward(*(each(*inputs) for each in made))


def halves(ctx, g):
    up, down = ctx.saved_tensors
    return g * (up + down) / 2


def up(x):
    return torch.exp(x)


def down(x):
    return torch.exp(-x)


def beside(ctx, x):
    ctx.save_for_backward(x, x.exp())
    ctx.cosh, ctx.unused = x.cosh(), x**2


def of_beside(ctx, g):  # of exp x · sinh x + x³
    x, exp = ctx.saved_tensors
    return g * (exp * x.sinh() + exp * ctx.cosh + 3 * x**2)


def one_of_the_other(ctx, x):
    ctx.exp = x.exp()
    ctx.cosh = (ctx.exp + 1 / ctx.exp) / 2


def of_both(ctx, g):  # exp x + sinh x
    return g * (ctx.exp + ctx.cosh)


def together(ctx, x):
    ctx.parts = [x > 0.7, {"up": x.exp()}]
    ctx.down = (-x).exp()


def of_together(ctx, g):
    return g * (ctx.parts[1]["up"] + ctx.down) / 2


def product(ctx, a, b):
    ctx.save_for_backward(a, b)
    ctx.exp, ctx.product = (a * b).exp(), a * b


def of_product(ctx, g):  # exp(ab) + (ab)²
    a, b = ctx.saved_tensors
    inner = g * (ctx.exp + 2 * ctx.product)
    return inner * b, inner * a


def two(ctx, x):
    ctx.sin, ctx.cos = x.sin(), x.cos()


def of_two(ctx, g, h):
    return g * ctx.cos - h * ctx.sin


def sinh_ignoring(marked):
    """Returns the exponentials and saves them, and backward ignores their gradients."""

    def forward(ctx, x):
        e, n = x.exp(), (-x).exp()
        if marked:
            ctx.mark_non_differentiable(e, n)
        ctx.save_for_backward(e, n)
        return (e - n) / 2, e, n

    f = function(forward, lambda ctx, g, *_: halves(ctx, g), "Ignoring").apply
    return lambda x: f(x)[0] ** 2


def norm(ctx, x):
    ctx.save_for_backward(x)
    ctx.r, ctx.unit = x.norm(), x / x.norm()


def of_norm(ctx, g):  # |x|² / 2 + |x|
    return g * (ctx.r * ctx.unit + ctx.unit)


def matrices(ctx, a, b):
    ctx.inverse = torch.linalg.inv(a)
    ctx.save_for_backward(ctx.inverse @ b, b)


def of_matrices(ctx, g):  # the sum of a⁻¹ b
    solved, _ = ctx.saved_tensors
    back = ctx.inverse.mT @ g
    return -back @ solved.mT, back


def detaches(ctx, g):  # of x⁴ + exp x
    (x,) = ctx.saved_tensors
    return g * (4 * x.detach() ** 3 + ctx.exp)


def detaches_once(ctx, g):
    (x,) = ctx.saved_tensors
    return g * (4 * x**2 * x.detach() + ctx.exp)


def x_and_exp(ctx, x):
    ctx.save_for_backward(x)
    ctx.exp = x.exp()


class InSetup(Function):
    @staticmethod
    def forward(x):
        return torch.sinh(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        (x,) = inputs
        ctx.save_for_backward(x.exp(), output)
        ctx.down = (-x).exp()

    @staticmethod
    def backward(ctx, g):
        exp, _ = ctx.saved_tensors
        return g * (exp + ctx.down) / 2


def times(ctx, x, w):
    ctx.save_for_backward(x, w)
    ctx.squares, ctx.sum = x**2, x.sum()


def of_times(ctx, g):  # w x³ / 3 + w (sum of x), where w is one number
    x, w = ctx.saved_tensors
    back_to_w = g * (x * ctx.squares / 3 + ctx.sum)
    return g * w * ctx.squares + (g * w).sum(), back_to_w.sum().reshape(w.shape)


def complex_halves(ctx, g):
    a, b = ctx.saved_tensors
    return g * ((a + b) / 2).conj()


def single(*values):
    return torch.tensor(values or (0.5, 1.0), requires_grad=True)


def only_float32(fn):
    def called(x):
        assert x.dtype is torch.float32
        return fn(x)

    return called


Two = keeping(two, lambda x: (x.sin(), x.cos()), of_two)
Norm = keeping(norm, lambda x: x.norm() ** 2 / 2 + x.norm(), of_norm)
Saved = keeping(saves(up, down), torch.sinh, halves, "Saved")
Beside = keeping(beside, lambda x: x.exp() * x.sinh() + x**3, of_beside, "Beside")
A = torch.tensor([[2.0, 0.3], [-0.4, 1.5]], dtype=torch.float64, requires_grad=True)
Doubled = of_inputs(
    lambda g, x: g * 3 * x**2, lambda h, g, x: (h * 3 * x**2, h * g * 3 * x), "Doubled"
)


def by_a_second_function(ctx, g):  # of x³ + exp x
    return Doubled.apply(g, ctx.saved_tensors[0]) + g * ctx.exp


WRONG = {
    "with a square after it": (lambda x: BAD(x) ** 2, [x()]),
    "alone": (BAD, [x()]),
    "of a square": (lambda x: BAD(x**2), [x()]),
    "saved": (lambda x: Saved(x) ** 2, [x()]),
    "attributes beside saved tensors": (Beside, [x()]),
    "one made of the other": (
        keeping(one_of_the_other, lambda x: x.exp() + x.sinh(), of_both),
        [x()],
    ),
    "in a list": (keeping(together, torch.sinh, of_together), [x()]),
    "two inputs": (
        keeping(product, lambda a, b: (a * b).exp() + (a * b) ** 2, of_product),
        [x(), x(0.3, -0.7)],
    ),
    "two outputs": (Two, [x()]),
    "one of two outputs": (
        lambda x: Two(x)[1] ** 2,
        [x()],
    ),
    "extra outputs": (sinh_ignoring(marked=False), [x()]),
    "extra outputs that are marked": (sinh_ignoring(marked=True), [x()]),
    "a vector": (Norm, [x(0.3, -1, 2)]),
    "a vector, with something after it": (
        lambda x: Norm(x.sin()) ** 3,
        [x(0.3, -1, 2)],
    ),
    "matrices": (
        keeping(matrices, lambda a, b: torch.linalg.solve(a, b), of_matrices),
        [A, x(0.5, 1.2)[:, None].detach().requires_grad_()],
    ),
    "an input that is detached": (
        keeping(x_and_exp, lambda x: x**4 + x.exp(), detaches),
        [x()],
    ),
    "an input of which one use is detached": (
        keeping(x_and_exp, lambda x: x**4 + x.exp(), detaches_once),
        [x()],
    ),
    "an input, by a second Function": (
        keeping(x_and_exp, lambda x: x**3 + x.exp(), by_a_second_function),
        [x()],
    ),
    "setup_context": (lambda x: InSetup.apply(x) ** 2, [x()]),
    "broadcast": (
        keeping(times, lambda x, w: w * x**3 / 3 + w * x.sum(), of_times),
        [x(), x(0.7)],
    ),
    "one Function twice": (lambda x: BAD(BAD(x)) ** 2, [x()]),
    "two Functions": (lambda x: BAD(Saved(x)), [x()]),
    "complex numbers": (
        keeping(saves(up, down), torch.sinh, complex_halves),
        [torch.tensor([0.5 + 0.2j, 1.0 - 0.3j], dtype=torch.complex128, requires_grad=True)],
    ),
    "float32 only": (only_float32(lambda x: BAD(x) ** 2), [single()]),
}


@pytest.mark.parametrize("fn, inputs", WRONG.values(), ids=WRONG)
def test_the_shares_add_up_to_what_is_missing(fn, inputs):
    found = diagnose(fn, *inputs)
    shares = flat(found.shares)
    assert len(shares) > 1 and any(shares.values()), str(found)
    digits = 2e-3 if inputs[0].dtype is torch.float32 else 1e-7
    missing = missing_from(found)
    size = sum(map(abs, shares.values()))
    assert abs(sum(shares.values()) - missing) < digits * size, (found.shares, missing)
    assert "elsewhere" not in str(found)
    assert json.loads(json.dumps(found.to_dict()))["shares"] == found.shares


def test_what_sinhbad_misses():
    found = diagnose(lambda x: BAD(x) ** 2, x(0.5))
    e, n = np.exp(0.5), np.exp(-0.5)
    assert found.shares == {
        "SinhBad": {
            "ctx.expx": pytest.approx(np.sinh(0.5) * e, rel=1e-12),
            "ctx.expnegx": pytest.approx(-np.sinh(0.5) * n, rel=1e-12),
        }
    }
    line = "0.5431 = 0.8591 through ctx.expx - 0.3161 through ctx.expnegx"
    assert f"missing             {line}" in str(found).splitlines()


def test_of_two_things_of_which_one_is_made_from_the_other_each_has_what_backward_reads():
    fn, inputs = WRONG["one made of the other"]
    shares = flat(diagnose(fn, *inputs).shares)
    assert shares["ctx.exp"] == pytest.approx(np.exp(0.5), rel=1e-12)
    assert shares["ctx.cosh"] == pytest.approx(np.sinh(0.5), rel=1e-12)


def test_what_backward_does_not_use_and_what_autograd_follows_has_no_share():
    shares = flat(diagnose(*[WRONG["attributes beside saved tensors"][0], x()]).shares)
    assert shares["x"] == shares["ctx.unused"] == 0
    assert shares["ctx.cosh"] == pytest.approx(np.exp(0.5) * np.sinh(0.5), rel=1e-12)


def test_what_is_missing_elsewhere_is_told_beside_the_shares():
    left = {}

    def forward(ctx, x):
        ctx.up, ctx.down, left["square"] = x.exp(), (-x).exp(), x**2
        return torch.sinh(x) + x**3

    def backward(ctx, g):
        return g * ((ctx.up + ctx.down) / 2 + 3 * left["square"])

    of = function(forward, backward).apply
    found = diagnose(lambda x: of(x) ** 2, x(0.5))
    expected = 2 * 3 * (np.sinh(0.5) + 0.5**3)
    assert f" + {expected:.4f} elsewhere" in " ".join(str(found).split()), str(found)


NOTHING = {  # and why nothing is told
    "right": (lambda x: Sinh.apply(x)[0] ** 2, [x()]),
    "each call makes its Function": (
        lambda x: function(SinhBad.forward, SinhBad.backward).apply(x) ** 2,
        [x()],
    ),
    "one thing is kept": (
        keeping(saves(torch.cosh), torch.sinh, lambda ctx, g: g * ctx.saved_tensors[0]),
        [x()],
    ),
    "NumPy": (
        keeping(
            lambda ctx, x: vars(ctx).update(a=np.exp(x.detach().numpy()), b=torch.exp(-x)),
            torch.sinh,
            lambda ctx, g: g * (torch.from_numpy(ctx.a) + ctx.b) / 2,
        ),
        [x()],
    ),
}


@pytest.mark.parametrize("fn, inputs", NOTHING.values(), ids=NOTHING)
def test_nothing_is_told_that_was_not_measured(fn, inputs):
    found = diagnose(fn, *inputs)
    assert found.shares == {} and "through" not in str(found), str(found)


def in_state(state):
    def forward(ctx, x):
        ctx.exp, state["cosh"] = x.exp(), x.cosh()
        return x.exp() + x.sinh()

    return function(forward, lambda ctx, g: g * (ctx.exp + state["cosh"]), "InState")


def test_differences_say_the_same_of_what_backward_takes():
    def all_of(_):
        return True

    InState = in_state({})
    for cls in (SinhBad, InSetup, InState):
        exact = measured(cls.apply, x())
        rough = exact.by_differences()
        assert exact.exact and not rough.exact
        for ask in (lambda e, c: taken(e, c, all_of), taken_elsewhere):
            by_tangents, by_differences = ask(exact, cls), ask(rough, cls)
            assert torch.allclose(by_tangents.value, by_differences.value, rtol=1e-7, atol=1e-9)
            assert moves(by_tangents) is moves(by_differences)
        assert moves(taken(exact, cls, all_of)) is True
        assert moves(taken_elsewhere(exact, cls)) is (cls is InState)
        assert moves(taken(exact, cls, lambda where: where[0] == "nothing")) is False


def test_without_tangents_nothing_is_told(monkeypatch):
    monkeypatch.setattr(tangents, "available", lambda: False)
    found = diagnose(lambda x: BAD(x) ** 2, x())
    assert found.shares == {} and found.cause.code == "intermediate_on_ctx"


def test_a_guard_that_leaks_has_shares_too():
    Once = function(SinhBad.forward, once_differentiable(SinhBad.backward), "Once")
    found = diagnose(lambda x: Once.apply(x) + x**2, x())
    assert flat(found.shares)["ctx.expx"] == pytest.approx(np.exp(0.5) / 2, rel=1e-12)
