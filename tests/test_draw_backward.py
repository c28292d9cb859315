"""`draw_backward`: the numbers that a backward pass brings back, as torch handed them on."""

import re

import pytest
import torch
from made_functions import function, save_x
from made_functions import x as leaf
from torch.autograd import grad
from torch.autograd.function import once_differentiable

from double_backward import draw, draw_backward
from double_backward.graphs.flow import number_words
from lessons_src.saving_intermediates import Sinh
from lessons_src.untracked_backward import CubeBackward


def number(value):
    return torch.tensor(value, dtype=torch.float64, requires_grad=True)


def rows(drawing):
    return [line.strip() for line in str(drawing).splitlines()]


def test_the_two_products_come_back_along_the_arrows():
    g, x = number(5.0), number(2.0)
    grad_x = CubeBackward.apply(g, x)
    h = torch.tensor(7.0, dtype=torch.float64)
    drawing = draw_backward(grad_x=grad_x, g=g, x=x, grad_outputs=h)
    for row in ("grad_x: 7", "g: 84", "x: 420"):  # h, h·3x², h·6xg
        assert f"comes back to {row}" in rows(drawing)
    assert "sends back to g: 84" in rows(drawing) and "sends back to x: 420" in rows(drawing)
    arrows = re.findall(r'^n\d+ -> n\d+ \[label=" ↑ (.*) "\]$', drawing.dot, re.MULTILINE)
    assert arrows == ["84", "420"]
    for box in ("grad_x ()\\n↑ 7", "g ()\\nleaf, saved by\\nCubeBackward\\n↑ 84"):
        assert f'label="{box}' in drawing.dot
    shown = " ".join(re.findall(r">\s*([^<>]+?)\s*</text>", drawing.svg))  # lines of a legend wrap
    assert "↑ 420" in shown and "↑ number: comes back" in shown


def test_nothing_reaches_the_extra_outputs_in_the_first_pass_and_something_in_the_second():
    x = leaf(0.0, 1.0)
    out, expx, expnegx = Sinh.apply(x)
    first = draw_backward(out=out, x=x, expx=expx, expnegx=expnegx)
    assert "comes back to expx: 0" in rows(first)
    assert "nothing comes back to expx and expnegx" in rows(first)
    assert "comes back to x: 1, 1.543" in rows(first)
    (grad_x,) = grad(out.sum(), x, create_graph=True)
    second = draw_backward(grad_x=grad_x, x=x, out=out, expx=expx, expnegx=expnegx)
    for row in ("out: 0", "expx: 0.5", "expnegx: 0.5", "x: 0, 1.175"):
        assert f"comes back to {row}" in rows(second)
    assert "nothing comes back to out" in rows(second)
    assert "nothing comes back to expx" not in str(second)


def test_the_pass_ends_where_autograd_says():
    x, y = leaf(0.3, 0.5), leaf(1.0, 2.0)
    out = (x.sin() * y).exp()
    seed = torch.tensor([1.0, -3.0], dtype=torch.float64)
    flow = rows(draw_backward(out=out, x=x, y=y, grad_outputs=seed))
    for name, back in zip("xy", grad(out, (x, y), seed), strict=True):
        assert f"comes back to {name}: {number_words(back)}" in flow


def test_ones_are_sent_where_no_seed_is_given():
    x = leaf(2.0, 3.0)
    drawing = draw_backward(out=x**2, x=x)
    assert "comes back to x: 4, 6" in rows(drawing)
    assert "the pass" not in str(drawing).lower()  # it went everywhere, and nothing stopped it


Once = function(save_x, once_differentiable(lambda ctx, g: g * 3 * ctx.saved_tensors[0] ** 2))


def test_a_guard_on_a_branch_that_leads_nowhere_is_not_visited():
    """F(x)² + x²: the second pass gets to x by x² alone, and the guard never raises."""
    x = number(2.0)
    out = Once.apply(x) ** 2 + x**2
    (grad_x,) = grad(out, x, create_graph=True)
    flow = rows(draw_backward(grad_x=grad_x, x=x, out=out))
    assert "grad_x leads back to x, but not through the guard" in flow
    assert "The pass went past the guard of once_differentiable: nothing is raised" in flow
    assert "comes back to x: 2" in flow  # 30x⁴ + 2 = 482 is right


def test_a_pass_that_raises_is_drawn_and_says_so():
    x = number(2.0)
    freed = x.sin()
    freed.backward()
    drawing = draw_backward(freed=freed, x=x)
    assert drawing.svg
    told = rows(drawing)[-2:]  # the two sentences; what the pass did not reach goes without saying
    assert told[0].startswith("The pass stopped: Trying to backward through the graph a second")
    assert told[1].startswith("What SinBackward0 saved cannot be read")


def test_nothing_is_left_behind():
    x = leaf(2.0, 3.0)
    out = x**2
    plain = str(draw(out=out, x=x))
    assert str(draw_backward(out=out, x=x)) != plain
    assert x.grad is None
    assert str(draw(out=out, x=x)) == plain
    assert torch.equal(grad(out.sum(), x)[0], 2 * x)  # retained


def test_a_drawing_without_a_pass_shows_no_number():
    x = leaf(2.0)
    assert "↑" not in draw(out=x**2, x=x).dot and "back" not in str(draw(out=x**2, x=x))


def test_what_cannot_be_drawn_is_answered_with_a_sentence():
    assert "Nothing to draw" in str(draw_backward(out=torch.ones(2)))
    assert "Nothing to draw" in str(draw_backward())
    assert "Call draw_backward with names" in str(draw_backward(leaf(1.0)))
    x = leaf(1.0)
    assert "The pass stopped" in str(draw_backward(out=x.detach(), x=x))
    assert "The pass stopped" in str(draw_backward(out=x * 2, x=x, grad_outputs=torch.ones(3)))


def test_a_graph_too_large_for_a_picture_is_not_run():
    x = out = leaf(1.0)
    for _ in range(200):
        out = out.sin()
    assert "comes back" not in str(draw_backward(out=out, x=x))


@pytest.mark.parametrize(
    "grad_, words",
    [
        (None, "0"),
        (torch.tensor(0.5), "0.5"),
        (torch.tensor([2.0, 2.0, 2.0, 2.0]), "2"),
        (torch.tensor([1.0, 2.0, 3.0]), "1, 2, 3"),
        (torch.tensor([1.0, 2.0, 3.0, 4.0]), "1, 2, 3, ..."),
        (torch.tensor([[-0.0, 1.23456]]), "0, 1.235"),
        (torch.tensor(1 + 2j), "1+2j"),
        (torch.ones(0), "an empty tensor"),
        (torch.ones(2, 3, device="meta"), "a tensor (2, 3)"),
        (torch.ones(2).to_sparse(), "a tensor (2,)"),
    ],
)
def test_a_gradient_is_written_as_short_as_it_can_be(grad_, words):
    assert number_words(grad_) == words


def test_an_output_that_its_own_ctx_holds_is_told_as_a_circle():
    def on_ctx(ctx, x):
        ctx.result = torch.exp(x)
        return ctx.result

    def saved(ctx, x):
        result = torch.exp(x)
        ctx.save_for_backward(result)
        ctx.x = x
        return result

    x = leaf(1.0)
    assert rows(draw(out=function(on_ctx, None).apply(x), x=x))[-1] == (
        "a circle: on_ctx holds out on ctx, and out holds on_ctx as its grad_fn"
    )
    assert "circle" not in str(draw(out=function(saved, None).apply(x), x=x))
