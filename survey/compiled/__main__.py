"""Ask the installed torch, store what it does, write the page.

    python -m survey.compiled aot_eager             about every operation
    python -m survey.compiled inductor              about those that aot_eager gets wrong
    python -m survey.compiled aot_eager tanh exp    about these
    python -m survey.compiled --verify              run the three lines of each wrong row

Each answer is stored when it comes, so an interrupted run loses nothing.
"""

import math
import sys

import torch

from . import page, table
from .look import BACKENDS, WRONG
from .operations import database
from .run import run_all

VERSION = torch.__version__.partition("+")[0]


def main(arguments):
    if arguments == ["--verify"]:
        wrong = [
            row for row in table.read() if row["torch"] == VERSION and table.reading(row) == WRONG
        ]
        print(f"{len(wrong)} wrong rows of torch {VERSION}", flush=True)
        sys.exit("\n".join(verify(wrong)) or None)
    backend, *names = arguments or [""]
    unknown = sorted(set(names) - database().keys())
    if backend not in BACKENDS or unknown:
        sys.exit(f"{__doc__}\nUnknown: {', '.join(unknown) or repr(backend)}")
    everything = database() if backend == "aot_eager" else wrong_under_aot_eager()
    ask(names or sorted(everything), backend)


def wrong_under_aot_eager():
    return table.wrong(table.read(), VERSION, "aot_eager")


def ask(names, backend):
    for number, (name, answer) in enumerate(run_all(names, backend), start=1):
        row = table.row_of(VERSION, name, backend, answer)
        for difference in table.store(row):
            print(difference)
        said = f"{table.reading(row)} {row['why']}"
        print(f"{number:>3} of {len(names)}  {backend}  {name:<45} {said}", flush=True)
    page.write()


def verify(rows):
    """Sentences: wrong rows whose three lines, run, do not print the two numbers of the row."""
    for row in rows:
        printed = []
        try:
            exec(page.three_lines(row), {"print": printed.append})
        except RuntimeError as error:
            yield f"{row['operation']}, {row['backend']}: {error}"
        else:
            if not shows(row, *printed):
                yield f"{row['operation']}, {row['backend']}: printed {printed}"


def shows(row, expected, got):
    """Whether the row's two numbers stand in the same place of the two answers, to 1 percent."""
    pairs = zip(torch.cat([h.flatten() for h in expected]).tolist(),
                torch.cat([h.flatten() for h in got]).tolist(), strict=True)  # fmt: skip
    stored = float(row["expected"]), float(row["got"])
    return any(all(map(near, pair, stored)) for pair in pairs)


def near(a, b):
    return math.isclose(a, b, rel_tol=0.01, abs_tol=1e-6) or (math.isnan(a) and math.isnan(b))


if __name__ == "__main__":
    main(sys.argv[1:])
