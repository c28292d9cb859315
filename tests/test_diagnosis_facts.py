"""What diagnose says of every known mistake, of its cure, and of what only looks like one: one row
each, verdict and codes."""

import pickle
import re
import warnings

import numpy as np
import pytest
import torch
from chinese import HAN, english_in
from made_functions import cubic, function, of_inputs, same, save_x, saving, x
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from double_backward import diagnose
from double_backward import diagnosis as diagnosis_room
from double_backward.diagnosis.conclusions.findings import ROWS as FINDINGS
from double_backward.phrases import translation
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
    "judged_roughly",
    "nothing_but_zero",
}
TORCHS = re.compile("view size is .* instead")  # words of its own, which stay English


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


# What backward is called, what it asks, what it draws.


class VectorJacobian(Function):
    """Its backward is called vjp."""

    forward = staticmethod(save_x)

    @staticmethod
    def vjp(ctx, g):
        return g * 3 * ctx.saved_tensors[0].detach() ** 2


def save_beside_none(ctx, x):
    ctx.save_for_backward(None, torch.ones_like(x), None, x)
    return x**3


def keep_square(ctx, x):
    ctx.square = x**2
    return x**3


def with_random_numbers(g, x):
    noise = torch.rand_like(x)
    return g * 3 * x**2 + 0 * noise if g.requires_grad else g * (3 * x**2 + noise) - g * noise


BesideNone = function(save_beside_none, lambda ctx, g: g * 3 * ctx.saved_tensors[3].detach() ** 2)
AsksCtx = function(
    keep_square, lambda ctx, g: g * 3 * ctx.square if ctx.needs_input_grad[0] else None
)


# What backward loses, frees, or leaves to others.


def hooked(x):
    y = Cube.apply(x)
    y.register_hook(lambda g: g.detach())
    return y


@once_differentiable
def guarding_no_grad(ctx, g):
    with torch.no_grad():
        return 3 * g * ctx.saved_tensors[0] ** 2


def by_data(g, x):
    slope = 3 * x**2
    x.data.clamp_(-0.7, 0.7)
    return g * slope


def differentiating(**options):
    """x**3, whose backward differentiates it, and returns what it has used for that, too."""

    def inside(g, x):
        with torch.enable_grad():
            x = x.view_as(x).requires_grad_()
            square = x * x
            (slope,) = torch.autograd.grad(square, x, g, **options)
        return 1.5 * slope * x + 0 * square

    return cubic(inside)


def warns(g, x):
    warnings.warn("using the analytic derivative for x: Can't call numpy()", stacklevel=1)
    return 3 * g * x**2


class WithoutBackward(Function):
    @staticmethod
    def forward(ctx, x):
        return x**3


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


# What a model does with a Function of two inputs: one frozen, one made from another, other signs.


def save_both(ctx, a, b):
    ctx.save_for_backward(a, b)
    return a * b**2


def of_two(backward):
    """a * b**2 with a given backward(ctx, grad_out, a, b)."""
    return function(save_both, lambda ctx, g: backward(ctx, g, *ctx.saved_tensors)).apply


def both_right(ctx, g, a, b):
    return g * b**2, g * 2 * a * b


def detached_unless_all_are_asked_for(ctx, g, a, b):
    if not all(ctx.needs_input_grad):
        a, b = a.detach(), b.detach()
    return both_right(ctx, g, a, b)


def asks_for_the_wrong_one(ctx, g, a, b):
    return g * b**2, g * 2 * a * b if ctx.needs_input_grad[0] else None


def needs_both(ctx, g, a, b):
    if not all(ctx.needs_input_grad):
        raise ValueError("both, please")
    return both_right(ctx, g, a, b)


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


def second_slope(change):
    """x**3, whose second Function has a given backward(grad_grad_x, grad_out, x)."""
    return cube_with(lambda ctx, h: change(h, *ctx.saved_tensors))


def cut_where(cut):
    """x**3, whose backward loses the graph of grad_out for some layouts."""
    return cubic(lambda g, x: (g.detach().contiguous() if cut(g) else g) * 3 * x**2)


# Right, or meant: what may not be convicted.


