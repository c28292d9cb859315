"""The survey's list and its stored results, without fetching any package."""

import csv
import io
import json
import re
import shutil
import subprocess
import tarfile
from collections import Counter
from pathlib import Path

import pytest

from survey import CALLS, differ, environment, page, published, table
from survey import __main__ as main
from survey.documented import documented, first_order
from survey.reached import KNOWN

ROOT = Path(__file__).resolve().parent.parent
SURVEY = ROOT / "survey"
ROWS = table.read()
NUMBERS = main.read_numbers()


def versions():
    """Package -> version, as `make survey` installs them; torch is the course's own."""
    lines = (SURVEY / "packages.txt").read_text(encoding="utf-8").splitlines()
    lines += (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line.partition("==") for line in lines if "==" in line]
    surveyed = {call.package for call in CALLS.values()}
    return {name: version.split()[0] for name, _, version in pins if name in surveyed}


def test_the_list_is_long_enough():
    assert len(CALLS) >= 100
    assert len({call.package for call in CALLS.values()}) >= 35


def test_every_call_names_its_function_once():
    functions = [call.function for call in CALLS.values()]
    assert [name for name, number in Counter(functions).items() if number > 1] == []
    assert [name for name in functions if not re.fullmatch(r"[A-Za-z_]\w*(\.\w+)+", name)] == []


def test_every_package_is_pinned_once_and_used():
    pinned = re.findall(r"^([^#\s=]+)==\S+$", (SURVEY / "packages.txt").read_text(), re.MULTILINE)
    assert len(pinned) == len(set(pinned))
    assert {*pinned, "torch"} == {call.package for call in CALLS.values()}


def test_the_results_are_those_of_the_list():
    assert {row["function"] for row in ROWS} == {call.function for call in CALLS.values()}
    assert len(ROWS) == len(CALLS)
    surrogates = {call.function for call in CALLS.values() if call.surrogate}
    assert {row["function"] for row in ROWS if row["surrogate"]} == surrogates


def test_the_results_are_of_the_pinned_versions():
    pinned = versions()
    assert {row["package"]: row["version"].split("+")[0] for row in ROWS} == pinned


def test_every_row_says_what_a_row_can_say():
    assert {row["reading"] for row in ROWS} <= set(table.READINGS)
    assert {row["reference"] for row in ROWS} == {"formula", "differences"}
    assert {row["agrees"] for row in ROWS} <= {"yes", "no", ""}
    assert all(re.fullmatch(r".+\.py:\d+", row["source"]) for row in ROWS)


def test_every_row_leads_to_a_line_of_the_published_version():
    folders = published.read()
    assert {*folders} == {item for item in versions().items() if item[0] != "torch"}
    for row in ROWS:
        link = published.link(row["source"], row["package"], row["version"], folders)
        file, line = row["source"].split(":")
        assert row["version"].partition("+")[0] in link
        assert re.fullmatch(rf"https://\S+/{re.escape(file)}#(line\.|L){line}", link)


def test_an_archive_is_read_where_there_is_no_wheel(monkeypatch):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name in ("own-1.0/src/own/ops.py", "own-1.0/src/own/other.py"):
            archive.addfile(tarfile.TarInfo(name))
    index = {"files": [{"filename": "own-1.0.tar.gz", "url": published.FILES + "packages/a/b"}]}
    answers = [json.dumps(index).encode(), packed.getvalue()]
    monkeypatch.setattr(published, "fetched", lambda what: answers.pop(0))
    found = published.folder("own", "1.0", "own/ops.py")
    assert found == "https://inspector.pypi.io/project/own/1.0/packages/a/b/own-1.0/src"


def test_a_wrong_row_shows_two_numbers_that_differ():
    for row in ROWS:
        if row["reading"] in (table.WRONG, table.BACKWARD) and row["agrees"] == "yes":
            assert row["setting"] and float(row["expected"]) != float(row["got"]), row


def test_what_is_known_of_a_row_is_of_a_row():
    assert set(KNOWN) <= set(CALLS)
    said = {row["function"]: row["apart"] for row in ROWS}
    assert {
        CALLS[name].function: known.apart for name, known in KNOWN.items()
    }.items() <= said.items()


def answer(verdict, first=(1.0, 1.0), numbers=((1.0, 1.0),), route="grad"):
    def number(expected, got):
        return {"expected": expected, "got": got, "error": "", "route": route}

    return {
        "verdict": verdict,
        "first": number(*first) | {"wrong": first[0] != first[1]},
        "numbers": [number(a, b) | {"wrong": a != b} for a, b in numbers],
    }


