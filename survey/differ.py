"""`python -m survey.differ OLD NEW`: what differs between two runs, Function by Function.

A run is a folder that holds results.csv and findings.csv, or a commit of this repository.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from . import table


def main(old, new):
    runs = [run(where) for where in (old, new)]
    differences = list(table.differences(*runs))
    before, after = ({row["function"] for row in rows} for rows in runs)
    changed = {sentence.partition(":")[0] for sentence in differences}
    print(*differences, sep="\n")
    print(f"{len(changed)} of {len(before & after)} Functions differ.")
    print(f"Only in {old}: {len(before - after)}. Only in {new}: {len(after - before)}.")


def run(where):
    """The rows of a run."""
    if Path(where).is_dir():
        return table.read(Path(where))
    with tempfile.TemporaryDirectory() as folder:
        for name in (table.CSV.name, table.FINDINGS.name):
            show = ["git", "show", f"{where}:./{name}"]
            file = subprocess.run(show, cwd=table.HERE, check=True, capture_output=True).stdout
            (Path(folder) / name).write_bytes(file)
        return table.read(Path(folder))


if __name__ == "__main__":
    main(*sys.argv[1:])
