"""The website: complete, its links lead somewhere, sound in a browser that is offline."""

import functools
import http.server
import re
import threading
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin

import build_site
import nbformat
import pages_in_languages
import pytest
from browsing import PICTURES, TYPESET, formulas, lost, pictures, printed, violations
from editions.languages import language_of, lessons_in

import survey.table

ROOT = Path(__file__).resolve().parent.parent
LESSONS = sorted((ROOT / "notebooks").glob("[0-9]_*.ipynb"))
PAGES = ["index", "reference", *(f"notebooks/{lesson.stem}" for lesson in LESSONS)]
PAGES += [path.relative_to(ROOT).with_suffix("").as_posix() for path in build_site.texts()]
PAGES += [name.removesuffix(".md") for name in build_site.TOOL]
OF_SPHINX = ["search", "genindex", "py-modindex", "zh_CN/search"]
BY_COMMAND = {"docs/MATRIX", "survey/RESULTS", "survey/COMPILED"}
CHINESE = pages_in_languages.pages_in("zh_CN")
PAGES += [f"zh_CN/{name}" for name in CHINESE]
EVERY_LESSON = lessons_in(ROOT / "notebooks")
every_lesson = pytest.mark.parametrize(
    "lesson", EVERY_LESSON, ids=lambda path: path.relative_to(ROOT / "notebooks").as_posix()
)
SIDEWAYS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
# A Chinese character says as much as two letters.
WITHOUT_WORDS = """[...document.images].filter(i => !i.matches(".toggler")
    && i.alt.length + (i.alt.match(/[\\u4e00-\\u9fff]/g) || []).length < 20).map(i => i.src)"""
ADDRESSES = """[...document.querySelectorAll("[href], [src]")].map(e => e.href || e.src)"""
# What scrolls and cannot have the focus.
UNREACHED = """[...document.querySelectorAll("pre, table")].filter(
    e => e.clientWidth && e.scrollWidth > e.clientWidth && e.tabIndex < 0).length"""
# Reports have lines of up to 88 columns.
WRAPPED = """[...document.querySelectorAll(".cell_output pre, .highlight-none pre")].filter(e => {
    if (Math.max(...e.innerText.split("\\n").map(line => line.length)) > 88) return false;
    e.style.whiteSpace = "pre";
    const wide = e.scrollWidth > e.clientWidth;
    e.style.whiteSpace = "";
    return wide;
}).map(e => e.innerText.slice(0, 80))"""
pytestmark = pytest.mark.slow


def build(folder, repository=""):
    build_site.main(folder / "source", folder / "site", repository)
    return folder / "site"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    return build(tmp_path_factory.mktemp("a reader"))


@pytest.fixture(scope="module")
def served(site):
    """The address of the site on this machine."""
    handler = functools.partial(Quiet, directory=site)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture
def opened(browser):
    """Open an address; whatever goes wrong, or goes elsewhere, is in `page.troubles`."""
    contexts = []

    def open_page(address, width=1280, scheme="light"):
        context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 800})
        contexts.append(context)
        page = context.new_page()
        home = address[: address.index("/", 8) + 1]
        page.troubles, page.answered = [], []
        page.on("requestfinished", lambda request: page.answered.append(request))
        page.on("console", lambda m: page.troubles.append(m.text) if m.type != "log" else None)
        page.on("pageerror", lambda error: page.troubles.append(str(error)))
        page.on("requestfailed", lambda request: page.troubles.append(request.url))
        page.on("response", lambda r: page.troubles.append(r.url) if r.status >= 400 else None)
        page.on(
            "request",
            lambda r: None if r.url.startswith((home, "data:")) else page.troubles.append(r.url),
        )
        page.goto(address, wait_until="networkidle")
        return page

    yield open_page
    for context in contexts:
        context.close()


def test_no_page_is_forgotten(site):
    built = {path.relative_to(site).with_suffix("").as_posix() for path in site.rglob("*.html")}
    assert {name for name in built if "_static" not in name} == {*PAGES, *OF_SPHINX}


