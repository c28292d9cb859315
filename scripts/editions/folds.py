"""What a students' edition leaves out of a lesson: folded answers and outputs."""

import re

ANSWER = re.compile(
    r"(?:> )?<details><summary>(?:Answers?|答案)</summary>.*?</details>\s*", re.DOTALL
)
OFFER = re.compile(r"(?:, or |；或者 )<code>solution\([^)]*\)</code>")


def without_answers(notebook):
    """Take out, in place, answers to predictions and quizzes, and the offer of solutions.

    Folds that help somebody who is stuck stay.
    """
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = OFFER.sub("", ANSWER.sub("", cell.source)).strip()
    notebook.cells = [cell for cell in notebook.cells if cell.source]


def without_outputs(notebook):
    """Take out, in place, what was printed, and what tests of the course keep in a cell."""
    for cell in notebook.cells:
        cell.metadata = {"tags": cell.metadata["tags"]} if cell.metadata.get("tags") else {}
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
