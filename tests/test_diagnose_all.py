"""diagnose_all: which custom Functions a step applies, and what it says of each."""

import io
import json
import os
import random
import sys
import threading
import warnings
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from made_functions import function, save_x, saving
from torch.autograd import Function, grad
from torch.autograd.function import once_differentiable

import double_backward.diagnosis.training_steps.training_step as step_module
from double_backward import (
    SecondDerivativeError,
    UncheckedFunctionWarning,
    assert_all_double_backward,
    assert_double_backward,
    calls,
    detect_intermediates,
    diagnose_all,
    kinds,
    recompute_intermediates,
)
from double_backward.diagnosis import Verdict
from double_backward.diagnosis.preparation.target import seed_generators
from double_backward.graphs.walk import walk
from lessons_src import what_not_to_do
from lessons_src.saving_inputs import Square
from lessons_src.saving_intermediates import sinh
from lessons_src.untracked_backward import Cube, CubeBackward, CubeNumPy
from lessons_src.what_not_to_do import SinhBad

square = Square.apply  # bound when the module is imported, as most are


def product(ctx, a, b, columns, shape):
    """a @ b.T, scaled by the number of columns, which is also handed over."""
    assert a.shape[1] == b.shape[1] == columns and a.shape == shape
    ctx.save_for_backward(a, b)
    ctx.columns = columns
    return a @ b.T / columns


def product_backward(ctx, g):
    a, b = ctx.saved_tensors
    g = g / ctx.columns
    return g @ b, g.T @ a, None, None


Guarded = function(
    save_x, once_differentiable(lambda ctx, g: g * 3 * ctx.saved_tensors[0] ** 2), "Guarded"
)
Product = function(product, product_backward, "Product")


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([0.3, 0.7], dtype=torch.float64))

    def forward(self, x):
        return square(self.weight * x)


def x(*shape):
    generator = torch.Generator().manual_seed(0)
    return torch.rand(*(shape or (2,)), dtype=torch.float64, generator=generator).requires_grad_()


def twice(*outs):
    """Differentiate their squares twice by all that is behind them."""
    total = torch.stack([(y**2).sum() for y in outs]).sum()
    points = walk(total).leaves
    found = grad(total, points, create_graph=True)
    grad(torch.stack([g.sum() for g in found]).sum(), points, allow_unused=True)


def rows(step):
    table = diagnose_all(step)
    return {row.name: row for row in table.rows}, table


def one_line(table):
    return " ".join(str(table).split())


def test_forward_backward_modules_and_threads():
    layer, point = Layer(), x()

    def step():
        loss = layer(point).sum() + SinhBad.apply(point).sum() + sinh(point).sum()
        (g,) = grad(loss + Cube.apply(point).sum(), point, create_graph=True)
        other = threading.Thread(target=lambda: Guarded.apply(point))
        other.start()
        other.join()
        (g**2).sum().backward()

    found, table = rows(step)
    assert {name: row.verdict for name, row in found.items()} == {
        "SinhBad": Verdict.SILENTLY_WRONG,
        "Guarded": Verdict.ONCE_DIFFERENTIABLE,
        "Square": Verdict.SUPPORTED,
        "Sinh": Verdict.SUPPORTED,
        "Cube": Verdict.SUPPORTED,
        "CubeBackward": Verdict.SUPPORTED,
    }
    assert [row.name for row in table.rows[:2]] == ["SinhBad", "Guarded"]  # worst first
    assert not table.ok and table["SinhBad"].verdict is Verdict.SILENTLY_WRONG
    assert found["CubeBackward"].in_backward and not found["Cube"].in_backward
    lines = str(table).splitlines()
    at = next(i for i, line in enumerate(lines) if "SinhBad" in line)
    line = " ".join(lines[at : at + 2])  # a cause that does not fit goes on below
    for word in (
        "silently_wrong",
        "lessons_src/what_not_to_do.py:7",
        "intermediate_on_ctx",
    ):
        assert word in line


