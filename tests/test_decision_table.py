"""Lesson 6's decision table: each row cures a Function of its kind, and its codes are met there."""

import re
from pathlib import Path

import nbformat
import numpy as np
import pytest
import torch
from scipy.special import dawsn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from double_backward import diagnose
from double_backward.diagnosis.findings import ROWS
from lessons_src.saving_inputs import Square
from lessons_src.saving_intermediates import Sinh, sinh
from lessons_src.saving_outputs import Exp
from lessons_src.untracked_backward import (
    CubeBackward,
    CubeNumPy,
    Solve,
    in_numpy,
    sparse_solve,
)
from lessons_src.what_not_to_do import SinhBad

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"
LESSON = NOTEBOOKS / "6_your_own_function.ipynb"
CODES = NOTEBOOKS / "5_untracked_backward.ipynb"  # where the findings point to
x = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64, requires_grad=True)
y = torch.tensor([0.7, -0.4, 1.5], dtype=torch.float64, requires_grad=True)


def table(text, heading):
    """The cells of the first table below a heading, a list for each row."""
    lines = text.split(heading)[1].splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("|"))
    found = []
    for line in lines[first + 2 :]:
        if not line.startswith("|"):
            return found
        found.append([c.strip() for c in line.strip("|").split("|")])


def rows():
    """What backward uses -> (the lessons, the codes) of each row of the table."""
    text, codes_text = (
        "\n".join(cell.source for cell in nbformat.read(path, as_version=4).cells)
        for path in (LESSON, CODES)
    )
    codes = {
        number: set(re.findall(r"`(\w+)`", cell))
        for number, cell in table(codes_text, "### From a code of `diagnose` to its row")
    }
    decisions = table(text, "## The decision table")
    assert [row[0] for row in decisions] == [str(i + 1) for i in range(len(decisions))]
    assert set(codes) <= {row[0] for row in decisions}
    return {row[1]: (set(re.findall(r"\d", row[4])), codes.get(row[0], set())) for row in decisions}


TABLE = rows()


class SquareCopy(Square):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x.clone())
        return x**2


class SquareContiguous(Square):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x.contiguous())
        return x**2


class SquareOnCtx(Square):
    @staticmethod
    def forward(ctx, x):
        ctx.x = x
        return x**2

    @staticmethod
    def backward(ctx, grad_out):
        return grad_out * 2 * ctx.x


class ExpOnCtx(Exp):
    @staticmethod
    def forward(ctx, x):
        ctx.out = torch.exp(x)
        return ctx.out

    @staticmethod
    def backward(ctx, grad_out):
        return grad_out * ctx.out


class ExpView(ExpOnCtx):
    @staticmethod
    def forward(ctx, x):
        out = torch.exp(x)
        ctx.out = out.view(-1)
        return out


class Dawson(Function):
    """A formula in the input and the result: D' = 1 - 2 x D."""

    @staticmethod
    def forward(ctx, x):
        out = in_numpy(dawsn, x)
        ctx.save_for_backward(x, out)
        return out

    @staticmethod
    def backward(ctx, grad_out):
        x, out = ctx.saved_tensors
        return grad_out * (1 - 2 * x * out)


class SinhSaved(Function):
    @staticmethod
    def forward(ctx, x):
        expx = torch.exp(x)
        ctx.save_for_backward(expx)
        return (expx - 1 / expx) / 2

    @staticmethod
    def backward(ctx, grad_out):
        (expx,) = ctx.saved_tensors
        return grad_out * (expx + 1 / expx) / 2


