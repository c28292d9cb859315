"""What each exercise asks: the true function in plain torch, test points, hints, likely slips.

Nothing here knows the solutions: the truth is another formula than theirs, differentiated by
autograd.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F

from . import faulty

X = torch.tensor([0.5, 1.0, -1.3], dtype=torch.float64)
TURNED = torch.tensor([[0.5, 1.0], [-1.3, 0.7]], dtype=torch.float64).t()


@dataclass(frozen=True)
class Task:
    """One exercise.

    Attributes:
        name: what the reader types.
        asks: what forward returns, to fit behind "forward should return".
        truth: the same function of the arguments in plain torch, differentiable by autograd.
        hints: list of str, the gentlest first.
        points: list of tuples of arguments; float64 tensors are differentiated.
        inputs: names of the arguments.
        values: more tuples of arguments, where the value alone is compared.
        weights: grad_out for functions whose sum is constant, else None for ones.
        order: how many derivatives the exercise asks for.
        slips: advice by what a backward with this mistake returns, a function of grad_out and
            the arguments.
        second_slips: the same for the derivative of backward by x, of grad_grad_x, grad_out, x.
        given: the Function with a bug that the reader starts from, else None.
    """

    name: str
    asks: str
    truth: Callable
    hints: list
    points: tuple = ((X,),)
    inputs: tuple = ("x",)
    values: tuple = ()
    weights: torch.Tensor | None = None
    order: int = 2
    slips: dict = field(default_factory=dict)
    second_slips: dict = field(default_factory=dict)
    given: type | None = None

    def fresh(self, args):
        """Copies of the arguments to call an answer with; the tensors require grad."""
        return [a.clone().requires_grad_() if torch.is_tensor(a) else a for a in args]

    def tensors(self, args):
        return [a for a in args if torch.is_tensor(a)]

    def named(self, args):
        return dict(zip(self.inputs, args, strict=True))

    def differentiated(self, args):
        """Names of the arguments that are tensors."""
        return [name for name, a in self.named(args).items() if torch.is_tensor(a)]

    def note(self, args):
        """What is unusual about these arguments, to stand in a message."""
        turned = [
            n for n, a in self.named(args).items() if torch.is_tensor(a) and not a.is_contiguous()
        ]
        return f" ({', '.join(turned)} is not contiguous here)" if turned else ""

    def grad_out(self, like, varied):
        """Ones or the task's weights; varied, no two elements of them have the same factor."""
        base = torch.ones_like(like) if self.weights is None else self.weights
        steps = torch.arange(2, 2 + like.numel(), dtype=like.dtype).reshape(like.shape)
        return (base * steps if varied else base).detach().clone()


def dawson(x):
    """Dawson function, exp(-x²) times the integral of exp(t²) from 0 to x, by a power series.

    The terms of the integral all have one sign, so nothing cancels; enough of them for |x| <= 2.5.
    """
    power = total = x
    for k in range(1, 45):
        power = power * x**2 / k
        total = total + power / (2 * k + 1)
    return torch.exp(-(x**2)) * total


def _dawson_first(x):
    return 1 - 2 * x * dawson(x)


def _length(x):
    return torch.linalg.vector_norm(x)


BY_OUTPUT = "Your formula is right for the output, but you put the input into it."