def sparse_product(ctx, values, x):
    index = torch.arange(len(values)).repeat(2, 1)
    matrix = torch.sparse_coo_tensor(index, values, check_invariants=True)
    ctx.save_for_backward(values, x)
    ctx.pattern = torch.sparse_coo_tensor(index, torch.ones_like(values), check_invariants=True)
    return torch.sparse.mm(matrix, x)


def sparse_product_backward(ctx, g):
    values, x = ctx.saved_tensors
    return (g * x).sum(1), values[:, None] * g


def logged(ctx, x):
    """Keeps an intermediate that backward does not use."""
    ctx.norm = x.norm()
    return save_x(ctx, x)


def ramp(x):
    return torch.linspace(1.0, 2.0, x.numel(), dtype=x.dtype).view(x.shape)


def huber(x):
    return torch.nn.functional.huber_loss(x, torch.zeros_like(x), reduction="none")


def in_numpy_for_float32(g, x):
    if x.dtype == torch.float32:
        return g * torch.from_numpy(3 * x.detach().numpy() ** 2)
    return g * 3 * x**2


def two_outputs(ctx, x):
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x)
    return x**3, x**2


def second_one_needed(ctx, grad_cube, grad_square):
    (x,) = ctx.saved_tensors
    if grad_square is None:
        return torch.zeros_like(x)
    return (0 if grad_cube is None else grad_cube * 3 * x**2) + grad_square * 2 * x


def sine_cosine(ctx, x):
    sine, cosine = torch.sin(x), torch.cos(x)
    ctx.save_for_backward(sine, cosine)
    return sine, cosine


def with_a_wrong_sign(ctx, grad_sine, grad_cosine):
    sine, cosine = ctx.saved_tensors
    return grad_sine * cosine + grad_cosine * sine


def without_its_slope(ctx, x, y):
    ctx.save_for_backward(y)
    return x * y.exp()


def outside_torch(ctx, x):
    slope = torch.from_numpy(3 * x.detach().numpy() ** 2)
    ctx.save_for_backward(slope)
    return x**3


def on_the_class(ctx, x):
    function.slope = 3 * x**2
    return x**3


def itself(g, x):
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        return torch.autograd.grad(EndsNowhere.apply(x), x, g)[0]


def writes_into_a_leaf(g, x):
    found = x.new_zeros(x.shape, requires_grad=g.requires_grad)
    found[:] = g * 3 * x**2
    return found


def halts(g, x):
    raise NotImplementedError


def at_one_point(x):
    if x[0] != 0.5:
        raise ValueError("elsewhere")
    return x**3


def its_own_maximum(x):
    """The largest v * x - v**2 / 2, which is at v = x."""
    v = x.detach()
    return v * x - v**2 / 2


def another_slice(ctx, x):
    sine, cosine = torch.stack([x.sin(), x.cos()]).unbind(0)
    ctx.save_for_backward(cosine)
    return sine


def sparse_values(v):
    places = torch.tensor([[0, 1], [1, 0]])
    return torch.sparse_coo_tensor(places, v, (2, 2)).to_dense()


kept_square = saving(lambda x: x**3, lambda x: x * x, lambda g, s: 3 * g * s)
TwoOutputs = function(two_outputs, second_one_needed)
SineCosine = function(sine_cosine, with_a_wrong_sign)
EndsNowhere = of_inputs(lambda x: x**3, itself)
kept_slope = lambda ctx, g: (g * ctx.saved_tensors[0].exp(), None)  # noqa: E731
weight, calls = x(1.5, 0.5), torch.zeros(2)
symmetric = torch.tensor([[2.0, 0.3], [0.3, 1.0]], dtype=torch.float64, requires_grad=True)
SparseProduct = function(sparse_product, sparse_product_backward)
Logged = function(logged, lambda ctx, g: g * 3 * ctx.saved_tensors[0] ** 2)
rounded = saving(torch.round, same, lambda g, x: g)
spike = saving(lambda x: (x > 0).to(x), same, lambda g, x: g / (1 + x.abs()) ** 2)
many = torch.linspace(-2, 2, 40, dtype=torch.float64).view(5, 8).requires_grad_()
net = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)).double()