def test_a_wrong_first_derivative_outranks_the_second():
    assert table.reading_of(answer("silently_wrong"), False) == table.WRONG
    assert table.reading_of(answer("silently_wrong", first=(1.0, 2.0)), False) == table.FIRST
    assert table.reading_of(answer("surrogate_gradient"), False) == table.FIRST
    assert table.reading_of(answer("surrogate_gradient"), True) == table.SURROGATE


@pytest.mark.parametrize("verdict", ["silently_wrong", "raises"])
def test_what_is_wrong_by_backward_alone_is_read_alike(verdict):
    by_backward = answer(verdict, numbers=[(1.0, 2.0)], route="backward")
    assert table.reading_of(by_backward, False) == table.BACKWARD


def test_a_right_row_shows_a_number_that_is_not_zero():
    found = answer("supported", numbers=[(0.0, 0.0), (-3.0, -3.0), (1.0, 1.0)])
    assert table.telling(found)["expected"] == -3.0


def test_pages_are_made_from_the_table(tmp_path, monkeypatch):
    for name in ("PAGE", "CHART", "REPORTS", "README"):
        monkeypatch.setattr(page, name, tmp_path / getattr(page, name).name)
    shutil.copy(ROOT / "README.md", tmp_path)
    page.write(ROWS, NUMBERS)
    made = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*.*"))
    assert len(made) == 3 + len(documented() | first_order())
    for path in made:
        stored = (ROOT if path.name == "README.md" else SURVEY) / path
        assert stored.read_text(encoding="utf-8") == (tmp_path / path).read_text(encoding="utf-8")


def test_the_readme_says_what_the_table_holds():
    assert page.sentence(ROWS) in (ROOT / "README.md").read_text(encoding="utf-8")


DOCUMENTED, FIRST_ORDER = documented(), first_order()


def test_ten_documented_calls_and_those_of_a_wrong_first_derivative():
    files = [
        path.stem
        for folder in ("documented", "first_order")
        for path in (SURVEY / folder).glob("*.py")
    ]
    assert len(DOCUMENTED) == 10
    assert {*DOCUMENTED, *FIRST_ORDER} == set(NUMBERS) == set(files)
    assert {CALLS[each.function].function for each in FIRST_ORDER.values()} == {
        row["function"] for row in ROWS if row["reading"] == table.FIRST
    }


@pytest.mark.parametrize("name", NUMBERS)
def test_a_documented_call_shows_two_numbers_that_differ(name):
    each, found = (DOCUMENTED | FIRST_ORDER)[name], NUMBERS[name]
    got, expected = float(found["got"]), float(found["expected"])
    assert abs(got - expected) > 0.1 * abs(expected)
    if each.instead:
        assert abs(float(found["instead"]) - expected) < 1e-3 * abs(expected) + 1e-3


@pytest.mark.parametrize("name", DOCUMENTED)
def test_a_documented_call_is_short_and_of_a_function_on_the_list(name):
    each = DOCUMENTED[name]
    lines = [line for line in each.program.splitlines() if line.strip()]
    assert each.function in CALLS
    assert len(lines) <= 9 and "survey" not in each.program


@pytest.mark.parametrize("name", NUMBERS)
def test_a_documented_call_says_what_to_install(name):
    each = (DOCUMENTED | FIRST_ORDER)[name]
    line = page.install(each, ROWS)
    package = CALLS[each.function].package
    assert f"{package}=={versions()[package]}" in line and "+" not in line
    assert line.endswith(each.needs)
    assert line in (SURVEY / "RESULTS.md").read_text(encoding="utf-8")
    assert line in (SURVEY / "reports" / f"{name}.md").read_text(encoding="utf-8")


def test_a_report_names_no_cure_for_another_mistake():
    def report(name):
        return (SURVEY / "reports" / f"{name}.md").read_text(encoding="utf-8")

    assert "what `forward` kept" in report("gpytorch_matern")
    assert "what `forward` kept" not in report("torchdiffeq_adjoint")
    assert "takes for a constant" not in report("xitorch_quad")
    assert "goes past the guard" in report("zuko_unaf")


def test_what_needs_no_package_is_typed_again():
    found = DOCUMENTED["torch_checkpoint"].numbers()
    assert main.digits(found) == NUMBERS["torch_checkpoint"]


def test_a_mistyped_name_is_told_before_anything_runs():
    with pytest.raises(SystemExit, match="RBFCovariance"):
        main.need_known(["gpytorch:RBFCovarianc"])


