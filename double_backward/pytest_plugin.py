"""`pytest --double-backward=detect`: every test, and its fixtures, in `detect_intermediates()`.

pytest finds it by its entry point and is no dependency. Without the option it does nothing, and
torch is not imported.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext

import pytest

import double_backward

WAYS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "off": nullcontext,
    "detect": lambda: double_backward.detect_intermediates(),
    "recompute": lambda: double_backward.recompute_intermediates(),
}
INSIDE = pytest.StashKey[ExitStack]()
MARKER = 'double_backward(way): "detect", "recompute" or "off", for this test alone'


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("double_backward", "second derivatives through custom Functions")
    group.addoption(
        "--double-backward",
        choices=list(WAYS),
        default="off",
        help="run each test inside detect_intermediates() or recompute_intermediates(): a second "
        "derivative that a custom Function would get wrong raises, or is made right",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    inside = item.stash[INSIDE] = ExitStack()
    inside.enter_context(WAYS[_way(item)]())


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    yield
    if INSIDE in item.stash:
        item.stash[INSIDE].close()


def _way(item: pytest.Item) -> str:
    marker = item.get_closest_marker("double_backward")
    if marker is None:
        return str(item.config.getoption("--double-backward"))
    given = marker.args[0] if len(marker.args) == 1 and not marker.kwargs else None
    if given not in WAYS:
        raise pytest.UsageError(f"{item.nodeid}: the marker is {MARKER}")
    return str(given)
