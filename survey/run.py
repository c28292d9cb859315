"""Each call in a process of its own, with a time limit."""

import contextlib
import importlib
import multiprocessing
import os
import time
import traceback
from itertools import groupby
from multiprocessing.connection import wait

from .listed import CALLS
from .one import look_at

LIMIT = 900  # seconds a call may take, also on a machine that computes other things
AT_ONCE = 2  # packages

# A forked process starts with all that was imported, and leaves nothing behind.
fork = multiprocessing.get_context("fork")


def run_all(names):
    """Yield name and answer, package by package, two packages at a time."""
    packages = [list(group) for _, group in groupby(names, lambda name: CALLS[name].package)]
    running = []
    while packages or running:
        while packages and len(running) < AT_ONCE:
            ours, theirs = fork.Pipe(duplex=False)
            process = fork.Process(target=run_package, args=(packages.pop(0), theirs))
            process.start()
            theirs.close()
            running.append((process, ours))
        for ready in wait([ours for _, ours in running]):
            try:
                yield ready.recv()
            except EOFError:
                running = [(process, ours) for process, ours in running if ours is not ready]


def run_package(names, pipe):
    """Import what the calls of one package need, once; then fork for each.

    A bare import leaves packages half made, so that is left to the call.
    """
    silence()
    for name in names:
        if CALLS[name].bare:
            continue
        with contextlib.suppress(Exception):  # the call itself will say what is wrong
            CALLS[name].ready()
            importlib.import_module(CALLS[name].at.rsplit(".", 1)[0])
    for name in names:
        pipe.send((name, run(name)))


def run(name):
    """What `look_at` says of a call, with "seconds"; {"failed": why} where it says nothing."""
    start = time.monotonic()
    ours, theirs = fork.Pipe(duplex=False)
    process = fork.Process(target=report, args=(name, theirs))
    process.start()
    theirs.close()
    try:
        answer = ours.recv() if ours.poll(LIMIT) else {"failed": f"took more than {LIMIT} s"}
    except EOFError:
        answer = {"failed": "the process died"}
    process.kill()
    process.join()
    return answer | {"seconds": time.monotonic() - start}


def report(name, pipe):
    try:
        pipe.send(look_at(name))
    except BaseException as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{type(error).__name__}: {error} ({where.filename}, line {where.lineno})"
        pipe.send({"failed": text})


def silence():
    """Compilers and solvers talk, from C too."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
