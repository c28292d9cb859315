"""The lessons in other languages: whole, true to the English cells, written by their own rules."""

import ast
import json
import re
import subprocess
import sys
from html import unescape
from itertools import zip_longest
from pathlib import Path
from string import Formatter

import nbformat
import pytest
import torch
from editions import seen, translated
from editions.slides import words

from double_backward import diagnose, draw, draw_backward
from double_backward.check import Outcome
from double_backward.diagnosis import Verdict
from double_backward.diagnosis.preparation.formulas import Setting
from double_backward.diagnosis.training_steps.training_step import (
    AT_FIRST,
    NEVER,
    ONCE,
    UP_TO_SECOND,
)
from lessons_src import stepper
from lessons_src.cut_paths import cut_a_path
from lessons_src.exercises import check, exercises, hint, hints_given
from lessons_src.exercises.language import in_language
from lessons_src.picture_words import told_in
from lessons_src.what_not_to_do import SinhBad

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "notebooks"
CHINESE = ROOT / "translations" / "zh_CN"
CATALOGUES = sorted(CHINESE.glob("*.po"))
PROGRAMS = [path for path in CATALOGUES if path.stem in translated.PROGRAMS]
LESSONS = [path for path in CATALOGUES if path not in PROGRAMS]
each_lesson = pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
each_catalogue = pytest.mark.parametrize("path", CATALOGUES, ids=lambda path: path.stem)
PAGES = seen.pages()
each_text = pytest.mark.parametrize("path", [*CATALOGUES, *PAGES], ids=lambda path: path.stem)
each_page = pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)

FIELD = re.compile(r"\{\d\}")  # of a template: whatever its value is
CODE = re.compile(r"`[^`]+`|<code>.*?</code>")
FORMULA = re.compile(r"\$\$.*?\$\$|\$[^$]+\$", re.DOTALL)
TAG = re.compile(r"</?\w+>")
FENCED = re.compile(r"```.*?```", re.DOTALL)
NUMBER = translated.NUMBER
# What lesson 1 has in Chinese alone: the words in pictures, which stay English.
PICTURE_WORDS = re.compile(r"\n\n图里的词.*", re.DOTALL)
# Of these each paragraph and row has its twin, in the same place.
PARALLEL = ["docs/CHEATSHEET.zh-CN.md", "docs/ERRORS.zh-CN.md", "docs/tool/start.zh-CN.md"]
# None is a value; 不过 and 不仅 refuse nothing.
NOT = re.compile(
    r"\b(?:not|no|never|nothing|nobody|nowhere|neither|nor|without|cannot|(?-i:none))\b|n't\b", re.I
)
CHINESE_NOT = re.compile("不(?!同|仅|过)|[没无未非勿]|别(?!的|人|处)|去掉|之外|除了")
SENTENCE_ENDS = re.compile(r"(?<=[.?!])\s|[。？！\n|]")
NO_SENTENCE = re.compile(
    rf"{CODE.pattern}|{FORMULA.pattern}|```.*?```|\]\([^)]*\)|\*\*|\{{\w*\}}", re.DOTALL
)
HAN = "[\u4e00-\u9fff]"
FULL_WIDTH = "[，。：；？！）”、]"


def messages(path):
    return [message for message in translated.read_catalogue(path) if message.id]


def shown(text):
    """What is read as a sentence: code is a word, markup is nothing."""
    text = re.sub(r"\]\([^)]*\)", "]", CODE.sub("`x`", FORMULA.sub("$x$", text)))
    text = re.sub(rf"(?<={FULL_WIDTH})\*\* ", "", text)  # there Markdown needs the space
    return re.sub(r"\*\*(?=\S)|(?<=\S)\*\*", "", TAG.sub("\n", text))


@each_catalogue
def test_every_paragraph_is_translated(path):
    catalogue = translated.updated(path)
    left = [m.id for m in catalogue if m.id and (m.fuzzy or not m.string)]
    left += [message.id for message in catalogue.obsolete.values()]
    assert not left, (
        "Run `make translations`, then translate these, or mend what is marked fuzzy, or delete "
        f"what begins with #~, in {path.relative_to(ROOT)}, as docs/MAINTAINING.md says: {left}"
    )


