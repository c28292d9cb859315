"""The rehearsal: it counts failures, ends in time, and leaves no process behind."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import rehearse
from nbformat.v4 import new_code_cell
from rehearsal_hub import MARK, Hub

ROOT = Path(__file__).resolve().parent.parent
COMMAND = [sys.executable, str(ROOT / "scripts" / "rehearse.py")]


@pytest.mark.parametrize("arguments", [["0"], ["ten"], ["-1"], ["1", "2"], ["101"], ["1.5"]])
def test_not_a_number_of_learners(arguments):
    with pytest.raises(SystemExit, match="LEARNERS is a number from 1 to 100"):
        rehearse.main(arguments)


def test_without_a_number_there_are_ten():
    assert rehearse.how_many([]) == 10


def test_lessons_in_turn():
    names = [learner.lesson[0] for learner in rehearse.make_learners(7)]
    assert names == list("1234561")


def test_what_goes_wrong_for_one_stays_with_them():
    learners = [rehearse.Learner(name, "lesson", []) for name in "abc"]

    def act(learner, deadline):
        if learner.name == "b":
            raise ValueError("no")

    rehearse.each(learners, act, 1)
    rehearse.each(learners, lambda learner, deadline: learner.failures.append("ran"), 1)
    assert [learner.failures for learner in learners] == [["ran"], ["ValueError: no"], ["ran"]]


def left_over():
    """What a rehearsal started and did not stop, with its command."""
    found = []
    for process in psutil.process_iter():
        try:
            if MARK in process.environ():
                found.append(process.cmdline())
        except psutil.Error:
            pass
    return found


@pytest.mark.slow
def test_two_learners():
    done = subprocess.run([*COMMAND, "2"], capture_output=True, text=True, timeout=1200)
    assert (done.returncode, done.stderr) == (0, "")
    rows = re.findall(r"^learner\d +(\d)_\w+ +([\d.]+) +(\d+) +none$", done.stdout, re.M)
    assert [lesson for lesson, _, _ in rows] == ["1", "2"]
    assert all(float(seconds) > 1 and 100 < int(peak) < 2000 for _, seconds, peak in rows)
    assert "In all: 0 of 2 failed; slowest " in done.stdout
    assert left_over() == []


@pytest.mark.slow
def test_nobody_is_let_in_but_its_own_learners(tmp_path):
    learner, stranger = (rehearse.Learner(name, "lesson", []) for name in ("learner1", "stranger"))
    hub = Hub(tmp_path, [learner])
    right = hub.password
    try:
        hub.start(400)
        for one, password in ((learner, "any"), (learner, ""), (stranger, right)):
            hub.password = password
            with pytest.raises(RuntimeError, match="signing in ended at .* with 403"):
                hub.sign_in(one, time.monotonic() + 60)
        files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    finally:
        hub.stop()
    assert len(files) > 2  # its settings, its log, its database
    assert not any(secret.encode() in file for secret in (right, hub.token) for file in files)
    assert left_over() == []


@pytest.mark.slow
def test_failures_are_told_and_time_is_bounded(monkeypatch, capsys):
    sources = {
        "sound": ["x = 1", "x"],
        "wrong": ["1 / 0", "x"],
        "endless": ["import time; time.sleep(900)"],
        "dying": ["import os; os._exit(1)"],
    }
    learners = [
        rehearse.Learner(name, "lesson", [new_code_cell(source) for source in cells])
        for name, cells in sources.items()
    ]
    monkeypatch.setattr(rehearse, "make_learners", lambda number: learners)
    monkeypatch.setattr(rehearse, "START", 400)
    monkeypatch.setattr(rehearse, "LESSON", -20 * len(learners) + 30)
    with pytest.raises(SystemExit) as ended:
        rehearse.main([str(len(learners))])
    assert ended.value.code
    told = {learner.name: "; ".join(learner.failures) for learner in learners}
    assert told["sound"] == "" and told["wrong"] == "ZeroDivisionError: division by zero"
    assert "did not end in time" in told["endless"] and told["dying"]
    assert "In all: 3 of 4 failed" in capsys.readouterr().out
    assert left_over() == []


def test_the_watch_ends_with_the_process():
    """As where Ctrl+C arrives after its thread has started and before the `with` has begun."""
    code = "import rehearsal_memory; rehearsal_memory.Watch([]).__enter__()"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT / "scripts", timeout=120)
    assert done.returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl+C", "terminated"])
def test_stopped_half_way(number):
    process = subprocess.Popen([*COMMAND, "2"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert any(b"everybody runs" in line for line in process.stdout)
    end = time.monotonic() + 60
    while len(left_over()) < 6:  # the hub, its proxy, two servers, two kernels
        assert time.monotonic() < end
        time.sleep(0.1)
    os.kill(process.pid, number)
    said = process.communicate(timeout=600)[1]
    assert said == b"Stopped.\n"
    assert left_over() == []
