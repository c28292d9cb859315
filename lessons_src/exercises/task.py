"""What an exercise asks, and the wrong answers that it knows.

The file of an exercise holds a `Task`; below "# The solution" its solution, which a students'
edition leaves out; below "# Wrong answers" those that `check` must name, which only tests and
teachers need.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch.autograd import Function

from .point import Point

X = torch.tensor([0.5, 1.0, -1.3], dtype=torch.float64)
TURNED = torch.tensor([[0.5, 1.0], [-1.3, 0.7]], dtype=torch.float64).t()

BY_OUTPUT = "Your formula is right for the output, but you put the input into it."


@dataclass(frozen=True, eq=False)
class Setting:
    """Arguments to try an answer with, and what is unusual about them.

    Attributes:
        args: one value for each argument; floating tensors are differentiated, but those whose
            position is in `constant`.
        said: how the setting is told, such as "x is transposed"; "" for the plain one.
        constant: positions of tensors that do not require grad.
    """

    args: tuple
    said: str = ""
    constant: tuple[int, ...] = ()

    def fresh(self):
        """Copies of the arguments; the tensors that are differentiated require grad."""
        return [
            a.clone().requires_grad_(i not in self.constant) if torch.is_tensor(a) else a
            for i, a in enumerate(self.args)
        ]

    def variables(self, args):
        """Those of `args` that are differentiated."""
        return [a for i, a in enumerate(args) if torch.is_tensor(a) and i not in self.constant]

    @property
    def note(self):
        """To stand behind a place in a message."""
        return f" ({self.said})" if self.said else ""

    def grad_out(self, like, plain=False):
        """Ones, or numbers of both signs and of many sizes, a zero among them."""
        if plain:
            return torch.ones_like(like)
        return _filled(like, (2.0, -3.5, 4.0, 0.0, 50.0, -0.25, 7.0))

    def grad_grad(self, like, which=0):
        """The vector h that multiplies the gradient number `which` before it is differentiated."""
        numbers = (3.0, -4.0, 5.5, 1.0, -0.5)
        return _filled(like, numbers[which:] + numbers[:which])


def _filled(like, numbers):
    """A tensor of the shape and dtype of `like`, with these numbers in turn."""
    every = [numbers[i % len(numbers)] for i in range(like.numel())]
    filled = torch.tensor(every, dtype=like.dtype).reshape(like.shape)
    # A matrix that lies in memory otherwise than `like`: a gradient may have any layout.
    return filled.t().contiguous().t() if filled.dim() == 2 and like.is_contiguous() else filled


SHAPES = {
    "of shape (2, n)": lambda x: x.reshape(2, -1),
    "transposed": lambda x: x.reshape(2, -1).t(),
    "of shape (n, 2, 1), not contiguous": lambda x: x.reshape(1, 2, -1).transpose(0, 2),
    "of one element": lambda x: x[:1],
    "a number, of shape ()": lambda x: x[0],
}
EVERY_SHAPE = tuple(SHAPES)
MATRICES = EVERY_SHAPE[:3]  # for a function of all elements together
NO_NUMBER = tuple(said for said in SHAPES if "()" not in said)  # SciPy makes no array of a number


@dataclass(frozen=True)
class Task:
    """One exercise.

    Attributes:
        name: what the reader types, and the name of the file.
        lesson: number of the lesson that it belongs to.
        asks: what forward returns, to fit behind "should be".
        truth: the same function of the arguments in plain torch, differentiable by autograd.
        hints: list of str, the gentlest first.
        points: tuples of arguments with numbers that a reader can follow; the tensors are float64.
        inputs: names of the arguments.
        wide: more tuples of arguments. A tensor in one dimension has an even number of elements:
            it is also tried in other shapes. The fourth one is met by a grad_out of 0.
        shapes: keys of `SHAPES`, in which a tensor of `wide` in one dimension is tried too.
        edges: tuples of arguments where the value is compared, and the derivatives are finite.
        weights: grad_out for a function whose sum is constant, else None for ones.
        order: how many derivatives the exercise asks for.
        third: True if the solution can be differentiated three times.
        slips: advice by what a backward with this mistake returns, a function of grad_out and
            the arguments.
        terms: the gradient by the first input as a sum, functions of grad_out and the arguments
            by what they are called.
        second_slips: the same for the derivative of backward by x, of h, grad_out, x.
        given: the Function with a bug that the reader starts from, else None.
        point: what the exercise is for, or None where each right answer will do.
    """

    name: str
    lesson: int
    asks: str
    truth: Callable[..., torch.Tensor]
    hints: list[str]
    points: tuple[tuple, ...] = ((X,),)
    inputs: tuple[str, ...] = ("x",)
    wide: tuple[tuple, ...] = ()
    shapes: tuple[str, ...] = EVERY_SHAPE
    edges: tuple[tuple, ...] = ()
    weights: torch.Tensor | None = None
    order: int = 2
    third: bool = True
    slips: dict[str, Callable[..., torch.Tensor]] = field(default_factory=dict)
    terms: dict[str, Callable[..., torch.Tensor]] = field(default_factory=dict)
    second_slips: dict[str, Callable[..., torch.Tensor]] = field(default_factory=dict)
    given: type[Function] | None = None
    point: Point | None = None

    @property
    def plain(self) -> list[Setting]:
        """The settings whose numbers are told first."""
        return [Setting(args, self._transposed(args)) for args in self.points]

    @property
    def settings(self) -> list[Setting]:
        """Every setting in float64, the plain ones first."""
        found = self.plain
        for args in self.wide:
            found.append(Setting(args))
            for said in self.shapes:
                found.append(Setting(_each(args, SHAPES[said]), f"{self._tensors(args)} {said}"))
        where = self._places
        if len(where) > 1:
            for i in where:
                rest = tuple(k for k in where if k != i)
                only = f"{self.inputs[i]} alone requires grad"
                found.append(Setting(self.points[0], only, constant=rest))
        return found

    @property
    def _places(self):
        return [i for i, a in enumerate(self.points[0]) if torch.is_tensor(a)]

    @property
    def constant(self) -> Setting:
        """The first plain one, where nothing requires grad."""
        return Setting(self.points[0], "nothing requires grad", tuple(self._places))

    @property
    def single(self) -> list[Setting]:
        """The plain settings in float32."""
        return [
            Setting(
                tuple(a.float() if torch.is_tensor(a) else a for a in args),
                f"{self._tensors(args)} in float32",
            )
            for args in self.points
        ]

    def named(self, args):
        return dict(zip(self.inputs, args, strict=True))

    def differentiated(self, setting):
        """Names of the arguments that are differentiated in this setting."""
        return [
            name
            for i, name in enumerate(self.inputs)
            if torch.is_tensor(setting.args[i]) and i not in setting.constant
        ]

    def _tensors(self, args):
        return " and ".join(
            n for n, a in self.named(args).items() if torch.is_tensor(a) and a.dim()
        )

    def _transposed(self, args):
        turned = [
            n for n, a in self.named(args).items() if torch.is_tensor(a) and not a.is_contiguous()
        ]
        return f"{' and '.join(turned)} transposed" if turned else ""


def _each(args, shape):
    return tuple(shape(a) if torch.is_tensor(a) and a.dim() == 1 else a for a in args)


def numbers(*values):
    """A float64 tensor of shape (n,)."""
    return torch.tensor(values, dtype=torch.float64)


@dataclass(frozen=True)
class WrongAnswer:
    """One wrong answer.

    Attributes:
        name: the mistake in a few words.
        say: one sentence for the teacher.
        code: the Function, or the function around it, that makes the mistake.
        answer: what `check` is called with.
    """

    name: str
    say: str
    code: Callable
    answer: Callable


class WrongAnswers(list):
    """Those of one exercise. Called, it makes the decorator that adds one."""

    def __call__(self, name, say, answer=None):
        """Decorator for a Function or a function; `answer` makes of it what `check` is given.

        Of a Function without `answer`, the first output is the result.
        """

        def add(code):
            whole = answer or (first_output if isinstance(code, type) else lambda f: f)
            self.append(WrongAnswer(name, say, code, whole(code)))
            return code

        return add


def first_output(function):
    """The Function as a function whose result is the first output alone."""

    def alone(*args):
        out = function.apply(*args)
        return out[0] if isinstance(out, tuple) else out

    return alone
