"""TEACHING.md, read: minutes and stumbling blocks by lesson and section."""

import re

from .carry import ROOT

TEACHING = ROOT / "TEACHING.md"
LESSON = re.compile(r"^### Lesson (\d): (\d+) minutes\n(.*?)(?=^##)", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| (.+?) \| (\d+) \| (.*?) ?\|$", re.MULTILINE)


def sections(number):
    """Dict from a heading of the lesson to (minutes, where people get stuck)."""
    text = TEACHING.read_text(encoding="utf-8")
    tables = {int(found[1]): found[3] for found in LESSON.finditer(text)}
    return {row[1]: (int(row[2]), row[3]) for row in ROW.finditer(tables[number])}
