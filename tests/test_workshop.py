"""The workshop's editions: complete, without answers for students, sound in a browser offline."""

import functools
import inspect
import itertools
import json
import re
import shutil
from pathlib import Path
from urllib.parse import unquote, urlsplit

import nbformat
import pytest
from browsing import PICTURES, TYPESET, lost, printed, violations
from browsing import formulas as formulas_of
from editions import (
    carry,
    colab,
    folds,
    formulas,
    notes,
    packages,
    pieces,
    room,
    slides,
    teaching,
    workshop,
)
from editions.instructor import EXERCISE, instructor
from editions.languages import language_of, words_of
from editions.student import student
from nbclient import NotebookClient
from nbconvert import HTMLExporter

from lessons_src.exercises import exercises
from lessons_src.exercises.changes import solution_code, wrong_answers
from lessons_src.exercises.language import in_language

HAN = "[\u4e00-\u9fff]"
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
with_exercises = pytest.mark.parametrize(
    "lesson",
    [*LESSONS[1:], *CHINESE[1:]],  # the ten minutes have none
    ids=lambda path: path.relative_to(ROOT / "notebooks").as_posix(),
)
# What there is on a slide of 720 px, in px; of a picture its smallest letters.
SLIDE = """() => {
    const slide = Reveal.getCurrentSlide(), thought = slide.querySelector(".thought");
    const all = selector => [...thought.querySelectorAll(selector)];
    const size = element => parseFloat(getComputedStyle(element).fontSize);
    const least = (selector, of = size) => Math.min(99, ...all(selector).map(of));
    const inPicture = image => {
        const svg = atob(image.src.split(",")[1]);
        const fonts = svg.matchAll(/font-size[=:] ?"?([\\d.]+)/g);
        const sizes = [...fonts].map(f => parseFloat(f[1]));
        const units = parseFloat(svg.match(/viewBox="[\\d.-]+ [\\d.-]+ ([\\d.]+)/)[1]);
        const scale = Math.min(
            image.width / image.naturalWidth, image.height / image.naturalHeight
        ) * image.naturalWidth / units;
        return Math.min(...sizes) * scale;
    };
    const { width, height } = Reveal.getConfig(), scale = Reveal.getScale();
    const around = thought.getBoundingClientRect();
    const beyond = element => {
        const box = element.getBoundingClientRect();
        return box.width && (box.top < around.top - 1 || box.bottom > around.bottom + 1
            || box.left < around.left - 1 || box.right > around.right + 1);
    };
    const blocks = [...thought.children].filter(block => !block.matches(".minutes, .section"));
    const corners = [...document.querySelectorAll(".slide-number"),
        ...thought.querySelectorAll(".minutes, .section")].map(e => e.getBoundingClientRect());
    const words = document.createRange();
    const inCorner = element => {
        words.selectNodeContents(element);
        return corners.some(corner => [...words.getClientRects()].some(
            box => box.right > corner.left && box.left < corner.right
                && box.top < corner.bottom && box.bottom > corner.top
        ));
    };
    const boxes = blocks.map(block => block.getBoundingClientRect());
    return {
        text: thought.innerText,
        kinds: blocks.map(block => block.className.split(" ")[0]),
        beyond: all("div, p, li, pre, table, img, h1, h2, h3, mjx-container > svg")
            .filter(beyond).map(element => element.outerHTML.slice(0, 80)),
        over: boxes.filter((box, n) => n && box.top < boxes[n - 1].bottom - 1).length
            + blocks.filter(inCorner).length,
        height: [width, height, Math.round(around.height / scale)],
        plain: least("p, li, td"),
        code: least(".code pre"),
        output: least(".output pre"),
        picture: least(".close-up:not(.small) img", inPicture),
        small: least(".small img", inPicture),
        used: (Math.max(...boxes.map(box => box.bottom)) - boxes[0].top) / around.height,
        notes: slide.querySelector("aside.notes").textContent,
        outputs: all(".output")
            .filter(output => !output.matches(".fragment:not(.visible)"))
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
    monkeypatch.setattr(workshop.formulas, "with_formulas", list)
    folder = tmp_path / "notebooks"
    folder.mkdir()
    shutil.copy(LESSONS[2], folder)
    return folder


def test_no_edition_has_the_badge(lesson_folder, tmp_path):
    notebook = nbformat.read(LESSONS[2], as_version=4)
    colab.put_badge_into_lesson(notebook, LESSONS[2], "ada/course")
    nbformat.write(notebook, lesson_folder / LESSONS[2].name)
    workshop.main(lesson_folder, tmp_path / "workshop")
    files = [*tmp_path.glob("workshop/*/*.html"), *tmp_path.glob("workshop/*/*.ipynb")]
    assert len(files) == 3
    assert [file for file in files if "colab.research" in file.read_text(encoding="utf-8")] == []


@pytest.mark.parametrize(
    "content", ["", "{}", '{"cells": [', '{"cells": 1, "nbformat": 4, "nbformat_minor": 5}']
)
def test_broken_notebook(content, lesson_folder, tmp_path):
    (lesson_folder / LESSONS[2].name).write_text(content)
    said = sentence(lesson_folder, tmp_path / "workshop")
    assert f"{LESSONS[2].name} is no sound notebook: restore it with git" in said


def test_notebook_without_outputs(lesson_folder, tmp_path):
    notebook = nbformat.read(LESSONS[2], as_version=4)
    notebook.cells[1].update(outputs=[], execution_count=None)
    nbformat.write(notebook, lesson_folder / LESSONS[2].name)
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
    assert (target / "slides" / f"{LESSONS[2].stem}.html").exists()
    (lesson_folder / LESSONS[1].name).write_text("{")
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
        return page

    yield open_file
    for context in contexts:
        context.close()


def is_here(url):
    return url.startswith(("file:", "data:", "blob:"))


def check_page(page, notebook):
    typeset = page.evaluate(TYPESET)
    assert typeset == {"shown": typeset["shown"], "wrong": 0, "left": []}
    on_slides = page.evaluate("document.querySelectorAll('.thought mjx-container').length")
    assert typeset["shown"] >= on_slides == formulas_of(notebook)
    images = page.evaluate("document.images.length")
    assert page.evaluate(PICTURES) == images
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert images or not any("image/svg+xml" in output.get("data", {}) for output in outputs)
    links = page.evaluate("() => [...document.links].map(link => link.href)")
    for link in (urlsplit(link) for link in links):
        assert link.scheme == "https" or Path(unquote(link.path)).exists()
    told = page.evaluate("() => [...document.images].map(image => image.alt)")
    assert [alt for alt in told if room.letters(alt) < 30 or alt.startswith("No description")] == []


def texts(notebook):
    """Everything in a notebook but the modules that it carries."""
    return "\n".join(cell.source for cell in notebook.cells if cell.id != "modules")


@with_exercises
def test_students_edition_tells_no_answer(lesson):
    course = nbformat.read(lesson, as_version=4)
    edition = student(course, language_of(lesson))
    file = nbformat.writes(edition)
    told = r'<summary>(Answer|答案)|(<code>|`)solution|"# (The solution|Wrong answers)\\n'
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
    assert edition.cells[1].source == carry.set_up(language_of(lesson))
    joined = file.replace('",\n    "', "")
    for exercise in exercises().values():
        for part in exercise.SOLUTION:
            code = inspect.getsource(part).rstrip()
            if not exercise.TASK.given:  # where a bug is to be found, half of the answer is given
                code = code.split("def backward")[-1]
            given = code in texts(course)  # a stub's glue
            assert given or json.dumps(code)[1:-1] not in joined


@with_exercises
def test_what_a_students_edition_unpacks_tells_no_answer(lesson):
    """Neither a module nor a catalogue, whichever file of the archive it is."""
    course = nbformat.read(lesson, as_version=4)
    files = carry.unpacked(student(course, language_of(lesson)).cells[2].source)
    whole = "\n".join(content.decode("utf-8", "replace") for content in files.values())
    assert whole.count("\nTASK = ") == len(exercises())
    assert "\nSOLUTION = " not in whole
    for exercise in exercises().values():
        said = [wrong.say for wrong in wrong_answers(exercise)]
        said += [in_language(text, "zh_CN") for text in said]
        assert [text for text in said if text in whole and text not in repr(exercise.TASK)] == []
        assert [part for part in exercise.SOLUTION if inspect.getsource(part) in whole] == []


@each_chinese_lesson
def test_what_is_left_out_in_chinese_is_what_is_left_out_in_english(lesson):
    editions = [
        student(nbformat.read(path, as_version=4), language_of(path))
        for path in (ROOT / "notebooks" / lesson.name, lesson)
    ]
    english, chinese = ([cell.id for cell in edition.cells] for edition in editions)
    assert english == chinese
    folds = [texts(edition).count("<details>") for edition in editions]
    assert folds[0] == folds[1] and bool(folds[0]) is (lesson != CHINESE[0])


def checked(notebook):
    found = [re.findall(r'^check\("(\w+)"', cell.source, re.M) for cell in notebook.cells]
    return [name for names in found for name in names]


@every_lesson
def test_instructors_edition_has_every_solution_and_wrong_answer(lesson, monkeypatch):
    language = language_of(lesson)
    course = nbformat.read(lesson, as_version=4)
    monkeypatch.setenv("COURSE_LANGUAGE", "" if language else "zh_CN")  # the lesson's own counts
    edition = instructor(course, language)
    monkeypatch.setenv("COURSE_LANGUAGE", language)
    nbformat.validate(edition)
    assert edition.cells[1].source == carry.set_up(language)
    text, words = texts(edition), words_of(language)
    for name in checked(course):
        exercise = exercises()[name]
        assert solution_code(exercise) in text
        for wrong in wrong_answers(exercise):
            said = words["wrong"].format(in_language(wrong.name), in_language(wrong.say))
            assert said in text and wrong.code in text
        assert text.count(f"<summary>{words['code']}</summary>") >= len(exercise.WRONG) > 3
    for heading, noted in teaching.sections(int(lesson.name[0]), language).items():
        assert f"## {heading}\n\n> {words['for you'].format(*noted)}".rstrip() in text


@each_chinese_lesson
def test_chinese_instructors_edition_has_no_english_sentence(lesson):
    """But for code, quotations, the error that a summary asks about, and words in pictures."""
    english = re.compile(r"[A-Za-z']{2,}(?:,? [A-Za-z']+){2,}")
    code = r"```.*?```|`[^`]*`|<code>.*?</code>|\$[^$]+\$"
    left_out = rf"{code}|“[^”]*”|^\|[^|]*\||can only save variables"
    edition = instructor(nbformat.read(lesson, as_version=4), "zh_CN")
    for cell in edition.cells:
        if cell.cell_type == "markdown":
            text = re.sub(left_out, "", cell.source, flags=re.DOTALL | re.MULTILINE)
            assert english.findall(text) == [], cell.source
    answers = re.findall(r"^\*\*(.+)\*\*：(.+)\n\n<details><summary>代码", texts(edition), re.M)
    assert len(answers) == sum(len(exercises()[name].WRONG) for name in checked(edition))
    assert [answer for answer in answers for part in answer if not re.search(HAN, part)] == []


CUT = """[...document.querySelectorAll("pre")].filter(
    e => [e, e.parentElement].some(box => box.scrollWidth > box.clientWidth + 1)).length"""


@pytest.mark.slow
@every_lesson
def test_on_paper_no_line_of_the_instructors_edition_is_cut_and_no_fold_is_closed(
    lesson, opened, tmp_path
):
    """As Jupyter prints it: by nbconvert, without the modules."""
    edition = instructor(nbformat.read(lesson, as_version=4), language_of(lesson))
    (tmp_path / "paper.html").write_text(HTMLExporter().from_notebook_node(edition)[0], "utf-8")
    page = opened(tmp_path / "paper.html")
    page.set_viewport_size({"width": 718, "height": 1000})
    page.emulate_media(media="print")
    assert page.evaluate(CUT) == 0
    # Numbers of cells would stand between the two parts of what goes on overleaf.
    page.add_style_tag(content=".jp-InputPrompt, .jp-OutputPrompt { visibility: hidden; }")
    sheets = printed(page)
    least = 0 if lesson.name.startswith("0_") else 50  # that one has no exercises of ours
    assert lost(page, sheets, least) == []
    assert len(sheets) < 60


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
            method = r"(\w+\.(forward|backward)|setup_context)"
            neutral += rf"|(right so far; )?{method} is not written yet"
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
        assert heading in headings(nbformat.read(CHINESE[int(number)], as_version=4))


TEACHING = teaching.TEACHING.read_text(encoding="utf-8")
CHINESE_TEACHING = teaching.PAGES["zh_CN"].read_text(encoding="utf-8")


def headings(notebook):
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    return re.findall(r"^## (.+)$", text, re.M)


def test_misconceptions_name_headings_that_are_there():
    named = re.findall(r'^\| ".*" \| Lesson (\d), "(.+)" \|$', TEACHING, re.M)
    assert len(named) == TEACHING.split("## What people believe")[1].count('\n| "') >= 8
    for number, heading in named:
        assert heading in headings(nbformat.read(LESSONS[int(number)], as_version=4))


def deck(built, lesson):
    return built / language_of(lesson) / "slides" / f"{lesson.stem}.html"


def core(lesson):
    """The cells that a deck is made of."""
    return pieces.until_the_end(nbformat.read(lesson, as_version=4).cells)


def without_asides(source):
    """The text without the folds that are no answers: these are in a slide's notes."""

    def kept(fold):
        return fold[0] if folds.ANSWER.search(fold[0] + "\n") else ""

    return pieces.FOLD.sub(kept, source)


