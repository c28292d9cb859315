"""What an exercise asks, and the wrong answers that it knows.

The file of an exercise holds a `Task`; below "# The solution" its solution, which a students'
edition leaves out; below "# Wrong answers" those that `check` must name, which only tests and
teachers need.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch.autograd import Function

X = torch.tensor([0.5, 1.0, -1.3], dtype=torch.float64)
TURNED = torch.tensor([[0.5, 1.0], [-1.3, 0.7]], dtype=torch.float64).t()

BY_OUTPUT = "Your formula is right for the output, but you put the input into it."


@dataclass(frozen=True)
class Task:
    """One exercise.

    Attributes:
        name: what the reader types, and the name of the file.
        lesson: number of the lesson that it belongs to.
        asks: what forward returns, to fit behind "forward should return".
        truth: the same function of the arguments in plain torch, differentiable by autograd.
        hints: list of str, the gentlest first.
        points: tuples of arguments; float64 tensors are differentiated.
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
    lesson: int
    asks: str
    truth: Callable[..., torch.Tensor]
    hints: list[str]
    points: tuple[tuple, ...] = ((X,),)
    inputs: tuple[str, ...] = ("x",)
    values: tuple[tuple, ...] = ()
    weights: torch.Tensor | None = None
    order: int = 2
    slips: dict[str, Callable[..., torch.Tensor]] = field(default_factory=dict)
    second_slips: dict[str, Callable[..., torch.Tensor]] = field(default_factory=dict)
    given: type[Function] | None = None

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
