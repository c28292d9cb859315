"""A notebook that brings its modules along: nothing to clone, nothing beside it needed."""

import ast
import base64
import json
import re
import sys
import tomllib
import zlib
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from nbformat.v4 import new_code_cell

from .languages import in_words_of

ROOT = Path(__file__).resolve().parent.parent.parent
# The file of an exercise has these two lines, in this order: a copy ends above one of them.
SOLUTION = "# The solution"
WRONG_ANSWERS = "# Wrong answers"  # for the tests and for teachers
CATALOGUES = [
    f"{folder}/{{}}.mo"
    for folder in (
        "double_backward",
        "double_backward/graphs",
        "lessons_src",
        "lessons_src/exercises",
    )
]

SET_UP = """\
#@title Set-up: run this cell; it installs what is missing here
import importlib.metadata, re, shutil, subprocess, sys


def numbers(version):
    return tuple(map(int, re.findall(r"\\d+", version)[:3]))


def found(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


if numbers(found("torch")) < numbers("TORCH"):
    here = f"PyTorch {found('torch')} is too old" if found("torch") else "There is no PyTorch"
    raise SystemExit(f"{here} here: install TORCH or newer first.")
needs = NEEDS
if not shutil.which("dot"):
    needs["pygraphviz"] = "PYGRAPHVIZ"
# Without what they need themselves: that is torch, and pip could replace the one that is here.
alone = ALONE
for packages, options in ((needs, []), (alone, ["--no-deps"])):
    missing = [f"{name}>={least}" for name, least in packages.items()
               if not found(name) or numbers(found(name)) < numbers(least)]
    if missing:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-color", *options]
        done = subprocess.run([*pip, *missing], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit("Installing failed: check the network, then run this cell again. "
                             "pip says: " + (done.stderr.strip().splitlines() or ["nothing"])[-1])
        importlib.invalidate_caches()
print(f"Ready, with PyTorch {found('torch')}. Now the next cell, then the lesson.")
"""

MODULES = """\
#@title The course's own modules: run this cell, there is nothing to read in it
import base64, os, shutil, sys, tempfile, zlib
from pathlib import Path

archive = ARCHIVE
if "course_folder" not in globals():  # it goes when the kernel ends
    course_folder = tempfile.TemporaryDirectory()
    sys.path.insert(0, course_folder.name)
for name, packed in archive.items():
    path = Path(course_folder.name, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(zlib.decompress(base64.b85decode(packed)))
if not shutil.which("dot"):  # so that a plain torchviz call draws too
    from double_backward.graphs import layout

    dot = Path(course_folder.name, "dot")
    command = f'exec "{sys.executable}" -P "{layout.__file__}" "$@"'
    dot.write_text(f"#!/bin/sh\\n# {layout.STAND_IN}\\n{command}\\n")
    dot.chmod(0o755)
    os.environ["PATH"] += os.pathsep + course_folder.name
"""

# What these cells say to the reader: entries of make.po.
SAID = (
    "Set-up: run this cell; it installs what is missing here",
    "PyTorch {found('torch')} is too old",
    "There is no PyTorch",
    "{here} here: install TORCH or newer first.",
    "Installing failed: check the network, then run this cell again. ",
    "pip says: ",
    "nothing",
    "Ready, with PyTorch {found('torch')}. Now the next cell, then the lesson.",
    "The course's own modules: run this cell, there is nothing to read in it",
)
PACKED_FILES = re.compile(r"^archive = (\{.*?^\})", re.M | re.S)


def refuse_another_clone(found, here):
    """What is made here is made of the modules here: another clone's Python imports its own."""
    if found and not Path(found.origin).resolve().is_relative_to(here):
        sys.exit(f"{sys.executable} imports {found.origin}, not {here}: take .venv/bin/python.")


refuse_another_clone(find_spec("double_backward"), ROOT)


def carry(notebook, language="", end=WRONG_ANSWERS):
    """Put the set-up and the modules that the lesson imports below its title, folded, in place.

    A module that has the line `end` is carried as far as that. With them comes what they say in
    another `language`.
    """
    folded = {"cellView": "form", "jupyter": {"source_hidden": True}}
    names = needed(notebook)
    names += [each.format(language) for each in CATALOGUES if language]
    files = {name: carried(name, end) for name in names}
    notebook.cells[1:1] = [
        new_code_cell(set_up(language), id="set-up", metadata=folded),
        new_code_cell(modules_cell(files, language), id="modules", metadata=folded),
    ]


def set_up(language=""):
    """The first cell: lower bounds are those of pyproject.toml, nothing is bounded from above."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    listed = [*project["dependencies"], *extras["course"], *extras["draw"]]
    bounds = dict(each.split(">=") for each in listed)
    torch = bounds.pop("torch")  # gigabytes: never installed from here
    pygraphviz = bounds.pop("pygraphviz")
    bounds["setuptools"] = "0"  # the bound is for building; Colab's own one will do
    # torchviz alone needs torch. What else it needs is graphviz, in any version.
    alone = {"graphviz": "0", "torchviz": bounds.pop("torchviz")}
    return (
        in_language(language, SET_UP)
        .replace("NEEDS", json.dumps(bounds, sort_keys=True))
        .replace("ALONE", json.dumps(alone))
        .replace("PYGRAPHVIZ", pygraphviz)
        .replace("TORCH", torch)
    )


def in_language(language, cell):
    """The cell with what it says to the reader in the language, the longest first."""
    for english in sorted(SAID, key=len, reverse=True):
        cell = cell.replace(english, in_words_of(language, english))
    return cell.strip()


def modules_cell(files, language=""):
    """The cell; a file is a line of its own, so that one changed file is one changed line."""
    packed_files = {name: packed(content) for name, content in files.items()}
    return in_language(language, MODULES).replace("ARCHIVE", json.dumps(packed_files, indent=0))


@cache  # the same modules for every lesson
def packed(content):
    """Each file by itself: where one is changed, git stores that one anew, and not the archive."""
    return base64.b85encode(zlib.compress(content, 9)).decode()


def unpacked(source):
    """The files, name -> bytes, of a modules cell."""
    archive = json.loads(PACKED_FILES.search(source)[1])
    return {name: zlib.decompress(base64.b85decode(text)) for name, text in archive.items()}


def without_archive(source):
    return PACKED_FILES.sub("", source)


def carried(name, end):
    """What a file holds, as far as the line `end` if it has one."""
    content = (ROOT / name).read_bytes()
    above, found, _ = content.partition(f"\n{end}\n".encode())
    return above.rstrip() + b"\n" if found else content


def needed(notebook):
    """The files that the lesson imports, directly or not, in a fixed order, from the root.

    The tool as a whole, which loads its modules by a name; of the course's own what is imported.
    """
    found = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("double_backward/**/*.py")}
    waiting = {"__init__"}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            waiting |= imported(cell.source)
    while waiting:
        files = files_of(waiting.pop()) - found
        found |= files
        for file in files:
            waiting |= imported((ROOT / file).read_text("utf-8"))
    return sorted(found)


def files_of(unit):
    """A unit is a module or a subpackage at the top of lessons_src."""
    course = ROOT / "lessons_src"
    one = course / f"{unit}.py"
    files = [one] if one.exists() else (course / unit).rglob("*.py")
    return {path.relative_to(ROOT).as_posix() for path in files}


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
    return found
