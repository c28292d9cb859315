"""`make matrix`: the lessons and some quick tests where readers run them; the table is MATRIX.md.

Each cell runs the notebooks, every output compared, and the quick tests: on another Python, torch
or matplotlib, on another processor as far as the libraries can be told so, with other settings of
the reader. `make matrix CELLS=here` runs the cells that need nothing but this environment, as
`make check` does; `CELLS=2.11` runs the cells with that in their name.

Nothing is fetched. Environments with another Python or torch, gigabytes each, are those that
MATRIX_ENVS names, as in MATRIX_ENVS=/envs/py312:/envs/torch211. A cell without one is not run and
says so; its line in MATRIX.md stays that of the machine which ran it last.
"""

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "MATRIX.md"
QUICK = [f"tests/test_{name}.py" for name in ("derivatives", "plots", "same_outputs")]
UNSET = None

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
# name -> (Python, packages that constraints.txt does not decide)
ELSEWHERE = {
    "Python 3.11 and PyTorch 2.11": ("3.11", {"torch": "2.11"}),
    "Python 3.11 and PyTorch 2.12": ("3.11", {"torch": "2.12"}),
    "Python 3.11 and PyTorch 2.14": ("3.11", {"torch": "2.14"}),
    "Python 3.11 and PyTorch 2.15": ("3.11", {"torch": "2.15"}),
    "Python 3.12 and PyTorch 2.13": ("3.12", {"torch": "2.13"}),
    "Python 3.13 and PyTorch 2.13": ("3.13", {"torch": "2.13"}),
    "Python 3.14 and PyTorch 2.13": ("3.14", {"torch": "2.13"}),
    "Python 3.11, matplotlib 3.9": ("3.11", {"matplotlib": "3.9"}),
    "Python 3.11, matplotlib 3.10": ("3.11", {"matplotlib": "3.10"}),
}
HEAD = """\
# Where the lessons were run

Written by `make matrix`. Each line is a run of the five notebooks, every output compared, and of
some quick tests: on Linux and x86-64, with the versions of constraints.txt but for those named.

| where | outcome | detail |
|---|---|---|
"""
SEEN = """
import sys
from importlib.metadata import version
print(*sys.version_info[:2], sep=".", end=" ")
print(*("=".join([name, ".".join(version(name).split(".")[:2])]) for name in sys.argv[1:]))
"""


@dataclass
class Result:
    cell: str
    outcome: str  # "passed", "FAILED" or "not run"
    detail: str
    variables: dict = field(default_factory=dict)


def main(wanted=""):
    results = []
    for name, variables in HERE.items():
        if wanted in ("", "here") or wanted in name:
            results.append(run(name, sys.executable, variables))
    for name, needs in ELSEWHERE.items():
        if wanted == "" or (wanted != "here" and wanted in name):
            results.append(elsewhere(name, *needs))
    if wanted != "here":  # a check changes no file
        write_table(results)
    sys.exit(any(result.outcome == "FAILED" for result in results))


def elsewhere(name, python, packages):
    """The cell in the first environment of MATRIX_ENVS that has this Python and these versions."""
    wanted = " ".join([python, *(f"{key}={value}" for key, value in packages.items())])
    for folder in filter(None, os.environ.get("MATRIX_ENVS", "").split(os.pathsep)):
        interpreter = Path(folder, "bin", "python")
        command = [interpreter, "-c", SEEN, *packages]
        seen = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
        if seen.stdout.strip() == wanted:
            return run(name, interpreter, {})
    return say(Result(name, "not run", "no environment in MATRIX_ENVS has it"))


def run(name, python, variables):
    """Run the notebooks and the quick tests by `python`; never with more than two kernels."""
    with tempfile.TemporaryDirectory() as folder:
        environment = surroundings(variables, Path(folder))
        umask = int(variables.get("umask", "022"), 8)
        tests = ["-q", "-n", "2", "--dist", "loadfile", "-p", "no:cacheprovider", "--color=no"]
        done = subprocess.run(
            [python, "-m", "pytest", *tests, "notebooks", *QUICK],
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
    lines = done.stdout.strip().splitlines() or ["no output"]
    counts = lines[-1].strip("= ").split(" in ")[0]
    return say(Result(name, "FAILED" if done.returncode else "passed", counts, variables))


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
    rows = TABLE.read_text(encoding="utf-8").removeprefix(HEAD).splitlines()
    cells = [[part.strip() for part in row.strip("|").split("|")] for row in rows]
    return {name: (outcome, detail) for name, outcome, detail in cells}


if __name__ == "__main__":
    main(os.environ.get("CELLS", ""))
