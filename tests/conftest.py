"""The real browser, for the tests that open what a reader opens."""

import os
import shutil

import pytest
from homes import make_home

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
