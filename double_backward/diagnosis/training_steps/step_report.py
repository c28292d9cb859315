"""Writes a `StepDiagnosis` as text: a headline, a table of the Functions, and what is wrong."""

from double_backward.compiled import Region
from double_backward.lessons import lesson_mark
from double_backward.lines import message_of, translated, wrapped
from double_backward.phrases import Phrase, joined

from ..conclusions.verdict import Verdict
from ..conclusions.words import advice

NO_FUNCTION = Phrase("The step applies no custom Function.")
NOT_LOOKED_AT = Phrase(
    "What it does itself (detach, a hook, autograd.grad without create_graph) is not looked at, "
    "since something is compiled here: hand it to diagnose as a function of its tensors."
)
NOTHING_SEEN = Phrase(
    "Nothing was seen in it that cuts a gradient of its own. What Python or NumPy computes of its "
    "numbers is not followed."
)
ITSELF = Phrase("In the step itself: {} {} That may be meant, and is not judged.")
UNMET = Phrase("ignore names {}: the step applies no custom Function of this name.")


def text_of(step):
    table = [*_both(_headline(step.rows)), "", *_table(step.rows)] if step.rows else []
    said = [table or _nothing(step)]
    said.append([line for cut in step.itself or () for line in _itself(cut)])
    said.append([line for row in step.rows for line in _told(row)])
    said.append([line for name in step.unmet for line in _both(Phrase(UNMET, name))])
    if step.error is not None:
        said.append(_both(Phrase("The step raised {}", error_line(step.error))))
    return "\n\n".join("\n".join(part) for part in said if part)


def _nothing(step):
    known = NOT_LOOKED_AT if step.itself is None else NOTHING_SEEN
    return _both(NO_FUNCTION if step.itself else joined("{} {}", [NO_FUNCTION, known]), "")


def _both(text, indent="  "):
    return [*wrapped(text, indent), *translated(text, indent)]


def _itself(cut):
    text = Phrase(ITSELF, cut.said, advice({cut.step.kind}))
    return [*wrapped(f"{text} {lesson_mark(4)}", "  "), *translated(text, "  ")]


def error_line(error: BaseException) -> str:
    said = " ".join(message_of(error).splitlines())
    return f"{type(error).__name__}: {said}".strip().removesuffix(":")


def _headline(rows):
    right = sum(row.ok and row.diagnosis.ok and row.order > 0 for row in rows)
    wrong = [row for row in rows if not row.ok]
    unknown = sum(row.verdict is Verdict.NOT_CHECKED for row in wrong)
    regions = sum(isinstance(row.function, Region) for row in rows)
    functions = len(rows) - regions
    one, several = Phrase("{} custom Function"), Phrase("{} custom Functions")
    said = [Phrase(several if functions > 1 else one, functions)] if functions else []
    one, several = Phrase("{} compiled region"), Phrase("{} compiled regions")
    said += [Phrase(several if regions > 1 else one, regions)] if regions else []
    said += [Phrase("{} right", right)]
    enough = [row.said for row in rows if row.ok and not (row.order and row.diagnosis.ok)]
    said += [Phrase("{0} {1}", enough.count(each), each) for each in dict.fromkeys(enough)]
    said += [Phrase("{} not", len(wrong) - unknown)]
    said += [Phrase("{} not checked", unknown)] if unknown else []
    return joined("{}, {}", said)


def _table(rows):
    cells = [("verdict", "Function", "written in", "calls", "order", "cause")]
    for row in rows:
        cause = row.cause.code if row.cause else ""
        numbers = str(row.calls), str(row.order)
        cells.append((row.said, row.name, str(row.place), *numbers, cause))
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(f"{c:<{w}}" for c, w in zip(cell, widths, strict=True)) for cell in cells]
    return [short for line in lines for short in wrapped(line.rstrip(), "  ")]


def _told(row):
    """The lines below the table for a Function: what is wrong, where it was applied, its notes."""
    name, texts = row.name, list(row.notes)
    if not row.ok:
        name += f", applied in {row.called}" if row.called else ""
        if row.cause and row.verdict is not Verdict.NOT_CHECKED:
            texts.insert(0, f"{row.cause.message} {lesson_mark(row.cause.lesson)}")
    said = [f"{name}: {text}" for text in texts]
    lines = [line for text in said for line in wrapped(text, "  ")]
    told = [row.cause.message] if row.cause and not row.ok else []
    return lines + [line for text in [*told, *row.notes] for line in translated(text, "  ")]