@pytest.mark.slow
@every_lesson
def test_slides(lesson, built, opened):
    page = opened(deck(built, lesson))
    notebook = nbformat.v4.new_notebook(cells=core(lesson))
    for cell in notebook.cells:
        cell.source = without_asides(cell.source)
    check_page(page, notebook)
    seen = list(through_the_slides(page))
    wrong = [
        slide
        for slide in seen
        if slide["beyond"]
        or slide["over"]
        or slide["height"] != [1280, 720, 720]
        or slide["plain"] < 24
        or slide["code"] < 22
        or slide["output"] < 24
        or slide["picture"] < 12.5
        or slide["small"] < 9
        or slide["used"] < 0.15
        or (ASKS_OR_SHOWS & set(slide["kinds"]) and not told_beside(slide["notes"]))
    ]
    assert wrong == []
    no_output_is_seen_before_its_key(lesson, seen)
    assert page.troubles == []


def no_output_is_seen_before_its_key(lesson, seen):
    for cell in core(lesson):
        if "expected" in cell.metadata and pieces.SVG not in cell.outputs[-1].get("data", {}):
            code = squeezed(cell.source)
            outputs = [squeezed(pieces.printed(output)) for output in cell.outputs]
            first = next(slide for slide in seen if code in squeezed(slide["text"]))
            visible = squeezed("".join(first["outputs"]))
            assert not any(output and output in visible for output in outputs), cell.source


