"""MATRIX.md is the table of `make matrix`, and SETUP.md promises what it shows."""

import platform
import re
import sys
from pathlib import Path

import matrix
import pytest

ROOT = Path(__file__).resolve().parent.parent
SETUP = (ROOT / "docs" / "SETUP.md").read_text(encoding="utf-8")
ROWS = matrix.read_table()


def test_every_cell_has_its_line_and_none_failed():
    assert set(ROWS) == {*matrix.HERE, *matrix.ELSEWHERE}
    assert [
        cell for cell, (outcome, _) in ROWS.items() if outcome not in ("passed", "not run")
    ] == []


@pytest.mark.parametrize("package", ["Python", "PyTorch"])
def test_what_setup_calls_executed_has_passed(package):
    (executed,) = re.findall(r"Executed on Linux: (.*?)\.\s", SETUP.replace("\n", " "))
    passed = " ".join(cell for cell, (outcome, _) in ROWS.items() if outcome == "passed")
    passed += " Python 3.11 PyTorch 2.13"  # the environment that `make test` is run in
    assert versions_of(package, executed) == versions_of(package, passed)


def test_the_newest_torch_is_named_where_it_has_to_be():
    passed = " ".join(cell for cell, (outcome, _) in ROWS.items() if outcome == "passed")
    newest = max(versions_of("PyTorch", passed), key=lambda name: int(name.partition(".")[2]))
    hooks = (ROOT / "double_backward" / "_torch.py").read_text(encoding="utf-8")
    weekly = (ROOT / ".github" / "workflows" / "weekly.yml").read_text(encoding="utf-8")
    assert re.search(r'TESTED = ".* to (.*)"', hooks)[1] == newest
    assert re.search(r'torch: \[.*"(\d+\.\d+)\.\d+"\]', weekly)[1] == newest


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
    passed += " IPython 7.34 Python 3.11 PyTorch 2.13"  # by `make check`
    for package in ("IPython", "Python", "PyTorch"):
        assert versions_of(package, executed) == versions_of(package, passed)


def versions_of(package, text):
    """The versions in `PyTorch 2.11, 2.12 and 2.13`, in each place where it stands like that."""
    lists = re.findall(rf"\b{package} ((?:\d[\d.]*(?:, | and )?)+)", text)
    return set(re.findall(r"\d+\.\d+", " ".join(lists)))


def test_every_other_torch_runs_all_tests_of_the_tool():
    pinned = matrix.begins_with
    torches = {name: cell for name, cell in matrix.ELSEWHERE.items() if "torch" in cell[1]}
    lessons = [c for c in torches.values() if c[2] is not matrix.COPIES]
    others = [tests for _, packages, tests in lessons if not pinned("2.13", packages["torch"])]
    assert len(others) >= 5 and all(tests is matrix.ALL for tests in others)
    of_the_tool = {f"tests/{path.name}" for path in ROOT.glob("tests/test_*.py") if names_it(path)}
    assert len(of_the_tool) > 20 and of_the_tool <= set(matrix.ALL)


def names_it(path):
    """Whether a test imports one of the tool's own rooms, and is none of a lesson."""
    text = path.read_text(encoding="utf-8")
    rooms = "check calls change compiled diagnosis graphs remedies trial untracked_steps _torch"
    rooms = rf"double_backward(\.\w+)*\.({'|'.join(rooms.split())})\b"
    tool = re.search(rf"^from {rooms}", text, re.M)
    return bool(tool) and "lesson" not in path.name


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A matrix of two cells, whose pytest is a program that says what it was given."""
    monkeypatch.setattr(matrix, "TABLE", tmp_path / "MATRIX.md")
    monkeypatch.setattr(matrix, "HERE", {"here": {"LC_ALL": "C"}})
    monkeypatch.setattr(matrix, "ELSEWHERE", {"there": ("3.11", {"torch": "2.11"}, ["tests"])})
    monkeypatch.delenv("MATRIX_ENVS", raising=False)
    return tmp_path / "MATRIX.md"


def exit_code_of(monkeypatch, *arguments, outcome="passed"):
    result = lambda name, python, variables: matrix.Result(name, outcome, "2 tests")  # noqa: E731
    monkeypatch.setattr(matrix, "run", result)
    with pytest.raises(SystemExit) as stopped:
        matrix.main(*arguments)
    return stopped.value.code


def test_what_cannot_be_had_is_said_and_keeps_its_line(course, monkeypatch):
    assert exit_code_of(monkeypatch) == 0
    assert matrix.read_table() == {
        "here": ("passed", "2 tests"),
        "there": ("not run", "no environment in MATRIX_ENVS has it"),
    }
    matrix.write_table([matrix.Result("there", "passed", "3 tests")])
    assert exit_code_of(monkeypatch) == 0
    assert matrix.read_table()["there"] == ("passed", "3 tests")


def test_a_failure_is_in_the_table_and_in_the_exit_code(course, monkeypatch):
    assert exit_code_of(monkeypatch, "her", outcome="FAILED") == 1
    assert matrix.read_table()["here"] == ("FAILED", "2 tests")
    course.unlink()
    assert exit_code_of(monkeypatch, "here", outcome="FAILED") == 1
    assert not course.exists()


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


def test_an_environment_is_found_by_what_it_has(course, monkeypatch):
    monkeypatch.setenv("MATRIX_ENVS", sys.prefix)
    monkeypatch.setattr(matrix, "MACHINES", dict.fromkeys(["it", "another"], platform.machine()))
    monkeypatch.setattr(matrix, "run", lambda name, python, variables, tests: (python, tests))
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    found = matrix.elsewhere("it", here, {"pytest": pytest.__version__}, ["tests"])
    assert found == (Path(sys.prefix, "bin", "python"), ["tests"])
    for python, packages in [("2.7", {}), (here, {"pytest": "1.0"}), (here, {"no-such": "1.0"})]:
        assert matrix.elsewhere("another", python, packages, []).outcome == "not run"
    matrix.MACHINES["another"] = "pdp11"
    assert matrix.elsewhere("another", here, {}, []).outcome == "not run"
    monkeypatch.setenv("MATRIX_ENVS", "/nowhere")
    with pytest.raises(SystemExit, match="names /nowhere, which has no bin/python"):
        matrix.elsewhere("it", here, {}, [])


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


def test_every_lower_bound_is_in_the_cell_of_the_lowest():
    lowest = matrix.lowest()
    assert len(lowest) > 20
    assert lowest["torch"] == "2.11" and lowest["jupyterlab"] == "4.0"


def test_a_locale_that_is_missing_is_said():
    assert matrix.run("it", sys.executable, {"LC_ALL": "tlh_QS.UTF-8"}).outcome == "not run"
