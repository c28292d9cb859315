"""What an exercise asks: a `Task`, and the `Setting`s in which an answer is tried."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.autograd import Function

from .language import Phrase, joined


def numbers(*values: float) -> Tensor:
    """A float64 tensor of shape (n,)."""
    return torch.tensor(values, dtype=torch.float64)


X = numbers(0.5, 1.0, -1.3)
TURNED = torch.tensor([[0.5, 1.0], [-1.3, 0.7]], dtype=torch.float64).t()

BY_OUTPUT = "Your formula is right for the output, but you put the input into it."

# By what is said behind the names of the arguments.
SHAPES: dict[str, Callable[[Tensor], Tensor]] = {
    Phrase("of shape (2, n)"): lambda x: x.reshape(2, -1),
    Phrase("transposed"): lambda x: x.reshape(2, -1).t(),
    Phrase("of shape (n, 2, 1), not contiguous"): lambda x: x.reshape(1, 2, -1).transpose(0, 2),
    Phrase("of one element"): lambda x: x[:1],
    Phrase("a number, of shape ()"): lambda x: x[0],
}
EVERY_SHAPE = tuple(SHAPES)
MATRICES = EVERY_SHAPE[:3]  # for a function of all elements together
NO_NUMBER = tuple(said for said in SHAPES if "()" not in said)  # SciPy makes no array of a number


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

    def fresh(self, double: bool = False) -> tuple[list, list[Tensor]]:
        """Copies of the arguments, and those among them that are differentiated."""
        args = [a.clone() if isinstance(a, Tensor) else a for a in self.args]
        args = [a.double() if double and isinstance(a, Tensor) else a for a in args]
        return args, [args[i].requires_grad_() for i in self.places]

    @property
    def places(self) -> list[int]:
        """Those of the arguments that are differentiated."""
        tensors = [i for i, a in enumerate(self.args) if isinstance(a, Tensor)]
        return [i for i in tensors if i not in self.constant]

    @property
    def note(self) -> str:
        """To stand behind a place in a message."""
        return Phrase(" ({})", self.said) if self.said else ""

    @property
    def single(self) -> bool:
        return any(isinstance(a, Tensor) and a.dtype == torch.float32 for a in self.args)


def uneven(like: Tensor) -> Tensor:
    """A grad_out: numbers of both signs and of many sizes, a zero among them."""
    return _filled(like, (2.0, -3.5, 4.0, 0.0, 50.0, -0.25, 7.0))


def readable(like: Tensor) -> Tensor:
    """The vector h that multiplies a gradient before it is differentiated."""
    return _filled(like, (3.0, -4.0, 5.5, 1.0, -0.5))


def _filled(like, numbers):
    """A tensor of the shape and dtype of `like`, with these numbers in turn."""
    every = [numbers[i % len(numbers)] for i in range(like.numel())]
    filled = torch.tensor(every, dtype=like.dtype).reshape(like.shape)
    # A matrix that lies in memory otherwise than `like`: a gradient may have any layout.
    return filled.t().contiguous().t() if filled.dim() == 2 and like.is_contiguous() else filled


@dataclass(frozen=True)
class Point:
    """What an exercise is for.

    Attributes:
        said: to fit behind "the point of this exercise, which is".
        met: whether an answer, in a setting, does so: one of those in `point`.
    """

    said: str
    met: Callable[[Callable, Setting], bool]


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
        far: one tensor, at which a right answer whose derivative overflows is told so.
        weights: grad_out for a function whose sum is constant, else None for ones.
        order: how many derivatives the exercise asks for.
        third: True if the solution can be differentiated three times.
        slips: advice by what a backward with this mistake returns, a function of grad_out and
            the arguments.
        terms: the gradient by the first input as a sum, functions of grad_out and the arguments
            by what they are called.
        second_slips: the same as `slips` for the derivative of backward by x, of h, grad_out, x.
        given: the Function with a bug that the reader starts from, else None.
        point: what the exercise is for, or None where each right answer will do.
        cures: what to do about a cause that `diagnose` finds, by its code.
        meant: True if the gradient is meant to be another one than forward's; `truth` has it.
    """

    name: str
    lesson: int
    asks: str
    truth: Callable[..., Tensor]
    hints: list[str]
    points: tuple[tuple, ...] = ((X,),)
    inputs: tuple[str, ...] = ("x",)
    wide: tuple[tuple, ...] = ()
    shapes: tuple[str, ...] = EVERY_SHAPE
    edges: tuple[tuple, ...] = ()
    far: tuple = ()
    weights: Tensor | None = None
    order: int = 2
    third: bool = True
    slips: dict[str, Callable[..., Tensor]] = field(default_factory=dict)
    terms: dict[str, Callable[..., Tensor]] = field(default_factory=dict)
    second_slips: dict[str, Callable[..., Tensor]] = field(default_factory=dict)
    given: type[Function] | None = None
    point: Point | None = None
    cures: dict[str, str] = field(default_factory=dict)
    meant: bool = False

    @property
    def plain(self) -> list[Setting]:
        """The settings whose numbers are told first."""
        found = []
        for args in self.points:
            turned = [n for n, a in self._tensors(args) if not a.is_contiguous()]
            found.append(Setting(args, told(turned, EVERY_SHAPE[1]) if turned else ""))
        return found

    @property
    def more(self) -> list[Setting]:
        """Every other setting in float64."""
        found = []
        for args in self.wide:
            names = [n for n, a in self._tensors(args) if a.dim()]
            found.append(Setting(args))
            found += [Setting(_each(args, SHAPES[s]), told(names, s)) for s in self.shapes]
        where = Setting(self.points[0]).places
        for i in where if len(where) > 1 else []:
            rest = tuple(k for k in where if k != i)
            said = Phrase("{} alone requires grad", self.inputs[i])
            found.append(Setting(self.points[0], said, rest))
        return found

    @property
    def single(self) -> list[Setting]:
        """The plain settings in float32."""
        found = []
        for args in self.points:
            names = [n for n, a in self._tensors(args) if a.dim()]
            args = tuple(a.float() if isinstance(a, Tensor) else a for a in args)
            found.append(Setting(args, told(names, Phrase("in float32"))))
        return found

    @property
    def constant(self) -> Setting:
        """The first plain one, where nothing requires grad."""
        args = self.points[0]
        return Setting(args, Phrase("nothing requires grad"), tuple(range(len(args))))

    def named(self, args: tuple) -> dict:
        return dict(zip(self.inputs, args, strict=True))

    def differentiated(self, setting: Setting) -> list[str]:
        """Names of the arguments that are differentiated in this setting."""
        return [self.inputs[i] for i in setting.places]

    def _tensors(self, args):
        return [(name, a) for name, a in self.named(args).items() if isinstance(a, Tensor)]


def told(names: list[str], how: str) -> str:
    """What is unusual about these arguments."""
    return Phrase("{} {}", joined("{} and {}", names), how)


def _each(args, shape):
    return tuple(shape(a) if isinstance(a, Tensor) and a.dim() == 1 else a for a in args)
