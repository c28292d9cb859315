"""The table of compiled operations: what is stored, and a sample of it asked again."""

import re
import shutil

import pytest
import torch
from torch.autograd import Function

from survey.compiled import __main__ as command
from survey.compiled import page, second_derivative, table
from survey.compiled.look import (
    BACKENDS,
    FAILS,
    NO_WAY,
    NOT_RUN,
    OUTCOMES,
    REFUSES,
    RIGHT,
    WRONG,
    close,
    kind_of,
    look_at,
    truth,
)
from survey.compiled.nets import BY, NETS, Net, forms
from survey.compiled.operations import SAMPLES, Operation, database, kinds
from survey.compiled.second import SETTINGS, differentiate_twice, directions, loss_of

ROWS = table.read()
ASKED = table.of(ROWS, command.VERSION, "aot_eager")
STORED = table.by_operation(table.of(ROWS, command.VERSION, "aot_eager", "real"))
REPORT = page.REPORT.read_text(encoding="utf-8")
PROGRAMS = page.PROGRAM.findall(REPORT)
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
    assert {row[setting] for row in ROWS for setting in SETTINGS} == {*OUTCOMES}
    assert {row["backend"] for row in ROWS} <= set(BACKENDS)
    keys = [table.key(row) for row in ROWS]
    assert len(keys) == len(set(keys)) and keys == sorted(keys)
    assert {table.reading(row) for row in ROWS} == {*table.READINGS}


def test_every_wrong_row_has_two_numbers_and_every_other_failure_a_reason():
    for row in ROWS:
        reading = table.reading(row)
        if reading == WRONG:
            assert float(row["expected"]) != float(row["got"]), row
            assert row[row["setting"]] == WRONG, row
        assert bool(row["why"]) == (reading in (table.RAISES, FAILS, NOT_RUN)), row


def test_the_default_backend_was_asked_about_what_aot_eager_gets_wrong():
    def asked_of(row):
        return row["kind"], row["operation"], row["by"]

    rows = table.of(ROWS, command.VERSION, "aot_eager")
    wrong = {asked_of(row) for row in rows if table.reading(row) == WRONG}
    assert {asked_of(row) for row in table.of(ROWS, command.VERSION, "inductor")} == wrong


def test_every_argument_was_asked_at_each_sample():
    for row in ASKED:
        assert all(int(sample) < SAMPLES for sample in table.samples_of(row)), row
    by = {row["by"] for row in STORED["addcdiv"]}
    assert by == {"1", "2", "3", "all"}
    assert len(table.cases(STORED["addcdiv"])) == SAMPLES * len(by)
    assert {row["by"] for row in STORED["cat"]} >= {"1.1", "1.2", "all"}


def test_nets_were_asked_with_each_kind_of_weights():
    wanted = {(name, given, by) for name in NETS for given in forms(name) for by in BY}
    for backend in BACKENDS:
        rows = table.cases(table.of(ROWS, command.VERSION, backend, "net"))
        assert {(name, given, by) for *_, name, by, given in rows} == wanted


# Between settings the region keeps other tensors.
ELSE = ("linalg.pinv.singular", "all")


def against_the_sentence(rows):
    """Rows and settings that are not as the sentence in bold says.

    Where eager itself has no second derivative nothing is asked, and nothing can raise.
    """
    for row in rows:
        if row["backwards"] in ("", "0") or (row["operation"], row["by"]) == ELSE:
            continue
        for setting in SETTINGS:
            meets = row["keeps"] == "yes" or setting in row["follows"].split()
            said = (REFUSES, RIGHT) if meets else (RIGHT, WRONG, NO_WAY)
            if row[setting] not in (*said, FAILS, NOT_RUN):
                yield row, setting


def test_the_sentence_holds_for_all_rows():
    assert page.RULE.replace("\n", " ") in page.page(ROWS).replace("\n", " ")
    assert list(against_the_sentence(ROWS)) == []
    assert sum(row[setting] == REFUSES for row in ROWS for setting in SETTINGS) > 3000
    silent = [row for row in ROWS if table.reading(row) == WRONG]
    assert len(silent) > 300
    assert {row["keeps"] for row in silent if row["operation"] != ELSE[0]} == {"no"}


def test_a_row_against_the_sentence_is_found():
    (tanh,) = STORED["tanh"]
    for change in ({"keeps": "yes"}, {"after": WRONG}, {"beside": REFUSES}):
        assert list(against_the_sentence([tanh | change])), change


