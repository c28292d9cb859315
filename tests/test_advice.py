"""The advice of each finding, followed to the letter: a program that has the fault gets it, and the
same program, changed as the finding says and in no other way, is right.

Each row has the words that were followed. Where they change, it has to be followed once more.
"""

import math
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from made_functions import cubic, function, message, of_inputs, save_x, x
from test_decision_table import of_unit
from test_diagnosis_facts import second_one_needed, two_outputs
from test_transforms import Detached, Forgetful, Knows, Scaled, logdet_is_wrong
from test_transforms import Right as WithJvp
from torch.autograd import Function, grad
from torch.autograd.function import once_differentiable
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

from double_backward import diagnose
from double_backward.diagnosis.conclusions.findings import ROWS as FINDINGS
from double_backward.diagnosis.preparation.prepare import NOT_CHECKED

Fn = Callable[..., Any]


class Pair(NamedTuple):
    """A fault, and what the advice makes of it.

    Attributes:
        code: of the finding.
        advice: words of its message: those that were followed.
        fault, followed: fn, and where it is asked, else at x().
        behind: the finding that stands before it, where another one is decisive.
        options: of `diagnose`, which the advice names.
    """

    code: str
    advice: str
    fault: tuple
    followed: tuple
    behind: str = ""
    options: dict[str, Any] = {}


a, b = x(0.5, 1.2), x(0.7, -0.4)
matrix = torch.linspace(0.3, 1.2, 6, dtype=torch.float64).view(2, 3).requires_grad_()
weight = x(1.5, 0.5)


def right(g, x):
    return g * 3 * x**2


def second_of_cube(g, x):
    """What CubeBackward computes, in torch."""
    return function(save_g_and_x, both_paths).apply(g, x)


def save_g_and_x(ctx, g, x):
    ctx.save_for_backward(g, x)
    return torch.from_numpy(g.detach().numpy() * 3 * x.detach().numpy() ** 2)


def both_paths(ctx, h):
    g, x = ctx.saved_tensors
    return h * 3 * x**2, h * g * 6 * x


def by_second(backward):
    """x**3, whose backward applies a second Function with this backward(ctx, grad_grad_x)."""
    second = function(save_g_and_x, backward, "CubeBackward")
    return cubic(lambda g, x: second.apply(g, x))


def keeping(forward, backward):
    return function(forward, backward).apply


# What more than a line says.


def kept_where_all_calls_share(ctx, x):
    kept_where_all_calls_share.x = x
    return x**3


def only_half(ctx, g):
    """backward uses up what forward left."""
    return g * 3 * ctx.left.pop() ** 2


def leaving(ctx, x):
    ctx.save_for_backward(x)
    ctx.left = [x]
    return x**3


def inner_graph(ctx, x):
    with torch.enable_grad():
        ctx.x = x.detach().requires_grad_()
        ctx.y = ctx.x.sinh()
    return ctx.y.detach()


def differentiate_inner(ctx, g):
    (found,) = grad(ctx.y, ctx.x, g, create_graph=True, retain_graph=True)
    return found


def save_and_sinh(ctx, x):
    ctx.save_for_backward(x)
    return x.sinh()


def forward_again(g, x):
    with torch.enable_grad():
        again = x.view_as(x).requires_grad_()
        return grad(again.sinh(), again, g, create_graph=True)[0]


Sinh = of_inputs(torch.sinh, forward_again)


def with_exponentials(save):
    def forward(ctx, x):
        up, down = x.exp(), (-x).exp()
        save(ctx, x, up, down)
        return (up - down) / 2

    return forward


def saved_exponentials(ctx, g):
    up, down = ctx.saved_tensors
    return g * (up + down) / 2


def exponentials_again(ctx, g):
    (x,) = ctx.saved_tensors
    return g * (x.exp() + (-x).exp()) / 2


def returning_exponentials(ctx, x):
    up, down = x.exp(), (-x).exp()
    ctx.save_for_backward(up, down)
    return (up - down) / 2, up, down


def ignoring_theirs(ctx, g, of_up, of_down):
    return saved_exponentials(ctx, g)


def with_theirs(ctx, g, of_up, of_down):
    up, down = ctx.saved_tensors
    return g * (up + down) / 2 + of_up * up - of_down * down


def first_of(forward, backward):
    f = function(forward, backward)
    return lambda x: f.apply(x)[0]


def marked(ctx, x):
    up, down = x.exp(), (-x).exp()
    ctx.save_for_backward(up, down)
    ctx.mark_non_differentiable(up, down)
    return (up - down) / 2, up, down


def clone_of_the_result(ctx, x):
    y = x.exp()
    ctx.save_for_backward(y)
    return y.clone()


def the_result(ctx, x):
    y = x.exp()
    ctx.save_for_backward(y)
    return y


def times_saved(ctx, g):
    return g * ctx.saved_tensors[0]


def in_numpy(ctx, x):
    ctx.save_for_backward(torch.from_numpy(3 * x.detach().numpy() ** 2))
    return x**3


def slope_elsewhere(ctx, x):
    slope_elsewhere.slope = 3 * x**2
    return x**3


