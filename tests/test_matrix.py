"""MATRIX.md is the table of `make matrix`, and SETUP.md promises what it shows."""

import platform
import re
import subprocess
import sys
from pathlib import Path

import matrix
import pytest
import torch_environment
import torch_wordings

ROOT = Path(__file__).resolve().parent.parent
SETUP = (ROOT / "docs" / "SETUP.md").read_text(encoding="utf-8")
ROWS = matrix.read_table()


def test_every_cell_has_its_line_and_none_failed():
    assert set(ROWS) == {*matrix.HERE, *matrix.ELSEWHERE}
    outcomes = {cell: row[0] for cell, row in ROWS.items()}
    assert [cell for cell in outcomes if outcomes[cell] not in ("passed", "not run")] == []


def test_every_line_says_of_which_code_it_speaks():
    for cell, (_, _, commit, date) in ROWS.items():
        assert re.fullmatch(r"[0-9a-f]{10}", commit), cell
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", date), cell


@pytest.mark.parametrize("package", ["Python", "PyTorch"])
def test_what_setup_calls_executed_has_passed(package):
    (executed,) = re.findall(r"Executed on Linux: (.*?)\.\s", SETUP.replace("\n", " "))
    passed = " ".join(cell for cell, row in ROWS.items() if row[0] == "passed")
    passed += " Python 3.11 PyTorch 2.13"  # the environment that `make test` is run in
    assert versions_of(package, executed) == versions_of(package, passed)


def test_the_newest_and_the_oldest_torch_are_named_where_they_have_to_be():
    hooks = (ROOT / "double_backward" / "_torch.py").read_text(encoding="utf-8")
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    oldest, newest = re.search(r'TESTED = "(.*) to (.*)"', hooks).groups()
    assert f'"torch>={oldest}"' in project
    assert ROWS[f"the tool alone: Python 3.11, torch {oldest}"][0] == "passed"
    outcome, detail, *_ = ROWS[matrix.THE_NEWEST]
    assert outcome == "passed" and f"torch {newest}." in detail


def test_what_lands_is_run_on_the_newest_torch():
    gate = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\ntorch: ")[2]
    assert re.search(r"^make torch$", gate, re.M)
    cells = re.search(r'CELLS="(.*)" \$\(RUN\) scripts/matrix.py', recipe)[1]
    cells = [matrix.ELSEWHERE[name] for name in matrix.chosen(cells)]
    assert [tests for _, _, tests in cells] == [matrix.ALL, matrix.COPIES]
    assert all(packages["torch"] == torch_environment.NEWEST for _, packages, _ in cells)


@pytest.mark.parametrize("end", ["each package at its lower bound", "the newest of each package"])
def test_the_lowest_and_the_newest_have_passed(end):
    assert "with the lowest and the newest version of each package" in SETUP.replace("\n", " ")
    assert [ROWS[cell][0] for cell in ROWS if cell.endswith(end)] == ["passed"]


def test_arm_has_passed_and_is_called_an_emulation():
    assert "ARM by emulation" in SETUP and "emulated" in matrix.ARM
    assert ROWS[matrix.ARM][0] == "passed"


def test_the_copies_for_colab_were_run_on_what_setup_says():
    (executed,) = re.findall(r"copies were executed with (.*?)\.\s", SETUP.replace("\n", " "))
    passed = " ".join(c for c in ROWS if c.startswith("copies") and ROWS[c][0] == "passed")
    for package in ("IPython", "Python", "PyTorch"):
        assert versions_of(package, executed) == versions_of(package, passed)


def versions_of(package, text):
    """The versions in `PyTorch 2.11, 2.12 and 2.13`, in each place where it stands like that."""
    lists = re.findall(rf"\b{package} ((?:\d[\d.]*(?:, | and )?)+)", text)
    return set(re.findall(r"\d+\.\d+", " ".join(lists)))