@each_catalogue
def test_what_is_made_is_what_the_catalogue_makes(path):
    made = translated.content(path, translated.read_catalogue(path))
    file = translated.made_from(path)
    assert file.read_bytes() == made, f"Run `make translations`: {file.relative_to(ROOT)} is stale."


@each_lesson
def test_code_and_outputs_are_the_english_ones(path):
    english, copy = (
        json.loads(p.read_text("utf-8"))
        for p in (translated.english_of(path), translated.made_from(path))
    )
    assert [cell["id"] for cell in copy["cells"]] == [cell["id"] for cell in english["cells"]]
    first = next(cell for cell in copy["cells"] if cell["cell_type"] == "code")
    assert "".join(first["source"][:2]) == translated.answers_in("zh_CN")
    del first["source"][:2]
    pairs = [
        (json.dumps(one), json.dumps(other))
        for one, other in zip(english["cells"], copy["cells"], strict=True)
        if one["cell_type"] == "code"
    ]
    assert pairs
    assert all(one == other for one, other in pairs)
    assert english["metadata"] == copy["metadata"]


def test_each_catalogue_has_a_notebook_and_each_notebook_a_catalogue():
    assert len(LESSONS) == 7
    assert [translated.made_from(path) for path in LESSONS] == sorted(
        (NOTEBOOKS / "zh_CN").glob("*")
    )


@each_catalogue
def test_code_formulas_and_markup_are_not_translated(path):
    for message in messages(path):
        message.string = PICTURE_WORDS.sub("", message.string)
        told = f"{message.id}\n{message.string}"
        assert set(CODE.findall(message.id)) <= set(CODE.findall(message.string)), told
        assert sorted(TAG.findall(message.id)) == sorted(TAG.findall(message.string)), told
        one, other = (
            sorted(re.sub(r"\\text\{[^}]*\}", "", formula) for formula in FORMULA.findall(text))
            for text in (message.id, message.string)
        )
        assert one == other, told
        for start in (r"^> ", r"^#+ ", r"^- ", r"^\d\. ", r"^\|"):
            lines = [len(re.findall(start, text, re.M)) for text in (message.id, message.string)]
            assert lines[0] == lines[1], told


@each_catalogue
def test_numbers_are_the_english_ones(path):
    """All of them, in their order: write 三 where English has three, and 3 where it has 3."""
    for message in messages(path):
        string = PICTURE_WORDS.sub("", message.string)
        one, other = (NUMBER.findall(FIELD.sub("", text)) for text in (message.id, string))
        assert one == other, f"{message.id}\n{string}"


@each_page
def test_numbers_of_a_page_are_in_the_english_one(path):
    english = NUMBER.findall(seen.text_of(seen.both(seen.page_name(path))[0]))
    assert sorted(set(NUMBER.findall(path.read_text("utf-8"))) - set(english)) == []


@each_page
def test_a_page_says_what_its_english_says_today(path):
    """A person has to look, whichever of the two was changed; not at what commands write."""
    name = seen.page_name(path)
    new, gone = seen.changed(name)
    assert not (new or gone), (
        f"{name}: it or its English page changed since somebody compared the two. Mend it, "
        f"then run `make seen PAGE={name}`. New: {new}; gone: {gone}"
    )


def test_a_reworded_paragraph_of_a_page_is_named():
    text = "# Title\n\nOne.\nTwo 2.\n\n| a | b |\n|---|---|\n| c | 40 (60) |\n\n```\nx\n\ny\n```\n"
    before = seen.paragraphs(text)
    assert list(before.values()) == [
        "# Title",
        "One. Two 2.",
        "| a | b |",
        "|---|---|",
        "| c | |",
        "``` x y ```",
    ]

    def others(old, new):
        after = seen.paragraphs(text.replace(old, new))
        return [after[hashed] for hashed in after if hashed not in before]

    assert others("Two 2", "Two 3") == ["One. Two 3."]
    assert others("| c |", "| d |") == ["| d | |"]
    assert others("y\n", "z\n") == ["``` x z ```"]
    assert others("40 (60)", "45 (65)") == others("One.\nTwo", "One. Two") == []


