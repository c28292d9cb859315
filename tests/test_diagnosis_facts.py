"""What diagnose says of every known mistake and of its cure: one row each, verdict and codes."""

import pickle

import numpy as np
import pytest
import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from double_backward import diagnose
from double_backward import diagnosis as diagnosis_room
from lessons_src.saving_inputs import Square
from lessons_src.saving_intermediates import Sinh, sinh
from lessons_src.saving_outputs import Exp
from lessons_src.untracked_backward import Cube, CubeBackward, CubeNumPy, ExpIntegral
from lessons_src.what_not_to_do import SinhBad

# Codes that a row does not have to repeat: they say how it was checked, or are true of most rows.
ASIDE = {
    "another_point",
    "seed_fixed",
    "computes_in_float32",
    "computes_in_16_bits",
}


def x(*values):
    return torch.tensor(values or (0.5, 1.0), dtype=torch.float64, requires_grad=True)


def function(forward, backward):
    """A Function class from its two methods, named after the forward."""
    body = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type(forward.__name__, (Function,), body)


def save_x(ctx, x):
    ctx.save_for_backward(x)
    return x**3


def cubic(backward):
    """x**3 with a given backward(grad_out, x)."""
    return function(save_x, lambda ctx, g: backward(g, *ctx.saved_tensors)).apply


# Intermediates.


def sinh_saved(ctx, x):
    e, n = torch.exp(x), torch.exp(-x)
    ctx.save_for_backward(e, n)
    return (e - n) / 2


def saved_backward(ctx, g):
    e, n = ctx.saved_tensors
    return g * (e + n) / 2


SinhSaved = function(sinh_saved, saved_backward)


# Inputs and outputs on ctx.


def square_on_ctx(ctx, x):
    ctx.x = x
    return x**2


SquareOnCtx = function(square_on_ctx, lambda ctx, g: 2 * g * ctx.x)


def exp_on_ctx(ctx, x):
    ctx.y = torch.exp(x)
    return ctx.y


ExpOnCtx = function(exp_on_ctx, lambda ctx, g: g * ctx.y)


def exp_detached(ctx, x):
    y = torch.exp(x)
    ctx.y = y.detach()
    return y


ExpDetached = function(exp_detached, lambda ctx, g: g * ctx.y)


def exp_view(ctx, x):
    y = torch.exp(x)
    ctx.y = y.view(-1)
    return y


ExpView = function(exp_view, lambda ctx, g: g * ctx.y.view(g.shape))


# A copy under the input's name.


def copying(copy, save_first=False):
    def log_of_copy(ctx, x):
        if save_first:
            ctx.save_for_backward(x)
        x = copy(x)
        if not save_first:
            ctx.save_for_backward(x)
        return torch.log(x)

    return function(log_of_copy, lambda ctx, g: g / copy(ctx.saved_tensors[0])).apply


# Gradients by a step of another size, in both Functions.

Doubling = function(lambda ctx, x: x * 1, lambda ctx, g: 2 * g)
Reversal = function(lambda ctx, x: x * 1, lambda ctx, g: -g)


def half_cube(ctx, g, x):
    ctx.save_for_backward(g, x)
    return g * 1.5 * x**2


def half_of_half_cube(ctx, h):
    g, x = ctx.saved_tensors
    return h * 1.5 * x**2, h * g * 1.5 * x


HalfCube = function(half_cube, half_of_half_cube)


# Extra outputs.


def exp_clone(ctx, x):
    y = torch.exp(x)
    ctx.save_for_backward(y)
    return y.clone()


ExpClone = function(exp_clone, lambda ctx, g: g * ctx.saved_tensors[0])


def sinh_marked(ctx, x):
    e, n = torch.exp(x), torch.exp(-x)
    ctx.save_for_backward(e, n)
    ctx.mark_non_differentiable(e, n)
    return (e - n) / 2, e, n


