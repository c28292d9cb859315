"""`make matrix`: the lessons and some quick tests where readers run them, as docs/MATRIX.md.

Each cell runs the notebooks, every output compared, and some quick tests: on another Python, with
another torch, where all tests of the tool run besides, with other packages, on another processor as
far as the libraries can be told so, with other settings of the reader. Some cells run the copies
for Colab instead. `make matrix CELLS=here` runs the cells that need nothing but this environment,
as `make check` does; `CELLS=2.11` runs the cells with that in their name, or the one cell that is
called so.

Nothing is fetched. Environments with another Python or torch, gigabytes each, are those that
MATRIX_ENVS names, as in MATRIX_ENVS=/envs/py312:/envs/torch211. A cell without one is not run and
says so; its line in MATRIX.md stays that of the machine which ran it last.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "docs" / "MATRIX.md"
QUICK = [f"tests/test_{name}.py" for name in ("derivatives", "plots", "same_outputs")]
LESSONS = ["notebooks", *QUICK]
# What the tool does depends on torch more than on anything else: on another one, all of its tests.
TOOL = (
    "check compiled decision_table diagnos* draw_backward graph* main pytest_plugin remedies* "
    "ignore symmetric_inputs torch_hooks untracked_steps"
)
ALL = LESSONS + sorted(
    path.relative_to(ROOT).as_posix()
    for name in TOOL.split()
    for path in ROOT.glob(f"tests/test_{name}.py")
)
COPIES = ["-m", "slow", "tests/test_colab.py"]
UNSET = None


def lowest():
    """The lower bound of each package that pyproject.toml names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lists = [project["dependencies"], *project["optional-dependencies"].values()]
    return dict(re.fullmatch(r"(.+)>=(.+)", each).groups() for each in sum(lists, []))


# What to do to a reader's surroundings, several things at once: variables to set, or UNSET to take
# away. None of them may change an output, so one cell can hold many.
HERE = {
    "processor: no vector instructions in torch, 8 threads": {
        "ATEN_CPU_CAPABILITY": "default",
        "OMP_NUM_THREADS": "8",
    },
    "processor: AVX2, MKL's common path, OpenBLAS for Nehalem": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_CBWR": "COMPATIBLE",
        "OPENBLAS_CORETYPE": "Nehalem",
    },
    "locale C, Kiritimati time, 40 columns, colours forced, umask 077": {
        "LC_ALL": "C",
        "TZ": "Pacific/Kiritimati",
        "COLUMNS": "40",
        "FORCE_COLOR": "1",
        "umask": "077",
    },
    "locale tr_TR, Marquesas time, no colours, no HOME": {
        "LC_ALL": "tr_TR.UTF-8",
        "TZ": "Pacific/Marquesas",
        "NO_COLOR": "1",
        "TERM": "dumb",
        "HOME": UNSET,
    },
    "a HOME with settings of matplotlib, IPython and Jupyter": {"HOME": "make_home"},
}
# name -> (Python, packages that constraints.txt does not decide, what is run)
ELSEWHERE = {
    "Python 3.11.2, Debian 12's own": ("3.11.2", {}, LESSONS),
    "Python 3.11 and PyTorch 2.11": ("3.11", {"torch": "2.11"}, ALL),
    "Python 3.11 and PyTorch 2.12": ("3.11", {"torch": "2.12"}, ALL),
    "Python 3.11 and PyTorch 2.14": ("3.11", {"torch": "2.14"}, ALL),
    "Python 3.11 and PyTorch 2.15": ("3.11", {"torch": "2.15"}, ALL),
    "Python 3.12 and PyTorch 2.13": ("3.12", {"torch": "2.13"}, LESSONS),
    "Python 3.13 and PyTorch 2.13": ("3.13", {"torch": "2.13"}, LESSONS),
    "Python 3.14 and PyTorch 2.13": ("3.14", {"torch": "2.13"}, LESSONS),
    "Python 3.11, matplotlib 3.9": ("3.11", {"matplotlib": "3.9"}, LESSONS),
    "Python 3.11, matplotlib 3.10": ("3.11", {"matplotlib": "3.10"}, LESSONS),
    "Python 3.11, PyTorch 2.11, each package at its lower bound": ("3.11", lowest(), ALL),
    "Python 3.12, PyTorch 2.15, NumPy 2.5, SciPy 1.18, the newest of each package": (
        "3.12",
        {"torch": "2.15", "numpy": "2.5", "scipy": "1.18", "networkx": "3.7", "contourpy": "1.4"},
        ALL,
    ),
    "copies for Colab: IPython 7.34, Python 3.11 and PyTorch 2.11": (
        "3.11",
        {"torch": "2.11"},
        COPIES,
    ),
    "copies for Colab: IPython 7.34, Python 3.11 and PyTorch 2.15": (
        "3.11",
        {"torch": "2.15"},
        COPIES,
    ),
}
# The cells that are no x86-64; there pytest runs in the emulator too, or on a machine of that kind.
ARM = "Linux on ARM (aarch64), emulated by QEMU 7.2, Debian 12's Python 3.11.2"
ELSEWHERE[ARM] = ("3.11.2", {"torch": "2.13"}, LESSONS)
MACHINES = {ARM: "aarch64"}
HEAD = """\
# Where the lessons were run

Written by `make matrix`. Each line is a run of the notebooks that there were on its day (lesson 6
came after all of these), every output compared, and of some quick tests; on another PyTorch of
all tests of the tool besides; or of the copies for Colab, in which nothing of the course is
installed: on Linux and x86-64, with the versions of constraints.txt but for those named.

| where | outcome | detail |
|---|---|---|
"""
SEEN = """
import json, platform, sys
from importlib.metadata import version
versions = map(version, sys.argv[1:])
print(json.dumps([platform.machine(), platform.python_version(), *versions]))
"""