ASKS_OR_SHOWS = {"question", "code", "output", "picture"}


def told_beside(notes):
    """The lines that a speaker has to say something by, which the minutes are not."""
    lines = map(str.strip, notes.splitlines())
    return [line for line in lines if line and not re.match(r"[\d.]+ (min|分钟)", line)]


def through_the_slides(page):
    """Each slide, and each again with every fragment that a key brings."""
    page.wait_for_function("Reveal.isReady()")
    for _ in range(300):
        slide = page.evaluate(SLIDE)
        yield slide
        if slide["last"]:
            return
        page.evaluate("Reveal.next()")


def placed(*cells):
    """Slides of cells, each as the kinds of what is on it."""
    notebook = nbformat.v4.new_notebook(cells=list(cells))
    made = list(slides.placed(pieces.pieces(notebook)))
    return made, [" ".join(piece.kind for piece in slide.pieces) for slide in made]


@functools.cache
def deck_of(lesson):
    """The slides of a lesson, for tests that only read them."""
    return placed(*core(lesson))[0]


def text(source):
    return nbformat.v4.new_markdown_cell(source)


def code(source, printed="", **metadata):
    outputs = [nbformat.v4.new_output("stream", text=printed)] if printed else []
    return nbformat.v4.new_code_cell(source, outputs=outputs, metadata=metadata)