@pytest.mark.parametrize("name", ["torch:CheckpointFunction", "torch:spectral_norm"])
def test_what_needs_no_package_gives_its_row_again(name):
    from survey.one import look_at

    (stored,) = (row for row in ROWS if row["function"] == CALLS[name].function)
    answer = look_at(name) | {"seconds": 0}
    row = table.row_of(name, answer, stored["version"])
    assert list(table.differences([stored], [row])) == []


def test_a_changed_row_is_reported_and_a_last_digit_is_not():
    (row, *_) = csv.DictReader(["function,expected,verdict", "a.B,1.23,supported"])
    base = dict.fromkeys(table.FIELDS, "") | row | {"findings": []}
    assert list(table.differences([base], [base | {"expected": "1.24"}])) == []
    assert len(list(table.differences([base], [base | {"expected": "1.5"}]))) == 1
    assert len(list(table.differences([base], [base | {"verdict": "silently_wrong"}]))) == 1


def found(*codes):
    """A row with these findings: the first is the cause, the others are notes."""
    kinds = ["cause"] + ["note"] * len(codes)
    findings = [
        {"function": "a.B", "code": code, "kind": kind, "about": "B", "message": "a\nb, c"}
        for code, kind in zip(codes, kinds, strict=False)
    ]
    return dict.fromkeys(table.FIELDS, "") | {"function": "a.B", "findings": findings}


def test_two_runs_are_compared_by_their_findings(tmp_path, capsys):
    base, other = tmp_path / "base", tmp_path / "other"
    for folder, row in ((base, found("w", "x", "y")), (other, found("w", "z", "x"))):
        folder.mkdir()
        table.write([row], folder)
    assert table.read(base) == [found("w", "x", "y")]
    differ.main(base, other)
    assert capsys.readouterr().out.startswith("a.B: findings -y +z\n1 of 1 Functions differ.\n")
    assert list(table.differences([found("w", "x", "y")], [found("w", "y", "x")])) == []
    said = list(table.differences([found("w", "x")], [found("x", "w")]))
    assert said == ["a.B: first cause was 'w', is 'x'"]


def test_all_findings_of_a_row_are_stored():
    named = {CALLS[name].function: known.cause for name, known in KNOWN.items()}
    for row in ROWS:
        assert row["cause"] == (named.get(row["function"]) or table.first_cause(row)), row
        assert row["verdict"] == "supported" or row["findings"], row
    kinds = {each["kind"] for row in ROWS for each in row["findings"]}
    assert kinds == {"cause", "error", "warning", "note"}


def test_a_run_into_a_folder_leaves_what_is_stored(tmp_path, monkeypatch):
    from survey.one import look_at

    def run_all(names):
        return [(name, look_at(name) | {"seconds": 0}) for name in names]

    monkeypatch.setattr(main, "run_all", run_all)
    monkeypatch.setattr(main, "store", None)
    main.main(["torch:CheckpointFunction"], tmp_path / "new")
    (row,) = table.read(tmp_path / "new")
    assert row["verdict"] == "silently_wrong" and "untracked_backward" in table.codes(row)


# Of six packages that need little besides: one Function each, called again.
SIX = ("gpytorch", "linear-operator", "entmax", "roma", "torchdiffeq", "zuko")
SUPPORT = ("jaxtyping", "wadler-lindig", "scikit-learn", "joblib", "threadpoolctl", "narwhals")
AGAIN = (
    "gpytorch:RBFCovariance",
    "linear-operator:InvQuad",
    "entmax:Entmax15LossFunction",
    "roma:_ProcrustesManualDerivatives",
    "torchdiffeq:OdeintAdjointMethod",
    "zuko:Bisection",
)
ROWS_AGAIN = """
import sys
from survey import CALLS, table
from survey.__main__ import row
from survey.run import run_all
ran = [row(name, answer) for name, answer in run_all(sys.argv[1:])]
stored = [each for each in table.read() if each["function"] in {r["function"] for r in ran}]
print(len(ran), len(stored), *table.differences(stored, ran), sep="\\n")
"""


@pytest.mark.slow
def test_six_packages_give_their_rows_again(tmp_path):
    pins = [pin for pin in environment.pins() if pin.split("==")[0] in SIX + SUPPORT]
    assert len(pins) == len(SIX) + len(SUPPORT)
    environment.make(tmp_path / "venv", pins)
    again = [tmp_path / "venv" / "bin" / "python", "-c", ROWS_AGAIN, *AGAIN]
    printed = subprocess.run(again, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert printed.split() == ["6", "6"], printed