@pytest.mark.parametrize("name", PARALLEL)
def test_a_page_has_each_paragraph_of_its_english_one(name):
    english, chinese = map(seen.parts, map(seen.text_of, seen.both(name)))
    for one, other in zip_longest(english, chinese, fillvalue=""):
        assert one and other, f"{name}: this stands in one of them alone: {one or other}"
        numbers, others = (NUMBER.findall(CODE.sub("", text)) for text in (one, other))
        assert numbers == others, f"{one}\n{other}"


def test_the_page_for_teachers_has_each_section_and_row_of_its_english_one():
    """But for two sections on how to set machines up, which are there in English."""
    name = "docs/TEACHING.zh-CN.md"
    english, chinese = map(seen.text_of, seen.both(name))
    for head in ("## What to prepare\n", "## A hub for the room\n"):
        english = re.sub(rf"(?ms)^{head}.*?(?=^## )", "", english)
    for one, other in zip_longest(*map(sections_and_rows, (english, chinese)), fillvalue=""):
        told = f"{name}: {one}\n{other}"
        assert one[:1] == other[:1], told
        assert NUMBER.findall(CODE.sub("", one)) == NUMBER.findall(CODE.sub("", other)), told
        assert negations(one) <= negations(other), told


def sections_and_rows(text):
    return [part for part in seen.parts(text) if part[0] in "#|"]


def test_what_is_stored_as_seen_is_named(tmp_path, monkeypatch, capsys):
    """A paragraph that was lost is not stored without a word."""
    name = "docs/GLOSSARY.zh-CN.md"
    store = tmp_path / "seen.txt"
    row = next(line for line in seen.SEEN.read_text("utf-8").splitlines() if "| leaf |" in line)
    store.write_text(
        seen.SEEN.read_text("utf-8").replace(f"{row}\n", f"{row[::-1]} ## A section\n"), "utf-8"
    )
    monkeypatch.setattr(seen, "SEEN", store)
    seen.main([name])
    told = capsys.readouterr().out.splitlines()
    assert any(line.startswith("new: | leaf |") for line in told), told
    assert any(line.startswith("gone: ") and "## A section" in line for line in told), told


def negations_lost(english, chinese):
    """The sentences that have more of them in English, if both texts have as many sentences.

    What is lost beside another word of refusal, which the English has not, is not noticed.
    """
    texts = [NO_SENTENCE.sub("", text) for text in (english, chinese)]
    one, other = ([s for s in SENTENCE_ENDS.split(text) if s.strip(" >)）_")] for text in texts)
    pairs = zip(one, other, strict=True) if len(one) == len(other) else [texts]
    return [pair for pair in pairs if negations(pair[0]) > negations(pair[1])]


def negations(text):
    return len(NOT.findall(text)) + len(CHINESE_NOT.findall(text))


def test_no_negation_is_lost():
    pairs = [(message.id, message.string) for path in CATALOGUES for message in messages(path)]
    for name in PARALLEL:
        pairs += zip(*map(seen.parts, map(seen.text_of, seen.both(name))), strict=False)
    lost = [each for pair in pairs for each in negations_lost(*pair)]
    assert not lost, "\n".join(map("\n".join, lost))


def test_a_negation_that_is_lost_is_noticed():
    english = "It is right. It does not raise, and it never says `not`: look."
    assert not negations_lost(english, "是对的。它不报错，也从不说 `not`：看。")
    assert negations_lost(english, "是不对的。它不报错，也总是说 `not`：看。")
    assert negations_lost("None for x.", "对 x 返回 None。") == []


def test_quotations_of_errors_are_the_english_ones():
    english, chinese = (
        re.findall("^> .+", (ROOT / page).read_text("utf-8"), re.M)
        for page in ("docs/ERRORS.md", "docs/ERRORS.zh-CN.md")
    )
    assert len(english) > 20
    assert chinese == english


def texts(path):
    """What is written in Chinese: the translations of a catalogue, the lines of a page."""
    if path.suffix == ".po":
        return [message.string for message in messages(path)]
    return FENCED.sub("", path.read_text(encoding="utf-8")).splitlines()


@each_text
def test_words_are_those_of_the_table(path):
    rows = re.findall(r"^\|.*\|.*\| (.*) \|$", (CHINESE / "terms.md").read_text("utf-8"), re.M)
    forbidden = [word for row in rows[1:] for word in row.split("、")]
    assert len(forbidden) > 30
    found = [(word, text) for text in texts(path) for word in forbidden if word in text]
    assert not found


