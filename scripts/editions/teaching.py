"""TEACHING.md, read: minutes and stumbling blocks by lesson and section.

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
