"""Wrong answers that learners give, and what a teacher can say to each.

A wrong answer is written as the changes that make it from a right one: from the solution, or in
lesson 4 from the Function with the bug. `check` refuses each with an advice of its own.
"""

import inspect
from dataclasses import dataclass

from torch.autograd.function import once_differentiable

from . import solutions
from .solutions import SOLUTIONS
from .tasks import TASKS


@dataclass(frozen=True)
class WrongAnswer:
    """One wrong answer.

    Attributes:
        exercise: name of the exercise.
        name: the mistake in a few words.
        say: one sentence for the teacher.
        changes: pairs of a text in the right answer and what stands there instead, made one after
            the other, each where the text occurs first.
        of_given: True if the changes are to lesson 4's Function with the bug.
    """

    exercise: str
    name: str
    say: str
    changes: tuple
    of_given: bool = False

    @property
    def code(self):
        """The whole answer; ValueError if a change does not fit the code that it changes."""
        task = TASKS[self.exercise]
        parts = [task.given] if self.of_given else SOLUTIONS[self.exercise]
        code = "\n\n".join(inspect.getsource(part).rstrip() for part in parts)
        for old, new in self.changes:
            if old not in code:
                raise ValueError(f"{self.exercise}, {self.name}: no {old!r} in\n{code}")
            code = code.replace(old, new, 1)
        return code

    def build(self):
        """The answer as `check` takes it."""
        names = {**vars(solutions), "once_differentiable": once_differentiable}
        exec(compile(self.code, f"<{self.name}>", "exec"), names)
        return names[SOLUTIONS[self.exercise][-1].__name__]


CATALOGUE = []


def wrong(exercise, name, say, *changes, of_given=False):
    """Add one to the catalogue; the arguments are those of `WrongAnswer`."""
    CATALOGUE.append(WrongAnswer(exercise, name, say, changes, of_given))


SAVE_X = "ctx.save_for_backward(x)"
LOAD_X = "(x,) = ctx.saved_tensors"
SAVE_OUT = "ctx.save_for_backward(out)"
LOAD_OUT = "(out,) = ctx.saved_tensors"

# Lesson 1

