"""diagnose, where a Function is right as it was given and wrong as a model calls it: the formula.

That it is found is tried in `test_diagnosis_facts`.
"""

import pytest
import torch
from made_functions import function, x
from test_diagnosis_facts import ROWS, a, b

from double_backward import diagnose


def test_the_formula_that_is_printed_has_the_sign_that_was_tried():
    _, fn, *_ = ROWS["sign of grad_out"]
    found = diagnose(fn, a)
    assert "w = -1.5 - torch.arange(z.numel()).cos().view_as(z), d = 1.5 +" in found.recipe
    w = -1.5 - torch.arange(a.numel()).cos()
    d = 1.5 + (2 * torch.arange(a.numel())).sin()
    (g,) = torch.autograd.grad((w * fn(a)).sum(), a, create_graph=True)
    (h,) = torch.autograd.grad((d * g).sum(), a)
    row = found.settings["alone"]
    assert row.got == pytest.approx(h[0].item()) and row.expected == pytest.approx(-h[0].item())


def test_no_formula_is_printed_for_inputs_made_from_one_another():
    _, fn, *_ = ROWS["one made from another"]
    assert diagnose(fn, a, b).recipe == ""


def test_a_missing_gradient_that_is_0_just_here():
    def sum_of_squares(ctx, x, k):
        ctx.save_for_backward(x)
        return x**2 + k**2

    fn = function(sum_of_squares, lambda ctx, g: (g * 2 * ctx.saved_tensors[0], None)).apply
    found = diagnose(fn, x(), x(0.0, 0.0))
    assert found.verdict == "surrogate_gradient"
    assert {"returns_none", "another_point"} <= {finding.code for finding in found.findings}
