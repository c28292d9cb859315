"""The survey's list and its stored results, without fetching any package."""

import csv
import re
from collections import Counter
from pathlib import Path

import pytest

from survey import CALLS, table

ROOT = Path(__file__).resolve().parent.parent
SURVEY = ROOT / "survey"
ROWS = table.read()


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
    assert [
        row for row in ROWS if table.reading_of(row["verdict"], row["surrogate"]) != row["reading"]
    ] == []
    assert {row["reference"] for row in ROWS} == {"formula", "differences"}
    assert {row["agrees"] for row in ROWS} <= {"yes", "no", ""}


def test_a_silently_wrong_row_shows_two_numbers_that_differ():
    for row in ROWS:
        if row["reading"] == table.WRONG and row["agrees"] == "yes":
            assert row["setting"] and float(row["expected"]) != float(row["got"]), row


def test_the_page_is_made_from_the_table():
    assert table.PAGE.read_text(encoding="utf-8") == table.page(ROWS)


def test_the_readme_counts_what_the_table_holds():
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    said = re.search(
        r"Of (\d+) public Functions in (\d+) published packages, (\d+) give a wrong second "
        r"derivative without an error: (\d+) keep .*?, (\d+) compute .*?, (\d+) ",
        readme,
    )
    kept, untracked = (table.kinds(ROWS)[kind] for kind in table.KINDS)
    wrong = len(table.wrong_rows(ROWS))
    counted = (len(ROWS), len({row["package"] for row in ROWS}), wrong)
    assert tuple(map(int, said.groups())) == (*counted, kept, untracked, wrong - kept - untracked)


@pytest.mark.parametrize("name", ["torch:CheckpointFunction", "torch:spectral_norm"])
def test_what_needs_no_package_gives_its_row_again(name):
    from survey.one import look_at

    (stored,) = (row for row in ROWS if row["function"] == CALLS[name].function)
    answer = look_at(name) | {"seconds": 0}
    row = table.row_of(name, answer, stored["version"])
    assert list(table.differences([stored], [row])) == []


def test_a_changed_row_is_reported_and_a_last_digit_is_not():
    (row, *_) = csv.DictReader(["function,expected,verdict", "a.B,1.23,supported"])
    base = dict.fromkeys(table.FIELDS, "") | row
    assert list(table.differences([base], [base | {"expected": "1.24"}])) == []
    assert len(list(table.differences([base], [base | {"expected": "1.5"}]))) == 1
    assert len(list(table.differences([base], [base | {"verdict": "silently_wrong"}]))) == 1
