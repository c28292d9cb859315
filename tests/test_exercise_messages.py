"""What check says of mistakes that learners make: the solution, with a few words replaced."""

import linecache

import numpy as np
import pytest
import torch
from scipy import linalg
from scipy.special import dawsn
from test_exercises import EXERCISES, reply
from torch.autograd import Function

from lessons_src.exercises import check, solution_code
from lessons_src.untracked_backward import in_numpy


def edited(name, *replacements):
    """What the exercise's solution defines, with these texts replaced: names and values."""
    text = solution_code(EXERCISES[name])
    for old, new in replacements:
        assert old in text, f"{old!r} is not in the solution of {name}"
        text = text.replace(old, new, 1)
    filename = f"<{name} with {replacements!r}>"
    linecache.cache[filename] = len(text), None, text.splitlines(keepends=True), filename
    names = {"torch": torch, "np": np, "linalg": linalg, "dawsn": dawsn}
    names |= {"Function": Function, "in_numpy": in_numpy}
    exec(compile(text, filename, "exec"), names)
    return names


def answer(name, *replacements):
    last = EXERCISES[name].SOLUTION[-1]
    found = edited(name, *replacements)[last.__name__]
    return getattr(found, "apply", found)


BACKWARD = ("return -grad_out / x**2", "{}")
FALSE_ONCE = {  # which said something false, half true or nothing
    "a shift that cancels, beside a detach": (
        "logsumexp",
        [
            ("torch.log(torch.exp(x).sum())", "x.max() + torch.log(torch.exp(x - x.max()).sum())"),
            ("ctx.save_for_backward(x, out)", "ctx.m = x.max().item(); ctx.save_for_backward(x)"),
            ("x, out = ctx.saved_tensors", "(x,) = ctx.saved_tensors; e = torch.exp(x - ctx.m)"),
            ("torch.exp(x - out)", "e / e.sum().detach()"),
        ],
        "(it uses .detach() in backward, line 15",
    ),
    "no_grad as a decorator": (
        "gate",
        [("def gate", "@torch.no_grad()\ndef gate")],
        "torch.no_grad() or the like in gate, line 20: `@torch.no_grad()`",
    ),
    "no_grad as a decorator of backward": (
        "reciprocal",
        [("    def backward", "    @torch.no_grad()\n    def backward")],
        "torch.no_grad() or the like in backward, line 11: `@torch.no_grad()`",
    ),
    "an extra output that is a mask": (
        "tanh_exp",
        [
            ("(expx + expnegx), expx, expnegx", "(expx + expnegx), expx, expnegx, one"),
            ("ctx.save_for_backward(expx, expnegx)",
             "one = torch.ones_like(x); ctx.save_for_backward(expx, expnegx, one)"),
            ("expx, expnegx = ctx", "expx, expnegx, one = ctx"),
            ("grad_expnegx):", "grad_expnegx, grad_one):"),
            ("grad_out * 4", "one * grad_out.detach() * 4"),
            ("out, _expx, _expnegx", "out, *_"),
        ],
        "(it uses .detach() in backward, line 16",
    ),
    "a list returned from a second Function": (
        "growth",
        [("return for_grad_out, for_a, for_b", "return [for_grad_out, for_a, for_b]")],
        "GrowthBackward.backward returns an object of type list. Return a tensor, or several",
    ),
    "arrays returned from a second Function": (
        "growth",
        [("return for_grad_out, for_a, for_b", "return for_grad_out, for_a.numpy(), for_b")],
        "what GrowthBackward.backward returns for a is of type ndarray, and no tensor",
    ),
    "a printed number beside an array": (
        "reciprocal",
        [("return -grad_out / x**2",
          "print(x.sum().item())\n        s = torch.as_tensor(x.detach().numpy() ** 2)\n"
          "        return -grad_out / s")],
        "(it uses NumPy in backward, line 14",
    ),
    "ctx.grad_out": (
        "dawson_twice",
        [("ctx.save_for_backward(grad_out, x)", "ctx.g = grad_out; ctx.save_for_backward(x)"),
         ("grad_out, x = ctx.saved_tensors", "(x,) = ctx.saved_tensors; grad_out = ctx.g")],
        "one thing is left to mend: in DawsonBackward, ctx.g is an input",
    ),
    "a list of inputs on ctx": (
        "product",
        [("ctx.save_for_backward(a, b)", "ctx.kept = [a, b]"),
         ("a, b = ctx.saved_tensors", "a, b = ctx.kept")],
        "ctx.kept holds an input",
    ),
    "two tensors that were not returned": (
        "tanh_exp",
        [("(expx + expnegx), expx, expnegx", "(expx + expnegx)"),
         ("grad_out, grad_expx, grad_expnegx", "grad_out"),
         ("grad_x = grad_x + grad_expx * expx", ""),
         ("grad_x = grad_x - grad_expnegx * expnegx", ""),
         ("out, _expx, _expnegx = TanhExp.apply(x)\n    return out", "return TanhExp.apply(x)")],
        "forward saves a tensor it made itself (expx, expnegx)",
    ),
    "float32": (
        "sigmoid",
        [("save_for_backward(out)", "save_for_backward(out.float())")],
        "It becomes float32 here: forward, line 9: `ctx.save_for_backward(out.float())`",
    ),
    "float32 in backward": (
        "reciprocal",
        [("/ x**2", "/ x.float() ** 2")],
        "It becomes float32 here: backward, line 13",
    ),
    "the second derivative in backward": (
        "reciprocal", [("-grad_out / x**2", "grad_out * 2 / x**3")],
        "That is grad_out times the second derivative",
    ),
    "a name slightly off": (
        "reciprocal", [("def backward", "def backwards")], "It has backwards: is that meant?"
    ),
    "saved_tensor": ("reciprocal", [("ctx.saved_tensors", "ctx.saved_tensor")],
                     "Is ctx.saved_tensors meant?"),
    "grad_output": ("reciprocal", [("-grad_out", "-grad_output")], "Is grad_out meant?"),
    "an argument of forward in backward": (
        "power", [("ctx.n *", "n *")], "n is an argument of forward. backward has what"
    ),
    "marked as non-differentiable": (
        "sigmoid",
        [("ctx.save_for_backward(out)",
          "ctx.mark_non_differentiable(out)\n        ctx.save_for_backward(out)")],
        "`ctx.mark_non_differentiable(out)` makes a constant of it",
    ),
    "a saved tensor edited afterwards": (
        "reciprocal",
        [("ctx.save_for_backward(x)", "z = x * 1; ctx.save_for_backward(z); z += 1")],
        "forward edits a tensor that it handed to save_for_backward before (forward, line 7",
    ),
    "a saved tensor edited in backward": (
        "artanh", [("x = x.clamp(-1 + 1e-6, 1 - 1e-6)\n        return grad_out",
                    "x.clamp_(-1 + 1e-6, 1 - 1e-6)\n        return grad_out")],
        "A saved tensor is edited in place. Make a new tensor instead.",
    ),
    "a tensor from outside the second Function": (
        "dawson_twice",
        [("return DawsonBackward.apply(grad_out, x)", """
        class Inner(Function):
            @staticmethod
            def forward(inner, g):
                return g * in_numpy(dawson_first, x)

            @staticmethod
            def backward(inner, h):
                return h * in_numpy(dawson_first, x)

        return Inner.apply(grad_out)""")],
        "Inner.forward reads x from outside: to autograd a constant",
    ),
    "an error in a function of NumPy": (
        "dawson", [("return grad_out * in_numpy(dawson_first, x)",
                    "return grad_out * in_numpy(lambda v: 1 - D(v), x)")],
        "name 'D' is not defined (<lambda>, line 19",
    ),
    "a forward that fails in backward": (
        "solve", [("FullSolve.apply(A.t(), grad_out)", "FullSolve.apply(grad_out, A.t())")],
        "called in backward, line 17: `w = FullSolve.apply(grad_out, A.t())`",
    ),
    "a gradient that is None": (
        "gate", [("ctx.save_for_backward(a, s)",
                  "ctx.save_for_backward(a, s); ctx.set_materialize_grads(False)")],
        "grad_s is None here: that output was not used (set_materialize_grads(False)).",
    ),
    "a power too many": ("power", [("(ctx.n - 1)", "(ctx.n + 1)")],
                         "Everywhere, yours is the true one, times x²."),
    "abs": ("power", [("x ** (ctx.n - 1)", "x.abs() ** (ctx.n - 1)")],
            "yours has the right size, and in places the wrong sign"),
    "a mean": ("learned_power", [("grad_alpha.sum()", "grad_alpha.mean()")],
               "lacks one factor: the number of elements. Is there a mean in the place of a sum?"),
    "a term with the wrong sign": (
        "standardise", [("- along_out", "+ along_out")],
        "The term -along_out / sqrt_var has the wrong sign.",
    ),
    "a term twice": (
        "dawson", [("return 1 -", "return 2 -")], "the term grad_out comes 2 times. It should come"
    ),
    "another factor of all terms": (
        "standardise",
        [("return (grad_out - grad_out.mean() - along_out) / sqrt_var",
          "return (grad_out - grad_out.mean() - along_out) / torch.sqrt(x.var() + 1e-5)")],
        "At these points, yours is 0.816498 times the true one.",
    ),
    "a sum in the place of a product": (
        "library", [("-grad_out * x * out", "grad_out + -x * out")],
        "Everywhere, yours adds grad_out where it should multiply by it.",
    ),
    "a detach that the third derivative meets": (
        "tanh_exp", [("grad_expx * expx", "grad_expx * expx.detach()")],
        "the second derivative is right, and the third is a wrong number. F, differentiated three "
        "times, at x[0] = 0.5: yours 0.5847, true -0.5652. backward computes with x where "
        "autograd cannot follow (it uses .detach() in backward, line 17",
    ),
    "a term missing": (
        "normalise", [("- out * (grad_out * out).sum()", "")],
        "The norm depends on x too, so a second term is missing.",  # known by name
    ),
    "the gradient of another input": (
        "product", [("save_for_backward(a, b)", "save_for_backward(a, a)")],
        "For a: that is the gradient of b.",
    ),
    "half of a gradient, of two inputs": (
        "gate", [("grad_b = grad_out * a", "grad_b = 0.5 * grad_out * a")],
        "For b: everywhere, yours is 0.5 times the true one.",
    ),
    "an extra gradient without its derivative": (
        "tanh_exp",
        [("grad_expx * expx", "grad_expx"), ("grad_expnegx * expnegx", "grad_expnegx")],
        "yours 1.0000, true 1.6487. Yours is the gradient of that output itself. Multiply it",
    ),
    "the second extra gradient without its derivative": (
        "tanh_exp", [("grad_expnegx * expnegx", "grad_expnegx")],
        "Yours is the gradient of that output itself, with a minus. Multiply it by the output's",
    ),
    "an extra gradient without its derivative, of two inputs": (
        "gate", [("+ grad_s * s * (1 - s)", "+ grad_s")],
        "Yours is the gradient of that output itself. Multiply it by the output's own derivative.",
    ),
    "the extra gradient of one number without its derivative": (
        "normalise", [("grad_norm * out", "grad_norm")],
        "Yours is the gradient of that output itself. Multiply it by the output's own derivative.",
    ),
    "ctx in the second place": (
        "reciprocal", [("def forward(ctx, x)", "def forward(x, ctx)")], "ctx comes first: def"
    ),
    "brackets behind saved_tensors": (
        "reciprocal", [("saved_tensors", "saved_tensors()")],
        "ctx.saved_tensors is written without brackets",
    ),
    "backward outside the class": (
        "reciprocal",
        [("    @staticmethod\n    def backward(ctx, grad_out):\n"
          "        (x,) = ctx.saved_tensors\n        return",
          "\ndef backward(ctx, grad_out):\n    (x,) = ctx.saved_tensors\n    return")],
        "There is a function backward outside of the class",
    ),
    "an array on ctx": (
        "reciprocal", [("ctx.save_for_backward(x)", "ctx.x = x.detach().numpy().copy()"),
                       ("(x,) = ctx.saved_tensors", "x = torch.as_tensor(ctx.x)")],
        "constants to the second backward: ctx.x. No graph leads on from what is not a tensor",
    ),
    "1 - x D": ("dawson", [("1 - 2 * x * dawsn(x)", "1 - x * dawsn(x)")], "The factor 2 is"),
}  # fmt: skip


