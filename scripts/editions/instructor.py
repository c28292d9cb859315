"""The instructors' edition: the lesson with what a teacher needs below headings and exercises."""

import copy
import inspect
import re

from nbformat.v4 import new_code_cell, new_markdown_cell

from lessons_src.exercises.solutions import SOLUTIONS
from lessons_src.exercises.wrong_answers import CATALOGUE

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
    solution = "\n\n".join(inspect.getsource(part).rstrip() for part in SOLUTIONS[name])
    rows = []
    for wrong in CATALOGUE:
        if wrong.exercise == name:
            changes = "; ".join(changed(*change) for change in wrong.changes)
            rows.append(f"| {wrong.name} | {changes} | {wrong.say} |")
    table = "| wrong answer | the change | say |\n|---|---|---|\n" + "\n".join(rows)
    return [
        new_markdown_cell(f"> **For you:** the solution of `{name}`.", id=f"solution-{name}"),
        new_code_cell(solution, id=f"code-{name}"),
        new_markdown_cell(f"> **For you:** expect these.\n\n{table}", id=f"wrong-{name}"),
    ]


def changed(old, new):
    """One change to the solution, short enough for a table."""
    old, new = ("; ".join(map(str.strip, text.strip().splitlines())) for text in (old, new))
    old, new = old.replace("|", "\\|"), new.replace("|", "\\|")
    return f"`{old}` becomes `{new}`" if new else f"without `{old}`"
