"""The pytest plugin, in small projects of somebody else, run in processes of their own."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = """
import pytest
import torch
from torch.autograd import Function, grad

from double_backward import assert_all_double_backward, assert_double_backward


class Swish(Function):
    @staticmethod
    def forward(ctx, x):
        s = torch.sigmoid(x)
        ctx.save_for_backward(x, s)
        return x * s

    @staticmethod
    def backward(ctx, g):
        x, s = ctx.saved_tensors
        return g * (s + x * s * (1 - s))


def second(y, x):
    (g,) = grad(y.sum(), x, create_graph=True)
    return grad(g.sum(), x)[0]


@pytest.fixture
def x():
    return torch.tensor([0.5, 1.0], dtype=torch.float64, requires_grad=True)


@pytest.fixture
def y(x):
    return Swish.apply(x) ** 2


def test_right(x, y):
    expected = second((x * torch.sigmoid(x)) ** 2, x)
    torch.testing.assert_close(second(y, x), expected)


@pytest.mark.double_backward("off")
def test_runs(x, y):
    second(y, x)


def test_also(x, y):
    second(y, x)


def test_whole_text():
    x = torch.linspace(0, 2, 6, dtype=torch.float64).requires_grad_()
    assert_double_backward(Swish.apply, x)


def test_whole_table():
    x = torch.linspace(0, 2, 6, dtype=torch.float64).requires_grad_()
    assert_all_double_backward(lambda: second(Swish.apply(x), x))
"""
WRONG_MARKER = """
import pytest


@pytest.mark.double_backward("on")
def test_marked():
    pass
"""
PLAIN = """
import sys


def test_nothing_is_loaded():
    assert "torch" not in sys.modules
"""


@pytest.fixture
def run(tmp_path):
    def running(text, *options):
        (tmp_path / "test_theirs.py").write_text(text)
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--strict-markers"]
        command += ["-p", "no:nbval"]  # takes two seconds to import
        command += ["-rA", f"--rootdir={tmp_path}", *options, tmp_path / "test_theirs.py"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
        running.status = done.returncode
        return done.stdout

    return running


def outcome(text, name):
    (line,) = [x for x in text.splitlines() if x.split(" - ")[0].endswith(f"::{name}")]
    return line.split()[0]


@pytest.mark.slow
def test_detect_raises_but_where_a_marker_says_off(run):
    text = run(PROJECT, "--double-backward=detect", "-k", "right or runs or also")
    assert outcome(text, "test_right") == outcome(text, "test_also") == "FAILED"
    assert outcome(text, "test_runs") == "PASSED"
    assert "SecondDerivativeError: Swish" in text


SUMMARY = "second derivatives through custom Functions"
TWO_MORE = """

class Named(Swish):
    pass


@pytest.fixture(scope="module")
def before():
    x = torch.ones(2, dtype=torch.float64, requires_grad=True)
    return x, Late.apply(x)


class Late(Swish):
    pass


class Fine(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, g):
        return g * 3 * ctx.saved_tensors[0] ** 2


@pytest.mark.double_backward("off")
def test_before(before):
    pass


def test_after(before):
    second(before[1] ** 2, before[0])


def test_fine(x):
    second(Fine.apply(x), x)


def test_named(x):
    second(Named.apply(x) ** 2, x)
"""


def told(text):
    return text.partition(SUMMARY)[2].partition("\n===")[0].splitlines()[1:]


@pytest.mark.slow
def test_settings_and_what_is_said_at_the_end(run):
    settings = ["-o", "double_backward=detect", "-o", "double_backward_ignore=Named"]
    text = run(PROJECT + TWO_MORE, *settings, "-k", "also or runs or before or after or named")
    assert outcome(text, "test_named") == outcome(text, "test_runs") == "PASSED"
    head, wrong, unknown = told(text)
    assert head == "1 checked, 1 of them wrong; 1 not checked"
    assert wrong == "wrong: test_theirs.Swish"
    assert unknown.startswith("not checked: test_theirs.Late, because its forward ran before")
    text = run(PROJECT + TWO_MORE, *settings, "--double-backward=off", "-k", "also")
    assert outcome(text, "test_also") == "PASSED" and SUMMARY not in text


BLIND = (
    PROJECT
    + """

