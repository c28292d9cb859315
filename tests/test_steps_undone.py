"""Steps of a backward undone, and what becomes of its own derivative."""

import pytest
import torch
from made_functions import cubic
from test_check import measured

from double_backward.diagnosis.steps_undone import undone


def harmless_and_not(g, x):
    shift = x.max().detach()
    other = x.detach()
    return g * 3 * (x - shift + shift) * other


def both_needed(g, x):
    one = x.detach()
    other = x.detach()
    return g * 3 * one * other


def in_numpy(g, x):
    return g * 3 * torch.from_numpy(x.detach().numpy() ** 2)


def grad_out_detached(g, x):
    return g.detach() * 3 * x**2


CUT = {  # the lines without which all is right, by the part that they cut
    "a detach": (lambda g, x: g * 3 * x.detach() ** 2, {"by_input": 1, "by_grad_out": 0}),
    "one detach of two": (harmless_and_not, {"by_input": 1, "by_grad_out": 0}),
    "two": (both_needed, {"by_input": 2, "by_grad_out": 0}),
    "that of grad_out": (grad_out_detached, {"by_input": 0, "by_grad_out": 1}),
}


@pytest.mark.parametrize("name", CUT)
def test_as_few_steps_are_named_as_will_do(name):
    backward, counts = CUT[name]
    found = undone(measured(cubic(backward)))
    assert found.right
    assert {part: len(getattr(found, part)) for part in counts} == counts
    assert not any("shift" in step.where for step in found.together)


def test_what_leaves_torch_is_not_undone():
    found = undone(measured(cubic(in_numpy)))
    assert not (found.right or found.together)


def test_of_a_right_function_no_step_is_needed():
    found = undone(measured(cubic(lambda g, x: g * 3 * x**2 + x.detach() * 0)))
    assert not found.right and found.together == []
