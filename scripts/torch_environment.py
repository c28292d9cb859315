"""Environments with another torch, or with other packages, made by uv in seconds.

`make matrix` and `make torch` run the tests in them. The versions are those of constraints.txt, but
for what is asked for, and for what torch itself brings: that fits the torch. Whether a version is
the newest is asked of the registry each time, and nothing is kept from one time to the next but
what uv has in its cache.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".torch"
NEWEST, LOWEST = "newest", "lowest"  # the version of one package, or of all
COURSE = f"{ROOT}[draw,course,lab,test,workshop]"


class CannotBeMade(Exception):
    """There is no such Python, no such version, or no registry; the text says which."""


def make_environment(python, packages):
    """The Python of a new environment, as a path. The next call makes another one in its place.

    Args:
        python: its version, or None for the one that runs this.
        packages: dict, name -> the beginning of its version, or NEWEST; or NEWEST or LOWEST for
            each package that pyproject.toml names.

    Raises:
        CannotBeMade: in words, what uv says last.
    """
    shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir()
    _uv("venv", "--python", python or sys.executable, HOME / "venv")
    interpreter = HOME / "venv" / "bin" / "python"
    install = "pip", "install", "--python", interpreter
    if isinstance(packages, str):
        resolution = "highest" if packages == NEWEST else "lowest-direct"
        _uv(*install, "--resolution", resolution, "--editable", COURSE, ROOT / "scripts" / "dot")
        return interpreter
    if packages:
        _uv(*install, *(_wanted(name, version) for name, version in packages.items()))
    fixed = _installed(interpreter)
    pinned = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    others = [line for line in pinned if _name(line) not in map(_name, fixed)]
    constraints, overrides = HOME / "constraints.txt", HOME / "overrides.txt"
    constraints.write_text("\n".join([*others, *fixed]) + "\n", encoding="utf-8")
    # The course asks for a newer torch than the tool does, whose tests run in it all the same.
    overrides.write_text("\n".join(fixed) + "\n", encoding="utf-8")
    told = "--constraints", constraints, "--overrides", overrides
    _uv(*install, *told, "--editable", COURSE, ROOT / "scripts" / "dot")
    return interpreter


def _wanted(name, version):
    return name if version == NEWEST else f"{name}=={version}.*"


def _installed(interpreter):
    """What is there, as lines of a constraints file."""
    return _uv("pip", "freeze", "--python", interpreter).split()


def _name(line):
    """Of a line of a constraints file, as PyPI compares names."""
    return re.sub(r"[-_.]+", "-", line.partition("==")[0]).lower()


def _uv(*arguments):
    command = [sys.executable, "-m", "uv", *map(str, arguments), "--no-progress"]
    environment = {**os.environ, "UV_PYTHON_DOWNLOADS": "never"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    if done.returncode:
        said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        raise CannotBeMade(" ".join(said[-3:]) or f"uv ended with status {done.returncode}")
    return done.stdout