@each_text
def test_chinese_is_set_as_chinese(path):
    wrong = {
        "a space between Chinese and Latin, numbers, code, formulas": (
            rf"{HAN}[A-Za-z0-9`$(]|[A-Za-z0-9`$)]{HAN}"
        ),
        "no half-width punctuation beside Chinese": (
            rf"{HAN}[,;:?!.]|{HAN} [,;:?!.](?![a-z])|[,;?!] ?{HAN}"  # .detach() is code
        ),
        "no space beside full-width punctuation": rf"{FULL_WIDTH} [^|]|[^|>] {FULL_WIDTH}",
        "no two spaces": r"\S  +\S",
    }
    for text in texts(path):
        for rule, pattern in wrong.items():
            found = re.search(pattern, shown(text))
            assert not found, f"{rule}: {found[0]} in {text}"
        assert not stars_left(CODE.sub("`x`", text)), f"not seen as bold: {text}"
    whole = ("\n\n" if path.suffix == ".po" else "\n").join(texts(path))
    broken = re.search(rf"(?:{HAN}|{FULL_WIDTH})\n(?:> ?)?{HAN}.*", whole)
    assert not broken, f"a line's end is shown as a space: {broken[0]}"


def stars_left(text):
    """CommonMark sees no bold where punctuation is inside the stars and a word outside."""
    return [
        bold[0]
        for bold in re.finditer(r"(?<=(.))\*\*(.+?)\*\*(?=(.))", f" {text} ".replace("\n", " "))
        if re.match(r"\w[^\w\s]", bold[1] + bold[2][0])
        or re.match(r"[^\w\s]\w", bold[2][-1] + bold[3])
    ]


def test_stars_beside_punctuation_are_noticed():
    assert not stars_left("**一**：二，**三**四**五**。**`x` 六** 七，**八。** 九")
    assert stars_left("**一：**二") == ["**一：**"]
    assert stars_left("一**（二）三**") == ["**（二）三**"]


def test_the_chinese_readme_has_the_lessons_and_minutes_of_the_english_one():
    row = r"^\| (\d) \| .*?\(notebooks/(?:zh_CN/)?(.*?)\).*?\| (\d+ \(\d+\)) \|"
    english, chinese = (
        re.findall(row, (ROOT / page).read_text(encoding="utf-8"), re.M)
        for page in ("README.md", "README.zh-CN.md")
    )
    assert len(english) == 7
    assert chinese == english


def test_the_chinese_glossary_has_the_words_of_the_english_one():
    """In its first table: words in reports and pictures have tables of their own."""
    english, chinese = (
        re.findall(r"^\| ([^|]+) \|", re.split("\n## (?!Glossary)", seen.text_of(page))[0], re.M)
        for page in ("docs/GLOSSARY.md", "docs/GLOSSARY.zh-CN.md")
    )
    assert "intermediate" in english
    assert [word for word in english[1:] if word not in chinese] == []


def test_the_chinese_glossary_has_the_words_of_a_report():
    """All that stands in a report without a translation below it."""
    page = (ROOT / "docs" / "GLOSSARY.zh-CN.md").read_text("utf-8")
    table = page.split("## 报告里的词")[1].split("\n## ")[0]
    explained = " ".join(re.findall(r"^\| (.+?) \|", table, re.M)).lower()
    told = [word for verdict in Verdict for word in (verdict.value, verdict.headline)]
    told += [*Outcome, *Setting, AT_FIRST, UP_TO_SECOND, NEVER, ONCE, "verdict", "Function"]
    lines = [*str(diagnose(SinhBad.apply, torch.ones(1, requires_grad=True))).splitlines()]
    told += [line[:20].strip() for line in lines if line[:20].strip() and line[18:20] == "  "]
    told += ["written in", "calls", "order", "cause", "differentiated by", "lost", "meant"]
    assert "second derivative" in told and "missing" in told
    assert [word for word in told if str(word).lower() not in explained] == []


