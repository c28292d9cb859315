"""The stored notebooks keep to the rules, and the rules notice when they do not."""

from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import (
    new_code_cell,
    new_markdown_cell,
    new_notebook,
    new_output,
)
from notebook_rules import RULES, code_cells, definitions, inline_code_is_the_modules

ROOT = Path(__file__).resolve().parent.parent
LESSONS = sorted((ROOT / "notebooks").glob("[0-9]_*.ipynb"))
MODULE = 'class Square:\n    """Doc."""\n\n    def forward(self):\n        return 2\n'


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_lesson_keeps_to_the_rules(path, rule):
    assert list(rule(nbformat.read(path, as_version=4))) == []


@pytest.mark.parametrize("path", LESSONS[1:], ids=lambda path: path.stem)
def test_inline_code_is_the_modules_code(path):
    notebook = nbformat.read(path, as_version=4)
    module = module_of(path).read_text(encoding="utf-8")
    assert list(inline_code_is_the_modules(notebook, module)) == []


def module_of(path):
    return ROOT / "lessons_src" / f"{path.stem.split('_', 1)[1]}.py"


def test_the_ten_minutes_show_the_functions_of_the_lessons():
    """To be copied, so they stand there once more: each as its own module has it."""
    notebook = nbformat.read(LESSONS[0], as_version=4)
    shown = {}
    for _, cell in code_cells(notebook):
        shown |= definitions(cell.source)
    for path in LESSONS[1:5]:
        module = definitions(module_of(path).read_text(encoding="utf-8"))
        same = {name: code for name, code in module.items() if name in shown}
        assert same and same == {name: shown[name] for name in same}


def sound_notebook():
    picture = {
        "text/plain": "Graph of grad_x: 2 operations, 1 leaf\n  x",
        "image/svg+xml": "<svg/>",
    }
    error = new_output("error", ename="E", evalue="no", traceback=["E: no"])
    cells = [
        new_markdown_cell("# Title\n\n![a curve](curve.png)"),
        new_code_cell(MODULE.replace('    """Doc."""\n\n', "  # a comment\n"), execution_count=1),
        new_code_cell("1 / 2", execution_count=2, outputs=[new_output("stream", text="1/2 3.5")]),
        new_markdown_cell("Look."),
        new_code_cell("draw()", execution_count=3, outputs=[new_output("display_data", picture)]),
        new_code_cell("fail()", execution_count=4, outputs=[error]),
    ]
    cells[5].metadata["tags"] = ["raises-exception"]
    return new_notebook(cells=cells, metadata={"language_info": {"name": "python"}})


def print_instead(text):
    return lambda cells: cells[2].outputs[0].update(text=text)


BREAKAGES = {
    "cleared": lambda cells: cells[2].update(execution_count=None, outputs=[]),
    "out of order": lambda cells: cells[2].update(execution_count=7),
    "an error nobody announced": lambda cells: cells[5].metadata.pop("tags"),
    "an announced error that is not there": lambda cells: cells[5].update(outputs=[]),
    "a path": print_instead("File /home/me/course/double_backward/graphs/walk.py:3: no"),
    "a path on Windows": print_instead(r"in C:\Users\me\course"),
    "a path in the home folder": print_instead("~/course/lessons_src"),
    "an address": print_instead("<Digraph at 0x7f0123456789>"),
    "a time": print_instead("took 12.5 ms"),
    "a picture with a bare repr": lambda cells: (
        cells[4]
        .outputs[0]
        .data.update({"text/plain": "<a figure of a size of 640 x 480 with 1 axes>"})
    ),
    "a picture alone": lambda cells: cells[4].outputs[0].data.pop("text/plain"),
    "a picture without alt": lambda cells: cells[0].update(source="![](curve.png)"),
    "Markdown in the HTML of a fold": lambda cells: cells[3].update(
        source="> <details><summary>Answer</summary>Run `x`.\n> More.</details>\n\n`y`"
    ),
    "a name in a formula as text": lambda cells: cells[3].update(source=r"$\text{grad\_x} = g$"),
    "an ignored output": lambda cells: cells[2].metadata.update(tags=["nbval-ignore-output"]),
    "an ignored output by comment": lambda cells: cells[2].update(source="# NBVAL_SKIP\n1 / 2"),
    "a node without its output": lambda cells: cells[2].update(
        source="%time\nf(x).grad_fn.saved_tensors"
    ),
    "a long cell": lambda cells: cells[2].update(source="1\n" * 26),
    "three code cells in a row": lambda cells: cells.pop(3),
    "two cells with one id": lambda cells: cells[3].update(id=cells[2].id),
}


def breaches(notebook):
    return [breach for rule in RULES for breach in rule(notebook)]


def test_picture_told_in_words_passes():
    notebook = sound_notebook()
    BREAKAGES["a picture alone"](notebook.cells)
    notebook.cells.insert(5, new_markdown_cell("**In words.** x leads to grad_x."))
    assert breaches(notebook) == []


def test_sound_notebook_passes():
    assert breaches(sound_notebook()) == []
    assert list(inline_code_is_the_modules(sound_notebook(), MODULE)) == []


@pytest.mark.parametrize("breakage", BREAKAGES)
def test_rules_notice(breakage):
    notebook = sound_notebook()
    BREAKAGES[breakage](notebook.cells)
    assert len(breaches(notebook)) == 1


@pytest.mark.parametrize(
    "cells",
    [
        [MODULE.replace("2", "3")],
        [MODULE.replace("return 2", "print()\n        return 2")],
        [MODULE, "x = 1", MODULE],
        ["x = 1"],
    ],
    ids=["another number", "another line", "twice", "missing"],
)
def test_drift_is_noticed(cells):
    notebook = new_notebook(cells=[new_code_cell(source) for source in cells])
    assert len(list(inline_code_is_the_modules(notebook, MODULE))) == 1
