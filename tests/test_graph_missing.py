"""Which paths are missing is measured: what is drawn red was seen, and nothing else is."""

import math

import numpy as np
import pytest
import torch
from made_functions import function, of_inputs
from torch.autograd import Function, grad
from torch.autograd.function import once_differentiable

from double_backward import draw, draw_backward, tangents
from double_backward.graphs.outline import OPEN_PART, RIGHT_PART, WRONG_PART, verdict
from double_backward.graphs.sketch import MOST_DRAWN, Sketch
from lessons_src.saving_inputs import Square
from lessons_src.saving_intermediates import sinh
from lessons_src.saving_outputs import Exp
from lessons_src.what_not_to_do import SinhBad

BAD = SinhBad.apply


def leaf(dtype=torch.float64):
    return torch.tensor([0.5, 1.0], dtype=dtype, requires_grad=True)


def sketch_of(fn, x=None, **others):
    x = leaf() if x is None else x
    out = fn(x)
    (grad_x,) = grad(out.sum(), x, create_graph=True)
    return Sketch({"grad_x": grad_x, "x": x, "out": out, **others})


def missing(sketch):
    """(what is kept, which operation takes it for a constant) for each path."""
    return [
        (found.kept.name, sketch.title(found.to) if found.to else found.gradient)
        for found in sketch.findings.missing
    ]


def both(*ends):
    return [(name, end) for end in ends for name in ("expx", "expnegx")]


