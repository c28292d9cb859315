"""Around the course: what is checked elsewhere, the version, what a contributor is told."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import double_backward

ROOT = Path(__file__).resolve().parent.parent
VERSION = double_backward.__version__
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z]+):", MAKEFILE, re.M))
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def steps(workflow):
    for job in yaml.safe_load(workflow.read_text())["jobs"].values():
        yield from job["steps"]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_runs_what_a_reader_can_run(workflow):
    told = "".join(
        (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/SETUP.md")
    )
    runs = [step["run"] for step in steps(workflow) if "run" in step]
    assert runs
    for run in runs:
        target = re.fullmatch(r"make (\w+)( \w+=.+)?", run)
        assert (target and target[1] in TARGETS) or run in told


def test_every_target_is_told():
    told = "".join(
        (ROOT / name).read_text() for name in ("README.md", "docs/SETUP.md", "CONTRIBUTING.md")
    )
    assert {t for t in TARGETS if f"make {t}" not in told} <= {"environment"}


def test_the_version_is_the_same_everywhere():
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == VERSION
    assert re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.M)[1] == VERSION


def test_hooks_ask_no_network():
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    (local,) = config["repos"]
    assert local["repo"] == "local"
    assert {hook["language"] for hook in local["hooks"]} == {"system"}


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/MAINTAINING.md"])
def test_what_contributors_are_sent_to_is_there(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    named = re.findall(r"`((?:[\w.]+/)+[\w.]*|\w+\.(?:py|md|txt|toml))`", text)
    made = {".venv/", ".torch/", ".venv/bin/python", "build/release/", "build/workshop/slides/"}
    assert len(named) > 15
    assert [name for name in set(named) - made if not (ROOT / name).exists()] == []


def test_every_module_of_a_diagnosis_has_its_place_in_the_order():
    assert [module for module, place in order_of_a_diagnosis().items() if place < 0] == []


def test_a_module_of_a_diagnosis_imports_only_what_is_named_before_it():
    order = order_of_a_diagnosis()
    assert [
        f"{module} imports {other}"
        for module in order
        for other in imported(MODULES[module]) & order.keys()
        if order[other] > order[module]
    ] == []


TOOL = ROOT / "double_backward"
ROOMS = TOOL, TOOL / "diagnosis", *(TOOL / "diagnosis").glob("[a-z]*/")
MODULES = {p.stem: p for room in ROOMS for p in room.glob("*.py")}


def order_of_a_diagnosis():
    """Module -> where CONTRIBUTING.md names it first; -1 if it does not."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    told = text.partition("## How a diagnosis is made")[2].partition("\n## ")[0]
    doors = {"__init__", "__main__", "_torch", "pytest_plugin"}  # and the map
    found = {m: re.search(rf"[`/]{m}`", told) for m in MODULES.keys() - doors}
    return {module: place.start() if place else -1 for module, place in found.items()}


def imported(path):
    """The modules of the two rooms that a file imports at its head."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            module = (node.module or "").rpartition(".")[2]
            names = {alias.name for alias in node.names}
            found |= names if module in ("", *(room.name for room in ROOMS)) else {module}
    return found


def test_only_check_has_tolerances():
    """Tables by dtype and numbers for rtol and atol; `differences` has the steps it takes."""
    package, found = Path(double_backward.__file__).parent, []
    for path in sorted(package.rglob("*.py")):
        if path.name in ("check.py", "differences.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            found += [f"{path.name}:{node.lineno}" for _ in _tolerances(node)]
    assert found == []


def _tolerances(node):
    if isinstance(node, ast.Dict):
        keys = [k for k in node.keys if k is not None]
        yield from [k for k in keys if re.search(r"torch\.(float|complex)", ast.unparse(k))]
    called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
    if "allclose" in called:
        yield node
    if called.split(".")[-1] in ("apart", "agree", "compared"):
        parts = [part for a in node.args for part in ast.walk(a) if isinstance(part, ast.Constant)]
        yield from [part for part in parts if isinstance(part.value, float)]
    for keyword in getattr(node, "keywords", []):
        number = isinstance(keyword.value, ast.Constant) and keyword.value.value
        if keyword.arg in ("rtol", "atol") and number:
            yield keyword


def test_a_quick_test_that_starts_python_is_told_to_be_slow():
    """One that imports torch takes three seconds for that alone; tests/conftest.py has a list."""
    with pytest.raises(pytest.fail.Exception, match="mark it slow"):
        subprocess.run([sys.executable, "-c", "import torch"], check=True)


def test_to_find_the_tests_imports_no_dynamo(request):
    """Three seconds of each worker: who needs it imports it in a test, or in a process."""
    assert not request.config.has_dynamo


def test_all_that_a_target_needs_has_a_rule():
    targets = set(MAKEFILE.split(".PHONY:")[1].split("\n\n")[0].replace("\\\n", " ").split())
    needed = re.findall(
        r"^([a-z][a-z+ ]*):(?: (.+))?$", MAKEFILE.replace("\\\n", " "), re.MULTILINE
    )
    assert {name for names, _ in needed for name in names.split()} == targets
    assert {name for _, names in needed for name in names.split()} <= targets


def test_no_module_of_the_tool_gives_one_name_to_two_constants():
    """The second would take the place of the first, and a tolerance be another one."""
    for path in TOOL.rglob("*.py"):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        targets = [t for node in body if isinstance(node, ast.Assign) for t in node.targets]
        names = [t.id for t in targets if isinstance(t, ast.Name) and t.id.isupper()]
        assert sorted(names) == sorted(set(names)), path


OURS = "double_backward", "lessons_src", "editions", "survey"


def private_names(source):
    """Of our modules, that a test imports or reads; `_torch` is a module of its own."""
    nodes, modules = list(ast.walk(ast.parse(source))), set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in OURS:
            names = [alias.name for alias in node.names]
            modules |= {alias.asname or alias.name for alias in node.names}
            yield from (name for name in names if re.match("_(?!_|torch$)", name))
    read = [node for node in nodes if isinstance(node, ast.Attribute)]
    for node in read:
        named = isinstance(node.value, ast.Name) and node.value.id in modules
        if named and re.match("_(?!_)", node.attr):
            yield f"{node.value.id}.{node.attr}"


def test_no_test_reads_a_private_name_of_ours():
    found = {(path.name, name) for path in (ROOT / "tests").glob("*.py")
             for name in private_names(path.read_text(encoding="utf-8"))}  # fmt: skip
    assert found == set()
    seen = private_names("from double_backward import _torch, calls\ncalls._pending; _torch.nodes")
    assert list(seen) == ["calls._pending"]


def test_a_constant_of_the_tool_has_a_name_of_its_own():
    """One that two modules define means two things, and whoever reads one thinks of the other."""
    homes = {}
    for path in TOOL.rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            for target in getattr(node, "targets", [getattr(node, "target", None)]):
                for name in ast.walk(target) if isinstance(target, ast.AST) else ():
                    if isinstance(name, ast.Name) and re.fullmatch("[A-Z][A-Z_]+", name.id):
                        homes.setdefault(name.id, set()).add(path.name + str(path.parent.name))
    assert len(homes) > 100
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}