SinhMarked = function(sinh_marked, lambda ctx, g, _e, _n: saved_backward(ctx, g))
SinhForgotten = function(Sinh.forward, lambda ctx, g, _e, _n: saved_backward(ctx, g))


# Guards, and a second Function with a path missing.


Once = function(save_x, once_differentiable(lambda ctx, g: g * 3 * ctx.saved_tensors[0] ** 2))


def cube_with(second_backward):
    second = function(CubeBackward.forward, second_backward)

    def first_backward(ctx, g):
        return second.apply(g, *ctx.saved_tensors)

    return function(Cube.forward, first_backward).apply


def without_grad_out(ctx, gg):
    g, x = ctx.saved_tensors
    return None, gg * g * 6 * x


def without_x(ctx, gg):
    _, x = ctx.saved_tensors
    return gg * 3 * x**2, None


def wrong_second_formula(ctx, gg):
    g, x = ctx.saved_tensors
    return gg * 3 * x**2, gg * g * 5 * x


# None.


def product(ctx, a, b):
    ctx.save_for_backward(a, b)
    return a * b


ProductNone = function(product, lambda ctx, g: (g * ctx.saved_tensors[1], None))
Product = function(product, lambda ctx, g: (g * ctx.saved_tensors[1], g * ctx.saved_tensors[0]))


def sine_cosine(ctx, x):
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x)
    return torch.sin(x), torch.cos(x)


def sine_cosine_backward(ctx, g, h):
    (x,) = ctx.saved_tensors
    return g * torch.cos(x) - h * torch.sin(x)


def sine_cosine_checked(ctx, g, h):
    (x,) = ctx.saved_tensors
    return (0 if g is None else g * torch.cos(x)) - (0 if h is None else h * torch.sin(x))


NoneUnchecked = function(sine_cosine, sine_cosine_backward)
NoneChecked = function(sine_cosine, sine_cosine_checked)


# In place.


def mutating(ctx, g):
    return g.mul_(3).mul_(ctx.saved_tensors[0] ** 2)


Mutating = function(save_x, mutating)


def overwriting(ctx, g):
    (x,) = ctx.saved_tensors
    with torch.no_grad():
        factor = x.mul_(2) * 1
    return g * factor * 1.5 * x


Overwriting = function(save_x, overwriting)


def exp_in_place(mark):
    def exp_(ctx, x):
        if mark:
            ctx.mark_dirty(x)
        x.exp_()
        ctx.save_for_backward(x)
        return x

    return function(exp_, lambda ctx, g: g * ctx.saved_tensors[0]).apply


def edits_its_own(g, x):
    """Right, and then it writes into what autograd keeps for the next backward."""
    half = g * x
    whole = half * x
    half += whole
    return 3 * whole


# What torch refuses, and what is not linear or not exact.


def by_number(backward):
    """2 x, with a given backward(ctx, grad_out) for x and for the number."""
    f = function(lambda ctx, x, n: n * x, backward)
    return lambda x: f.apply(x, 2)


def transposed_view(g, x):
    return (g.t().view(-1) * 3 * x.t().reshape(-1) ** 2).view(3, 2).t()


def with_inner_graph(ctx, x):
    with torch.enable_grad():
        ctx.x = x.detach().requires_grad_()
        ctx.y = ctx.x**3
    return ctx.y.detach()


UsedUp = function(with_inner_graph, lambda ctx, g: torch.autograd.grad(ctx.y, ctx.x, g)[0])


def checkpointed(g, x):
    with torch.enable_grad():
        alias = x.view_as(x)
        value = checkpoint(torch.sin, alias, use_reentrant=True)
        return torch.autograd.grad(value, alias, g)[0]


def stopped_early(ctx, x):
    """sqrt(x) by four steps of Newton's method."""
    y = torch.ones_like(x)
    for _ in range(4):
        y = (y + x / y) / 2
    ctx.save_for_backward(y)
    return y


StoppedEarly = function(stopped_early, lambda ctx, g: g / (2 * ctx.saved_tensors[0]))


# At special points, and in other layouts.


