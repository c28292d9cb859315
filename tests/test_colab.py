"""The copies for Colab: as new as lessons and tool, complete, and equal to them when they run.

What is stored is what readers get, so that is what is looked at and run here.
"""

import ast
import base64
import functools
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import venv
import zlib
from importlib.util import find_spec
from pathlib import Path

import nbformat
import pytest
from editions import address as addresses
from editions import carry, colab, translated
from installed import INSTALLED, needs, reached
from jupyter_client import KernelManager
from jupyter_client.kernelspec import KernelSpecManager
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from packaging.markers import default_environment
from same_outputs import differences

ROOT = Path(__file__).resolve().parent.parent
LESSONS = sorted((ROOT / "notebooks").glob("[0-9]_*.ipynb"))
CHINESE = sorted((ROOT / "notebooks" / "zh_CN").glob("[0-9]_*.ipynb"))
each_lesson = pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
every_lesson = pytest.mark.parametrize(
    "lesson",
    [*LESSONS, *CHINESE],
    ids=lambda path: path.relative_to(ROOT / "notebooks").as_posix(),
)


@functools.cache
def text_of(lesson):
    return colab.copy_of(lesson).read_text(encoding="utf-8")


def stored(lesson):
    return nbformat.reads(text_of(lesson), as_version=4)


def files_in(copy):
    return carry.unpacked(copy.cells[2].source)


@every_lesson
def test_copy_is_not_stale(lesson):
    assert colab.same_copy(text_of(lesson), colab.colab_copy(lesson)), "`make copies` writes it"


@every_lesson
def test_a_copy_has_the_modules_of_today(lesson):
    """Byte for byte, those of exercises as far as the wrong answers."""
    for name, content in files_in(stored(lesson)).items():
        above, *wrong_answers = (ROOT / name).read_bytes().split(b"\n# Wrong answers\n")
        today = above.rstrip() + b"\n" if wrong_answers else above
        assert content == today, f"{name}: `make copies` packs it"
        if name.startswith("lessons_src/exercises/"):
            assert (b"\nSOLUTION = " in content) == bool(wrong_answers)


@functools.cache  # the same modules for every lesson
def imported(module, source):
    """Of the names that a module, or a cell, imports those of our two packages, as paths."""
    paths = set()
    lines = ["" if line.startswith(("%", "!")) else line for line in source.splitlines()]
    for node in ast.walk(ast.parse("\n".join(lines))):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = module.split("/")[: -node.level] if node.level else []
            package = ".".join([*above, *filter(None, [node.module])])
            found = [package, *(f"{package}.{alias.name}" for alias in node.names)]
        else:
            continue
        ours = [name for name in found if name.split(".")[0] in ("double_backward", "lessons_src")]
        paths.update(name.replace(".", "/") for name in ours)
    return paths


@every_lesson
def test_a_copy_has_every_module_that_it_imports(lesson):
    copy = stored(lesson)
    files = files_in(copy)
    sources = [("", cell.source) for cell in copy.cells if cell.cell_type == "code"]
    sources += [(name, text.decode()) for name, text in files.items() if name.endswith(".py")]
    asked = {path for module, source in sources for path in imported(module, source)}
    assert len(asked) > 80
    for path in asked:
        ours = {f"{path}.py", f"{path}/__init__.py"}  # the others are names in a module
        there = {name for name in ours if (ROOT / name).exists()}
        assert there <= set(files), f"{path} is imported, and not carried"


@every_lesson
def test_no_answer_stands_under_its_question(lesson):
    code = [cell for cell in stored(lesson).cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in code)


def test_no_copy_without_a_lesson():
    copies = {path.relative_to(colab.COPIES) for path in colab.COPIES.rglob("*.*")}
    assert copies <= {lesson.relative_to(ROOT / "notebooks") for lesson in [*LESSONS, *CHINESE]}


def code(notebook):
    """The code cells, but the two of the copy, which speak its language; and but the lines that
    name the language."""
    ours = "set-up", "modules"
    cells = [c.source for c in notebook.cells if c.cell_type == "code" and c.id not in ours]
    return [source.removeprefix(translated.answers_in("zh_CN")) for source in cells]


