"""The workshop's editions: complete, without answers for students, sound in a browser offline."""

import inspect
import json
import re
import shutil
from pathlib import Path
from urllib.parse import unquote, urlsplit

import nbformat
import pytest
from browsing import PICTURES, TYPESET, formulas, pictures, violations
from editions import colab, packages, slides, teaching, workshop
from editions.instructor import EXERCISE, instructor
from editions.languages import WORDS, language_of
from editions.student import student
from nbclient import NotebookClient

from lessons_src.exercises import exercises
from lessons_src.exercises.changes import solution_code, wrong_answers

ROOT = Path(__file__).resolve().parent.parent
LESSONS = sorted((ROOT / "notebooks").glob("[0-9]_*.ipynb"))
CHINESE = sorted((ROOT / "notebooks" / "zh_CN").glob("[0-9]_*.ipynb"))
each_lesson = pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
each_chinese_lesson = pytest.mark.parametrize("lesson", CHINESE, ids=lambda path: path.stem)
every_lesson = pytest.mark.parametrize(
    "lesson",
    [*LESSONS, *CHINESE],
    ids=lambda path: path.relative_to(ROOT / "notebooks").as_posix(),
)
FIRST, NEXT = "Reveal.slide(0, 0)", "Reveal.next()"
# How tall letters are, of the slide's height; of a picture its smallest.
SLIDE = """() => {
    const slide = Reveal.getCurrentSlide();
    const { height, width } = Reveal.getConfig();
    const size = element => parseFloat(getComputedStyle(element).fontSize) / height;
    const all = selector => [...slide.querySelectorAll(selector)];
    const least = (selector, of = size) => Math.min(1, ...all(selector).map(of));
    const inPicture = image => {
        const svg = atob(image.src.split(",")[1]);
        const fonts = svg.matchAll(/font-size[=:] ?"?([\\d.]+)/g);
        const sizes = [...fonts].map(f => parseFloat(f[1]));
        const units = parseFloat(svg.match(/viewBox="[\\d.-]+ [\\d.-]+ ([\\d.]+)/)[1]);
        const scale = Math.min(
            image.width / image.naturalWidth, image.height / image.naturalHeight
        ) * image.naturalWidth / units;
        return Math.min(...sizes) * scale / height;
    };
    return {
        text: slide.innerText,
        fits: slide.scrollHeight <= height && slide.scrollWidth <= width,
        plain: least("p, li, td"),
        code: least("pre:not(.output)"),
        output: least("pre.output"),
        picture: least("img.output", inPicture),
        outputs: all("pre.output")
            .filter(output => !output.closest(".fragment:not(.visible)"))
            .map(output => output.innerText),
        last: Reveal.isLastSlide() && !Reveal.availableFragments().next,
    };
}"""


def sentence(notebooks, target):
    """What `make workshop` says when it gives up."""
    with pytest.raises(SystemExit) as stopped:
        workshop.main(notebooks, target)
    assert "\n" not in stopped.value.code and stopped.value.code.endswith(".")
    return stopped.value.code


@pytest.fixture
def lesson_folder(tmp_path, monkeypatch):
    """One lesson, and nothing from npm: `make test` runs without it."""
    monkeypatch.setattr(workshop, "ASSETS", {})
    folder = tmp_path / "notebooks"
    folder.mkdir()
    shutil.copy(LESSONS[1], folder)
    return folder


def test_no_edition_has_the_badge(lesson_folder, tmp_path):
    notebook = nbformat.read(LESSONS[1], as_version=4)
    colab.put_badge_into_lesson(notebook, LESSONS[1], "ada/course")
    nbformat.write(notebook, lesson_folder / LESSONS[1].name)
    workshop.main(lesson_folder, tmp_path / "workshop")
    files = [*tmp_path.glob("workshop/*/*.html"), *tmp_path.glob("workshop/*/*.ipynb")]
    assert len(files) == 3
    assert [file for file in files if "colab.research" in file.read_text(encoding="utf-8")] == []


@pytest.mark.parametrize(
    "content", ["", "{}", '{"cells": [', '{"cells": 1, "nbformat": 4, "nbformat_minor": 5}']
)
def test_broken_notebook(content, lesson_folder, tmp_path):
    (lesson_folder / LESSONS[1].name).write_text(content)
    said = sentence(lesson_folder, tmp_path / "workshop")
    assert f"{LESSONS[1].name} is no sound notebook: restore it with git" in said


