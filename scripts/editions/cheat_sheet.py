"""The decision table of the cheat sheets, in each language: taken from lesson 6.

`make translations` and `make copies` write it. The rest of the sheets is written by hand.
"""

import re

import nbformat

from .carry import ROOT
from .languages import LANGUAGES, words_of

PLACE = re.compile(r"(<!-- lesson 6 -->\n).*?(<!-- /lesson 6 -->)", re.DOTALL)
TABLE = re.compile(r"^\|.*\n(?:\|.*\n)+", re.MULTILINE)


def main():
    for language, path in sheets().items():
        path.write_text(written(language), encoding="utf-8", newline="\n")


def sheets():
    """{language: its cheat sheet}, where there is one."""
    docs = ROOT / "docs"
    named = {each: f"CHEATSHEET.{words_of(each)['lang']}.md" for each in LANGUAGES if each}
    found = {"": docs / "CHEATSHEET.md"} | {each: docs / name for each, name in named.items()}
    return {language: path for language, path in found.items() if path.exists()}


def written(language):
    """The sheet with the table as the lesson has it now."""
    text = sheets()[language].read_text(encoding="utf-8")
    return PLACE.sub(lambda place: f"{place[1]}\n{table(language)}\n{place[2]}", text)


def table(language):
    lesson = ROOT / "notebooks" / language / "6_your_own_function.ipynb"
    cells = nbformat.read(lesson, as_version=4).cells
    tables = [
        found
        for cell in cells
        if cell.cell_type == "markdown"
        for found in TABLE.findall(cell.source)
    ]
    return max(tables, key=len)


if __name__ == "__main__":
    main()
