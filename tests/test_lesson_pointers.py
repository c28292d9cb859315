"""Each finding of `diagnose` points to a lesson: here, to one that says something about it."""

from pathlib import Path

import nbformat
import pytest

from double_backward.diagnosis.conclusions.findings import ROWS

LESSONS = {
    int(path.name[0]): " ".join(
        cell.source + "".join(map(str, cell.get("outputs", [])))
        for cell in nbformat.read(path, as_version=4).cells
    )
    for path in (Path(__file__).parents[1] / "notebooks").glob("[0-9]_*.ipynb")
}


@pytest.mark.parametrize("code", ROWS)
def test_the_lesson_of_a_finding_has_its_words(code):
    number, words = ROWS[code].lesson
    assert words in LESSONS[number]
