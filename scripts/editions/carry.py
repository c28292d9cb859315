"""A notebook that brings its modules along: nothing to clone, nothing beside it needed."""

import ast
import tomllib
from functools import cache
from pathlib import Path

from nbformat.v4 import new_code_cell
from packaging.requirements import Requirement

import lessons_src

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGE = ROOT / "lessons_src"
# The file of an exercise has these two lines, in this order: a copy ends above one of them.
SOLUTION = "# The solution"
WRONG_ANSWERS = "# Wrong answers"  # for the tests and for teachers

SET_UP = """\
# Set-up: installs what is missing here; the second time there is nothing to do.
import importlib.metadata, shutil, subprocess, sys

try:
    found = importlib.metadata.version("torch")
except importlib.metadata.PackageNotFoundError:
    raise SystemExit("There is no PyTorch here: install TORCH_TEXT or newer first.") from None
if tuple(map(int, found.split(".")[:2])) < TORCH:
    raise SystemExit(f"PyTorch {found} is too old here: install TORCH_TEXT or newer first.")
needs = NEEDS
if not shutil.which("dot"):
    needs.append("PYGRAPHVIZ")
pip = [sys.executable, "-m", "pip", "install", "--quiet", *needs]
done = subprocess.run(pip, capture_output=True, text=True)
if done.returncode:
    raise SystemExit("Installing failed: check the network, then run this cell again. "
                     "pip says: " + (done.stderr.strip().splitlines() or ["nothing"])[-1])
importlib.invalidate_caches()
print(f"Ready, with PyTorch {found}. Now the folded cell, then the lesson.")
"""

MODULES = """\
#@title The course's own modules: run this cell, there is nothing to read in it
import os, shutil, sys, tempfile
from pathlib import Path

modules = {}
FILES
if "course_folder" not in globals():  # it goes when the kernel ends
    course_folder = tempfile.TemporaryDirectory()
    sys.path.insert(0, course_folder.name)
for name, text in modules.items():
    path = Path(course_folder.name, "lessons_src", name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
if not shutil.which("dot"):  # so that a plain torchviz call draws too
    from lessons_src.graphs import layout

    dot = Path(course_folder.name, "dot")
    command = f'exec "{sys.executable}" -P "{layout.__file__}" "$@"'
    dot.write_text(f"#!/bin/sh\\n# {layout.STAND_IN}\\n{command}\\n")
    dot.chmod(0o755)
    os.environ["PATH"] += os.pathsep + course_folder.name
"""


def carry(notebook, end=WRONG_ANSWERS):
    """Put the set-up and the modules that the lesson imports below its title, in place.

    A module that has the line `end` is carried as far as that.
    """
    folded = {"cellView": "form", "jupyter": {"source_hidden": True}}
    notebook.cells[1:1] = [
        new_code_cell(set_up(), id="set-up"),
        new_code_cell(modules_cell(needed(notebook), end), id="modules", metadata=folded),
    ]


def set_up():
    """The first cell: lower bounds are those of pyproject.toml, nothing is bounded from above."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    bounds = {
        Requirement(each).name: each for each in tomllib.loads(text)["project"]["dependencies"]
    }
    torch = bounds.pop("torch").removeprefix("torch>=")  # gigabytes: never installed from here
    pygraphviz = bounds.pop("pygraphviz")
    bounds["setuptools"] = "setuptools"  # the bound is for building; Colab's own one will do
    return (
        SET_UP.strip()
        .replace("NEEDS", str(sorted(bounds.values())).replace("'", '"'))
        .replace("PYGRAPHVIZ", pygraphviz)
        .replace("TORCH_TEXT", torch)
        .replace("TORCH", str(tuple(map(int, torch.split(".")))))
    )


def modules_cell(names, end):
    files = [f'modules["{name}"] = {literal(carried(name, end))}' for name in names]
    return MODULES.strip().replace("FILES", "\n".join(files))


def carried(name, end):
    """The text of a file of lessons_src, as far as the line `end` if it has one."""
    text = (PACKAGE / name).read_text("utf-8")
    above, found, _ = text.partition(f"\n{end}\n")
    return above.rstrip() + "\n" if found else text


def literal(text):
    """The text as Python, readable: raw between triple quotes where that says the same."""
    raw = f"r'''{text}'''"
    try:
        same = ast.literal_eval(raw) == text
    except SyntaxError:
        same = False
    return raw if same else repr(text)


def needed(notebook):
    """The files of lessons_src that the lesson imports, directly or not, in a fixed order.

    Of a subpackage all files: some are loaded by a name that is put together while it runs.
    """
    found, waiting = set(), {"__init__"}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            waiting |= imported(cell.source)
    while waiting:
        files = files_of(waiting.pop()) - found
        found |= files
        for file in files:
            waiting |= imported((PACKAGE / file).read_text("utf-8"))
    return sorted(found)


def files_of(unit):
    """A unit is a module or a subpackage at the top of lessons_src."""
    if (PACKAGE / f"{unit}.py").exists():
        return {f"{unit}.py"}
    return {path.relative_to(PACKAGE).as_posix() for path in (PACKAGE / unit).glob("*.py")}


@cache  # the same modules for every lesson
def imported(source):
    """The units of lessons_src that a piece of code imports by its name."""
    lines = ["" if line.startswith(("%", "!")) else line for line in source.splitlines()]
    found = set()
    for node in ast.walk(ast.parse("\n".join(lines))):
        if isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}".split(".") for alias in node.names]
        else:
            continue
        found |= {name[1] for name in names if name[0] == "lessons_src" and len(name) > 1}
    return {lessons_src._MODULE_OF.get(name, name) for name in found}
