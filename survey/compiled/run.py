"""The operations in processes beside this one: one that dies or never ends takes no other along."""

import gc
import multiprocessing
import os
import resource
import time
from multiprocessing.connection import wait

LIMIT = 300  # seconds of computing that an operation may take
AT_ONCE = 2
IN_A_PROCESS = 50  # operations; the first of a process takes three times as long as the others

# A forked process starts with all that was imported, and leaves nothing behind.
fork = multiprocessing.get_context("fork")


def run_all(names, backend):
    """Yield name and what `look_at` says; a text where its process said nothing."""
    import torch._inductor.compile_fx  # noqa: F401, here once, not in each process

    from .operations import database

    database()
    gc.freeze()  # what is imported is shared with the forks, not copied when they collect
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    waiting, running = list(names), {}
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            share, waiting = waiting[:IN_A_PROCESS], waiting[IN_A_PROCESS:]
            ours, theirs = fork.Pipe(duplex=False)
            process = fork.Process(target=report, args=(share, backend, theirs))
            process.start()
            theirs.close()
            running[ours] = share, process
        for ours in wait(list(running)):
            share, process = running[ours]
            try:
                answer = ours.recv()
            except EOFError:
                del running[ours]
                process.join()
                if not share:
                    continue
                answer = f"the process ended with {process.exitcode}"
                waiting += share[1:]
            yield share.pop(0), answer


def report(names, backend, pipe):
    from ..run import silence
    from .look import look_at

    silence()
    for name in names:
        used = int(time.process_time())
        resource.setrlimit(resource.RLIMIT_CPU, (used + LIMIT, resource.RLIM_INFINITY))
        pipe.send(look_at(name, backend))