ANSWER = "> <details><summary>Answer</summary>\n>\n> {}\n>\n> </details>"


@every_lesson
def test_what_is_no_slide_and_what_is_whole(lesson):
    cells, made = core(lesson), deck_of(lesson)
    minutes = sum(row[0] for row in teaching.sections(int(lesson.name[0])).values())
    assert 0.6 * minutes < len(made) <= minutes
    kinds = [" ".join(piece.kind for piece in slide.pieces) for slide in made]
    assert not {"heading", "solution"} & set(kinds)
    assert [slide for slide in made if not room.few_words(slide.pieces, room.PROSE)] == []
    all_pieces = [piece for slide in made for piece in slide.pieces]
    code = "\n".join(piece.words for piece in all_pieces if piece.kind in ("code", "output"))
    assert not re.search(r"not attempted|NotImplemented|plt\.|^check\(|get_ipython", code, re.M)
    assert all(piece.words.count("```") % 2 == 0 for piece in all_pieces)
    words = "\n".join(piece.words for piece in all_pieces if piece.kind not in ("code", "picture"))
    by_hand = re.findall("[^\n]*(?:arrow keys|slider|方向键|滑块).*", words)
    assert by_hand == [], "BY_HAND of pieces.py says these otherwise"
    turn = next(
        n for n, slide in enumerate(made) if words_of(language_of(lesson))["turn"] in slide.heading
    )
    said = "\n".join(
        piece.words for slide in made[:turn] for piece in slide.pieces if pieces.leads(piece)
    )
    assert not re.search(r"\bcells?\b|单元格", said), "a slide has no cell: see BY_HAND"
    pages = [squeezed("".join(piece.words for piece in slide.pieces)) for slide in made]
    for cell in cells:  # each on one slide
        if cell.cell_type == "code" and (code := squeezed(pieces.for_a_room(cell.source))):
            assert sum(code in page for page in pages) == 1, cell.source