@pytest.mark.parametrize("lesson", CHINESE, ids=lambda path: path.stem)
def test_a_chinese_copy_has_the_code_of_the_english_one(lesson):
    english, chinese = (stored(path) for path in (ROOT / "notebooks" / lesson.name, lesson))
    assert code(english) == code(chinese) and len(code(english)) > 5
    one, other = files_in(english), files_in(chinese)
    assert set(other) - set(one) == {name.format("zh_CN") for name in carry.CATALOGUES}
    assert all(other[name] == text for name, text in one.items())
    texts = [cell.source for cell in chinese.cells if cell.cell_type == "markdown"]
    english_still = [t for t in texts if not re.search("[\u4e00-\u9fff]", t) and "$$" not in t]
    assert not english_still, "cells without their Chinese"


ASK = """
import os
from lessons_src.exercises import check, hint
hint("reciprocal")
print(os.listdir("."))
"""


@pytest.mark.slow
@pytest.mark.parametrize("lesson, said", [(LESSONS[1], "hint 1 of 3"), (CHINESE[1], "第 1 条提示")])
def test_a_copy_gives_its_hints_in_its_language(lesson, said, tmp_path):
    """In any folder, from the modules that it unpacks itself."""
    modules, lesson_begins = stored(lesson).cells[2:4]
    language = lesson_begins.source.partition("get_ipython()")[0]
    (tmp_path / "content").mkdir()
    text = modules.source + "\n" + language + ASK
    (tmp_path / "copy.py").write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-P", "../copy.py"],
        cwd=tmp_path / "content",
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": ""},
    )
    assert said in done.stdout and done.stdout.endswith("[]\n"), done.stdout + done.stderr


@every_lesson
def test_a_copy_is_short_to_read_and_opens_on_the_lesson(lesson):
    copy = stored(lesson)
    assert len(carry.without_archive(copy.cells[2].source).splitlines()) < 25
    assert len(copy.cells[2].source) < 540_000  # the source is twice as long
    for cell in copy.cells[1:3]:
        assert cell.source.startswith("#@title ") and cell.metadata["cellView"] == "form", "Colab"
        assert cell.metadata["jupyter"] == {"source_hidden": True}, "JupyterLab"


def test_a_change_of_one_file_is_a_change_of_one_line_of_a_copy():
    files = files_in(stored(LESSONS[1]))
    before = carry.modules_cell(files).splitlines()
    for name in list(files)[:3]:
        after = carry.modules_cell(files | {name: files[name] + b"#"}).splitlines()
        assert sum(old != new for old, new in zip(before, after, strict=True)) == 1, name


def test_a_copy_is_told_by_its_files_and_not_by_how_they_are_packed(monkeypatch):
    copy, made = stored(LESSONS[1]), text_of(LESSONS[1])
    files = files_in(copy)
    for name in ("double_backward/__init__.py", "lessons_src/__init__.py"):
        copy.cells[2].source = carry.modules_cell(files | {name: files[name] + b"#"})
        assert not colab.same_copy(nbformat.writes(copy), made)

    def in_haste(content):
        return base64.b85encode(zlib.compress(content, 1)).decode()

    monkeypatch.setattr(carry, "packed", in_haste)
    other = colab.colab_copy(LESSONS[1])
    assert other != made and colab.same_copy(other, made)


def test_the_set_up_of_a_chinese_copy_speaks_chinese():
    assert [text for text in carry.SAID if text not in carry.SET_UP + carry.MODULES] == []
    for cell in (carry.set_up("zh_CN"), carry.modules_cell({}, "zh_CN")):
        told = [re.match("#@title (.*)", cell)[1]]
        for node in ast.walk(ast.parse(cell)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in (
                "SystemExit",
                "print",
            ):
                parts = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)]
                told.append("".join(part for part in parts if isinstance(part, str)))
        assert [text for text in told if not re.search("[一-鿿]", text)] == []


