"""The text of a made-up diagnosis: what stands in which column, and where lines are broken."""

from importlib import metadata
from pathlib import Path

import nbformat
import pytest
from made_evidence import NOT_ASKED, NOT_FINITE, RAISES, RIGHT, UNCLEAR, WRONG, kept

from double_backward.diagnosis import Diagnosis
from double_backward.diagnosis.conclusions.findings import Finding
from double_backward.diagnosis.conclusions.report import outcome_text
from double_backward.diagnosis.conclusions.verdict import Verdict
from double_backward.diagnosis.preparation.formulas import Row, Setting
from double_backward.diagnosis.preparation.functions import Kind, Saved
from double_backward.lessons import LESSONS, lesson_mark, website

ROOT = Path(__file__).resolve().parent.parent

SECOND = {
    Setting.ALONE: Row(RAISES, text="x " * 40),
    Setting.AFTER: Row(WRONG, expected=1.5, got=-0.00001, where="x[0]"),
    Setting.BEFORE: Row(RIGHT, text="no graph"),
    Setting.BOTH: Row(WRONG),
}
SILENT = Verdict.SILENTLY_WRONG
MARK = '-> lesson 4, "What not to do"'
REPORT = """\
F: silently wrong at second order

one  A message. (In F, here.py:3.)                         -> lesson 4, "What not to do"

first derivative    right
second derivative   alone           raises: x x x x x x x x x x x x x x x x x x x x x x
                                            x x x x x x x x x x x x x x x x x x
                    graph after     WRONG   expected  1.5000, got 0.0000 at x[0]
                    graph before    right   (0; autograd raises: no input matters there)
                    both            WRONG   not the derivative of what backward returns
the numbers         from z z z z z z z z z z z z z z z z z z z z z z z z z z z z z z z z
                    z z z z z z z z
                    alone           y where y = fn(x)
                    graph after     y + (y - y.detach())**2/2
                    graph before    y where y = fn(x + (x - x.detach())**2/2)
                    both            y + (y - y.detach())**2/2 with that y
third derivative    alone           NOT FINITE at x[1]
torch.func          grad of grad    WRONG   0 in the place of another number
saved               intermediate (2,) float64, 16 bytes, ctx.e
                    input (2,) float64, 16 bytes, save_for_backward

second  Another one.                -> lesson 5, "A backward that autograd cannot track"
"""


def test_the_whole():
    diagnosis = Diagnosis(
        "F",
        SILENT,
        [
            Finding("second", "Another one.", 5),
            Finding("one", "A message.", 4, cause=True, function="F", file="here.py", line=3),
        ],
        first=Row(RIGHT),
        settings=SECOND,
        third={Setting.ALONE: Row(NOT_FINITE, where="x[1]")},
        saved=[kept("e"), kept(kind=Kind.INPUT)],
        recipe="from " + "z " * 40,
        torch_func={"grad of grad": Row(WRONG, text="0 in the place of another number")},
    )
    assert str(diagnosis) == REPORT.rstrip()


def lines(findings=(), **about):
    return str(Diagnosis("F", SILENT, list(findings), **about)).splitlines()[2:]


@pytest.mark.parametrize(
    "rows",
    [
        {Setting.ALONE: Row(WRONG)},
        {Setting.ALONE: Row(RIGHT, where="x")},
        {Setting.ALONE: Row(RAISES, where="x")},
    ],
)
def test_how_numbers_are_got_is_said_where_a_wrong_one_is_shown(rows):
    assert "the numbers" not in str(lines(settings=rows, recipe="grad"))


def test_what_is_too_long_goes_on_below_its_outcome():
    words = "word " * 14
    wrong = dict.fromkeys(Setting, Row(WRONG, where="x"))
    told = lines(first=Row(RAISES, text=words), settings=wrong, recipe=words)
    below = [line for line in told if line.lstrip().startswith("word")]
    assert [line.index("word") for line in below] == [28, 20]
    assert max(map(len, told)) <= 88


