"""The regions in a process beside this one: one that dies or never ends takes no other along."""

import gc
import multiprocessing
import os
import resource
import time

LIMIT = 600  # seconds of computing that an operation may take
IN_A_PROCESS = 50  # operations; the first of a process takes three times as long as the others

# A forked process starts with all that was imported, and leaves nothing behind.
fork = multiprocessing.get_context("fork")


def run_all(jobs, backend):
    """Yield each job and what `look_at` says of it; a text where its process said nothing.

    Args:
        jobs: tuples of a name, a kind, and cases or None, as `look_at` takes them.
    """
    import torch._inductor.compile_fx  # noqa: F401, here once, not in each process

    from .operations import database

    database()
    gc.freeze()  # what is imported is shared with the forks, not copied when they collect
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    waiting = list(jobs)
    while waiting:
        ours, theirs = fork.Pipe(duplex=False)
        share = waiting[:IN_A_PROCESS]
        process = fork.Process(target=report, args=(share, backend, theirs))
        process.start()
        theirs.close()
        for job in share:
            try:
                answer = ours.recv()
            except EOFError:
                process.join()
                answer = f"the process ended with {process.exitcode}"
            waiting.remove(job)
            yield job, answer
            if isinstance(answer, str):
                break
        process.join()


def report(jobs, backend, pipe):
    from ..run import silence
    from .look import look_at

    silence()
    for name, kind, cases in jobs:
        used = int(time.process_time())
        resource.setrlimit(resource.RLIMIT_CPU, (used + LIMIT, resource.RLIM_INFINITY))
        pipe.send(look_at(name, kind, backend, cases))