def test_nothing_that_pip_is_asked_for_brings_a_torch(monkeypatch):
    """The set-up cell, run where torch alone is there, and pip only notes what to do."""
    found, asked = importlib.metadata.version, []

    def version(name):
        if name != "torch":
            raise importlib.metadata.PackageNotFoundError
        return found(name)

    done = subprocess.CompletedProcess([], 0)
    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.setattr(shutil, "which", lambda program: None)
    monkeypatch.setattr(subprocess, "run", lambda command, **_: asked.append(command) or done)
    exec(carry.set_up(), {})
    named = {}
    for command in asked:
        packages = {re.match(r"[\w-]+(?=>=)", word)[0] for word in command if ">=" in word}
        named |= dict.fromkeys(packages, "--no-deps" in command)
    assert {"scipy", "matplotlib", "torchviz", "pygraphviz"} < set(named)
    for package, alone in named.items():
        if alone:  # it finds what it needs all the same
            surroundings = default_environment()
            assert {name for name, _ in needs(package, [""], surroundings)} <= {*named, "torch"}
        else:
            assert "torch" not in reached([(package, ("",))])


def lesson_with_link():
    cells = [
        new_markdown_cell("# 1 · Title\n\nText."),
        new_code_cell("import lessons_src.operations"),
        new_markdown_cell("Next: [2 · Outputs](2_saving_outputs.ipynb)"),
    ]
    return new_notebook(cells=cells)


def copy_of(notebook, folder):
    lesson = folder / "1_saving_inputs.ipynb"
    nbformat.write(notebook, lesson)
    return nbformat.reads(colab.colab_copy(lesson), as_version=4)


def test_without_a_repository_nothing_points_anywhere(tmp_path):
    copy = copy_of(lesson_with_link(), tmp_path)
    assert copy.cells[-1].source == "Next: 2 · Outputs"
    assert "colab.research" not in json.dumps(copy)


def test_with_a_repository_the_badge_and_the_links_point_there(tmp_path):
    notebook = lesson_with_link()
    for repository in ("some/where", "ada/course"):  # the second replaces the first
        colab.put_badge_into_lesson(notebook, Path("1_saving_inputs.ipynb"), repository)
    home = "https://colab.research.google.com/github/ada/course/blob/main/notebooks/colab"
    badge = f"[Open in Colab]({home}/1_saving_inputs.ipynb)"
    assert notebook.cells[0].source == f"# 1 · Title\n\nText.\n\n{badge}"
    copy = copy_of(notebook, tmp_path)
    assert copy.cells[0].source == "# 1 · Title\n\nText."
    assert copy.cells[-1].source == f"Next: [2 · Outputs]({home}/2_saving_outputs.ipynb)"


def test_badges_in_the_readme():
    row = "| 1 | [Saving an input](notebooks/1_saving_inputs.ipynb): `Square` | 30 |\n"
    assert (ROOT / "docs" / "pictures" / "open_in_colab.svg").exists()
    once = colab.put_badges_into_readme(row, LESSONS, "ada/course")
    assert "inputs.ipynb) [![Open in Colab](docs/pictures/open_in_colab.svg)](https://colab" in once
    assert once.endswith("/notebooks/colab/1_saving_inputs.ipynb): `Square` | 30 |\n")
    assert colab.put_badges_into_readme(once, LESSONS, "ada/course") == once
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    badges = colab.put_badges_into_readme(readme, colab.LESSONS, "ada/course")
    assert badges.count("[![Open in Colab]") == len(LESSONS)
    chinese = (ROOT / "README.zh-CN.md").read_text(encoding="utf-8")
    badges = colab.put_badges_into_readme(chinese, colab.LESSONS, "ada/course")
    assert badges.count("/blob/main/notebooks/colab/zh_CN/") == len(CHINESE)


@pytest.mark.parametrize("address", ["ada/course", "https://example.org/a/b", "github.com/a/b"])
def test_no_repository_of_that_form(address, monkeypatch):
    monkeypatch.setattr(addresses, "named", lambda name: address)
    with pytest.raises(SystemExit, match="is https://github.com/owner/name"):
        addresses.repository()


def test_the_citation_names_the_repository_once():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    once = addresses.put_into_citation(citation, "ada/course")
    assert once.count('repository-code: "https://github.com/ada/course"') == 1
    assert addresses.put_into_citation(once, "ada/course") == once


def test_the_repository_is_read_from_its_address(monkeypatch):
    for written in ("https://github.com/ada/course", "https://github.com/ada/course.git"):
        monkeypatch.setattr(addresses, "named", lambda name, written=written: written)
        assert addresses.repository() == "ada/course"