wrong(
    "reciprocal",
    "sign lost",
    "Which way does 1/x go when x grows?",
    ("-grad_out / x**2", "grad_out / x**2"),
)
wrong(
    "reciprocal",
    "exponent not lowered",
    "Write 1/x as a power and apply the power rule aloud.",
    ("x**2", "x"),
)
wrong(
    "reciprocal",
    "grad_out forgotten",
    "What would backward return if the result were multiplied by 5 afterwards?",
    ("-grad_out / x**2", "-1 / x**2"),
)
wrong(
    "reciprocal",
    "input on ctx",
    "Edit x in place between forward and backward, as lesson 1 does, and watch the numbers.",
    (SAVE_X, "ctx.x = x"),
    (LOAD_X, "x = ctx.x"),
)
wrong(
    "reciprocal",
    "a copy saved",
    "Ask whether the saved tensor is x: `saved is x`, as in lesson 1.",
    (SAVE_X, "x = x.clone()\n        ctx.save_for_backward(x)"),
)
wrong(
    "reciprocal",
    "1/x saved, another 1/x returned",
    "Two tensors with the same values: which of them has a node?",
    (SAVE_X, "ctx.save_for_backward(1 / x)"),
    (LOAD_X, "(inverse,) = ctx.saved_tensors"),
    ("-grad_out / x**2", "-grad_out * inverse**2"),
)
wrong(
    "reciprocal",
    "detached in backward",
    "Does autograd see the step that detach makes?",
    ("-grad_out / x**2", "-grad_out / x.detach() ** 2"),
)
wrong(
    "reciprocal",
    "no return in backward",
    "What does a Python function return without a return?",
    ("return -grad_out / x**2", "grad_x = -grad_out / x**2"),
)
wrong(
    "product",
    "gradients swapped",
    "Say the derivative with respect to a aloud: is it a, or b?",
    ("grad_out * b, grad_out * a", "grad_out * a, grad_out * b"),
)
wrong(
    "product",
    "one gradient only",
    "How many arguments has forward? So many gradients backward returns.",
    ("grad_out * b, grad_out * a", "grad_out * b"),
)
wrong(
    "product",
    "None for b",
    "None says that the result does not depend on b. Does it?",
    ("grad_out * b, grad_out * a", "grad_out * b, None"),
)
wrong(
    "product",
    "grad_out forgotten for b",
    "The chain rule holds for each of the inputs.",
    ("grad_out * b, grad_out * a", "grad_out * b, a"),
)
wrong(
    "product",
    "the whole product as a gradient",
    "Differentiate 7 * b with respect to b. What remains?",
    ("grad_out * b, grad_out * a", "grad_out * b, grad_out * a * b"),
)
wrong(
    "product",
    "b detached",
    "Try F(a, b)² with respect to b, and compare.",
    ("ctx.save_for_backward(a, b)", "ctx.save_for_backward(a, b.detach())"),
)
wrong(
    "product",
    "grad_out changed in place",
    "Who else holds this tensor?",
    (
        "return grad_out * b, grad_out * a",
        "grad_b = grad_out * a\n        return grad_out.mul_(b), grad_b",
    ),
)
wrong(
    "power",
    "exponent not lowered",
    "Try n = 1: what should the derivative of x be?",
    ("x ** (ctx.n - 1)", "x**ctx.n"),
)
wrong(
    "power",
    "factor n forgotten",
    "The exponent comes down as a factor.",
    ("grad_out * ctx.n * x", "grad_out * x"),
)
wrong("power", "no gradient for n", "Count the arguments of forward after ctx.", (", None", ""))
wrong(
    "power",
    "a gradient for n",
    "Can one move an integer a little?",
    (", None", ", grad_out * x**ctx.n * torch.log(x.abs())"),
)
wrong(
    "power",
    "n in save_for_backward",
    "What may save_for_backward hold?",
    ("ctx.save_for_backward(x)\n        ctx.n = n", "ctx.save_for_backward(x, n)"),
    (LOAD_X, "x, n = ctx.saved_tensors"),
    ("grad_out * ctx.n * x ** (ctx.n - 1)", "grad_out * n * x ** (n - 1)"),
)
wrong(
    "power",
    "written for n = 3",
    "It was tested with one n. Test with another.",
    ("grad_out * ctx.n * x ** (ctx.n - 1)", "grad_out * 3 * x**2"),
)
wrong(
    "power",
    "x**(n - 1) computed in forward",
    "Where was this power made, and was autograd recording?",
    (SAVE_X, "ctx.save_for_backward(x ** (n - 1))"),
    (LOAD_X, "(lower,) = ctx.saved_tensors"),
    ("x ** (ctx.n - 1)", "lower"),
)

# Lesson 2

for exercise in ("sigmoid", "tanh", "softplus"):
    wrong(
        exercise,
        "output on ctx",
        "Drop the result and look with a weak reference whether its node is still there.",
        (SAVE_OUT, "ctx.out = out"),
        (LOAD_OUT, "out = ctx.out"),
    )
    wrong(
        exercise,
        "detached output on ctx",
        "detach makes a constant of it: compare F(x)² with the truth.",
        (SAVE_OUT, "ctx.out = out.detach()"),
        (LOAD_OUT, "out = ctx.out"),
    )
    wrong(
        exercise,
        "a copy returned",
        "Is the tensor that you save the tensor that you return?",
        ("return out", "return out.clone()"),
    )
    wrong(
        exercise,
        "input saved, formula in the output",
        "Which tensor do you hold in backward: what went in, or what came out?",
        (SAVE_OUT, SAVE_X),
    )