# What is opened fades in: half of the way, a colour is not yet what it will be.
FADED_IN = "document.getAnimations().forEach(animation => animation.finish())"


@pytest.mark.parametrize("name", [*PAGES, *OF_SPHINX])
def test_page(name, served, opened):
    for scheme, width in (("light", 1280), ("dark", 360)):
        page = opened(f"{served}{name}.html", width, scheme)
        assert page.evaluate(SIDEWAYS) <= 0
        assert width < 1280 or page.evaluate(BEYOND) == []
        # The theme's script may come after what is opened is loaded, on a busy machine.
        page.wait_for_function(f"document.documentElement.dataset.theme === '{scheme}'")
        assert page.evaluate(WITHOUT_WORDS) == []
        images = page.evaluate("document.images.length")
        assert page.evaluate(PICTURES) == images
        page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        page.evaluate("dispatchEvent(new Event('resize'))")
        page.evaluate(FADED_IN)
        assert page.evaluate(UNREACHED) == 0
        assert (page.evaluate(UNSAID), page.evaluate(UNSHADED)) == (0, 0)
        more = ("region", "empty-table-header")
        assert violations(page, *more) == [], "all of a page is in a landmark"
        assert page.evaluate(SIDEWAYS) <= 0
        assert page.troubles == []
        for wider in (1024, 1280) if width == 1280 else ():
            page.set_viewport_size({"width": wider, "height": 800})
            assert page.evaluate(WRAPPED) == []


# Lines of the menu, and of the contents, that end beside the window.
BEYOND = """[...document.querySelectorAll("[class*=bd-sidebar] a")].filter(link => {
    const words = document.createRange();
    words.selectNodeContents(link);
    return words.getBoundingClientRect().right > innerWidth;
}).map(link => link.innerText)"""
# On a phone: pictures with letters below 11 px, and boxes that scroll and do not say so.
SHRUNK = """[...document.querySelectorAll(".cell_output img")].filter(
    i => i.width < 0.74 * i.naturalWidth).map(i => i.src)"""
BOXES = ".cell_output:has(> img), .stepper .picture > div, article table"
UNSAID = f"""[...document.querySelectorAll("{BOXES}")].filter(
    box => (box.scrollWidth > box.clientWidth)
        !== getComputedStyle(box, "::before").content.includes("→")).length"""


# Code that goes on beside its box has a shadow there, and no other.
UNSHADED = """[...document.querySelectorAll("article pre")].filter(code =>
    (code.scrollWidth > code.clientWidth)
        !== getComputedStyle(code).backgroundImage.includes("gradient")).length"""
# Formulas that are drawn much smaller than they are, so as to be whole.
TINY = """[...document.querySelectorAll("mjx-container > svg")].filter(formula => {
    const shown = formula.getBoundingClientRect().width;
    formula.style.maxWidth = "none";
    return shown < 0.75 * formula.getBoundingClientRect().width;
}).length"""


CUT = """[...document.querySelectorAll("mjx-container > svg")].filter(
    formula => formula.getBoundingClientRect().right > innerWidth).length"""


# Reports whose columns are broken into more lines than were printed.
SPLIT = """[...document.querySelectorAll(".cell_output pre, .highlight-none pre")].filter(e => {
    const lines = e.textContent.trimEnd().split("\\n");
    if (lines.some(line => line.length > 88)) return false;
    if (!lines.some(line => /\\S {2,}\\S/.test(line))) return false;
    const style = getComputedStyle(e), high = e.clientHeight - 2 * parseFloat(style.paddingTop);
    return high > (lines.length + 1.5) * parseFloat(style.lineHeight);
}).map(e => e.textContent.slice(0, 80))"""


@pytest.mark.parametrize("lesson", EVERY_LESSON[3::7], ids=["English", "Chinese"])
def test_on_a_phone_a_wide_picture_scrolls_and_says_so(lesson, served, opened):
    page = opened(served + address(lesson), width=390)
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    page.evaluate("dispatchEvent(new Event('resize'))")
    assert page.evaluate("document.querySelectorAll('.sideways').length") > 1
    assert (page.evaluate(SHRUNK), page.evaluate(UNSAID)) == ([], 0)
    assert page.evaluate(SPLIT) == []
    assert (page.evaluate(CUT), page.evaluate(TINY)) == (0, 0)
    assert page.evaluate(SIDEWAYS) <= 0


