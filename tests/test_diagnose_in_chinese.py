"""A reader of Chinese finds each sentence of a report in Chinese, below the English one."""

import json

import pytest
import torch
from chinese import HAN, columns, english_in
from test_diagnosis_findings import SPEAKS, said

from double_backward import (
    SecondDerivativeError,
    detect_intermediates,
    diagnose,
    diagnose_all,
)
from double_backward.diagnosis import Verdict
from double_backward.diagnosis.conclusions.findings import ROWS
from double_backward.diagnosis.preparation.prepare import NOT_CHECKED
from double_backward.lines import wrapped
from double_backward.phrases import Phrase, joined, translation
from lessons_src import library
from lessons_src.saving_inputs import Square
from lessons_src.untracked_backward import CubeNumPy
from lessons_src.what_not_to_do import SinhBad


@pytest.fixture
def chinese(monkeypatch):
    monkeypatch.setenv("COURSE_LANGUAGE", "zh_CN")


@pytest.mark.parametrize("code, evidence", [row[:2] for row in SPEAKS])
def test_words_that_hang_on_the_evidence_have_their_chinese(code, evidence, chinese):
    message = said(evidence)[code]  # those of a Function's report are looked at in the facts
    assert HAN.search(translation(message)), message
    assert not english_in(translation(message)), translation(message)


def test_every_row_and_every_verdict_has_its_chinese(chinese):
    templates = [row.says for row in ROWS.values() if row.says and row.says != "{}"]
    heads = [verdict.headline for verdict in Verdict]
    for text in [*templates, *NOT_CHECKED.values(), *heads]:
        assert translation(text), f"translations/zh_CN/double_backward.po has nothing for: {text}"


def report(fn, monkeypatch, language, *inputs, order=2):
    monkeypatch.setenv("COURSE_LANGUAGE", language)
    return str(diagnose(fn, *inputs, order=order))


X = torch.tensor([0.5, 1.0], dtype=torch.float64, requires_grad=True)
SEEN = {
    "Square": (Square.apply, ["Square：双重反向传播是对的"]),
    "SinhBad": (
        SinhBad.apply,
        ["SinhBad：二阶导数悄悄算错", "ctx.expx、ctx.expnegx"],
    ),
    "CubeNumPy": (CubeNumPy.apply, ["CubeNumPy：三阶导数悄悄算错", "二阶导数是对的，三阶不对"]),
}


@pytest.mark.parametrize("name", SEEN)
def test_the_chinese_stands_below_the_english(name, monkeypatch):
    fn, words = SEEN[name]
    order = 3 if name == "CubeNumPy" else 2
    english, both = (
        report(fn, monkeypatch, language, X, order=order) for language in ("", "zh_CN")
    )
    lines = both.splitlines()
    assert [line for line in lines if not HAN.search(line)] == english.splitlines()
    assert not HAN.search(english) and max(map(columns, lines)) <= 88
    told = "".join(line.strip() for line in lines if HAN.search(line))
    for word in words:
        assert word.replace(" ", "") in told.replace(" ", "")


def test_what_was_not_checked_is_told_in_chinese(monkeypatch):
    both = report(lambda x: x * 2, monkeypatch, "zh_CN", torch.ones(2))
    assert "没有检查" in both and "传入 x.double().requires_grad_()" in both


def test_the_place_of_an_error_is_told_in_chinese(chinese):
    told = str(diagnose(lambda x: x / (1 // 0), X))
    assert "fn 自己报错 ZeroDivisionError: integer division or modulo by zero（<lambda>" in told
    assert told.endswith("行）。")


def test_the_error_of_detect_intermediates_is_told_in_chinese_too(chinese):
    told = "(?s)would be wrong.*二阶导数会是错的。"
    with pytest.raises(SecondDerivativeError, match=told) as raised, detect_intermediates():
        library.train()
    lines = str(raised.value).splitlines()
    full = [columns(line) > 80 for line in lines[1:-1] if HAN.search(line)]
    assert full and all(full), "the Chinese begins at the beginning of a line"


def test_a_step_is_told_in_chinese_below_its_table(chinese):
    told = str(diagnose_all(library.train))
    assert "forward keeps on ctx what it made itself" in told
    assert "forward 把它自己算出的东西留在了 ctx 上" in told


def test_the_data_stay_english(chinese):
    data = json.dumps(diagnose(SinhBad.apply, X).to_dict(), ensure_ascii=False)
    assert not HAN.search(data)


def test_chinese_lines_break_behind_any_sign_but_not_before_a_mark():
    text = "汉字" * 30 + "，`a_long_name(x)` 后面，" + "还有" * 40 + "。"
    lines = wrapped(text, "  ")
    assert all(columns(line) <= 88 for line in lines) and len(lines) == 4
    assert not any(line.lstrip()[0] in "，。" for line in lines)
    assert "".join(line.strip() for line in lines).replace(" ", "") == text.replace(" ", "")


def test_a_phrase_is_its_english_text():
    phrase = Phrase("{} and {}", joined("{}; {}", ["a", "b", "c"]), Phrase("plain {braces}"))
    assert phrase == "a; b; c and plain {braces}"
    assert phrase.capitalised() == "A; b; c and plain {braces}"
