"""`pytest --double-backward=detect`: every test, and its fixtures, in `detect_intermediates()`.

The same for good: `double_backward = "detect"` among pytest's settings. pytest finds the plugin by
its entry point and is no dependency. Without option and setting it does nothing, and torch is not
imported.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import pytest

import double_backward


@contextmanager
def _detect(config: pytest.Config) -> Iterator[None]:
    from double_backward import remedies  # torch, only where it is asked for

    ignore = config.getini("double_backward_ignore")
    with remedies.noting(config.stash[NOTES]), double_backward.detect_intermediates(ignore=ignore):
        yield


WAYS: dict[str, Callable[[pytest.Config], AbstractContextManager[None]]] = {
    "off": lambda config: nullcontext(),
    "detect": _detect,
    "recompute": lambda config: double_backward.recompute_intermediates(),
}
INSIDE = pytest.StashKey[ExitStack]()
NOTES = pytest.StashKey[dict[str, dict[str, str]]]()  # as `noting` has them
MARKER = 'double_backward(way): "detect", "recompute" or "off", for this test alone'


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("double_backward", "second derivatives through custom Functions")
    group.addoption(
        "--double-backward",
        choices=list(WAYS),
        help="run each test inside detect_intermediates() or recompute_intermediates(): a second "
        "derivative that a custom Function would get wrong raises, or is made right",
    )
    parser.addini(
        "double_backward", "the same as --double-backward, which goes first", default="off"
    )
    parser.addini(
        "double_backward_ignore",
        "Functions that detect leaves alone: Name or module.Name",
        type="linelist",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)
    config.stash[NOTES] = {}
    if config.getini("double_backward") not in WAYS:
        given = config.getini("double_backward")
        raise pytest.UsageError(f"the setting double_backward is {given!r}, not {list(WAYS)}")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    inside, way = ExitStack(), _way(item)
    item.stash[INSIDE] = inside
    if way != "off":
        from double_backward.remedies.known import forget

        forget()  # what another test has called: no test hangs on the order
    inside.enter_context(WAYS[way](item.config))


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    yield
    if INSIDE in item.stash:
        item.stash[INSIDE].close()


def _way(item: pytest.Item) -> str:
    marker = item.get_closest_marker("double_backward")
    if marker is None:
        option = item.config.getoption("--double-backward")
        return str(option or item.config.getini("double_backward"))
    given = marker.args[0] if len(marker.args) == 1 and not marker.kwargs else None
    if given not in WAYS:
        raise pytest.UsageError(f"{item.nodeid}: the marker is {MARKER}")
    return str(given)


# What is said at the end. A worker of pytest-xdist hands over what it has noted.


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["double_backward"] = session.config.stash[NOTES]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    handed_over = getattr(node, "workeroutput", {}).get("double_backward", {})
    for outcome, functions in handed_over.items():
        node.config.stash[NOTES].setdefault(outcome, {}).update(functions)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    notes = config.stash[NOTES]
    if not notes:
        return
    wrong, unknown = notes.get("wrong", {}), notes.get("not checked", {})
    right = notes.get("right", {}).keys() - wrong.keys()
    terminalreporter.section("second derivatives through custom Functions")
    terminalreporter.line(
        f"{len(right) + len(wrong)} checked, {len(wrong)} of them wrong; {len(unknown)} not checked"
    )
    for name in sorted(wrong):
        terminalreporter.line(f"wrong: {name}")
    for name, reason in sorted(unknown.items()):
        terminalreporter.line(f"not checked: {name}, because {reason}")