# Of steppers and sliders, the words that something else lies on, once they are in the window.
COVERED = """[...document.querySelectorAll(".stepper")].flatMap(stepper => {
    const walk = document.createTreeWalker(stepper, NodeFilter.SHOW_TEXT), covered = [];
    while (walk.nextNode()) {
        const range = document.createRange(), owner = walk.currentNode.parentElement;
        range.selectNodeContents(walk.currentNode);
        if (!walk.currentNode.data.trim() || !owner.checkVisibility({visibilityProperty: true}))
            continue;
        owner.scrollIntoView({block: "center", inline: "center", behavior: "instant"});
        const place = range.getBoundingClientRect();
        const x = place.left + place.width / 2, y = place.top + place.height / 2;
        const there = document.elementFromPoint(x, y), frame = owner.closest("svg") || owner;
        if (!frame.contains(there) && !there?.contains(owner)) covered.push(owner.textContent);
    }
    return covered;
})"""
NEXT = """[...document.querySelectorAll(".stepper [type=range]")].forEach(range => {
    range.value = Number(range.value) + 1;
    range.dispatchEvent(new Event("input"));
})"""
MOVING = [path for path in EVERY_LESSON if '"application/vnd.lessons.steps' in path.read_text()]


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize(
    "lesson", MOVING, ids=lambda path: path.relative_to(ROOT / "notebooks").as_posix()
)
def test_nothing_lies_on_a_word_of_a_stepper(lesson, width, served, opened):
    page = opened(served + address(lesson), width)
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert page.evaluate("document.querySelectorAll('.stepper').length")
    for _ in range(3):
        assert page.evaluate(COVERED) == []
        page.evaluate(NEXT)


def address(lesson):
    return f"{language_of(lesson)}/notebooks/{lesson.stem}.html".lstrip("/")


@every_lesson
def test_lesson_has_everything_of_the_notebook(lesson, served, opened):
    notebook = nbformat.read(lesson, as_version=4)
    page = opened(served + address(lesson))
    weight = sum(request.sizes()["responseBodySize"] for request in page.answered)
    assert 500_000 < weight < 2_000_000
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert page.evaluate(TYPESET) == {"shown": formulas(notebook), "wrong": 0, "left": []}
    drawn = "document.querySelectorAll('.cell_output img, .cell_output .stepper').length"
    assert page.evaluate(drawn) == pictures(notebook)
    shown = "".join(page.inner_text("article").split())
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert "".join(cell.source.split()) in shown
    links = page.evaluate(ADDRESSES)
    assert any(link.endswith(f"{lesson.stem}.ipynb") for link in links), "to download"
    assert len(page.query_selector_all(".prev-next-footer a")) == 2


@every_lesson
def test_no_output_of_a_prediction_is_seen_before_it_is_opened(lesson, served, opened):
    cells = nbformat.read(lesson, as_version=4).cells
    asked = sum("expected" in cell.metadata for cell in cells)
    page = opened(served + address(lesson))
    folds = page.query_selector_all(".prediction > .answer")
    assert len(folds) == asked
    assert asked > 5 or lesson.name.startswith("0_")
    for fold in folds:
        output, answer = fold.query_selector(".cell_output"), fold.query_selector("p:last-of-type")
        assert not output.is_visible() and not answer.is_visible()
        fold.query_selector("summary").click()
        assert output.is_visible() and answer.is_visible()


@every_lesson
def test_on_paper_nothing_folded_is_lost(lesson, served, opened):
    page = opened(served + address(lesson))
    assert lost(page, printed(page), 0 if lesson.name.startswith("0_") else 50) == []


