"""What is installed as `double_backward`: the tool, without the course."""

import ast
import email
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
import torch

import double_backward

ROOT = Path(__file__).resolve().parent.parent
MODULES = sorted((ROOT / "double_backward").rglob("*.py"))
DATA = {"double_backward/py.typed", "double_backward/zh_CN.mo", "double_backward/graphs/zh_CN.mo"}
# What an import could change for everybody else in the process.
STATE = """
import logging, sys, warnings
import numpy, torch, torch.func
from torch.autograd import function

def state():
    loggers = logging.root.manager.loggerDict.items()
    owners = [torch, torch.autograd, torch.autograd.graph, torch.Tensor, torch.nn.Module]
    owners += [function.Function, function.FunctionMeta, function.BackwardCFunction]
    return {
        "filters": list(warnings.filters),
        "loggers": {n: str(logger) for n, logger in loggers if not n.startswith("double")},
        "handlers": list(logging.root.handlers),
        "members": {o: {n: id(v) for n, v in vars(o).items()} for o in owners},
        "random": torch.get_rng_state().tolist(),
        "hooks": (sys.excepthook, sys.displayhook, sys.path[:], torch.is_grad_enabled()),
    }

before = state()
import double_backward
assert sorted(m for m in sys.modules if m.startswith("double_backward")) == ["double_backward"]
for name in double_backward.__all__:
    getattr(double_backward, name)
import double_backward.pytest_plugin
after = state()
print([name for name in before if before[name] != after[name]])
"""
USER = """
import torch

import double_backward
from double_backward import (
    Diagnosis,
    Drawing,
    Finding,
    SecondDerivativeError,
    StepDiagnosis,
    UncheckedFunctionWarning,
    Verdict,
    assert_all_double_backward,
    assert_double_backward,
    detect_intermediates,
    diagnose,
    diagnose_all,
    draw,
    draw_backward,
    recompute_intermediates,
)


def step() -> None:
    x = torch.ones(2, requires_grad=True)
    with detect_intermediates(), recompute_intermediates():
        torch.autograd.grad((x**2).sum(), x)


x = torch.ones(2, requires_grad=True)
found: Diagnosis = diagnose(torch.sin, x, order=3)
table: StepDiagnosis = diagnose_all(step, ignore=[torch.autograd.Function], progress=False)
verdict: Verdict = table["Square"].verdict
line: int = table.rows[0].place.line
data: dict[str, object] = table.to_dict()
version: str = double_backward.__version__
draw(x=x).save("graph.svg")
draw_backward(x=x).save("graph.svg")
assert_double_backward(torch.sin, x)
assert_all_double_backward(step)
error: type[RuntimeError] = SecondDerivativeError
warning: type[UserWarning] = UncheckedFunctionWarning
drawing: Drawing = draw(x=x)
cause: Finding | None = found.cause
assert_double_backward(torch.sin, x, order=3, rtol=1e-3, atol=0.0, ignore=[], timeout=None)
assert_all_double_backward(step, ignore=[], rtol=None, atol=1e-6, timeout=10.0)
table = diagnose_all(step, ignore=[], progress=False, rtol=1e-3, atol=0.0, timeout=None)
with detect_intermediates(ignore=[torch.autograd.Function, "name"]):
    pass
"""
MISTAKES = """
reveal_type(diagnose)
diagnose(torch.sin, x, order="3")
diagnose_all(step()).rows
assert_double_backward(torch.sin, x, ordr=3)
assert_all_double_backward(step, timeout="long")
diagnose_all(step, order=3)
double_backward.diagnoze
"""
USES = """
import sys
import torch
from double_backward import detect_intermediates, diagnose, draw
print(sorted({m.split(".")[0] for m in sys.modules} & {"scipy", "matplotlib", "lessons_src"}))
x = torch.tensor([0.5, 1.0], dtype=torch.float64, requires_grad=True)
print(diagnose(torch.sin, x).verdict)
with detect_intermediates():
    print(draw(x=x, out=x**2).outline.splitlines()[0])
"""