def exp_of_detached(ctx, x, y):
    ctx.save_for_backward(x, y)
    return x * y.exp()


def no_part_for_y(ctx, g):
    _, y = ctx.saved_tensors
    return g * y.exp(), None


def both_parts(ctx, g):
    x, y = ctx.saved_tensors
    return g * y.exp(), g * x * y.exp()


def another_kernel(g, x):
    if x.dtype == torch.float32:
        return g * torch.from_numpy(3 * x.detach().numpy() ** 2)
    return right(g, x)


def product(backward):
    """a * b**2, whose backward(ctx, grad_out, a, b) is given."""

    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * b**2

    return function(forward, lambda ctx, g: backward(ctx, g, *ctx.saved_tensors)).apply


def of_product(g, a, b):
    return g * b**2, g * 2 * a * b


def inside_backward(alias):
    """autograd.grad in the backward of the backward."""

    def inner(ctx, x, g):
        ctx.save_for_backward(x, g)
        return right(g, x)

    def inner_backward(ctx, h):
        x, g = ctx.saved_tensors
        with torch.enable_grad():
            if alias:
                x, g = x.view_as(x).requires_grad_(), g.view_as(g).requires_grad_()
            value = right(g, x)
        return grad(value, (x, g), h, create_graph=True)

    second = function(inner, inner_backward)
    return cubic(lambda g, x: second.apply(x, g))


def by_autograd(alias):
    def backward(ctx, g, a, b):
        with torch.enable_grad():
            if alias:
                a, b = a.view_as(a), b.view_as(b)
            y = a * b**2
        return grad(y, (a, b), g, create_graph=True)

    return product(backward)


Doubling = function(lambda ctx, x: x * 1, lambda ctx, g: 2 * g)
Plain = function(lambda ctx, x: x * 1, lambda ctx, g: g)


def exp_in_place(mark):
    def forward(ctx, x):
        if mark:
            ctx.mark_dirty(x)
        x.exp_()
        ctx.save_for_backward(x)
        return x

    return keeping(forward, times_saved)


def exp_anew(ctx, x):
    y = x.exp()
    ctx.save_for_backward(y)
    return y


def attention(*qkv):
    return torch.nn.functional.scaled_dot_product_attention(*qkv)


def attention_in_math(*qkv):
    with sdpa_kernel(SDPBackend.MATH):
        return attention(*qkv)


qkv = [torch.linspace(-1, 1, 16, dtype=torch.float64).view(1, 1, 4, 4).sin() * k for k in (1, 2, 3)]
qkv = [t.requires_grad_() for t in qkv]


def numpy_itself(g, x):
    return g * torch.from_numpy(3 * np.asarray(x) ** 2)


def edits_its_own(g, x):
    half = g * x
    whole = half * x
    half += whole
    return 3 * whole + 0 * half


def makes_another(g, x):
    half = g * x
    whole = half * x
    half = half + whole
    return 3 * whole + 0 * half


def into_a_leaf(requires_grad):
    def backward(g, x):
        found = x.new_zeros(x.shape, requires_grad=requires_grad)
        found[:] = right(g, x)
        return found

    return cubic(backward)


def inside(**options):
    def backward(g, x):
        with torch.enable_grad():
            x = x.view_as(x).requires_grad_()
            square = x * x
            (slope,) = grad(square, x, g, **options)
        return 1.5 * slope * x + 0 * square

    return cubic(backward)


def checkpointed(reentrant):
    def backward(g, x):
        with torch.enable_grad():
            alias = x.view_as(x)
            y = checkpoint(torch.sin, alias, use_reentrant=reentrant)
            return grad(y, alias, g, create_graph=not reentrant)[0]

    return of_inputs(torch.sin, backward).apply


def asks_its_own_output(ctx, x):
    y = x.sinh()
    ctx.save_for_backward(x, y)
    return y


def output_by_input(ctx, g):
    x, y = ctx.saved_tensors
    return grad(y, x, g, create_graph=True)[0]


def sine_cosine(backward):
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x)
        return x.sin(), x.cos()

    return first_of(forward, lambda ctx, g, h: backward(g, h, *ctx.saved_tensors))


def without_test(g, h, x):
    return g * x.cos() - h * x.sin()


def with_test(g, h, x):
    return (0 if g is None else g * x.cos()) - (0 if h is None else h * x.sin())


class WithoutBackward(Function):
    @staticmethod
    def forward(ctx, x):
        return x**3


def flat(g, x, method):
    return (getattr(g, method)(-1) * 3 * x.reshape(-1) ** 2).view(x.shape)


def kernel(array, k):
    """Another library's, for which a tensor must be contiguous."""
    if not array.is_contiguous():
        raise RuntimeError("input must be contiguous")
    return torch.from_numpy(np.ascontiguousarray(array.detach().numpy() @ k))


def by_kernel(contiguous):
    """A product of a kernel, which is its own backward."""

    def backward(ctx, g):
        return Up.apply(g.contiguous() if contiguous else g, ctx.k.T), None

    def forward(ctx, x, k):
        ctx.k = k
        return kernel(x, k)

    Up = function(forward, backward)
    return lambda x: Up.apply(x, np.arange(12.0).reshape(3, 4))


