"""The instructors' edition: the lesson with what a teacher needs below headings and exercises."""

import copy
import os
import re
from unittest.mock import patch

from nbformat.v4 import new_code_cell, new_markdown_cell

from lessons_src.exercises import exercises
from lessons_src.exercises.changes import solution_code, wrong_answers
from lessons_src.exercises.language import in_language

from .carry import carry
from .languages import WORDS
from .teaching import sections

HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
EXERCISE = re.compile(r'^check\("(\w+)"', re.MULTILINE)


def instructor(notebook, language=""):
    notebook = copy.deepcopy(notebook)
    number = int(re.match(r"# (\d)", notebook.cells[0].source)[1])
    notes, words, cells = sections(number, language), WORDS[language], []
    for cell in notebook.cells:
        cell.metadata.pop("expected", None)  # for a test of the course
        if cell.cell_type == "markdown":
            cell.source = HEADING.sub(lambda found: noted(found[1], notes, words), cell.source)
        cells.append(cell)
        if cell.cell_type == "code" and (found := EXERCISE.search(cell.source)):
            with patch.dict(os.environ, COURSE_LANGUAGE=language):
                cells += below_exercise(found[1], words)
    notebook.cells = cells
    carry(notebook, language)
    return notebook


def noted(heading, notes, words):
    if heading not in notes:
        return f"## {heading}"
    return f"## {heading}\n\n> {words['for you'].format(*notes[heading])}".rstrip()


def below_exercise(name, words):
    """The solution, not executed, and the wrong answers that people give."""
    exercise = exercises()[name]
    wrong = "\n\n".join(told(answer, words) for answer in wrong_answers(exercise))
    return [
        new_markdown_cell(f"> {words['solution'].format(name)}", id=f"solution-{name}"),
        new_code_cell(solution_code(exercise), id=f"code-{name}"),
        new_markdown_cell(f"> {words['expect']}\n\n{wrong}", id=f"wrong-{name}"),
    ]


def told(answer, words):
    """A wrong answer: its name, what to say, and folded the code."""
    said = words["wrong"].format(in_language(answer.name), in_language(answer.say))
    code = f"```python\n{answer.code}```"
    return f"{said}\n\n<details><summary>{words['code']}</summary>\n\n{code}\n\n</details>"
