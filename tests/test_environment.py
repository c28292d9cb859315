"""The environment: three files that agree, a light import, a `dot` for machines without one."""

import ast
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import graphviz
import make_environment
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
PROJECT = tomllib.loads(PYPROJECT)["project"]
GROUPS = {"base": PROJECT["dependencies"], **PROJECT["optional-dependencies"]}
REQUIREMENTS = [Requirement(text) for group in GROUPS.values() for text in group]
PINS = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split())
OURS = {"double-backward-course", "double-backward-dot"}
PROGRAMS = Path(sys.executable).parent
in_our_venv = pytest.mark.skipif(
    Path(sys.prefix) != ROOT / ".venv", reason="another environment than the one `make` makes"
)


@pytest.mark.parametrize("requirement", REQUIREMENTS, ids=lambda requirement: requirement.name)
def test_requirement_is_pinned_above_its_lower_bound(requirement):
    assert {part.operator for part in requirement.specifier} == {">="}
    assert PINS[requirement.name] in requirement.specifier


def test_every_lower_bound_has_a_reason():
    for text in (text for group in GROUPS.values() for text in group):
        assert re.search(rf'^\s*"{re.escape(text)}",\s+# \w+', PYPROJECT, re.MULTILINE), text


@in_our_venv
def test_everything_installed_is_pinned():
    pins = {canonicalize_name(name): version for name, version in PINS.items()}
    for package in importlib.metadata.distributions():
        name = canonicalize_name(package.metadata["Name"])
        if name not in OURS | {"pip", "wheel"}:
            assert (name, package.version.split("+")[0]) == (name, pins.get(name))


def test_conda_environment_agrees():
    packages = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    python = packages[0].removeprefix("python=")
    assert Requirement(f"python{PROJECT['requires-python']}").specifier.contains(python + ".0")
    assert packages[1:3] == ["graphviz", "pip"]  # no version but Python's: the rest is pip's
    # A hub that builds an image from it brings its own JupyterHub.
    groups = ",".join(group for group in PROJECT["optional-dependencies"] if group != "workshop")
    assert packages[3]["pip"] == [
        f"--extra-index-url {make_environment.TORCH_INDEX}",
        "-c constraints.txt",
        f"-e .[{groups}]",
    ]


def test_script_asks_for_the_python_that_the_package_needs():
    assert PROJECT["requires-python"] == ">=3.11"
    assert "sys.version_info >= (3, 11)" in Path(make_environment.__file__).read_text()


def test_old_python_can_read_the_script():
    ast.parse(Path(make_environment.__file__).read_text(encoding="utf-8"), feature_version=(3, 6))


def test_import_is_light():
    """`import lessons_src` brings only what `import torch` has brought already, and our modules."""
    code = (
        "import sys, torch; before = set(sys.modules); import lessons_src;"
        "print([m for m in set(sys.modules) - before if m.split('.')[0] != 'lessons_src'])"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert printed.stdout.strip() == "[]", printed.stderr


def test_kernels_look_for_programs_here_last():
    spec = json.loads((PROGRAMS.parent / "share/jupyter/kernels/python3/kernel.json").read_text())
    assert spec["env"]["PATH"] == "${PATH}" + os.pathsep + str(PROGRAMS)


def run_dot(*folders):
    return subprocess.run(
        [PROGRAMS / "dot", "-Tsvg"],
        input=b"digraph { a -> b }",
        capture_output=True,
        timeout=20,
        env=os.environ | {"PATH": os.pathsep.join(map(str, folders))},
    )


@in_our_venv
def test_stand_in_dot_draws_and_never_starts_itself():
    drawn = run_dot(PROGRAMS, PROGRAMS, "/usr/bin", "/bin")
    assert (drawn.returncode, drawn.stderr) == (0, b"")
    assert drawn.stdout.count(b'class="node"') == 2


@in_our_venv
def test_real_dot_wins(tmp_path):
    real = tmp_path / "dot"
    real.write_text("#!/bin/sh\necho real\n")
    real.chmod(0o755)
    assert run_dot(PROGRAMS, tmp_path, "/usr/bin", "/bin").stdout == b"real\n"


def test_library_graphviz_draws():
    assert graphviz.Source("digraph { a -> b }").pipe(format="svg").count(b'class="node"') == 2
