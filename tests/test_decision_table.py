"""Lesson 6's decision table: each row cures a Function of its kind, and its codes are met there."""

import re
from pathlib import Path

import nbformat
import pytest
import test_diagnosis_facts as facts
import torch
from made_functions import function, same, saving
from scipy.special import dawsn

from double_backward import diagnose
from double_backward.diagnosis.conclusions.findings import ROWS
from lessons_src.saving_inputs import Square
from lessons_src.untracked_backward import (
    Solve,
    in_numpy,
    sparse_solve,
)

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


def fused(ctx, x):
    """As a kernel that computes value and derivative in one go."""
    ctx.save_for_backward(x, torch.cosh(x))
    return torch.sinh(x)


def computed_again_where_recorded(ctx, g):
    x, cosh = ctx.saved_tensors
    return g * (torch.cosh(x) if torch.is_grad_enabled() else cosh)


def unit(ctx, x):
    ctx.save_for_backward(x)
    ctx.r = x.norm().item()
    return x / ctx.r


def of_unit(length):
    """The backward of x / |x|, with the length that ctx or x has."""

    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        r = length(ctx, x)
        return g / r - x * (g * x).sum() / r**3

    return function(unit, backward).apply


def dawson(ctx, x):
    """A formula in the input and the result: D' = 1 - 2 x D."""
    out = in_numpy(dawsn, x)
    ctx.save_for_backward(x, out)
    return out


def dawson_backward(ctx, g):
    x, out = ctx.saved_tensors
    return g * (1 - 2 * x * out)


def masked(ctx, x, power):
    ctx.mask, ctx.power = x > 0.7, power
    ctx.save_for_backward(x)
    return torch.where(ctx.mask, x**power, 0.0)


def masked_backward(ctx, g):
    (x,) = ctx.saved_tensors
    return g * ctx.mask * ctx.power * x ** (ctx.power - 1), None


def solved_by(function):
    """A diagonal system, whose values and right side depend on x."""
    places = torch.arange(3)
    return lambda x: function.apply(x + 2, x * y.detach(), places, places)


def solved_with(solve):
    """A Solve whose backward solves in this way, outside torch."""

    def backward(ctx, g):
        values, u, row, col = ctx.saved_tensors
        w = solve(values, g, col, row)
        return -w[row] * u[col], w, None, None

    return solved_by(function(Solve.forward, backward))


# What backward uses: a Function that follows the row, and for each code one that does not; by their
# names those of test_diagnosis_facts, where the codes are looked at.
KINDS = {
    "an input": (
        "Square",
        {
            "input_copy_saved": "clone saved",
            "noncontiguous_input": "contiguous copy saved",
            "input_on_ctx": "input on ctx",
        },
    ),
    "the result": (
        "Exp",
        {
            "output_on_ctx": "output on ctx",
            "reference_cycle": "output on ctx",
            "memory_leak": "view of the output",
        },
    ),
    "an input and the result in one formula": (function(dawson, dawson_backward).apply, {}),
    "an intermediate that torch computes quickly": (
        saving(torch.sinh, same, lambda g, x: g * torch.cosh(x)),
        {"intermediate_saved": "SinhSaved", "intermediate_on_ctx": "SinhBad"},
    ),
    "an intermediate that is slow": (
        "sinh",
        {
            "intermediate_saved": "SinhSaved",
            "intermediate_on_ctx": "SinhBad",
            "extra_output_gradient_ignored": "extra outputs' gradients ignored",
            "extra_output_gradient_wrong": "a wrong part for an extra output",
        },
    ),
    "the gradient itself, computed by forward (a fused kernel)": (
        function(fused, computed_again_where_recorded).apply,
        {
            "intermediate_saved": function(fused, lambda ctx, g: g * ctx.saved_tensors[1]).apply,
            "intermediate_on_ctx": "SinhFunc",
        },
    ),
    "a number or an array computed from an input": (
        of_unit(lambda ctx, x: x.norm()),
        {
            "intermediate_on_ctx": of_unit(lambda ctx, x: ctx.r),
            "state_outside_ctx": "a slope left elsewhere",
        },
    ),
    "a shape, a flag, an exponent, a mask, an index, random numbers as they were drawn": (
        lambda x: function(masked, masked_backward).apply(x, 3),
        {},
    ),
    "the Function itself, as a solve does": (
        solved_by(Solve),
        {"untracked_backward": solved_with(sparse_solve), "numpy_in_backward": "x.numpy()"},
    ),
    "other code that is not torch, and you can write its derivative": (
        "CubeNumPy",
        {
            "untracked_backward": "all NumPy",
            "numpy_in_backward": "x.numpy()",
            "grad_out_path_cut": "all NumPy",
            "second_function_gradient": "second Function, no gradient for grad_out",
            "once_differentiable": "once_differentiable",
        },
    ),
    "code that is not torch, and you cannot": (None, {}),  # no second derivative to be right
    "a torch operation that has no derivative": (
        lambda x: (x * Square.apply(x) / 6 + 0.5).clamp(0, 1),
        {"no_derivative_formula": "hardsigmoid"},
    ),
    "`autograd.grad`, called inside backward": (
        "autograd.grad with aliases",
        {
            "path_counted_twice": "autograd.grad in backward",
            "inputs_of_one_another": "one made from another",
        },
    ),
    "the result, written over an input in place": (
        "in place, marked",
        {"in_place_without_mark_dirty": "in place, not marked"},
    ),
}


def test_the_table_has_these_rows_and_codes():
    assert list(TABLE) == list(KINDS)
    for kind, (_, codes) in TABLE.items():
        assert codes == set(KINDS[kind][1]), kind
    assert {code for _, codes in TABLE.values() for code in codes} <= set(ROWS)


def verdict_and_codes(fn):
    """Of a Function, or of the row of that name, which is looked at where it stands."""
    if isinstance(fn, str):
        verdict, _, codes, *_ = facts.ROWS[fn]
        return verdict, codes.split()
    found = diagnose(fn, x)
    return found.verdict, [finding.code for finding in found.findings]


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_cures_what_its_codes_say(kind):
    cured, broken = KINDS[kind]
    for code, wrong in broken.items():
        assert code in verdict_and_codes(wrong)[1], code
    if cured is not None:
        assert verdict_and_codes(cured)[0] == "supported"
