"""What was wrong in one release of a package and is right in a later one: mended.csv.

A row that comes out right with a new version is not simply another row: that it was wrong, and
since which release it is not, is worth knowing to who has the older one.
"""

import csv
import datetime

from . import table

CSV = table.HERE / "mended.csv"
FIELDS = ["package", "function", "was", "wrong_in", "right_in", "date"]
WRONG = (table.WRONG, table.FIRST, table.BACKWARD)


def mended(old, new):
    """Lines for Functions that were wrong and are right, in another version of their package."""
    before = {row["function"]: row for row in old}
    for row in new:
        was = before.get(row["function"])
        if not was or was["version"] == row["version"]:
            continue
        if was["reading"] in WRONG and row["reading"] == table.RIGHT:
            yield {
                "package": row["package"],
                "function": row["function"],
                "was": was["reading"],
                "wrong_in": was["version"],
                "right_in": row["version"],
                "date": str(datetime.date.today()),
            }


def read():
    return table.read_lines(CSV) if CSV.exists() else []


def keep(old, new):
    """Add what was mended, and drop what has become wrong again."""
    wrong = {row["function"] for row in new if row["reading"] in WRONG}
    found = list(mended(old, new))
    newly = {line["function"] for line in found}
    lines = [each for each in read() if each["function"] not in wrong | newly] + found
    with CSV.open("w", newline="", encoding="utf-8") as file:
        written = csv.DictWriter(file, FIELDS, lineterminator="\n")
        written.writeheader()
        written.writerows(sorted(lines, key=lambda line: line["function"].lower()))
