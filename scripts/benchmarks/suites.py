"""What the plugin of pytest costs in the test suites of five packages, and whether it breaks them.

    python scripts/benchmarks/suites.py FOLDER              prints the table
    python scripts/benchmarks/suites.py FOLDER --write      puts it into docs/tool/in_the_wild.md
    python scripts/benchmarks/suites.py FOLDER e3nn         runs one of them, or some

Each suite, or the part of it that `SUITES` names, runs three times on one thread: plain, with
`--double-backward=detect`, and with `--double-backward=recompute`. A test that ends otherwise than
plain is named. Seconds are processor time, so that other programs count less; the memory is the
peak of the process. A quarter of an hour.

FOLDER holds a checkout of each package, since wheels come without tests:

    pip install pytest parameterized cloudpickle e3nn==0.6.0 gpytorch==1.15.2 \
        linear_operator==0.6.1 torchdiffeq==0.2.5 torchsde==0.2.6
    cd FOLDER
    git clone -b 0.6.0 https://github.com/e3nn/e3nn
    git clone -b v1.15.2 https://github.com/cornellius-gp/gpytorch
    git clone -b v0.6.1 https://github.com/cornellius-gp/linear_operator
    git clone https://github.com/rtqichen/torchdiffeq && git -C torchdiffeq checkout a88aac5
    git clone -b v0.2.6 https://github.com/google-research/torchsde
"""

import os
import re
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "tool" / "in_the_wild.md"
BEGIN, END = "<!-- suites -->\n", "<!-- /suites -->\n"
# Package -> what pytest is handed: all tests, or a part where all would take hours.
SUITES = {
    "e3nn": ["tests/math", "tests/nn", "tests/util", "-k", "not fc_test"],
    "gpytorch": ["test"],
    "linear_operator": ["test/functions"],
    "torchdiffeq": ["tests/gradient_tests.py"],
    "torchsde": ["tests/test_adjoint.py", "-k", "against_numerical and ExScalar"],
}
WAYS = ["off", "detect", "recompute"]
HEADER = "| package | its tests | passed, failed, skipped | plain | detect | recompute "
HEADER += "| each test ends as plain | what detect looked at |"
SAID = re.compile(r"^(\d+) checked, (\d+) of them wrong; (\d+) not checked$", re.M)
NAMED = re.compile(r"^(?:wrong|not checked|alarm): .*$", re.M)


class Ran(NamedTuple):
    ended: dict[str, str]  # test -> "passed", "failed" or "skipped"
    seconds: float
    megabytes: float
    output: str


def run(checkout, tests, way):
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        command += ["-p", "double_backward.pytest_plugin", f"--double-backward={way}"]
        command += [f"--junitxml={report}", *tests]
        settings = {
            "OMP_NUM_THREADS": "1",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONPATH": str(ROOT),
            "TORCHINDUCTOR_CACHE_DIR": folder,  # what one run compiles is no help to the next
        }
        with open(Path(folder) / "output", "w+") as output:
            pytest = subprocess.Popen(
                command, cwd=checkout, env=os.environ | settings, stdout=output, stderr=output
            )
            _, status, used = os.wait4(pytest.pid, 0)
            pytest.returncode = os.waitstatus_to_exitcode(status)
            output.seek(0)
            said = output.read()
        if pytest.returncode not in (0, 1):  # 1: a test failed
            raise SystemExit(f"{checkout} {way}:\n{said}")
        ended = outcomes(report)
    unit = 1e6 if sys.platform == "darwin" else 1e3  # bytes there, elsewhere KiB
    return Ran(ended, used.ru_utime + used.ru_stime, used.ru_maxrss / unit, said)


def outcomes(report):
    ended = {}
    for case in ElementTree.parse(report).iter("testcase"):
        kinds = {child.tag for child in case}
        failed, skipped = kinds & {"failure", "error"}, "skipped" in kinds
        now = "failed" if failed else "skipped" if skipped else "passed"
        name = f"{case.get('classname')}::{case.get('name')}"
        ended[name] = "failed" if ended.get(name) == "failed" else now
    return ended


def row(package, checkout):
    runs = [run(checkout, SUITES[package], way) for way in WAYS]
    plain = runs[0]
    for way, ran in zip(WAYS, runs, strict=True):
        print(f"{package} {way}: {ran.seconds:.0f} s, {ran.megabytes:.0f} MB", file=sys.stderr)
        print("\n".join(NAMED.findall(ran.output)), file=sys.stderr)
    counts = [list(plain.ended.values()).count(kind) for kind in ("passed", "failed", "skipped")]
    others = []
    for way, ran in zip(WAYS[1:], runs[1:], strict=True):
        for test in sorted(plain.ended.keys() | ran.ended.keys()):
            if (now := ran.ended.get(test)) != plain.ended.get(test):
                others.append(f"no: {now} with {way}, `{test}`")
    cells = [f"{package} {version(package)}", f"`{' '.join(SUITES[package])}`"]
    cells += [", ".join(map(str, counts)), f"{plain.seconds:.0f} s, {plain.megabytes:.0f} MB"]
    cells += [f"× {r.seconds / plain.seconds:.2f}, {r.megabytes:.0f} MB" for r in runs[1:]]
    cells += ["; ".join(others) or "yes", looked_at(runs[1].output)]
    return f"| {' | '.join(cells)} |"


def looked_at(output):
    said = SAID.search(output)
    if said is None:
        return "nothing: no gradient with a graph"
    checked, wrong, unknown = said.groups()
    return f"{checked} checked, {wrong} wrong; {unknown} not checked"


def table(folder, packages):
    lines = [HEADER, "|---" * HEADER.count(" | ") + "|---|"]
    lines += [row(package, folder / package) for package in packages]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    folder, *rest = sys.argv[1:]
    chosen = [package for package in rest if package != "--write"]
    made = table(Path(folder), chosen or SUITES)
    print(made, end="")
    if "--write" in rest:
        text = PAGE.read_text(encoding="utf-8")
        head, tail = text[: text.index(BEGIN) + len(BEGIN)], text[text.index(END) :]
        PAGE.write_text(f"{head}\n{made}\n{tail}", encoding="utf-8")