ALL = [
    Task(
        "reciprocal",
        "1 / x",
        lambda x: x**-1,
        [
            "Which tensor does the formula for the derivative need? Save that one, unchanged.",
            "Write 1/x as a power, x to the -1. The power rule gives the derivative.",
            "The derivative is -1/x². backward returns grad_out times that.",
        ],
    ),
    Task(
        "product",
        "a * b",
        lambda a, b: ((a + b) ** 2 - (a - b) ** 2) / 4,
        [
            "forward has two arguments after ctx: backward returns two gradients, in that order.",
            "The derivative of a * b with respect to a is b. So backward needs both inputs.",
            "save_for_backward takes several tensors; ctx.saved_tensors gives back as many.",
        ],
        points=((X, torch.tensor([3.0, -1.5, 0.7], dtype=torch.float64)),),
        inputs=("a", "b"),
    ),
    Task(
        "power",
        "x**n",
        lambda x, n: torch.stack([x] * n).prod(0),
        [
            "n is an integer, not a tensor: save_for_backward refuses it. Plain ctx.n = n is fine.",
            "The derivative is n times x to the n - 1.",
            "backward returns one gradient for each argument after ctx: for n, that is None.",
        ],
        points=((X, 3), (X, 2), (X, 5)),
        inputs=("x", "n"),
        slips={
            "That is right for n = 3 only. Use the n that forward was given.": (
                lambda g, x, n: g * 3 * x**2
            )
        },
    ),
    Task(
        "sigmoid",
        "1 / (1 + exp(-x))",
        torch.sigmoid,
        [
            "Write the derivative on paper, then look for the result of forward in it.",
            "The derivative is out * (1 - out). Which tensor do you save, then?",
            "Compute out, save that very tensor, return that very tensor.",
        ],
        slips={
            BY_OUTPUT + " Save out, and take it for out * (1 - out).": (
                lambda g, x: g * x * (1 - x)
            ),
            "That is grad_out * out. The factor 1 - out is missing.": (
                lambda g, x: g * torch.sigmoid(x)
            ),
            "That is grad_out * out * (1 + out). Look at the sign inside the brackets.": (
                lambda g, x: g * torch.sigmoid(x) * (1 + torch.sigmoid(x))
            ),
        },
    ),
    Task(
        "tanh",
        "tanh(x)",
        lambda x: 1 - 2 / (torch.exp(2 * x) + 1),
        [
            "torch.tanh may do the work in forward. backward is yours.",
            "The derivative is 1 - tanh²x: a formula in the output.",
            "Save out and return out. backward returns grad_out times (1 - out²).",
        ],
        slips={
            BY_OUTPUT + " Save out, and take it for 1 - out**2.": lambda g, x: g * (1 - x**2),
            "That is grad_out * (1 - out). The output belongs squared.": (
                lambda g, x: g * (1 - torch.tanh(x))
            ),
            "That is grad_out * (1 + out**2). Look at the sign.": (
                lambda g, x: g * (1 + torch.tanh(x) ** 2)
            ),
            "That is grad_out * out**2. It should be 1 minus that square.": (
                lambda g, x: g * torch.tanh(x) ** 2
            ),
        },
    ),
    Task(
        "softplus",
        "log(1 + exp(x))",
        F.softplus,
        [
            "The derivative is e^x / (1 + e^x). Can you write it with out = log(1 + e^x)?",
            "e^out is 1 + e^x. So e^x / (1 + e^x) is 1 minus something in out.",
            "The derivative is 1 - e^(-out). A formula in x, with x saved, is right as well.",
        ],
        slips={
            "That is grad_out * exp(x). Divide by 1 + exp(x), the inner function of log.": (
                lambda g, x: g * torch.exp(x)
            ),
            "That is grad_out / (1 + exp(x)). By the chain rule, exp(x) belongs on top.": (
                lambda g, x: g / (1 + torch.exp(x))
            ),
            "That is grad_out * exp(-out). It should be 1 minus that.": (
                lambda g, x: g * torch.exp(-F.softplus(x))
            ),
            BY_OUTPUT + " Save out, and take it for 1 - exp(-out).": (
                lambda g, x: g * (1 - torch.exp(-x))
            ),
        },
    ),
    Task(
        "tanh_exp",
        "(exp(x) - exp(-x)) / (exp(x) + exp(-x))",
        torch.tanh,
        [
            "This is Sinh of lesson 3 with another formula: the two exponentials are kept.",
            "The derivative is 4 / (e^x + e^-x)².",
            "Save both exponentials and return both besides the result. The function below the "
            "class returns the first output only.",
            "backward gets three gradients. Each extra one is multiplied by the derivative of its "
            "own output: e^x for e^x, -e^-x for e^-x. Add both to grad_x.",
        ],
        slips={
            "That is grad_out / cosh(x). The sum of the exponentials belongs squared.": (
                lambda g, x: g / torch.cosh(x)
            ),
            "That is grad_out * (1 + tanh(x)²). In the quotient rule the second product is "
            "subtracted.": lambda g, x: g * (1 + torch.tanh(x) ** 2),
        },
    ),
    Task(
        "logcosh",
        "log((exp(x) + exp(-x)) / 2)",
        lambda x: torch.log(torch.cosh(x)),
        [
            "Keep the two exponentials: backward needs them again.",
            "The derivative is (e^x - e^-x) / (e^x + e^-x).",
            "Save both exponentials and return both. In backward add the two extra gradients, each "
            "times the derivative of its own output.",
        ],
        slips={
            "That is grad_out * sinh(x). By the chain rule of log, divide by cosh(x).": (
                lambda g, x: g * torch.sinh(x)
            ),
            "That is grad_out / tanh(x), upside down: the difference belongs on top.": (
                lambda g, x: g / torch.tanh(x)
            ),
        },
    ),
    Task(
        "normalise",
        "x / sqrt(sum of x²)",
        lambda x: x / _length(x),
        [
            "The root of the sum is the intermediate worth keeping. Call it norm.",
            "Every x is in norm, so the derivative has two terms: "
            "(grad_out - out * sum(grad_out * out)) / norm.",
            "The derivative of norm with respect to x is x / norm, which is out. So add "
            "grad_norm * out to grad_x.",
        ],
        slips={
            "That is grad_out / norm. The norm depends on x too, so a second term is missing.": (
                lambda g, x: g / _length(x)
            ),
            "In your second term, every x knows of itself only: take the sum of grad_out * out "
            "over all elements.": lambda g, x: g * (1 - (x / _length(x)) ** 2) / _length(x),
            "Your two terms are added. The second belongs subtracted.": (
                lambda g, x: (g + x * (g * x).sum() / _length(x) ** 2) / _length(x)
            ),
        },
    ),
    Task(
        "standardise",
        "(x - mean) / sqrt(var + 1e-5)",
        lambda x: F.layer_norm(x, x.shape, eps=1e-5),
        [
            "backward uses two tensors that forward made. Which of them comes back with a graph?",
            "out is an output, so it is fine. ctx.sqrt_var is an intermediate: a constant.",
            "Save x as well and compute sqrt_var again in backward; or return it as an extra "
            "output, with its own gradient.",
        ],
        weights=torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64),
        given=faulty.Standardise,
    ),
    Task(
        "artanh",
        "artanh(x), with x clamped to stay finite at 1",
        lambda x: torch.atanh(x.clamp(-1 + 1e-6, 1 - 1e-6)),
        [
            "Is the tensor that is saved the input?",
            "x = x.clamp(...) makes a new tensor under the old name, in forward.",
            "Save first, clamp afterwards. The clamp has to stay: look at the value at x = 1.",
        ],
        points=((torch.tensor([0.5, 0.3, -0.8], dtype=torch.float64),),),
        values=((torch.tensor([1.0, -1.0], dtype=torch.float64),),),
        slips={
            "That is grad_out / (1 - x). In the derivative, x is squared.": (
                lambda g, x: g / (1 - x)
            )
        },
        given=faulty.Artanh,
    ),
    Task(
        "swish",
        "x * sigmoid(x), in the shape of x",
        F.silu,
        [
            "With the x of the lessons, everything is right, in every formula. Try a transposed "
            "matrix.",
            "x.contiguous() is x itself where x is contiguous already. Otherwise it is a copy.",
            "Save the input first. Or leave out the line: nothing here needs it.",
        ],
        points=((X,), (TURNED,)),
        given=faulty.Swish,
    ),
    Task(
        "learned_power",
        "x**alpha",
        lambda x, alpha: torch.exp(alpha * torch.log(x)),
        [
            "Differentiate twice by x, then twice by alpha: which of the two is wrong?",
            "alpha.expand_as(x) is a new tensor, made in forward. And it is kept on ctx.",
            "alpha is an input: save it beside x, as it came.",
        ],
        points=(
            (
                torch.tensor([0.5, 1.0, 1.7], dtype=torch.float64),
                torch.tensor(2.5, dtype=torch.float64),
            ),
        ),
        inputs=("x", "alpha"),
        slips={
            "For alpha you multiply by log(alpha). It should be log(x).": (
                lambda g, x, alpha: (g * x**alpha * torch.log(alpha)).sum()
            )
        },
        given=faulty.LearnedPower,
    ),
    Task(
        "dawson",
        "scipy.special.dawsn of x, as a tensor",
        dawson,
        [
            "in_numpy(dawsn, x) calls dawsn on the array behind x and makes the result a tensor.",
            "Write a function of one array for D', with dawsn in it, and call it through in_numpy.",
            "D'(x) = 1 - 2 x D(x). backward returns grad_out times that.",
        ],
        order=1,
        slips={
            "That is grad_out * (1 + 2 x D). Look at the sign.": (
                lambda g, x: g * (1 + 2 * x * dawson(x))
            ),
            "That is grad_out * (1 - 2 D). A factor x is missing in the second term.": (
                lambda g, x: g * (1 - 2 * dawson(x))
            ),
            "That is grad_out * (-2 x D). The 1 is missing.": lambda g, x: g * (-2 * x * dawson(x)),
        },
    ),
    Task(
        "dawson_twice",
        "scipy.special.dawsn of x, as a tensor",
        dawson,
        [
            "DawsonBackward computes grad_x = g D'(x), a function of two variables, g and x.",
            "Its backward gets h and returns two products: h D'(x) for g, and h g D''(x) for x.",
            "D'' is the derivative of 1 - 2 x D: by the product rule -2 D - 2 x D'.",
        ],
        second_slips={
            "That is h g (-2 D): the product rule has a second term, -2 x D'.": (
                lambda h, g, x: h * g * (-2 * dawson(x))
            ),
            "That is h g (-2 x D'): the product rule has a second term, -2 D.": (
                lambda h, g, x: h * g * (-2 * x * _dawson_first(x))
            ),
            "That is h g D', with the first derivative: for x, the second one is needed.": (
                lambda h, g, x: h * g * _dawson_first(x)
            ),
        },
    ),
]

TASKS = {task.name: task for task in ALL}
