"""Ask the installed torch, store what it does, write the page.

    python -m survey.compiled aot_eager                about every operation and every net
    python -m survey.compiled aot_eager --samples 1    the same, of operations the first sample
    python -m survey.compiled inductor                 about what aot_eager gets wrong, and nets
    python -m survey.compiled aot_eager tanh exp       about these
    python -m survey.compiled --verify                 run the three lines of each wrong row

Each answer is stored when it comes, so an interrupted run loses nothing.
"""

import argparse
import math
import sys

import torch

from . import page, table
from .look import BACKENDS, WRONG, all_cases
from .nets import NETS
from .operations import SAMPLES, database, kinds
from .run import run_all

VERSION = torch.__version__.partition("+")[0]


def main(backend, names, samples, verify):
    if verify:
        wrong = [row for row in table.read() if reading_here(row) == WRONG]
        print(f"{len(wrong)} wrong rows of torch {VERSION}", flush=True)
        failed = False
        for sentence in not_reproduced(wrong):
            print(sentence, flush=True)
            failed = True
        sys.exit(failed)
    unknown = sorted(set(names) - database().keys() - NETS.keys())
    if unknown:
        sys.exit(f"On no list: {', '.join(unknown)}")
    jobs = every_job(samples) if backend == "aot_eager" else wrong_under_aot_eager()
    ask([job for job in jobs if not names or job[0] in names], backend)


def reading_here(row):
    """The row's reading, if it is about the installed torch."""
    return table.reading(row) if row["torch"] == VERSION else ""


def every_job(samples):
    for name in NETS:
        yield name, "net", None
    for name in sorted(database()):
        for kind in kinds(name):
            yield name, kind, all_cases(name, kind, samples)  # begun where they are asked


def wrong_under_aot_eager():
    """All nets; of each operation, kind of numbers, and argument the first sample that is wrong."""
    for name in NETS:
        yield name, "net", None
    wrong = {}
    for row in table.of(table.read(), VERSION, "aot_eager"):
        if table.reading(row) == WRONG:
            first = wrong.setdefault((row["operation"], row["kind"]), {})
            first.setdefault(row["by"], table.samples_of(row)[0])
    for (name, kind), first in wrong.items():
        yield name, kind, [(sample, by) for by, sample in first.items()]


def ask(jobs, backend):
    for number, ((name, kind, _), answer) in enumerate(run_all(jobs, backend), start=1):
        rows = table.rows_of(VERSION, backend, kind, name, answer)
        for difference in table.store(rows):
            print(difference)
        print(f"{number:>3} of {len(jobs)}  {backend}  {name:<40} {kind:<8} {table.worst(rows)}",
              flush=True)  # fmt: skip
    page.write()


def not_reproduced(rows):
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
    own = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=own)
    parser.add_argument("backend", nargs="?", choices=BACKENDS, default="aot_eager")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--samples", type=int, default=SAMPLES)
    parser.add_argument("--verify", action="store_true")
    main(**vars(parser.parse_args()))