def test_notebook_without_outputs(lesson_folder, tmp_path):
    notebook = nbformat.read(LESSONS[1], as_version=4)
    notebook.cells[1].update(outputs=[], execution_count=None)
    nbformat.write(notebook, lesson_folder / LESSONS[1].name)
    assert sentence(lesson_folder, tmp_path / "workshop").endswith("run `make refresh`.")


def test_no_notebooks(tmp_path):
    assert sentence(tmp_path, tmp_path / "workshop").startswith("There are no lessons in")


def test_folder_that_cannot_be_written(lesson_folder, tmp_path):
    (tmp_path / "build").write_text("a file")
    said = sentence(lesson_folder, tmp_path / "build" / "workshop")
    assert said.endswith("make its folder writable.")


def test_npm_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(packages, "MODULES", tmp_path / "node_modules")
    monkeypatch.setenv("PATH", str(tmp_path))
    said = sentence(workshop.NOTEBOOKS, tmp_path / "workshop")
    assert said.startswith("npm is missing: install")


def test_failure_leaves_what_was_there(lesson_folder, tmp_path):
    target = tmp_path / "workshop"
    workshop.main(lesson_folder, target)
    before = sorted(target.rglob("*"))
    assert (target / "slides" / f"{LESSONS[1].stem}.html").exists()
    (lesson_folder / LESSONS[0].name).write_text("{")
    sentence(lesson_folder, target)
    assert sorted(target.rglob("*")) == before
    assert {path.name for path in tmp_path.iterdir()} == {"notebooks", "workshop"}


def test_lock_names_no_address():
    """npm then asks the registry of whoever runs it."""
    lock = json.loads((packages.HERE / "package-lock.json").read_text(encoding="utf-8"))
    assert [p["resolved"] for p in lock["packages"].values() if "resolved" in p] == []


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    target = tmp_path_factory.mktemp("a teacher") / "workshop"
    workshop.main(target=target)
    return target


@pytest.fixture
def opened(browser):
    """Open a file with the network cut; whatever goes wrong is in `page.troubles`."""
    contexts = []

    def open_file(path, scheme="light", view=""):
        context = browser.new_context(
            offline=True, color_scheme=scheme, viewport={"width": 1280, "height": 800}
        )
        contexts.append(context)
        page = context.new_page()
        page.troubles = []
        page.on("console", lambda m: page.troubles.append(m.text) if m.type != "log" else None)
        page.on("pageerror", lambda error: page.troubles.append(str(error)))
        page.on("requestfailed", lambda request: page.troubles.append(request.url))
        page.on("request", lambda r: None if is_here(r.url) else page.troubles.append(r.url))
        page.goto(path.as_uri() + view)
        page.evaluate("() => MathJax.startup.promise.then(() => true)")
        return page

    yield open_file
    for context in contexts:
        context.close()


def is_here(url):
    return url.startswith(("file:", "data:", "blob:"))


def check_page(page, notebook):
    assert page.evaluate(TYPESET) == {"shown": formulas(notebook), "wrong": 0, "left": []}
    images = page.evaluate("document.images.length")
    assert page.evaluate(PICTURES) == images >= pictures(notebook)
    links = page.evaluate("() => [...document.links].map(link => link.href)")
    for link in (urlsplit(link) for link in links):
        assert link.scheme == "https" or Path(unquote(link.path)).exists()
    told = page.evaluate("() => [...document.images].map(image => image.alt)")
    assert [alt for alt in told if slides.width(alt) < 30 or alt.startswith("No description")] == []


def texts(notebook):
    """Everything in a notebook but the modules that it carries."""
    return "\n".join(cell.source for cell in notebook.cells if cell.id != "modules")


@every_lesson
def test_students_edition_tells_no_answer(lesson):
    course = nbformat.read(lesson, as_version=4)
    edition = student(course, language_of(lesson))
    file = nbformat.writes(edition)
    told = r'<summary>(Answer|答案)|(or|或者) <code>solution|"# (The solution|Wrong answers)\\n'
    assert not re.search(told, file)
    answers = [
        answer.strip()
        for cell in course.cells
        for answer in re.findall(
            r"<summary>(?:Answers?|答案)</summary>(.*?)</details>", cell.source, re.S
        )
    ]
    assert len(answers) >= 8
    for answer in answers:
        assert json.dumps(answer, ensure_ascii=False)[1:-1] not in file
    for cell in course.cells:
        for output in cell.get("outputs", []):
            assert json.dumps(output) not in file
    assert all(not cell.outputs for cell in edition.cells if cell.cell_type == "code")
    assert all(set(cell.metadata) <= {"tags", "jupyter", "cellView"} for cell in edition.cells)
    joined = file.replace('",\n    "', "")
    for exercise in exercises().values():
        for part in exercise.SOLUTION:
            code = inspect.getsource(part).rstrip()
            if not exercise.TASK.given:  # where a bug is to be found, half of the answer is given
                code = code.split("def backward")[-1]
            given = code in texts(course)  # a stub's glue
            assert given or json.dumps(code)[1:-1] not in joined