def imports(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module


def run(*command, **options):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_tool_never_imports_the_course():
    assert len(MODULES) > 20
    named = {(path.name, name) for path in MODULES for name in imports(path)}
    assert [each for each in named if each[1].split(".")[0] == "lessons_src"] == []


def test_dir_lists_the_tools_and_each_can_be_imported():
    listed = [name for name in dir(double_backward) if not name.startswith("__")]
    assert listed == sorted(double_backward.__all__)
    for name in double_backward.__all__:
        assert getattr(double_backward, name).__name__ == name
    with pytest.raises(AttributeError, match="has no attribute 'diagnoze'"):
        _ = double_backward.diagnoze


@pytest.mark.slow
def test_importing_it_changes_nothing():
    assert run(sys.executable, "-c", STATE) == "[]\n"


@pytest.mark.slow
def test_a_user_of_mypy_strict_sees_types(tmp_path):
    (tmp_path / "user.py").write_text(USER)
    (tmp_path / "wrong.py").write_text(USER + MISTAKES)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path / "cache"]
    run(*command, "user.py", cwd=tmp_path)
    done = subprocess.run([*command, "wrong.py"], cwd=tmp_path, capture_output=True, text=True)
    for said in (
        'order" to "diagnose" has incompatible type "str"; expected "int"',
        '"step" does not return a value',
        'Unexpected keyword argument "ordr" for "assert_double_backward"',
        '"timeout" to "assert_all_double_backward" has incompatible type "str"',
        'Unexpected keyword argument "order" for "diagnose_all"',
        'Module has no attribute "diagnoze"',
    ):
        assert said in done.stdout


def test_the_user_above_uses_every_public_name():
    assert [name for name in double_backward.__all__ if name not in USER] == []


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """What git knows of, without what is large and in no package."""
    source = tmp_path_factory.mktemp("source")
    names = run("git", "ls-files", "-co", "--exclude-standard", cwd=ROOT).splitlines()
    for name in names:
        if (ROOT / name).is_file() and not name.startswith(("notebooks", "survey")):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    return source


@pytest.fixture(scope="module")
def wheel(source, tmp_path_factory):
    """Built as pip builds it, with the setuptools that is here."""
    built = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    run(*command, "--wheel-dir", built, source)
    (path,) = built.glob("double_backward-*.whl")
    return path


@pytest.mark.slow
def test_the_wheel_holds_the_tool_and_asks_for_torch_and_numpy(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (archive.read(n) for n in names if n.endswith("METADATA"))
        (entries,) = (archive.read(n) for n in names if n.endswith("entry_points.txt"))
    told = email.message_from_bytes(metadata)
    own = {n for n in names if ".dist-info/" not in n}
    assert own == {p.relative_to(ROOT).as_posix() for p in MODULES} | DATA
    needed = [text.split(";") for text in told.get_all("Requires-Dist")]
    assert sorted(n[0].split(">=")[0] for n in needed if len(n) == 1) == ["numpy", "torch"]
    drawn = [n[0].split(">=")[0] for n in needed if n[1:] == [' extra == "draw"']]
    assert drawn == ["pygraphviz"]
    assert told["Version"] == double_backward.__version__
    assert entries.decode().split() == [
        "[pytest11]",
        "double_backward",
        "=",
        "double_backward.pytest_plugin",
    ]


@pytest.mark.slow
def test_what_make_release_builds_is_what_pypi_takes(source, tmp_path):
    """The wheel is made from the sdist, so that whoever builds from this gets the same."""
    for name in ("build.util", "twine"):  # `make check` brings them
        pytest.importorskip(name)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", tmp_path, cwd=source)
    run(sys.executable, "-m", "twine", "check", "--strict", *tmp_path.iterdir())
    (path,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
        told = archive.extractfile(f"{path.name.removesuffix('.tar.gz')}/PKG-INFO").read().decode()
    modules = {p.relative_to(ROOT).as_posix() for p in MODULES}
    assert modules | DATA | {"LICENSE"} <= names
    assert not [name for name in names if name.startswith(("tests", "notebooks", "lessons_src"))]
    head, _, body = told.partition("\n\n")
    assert "Author: the authors of double-backward" in head and "Keywords: " in head
    # Pictures and links to files of the repository would lead nowhere there.
    links = re.findall(r'\]\(([^)]+)\)|src="([^"]+)"|href="([^"]+)"', body)
    assert body.startswith("# double-backward") and not [
        target for target in map("".join, links) if not target.startswith("https://")
    ]


@pytest.mark.slow
def test_it_works_in_an_environment_that_has_torch_and_numpy_alone(wheel, tmp_path):
    """torch and what it imports come from here, by a path of links: a copy has 700 MB."""
    venv.create(tmp_path / "bare", with_pip=False)
    python = next((tmp_path / "bare").glob("*/python"))
    packages = Path(
        run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))")[:-1]
    )
    here = Path(torch.__file__).parent.parent
    for name in ("torch", "torchgen", "numpy", "numpy.libs", "typing_extensions.py", "sympy"):
        if (here / name).exists():
            (packages / name).symlink_to(here / name)
    for name in ("mpmath", "filelock", "networkx", "jinja2", "fsspec", "markupsafe", "functorch"):
        if (here / name).exists():
            (packages / name).symlink_to(here / name)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    said = run(python, "-c", USES, cwd=tmp_path).splitlines()
    assert said[:2] == ["[]", "supported"] and said[2].startswith("Graph of x and out")
    (tmp_path / "train.py").write_text("print('trained')")
    assert run(python, "-m", "double_backward", "train.py", cwd=tmp_path) == "trained\n"