def test_every_other_torch_runs_all_tests_of_the_tool():
    cells = [cell for cell in matrix.ELSEWHERE.values() if cell[2] is not matrix.COPIES]
    others = [
        tests
        for _, packages, tests in cells
        if isinstance(packages, str) or packages.get("torch", "2.13") != "2.13"
    ]
    assert len(others) >= 7 and all(tests in (matrix.ALL, matrix.OF_THE_TOOL) for tests in others)
    of_the_tool = {f"tests/{path.name}" for path in ROOT.glob("tests/test_*.py") if names_it(path)}
    assert len(of_the_tool) > 20 and of_the_tool <= set(matrix.OF_THE_TOOL)


def names_it(path):
    """Whether a test imports one of the tool's own rooms, and is none of a lesson or of a
    catalogue."""
    text = path.read_text(encoding="utf-8")
    rooms = "check calls change compiled diagnosis graphs remedies trial untracked_steps _torch"
    rooms = rf"double_backward(\.\w+)*\.({'|'.join(rooms.split())})\b"
    tool = re.search(rf"^from {rooms}", text, re.M)
    return bool(tool) and not re.search("lesson|translations", path.name)


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A matrix of two cells, whose second has no environment."""
    monkeypatch.setattr(matrix, "TABLE", tmp_path / "MATRIX.md")
    monkeypatch.setattr(matrix, "HERE", {"here": {"LC_ALL": "C"}})
    monkeypatch.setattr(matrix, "ELSEWHERE", {"there": ("2.7", {"torch": "2.11"}, ["tests"])})
    monkeypatch.delenv("MATRIX_ENVS", raising=False)
    monkeypatch.setattr(matrix, "CI", False)  # whatever the machine that runs this says

    def cannot(python, packages):
        raise torch_environment.CannotBeMade(f"no Python {python}")

    monkeypatch.setattr(matrix, "make_environment", cannot)
    return tmp_path / "MATRIX.md"


def exit_code_of(monkeypatch, *arguments, outcome="passed"):
    result = lambda name, python, variables: matrix.Result(name, outcome, "2 tests")  # noqa: E731
    monkeypatch.setattr(matrix, "run", result)
    with pytest.raises(SystemExit) as stopped:
        matrix.main(*arguments)
    return stopped.value.code


def test_what_cannot_be_had_is_said_and_keeps_its_line(course, monkeypatch):
    assert exit_code_of(monkeypatch) == 0
    rows = matrix.read_table()
    assert rows["here"][:2] == ("passed", "2 tests")
    assert rows["there"][:2] == ("not run", "no environment could be had: no Python 2.7")
    matrix.write_table([matrix.Result("there", "passed", "3 tests")])
    assert exit_code_of(monkeypatch) == 0
    assert matrix.read_table()["there"][:2] == ("passed", "3 tests")


@pytest.mark.parametrize("ci, code", [(True, 1), (False, 0)])
def test_what_cannot_be_had_is_a_failure_where_a_change_lands(ci, code, course, monkeypatch):
    monkeypatch.setattr(matrix, "CI", ci)
    cell = (None, {"torch": torch_environment.NEWEST}, ["tests"])
    monkeypatch.setattr(matrix, "ELSEWHERE", {matrix.THE_NEWEST: cell})
    assert exit_code_of(monkeypatch, "newest", ["--unwritten"]) == code
    assert not course.exists()


def test_a_failure_is_in_the_table_and_in_the_exit_code(course, monkeypatch):
    assert exit_code_of(monkeypatch, "her", outcome="FAILED") == 1
    assert matrix.read_table()["here"][:2] == ("FAILED", "2 tests")
    course.unlink()
    assert exit_code_of(monkeypatch, "here", ["--unwritten"], outcome="FAILED") == 1
    assert not course.exists()


def test_a_line_whose_code_has_changed_since_stops_a_release(course, monkeypatch):
    monkeypatch.setattr(matrix, "commit", lambda: "0123456789")
    matrix.write_table([matrix.Result("here", "passed", "2 tests")])
    monkeypatch.setattr(matrix, "has_changed_since", lambda at: at == "0123456789")
    with pytest.raises(SystemExit, match="speaks of other code in these lines:\nhere"):
        matrix.main("", ["--outdated"])
    monkeypatch.setattr(matrix, "has_changed_since", lambda at: False)
    with pytest.raises(SystemExit) as stopped:
        matrix.main("", ["--outdated"])
    assert stopped.value.code is None


def test_code_has_changed_since_a_commit_that_is_not_known():
    assert matrix.has_changed_since("0123456789 and changes")
    assert matrix.has_changed_since("0" * 10)


def test_a_cell_called_so_runs_alone(monkeypatch):
    monkeypatch.setattr(matrix, "HERE", {"here, with a locale": {}})
    monkeypatch.setattr(matrix, "ELSEWHERE", {"torch 2.11": (), "copies on torch 2.11": ()})
    assert matrix.chosen("torch 2.11") == ["torch 2.11"]
    assert matrix.chosen("2.11") == ["torch 2.11", "copies on torch 2.11"]
    assert matrix.chosen("here") == ["here, with a locale"]
    assert len(matrix.chosen("")) == 3
    with pytest.raises(SystemExit, match="No cell's name has '2.1.1'"):
        matrix.chosen("2.1.1")


def test_a_variable_is_set_and_taken_away(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/somewhere")
    changed = matrix.surroundings({"HOME": matrix.UNSET, "LC_ALL": "C", "umask": "077"}, tmp_path)
    assert changed["LC_ALL"] == "C"
    assert "HOME" not in changed and "umask" not in changed
    assert matrix.surroundings({"HOME": "make_home"}, tmp_path)["HOME"].startswith(str(tmp_path))


def test_an_environment_for_another_machine_is_found_by_what_it_is(monkeypatch):
    monkeypatch.setenv("MATRIX_ENVS", sys.prefix)
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert matrix.given(platform.machine(), here) == Path(sys.prefix, "bin", "python")
    for machine, python in [(platform.machine(), "2.7"), ("pdp11", here)]:
        with pytest.raises(torch_environment.CannotBeMade, match="MATRIX_ENVS names none"):
            matrix.given(machine, python)
    monkeypatch.setenv("MATRIX_ENVS", "/nowhere")
    with pytest.raises(SystemExit, match="names /nowhere, which has no bin/python"):
        matrix.given(platform.machine(), here)


SMALL = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "small"
version = "1"
dependencies = ["iniconfig", "packaging"]
"""


