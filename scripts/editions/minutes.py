"""How long the lessons take: reckoned by the rule of docs/TEACHING.md, and written everywhere.

Each lesson has the minutes of its sections in the metadata of its notebook, and what people read is
written from there: its first cell, the cell of its exercises, the tables of the READMEs and of
TEACHING in both languages. `make translations` and `make copies` begin with this. What is left to a
person: the other rows of the two plans, which add up to a round number.
"""

import re

import nbformat

from .carry import ROOT
from .languages import lessons_in

HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
EXERCISE = re.compile(r"^### .*\((\d+) minutes\)$", re.MULTILINE)
WORDS_A_MINUTE = 75
A_CELL, A_PREDICTION = 0.5, 1  # minutes: to read and run a code cell, to answer a question first
EXERCISES = "Your turn"


def main():
    for lesson in english():
        before = lesson.read_text(encoding="utf-8")
        notebook = nbformat.reads(before, as_version=4)
        notebook.metadata["minutes"] = reckoned(notebook)
        for cell, pattern, told_so in in_lesson(notebook):
            cell.source = written(pattern, told_so, cell.source)
        if (after := nbformat.writes(notebook) + "\n") != before:
            lesson.write_text(after, encoding="utf-8", newline="\n")
        for page, pattern, told_so in on_pages(lesson, stored(notebook)):
            path, text = ROOT / page, (ROOT / page).read_text(encoding="utf-8")
            path.write_text(written(pattern, told_so, text), encoding="utf-8", newline="\n")


def written(pattern, words, text):
    return re.sub(pattern, rf"\g<1>{words}", text, flags=re.M)


def english():
    return [
        lesson for lesson in lessons_in(ROOT / "notebooks") if lesson.parent == ROOT / "notebooks"
    ]


def reckoned(notebook):
    """Dict from each heading but "Going further" to minutes.

    The title belongs to the first heading; the exercises state their own minutes.
    """
    minutes, heading = {}, None
    for cell in notebook.cells:
        if cell.cell_type == "code":
            minutes[heading] += A_CELL + A_PREDICTION * ("expected" in cell.metadata)
            continue
        before, *after = HEADING.split(cell.source)
        parts = [(heading, before), *zip(after[::2], after[1::2], strict=True)]
        for name, text in parts:
            heading = name
            minutes[heading] = minutes.get(heading, 0) + words(text) / WORDS_A_MINUTE
    first = list(minutes)[1]  # after None: what stands above every heading
    minutes[first] += minutes.pop(None)
    minutes.pop("Going further")
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    whole = {name: max(1, round(reckoned)) for name, reckoned in minutes.items()}
    return whole | {EXERCISES: sum(map(int, EXERCISE.findall(text)))}


def words(text):
    """How many there are, without the signs of Markdown that stand alone."""
    return sum(any(map(str.isalnum, word)) for word in text.split())


def stored(notebook):
    """What the lesson's metadata has, in the order of the lesson: a notebook's file sorts names."""
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    minutes = notebook.metadata["minutes"]
    return {name: minutes[name] for name in HEADING.findall(text) if name in minutes}


def told(minutes):
    """As a reader is told them, to five minutes: the lesson without and with its exercises."""
    whole = sum(minutes.values())
    return to_five(whole - minutes[EXERCISES]), to_five(whole)


def to_five(minutes):
    return 5 * round(minutes / 5)


def in_lesson(notebook):
    """Each: a cell, a pattern in it whose group stays, and what comes behind that."""
    minutes = stored(notebook)
    without, whole = told(minutes)
    yield (
        notebook.cells[0],
        r"(\*\*About )\d+ minutes, \d+ with",
        f"{without} minutes, {whole} with",
    )
    head = rf"(^## {EXERCISES}\n\n.*\babout )"
    (turn,) = [cell for cell in notebook.cells if re.search(head, cell.source, re.M)]
    yield turn, rf"{head}\d+", str(minutes[EXERCISES])


def on_pages(lesson, minutes):
    """Each: a page, a pattern whose group stays, and what comes behind that."""
    number, core = lesson.name[0], sum(minutes.values()) - minutes[EXERCISES]
    without, whole = told(minutes)
    for page in ("README.md", "README.zh-CN.md"):
        yield (
            page,
            rf"(^.*\(notebooks/(?:zh_CN/)?{lesson.name}\).*\| )\d+ \(\d+\)",
            f"{without} ({whole})",
        )
    for page, head, path in (
        ("docs/TEACHING.md", f"### Lesson {number}: ", f"Lesson {number}, core path"),
        ("docs/TEACHING.zh-CN.md", f"### 第 {number} 课：", f"第 {number} 课，主线"),
    ):
        yield page, rf"(^{head})\d+", str(core)
        yield page, rf"(^\| )\d+(?= \| {path} )", str(without)
        # The rows of the table below that heading: their order is that of the sections.
        for row, each in enumerate(minutes.values()):
            yield page, rf"(^{head}[^#]*?\n\|---.*\n(?:\|.*\n){{{row}}}\| [^|]+ \| )\d+", str(each)


if __name__ == "__main__":
    main()