def test_right_where_the_backward_is_met_is_where_nothing_is_asked():
    flat = {
        row["operation"] for row in ASKED for setting in row["follows"].split()
        if row[setting] == RIGHT
    }  # fmt: skip
    assert {"floor", "sign", "round"} <= flat and len(flat) < 25


def test_errors_are_told_as_what_they_are():
    assert (
        kind_of("torch.compile with aot_autograd does not currently support double backward")
        == REFUSES
    )
    assert kind_of("One of the differentiated Tensors appears to not have been used") == NO_WAY
    assert (
        kind_of("a leaf Variable that requires grad is being used in an in-place operation.")
        == FAILS
    )
    made_up = dict.fromkeys(table.FIELDS, "") | dict.fromkeys(SETTINGS, RIGHT)
    assert table.reading(made_up | {"graphs": "1"}) == RIGHT
    assert table.reading(made_up | {"graphs": "0"}) == table.NOT_COMPILED
    assert table.reading(made_up | {"graphs": "1", "alone": NO_WAY}) == table.RAISES
    assert table.reading(made_up | {"graphs": "1", "alone": FAILS}) == FAILS
    assert table.worst(STORED["linalg.eigh"]) == table.RAISES
    assert "in-place" in page.other_errors(ROWS, command.VERSION)


# By hand: the second derivative of each by each argument alone; whether backward needs that
# argument itself, or only what forward made of it and the others.
BY_HAND = {
    ("exp", "1"): WRONG,  # e^x, its own result
    ("tanh", "1"): WRONG,
    ("sigmoid", "1"): WRONG,
    ("sqrt", "1"): WRONG,
    ("rsqrt", "1"): WRONG,
    ("reciprocal", "1"): WRONG,
    ("expm1", "1"): WRONG,
    ("tan", "1"): WRONG,
    ("pow", "2"): WRONG,  # c^x ln(c)^2, its own result
    ("pow", "1"): table.RAISES,  # a power of x
    ("div.no_rounding_mode", "2"): WRONG,  # 2 c / x^3, of the quotient
    ("addcdiv", "3"): WRONG,
    ("logaddexp", "1"): WRONG,
    ("sin", "1"): table.RAISES,  # cos(x)
    ("mul", "1"): table.RAISES,  # linear: raises where something follows
}


@pytest.mark.parametrize(("name", "by"), BY_HAND)
def test_a_row_is_what_a_hand_written_formula_says(name, by):
    rows = [row for row in STORED[name] if row["by"] == by]
    assert table.worst(rows) == BY_HAND[name, by]


def by_name(name, given, by, backend):
    rows = table.cases(table.of(ROWS, command.VERSION, backend, "net"))
    return next(table.reading(r) for key, r in rows.items() if key[3:] == (name, by, given))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["MLP, tanh", "MLP, SiLU", "MLP, softplus"])
def test_nets_are_what_hand_written_hessians_say(name, backend):
    """W1' diag(w2 s''(z)) W1 is missing where x is scaled, or the weights are frozen.

    Of a view of x the default backend keeps x.
    """
    frozen, trained, *_ = BY
    for given in forms(name):
        assert by_name(name, given, frozen, backend) == WRONG
    assert by_name(name, "x", trained, backend) == table.RAISES
    assert by_name(name, "2 x", trained, backend) == WRONG
    of_view = {"aot_eager": WRONG, "inductor": table.RAISES}
    assert by_name(name, "view", trained, backend) == of_view[backend]


def test_asked_for_weights_the_default_backend_is_never_silent():
    by_weights = list(BY)[2:]
    rows = [r for r in table.of(ROWS, command.VERSION, "inductor", "net") if r["by"] in by_weights]
    assert {table.reading(row) for row in rows} == {table.RAISES}
    rows = table.of(ROWS, command.VERSION, "aot_eager", "net")
    assert WRONG in {table.reading(row) for row in rows if row["by"] in by_weights}


def test_the_page_is_made_from_the_table():
    assert page.PAGE.read_text(encoding="utf-8") == page.page(ROWS)


