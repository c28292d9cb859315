"""TEACHING.md, read: minutes and stumbling blocks by lesson and section; and minutes, reckoned.

TEACHING.zh-CN.md has the same for the lessons in Chinese.
"""

import re

from .carry import ROOT

TEACHING = ROOT / "docs" / "TEACHING.md"
PAGES = {"": TEACHING, "zh_CN": ROOT / "docs" / "TEACHING.zh-CN.md"}
LESSON = re.compile(r"^### (?:Lesson|第) (\d)\b[^\n]*\n(.*?)(?=^##)", re.M | re.S)
ROW = re.compile(r"^\| (.+?) \| (\d+) \| (.*?) ?\|$", re.MULTILINE)


def sections(number, language=""):
    """Dict from a heading of the lesson to (minutes, where people get stuck)."""
    text = PAGES[language].read_text(encoding="utf-8")
    tables = {int(found[1]): found[2] for found in LESSON.finditer(text)}
    return {row[1]: (int(row[2]), row[3]) for row in ROW.finditer(tables[number])}


HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
EXERCISE = re.compile(r"^### .*\((\d+) minutes\)$", re.MULTILINE)
WORDS_A_MINUTE = 75
A_CELL, A_PREDICTION = 0.5, 1  # minutes: to read and run a code cell, to answer a question first


def reckoned(notebook):
    """Dict from each heading but "Going further" to minutes, by the rule that TEACHING.md states.

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
    return whole | {"Your turn": sum(map(int, EXERCISE.findall(text)))}


def words(text):
    """How many there are, without the signs of Markdown that stand alone."""
    return sum(any(map(str.isalnum, word)) for word in text.split())


def to_five(minutes):
    """Minutes as a reader is told them."""
    return 5 * round(minutes / 5)