def root_backward(g, x):
    return g * 3 * x.abs().sqrt() ** 4


def exp_counted(ctx, x):
    ctx.calls, y = 0, torch.exp(x)
    ctx.save_for_backward(y)
    return y


def count(ctx, g):
    ctx.calls += 1
    return g * ctx.saved_tensors[0] * ctx.calls


def answer_as_before(ctx, g):
    (x,) = ctx.saved_tensors
    if not hasattr(ctx, "answer"):
        ctx.answer = g * 3 * x**2
    return ctx.answer


counts_its_calls = function(exp_counted, count).apply
keeps_its_answer = function(save_x, answer_as_before).apply


def refuse_negative(g, x):
    if (g < 0).any():
        raise ValueError("negative")
    return g * 3 * x**2


def flattening(method):
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return (getattr(g, method)(-1) * 3 * x.reshape(-1) ** 2).view(x.shape)

    return function(save_x, backward).apply


def nested(alias):
    def inner_forward(ctx, x, g):
        ctx.save_for_backward(x, g)
        return g * 3 * x**2

    def inner_backward(ctx, gg):
        x, g = ctx.saved_tensors
        with torch.enable_grad():
            if alias:
                x, g = x.view_as(x), g.view_as(g)
            value = g * 3 * x**2
        wanted = [t for t in (x, g) if t.requires_grad]
        grads = iter(torch.autograd.grad(value, wanted, gg, create_graph=True))
        return tuple(next(grads) if t.requires_grad else None for t in (x, g))

    inner = function(inner_forward, inner_backward)
    return cubic(lambda g, x: inner.apply(x, g))


def recompute(g, x):
    with torch.enable_grad():
        alias = x.view_as(x)
        value = alias**3
        (slope,) = torch.autograd.grad(value.sum(), alias, create_graph=torch.is_grad_enabled())
    return g * slope


@torch.library.custom_op("diagnosis_test::cube", mutates_args=())
def cube_op(x: torch.Tensor) -> torch.Tensor:
    return x**3


