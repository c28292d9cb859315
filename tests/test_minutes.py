"""How long the lessons take: one rule, stored in each lesson, and the same number everywhere."""

import re
import shutil
from pathlib import Path

import nbformat
import pytest
from editions import minutes, teaching

ROOT = Path(__file__).resolve().parent.parent
LESSONS = sorted((ROOT / "notebooks").glob("[0-9]_*.ipynb"))
PAGES = ("README.md", "README.zh-CN.md", "docs/TEACHING.md", "docs/TEACHING.zh-CN.md")
TEACHING = (ROOT / "docs" / "TEACHING.md").read_text(encoding="utf-8")
each_lesson = pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)


def numbers(text):
    return re.findall(r"\d+", text)


@each_lesson
def test_minutes_are_those_of_the_rule_wherever_they_are_told(lesson):
    notebook = nbformat.read(lesson, as_version=4)
    assert minutes.stored(notebook) == minutes.reckoned(notebook), "`make copies` writes them"
    assert list(teaching.sections(int(lesson.name[0]))) == list(minutes.reckoned(notebook))
    places = [(cell.source, *how) for cell, *how in minutes.in_lesson(notebook)]
    for page, *how in minutes.on_pages(lesson, minutes.stored(notebook)):
        places.append(((ROOT / page).read_text(encoding="utf-8"), *how))
    for text, pattern, words in places:
        found = list(re.finditer(pattern, text, re.M))
        if "^\\| )" not in pattern:  # one of the plans, which need not have every lesson
            assert len(found) == 1, pattern
        assert all(each[0] == each[1] + words for each in found), "`make copies` writes it"


@pytest.fixture
def house(tmp_path, monkeypatch):
    """What minutes are written into, in another place."""
    for name in (*PAGES, *(lesson.relative_to(ROOT) for lesson in LESSONS)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, tmp_path / name)
    monkeypatch.setattr(minutes, "ROOT", tmp_path)
    return tmp_path


def test_a_longer_section_moves_its_numbers_in_every_page_and_no_other(house):
    lesson = house / "notebooks" / LESSONS[2].name
    notebook = nbformat.read(lesson, as_version=4)
    before = minutes.stored(notebook)
    (cell,) = [c for c in notebook.cells if c.source.startswith("## See it\n")]
    cell.source += "\n\n" + "word " * 10 * minutes.WORDS_A_MINUTE
    cell = next(c for c in notebook.cells if c.source.startswith("### "))
    cell.source = re.sub(r"\(\d+ minutes\)", "(99 minutes)", cell.source, count=1)
    nbformat.write(notebook, lesson)
    texts = {page: (house / page).read_text(encoding="utf-8") for page in PAGES}
    minutes.main()
    notebook = nbformat.read(lesson, as_version=4)
    after = notebook.metadata["minutes"]
    assert after["See it"] == before["See it"] + 10 and after["Your turn"] > before["Your turn"]
    core, (without, whole) = sum(after.values()) - after["Your turn"], minutes.told(after)
    assert without != minutes.told(before)[0]
    assert f"**About {without} minutes, {whole} with the" in notebook.cells[0].source
    assert any(f", about {after['Your turn']} minutes." in cell.source for cell in notebook.cells)
    changed = {}
    for page, text in texts.items():
        lines = zip(text.split("\n"), (house / page).read_text("utf-8").split("\n"), strict=True)
        changed[page] = [pair[1] for pair in lines if pair[0] != pair[1]]
    for readme in PAGES[:2]:
        (row,) = changed[readme]
        assert f"| {without} ({whole}) |" in row
    for page, core_path in (PAGES[2], "Lesson 2, core path"), (PAGES[3], "第 2 课，主线"):
        (plan, heading, see_it, your_turn) = changed[page]
        assert plan == f"| {without} | {core_path} |"
        assert numbers(heading) == ["2", str(core)]
        assert numbers(see_it)[0] == str(after["See it"])
        assert numbers(your_turn)[0] == str(after["Your turn"])


def test_written_twice_nothing_changes(house):
    before = {path: path.read_bytes() for path in house.rglob("*.*")}
    minutes.main()
    assert {path: path.read_bytes() for path in house.rglob("*.*")} == before


def test_the_rule_of_the_minutes():
    notebook = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_markdown_cell("# Title\n\n" + "word " * 168),
            nbformat.v4.new_markdown_cell("## One\n\n" + "word " * 100 + "\n\n## Two\n\nword"),
            nbformat.v4.new_code_cell("1", metadata={"expected": ["1"]}),
            nbformat.v4.new_markdown_cell("## Your turn\n\n### First (7 minutes)\n\n"),
            nbformat.v4.new_markdown_cell("### Second (5 minutes)\n\n## Going further\n\nword"),
        ]
    )
    assert minutes.reckoned(notebook) == {"One": 4, "Two": 2, "Your turn": 12}


@pytest.mark.parametrize("title, total", [("90 minutes", 90), ("Half a day: 240 minutes", 240)])
def test_minutes_of_the_plans_add_up(title, total):
    """The rows of lessons are written by `make copies`; the others are a teacher's choice."""
    plan = re.search(rf"^## {title}\n(.*?)^## ", TEACHING, re.M | re.S)[1]
    added = sum(map(int, re.findall(r"^\| (\d+) \|", plan, re.M)))
    assert added == total, f"docs/TEACHING.md, {title}: its rows add up to {added}"
