"""diagnose leaves no trace, survives bad input and convicts no one wrongly."""

import html
import random
import re
import warnings

import numpy as np
import pytest
import torch
from made_functions import function as made_function
from torch.autograd import Function, grad

from double_backward import assert_double_backward, diagnose, diagnosis
from double_backward.diagnosis.conclusions.findings import ROWS
from double_backward.diagnosis.preparation import target
from double_backward.diagnosis.preparation.prepare import NOT_CHECKED
from lessons_src.saving_inputs import Square
from lessons_src.untracked_backward import Cube, CubeNumPy
from lessons_src.what_not_to_do import SinhBad

x = torch.tensor([0.5, 1.0], dtype=torch.float64, requires_grad=True)


def function(forward, backward):
    return made_function(forward, backward).apply


# No trace.


def careless(x):
    """Changes whatever a function can change, then answers."""
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(torch.get_num_threads() + 1)
    torch.rand(3), np.random.rand(3), random.random()
    warnings.warn("careless", stacklevel=1)
    return SinhBad.apply(x)


def failing(x):
    careless(x)
    raise ValueError("no")


@pytest.mark.parametrize("fn", [careless, failing])
def test_no_trace(fn):
    x = torch.tensor([0.5, 1.0], requires_grad=True)
    x.grad = torch.ones(2)

    def state():
        generators = torch.get_rng_state().sum(), np.random.get_state()[1].sum(), random.getstate()
        modes = torch.get_default_dtype(), torch.is_grad_enabled(), list(warnings.filters)
        modes += (torch.get_num_threads(),)
        return *generators, *modes, x.tolist(), x.grad.tolist(), x.dtype, x._version

    before, grad = state(), x.grad
    with torch.no_grad():
        diagnose(fn, x)
    assert state() == before
    assert x.grad is grad


def test_module_keeps_gradients_and_buffers():
    net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3), torch.nn.Tanh())
    batch = torch.randn(4, 2, requires_grad=True)
    net(batch).sum().backward()
    grads = [p.grad.clone() for p in net.parameters()]
    buffers = [b.clone() for b in net.buffers()]
    assert diagnose(net, batch).ok
    assert all(map(torch.equal, grads, [p.grad for p in net.parameters()]))
    assert all(map(torch.equal, buffers, net.buffers()))


def test_gradients_are_put_back_wherever_their_leaves_are():
    leaf = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    box = [[[[[[leaf]]]]]]

    def backward(ctx, g):
        with torch.enable_grad():
            inside = box[0][0][0][0][0][0]
            (inside**2).backward()
        return 2 * g

    plain = torch.autograd.backward
    diagnose(function(lambda ctx, x: 2 * x, backward), x)
    assert leaf.grad is None
    assert torch.autograd.backward is plain


def test_a_fn_that_forgets_gradients_does_not_lose_them():
    net = torch.nn.Linear(2, 1).double()
    net(x.detach()).backward()
    before = net.weight.grad

    def fn(x):
        net.zero_grad()
        return net(x)

    assert diagnose(fn, x).ok
    assert net.weight.grad is before


def test_grad_out_that_is_overwritten_does_not_spoil_the_comparison():
    overwriting = function(lambda ctx, x: 2 * x, lambda ctx, g: g.mul_(2))
    answer = diagnose(overwriting, x)
    assert answer.verdict == "first_derivative_wrong"
    assert answer.first.outcome == "right"


# What it says.


def test_text():
    text = str(diagnose(SinhBad.apply, x))
    assert text.splitlines()[0] == "SinhBad: silently wrong at second order"
    assert "raises: element 0 of tensors does not require grad" in text
    # sinh'' + sinh'**2 at 0.5 is 1.7926, without the first term 1.2715.
    assert "graph after     WRONG   expected  1.7926, got 1.2715 at x = 0.5" in text
    assert '-> lesson 4, "What not to do"' in text
    assert max(map(len, text.splitlines())) <= 88


def test_notebook_shows_the_same_words():
    answer = diagnose(SinhBad.apply, x)
    page = html.unescape(answer._repr_html_())
    assert all(line in page for line in str(answer).splitlines())
    assert repr(answer) == str(answer)


