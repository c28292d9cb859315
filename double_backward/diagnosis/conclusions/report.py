"""Writes a `Diagnosis` as text: a headline, its cause, what was measured, then the other findings.

Where the reader's language is not English, a translation follows below each English text.
"""

import math
import textwrap
from itertools import groupby
from typing import NamedTuple

from double_backward.check import LEFT, Outcome
from double_backward.lessons import lesson_mark
from double_backward.lines import WIDTH, translated, wrapped

from ..causes.missing_part import shown_row
from ..measurements.transforms import NO_SETUP_CONTEXT
from ..preparation.formulas import FORMULAS, Row
from ..preparation.functions import Saved
from .findings import Finding
from .verdict import Verdict

TITLE = 20  # columns: "second derivative"
SETTING = 16  # "graph before"
OUTCOME = 8  # "WRONG"


OPERATORS = "not for registered operators: grad raises"


class TableLine(NamedTuple):
    """One line of the table, before it is wrapped."""

    title: str
    setting: str  # "" if there is none; then the text begins in its column
    text: str


def text_of(diagnosis):
    first = diagnosis.read_first
    rest = [finding for finding in diagnosis.findings if finding is not first]
    parts = [
        [*wrapped(diagnosis.headline, "  "), *translated(diagnosis.headline, "  ")],
        _findings([first], placed=True) if first else [],
        _table(_lines(diagnosis)),
        _matrix(diagnosis.matrix),
        _findings(rest, placed=len(diagnosis.functions) > 1),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part)


def _lines(diagnosis):
    lines = []
    if diagnosis.cut_down:
        lines.append(TableLine("inputs", "", diagnosis.cut_down))
    if diagnosis.first:
        lines.append(TableLine("first derivative", "", _first_text(diagnosis)))
    for setting, row in diagnosis.settings.items():
        lines.append(TableLine("second derivative", setting, _second_text(row, diagnosis.first)))
    shown = [r for r in diagnosis.settings.values() if r.outcome is Outcome.WRONG and r.where]
    if shown and diagnosis.recipe:
        lines.append(TableLine("the numbers", "", diagnosis.recipe))
        lines += [TableLine("the numbers", s, FORMULAS[s]) for s in diagnosis.settings]
    row = shown_row([*diagnosis.settings.values()])
    if row and (text := shares_text(row, diagnosis.shares)):
        lines.append(TableLine("missing", "", text))
    for setting, row in diagnosis.third.items():
        lines.append(TableLine("third derivative", setting, outcome_text(row)))
    for name, row in diagnosis.forward_mode.items():
        lines.append(TableLine("forward mode", name, outcome_text(row)))
    operator = any("::" in name for name in diagnosis.functions)
    for name, row in diagnosis.torch_func.items():
        missing = row.text == NO_SETUP_CONTEXT  # then it takes no such Function at all
        why = OPERATORS if operator else row.text
        said = ("", why) if missing else (name, outcome_text(row))
        lines.append(TableLine("torch.func", *said))
    return _once(lines) + [TableLine("saved", "", text) for text in _saved_texts(diagnosis.saved)]


def _once(lines):
    """The lines, in which an error of torch that was shown already is not repeated."""
    texts = [line.text for line in lines]
    return [
        line._replace(text="raises the same")
        if line.text.startswith("raises: ") and line.text in texts[:i]
        else line
        for i, line in enumerate(lines)
    ]


HEADS = {  # verdict -> the outcome that at least one row has to show
    Verdict.FIRST_DERIVATIVE_WRONG: Outcome.WRONG,
    Verdict.SILENTLY_WRONG: Outcome.WRONG,
    Verdict.RAISES: Outcome.RAISES,
}


def _first_text(diagnosis):
    """The text for the first derivative. It says so if that is right as measured, and the headline
    is about another call of backward."""
    first, rows = diagnosis.first, [diagnosis.first]
    if diagnosis.meant and first.outcome is Outcome.WRONG:
        expected, got = _digits(first)
        return f"{'meant':{OUTCOME}}forward's is {expected}, backward's {got} at {first.where}"
    if diagnosis.verdict is not Verdict.FIRST_DERIVATIVE_WRONG:
        rows += [*diagnosis.settings.values(), *diagnosis.third.values()]
    wanted = HEADS.get(diagnosis.verdict)
    shown = wanted is None or any(row.outcome is wanted for row in rows)
    if shown or first.outcome is not Outcome.RIGHT:
        return outcome_text(first)
    return f"{'right':{OUTCOME}}here, but not always: {diagnosis.read_first.code}"


def _second_text(row, first):
    if row.outcome is Outcome.RIGHT and first and first.outcome is Outcome.NOT_FINITE:
        return "not judged: the first derivative is not finite"
    return outcome_text(row)


def outcome_text(row: Row) -> str:
    """The word for the outcome, in capitals if it is wrong or not finite, and its details."""
    word: str = row.outcome
    column = f"{word.upper() if row.outcome is Outcome.WRONG else word:{OUTCOME}}"
    if row.outcome is Outcome.WRONG and row.where:
        expected, got = _digits(row)
        return f"{column}expected {expected:>7}, got {got} at {row.where}"
    if row.outcome is Outcome.WRONG:
        return f"{column}{row.text or 'not the derivative of what backward returns'}"
    if row.outcome is Outcome.RIGHT and row.text:
        return f"{column}(0; autograd raises: no input matters there)"
    if row.text and row.outcome in (Outcome.NOT_ASKED, Outcome.RAISES, Outcome.UNCLEAR):
        return f"{word}: {row.text}"
    if row.outcome is Outcome.NOT_FINITE:
        return f"{word.upper()} at {row.where}" if row.where else word.upper()
    if row.outcome is Outcome.UNCLEAR and not row.elements:
        return "nothing to check: there is no element"
    if row.outcome is Outcome.UNCLEAR:
        return f"{word} (not smooth here, or noise)"
    if row.of_backward:
        return f"{column}as the derivative of what backward returns"
    return word


