"""Each prediction's expected answer stands in its cell's metadata; here it meets the output."""

from pathlib import Path

import nbformat
import pytest

LESSONS = sorted((Path(__file__).parent.parent / "notebooks").glob("[0-9]_*.ipynb"))


def predictions(notebook):
    """(cell that answers a prediction, the Markdown cell below it) for each in the notebook."""
    cells = notebook.cells
    for cell, below in zip(cells, cells[1:], strict=False):
        if "expected" in cell.metadata:
            yield cell, below


def printed(cell):
    """All text that the stored run of a cell printed."""
    texts = []
    for output in cell.outputs:
        texts += [output.get("text", ""), output.get("evalue", "")]
        texts.append(output.get("data", {}).get("text/plain", ""))
    return "\n".join(texts)


@pytest.fixture(params=LESSONS, ids=lambda path: path.stem)
def notebook(request):
    return nbformat.read(request.param, as_version=4)


def test_every_expected_answer_was_printed(notebook):
    for cell, _ in predictions(notebook):
        for answer in cell.metadata["expected"]:
            assert answer in printed(cell), f"{answer!r} is not in the output of:\n{cell.source}"


def test_every_answer_is_folded_right_below(notebook):
    for cell, below in predictions(notebook):
        folded = below.source.removeprefix("> ")  # a quotation sets it off
        assert folded.startswith("<details><summary>Answer</summary>"), cell.source


def test_at_least_four_predictions(notebook):
    assert len(list(predictions(notebook))) >= 4


def test_every_folded_answer_has_an_expected_one(notebook):
    answers = sum(cell.source.count("<summary>Answer</summary>") for cell in notebook.cells)
    expected = len(list(predictions(notebook)))
    assert answers == expected, (
        f"{answers} answers are folded, and the metadata of {expected} cells above one have "
        "`expected`: a list of what such a cell prints that the answer says"
    )