@pytest.mark.parametrize("kind", FALSE_ONCE)
def test_a_mistake_is_told_by_its_name_and_line(kind):
    name, replacements, said = FALSE_ONCE[kind]
    assert said in " ".join(str(reply(name, answer(name, *replacements))).split())


def test_float32_is_not_told_as_a_wrong_sign():
    got = reply(
        "reciprocal", answer("reciprocal", ("-grad_out / x**2", "(-grad_out / x**2).float()"))
    )
    said = " ".join(str(got).split())
    assert "sign" not in said and "It becomes float32 here: backward, line 13" in said


@pytest.mark.parametrize("gradient", ["grad_expx", "2 * grad_expx"])
def test_a_constant_that_was_handed_in_is_not_told_as_a_sum(gradient):
    got = reply("tanh_exp", answer("tanh_exp", ("grad_expx * expx", gradient)))
    assert "a sum or a mean too many" not in str(got)


def test_a_sum_too_many_is_told_as_that():
    too_many = ("-grad_out / x**2", "(-grad_out / x**2).sum().expand_as(x)")
    got = reply("reciprocal", answer("reciprocal", too_many))
    assert "Is there a sum or a mean too many?" in str(got)


NOT_WRITTEN = "raise NotImplementedError"


def test_a_forward_that_is_missing_under_a_written_backward_is_told_as_that():
    got = reply("reciprocal", answer("reciprocal", ("return 1 / x", NOT_WRITTEN)))
    assert (got.status, got.fact[:4]) == ("wrong", "Reci")  # the line above it is left behind
    got = reply(
        "reciprocal",
        answer("reciprocal", ("ctx.save_for_backward(x)\n        return 1 / x", NOT_WRITTEN)),
    )
    assert (got.status, got.fact) == ("neutral", "Reciprocal.forward is not written yet.")