def log_of(copy, save_first):
    def forward(ctx, x):
        if save_first:
            ctx.save_for_backward(x)
        y = copy(x)
        if not save_first:
            ctx.save_for_backward(y)
        return y.log()

    return keeping(forward, lambda ctx, g: g / copy(ctx.saved_tensors[0]))


def on_ctx(ctx, x):
    ctx.x = x
    return x**3


def result_on_ctx(ctx, x):
    ctx.y = x.exp()
    return ctx.y


def view_of_the_result_on_ctx(ctx, x):
    y = x.exp()
    ctx.y = y.view(-1)
    return y


def each_by_itself(ctx, g, h):
    (x,) = ctx.saved_tensors
    return (0 if g is None else right(g, x)) + (0 if h is None else h * 2 * x)


def needs_both(ctx, g, a, b):
    if not all(ctx.needs_input_grad):
        raise ValueError("both, please")
    return of_product(g, a, b)


def stopped_early(ctx, x):
    y = torch.ones_like(x)
    for _ in range(4):
        y = (y + x / y) / 2
    ctx.save_for_backward(y)
    return y


StoppedEarly = function(stopped_early, lambda ctx, g: g / (2 * ctx.saved_tensors[0]), "Newton")
Rounds = of_inputs(torch.round, lambda g, x: g, "Rounds")


def inner_step(create_graph):
    """Of MAML: a step along a gradient, inside what is differentiated."""

    def loss(x):
        (g,) = grad((x**4).sum(), x, create_graph=create_graph)
        return (x - 0.1 * g) ** 2

    return loss


def hooked(hook):
    def f(x):
        y = x**3
        y.register_hook(hook)
        return y**2

    return f


def found_without_a_graph(x):
    with torch.no_grad():
        factor = x.cos()
    return factor * x


def found_with_it(x):
    return x.cos() * x


def meant_result(ctx, x):
    y = x.round()
    ctx.save_for_backward(x, y)
    return y


def staircase(g, x, y):
    return g * (1 - torch.cos(2 * math.pi * (x - y)))


ByResult = function(meant_result, lambda ctx, g: staircase(g, *ctx.saved_tensors), "ByResult")
ByInput = of_inputs(torch.round, lambda g, x: staircase(g, x, x.round()), "ByInput")


batch = torch.linspace(-1, 1, 8).view(4, 2).sin().requires_grad_()
calls, DRAW = torch.zeros(2), random.Random(1)


def entropy(x):
    return -(x.softmax(0) * x.softmax(0).log()).sum()


def only_up_to_1(x):
    if (x > 1).any():
        raise ValueError("only up to 1")
    return x**3


square = torch.tensor([[0.3, -1.0], [0.8, 0.1]], dtype=torch.float64, requires_grad=True)


def log_of_determinant(m):
    return (m[0, 0] * m[1, 1] - m[0, 1] * m[1, 0]).log()


def called_once(module):
    module(batch)
    return module


def filled(module):
    module = module.to_empty(device="cpu")
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(0.5)
    return module


def cubic_in_half(x):
    """Another kernel in 64 bits."""
    if x.dtype == torch.float64:
        raise TypeError("64 bits")
    return Cube.apply(x)


Cube = of_inputs(lambda x: x**3, right, "Cube")
Summed = function(lambda ctx, xs: sum(xs), lambda ctx, g: [g, g])
SummedOpen = function(lambda ctx, *xs: sum(xs), lambda ctx, g: (g, g))


P = Pair


@torch.library.custom_op("advice_test::squared", mutates_args=())
def squared(x: torch.Tensor) -> torch.Tensor:
    return x**2