def test_on_paper_no_frame_goes_on_around_nothing(served, opened):
    """To the end of a sheet, because a picture stands overleaf: each part has a bar of its own."""
    page = opened(f"{served}notebooks/{LESSONS[5].stem}.html")
    page.emulate_media(media="print")
    assert page.evaluate(BARS) == [[0], [8]]


BARS = """[".prediction", ".prediction > *"].map(parts => [...new Set(
    [...document.querySelectorAll(parts)].map(e => parseFloat(getComputedStyle(e).borderLeftWidth))
)])"""


@pytest.mark.parametrize("paper", ["A4", "Letter"])
@pytest.mark.parametrize("name", ["CONTRIBUTING", "docs/GLOSSARY", "docs/MATRIX", "docs/TEACHING"])
def test_on_paper_a_table_leaves_no_sheet_white(name, paper, served, opened):
    """It goes on overleaf, where a table that is kept whole would begin."""
    *sheets, _ = printed(opened(f"{served}{name}.html"), paper)
    assert min(map(len, sheets)) > 1000, "signs"


def test_on_paper_nothing_of_the_survey_is_lost(served, opened):
    page = opened(f"{served}survey/RESULTS.html")
    assert lost(page, printed(page)) == []


@pytest.mark.parametrize("paper", ["A4", "Letter"])
@pytest.mark.parametrize("language", ["", "zh_CN/"])
def test_the_cheat_sheet_is_one_sheet(language, paper, served, opened):
    (sheet,) = printed(opened(f"{served}{language}docs/CHEATSHEET.html"), paper)
    assert "mark_dirty" in sheet and "draw_backward" in sheet
    assert all(str(row) in sheet for row in range(10, 15)), "no word is broken, no number"


def test_the_icons_of_a_page_are_there_and_no_others(site, served, opened):
    for folder in (site, site / "zh_CN"):
        assert (folder / "_static" / "scripts" / "fontawesome.js").stat().st_size < 150_000
    page = opened(f"{served}notebooks/{LESSONS[0].stem}.html")
    page.wait_for_selector("svg[data-icon=magnifying-glass]", state="attached")
    assert page.evaluate("document.querySelectorAll('svg[data-icon]').length") > 5
    missing = "document.querySelectorAll('svg[data-icon] circle, i[class*=fa-]').length"
    assert page.evaluate(missing) == 0 and page.troubles == []


def test_front_page(served, opened):
    page = opened(f"{served}index.html")
    assert page.title().count("Double backward") == 1
    assert "twice" in page.inner_text("article") and "2.5431" in page.inner_text(".numbers")
    assert len(page.query_selector_all(".buttons a")) == 3
    assert len(page.query_selector_all("small")) == len(LESSONS)
    rows = survey.table.read()
    wrong = len(survey.table.read_as(rows, survey.table.WRONG))
    counted = len(survey.table.counted(rows))
    assert f"{wrong} of {counted} published Functions and operators" in page.inner_text("article")
    description = page.get_attribute("meta[name=description]", "content")
    assert "second derivative" in description
    visible = page.evaluate("""() => [...document.querySelectorAll(
        ".numbers .stepper, .buttons a")].map(
        e => e.getBoundingClientRect().bottom < innerHeight)""")
    assert visible == [True] * 4, "in ten seconds, without scrolling"
    tops = "[...document.querySelectorAll('.numbers button')].map(b => b.offsetTop)"
    assert len(set(page.evaluate(tops))) == 1, "two that belong together"


def test_the_line_on_a_lessons_card_is_in_the_lesson():
    for lesson in LESSONS:
        cells = nbformat.read(lesson, as_version=4).cells
        code = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
        assert build_site.LINES[lesson.stem] in code


def test_chinese_front_page(served, opened):
    page = opened(f"{served}zh_CN/index.html")
    assert "两次" in page.inner_text("article") and "2.5431" in page.inner_text(".numbers")
    assert len(page.query_selector_all("small")) == len(LESSONS)
    assert "六课" not in page.inner_text("body"), "a list of seven"
    assert "二阶导数" in page.get_attribute("meta[name=description]", "content")
    page.click(".buttons a")
    assert page.url == f"{served}zh_CN/notebooks/{LESSONS[1].stem}.html"


