"""Links from file to file lead somewhere: in every page, every lesson, every copy of one."""

import re
import subprocess
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import nbformat
import pytest

ROOT = Path(__file__).resolve().parent.parent
# What git knows of, or would: neither what is made here, nor a reader's own copies.
COMMAND = ["git", "ls-files", "-co", "--exclude-standard", "--deduplicate"]
LISTED = subprocess.run(COMMAND, cwd=ROOT, capture_output=True, text=True).stdout.splitlines()
EVERY = [ROOT / name for name in LISTED if (ROOT / name).is_file()]
FILES = [path for path in EVERY if path.suffix in (".md", ".ipynb")]
FOLDERS = {name.split("/")[0] for name in LISTED if "/" in name and name[0] != "."}
CODE = re.compile(r"^```.*?^```|`[^`\n]+`", re.M | re.S)
LINK = re.compile(r"""\]\(([^)\s]+)\)|(?:src|href)="([^"]+)\"""")
# A file of ours that is named in running text, from the root.
NAMED = re.compile(rf"`((?:{'|'.join(FOLDERS)})/[\w./-]*)`")


@cache
def text_of(path):
    """What is read as Markdown."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return text
    cells = nbformat.reads(text, as_version=4).cells
    return "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


def headings(path):
    """The names that GitHub and the website give to headings."""
    found = re.findall(r"^#+ (.+)$", CODE.sub(lambda code: code[0].strip("`"), text_of(path)), re.M)
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in found}


def dangling(path):
    for found in LINK.findall(CODE.sub("", text_of(path))):
        file, _, part = unquote("".join(found)).partition("#")
        # The website's own addresses, which are looked at where it is built.
        if re.match(r"\w+:", file) or file.endswith(".html") or file == "RUN_TARGET":
            continue
        target = path.parent / file if file else path
        named = part and target.suffix in (".md", ".ipynb") and target.exists()
        if not target.exists() or (named and part not in headings(target)):
            yield "".join(found)


pytestmark = pytest.mark.skipif(not LISTED, reason="no checkout of git, or no git")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(path):
    assert list(dangling(path)) == []


def test_a_link_that_leads_nowhere_is_noticed(tmp_path):
    (tmp_path / "there.md").write_text("# Here, it is\n")
    (tmp_path / "page.md").write_text(
        "[a](there.md#here-it-is) [b](gone.md) [c](there.md#gone) `[d](code.md)`\n"
        '<img src="gone.svg"> [e](https://x.org/gone.md) [f](#gone)\n'
    )
    assert list(dangling(tmp_path / "page.md")) == ["gone.md", "there.md#gone", "gone.svg", "#gone"]


def test_files_named_in_a_page_are_there():
    pages = [path for path in FILES if path.suffix == ".md"]
    named = {(path.name, name) for path in pages for name in NAMED.findall(text_of(path))}
    named -= {("in_the_wild.md", "tests/gradient_tests.py")}  # of another package
    assert len(named) > 30
    assert [each for each in named if not (ROOT / each[1]).exists()] == []


PAGES = [path for path in EVERY if path.suffix == ".md" and "survey" not in path.parts]
FENCED = re.compile(r"^```\w*\n(.*?)^```", re.M | re.S)


def fenced(text):
    return "\n".join(FENCED.findall(text))


def files_of_commands(text):
    """Files of ours that are named in fences, from the root."""
    return re.findall(rf"(?<![\w./-])(?:{'|'.join(FOLDERS)})/[\w./-]*\w", fenced(text))


def targets(text):
    """What make is asked for, in fences and between backticks."""
    marked = re.findall(r"`make ([a-z]\w*)", text)
    return marked + re.findall(r"^(?:\$ )?make ([a-z]\w*)", fenced(text), re.M)


def variables(text):
    """Those that a page says make can be given: LESSON=2."""
    return set(re.findall(r"make [^`\n]*?\b([A-Z]+)=", text))


def test_commands_in_fences_name_files_that_are_there():
    named = {(path.name, file) for path in PAGES for file in files_of_commands(text_of(path))}
    named -= {each for each in named if "<" in each[1] or each[1].startswith("scripts/FOLDER")}
    assert len(named) > 12
    assert [each for each in named if not (ROOT / each[1]).exists()] == []


MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def test_make_knows_what_pages_ask_it_for():
    known = set(re.findall(r"^([a-z][\w+ ]*):(?!=)", MAKEFILE, re.M))
    known |= set(re.search(r"^\.PHONY: (.*?)(?<!\\)\n", MAKEFILE, re.M | re.S)[1].split())
    asked = {(path.name, target) for path in PAGES for target in targets(text_of(path))}
    assert len(asked) > 30
    assert [each for each in asked if each[1] not in known] == []


def unknown_variables(makefile):
    """Those that it uses, does not set, and no page says that they can be given."""
    set_there = set(re.findall(r"^(?:export )?([A-Z_]+) [?:]?=", makefile, re.M))
    given = set().union(*(variables(text_of(path)) for path in PAGES))
    return set(re.findall(r"\$\(([A-Z]\w*)\)", makefile)) - set_there - given


def test_make_uses_no_variable_that_nobody_sets():
    """And a page names none that is used by neither make nor a script that it starts."""
    scripts = [path.read_text("utf-8") for path in EVERY if path.match("scripts/*.py")]
    used = MAKEFILE + "".join(scripts)
    given = {(path.name, name) for path in PAGES for name in variables(text_of(path))}
    assert len(given) > 8
    assert [each for each in given if not re.search(rf"\b{each[1]}\b", used)] == []
    assert unknown_variables(MAKEFILE) == set()
    assert unknown_variables(MAKEFILE.replace("$(PAGE)", "$(PAGES)")) == {"PAGES"}


def source_of(link, front):
    """The file that the website makes a page of, by the link of one of its front pages."""
    chinese = "zh-CN" in front.name and not link.startswith("../")
    path = Path(link.removeprefix("../"))
    if path.parts[0] == "notebooks":
        return ROOT / "notebooks" / ("zh_CN" if chinese else "") / f"{path.stem}.ipynb"
    return ROOT / path.with_suffix(".zh-CN.md" if chinese else ".md")


@pytest.mark.parametrize("front", ["front.md", "front.zh-CN.md"])
def test_links_of_a_front_page_lead_to_pages_that_are_made(front):
    path = ROOT / "docs" / "site" / front
    links = re.findall(r'href="([^":]+\.html)', text_of(path))
    assert len(links) > 6
    assert [link for link in links if not source_of(link, path).exists()] == []


def test_the_front_yard_is_small():
    """What a visitor sees first; a file that is not named here belongs into a folder."""
    assert {path.name for path in EVERY if path.parent == ROOT and path.name[0] != "."} == {
        "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "Makefile", "README.md",
        "README.zh-CN.md", "constraints.txt", "environment.yml", "pyproject.toml",
        "MANIFEST.in",  # setuptools reads it here alone
        "conftest.py",  # and pytest, for `pytest notebooks` as for `pytest tests`
    }  # fmt: skip
    assert sorted(FOLDERS) == [
        "docs", "double_backward", "lessons_src", "notebooks", "scripts", "survey", "tests",
        "translations",
    ]  # fmt: skip