SHIFTED = ("ctx.save_for_backward(x)\n        x = x.contiguous()",
           "x = x.contiguous() + 0\n        ctx.save_for_backward(x)")  # fmt: skip


def test_in_a_hunt_for_a_bug_the_second_check_names_the_cause(capsys):
    from lessons_src import exercises

    exercises._tries.clear()
    for _ in range(2):
        check("swish", answer("swish", SHIFTED))
    first, second = " ".join(capsys.readouterr().out.split()).split("✗ swish: ")[1:]
    assert "yours" in first and "from the second time on, check names the cause" in first
    assert "copy" not in first and "saves is a copy of an input" in second


def test_where_no_bug_is_hunted_the_first_check_names_the_cause(capsys):
    check("reciprocal", answer("reciprocal", ("x**2", "x.detach() ** 2")))
    assert "where autograd cannot follow" in " ".join(capsys.readouterr().out.split())


AROUND = {
    "sigmoid": ([("save_for_backward(out)", "save_for_backward(x)"),
                 ("(out,) = ctx.saved_tensors", "out = torch.sigmoid(*ctx.saved_tensors)")],
                "to save the result"),
    "dawson": ([("ctx.save_for_backward(x)\n        return in_numpy(dawsn, x)",
                 "out = in_numpy(dawsn, x); ctx.save_for_backward(x, out); return out"),
                ("(x,) = ctx.saved_tensors", "x, out = ctx.saved_tensors"),
                ("in_numpy(dawson_first, x)", "(1 - 2 * x * out)")],
               "a derivative that torch does not compute"),
    "growth": ([("return GrowthBackward.apply(grad_out, a, b)",
                 "return grad_out * torch.exp(b), grad_out * a * torch.exp(b)")],
               "a Function for backward"),
    "solve": ([("FullSolve.apply(A.t(), grad_out)", "torch.linalg.solve(A.t(), grad_out)")],
              "a backward that applies its own Function"),
}  # fmt: skip


