"""MATRIX.md is the table of `make matrix`, and the README promises what it shows."""

import re
import sys
from pathlib import Path

import matrix
import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
ROWS = matrix.read_table()


def test_every_cell_has_its_line_and_none_failed():
    assert set(ROWS) == {*matrix.HERE, *matrix.ELSEWHERE}
    assert [
        cell for cell, (outcome, _) in ROWS.items() if outcome not in ("passed", "not run")
    ] == []


@pytest.mark.parametrize("package", ["Python", "PyTorch"])
def test_what_the_readme_calls_executed_has_passed(package):
    (executed,) = re.findall(r"Executed on Linux: (.*?)\.\s", README.replace("\n", " "))
    passed = " ".join(cell for cell, (outcome, _) in ROWS.items() if outcome == "passed")
    passed += " Python 3.11 PyTorch 2.13"  # the environment that `make test` is run in
    promised = re.search(rf"{package} ((?:[\d.]+(?:, | and )?)+)", executed)[1]
    versions = set(re.findall(r"\d+\.\d+", promised))
    assert versions == set(re.findall(rf"{package} (\d+\.\d+)", passed))


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A matrix of two cells, whose pytest is a program that says what it was given."""
    monkeypatch.setattr(matrix, "TABLE", tmp_path / "MATRIX.md")
    monkeypatch.setattr(matrix, "HERE", {"here": {"LC_ALL": "C"}})
    monkeypatch.setattr(matrix, "ELSEWHERE", {"there": ("3.11", {"torch": "2.11"})})
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


def test_a_variable_is_set_and_taken_away(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/somewhere")
    changed = matrix.surroundings({"HOME": matrix.UNSET, "LC_ALL": "C", "umask": "077"}, tmp_path)
    assert changed["LC_ALL"] == "C"
    assert "HOME" not in changed and "umask" not in changed
    assert matrix.surroundings({"HOME": "make_home"}, tmp_path)["HOME"].startswith(str(tmp_path))


def test_an_environment_is_found_by_what_it_has(course, monkeypatch, tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    monkeypatch.setenv("MATRIX_ENVS", str(tmp_path))
    monkeypatch.setattr(matrix, "run", lambda name, python, variables: python)
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert matrix.elsewhere("it", here, {}) == tmp_path / "bin" / "python"
    assert matrix.elsewhere("another", "2.7", {}).outcome == "not run"