WRONG_IN = {
    "alone": (BAD, both("grad_x")),
    "a graph after it": (lambda x: BAD(x) ** 2, both("MulBackward0 #2")),
    "a graph before it": (lambda x: BAD(x**2), both("MulBackward0")),
    "beside another term": (lambda x: BAD(x) + x**2, both("AddBackward0 #2")),
    "twice": (lambda x: BAD(BAD(x)), both("grad_x", "grad_x")),
    "twice, and a graph after it": (
        lambda x: BAD(BAD(x)) ** 2,
        both("MulBackward0 #2", "MulBackward0 #3"),
    ),
    "after a Function that is right": (lambda x: BAD(Exp.apply(x)), both("MulBackward0")),
    "in a sum": (lambda x: BAD(x.tanh()).sum() ** 2, both("MulBackward0 #2")),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("fn, paths", WRONG_IN.values(), ids=WRONG_IN)
def test_a_missing_path_ends_where_it_would_have_gone(fn, paths, dtype):
    sketch = sketch_of(fn, leaf(dtype))
    assert sorted(missing(sketch)) == sorted(paths)
    words, colour = verdict(sketch)
    assert colour == WRONG_PART
    assert words.endswith(f"but {len(paths)} paths are missing") or "cut off" in words


def saves_together(ctx, x):
    ctx.save_for_backward(x > 0.7, torch.exp(x), torch.exp(-x))
    return torch.sinh(x) * (x > 0.7)


def mask_times_mean(ctx, g):
    mask, expx, expnegx = ctx.saved_tensors
    return g * mask * (expx + expnegx) / 2


SavedTogether = function(saves_together, mask_times_mean)


def test_of_several_saved_tensors_each_is_asked():
    sketch = sketch_of(lambda x: SavedTogether.apply(x) ** 2)
    assert [kept for kept, _ in missing(sketch)] == ["", ""] and not sketch.findings.unasked


def test_where_all_inputs_are_0_nothing_is_taken_for_a_mask():
    x = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    sketch = sketch_of(lambda x: BAD(x) ** 2, x)
    assert len(missing(sketch)) == 2 and sketch.findings.constant == []


def masked(ctx, x):
    ctx.save_for_backward((x > 0.7).to(x))
    ctx.shape, ctx.two, ctx.grid = x.shape, 2.0, np.ones(2)
    return x * (x > 0.7)


def times(make):
    """x times what is made of it, and saved."""

    def forward(ctx, x):
        factor = make(x)
        ctx.save_for_backward(factor)
        return x * factor

    return function(forward, lambda ctx, g: g * ctx.saved_tensors[0]).apply


def keeps_what_it_does_not_use(ctx, x):
    ctx.mean, ctx.square = x.mean().item(), x * x
    ctx.save_for_backward(x)
    return x**3


def shifted(ctx, x):
    """Keeps the largest element, on which what backward returns does not depend."""
    ctx.largest = x.max()
    ctx.save_for_backward(x)
    return torch.exp(x - ctx.largest) * torch.exp(ctx.largest)


def shifted_back(ctx, g):
    (x,) = ctx.saved_tensors
    return g * torch.exp(x - ctx.largest) * torch.exp(ctx.largest)


def keeps_sign(ctx, x):
    ctx.sign = x.sign()
    return x.abs()


Masked = function(masked, lambda ctx, g: g * ctx.saved_tensors[0])
MeanForLater = function(
    keeps_what_it_does_not_use, lambda ctx, g: g * 3 * ctx.saved_tensors[0] ** 2
)
Sign = function(keeps_sign, lambda ctx, g: g * ctx.sign)
RIGHT_IN = {
    "an input": Square.apply,
    "an output": Exp.apply,
    "extra outputs": sinh,
    "a mask and constants": Masked.apply,
    "a random mask": times(lambda x: torch.bernoulli(torch.full_like(x, 0.5))),
    "noise": times(torch.randn_like),
    "what is kept and not used": MeanForLater.apply,
    "what cancels": function(shifted, shifted_back).apply,
    "a sign": Sign.apply,
}


@pytest.mark.parametrize("fn", RIGHT_IN.values(), ids=RIGHT_IN)
def test_what_is_right_has_no_red_path(fn):
    sketch = sketch_of(lambda x: fn(x) ** 2)
    assert missing(sketch) == []
    assert verdict(sketch) == (
        "grad_x leads back to x (a picture checks paths, not numbers)",
        RIGHT_PART,
    )


@pytest.mark.parametrize("function, jump", [(Masked, 0.7), (Sign, 0.0)])
def test_a_mask_at_its_jump_is_a_mask(function, jump):
    x = torch.tensor([jump, 1.0], dtype=torch.float64, requires_grad=True)
    assert verdict(sketch_of(lambda x: function.apply(x) ** 2, x))[1] == RIGHT_PART


Detached = of_inputs(lambda x: torch.sinh(x), lambda g, x: g * torch.cosh(x.detach()), "Detached")


def keeping_cosh(keep, read, name):
    """sinh, whose backward reads what it kept of cosh."""

    def forward(ctx, x):
        ctx.cosh = keep(x)
        return torch.sinh(x)

    return function(forward, lambda ctx, g: g * read(ctx.cosh), name)


CoshArray = keeping_cosh(lambda x: np.cosh(x.detach().numpy()), torch.from_numpy, "CoshArray")
DetachedKept = keeping_cosh(torch.cosh, torch.detach, "DetachedKept")


@pytest.mark.parametrize(
    "function, row",
    [
        (DetachedKept, "    no path from cosh of DetachedKept: taken for a constant"),
        (CoshArray, "    no path from cosh of CoshArray: taken for a constant"),
        (Detached, "    no path from x of Detached: taken for a constant"),
    ],
)
def test_what_can_have_no_path_is_told_and_not_drawn(function, row):
    sketch = sketch_of(lambda x: function.apply(x) ** 2)
    assert verdict(sketch) == ("grad_x leads back to x, but a path is missing", WRONG_PART)
    drawing = draw(**sketch.tensors)
    assert row in str(drawing).splitlines() and "color=red3 " not in drawing.dot
    assert (
        verdict(sketch_of(lambda x: function.apply(x) ** 2, leaf(torch.float32)))[1] == WRONG_PART
    )


DetachedForOne = of_inputs(
    lambda x, w: x * w**3, lambda g, x, w: (g * w**3, g * x * 3 * w.detach() ** 2), "DetachedForOne"
)


def test_a_path_is_missed_by_the_gradient_that_lacks_it():
    x, w = leaf(), leaf()
    out = DetachedForOne.apply(x, w) ** 2
    grad_x, grad_w = grad(out.sum(), (x, w), create_graph=True)
    sketch = Sketch({"grad_x": grad_x, "grad_w": grad_w, "x": x, "w": w, "out": out})
    assert missing(sketch) == [("", "DetachedForOne")]
    words = "grad_x leads back to x; grad_w leads back to w, but a path is missing"
    assert verdict(sketch) == (words, WRONG_PART)


def scaled(ctx, x, factor):
    """Has an argument that is no tensor: what it was, nothing tells."""
    ctx.cosh = torch.cosh(factor * x)
    return torch.sinh(factor * x)


Scaled = function(scaled, lambda ctx, g: (g * ctx.cosh, None))


class Refuses(SinhBad):
    calls = 0

    @staticmethod
    def forward(ctx, x):
        Refuses.calls += 1
        if Refuses.calls > 1:
            raise ValueError("once only")
        return SinhBad.forward(ctx, x)


@pytest.mark.parametrize(
    "fn", [lambda x: Scaled.apply(x, 2.0) ** 2, lambda x: Refuses.apply(x) ** 2]
)
def test_what_cannot_be_asked_is_claimed_neither_way(fn):
    Refuses.calls = 0
    sketch = sketch_of(fn)
    assert sketch.findings.unasked and missing(sketch) == []
    assert verdict(sketch) == ("grad_x leads back to x", OPEN_PART)


def test_with_some_unasked_there_are_at_least_so_many():
    sketch = sketch_of(lambda x: BAD(x) ** 2 + Scaled.apply(x, 2.0) ** 2)
    assert verdict(sketch)[0] == "grad_x leads back to x, but at least 2 paths are missing"


def test_another_backward_than_the_reader_s_is_not_taken_for_it():
    """The gradient of the first element alone, which nothing in the call says."""
    x = leaf()
    out = BAD(x) ** 2
    (grad_x,) = grad(out[0], x, create_graph=True)
    sketch = Sketch({"grad_x": grad_x, "x": x, "out": out})
    assert missing(sketch) == [] and verdict(sketch)[1] == OPEN_PART


def test_a_grad_out_with_a_graph_is_the_one_that_was_used():
    x, grad_out = leaf(), torch.tensor([2.0, 3.0], dtype=torch.float64, requires_grad=True)
    out = BAD(x)
    (grad_x,) = grad(out, x, grad_out, create_graph=True)
    sketch = Sketch({"grad_x": grad_x, "x": x, "out": out, "grad_out": grad_out})
    assert missing(sketch) == both("MulBackward0")


def test_the_third_order_is_asked_too():
    x = leaf()
    out = BAD(x) ** 3
    (grad_x,) = grad(out.sum(), x, create_graph=True)
    (grad2_x,) = grad(grad_x.sum(), x, create_graph=True)
    sketch = Sketch({"grad2_x": grad2_x, "grad_x": grad_x, "x": x, "out": out})
    assert {found.gradient for found in sketch.findings.missing} == {"grad_x", "grad2_x"}


def test_a_guarded_function_is_not_asked():
    Once = function(SinhBad.forward, once_differentiable(SinhBad.backward))
    sketch = sketch_of(lambda x: Once.apply(x) ** 2 + x**2)
    assert missing(sketch) == []
    assert verdict(sketch) == ("grad_x leads back to x, but not through the guard", WRONG_PART)


class Writes(Function):
    """Writes into all that it can reach, prints, draws numbers and counts."""

    buffer = torch.zeros(2, dtype=torch.float64)
    calls: list[str] = []

    @staticmethod
    def forward(ctx, x):
        print("forward")
        Writes.calls.append("forward")
        torch.rand(3)
        Writes.buffer.add_(1)
        ctx.cosh, ctx.seen = torch.cosh(x), []
        ctx.save_for_backward(x)
        return torch.sinh(x)

    @staticmethod
    def backward(ctx, grad_out):
        print("backward")
        Writes.calls.append("backward")
        ctx.seen.append(1)
        ctx.count = 1
        (x,) = ctx.saved_tensors
        grad_x = grad_out * ctx.cosh
        with torch.no_grad():
            x.mul_(2)
            ctx.cosh.mul_(3)
        return grad_x


def test_nothing_of_the_reader_s_is_written(capsys):
    x = leaf()
    y = Writes.apply(x)
    out = (y**2).sum()
    hooks = []
    for tensor in (x, y):
        tensor.register_hook(hooks.append)
    out.grad_fn.register_hook(lambda *grads: hooks.append(grads))
    ctx = y.grad_fn
    grad_x = 2 * math.pi * x  # of another pass: this one is not run by torch at all
    calls, buffer, cosh = list(Writes.calls), Writes.buffer.clone(), ctx.cosh.clone()
    versions, random = (x._version, ctx.cosh._version), torch.get_rng_state()
    capsys.readouterr()
    sketch = Sketch({"grad_x": grad_x, "x": x, "out": out})
    assert verdict(sketch)[1] == OPEN_PART  # it was asked, and gave another gradient
    assert capsys.readouterr() == ("", "")
    assert Writes.calls == calls and torch.equal(Writes.buffer, buffer)
    assert torch.equal(ctx.cosh, cosh) and torch.equal(x, leaf())
    assert (x._version, ctx.cosh._version) == versions
    assert ctx.seen == [] and not hasattr(ctx, "count")
    assert torch.equal(torch.get_rng_state(), random)
    assert x.grad is None and hooks == []


def test_a_large_graph_is_not_run_again(monkeypatch):
    monkeypatch.setattr("double_backward.graphs.sketch.find", None)  # would raise when called
    x = leaf()
    out = BAD(x)
    for _ in range(MOST_DRAWN):
        out = out.sin()
    (grad_x,) = grad(out.sum(), x, create_graph=True)
    assert "No picture" in str(draw(grad_x=grad_x, x=x, out=out))


def test_inputs_that_broadcast_and_several_results():
    def forward(ctx, a, b):
        ctx.product = a * b
        ctx.save_for_backward(a, b)
        return torch.exp(ctx.product), torch.sin(ctx.product)

    def backward(ctx, grad_exp, grad_sin):
        a, b = ctx.saved_tensors
        g = grad_exp * torch.exp(ctx.product) + grad_sin * torch.cos(ctx.product)
        return g * b, g * a

    a, b = leaf(), torch.tensor([[0.3], [0.4]], dtype=torch.float64, requires_grad=True)
    out = function(forward, backward).apply(a, b)
    grad_a, grad_b = grad(sum(o.sum() for o in out), (a, b), create_graph=True)
    sketch = Sketch({"grad_a": grad_a, "grad_b": grad_b, "a": a, "b": b, "out": out[0]})
    assert sketch.findings.unasked and not missing(sketch)  # not the gradient of this one result
    named = {"grad_a": grad_a, "grad_b": grad_b, "a": a, "b": b, "out[0]": out[0], "out[1]": out[1]}
    found = Sketch(named)
    assert {kept for kept, _ in missing(found)} == {"product"}
    assert {m.gradient for m in found.findings.missing} == {"grad_a", "grad_b"}


# What the input lacks by a missing path.


def with_plain(function, of):
    """Some formula with a Function in it, and with its like in plain torch."""
    return lambda x: of(function, x), lambda x: of(torch.sinh, x)


ADD_UP = {
    "alone": with_plain(BAD, lambda f, x: f(x)),
    "a graph after it": with_plain(BAD, lambda f, x: f(x) ** 2),
    "beside another term": with_plain(BAD, lambda f, x: f(x) + x**2),
    "after what is saved": with_plain(BAD, lambda f, x: f(x.exp()) ** 2),
    "in a sum": with_plain(BAD, lambda f, x: f(x).sum() ** 2),
    "saved together": (
        lambda x: SavedTogether.apply(x) ** 2,
        lambda x: (torch.sinh(x) * (x > 0.7)) ** 2,
    ),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("fn, plain", ADD_UP.values(), ids=ADD_UP)
def test_what_comes_back_and_what_is_lacked_is_what_should_come_back(fn, plain, dtype):
    x = leaf(dtype)
    sketch = sketch_of(fn, x)
    lacked = [found.share for found in sketch.findings.missing]
    assert len(lacked) == 2 and all(found.by == "x" for found in sketch.findings.missing)
    grad_x = sketch.tensors["grad_x"]
    back = torch.zeros_like(x)
    if grad_x.requires_grad:
        (back,) = grad(grad_x.sum(), x, retain_graph=True)
    (first,) = grad(plain(x).sum(), x, create_graph=True)
    (right,) = grad(first.sum(), x)
    assert torch.allclose(back + sum(lacked), right, rtol=1e-12 if dtype is torch.float64 else 1e-5)


def test_what_is_lacked_goes_with_what_the_pass_starts_with():
    x = leaf()
    out = BAD(x) ** 2
    (grad_x,) = grad(out.sum(), x, create_graph=True)
    ones, twice = (
        Sketch({"grad_x": grad_x, "x": x, "out": out}, start) for start in (None, 2 * leaf())
    )
    pairs = zip(ones.findings.missing, twice.findings.missing, strict=True)
    assert all(torch.allclose(two.share, 2 * leaf() * one.share) for one, two in pairs)
    words = str(draw_backward(grad_x=grad_x, x=x, out=out, grad_outputs=2 * leaf()))
    assert "comes back to x: 2.543, 9.524" in words
    assert "taken for a constant; x lacks 0.8591, 6.389" in words


def keeps_detached(ctx, x):
    ctx.exp = x.detach().exp()
    return x.exp()


def keeps_half_detached(ctx, x):
    ctx.square = x * x.detach()
    return x**3 / 3


def keeps_noise(ctx, x):
    ctx.noisy = x * torch.rand_like(x)
    return ctx.noisy * x / 2


NOT_KNOWN = {
    "what comes from no input that is known": lambda x: BAD(2 * x) ** 2,
    "what forward detaches": function(keeps_detached, lambda ctx, g: g * ctx.exp).apply,
    "what forward detaches in part": function(
        keeps_half_detached, lambda ctx, g: g * ctx.square
    ).apply,
    "what is drawn at random": function(keeps_noise, lambda ctx, g: g * ctx.noisy).apply,
    "what leaves torch": CoshArray.apply,
}


@pytest.mark.parametrize("fn", NOT_KNOWN.values(), ids=NOT_KNOWN)
def test_a_number_that_is_not_known_is_not_told(fn):
    sketch = sketch_of(fn)
    assert sketch.findings.missing
    assert all(found.share is None for found in sketch.findings.missing)
    assert "lacks" not in str(draw(**sketch.tensors))


def test_without_tangents_paths_are_found_and_carry_no_number(monkeypatch):
    monkeypatch.setattr(tangents, "available", lambda: False)
    sketch = sketch_of(lambda x: BAD(x) ** 2)
    assert sorted(missing(sketch)) == sorted(both("MulBackward0 #2"))
    assert all(found.share is None for found in sketch.findings.missing)