def test_that_torch_func_cannot_use_it_is_a_word():
    told = lines(torch_func={"grad of grad": Row(NOT_ASKED, text="no setup_context")})
    assert told == ["torch.func          no setup_context"]


def test_an_error_is_told_once():
    told = lines(settings=dict.fromkeys(Setting, Row(RAISES, text="no")))
    assert [line[36:] for line in told] == ["raises: no", *["raises the same"] * 3]


@pytest.mark.parametrize(
    "verdict, code",
    [
        (Verdict.SILENTLY_WRONG, "cause"),
        (Verdict.FIRST_DERIVATIVE_WRONG, "first"),
        (Verdict.SURROGATE_GRADIENT, "first"),
        (Verdict.SUPPORTED, None),
        (Verdict.NOT_CHECKED, "cause"),
    ],
)
def test_what_is_read_first(verdict, code):
    note = Finding("note", "n", 1, severity="note")
    found = [note, Finding("first", "f", 1), Finding("cause", "c", 4, cause=True)]
    diagnosis = Diagnosis("F", verdict, found, first=Row(RIGHT))
    top = str(diagnosis).splitlines()[2].split()[0]
    assert (diagnosis.read_first and diagnosis.read_first.code) == code
    assert top == (code or "first") and (code or "first derivative" in str(diagnosis))


def test_a_wide_matrix_stands_in_parts():
    names = [f"a_long_name_{i}" for i in range(8)]
    told = lines(matrix={name: dict.fromkeys(names, "right") for name in names})
    assert max(map(len, told)) <= 88 and len(told) == 18
    assert told[0].split()[2:] + told[9].split()[2:] == names


OUTCOMES = [
    (Row(RIGHT), "right"),
    (Row(RIGHT, of_backward=True), "right   as the derivative of what backward returns"),
    (Row(RAISES, text="no", where="x", of_backward=True), "raises: no"),
    (Row(NOT_FINITE), "NOT FINITE"),
    (Row(UNCLEAR), "nothing to check: there is no element"),
    (Row(UNCLEAR, elements=2), "unclear (not smooth here, or noise)"),
]


@pytest.mark.parametrize("row, text", OUTCOMES)
def test_outcomes(row, text):
    assert outcome_text(row) == text


@pytest.mark.parametrize(
    "expected, got, text",
    [
        (0.01, 0.0, "expected  0.0100, got 0.0000"),
        (0.00999, -0.0, "expected 0.00999, got 0"),
        (-99999.0, 1.0, "expected -99999.0000, got 1.0000"),
        (1.0, 1e5, "expected       1, got 1e+05"),
    ],
)
def test_both_numbers_have_digits_that_fit_the_larger(expected, got, text):
    assert text in outcome_text(Row(WRONG, expected=expected, got=got, where="x"))


@pytest.mark.parametrize(
    "expected, uncertain, got, text",
    [
        (2.3122, 3e-5, 7.5725, "expected  2.3122, got 7.5725"),
        (2.3122, 1e-4, 7.5725, "expected  2.3122, got 7.5725"),
        (2.3122, 2e-4, 7.5725, "expected   2.312, got 7.5725"),
        (2.3122, 0.03, 7.5725, "expected     2.3, got 7.5725"),
        (-0.0153, 0.2, 5.2756, "expected       0, got 5.2756"),
        (23.122, 0.9, 7.5725, "expected      23, got 7.5725"),
        (231.22, 2.0, 7.5725, "expected 2.3e+02, got 7.5725"),
        (9815.0, 200.0, 1e8, "expected   1e+04, got 1e+08"),
        (-185.5, 300.0, 1e8, "expected       0, got 1e+08"),
        (-1e8, 10.0, 1.0, "expected  -1e+08, got 1"),
    ],
)
def test_what_is_expected_has_the_digits_that_are_known(expected, uncertain, got, text):
    row = Row(WRONG, expected=expected, got=got, where="x", uncertain=uncertain)
    assert text in outcome_text(row)