@torch.library.custom_op("diagnosis_test::cube_backward", mutates_args=())
def cube_backward_op(g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return 3 * g * x**2


cube_op.register_autograd(
    lambda ctx, g: cube_backward_op(g, ctx.saved_tensors[0]),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


class SinhFunc(Function):
    """SinhBad in the form that torch.func takes."""

    @staticmethod
    def forward(x):
        return torch.sinh(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.e, ctx.n = torch.exp(inputs[0]), torch.exp(-inputs[0])

    @staticmethod
    def backward(ctx, g):
        return g * (ctx.e + ctx.n) / 2


def under_autocast(cast_inputs):
    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=cast_inputs)
    def forward(ctx, x):
        return save_x(ctx, x)

    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx, g):
        return g * 3 * ctx.saved_tensors[0] ** 2

    f = function(forward, backward)

    def call(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return f.apply(x)

    return call


def sum_of_rows(x):
    """No version of torch so far has its second derivative; `cdist` has one since 2.14."""
    return torch.nn.functional.embedding_bag(torch.tensor([[0, 1]]), x, mode="sum")


matrix = torch.linspace(0.3, 1.2, 6, dtype=torch.float64).view(2, 3).requires_grad_()
pair = (x(0.5, 1.0), x(0.8, -0.3))

ROWS = {
    # The lessons.
    "Square": (Square.apply, x(), "supported", ""),
    "Exp": (Exp.apply, x(), "supported", ""),
    "sinh": (sinh, x(), "supported", ""),
    "Sinh": (Sinh.apply, x(), "supported", ""),
    "SinhBad": (SinhBad.apply, x(), "silently_wrong", "intermediate_on_ctx"),
    "SinhBad at 0": (SinhBad.apply, x(0.0), "silently_wrong", "intermediate_on_ctx"),
    "Cube": (Cube.apply, x(), "supported", ""),
    "CubeNumPy": (CubeNumPy.apply, x(), "supported", ""),
    "ExpIntegral": (ExpIntegral.apply, x(), "supported", ""),
    # What is saved.
    "SinhBad in a formula": (
        lambda x: SinhBad.apply(x) ** 2,
        x(),
        "silently_wrong",
        "intermediate_on_ctx",
    ),
    "SinhSaved": (SinhSaved.apply, x(), "silently_wrong", "intermediate_saved"),
    "input on ctx": (SquareOnCtx.apply, x(), "supported", "input_on_ctx"),
    "output on ctx": (ExpOnCtx.apply, x(), "supported", "output_on_ctx reference_cycle"),
    "output detached on ctx": (ExpDetached.apply, x(), "silently_wrong", "intermediate_on_ctx"),
    "view of the output": (
        ExpView.apply,
        x(),
        "silently_wrong",
        "intermediate_on_ctx memory_leak",
    ),
    "clamp saved": (copying(lambda x: x.clamp(1e-6)), x(), "silently_wrong", "input_copy_saved"),
    "clone saved": (copying(torch.clone), x(), "silently_wrong", "input_copy_saved"),
    "clamp outside": (copying(lambda x: x.clamp(1e-6), True), x(), "supported", ""),
    "contiguous copy saved": (
        copying(torch.Tensor.contiguous),
        matrix,
        "layout_dependent",
        "noncontiguous_input",
    ),
    "contiguous outside": (copying(torch.Tensor.contiguous, True), matrix, "supported", ""),
    "clone of the output saved": (ExpClone.apply, x(), "silently_wrong", "intermediate_saved"),
    "extra outputs marked": (
        lambda x: SinhMarked.apply(x)[0],
        x(),
        "silently_wrong",
        "intermediate_saved",
    ),
    "extra outputs' gradients ignored": (
        lambda x: SinhForgotten.apply(x)[0],
        x(),
        "silently_wrong",
        "extra_output_gradient_ignored",
    ),
    "extra outputs' gradients ignored, all outputs": (
        SinhForgotten.apply,
        x(),
        "silently_wrong",
        "first_derivative_differs extra_output_gradient_ignored",
    ),
    # What backward does.
    "x.detach()": (
        cubic(lambda g, x: g * 3 * x.detach() ** 2),
        x(),
        "silently_wrong",
        "untracked_backward",
    ),
    "x.data": (
        cubic(lambda g, x: g * 3 * x.data**2),
        x(),
        "silently_wrong",
        "untracked_backward",
    ),
    ".item()": (
        cubic(lambda g, x: g * 3 * x.item() ** 2),
        x(0.5),
        "silently_wrong",
        "untracked_backward",
    ),
    "torch.tensor": (
        cubic(lambda g, x: g * 3 * torch.tensor(x.tolist(), dtype=x.dtype) ** 2),
        x(),
        "silently_wrong",
        "untracked_backward",
    ),
    "grad_out.detach()": (
        cubic(lambda g, x: g.detach() * 3 * x**2),
        x(),
        "silently_wrong",
        "grad_out_path_cut",
    ),
    "result.detach()": (
        cubic(lambda g, x: (g * 3 * x**2).detach()),
        x(),
        "silently_wrong",
        "grad_out_path_cut untracked_backward",
    ),
    "all NumPy": (
        cubic(lambda g, x: torch.from_numpy(g.detach().numpy() * 3 * x.detach().numpy() ** 2)),
        x(),
        "silently_wrong",
        "grad_out_path_cut untracked_backward",
    ),
    "x.numpy()": (
        cubic(lambda g, x: g * torch.from_numpy(3 * np.asarray(x) ** 2)),
        x(),
        "raises",
        "numpy_in_backward",
    ),
    "once_differentiable": (Once.apply, x(), "once_differentiable", "once_differentiable"),
    "once_differentiable in a formula": (
        lambda x: Once.apply(x**2),
        x(),
        "once_differentiable",
        "once_differentiable",
    ),
    "custom_op": (cube_op, x(), "raises", "no_derivative_formula"),
    "hardsigmoid": (torch.nn.functional.hardsigmoid, x(), "raises", "no_derivative_formula"),
    "embedding": (sum_of_rows, matrix, "raises", "no_derivative_formula"),
    # None and in place.
    "returns None": (ProductNone.apply, pair, "surrogate_gradient", "returns_none"),
    "both gradients": (Product.apply, pair, "supported", ""),
    "None checked": (NoneChecked.apply, x(), "supported", ""),
    "edits grad_out": (Mutating.apply, x(), "first_derivative_wrong", "mutates_grad_out"),
    "edits a saved tensor": (
        Overwriting.apply,
        x(),
        "first_derivative_wrong",
        "mutates_saved untracked_backward",
    ),
    "in place, marked": (exp_in_place(True), x(), "supported", ""),
    "in place, not marked": (
        exp_in_place(False),
        x(),
        "silently_wrong",
        "in_place_without_mark_dirty",
    ),
    "edits its own": (cubic(edits_its_own), x(), "raises", "saved_tensor_edited"),
    # What torch refuses, and what is not linear or not exact.
    "None not checked": (
        lambda x: NoneUnchecked.apply(x)[0],
        x(),
        "raises",
        "gradient_can_be_none",
    ),
    "gradient of a number": (
        by_number(lambda ctx, g: (2 * g, g)),
        x(),
        "raises",
        "gradient_for_no_tensor",
    ),
    "number as a gradient": (
        by_number(lambda ctx, g: (2.0, None)),
        x(),
        "raises",
        "gradient_of_another_kind",
    ),
    "view of what is transposed": (cubic(transposed_view), matrix, "raises", "view_in_backward"),
    "reentrant checkpoint in backward": (
        cubic(checkpointed),
        x(),
        "raises",
        "checkpoint_refuses_grad first_derivative_differs only_by_backward",
    ),
    "graph made in forward": (
        UsedUp.apply,
        x(),
        "silently_wrong",
        "backward_works_once intermediate_on_ctx grad_out_path_cut",
    ),
    "clips the gradient": (
        cubic(lambda g, x: (g * 3 * x**2).clamp(-10, 10)),
        x(),
        "first_derivative_wrong",
        "backward_not_linear",
    ),
    "solver stopped early": (
        StoppedEarly.apply,
        x(0.05, 0.1),
        "not_checked",
        "inexact_first_derivative",
    ),
    # dtypes, special points, layouts, second Functions.
    "computes in float32": (lambda x: Cube.apply(x.float()).double(), x(), "supported", ""),
    "relu at 0": (torch.relu, x(0.0, 1e-7, 1.0), "supported", "elements_not_checked"),
    "norm at 0": (torch.norm, x(0.0, 0.0), "not_finite", "nan_in_second"),
    "root at 0 in backward": (cubic(root_backward), x(0.0, 0.5), "not_finite", "nan_in_second"),
    "view of grad_out": (flattening("view"), matrix, "layout_dependent", "grad_out_layout"),
    "view of grad_out, transposed": (
        lambda m: flattening("view")(m).t() * torch.ones(3, 2),
        matrix,
        "layout_dependent",
        "grad_out_layout",
    ),
    "reshape of grad_out, transposed": (
        lambda m: flattening("reshape")(m).t() * torch.ones(3, 2),
        matrix,
        "supported",
        "",
    ),
    "counts its calls on ctx": (
        counts_its_calls,
        x(),
        "silently_wrong",
        "backward_not_repeatable",
    ),
    "keeps its first answer on ctx": (
        keeps_its_answer,
        x(),
        "silently_wrong",
        "backward_not_repeatable",
    ),
    "refuses a negative grad_out": (
        cubic(refuse_negative),
        x(-0.5, 1.0),
        "raises",
        "sign_of_grad_out",
    ),
    # What is not a number is another answer, too.
    "nan for a negative grad_out": (
        cubic(lambda g, x: torch.exp(g.log() + (3 * x**2).log())),
        x(),
        "not_finite",
        "sign_of_grad_out nan_in_first",
    ),
    "nan for a grad_out that is not contiguous": (
        cubic(lambda g, m: g * 3 * m**2 if g.is_contiguous() else g * torch.nan * m),
        matrix,
        "layout_dependent",
        "grad_out_layout",
    ),
    "nan for a large grad_out": (
        cubic(lambda g, x: torch.where(g.abs() > 100, torch.nan, g) * 3 * x**2),
        x(),
        "first_derivative_wrong",
        "backward_not_linear",
    ),
    "view of a grad_out that is transposed": (
        lambda m: flattening("view")(m).t() * torch.ones(3, 2),
        matrix,
        "layout_dependent",
        "grad_out_layout",
    ),
    "reshape of grad_out": (flattening("reshape"), matrix, "supported", ""),
    "gradients handed over in units of their own": (
        lambda x: cubic(lambda g, x: g * 1.5 * x**2)(Doubling.apply(x)),
        x(),
        "silently_wrong",
        "gradients_by_convention",
    ),
    "the same, of which the second knows": (
        lambda x: cubic(HalfCube.apply)(Doubling.apply(x)),
        x(),
        "supported",
        "",
    ),
    "the same, and then turned round": (
        lambda x: Reversal.apply(cubic(HalfCube.apply)(Doubling.apply(x))),
        x(),
        "surrogate_gradient",
        "first_derivative_differs",
    ),
    "autograd.grad in backward": (nested(False), x(), "silently_wrong", "path_counted_twice"),
    "autograd.grad with aliases": (nested(True), x(), "supported", ""),
    "recomputed by autograd": (cubic(recompute), x(), "supported", ""),
    "second Function, no gradient for grad_out": (
        cube_with(without_grad_out),
        x(),
        "silently_wrong",
        "second_function_gradient",
    ),
    "second Function, no gradient for x": (
        cube_with(without_x),
        x(),
        "silently_wrong",
        "second_function_gradient",
    ),
    "second Function, wrong formula": (
        cube_with(wrong_second_formula),
        x(),
        "silently_wrong",
        "second_function_gradient",
    ),
    # setup_context and autocast.
    "SinhFunc": (SinhFunc.apply, x(), "silently_wrong", "intermediate_on_ctx"),
    "custom_fwd, no cast": (under_autocast(torch.float64), x(), "supported", ""),
    "custom_fwd, cast": (
        under_autocast(torch.bfloat16),
        x().float().detach().requires_grad_(),
        "silently_wrong",
        "input_copy_saved",
    ),
}


def test_a_solver_is_right_to_the_tolerance_that_is_passed():
    assert diagnose(StoppedEarly.apply, x(0.05, 0.1), rtol=0.02).ok


@pytest.mark.parametrize("name", ROWS)
def test_verdict_and_codes(name):
    fn, inputs, verdict, codes = ROWS[name]
    diagnosis = diagnose(fn, *(inputs if isinstance(inputs, tuple) else (inputs,)))
    found = {finding.code for finding in diagnosis.findings} - ASIDE
    assert (diagnosis.verdict, found) == (verdict, set(codes.split())), str(diagnosis)
    errors = [finding for finding in diagnosis.findings if finding.severity == "error"]
    assert diagnosis.ok == (verdict == "supported") == (not errors)


@pytest.mark.parametrize("name", list(ROWS)[::9])
def test_what_rules_get_is_plain_data(name, monkeypatch):
    """It can be written down and read again, which no callable, tensor or graph can."""
    got = []
    concluded = diagnosis_room.concluded
    monkeypatch.setattr(diagnosis_room, "concluded", lambda e: got.append(e) or concluded(e))
    fn, inputs, _, _ = ROWS[name]
    diagnose(fn, *(inputs if isinstance(inputs, tuple) else (inputs,)))
    (evidence,) = got
    text = pickle.dumps(evidence)
    assert b"torch._utils" not in text and concluded(pickle.loads(text)) == concluded(evidence)