def test_a_function_of_a_backward_is_not_asked_for_more_than_the_step_needs():
    found, table = rows(lambda: twice(CubeNumPy.apply(x())))
    assert found["CubeNumPyBackward"].verdict is Verdict.SILENTLY_WRONG
    assert found["CubeNumPyBackward"].in_backward and table.ok
    assert "CubeNumPyBackward: applied in backward only" in str(table)
    said = "right up to second order"
    assert str(table).startswith(f"2 custom Functions, 1 right, 1 {said}, 0 not")
    assert f"\n{said}  CubeNumPyBackward" in str(table)


def test_a_function_of_a_backward_needs_its_first_derivative():
    class Halved(CubeBackward):
        @staticmethod
        def backward(ctx, h):
            return tuple(g / 2 for g in CubeBackward.backward(ctx, h))

    class CubeHalved(Cube):
        @staticmethod
        def backward(ctx, grad_out):
            return Halved.apply(grad_out, *ctx.saved_tensors)

    found, table = rows(lambda: twice(CubeHalved.apply(x())))
    assert found["Halved"].in_backward and not found["Halved"].ok and not table.ok
    assert str(table).startswith("2 custom Functions, 0 right, 2 not")


def test_other_shapes_once():
    found, table = rows(lambda: twice(*(square(x(n)) for n in (2, 3, 4))))
    assert len(table.rows) == 1 and found["Square"].calls == 3


def test_the_worst_of_different_kinds_of_calls():
    cube = saving(lambda x: x**3, torch.Tensor.contiguous, lambda g, x: g * 3 * x**2)
    found, _ = rows(lambda: twice(cube(x(2, 3)), cube(x(2, 3).t())))
    assert not found["forward"].diagnosis.ok and found["forward"].calls == 2


def test_large_inputs_are_cut_down_and_the_table_says_so():
    def step():
        a, b = x(500, 300), x(40, 300)
        twice(Product.apply(a, b, 300, a.shape), SinhBad.apply(x(300, 200)))

    found, table = rows(step)
    assert found["Product"].diagnosis.ok
    assert found["SinhBad"].verdict is Verdict.SILENTLY_WRONG
    assert "Product: inputs cut down (500, 300) to (22, 22), (40, 300) to (22, 22)." in str(table)


def test_what_cannot_be_checked_is_named_with_the_reason(monkeypatch):
    """One that is frozen is not differentiated, and one that is cannot be called again."""
    monkeypatch.setenv("CALLED", "")

    def forward(ctx, x):
        assert not os.environ["CALLED"], "once only"
        os.environ["CALLED"] = "once"
        ctx.save_for_backward(x)
        return x**2

    once = function(forward, lambda ctx, g: g * 2 * ctx.saved_tensors[0], "Once")

    def step():
        square(torch.ones(2))
        twice(once.apply(x()))

    found, table = rows(step)
    assert found["Square"].said == "not differentiated" and found["Square"].ok
    assert found["Once"].verdict is Verdict.NOT_CHECKED and not table.ok
    assert "not checked: fn itself raises AssertionError: once only" in one_line(table)


def test_the_step_is_not_disturbed():
    def forward(ctx, x, module):
        module.count += 1
        ctx.keep = (torch.rand_like(x) > 0.5).to(x)
        return x * ctx.keep

    noisy = function(forward, lambda ctx, g: (g * ctx.keep, None)).apply

    def run():
        torch.manual_seed(0)
        module, layer, point = torch.nn.Module(), Layer(), x()
        module.register_buffer("count", torch.zeros(1))
        results = []

        def step():
            y = noisy(layer(point), module)
            (g,) = grad((y**2).sum(), point, create_graph=True)
            (g**2).sum().backward()
            results.extend([y.detach(), layer.weight.grad.clone(), torch.rand(2)])

        return step, lambda: [*results, layer.weight.grad, point.grad, module.count, torch.rand(2)]

    step, results = run()
    step()
    expected = results()
    step, results = run()
    diagnose_all(step)
    for got, plain in zip(results(), expected, strict=True):
        assert torch.equal(got, plain)
    assert not calls.is_anything_hooked()


