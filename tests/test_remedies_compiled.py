"""Second derivatives through compiled regions, inside detect and recompute and after them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("compiled_regions.py")
RUNS = [
    (backend, remedy, when)
    for backend in ("aot_eager", "eager", "inductor")
    for remedy in ("detect", "recompute")
    for when in ("before", "inside")
]
QUICK = [("aot_eager", "detect", "before"), ("aot_eager", "recompute", "before")]


@pytest.mark.parametrize(
    "run", [r if r in QUICK else pytest.param(r, marks=pytest.mark.slow) for r in RUNS], ids=str
)
def test_regions(run):
    _, remedy, when = run
    done = subprocess.run(
        [sys.executable, PROGRAM, *run], capture_output=True, text=True, check=True,
        cwd=PROGRAM.parent.parent,
    )  # fmt: skip
    rows = json.loads(done.stdout.splitlines()[-1])
    assert len(rows) == 22
    for row in rows:
        right = right_in(row, row["after"])
        if remedy == "recompute":
            assert right_in(row, row["inside"]), row
            assert row["graphs inside"] == 0, row
        elif isinstance(row["after"], str):  # torch's own refusal, or one that names the region
            refused = row["inside"] == row["after"] or "would be wrong" in one_line(row["inside"])
            assert refused, row
        elif right:
            assert row["inside"] == row["after"], row
        else:
            assert one_line(row["inside"]).startswith(
                "SecondDerivativeError: A second derivative"
            ), row
            assert names_it(row), row
        if when == "before":  # nothing is compiled anew
            assert row["without"] == row["after"], row
            assert row["graphs inside"] == row["graphs after"] == 0, row


def right_in(row, got):
    return not isinstance(got, str) and got == pytest.approx(row["eager"], rel=1e-4, abs=1e-5)


def names_it(row):
    names = {"tanh": "of tanh would", "trained": "of Sequential (", "frozen": "of Sequential ("}
    return names.get(row["name"], f"of {row['name']} ({PROGRAM}, line ") in one_line(row["inside"])


def one_line(text):
    return " ".join(text.split())  # where it is wrapped depends on the length of a path