@pytest.mark.parametrize("name", AROUND)
def test_a_right_answer_that_goes_around_the_point_is_told_so(name, capsys):
    replacements, point = AROUND[name]
    check(name, answer(name, *replacements))
    said = " ".join(capsys.readouterr().out.split())
    assert said.startswith(f"✓ {name}: right.") and f"of this exercise, which is {point}" in said


POINTED = [name for name, exercise in EXERCISES.items() if exercise.TASK.point]


@pytest.mark.parametrize("name", POINTED)
def test_the_solution_is_to_the_point(name, capsys):
    check(name, answer(name))
    said = capsys.readouterr().out
    assert "On to the next cell." in said and "But" not in said


def test_a_first_derivative_that_cannot_be_recorded_is_right_where_only_it_is_asked(capsys):
    check(
        "dawson", answer("dawson", ("in_numpy(dawson_first, x)", "(1 - 2 * x * dawsn(x.numpy()))"))
    )
    assert capsys.readouterr().out.startswith("✓ dawson: right.")


def test_a_derivative_partly_in_numpy_is_to_the_point(capsys):
    mixed = ("in_numpy(dawson_first, x)", "(1 - 2 * x * in_numpy(dawsn, x))")
    check("dawson", answer("dawson", mixed))
    assert "But" not in capsys.readouterr().out


def test_an_extra_output_may_stand_before_the_result(capsys):
    turned = [("return a * s, s", "return s, a * s"), ("grad_out, grad_s):", "grad_s, grad_out):")]
    check("gate", answer("gate", *turned, ("out, _s =", "_s, out =")))
    assert "But" not in capsys.readouterr().out


def test_a_check_without_a_name_is_answered_with_that_of_the_function(capsys):
    for name in ("product", "tanh_exp"):
        check(edited(name)[EXERCISES[name].SOLUTION[0].__name__].apply)
        assert f'check("{name}", ' in capsys.readouterr().out
