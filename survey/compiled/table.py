"""results.csv: a row for a version of torch, an operation and a backend."""

import csv
from pathlib import Path

from .look import NOT_RUN, RAISES, RIGHT, WRONG
from .second import SETTINGS

CSV = Path(__file__).parent / "results.csv"
FIELDS = ["torch", "operation", "backend", *SETTINGS, "setting", "expected", "got", "why"]


def row_of(torch, operation, backend, answer):
    """A row, all values text, from what `look_at` says, or from a text why nothing was said."""
    if isinstance(answer, str):
        answer = dict.fromkeys(SETTINGS, NOT_RUN) | {"why": answer}
    row = {"torch": torch, "operation": operation, "backend": backend}
    return {field: (row | answer).get(field, "") for field in FIELDS}


def reading(row):
    """One word for the row: what is worst in any setting."""
    met = {row[setting] for setting in SETTINGS}
    return next(outcome for outcome in (WRONG, RAISES, NOT_RUN, RIGHT) if outcome in met)


def wrong(rows, torch, backend):
    """Names of the operations that are silently wrong."""
    return {row["operation"] for row in of(rows, torch, backend) if reading(row) == WRONG}


def of(rows, torch, backend):
    return [row for row in rows if (row["torch"], row["backend"]) == (torch, backend)]


def read():
    if not CSV.exists():
        return []
    with CSV.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def store(row):
    """Put a row in its place; sentences about what the one that stood there said otherwise."""
    rows = read()
    same = [each for each in rows if key(each) == key(row)]
    rows = sorted([each for each in rows if key(each) != key(row)] + [row], key=key)
    with CSV.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, FIELDS, lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
    return list(differences(same, [row])) if same else []


def key(row):
    return release(row["torch"]), row["backend"], row["operation"]


def release(version):
    """(2, 13) of "2.13.0"."""
    return tuple(int(part) for part in version.split(".")[:2])


def differences(old, new):
    """Sentences: which outcomes of the new rows are others than those of the old ones."""
    before = {key(row): row for row in old}
    for row in new:
        was = before.get(key(row), {})
        for setting in SETTINGS:
            if was.get(setting) != row[setting]:
                told = f"was {was.get(setting)}, is {row[setting]}"
                yield f"{row['operation']}, {row['backend']}, {setting}: {told}"