@pytest.mark.slow
def test_an_environment_is_made_with_what_is_asked_for(tmp_path, monkeypatch):
    """Without torch, which takes gigabytes: what goes before the constraints does so for any."""
    monkeypatch.setattr(torch_environment, "HOME", tmp_path / "torch")
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "pyproject.toml").write_text(SMALL)
    monkeypatch.setattr(torch_environment, "COURSE", str(tmp_path / "small"))
    python = torch_environment.make_environment(None, {"packaging": "25"})
    program = "from importlib.metadata import version as v; print(v('packaging'), v('iniconfig'))"
    done = subprocess.run([python, "-c", program], capture_output=True, text=True, check=True)
    packaging, iniconfig = done.stdout.split()
    assert packaging.startswith("25.") and iniconfig == torch_wordings.pinned("iniconfig")
    with pytest.raises(torch_environment.CannotBeMade, match="no-such-package-of-ours"):
        torch_environment.make_environment(None, {"no-such-package-of-ours": "1"})
    with pytest.raises(torch_environment.CannotBeMade, match="2.7"):
        torch_environment.make_environment("2.7", {})


@pytest.mark.parametrize(
    ("version", "wanted", "same"),
    [
        ("2.11.0+cpu", "2.11", True),
        ("2.1.0", "2.11", False),
        ("2.11.0", "2.1", False),
        ("77.0.1", "77", True),
        ("3.11.2", "3.11.2", True),
        ("3.11.20", "3.11.2", False),
    ],
)
def test_a_version_is_one_of_those_wanted(version, wanted, same):
    assert matrix.begins_with(version, wanted) == same


def test_a_locale_that_is_missing_is_said():
    assert matrix.run("it", sys.executable, {"LC_ALL": "tlh_QS.UTF-8"}).outcome == "not run"
