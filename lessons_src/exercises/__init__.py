"""check, hint and solution: the exercises of the course ("Your turn").

Each exercise is a file of this package with a `TASK` in it. The rest of the package knows none of
them by name.
"""

import ast
import inspect
import pkgutil
import textwrap
from collections import Counter
from importlib import import_module
from pathlib import Path

from .review import review

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
    exercise = _exercise(name)
    if exercise:
        print(review(exercise.TASK, answer).told(f"{exercise.TASK.name}: "))


def hint(name):
    """Print one more hint for an exercise; each call gives the next."""
    exercise = _exercise(name)
    if not exercise:
        return
    task = exercise.TASK
    given, every = _hints_given[task.name], len(task.hints)
    if given == every:
        print(f'{task.name}: that was the last hint. solution("{task.name}") shows the code.')
        return
    _hints_given[task.name] += 1
    _print(f"{task.name}, hint {given + 1} of {every}: {task.hints[given]}")


def solution(name):
    """Print the code of one right answer to an exercise; others are as good."""
    exercise = _exercise(name)
    if exercise:
        print(solution_code(exercise))


def solution_code(exercise):
    """The solution of an exercise (its module), with the imports that it needs."""
    if not hasattr(exercise, "SOLUTION"):
        return "This edition of the course comes without solutions."
    parts = [inspect.getsource(part).rstrip() for part in exercise.SOLUTION]
    used = {n.id for part in parts for n in ast.walk(ast.parse(part)) if isinstance(n, ast.Name)}
    source = inspect.getsource(exercise)
    imports = [
        ast.get_source_segment(source, node)
        for node in ast.parse(source).body
        if isinstance(node, (ast.Import, ast.ImportFrom))
        and used & {alias.asname or alias.name for alias in node.names}
    ]
    return "\n\n\n".join(["\n".join(imports), *parts])


def exercises():
    """Every exercise: its module by its name, in the order of the lessons."""
    names = [found.name for found in pkgutil.iter_modules([str(Path(__file__).parent)])]
    modules = [import_module(f"{__name__}.{name}") for name in names]
    found = [module for module in modules if hasattr(module, "TASK")]
    found.sort(key=lambda module: module.TASK.lesson)
    return {module.TASK.name: module for module in found}


def _print(text):
    print(textwrap.fill(text, 100, break_on_hyphens=False))


def _exercise(name):
    """The exercise of that name, or None after saying which ones there are."""
    every = exercises()
    wanted = name.strip().lower().replace(" ", "_") if isinstance(name, str) else None
    if wanted not in every:
        _print(f"There is no exercise {name!r}. There are: {', '.join(every)}.")
    return every.get(wanted)
