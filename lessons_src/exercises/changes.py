"""Answers written as changes of a solution: the wrong ones of an exercise, right ones of a test.

A change is a text of lines, as in a diff: what stands behind "- " goes, what stands behind "+ "
comes in its place, indented as that was, and a line without a sign stays. A blank line stands
between two places that would else be read as one. Where nothing goes or stays, it comes at the end.
Of the code that this makes, the last thing defined is the answer.
"""

import ast
import inspect
import textwrap
from dataclasses import dataclass
from types import ModuleType

from .language import Phrase

IMPORTS = ast.Import, ast.ImportFrom


@dataclass(frozen=True)
class WrongAnswer:
    """The mistake in a few words, a sentence for the teacher, and the code, to run in a cell."""

    name: str
    say: str
    code: str


def wrong_answers(exercise: ModuleType) -> list[WrongAnswer]:
    """Those of its file: in `WRONG`, by name, a sentence for the teacher and a change."""
    code = solution_code(exercise)
    return [
        WrongAnswer(name, say, edited(code, change))
        for name, text in exercise.WRONG.items()
        for say, _, change in [text.strip().partition("\n")]
    ]


def solution_code(exercise: ModuleType) -> str:
    """The solution of an exercise, with the imports that it needs."""
    if not hasattr(exercise, "SOLUTION"):
        return Phrase("This edition of the course comes without solutions.")
    source = inspect.getsource(exercise)
    part = source.partition("\n# The solution\n")[2].partition("\nSOLUTION = ")[0].strip()
    used = {n.id for n in ast.walk(ast.parse(part)) if isinstance(n, ast.Name)}
    imports = [
        ast.get_source_segment(source, node)
        for node in ast.parse(source).body
        if isinstance(node, IMPORTS) and used & {a.asname or a.name for a in node.names}
    ]
    return "\n\n\n".join(["\n".join(filter(None, imports)), part])


def edited(code: str, change: str) -> str:
    """The code after a change. Raises ValueError where a line of it is not in the code."""
    lines, at = code.splitlines(), 0
    for old, new in _hunks(change):
        if not old:
            lines += ["", "", *new]
            continue
        at = _place(lines, old, at)
        indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
        lines[at : at + len(old)] = textwrap.indent("\n".join(new), indent).splitlines()
        at += len(new)
    return "\n".join(lines) + "\n"


def _hunks(change):
    """Pairs of lines that stand there, and those that come in their place."""
    hunks: list[tuple[list[str], list[str]]] = []
    comes = ended = False
    for line in textwrap.dedent(change).strip("\n").splitlines():
        sign = line[:1] if line[:1] in ("-", "+") else ""
        if not hunks or ended or (comes and sign != "+"):
            hunks.append(([], []))
        comes, ended = sign == "+", not line
        for lines in [hunks[-1][comes]] if sign else hunks[-1]:
            lines += [line[2:]] if line else []
    return hunks


def _place(lines, old, start):
    stripped, wanted = [line.strip() for line in lines], [line.strip() for line in old]
    for at in range(start, len(lines) - len(old) + 1):
        if stripped[at : at + len(old)] == wanted:
            return at
    raise ValueError(f"these lines are not in the solution, in this order: {old}")