def test_the_chinese_glossary_has_the_words_in_pictures():
    """Those of the stored text twins: what is in small letters and no name."""
    glossary = (ROOT / "docs" / "GLOSSARY.zh-CN.md").read_text("utf-8").split("## 图里的词")[1]
    explained = set(re.findall(r"[a-z]+", " ".join(re.findall(r"^\| (.+?) \|", glossary, re.M))))
    names = {"x", "y", "e", "r", "h", "g", "out", "expx", "expnegx", "address"}
    for path in LESSONS:
        for cell in nbformat.read(translated.english_of(path), as_version=4).cells:
            for output in cell.get("outputs", []):
                twin = output.get("data", {}).get("text/plain", "")
                if "image/svg+xml" in output.get("data", {}) and not twin.startswith(
                    ("<", "u over")
                ):
                    words = set(re.findall(r"(?<![\w.])[a-z]+(?![\w.])", twin))
                    assert words <= explained | names, f"{cell.id}: {words - explained - names}"


def test_what_stands_for_a_picture_is_in_chinese():
    """Nothing English is left but names; numbers are those of the English."""
    names = {"x", "y", "r", "h", "g", "out", "u", "expx", "expnegx", "grad_x", "grad_out"}
    names |= {"autograd", "ctx", "grad_fn", "once_differentiable", "sinh", "leaf", "x²"}  # leaf #2
    for path in LESSONS:
        for cell in nbformat.read(translated.english_of(path), as_version=4).cells:
            for output in cell.get("outputs", []):
                if "image/svg+xml" in output.get("data", {}):
                    twin = output.data["text/plain"]
                    told = words(output, "zh_CN")
                    assert set(re.findall(r"(?<!\w)[a-z]\w*", told)) <= names, told
                    if not twin.startswith("<"):
                        assert sorted(NUMBER.findall(told)) == sorted(NUMBER.findall(twin))
                    for step in steps_of(output):
                        assert step in told, "a page says it in the same words"


def test_what_a_live_graph_says_is_in_chinese(monkeypatch):
    """As printed, in words in the place of a picture, and as a name that is read aloud."""
    input = torch.tensor([0.5], dtype=torch.float64, requires_grad=True)
    out = SinhBad.apply(input)
    (grad_input,) = torch.autograd.grad(out.sum(), input, create_graph=True)
    drawings = [
        draw(grad_input=grad_input, input=input, out=out),
        draw_backward(out=out, input=input),
        draw(out, x=None, y=3.0),
    ]
    monkeypatch.setenv("COURSE_LANGUAGE", "zh_CN")
    names = {"input", "out", "expx", "expnegx", "grad_input", "autograd", "ctx", "x", "grad_x"}
    names |= {"draw", "torch", "no_grad", "y", "float"}
    for drawing in drawings:
        bundle = drawing._repr_mimebundle_()
        told = repr(drawing)
        assert bundle["text/plain"] == told != drawing.outline
        if drawing.svg is not None:
            html = bundle["text/html"]
            aloud = r'aria-label="([^"]*)".*<title>(.*?)</title>.*<desc>(.*?)</desc>'
            told += "\n".join(re.search(aloud, html, re.DOTALL).groups())
        assert set(re.findall(r"(?<!\w)[a-z]\w*", told)) <= names, told
    assert "它是输入和" not in repr(drawings[0]), "a name stays"
    stepper_words = repr(stepper.step_through(first_backward=drawings[1]))
    assert stepper_words.startswith("第一次反向传播\n"), stepper_words
    monkeypatch.setenv("COURSE_LANGUAGE", "")
    assert repr(drawings[0]) == drawings[0].outline


@pytest.mark.parametrize("cut", [(), ("expx",), ("expx", "expnegx")])
def test_a_figure_whose_paths_can_be_cut_has_a_title_in_chinese(cut, monkeypatch):
    monkeypatch.setenv("COURSE_LANGUAGE", "zh_CN")
    html = cut_a_path("F(x)", 1.0, cut)._repr_mimebundle_()["text/html"]
    title = re.search("<title>(.*?)</title>", html)[1]
    assert set(re.findall(r"(?<!\w)[a-z]\w*", title)) <= {"x", *cut}, title


def steps_of(output):
    """What a Chinese page says at each step."""
    told = told_in(output.data.get(stepper.STEPS, {"titles": []}), "zh_CN")
    return [words for way in told.get("steps", []) for words, _ in way]


