"""The reader's own copies of the lessons, in my_lessons/: made once, never overwritten.

They have no outputs, so that no answer stands under its question. With COURSE_LANGUAGE=zh_CN, which
`make lab LANGUAGE=zh_CN` sets, they are the Chinese ones, in my_lessons/zh_CN/.
"""

import hashlib
import json
import os
import sys
from pathlib import Path

import nbformat
from editions.paper import for_paper
from nbformat.sign import NotebookNotary
from said import language, spoken, to_type

ROOT = Path(__file__).resolve().parent.parent
LANGUAGE = language()
NOTEBOOKS = ROOT / "notebooks" / LANGUAGE
MY_LESSONS = ROOT / "my_lessons" / LANGUAGE


def lessons(number=""):
    return sorted(NOTEBOOKS.glob(f"{number or '[0-9]'}_*.ipynb"))


def jupyter_folder(folder):
    """Where JupyterLab keeps what it remembers for the course, apart from the reader's own."""
    return folder / ".jupyter"


def stop_without_lessons():
    if not lessons():
        there = ", ".join(path.name for path in (ROOT / "translations").iterdir())
        none = "There are no lessons in {}: try LANGUAGE={}, or none for English."
        sys.exit(spoken(none, LANGUAGE, there))


def copy_lessons(folder=MY_LESSONS):
    """Copy the lessons that are not there yet and announce those that are newer than the copy."""
    stop_without_lessons()
    known = read_known(folder)
    for lesson in lessons():
        copy = folder / lesson.name
        if not copy.exists():
            put_copy(lesson, copy)
        elif known.get(lesson.name, fingerprint(lesson)) != fingerprint(lesson):
            number = lesson.name.split("_")[0]
            newer = spoken(
                "Lesson {} is newer than your copy, which stays as it is: {} puts the new one "
                "beside it.",
                *(number, to_type(f"make fresh LESSON={number}")),
            )
            print(newer)


def fresh_copy(number, folder=MY_LESSONS):
    """Put a clean copy of one lesson beside the reader's, under a name that is free."""
    stop_without_lessons()
    if not (found := lessons(number) if number else []):
        numbers = ", ".join(lesson.name.split("_")[0] for lesson in lessons())
        sys.exit(
            spoken("Say which lesson ({}), as in {}.", numbers, to_type("make fresh LESSON=1"))
        )
    copy, tries = folder / f"{found[0].stem}_fresh.ipynb", 1
    while copy.exists():
        tries += 1
        copy = folder / f"{found[0].stem}_fresh_{tries}.ipynb"
    put_copy(found[0], copy)
    print(spoken("A clean copy of lesson {} is in {}", number, os.path.relpath(copy)))


def put_copy(lesson, copy):
    """Trust, copy and remember in this order: killed in between, the next call does the rest."""
    folder = copy.parent
    data = jupyter_folder(folder) / "data"
    data.mkdir(parents=True, exist_ok=True)
    notebook = nbformat.read(lesson, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    for_paper(notebook)
    # JupyterLab shows the pictures that the reader has saved only in notebooks it trusts.
    NotebookNotary(data_dir=str(data)).sign(notebook)
    write_whole(copy, (nbformat.writes(notebook) + "\n").encode())
    known = read_known(folder) | {lesson.name: fingerprint(lesson)}
    write_whole(jupyter_folder(folder) / "copied.json", json.dumps(known).encode())


def read_known(folder):
    """Which version of each lesson was copied last."""
    path = jupyter_folder(folder) / "copied.json"
    return json.loads(path.read_bytes()) if path.exists() else {}


def fingerprint(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_whole(path, content):
    temporary = path.with_name(path.name + ".new")
    temporary.write_bytes(content)
    os.replace(temporary, path)


if __name__ == "__main__":
    fresh_copy(" ".join(sys.argv[1:]))
