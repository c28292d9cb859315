"""diagnose, where a Function is right as it was given and wrong as a model calls it."""

import pytest
import torch
from test_diagnosis_facts import function, save_x

from double_backward import diagnose
from double_backward.diagnosis.target import Target


def x(*values):
    return torch.tensor(values or (0.5, 1.2), dtype=torch.float64, requires_grad=True)


def save_both(ctx, a, b):
    ctx.save_for_backward(a, b)
    return a * b**2


def product(backward):
    """a * b**2 with a given backward(ctx, grad_out, a, b)."""
    return function(save_both, lambda ctx, g: backward(ctx, g, *ctx.saved_tensors)).apply


def right(ctx, g, a, b):
    return g * b**2, g * 2 * a * b


def detached_unless_all_are_asked_for(ctx, g, a, b):
    if not all(ctx.needs_input_grad):
        a, b = a.detach(), b.detach()
    return g * b**2, g * 2 * a * b


def asks_for_the_wrong_one(ctx, g, a, b):
    return g * b**2, g * 2 * a * b if ctx.needs_input_grad[0] else None


def by_autograd(ctx, g, a, b):
    with torch.enable_grad():
        y = a * b**2
    return torch.autograd.grad(y, (a, b), g, create_graph=True)


def by_autograd_of_aliases(ctx, g, a, b):
    wanted = [i for i in (0, 1) if ctx.needs_input_grad[i]]
    with torch.enable_grad():
        inputs = [t.view_as(t) for t in (a, b)]
        y = inputs[0] * inputs[1] ** 2
    grads = torch.autograd.grad(y, [inputs[i] for i in wanted], g, create_graph=True)
    return tuple(grads[wanted.index(i)] if i in wanted else None for i in (0, 1))


def needs_both(ctx, g, a, b):
    if not all(ctx.needs_input_grad):
        raise ValueError("both, please")
    return g * b**2, g * 2 * a * b


def slope(change):
    """x**3, whose backward is a Function with a backward of its own, in which a sign is lost."""

    def save(ctx, g, x):
        ctx.save_for_backward(g, x)
        return g * 3 * x**2

    inner = function(save, lambda ctx, h: change(h, *ctx.saved_tensors)).apply
    return function(save_x, lambda ctx, g: inner(g, *ctx.saved_tensors)).apply


def cut_where(cut):
    """x**3, whose backward loses the graph of grad_out for some layouts."""

    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return (g.detach().contiguous() if cut(g) else g) * 3 * x**2

    return function(save_x, backward).apply


matrix = torch.arange(1.0, 7.0, dtype=torch.float64).view(2, 3).requires_grad_()
a, b = x(), x(0.7, -0.4)
empty = torch.zeros(0, dtype=torch.float64, requires_grad=True)
ROWS = {  # fn, inputs, verdict, codes
    "right": (product(right), (a, b), "supported", ""),
    "right, the first one empty": (
        lambda a, b: product(right)(b, b) + a.sum(),
        (empty, b),
        "supported",
        "",
    ),
    "frozen, detached": (
        product(detached_unless_all_are_asked_for),
        (a, b),
        "silently_wrong",
        "input_frozen untracked_backward",
    ),
    "frozen, None": (
        product(asks_for_the_wrong_one),
        (a, b),
        "surrogate_gradient",
        "input_frozen returns_none",
    ),
    "frozen, an error": (product(needs_both), (a, b), "supported", "raises_if_frozen"),
    "one made from another": (
        product(by_autograd),
        (a, b),
        "first_derivative_wrong",
        "inputs_of_one_another",
    ),
    "aliases of both": (product(by_autograd_of_aliases), (a, b), "supported", ""),
    "sign of grad_out": (
        slope(lambda h, g, x: (h * 3 * x**2, h * g.abs() * 6 * x)),
        (a,),
        "silently_wrong",
        "second_function_gradient sign_of_grad_out",
    ),
    "sign in the second backward": (
        slope(lambda h, g, x: (h * 3 * x**2, h.abs() * g * 6 * x)),
        (a,),
        "silently_wrong",
        "second_function_gradient sign_of_grad_out",
    ),
    "signs kept": (
        slope(lambda h, g, x: (h * 3 * x**2, h * g * 6 * x)),
        (a,),
        "supported",
        "",
    ),
    "cut where transposed": (
        cut_where(lambda g: g.stride()[0] == 1),
        (matrix,),
        "layout_dependent",
        "grad_out_layout",
    ),
    "cut where it has gaps": (
        cut_where(lambda g: g.stride()[0] == 2),
        (a,),
        "layout_dependent",
        "grad_out_layout",
    ),
    "cut where expanded": (
        cut_where(lambda g: g.stride()[0] == 0),
        (a,),
        "layout_dependent",
        "grad_out_layout",
    ),
    "cut nowhere": (cut_where(lambda g: False), (matrix,), "supported", ""),
}


@pytest.mark.parametrize("name", ROWS)
def test_verdict_and_codes(name):
    fn, inputs, verdict, codes = ROWS[name]
    found = diagnose(fn, *inputs)
    said = {finding.code for finding in found.findings}
    assert (found.verdict, said) == (verdict, set(codes.split())), str(found)


def test_the_formula_that_is_printed_has_the_sign_that_was_tried():
    found = diagnose(ROWS["sign of grad_out"][0], a)
    assert "w = -1.5 - torch.arange(z.numel()).cos().view_as(z), d = 1.5 +" in found.recipe
    w = -1.5 - torch.arange(a.numel()).cos()
    d = 1.5 + (2 * torch.arange(a.numel())).sin()
    y = ROWS["sign of grad_out"][0](a)
    (g,) = torch.autograd.grad((w * y).sum(), a, create_graph=True)
    (h,) = torch.autograd.grad((d * g).sum(), a)
    row = found.settings["alone"]
    assert row.got == pytest.approx(h[0].item()) and row.expected == pytest.approx(-h[0].item())


def test_no_formula_is_printed_for_inputs_made_from_one_another():
    assert diagnose(ROWS["one made from another"][0], a, b).recipe == ""


def test_a_missing_gradient_that_is_0_just_here():
    def sum_of_squares(ctx, x, k):
        ctx.save_for_backward(x)
        return x**2 + k**2

    fn = function(sum_of_squares, lambda ctx, g: (g * 2 * ctx.saved_tensors[0], None)).apply
    found = diagnose(fn, x(), x(0.0, 0.0))
    assert found.verdict == "surrogate_gradient"
    assert {"returns_none", "another_point"} <= {finding.code for finding in found.findings}


def test_a_target_with_a_frozen_input():
    target = Target.of(lambda a, b: a * b, (a, b)).at([a.detach(), b.detach() + 1])
    frozen = target.frozen(1)
    call = frozen.start()
    assert frozen.names == ("a",) and len(call.t) == 1
    assert call.ys[0].tolist() == (a * (b + 1)).tolist()
    (grad,) = torch.autograd.grad(call.ys[0].sum(), call.t)
    assert grad.tolist() == (b + 1).tolist()


def test_a_target_whose_inputs_are_made_from_the_first():
    target = Target.of(lambda a, b: a * b, (a, b)).linked()
    call = target.start()
    assert call.ys[0].tolist() == (a * b).tolist()
    by_a, by_b = torch.autograd.grad(call.ys[0].sum(), call.t)
    assert torch.allclose(by_a, b + a.sum() / 2)
    assert torch.equal(by_b, a)
