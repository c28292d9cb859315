"""`make matrix`: the lessons and some quick tests where readers run them, as docs/MATRIX.md.

Each cell runs the notebooks, every output compared, and some quick tests: on another Python, with
another torch, where all tests of the tool run besides, with other packages, on another processor as
far as the libraries can be told so, with other settings of the reader. Some cells run the copies
for Colab instead. `make matrix CELLS=here` runs the cells that need nothing but this environment,
as `make check` does; `CELLS=2.11` runs the cells with that in their name, or the one cell that is
called so. `make torch` runs those of the newest torch that the registry has, before each landing.

uv makes an environment for each other torch and for other packages, below .torch, gigabytes each,
where it finds such a Python. One that it cannot make, as for another processor, can be named in
MATRIX_ENVS, as in MATRIX_ENVS=/envs/arm. A cell without any is not run and says so; its line in
MATRIX.md stays that of the machine which ran it last.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from torch_environment import LOWEST, NEWEST, CannotBeMade, make_environment

CI = os.environ.get("CI") == "true"

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "docs" / "MATRIX.md"
QUICK = [f"tests/test_{name}.py" for name in ("derivatives", "plots", "same_outputs")]
LESSONS = ["notebooks", *QUICK]
# What the tool does depends on torch more than on anything else: on another one, all of its quick
# tests.
TOOL = (
    "advice calls check compiled decision_table diagnos* draw_backward failures graph* "
    "handed_again ignore main new_process operators orders pytest_plugin remedies* shares "
    "smaller_inputs step_itself symmetric_inputs tangents tensor_kinds tolerances torch_hooks "
    "training_steps transforms untracked_steps"
)
OF_THE_TOOL = sorted(
    path.relative_to(ROOT).as_posix()
    for name in TOOL.split()
    for path in ROOT.glob(f"tests/test_{name}.py")
)
ALL = LESSONS + OF_THE_TOOL
COPIES = ["-m", "slow", "tests/test_colab.py"]
UNSET = None


# What to do to a reader's surroundings, several things at once: variables to set, or UNSET to take
# away. None of them may change an output, so one cell can hold many.
HERE = {
    "no vector instructions in torch, 8 threads, locale C, Kiritimati time, 40 columns, colours "
    "forced, umask 077, a HOME with settings of matplotlib, IPython and Jupyter": {
        "ATEN_CPU_CAPABILITY": "default",
        "OMP_NUM_THREADS": "8",
        "LC_ALL": "C",
        "TZ": "Pacific/Kiritimati",
        "COLUMNS": "40",
        "FORCE_COLOR": "1",
        "umask": "077",
        "HOME": "make_home",
    },
    "AVX2, MKL's common path, OpenBLAS for Nehalem, Marquesas time, no colours, no HOME": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_CBWR": "COMPATIBLE",
        "OPENBLAS_CORETYPE": "Nehalem",
        "TZ": "Pacific/Marquesas",
        "NO_COLOR": "1",
        "TERM": "dumb",
        "HOME": UNSET,
    },
    "locale tr_TR": {"LC_ALL": "tr_TR.UTF-8"},
}
# name -> (Python, None for the one that runs this; packages that constraints.txt does not decide;
# what is run)
THE_NEWEST = "the newest PyTorch"
ELSEWHERE = {
    THE_NEWEST: (None, {"torch": NEWEST}, ALL),
    "copies for Colab: IPython 7.34, " + THE_NEWEST: (None, {"torch": NEWEST}, COPIES),
    "Python 3.11.2, Debian 12's own": ("3.11.2", {}, LESSONS),
    "the tool alone: Python 3.11, torch 2.9": ("3.11", {"torch": "2.9"}, OF_THE_TOOL),
    "Python 3.11 and PyTorch 2.11": ("3.11", {"torch": "2.11"}, ALL),
    "Python 3.11 and PyTorch 2.12": ("3.11", {"torch": "2.12"}, ALL),
    "Python 3.11 and PyTorch 2.14": ("3.11", {"torch": "2.14"}, ALL),
    "Python 3.12 and PyTorch 2.13": ("3.12", {"torch": "2.13"}, LESSONS),
    "Python 3.13 and PyTorch 2.13": ("3.13", {"torch": "2.13"}, LESSONS),
    "Python 3.14 and PyTorch 2.13": ("3.14", {"torch": "2.13"}, LESSONS),
    "Python 3.11, matplotlib 3.9": ("3.11", {"matplotlib": "3.9"}, LESSONS),
    "Python 3.11, matplotlib 3.10": ("3.11", {"matplotlib": "3.10"}, LESSONS),
    "Python 3.11, PyTorch 2.11, each package at its lower bound": ("3.11", LOWEST, ALL),
    "Python 3.12, the newest of each package": ("3.12", NEWEST, ALL),
    "copies for Colab: IPython 7.34, Python 3.11 and PyTorch 2.11": (
        "3.11",
        {"torch": "2.11"},
        COPIES,
    ),
}
# The cells that are no x86-64; there pytest runs in the emulator too, or on a machine of that kind.
ARM = "Linux on ARM (aarch64), emulated by QEMU 7.2, Debian 12's Python 3.11.2"
ELSEWHERE[ARM] = ("3.11.2", {"torch": "2.13"}, LESSONS)
MACHINES = {ARM: "aarch64"}
HEAD = """\
# Where the lessons were run

Written by `make matrix`. Each line is a run of the notebooks that there were then, every output
compared, and of some quick tests; on another PyTorch of all tests of the tool besides; or of the
copies for Colab, in which nothing of the course is installed: on Linux and x86-64, with the
versions of constraints.txt but for those named.