def test_settings_and_saved_can_be_read():
    answer = diagnose(SinhBad.apply, x)
    outcomes = {name: row.outcome for name, row in answer.settings.items()}
    assert outcomes == {
        "alone": "raises",
        "graph after": "wrong",
        "graph before": "wrong",
        "both": "wrong",
    }
    # At x = 1 the missing term is sinh(1).
    assert answer.settings["both"].error == pytest.approx(np.sinh(1.0), rel=1e-6)
    assert [(s.kind, s.bytes, s.name) for s in answer.saved] == [
        ("intermediate", 16, "expx"),
        ("intermediate", 16, "expnegx"),
    ]


def test_table_of_codes_is_in_the_docstring():
    written = re.findall(r"^ {4}(\w+) +(\d)$", diagnosis.__doc__, re.MULTILINE)
    assert written == [(code, str(row.lesson[0])) for code, row in ROWS.items()]
    assert all(code in diagnosis.__doc__ for code in NOT_CHECKED)


def calls_of(function, *inputs):
    """How often `diagnose` calls it."""
    calls = []

    def fn(*given):
        calls.append(given)
        return function.apply(*given)

    diagnose(fn, *inputs)
    return len(calls)


@pytest.mark.parametrize("function, most", [(Square, 36), (SinhBad, 80)])
def test_how_often_a_function_is_called(function, most):
    assert most / 2 < calls_of(function, x) < most


def keeping(keep):
    """a * b**2, which keeps its inputs or copies of them."""

    def forward(ctx, a, b):
        ctx.a, ctx.b = keep(a), keep(b)
        return a * b**2

    return made_function(forward, lambda ctx, g: (g * ctx.b**2, g * 2 * ctx.a * ctx.b))


@pytest.mark.parametrize("keep, of_one", [(lambda x: x, Square), (torch.clone, SinhBad)])
def test_a_second_input_costs_a_quarter_more(keep, of_one):
    both = x.detach().requires_grad_(), (x + 1).detach().requires_grad_()
    assert calls_of(keeping(keep), *both) < 1.3 * calls_of(of_one, x)


def test_third_order():
    assert diagnose(Cube.apply, x, order=3).ok
    answer = diagnose(CubeNumPy.apply, x, order=3)
    assert answer.verdict == "silently_wrong"
    assert answer.third["alone"].outcome == "raises"
    assert str(answer).startswith("CubeNumPy: silently wrong at third order\n")
    assert answer.findings[0].code == "third_order_not_tracked"
    assert all(row.outcome == "right" for row in answer.settings.values())


def test_assertion():
    assert_double_backward(Square.apply, x)
    with pytest.raises(AssertionError, match="silently wrong at second order"):
        assert_double_backward(SinhBad.apply, x)