def test_the_teachers_page_says_how_many_slides_a_lesson_has():
    made = [len(deck_of(lesson)) for lesson in [*LESSONS, *CHINESE]]
    assert f"a lesson has at most {max(made)}." in TEACHING
    assert f"一课最多 {max(made)} 张" in CHINESE_TEACHING


ABOVE = re.compile(r"\b[Aa]bove\b|上面")
# But not below a number, or below what is named.
BELOW = re.compile(r"\b[Bb]elow\b(?! (?:it|an?|three)\b)|(?<![表行图])下面")


@every_lesson
def test_a_slide_points_at_nothing_that_is_not_on_it(lesson):
    """Until the exercises, which are in the notebook that a room has open then."""
    made = deck_of(lesson)
    turn = words_of(language_of(lesson))["turn"]
    for slide in itertools.takewhile(lambda slide: turn not in slide.heading, made):
        for number, piece in enumerate(slide.pieces):
            if piece.kind in ("code", "output", "picture"):
                continue
            assert not ABOVE.search(piece.words), piece.words
            shown = {each.kind for each in slide.pieces[number + 1 :]} - {"text", "question"}
            for found in BELOW.finditer(piece.words):
                assert shown or "\n" in piece.words[found.end() :], piece.words


def test_a_prediction_is_asked_before_its_code_and_answered_after_it():
    cells = [
        text("## Is it?\n\nLook at one.\n\n> **Predict:** is it 1?"),
        code("one", "1\n", expected=["1"]),
        text(ANSWER.format("It is.") + "\n\nNow two:"),
        code("two", "2\n"),
        text("Two is more than one.\n\n## The end\n\nOf it."),
    ]
    made, kinds = placed(*cells)
    assert kinds == [
        "heading text question code output answer", "text code output text", "heading text"
    ]  # fmt: skip
    assert [piece.after_key for piece in made[0].pieces] == [False] * 4 + [True] * 2
    assert [piece.after_key for piece in made[1].pieces] == [False] * 3 + [True]


@every_lesson
def test_what_was_asked_stands_above_what_shows_it(lesson):
    made = deck_of(lesson)
    asked = ""
    for slide in made:
        for piece in slide.pieces:
            if piece.kind == "heading" or pieces.leads(piece):
                asked = ""
            if piece.kind == "question":
                asked = piece.words
        kinds = [piece.kind for piece in slide.pieces]
        if asked and {"code", "output", "picture", "answer"} & {*kinds} and "question" not in kinds:
            assert room.ASIDE.sub("", asked).strip().endswith(slide.pieces[0].words)
            assert kinds[0] == "again"


def test_of_a_text_is_asked_again_what_it_asks_or_how_it_ends():
    asks = pieces.question
    assert asks("Look at this. Which of the two numbers is it? Or both?") == (
        "Which of the two numbers is it? Or both?"
    )
    assert asks("One of them is wrong. Which?") == "One of them is wrong. Which?"
    assert asks("看这里。是一吗？还是二？") == "看这里。是一吗？还是二？"
    assert asks("It has a line. Follow it.") == "Follow it."
    assert asks(f"Is it {'very ' * 40}large? Or small?") == "Or small?"
    assert asks("Which?\n\n- this\n- that") == ""
    assert asks("Two:\n\n1. Is it? And why?\n2. Which?") == "1. Is it? And why?\n2. Which?"
    assert asks("1. Is it?\n2. It is.") == asks("1. 做这个。\n2. 做那个。") == ""
    assert asks("It changes z. (z is x * 1: x is a leaf.) Are the derivatives still 1 and 2?") == (
        "Are the derivatives still 1 and 2?"
    )
    assert asks("它原地修改 z。（x 是叶子。所以取 z。）导数还是一和二吗？") == (
        "它原地修改 z。导数还是一和二吗？"
    )