class SinhRecomputed(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.sinh(x)

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return grad_out * torch.cosh(x)


class SinhFused(Function):
    """As a kernel that computes value and derivative in one go."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x, torch.cosh(x))
        return torch.sinh(x)

    @staticmethod
    def backward(ctx, grad_out):
        x, cosh = ctx.saved_tensors
        if torch.is_grad_enabled():
            cosh = torch.cosh(x)
        return grad_out * cosh


class SinhAlwaysFused(SinhFused):
    @staticmethod
    def backward(ctx, grad_out):
        _, cosh = ctx.saved_tensors
        return grad_out * cosh


class SinhFusedOnCtx(SinhRecomputed):
    @staticmethod
    def forward(ctx, x):
        ctx.cosh = torch.cosh(x)
        return torch.sinh(x)

    @staticmethod
    def backward(ctx, grad_out):
        return grad_out * ctx.cosh


class SinhForgets(Sinh):
    @staticmethod
    def backward(ctx, grad_out, grad_expx, grad_expnegx):
        expx, expnegx = ctx.saved_tensors
        return grad_out * (expx + expnegx) / 2


class SinhHalf(Sinh):
    @staticmethod
    def backward(ctx, grad_out, grad_expx, grad_expnegx):
        expx, expnegx = ctx.saved_tensors
        return Sinh.backward(ctx, grad_out, grad_expx / 2, grad_expnegx)


class Length(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.r = x.norm().item()
        return x / ctx.r

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return grad_out / ctx.r - x * (grad_out * x).sum() / ctx.r**3


class LengthInTorch(Length):
    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        r = x.norm()
        return grad_out / r - x * (grad_out * x).sum() / r**3


class OnTheClass(SinhRecomputed):
    @staticmethod
    def forward(ctx, x):
        OnTheClass.cosh = torch.cosh(x.detach())
        return torch.sinh(x)

    @staticmethod
    def backward(ctx, grad_out):
        return grad_out * OnTheClass.cosh


class Masked(Function):
    @staticmethod
    def forward(ctx, x, power):
        ctx.mask, ctx.power = x > 0.7, power
        ctx.save_for_backward(x)
        return torch.where(ctx.mask, x**power, 0.0)

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return grad_out * ctx.mask * ctx.power * x ** (ctx.power - 1), None


class SolveDetached(Solve):
    @staticmethod
    def backward(ctx, grad_out):
        values, u, row, col = ctx.saved_tensors
        w = sparse_solve(values, grad_out, col, row)
        return -w[row] * u[col], w, None, None


class SolveAsksNumPy(Solve):
    @staticmethod
    def backward(ctx, grad_out):
        values, u, row, col = ctx.saved_tensors
        w = torch.from_numpy(grad_out.numpy() / values.numpy())  # A is diagonal in this test
        return -w[row] * u[col], w, None, None


def solved_by(function):
    """A diagonal system, whose values and right side depend on x."""
    places = torch.arange(3)
    return lambda x: function.apply(x + 2, x * y.detach(), places, places)


class CubeDetached(CubeNumPy):
    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return grad_out * in_numpy(lambda x: 3 * x**2, x)


class CubeAsksNumPy(CubeNumPy):
    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return grad_out * torch.from_numpy(3 * np.square(x.numpy()))


class CubeNoGradOut(CubeNumPy):
    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return NoGradOut.apply(grad_out, x)


class NoGradOut(CubeBackward):
    @staticmethod
    def backward(ctx, grad_grad_x):
        return None, CubeBackward.backward(ctx, grad_grad_x)[1]


class CubeGuarded(CubeDetached):
    backward = staticmethod(once_differentiable(CubeDetached.backward))


class CubeCutGradOut(CubeNumPy):
    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return grad_out.detach() * 3 * x**2


def hardsigmoid_of_cube(x):
    return torch.nn.functional.hardsigmoid(Square.apply(x) * x)


class CubeNested(CubeNumPy):
    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return NestedBackward.apply(grad_out, x)


class NestedBackward(CubeBackward):
    @staticmethod
    def backward(ctx, grad_grad_x):
        grad_out, x = ctx.saved_tensors
        with torch.enable_grad():
            grad_x = grad_out * 3 * x**2
        return torch.autograd.grad(grad_x, (grad_out, x), grad_grad_x, create_graph=True)


class ProductNested(Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * b**2

    @staticmethod
    def backward(ctx, grad_out):
        a, b = ctx.saved_tensors
        with torch.enable_grad():
            out = a * b**2
        return torch.autograd.grad(out, (a, b), grad_out, create_graph=True)


def alias(tensor):
    tensor = tensor.view_as(tensor)
    return tensor if tensor.requires_grad else tensor.requires_grad_()


class CubeAlias(CubeNumPy):
    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return AliasBackward.apply(grad_out, x)


class AliasBackward(CubeBackward):
    @staticmethod
    def backward(ctx, grad_grad_x):
        with torch.enable_grad():
            grad_out, x = map(alias, ctx.saved_tensors)
            grad_x = grad_out * 3 * x**2
        recorded = torch.is_grad_enabled()
        return torch.autograd.grad(grad_x, (grad_out, x), grad_grad_x, create_graph=recorded)


class ExpInPlace(Function):
    @staticmethod
    def forward(ctx, x):
        x.exp_()
        ctx.save_for_backward(x)
        return x

    @staticmethod
    def backward(ctx, grad_out):
        (out,) = ctx.saved_tensors
        return grad_out * out


class ExpDirty(ExpInPlace):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return ExpInPlace.forward(ctx, x)


matrix = torch.tensor([[0.5, 1.0], [2.0, 1.5]], dtype=torch.float64, requires_grad=True)
# What backward uses: a Function that follows the row, and for each code one that does not.
KINDS = {
    "an input": (
        Square.apply,
        {
            "input_copy_saved": (SquareCopy.apply, x),
            "noncontiguous_input": (SquareContiguous.apply, matrix),
            "input_on_ctx": (SquareOnCtx.apply, x),
        },
    ),
    "the result": (
        Exp.apply,
        {
            "output_on_ctx": (ExpOnCtx.apply, x),
            "reference_cycle": (ExpOnCtx.apply, x),
            "memory_leak": (ExpView.apply, x),
        },
    ),
    "an input and the result in one formula": (Dawson.apply, {}),
    "an intermediate that torch computes quickly": (
        SinhRecomputed.apply,
        {"intermediate_saved": (SinhSaved.apply, x), "intermediate_on_ctx": (SinhBad.apply, x)},
    ),
    "an intermediate that is slow": (
        sinh,
        {
            "intermediate_saved": (SinhSaved.apply, x),
            "intermediate_on_ctx": (SinhBad.apply, x),
            "extra_output_gradient_ignored": (lambda x: SinhForgets.apply(x)[0], x),
            "extra_output_gradient_wrong": (lambda x: SinhHalf.apply(x)[0], x),
        },
    ),
    "the gradient itself, computed by forward (a fused kernel)": (
        SinhFused.apply,
        {
            "intermediate_saved": (SinhAlwaysFused.apply, x),
            "intermediate_on_ctx": (SinhFusedOnCtx.apply, x),
        },
    ),
    "a number or an array computed from an input": (
        LengthInTorch.apply,
        {"intermediate_on_ctx": (Length.apply, x), "state_outside_ctx": (OnTheClass.apply, x)},
    ),
    "a shape, a flag, an exponent, a mask, an index, random numbers as they were drawn": (
        lambda x: Masked.apply(x, 3),
        {},
    ),
    "the Function itself, as a solve does": (
        solved_by(Solve),
        {
            "untracked_backward": (solved_by(SolveDetached), x),
            "numpy_in_backward": (solved_by(SolveAsksNumPy), x),
        },
    ),
    "other code that is not torch, and you can write its derivative": (
        CubeNumPy.apply,
        {
            "untracked_backward": (CubeDetached.apply, x),
            "numpy_in_backward": (CubeAsksNumPy.apply, x),
            "grad_out_path_cut": (CubeCutGradOut.apply, x),
            "second_function_gradient": (CubeNoGradOut.apply, x),
            "once_differentiable": (CubeGuarded.apply, x),
        },
    ),
    "code that is not torch, and you cannot": (None, {}),  # no second derivative to be right
    "a torch operation that has no derivative": (
        lambda x: (x * Square.apply(x) / 6 + 0.5).clamp(0, 1),
        {"no_derivative_formula": (hardsigmoid_of_cube, x)},
    ),
    "`autograd.grad`, called inside backward": (
        CubeAlias.apply,
        {
            "path_counted_twice": (CubeNested.apply, x),
            "inputs_of_one_another": (ProductNested.apply, x, y),
        },
    ),
    "an input that forward overwrote with the result": (
        ExpDirty.apply,
        {"in_place_without_mark_dirty": (ExpInPlace.apply, x)},
    ),
}


def test_the_table_has_these_rows_and_codes():
    assert list(TABLE) == list(KINDS)
    for kind, (_, codes) in TABLE.items():
        assert codes == set(KINDS[kind][1]), kind
    assert {code for _, codes in TABLE.values() for code in codes} <= set(ROWS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_cures_what_its_codes_say(kind):
    cured, broken = KINDS[kind]
    for code, (function, *inputs) in broken.items():
        assert code in {f.code for f in diagnose(function, *inputs).findings}, code
    if cured is not None:
        diagnosis = diagnose(cured, x)
        assert diagnosis.verdict == "supported", str(diagnosis)
