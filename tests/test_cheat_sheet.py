"""The cheat sheets: the table is the lesson's, the numbers are true, the names are the tool's."""

import re
from types import SimpleNamespace

import pytest
import torch
from editions import cheat_sheet

import double_backward
from lessons_src.what_not_to_do import SinhBad

SHEETS = {language: path.read_text("utf-8") for language, path in cheat_sheet.sheets().items()}
each_language = pytest.mark.parametrize("language", SHEETS, ids=lambda name: name or "en")


@each_language
def test_the_table_is_that_of_the_lesson(language):
    assert SHEETS[language] == cheat_sheet.written(language), "`make copies` writes it"
    rows = cheat_sheet.table(language).splitlines()
    assert [row.split(" | ")[0] for row in rows[2:]] == [f"| {n}" for n in range(1, 15)]


@each_language
def test_the_numbers_are_those_that_the_code_gives(language):
    code = re.search(r"```python\n(.*?)```", SHEETS[language], re.DOTALL)[1]
    asked = re.findall(r"^\| `(second\(.*\))` \| (.*) \| (.*) \|$", SHEETS[language], re.MULTILINE)
    assert len(asked) == 3
    for call, right, wrong in asked:
        for function, told in ((torch.sinh, right), (SinhBad.apply, wrong)):
            assert outcome(code, call, function) == re.sub(r"\*|报错|raises", "", told), call


def outcome(code, call, function):
    """The number to four digits, or "" where autograd raises."""
    x = torch.tensor([0.5], dtype=torch.float64, requires_grad=True)
    names = {"torch": torch, "F": SimpleNamespace(apply=function), "x": x}
    exec(code, names)
    try:
        return f"{eval(call, names).item():.4f}"
    except RuntimeError:
        return ""


@each_language
def test_every_verb_of_the_tool_is_there(language):
    verbs = {name for name in double_backward.__all__ if name[0].islower()}
    called = set(re.findall(r"\b([a-z]\w+)\(", SHEETS[language].split("<!-- /lesson 6 -->")[1]))
    assert called - {"print"} == verbs
