"""Operators registered with torch.library, in each verb: verdict, name, line, cause, number.

Each row has an operator, what it computes in plain torch, and what is to be said of it.
"""

import warnings
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
import torch
from torch.autograd.function import once_differentiable
from torch.library import custom_op

from double_backward import (
    SecondDerivativeError,
    UncheckedFunctionWarning,
    detect_intermediates,
    diagnose,
    diagnose_all,
    draw,
    recompute_intermediates,
)
from double_backward.calls import Listener, listening
from double_backward.check import Outcome

HERE = "operators_test"
WRONG, RIGHT, RAISES = "silently_wrong", "supported", "raises"
ONE, TWO = "(Tensor x) -> Tensor", "(Tensor a, Tensor b) -> Tensor"


def operator(name, body, backward, setup=None, schema=ONE):
    op = custom_op(f"{HERE}::{name}", body, mutates_args=(), schema=schema)
    if backward is not None:
        op.register_autograd(backward, setup_context=setup)
    return op


def keeps(made):
    """A setup_context that saves what is made of inputs and output."""

    def setup_context(ctx, inputs, output):
        kept = made(inputs, output)
        ctx.save_for_backward(*kept if isinstance(kept, tuple) else (kept,))

    return setup_context


def saves_inputs(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def saves_output(ctx, inputs, output):
    ctx.save_for_backward(output)


def saved(formula):
    """A backward: the gradient times a formula of what is saved."""

    def backward(ctx, g):
        return g * formula(*ctx.saved_tensors)

    return backward


def by_numpy(f, x):
    return torch.from_numpy(np.asarray(f(x.detach().numpy())))


def sinh_by_numpy(x):
    return by_numpy(np.sinh, x)


def two_outputs(x):
    return x.sinh(), x.cosh()


TWO_OUTPUTS = "(Tensor x) -> (Tensor, Tensor)"


@dataclass
class Row:
    op: object
    plain: object  # the same in torch
    verdict: str = RIGHT
    cause: str | None = None
    at: object = None  # the function whose line is told
    refused: str = ""  # what recompute_intermediates raises where there is no right number
    inputs: tuple = ()
    call: object = None  # of the operator and the inputs
    name: str = ""

    def fn(self, *inputs):
        return self.call(self.op, *inputs) if self.call else self.op(*inputs)

    def given(self):
        values = self.inputs or ((0.5, 1.0),)
        return [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in values]


ROWS: dict[str, Row] = {}


def add(name, op, plain, **expected):
    ROWS[name] = Row(op, plain, name=f"{HERE}::{name}", **expected)


def row(name, body, backward, setup, plain, *, schema=ONE, **expected):
    add(name, operator(name, body, backward, setup, schema), plain, **expected)


# Right.

cosh_of_saved = saved(torch.cosh)
row("sinh", torch.sinh, cosh_of_saved, saves_inputs, torch.sinh)
row("sinh_by_numpy", sinh_by_numpy, cosh_of_saved, saves_inputs, torch.sinh)
row(
    "numpy_without_detach",
    lambda x: torch.from_numpy(np.sinh(x.numpy())),
    cosh_of_saved,
    saves_inputs,
    torch.sinh,
)
row("exp", torch.exp, saved(lambda y: y), saves_output, torch.exp)
row("negative", torch.neg, lambda ctx, g: -g, None, torch.neg)


def both_gradients(ctx, gs, gc):
    s, c = ctx.saved_tensors
    return gs * c + gc * s


def saves_outputs(ctx, inputs, output):
    ctx.save_for_backward(*output)


row("two_outputs", two_outputs, both_gradients, saves_outputs, two_outputs, schema=TWO_OUTPUTS)
row(
    "one_of_two_outputs",
    two_outputs,
    both_gradients,
    saves_outputs,
    torch.sinh,
    schema=TWO_OUTPUTS,
    call=lambda op, x: op(x)[0],
)


def saves_input_and_number(ctx, inputs, output):
    x, ctx.p = inputs
    ctx.save_for_backward(x)


def power_backward(ctx, g):
    (x,) = ctx.saved_tensors
    return g * ctx.p * x ** (ctx.p - 1), None


POWER = "(Tensor x, float p) -> Tensor"
row(
    "power_int",
    lambda x, p: x**p,
    power_backward,
    saves_input_and_number,
    lambda x: x**3,
    schema="(Tensor x, int p) -> Tensor",
    call=lambda op, x: op(x, 3),
)
row(
    "power_float",
    lambda x, p: x**p,
    power_backward,
    saves_input_and_number,
    lambda x: x**2.5,
    schema=POWER,
    call=lambda op, x: op(x, 2.5),
)
row(
    "power_default",
    lambda x, p=2: x**p,
    power_backward,
    saves_input_and_number,
    lambda x: x**2,
    schema="(Tensor x, int p=2) -> Tensor",
)
row(
    "power_by_name",
    lambda x, p: x**p,
    power_backward,
    saves_input_and_number,
    lambda x: x**3,
    schema=POWER,
    call=lambda op, x: op(x, p=3.0),
)


def saves_keyword(ctx, inputs, keyword_only_inputs, output):
    ctx.p = keyword_only_inputs["p"]
    ctx.save_for_backward(*inputs)


row(
    "power_keyword",
    lambda x, *, p: x**p,
    lambda ctx, g: power_backward(ctx, g)[0],
    saves_keyword,
    lambda x: x**3,
    schema="(Tensor x, *, float p) -> Tensor",
    call=lambda op, x: op(x, p=3.0),
)


def by_kind(ctx, g):
    (x,) = ctx.saved_tensors
    return g * (x.cos() if ctx.p == "sin" else -x.sin()), None


row(
    "kinds",
    lambda x, kind: getattr(torch, kind)(x),
    by_kind,
    saves_input_and_number,
    torch.cos,
    schema="(Tensor x, str kind) -> Tensor",
    call=lambda op, x: op(x, "cos"),
)


def saves_list(ctx, inputs, output):
    ctx.save_for_backward(*inputs[0])


def of_cubes(ctx, g):
    return [g * 3 * x**2 for x in ctx.saved_tensors]


TENSORS = "(Tensor[] xs) -> Tensor"
TWO_INPUTS = (0.5, 1.0), (0.7, -0.4)
row(
    "list",
    lambda xs: sum(x**3 for x in xs),
    of_cubes,
    saves_list,
    lambda a, b: a**3 + b**3,
    schema=TENSORS,
    call=lambda op, *xs: op([*xs]),
    inputs=TWO_INPUTS,
)


def list_needing(ctx, g):
    (x,) = ctx.saved_tensors
    (needs,), needs_w = ctx.needs_input_grad
    return [g * 3 * x**2 if needs else None], g if needs_w else None


row(
    "list_and_more",
    lambda xs, w: xs[0] ** 3 + w,
    list_needing,
    lambda ctx, inputs, output: ctx.save_for_backward(*inputs[0]),
    lambda a, b: a**3 + b,
    schema="(Tensor[] xs, Tensor w) -> Tensor",
    call=lambda op, a, b: op([a], b),
    inputs=TWO_INPUTS,
)


def list_of_outputs(ctx, grads):
    (x,) = ctx.saved_tensors
    return grads[0] * x.cosh() + grads[1] * x.sinh()


row(
    "list_of_outputs",
    lambda x: [*two_outputs(x)],
    list_of_outputs,
    saves_inputs,
    two_outputs,
    schema="(Tensor x) -> Tensor[]",
)


def saves_optional(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def optional_backward(ctx, g):
    x, w = ctx.saved_tensors
    return g * 3 * x**2, None if w is None else g * 2 * w


OPTIONAL = "(Tensor x, Tensor? w=None) -> Tensor"


def with_optional(x, w=None):
    return x**3 + (0 if w is None else w**2)


row(
    "optional_missing",
    with_optional,
    optional_backward,
    saves_optional,
    lambda x: x**3,
    schema=OPTIONAL,
)
row(
    "optional_given",
    with_optional,
    optional_backward,
    saves_optional,
    with_optional,
    schema=OPTIONAL,
    inputs=TWO_INPUTS,
)


def product(a, b):
    return a * b**2


def product_backward(ctx, g):
    a, b = ctx.saved_tensors
    return g * b**2, g * 2 * a * b


row("product", product, product_backward, saves_inputs, product, schema=TWO, inputs=TWO_INPUTS)


def asks_what_is_needed(ctx, g):
    (a, b), (needs_a, needs_b) = ctx.saved_tensors, ctx.needs_input_grad
    return g * b**2 if needs_a else None, g * 2 * a * b if needs_b else None


row(
    "product_as_needed",
    product,
    asks_what_is_needed,
    saves_inputs,
    product,
    schema=TWO,
    inputs=TWO_INPUTS,
)
cosh_kernel = operator(
    "cosh_kernel",
    lambda x: by_numpy(np.cosh, x),
    lambda ctx, g: g * sinh_kernel(*ctx.saved_tensors),
    saves_inputs,
)
sinh_kernel = operator("sinh_kernel", sinh_by_numpy, saved(cosh_kernel), saves_inputs)
add("sinh_kernel", sinh_kernel, torch.sinh)
row(
    "around_another",
    lambda x: sinh_kernel(x) ** 2,
    lambda ctx, g: g * 2 * sinh_kernel(ctx.saved_tensors[0]) * cosh_kernel(ctx.saved_tensors[0]),
    saves_inputs,
    lambda x: x.sinh() ** 2,
)
row(
    "relu_squared",
    lambda x: x.relu() ** 2,
    lambda ctx, g: g * 2 * ctx.saved_tensors[0] * ctx.saved_tensors[1],
    keeps(lambda inputs, output: (inputs[0], inputs[0] > 0)),
    lambda x: x.relu() ** 2,
    inputs=((0.5, -1.0, 2.0),),
)


def keeps_shape(ctx, inputs, output):
    ctx.shape = inputs[0].shape


row(
    "mean",
    lambda x: x.mean(),
    lambda ctx, g: (g / ctx.shape.numel()).expand(ctx.shape),
    keeps_shape,
    torch.mean,
)
row(
    "of_a_constant",
    lambda x, w: x**2 * w.exp(),
    lambda ctx, g: (g * 2 * ctx.saved_tensors[0] * ctx.saved_tensors[1], None),
    keeps(lambda inputs, output: (inputs[0], inputs[1].exp())),
    lambda x: x**2 * torch.tensor([0.3, 0.4], dtype=torch.float64).exp(),
    schema="(Tensor x, Tensor w) -> Tensor",
    call=lambda op, x: op(x, torch.tensor([0.3, 0.4], dtype=torch.float64)),
)
row("with_vmap", torch.sinh, cosh_of_saved, saves_inputs, torch.sinh)
ROWS["with_vmap"].op.register_vmap(lambda info, dims, x: (ROWS["with_vmap"].op(x), dims[0]))
row(
    "computes_in_float32",
    lambda x: x.float().sinh().to(x.dtype),
    cosh_of_saved,
    saves_inputs,
    torch.sinh,
)

LIBRARY = torch.library.Library(HERE, "FRAGMENT")


def defined(name, body, backward, setup, plain, schema=ONE, **expected):
    """By the older interface: define, impl, register_autograd."""
    LIBRARY.define(f"{name}{schema}")
    LIBRARY.impl(name, body, "CompositeExplicitAutograd")
    torch.library.register_autograd(f"{HERE}::{name}", backward, setup_context=setup, lib=LIBRARY)
    add(name, getattr(torch.ops.operators_test, name.partition(".")[0]), plain, **expected)


defined("defined", torch.sinh, cosh_of_saved, saves_inputs, torch.sinh)


# Silently wrong.


def sinh_by_exponentials(ctx, g):
    e, n = ctx.saved_tensors
    return g * (e + n) / 2


keeps_exponentials = keeps(lambda inputs, output: (inputs[0].exp(), (-inputs[0]).exp()))


def wrong(name, body, backward, setup, plain, cause, at, **expected):
    row(name, body, backward, setup, plain, verdict=WRONG, cause=cause, at=at, **expected)


wrong(
    "kept",
    torch.sinh,
    sinh_by_exponentials,
    keeps_exponentials,
    torch.sinh,
    "intermediate_saved",
    keeps_exponentials,
)
wrong(
    "kept_by_numpy",
    sinh_by_numpy,
    sinh_by_exponentials,
    keeps_exponentials,
    torch.sinh,
    "intermediate_saved",
    keeps_exponentials,
)
wrong(
    "kept_numpy_without_detach",
    lambda x: torch.from_numpy(np.sinh(x.numpy())),
    sinh_by_exponentials,
    keeps_exponentials,
    torch.sinh,
    "intermediate_saved",
    keeps_exponentials,
)


def hangs_cosh(ctx, inputs, output):
    ctx.cosh = inputs[0].cosh()


def from_ctx(ctx, g):
    return g * ctx.cosh


wrong(
    "kept_on_ctx", torch.sinh, from_ctx, hangs_cosh, torch.sinh, "intermediate_on_ctx", hangs_cosh
)


def hangs_number(ctx, inputs, output):
    ctx.cosh = inputs[0].cosh().item()


wrong(
    "number_on_ctx",
    torch.sinh,
    from_ctx,
    hangs_number,
    torch.sinh,
    "intermediate_on_ctx",
    hangs_number,
    inputs=((0.5,),),
)


def keeps_numpy(ctx, inputs, output):
    ctx.save_for_backward(by_numpy(np.cosh, inputs[0]))


wrong(
    "kept_from_numpy",
    torch.sinh,
    saved(lambda c: c),
    keeps_numpy,
    torch.sinh,
    "computed_outside_torch",
    keeps_numpy,
)


def of_the_output(ctx, inputs, output):
    ctx.save_for_backward((1 + output**2).sqrt())


wrong(
    "made_of_the_output",
    sinh_by_numpy,
    saved(lambda c: c),
    of_the_output,
    torch.sinh,
    "intermediate_saved",
    of_the_output,
)


def keeps_second_output(ctx, inputs, output):
    ctx.save_for_backward(output[1])


def ignores_second(ctx, gs, gc):
    return gs * ctx.saved_tensors[0]


wrong(
    "extra_ignored",
    two_outputs,
    ignores_second,
    keeps_second_output,
    torch.sinh,
    "extra_output_gradient_ignored",
    ignores_second,
    schema=TWO_OUTPUTS,
    call=lambda op, x: op(x)[0],
)


def marks_second_output(ctx, inputs, output):
    ctx.save_for_backward(output[1])
    ctx.mark_non_differentiable(output[1])


wrong(
    "extra_marked",
    two_outputs,
    ignores_second,
    marks_second_output,
    torch.sinh,
    "intermediate_saved",
    marks_second_output,
    schema=TWO_OUTPUTS,
    call=lambda op, x: op(x)[0],
)


def extra_from_numpy(x):
    return by_numpy(np.sinh, x), by_numpy(np.cosh, x)


wrong(
    "extra_marked_numpy",
    extra_from_numpy,
    ignores_second,
    marks_second_output,
    torch.sinh,
    "computed_outside_torch",
    marks_second_output,
    schema=TWO_OUTPUTS,
    refused=r"still\s+wrong",
    call=lambda op, x: op(x)[0],
)


def doubles_second(ctx, gs, gc):
    s, c = ctx.saved_tensors
    return gs * c + 2 * gc * s


wrong(
    "extra_wrong",
    two_outputs,
    doubles_second,
    saves_outputs,
    torch.sinh,
    "extra_output_gradient_wrong",
    doubles_second,
    schema=TWO_OUTPUTS,
    call=lambda op, x: op(x)[0],
)


def detaches(ctx, g):
    return g * ctx.saved_tensors[0].detach().cosh()


wrong("detaches", torch.sinh, detaches, saves_inputs, torch.sinh, "untracked_backward", detaches)


def leaves_torch(ctx, g):
    return g * by_numpy(np.cosh, ctx.saved_tensors[0])


wrong(
    "leaves_torch",
    torch.sinh,
    leaves_torch,
    saves_inputs,
    torch.sinh,
    "untracked_backward",
    leaves_torch,
)
wrong(
    "leaves_torch_twice",
    sinh_by_numpy,
    leaves_torch,
    saves_inputs,
    torch.sinh,
    "untracked_backward",
    leaves_torch,
    refused=r"still\s+wrong",
)


@torch.no_grad()
def unrecorded(ctx, g):
    return g * ctx.saved_tensors[0].cosh()


wrong(
    "unrecorded",
    torch.sinh,
    unrecorded,
    saves_inputs,
    torch.sinh,
    "grad_out_path_cut",
    unrecorded.__wrapped__,
)


def drops_grad_out(ctx, g):
    return g.detach() * ctx.saved_tensors[0].cosh()


wrong(
    "drops_grad_out",
    torch.sinh,
    drops_grad_out,
    saves_inputs,
    torch.sinh,
    "grad_out_path_cut",
    drops_grad_out,
)
half_cosh = operator("half_cosh", torch.cosh, saved(lambda x: x.sinh() / 2), saves_inputs)
by_half = saved(half_cosh)
wrong(
    "second_wrong", torch.sinh, by_half, saves_inputs, torch.sinh, "second_function_gradient", None
)


def keeps_copy(ctx, inputs, output):
    ctx.save_for_backward(inputs[0].clone())


wrong(
    "copy_saved", torch.sinh, cosh_of_saved, keeps_copy, torch.sinh, "input_copy_saved", keeps_copy
)


def keeps_squares(ctx, inputs, output):
    ctx.save_for_backward(*[x**2 for x in inputs[0]])


def of_squares(ctx, g):
    return [g * 3 * s for s in ctx.saved_tensors]


wrong(
    "list_kept",
    lambda xs: sum(x**3 for x in xs),
    of_squares,
    keeps_squares,
    lambda a, b: a**3 + b**3,
    "intermediate_saved",
    keeps_squares,
    schema=TENSORS,
    call=lambda op, *xs: op([*xs]),
    inputs=TWO_INPUTS,
)


def outputs_kept(ctx, inputs, output):
    ctx.save_for_backward(*[y.clone() for y in output])


def of_kept_outputs(ctx, grads):
    s, c = ctx.saved_tensors
    return grads[0] * c + grads[1] * s


wrong(
    "list_of_outputs_kept",
    lambda x: [*two_outputs(x)],
    of_kept_outputs,
    outputs_kept,
    two_outputs,
    "intermediate_saved",
    outputs_kept,
    schema="(Tensor x) -> Tensor[]",
)


def keeps_power(ctx, inputs, output):
    x, ctx.p = inputs
    ctx.save_for_backward(x ** (ctx.p - 1))


def of_power(ctx, g):
    return g * ctx.p * ctx.saved_tensors[0], None


wrong(
    "power_kept",
    lambda x, p: x**p,
    of_power,
    keeps_power,
    lambda x: x**3,
    "intermediate_saved",
    keeps_power,
    schema=POWER,
    call=lambda op, x: op(x, 3.0),
)


def keeps_keyword_power(ctx, inputs, keyword_only_inputs, output):
    ctx.p = keyword_only_inputs["p"]
    ctx.save_for_backward(inputs[0] ** (ctx.p - 1))


wrong(
    "keyword_kept",
    lambda x, *, p=3.0: x**p,
    lambda ctx, g: of_power(ctx, g)[0],
    keeps_keyword_power,
    lambda x: x**3,
    "intermediate_saved",
    keeps_keyword_power,
    schema="(Tensor x, *, float p=3.0) -> Tensor",
)
LEFT = {}


def leaves_elsewhere(ctx, inputs, output):
    LEFT["cosh"] = inputs[0].cosh()


wrong(
    "left_elsewhere",
    torch.sinh,
    lambda ctx, g: g * LEFT["cosh"],
    leaves_elsewhere,
    torch.sinh,
    "state_outside_ctx",
    leaves_elsewhere,
)
defined(
    "defined_kept",
    torch.sinh,
    sinh_by_exponentials,
    keeps_exponentials,
    torch.sinh,
    verdict=WRONG,
    cause="intermediate_saved",
    at=keeps_exponentials,
)
defined(
    "overloaded.other",
    torch.sinh,
    sinh_by_exponentials,
    keeps_exponentials,
    torch.sinh,
    verdict=WRONG,
    cause="intermediate_saved",
    at=keeps_exponentials,
)
wrong(
    "float32_kept",
    lambda x: x.float().sinh().to(x.dtype),
    sinh_by_exponentials,
    keeps_exponentials,
    torch.sinh,
    "intermediate_saved",
    keeps_exponentials,
)
wrong(
    "with_vmap_kept",
    torch.sinh,
    sinh_by_exponentials,
    keeps_exponentials,
    torch.sinh,
    "intermediate_saved",
    keeps_exponentials,
)
ROWS["with_vmap_kept"].op.register_vmap(
    lambda info, dims, x: (ROWS["with_vmap_kept"].op(x), dims[0])
)

# Raises.


def hands_over_to_numpy(ctx, g):
    return torch.from_numpy(g.numpy() * np.cosh(ctx.saved_tensors[0].numpy()))


row(
    "numpy_in_backward",
    torch.sinh,
    hands_over_to_numpy,
    saves_inputs,
    torch.sinh,
    verdict=RAISES,
    cause="numpy_in_backward",
    at=hands_over_to_numpy,
    refused=r"Can't call numpy\(\)",
)
no_formula = operator("no_formula", torch.cosh, None)
by_no_formula = saved(no_formula)
row(
    "second_without_formula",
    torch.sinh,
    by_no_formula,
    saves_inputs,
    torch.sinh,
    verdict=RAISES,
    cause="no_derivative_formula",
    at=None,
)
guarded = once_differentiable(hands_over_to_numpy)
row(
    "guarded",
    torch.sinh,
    guarded,
    saves_inputs,
    torch.sinh,
    verdict="once_differentiable",
    cause="once_differentiable",
    at=None,
)


@pytest.mark.parametrize("on_ctx", [False, True])
def test_setup_context_does_not_make_what_the_operator_returns(on_ctx):
    """It marks it, and the mark makes it a constant."""

    def marks(ctx, inputs, output):
        marks_second_output(ctx, inputs, output)
        ctx.kept = output[1]

    backward = (lambda ctx, gs, gc: gs * ctx.kept) if on_ctx else ignores_second
    op = operator(f"marked_{on_ctx}", two_outputs, backward, marks, TWO_OUTPUTS)
    told = diagnose(lambda x: op(x)[0], *ROWS["sinh"].given()).cause.message
    assert "made" not in told.lower() and "marked non-differentiable" in told, told


def test_setup_context_does_not_make_a_number_that_the_operator_returns():
    def keeps_number(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.largest = output[1]

    def by_number(ctx, g, _):
        (x,) = ctx.saved_tensors
        return g * ctx.largest + (g * x).sum() * (x == ctx.largest)

    schema = "(Tensor x) -> (Tensor, float)"
    body = lambda x: (x * x.max(), x.max().item())  # noqa: E731
    op = operator("returns_number", body, by_number, keeps_number, schema)
    told = diagnose(lambda x: op(x)[0], *ROWS["sinh"].given()).cause.message
    assert "made itself" not in told and "keeps on ctx an output" in told, told
    assert "return it as a tensor" in told, told


def test_the_operator_without_a_backward_is_named():
    for fn in (ROWS["second_without_formula"].op, no_formula):
        told = diagnose(fn, *ROWS["sinh"].given()).cause.message
        assert told.startswith(f"The operator {HERE}::no_formula has no derivative"), told


@pytest.mark.parametrize("name", ["attributes", "kept", "outputs"])
def test_ctx_has_any_name_free(name):
    def setup(ctx, inputs, output):
        marks_second_output(ctx, inputs, output)
        setattr(ctx, name, output[1])

    op = operator(f"on_{name}", two_outputs, ignores_second, setup, TWO_OUTPUTS)
    with recompute_intermediates():
        assert is_right(second(lambda x: op(x)[0], ROWS["sinh"].given()), ROWS["sinh"])


# What the verbs say.

JUDGED = pytest.mark.parametrize("name", ROWS)
QUICK = {"sinh_by_numpy", "list", "power_keyword", "kept_by_numpy", "extra_ignored", "list_kept"}
JUDGED_AGAIN = pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in ROWS]
)


def second(fn, given):
    """Of the sum of squares of what fn returns: its error would be silent."""
    ys = fn(*given)
    ys = ys if isinstance(ys, (tuple, list)) else (ys,)
    loss = sum((y**2).sum() for y in ys)
    grads = torch.autograd.grad(loss, given, create_graph=True)
    moved = sum((g * w).sum() for w, g in enumerate(grads, 2))
    return torch.cat([g.flatten() for g in torch.autograd.grad(moved, given)])


def is_right(number, each):
    rtol = 1e-5 if "float32" in each.name else 1e-9
    return torch.allclose(number, second(each.plain, each.given()), rtol=rtol)


def line_of(function):
    return function.__code__.co_firstlineno


@JUDGED
def test_diagnose_names_it(name):
    each = ROWS[name]
    found = diagnose(each.fn, *each.given())
    assert (found.verdict, found.cause and found.cause.code) == (each.verdict, each.cause), found
    assert each.name in found.functions
    assert not any("Generated" in n or "Registered" in n for n in found.functions)
    assert "torch/_library" not in str(found) and "Generated" not in str(found)
    if each.at is not None:
        cause = found.to_dict()["findings"][found.findings.index(found.cause)]
        assert (cause["function"], cause["file"], cause["line"]) == (
            each.name,
            __file__,
            line_of(each.at),
        )


@JUDGED_AGAIN
@pytest.mark.filterwarnings("error")
def test_detect_raises_under_its_name(name):
    each = ROWS[name]
    given = each.given()
    try:
        with detect_intermediates():
            number = second(each.fn, given)
    except SecondDerivativeError as error:
        assert each.verdict != RIGHT and str(error).startswith(f"{each.name}:"), error
        at = f"test_operators.py:{line_of(each.at)};" if each.at else ""
        assert at in str(error).replace("\n", " "), error
    except RuntimeError:
        assert each.verdict in (RAISES, "once_differentiable")
    else:
        assert each.verdict == RIGHT and is_right(number, each)


@JUDGED
@pytest.mark.filterwarnings("error")
def test_recompute_is_right_or_raises(name):
    each = ROWS[name]
    given = each.given()
    refused = pytest.raises(RuntimeError, match=each.refused) if each.refused else nullcontext()
    with refused, recompute_intermediates():
        assert is_right(second(each.fn, given), each)


@JUDGED_AGAIN
def test_diagnose_all_has_its_row(name):
    each = ROWS[name]
    found = diagnose_all(lambda: second(each.fn, each.given()))
    (told,) = [row for row in found.rows if row.name == each.name]
    assert (told.verdict == RIGHT) == (each.verdict == RIGHT), found
    assert told.place.file == __file__, found
    assert "torch/_library" not in str(found)


@JUDGED_AGAIN
def test_draw_names_it(name):
    each = ROWS[name]
    given = each.given()
    y = each.fn(*given)
    assert each.name in str(draw(y=y[0] if isinstance(y, (tuple, list)) else y))


def test_enable_grad_in_setup_context_is_no_cure():
    """As lesson 4 says."""

    def recorded(ctx, inputs, output):
        with torch.enable_grad():
            ctx.cosh = inputs[0].cosh()

    op = operator("enables_grad", torch.sinh, from_ctx, recorded)
    given = ROWS["kept"].given()
    assert not is_right(second(op, given), ROWS["kept"])
    cause = diagnose(op, *given).cause
    assert (cause.code, cause.line) == ("intermediate_on_ctx", line_of(recorded))
    with recompute_intermediates():
        assert is_right(second(op, given), ROWS["kept"])


def test_a_batch_needs_no_rule():
    """As lesson 6 says: without register_vmap torch goes one by one."""
    op, x = ROWS["sinh_by_numpy"].op, torch.rand(3, 2, dtype=torch.float64)
    assert torch.allclose(torch.func.vmap(op)(x), x.sinh())


def test_opcheck_passes_what_is_silently_wrong():
    """All four of its tests; none of them differentiates twice."""
    op = ROWS["kept"].op
    op.register_fake(torch.empty_like)
    given = ROWS["kept"].given()
    passed = torch.library.opcheck(op, given)
    assert len(passed) == 4 and set(passed.values()) == {"SUCCESS"}
    assert diagnose(op, *given).verdict == WRONG
    assert not is_right(second(op, given), ROWS["kept"])


# Names.


def test_an_operator_by_itself_is_called_by_its_name():
    op, x = ROWS["kept"].op, torch.tensor([0.5, 1.0], requires_grad=True)
    overloads = torch.ops.operators_test.kept, torch.ops.operators_test.kept.default
    for each in (op, *overloads):
        assert diagnose(each, x).headline.startswith("operators_test::kept: ")


def ways_to_say(op):
    packet = getattr(torch.ops.operators_test, op._name)
    return [op, packet, packet.default, f"{HERE}::{op._name}", f"{HERE}::{op._name}.default"]


meant_to = saved(lambda x: (1 - x.abs()).relu())
surrogate = operator("surrogate", torch.sign, meant_to, saves_inputs)
kept_slope = keeps(lambda inputs, output: (1 - inputs[0].abs()).relu())
surrogate_bad = operator("surrogate_bad", torch.sign, saved(lambda s: s), kept_slope)


@pytest.mark.parametrize("place", range(5))
def test_ignore_takes_an_operator_in_each_verb(place):
    x = torch.tensor([0.3, -0.4], dtype=torch.float64, requires_grad=True)
    ignored = [ways_to_say(surrogate)[place]]
    found = diagnose(surrogate, x)
    assert found.verdict == "surrogate_gradient"
    assert f'ignore=["{HERE}::surrogate"]' in found.read_first.message
    assert diagnose(surrogate, x, ignore=ignored).ok
    assert diagnose_all(lambda: second(surrogate, [x]), ignore=ignored).ok
    ignored = [ways_to_say(surrogate_bad)[place]]
    assert diagnose(surrogate_bad, x, ignore=ignored).verdict == WRONG
    with pytest.raises(SecondDerivativeError), detect_intermediates():
        second(surrogate_bad, [x])
    with detect_intermediates(ignore=ignored):
        second(surrogate_bad, [x])


def test_ignore_takes_a_list():
    with pytest.raises(TypeError, match="registered operators"):
        diagnose(surrogate, torch.ones(1, requires_grad=True), ignore=torch.ops.operators_test.kept)


@pytest.mark.parametrize("name", ["sinh", "with_vmap"])
def test_what_the_row_of_torch_func_says(name):
    op, x = ROWS[name].op, torch.tensor([0.5, 1.0], dtype=torch.float64)
    with pytest.raises(RuntimeError, match="must override the setup_context"):
        torch.func.grad(lambda x: op(x).sum())(x)
    assert not torch.func.jvp(op, (x,), (torch.ones_like(x),))[1].any()
    assert not torch.func.jacfwd(op)(x).any()
    assert torch.equal(torch.func.vmap(op)(x), x.sinh())
    assert "not for registered operators: grad raises" in str(diagnose(op, x.requires_grad_()))


def test_forward_mode_through_an_operator_is_asked():
    op, x = ROWS["sinh"].op, torch.tensor([0.5, 1.0], dtype=torch.float64, requires_grad=True)
    for fn in (op, lambda x: op(x) + x**3):
        found = diagnose(fn, x)
        (told,) = [f for f in found.findings if f.code == "operator_in_forward_mode"]
        assert found.verdict == RIGHT and told.function == f"{HERE}::sinh"
        assert [row.outcome for row in found.forward_mode.values()] == [Outcome.WRONG]


def test_forward_mode_that_needs_nothing_of_an_operator_is_right():
    x = torch.tensor([0.5, 1.0], dtype=torch.float64, requires_grad=True)
    found = diagnose(lambda x: rounded(x) + x**3, x)
    assert f"{HERE}::rounded" in found.functions
    assert found.forward_mode["jvp"].outcome is Outcome.RIGHT and not found.findings


def test_forward_mode_beside_what_requires_a_gradient_is_not_checked():
    op, x = ROWS["sinh"].op, torch.tensor([0.5, 1.0], dtype=torch.float64, requires_grad=True)
    weight = torch.tensor([2.0, 3.0], dtype=torch.float64, requires_grad=True)
    row = diagnose(lambda x: op(weight * x), x).forward_mode["jvp"]
    assert (row.outcome, row.text) == (Outcome.NOT_ASKED, "no jvp")


def hessian_forward(op):
    x = torch.tensor([0.5, 1.0], dtype=torch.float64)
    return lambda: torch.func.jacfwd(torch.func.jacfwd(lambda x: op(x) + x**3))(x)


def one_tangent(op):
    x = torch.tensor([0.5, 1.0], dtype=torch.float64)
    return lambda: torch.func.jvp(op, (x,), (torch.ones_like(x),))


@pytest.mark.parametrize(("way", "order"), [(one_tangent, 1), (hessian_forward, 2)])
@pytest.mark.parametrize("name", ["sinh", "defined_kept"])
def test_an_operator_that_forward_mode_goes_through_is_not_checked(way, order, name):
    """torch makes no Function of it there, and drops its tangent."""
    op = ROWS[name].op
    step = way(torch.ops.operators_test.defined_kept if name == "defined_kept" else op)
    found = diagnose_all(step)
    (row,) = found.rows
    assert (row.name, row.verdict, row.order) == (f"{HERE}::{name}", "not_checked", order)
    assert row.called.file == __file__ and not found.ok and "drops the tangent" in str(found)
    assert row.place.file in (__file__, "")
    ignored = [f"{HERE}::{name}"]
    assert diagnose_all(step, ignore=ignored).ok
    for remedy in (detect_intermediates, recompute_intermediates):
        with pytest.warns(UncheckedFunctionWarning, match=f"{HERE}::{name}"), remedy():
            step()
        with warnings.catch_warnings(action="error"), remedy(ignore=ignored):
            step()


def test_what_keeps_its_tangent_is_no_concern_of_forward_mode():
    """Operations of torch, and operators whose kernel is composed of these."""
    LIBRARY.define("composed(Tensor x) -> Tensor")
    LIBRARY.impl("composed", torch.sinh, "CompositeImplicitAutograd")
    for op in (torch.ops.operators_test.composed, torch.ops.aten.sinh, torch.ops.aten.detach):
        assert diagnose_all(hessian_forward(op)).rows == []


# In place: torch takes no backward for an operator that writes into what it is given.


@custom_op(f"{HERE}::doubles", mutates_args={"x"})
def doubles(x: torch.Tensor) -> None:
    x.mul_(2)


@custom_op(f"{HERE}::writes_sinh", mutates_args={"out"})
def writes_sinh(x: torch.Tensor, out: torch.Tensor) -> None:
    out.copy_(x.sinh())


def doubled(x):
    y = x * 1
    doubles(y)
    return y**2


def written(x):
    out = torch.zeros_like(x)
    writes_sinh(x, out)
    return out + x


@pytest.mark.parametrize(("fn", "op"), [(doubled, doubles), (written, writes_sinh)])
def test_one_that_writes_in_place_is_named(fn, op):
    given = [torch.tensor([0.5, 1.0], dtype=torch.float64, requires_grad=True)]
    found = diagnose(fn, *given)
    assert not found.ok and found.read_first.code == "steps_in_fn"
    assert f"{op._name}(" in str(found) and "mutates_args" in str(found)
    for remedy in (detect_intermediates, recompute_intermediates):
        with pytest.warns(UncheckedFunctionWarning, match=f"{HERE}::{op._name}"), remedy():
            second(fn, given)
    with warnings.catch_warnings(action="error"), detect_intermediates(ignore=[op]):
        second(fn, given)
    step = diagnose_all(lambda: second(fn, given))
    assert [(row.verdict, row.order) for row in step.rows] == [("not_checked", 1)] and not step.ok
    assert "torch follows no operator that does" in str(step)
    assert diagnose_all(lambda: second(fn, given), ignore=[op]).ok


def through_a_buffer(x):
    out = torch.empty_like(x)
    writes_sinh(x, out)
    return out


def by_a_buffer(ctx, g):
    return g * (1 + through_a_buffer(ctx.saved_tensors[0]) ** 2).sqrt()


@pytest.mark.filterwarnings("error")
def test_one_that_writes_inside_of_another_is_judged_with_that():
    """Its number is right, or it raises: nobody is warned of what writes besides."""
    given = ROWS["kept"].given()
    kept = operator("by_buffer", through_a_buffer, sinh_by_exponentials, keeps_exponentials)
    op = operator("buffer_in_backward", torch.sinh, by_a_buffer, saves_inputs)
    for each in (kept, op):
        with recompute_intermediates():
            assert is_right(second(each, given), ROWS["kept"])
    with pytest.raises(SecondDerivativeError, match="buffer_in_backward"), detect_intermediates():
        second(op, given)


def test_nobody_is_told_to_register_a_backward_where_torch_refuses_it():
    @custom_op(f"{HERE}::counts", mutates_args={"n"})
    def counts(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        n.add_(1)
        return x.sinh()

    with pytest.raises(RuntimeError, match="non-functional operator"):
        counts.register_autograd(cosh_of_saved, setup_context=saves_inputs)
    told = diagnose(lambda x: counts(x, torch.zeros(1)), *ROWS["kept"].given()).cause.message
    assert "Register one" not in told and "return a new tensor" in told, told


rounded = operator("rounded", torch.round, lambda ctx, g: 0 * g)


# By define and impl, without an Autograd key: torch warns, and goes on with a constant.


def only_impl(name, body, key="CompositeExplicitAutograd", schema=ONE):
    LIBRARY.define(f"{name}{schema}")
    LIBRARY.impl(name, body, key)
    return getattr(torch.ops.operators_test, name)


WITHOUT_KERNEL = {
    "of_composite": (only_impl("of_composite", sinh_by_numpy), lambda op, x: op(x)),
    "of_cpu": (only_impl("of_cpu", sinh_by_numpy, "CPU"), lambda op, x: op(x)),
    "of_two": (
        only_impl("of_two", extra_from_numpy, "CPU", TWO_OUTPUTS),
        lambda op, x: op(x)[0],
    ),
    "of_list": (
        only_impl(
            "of_list", lambda xs: [*map(sinh_by_numpy, xs)], "CPU", "(Tensor[] xs) -> Tensor[]"
        ),
        lambda op, x: op([x])[0],
    ),
    "of_keyword": (
        only_impl(
            "of_keyword",
            lambda x, p=1.0: sinh_by_numpy(x) * p,
            "CPU",
            "(Tensor x, float p=1.0) -> Tensor",
        ),
        lambda op, x: op(p=2.0, x=x) / 2,
    ),
}


def beside_a_cube(name):
    """A function in which an operator that autograd does not follow is silently left out."""
    op, call = WITHOUT_KERNEL[name]
    return lambda x: call(op, x) + x**3


@pytest.mark.filterwarnings("ignore:.*autograd kernel was not registered")
@pytest.mark.parametrize("name", WITHOUT_KERNEL)
def test_an_operator_without_an_autograd_kernel_is_told(name):
    fn, given = beside_a_cube(name), ROWS["kept"].given()
    assert not torch.allclose(second(fn, given), second(lambda x: x.sinh() + x**3, given))
    found = diagnose(fn, *given)
    assert (found.verdict, found.cause.code) == ("first_derivative_wrong", "operator_not_followed")
    assert found.cause.function == f"{HERE}::{name}"
    step = diagnose_all(lambda: second(fn, given))
    (row,) = step.rows
    assert (row.name, row.verdict, row.ok) == (f"{HERE}::{name}", found.verdict, False)
    assert row.cause.code == found.cause.code and row.called.file == __file__
    for remedy in (detect_intermediates, recompute_intermediates):
        with pytest.raises(SecondDerivativeError, match=f"{HERE}::{name}"), remedy():
            second(fn, given)
        with remedy():  # first derivatives are not checked
            fn(*given).sum().backward()


@pytest.mark.filterwarnings("ignore:.*autograd kernel was not registered")
def test_ignore_takes_an_operator_without_an_autograd_kernel():
    fn, given = beside_a_cube("of_cpu"), ROWS["kept"].given()
    ignored = [f"{HERE}::of_cpu"]
    assert diagnose(fn, *given, ignore=ignored).ok
    assert diagnose_all(lambda: second(fn, given), ignore=ignored).ok
    for remedy in (detect_intermediates, recompute_intermediates):
        with remedy(ignore=ignored):
            second(fn, given)


@pytest.mark.filterwarnings("ignore:.*autograd kernel was not registered")
def test_one_without_an_autograd_kernel_that_is_constant_takes_nothing_away():
    op = only_impl("steps", lambda x: by_numpy(np.floor, x), "CPU")
    fn, given = (lambda x: op(x) * x**3), [torch.tensor([1.3, 2.4], requires_grad=True)]
    for remedy in (detect_intermediates, recompute_intermediates):
        with remedy():
            number = second(fn, given)
        assert torch.allclose(number, second(lambda x: x.detach().floor() * x**3, given))
    assert diagnose(fn, *given).ok


FOLLOWED = {
    "implicit": only_impl("implicit", torch.sinh, "CompositeImplicitAutograd"),
    "autograd_cpu": only_impl("autograd_cpu", torch.sinh, "AutogradCPU"),
    "in_torch": only_impl("in_torch", torch.sinh, "CPU"),
}


@pytest.mark.filterwarnings("ignore:.*autograd kernel was not registered")
@pytest.mark.parametrize("name", FOLLOWED)
def test_what_autograd_follows_without_a_backward_is_right(name):
    op, given = FOLLOWED[name], ROWS["kept"].given()
    assert diagnose_all(lambda: second(op, given)).rows == []
    for remedy in (detect_intermediates, recompute_intermediates):
        with remedy():
            assert torch.allclose(second(op, given), second(torch.sinh, given))


def test_an_operator_whose_result_has_no_graph_is_told():
    op = only_impl("no_graph", sinh_by_numpy, "CompositeImplicitAutograd")
    fn, given = (lambda x: op(x) + x**3), ROWS["kept"].given()
    assert diagnose(fn, *given).cause.code == "operator_not_followed"
    (row,) = diagnose_all(lambda: second(fn, given)).rows
    assert (row.name, row.verdict, row.calls) == (f"{HERE}::no_graph", "not_checked", 1)
    for remedy in (detect_intermediates, recompute_intermediates):
        with pytest.warns(UncheckedFunctionWarning, match=f"{HERE}::no_graph"), remedy():
            second(fn, given)


def test_a_numpy_kernel_below_no_autograd_raises_where_it_is_called():
    """As docs/ERRORS.md says: torch hands it x with its graph."""
    op = only_impl("numpy_kernel", lambda x: torch.from_numpy(np.sinh(x.numpy())), "CPU")
    with pytest.raises(RuntimeError, match=r"Can't call numpy\(\)"):
        op(*ROWS["kept"].given())


def test_one_that_is_declared_constant_is_left_alone():
    op = only_impl("declared", sinh_by_numpy, "CPU")
    LIBRARY.impl("declared", torch.library.fallthrough_kernel, "Autograd")
    given = ROWS["kept"].given()
    for remedy in (detect_intermediates, recompute_intermediates):
        with warnings.catch_warnings(action="error"), remedy():
            second(lambda x: op(x) + x**3, given)


def test_a_definition_that_writes_past_autograd_is_told():
    def writes(x, out):
        out.detach().copy_(x.detach().sinh())

    op = only_impl("writes", writes, "CPU", "(Tensor x, Tensor(a!) out) -> ()")

    def fn(x):
        out = torch.zeros_like(x)
        op(x, out)
        return out + x**3

    given = ROWS["kept"].given()
    assert not diagnose(fn, *given).ok
    assert [row.verdict for row in diagnose_all(lambda: second(fn, given)).rows] == ["not_checked"]
    with pytest.warns(UncheckedFunctionWarning, match=f"{HERE}::writes"), detect_intermediates():
        second(fn, given)


def test_the_overload_that_is_called_is_the_one_that_is_named():
    LIBRARY.define("several.one(Tensor x) -> Tensor")
    LIBRARY.define("several.two(Tensor x, Tensor w) -> Tensor")
    LIBRARY.impl("several.one", torch.sinh, "CompositeImplicitAutograd")
    LIBRARY.impl("several.two", lambda x, w: sinh_by_numpy(x), "CompositeImplicitAutograd")
    given = ROWS["kept"].given()
    step = diagnose_all(lambda: second(lambda x: torch.ops.operators_test.several(x, x), given))
    assert [row.name for row in step.rows] == [f"{HERE}::several.two"]


def test_how_torch_dispatches_an_operator_is_no_change():
    """A first call fills caches of torch's; a second kernel is another thing that it may call."""

    def around(ctx, g):
        return g * other(ctx.saved_tensors[0])

    other = operator("dispatched", torch.cosh, saved(torch.sinh), saves_inputs)
    op = operator("two_kernels", torch.sinh, around, saves_inputs)
    for each, kernel in ((op, sinh_by_numpy), (other, lambda x: by_numpy(np.cosh, x))):
        each.register_kernel("cpu", kernel)
        each.register_kernel("cuda", torch.sinh)
    changed = []

    class Met(Listener):
        def watches(self, call):
            return True

        def after_backward(self, node, call, grad_outs, grads):
            changed.append(call.changed)
            return grads

    with listening(Met()):
        second(op, ROWS["kept"].given())
    assert changed and not any(changed)


class Kernel:
    """Keeps what it has compiled, which is much, as those of Numba, Triton and Warp do."""

    __module__ = "numba.core.registry"

    def __init__(self):
        self.compiled = {}

    def __call__(self, x):
        if x.dtype not in self.compiled:
            self.compiled[x.dtype] = [[] for _ in range(30_000)]
        return np.cosh(x)


@pytest.mark.filterwarnings("error")
def test_what_a_kernel_has_compiled_is_not_looked_at():
    """It is no state: a call that was compiled is the same call."""
    kernel = Kernel()
    op = operator(
        "compiled_kernel",
        lambda x: (sinh_by_numpy(x), torch.from_numpy(kernel(x.numpy())))[0],
        sinh_by_exponentials,
        keeps_exponentials,
    )
    raw = operator(
        "raw_kernel",
        sinh_by_numpy,
        lambda ctx, g: g * torch.from_numpy(kernel(ctx.saved_tensors[0].detach().numpy())),
        saves_inputs,
    )
    given = ROWS["kept"].given()
    for each in (op, raw):
        with pytest.raises(SecondDerivativeError, match=each._name), detect_intermediates():
            second(each, given)
    with recompute_intermediates():
        assert is_right(second(op, given), ROWS["kept"])
    assert diagnose_all(lambda: second(raw, given)).rows[0].verdict == WRONG


@pytest.mark.filterwarnings("ignore:.*autograd kernel was not registered")
def test_a_kernel_without_a_backward_is_named_as_the_step_that_cuts():
    """As where a registered backward calls a raw kernel of the package."""
    kernel = only_impl("raw", lambda x: by_numpy(np.cosh, x), "CPU")

    def raw(ctx, g):
        return g * kernel(ctx.saved_tensors[0])

    op = operator("around_raw", sinh_by_numpy, raw, saves_inputs)
    found = diagnose(op, *ROWS["kept"].given())
    assert (found.verdict, found.cause.code) == (WRONG, "untracked_backward")
    assert "an operator that has no backward in raw, line" in " ".join(str(found).split())


# What is said of NumPy, and of a gradient that is not returned.


def test_why_numpy_in_setup_context_cannot_be_repaired():
    def keeps_array(ctx, inputs, output):
        ctx.cosh = np.cosh(inputs[0].detach().numpy())

    op = operator(
        "array", sinh_by_numpy, lambda ctx, g: g * torch.from_numpy(ctx.cosh), keeps_array
    )
    given = ROWS["kept"].given()
    with pytest.raises(SecondDerivativeError) as told, recompute_intermediates():
        second(op, given)
    said = " ".join(str(told.value).split())
    assert "still wrong" in said and "setup_context" in said
    assert f"test_operators.py:{line_of(keeps_array)}" in said


def test_numpy_in_the_operator_is_not_what_is_in_the_way():
    """The reason is that of the backward: here a second operator that is incomplete."""
    op = operator(
        "around_half", lambda x: torch.from_numpy(np.sinh(x.numpy())), by_half, saves_inputs
    )
    refused = pytest.raises(SecondDerivativeError, match="half_cosh returns a\\s+wrong\\s+gradient")
    with refused, recompute_intermediates():
        second(op, ROWS["kept"].given())


def test_a_gradient_that_is_not_returned_is_told_with_its_line():
    def forgets(ctx, g):
        return g * ctx.saved_tensors[1], None

    op = operator("forgets", torch.mul, forgets, saves_inputs, TWO)
    found = diagnose(op, *ROWS["product"].given())
    told = found.to_dict()["findings"][0]
    assert (told["code"], told["function"]) == ("returns_none", f"{HERE}::forgets")
    assert (told["file"], told["line"]) == (__file__, line_of(forgets))


# An Autograd key in Python, and compiled.

LIBRARY.define("by_hand(Tensor x) -> Tensor")
LIBRARY.impl("by_hand", torch.sinh, "CompositeExplicitAutograd")


class ByHand(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x.cosh())
        with torch._C._AutoDispatchBelowAutograd():
            return torch.ops.operators_test.by_hand(x)

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0]


LIBRARY.impl("by_hand", lambda x: ByHand.apply(x), "Autograd")


def test_an_autograd_key_in_python_is_the_function_behind_it():
    op, x = torch.ops.operators_test.by_hand, torch.tensor([0.5, 1.0], requires_grad=True)
    found = diagnose(op, x)
    assert found.headline == "operators_test::by_hand: silently wrong at second order"
    assert (found.cause.code, found.cause.function) == ("intermediate_saved", "ByHand")
    with recompute_intermediates():
        assert torch.allclose(second(op, [x]), second(torch.sinh, [x]))


def test_what_is_computed_below_autograd_is_said_to_be_there():
    """No NumPy, and no kernel: torch computes what has no graph, and it cannot be given one."""

    class FromOutput(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            with torch._C._AutoDispatchBelowAutograd():
                y = torch.ops.operators_test.of_output(x)
            ctx.save_for_backward((1 + y * y).sqrt())
            return y

        backward = ByHand.backward

    op = only_impl("of_output", torch.sinh)
    LIBRARY.impl("of_output", lambda x: FromOutput.apply(x), "Autograd")
    with pytest.raises(SecondDerivativeError, match=r"below\s+autograd"), recompute_intermediates():
        second(op, ROWS["kept"].given())


def attempted(fn, given):
    with suppress(RuntimeError):
        second(fn, given)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_one_that_was_compiled(backend):
    each = ROWS["kept_by_numpy"]
    each.op.register_fake(torch.empty_like)
    fn, given = torch.compile(lambda x: each.op(x), backend=backend), each.given()
    codes = {"eager": "intermediate_saved", "aot_eager": "compiled_region"}
    assert diagnose(fn, *given).cause.code == codes[backend]
    (told,) = diagnose_all(lambda: attempted(fn, given)).rows
    assert told.called.file == __file__
    with detect_intermediates(), pytest.raises(RuntimeError):
        second(fn, given)
    with recompute_intermediates():
        assert is_right(second(fn, given), each)


@pytest.mark.slow
def test_an_operator_that_is_compiled_bare_keeps_its_name():
    op = ROWS["kept_by_numpy"].op
    op.register_fake(torch.empty_like)
    found = diagnose(torch.compile(op, backend="aot_eager"), *ROWS["kept"].given())
    assert found.headline.startswith(f"{HERE}::kept_by_numpy: ")
    told = found.to_dict()["findings"][0]
    assert (told["function"], told["file"]) == (f"{HERE}::kept_by_numpy", __file__)
    assert told["line"] == line_of(sinh_by_exponentials)


def test_a_triton_op_is_an_operator():
    """Without Triton it runs where its body has no kernel."""

    def body(x: torch.Tensor) -> torch.Tensor:
        return x.sinh()

    op = torch.library.triton_op(f"{HERE}::triton", body, mutates_args={})
    op.register_autograd(sinh_by_exponentials, setup_context=keeps_exponentials)
    given = ROWS["kept"].given()
    cause = diagnose(op, *given).cause
    assert (cause.code, cause.function) == ("intermediate_saved", f"{HERE}::triton")
    with recompute_intermediates():
        assert is_right(second(op, given), ROWS["kept"])


def test_derivatives_of_higher_order_are_recomputed_through_a_kernel():
    def fourth(fn):
        x = torch.tensor([0.5, 1.0], dtype=torch.float64, requires_grad=True)
        g = (fn(x) ** 2).sum()
        for _ in range(4):
            (g,) = torch.autograd.grad(g.sum(), x, create_graph=True)
        return g

    with recompute_intermediates():
        assert torch.allclose(fourth(ROWS["made_of_the_output"].op), fourth(torch.sinh))


def test_what_is_registered_anew_is_what_is_judged():
    op = operator("anew", torch.sinh, sinh_by_exponentials, keeps_exponentials)
    x = torch.tensor([0.5, 1.0], dtype=torch.float64, requires_grad=True)
    assert diagnose(op, x).verdict == WRONG
    op.register_autograd(cosh_of_saved, setup_context=saves_inputs)
    assert diagnose(op, x).ok


class Slope:
    def __call__(self, ctx, g):
        return g * ctx.cosh


@pytest.mark.parametrize(
    ("name", "backward", "function"),
    [
        ("by_partial", partial(from_ctx), from_ctx),
        ("by_object", Slope(), Slope.__call__),
        ("by_method", Slope().__call__, Slope.__call__),
    ],
)
def test_a_backward_that_is_no_function_has_its_line(name, backward, function):
    op = operator(name, torch.sinh, backward, hangs_cosh)
    x = torch.tensor([0.5, 1.0], dtype=torch.float64, requires_grad=True)
    (told,) = diagnose_all(lambda: second(op, [x])).rows
    assert (told.place.file, told.place.line) == (__file__, line_of(function))
