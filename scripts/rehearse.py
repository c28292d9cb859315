"""`make rehearse LEARNERS=10`: how a room full of people would fare on this machine.

A real JupyterHub on 127.0.0.1, which lets nobody in but the learners of this rehearsal. Each signs
in, gets a server, and at the same moment runs a lesson of the students' edition. Everything is
stopped at the end, whatever happened.
"""

import signal
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
import psutil
from editions.student import student
from rehearsal_hub import Hub
from rehearsal_memory import Watch
from said import spoken, to_type

ROOT = Path(__file__).resolve().parent.parent
MOST = 100  # learners
START = 90  # seconds for the hub; for the servers 10 more for each learner
LESSON = 120  # seconds for a lesson, and 20 more for each learner


@dataclass
class Learner:
    """One learner, what went wrong for them, and how much they needed."""

    name: str
    lesson: str
    cells: list
    failures: list = field(default_factory=list)
    seconds: float = 0.0
    peak: int = 0
    pid: int = 0
    kernel: str = ""


def main(arguments):
    number = how_many(arguments)
    learners = make_learners(number)
    with tempfile.TemporaryDirectory() as folder:
        hub = Hub(Path(folder), learners)
        try:
            say("A JupyterHub starts on this machine.")
            hub.start(START)
            say(f"The hub is up. {number} learners sign in and get a server each.")
            each(learners, hub.sign_in, START + 10 * number)
            say("All are in. Now everybody runs a lesson.")
            with Watch(learners) as watch:
                each(learners, hub.run_lesson, LESSON + 20 * number)
        finally:
            hub.stop()
    report(learners, watch)
    sys.exit(any(learner.failures for learner in learners))


def how_many(arguments):
    text = " ".join(arguments) or "10"
    if not (text.isdecimal() and 1 <= int(text) <= MOST):
        example = to_type("make rehearse LEARNERS=10")
        sys.exit(spoken("LEARNERS is a number from 1 to {}, as in {}.", MOST, example))
    return int(text)


def make_learners(number):
    """Learner 1 runs lesson 1, learner 7 lesson 1 again, and so on."""
    lessons = [
        (path.stem, [c for c in student(nbformat.read(path, 4)).cells if c.cell_type == "code"])
        for path in sorted((ROOT / "notebooks").glob("[1-9]_*.ipynb"))
    ]
    return [Learner(f"learner{n + 1}", *lessons[n % len(lessons)]) for n in range(number)]


def say(text):
    print(text, flush=True)


def each(learners, act, seconds):
    """Let all learners do the same thing at once; what goes wrong for one is kept with them."""
    deadline = time.monotonic() + seconds

    def safely(learner):
        if not learner.failures:
            try:
                act(learner, deadline)
            except Exception as error:
                learner.failures.append(f"{type(error).__name__}: {error}"[:200])

    pool = ThreadPoolExecutor(len(learners))
    try:
        list(pool.map(safely, learners))
    finally:  # stopped from the keyboard, nobody waits: the threads end when the hub is stopped
        pool.shutdown(wait=False, cancel_futures=True)


def report(learners, watch):
    say("\nlearner      lesson                    seconds   peak MB   failures")
    for one in learners:
        failure = one.failures[0] if one.failures else "none"
        say(f"{one.name:<12} {one.lesson:<25} {one.seconds:7.1f} {one.peak / 1e6:9.0f}   {failure}")
    slowest = max(learners, key=lambda learner: learner.seconds)
    failed = sum(bool(learner.failures) for learner in learners)
    there = psutil.virtual_memory().total / 1e9
    say(
        f"\nIn all: {failed} of {len(learners)} failed; slowest {slowest.lesson}, "
        f"{slowest.seconds:.1f} s; peak memory {watch.peak / 1e9:.1f} GB, "
        f"{watch.peak / 1e6 / len(learners):.0f} MB a learner; this machine has {there:.1f} GB."
    )


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):  # both leave by way of `finally`
        signal.signal(number, lambda *_: sys.exit("Stopped."))
    main(sys.argv[1:])