def test_links_of_chinese_pages_lead_to_chinese_pages_where_there_are_such():
    def lead(text, path="README.zh-CN.md"):
        return pages_in_languages.linked(text, path, "zh_CN")

    assert lead("[a](docs/GLOSSARY.zh-CN.md#b)") == "[a](docs/GLOSSARY.md#b)"
    assert lead("[a](notebooks/zh_CN/2_b.ipynb)") == "[a](notebooks/2_b.ipynb)"
    assert lead("[a](docs/SETUP.md#b)") == '<a href="../docs/SETUP.html#b" hreflang="en">a</a>'
    lesson = "notebooks/zh_CN/1_a.ipynb"
    assert lead("[a](2_b.ipynb)", lesson) == "[a](2_b.ipynb)"
    assert lead("[a](../../docs/GLOSSARY.zh-CN.md)", lesson) == "[a](../docs/GLOSSARY.md)"
    assert lead("[a](../../docs/ERRORS.md)", lesson) == (
        '<a href="../../docs/ERRORS.html" hreflang="en">a</a>'
    )
    assert lead("[a](https://x.org) [b](#c)", lesson) == "[a](https://x.org) [b](#c)"


def test_a_front_page_leads_to_english_where_a_language_has_no_page(monkeypatch):
    """As that of a language that has catalogues alone."""
    monkeypatch.setattr(pages_in_languages, "pages_in", lambda language: ["notebooks/1_a"])
    words = {"xx": {"lang": "xx"}, "zh_CN": {"lang": "zh-CN"}}
    monkeypatch.setattr(pages_in_languages, "words_of", words.get)
    text = '<a href="notebooks/1_a.html"><a href="docs/tool/start.html"><a href="RUN_TARGET">'
    led = pages_in_languages.led_to_english(text, "xx")
    assert led == text.replace("docs/", "../docs/")
    assert pages_in_languages.front_of("xx").name == "front.md"
    assert pages_in_languages.front_of("zh_CN").name == "front.zh-CN.md"


@pytest.mark.parametrize("width", [1024, 1280])
@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_no_line_is_cut(lesson, width, served, opened):
    """By a box that would have to be scrolled sideways: on a laptop's screen and on paper."""
    page = opened(f"{served}notebooks/{lesson.stem}.html", width)
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    cut = """[...document.querySelectorAll("pre")].filter(
        e => e.scrollWidth > e.clientWidth + 1).map(e => e.innerText.slice(0, 80))"""
    assert page.evaluate(cut) == []
    page.emulate_media(media="print")
    assert page.evaluate(cut) == []
    assert page.evaluate(BROKEN) == [], "a frame without its code, at the foot of a sheet"


# Frames around code that may be on two sheets where the code is on one.
BROKEN = """[...document.querySelectorAll(".cell_input, pre")].filter(e => {
    const style = getComputedStyle(e);
    return parseFloat(style.borderLeftWidth) && style.breakInside !== "avoid";
}).map(e => e.innerText.slice(0, 80))"""


def test_every_link_inside_leads_somewhere(site):
    home = site.as_uri() + "/"
    pages = {name: Addresses(site / f"{name}.html") for name in PAGES}
    names = {f"{home}{name}.html": page.names for name, page in pages.items()}
    found = {link: name for name, page in pages.items() for link in page.links}
    assert len(found) > 100
    for link, name in found.items():
        address, part = urldefrag(link)
        if not address.startswith(home):
            assert address.startswith(("https://", "javascript:", "data:")), (name, link)
        else:
            path = unquote(address.removeprefix(home)).split("?")[0] or "index.html"
            assert (site / path).exists(), (name, link)
            assert not part or unquote(part) in names.get(address, {unquote(part)}), (name, link)