def test_torch_func():
    class NewStyle(Function):
        @staticmethod
        def forward(x):
            return torch.sinh(x)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.cosh = torch.cosh(*inputs)

        @staticmethod
        def backward(ctx, grad_out):
            return grad_out * ctx.cosh

    def derivative(times):
        function = lambda x: NewStyle.apply(x).sum()  # noqa: E731
        for _ in range(times):
            function = lambda x, f=function: torch.func.grad(f)(x).sum()  # noqa: E731
        return function

    for times in (1, 3):
        found, _ = rows(lambda n=times: derivative(n)(x().detach()))
        assert found["NewStyle"].verdict is Verdict.SILENTLY_WRONG
        assert found["NewStyle"].order == times and found["NewStyle"].ok == (times == 1)


def test_nothing_custom():
    said = str(diagnose_all(lambda: x() ** 2))
    assert said.startswith("The step applies no custom Function. ")
    assert diagnose_all(lambda: None).ok
    with pytest.raises(KeyError, match="is not in the table"):
        diagnose_all(lambda: None)["Square"]


def through_module(ctx, layer, x, weight):
    """Handed the parameters, and takes the module's own, as an adjoint of an equation does."""
    ctx.layer = layer
    ctx.save_for_backward(x, weight)
    return layer.weight.detach() * x


ThroughModule = function(
    through_module,
    lambda ctx, g: (None, None, torch.zeros_like(ctx.saved_tensors[1])),
    "ThroughModule",
)


def test_a_function_that_does_not_use_what_it_is_handed_is_not_called_right():
    layer, point = Layer(), torch.ones(2, dtype=torch.float64)
    other = layer.weight.detach().clone().requires_grad_()
    table = diagnose_all(lambda: ThroughModule.apply(layer, point, other).sum().backward())
    assert table["ThroughModule"].verdict is Verdict.NOT_CHECKED
    assert "its output does not change with the tensors that it was handed" in one_line(table)
    table = diagnose_all(lambda: ThroughModule.apply(layer, point, layer.weight).sum().backward())
    assert table["ThroughModule"].verdict is Verdict.SURROGATE_GRADIENT and not table.ok


# To which order.


def residual(function):
    """A step of a network that has the second derivative of `function` in its loss."""

    def step():
        weights = x(4, 1)
        points = torch.linspace(0.1, 0.9, 5, dtype=torch.float64)[:, None].requires_grad_()
        u = function(points @ weights.T).sum(1)
        (u_x,) = grad(u.sum(), points, create_graph=True)
        (u_xx,) = grad(u_x.sum(), points, create_graph=True)
        ((u_xx - u[:, None]) ** 2).mean().backward()

    return step


def test_a_loss_on_a_second_derivative_needs_a_third():
    found, table = rows(residual(Cube.apply))
    assert {name: row.order for name, row in found.items()} == {"Cube": 3, "CubeBackward": 2}
    assert table.ok and table.order == 3
    step = residual(CubeNumPy.apply)  # right at second order, and no further
    found, table = rows(step)
    assert {name: row.order for name, row in found.items()} == {
        "CubeNumPy": 3,
        "CubeNumPyBackward": 2,
    }
    assert not found["CubeNumPy"].ok and not found["CubeNumPyBackward"].ok and not table.ok
    with pytest.raises(SecondDerivativeError, match="CubeNumPyBackward"), detect_intermediates():
        step()


def order_of(function, step):
    return {row.function: row.order for row in diagnose_all(step).rows}[function]