def first_line_of(verdict, **about):
    found = [Finding("code", "so", 1)]
    text = str(Diagnosis("F", verdict, found, **about))
    return next(line for line in text.splitlines() if line.startswith("first derivative"))


def test_the_first_row_says_where_to_look_for_what_the_head_says_and_no_row_shows():
    right, wrong = {Setting.ALONE: Row(RIGHT)}, {Setting.ALONE: Row(WRONG, where="x")}
    elsewhere = f"{'first derivative':20}right   here, but not always: code"
    bad = Verdict.FIRST_DERIVATIVE_WRONG, Verdict.SILENTLY_WRONG, Verdict.RAISES
    for verdict in bad:
        assert first_line_of(verdict, first=Row(RIGHT), settings=right) == elsewhere
    assert first_line_of(bad[0], first=Row(RIGHT), settings=wrong) == elsewhere
    assert first_line_of(bad[1], first=Row(RIGHT), settings=wrong).endswith(" right")
    assert first_line_of(bad[2], first=Row(RAISES, text="no"), settings=right).endswith(": no")
    assert first_line_of(Verdict.SUPPORTED, first=Row(RIGHT), settings=right).endswith(" right")


def test_beside_a_first_derivative_that_is_not_finite_nothing_was_judged():
    rows = {Setting.ALONE: Row(RIGHT), Setting.BOTH: Row(NOT_FINITE)}
    text = str(Diagnosis("F", Verdict.NOT_FINITE, [], first=Row(NOT_FINITE), settings=rows))
    assert "alone           not judged: the first derivative is not finite" in text
    assert "both            NOT FINITE" in text


def test_more_than_three_alike_take_one_line():
    three = lines(saved=[kept("e")] * 3)
    assert len(three) == 3 and "times" not in str(three)
    (line,) = lines(saved=[kept("e")] * 4)
    assert line.endswith("ctx.e, 4 times")


@pytest.mark.parametrize(
    "shape, size, text",
    [
        ((), 0, "intermediate float, ctx.r"),
        ((), 8, "intermediate () float, 8 bytes, ctx.r"),
        ((0, 3), 0, "intermediate (0, 3) float, 0 bytes, ctx.r"),
    ],
)
def test_a_number_has_neither_shape_nor_bytes(shape, size, text):
    saved = Saved("r", Kind.INTERMEDIATE, shape, "float", size)
    assert lines(saved=[saved]) == [f"{'saved':20}{text}"]


def finding(length):
    """One whose first line is that long, with the code before it."""
    return lines([Finding("code", "m" * (length - len("code  ")), 4)])


def test_the_lesson_stands_at_the_right_end():
    assert finding(57) == ["code  " + "m" * 51 + "  " + MARK]
    assert finding(58) == ["code  " + "m" * 52, " " * 59 + MARK]


def test_words_are_not_broken_if_a_line_can_hold_them():
    name = "a-long-name" * 7 + "-longer"
    assert lines([Finding("code", f"see {name} there", 4)]) == [
        "code  see",
        f"    {name}",
        "    there".ljust(59) + MARK,
    ]
    told = lines([Finding("code", f"see {name * 2} there", 4)])
    assert max(map(len, told)) <= 88 and name * 2 in "".join(told)


def test_a_lesson_has_its_title_and_where_the_package_names_an_address_a_link(monkeypatch):
    for title, page in LESSONS.values():
        (path,) = (ROOT / "notebooks").glob(f"{page}.ipynb")
        assert title in nbformat.read(path, as_version=4).cells[0].source.splitlines()[0]
    urls = {"Project-URL": ["Source, https://a.b/c", "Documentation, https://a.b/"]}
    monkeypatch.setattr(metadata, "metadata", lambda name: Named(urls))
    website.cache_clear()
    page = "https://a.b/notebooks/2_saving_outputs.html"
    assert lesson_mark(2) == f'-> lesson 2, "Saving an output" {page}'
    website.cache_clear()


class Named(dict):
    def get_all(self, name):
        return self.get(name)