class Addresses(HTMLParser):
    """Where a page's links, pictures and scripts lead, and what of it can be led to."""

    def __init__(self, path):
        super().__init__()
        self.path, self.links, self.names = path, [], set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("href", "src") and value is not None:
                self.links.append(urljoin(self.path.as_uri(), value))
            elif name == "id":
                self.names.add(value)


@pytest.mark.parametrize("place", ["served", "from disk"])
def test_search_finds_a_function(place, site, served, opened):
    home = served if place == "served" else site.as_uri() + "/"
    page = opened(f"{home}search.html?q=SinhBad")
    page.wait_for_selector("#search-results li a")
    page.wait_for_function("document.querySelectorAll('#search-results li').length > 2")
    assert "What not to do" in page.inner_text("#search-results")


@pytest.mark.parametrize("name", PAGES)
def test_a_page_says_its_language_and_leads_to_its_twin(name, site):
    """There and back, if there is one; a page that is there in one language offers none."""
    chinese = name.startswith("zh_CN/")
    assert said(site / f"{name}.html") == ("zh-CN" if chinese else "en")
    if name.removeprefix("zh_CN/") not in CHINESE:
        assert switches(site / f"{name}.html") == []
        text = (site / f"{name}.html").read_text(encoding="utf-8")
        assert text.count("English only · ") == 1, "one line says so"
        return
    ((twin, shown),) = switches(site / f"{name}.html")
    assert shown == ("English" if chinese else "中文")
    assert said(twin) == ("en" if chinese else "zh-CN")
    assert [page for page, _ in switches(twin)] == [site / f"{name}.html"]


def said(path):
    return re.search(r'<html lang="([\w-]+)"', path.read_text(encoding="utf-8"))[1]


def switches(path):
    """Each: the file that a switch leads to, and what is written on it."""
    text = path.read_text(encoding="utf-8")
    found = re.findall(r'class="language-switch" href="([^"]+)"[^>]*>([^<]+)<', text)
    return [((path.parent / link).resolve(), shown) for link, shown in found]


def test_the_switch_leads_to_the_same_lesson(served, opened):
    page = opened(f"{served}notebooks/{LESSONS[2].stem}.html", width=390)
    page.click(".language-switch")
    page.wait_for_url(f"{served}zh_CN/notebooks/{LESSONS[2].stem}.html")
    page.click(".language-switch")
    page.wait_for_url(f"{served}notebooks/{LESSONS[2].stem}.html")


def test_no_english_sentence_is_left_in_the_frame_of_a_chinese_page(served, opened):
    page = opened(f"{served}zh_CN/{CHINESE[-1]}.html")
    for part in (".bd-sidebar-primary", ".bd-sidebar-secondary", ".bd-footer-content, footer"):
        for line in page.inner_text(part).splitlines():
            assert not re.fullmatch(r"[A-Z][a-z]+( [a-z]+)+", line.strip()), line
    fields = page.query_selector_all("[placeholder]")
    assert {field.get_attribute("placeholder") for field in fields} == {"搜索"}


@pytest.mark.parametrize("place", ["served", "from disk"])
@pytest.mark.parametrize(
    "typed, title",
    [
        ("双重反向传播", "1 · 保存输入"),  # in the running text, and no word of any dictionary
        ("垃圾回收器", "2 · 保存输出"),
        ("道森函数", "5 · autograd 跟踪不到的 backward"),
        ("SinhBad", "4 · 不要这样做"),
    ],
)
def test_search_finds_chinese_words(typed, title, place, site, served, opened):
    home = served if place == "served" else site.as_uri() + "/"
    page = opened(f"{home}zh_CN/index.html")
    page.keyboard.press("Control+k")
    page.keyboard.type(typed)
    page.keyboard.press("Enter")
    page.wait_for_selector("#search-results li a")
    page.wait_for_function("/[1-9]/.test(document.querySelector('.search-summary').innerText)")
    found = [link.inner_text() for link in page.query_selector_all("#search-results li > a")]
    assert title in found and len(found) < len(CHINESE)
    page.goto(f"{home}zh_CN/search.html?q=闻所未闻")
    page.wait_for_function("document.querySelector('.search-summary').innerText")
    assert page.query_selector("#search-results li") is None


