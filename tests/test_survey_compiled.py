"""The table of compiled operations: what is stored, and a sample of it asked again."""

import re
import shutil
from pathlib import Path

import pytest
import torch
from torch.autograd import Function

from survey.compiled import __main__ as command
from survey.compiled import page, second_derivative, table
from survey.compiled.look import BACKENDS, NOT_RUN, RAISES, RIGHT, WRONG, close, look_at, truth
from survey.compiled.operations import Operation, database
from survey.compiled.second import SETTINGS, differentiate_twice, directions, loss_of

ROWS = table.read()
STORED = {row["operation"]: row for row in table.of(ROWS, command.VERSION, "aot_eager")}
REPORT = (Path(table.__file__).parent / "REPORT.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"```python\n(.*?)```\n+```\n(.*?)```", REPORT, re.DOTALL)
TEN = [
    "tanh",
    "exp",
    "sqrt",
    "softmax",
    "mm",
    "sin",
    "add",
    "nn.functional.relu",
    "T",
    "__rpow__",
]

is_stored = pytest.mark.skipif(not STORED, reason=f"no rows of torch {command.VERSION}")
needs_compiler = pytest.mark.skipif(
    not shutil.which("g++"), reason="the default backend needs a C++ compiler"
)


def test_every_row_says_what_a_row_can_say():
    outcomes = {row[setting] for row in ROWS for setting in SETTINGS}
    assert outcomes == {RIGHT, RAISES, WRONG, NOT_RUN}
    assert {row["backend"] for row in ROWS} <= set(BACKENDS)
    keys = [table.key(row) for row in ROWS]
    assert len(keys) == len(set(keys)) and keys == sorted(keys)


def test_every_wrong_row_has_two_numbers_and_every_other_failure_a_reason():
    for row in ROWS:
        reading = table.reading(row)
        if reading == WRONG:
            assert float(row["expected"]) != float(row["got"]), row
            assert row[row["setting"]] == WRONG, row
        assert bool(row["why"]) == (reading in (RAISES, NOT_RUN)), row


def test_the_default_backend_was_asked_about_what_aot_eager_gets_wrong():
    for version in {row["torch"] for row in ROWS}:
        asked = {row["operation"] for row in table.of(ROWS, version, "inductor")}
        assert asked in (set(), table.wrong(ROWS, version, "aot_eager"))


def test_the_page_is_made_from_the_table():
    assert page.PAGE.read_text(encoding="utf-8") == page.page(ROWS)


def test_the_report_counts_what_the_table_holds():
    counted = re.findall(r"^\| (\d\S+) \| (\d+) \| (\d+) \| (\d+) \|$", REPORT, re.MULTILINE)
    assert [version for version, *_ in counted] == sorted({row["torch"] for row in ROWS})
    for version, *numbers in counted:
        wrong = [len(table.wrong(ROWS, version, backend)) for backend in BACKENDS]
        asked = len(table.of(ROWS, version, "aot_eager"))
        assert list(map(int, numbers)) == [asked, *wrong]


def asked_again(names):
    fresh = [table.row_of(command.VERSION, n, "aot_eager", look_at(n, "aot_eager")) for n in names]
    return list(table.differences([STORED[name] for name in names], fresh))


@pytest.mark.slow
@is_stored
def test_ten_operations_give_their_rows_again():
    assert {table.reading(STORED[name]) for name in TEN} == {RIGHT, RAISES, WRONG, NOT_RUN}
    assert asked_again(TEN) == []


@is_stored
@pytest.mark.slow
def test_thirty_operations_give_their_rows_again():
    assert STORED.keys() == database().keys()
    assert asked_again(sorted(STORED)[5 :: len(STORED) // 30][:30]) == []


@pytest.mark.slow
@is_stored
def test_three_lines_reproduce_a_wrong_row():
    assert list(command.verify([STORED["tanh"]])) == []
    assert list(command.verify([STORED["tanh"] | {"got": "7"}])) != []
    assert list(command.verify([STORED["tanh"] | {"setting": "after"}])) != []


@needs_compiler
@is_stored
@pytest.mark.slow
def test_three_lines_reproduce_rows_of_the_default_backend():
    rows = [
        row for row in table.of(ROWS, command.VERSION, "inductor") if table.reading(row) == WRONG
    ]
    if not rows:
        pytest.skip("the default backend was not asked")
    assert list(command.verify(rows[:5])) == []


def test_the_page_shows_the_three_lines():
    row = {"operation": "tanh", "setting": "beside", "backend": "aot_eager"}
    assert page.three_lines(row) in page.page(ROWS)


def test_a_changed_outcome_is_told_and_a_number_is_not():
    row = dict.fromkeys(table.FIELDS, "") | dict.fromkeys(SETTINGS, WRONG) | {"torch": "2.13.0"}
    assert list(table.differences([row], [row | {"got": "1.5"}])) == []
    assert len(list(table.differences([row], [row | {"after": RAISES}]))) == 1
    assert len(list(table.differences([], [row]))) == len(SETTINGS)


@pytest.mark.slow
def test_a_setting_asks_nothing_before():
    """A region that was differentiated once before refuses what it lets pass in silence."""
    if not STORED or command.VERSION != "2.13.0":
        pytest.skip("said of torch 2.13")
    assert len(list(command.verify([STORED["linalg.inv"]]))) == 0
    operation = Operation("linalg.inv")
    torch._dynamo.reset()
    region = torch.compile(operation.function, backend="aot_eager")
    points, loss = loss_of(operation, region, "beside")
    loss.backward()
    with pytest.raises(RuntimeError, match="donated buffers"):
        differentiate_twice(*loss_of(operation, region, "beside"))


class KeepsTanh(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.y = torch.tanh(x)
        return ctx.y.clone()

    @staticmethod
    def backward(ctx, grad_out):
        return grad_out * (1 - ctx.y**2)


# What follows imports torch's list of operations, eight seconds.
@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS)
def test_eager_is_believed_only_where_differences_agree(setting):
    operation = Operation("tanh")
    assert truth(operation, setting)[1] is not None
    operation.function = KeepsTanh.apply
    assert truth(operation, setting)[1] is None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["atanh", "logit", "erfinv"])
def test_differences_stay_inside_the_domain(name):
    assert truth(Operation(name), "before")[1] is not None


@pytest.mark.slow
@pytest.mark.parametrize("setting", ["before", "after", "both"])
def test_a_bend_keeps_the_first_derivative(setting):
    operation = Operation("tanh")
    alone, bent = (
        differentiate_twice(*loss_of(operation, operation.function, each))[0]
        for each in ("alone", setting)
    )
    assert close(alone, bent)


@pytest.mark.slow
def test_second_derivative_is_the_formula():
    (x,) = Operation("exp").points
    (u,), (w,) = directions([x], 1), directions([x], 10)
    torch.testing.assert_close(second_derivative("exp", "alone"), [w * torch.exp(x) * u])
    beside = [w * torch.exp(x) * u + 2 * u]
    torch.testing.assert_close(second_derivative("exp", "beside"), beside)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "printed"),
    [PROGRAMS[0], pytest.param(*PROGRAMS[1], marks=[pytest.mark.slow, needs_compiler])],
)
def test_the_report_prints_what_it_says(program, printed, capsys):
    torch._dynamo.reset()
    exec(program, {})
    assert capsys.readouterr().out == printed