@every_lesson
def test_no_slide_shows_how_a_notebook_is_set_up(lesson):
    made, _ = placed(*core(lesson))
    code = [piece.words for slide in made for piece in slide.pieces if piece.kind == "code"]
    assert [words for words in code if "os.environ" in words or "get_ipython()" in words] == []


@every_lesson
def test_no_slide_has_one_sentence_alone(lesson):
    """What is said of code stands with it, where it is no more than a line or two."""
    made, _ = placed(*core(lesson))
    alone = [slide.pieces[0] for slide in made if [each.kind for each in slide.pieces] == ["text"]]
    bare = [piece for piece in alone if "\n|" not in piece.words and "$$" not in piece.words]
    assert [piece.words for piece in bare if room.prose(piece) < 18] == []


@every_lesson
def test_no_slide_shows_code_without_a_word(lesson):
    made = deck_of(lesson)
    wordless = [slide for slide in made if {piece.kind for piece in slide.pieces} <= {*room.MORE}]
    assert wordless == [], "what is said before it, in a sentence of its own, would stand above it"


def test_what_was_said_last_stands_above_code_alone_and_above_a_list_what_announces_it():
    long = "one\n" * 18
    _, kinds = placed(text("## It\n\nLook. Expect 1."), code(long, "1\n"))
    assert kinds == ["heading text", "again code output"]
    made, kinds = placed(text("## It\n\nLook. Expect 1."), code(long), code(long), text("So."))
    assert [slide.pieces[0].words for slide in made[1:]] == ["Expect 1."] * 2 + ["So."]
    items = "\n".join(f"{number}. {'word ' * 25}" for number in (1, 2, 3))
    announced = f"Here they {'are ' * 12}:"
    made, kinds = placed(text(f"## Three\n\n{'word ' * 60}.\n\n{announced}\n\n{items}"))
    assert kinds[-1] == "again text" and made[-1].pieces[0].words == announced


@every_lesson
def test_the_word_answers_is_not_without_them(lesson):
    made = deck_of(lesson)
    words = [piece.words for slide in made for piece in slide.pieces if piece.kind == "answer"]
    assert [each for each in words if room.LABEL.fullmatch(each)] == []


def test_each_step_is_on_a_key_and_a_large_graph_is_whole_at_first():
    cells = core(LESSONS[3])
    made, _ = placed(*cells)
    graphs = [graph for slide in made for piece in slide.pieces for graph in piece.graphs]
    stepped = [graph for graph in graphs if graph["steps"]]
    assert [len(graph["frames"]) for graph in stepped] == [2, 9]
    for graph in stepped:
        for frame, words in zip(graph["frames"], graph["said"], strict=True):
            assert words in frame["where"] and '"#0b57a4"' in frame["svg"]
        last, first = graph["frames"][-1]["svg"], graph["frames"][0]["svg"]
        assert 'visibility="hidden"' in first and 'visibility="hidden"' not in last
    parts = [graph["frames"] for graph in graphs if len(graph["frames"]) > 1 and not graph["steps"]]
    assert [[frame.get("small", False) for frame in frames] for frames in parts] == [
        [True, False, False]
    ] * len(parts)
    names = {"", *(slide.section for slide in made)}
    assert names == {""}  # given by `slides`
    page = slides.slides(nbformat.read(LESSONS[3], as_version=4))
    assert page.count('<small class="section">') == len(made) - page.count('class="minutes"') - 1


def test_what_goes_on_after_what_answers_was_not_asked():
    said = f"One. {'It is one ' * 12}. What may escape it:\n\n- this\n- {'that ' * 40}"
    made, kinds = placed(text("## It\n\nWhat is it?"), code("one", "1\n" * 9), text(said))
    assert kinds[-2:] == ["heading text code output text", "text"]
    assert made[-1].pieces[0].words.startswith("What may escape it:")