@each_chinese_lesson
def test_what_is_left_out_in_chinese_is_what_is_left_out_in_english(lesson):
    editions = [
        student(nbformat.read(path, as_version=4), language_of(path))
        for path in (ROOT / "notebooks" / lesson.name, lesson)
    ]
    english, chinese = ([cell.id for cell in edition.cells] for edition in editions)
    assert english == chinese
    folds = [texts(edition).count("<details>") for edition in editions]
    assert folds[0] == folds[1] > 0


def checked(notebook):
    found = [re.findall(r'^check\("(\w+)"', cell.source, re.M) for cell in notebook.cells]
    return [name for names in found for name in names]


@each_lesson
def test_instructors_edition_has_every_solution_and_wrong_answer(lesson):
    course = nbformat.read(lesson, as_version=4)
    edition = instructor(course)
    nbformat.validate(edition)
    text = texts(edition)
    for name in checked(course):
        exercise = exercises()[name]
        assert solution_code(exercise) in text
        for wrong in wrong_answers(exercise):
            assert f"**{wrong.name}**: {wrong.say}" in text and wrong.code in text
        assert text.count("<summary>Code</summary>") >= len(exercise.WRONG) > 3
    for heading, (minutes, stuck) in teaching.sections(int(lesson.name[0])).items():
        assert f"## {heading}\n\n> **For you: {minutes} min.** {stuck}".rstrip() in text


