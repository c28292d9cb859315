"""The pages about the tool: each example is executed, and prints what stands below it.

A Python block that begins with `# name.py` is written to a file. In a console block `pip` is left
out; a line `...` stands for any lines, and `...` at the end of a line for the rest of it.
"""

import contextlib
import io
import re
import shlex
import subprocess
import sys
from pathlib import Path

import build_site
import pytest
import torch

from double_backward import diagnose
from lessons_src.saving_inputs import Square
from lessons_src.what_not_to_do import SinhBad

PAGES = sorted((Path(__file__).resolve().parent.parent / "docs" / "tool").glob("*.md"))
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page):
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def examples(page):
    """(language, code, what it prints)."""
    found = blocks(page)
    for (language, code), (following, output) in zip(found, [*found[1:], ("-", "")], strict=True):
        if language:
            yield language, code, "" if following else output


def printed(code, names):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(code, names)
    return out.getvalue()


def said(command, folder):
    """What a command of the console prints, both streams."""
    program, *arguments = shlex.split(command)
    start = [sys.executable, *(["-m", "pytest"] if program == "pytest" else [])]
    done = subprocess.run(
        [*start, *arguments], cwd=folder, text=True, stdout=-1, stderr=subprocess.STDOUT
    )
    return done.stdout


def pattern(output):
    lines = []
    for line in output.rstrip("\n").split("\n"):
        if line == "...":
            lines.append(r"(?:.*\n)*")
        else:
            rest = ".*" if line.endswith("...") else ""
            lines.append(re.escape(line.removesuffix("...")) + rest + r"\n")
    return "".join(lines)


def test_there_are_pages():
    names = {page.name.replace(".zh-CN", "") for page in PAGES}
    assert names == {Path(name).name for name in build_site.TOOL}
    assert all(list(examples(page)) for page in PAGES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_examples_print_what_stands_below_them(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    for language, code, output in examples(page):
        if language == "python" and not re.match(r"# \w+\.py\n", code):
            assert printed(code, names) == output


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [p for p in PAGES if "```console" in p.read_text()], ids=lambda page: page.stem
)
def test_commands_print_what_stands_below_them(page, tmp_path):
    for language, code, _ in examples(page):
        named = re.match(r"# (\w+\.py)\n", code)
        if language == "python" and named:
            (tmp_path / named[1]).write_text(code)
        if language == "console":
            command, output = code.split("\n", 1)
            if not command.startswith("$ pip"):
                assert re.fullmatch(pattern(output), said(command[2:], tmp_path))


def test_how_often_fn_is_called_is_as_the_limits_say():
    said = re.search(
        r"a right Function of one input about (\d+) times, a wrong one about (\d+) times",
        (PAGES[0].parent / "limits.md").read_text(encoding="utf-8"),
    )
    for function, number in zip((Square, SinhBad), said.groups(), strict=True):
        calls = []

        def counted(x, function=function, calls=calls):
            calls.append(x)
            return function.apply(x)

        x = torch.linspace(-1, 1, 10, dtype=torch.float64, requires_grad=True)
        diagnose(counted, x)
        assert abs(len(calls) - int(number)) <= 5