matrix = torch.linspace(0.3, 1.2, 6, dtype=torch.float64).view(2, 3).requires_grad_()
pair = (x(0.5, 1.0), x(0.8, -0.3))
a, b, empty = x(0.5, 1.2), x(0.7, -0.4), torch.zeros(0, dtype=torch.float64, requires_grad=True)

# Verdict -> what gets it: fn, the codes that are said, and where it is asked, else at x().
# Steps that fn itself takes.


def under_no_grad(x):
    with torch.no_grad():
        factor = x.cos()
    return factor * x


def for_the_log(x):
    with torch.no_grad():
        x.exp().sum().item()
    value = x.sin()
    value.detach().numpy()
    return value


def hooked_module(x):
    layer = torch.nn.Tanh()
    layer.register_full_backward_hook(lambda module, ins, outs: (ins[0].detach(),))
    return layer(x**2) ** 2


# A gradient of its own, which uses the result.


def staircase(g, x, y):
    return g * (1 - torch.cos(2 * torch.pi * (x - y)))


def save_result(ctx, x):
    y = x.round()
    ctx.save_for_backward(x, y)
    return y


ByResult = function(save_result, lambda ctx, g: staircase(g, *ctx.saved_tensors))
ByInput = of_inputs(torch.round, lambda g, x: staircase(g, x, x.round()))