wrong(
    "sigmoid",
    "1 - out forgotten",
    "What is the slope far out on the right, where out is 1?",
    (" * (1 - out)", ""),
)
wrong(
    "sigmoid",
    "plus instead of minus",
    "The curve is flat at both ends: both factors must be able to vanish.",
    ("(1 - out)", "(1 + out)"),
)
wrong(
    "sigmoid",
    "sign in forward",
    "Is the result near 1 or near 0 for a large x?",
    ("torch.exp(-x)", "torch.exp(x)"),
)
wrong(
    "tanh",
    "square forgotten",
    "The slope at x and at -x must be the same: is out enough for that?",
    ("out**2", "out"),
)
wrong(
    "tanh", "plus instead of minus", "Can tanh be steeper than at 0?", ("1 - out**2", "1 + out**2")
)
wrong("tanh", "1 minus forgotten", "What is the slope of tanh at 0?", ("(1 - out**2)", "out**2"))
wrong(
    "softplus",
    "inner derivative only",
    "log has a derivative of its own.",
    ("(1 - torch.exp(-out))", "(torch.exp(out) - 1)"),
)
wrong(
    "softplus",
    "1 minus forgotten",
    "The slope should go to 1 on the right. Does yours?",
    ("(1 - torch.exp(-out))", "torch.exp(-out)"),
)
wrong(
    "softplus",
    "1 + forgotten in forward",
    "Is your result ever different from x?",
    ("torch.log(1 + torch.exp(x))", "torch.log(torch.exp(x))"),
)

# Lesson 3

RETURNED = ", expx, expnegx\n"
LOST = (
    "        grad_x = grad_x + grad_expx * expx\n        grad_x = grad_x - grad_expnegx * expnegx\n"
)

for exercise, wrapper in (("tanh_exp", "TanhExp"), ("logcosh", "LogCosh")):
    wrong(
        exercise,
        "saved and not returned",
        "Which of the saved tensors is an input or an output?",
        (RETURNED, "\n"),
        ("grad_out, grad_expx, grad_expnegx", "grad_out"),
        (LOST, ""),
        ("out, _expx, _expnegx =", "out ="),
    )
    wrong(
        exercise,
        "extra gradients ignored",
        "Print the three gradients in both passes, as the spy of lesson 3 does.",
        (LOST, ""),
    )
    wrong(
        exercise,
        "extra gradients without the exponential",
        "The extra gradient, too, is multiplied by the derivative of its own output.",
        ("grad_expx * expx", "grad_expx"),
    )
    wrong(
        exercise,
        "second exponential added",
        "What is the derivative of exp(-x)?",
        ("grad_x - grad_expnegx", "grad_x + grad_expnegx"),
    )
    wrong(
        exercise,
        "second extra gradient forgotten",
        "Each extra output has its own line.",
        ("        grad_x = grad_x - grad_expnegx * expnegx\n", ""),
    )
    wrong(
        exercise,
        "kept on ctx",
        "Is autograd recording in forward?",
        ("ctx.save_for_backward(expx, expnegx)", "ctx.expx, ctx.expnegx = expx, expnegx"),
        ("expx, expnegx = ctx.saved_tensors", "expx, expnegx = ctx.expx, ctx.expnegx"),
        (RETURNED, "\n"),
        ("grad_out, grad_expx, grad_expnegx", "grad_out"),
        (LOST, ""),
        ("out, _expx, _expnegx =", "out ="),
    )
    wrong(
        exercise,
        "the Function without the function",
        "How many results does apply return?",
        (
            f"out, _expx, _expnegx = {wrapper}.apply(x)\n    return out",
            f"return {wrapper}.apply(x)",
        ),
    )
