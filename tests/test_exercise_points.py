"""What an exercise tries an answer with reaches the lessons' own mistakes, and is fair."""

import pytest
import torch
from test_exercises import TASKS, TanhRecomputed, reply
from torch.autograd import Function

from lessons_src.exercises import check, exercises

SOLUTIONS = {name: exercise.SOLUTION for name, exercise in exercises().items()}


def first_class(name):
    return SOLUTIONS[name][0].apply


@pytest.mark.parametrize("name", ["reciprocal", "product", "power"])
def test_a_clamp_like_that_of_lesson_1_is_refused(name):
    def clamped(*args):
        args = [a.clamp(-1000, 1000) if torch.is_tensor(a) else a for a in args]
        return first_class(name)(*args)

    assert reply(name, clamped).status == "wrong"


def test_a_power_that_is_wrong_for_n_4_only_is_refused():
    class Power(SOLUTIONS["power"][0]):
        @staticmethod
        def backward(ctx, grad_out):
            grad_x, none = SOLUTIONS["power"][0].backward(ctx, grad_out)
            return grad_x * (1 + (ctx.n == 4)), none

    assert "n = 4" in str(reply("power", Power.apply))


def test_a_swish_that_copies_three_dimensions_only_is_refused():
    class Swish(SOLUTIONS["swish"][0]):
        @staticmethod
        def forward(ctx, x):
            x = x.contiguous() if x.dim() == 3 else x
            ctx.save_for_backward(x)
            return x * torch.sigmoid(x)

    assert "x of shape (n, 2, 1), not contiguous" in str(reply("swish", Swish.apply))


def test_an_empty_tensor_is_nobodys_question():
    for task in TASKS.values():
        for setting in task.settings:
            assert all(a.numel() for a in setting.args if torch.is_tensor(a))


class GateRecomputed(Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * torch.sigmoid(b)

    @staticmethod
    def backward(ctx, grad_out):
        a, b = ctx.saved_tensors
        s = torch.sigmoid(b)
        return grad_out * s, grad_out * a * s * (1 - s)


class NormaliseRecomputed(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x / x.norm()

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        r = torch.sqrt((x**2).sum())
        return (grad_out - x / r * (grad_out * x / r).sum()) / r


AROUND = {
    "tanh_exp": (TanhRecomputed, "to keep the exponentials"),
    "gate": (GateRecomputed, "to keep s"),
    "normalise": (NormaliseRecomputed, "to keep r"),
}


@pytest.mark.parametrize("name", AROUND)
def test_a_right_answer_around_the_point_is_right_but(name, capsys):
    function, point = AROUND[name]
    check(name, function.apply)
    with torch.no_grad():
        check(name, function)
    said = " ".join(capsys.readouterr().out.split())
    assert said.count(f"✓ {name}: right.") == said.count(point) == 2


@pytest.mark.parametrize("name", AROUND)
def test_an_answer_to_the_point_is_right_alone(name, capsys):
    check(name, SOLUTIONS[name][-1])
    said = capsys.readouterr().out
    assert (
        said.startswith(f"✓ {name}: right.")
        and "On to the next cell." in said
        and "But" not in said
    )


def printing(what):
    class Reciprocal(SOLUTIONS["reciprocal"][0]):
        @staticmethod
        def forward(ctx, x):
            print(what(x))
            return SOLUTIONS["reciprocal"][0].forward(ctx, x)

    return Reciprocal


def test_what_an_answer_prints_comes_once(capsys):
    check("reciprocal", printing(lambda x: "in forward"))
    assert capsys.readouterr().out.startswith("in forward\n✓ reciprocal: right.")
    check("reciprocal", printing(lambda x: x.detach().reshape(-1).tolist()))
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "[0.5, 1.0, -1.3]"
    assert said[10].startswith("(Your code prints ") and said[11].startswith("✓ reciprocal")