**A line speaks of the code of its commit, and of none that came later.** `make test`, `make check`
and `make torch` run before each landing: so the code of today has passed with the pinned PyTorch,
as the first three lines say, and on the newest one. The other lines are run anew before a release:
`make release` refuses where the tool or a lesson has changed since.

| where | outcome | detail | commit | date |
|---|---|---|---|---|
"""
SEEN = """
import json, platform, sys
from importlib.metadata import version
versions = map(version, sys.argv[1:])
print(json.dumps([platform.machine(), platform.python_version(), *versions]))
"""
CODE = ["double_backward", "lessons_src", "notebooks/*.ipynb"]  # of which a line speaks


@dataclass
class Result:
    cell: str
    outcome: str  # "passed", "FAILED" or "not run"
    detail: str
    variables: dict = field(default_factory=dict)


def main(wanted="", arguments=()):
    if "--outdated" in arguments:
        sys.exit(outdated())
    results = []
    for name in chosen(wanted):
        if name in HERE:
            results.append(run(name, sys.executable, HERE[name]))
        else:
            results.append(elsewhere(name, *ELSEWHERE[name]))
    if "--unwritten" not in arguments:  # a check changes no file
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
    """The cell in an environment that uv makes, or in one of MATRIX_ENVS for another machine.

    What cannot be had is said, and with CI=true it is a failure: there "not run" would be a promise
    that nobody has looked at.
    """
    try:
        machine = MACHINES.get(name)
        interpreter = given(machine, python) if machine else make_environment(python, packages)
    except CannotBeMade as reason:
        outcome = "FAILED" if CI else "not run"
        return say(Result(name, outcome, f"no environment could be had: {reason}"))
    seen = subprocess.run([interpreter, "-c", SEEN, "torch"], capture_output=True, text=True)
    _, version, torch = json.loads(seen.stdout)
    hooks = [interpreter, "-m", "double_backward._torch"]
    moved = subprocess.run(hooks, capture_output=True, text=True, cwd=ROOT, env=surroundings({}))
    if moved.returncode:
        return say(Result(name, "FAILED", f"torch {torch}: {moved.stderr.strip()}"))
    return run(name, interpreter, {}, tests, f"Python {version}, torch {torch}: ")


def given(machine, python):
    """The Python of the first environment of MATRIX_ENVS that is for this machine."""
    for folder in filter(None, os.environ.get("MATRIX_ENVS", "").split(os.pathsep)):
        interpreter = Path(folder, "bin", "python")
        if not interpreter.exists():
            sys.exit(f"MATRIX_ENVS names {folder}, which has no bin/python.")
        seen = subprocess.run([interpreter, "-c", SEEN], capture_output=True, text=True, cwd=ROOT)
        versions = json.loads(seen.stdout or "[]")
        if versions and versions[0] == machine and begins_with(versions[1], python):
            return interpreter
    raise CannotBeMade(f"MATRIX_ENVS names none for {machine} and Python {python}")


def begins_with(version, wanted):
    """Whether 2.11.0+cpu is a 2.11, as it is; 2.1 it is not."""
    return re.match(re.escape(wanted) + r"(?!\d)", version) is not None


def run(name, python, variables, tests=LESSONS, versions=""):
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
    outcome = "FAILED" if done.returncode else "passed"
    return say(Result(name, outcome, versions + detail, variables))


def has_locale(name):
    """Without it, programs take C and say nothing: the cell would not be what it is called."""
    program = "import locale; locale.setlocale(locale.LC_ALL, '')"
    environment = {**os.environ, "LC_ALL": name}
    return subprocess.run([sys.executable, "-c", program], env=environment).returncode == 0


def surroundings(variables, folder=None):
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
    rows, today = read_table(), [commit(), date.today().isoformat()]
    for each in results:
        if each.outcome != "not run" or each.cell not in rows:
            rows[each.cell] = (each.outcome, each.detail, *today)
    order = [*HERE, *ELSEWHERE]
    lines = [f"| {name} | {' | '.join(rows[name])} |" for name in order if name in rows]
    TABLE.write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")


def read_table():
    """{cell: (outcome, detail, commit, date)} of MATRIX.md as it is."""
    if not TABLE.exists():
        return {}
    rows = TABLE.read_text(encoding="utf-8").partition("|---|---|---|---|---|\n")[2].splitlines()
    cells = [[part.strip() for part in row.strip("|").split("|")] for row in rows]
    return {name: tuple(row) for name, *row in cells}


def commit():
    """The one that is checked out; with a mark where the code that lines speak of differs."""
    changed = git("status", "--porcelain", "--", *CODE)
    return git("rev-parse", "--short=10", "HEAD") + " and changes" * bool(changed)


def outdated():
    """The lines whose code has changed since, in words; None if there are none."""
    old = [cell for cell, (_, _, at, _) in read_table().items() if has_changed_since(at)]
    return old and "\n".join(["docs/MATRIX.md speaks of other code in these lines:", *old]) or None


def has_changed_since(at):
    """Whether any code that a line speaks of is another one than at a commit."""
    if not re.fullmatch("[0-9a-f]+", at):
        return True
    done = subprocess.run(["git", "diff", "--quiet", at, "--", *CODE], cwd=ROOT)
    return done.returncode != 0


def git(*arguments):
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


if __name__ == "__main__":
    main(os.environ.get("CELLS", ""), sys.argv[1:])