from double_backward import UncheckedFunctionWarning


def numbers():
    while True:
        yield 2


class Draws(Swish):
    numbers = numbers()

    @staticmethod
    def forward(ctx, x):
        next(Draws.numbers)
        return Swish.forward(ctx, x)


def blind(x):
    return second(Draws.apply(x) ** 2, x)


@pytest.fixture
def in_setup(x):
    return blind(x)


@pytest.fixture
def in_teardown(x):
    yield
    blind(x)


def test_plain(x):
    blind(x)


def test_caught(x):
    try:
        blind(x)
    except Exception:
        pass


@pytest.mark.filterwarnings("ignore")
def test_filtered(x):
    blind(x)


def test_expected(x):
    with pytest.warns(UncheckedFunctionWarning):
        blind(x)


def test_in_setup(in_setup):
    pass


def test_in_teardown(in_teardown):
    pass


@pytest.mark.double_backward("off")
def test_switched_off(x):
    blind(x)


def test_skipped(x):
    blind(x)
    pytest.skip("the rest")


def test_sound(x):
    second(torch.sin(x), x)
"""
)
FAIL = ["test_plain", "test_caught", "test_filtered", "test_expected"]
PASS = ["test_switched_off", "test_sound"]
NEW = (
    "plain or caught or filtered or expected or in_setup or in_teardown or off or skipped or sound"
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options, words",
    [
        (["--double-backward=detect", "--double-backward-strict"], "could not be checked"),
        (["--double-backward=recompute", "-o", "double_backward_strict=true"], "was left alone"),
        (["-o", "double_backward=detect", "--double-backward-strict", "-n", "2"], "could not be"),
        (
            ["--double-backward=detect", "--double-backward-strict"]
            + ["-W", "error::double_backward.UncheckedFunctionWarning"],
            "could not be checked",
        ),
    ],
)
def test_strict_fails_where_a_function_could_not_be_checked(run, options, words):
    text = run(BLIND, *options, "-k", NEW)
    lines = text.partition("short test summary")[2]
    assert {name: outcome(lines, name) for name in [*FAIL, *PASS]} == {
        **dict.fromkeys(FAIL, "FAILED"),
        **dict.fromkeys(PASS, "PASSED"),
    }
    for name in ("setup", "teardown"):  # with -W error it raises in the fixture already
        assert re.search(f"(ERROR|FAILED) test_theirs.py::test_in_{name} ", lines)
    assert f"test_theirs.Draws {words}" in text and "generator" in text
    assert run.status == 1


@pytest.mark.slow
def test_without_strict_what_could_not_be_checked_passes_and_is_told(run):
    text = run(BLIND, "--double-backward=detect", "-k", NEW)
    assert run.status == 0
    assert told(text)[0] == "0 checked, 0 of them wrong; 1 not checked"
    text = run(BLIND, "--double-backward=detect", "--double-backward-strict", "-k", "sound")
    assert run.status == 0
    assert "No test recorded the backward of a custom Function" in told(text)[1]
    assert "outside of Functions is not looked at" in told(text)[2]


@pytest.mark.slow
def test_what_recompute_did_is_told(run):
    text = run(
        BLIND + TWO_MORE,
        "--double-backward=recompute",
        "-k",
        "also or fine or before or after or plain",
    )
    head, *rest = told(text)
    assert head == "2 right, 1 of them repaired; 1 not repaired, which raises; 1 left alone"
    assert rest[0] == "repaired: test_theirs.Swish"
    assert rest[1].startswith("not repaired: test_theirs.Late, because its forward ran before")
    assert rest[2].startswith("left alone: test_theirs.Draws, because it may go on")
    assert len(rest) == 3
    ignored = ["--double-backward=recompute", "-o", "double_backward_ignore=Swish"]
    assert told(run(BLIND + TWO_MORE, *ignored, "-k", "also"))[0].startswith("0 right")


ROOT = Path(__file__).resolve().parent.parent
PAGES = ("README.md", "README.zh-CN.md", "docs/tool/remedies.md")
IN_A_CI_JOB = """[pytest]
double_backward = detect
double_backward_strict = true
"""


@pytest.mark.slow
def test_the_three_lines_for_a_ci_job_do_what_the_pages_say(run, tmp_path):
    for page in PAGES:
        assert f"```ini\n{IN_A_CI_JOB}```" in (ROOT / page).read_text(encoding="utf-8")
    (tmp_path / "pytest.ini").write_text(IN_A_CI_JOB)
    for chosen, status in {"also": 1, "sound or fine or off": 0, "plain": 1}.items():
        run(BLIND + TWO_MORE, "-k", chosen)
        assert run.status == status


IGNORE = ["--double-backward=detect", "-o", "double_backward_ignore=Speke\nNamed\ntest_theirs.Fine"]
DEFINED = """
from torch.autograd import Function