def test_order_is_how_often_a_step_differentiates():
    def unrolled():
        weights = [x()]
        for _ in range(4):  # each step differentiates its own loss, not that of the step before
            weights.append(
                weights[-1] - grad(Cube.apply(weights[-1]).sum(), weights[-1], create_graph=True)[0]
            )
        Cube.apply(weights[-1]).sum().backward()

    def accumulated():
        point, loss = x(), Cube.apply
        for _ in range(2):
            loss(point).sum().backward(create_graph=True)
            g, point.grad = point.grad, None
            loss = lambda _, g=g: g  # noqa: E731
        g.sum().backward()

    def by_parts():  # the weights are not in the penalty's way: only their first derivative
        weights, point = x(), x()
        (g,) = grad((Cube.apply(weights) * point**2).sum(), point, create_graph=True)
        (g**2).sum().backward()

    def recorded_for_nothing():
        point = x()
        (g,) = grad(Cube.apply(point).sum(), point, create_graph=True)
        grad(g.sum(), point, create_graph=True)

    def hessian():
        torch.autograd.functional.hessian(lambda x: Cube.apply(x).sum(), x())

    assert order_of(Cube, unrolled) == 2
    assert order_of(Cube, accumulated) == 3
    assert order_of(Cube, recorded_for_nothing) == 2
    assert order_of(Cube, hessian) == 2
    assert order_of(Cube, by_parts) == 1


def test_differentiated_once_beside_what_is_differentiated_twice():
    def step():
        weights, point = x(), x()
        (g,) = grad((Guarded.apply(weights) * Cube.apply(point)).sum(), point, create_graph=True)
        square(torch.ones(2))
        (g**2).sum().backward()

    found, table = rows(step)
    assert found["Guarded"].order == 1 and found["Guarded"].said == "right at first order"
    assert found["Square"].order == 0 and found["Square"].said == "not differentiated"
    assert table.ok
    assert str(table).startswith(
        "4 custom Functions, 2 right, 1 right at first order, 1 not differentiated, 0 not"
    )


def test_every_torch_that_is_allowed_has_the_engine_where_passes_are_met():
    engine = torch.autograd._engine_run_backward
    diagnose_all(residual(Cube.apply))
    assert torch.autograd._engine_run_backward is engine
    assert order_of(Cube, residual(Cube.apply)) == 3


# What is asked for, and what comes back.


def bad_step():
    point = x()
    Guarded.apply(point).sum().backward()
    (g,) = grad(SinhBad.apply(point).sum(), point, create_graph=True)
    g.sum().backward()


def test_what_a_step_raises_is_kept_and_said_last():
    found, table = rows(bad_step)
    assert found["SinhBad"].verdict is Verdict.SILENTLY_WRONG and not table.ok
    assert isinstance(table.error, RuntimeError)
    last = " ".join(str(table).splitlines()[-2:])
    assert last.startswith("The step raised RuntimeError: element 0 of tensors does not require")
    alone = diagnose_all(lambda: 1 / 0)
    assert isinstance(alone.error, ZeroDivisionError) and not alone.ok
    nothing, _, raised = str(alone).partition("\n\n")
    assert nothing.startswith("The step applies no custom Function. ")
    assert raised == "The step raised ZeroDivisionError: division by zero"
    assert not calls.is_anything_hooked()


def test_where_a_function_is_written_and_applied():
    found, table = rows(bad_step)
    row, lines = found["SinhBad"], bad_step.__code__.co_firstlineno
    assert row.place.file == what_not_to_do.__file__ and row.place.line == 7
    assert row.called.file == __file__ and row.called.line == lines + 3
    place = f"tests/test_diagnose_all.py:{lines + 3}"
    assert f"SinhBad, applied in {place}: forward keeps on ctx" in str(table)


def test_ignored():
    table = diagnose_all(lambda: twice(SinhBad.apply(x())), ignore=[SinhBad])
    assert table.rows[0].said == "silently_wrong" and not table.ok  # the rest: test_ignore


def test_to_dict_goes_through_json():
    table = diagnose_all(bad_step)
    data = json.loads(json.dumps(table.to_dict()))
    assert data["ok"] is False and data["error"].startswith("RuntimeError: element 0")
    worst = data["functions"][0]
    assert worst["name"] == "SinhBad" and worst["verdict"] == "silently_wrong"
    assert worst["file"] == what_not_to_do.__file__ and worst["line"] == 7
    assert worst["called"]["file"] == __file__ and worst["order"] == 2
    assert worst["cause"] in [finding["code"] for finding in worst["diagnosis"]["findings"]]
    assert json.loads(json.dumps(diagnose_all(lambda: None).to_dict()))["functions"] == []


