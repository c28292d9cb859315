"""check, hint and solution: the exercises of the course ("Your turn").

`check` and `hint` need neither `solutions` nor `wrong_answers`, which a students' edition leaves
out.
"""

import inspect
import textwrap
from collections import Counter
from importlib import import_module

from .review import review
from .tasks import TASKS

__all__ = ["check", "hint", "solution"]

_hints_given = Counter()


def check(name, answer):
    """Compare an answer with the exercise and print what is right, or what to change.

    Args:
        name: name of the exercise, such as "reciprocal".
        answer: callable with the arguments of the exercise, which returns the result alone: a
            Function's apply, or a function around it.

    Nothing is raised: an error of the answer's own is told in a sentence.
    """
    task = _task(name)
    if task:
        print(review(task, answer).told(f"{task.name}: "))


def hint(name):
    """Print one more hint for an exercise; each call gives the next."""
    task = _task(name)
    if not task:
        return
    given, every = _hints_given[task.name], len(task.hints)
    if given == every:
        print(f'{task.name}: that was the last hint. solution("{task.name}") shows the code.')
        return
    _hints_given[task.name] += 1
    _print(f"{task.name}, hint {given + 1} of {every}: {task.hints[given]}")


def solution(name):
    """Print the code of one right answer to an exercise; others are as good."""
    task = _task(name)
    if not task:
        return
    try:
        parts = import_module(f"{__name__}.solutions").SOLUTIONS[task.name]
    except ModuleNotFoundError as error:
        if error.name != f"{__name__}.solutions":
            raise
        print("This edition of the course comes without solutions.")
        return
    print("\n\n".join(inspect.getsource(part).rstrip() for part in parts))


def _print(text):
    print(textwrap.fill(text, 100, break_on_hyphens=False))


def _task(name):
    """The exercise of that name, or None after saying which ones there are."""
    task = TASKS.get(name.strip().lower().replace(" ", "_") if isinstance(name, str) else name)
    if task is None:
        _print(f"There is no exercise {name!r}. There are: {', '.join(TASKS)}.")
    return task