class SinhPlain(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return torch.sinh(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        return g * torch.cosh(*ctx.saved_tensors)


def test_torch_func():
    assert diagnose(SinhPlain.apply, x).torch_func["grad of grad"].outcome == "right"
    detached = type("Detached", (SinhPlain,), {})
    detached.backward = staticmethod(lambda ctx, g: g * torch.cosh(ctx.saved_tensors[0].detach()))
    row = diagnose(detached.apply, x).torch_func["grad of grad"]
    assert (row.outcome, row.text[:1]) == ("wrong", "0")
    assert diagnose(Square.apply, x).torch_func["grad of grad"].text == "no setup_context"


# Bad input.


def unlike_itself(x, state=[0]):  # noqa: B006
    state[0] += 1
    return x * state[0]


def at_one_point(x):
    return torch.where(x.detach() == torch.tensor([0.5, 1.0]), x**3, torch.nan)


def leaves_only(x):
    assert x.is_leaf
    return Square.apply(x)


def marked(x):
    def square(ctx, x):
        y = x**2
        ctx.mark_non_differentiable(y)
        return y

    return function(square, lambda ctx, g: g)(x)


def force(x):
    return grad(SinhBad.apply(x).sum(), x, create_graph=True)[0]


BAD = {
    "no grad": (Square.apply, x.detach(), "no_input_requires_grad"),
    "integers": (Square.apply, torch.arange(3), "no_input_requires_grad"),
    "empty": (Square.apply, torch.zeros(0, 3, requires_grad=True), "no_elements"),
    "meta": (Square.apply, torch.ones(2, device="meta", requires_grad=True), "meta_input"),
    "empty output": (lambda x: Square.apply(x)[:0], x, "no_elements"),
    "no value beside": (at_one_point, x, "differences_disagree"),
    "leaves only": (leaves_only, x, "fn_asks_for_leaves"),
    "non-differentiable": (marked, x, "output_without_graph"),
    "no tensor": (lambda x: 3.0, x, "no_output"),
    "class": (SinhPlain, x, "no_call"),
    "no graph": (lambda x: x.detach(), x, "output_without_graph"),
    "a force": (force, x, "lost_inside"),
    "raises": (failing, x, "fn_raises"),
    "raises, not in Python": (torch.linalg.inv, x, "fn_raises"),
    "random": (unlike_itself, x, "random_output"),
    "bf16": (
        lambda x: Square.apply(x.bfloat16()).bfloat16() if x.dtype == torch.bfloat16 else x.int(),
        x.detach().bfloat16().requires_grad_(),
        "half_precision",
    ),
    "nan": (Square.apply, (x.detach() * torch.nan).requires_grad_(), "not_finite_here"),
    "list": (
        lambda xs: function(lambda ctx, xs: xs[0] * 2, lambda ctx, g: None)(xs),
        [x],
        "output_without_graph",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_sentence(name):
    fn, given, code = BAD[name]
    answer = diagnose(fn, given)
    assert (answer.verdict, [f.code for f in answer.findings]) == ("not_checked", [code])
    assert not answer.ok and not answer.findings[0].cause


def test_what_to_do_is_said():
    assert "mark it as non-differentiable" in diagnose(marked, x).findings[0].message
    assert "Diagnose SinhBad itself" in diagnose(force, x).findings[0].message
    assert "Pass SinhPlain.apply" in diagnose(SinhPlain, x).findings[0].message
    assert "AssertionError" in diagnose(leaves_only, x).findings[0].message


def test_error_of_fn_is_shown_with_its_place():
    assert "ValueError: no (in failing, line" in diagnose(failing, x).findings[0].message


def test_dropout_is_checked_with_its_seed_fixed():
    answer = diagnose(lambda x: torch.nn.functional.dropout(x, 0.5) ** 3, x)
    assert answer.ok
    assert "seed_fixed" in str(answer)


def test_slow_fn_says_that_it_is_working(capsys, monkeypatch):
    clock = iter(range(0, 10_000, 5))
    monkeypatch.setattr(target.time, "perf_counter", lambda: float(next(clock)))
    diagnose(Square.apply, x)
    assert "call 2 of fn, 5 s" in capsys.readouterr().err


@pytest.mark.slow
def test_ten_million_elements_cost_a_few_evaluations():
    calls = []

    def counted(x):
        calls.append(1)
        return Cube.apply(x)

    assert diagnose(counted, torch.rand(10_000_000, requires_grad=True), timeout=3600).ok
    assert len(calls) < 100


# What is easily missed.


def test_a_standard_deviation_on_ctx_is_an_intermediate_though_a_shift_leaves_it():
    def standardise(ctx, x):
        ctx.std = x.std()
        out = (x - x.mean()) / ctx.std
        ctx.save_for_backward(out)
        return out

    def backward(ctx, grad_out):
        (out,) = ctx.saved_tensors
        along = out * (grad_out * out).sum() / (out.numel() - 1)
        return (grad_out - grad_out.mean() - along) / ctx.std

    x = torch.tensor([0.5, 1.0, 3.0], dtype=torch.float64, requires_grad=True)
    found = diagnose(function(standardise, backward), x).findings
    assert found[0].code == "intermediate_on_ctx" and "ctx.std" in found[0].message