def test_progress_is_for_those_who_wait_at_a_terminal(monkeypatch, capsys):
    diagnose_all(lambda: square(x()))
    assert capsys.readouterr() == ("", "")
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", terminal)
    diagnose_all(lambda: square(x()))
    said = "diagnose_all: 1 of 1, Square"
    assert terminal.getvalue() == f"\r{said}\r{' ' * len(said)}\r"
    diagnose_all(lambda: square(x()), progress=False)
    assert terminal.getvalue().count(said) == 1
    monkeypatch.undo()


def test_what_is_kept_of_large_inputs_is_small():
    met = step_module.Met()
    with met.listening():
        for _ in range(3):
            square(x(1500, 1000))
    (kind,) = met.functions[Square].kinds.values()
    assert kind.args == [] and kind.elements == 1_500_000
    held = [t for args, _ in kind.smaller for t in args]
    assert sum(t.untyped_storage().nbytes() for t in held) < 1_000_000
    assert met.diagnosed().rows[0].diagnosis.ok


def test_options_are_handed_on(monkeypatch):
    asked = []
    real = step_module.diagnose

    def noted(fn, *inputs, order, **options):
        asked.append((order, options))
        return real(fn, *inputs, order=order)

    monkeypatch.setattr(step_module, "diagnose", noted)
    diagnose_all(residual(Cube.apply), rtol=0.1, timeout=600.0)
    more = {"rtol": 0.1, "atol": 0.0, "timeout": 600.0, "ignore": ()}
    assert asked == [(3, more), (2, more)]


def test_assert_all():
    assert_all_double_backward(residual(Cube.apply))
    with pytest.raises(AssertionError) as raised:
        assert_all_double_backward(bad_step)
    text = str(raised.value)
    assert text.startswith("2 custom Functions, 0 right, 1 right at first order, 1 not")
    assert "SinhBad: silently wrong at second order" in text and "Guarded: declared" not in text
    assert isinstance(raised.value.__cause__, RuntimeError)


def test_assert_asks_for_the_order_that_is_wanted():
    assert_double_backward(CubeNumPy.apply, x())
    with pytest.raises(AssertionError, match="silently wrong at third order"):
        assert_double_backward(CubeNumPy.apply, x(), order=3)


def test_inputs_that_are_all_0_are_no_reason_not_to_check():
    x = torch.zeros(3, dtype=torch.float64, requires_grad=True)

    def step():
        (first,) = torch.autograd.grad((Square.apply(x) ** 2).sum(), x, create_graph=True)
        first.sum().backward()

    assert diagnose_all(step).ok


class Over(Function):
    """With an apply of its own, in which the power is a keyword."""

    @staticmethod
    def forward(ctx, x, power):
        ctx.kept, ctx.power = x ** (power - 1), power
        return x**power

    @staticmethod
    def backward(ctx, g):
        return g * ctx.power * ctx.kept, None

    @classmethod
    def apply(cls, x, **keywords):
        return super().apply(x, keywords["power"])


def test_an_apply_of_its_own_is_gone_around():
    found, _ = rows(residual(lambda x: Over.apply(x, power=3)))
    assert found["Over"].said == "silently_wrong"


def test_a_call_with_no_elements_is_nothing_to_be_judged():
    """As of a mask that selects nothing in this batch."""
    found, table = rows(residual(lambda x: square(x) + Cube.apply(x[x > 99]).sum()))
    assert table.ok and found["Cube"].said == "not differentiated"