wrong(
    "tanh_exp",
    "sum not squared",
    "Write the quotient rule down.",
    ("/ (expx + expnegx) ** 2", "/ (expx + expnegx) / 2"),
)
wrong(
    "tanh_exp",
    "4 forgotten",
    "What is the slope at 0, where both exponentials are 1?",
    ("grad_out * 4 /", "grad_out /"),
)
wrong(
    "logcosh",
    "inner derivative only",
    "log has a derivative of its own.",
    ("(expx - expnegx) / (expx + expnegx)", "(expx - expnegx) / 2"),
)
wrong(
    "logcosh",
    "upside down",
    "What is the slope at 0?",
    ("(expx - expnegx) / (expx + expnegx)", "(expx + expnegx) / (expx - expnegx)"),
)
wrong(
    "logcosh",
    "half forgotten in forward",
    "What should the value at 0 be?",
    ("(expx + expnegx) / 2", "expx + expnegx"),
)
wrong(
    "normalise",
    "norm taken for a constant",
    "If one element grows, what happens to the others?",
    ("(grad_out - out * (grad_out * out).sum()) / norm", "grad_out / norm"),
)
wrong(
    "normalise",
    "sum forgotten",
    "Does the third result depend on the first x?",
    ("(grad_out * out).sum()", "(grad_out * out)"),
)
wrong(
    "normalise",
    "terms added",
    "Stretch x as a whole: the result must not move, so the terms must cancel.",
    ("grad_out - out *", "grad_out + out *"),
)
wrong(
    "normalise",
    "saved and not returned",
    "out is an output. What is norm?",
    ("return out, norm", "return out"),
    ("grad_out, grad_norm", "grad_out"),
    ("        grad_x = grad_x + grad_norm * out\n", ""),
    ("out, _norm =", "out ="),
)
wrong(
    "normalise",
    "extra gradient ignored",
    "When does grad_norm differ from 0?",
    ("        grad_x = grad_x + grad_norm * out\n", ""),
)
wrong(
    "normalise",
    "extra gradient subtracted",
    "Does norm grow or shrink with a positive x?",
    ("grad_x + grad_norm", "grad_x - grad_norm"),
)
wrong(
    "normalise",
    "norm on ctx",
    "ctx holds it, and does autograd know where it comes from?",
    ("ctx.save_for_backward(out, norm)", "ctx.save_for_backward(out)\n        ctx.norm = norm"),
    ("out, norm = ctx.saved_tensors", "(out,), norm = ctx.saved_tensors, ctx.norm"),
    ("return out, norm", "return out"),
    ("grad_out, grad_norm", "grad_out"),
    ("        grad_x = grad_x + grad_norm * out\n", ""),
    ("out, _norm =", "out ="),
)

# Lesson 4