def test_runs():
    class Fine(Function):
        pass


class Named(Function):
    pass
"""
MISSPELT = "double_backward_ignore names Speke: no custom Function of this name"


@pytest.mark.slow
@pytest.mark.parametrize(
    "more, options, reason",
    [
        ("", [], ""),
        ("", ["-n", "2"], ""),
        ("", ["-k", "runs"], ""),
        ("\ndef test_more():\n    pass\n", ["-k", "runs"], "tests were deselected"),
        ("\ndef test_more():\n    pass\n", ["-k", "runs", "-n", "2"], "tests were deselected"),
        ("\ndef test_more():\n    import pytest\n    pytest.skip()\n", [], "tests were skipped"),
        ("another file", [], "test_another.py was not run"),
    ],
)
def test_a_misspelt_name_is_an_error_where_all_tests_have_run(run, tmp_path, more, options, reason):
    if more == "another file":
        (tmp_path / "test_another.py").write_text("")
    text = run(DEFINED + more.replace("another file", ""), *IGNORE, *options)
    (said,) = [line for line in told(text) if line.startswith("double_backward_ignore")]
    assert said.startswith(MISSPELT)
    end = f"No error, since {reason}." if reason else "An error: all tests have run."
    assert said.endswith(end)
    assert run.status == (0 if reason else 4)


@pytest.mark.slow
def test_a_name_that_there_is_may_be_ignored(run):
    run(DEFINED, "--double-backward=detect", "-o", "double_backward_ignore=Named\nFine")
    assert run.status == 0
    run(PLAIN, "-o", "double_backward_ignore=Speke")
    assert run.status == 0


def test_a_setting_that_there_is_not(run):
    assert run(PLAIN, "-o", "double_backward=on") == ""  # said on stderr


@pytest.mark.slow
def test_workers_hand_over_what_they_found(run):
    chosen = ["--double-backward=detect", "-k", "also or named or fine"]
    alone = told(run(PROJECT + TWO_MORE, *chosen))
    assert alone[0] == "3 checked, 2 of them wrong; 0 not checked" and len(alone) == 3
    assert sorted(told(run(PROJECT + TWO_MORE, *chosen, "-n", "2"))) == sorted(alone)


@pytest.mark.slow
def test_recompute_makes_it_right(run):
    text = run(PROJECT, "--double-backward=recompute", "-k", "right or also")
    assert outcome(text, "test_right") == outcome(text, "test_also") == "PASSED"
    text = run(PROJECT, "-k", "right or also")
    assert (outcome(text, "test_right"), outcome(text, "test_also")) == ("FAILED", "PASSED")


@pytest.mark.slow
def test_the_whole_text_of_an_assertion_is_shown(run):
    text = run(PROJECT, "-k", "whole")
    shown = [line.removeprefix("E").strip() for line in text.splitlines() if line[:2] == "E "]
    for said in (
        "Swish: silently wrong at second order",
        "AssertionError: 1 custom Function, 0 right, 1 not",
        "very tensor, too, and add what its gradient brings. (In Swish,",
    ):
        assert any(said in line for line in shown)
    assert "..." not in "".join(shown)


def test_a_wrong_marker_says_what_is_allowed(run):
    text = run(WRONG_MARKER)
    assert 'the marker is double_backward(way): "detect", "recompute" or "off"' in text
    assert outcome(text, "test_marked") == "ERROR"


def test_without_the_option_nothing_is_loaded(run):
    assert outcome(run(PLAIN), "test_nothing_is_loaded") == "PASSED"
    assert "--double-backward={off,detect,recompute}" in run(PLAIN, "--help")
