"""How much memory the learners of a rehearsal use while their lessons run."""

import threading

import psutil


class Watch:
    """Looks once a second; `peak` is the most that all of them used at one moment, in bytes."""

    def __init__(self, learners):
        self.learners, self.peak, self.over = learners, 0, threading.Event()
        # A daemon: who is stopped between start and `with` never gets to the end of the `with`.
        self.thread = threading.Thread(target=self.watch, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *error):
        self.over.set()
        self.thread.join()

    def watch(self):
        while not self.over.is_set():
            now = [memory(learner.pid) for learner in self.learners]
            for learner, used in zip(self.learners, now, strict=True):
                learner.peak = max(learner.peak, used)
            self.peak = max(self.peak, sum(now))
            self.over.wait(1)


def memory(pid):
    """Bytes that a server and its kernel use; pages that several processes share are divided."""
    total = 0
    try:
        server = psutil.Process(pid)
        for process in [server, *server.children(recursive=True)]:
            used = process.memory_full_info()
            total += getattr(used, "pss", used.rss)  # Linux alone knows what is shared
    except psutil.Error:  # ended meanwhile
        pass
    return total
