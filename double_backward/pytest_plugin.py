"""`pytest --double-backward=detect` runs each test and its fixtures in `detect_intermediates()`.

The setting `double_backward = "detect"` of pytest does the same permanently. With the setting
`double_backward_strict = true`, a Function that could not be checked fails the test, too. pytest
finds the plugin by its entry point and is no dependency. Without the option and the setting, the
plugin does nothing, and torch is not imported.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from fnmatch import fnmatch
from glob import glob
from pathlib import Path
from typing import Any

import pytest

import double_backward
from double_backward.phrases import Phrase, both, translation

WAYS: dict[str, Callable[[pytest.Config], AbstractContextManager[None]]] = {
    "off": lambda config: nullcontext(),
    "detect": lambda config: double_backward.detect_intermediates(
        ignore=config.getini("double_backward_ignore")
    ),
    "recompute": lambda config: double_backward.recompute_intermediates(
        ignore=config.getini("double_backward_ignore")
    ),
}
# Outcomes of `noting` that leave a Function unchecked -> the words for them.
BLIND = {
    "not checked": Phrase("{} could not be checked, because {} (double_backward_strict)"),
    "left alone": Phrase("{} was left alone, because {} (double_backward_strict)"),
}
OUTCOMES = (
    Phrase("wrong"), Phrase("repaired"), Phrase("not repaired"), Phrase("not checked"),
    Phrase("left alone"),
)  # fmt: skip
DESELECTED, SKIPPED = Phrase("tests were deselected"), Phrase("tests were skipped")
Notes = dict[str, dict[str, str]]
INSIDE = pytest.StashKey[ExitStack]()
NOTES = pytest.StashKey[Notes]()  # the dict of `noting`, for one test and for all
RUN = pytest.StashKey[Notes]()  # kind -> {what was met: ""}; see `_noted`
MARKER = 'double_backward(way): "detect", "recompute" or "off", for this test alone'


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("double_backward", "second derivatives through custom Functions")
    group.addoption(
        "--double-backward",
        choices=list(WAYS),
        help="run each test inside detect_intermediates() or recompute_intermediates(): a second "
        "derivative that a custom Function would get wrong raises, or is made right",
    )
    group.addoption(
        "--double-backward-strict",
        action="store_true",
        help="fail a test in which a custom Function could not be checked",
    )
    parser.addini(
        "double_backward", "the same as --double-backward, which goes first", default="off"
    )
    parser.addini("double_backward_strict", "the same as --double-backward-strict", type="bool")
    parser.addini(
        "double_backward_ignore",
        "Functions that detect and recompute leave alone: Name, module.Name or my::operator",
        type="linelist",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)
    config.stash[NOTES], config.stash[RUN] = {}, {}
    if config.getini("double_backward") not in WAYS:
        given = config.getini("double_backward")
        raise pytest.UsageError(f"the setting double_backward is {given!r}, not {list(WAYS)}")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    inside, way = ExitStack(), _way(item)
    item.stash[INSIDE], item.stash[NOTES] = inside, {}
    if way != "off":
        from double_backward.remedies import noting  # imports torch, which is needed only here
        from double_backward.remedies.known import forget

        forget()  # so that no test depends on what others have called
        for notes in (item.stash[NOTES], item.config.stash[NOTES]):
            inside.enter_context(noting(notes))
    _noted(item.config, "way", way)
    inside.enter_context(WAYS[way](item.config))


@pytest.hookimpl(trylast=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    _fail_if_blind(item)  # for Functions in a fixture, or in a test that has passed


@pytest.hookimpl(specname="pytest_runtest_teardown", trylast=True)
def pytest_after_runtest_teardown(item: pytest.Item) -> None:
    _fail_if_blind(item)


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    item.stash.get(NOTES, {}).clear()  # a test that has failed, or was skipped, does not fail again
    yield
    if INSIDE in item.stash:
        item.stash[INSIDE].close()
        _look_for_ignored(item.config)


def _fail_if_blind(item: pytest.Item) -> None:
    notes, config = item.stash.get(NOTES, {}), item.config
    strict = config.getoption("--double-backward-strict") or config.getini("double_backward_strict")
    said = [
        _both(words, name, reason=reason)
        for outcome, words in BLIND.items()
        for name, reason in notes.get(outcome, {}).items()
    ]
    if strict and said:
        pytest.fail("\n".join(said), pytrace=False)


def _way(item: pytest.Item) -> str:
    marker = item.get_closest_marker("double_backward")
    if marker is None:
        option = item.config.getoption("--double-backward")
        return str(option or item.config.getini("double_backward"))
    given = marker.args[0] if len(marker.args) == 1 and not marker.kwargs else None
    if given not in WAYS:
        raise pytest.UsageError(f"{item.nodeid}: the marker is {MARKER}")
    return str(given)


# A name in double_backward_ignore may be misspelt: no Function has it that was applied, or is
# loaded at the end. That is an error if all tests of the project have run. If not, the Function
# may be in a module that was not imported, so that the summary only says it.


def _noted(config: pytest.Config, kind: str, what: str) -> None:
    """Note something about the run: a "way" in which a test was run, a name in
    double_backward_ignore that is "known", a "file" of tests, or what was "left out"."""
    config.stash[RUN].setdefault(kind, {})[what] = ""


def _look_for_ignored(config: pytest.Config) -> None:
    left = _unknown(config)
    if left:
        from double_backward.remedies import unknown

        for name in set(left).difference(unknown(left)):
            _noted(config, "known", name)


def _unknown(config: pytest.Config) -> list[str]:
    """The names of the setting that were not met yet, if a test was run that needs them."""
    run, names = config.stash[RUN], config.getini("double_backward_ignore")
    wanted = names if {"detect", "recompute"} & run.get("way", {}).keys() else []
    return [name for name in dict.fromkeys(wanted) if name not in run.get("known", {})]


def pytest_collectstart(collector: pytest.Collector) -> None:
    if isinstance(collector, pytest.File):
        _noted(collector.config, "file", str(collector.path))


def pytest_deselected(items: list[pytest.Item]) -> None:
    for item in items[:1]:
        _noted(item.config, "left out", str(DESELECTED))


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    outcome: Any = yield
    if outcome.get_result().skipped:
        _noted(collector.config, "left out", str(SKIPPED))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    outcome: Any = yield
    if outcome.get_result().skipped:
        _noted(item.config, "left out", str(SKIPPED))


def _left_out(config: pytest.Config) -> str:
    """The reason why the run was not one of all tests, or ""."""
    run = config.stash[RUN]
    for reason in run.get("left out", {}):
        return reason
    if any("::" in argument for argument in config.args) or config.getoption("lf", False):
        return Phrase("tests were chosen")
    missing = next((file for file in _test_files(config) if file not in run["file"]), None)
    return Phrase("{} was not run", Path(missing).name) if missing else ""


def _test_files(config: pytest.Config) -> Iterator[str]:
    """The files of tests that pytest would collect if it were called without arguments."""
    patterns, apart = config.getini("python_files"), config.getini("norecursedirs")
    root = str(config.rootpath)
    folders = [f for path in config.getini("testpaths") for f in glob(os.path.join(root, path))]
    for top in folders or [root]:
        if os.path.isfile(top):
            yield top
        for folder, inner, files in os.walk(top):
            inner[:] = [
                name
                for name in inner
                if not any(fnmatch(name, pattern) for pattern in apart)
                and not os.path.exists(os.path.join(folder, name, "pyvenv.cfg"))
            ]
            tests = [f for f in files if any(fnmatch(f, pattern) for pattern in patterns)]
            yield from (os.path.join(folder, name) for name in tests)


# The summary at the end. A worker of pytest-xdist passes its notes on.


def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    if hasattr(config, "workeroutput"):
        config.workeroutput["double_backward"] = config.stash[NOTES], config.stash[RUN]
    elif session.exitstatus == pytest.ExitCode.OK and _unknown(config) and not _left_out(config):
        session.exitstatus = pytest.ExitCode.USAGE_ERROR


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    handed_over = getattr(node, "workeroutput", {}).get("double_backward", ({}, {}))
    for key, notes in zip((NOTES, RUN), handed_over, strict=True):
        for kind, noted in notes.items():
            node.config.stash[key].setdefault(kind, {}).update(noted)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    notes, ways = config.stash[NOTES], config.stash[RUN].get("way", {}).keys() - {"off"}
    if not ways:
        return
    terminalreporter.section("second derivatives through custom Functions")
    for said in summary(notes, ways):
        terminalreporter.line(said)
    for name in _unknown(config):
        reason = _left_out(config)
        all_run = Phrase("An error: all tests have run.")
        end = Phrase("No error, since {}.", reason) if reason else all_run
        unknown = (
            "double_backward_ignore names {}: no custom Function of this name was applied, and "
            "none is loaded. {}"
        )
        line = both(Phrase(unknown, name, end))
        terminalreporter.line(line, red=not reason, yellow=bool(reason))


def summary(notes: Notes, ways: set[str]) -> Iterator[str]:
    def those(*outcomes: str) -> int:
        return len({name for outcome in outcomes for name in notes.get(outcome, {})})

    if "detect" in ways:
        said = "{} checked, {} of them wrong; {} not checked"
        counts = those("right", "wrong"), those("wrong"), those("not checked")
        yield both(Phrase(said, *counts))
    if "recompute" in ways:
        said = "{} right, {} of them repaired; {} not repaired, which raises; {} left alone"
        right = those("right already", "repaired")
        yield both(Phrase(said, right, *map(those, ("repaired", "not repaired", "left alone"))))
    if not notes:
        none = Phrase("No test recorded the backward of a custom Function (create_graph=True).")
        outside = Phrase(
            "What is cut off outside of Functions is not looked at: diagnose_all tells of that."
        )
        yield from (both(none), both(outside))
    for outcome in OUTCOMES:
        for name, reason in sorted(notes.get(outcome, {}).items()):
            because = Phrase("{}: {}, because {}")
            told = both(Phrase("{}: {}", outcome, name))
            yield _both(because, outcome, name, reason=reason) if reason else told


def _both(template: str, *values: str, reason: str) -> str:
    """In English, and below it in the reader's language, in which the reason is noted, too."""
    english, _, own = reason.partition("\n")
    said = translation(Phrase(template, *values, own or english))
    return "\n".join(filter(None, [Phrase(template, *values, english), said]))