def test_the_report_counts_what_the_table_holds():
    counted = re.findall(
        r"^\| (\d\S+) \| (\w+) \| (\d+) \| (\d+) \| (\S+) \|$", REPORT, re.MULTILINE
    )
    versions = sorted({row["torch"] for row in ROWS}, key=table.release)
    asked_about = [(version, kind) for version, kind, *_ in counted]
    assert asked_about == [(each, kind) for each in versions for kind in ("real", "complex")]
    for version, kind, asked, wrong, default in counted:
        rows = table.of(ROWS, version, "aot_eager", kind)
        assert [int(asked), int(wrong)] == [len(table.by_operation(rows)), len(table.wrong(rows))]
        too = table.wrong(table.of(ROWS, version, "inductor", kind))
        assert default == (str(len(too)) if too else "-")


def asked_again(names):
    old = [row for name in names for row in STORED[name]]
    fresh = [
        row for name in names
        for row in table.rows_of(
            command.VERSION, "aot_eager", "real", name, look_at(name, "real", "aot_eager")
        )
    ]  # fmt: skip
    return list(table.differences(old, fresh))


@pytest.mark.slow
@is_stored
def test_ten_operations_give_their_rows_again():
    assert {table.worst(STORED[name]) for name in TEN} >= {RIGHT, table.RAISES, WRONG}
    assert asked_again(TEN) == []


@is_stored
@pytest.mark.slow
def test_every_operation_has_rows():
    asked = {(row["operation"], row["kind"]) for row in ASKED}
    assert asked == {(name, kind) for name in database() for kind in kinds(name)}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["MLP, tanh", "attention"])
def test_nets_give_their_rows_again(name):
    fresh = look_at(name, "net", "aot_eager", [("2 x", by) for by in Net.by])
    stored = table.cases(table.of(ROWS, command.VERSION, "aot_eager", "net"))
    for row in fresh:
        (was,) = (r for key, r in stored.items() if key[3:] == (name, row["by"], "2 x"))
        assert [row[s] for s in SETTINGS] == [was[s] for s in SETTINGS]


@pytest.mark.slow
@is_stored
def test_three_lines_reproduce_a_wrong_row():
    (tanh,) = STORED["tanh"]
    assert list(command.not_reproduced([tanh])) == []
    assert list(command.not_reproduced([tanh | {"got": "7"}])) != []
    assert list(command.not_reproduced([tanh | {"setting": "after"}])) != []


@needs_compiler
@is_stored
@pytest.mark.slow
def test_three_lines_reproduce_rows_of_the_default_backend():
    asked = table.of(ROWS, command.VERSION, "inductor")
    rows = [row for row in asked if table.reading(row) == WRONG]
    if not rows:
        pytest.skip("the default backend was not asked")
    assert list(command.not_reproduced(rows[:5])) == []


def test_the_page_shows_the_three_lines():
    row = next(row for row in STORED["pow"] if row["by"] == "2")
    assert page.three_lines(row) in page.page(ROWS)


def test_a_changed_outcome_is_told_and_a_number_is_not():
    row = dict.fromkeys(table.FIELDS, "") | dict.fromkeys(SETTINGS, WRONG) | {"torch": "2.13.0"}
    row["samples"] = "0"
    assert list(table.differences([row], [row | {"got": "1.5"}])) == []
    assert len(list(table.differences([row], [row | {"after": REFUSES}]))) == 1
    assert len(list(table.differences([], [row]))) == len(SETTINGS)


@pytest.mark.slow
def test_a_setting_asks_nothing_before():
    """A region that was differentiated once before refuses what it lets pass in silence."""
    if not STORED or command.VERSION != "2.13.0":
        pytest.skip("said of torch 2.13")
    assert list(command.not_reproduced([row for row in STORED["linalg.inv"] if row["got"]])) == []
    operation = Operation("linalg.inv")
    torch._dynamo.reset()
    region = torch.compile(operation.function, backend="aot_eager")
    points, loss = loss_of(operation, region, "beside")
    loss.backward()
    with pytest.raises(RuntimeError, match="donated buffers"):
        differentiate_twice(operation, *loss_of(operation, region, "beside"))


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
        differentiate_twice(operation, *loss_of(operation, operation.function, each))[0]
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
    [
        PROGRAMS[0],
        *(pytest.param(*each, marks=[pytest.mark.slow, needs_compiler]) for each in PROGRAMS[1:]),
    ],
)
def test_the_report_prints_what_it_says(program, printed, capsys):
    torch._dynamo.reset()
    exec(program, {})
    assert capsys.readouterr().out == printed