wrong(
    "standardise",
    "sqrt_var through save_for_backward",
    "Lesson 4, break it 2: does save_for_backward give a tensor a graph?",
    (
        "        out = (x - x.mean()) / ctx.sqrt_var\n        ctx.save_for_backward(out)",
        "        sqrt_var = ctx.sqrt_var\n        del ctx.sqrt_var\n"
        "        out = (x - x.mean()) / sqrt_var\n        ctx.save_for_backward(out, sqrt_var)",
    ),
    (LOAD_OUT, "out, sqrt_var = ctx.saved_tensors"),
    ("along_out) / ctx.sqrt_var", "along_out) / sqrt_var"),
    of_given=True,
)
wrong(
    "standardise",
    "another name on ctx",
    "The name is new. Where is the tensor made?",
    (
        "ctx.sqrt_var = torch.sqrt(x.var(correction=0) + 1e-5)",
        "ctx.scale = 1 / torch.sqrt(x.var(correction=0) + 1e-5)",
    ),
    ("/ ctx.sqrt_var", "* ctx.scale"),
    ("/ ctx.sqrt_var", "* ctx.scale"),
    of_given=True,
)
wrong(
    "standardise",
    "declared once_differentiable",
    "That is honest, and the exercise asks for the second derivative.",
    (
        "    @staticmethod\n    def backward",
        "    @staticmethod\n    @once_differentiable\n    def backward",
    ),
    of_given=True,
)
wrong(
    "standardise",
    "recomputed from a detached x",
    "What does detach do to the graph of x?",
    (
        "        sqrt_var = torch.sqrt(x.var(correction=0) + 1e-5)\n        along_out",
        "        sqrt_var = torch.sqrt(x.detach().var(correction=0) + 1e-5)\n        along_out",
    ),
)
wrong(
    "standardise",
    "variance with n - 1 in backward",
    "Compare the two lines that compute sqrt_var.",
    (
        "        sqrt_var = torch.sqrt(x.var(correction=0) + 1e-5)\n        along_out",
        "        sqrt_var = torch.sqrt(x.var() + 1e-5)\n        along_out",
    ),
)
wrong(
    "artanh",
    "clamp removed",
    "Why did the author clamp? Try x = 1.",
    ("        x = x.clamp(-1 + 1e-6, 1 - 1e-6)\n", ""),
    of_given=True,
)
wrong(
    "artanh",
    "a clone saved",
    "A clone is a copy, whatever comes after it.",
    (
        "        x = x.clamp(-1 + 1e-6, 1 - 1e-6)\n        ctx.save_for_backward(x)\n",
        "        ctx.save_for_backward(x.clone())\n        x = x.clamp(-1 + 1e-6, 1 - 1e-6)\n",
    ),
    of_given=True,
)
wrong(
    "artanh",
    "input on ctx",
    "The derivatives are right now. What if the caller edits x?",
    (
        "        x = x.clamp(-1 + 1e-6, 1 - 1e-6)\n        ctx.save_for_backward(x)\n",
        "        ctx.x = x\n        x = x.clamp(-1 + 1e-6, 1 - 1e-6)\n",
    ),
    (LOAD_X, "x = ctx.x"),
    of_given=True,
)
wrong(
    "artanh",
    "clamped in place",
    "Print the caller's x afterwards.",
    (
        "        x = x.clamp(-1 + 1e-6, 1 - 1e-6)\n        ctx.save_for_backward(x)\n",
        "        x.clamp_(-1 + 1e-6, 1 - 1e-6)\n        ctx.save_for_backward(x)\n",
    ),
    of_given=True,
)
wrong(
    "artanh",
    "clamped without a graph in backward",
    "Saving was right. What does the next step do to the graph?",
    (
        "x = x.clamp(-1 + 1e-6, 1 - 1e-6)\n        return grad_out",
        "x = x.detach().clamp(-1 + 1e-6, 1 - 1e-6)\n        return grad_out",
    ),
)
wrong(
    "artanh",
    "square lost",
    "The line that was right before has changed: compare the slopes at x and at -x.",
    ("1 - x**2", "1 - x"),
)
wrong(
    "swish",
    "clone instead of contiguous",
    "Now it is a copy for every x, not for some.",
    ("x.contiguous()", "x.clone()"),
    of_given=True,
)
wrong(
    "swish",
    "contiguous inside save_for_backward",
    "It is one line shorter. Is the saved tensor x?",
    (
        "        x = x.contiguous()\n        ctx.save_for_backward(x)\n",
        "        ctx.save_for_backward(x.contiguous())\n",
    ),
    of_given=True,
)
wrong(
    "swish",
    "other layouts refused",
    "Would you want to use it?",
    (
        "        x = x.contiguous()\n",
        "        if not x.is_contiguous():\n            raise ValueError('x must be contiguous')\n",
    ),
    of_given=True,
)
wrong(
    "swish",
    "flattened",
    "What shape does the caller expect?",
    ("x = x.contiguous()", "x = x.reshape(-1)"),
    of_given=True,
)
wrong(
    "swish",
    "gradient viewed as a row",
    "A gradient has a layout of its own: try .t() after the Function.",
    (
        "        return grad_out * s",
        "        grad_out = grad_out.view(-1).view(x.shape)\n        return grad_out * s",
    ),
)
wrong(
    "swish",
    "sigmoid kept from forward",
    "The copy is gone. Is s an input or an output?",
    (
        "        return x * torch.sigmoid(x)",
        "        ctx.s = torch.sigmoid(x)\n        return x * ctx.s",
    ),
    ("        s = torch.sigmoid(x)\n        return", "        s = ctx.s\n        return"),
)
wrong(
    "learned_power",
    "expanded alpha saved",
    "save_for_backward does not make an input of it.",
    (
        "        ctx.alpha = alpha.expand_as(x)\n        ctx.save_for_backward(x)\n"
        "        return x**ctx.alpha",
        "        alpha = alpha.expand_as(x)\n        ctx.save_for_backward(x, alpha)\n"
        "        return x**alpha",
    ),
    (
        "        (x,) = ctx.saved_tensors\n"
        "        grad_x = grad_out * ctx.alpha * x ** (ctx.alpha - 1)\n"
        "        grad_alpha = grad_out * x**ctx.alpha",
        "        x, alpha = ctx.saved_tensors\n"
        "        grad_x = grad_out * alpha * x ** (alpha - 1)\n"
        "        grad_alpha = grad_out * x**alpha",
    ),
    of_given=True,
)
wrong(
    "learned_power",
    "alpha itself on ctx",
    "Right numbers now. And if the optimiser changes alpha in place before backward?",
    ("alpha.expand_as(x)", "alpha"),
    of_given=True,
)
wrong(
    "learned_power",
    "alpha as a number",
    "Can autograd see a Python number change?",
    ("alpha.expand_as(x)", "alpha.item()"),
    of_given=True,
)
wrong(
    "learned_power",
    "None for alpha",
    "Is alpha learned or not?",
    ("grad_x, grad_alpha.sum()", "grad_x, None"),
)
wrong(
    "learned_power",
    "log of the wrong variable",
    "Differentiate 2 to the alpha with respect to alpha.",
    ("torch.log(x)", "torch.log(alpha)"),
)
wrong(
    "learned_power",
    "mean instead of sum",
    "Each result depends on the one alpha: how do their gradients come together?",
    ("grad_alpha.sum()", "grad_alpha.mean()"),
)

