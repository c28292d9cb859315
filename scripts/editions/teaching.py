"""TEACHING.md, read: minutes and stumbling blocks by lesson and section.

TEACHING.zh-CN.md has the same for the lessons in Chinese. Of a language that has no such page the
sections have the minutes and the words of the English one.
"""

import re

from .carry import ROOT
from .languages import LANGUAGES, said_in, words_of

TEACHING = ROOT / "docs" / "TEACHING.md"
OTHERS = {each: ROOT / "docs" / f"TEACHING.{words_of(each)['lang']}.md" for each in LANGUAGES[1:]}
PAGES = {"": TEACHING} | {language: path for language, path in OTHERS.items() if path.exists()}
LESSON = re.compile(r"^### (?:Lesson|第) (\d)\b[^\n]*\n(.*?)(?=^##)", re.M | re.S)
ROW = re.compile(r"^\| (.+?) \| (\d+) \| (.*?) ?\|$", re.MULTILINE)


def sections(number, language=""):
    """Dict from a heading of the lesson to (minutes, where people get stuck)."""
    text = PAGES.get(language, TEACHING).read_text(encoding="utf-8")
    tables = {int(found[1]): found[2] for found in LESSON.finditer(text)}
    rows = {row[1]: (int(row[2]), row[3]) for row in ROW.finditer(tables[number])}
    if language in PAGES:
        return rows
    lesson = next((ROOT / "notebooks").glob(f"{number}_*.ipynb"))
    said = said_in(language, lesson.stem)
    return {(said.get(f"## {name}") or f"## {name}")[3:]: row for name, row in rows.items()}