def test_a_stepper_is_operated_in_chinese():
    told = {"titles": ["first backward"], "steps": [[["The pass starts at x with 1.", []]]]}
    page = stepper.page(
        '<svg width="9" height="9" role="img"><title>forward</title><g /></svg>', told, "zh_CN"
    )
    assert 'aria-label="前向传播"' in page
    shown = json.loads(unescape(re.search('data-told="(.*?)"', page)[1]))
    assert shown["steps"] == [[["反向传播从 x 出发，带着 1。", []]]]
    assert all(re.search(HAN, words) for words in shown["controls"].values())
    assert set(re.findall(r'(?:said\[|filled\()"(.*?)"', stepper.SCRIPT)) == set(shown["controls"])
    assert told_in(told, "")["steps"] == told["steps"]


class Stub(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        raise NotImplementedError


def test_hint_and_check_answer_in_the_language_that_the_variable_names(monkeypatch, capsys):
    answers = {}
    for language in ("", "zh_CN"):
        monkeypatch.setenv("COURSE_LANGUAGE", language)
        hints_given.clear()
        for _ in range(3):
            hint("power")
        check("sigmoid", Stub.apply)
        check("sigmoid", exercises()["sigmoid"].SOLUTION[-1].apply)
        check("swish", exercises()["swish"].TASK.given.apply)
        answers[language] = capsys.readouterr().out
    english, chinese = answers.values()
    assert "hint 1 of 3: n is an integer" in english and not re.search(HAN, english)
    for head in ("第 1 条", "还没有做", "✓ sigmoid: 对了", "原样"):
        assert head in chinese, chinese


def fields(template):
    """What stands in its {}; without a name, the number."""
    found = [field for _, field, _, _ in Formatter().parse(template) if field is not None]
    return {field or str(number) for number, field in enumerate(found)}


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_what_is_filled_in_is_filled_in_in_chinese_too(path):
    for message in messages(path):
        assert fields(message.string) == fields(message.id), message.id


def test_what_is_said_has_a_template_that_can_be_looked_up():
    """No f-string, and nothing that was put together before."""
    for folder in translated.PROGRAMS.values():
        for path in folder.rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Phrase":
                    assert not isinstance(node.args[0], ast.JoinedStr), f"{path}:{node.lineno}"


def test_a_first_cell_names_the_language_of_its_notebook(monkeypatch):
    monkeypatch.setenv("COURSE_LANGUAGE", "")
    for lesson in (NOTEBOOKS / "zh_CN").glob("*.ipynb"):
        cells = nbformat.read(lesson, as_version=4).cells
        first = next(cell.source for cell in cells if cell.cell_type == "code")
        exec(first.partition("get_ipython()")[0], {})
        assert in_language("the result is None.") == "结果是 None。"
        monkeypatch.setenv("COURSE_LANGUAGE", "")
        assert in_language("the result is None.") == "the result is None."


def test_a_language_that_nobody_has_written_is_english(monkeypatch):
    monkeypatch.setenv("COURSE_LANGUAGE", "xx")
    assert in_language("the result is None.") == "the result is None."


def lesson(*cells, name="2_second.ipynb"):
    notebook = nbformat.v4.new_notebook()
    for number, cell in enumerate(cells):
        notebook.cells.append(nbformat.v4.new_markdown_cell(cell, id=f"cell-{number}"))
    return notebook


@pytest.fixture
def house(tmp_path, monkeypatch):
    """A house with one lesson, begun in Chinese by an empty file."""
    monkeypatch.setattr(translated, "NOTEBOOKS", tmp_path / "notebooks")
    monkeypatch.setattr(translated, "TRANSLATIONS", tmp_path / "translations")
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "translations" / "zh_CN").mkdir(parents=True)
    (tmp_path / "translations" / "zh_CN" / "2_second.po").touch()
    return tmp_path


def make(house, *cells):
    """`make translations` for a lesson with these cells; return the catalogue and the Markdown."""
    nbformat.write(lesson(*cells), house / "notebooks" / "2_second.ipynb")
    translated.main()
    path = house / "translations" / "zh_CN" / "2_second.po"
    copy = nbformat.read(house / "notebooks" / "zh_CN" / "2_second.ipynb", as_version=4)
    return path, [cell.source for cell in copy.cells]


def translate(path, english, chinese):
    text = path.read_text(encoding="utf-8")
    entry = f'msgid "{english}"\nmsgstr ""'
    assert entry in text
    path.write_text(text.replace(entry, entry[:-1] + f'{chinese}"'), encoding="utf-8")


