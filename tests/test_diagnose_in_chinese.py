"""A reader of Chinese finds each sentence of a report in Chinese, below the English one."""

import json

import numpy as np
import pytest
import torch
from chinese import HAN, columns, english_in
from test_diagnosis_findings import SPEAKS, said
from torch.autograd import Function, grad

from double_backward import (
    SecondDerivativeError,
    detect_intermediates,
    diagnose,
    diagnose_all,
    recompute_intermediates,
)
from double_backward.diagnosis import Verdict
from double_backward.diagnosis.conclusions.findings import ROWS
from double_backward.diagnosis.preparation.prepare import NOT_CHECKED
from double_backward.lines import wrapped
from double_backward.phrases import Phrase, joined, translation
from double_backward.pytest_plugin import summary
from double_backward.remedies import noting
from lessons_src import library
from lessons_src.saving_inputs import Square
from lessons_src.untracked_backward import CubeNumPy, in_numpy
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


class SinhNumPy(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return in_numpy(np.sinh, x)

    @staticmethod
    def backward(ctx, grad_out):
        return grad_out * in_numpy(np.cosh, *ctx.saved_tensors)


def test_the_error_of_recompute_intermediates_is_told_in_chinese_too(chinese):
    told = (
        "(?s)could not be had.*没法得到它的二阶导数，因为再算一遍，它仍然是错的：.*第 5 课“autograd"
    )
    with pytest.raises(SecondDerivativeError, match=told), recompute_intermediates():
        y = SinhNumPy.apply(X)
        grad(grad(y.sum(), X, create_graph=True)[0].sum() + y.sum(), X)


@pytest.mark.parametrize("remedy", [detect_intermediates, recompute_intermediates])
def test_what_a_remedy_warns_of_is_told_in_chinese_too(remedy, chinese):
    numbers = (number for number in range(100))
    around = type("Counting", (SinhBad,), {"numbers": numbers})
    with (
        remedy(),
        pytest.warns(match="(?s)because.*因为它可能接着用一个 generator，而这没法还原。"),
    ):
        grad(around.apply(X).sum(), X, create_graph=True)
    with pytest.warns(match="(?s)ignore names Nobody.*ignore 里写了 Nobody"), remedy(["Nobody"]):
        pass


@pytest.mark.filterwarnings("ignore")
def test_the_summary_of_the_plugin_is_told_in_chinese_too(chinese):
    notes = {}
    around = type("Counting", (SinhBad,), {"numbers": (number for number in range(100))})
    with noting(notes), recompute_intermediates(), detect_intermediates():
        for function in (around, SinhBad, SinhNumPy):
            grad(function.apply(X).sum(), X, create_graph=True)
    lines = [*summary(notes, {"detect", "recompute"}), *summary({}, {"detect"})]
    assert len(lines) == 8
    for english, told in (line.split("\n") for line in lines):
        assert HAN.search(told) and not HAN.search(english)
        assert not english_in(told.replace("test_diagnose_in_chinese", "")), told


def test_a_wrong_argument_is_told_in_chinese_too(chinese):
    with pytest.raises(ValueError, match="(?s)takes 2 or 3, not 7.*应该是 2 或 3，不能是 7"):
        diagnose(Square.apply, X, order=7)


def test_a_step_is_told_in_chinese_below_its_table(chinese):
    told = str(diagnose_all(library.train))
    assert "forward keeps on ctx what it made itself" in told
    assert "forward 把它自己算出的东西留在了 ctx 上" in told
    assert told.splitlines()[1] == "  3 个自定义 Function、2 个对、1 个不对"


def test_a_step_without_a_table_is_told_in_chinese_too(chinese):
    told = str(diagnose_all(lambda: 1 // 0, ignore=["Nobody"]))
    english = [line for line in told.splitlines() if line and not HAN.search(line)]
    assert len(english) == 4 and told.count("。") == 4 and "这一步报错 ZeroDivisionError" in told


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
