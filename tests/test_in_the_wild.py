"""The page of ten scripts and five test suites: its tables are what the scripts write."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "tool" / "in_the_wild.md").read_text(encoding="utf-8")
SUITE = """
import pytest
import torch


class Kept(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.cosh = x.cosh()
        return x.sinh()

    @staticmethod
    def backward(ctx, grad_out):
        return grad_out * ctx.cosh


class Right(Kept):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sinh()

    @staticmethod
    def backward(ctx, grad_out):
        return grad_out * ctx.saved_tensors[0].cosh()


def twice(fn):
    x = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    (g,) = torch.autograd.grad(fn.apply(x) ** 2, x, create_graph=True)
    torch.autograd.grad(g, x)


def test_right():
    twice(Right)


def test_wrong():
    twice(Kept)


@pytest.mark.skip
def test_left_out():
    pass
"""


def test_every_script_has_its_row():
    rows = re.findall(r"^\| `(\w+\.py)` \|", PAGE, re.M)
    assert rows == sorted(
        path.name for path in (ROOT / "scripts" / "benchmarks" / "wild").glob("*.py")
    )
    assert len(rows) == 10 and "| no |" not in PAGE


@pytest.mark.slow
def test_the_table_is_what_running_the_scripts_gives():
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "benchmarks" / "in_the_wild.py"],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.count("\n") == 12 and done.stdout in PAGE


def test_every_suite_has_its_row():
    script = runpy.run_path(str(ROOT / "scripts" / "benchmarks" / "suites.py"))
    _, begun, rest = PAGE.partition(script["BEGIN"])
    header, line, *rows = rest.partition(script["END"])[0].strip().split("\n")
    assert begun and header == script["HEADER"]
    assert [row.split()[1] for row in rows] == list(script["SUITES"])
    for row, tests in zip(rows, script["SUITES"].values(), strict=True):
        assert f"| `{' '.join(tests)}` |" in row
        assert row.count(" | ") == line.count("|---") - 1 == header.count(" | ")


@pytest.mark.slow
def test_a_suite_ends_as_its_report_says(tmp_path):
    script = runpy.run_path(str(ROOT / "scripts" / "benchmarks" / "suites.py"))
    (tmp_path / "test_three.py").write_text(SUITE, encoding="utf-8")
    plain, detect = (script["run"](tmp_path, ["test_three.py"], way) for way in ("off", "detect"))
    kinds = {name.partition("::")[2]: ended for name, ended in plain.ended.items()}
    assert kinds == {"test_right": "passed", "test_wrong": "passed", "test_left_out": "skipped"}
    changed = {name for name in plain.ended if detect.ended[name] != plain.ended[name]}
    assert changed == {"test_three::test_wrong"} and detect.ended.keys() == plain.ended.keys()
    assert script["looked_at"](detect.output) == "2 checked, 1 wrong; 0 not checked"
    assert script["looked_at"](plain.output) == "nothing: no gradient with a graph"
    assert plain.seconds > 0 and plain.megabytes > 50
