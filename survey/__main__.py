"""`python -m survey` runs every call and writes the results; names after it run these and print."""

import importlib.metadata
import sys

from . import CALLS, table
from .run import run_all


def main(names):
    wanted = names or sorted(CALLS, key=lambda name: CALLS[name].package.lower())
    answers = {}
    for name, answer in run_all(wanted):
        answers[name] = answer
        said = answer.get("verdict") or answer["failed"]
        print(f"{len(answers):>3} of {len(wanted)}  {name:<50} {said}", flush=True)
        if names:
            print(answer.get("text", ""), *answer.get("numbers", ()), sep="\n")
    failed = [name for name in wanted if "failed" in answers[name]]
    if failed:
        sys.exit(f"no answer from {', '.join(failed)}")
    if not names:
        store([row(name, answers[name]) for name in wanted])


def row(name, answer):
    return table.row_of(name, answer, importlib.metadata.version(CALLS[name].package))


def store(rows):
    differences = list(table.differences(table.read() if table.CSV.exists() else [], rows))
    table.write(rows)
    print(*differences, sep="\n")
    print(f"{len(rows)} Functions; {len(differences)} differences from the stored results.")


if __name__ == "__main__":
    main(sys.argv[1:])