def test_from_disk_without_a_network(site, opened):
    page = opened((site / "notebooks" / f"{LESSONS[1].stem}.html").as_uri())
    assert page.evaluate(TYPESET)["shown"] > 0
    page.click(".next-page, .right-next")
    assert LESSONS[2].stem in page.url
    assert page.troubles == []


# Whether it is seen where the focus is.
RINGED = """(({outlineStyle, boxShadow}) => outlineStyle !== "none" || boxShadow !== "none")(
    getComputedStyle(document.activeElement))"""


def test_keyboard_alone(served, opened):
    """From the top: to the text without the menu, to a fold and open it; copy, search by keys."""
    page = opened(f"{served}notebooks/{LESSONS[1].stem}.html")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.innerText").strip() == "Skip to main content"
    page.keyboard.press("Enter")
    for _ in range(80):
        page.keyboard.press("Tab")
        page.evaluate(FADED_IN)
        assert page.evaluate(RINGED), page.evaluate("document.activeElement.outerHTML")
        if page.evaluate("document.activeElement.tagName") == "SUMMARY":
            break
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.parentElement.open")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
    page.locator(".copybtn").first.focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.matches('.copybtn')"), "the next Tab goes on"
    page.keyboard.press("Control+k")
    page.keyboard.type("SinhBad")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search.html?q=SinhBad*")


def test_light_and_dark_by_choice(served, opened):
    page = opened(f"{served}index.html")
    seen = []
    for _ in range(3):
        page.click("button.theme-switch-button >> visible=true")
        if page.query_selector(".dropdown-menu.show button") is not None:
            page.click(f".dropdown-menu.show button >> nth={len(seen)}")
        seen.append(page.evaluate("document.documentElement.dataset.theme"))
    assert {"light", "dark"} <= set(seen)


def test_on_paper_the_folds_are_open_and_nothing_is_dark(served, opened):
    page = opened(f"{served}notebooks/{LESSONS[1].stem}.html", scheme="dark")
    page.wait_for_function("document.documentElement.dataset.theme === 'dark'")
    assert page.evaluate("document.querySelectorAll('details:not([open])').length") > 0
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("document.querySelectorAll('details:not([open])').length") == 0
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("document.querySelectorAll('details[open]').length") == 0
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_with_the_addresses(tmp_path):
    home = "https://ada.github.io/course"
    build_site.main(tmp_path / "source", tmp_path / "site", "ada/course", home)
    site = tmp_path / "site"
    texts = {name: (site / f"{name}.html").read_text(encoding="utf-8") for name in PAGES}
    for lesson in EVERY_LESSON:
        text = texts[address(lesson).removesuffix(".html")]
        copy = lesson.relative_to(ROOT / "notebooks").as_posix()
        assert (
            f"colab.research.google.com/github/ada/course/blob/main/notebooks/colab/{copy}" in text
        )
    for name, text in texts.items():
        edited = re.findall(r'"https://github.com/ada/course/edit/main/([^"]+)"', text)
        if name in BY_COMMAND:
            assert edited == []
        else:
            assert edited and all((ROOT / file).exists() for file in edited)
            chinese = name.startswith("zh_CN/")
            assert Path(edited[0]).name.split(".")[0] in (Path(name).stem, "front")
            assert ("zh" in edited[0]) == chinese
        pictures = re.findall(r'content="([^"]+)"[^>]* property="og:image"', text)
        assert pictures == [f"{home}/pictures/front.png"]
        assert f'<link rel="canonical" href="{home}/{name}.html"' in text
        title = re.search(r"<title>(.*)</title>", text)[1]
        assert title.count("双重反向传播" if name.startswith("zh_CN/") else "Double backward") == 1
    assert (site / "pictures" / "front.png").exists()


def test_without_addresses_nothing_needs_one(site):
    for name in PAGES:
        text = (site / f"{name}.html").read_text(encoding="utf-8")
        assert not re.search(r"og:image|canonical|/edit/main|colab\.research", text)
