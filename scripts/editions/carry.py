"""A notebook that brings its modules along: nothing to clone, nothing beside it needed.

Where the repository has an address, a copy may install the tool from there, and brings what is the
course's own.
"""

import ast
import base64
import json
import lzma
import tomllib
from functools import cache
from pathlib import Path

from nbformat.v4 import new_code_cell

import double_backward

ROOT = Path(__file__).resolve().parent.parent.parent
# The file of an exercise has these two lines, in this order: a copy ends above one of them.
SOLUTION = "# The solution"
WRONG_ANSWERS = "# Wrong answers"  # for the tests and for teachers
CATALOGUES = ("double_backward/{}.mo", "lessons_src/exercises/{}.mo")  # what these say
PRESET = 9  # of lzma: the smallest archive
BYTES = "surrogateescape"  # a file that is no text, as text

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
missing = [f"{name}>={least}" for name, least in needs.items()
           if not found(name) or numbers(found(name)) < numbers(least)]
TOOL
if missing:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", *missing]
    done = subprocess.run(pip, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit("Installing failed: check the network, then run this cell again. "
                         "pip says: " + (done.stderr.strip().splitlines() or ["nothing"])[-1])
    importlib.invalidate_caches()
print(f"Ready, with PyTorch {found('torch')}. Now the next cell, then the lesson.")
"""

MODULES = """\
#@title The course's own modules: run this cell, there is nothing to read in it
import base64, json, lzma, os, shutil, sys, tempfile
from pathlib import Path

archive = "ARCHIVE"
if "course_folder" not in globals():  # it goes when the kernel ends
    course_folder = tempfile.TemporaryDirectory()
    sys.path.insert(0, course_folder.name)
for name, text in json.loads(lzma.decompress(base64.b85decode(archive))).items():
    path = Path(course_folder.name, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode(errors="surrogateescape"))
if not shutil.which("dot"):  # so that a plain torchviz call draws too
    from double_backward.graphs import layout

    dot = Path(course_folder.name, "dot")
    command = f'exec "{sys.executable}" -P "{layout.__file__}" "$@"'
    dot.write_text(f"#!/bin/sh\\n# {layout.STAND_IN}\\n{command}\\n")
    dot.chmod(0o755)
    os.environ["PATH"] += os.pathsep + course_folder.name
"""


INSTALL = """\
if numbers(found("double-backward")) < numbers("VERSION"):
    missing.append("double-backward @ git+https://github.com/REPOSITORY")
"""


def carry(notebook, language="", end=WRONG_ANSWERS, repository=""):
    """Put the set-up and the modules that the lesson imports below its title, folded, in place.

    A module that has the line `end` is carried as far as that. With a `repository`, owner/name on
    GitHub, the tool is installed from there and not carried. With them comes what they say in
    another `language`.
    """
    folded = {"cellView": "form", "jupyter": {"source_hidden": True}}
    names = needed(notebook)
    names += [each.format(language) for each in CATALOGUES if language]
    if repository:
        names = [name for name in names if not name.startswith("double_backward/")]
    texts = {name: carried(name, end) for name in names}
    notebook.cells[1:1] = [
        new_code_cell(set_up(repository), id="set-up", metadata=folded),
        new_code_cell(modules_cell(texts), id="modules", metadata=folded),
    ]


def set_up(repository=""):
    """The first cell: lower bounds are those of pyproject.toml, nothing is bounded from above."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    listed = [*project["dependencies"], *extras["course"], *extras["draw"]]
    bounds = dict(each.split(">=") for each in listed)
    torch = bounds.pop("torch")  # gigabytes: never installed from here
    pygraphviz = bounds.pop("pygraphviz")
    bounds["setuptools"] = "0"  # the bound is for building; Colab's own one will do
    tool = INSTALL.replace("VERSION", double_backward.__version__) if repository else ""
    return (
        SET_UP.strip()
        .replace("TOOL\n", tool.replace("REPOSITORY", repository))
        .replace("NEEDS", str(dict(sorted(bounds.items()))).replace("'", '"'))
        .replace("PYGRAPHVIZ", pygraphviz)
        .replace("TORCH", torch)
    )


def modules_cell(texts):
    return MODULES.strip().replace("ARCHIVE", packed(texts))


def packed(texts):
    """The files, name -> text, as one line."""
    return _packed(json.dumps(texts))


@cache  # half a second; lessons bring the same modules
def _packed(files):
    return base64.b85encode(lzma.compress(files.encode(), preset=PRESET)).decode()


def unpacked(source):
    """What `packed` was given, from a modules cell."""
    line = next(line for line in source.splitlines() if line.startswith("archive = "))
    return json.loads(lzma.decompress(base64.b85decode(line.split('"')[1])))


def carried(name, end):
    """The text of a file, as far as the line `end` if it has one."""
    text = (ROOT / name).read_bytes().decode(errors=BYTES)
    above, found, _ = text.partition(f"\n{end}\n")
    return above.rstrip() + "\n" if found else text


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
    files = [one] if one.exists() else (course / unit).glob("*.py")
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
