"""`make refresh`: a file is written whole or not at all, and the second time changes nothing."""

import nbformat
import pytest
import refresh
from nbformat.v4 import new_code_cell, new_notebook

pytestmark = pytest.mark.slow


@pytest.fixture
def notebook(tmp_path):
    """Write a notebook of the given cells; return its path and its bytes."""

    def write(*sources, tags=()):
        cells = [new_code_cell(source) for source in sources]
        cells[-1].metadata["tags"] = list(tags)
        path = tmp_path / "1_lesson.ipynb"
        nbformat.write(new_notebook(cells=cells), path)
        return path, path.read_bytes()

    return write


def outputs(path):
    return [cell.outputs for cell in nbformat.read(path, as_version=4).cells]


def test_second_time_changes_nothing(notebook):
    # Chunks, an address and a traceback are what usually differs from run to run.
    path, before = notebook(
        "%xmode Minimal", "for i in range(9): print(i, flush=True)", "object()", "1 / 0",
        tags=["raises-exception"],
    )  # fmt: skip
    assert refresh.refresh(path) is None
    first = path.read_bytes()
    assert refresh.refresh(path) is None
    assert before != first == path.read_bytes()
    assert [len(cell) for cell in outputs(path)] == [1, 1, 1, 1]
    assert outputs(path)[2][0].data["text/plain"] == "<object at address1>"


@pytest.mark.parametrize(
    ("source", "tags", "problem"),
    [
        ("1 / 0", [], "ZeroDivisionError"),
        ("1", ["raises-exception"], "should raise and does not"),
        ("import os; os._exit(1)", [], "is left as it was"),
    ],
    ids=["an error nobody announced", "an announced error that is not there", "a dead kernel"],
)
def test_surprise_leaves_the_file_as_it_was(notebook, source, tags, problem):
    path, before = notebook("print(1)", source, tags=tags)
    assert problem in refresh.refresh(path)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]