@pytest.mark.slow
@each_lesson
def test_students_edition_runs(lesson, built, tmp_path):
    """Here where everything is installed; where nothing is, the Colab copies run the same cells."""
    notebook = nbformat.read(built / "student" / lesson.name, as_version=4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    for cell in notebook.cells:
        if name := EXERCISE.search(cell.source):
            printed = "".join(output.get("text", "error") for output in cell.outputs)
            neutral = r"not attempted yet|as given\. It has a bug: find it and mend it here"
            neutral += r"|(right so far; )?\w+\.(forward|backward) is not written yet"
            assert re.fullmatch(rf"{name[1]}: ({neutral})\.\n", printed)


@each_chinese_lesson
def test_the_chinese_plan_has_the_minutes_of_the_english_one(lesson):
    number = int(lesson.name[0])
    english, chinese = teaching.sections(number), teaching.sections(number, "zh_CN")
    told = f"TEACHING.zh-CN.md, lesson {number}: the minutes are those of TEACHING.md"
    assert [row[0] for row in chinese.values()] == [row[0] for row in english.values()], told
    assert [bool(row[1]) for row in chinese.values()] == [bool(row[1]) for row in english.values()]
    assert [*chinese, "更进一步"] == headings(nbformat.read(lesson, as_version=4))
    core = sum(minutes for heading, (minutes, _) in chinese.items() if heading != "轮到你了")
    assert f"### 第 {number} 课：{core} 分钟\n" in CHINESE_TEACHING


def test_the_chinese_plans_are_the_english_ones():
    rows = [re.findall(r"^\| (\d+) \|", text, re.M) for text in (TEACHING, CHINESE_TEACHING)]
    assert rows[0] == rows[1] != []
    believed = re.findall(r"^\| “.*” \| 第 (\d) 课，“(.+)” \|$", CHINESE_TEACHING, re.M)
    assert len(believed) == TEACHING.split("## What people believe")[1].count('\n| "')
    for number, heading in believed:
        assert heading in headings(nbformat.read(CHINESE[int(number) - 1], as_version=4))


TEACHING = teaching.TEACHING.read_text(encoding="utf-8")
CHINESE_TEACHING = teaching.PAGES["zh_CN"].read_text(encoding="utf-8")


def headings(notebook):
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    return re.findall(r"^## (.+)$", text, re.M)


def test_misconceptions_name_headings_that_are_there():
    named = re.findall(r'^\| ".*" \| Lesson (\d), "(.+)" \|$', TEACHING, re.M)
    assert len(named) == TEACHING.split("## What people believe")[1].count('\n| "') >= 8
    for number, heading in named:
        assert heading in headings(nbformat.read(LESSONS[int(number) - 1], as_version=4))


def deck(built, lesson):
    return built / language_of(lesson) / "slides" / f"{lesson.stem}.html"


@pytest.mark.slow
@every_lesson
def test_slides(lesson, built, opened):
    notebook = nbformat.read(lesson, as_version=4)
    page = opened(deck(built, lesson))
    check_page(page, notebook)
    seen = list(through_the_slides(page))
    too_small = [
        (slide["text"][:60], slide)
        for slide in seen
        if not slide["fits"]
        or slide["plain"] < 0.025
        or slide["code"] < 0.03
        or slide["output"] < 0.025
        or slide["picture"] < 0.025
    ]
    assert too_small == []
    for cell in notebook.cells:  # each on one slide
        if cell.cell_type == "code":
            assert sum(squeezed(cell.source) in squeezed(slide["text"]) for slide in seen) >= 1
    assert page.troubles == []


@pytest.mark.slow
@every_lesson
def test_no_output_of_a_prediction_is_seen_before_its_key(lesson, built, opened):
    asked = [c for c in nbformat.read(lesson, as_version=4).cells if "expected" in c.metadata]
    page = opened(deck(built, lesson))
    seen = list(through_the_slides(page))
    for cell in asked:
        code, outputs = squeezed(cell.source), [squeezed(slides.printed(o)) for o in cell.outputs]
        first = next(slide for slide in seen if code in squeezed(slide["text"]))
        visible = squeezed("".join(first["outputs"]))
        assert not any(output and output in visible for output in outputs), cell.source


def through_the_slides(page):
    """Each slide, and each again with every fragment that a key brings."""
    page.wait_for_function("Reveal.isReady()")
    for _ in range(300):
        slide = page.evaluate(SLIDE)
        yield slide
        if slide["last"]:
            return
        page.evaluate(NEXT)


@every_lesson
def test_a_slide_is_one_thought(lesson):
    """No answer, question or picture shares a slide with what comes before it."""
    cells = list(slides.placed(slides.pieces(nbformat.read(lesson, as_version=4)), {}))
    for cell in cells:
        if cell.metadata.kind in ("question", "answer", "picture"):
            assert cell.metadata.slideshow.slide_type == "subslide"
    assert sum(cell.metadata.kind == "question" for cell in cells) >= 5


def test_a_few_words_alone_are_large():
    cells = [
        nbformat.v4.new_markdown_cell("# 1 · Title\n\nA promise, and [a link](2_x.ipynb)."),
        nbformat.v4.new_code_cell("1 + 1"),
        nbformat.v4.new_markdown_cell("## Much\n\n" + "word " * 200),
        nbformat.v4.new_markdown_cell("## A table\n\n| a |\n|---|\n| 1 |"),
    ]
    placed = list(slides.placed(slides.pieces(nbformat.v4.new_notebook(cells=cells)), {}))
    slides.mark_few_words(placed)
    assert [cell.metadata.get("few_words") for cell in placed] == [False, None, False, False]
    placed = list(slides.placed(slides.pieces(nbformat.v4.new_notebook(cells=cells[:1])), {}))
    slides.mark_few_words(placed)
    assert placed[0].metadata.few_words


@pytest.mark.parametrize("lesson", [LESSONS[0], CHINESE[0]])
def test_minutes_and_stumbling_blocks_are_on_the_slides(lesson):
    page = slides.slides(nbformat.read(lesson, as_version=4), language_of(lesson))
    notes = teaching.sections(1, language_of(lesson))
    assert f'<html lang="{WORDS[language_of(lesson)]["lang"]}">' in page
    assert page.count('class="minutes"') == sum(minutes > 0 for minutes, _ in notes.values())
    assert page.count('<aside class="notes">') == sum(bool(stuck) for _, stuck in notes.values())


def squeezed(text):
    return re.sub(r"\s", "", text)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@each_lesson
def test_slides_are_accessible(lesson, scheme, built, opened):
    """As they are shown, with the arrows, and then all of them below each other, as for paper."""
    for view in ("", "?view=print"):
        page = opened(built / "slides" / f"{lesson.stem}.html", scheme, view)
        page.wait_for_function("Reveal.isReady()")
        if view:
            page.wait_for_function("document.querySelectorAll('.pdf-page').length > 9")
            page.evaluate("() => document.querySelectorAll('details').forEach(d => d.open = true)")
        assert violations(page) == []
        assert page.troubles == []