# Lesson 5

wrong(
    "dawson",
    "plus instead of minus",
    "The curve falls for a large x. Can this derivative be negative there?",
    ("1 - 2 * x * dawsn(x)", "1 + 2 * x * dawsn(x)"),
)
wrong(
    "dawson",
    "x forgotten",
    "Copy the formula once more, slowly.",
    ("2 * x * dawsn(x)", "2 * dawsn(x)"),
)
wrong(
    "dawson",
    "1 forgotten",
    "What is the slope at 0?",
    ("1 - 2 * x * dawsn(x)", "-2 * x * dawsn(x)"),
)
wrong(
    "dawson",
    "grad_out forgotten",
    "backward returns a product. Of what?",
    ("grad_out * in_numpy", "in_numpy"),
)
wrong(
    "dawson",
    "an array returned",
    "What type does autograd expect from backward?",
    ("grad_out * in_numpy(dawson_first, x)", "grad_out.numpy() * dawson_first(x.detach().numpy())"),
)
wrong(
    "dawson",
    "an array as the result",
    "What type does forward return?",
    ("return in_numpy(dawsn, x)", "return dawsn(x.numpy())"),
)
wrong(
    "dawson_twice",
    "None for grad_out",
    "In a network grad_out depends on x: lesson 5, break it 2.",
    ("grad_grad_x * in_numpy(dawson_first, x),\n            grad", "None,\n            grad"),
)
wrong(
    "dawson_twice",
    "None for x",
    "What is the second derivative alone?",
    ("grad_grad_x * grad_out * in_numpy(dawson_second, x)", "None"),
)
wrong(
    "dawson_twice",
    "products swapped",
    "In which order does DawsonBackward get its arguments?",
    (
        """            grad_grad_x * in_numpy(dawson_first, x),
            grad_grad_x * grad_out * in_numpy(dawson_second, x),
""",
        """            grad_grad_x * grad_out * in_numpy(dawson_second, x),
            grad_grad_x * in_numpy(dawson_first, x),
""",
    ),
)
wrong(
    "dawson_twice",
    "grad_out forgotten",
    "Which of the two products still contains g?",
    ("grad_grad_x * grad_out * in_numpy", "grad_grad_x * in_numpy"),
)
wrong(
    "dawson_twice",
    "grad_grad_x forgotten for grad_out",
    "Both products begin with h.",
    ("grad_grad_x * in_numpy(dawson_first, x),", "in_numpy(dawson_first, x),"),
)
wrong(
    "dawson_twice",
    "product rule stopped halfway",
    "2 x D is a product of two functions of x.",
    ("-2 * dawsn(x) - 2 * x * dawson_first(x)", "-2 * x * dawson_first(x)"),
)
wrong(
    "dawson_twice",
    "sign of the second derivative",
    "D begins with slope 1 at 0 and bends down: which sign has D'' at 0.5?",
    ("-2 * dawsn(x) - 2", "2 * dawsn(x) + 2"),
)
wrong(
    "dawson_twice",
    "the first derivative again",
    "For x you need one derivative more.",
    ("in_numpy(dawson_second, x)", "in_numpy(dawson_first, x)"),
)
wrong(
    "dawson_twice",
    "no second Function",
    "What does detach hide here?",
    ("DawsonBackward.apply(grad_out, x)", "grad_out * in_numpy(dawson_first, x)"),
)
