"""`python -m survey` runs every call and writes the results; names after it run and store these.

`--into FOLDER` puts the rows there as they come, for `survey.differ` and `survey.newest`, with
failed.csv for the calls that gave no answer, and leaves all that is stored as it is.
"""

import argparse
import csv
import difflib
import importlib.metadata
import os
import platform
import sys
from pathlib import Path

from . import CALLS, page, patched, published, table
from .documented import documented, first_order
from .run import run_all

NUMBERS = table.HERE / "documented.csv"
FIELDS = ["name", "got", "expected", "instead", "patched", "with"]


def main(names, into=None):
    need_known(names)
    wanted = names or sorted(CALLS, key=lambda name: CALLS[name].package.lower())
    rows, failed = {}, {}
    for name, answer in run_all(wanted):
        if "failed" in answer:
            failed[name] = answer["failed"]
        else:
            rows[name] = row(name, answer)
        said = answer.get("verdict") or answer["failed"]
        done = len(rows) + len(failed)
        print(f"{done:>3} of {len(wanted)}  {name:<50} {said}", flush=True)
        if into:
            keep(rows, failed, into)
        elif names:
            print(answer.get("text", ""), *answer.get("numbers", ()), sep="\n")
    if into:
        return
    if failed:
        sys.exit(f"Nothing is stored: no answer from {', '.join(failed)}.")
    rows = [rows[name] for name in wanted]
    if names:
        print(*(f"{each['function']}: {meaning(each)}" for each in rows), sep="\n")
    store(rows, read_numbers() | typed(names))


def keep(rows, failed, folder):
    """Write what there is of a run that may be cut short."""
    folder.mkdir(parents=True, exist_ok=True)
    table.write(list(rows.values()), folder)
    lines = [failure(name, why) for name, why in failed.items()]
    table.write_lines(folder / table.FAILED, table.OF_A_FAILURE, lines)


def need_known(names):
    """A mistyped name is told before anything runs."""
    for name in names:
        if name not in CALLS:
            near = difflib.get_close_matches(name, CALLS, n=5, cutoff=0.4)
            sys.exit(f"{name} is not on the list. Near it: {', '.join(near) or 'nothing'}.")


def meaning(row):
    """How the row is counted; of a wrong first derivative, what it then takes."""
    if row["reading"] != table.FIRST:
        return f"counted as: {row['reading']}"
    return (
        f"counted as: {table.FIRST}. If its documentation says that backward is not the derivative "
        "of forward, give it surrogate=True; if not, add a program to survey/first_order/."
    )


def row(name, answer):
    return table.row_of(name, answer, importlib.metadata.version(CALLS[name].package))


def failure(name, why):
    version = importlib.metadata.version(CALLS[name].package)
    return {"function": CALLS[name].function, "version": version, "why": why}


def typed(names):
    """Name -> numbers of the documented calls, or of those whose Functions are named."""
    listed = documented() | first_order()
    wanted = {n: each for n, each in listed.items() if not names or each.function in names}
    return {name: digits(each.numbers()) | with_change(each) for name, each in wanted.items()}


def digits(numbers):
    return {key: format(value, ".3f") for key, value in numbers.items()}


def with_change(each):
    """What the report's program prints with the change that the report shows, and on what."""
    patch = patched.patch_of(each)
    python, torch = platform.python_version(), importlib.metadata.version("torch").split("+")[0]
    return {
        "patched": patched.printed(each, patch)["got"] if patch.exists() else "",
        "with": f"Python {python}, torch {torch}, {platform.system()} {platform.machine()}",
    }


def read_numbers():
    if not NUMBERS.exists():
        return {}
    with NUMBERS.open(newline="", encoding="utf-8") as file:
        return {line.pop("name"): line for line in csv.DictReader(file)}


def store(rows, numbers):
    """Put the rows in the place of the stored ones; write what is made of all of them."""
    before = table.read() if table.CSV.exists() else []
    differences = list(table.differences(before, rows))
    ran = {row["function"]: row for row in rows}
    on_list = [call.function for call in CALLS.values()]
    after = {row["function"]: row for row in before} | ran
    after = [after[function] for function in sorted(on_list, key=str.lower) if function in after]
    table.write(after)
    with NUMBERS.open("w", newline="", encoding="utf-8") as file:
        lines = csv.DictWriter(file, FIELDS, lineterminator="\n")
        lines.writeheader()
        lines.writerows({"name": name, **numbers[name]} for name in sorted(numbers))
    published.look_up(after)
    page.write(after, numbers)
    print(*differences, sep="\n")
    print(f"{len(rows)} Functions; {len(differences)} differences from the stored results.")
    if differences and os.environ.get("CI") == "true":
        sys.exit(1)  # so that the weekly run is red


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m survey")
    parser.add_argument("names", nargs="*", metavar="package:Function")
    parser.add_argument("--into", type=Path, metavar="FOLDER", help="write the rows there alone")
    main(**vars(parser.parse_args()))
