"""The page of ten scripts: its table is what running them gives."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "site" / "tool" / "in_the_wild.md").read_text(encoding="utf-8")


def test_every_script_has_its_row():
    rows = re.findall(r"^\| `(\w+\.py)` \|", PAGE, re.M)
    assert rows == sorted(path.name for path in (ROOT / "benchmarks" / "wild").glob("*.py"))
    assert len(rows) == 10 and "| no |" not in PAGE


@pytest.mark.slow
def test_the_table_is_what_running_the_scripts_gives():
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "in_the_wild.py"],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.count("\n") == 12 and done.stdout in PAGE
