"""The environment: three files that agree, a `dot` for machines without one."""

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import graphviz
import make_environment
import pip_settings
import pytest
import yaml
from installed import INSTALLED, needs, reached
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
PROJECT = tomllib.loads(PYPROJECT)["project"]
GROUPS = {"base": PROJECT["dependencies"], **PROJECT["optional-dependencies"]}
REQUIREMENTS = [Requirement(text) for group in GROUPS.values() for text in group]
PINS = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split())
OURS = {"double-backward", "double-backward-dot"}
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


# As markers have it: what is installed where the course may be.
SYSTEMS = {
    "Linux": {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"},
    "macOS": {"sys_platform": "darwin", "platform_system": "Darwin", "os_name": "posix"},
    "Windows": {"sys_platform": "win32", "platform_system": "Windows", "os_name": "nt"},
}
PYTHONS = [f"3.{n}" for n in range(make_environment.OLDEST[1], make_environment.NEWEST[1] + 1)]
CANONICAL = {canonicalize_name(name): version for name, version in PINS.items()}


@pytest.mark.parametrize("system", SYSTEMS)
def test_everything_that_comes_along_is_pinned(system):
    """On every system, whichever this is: appnope comes on macOS only, colorama on Windows."""
    roots = [(canonicalize_name(r.name), ("", *r.extras)) for r in REQUIREMENTS]
    for python in PYTHONS[0], PYTHONS[-1]:
        versions = {"python_version": python, "python_full_version": python + ".0"}
        names = reached(roots, default_environment() | SYSTEMS[system] | versions)
        assert {"torch", "tornado", "numpy"} <= names  # the walk gets somewhere
        assert names - {"pip"} - set(CANONICAL) == set()


@in_our_venv
def test_everything_installed_is_at_its_pin():
    """Or is what torch brings: PyPI's build for Linux has CUDA's packages, at its own versions."""
    torchs = reached(needs("torch", [""], default_environment()), default_environment())
    for name, package in INSTALLED.items():
        if name not in OURS | {"pip", "wheel"} and not (name in torchs and name not in CANONICAL):
            assert (name, package.version.split("+")[0]) == (name, CANONICAL.get(name))


def test_every_pin_takes_every_python_that_is_promised():
    """As far as it is known here: a package that is installed says which Pythons it takes."""
    first = [python + ".0" for python in PYTHONS]
    refused = [
        (name, python, INSTALLED[name].metadata["Requires-Python"])
        for name, version in CANONICAL.items()
        if name in INSTALLED and INSTALLED[name].version.split("+")[0] == version
        for python in first
        if python not in SpecifierSet(INSTALLED[name].metadata["Requires-Python"] or "")
    ]
    assert refused == []


def test_the_pythons_are_those_of_the_readme():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    start = readme[readme.index("## Start") : readme.index("## The lessons")]
    assert f"Python {PYTHONS[0]} to {PYTHONS[-1]}" in start
    assert PROJECT["requires-python"] == f">={PYTHONS[0]}"


# What uv calls them, and the oldest of each that torch's wheels name.
PLATFORMS = [
    "x86_64-manylinux_2_28",
    "aarch64-manylinux_2_28",
    "aarch64-apple-darwin",
    "x86_64-pc-windows-msvc",
]


@pytest.mark.slow
@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("python", [PYTHONS[0] + ".0", PYTHONS[-1] + ".0"])
def test_every_pin_has_a_wheel(python, platform, tmp_path):
    """All pins fit together and have wheels, for each Python and machine: the indexes say so."""
    told = pip_settings.told_to(sys.executable)
    told.pop("find-links", None)  # a wheel on disk is for this machine only
    options, variables = pip_settings.translated(told, os.environ)
    command = [PROGRAMS / "uv", "pip", "compile", "pyproject.toml", "-o", tmp_path / "chosen"]
    command += ["-c", "constraints.txt", "--only-binary", ":all:", "--no-config"]
    command += [part for extra in GROUPS if extra != "base" for part in ("--extra", extra)]
    command += ["--python-version", python, "--python-platform", platform]
    command += ["--index-strategy", "unsafe-best-match", *options]
    command += ["--cache-dir", tmp_path.parent / "uv"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | variables | {"MACOSX_DEPLOYMENT_TARGET": "14.0"},
        capture_output=True,
        text=True,
    )
    if "error sending request" in done.stderr or "dns error" in done.stderr:
        pytest.skip("no network: the indexes cannot be asked")
    assert done.returncode == 0, done.stderr
    chosen = dict(re.findall(r"^([\w.-]+)==(\S+)", (tmp_path / "chosen").read_text(), re.M))
    assert PINS["torch"] == chosen["torch"].split("+")[0] and len(chosen) > 100


def test_conda_environment_agrees():
    packages = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    python = packages[0].removeprefix("python=")
    assert Requirement(f"python{PROJECT['requires-python']}").specifier.contains(python + ".0")
    assert packages[1:3] == ["graphviz", "pip"]  # no version but Python's: the rest is pip's
    # A hub that builds an image from it brings its own JupyterHub, and publishes nothing.
    apart = {"workshop", "site", "release"}
    groups = ",".join(group for group in PROJECT["optional-dependencies"] if group not in apart)
    assert packages[3]["pip"] == [
        f"--extra-index-url {make_environment.TORCH_INDEX}",
        "-c constraints.txt",
        f"-e .[{groups}]",
    ]


@pytest.mark.parametrize("module", [make_environment, pip_settings], ids=lambda m: m.__name__)
def test_old_python_can_read_the_script(module):
    ast.parse(Path(module.__file__).read_text(encoding="utf-8"), feature_version=(3, 6))


def test_kernels_look_for_programs_here_last():
    spec = json.loads((PROGRAMS.parent / "share/jupyter/kernels/python3/kernel.json").read_text())
    assert spec["env"]["PATH"] == "${PATH}" + os.pathsep + str(PROGRAMS)


def run_dot(*folders):
    return subprocess.run(
        [PROGRAMS / "dot", "-Tsvg"],
        input=b"digraph { a -> b }",
        capture_output=True,
        timeout=300,  # one that starts itself again would never end
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


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no git checkout")
def test_files_have_the_same_bytes_where_git_writes_the_line_ends_of_windows(tmp_path):
    """Copies, sums and comparisons of files are of bytes."""
    clone = ["git", "-c", "core.autocrlf=true", "clone", "--quiet", str(ROOT), str(tmp_path)]
    subprocess.run(clone, check=True)
    texts = [*tmp_path.rglob("*.py"), *tmp_path.rglob("*.ipynb"), *tmp_path.rglob("*.svg")]
    assert len(texts) > 50
    assert [path for path in texts if b"\r\n" in path.read_bytes()] == []
