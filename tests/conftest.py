"""The real browser, for the tests that open what a reader opens; and what no quick test does."""

import os
import shutil
import sys
from pathlib import Path

import pytest
from homes import make_home

import double_backward

# Files whose quick tests may start Python. One that imports torch takes three seconds for it, so
# other tests that need a process of their own are marked slow.
START_PYTHON = (
    "test_main.py",  # what is typed on the command line
    "test_pytest_plugin.py",  # what pytest is told there
    "test_environment.py", "test_matrix.py", "test_rehearse.py", "test_setup.py",  # without torch
)  # fmt: skip
_running = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    _running[:] = [item] if item.path.suffix == ".py" else []  # a lesson has its kernel
    try:
        return (yield)
    finally:
        _running.clear()


def watch(event, arguments):
    if event != "subprocess.Popen" or not _running or _running[0].get_closest_marker("slow"):
        return
    program, command = arguments[:2]
    draws = any(str(part).endswith("layout.py") for part in command)  # a process without torch
    python = Path(os.fsdecode(program)).name.startswith("python")
    if python and not draws and _running[0].path.name not in START_PYTHON:
        pytest.fail("A quick test starts Python: mark it slow, or see START_PYTHON.")


sys.addaudithook(watch)
# No test depends on how busy the machine is; those about the limit of time name one.
for verb in map(double_backward.__getattr__, double_backward.__all__):
    if "timeout" in (getattr(verb, "__kwdefaults__", None) or ()):
        verb.__kwdefaults__["timeout"] = None

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
# A browser that asks nobody else for anything, or its own requests would be counted as the page's.
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    from playwright.sync_api import sync_playwright  # few of the tests need it

    if CHROMIUM is None:
        reason = "no Chromium on the PATH: install one to open lessons, slides and pages"
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)
    with sync_playwright() as playwright:
        home = make_home(tmp_path_factory.mktemp("home of the browser"))
        started = playwright.chromium.launch(
            executable_path=CHROMIUM, args=QUIET, env=os.environ | home
        )
        yield started
        started.close()
