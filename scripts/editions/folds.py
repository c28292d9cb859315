"""A lesson's folds: what a students' edition leaves out, and one for a prediction on a page."""

import copy
import re

from nbformat.v4 import new_markdown_cell

ANSWER = re.compile(
    r"(?:> )?<details><summary>(?:Answers?|答案)</summary>.*?</details>\s*", re.DOTALL
)
QUOTED = re.compile(r"^> ?", re.MULTILINE)
OFFER = re.compile(
    r"(?:, or |；或者 )<code>solution\([^)]*\)</code>|(?:,(?: and)? |，)`solution\([^`]*`[^.。]*"
)


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


def in_one_fold(cells, reveal):
    """The cells of a page: question, code, then output and answer in one fold, `reveal` its words.

    In a notebook these are three cells below each other, and the answer alone is folded.
    """
    asked = [number for number, cell in enumerate(cells) if "expected" in cell.metadata]
    done = 0
    for number in asked:
        first = max(n for n in range(number) if cells[n].cell_type == "markdown")
        before, _, question = f"\n\n{cells[first].source}".rpartition("\n\n> ")
        answer = ANSWER.match(cells[number + 1].source)
        code, output = copy.deepcopy(cells[number]), copy.deepcopy(cells[number])
        code["outputs"], code.id = [], f"{code.id}-code"
        output.metadata["tags"] = [*output.metadata.get("tags", []), "remove-input"]
        yield from [*cells[done:first], text(before)]
        yield text(f'<div class="prediction">\n\n{QUOTED.sub("", question)}')
        yield from [*cells[first + 1 : number], code]
        yield text(f'<details class="answer"><summary>{reveal}</summary>')
        yield output
        yield text(f"{inside(answer[0])}\n\n</details></div>")
        cells[number + 1].source = cells[number + 1].source[answer.end() :]
        done = number + 1
    yield from cells[done:]


def inside(answer):
    """The words of a folded answer, as a page shows them: no quotation, no fold."""
    return re.sub(r"</?details>|<summary>.*?</summary>", "", QUOTED.sub("", answer)).strip()


def text(source):
    return new_markdown_cell(source)