def test_another_clones_python_is_refused(tmp_path):
    with pytest.raises(SystemExit, match=r"take \.venv/bin/python"):
        carry.refuse_another_clone(find_spec("double_backward"), tmp_path)


# From here on: executed where there is nothing of ours.


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """Torch, NumPy and ipykernel; the IPython is Colab's, the oldest that we meet.

    Torch is the one that runs these tests, linked: fetched anew it could be gigabytes.
    """
    folder = tmp_path_factory.mktemp("base")
    venv.create(folder, with_pip=True)
    install = [folder / "bin" / "python", "-m", "pip", "install", "--quiet"]
    subprocess.run([*install, "ipython==7.34.0", "ipykernel<7"], check=True, cwd=ROOT)
    # For the kernels: where pip is asked for a torch it cannot go on, whichever is there.
    (folder / "constraints.txt").write_text("torch<0\n")
    # After pip, which must not meet a link: it could remove what lies behind.
    packages = next(folder.glob("lib/python*/site-packages"))
    here = [(name, ("",)) for name in ("torch", "numpy")]
    # Where torch and CUDA came without their records, they lie beside each other all the same.
    for name in reached([*here, *needs("torch", [""], default_environment())]) & {*INSTALLED}:
        for part in {file.parts[0] for file in INSTALLED[name].files} - {"..", "__pycache__"}:
            if not (packages / part).exists():
                (packages / part).symlink_to(INSTALLED[name].locate_file(part).resolve())
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module", params=["without dot", "with dot"])
def kernel(request, base, tmp_path_factory):
    """The spec of a kernel in an environment that has what `base` has; the lessons add to it."""
    folder = tmp_path_factory.mktemp(request.param)
    venv.create(folder, with_pip=False)
    packages = next(folder.glob("lib/python*/site-packages"))
    (packages / "base.pth").write_text(str(next(base.glob("lib/python*/site-packages"))))
    programs = folder / "bin"
    if request.param == "with dot":
        # The machine's own, or else the course's: then it is a real one as far as the copy sees.
        dot = shutil.which("dot")
        assert dot, "there is no dot on the PATH, nor beside the Python that runs this"
        (programs / "dot").write_text(f'#!/bin/sh\nexec "{dot}" "$@"\n')
        (programs / "dot").chmod(0o755)
    (folder / "colab").mkdir()
    spec = {
        "argv": [str(programs / "python"), "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": "fresh",
        "language": "python",
        "env": {
            "PATH": str(programs),
            "PYTHONPATH": "",
            "PIP_CONSTRAINT": str(base / "constraints.txt"),
        },
    }
    (folder / "colab" / "kernel.json").write_text(json.dumps(spec))
    for missing in ("torchviz", "scipy", "pygraphviz", "lessons_src"):
        command = [programs / "python", "-E", "-c", f"import {missing}"]
        assert subprocess.run(command, cwd=folder, stderr=subprocess.DEVNULL).returncode == 1
    yield folder
    shutil.rmtree(folder)


@pytest.mark.slow
@each_lesson
def test_copy_runs_where_there_is_nothing_of_ours(lesson, kernel, tmp_path):
    course = nbformat.read(lesson, as_version=4)
    copy = stored(lesson)
    manager = KernelManager(
        kernel_name="colab", kernel_spec_manager=KernelSpecManager(kernel_dirs=[str(kernel)])
    )
    client = NotebookClient(copy, km=manager, timeout=300, coalesce_streams=True)
    with client.setup_kernel(cwd=str(tmp_path), cleanup_kc=True):
        again = lesson == LESSONS[1] and not (kernel / "bin" / "dot").exists()
        for _ in range(1 + again):  # one lesson in one way twice is enough
            for number, cell in enumerate(copy.cells):
                client.execute_cell(cell, number)
            ready = re.fullmatch(r"Ready, with PyTorch (\S+)\. .*\n", copy.cells[1].outputs[0].text)
            assert len(copy.cells[1].outputs) == 1 and copy.cells[2].outputs == []
            assert ready[1] == INSTALLED["torch"].version
            for old, new in zip(course.cells[1:], copy.cells[3:], strict=True):
                outputs = old.get("outputs", []), new.get("outputs", [])
                assert differences(*outputs, torch=ready[1]) == [], old.source
    assert list(tmp_path.iterdir()) == []
