"""check, hint and solution: the exercises of the course ("Your turn").

Each exercise is a file of `tasks`, with a `TASK` in it. What checks them is beside that folder, and
knows none of them by name.
"""

import pkgutil
import re
from collections import Counter
from contextlib import redirect_stdout
from difflib import get_close_matches
from importlib import import_module
from io import StringIO

from torch.autograd import Function

from . import tasks
from .changes import solution_code
from .language import Phrase, in_language
from .picture import show_both
from .point import besides
from .reply import filled, survived
from .review import function_of, review

__all__ = ["check", "hint", "solution"]

_MOST_LINES = 10  # of what an answer prints
_SIGNS = {"right": "✓ ", "wrong": "✗ "}
hints_given: Counter[str] = Counter()
tries: Counter[str] = Counter()  # of which the cause is known
_ENOUGH = 3  # of them, after which the graph is shown
_NOTHING = object()
FIRST_TRY = Phrase(
    "What does backward use that has no way back to an input? Look once more. Or run the cell "
    "again: from the second time on, check names the cause."
)


def check(name=None, answer=_NOTHING):
    """Compare an answer with the exercise and print what is right, or what to change.

    Args:
        name: name of the exercise, such as "reciprocal".
        answer: callable with the arguments of the exercise, which returns the result alone: a
            Function's apply, or a function around it.

    Nothing is raised: an error of the answer's own is told in a sentence.
    """
    if not isinstance(name, str) and isinstance(answer, str):
        _print(Phrase('The name comes first: check("{}", {})', answer, _written(name)))
        return
    handed = name if answer is _NOTHING and callable(name) else answer
    exercise = _exercise(name, f'check("{{}}", {_written(handed)})')
    if not exercise:
        return
    name = exercise.TASK.name
    if answer is _NOTHING:
        said = '{name}: hand over your Function, too: check("{name}", Name.apply)'
        _print(Phrase(said, name=name))
        return
    with redirect_stdout(StringIO()) as printed:  # the answer is called a hundred times
        reply = review(exercise.TASK, answer)
        if reply.status == "right":
            reply.advice = besides(exercise.TASK, answer) or _next(exercise)
    tries[name] += reply.names_cause
    if exercise.TASK.given and reply.names_cause and tries[name] == 1:
        reply.advice = FIRST_TRY
    _print_once(printed.getvalue())
    print(reply.told(f"{_SIGNS.get(reply.status, '')}{name}: "))
    if reply.names_cause and tries[name] == _ENOUGH and hasattr(exercise, "SOLUTION"):
        both = (function_of(f) for f in (answer, exercise.SOLUTION[-1]))
        survived(show_both, exercise.TASK, *both)


def _print_once(text):
    """What the answer itself prints: each line once, the first ones."""
    lines = list(dict.fromkeys(text.splitlines()))
    if len(lines) > _MOST_LINES:
        left_out = len(lines) - _MOST_LINES
        said = Phrase("(Your code prints {} other lines; they are left out.)", left_out)
        lines[_MOST_LINES:] = [in_language(said)]
    if lines:
        print("\n".join(lines))


def _next(exercise):
    if not hasattr(exercise, "SOLUTION"):
        return ""
    return Phrase('solution("{}") shows how we wrote it. On to the next cell.', exercise.TASK.name)


def _written(answer):
    """How the answer is written in a call of check, as far as that can be known."""
    owner = getattr(answer, "__self__", answer)
    if isinstance(owner, Function):
        owner = type(owner)
    if isinstance(owner, type):
        return f"{owner.__name__}.apply"
    name = getattr(answer, "__name__", "")
    return name if name.isidentifier() else "Name.apply"


def hint(name=None):
    """Print one more hint for an exercise; each call gives the next, after the last the first."""
    exercise = _exercise(name, 'hint("{}")')
    if not exercise:
        return
    task = exercise.TASK
    given, every = hints_given[task.name] % len(task.hints), len(task.hints)
    hints_given[task.name] += 1
    _print(Phrase("{}, hint {} of {}: {}", task.name, given + 1, every, task.hints[given]))
    if given + 1 == every and hasattr(exercise, "SOLUTION"):
        _print(Phrase('That was the last one. solution("{}") shows the code.', task.name))


def solution(name=None):
    """Print the code of one right answer to an exercise; others are as good."""
    exercise = _exercise(name, 'solution("{}")')
    if exercise:
        print(in_language(solution_code(exercise)))


def exercises():
    """Every exercise: its module by its name, in the order of the lessons."""
    names = [found.name for found in pkgutil.iter_modules(tasks.__path__)]
    found = [import_module(f"{tasks.__name__}.{name}") for name in names]
    found.sort(key=lambda module: module.TASK.lesson)
    return {module.TASK.name: module for module in found}


def _print(text):
    print(filled(in_language(text)))


def _exercise(name, call):
    """The exercise of that name, or None after saying how to write the call."""
    every = exercises()
    if isinstance(name, (list, tuple)) and len(name) == 1 and name[0] in every:
        said = "The name of an exercise is text, without brackets: {}"
        _print(Phrase(said, call.format(name[0])))
        return None
    if not isinstance(name, str):
        likely = _snake(call.partition(", ")[2].partition(".")[0].rstrip(")"))
        likely = likely if likely in every else "name"
        _print(Phrase("The name of an exercise is text: {}. {}", call.format(likely), _all(every)))
        return None
    wanted = name.strip().lower().replace(" ", "_").replace("-", "_")
    if wanted in every:
        return every[wanted]
    near = get_close_matches(wanted, every, n=1)
    meant = Phrase(" Did you mean {}?", call.format(near[0])) if near else ""
    _print(Phrase("There is no exercise {!r}.{} {}", name, meant, _all(every)))
    return None


def _snake(name):
    """TanhExp as tanh_exp."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def _all(every):
    return Phrase("There are: {}.", ", ".join(every))