class Batched(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x**3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.kept = inputs[0] ** 2

    @staticmethod
    def backward(ctx, g):
        return 3 * g * ctx.kept


def test_a_function_inside_vmap():
    found, _ = rows(residual(torch.vmap(Batched.apply)))
    assert found["VmappedBatched"].said == "silently_wrong"
    inside, _ = rows(lambda: torch.vmap(torch.func.grad(Batched.apply))(torch.ones(3)))
    assert [(row.name, row.calls, row.order) for row in inside.values()] == [("Batched", 1, 1)]
    with detect_intermediates(), pytest.raises(SecondDerivativeError, match="ctx.kept"):
        residual(torch.vmap(Batched.apply))()


# What a kind of call is.


def cube_by(keeps):
    """A cube that keeps its square where keeps(x, *args)."""

    def forward(ctx, x, *args):
        ctx.more, ctx.kept = len(args), x * x if keeps(x, *args) else None
        ctx.save_for_backward(x)
        return x**3

    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 3 * g * (x * x if ctx.kept is None else ctx.kept), *[None] * ctx.more

    return function(forward, backward)


@dataclass
class Degree:
    degree: int


WAYS = {  # when it keeps, and what it is handed in turn; the last is the wrong one
    "integer": (lambda x, n: n == 3, [(x(4), 1), (x(4), 2), (x(4), 3)]),
    "float": (lambda x, p: p == 2.5, [(x(4), 0.5), (x(4), 1.5), (x(4), 2.5)]),
    "one of many": (lambda x, p: p == 40, [(x(4), p / 1) for p in range(41)]),
    "in a dataclass": (lambda x, d: d.degree == 3, [(x(4), Degree(2)), (x(4), Degree(3))]),
    "size": (lambda x: len(x) > 40, [(x(n),) for n in (3, 20, 30, 40, 50)]),
    "large": (lambda x: len(x) > 40, [(x(30_000),)]),
    "values": (lambda x: x.max() > 5, [(x(4),), (x(4).detach() * 9 + 9,)]),
    "mask": (lambda x, m: m.all(), [(x(4), torch.arange(40) > 3), (x(4), torch.arange(40) >= 0)]),
}


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_each_kind_of_call_is_judged(way):
    keeps, calls = WAYS[way]
    f = cube_by(keeps)

    def step(calls):
        points = [(first.detach().requires_grad_(), *rest) for first, *rest in calls]
        for first, *rest in points:
            (g,) = grad((f.apply(first, *rest) ** 2).sum(), first, create_graph=True)
            grad(g.sum(), first)

    right, wrong = diagnose_all(lambda: step(calls[:-1])), diagnose_all(lambda: step(calls))
    assert right.ok and not wrong.ok
    assert wrong.rows[0].verdict is Verdict.SILENTLY_WRONG and wrong.rows[0].calls == len(calls)


def test_a_branch_in_backward_is_another_kind_of_call():
    def backward(ctx, g):
        (x, square) = ctx.saved_tensors
        return 3 * g * (square if len(g) > 40 else x * x)

    def forward(ctx, x):
        ctx.save_for_backward(x, x * x)
        return x**3

    f = function(forward, backward)
    for sizes in ((3, 4, 5), (3, 4, 50)):
        table = diagnose_all(lambda sizes=sizes: [twice(f.apply(x(n))) for n in sizes])
        assert table.ok is (50 not in sizes)


def together(f, points):
    """All in one pass, whose backward comes to the last one first."""
    total = torch.stack([(f.apply(point) ** 2).sum() for point in points]).sum()
    found = grad(total, points, create_graph=True)
    grad(torch.stack([g.sum() for g in found]).sum(), points)


KEEPS_IN_BACKWARD = {
    "size": (lambda point: len(point) == 5, [3, 4, 5]),
    "values": (lambda point: point.sum() > 5, [3, 3, 3]),
}


@pytest.mark.parametrize("way", KEEPS_IN_BACKWARD, ids=str)
@pytest.mark.parametrize("wrong_one", (0, 1, 2))
def test_a_branch_in_backward_is_found_whichever_of_one_pass_takes_it(way, wrong_one):
    keeps, sizes = KEEPS_IN_BACKWARD[way]

    def backward(ctx, g):
        (point,) = ctx.saved_tensors
        return 3 * g * (point.detach() if keeps(point) else point) ** 2

    f = function(save_x, backward)
    points = [x(n) for n in sizes[:-1]]
    assert diagnose_all(lambda: together(f, points)).ok
    last = x(sizes[-1]) if way == "size" else (x(3).detach() + 5).requires_grad_()
    points.insert(wrong_one, last)
    table = diagnose_all(lambda: together(f, points))
    assert table.rows[0].verdict is Verdict.SILENTLY_WRONG and not table.ok


OWN = random.Random()
DRAWS = {
    "torch": lambda: torch.rand(()).item(),
    "numpy": np.random.rand,
    "random": random.random,
    "its own": lambda: OWN.random(),
}


@pytest.mark.parametrize(
    "name, in_backward",  # what backward draws from a generator of its own is not put back
    [(name, False) for name in DRAWS] + [(name, True) for name in DRAWS if name != "its own"],
)
def test_a_branch_that_is_drawn_is_found_where_the_step_took_it(name, in_backward):
    taken, draw = [], DRAWS[name]

    def drawn():
        taken.append(draw() < 0.5)
        return taken[-1]

    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.keeps = not in_backward and drawn()
        return x**3

    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        keeps = drawn() if in_backward else ctx.keeps
        return 3 * g * (x.detach() if keeps else x) ** 2

    f, found = function(forward, backward), set()
    for seed in range(6):
        seed_generators(seed)
        OWN.seed(seed)
        taken.clear()
        (row,) = diagnose_all(lambda: twice(f.apply(x(3)))).rows
        assert row.ok is not taken[0]
        found.add(row.verdict)
    assert found == {Verdict.SUPPORTED, Verdict.SILENTLY_WRONG}


def test_a_branch_that_is_drawn_too_rarely_to_be_found_again_is_not_checked():
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 3 * g * (x.detach() if random.random() < 0.001 else x) ** 2

    f = function(save_x, backward)
    seeds = range(20, 10_000)
    seed_generators(next(s for s in seeds if random.Random(s).random() < 0.001))
    (row,) = diagnose_all(lambda: twice(f.apply(x(3)))).rows
    assert row.verdict is Verdict.NOT_CHECKED and "something else" in str(row), row


def of_list(backward):
    def forward(ctx, x, held):
        ctx.held = held
        return x**3

    return function(forward, lambda ctx, g: (backward(g, ctx.held[0]), None))


def test_a_list_that_holds_an_argument_holds_what_is_handed_over_in_its_place():
    right = of_list(lambda g, x: 3 * g * x**2)
    wrong = of_list(lambda g, x: 3 * g * x.detach() ** 2)
    for point in (x(3), x(3) * 1):
        assert diagnose_all(lambda point=point: twice(right.apply(point, [point]))).ok
        table = diagnose_all(lambda point=point: twice(wrong.apply(point, [point])))
        assert table.rows[0].verdict is Verdict.SILENTLY_WRONG


def eigenvectors(kept):
    """Of a Hermitian matrix; their phases are left out of backward, as torch does."""

    def forward(ctx, a):
        w, v = torch.linalg.eigh(a)
        ctx.save_for_backward(w, v)
        ctx.kept = v.clone()
        return w, v

    def backward(ctx, gw, gv):
        w, v = ctx.saved_tensors
        other = ctx.kept if kept else v
        apart = w[None, :] - w[:, None] + torch.diag(torch.full_like(w, torch.inf))
        return other @ (torch.diag_embed(gw) + (v.mH @ gv) / apart) @ v.mH

    return function(forward, backward, "Eigenvectors")


@pytest.mark.slow
def test_the_phase_of_complex_eigenvectors_is_left_out():
    torch.manual_seed(0)
    start = torch.randn(3, 3, dtype=torch.complex128)

    def step(f):
        z = start.clone().requires_grad_()
        w, v = f.apply(z + z.mH)
        energy = (v.abs() ** 2 * torch.arange(1.0, 4.0)).sum() + (w**3).sum()
        (g,) = grad(energy, z, create_graph=True)
        (g.abs() ** 2).sum().backward()

    right = diagnose_all(lambda: step(eigenvectors(kept=False)))
    assert right.ok and "phases of its complex eigenvectors were left out" in one_line(right)
    wrong = diagnose_all(lambda: step(eigenvectors(kept=True)))
    assert wrong.rows[0].verdict is Verdict.SILENTLY_WRONG
    for remedy in detect_intermediates, recompute_intermediates:
        with remedy(), warnings.catch_warnings(action="error", category=UncheckedFunctionWarning):
            step(eigenvectors(kept=False))
    with detect_intermediates(), pytest.raises(SecondDerivativeError):
        step(eigenvectors(kept=True))


def scaled_cube(ctx, x, p):
    ctx.save_for_backward(x)
    ctx.p = p
    return p * x**3


class Fast(Function):
    """The sinh, which keeps its slope while that is asked for."""

    keeps = False

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.slope = x.cosh() if Fast.keeps else None
        return x.sinh()

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return grad_out * (x.cosh() if ctx.slope is None else ctx.slope)


def test_what_the_step_sets_anew_after_the_call_is_told():
    def step(keeps):
        Fast.keeps = keeps
        twice(Fast.apply(x(4)))
        Fast.keeps = False

    table = diagnose_all(lambda: step(True))
    assert not table.ok and "it does something else when it is called again" in one_line(table)
    assert diagnose_all(lambda: step(False)).ok


def test_what_there_were_too_many_kinds_for_is_not_called_right(monkeypatch):
    monkeypatch.setattr(step_module, "MOST_KINDS", 3)
    scaled = function(scaled_cube, lambda ctx, g: (3 * ctx.p * g * ctx.saved_tensors[0] ** 2, None))
    table = diagnose_all(lambda: [twice(scaled.apply(x(4), float(p))) for p in range(2, 9)])
    assert not table.ok and table.rows[0].verdict is Verdict.NOT_CHECKED
    said = "4 more calls, with other numbers or operations, were not judged."
    assert f"{said} Those that were are right." in one_line(table)


def test_numbers_of_a_wrong_function_that_is_differentiated_once_are_no_matter():
    def forward(ctx, x, p):
        ctx.slope = 3 * p * x**2
        return p * x**3

    def once(factor):
        f = function(forward, lambda ctx, g: (factor * g * ctx.slope, None), "Kept")
        return diagnose_all(lambda: [grad(f.apply(v := x(4), p / 9).sum(), v) for p in range(1, n)])

    n = 50
    table = once(1)
    assert table.ok and table.rows[0].said == "right at first order"
    n = 2
    (row,) = once(2).rows  # of its second derivative, which is wrong as well, nothing is said
    assert (row.said, row.cause.code) == ("surrogate_gradient", "first_derivative_differs")


def test_what_is_found_wrong_needs_no_more_kinds(monkeypatch):
    asked = []
    diagnose = step_module.diagnose
    monkeypatch.setattr(
        step_module, "diagnose", lambda *a, **o: asked.append(a) or diagnose(*a, **o)
    )
    f = cube_by(lambda x, p: True)
    table = diagnose_all(lambda: [twice(f.apply(x(4), p / 9)) for p in range(1, 20)])
    assert table.rows[0].verdict is Verdict.SILENTLY_WRONG and len(asked) < 10


def test_numbers_that_make_no_difference_make_no_kinds(monkeypatch):
    monkeypatch.setattr(step_module, "MOST_KINDS", 3)
    f = cube_by(lambda x, count: False)
    assert diagnose_all(lambda: [twice(f.apply(x(4), float(p))) for p in range(9)]).ok


def test_what_a_class_holds_is_looked_at_once_for_a_kind_of_call(monkeypatch):
    own, looked = kinds.own_classes, []
    monkeypatch.setattr(kinds, "own_classes", lambda f: looked.append(f) or own(f))
    during = []

    def step():
        before = len(looked)
        y = SinhBad.apply(torch.ones(2, dtype=torch.float64, requires_grad=True))
        during.append(len(looked) - before)
        y.sum().backward()

    diagnose_all(step, progress=False)
    assert during == [1]