def test_a_reworded_paragraph_stands_in_english_until_it_is_mended(house, capsys):
    before = "The second derivative is 2, and stays 2."
    path, _ = make(house, f"# Title\n\n{before}")
    translate(path, "# Title", "# 标题")
    translate(path, before, "二阶导数是 2，一直是 2。")
    path, cells = make(house, f"# Title\n\n{before}")
    assert cells == ["# 标题\n\n二阶导数是 2，一直是 2。"]
    after = before.replace("stays", "remains")
    path, cells = make(house, f"# Title\n\n{after}")
    assert cells == [f"# 标题\n\n{after}"]
    assert "2_second: 2 entries, 0 missing, 1 fuzzy" in capsys.readouterr().out
    assert f'#, fuzzy\nmsgid "{after}"\nmsgstr "二阶导数是 2，一直是 2。"' in path.read_text(
        "utf-8"
    )
    path.write_text(path.read_text("utf-8").replace("#, fuzzy\n", ""), encoding="utf-8")
    _, cells = make(house, f"# Title\n\n{after}")
    assert cells == ["# 标题\n\n二阶导数是 2，一直是 2。"]


def test_where_only_numbers_change_the_translation_gets_them_and_they_are_printed(house, capsys):
    """Minutes above all, which `make translations` writes into the lesson before."""
    path, _ = make(
        house, "About 30 minutes, 45 with the exercises.", "2 and 2 are 4.", "In 3 steps."
    )
    translate(path, "About 30 minutes, 45 with the exercises.", "连同练习 45 分钟，否则 30 分钟。")
    translate(path, "2 and 2 are 4.", "2 加 2 是 4。")
    translate(path, "In 3 steps.", "分三步。")
    path, cells = make(
        house, "About 45 minutes, 60 with the exercises.", "2 and 3 are 5.", "In 4 steps."
    )
    assert cells == ["连同练习 60 分钟，否则 45 分钟。", "2 and 3 are 5.", "In 4 steps."]
    carried = "zh_CN 2_second: 30 is 45 now, 45 is 60 now: 连同练习 60 分钟，否则 45 分钟。"
    assert carried in capsys.readouterr().out.splitlines()
    fuzzy = [message.id for message in messages(path) if message.fuzzy]
    assert fuzzy == ["2 and 3 are 5.", "In 4 steps."], "not told apart, and not a number there"


def test_made_twice_nothing_changes(house):
    cells = ('# Title\n\nA paragraph\nof two lines, with "quotes" and a \\.', "100% of it.")
    path, _ = make(house, *cells)
    once = path.read_bytes()
    make(house, *cells)
    assert path.read_bytes() == once


def test_what_is_not_in_the_lesson_any_more_is_kept_as_a_comment(house):
    path, _ = make(house, "First words.", "Altogether different: 12345.")
    translate(path, "First words.", "第一句。")
    make(house, "Altogether different: 12345.")
    assert '#~ msgid "First words."\n#~ msgstr "第一句。"' in path.read_text("utf-8")


def test_folds_quotations_and_fenced_code_keep_their_shape(house):
    fold = "> <details><summary>Answer</summary>\n>\n> Yes.\n>\n> </details>"
    code = "Look:\n\n```\nfirst\n\n\nsecond\n```\n\nDone."
    path, _ = make(house, f"{fold}\n\n{code}")
    assert [message.id for message in messages(path)] == [
        "> <details><summary>Answer</summary>",
        "> Yes.",
        "Look:",
        "Done.",
    ]
    translate(path, "> Yes.", "> 是。")
    translate(path, "Done.", "完。")
    _, cells = make(house, f"{fold}\n\n{code}")
    assert cells == [f"{fold}\n\n{code}".replace("Yes.", "是。").replace("Done.", "完。")]


def test_links_lead_from_where_the_copy_is(house):
    links = (
        "[a](2_second.ipynb#end) [b](1_first.ipynb) [c](../README.md) [d](#here) [e](https://x.org)"
    )
    _, cells = make(house, links)
    assert cells == [links.replace("1_first", "../1_first").replace("(../R", "(../../R")]


@pytest.mark.slow
def test_copies_are_not_executed():
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "notebooks/zh_CN"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert "no tests collected" in done.stdout, done.stdout + done.stderr
