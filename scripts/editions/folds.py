"""Folded parts of a lesson, `<details>`: what they are, and a lesson without them."""

import re

FOLD = re.compile(r"<details>.*?</details>\s*", re.DOTALL)


def without_answers(notebook):
    """Take out, in place, every fold: answers to predictions, quizzes and exercises."""
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = FOLD.sub("", cell.source).strip()
    notebook.cells = [cell for cell in notebook.cells if cell.source]


def without_outputs(notebook):
    """Take out, in place, what was printed, and what tests of the course keep in a cell."""
    for cell in notebook.cells:
        cell.metadata = {"tags": cell.metadata["tags"]} if cell.metadata.get("tags") else {}
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