def shares_text(row, shares):
    """What the number lacks, as a sum; "" if that has only one term."""
    several = len(shares) > 1
    terms = [
        (share, f"{title} of {name}" if several else title)
        for name, kept in shares.items()
        for title, share in kept.items()
        if share
    ]
    missing = row.expected - row.got
    rest = missing - sum(share for share, _ in terms)
    if abs(rest) > 5 * row.uncertain + LEFT * sum(abs(share) for share, _ in terms):
        terms.append((rest, ""))
    if len(terms) < 2:
        return ""
    spec = _spec(missing, *(share for share, _ in terms))
    words = [
        f"{'-' if share < 0 else '+'} {abs(share):{spec}} "
        + (f"through {title}" if title else "elsewhere")
        for share, title in terms
    ]
    whole = " ".join(words).removeprefix("+ ")
    return f"{missing:{spec}} = {whole}"


def _digits(row):
    """Expected and got as text, the first with no more digits than finite differences have."""
    spec = _spec(row.expected, row.got)
    return _known(row.expected, row.uncertain, spec), format(row.got, spec)


def _spec(*numbers):
    return "z.4f" if 1e-2 <= max(map(abs, numbers)) < 1e5 else "z.4g"


def _known(number, uncertain, spec):
    """The number in this format, or with as many digits as are known; the last may be off by 1."""
    if not uncertain or float(format(uncertain, spec)) == 0:
        return format(number, spec)
    last = math.ceil(math.log10(uncertain))  # the place of the last digit: -2 for 0.01
    digits = math.floor(math.log10(abs(number))) - last + 1 if number else 0
    if digits < 1:
        return "0"
    if spec.endswith("g"):
        return format(number, f"z.{min(digits, 4)}g")
    return format(number, f"z.{min(-last, 4)}f" if last <= 0 else f"z.{digits}g")


def _saved_texts(saved: list[Saved]) -> list[str]:
    """One line for each thing that is kept, or for more than three in a row that are alike."""
    texts = []
    for text, alike in groupby(map(_saved_text, saved)):
        count = len(list(alike))
        texts += [text] * count if count <= 3 else [f"{text}, {count} times"]
    return texts


def _saved_text(saved: Saved) -> str:
    by = f"ctx.{saved.name}" if saved.name else "save_for_backward"
    if not saved.bytes and not saved.shape:  # a number, or another object
        return f"{saved.kind} {saved.dtype}, {by}"
    return f"{saved.kind} {saved.shape} {saved.dtype}, {saved.bytes} bytes, {by}"


def _table(lines: list[TableLine]) -> list[str]:
    """The lines, with each title once; a text that is too long goes on below its outcome."""
    table, last = [], ""
    for title, setting, text in lines:
        head = f"{'' if title == last else title:{TITLE}}"
        head += f"{setting:{SETTING}}" if setting else ""
        deeper = OUTCOME if setting or title != "the numbers" else 0
        indent = " " * (len(head) + deeper)
        table += wrapped(head + text, indent)
        last = title
    return table


def _matrix(matrix: dict[str, dict[str, str]]) -> list[str]:
    """A table with a line for the gradient of each input and a column for each input; a wide table
    is split."""
    if not matrix:
        return []
    names = list(matrix)
    width = max(7, *map(len, names)) + 2
    title = max(TITLE, *(len(name) + 7 for name in names))
    lines, count = [], max(1, (WIDTH - title) // width)
    for part in (names[i : i + count] for i in range(0, len(names), count)):
        lines.append(f"{'differentiated by':{title}}" + "".join(f"{by:{width}}" for by in part))
        for name in names:
            words = "".join(f"{matrix[name][by]:{width}}" for by in part)
            lines.append(f"{'grad_' + name:{title}}{words}")
    return [short for line in lines for short in wrapped(line.rstrip(), "  ")]


def _findings(findings: list[Finding], placed: bool) -> list[str]:
    """The code of each finding, its message beside it, and the lesson at the end of the last line;
    if they are to be `placed`, also the Function that it is about, and its line."""
    code = max((len(finding.code) for finding in findings), default=0) + 2
    lines = []
    for finding in findings:
        mark = lesson_mark(finding.lesson) if finding.lesson else ""
        where = f" (In {finding.where}.)" if placed and finding.function else ""
        head = f"{finding.code:{code}}{finding.message}{where}"
        text = wrapped(head, " " * code)
        if mark and len(text[-1]) + len(mark) <= WIDTH - 2:
            text[-1] = text[-1].ljust(WIDTH - len(mark)) + mark
        elif mark:  # an address may be a long one
            whole = textwrap.wrap(mark, WIDTH, break_long_words=False, break_on_hyphens=False)
            text += [line.rjust(WIDTH) for line in whole]
        lines += [*text, *translated(finding.message, " " * code)]
    return lines
