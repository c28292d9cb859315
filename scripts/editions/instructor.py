"""The instructors' edition: the lesson with what a teacher needs below headings and exercises."""

import copy
import re

from nbformat.v4 import new_code_cell, new_markdown_cell

from lessons_src.exercises import exercises
from lessons_src.exercises.changes import solution_code, wrong_answers

from .carry import carry
from .teaching import sections

HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
EXERCISE = re.compile(r'^check\("(\w+)"', re.MULTILINE)


def instructor(notebook):
    notebook = copy.deepcopy(notebook)
    number = int(re.match(r"# (\d)", notebook.cells[0].source)[1])
    notes, cells = sections(number), []
    for cell in notebook.cells:
        cell.metadata.pop("expected", None)  # for a test of the course
        if cell.cell_type == "markdown":
            cell.source = HEADING.sub(lambda found: found[0] + note(notes, found[1]), cell.source)
        cells.append(cell)
        if cell.cell_type == "code" and (found := EXERCISE.search(cell.source)):
            cells += below_exercise(found[1])
    notebook.cells = cells
    carry(notebook)
    return notebook


def note(notes, heading):
    if heading not in notes:
        return ""
    minutes, stuck = notes[heading]
    return f"\n\n> **For you: {minutes} min.** {stuck}".rstrip()


def below_exercise(name):
    """The solution, not executed, and the wrong answers that people give."""
    exercise = exercises()[name]
    wrong = "\n\n".join(map(told, wrong_answers(exercise)))
    return [
        new_markdown_cell(f"> **For you:** the solution of `{name}`.", id=f"solution-{name}"),
        new_code_cell(solution_code(exercise), id=f"code-{name}"),
        new_markdown_cell(f"> **For you:** expect these.\n\n{wrong}", id=f"wrong-{name}"),
    ]


def told(answer):
    """A wrong answer: its name, what to say, and folded the code."""
    fold = f"<details><summary>Code</summary>\n\n```python\n{answer.code}```\n\n</details>"
    return f"**{answer.name}**: {answer.say}\n\n{fold}"
