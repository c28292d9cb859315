"""Ask the installed torch, store what it does, write the page.

    python -m survey.compiled aot_eager             about every operation and every net
    python -m survey.compiled inductor              about those that aot_eager gets wrong, and nets
    python -m survey.compiled aot_eager tanh exp    about these
    python -m survey.compiled --verify              run the three lines of each wrong row

Each answer is stored when it comes, so an interrupted run loses nothing.
"""

import math
import sys

import torch

from . import page, table
from .look import BACKENDS, WRONG
from .nets import NETS
from .operations import database, kinds
from .run import run_all

VERSION = torch.__version__.partition("+")[0]


def main(arguments):
    if arguments == ["--verify"]:
        rows = [row for row in table.read() if row["torch"] == VERSION]
        wrong = [row for row in rows if table.reading(row) == WRONG]
        print(f"{len(wrong)} wrong rows of torch {VERSION}", flush=True)
        sys.exit("\n".join(verify(wrong)) or None)
    backend, *names = arguments or [""]
    unknown = sorted(set(names) - database().keys() - NETS.keys())
    if backend not in BACKENDS or unknown:
        sys.exit(f"{__doc__}\nUnknown: {', '.join(unknown) or repr(backend)}")
    jobs = every_job() if backend == "aot_eager" else wrong_under_aot_eager()
    ask([job for job in jobs if not names or job[0] in names], backend)


def every_job():
    for name in NETS:
        yield name, "net", None
    for name in sorted(database()):
        yield from ((name, kind, None) for kind in kinds(name))


def wrong_under_aot_eager():
    """All nets; of each operation and argument the first real sample that is wrong."""
    for name in NETS:
        yield name, "net", None
    wrong = {}
    for row in table.of(table.read(), VERSION, "aot_eager", "real"):
        if table.reading(row) == WRONG:
            first = wrong.setdefault(row["operation"], {})
            first.setdefault(row["by"], table.samples_of(row)[0])
    for name, first in wrong.items():
        yield name, "real", [(sample, by) for by, sample in first.items()]


def ask(jobs, backend):
    for number, ((name, kind, _), answer) in enumerate(run_all(jobs, backend), start=1):
        rows = table.rows_of(VERSION, backend, kind, name, answer)
        for difference in table.store(rows):
            print(difference)
        print(f"{number:>3} of {len(jobs)}  {backend}  {name:<40} {kind:<8} {table.worst(rows)}",
              flush=True)  # fmt: skip
    page.write()


def verify(rows):
    """Sentences: wrong rows whose three lines, run, do not print the two numbers of the row."""
    for row in rows:
        printed = []
        who = f"{row['operation']}, by {row['by']}, {row['backend']}"
        try:
            exec(page.three_lines(row), {"print": printed.append})
        except RuntimeError as error:
            yield f"{who}: {error}"
        else:
            if not shows(row, *printed):
                yield f"{who}: printed {printed}"


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
