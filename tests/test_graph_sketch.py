"""What a sketch finds in a graph: boxes, passes, what leads where. No picture, no outline."""

import pytest
import torch
from made_functions import function
from made_functions import x as leaf
from torch.autograd import grad

from double_backward.graphs.sketch import (
    Sketch,
    base,
    is_gradient,
    is_input,
    stem,
)
from lessons_src.saving_outputs import Exp
from lessons_src.untracked_backward import Cube


def twice(out, x):
    (first,) = grad(out.sum(), x, create_graph=True)
    (second,) = grad(first.sum(), x, create_graph=True)
    return first, second


def passes(**named):
    """The pass of the operation that made each tensor."""
    sketch = Sketch(named)
    return {name: sketch.phase.get(sketch.graph.node_of(t)) for name, t in named.items()}


@pytest.mark.parametrize(
    "name, of, gradient, given",
    [
        ("x", "x", False, True),
        ("out", "out", False, False),
        ("out[1]", "out", False, False),
        ("grad_x", "x", True, False),
        ("grad_x[0]", "x", True, False),
        ("grad2_x", "x", True, False),
        ("grad_grad_x", "x", True, False),
        ("grad_out", "out", False, False),
        ("gradient", "ient", True, False),
        ("my_grad", "my_grad", False, True),
    ],
)
def test_what_a_name_says(name, of, gradient, given):
    assert stem(name) == of
    assert (is_gradient(name), is_input(name)) == (gradient, given)
    assert base("a[0][1]") == "a"


# Passes.


def test_a_gradient_that_leads_to_another_one_is_of_a_later_pass_whatever_its_name():
    x = leaf().clone()
    out = Cube.apply(x)
    (first,) = grad(out.sum(), x, create_graph=True)
    (penalty,) = grad((first**2).sum(), x, create_graph=True)
    found = passes(grad_b=penalty, grad_a=first, out=out, x=x)
    assert found == {"grad_b": 2, "grad_a": 1, "out": 0, "x": 0}
    assert passes(grad_b=penalty, grad_a=first, grad_same=first, out=out)["grad_b"] == 2


def test_gradients_of_one_pass_are_of_one_level():
    x, y = leaf().clone(), leaf().clone()
    out = Cube.apply(x) * Cube.apply(y)
    by_x, by_y = grad(out.sum(), (x, y), create_graph=True)
    found = passes(grad_x=by_x, grad_y=by_y, out=out, x=x, y=y)
    assert (found["grad_x"], found["grad_y"]) == (1, 1)
    again = passes(grad_x=by_x, grad_other=by_x, out=out, x=x)
    assert (again["grad_x"], again["grad_other"]) == (1, 1)


@pytest.mark.parametrize("name, level", [("grad_x", 1), ("grad2_x", 2), ("grad_grad_grad_x", 3)])
def test_without_the_passes_between_the_name_says_the_order(name, level):
    x = leaf().clone()
    out = x**4
    first, second = twice(out, x)
    assert passes(**{name: second, "out": out, "x": x})[name] == level


# What leads where.


def led(**named):
    sketch = Sketch(named)
    return sketch.targets, sketch.cut_off


def test_a_gradient_should_lead_to_what_it_is_a_gradient_of():
    x, y = leaf().clone(), leaf().clone()
    out = x**2 * y**2
    by_x, by_y = grad(out.sum(), (x, y), create_graph=True)
    targets, cut_off = led(grad_x=by_x, grad_y=by_y.detach(), x=x, y=y, out=out)
    assert targets == {"grad_x": ["x"], "out": ["x", "y"]}
    assert cut_off == {"grad_y": ["y"]}
    # Where nothing has its name, any input.
    targets, cut_off = led(grad_a=by_x, grad_b=by_y.detach(), x=x, y=y)
    assert targets == {"grad_a": ["x", "y"]} and cut_off == {"grad_b": ["x", "y"]}


def test_parts_of_a_list_are_known_by_the_list():
    x, y = leaf().clone(), leaf().clone()
    (by_x,) = grad((x**2).sum(), x, create_graph=True)
    targets, _ = led(**{"grad_xs[0]": by_x, "xs[0]": x, "xs[1]": y, "z": leaf().clone()})
    assert targets["grad_xs[0]"] == ["xs[0]"]


def test_a_result_by_another_name_should_lead_to_what_is_named_after_it():
    x, z = leaf(), leaf()
    assert led(y=x * 2, x=x)[0] == {"y": ["x"]}
    assert led(y=x * 2, z=z) == ({}, {"y": ["z"]})
    assert led(x=x, y=x * 2) == ({}, {})  # the other way round it is no result
    assert led(y=x * 2, m=torch.ones(2))[1] == {"m": ["y"]}  # a number has no graph to lead to


def keeps_mask(ctx, x, mask):
    ctx.save_for_backward(mask)
    return x * mask


def test_what_an_operation_uses_is_a_constant_on_purpose():
    x, mask, other = leaf(), torch.ones(2, dtype=torch.float64), torch.ones(2)
    assert led(out=x * mask, x=x, mask=mask)[1] == {}
    assert led(out=x * mask, x=x, other=other)[1] == {"other": ["x"]}
    assert led(out=x * 2, x=x, grad_out=other)[1] == {}
    kept = other.clone()
    assert led(out=function(keeps_mask, None).apply(x, kept), x=x, kept=kept)[1] == {}
    assert led(out=Exp.apply(x), x=x)[0] == {"out": ["x"]}  # saved, and no constant