SAID = {
    "supported": {
        "made for symmetric matrices": (torch.linalg.eigvalsh, "stays_symmetric", symmetric),
        "a buffer that counts": (lambda x: x * calls.add_(1).sign(), "edits_what_it_holds"),
        "Square": (Square.apply, ""),
        "Exp": (Exp.apply, ""),
        "sinh": (sinh, ""),
        "Sinh": (Sinh.apply, ""),
        "Cube": (Cube.apply, ""),
        "CubeNumPy": (CubeNumPy.apply, ""),
        "ExpIntegral": (ExpIntegral.apply, ""),
        "input on ctx": (SquareOnCtx.apply, "input_on_ctx"),
        "output on ctx": (ExpOnCtx.apply, "output_on_ctx reference_cycle"),
        "clamp outside": (copying(lambda x: x.clamp(1e-6), True), ""),
        "contiguous outside": (copying(torch.Tensor.contiguous, True), "", matrix),
        "both gradients": (Product.apply, "", *pair),
        "None checked": (NoneChecked.apply, ""),
        "in place, marked": (exp_in_place(True), ""),
        "computes in float32": (lambda x: Cube.apply(x.float()).double(), ""),
        "relu at 0": (torch.relu, "elements_not_checked", x(0.0, 1e-7, 1.0)),
        "reshape of grad_out, transposed": (
            lambda m: flattening("reshape")(m).t() * torch.ones(3, 2),
            "",
            matrix,
        ),
        "reshape of grad_out": (flattening("reshape"), "", matrix),
        "the same, of which the second knows": (
            lambda x: cubic(HalfCube.apply)(Doubling.apply(x)),
            "",
        ),
        "autograd.grad with aliases": (nested(True), ""),
        "autograd.grad that keeps its graph": (differentiating(create_graph=True), ""),
        "a warning in the words of an error": (cubic(warns), ""),
        "does not depend on x": (saving(lambda x: 2 * x, same, lambda g, x: 2 * g), ""),
        "random numbers that cancel": (cubic(with_random_numbers), ""),
        "recomputed by autograd": (cubic(recompute), ""),
        "custom_fwd, no cast": (under_autocast(torch.float64), ""),
        "two inputs": (of_two(both_right), "", a, b),
        "two inputs, one of them empty": (
            lambda a, b: of_two(both_right)(b, b) + a.sum(),
            "",
            empty,
            b,
        ),
        "an error where an input is frozen": (of_two(needs_both), "raises_if_frozen", a, b),
        "autograd.grad with aliases of both": (of_two(by_autograd_of_aliases), "", a, b),
        "second Function, signs kept": (
            second_slope(lambda h, g, x: (h * 3 * x**2, h * g * 6 * x)),
            "",
        ),
        "cut for no layout": (cut_where(lambda g: False), "", matrix),
        "mask": (saving(torch.relu, lambda x: (x > 0).to(x), torch.mul), "", many),
        "mask at its kink": (
            saving(torch.relu, lambda x: (x > 0).to(x), torch.mul),
            "",
            x(0.0, 0.0),
        ),
        "relu": (torch.relu, "", many),
        "piecewise linear": (torch.nn.functional.hardtanh, "", many),
        "sign": (saving(torch.abs, torch.sign, torch.mul), "", many),
        "detached in fn, and nothing lost": (for_the_log, ""),
        "constants": (saving(lambda x: x * ramp(x), ramp, torch.mul), "", many),
        "unused intermediate": (Logged.apply, "", many),
        "huber at its corner": (
            saving(huber, same, lambda g, x: g * x.clamp(-1, 1)),
            "elements_not_checked",
            x(0.3, -0.4, 1.0),
        ),
        "solver": (StoppedEarly.apply, "", x()),
        "checkpoint": (lambda x: checkpoint(net, x, use_reentrant=False), "other_leaves", many),
        "linear": (torch.nn.functional.linear, "", many, torch.ones_like(many)),
        "softmax": (lambda x: torch.softmax(x, -1), "", many),
        "sparse tensor on ctx": (
            SparseProduct.apply,
            "",
            many[:, 0].detach().requires_grad_(),
            many,
        ),
        "refuses a strided input": (
            lambda x: torch.view_as_complex(x).abs() ** 3,
            "",
            torch.tensor([[0.5, 1.0], [0.2, 0.3]], dtype=torch.float64, requires_grad=True),
        ),
        "large": (Cube.apply, "", (1e6 * many).detach().requires_grad_()),
        "small": (Cube.apply, "", (1e-6 * many).detach().requires_grad_()),
        "scalar": (Cube.apply, "", torch.tensor(0.7, requires_grad=True)),
        "parts of different size": (
            lambda a, b: Cube.apply(a) * 1e-5 + Cube.apply(b).sum(),
            "",
            x(),
            many,
        ),
    },
    "silently_wrong": {
        "a module's hook that cuts": (hooked_module, "steps_in_fn"),
        "0 where it is recorded": (
            cubic(lambda g, x: g * 3 * x**2 * (0 if torch.is_grad_enabled() else 1)),
            "changed_by_create_graph",
        ),
        "in NumPy for float32": (
            cubic(in_numpy_for_float32),
            "float32_differs",
            torch.tensor([0.5, 1.0], requires_grad=True),
        ),
        "a wrong part for an extra output": (
            lambda x: SineCosine.apply(x)[0],
            "extra_output_gradient_wrong",
        ),
        "an argument that the caller detached": (
            lambda x: function(without_its_slope, kept_slope).apply(x, x.detach()),
            "argument_without_graph first_derivative_differs",
        ),
        "a slope from NumPy": (
            function(outside_torch, lambda ctx, g: g * ctx.saved_tensors[0]).apply,
            "computed_outside_torch",
        ),
        "a slope left elsewhere": (
            function(on_the_class, lambda ctx, g: g * function.slope).apply,
            "state_outside_ctx state_between_calls",
        ),
        "a wrong one behind a stair": (
            lambda x: kept_square(rounded(4 * x) / 4),
            "intermediate_saved first_derivative_differs",
        ),
        "another slice of the buffer of its output": (
            function(another_slice, lambda ctx, g: g * ctx.saved_tensors[0]).apply,
            "intermediate_saved",
        ),
        "detached where grad_out has no graph": (
            cubic(lambda g, x: g * 3 * (x if g.requires_grad else x.detach()) ** 2),
            "untracked_backward",
        ),
        "a meant gradient that uses its result": (
            ByResult.apply,
            "first_derivative_differs result_of_meant_gradient",
            x(0.4, 1.2),
        ),
        "a right Function behind what torch loses": (
            lambda v: Cube.apply(sparse_values(v)),
            "cause_unknown",
        ),
        "a maximum, found without a graph": (its_own_maximum, "steps_in_fn"),
        "SinhBad": (SinhBad.apply, "intermediate_on_ctx"),
        "SinhBad at 0": (SinhBad.apply, "intermediate_on_ctx", x(0.0)),
        "SinhBad in a formula": (lambda x: SinhBad.apply(x) ** 2, "intermediate_on_ctx"),
        "SinhSaved": (SinhSaved.apply, "intermediate_saved"),
        "output detached on ctx": (ExpDetached.apply, "intermediate_on_ctx"),
        "view of the output": (ExpView.apply, "intermediate_on_ctx memory_leak"),
        "clamp saved": (copying(lambda x: x.clamp(1e-6)), "input_copy_saved"),
        "clone saved": (copying(torch.clone), "input_copy_saved"),
        "clone of the output saved": (ExpClone.apply, "intermediate_saved"),
        "extra outputs marked": (lambda x: SinhMarked.apply(x)[0], "intermediate_saved"),
        "extra outputs' gradients ignored": (
            lambda x: SinhForgotten.apply(x)[0],
            "extra_output_gradient_ignored",
        ),
        "extra outputs' gradients ignored, all outputs": (
            SinhForgotten.apply,
            "first_derivative_differs extra_output_gradient_ignored",
        ),
        "x.detach()": (cubic(lambda g, x: g * 3 * x.detach() ** 2), "untracked_backward"),
        "x.data": (cubic(lambda g, x: g * 3 * x.data**2), "untracked_backward"),
        ".item()": (cubic(lambda g, x: g * 3 * x.item() ** 2), "untracked_backward", x(0.5)),
        "torch.tensor": (
            cubic(lambda g, x: g * 3 * torch.tensor(x.tolist(), dtype=x.dtype) ** 2),
            "untracked_backward",
        ),
        "a hook that detaches": (hooked, "steps_in_fn"),
        "half of x by .data": (cubic(lambda g, x: g * 3 * x.data * x), "untracked_backward"),
        "x.detach() where it is no leaf": (
            cubic(lambda g, x: g * 3 * (x if x.is_leaf else x.detach()) ** 2),
            "untracked_backward",
        ),
        "x.detach() in a vjp": (VectorJacobian.apply, "untracked_backward"),
        "x.detach(), saved beside None": (BesideNone.apply, "untracked_backward"),
        "a factor detached": (cubic(lambda g, x: g * 3 * x * x.detach()), "untracked_backward"),
        "an intermediate where needs_input_grad is asked": (AsksCtx.apply, "intermediate_on_ctx"),
        "half of grad_out detached": (
            cubic(lambda g, x: (g + g.detach()) * 1.5 * x**2),
            "grad_out_path_cut",
        ),
        "grad_out.detach()": (cubic(lambda g, x: g.detach() * 3 * x**2), "grad_out_path_cut"),
        "result.detach()": (
            cubic(lambda g, x: (g * 3 * x**2).detach()),
            "grad_out_path_cut untracked_backward",
        ),
        "all NumPy": (
            cubic(lambda g, x: torch.from_numpy(g.detach().numpy() * 3 * x.detach().numpy() ** 2)),
            "grad_out_path_cut untracked_backward",
        ),
        "in place, not marked": (exp_in_place(False), "in_place_without_mark_dirty"),
        "graph made in forward": (
            UsedUp.apply,
            "backward_works_once untracked_backward",
        ),
        "counts its calls on ctx": (counts_its_calls, "backward_not_repeatable"),
        "keeps its first answer on ctx": (keeps_its_answer, "backward_not_repeatable"),
        "gradients handed over in units of their own": (
            lambda x: cubic(lambda g, x: g * 1.5 * x**2)(Doubling.apply(x)),
            "gradients_by_convention",
        ),
        "autograd.grad in backward": (nested(False), "path_counted_twice"),
        "second Function, no gradient for grad_out": (
            cube_with(without_grad_out),
            "second_function_gradient",
        ),
        "second Function, no gradient for x": (cube_with(without_x), "second_function_gradient"),
        "second Function, wrong formula": (
            cube_with(wrong_second_formula),
            "second_function_gradient",
        ),
        "frozen, detached": (
            of_two(detached_unless_all_are_asked_for),
            "input_frozen untracked_backward",
            a,
            b,
        ),
        "sign of grad_out": (
            second_slope(lambda h, g, x: (h * 3 * x**2, h * g.abs() * 6 * x)),
            "second_function_gradient sign_of_grad_out",
        ),
        "sign in the second backward": (
            second_slope(lambda h, g, x: (h * 3 * x**2, h.abs() * g * 6 * x)),
            "second_function_gradient sign_of_grad_out",
        ),
        "SinhFunc": (SinhFunc.apply, "intermediate_on_ctx"),
        "custom_fwd, cast": (
            under_autocast(torch.bfloat16),
            "input_copy_saved",
            x().float().detach().requires_grad_(),
        ),
    },
    "raises": {
        "a backward that applies itself": (EndsNowhere.apply, "endless_recursion"),
        "a leaf written into": (cubic(writes_into_a_leaf), "leaf_edited"),
        "not written yet": (cubic(halts), "raises_in"),
        "x.numpy()": (
            cubic(lambda g, x: g * torch.from_numpy(3 * np.asarray(x) ** 2)),
            "numpy_in_backward",
        ),
        "autograd.grad that frees its graph": (differentiating(), "graph_freed"),
        "no backward": (WithoutBackward.apply, "no_backward"),
        "out=": (
            cubic(lambda g, x: torch.mul(g, 3 * x**2, out=torch.empty_like(g))),
            "out_argument",
        ),
        "custom_op": (cube_op, "no_derivative_formula"),
        "hardsigmoid": (torch.nn.functional.hardsigmoid, "no_derivative_formula"),
        "embedding": (sum_of_rows, "no_derivative_formula", matrix),
        "edits its own": (cubic(edits_its_own), "saved_tensor_edited"),
        "None not checked": (lambda x: NoneUnchecked.apply(x)[0], "gradient_can_be_none"),
        "one gradient of two": (of_two(lambda ctx, g, a, b: g * b**2), "number_of_gradients", a, b),
        "gradients in a list": (
            of_two(lambda *given: list(both_right(*given))),
            "number_of_gradients",
            a,
            b,
        ),
        "gradient of another shape": (
            cubic(lambda g, x: (g * 3 * x**2).sum()[None].expand(3)),
            "gradient_of_another_kind",
        ),
        "gradient of a number": (by_number(lambda ctx, g: (2 * g, g)), "gradient_of_another_kind"),
        "number as a gradient": (by_number(lambda ctx, g: (2.0, None)), "gradient_of_another_kind"),
        "view of what is transposed": (cubic(transposed_view), "view_in_backward", matrix),
        "reentrant checkpoint in backward": (
            cubic(checkpointed),
            "checkpoint_refuses_grad first_derivative_differs grad_out_path_cut only_by_backward "
            "untracked_backward",
        ),
        "refuses a negative grad_out": (cubic(refuse_negative), "sign_of_grad_out", x(-0.5, 1.0)),
    },
    "once_differentiable": {
        "once_differentiable": (Once.apply, "once_differentiable"),
        "once_differentiable of no_grad": (
            function(save_x, guarding_no_grad).apply,
            "once_differentiable",
        ),
        "once_differentiable in a formula": (lambda x: Once.apply(x**2), "once_differentiable"),
    },
    "first_derivative_wrong": {
        "a leaf that is no argument": (
            of_inputs(lambda x: x**2 * weight, lambda g, x: g * 2 * x * weight).apply,
            "leaf_without_gradient",
        ),
        "edits what is saved by .data": (cubic(by_data), "mutates_saved elements_not_checked"),
        "edits grad_out": (Mutating.apply, "mutates_grad_out"),
        "edits a saved tensor": (Overwriting.apply, "mutates_saved untracked_backward"),
        "one made from another": (of_two(by_autograd), "inputs_of_one_another", a, b),
        "draws at random": (
            cubic(lambda g, x: g * x * (0.5 + torch.rand(2))),
            "backward_not_repeatable",
        ),
        "adds": (cubic(lambda g, x: g * 3 * x**2 + 1), "backward_not_linear"),
        "adds a little": (cubic(lambda g, x: g * 3 * x**2 + 1e-6), "backward_not_linear"),
        "multiplies": (cubic(lambda g, x: g * 3 * x**2 + g * g), "backward_not_linear"),
        "scales": (cubic(lambda g, x: g * 3 * x**2 * g.norm()), "backward_not_linear"),
        "takes its size": (
            cubic(lambda g, x: g.abs() * 3 * x**2),
            "backward_not_linear sign_of_grad_out",
        ),
        "guided": (
            cubic(lambda g, x: g.clamp(min=0) * 3 * x**2),
            "backward_not_linear sign_of_grad_out",
        ),
        "clips lopsidedly": (
            cubic(lambda g, x: g.clamp(-2, 5) * 3 * x**2),
            "backward_not_linear sign_of_grad_out",
        ),
        "looks at the sign": (
            cubic(lambda g, x: torch.where(g > 0, g * 3 * x**2, 0.0)),
            "backward_not_linear sign_of_grad_out",
        ),
        "ignores grad_out, and is infinite at 0": (
            saving(torch.sqrt, same, lambda g, x: 1 / (2 * x.sqrt())),
            "backward_not_linear nan_in_first",
            x(0.0, 1.0, 2.0),
        ),
        "clips the gradient": (
            cubic(lambda g, x: (g * 3 * x**2).clamp(-10, 10)),
            "backward_not_linear",
        ),
        "nan for a large grad_out": (
            cubic(lambda g, x: torch.where(g.abs() > 100, torch.nan, g) * 3 * x**2),
            "backward_not_linear",
        ),
    },
    "surrogate_gradient": {
        "an output used alone": (
            TwoOutputs.apply,
            "output_used_alone first_derivative_differs",
        ),
        "returns None": (ProductNone.apply, "returns_none", *pair),
        "frozen, None": (of_two(asks_for_the_wrong_one), "input_frozen returns_none", a, b),
        "rounding": (rounded, "first_derivative_differs", many),
        "rounding inside": (
            lambda x: (rounded(3 * x) ** 2).sum(),
            "first_derivative_differs",
            many,
        ),
        "grad without create_graph in fn": (
            lambda x: (x - torch.autograd.grad((x**4).sum(), x)[0]) ** 2,
            "steps_in_fn first_derivative_differs",
        ),
        "detached in fn": (
            lambda x: x * x.sin().detach(),
            "steps_in_fn first_derivative_differs",
        ),
        "a number made in fn": (
            lambda x: x * float(x.detach().exp().sum()),
            "steps_in_fn first_derivative_differs",
        ),
        "no_grad in fn": (under_no_grad, "steps_in_fn first_derivative_differs"),
        "a meant gradient, its result computed anew": (
            ByInput.apply,
            "first_derivative_differs",
            x(0.4, 1.2),
        ),
        "reversal": (Reversal.apply, "first_derivative_differs", many),
        "reversal inside": (
            lambda x: Reversal.apply(torch.sin(x)) ** 2,
            "first_derivative_differs",
            many,
        ),
        "spikes": (spike, "first_derivative_differs", many),
        "spikes stacked": (lambda x: spike(3 * spike(x) - x), "first_derivative_differs", many),
        "levels in float32": (
            saving(lambda x: (torch.round(4 * x) / 4).float(), same, lambda g, x: g),
            "first_derivative_differs",
            x(0.82, -0.74, 1.9, -0.55, 0.31, -1.2),
        ),
        "the same, and then turned round": (
            lambda x: Reversal.apply(cubic(HalfCube.apply)(Doubling.apply(x))),
            "first_derivative_differs",
        ),
    },
    "layout_dependent": {
        "contiguous copy saved": (copying(torch.Tensor.contiguous), "noncontiguous_input", matrix),
        "view of grad_out": (flattening("view"), "grad_out_layout", matrix),
        "view of grad_out, transposed": (
            lambda m: flattening("view")(m).t() * torch.ones(3, 2),
            "grad_out_layout",
            matrix,
        ),
        "cut where transposed": (
            cut_where(lambda g: g.stride()[0] == 1),
            "grad_out_layout",
            matrix,
        ),
        "cut where it has gaps": (cut_where(lambda g: g.stride()[0] == 2), "grad_out_layout"),
        "cut where expanded": (cut_where(lambda g: g.stride()[0] == 0), "grad_out_layout"),
        "nan for a grad_out that is not contiguous": (
            cubic(lambda g, m: g * 3 * m**2 if g.is_contiguous() else g * torch.nan * m),
            "grad_out_layout",
            matrix,
        ),
    },
    "not_finite": {
        "norm at 0": (torch.norm, "nan_in_second", x(0.0, 0.0)),
        "an infinite root": (torch.sqrt, "nan_in_first", x(0.0, 0.0)),
        "an infinite power": (lambda x: x**0.5, "nan_in_first", x(0.0, 1.0)),
        "an infinite arcsine": (torch.asin, "nan_in_first", x(1.0, 1.0)),
        "an infinite arccosine": (torch.acos, "nan_in_first", x(1.0, -1.0)),
        "an infinite root of its own": (
            saving(torch.sqrt, same, lambda g, x: g / (2 * x.sqrt())),
            "nan_in_first",
            x(0.0, 1.0),
        ),
        "root at 0 in backward": (cubic(root_backward), "nan_in_second", x(0.0, 0.5)),
        "nan for a negative grad_out": (
            cubic(lambda g, x: torch.exp(g.log() + (3 * x**2).log())),
            "sign_of_grad_out nan_in_first",
        ),
    },
    "not_checked": {
        "little but rounding left": (
            lambda x: -(x.softmax(0) * x.softmax(0).log()).sum(),
            "lost_in_rounding elements_not_checked",
            x(70.0, -40.0, 130.0),
        ),
        "a value at one point alone": (at_one_point, "raises_beside"),
        "a slight part is lost in fn": (
            lambda x: x**2 + 1e-2 * x.sin().detach(),
            "steps_in_fn",
        ),
        "solver stopped early": (StoppedEarly.apply, "inexact_first_derivative", x(0.05, 0.1)),
    },
}
ROWS = {name: (verdict, *row) for verdict, rows in SAID.items() for name, row in rows.items()}
# What a row cannot show: it takes an argument of diagnose, or what torch.compile makes.
ELSEWHERE = {
    "compiled_region": "test_compiled.py",
    "differences_disagree": "test_diagnosis.py",
    "ignored_not_applied": "test_ignore.py",
    "meant": "test_ignore.py",
    "nested_forward_mode": "test_transforms.py",
    "operator_in_forward_mode": "test_operators.py",
    "operator_not_followed": "test_operators.py",
    "third_order_not_tracked": "test_diagnosis_numbers.py",
    "torch_func_differs": "test_transforms.py",
    "torch_in_forward_mode": "test_transforms.py",
    "wrong_in_forward_mode": "test_transforms.py",
}