squared.register_autograd(
    lambda ctx, g: 2 * g * ctx.saved_tensors[0],
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


LIBRARY = torch.library.Library("advice_test", "FRAGMENT")
LIBRARY.define("without_backward(Tensor x) -> Tensor")
LIBRARY.impl("without_backward", lambda x: torch.from_numpy(x.detach().numpy() ** 2), "CPU")


ADVICE = [
    P(
        "mutates_grad_out",
        "Make a new tensor, as in grad_out * 3",
        (cubic(lambda g, x: g.mul_(3).mul_(x**2)),),
        (cubic(lambda g, x: g * 3 * x**2),),
    ),
    P(
        "mutates_saved",
        "Make a new tensor: x * x, not x.mul_(x)",
        (cubic(lambda g, x: 3 * g * x.data.mul_(x)),),
        (cubic(lambda g, x: 3 * g * (x * x)),),
    ),
    P(
        "backward_works_once",
        "Leave what forward kept as it is",
        (keeping(leaving, lambda ctx, g: g * 3 * ctx.left.pop() ** 2),),
        (keeping(leaving, lambda ctx, g: g * 3 * ctx.left[-1] ** 2),),
    ),
    P(
        "backward_works_once",
        "run forward again in backward",
        (keeping(inner_graph, lambda ctx, g: grad(ctx.y, ctx.x, g)[0]),),
        (Sinh.apply,),
        behind="untracked_backward",
    ),
    P(
        "backward_not_linear",
        "Multiply what it returns by grad_out",
        (cubic(lambda g, x: 3 * x**2),),
        (cubic(lambda g, x: 3 * x**2 * g),),
    ),
    P(
        "backward_not_linear",
        "Return grad_out times something that grad_out does not change",
        (cubic(lambda g, x: g * 3 * x**2 * g.norm()),),
        (cubic(lambda g, x: g * (3 * x**2)),),
    ),
    P(
        "backward_not_repeatable",
        "Leave what forward kept as it is, and compute the same each time",
        (cubic(lambda g, x: g * x * (0.5 + torch.rand(2))),),
        (cubic(lambda g, x: g * x * 3 * x),),
    ),
    P(
        "state_between_calls",
        "Keep inputs and outputs by save_for_backward",
        (
            keeping(
                kept_where_all_calls_share,
                lambda ctx, g: g * 3 * kept_where_all_calls_share.x**2,
            ),
        ),
        (keeping(save_x, lambda ctx, g: g * 3 * ctx.saved_tensors[0] ** 2),),
    ),
    P(
        "state_between_calls",
        "compute the rest in backward",
        (keeping(slope_elsewhere, lambda ctx, g: g * slope_elsewhere.slope),),
        (cubic(lambda g, x: g * 3 * x**2),),
        behind="state_outside_ctx",
    ),
    P(
        "leaf_without_gradient",
        "Hand it to apply",
        (of_inputs(lambda x: x**2 * weight, lambda g, x: g * 2 * x * weight).apply,),
        (
            lambda x: of_inputs(
                lambda x, w: x**2 * w, lambda g, x, w: (g * 2 * x * w, g * x**2)
            ).apply(x, weight),
        ),
    ),
    P(
        "returns_none",
        "Return its gradient",
        (product(lambda ctx, g, a, b: (g * b**2, None)), a, b),
        (product(lambda ctx, g, a, b: (g * b**2, g * 2 * a * b)), a, b),
    ),
    P(
        "steps_in_fn",
        "Use torch.autograd.grad there, with create_graph=True.",
        (inner_step(False),),
        (inner_step(True),),
    ),
    P(
        "steps_in_fn",
        "Use the tensor itself.",
        (lambda x: x * x.sin().detach(),),
        (lambda x: x * x.sin(),),
    ),
    P(
        "steps_in_fn",
        "Compute it outside of that block.",
        (found_without_a_graph,),
        (found_with_it,),
    ),
    P(
        "steps_in_fn",
        "Compute it in torch.",
        (lambda x: x * x.exp().sum().item(),),
        (lambda x: x * x.exp().sum(),),
    ),
    P("steps_in_fn", "drop the hook", (hooked(lambda g: g.detach()),), (hooked(lambda g: None),)),
    P(
        "steps_in_fn",
        "return the true one, computed in torch where autograd records",
        (hooked(lambda g: g.detach()),),
        (hooked(lambda g: g),),
    ),
    P(
        "first_derivative_differs",
        "pass ignore=[Rounds] then",
        (Rounds.apply,),
        (Rounds.apply,),
        options={"ignore": [Rounds]},
    ),
    P(
        "first_derivative_differs",
        "if not, backward is wrong",
        (cubic(lambda g, x: g * 2 * x**2),),
        (cubic(right),),
    ),
    P(
        "inexact_first_derivative",
        "pass rtol=0.02",
        (StoppedEarly.apply, x(0.05, 0.1)),
        (StoppedEarly.apply, x(0.05, 0.1)),
        options={"rtol": 0.02},
    ),
    P(
        "changed_by_create_graph",
        "Let it compute the same either way",
        (cubic(lambda g, x: right(g, x) * (0 if torch.is_grad_enabled() else 1)),),
        (cubic(right),),
    ),
    P(
        "once_differentiable",
        "delete the decorator",
        (keeping(save_x, once_differentiable(lambda ctx, g: right(g, *ctx.saved_tensors))),),
        (keeping(save_x, lambda ctx, g: right(g, *ctx.saved_tensors)),),
    ),
    P(
        "once_differentiable",
        "make a new tensor there, delete the decorator",
        (
            keeping(
                save_x, once_differentiable(lambda ctx, g: edits_its_own(g, *ctx.saved_tensors))
            ),
        ),
        (keeping(save_x, lambda ctx, g: makes_another(g, *ctx.saved_tensors)),),
    ),
    P(
        "once_differentiable",
        "Write a Function for backward, with a backward of its own",
        (
            keeping(
                save_x,
                once_differentiable(
                    lambda ctx, g: g * torch.from_numpy(3 * ctx.saved_tensors[0].numpy() ** 2)
                ),
            ),
        ),
        (by_second(both_paths),),
    ),
    P(
        "extra_output_gradient_ignored",
        "add it, times the derivative of up",
        (first_of(returning_exponentials, ignoring_theirs),),
        (first_of(returning_exponentials, with_theirs),),
    ),
    P(
        "extra_output_gradient_wrong",
        "that gradient times the derivative of that output",
        (
            first_of(
                returning_exponentials,
                lambda ctx, g, u, d: ignoring_theirs(ctx, g, u, d) + u + d,
            ),
        ),
        (first_of(returning_exponentials, with_theirs),),
    ),
    P(
        "input_copy_saved",
        "Convert the input before apply, and save what apply gets",
        (log_of(lambda x: x.clamp(1e-6), False),),
        (lambda x: log_of(torch.Tensor.clone, True)(x.clamp(1e-6)),),
    ),
    P(
        "argument_without_graph",
        "Hand it over as a tensor with its graph, and return its gradient",
        (lambda x: function(exp_of_detached, no_part_for_y).apply(x, x.detach()),),
        (lambda x: function(exp_of_detached, both_parts).apply(x, x),),
    ),
    P(
        "intermediate_saved",
        "Compute it in backward from a saved input, in torch",
        (
            keeping(
                with_exponentials(lambda ctx, x, up, down: ctx.save_for_backward(up, down)),
                saved_exponentials,
            ),
        ),
        (
            keeping(
                with_exponentials(lambda ctx, x, up, down: ctx.save_for_backward(x)),
                exponentials_again,
            ),
        ),
    ),
    P(
        "intermediate_saved",
        "or return this very tensor, too, and add what its gradient brings",
        (
            keeping(
                with_exponentials(lambda ctx, x, up, down: ctx.save_for_backward(up, down)),
                saved_exponentials,
            ),
        ),
        (first_of(returning_exponentials, with_theirs),),
    ),
    P(
        "intermediate_saved",
        "leave mark_non_differentiable out, and add the part for its gradient",
        (first_of(marked, ignoring_theirs),),
        (first_of(returning_exponentials, with_theirs),),
    ),
    P(
        "intermediate_saved",
        "save the very tensor that you return, not a copy",
        (keeping(clone_of_the_result, times_saved),),
        (keeping(the_result, times_saved),),
    ),
    P(
        "intermediate_on_ctx",
        "compute it in backward from a saved input, in torch",
        (of_unit(lambda ctx, x: ctx.r),),
        (of_unit(lambda ctx, x: x.norm()),),
    ),
    P(
        "intermediate_on_ctx",
        "run forward again in backward",
        (keeping(inner_graph, differentiate_inner),),
        (Sinh.apply,),
    ),
    P(
        "computed_outside_torch",
        "Compute them in backward, in torch, from a saved input",
        (keeping(in_numpy, times_saved),),
        (cubic(lambda g, x: g * 3 * x**2),),
    ),
    P(
        "state_outside_ctx",
        "Save the input, and compute it in backward",
        (keeping(slope_elsewhere, lambda ctx, g: g * slope_elsewhere.slope),),
        (cubic(lambda g, x: g * 3 * x**2),),
    ),
    P(
        "second_function_gradient",
        "That one has to return the derivative by each",
        (by_second(lambda ctx, h: (None, both_paths(ctx, h)[1])),),
        (by_second(both_paths),),
    ),
    P(
        "second_function_gradient",
        "That one has to return the derivative by each",
        (by_second(lambda ctx, h: (both_paths(ctx, h)[0], 1.02 * both_paths(ctx, h)[1])),),
        (by_second(both_paths),),
    ),
    P(
        "grad_out_path_cut",
        "Compute with grad_out itself, in torch where autograd records",
        (cubic(lambda g, x: g.detach() * 3 * x**2),),
        (cubic(lambda g, x: g * 3 * x**2),),
    ),
    P(
        "untracked_backward",
        "Write it in torch operations",
        (cubic(lambda g, x: g * 3 * x.detach() ** 2),),
        (cubic(lambda g, x: g * 3 * x**2),),
    ),
    P(
        "grad_out_path_cut",
        "and with x, in torch where autograd records",
        (cubic(torch.no_grad()(lambda g, x: g * 3 * x**2)),),
        (cubic(lambda g, x: g * 3 * x**2),),
    ),
    P(
        "untracked_backward",
        "or as a Function with a complete backward",
        (cubic(lambda g, x: g * torch.from_numpy(3 * x.detach().numpy() ** 2)),),
        (by_second(both_paths),),
    ),
    P(
        "result_of_meant_gradient",
        "Save the input, and compute the result anew in backward",
        (ByResult.apply, x(0.4, 1.2)),
        (ByInput.apply, x(0.4, 1.2)),
        options={"ignore": [ByResult, ByInput]},
    ),
    P(
        "float32_differs",
        "Let it do the same as in float64",
        (cubic(another_kernel), x().detach().float().requires_grad_()),
        (cubic(right), x().detach().float().requires_grad_()),
    ),
    P(
        "path_counted_twice",
        "use x.view_as(x).requires_grad_() there, and the same of grad_out",
        (inside_backward(False),),
        (inside_backward(True),),
    ),
    P(
        "gradients_by_convention",
        "apply Functions that do",
        (lambda x: cubic(lambda g, x: g * 1.5 * x**2)(Doubling.apply(x)),),
        (lambda x: cubic(right)(Plain.apply(x)),),
    ),
    P(
        "in_place_without_mark_dirty",
        "return it and call ctx.mark_dirty(x)",
        (exp_in_place(False),),
        (exp_in_place(True),),
    ),
    P(
        "in_place_without_mark_dirty",
        "Make a new tensor",
        (exp_in_place(False),),
        (keeping(exp_anew, times_saved),),
    ),
    P(
        "no_derivative_formula",
        "sdpa_kernel(torch.nn.attention.SDPBackend.MATH)",
        (attention, *qkv),
        (attention_in_math, *qkv),
    ),
    P(
        "no_derivative_formula",
        "use other operations",
        (torch.nn.functional.hardsigmoid,),
        (lambda x: torch.nn.functional.relu6(x + 3) / 6,),
    ),
    P(
        "numpy_in_backward",
        "Put the NumPy code into a Function with its own backward",
        (cubic(numpy_itself),),
        (by_second(both_paths),),
    ),
    P(
        "inputs_of_one_another",
        "use x.view_as(x) there for each of them",
        (by_autograd(False), a, b),
        (by_autograd(True), a, b),
    ),
    P(
        "sign_of_grad_out",
        "A backward must not look at the sign of what it gets",
        (cubic(lambda g, x: g.abs() * 3 * x**2),),
        (cubic(lambda g, x: g * 3 * x**2),),
        behind="backward_not_linear",
    ),
    P(
        "input_frozen",
        "look there",
        (
            product(
                lambda ctx, g, a, b: (g * b**2, g * 2 * a * b if ctx.needs_input_grad[0] else None)
            ),
            a,
            b,
        ),
        (
            product(
                lambda ctx, g, a, b: (g * b**2, g * 2 * a * b if ctx.needs_input_grad[1] else None)
            ),
            a,
            b,
        ),
        behind="returns_none",
    ),
    P(
        "third_order_not_tracked",
        "Write it from plain operations (mean, var, sqrt)",
        (lambda x: torch.nn.functional.layer_norm(x, (3,)), x(0.0, 1.0, 3.0)),
        (
            lambda x: (x - x.mean()) / torch.sqrt(x.var(correction=0) + 1e-5),
            x(0.0, 1.0, 3.0),
        ),
        options={"order": 3},
    ),
    P(
        "saved_tensor_edited",
        "Make a new tensor there",
        (cubic(edits_its_own),),
        (cubic(makes_another),),
    ),
    P("leaf_edited", "leave requires_grad out", (into_a_leaf(True),), (into_a_leaf(False),)),
    P("graph_freed", "use create_graph=True", (inside(),), (inside(create_graph=True),)),
    P(
        "checkpoint_refuses_grad",
        "use_reentrant=False",
        (checkpointed(True),),
        (checkpointed(False),),
    ),
    P(
        "endless_recursion",
        "Compute it anew in backward, from the saved inputs under torch.enable_grad()",
        (keeping(asks_its_own_output, output_by_input),),
        (Sinh.apply,),
    ),
    P(
        "number_of_gradients",
        "one value for each argument of forward",
        (product(lambda ctx, g, a, b: g * b**2), a, b),
        (product(lambda ctx, g, a, b: (g * b**2, g * 2 * a * b)), a, b),
    ),
    P(
        "gradient_of_another_kind",
        "each in the shape of the argument it belongs to",
        (cubic(lambda g, x: right(g, x).sum()[None].expand(3)),),
        (cubic(right),),
    ),
    P(
        "gradient_can_be_none",
        "Test for it",
        (sine_cosine(without_test),),
        (sine_cosine(with_test),),
    ),
    P(
        "view_in_backward",
        "Use reshape",
        (cubic(lambda g, x: flat(g.t(), x.t(), "view").t()), matrix),
        (cubic(lambda g, x: flat(g.t(), x.t(), "reshape").t()), matrix),
    ),
    P("no_backward", "Write it", (WithoutBackward.apply,), (cubic(right),)),
    P(
        "out_argument",
        "Use what it returns",
        (cubic(lambda g, x: torch.mul(g, 3 * x**2, out=torch.empty_like(g))),),
        (cubic(lambda g, x: torch.mul(g, 3 * x**2)),),
    ),
    P(
        "cause_unknown",
        "build it dense, with index_put, and call .to_sparse()",
        (
            lambda v: (
                torch.sparse_coo_tensor(torch.tensor([[0, 1], [1, 0]]), v, (2, 2)).to_dense() ** 2
            ),
        ),
        (
            lambda v: (
                v.new_zeros(2, 2)
                .index_put((torch.tensor([0, 1]), torch.tensor([1, 0])), v)
                .to_sparse()
                .to_dense()
                ** 2
            ),
        ),
    ),
    P(
        "nan_in_first",
        "torch.where(ok, f(torch.where(ok, x, 1.0)), 0.0)",
        (lambda x: torch.where(x > 0, x.sqrt(), 0.0), x(0.0, 1.0)),
        (
            lambda x: torch.where(x > 0, torch.where(x > 0, x, 1.0).sqrt(), 0.0),
            x(0.0, 1.0),
        ),
    ),
    P(
        "nan_in_second",
        "torch.where(ok, f(torch.where(ok, x, 1.0)), 0.0)",
        (lambda x: torch.where(x > 0, x**1.5, 0.0), x(0.0, 1.0)),
        (lambda x: torch.where(x > 0, torch.where(x > 0, x, 1.0) ** 1.5, 0.0), x(0.0, 1.0)),
    ),
    P("wrong_in_forward_mode", "it is 2 * x * t", (Forgetful.apply,), (WithJvp.apply,)),
    P(
        "wrong_in_forward_mode",
        "the derivative by this input times its tangent",
        (Scaled.apply,),
        (WithJvp.apply,),
    ),
    P(
        "wrong_in_forward_mode",
        "Compute it in both from saved inputs",
        (Detached.apply,),
        (WithJvp.apply,),
    ),
    P(
        "torch_in_forward_mode",
        "or write that operation otherwise",
        (lambda x: torch.logdet(3 * torch.eye(2) + WithJvp.apply(x)), square),
        (lambda x: log_of_determinant(3 * torch.eye(2) + WithJvp.apply(x)), square),
    ),
    P(
        "operator_not_followed",
        "Register a backward",
        (lambda x: torch.ops.advice_test.without_backward(x) + x**3,),
        (lambda x: squared(x) + x**3,),
    ),
    P("operator_in_forward_mode", "write a Function with a jvp", (squared,), (WithJvp.apply,)),
    P("torch_func_differs", "write it in plain operations", (Knows.apply,), (WithJvp.apply,)),
    P(
        "noncontiguous_input",
        "so save x itself",
        (log_of(torch.Tensor.contiguous, False), matrix),
        (log_of(torch.Tensor.contiguous, True), matrix),
    ),
    P(
        "grad_out_layout",
        "with grad_out = grad_out.contiguous()",
        (cubic(lambda g, x: flat(g, x, "view")), matrix),
        (cubic(lambda g, x: flat(g.contiguous(), x, "view")), matrix),
    ),
    P(
        "grad_out_layout",
        "grad_out.contiguous()",
        (by_kernel(False), matrix),
        (by_kernel(True), matrix),
    ),
    P(
        "input_on_ctx",
        "Use save_for_backward",
        (keeping(on_ctx, lambda ctx, g: right(g, ctx.x)),),
        (cubic(right),),
    ),
    P(
        "output_on_ctx",
        "Use save_for_backward",
        (keeping(result_on_ctx, lambda ctx, g: g * ctx.y),),
        (keeping(the_result, times_saved),),
    ),
    P(
        "memory_leak",
        "Keep outputs with save_for_backward, each the very tensor that you return",
        (keeping(view_of_the_result_on_ctx, lambda ctx, g: g * ctx.y.view(g.shape)),),
        (keeping(the_result, times_saved),),
        behind="intermediate_on_ctx",
    ),
    P(
        "output_used_alone",
        "backward gets zeros, or None after set_materialize_grads(False)",
        (keeping(two_outputs, second_one_needed),),
        (keeping(two_outputs, each_by_itself),),
        behind="first_derivative_differs",
    ),
    P(
        "raises_if_frozen",
        "Ask ctx.needs_input_grad in backward",
        (product(needs_both), a, b),
        (
            product(
                lambda ctx, g, a, b: tuple(
                    part if needed else None
                    for part, needed in zip(of_product(g, a, b), ctx.needs_input_grad, strict=True)
                )
            ),
            a,
            b,
        ),
    ),
    P(
        "elements_not_checked",
        "pass a point beside this one",
        (torch.relu, x(0.0, 1e-7, 1.0)),
        (torch.relu, x(0.5, -0.3, 1.0)),
    ),
    P(
        "lost_in_rounding",
        "Pass a point where less cancels",
        (entropy, x(70.0, -40.0, 130.0)),
        (entropy, x(0.7, -0.4, 1.3)),
    ),
    P(
        "raises_beside",
        "Pass a point inside its domain",
        (only_up_to_1, x(1.0)),
        (only_up_to_1, x(0.5)),
    ),
    P(
        "differences_disagree",
        "a fn without the noise",
        (lambda x: x**3 + 1e-3 * torch.sin(1e6 * x),),
        (lambda x: x**3,),
    ),
    P(
        "edits_what_it_holds",
        "call .eval() on the module",
        (torch.nn.BatchNorm1d(2), batch),
        (torch.nn.BatchNorm1d(2).eval(), batch),
    ),
    P(
        "edits_what_it_holds",
        "hand the tensor in",
        (lambda x: x * calls.add_(1).sign(),),
        (lambda x, calls: x * (calls + 1).sign(), x(), torch.zeros(2)),
    ),
    P(
        "other_leaves",
        "hand them in",
        (lambda x: x**2 * weight,),
        (lambda x, weight: x**2 * weight, x(), weight),
    ),
    P(
        "computes_in_16_bits",
        "compute in float64 throughout",
        (lambda x: (x.bfloat16() ** 3).double(),),
        (lambda x: x**3,),
        behind="judged_roughly",
    ),
    P(
        "judged_roughly",
        "or float64",
        (lambda x: (x.bfloat16() ** 3).double(),),
        (lambda x: (x.double() ** 3).double(),),
    ),
    P(
        "no_input_requires_grad",
        "Pass x.double().requires_grad_()",
        (cubic(right), torch.tensor([1, 2])),
        (cubic(right), torch.tensor([1, 2]).double().requires_grad_()),
    ),
    P("no_call", "Pass Cube.apply", (Cube,), (Cube.apply,)),
    P("no_elements", "Pass one that has", (cubic(right), x()[:0]), (cubic(right), x())),
    P(
        "meta_input",
        "Pass one on the CPU",
        (cubic(right), torch.ones(2, device="meta", requires_grad=True)),
        (cubic(right), torch.ones(2, device="cpu", requires_grad=True)),
    ),
    P(
        "lazy_parameters",
        "Call it once",
        (torch.nn.LazyLinear(2), batch),
        (called_once(torch.nn.LazyLinear(2)), batch),
    ),
    P(
        "meta_parameters",
        "Move the module to the CPU with to_empty, and fill them",
        (torch.nn.Linear(2, 2, device="meta"), batch),
        (filled(torch.nn.Linear(2, 2, device="meta")), batch),
    ),
    P(
        "half_precision",
        "pass float32 if fn accepts it",
        (cubic_in_half, x().detach().half().requires_grad_()),
        (cubic_in_half, x().detach().float().requires_grad_()),
    ),
    P("not_finite_here", "Pass another one", (torch.log, x(0.0, 1.0)), (torch.log, x(0.5, 1.0))),
    P(
        "no_output",
        "Pass one that returns tensors",
        (lambda x: (x**3).tolist(),),
        (lambda x: x**3,),
    ),
    P(
        "output_without_graph",
        "hand a Function its tensors inside a list, where apply does not see them",
        (lambda x: Summed.apply([x, x**2]),),
        (lambda x: SummedOpen.apply(x, x**2),),
    ),
    P(
        "random_output",
        "Fix what is random",
        (lambda x: x**3 * DRAW.random(),),
        (lambda x: x**3 * 0.7,),
    ),
]

# Why a finding has no pair.
NOTHING_TO_DO = "it says how fn was checked, and advises nothing"
NEVER_OVER = "there is no program which is right by it: fn is as it was, and is checked no further"
WITHOUT = {
    "meant": NOTHING_TO_DO,
    "only_by_backward": NOTHING_TO_DO,
    "nothing_but_zero": NOTHING_TO_DO,
    "nested_forward_mode": "it is so of every jvp: what it advises is done where fn is called",
    "computes_in_float32": NOTHING_TO_DO,
    "seed_fixed": NOTHING_TO_DO,
    "another_point": NOTHING_TO_DO,
    "compiled_region": "tests/test_compiled.py follows it: compiling takes a minute",
    "stays_symmetric": "another matrix shows whether there is something to mend",
    "raises_in": "it says where an error of fn comes from, which is fn's own",
    "reference_cycle": "it says what output_on_ctx and intermediate_on_ctx cost",
    "ignored_not_applied": "it says that a name was misspelt",
    "lost_inside": "it names what to diagnose in the place of fn",
    "fn_raises": "it repeats an error of fn's own",
    "fn_asks_for_leaves": "such a fn cannot be called in a model either",
    "memory_freed": "it needs a network that frees the memory of its inputs",
    "took_too_long": "it depends on the machine",
    "beyond_diagnose": "it repeats an error of an object's own",
    "tool_failed": "it says nothing of fn",
}


def test_each_finding_has_a_pair_or_a_reason():
    followed = {pair.code for pair in ADVICE}
    assert followed | set(WITHOUT) == {*FINDINGS, *NOT_CHECKED}
    assert not followed & set(WITHOUT)


def wanting(diagnosis):
    """The codes of its findings, notes aside."""
    return [finding.code for finding in diagnosis.findings if finding.severity != "note"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("pair", ADVICE, ids=[f"{p.code}: {p.advice[:30]}" for p in ADVICE])
def test_advice_followed_to_the_letter_mends(pair):
    if pair.code == "torch_in_forward_mode" and not logdet_is_wrong():
        pytest.skip("this torch gives it right")
    fn, *inputs = pair.fault
    order = {name: value for name, value in pair.options.items() if name == "order"}
    fault = diagnose(fn, *(inputs or [x()]), **order)
    told = " ".join(message(fault, pair.code).split())
    assert pair.advice in told, told
    decisive = fault.read_first.code if fault.read_first else fault.findings[0].code
    assert decisive == (pair.behind or pair.code), str(fault)
    fn, *inputs = pair.followed
    mended = diagnose(fn, *(inputs or [x()]), **pair.options)
    assert mended.ok and pair.code not in wanting(mended), str(mended)