@dataclass
class Result:
    cell: str
    outcome: str  # "passed", "FAILED" or "not run"
    detail: str
    variables: dict = field(default_factory=dict)


def main(wanted=""):
    results = []
    for name in chosen(wanted):
        if name in HERE:
            results.append(run(name, sys.executable, HERE[name]))
        else:
            results.append(elsewhere(name, *ELSEWHERE[name]))
    if wanted != "here":  # a check changes no file
        write_table(results)
    sys.exit(any(result.outcome == "FAILED" for result in results))


def chosen(wanted):
    """The names of the cells to run: the one called so, or else those with `wanted` in them."""
    names = [*HERE, *ELSEWHERE]
    if wanted == "here":
        return [*HERE]
    if wanted in names:
        return [wanted]
    return [name for name in names if wanted in name] or sys.exit(f"No cell's name has {wanted!r}.")


def elsewhere(name, python, packages, tests):
    """The cell in the first environment of MATRIX_ENVS that has this Python and these versions."""
    for folder in filter(None, os.environ.get("MATRIX_ENVS", "").split(os.pathsep)):
        interpreter = Path(folder, "bin", "python")
        if not interpreter.exists():
            sys.exit(f"MATRIX_ENVS names {folder}, which has no bin/python.")
        command = [interpreter, "-c", SEEN, *packages]
        seen = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
        versions = json.loads(seen.stdout or "[]")
        wanted = [MACHINES.get(name, "x86_64"), python, *packages.values()]
        if len(versions) == len(wanted) and all(map(begins_with, versions, wanted)):
            return run(name, interpreter, {}, tests)
    return say(Result(name, "not run", "no environment in MATRIX_ENVS has it"))


def begins_with(version, wanted):
    """Whether 2.11.0+cpu is a 2.11, as it is; 2.1 it is not."""
    return re.match(re.escape(wanted) + r"(?!\d)", version) is not None


def run(name, python, variables, tests=LESSONS):
    """Run the notebooks and the quick tests by `python`; never with more than two kernels."""
    if not has_locale(variables.get("LC_ALL", "C")):
        return say(Result(name, "not run", "the locale is not on this machine"))
    with tempfile.TemporaryDirectory() as folder:
        environment = surroundings(variables, Path(folder))
        umask = int(variables.get("umask", "022"), 8)
        options = ["-q", "-n", "2", "--dist", "loadfile", "-p", "no:cacheprovider", "--color=no"]
        done = subprocess.run(
            [python, "-m", "pytest", *options, *tests],
            cwd=ROOT,
            env=environment,
            umask=umask,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
    if done.returncode:
        print(done.stdout[-5000:])
    counts = re.findall(r"^(?:=+ )?(\d+ \w+.*) in [\d.]+s", done.stdout, re.MULTILINE)
    detail = counts[-1] if counts else (done.stdout.strip().splitlines() or ["no output"])[-1]
    return say(Result(name, "FAILED" if done.returncode else "passed", detail, variables))


def has_locale(name):
    """Without it, programs take C and say nothing: the cell would not be what it is called."""
    program = "import locale; locale.setlocale(locale.LC_ALL, '')"
    environment = {**os.environ, "LC_ALL": name}
    return subprocess.run([sys.executable, "-c", program], env=environment).returncode == 0


def surroundings(variables, folder):
    """This process's variables with those of the cell; a home folder is made where one is asked."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.setdefault("OMP_NUM_THREADS", "1")
    for name, value in variables.items():
        if value is UNSET:
            environment.pop(name, None)
        elif value == "make_home":
            sys.path.append(str(ROOT / "tests"))
            from homes import make_home

            environment.update(make_home(folder))
        elif name != "umask":
            environment[name] = value
    return environment


def say(result):
    print(f"{result.outcome:8} {result.cell} ({result.detail})", flush=True)
    return result


def write_table(results):
    rows = read_table()
    for each in results:
        if each.outcome != "not run" or each.cell not in rows:
            rows[each.cell] = (each.outcome, each.detail)
    order = [*HERE, *ELSEWHERE]
    lines = [f"| {name} | {' | '.join(rows[name])} |" for name in order if name in rows]
    TABLE.write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")


def read_table():
    """{cell: (outcome, detail)} of MATRIX.md as it is."""
    if not TABLE.exists():
        return {}
    rows = TABLE.read_text(encoding="utf-8").partition("|---|---|---|\n")[2].splitlines()
    cells = [[part.strip() for part in row.strip("|").split("|")] for row in rows]
    return {name: (outcome, detail) for name, outcome, detail in cells}


if __name__ == "__main__":
    main(os.environ.get("CELLS", ""))
