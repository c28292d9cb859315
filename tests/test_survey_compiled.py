"""The table of compiled operations: what is stored, and a sample of it asked again."""

import re
import shutil
from itertools import product

import pytest
import torch
from made_functions import saving
from torch.autograd import grad

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
    kind_of,
    look_at,
    truth,
)
from survey.compiled.nets import BY, GIVEN, NETS, forms
from survey.compiled.operations import Operation, database, kinds
from survey.compiled.second import SETTINGS, directions

ROWS = table.read()
ASKED = table.of(ROWS, command.VERSION, "aot_eager")
STORED = table.by_operation(table.of(ROWS, command.VERSION, "aot_eager", "real"))
REPORT = page.REPORT.read_text(encoding="utf-8")
PROGRAMS = page.PROGRAM.findall(REPORT)
TEN = ["tanh", "exp", "sqrt", "softmax", "mm", "sin", "add", "nn.functional.relu", "T", "__rpow__"]

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


# By hand: the second derivative of each by each argument alone; whether backward needs that
# argument itself, or only what forward made of it and the others.
BY_HAND = {
    ("exp", "1"): WRONG,  # e^x, its own result
    ("tanh", "1"): WRONG,
    ("sqrt", "1"): WRONG,
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
    frozen, trained, *weights = BY
    for given in forms(name):
        assert by_name(name, given, frozen, backend) == WRONG
    assert by_name(name, "x", trained, backend) == table.RAISES
    assert by_name(name, "2 x", trained, backend) == WRONG
    of_view = {"aot_eager": WRONG, "inductor": table.RAISES}
    assert by_name(name, "view", trained, backend) == of_view[backend]
    for given, by in product(forms(name), weights):
        assert by_name(name, given, by, backend) == table.RAISES


def twice(f, x, asked):
    """The second derivative beside another way to all that is asked; the word of its refusal."""
    total = (f(x) * torch.tensor([1.0, 2.0])).sum() + (x.sum() + sum(p.sum() for p in asked)) ** 2
    (first,) = grad(total, x, create_graph=True)
    try:
        return torch.cat([part.flatten() for part in grad((first**2).sum(), asked)])
    except RuntimeError as error:
        return kind_of(str(error))


def seen(f, x, asked):
    """Compiled by the backend that most rows are about, beside eager."""
    torch._dynamo.reset()
    said = twice(torch.compile(f, backend="aot_eager"), x, asked)
    if isinstance(said, str):
        return said
    return RIGHT if torch.allclose(said, twice(f, x, asked)) else WRONG


@pytest.mark.slow
@pytest.mark.parametrize("name", ["MLP, tanh", "layer norm"])
def test_a_net_compiled_as_users_do_gives_its_rows(name):
    """With its Parameters, and none of the code that the rows were made by."""
    stored = table.cases(table.of(ROWS, command.VERSION, "aot_eager", "net"))
    told = {key[3:]: row["beside"] for key, row in stored.items()}
    x = torch.linspace(-1, 1.5, 9, dtype=torch.float64).sin().reshape(3, 3)
    x = x.clone().requires_grad_()  # no view, as the table has it
    for by, (given, prepared) in product([*BY][:3], GIVEN.items()):
        torch.manual_seed(0)
        net = NETS[name]().double().requires_grad_(by != [*BY][0])
        asked = [*net.parameters()] if by == [*BY][2] else [x]
        assert seen(lambda x: net(prepared(x)), x, asked) == told[name, by, given]  # noqa: B023
    assert seen(net, 2 * x, [x]) == REFUSES  # the sentence: what it keeps, 2x, leads to x


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
@is_stored
def test_three_lines_reproduce_a_wrong_row():
    (tanh,) = STORED["tanh"]
    assert list(command.not_reproduced([tanh])) == []
    assert list(command.not_reproduced([tanh | {"got": "7"}])) != []
    assert list(command.not_reproduced([tanh | {"setting": "after"}])) != []


def test_the_page_shows_the_three_lines():
    row = next(row for row in STORED["pow"] if row["by"] == "2")
    assert page.three_lines(row) in page.page(ROWS)


def test_a_changed_outcome_is_told_and_a_number_is_not():
    row = dict.fromkeys(table.FIELDS, "") | dict.fromkeys(SETTINGS, WRONG) | {"torch": "2.13.0"}
    row["samples"] = "0"
    assert list(table.differences([row], [row | {"got": "1.5"}])) == []
    assert len(list(table.differences([row], [row | {"after": REFUSES}]))) == 1
    assert len(list(table.differences([], [row]))) == len(SETTINGS)


# What follows imports torch's list of operations, eight seconds.
@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS)
def test_eager_is_believed_only_where_differences_agree(setting):
    operation = Operation("tanh")
    assert truth(operation, setting)[1] is not None
    operation.function = saving(torch.tanh, torch.tanh, lambda g, y: g * (1 - y**2))
    assert truth(operation, setting)[1] is None


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
