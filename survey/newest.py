"""`python -m survey.newest FOLDER`: what the newest releases do otherwise than the stored rows.

FOLDER holds the rows that `python -m survey --into FOLDER` made with the newest releases. With
anything to tell, the exit status is 1, so that a weekly run is red.
"""

import sys
from pathlib import Path

from . import table

WRONG = (table.WRONG, table.FIRST, table.BACKWARD)


def main(folder):
    old, new = table.read(), table.read(Path(folder))
    said = list(told(old, new, table.read_lines(Path(folder) / table.FAILED)))
    print(*said, sep="\n")
    print(f"{len(new)} of {len(old)} rows called with the newest releases; {len(said)} to tell.")
    sys.exit(1 if said else 0)


def told(old, new, failed):
    """Sentences: mended, wrong now, otherwise different, and no longer to be called. What was not
    asked is not told."""
    after = {row["function"]: row for row in new}
    gone = {each["function"]: each for each in failed}
    for was in old:
        name = f"{was['package']} {was['version']}, {was['function']}"
        row = after.get(was["function"])
        if was["function"] in gone:
            each = gone[was["function"]]
            yield f"{name}: could not be called in {each['version']}: {each['why']}"
        elif not row:
            continue
        elif row["reading"] != was["reading"]:
            yield f"{name}: was {was['reading']!r}, {verb(was, row)} {row['version']}"
        elif row["arguments"] != was["arguments"]:
            yield f"{name}: by argument, was {was['arguments']!r}, is {row['arguments']!r}"


def verb(was, row):
    """Of a row that is read otherwise; mended is what was wrong and is right in a later version."""
    later = row["version"] != was["version"]
    if later and was["reading"] in WRONG and row["reading"] == table.RIGHT:
        return "mended in"
    return f"is {row['reading']!r} in"


if __name__ == "__main__":
    main(*sys.argv[1:])
