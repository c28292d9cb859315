"""diagnose_all: which custom Functions a step applies, and what it says of each."""

import threading

import pytest
import torch
from torch.autograd import Function, grad
from torch.autograd.function import once_differentiable

from double_backward import diagnose_all
from double_backward.diagnosis import Verdict
from double_backward.remedies import meet
from lessons_src.saving_inputs import Square
from lessons_src.saving_intermediates import sinh
from lessons_src.untracked_backward import Cube, CubeBackward, CubeNumPy
from lessons_src.what_not_to_do import SinhBad

square = Square.apply  # bound when the module is imported, as most are


class Guarded(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return grad_out * 3 * x**2


class Product(Function):
    """a @ b.T, scaled by the number of columns, which is also handed over."""

    @staticmethod
    def forward(ctx, a, b, columns, shape):
        assert a.shape[1] == b.shape[1] == columns and a.shape == shape
        ctx.save_for_backward(a, b)
        ctx.columns = columns
        return a @ b.T / columns

    @staticmethod
    def backward(ctx, grad_out):
        a, b = ctx.saved_tensors
        grad_out = grad_out / ctx.columns
        return grad_out @ b, grad_out.T @ a, None, None


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([0.3, 0.7], dtype=torch.float64))

    def forward(self, x):
        return square(self.weight * x)


def x(*shape):
    generator = torch.Generator().manual_seed(0)
    return torch.rand(*(shape or (2,)), dtype=torch.float64, generator=generator).requires_grad_()


def rows(step):
    table = diagnose_all(step)
    return {row.name: row for row in table.rows}, table


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
    line = next(line for line in str(table).splitlines() if "SinhBad" in line)
    for word in (
        "silently_wrong",
        "lessons_src.what_not_to_do, line 7",
        "intermediate_on_ctx",
        "4",
    ):
        assert word in line


def test_a_function_of_a_backward_is_not_asked_for_more_than_the_step_needs():
    found, table = rows(lambda: grad(CubeNumPy.apply(p := x()).sum(), p, create_graph=True))
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

    found, table = rows(lambda: grad(CubeHalved.apply(p := x()).sum(), p, create_graph=True))
    assert found["Halved"].in_backward and not found["Halved"].ok and not table.ok
    assert str(table).startswith("2 custom Functions, 0 right, 2 not")


def test_other_shapes_once():
    found, table = rows(lambda: [square(x(n)) for n in (2, 3, 4)])
    assert len(table.rows) == 1 and found["Square"].calls == 3


def test_the_worst_of_different_kinds_of_calls():
    def forward(ctx, x):
        x = x.contiguous()
        ctx.save_for_backward(x)
        return x**3

    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return grad_out * 3 * x**2

    body = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    cube = type("Contiguous", (Function,), body)
    found, _ = rows(lambda: [cube.apply(x(2, 3)), cube.apply(x(2, 3).t())])
    assert not found["Contiguous"].diagnosis.ok and found["Contiguous"].calls == 2


def test_large_inputs_are_cut_down_and_the_table_says_so():
    def step():
        a, b = x(500, 300), x(40, 300)
        Product.apply(a, b, 300, a.shape)
        SinhBad.apply(x(300, 200))

    found, table = rows(step)
    assert found["Product"].diagnosis.ok
    assert found["SinhBad"].verdict is Verdict.SILENTLY_WRONG
    assert "Product: inputs cut down (500, 300) to (3, 3), (40, 300) to (3, 3)." in str(table)


def test_frozen_ones_are_named_with_the_reason():
    found, table = rows(lambda: square(torch.ones(2)))
    assert found["Square"].verdict is Verdict.NOT_CHECKED and not table.ok
    assert "Square: not checked: none of its inputs requires grad in this step." in str(table)


def test_the_step_is_not_disturbed(capsys):
    class Noisy(Function):
        @staticmethod
        def forward(ctx, x, module):
            module.count += 1
            ctx.keep = (torch.rand_like(x) > 0.5).to(x)
            return x * ctx.keep

        @staticmethod
        def backward(ctx, grad_out):
            return grad_out * ctx.keep, None

    def run():
        torch.manual_seed(0)
        module, layer, point = torch.nn.Module(), Layer(), x()
        module.register_buffer("count", torch.zeros(1))
        results = []

        def step():
            y = Noisy.apply(layer(point), module)
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
    assert not meet._listeners
    assert "diagnose_all: 1 of 2" in capsys.readouterr().err


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

    found, _ = rows(lambda: torch.func.grad(lambda x: NewStyle.apply(x).sum())(x().detach()))
    assert found["NewStyle"].verdict is Verdict.SILENTLY_WRONG


def test_nothing_custom_and_what_step_raises():
    assert str(diagnose_all(lambda: x() ** 2)) == "The step applies no custom Function."
    assert diagnose_all(lambda: None).ok
    with pytest.raises(ZeroDivisionError):
        diagnose_all(lambda: 1 / 0)
    assert not meet._listeners
    with pytest.raises(KeyError, match="is not in the table"):
        diagnose_all(lambda: None)["Square"]


class ThroughModule(Function):
    """Handed the parameters, and takes the module's own, as an adjoint of an equation does."""

    @staticmethod
    def forward(ctx, layer, x, weight):
        ctx.layer = layer
        ctx.save_for_backward(x, weight)
        return layer.weight.detach() * x

    @staticmethod
    def backward(ctx, grad_out):
        x, weight = ctx.saved_tensors
        return None, None, torch.zeros_like(weight)


def test_a_function_that_does_not_use_what_it_is_handed_is_not_called_right():
    layer, point = Layer(), torch.ones(2, dtype=torch.float64)
    table = diagnose_all(lambda: ThroughModule.apply(layer, point, layer.weight).sum().backward())
    assert table["ThroughModule"].verdict is Verdict.NOT_CHECKED
    assert "its output does not change with the tensors that it was handed" in str(table)