def test_an_answer_does_not_come_before_the_cell_that_it_speaks_of():
    fold = "<details><summary>Answers</summary>\n\nThe first.\n\n</details>"
    _, kinds = placed(text(f"### Which of the two?\n\nFind out.\n\n{fold}"), code("a, b", "1, 1"))
    assert kinds == ["heading text code output answer"]


def test_what_ends_in_a_colon_leads_to_what_comes_next():
    made, kinds = placed(code("one", "1\n"), text("That was one. Now two:"), code("two", "2\n"))
    assert kinds == ["code output text", "text code output"]
    assert [made[0].pieces[-1].words, made[1].pieces[0].words] == ["That was one.", "Now two:"]
    long = "two\n" * 12
    made, kinds = placed(text(f"## It\n\n{'word ' * 70}. Now two:"), code(long, "2\n"))
    assert kinds == ["heading text", "again code output"] and made[1].pieces[0].words == "Now two:"
    _, kinds = placed(
        text("Is it 2?"), code(long + "two\n" * 6, "2\n"), text(f"No, {'word ' * 40}.")
    )
    assert kinds == ["text", "again code output", "again text"]


def test_a_room_is_not_shown_what_only_draws_or_sets_up():
    assert pieces.for_a_room("import torch\nget_ipython().run()") == ""
    assert pieces.for_a_room("figure, axes = plt.subplots()\nshow(figure)") == ""
    shown = pieces.for_a_room("y = f(x)\nfigure, axes = plt.subplots()\naxes.plot(x, y)")
    assert shown == "y = f(x)\n# and a plot of it"
    assert pieces.for_a_room('class F:\n    x = 1\n\n\ncheck("f", F)') == "class F:\n    x = 1"


@pytest.mark.parametrize(
    "words",
    [
        "All right. (`f(g(x))` says [more](page.html).) Go on (as before).",
        "都对。（`f(x)` 说得更多。）接着做（和前面一样）。",
    ],
)
def test_a_sentence_in_brackets_is_for_the_speaker(words):
    made, _ = placed(text(f"## It\n\n{words}"), code("x", "1\n"))
    assert re.sub("`.*?`|[^(（]", "", made[0].pieces[1].words) in ("(", "（")
    notes.write_notes(made, {"It": (1, "")}, words_of(""))
    assert words in made[0].notes


def test_notes_tell_apart_what_a_later_slide_says():
    said = f"It is, {'word ' * 40}."
    made, kinds = placed(text("## It\n\nIs it 1?"), code("one\n" * 18, "1\n"), text(said))
    assert kinds == ["heading text", "again code output", "again text"]
    notes.write_notes(made, {"It": (1, "")}, words_of(""))
    assert made[1].notes[-2:] == ["**On a later slide:**", said]
    assert len(made[2].notes) == 1, "only its time"


def test_a_long_list_goes_on_on_another_slide_and_a_last_line_does_not():
    items = [f"- {number}" + " word" * 18 for number in range(6)]
    for number, on_slides in (6, [4, 2]), (5, [3, 2]):
        made, _ = placed(text("## Some\n\n" + "\n".join(items[:number])))
        assert [slide.pieces[-1].words.count("- ") for slide in made] == on_slides
    made, _ = placed(text("## Four\n\n" + "\n".join([*items[:3], "- and this"])))
    assert len(made) == 1 and "\n\n" not in made[0].pieces[1].words
    table = "| a | b |\n|---|---|\n" + "| 1 | 2 |\n" * 7
    for whole in "\n".join(items[:3]), table.strip():
        made, _ = placed(text(f"## Some\n\n{'word ' * 40}. Three of them:\n\n{whole}"))
        assert made[-1].pieces[0].words == f"Three of them:\n\n{whole}"


def test_the_heading_that_is_read_last_stands_on_each_slide_that_has_none():
    cells = [code(name, "1\n") for name in "12"]
    made, _ = placed(text("## A\n\nOne."), text("### B\n\nTwo."), *cells, text("## C"))
    slides.name_sections(made)
    assert [slide.section for slide in made] == ["", "A", "B", ""]