def test_each_finding_has_a_function_that_gets_it():
    said = {code for _, _, codes, *_ in ROWS.values() for code in codes.split()}
    assert said | ASIDE | set(ELSEWHERE) == set(FINDINGS)


def test_a_solver_is_right_to_the_tolerance_that_is_passed():
    assert diagnose(StoppedEarly.apply, x(0.05, 0.1), rtol=0.02).ok


@pytest.mark.parametrize("name", ROWS)
def test_verdict_and_codes(name, monkeypatch):
    verdict, fn, codes, *inputs = ROWS[name]
    diagnosis = diagnose(fn, *(inputs or [x()]))
    found = {finding.code for finding in diagnosis.findings} - ASIDE
    assert (diagnosis.verdict, found) == (verdict, set(codes.split())), str(diagnosis)
    errors = [finding for finding in diagnosis.findings if finding.severity == "error"]
    assert diagnosis.ok == (verdict == "supported") == (not errors)
    monkeypatch.setenv("COURSE_LANGUAGE", "zh_CN")
    for told in [translation(finding.message) for finding in diagnosis.findings]:
        assert HAN.search(told) and not english_in(TORCHS.sub("", told)), told


@pytest.mark.parametrize("name", list(ROWS)[::30])
def test_what_rules_get_is_plain_data(name, monkeypatch):
    """It can be written down and read again, which no callable, tensor or graph can."""
    got = []
    concluded = diagnosis_room.concluded
    monkeypatch.setattr(diagnosis_room, "concluded", lambda e: got.append(e) or concluded(e))
    _, fn, _, *inputs = ROWS[name]
    diagnose(fn, *(inputs or [x()]))
    (evidence,) = got
    text = pickle.dumps(evidence)
    assert b"torch._utils" not in text and concluded(pickle.loads(text)) == concluded(evidence)
