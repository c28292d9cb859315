"""results.csv: a row for a version of torch, a backend, a region, and what it was asked by.

The samples of which all the same was said stand in one row.
"""

import csv
from itertools import groupby
from pathlib import Path

from .look import FACTS, FAILS, NO_WAY, NOT_RUN, REFUSES, RIGHT, WRONG
from .second import SETTINGS

CSV = Path(__file__).parent / "results.csv"
ASKED = ["torch", "backend", "kind", "operation", "by", "samples"]
FIELDS = [*ASKED, *SETTINGS, *FACTS, "setting", "expected", "got", "why"]
RAISES, NOT_COMPILED = "raises", "never compiled"
READINGS = (WRONG, RAISES, FAILS, NOT_RUN, NOT_COMPILED, RIGHT)  # the gravest first


def rows_of(torch, backend, kind, operation, answer):
    """Rows, all values text, from what `look_at` says, or from a text why nothing was said."""
    if isinstance(answer, str):
        answer = [dict.fromkeys(SETTINGS, NOT_RUN) | {"why": answer}]
    asked = {"torch": torch, "backend": backend, "kind": kind, "operation": operation}
    rows = [asked | each for each in answer]
    return [{field: row.get(field, "") for field in FIELDS} for row in rows]


def reading(row):
    """One word for the row: what is worst in any setting."""
    met = {row[setting] for setting in SETTINGS}
    if met & {REFUSES, NO_WAY}:
        met.add(RAISES)
    if row["graphs"] == "0" and met == {RIGHT}:
        return NOT_COMPILED
    return next(each for each in READINGS if each in met)


def worst(rows):
    """The gravest reading of several rows."""
    return min(map(reading, rows), key=READINGS.index)


def by_operation(rows):
    """Name -> its rows."""
    ordered = sorted(rows, key=lambda row: row["operation"])
    return {name: list(group) for name, group in groupby(ordered, lambda row: row["operation"])}


def wrong(rows):
    """Names of the operations that are silently wrong by some argument."""
    return {row["operation"] for row in rows if reading(row) == WRONG}


def of(rows, torch, backend, *kinds):
    kinds = kinds or ("real", "complex")
    asked = (torch, backend)
    return [r for r in rows if (r["torch"], r["backend"]) == asked and r["kind"] in kinds]


def read(path=CSV):
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def store(new):
    """Put rows of one region in their place; sentences about what was said otherwise before."""
    rows = read()
    same = [row for row in rows if region(row) == region(new[0])]
    rows = sorted([row for row in rows if region(row) != region(new[0])] + new, key=key)
    with CSV.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, FIELDS, lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
    return list(differences(same, new)) if same else []


def region(row):
    return release(row["torch"]), row["backend"], row["kind"], row["operation"]


def key(row):
    return *region(row), row["by"], row["samples"]


def release(version):
    """(2, 13) of "2.13.0"."""
    return tuple(int(part) for part in version.split(".")[:2])


def differences(old, new):
    """Sentences: which outcomes of the new rows are others than those of the old ones."""
    before = cases(old)
    for case, row in cases(new).items():
        was = before.get(case, {})
        for setting in SETTINGS:
            if was.get(setting) != row[setting]:
                *_, name, by, sample = case
                told = f"was {was.get(setting)}, is {row[setting]}"
                yield f"{name}, by {by}, sample {sample}, {row['backend']}, {setting}: {told}"


def cases(rows):
    """The row of each case, a region, an argument and a sample."""
    return {(*region(row), row["by"], sample): row for row in rows for sample in samples_of(row)}


def samples_of(row):
    return row["samples"].split("; ") if row["samples"] else []