@pytest.mark.parametrize(
    "formula, measured",  # in em, in a browser
    [
        (
            r"y = \frac{x}{r}, \quad r = \sqrt{\textstyle\sum_i x_i^2} \qquad\qquad "
            r"\mathrm{grad\_x} = \frac{g - y \sum_i g_i y_i}{r}",
            23.3,
        ),
        (r"\mathrm{grad\_x} = g \cdot 3x^2 .", 7.1),
        (r"\text{对 } b: \quad w \qquad\qquad \text{对 } A: \quad -w\, u^\mathsf{T}", 14.3),
    ],
)
def test_a_formula_is_reckoned_as_wide_as_it_is_or_wider(formula, measured):
    assert measured <= room.width_of(formula) <= 1.4 * measured
    wide = pieces.Piece("text", f"$${formula} {formula * 3}$$")
    assert room.size_of(wide, 1.8) < 1.3 < room.size_of(pieces.Piece("text", "$x$"), 1.8)


def test_a_few_words_alone_are_large():
    made, _ = placed(text("# 1 · Title\n\nA promise."), text("## Much\n\n" + "word " * 190))
    large, small = (slide.pieces[0].size for slide in made)
    assert large == max(slides.LARGER) and small < 1.2


def test_a_long_error_is_cut_to_what_happened_and_why():
    raised = nbformat.v4.new_output("error", ename="", evalue="")
    raised.traceback = ["E: wrong. Hint: look elsewhere"]
    assert pieces.printed(raised) == "E: wrong."
    raised.traceback = ["E: wrong\n\nwhy\n\nmuch\n\nmore"]
    assert pieces.printed(raised) == "E: wrong\n\nwhy\n\n…"


@pytest.mark.parametrize("lesson", [LESSONS[1], CHINESE[1]])
def test_minutes_and_notes_are_on_the_slides(lesson):
    language = language_of(lesson)
    page = slides.slides(nbformat.read(lesson, as_version=4), language)
    told = teaching.sections(1, language)
    assert f'<html lang="{words_of(language)["lang"]}">' in page
    assert page.count('class="minutes"') == sum(minutes > 0 for minutes, _ in told.values())
    assert page.count(words_of(language)["stuck"]) == sum(bool(stuck) for _, stuck in told.values())
    notes = "".join(re.findall(r'<aside class="notes">.*?</aside>', page, re.DOTALL))
    assert "class Reciprocal" in re.sub("<[^>]*>", "", notes)  # the solution
    last = max(int(found) for found in re.findall(MINUTE[language], notes))
    assert 35 < last <= sum(m for h, (m, _) in told.items() if h != words_of(language)["turn"])


MINUTE = {"": r"from minute (\d+)", "zh_CN": r"从第 (\d+) 分钟"}


def squeezed(text):
    return re.sub(r"\s", "", text)


@pytest.mark.slow
@pytest.mark.parametrize(
    "scheme, view", [("light", ""), ("light", "?view=print"), ("dark", "?view=print")]
)
@each_lesson
def test_slides_are_accessible(lesson, scheme, view, built, opened):
    """As they are shown, with the arrows, and all of them below each other, as for paper."""
    page = opened(built / "slides" / f"{lesson.stem}.html", scheme, view)
    page.wait_for_function("Reveal.isReady()")
    if view:
        page.wait_for_function("document.querySelectorAll('.pdf-page').length > 9")
        page.evaluate("() => document.querySelectorAll('details').forEach(d => d.open = true)")
    assert violations(page) == []
    assert page.troubles == []


@pytest.mark.slow
def test_a_formula_is_drawn_once_and_one_that_is_none_is_named():
    written = formulas.marked("a < b", displayed=False) + formulas.marked("a < b", displayed=True)
    (page,) = formulas.with_formulas([f"<p>{written}</p><code>\\(x\\)</code>"])
    assert page.count("<svg") == page.count("<math") == 2 and page.count('display="true"') == 1
    assert page.endswith("<code>\\(x\\)</code>") and ' id="' not in page
    (page,) = formulas.with_formulas([formulas.marked(r"a = b \qquad\qquad c = d", displayed=True)])
    assert page.count("<svg") == 2 and page.count("<math") == 1, "a line may end between the two"
    inline = formulas.marked("y", displayed=False)
    (page,) = formulas.with_formulas([f"{inline}，{inline} x"])
    assert page.count('<span class="unbroken">') == 1 and "</span>，</span>" in page
    with pytest.raises(SystemExit, match=r"\\frac\{a is no formula: "):
        formulas.with_formulas([formulas.marked(r"\frac{a", displayed=False)])
