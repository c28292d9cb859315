"""The instructors' edition: the lesson with what a teacher needs below headings and exercises."""

import copy
import re

from nbformat.v4 import new_code_cell, new_markdown_cell

from lessons_src.exercises import exercises
from lessons_src.exercises.changes import solution_code, wrong_answers
from lessons_src.exercises.language import in_language

from .carry import carry
from .languages import words_of
from .paper import for_paper
from .pieces import EXERCISE
from .teaching import sections

HEADING = re.compile(r"^## (.+)$", re.MULTILINE)


def instructor(notebook, language=""):
    notebook = copy.deepcopy(notebook)
    number = int(re.match(r"# (\d)", notebook.cells[0].source)[1])
    notes, words, cells = sections(number, language), words_of(language), []
    for cell in notebook.cells:
        cell.metadata.pop("expected", None)  # for a test of the course
        if cell.cell_type == "markdown":
            cell.source = HEADING.sub(lambda found: noted(found[1], notes, words), cell.source)
        cells.append(cell)
        if cell.cell_type == "code" and (found := EXERCISE.search(cell.source)):
            cells += below_exercise(found[1], language)
    notebook.cells = cells
    carry(notebook, language)
    for_paper(notebook)
    return notebook


def noted(heading, notes, words):
    if heading not in notes:
        return f"## {heading}"
    return f"## {heading}\n\n> {words['for you'].format(*notes[heading])}".rstrip()


def below_exercise(name, language):
    """The solution, not executed, and the wrong answers that people give."""
    exercise, words = exercises()[name], words_of(language)
    wrong = "\n\n".join(told(answer, language) for answer in wrong_answers(exercise))
    return [
        new_markdown_cell(f"> {words['solution'].format(name)}", id=f"solution-{name}"),
        new_code_cell(solution_code(exercise), id=f"code-{name}"),
        new_markdown_cell(f"> {words['expect']}\n\n{wrong}", id=f"wrong-{name}"),
    ]


def told(answer, language):
    """A wrong answer: its name, what to say, and folded the code."""
    words = words_of(language)
    said = words["wrong"].format(
        *(in_language(text, language) for text in (answer.name, answer.say))
    )
    code = f"```python\n{answer.code}```"
    return f"{said}\n\n<details><summary>{words['code']}</summary>\n\n{code}\n\n</details>"
