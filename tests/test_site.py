"""The website: complete, its links lead somewhere, sound in a browser that is offline."""

import functools
import http.server
import re
import threading
from pathlib import Path
from urllib.parse import unquote, urldefrag

import build_site
import nbformat
import pytest
from browsing import PICTURES, TYPESET, formulas, pictures, violations

ROOT = Path(__file__).resolve().parent.parent
LESSONS = sorted((ROOT / "notebooks").glob("[0-9]_*.ipynb"))
PAGES = ["index", "reference", *(f"notebooks/{lesson.stem}" for lesson in LESSONS)]
PAGES += [path.relative_to(ROOT).with_suffix("").as_posix() for path in build_site.texts()]
PAGES += [name.removesuffix(".md") for name in build_site.TOOL]
BY_COMMAND = {"MATRIX", "survey/RESULTS", "survey/COMPILED"}
SIDEWAYS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
WITHOUT_WORDS = "[...document.images].filter(i => i.alt.length < 20).map(i => i.src)"
ADDRESSES = """[...document.querySelectorAll("[href], [src]")].map(e => e.href || e.src)"""
NAMES = """[...document.querySelectorAll("[id]")].map(e => e.id)"""
# What scrolls and cannot have the focus.
UNREACHED = """[...document.querySelectorAll("pre, table")].filter(
    e => e.clientWidth && e.scrollWidth > e.clientWidth && e.tabIndex < 0).length"""
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
        page.troubles = []
        page.on("console", lambda m: page.troubles.append(m.text) if m.type != "log" else None)
        page.on("pageerror", lambda error: page.troubles.append(str(error)))
        page.on("requestfailed", lambda request: page.troubles.append(request.url))
        page.on("response", lambda r: page.troubles.append(r.url) if r.status >= 400 else None)
        page.on(
            "request",
            lambda r: None if r.url.startswith((home, "data:")) else page.troubles.append(r.url),
        )
        page.goto(address, wait_until="networkidle")
        page.evaluate("window.MathJax?.startup?.promise.then(() => true)")
        return page

    yield open_page
    for context in contexts:
        context.close()


def test_no_page_is_forgotten(site):
    built = {path.relative_to(site).with_suffix("").as_posix() for path in site.rglob("*.html")}
    of_sphinx = {"search", "genindex", "py-modindex"}
    assert {name for name in built if not name.startswith("_")} - of_sphinx == set(PAGES)


@pytest.mark.parametrize("name", PAGES)
def test_page(name, served, opened):
    for scheme, width in (("light", 1280), ("dark", 360)):
        page = opened(f"{served}{name}.html", width, scheme)
        assert page.evaluate(SIDEWAYS) <= 0
        assert page.evaluate("document.documentElement.dataset.theme") == scheme
        assert page.evaluate(WITHOUT_WORDS) == []
        images = page.evaluate("document.images.length")
        assert page.evaluate(PICTURES) == images
        page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        page.evaluate("dispatchEvent(new Event('resize'))")
        assert page.evaluate(UNREACHED) == 0
        assert violations(page) == []
        assert page.evaluate(SIDEWAYS) <= 0
        assert page.troubles == []


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_lesson_has_everything_of_the_notebook(lesson, served, opened):
    notebook = nbformat.read(lesson, as_version=4)
    page = opened(f"{served}notebooks/{lesson.stem}.html")
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


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_no_output_of_a_prediction_is_seen_before_it_is_opened(lesson, served, opened):
    cells = nbformat.read(lesson, as_version=4).cells
    asked = sum("expected" in cell.metadata for cell in cells)
    page = opened(f"{served}notebooks/{lesson.stem}.html")
    folds = page.query_selector_all(".cell.tag_hide-output details")
    assert len(folds) == asked > 5
    for fold in folds:
        output = fold.query_selector(".cell_output")
        assert not output.is_visible()
        fold.query_selector("summary").click()
        assert output.is_visible()


def test_front_page(served, opened):
    page = opened(f"{served}index.html")
    assert page.title().count("Double backward") == 1
    assert "twice" in page.inner_text("article") and "2.5431" in page.inner_text(".numbers")
    assert len(page.query_selector_all(".buttons a")) == 3
    assert len(page.query_selector_all(".lesson")) == len(LESSONS)
    description = page.get_attribute("meta[name=description]", "content")
    assert "second derivative" in description
    visible = page.evaluate("""() => [...document.querySelectorAll(".numbers img, .buttons a")].map(
        e => e.getBoundingClientRect().bottom < innerHeight)""")
    assert visible == [True] * 5, "in ten seconds, without scrolling"


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_nothing_printed_is_cut(lesson, served, opened):
    """By a box that would have to be scrolled sideways: on the screen and on paper."""
    page = opened(f"{served}notebooks/{lesson.stem}.html", width=1440)
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    cut = """[...document.querySelectorAll(".cell_output pre")].filter(
        e => e.scrollWidth > e.clientWidth + 1).map(e => e.innerText.slice(0, 80))"""
    assert page.evaluate(cut) == []
    page.emulate_media(media="print")
    assert page.evaluate(cut.replace(".cell_output pre", "pre")) == []


def test_every_link_inside_leads_somewhere(site, served, opened):
    found, names = {}, {}
    for name in PAGES:
        page = opened(f"{served}{name}.html")
        names[f"{served}{name}.html"] = set(page.evaluate(NAMES))
        for link in page.evaluate(ADDRESSES):
            found[link] = name
    assert len(found) > 100
    for link, name in found.items():
        address, part = urldefrag(link)
        if not address.startswith(served):
            assert address.startswith(("https://", "javascript:", "data:")), (name, link)
        else:
            path = unquote(address.removeprefix(served)).split("?")[0] or "index.html"
            assert (site / path).exists(), (name, link)
            assert not part or unquote(part) in names.get(address, {unquote(part)}), (name, link)


@pytest.mark.parametrize("place", ["served", "from disk"])
def test_search_finds_a_function(place, site, served, opened):
    home = served if place == "served" else site.as_uri() + "/"
    page = opened(f"{home}search.html?q=SinhBad")
    page.wait_for_selector("#search-results li a")
    page.wait_for_function("document.querySelectorAll('#search-results li').length > 2")
    assert "What not to do" in page.inner_text("#search-results")


def test_from_disk_without_a_network(site, opened):
    page = opened((site / "notebooks" / f"{LESSONS[0].stem}.html").as_uri())
    assert page.evaluate(TYPESET)["shown"] > 0
    page.click(".next-page, .right-next")
    assert LESSONS[1].stem in page.url
    assert page.troubles == []


def test_keyboard_alone(served, opened):
    """From the top: to the text without the menu, to a fold and open it; search by its keys."""
    page = opened(f"{served}notebooks/{LESSONS[0].stem}.html")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.innerText").strip() == "Skip to main content"
    page.keyboard.press("Enter")
    for _ in range(80):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.tagName") == "SUMMARY":
            break
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.parentElement.open")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
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


def test_on_paper_the_folds_are_open(served, opened):
    page = opened(f"{served}notebooks/{LESSONS[0].stem}.html")
    assert page.evaluate("document.querySelectorAll('details:not([open])').length") > 0
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("document.querySelectorAll('details:not([open])').length") == 0


def test_with_the_addresses(tmp_path):
    home = "https://ada.github.io/course"
    build_site.main(tmp_path / "source", tmp_path / "site", "ada/course", home)
    site = tmp_path / "site"
    texts = {name: (site / f"{name}.html").read_text(encoding="utf-8") for name in PAGES}
    for lesson in LESSONS:
        text = texts[f"notebooks/{lesson.stem}"]
        assert f"colab.research.google.com/github/ada/course/blob/main/colab/{lesson.name}" in text
    for name, text in texts.items():
        edited = re.findall(r'"https://github.com/ada/course/edit/main/([^"]+)"', text)
        if name in BY_COMMAND:
            assert edited == []
        else:
            assert edited and all((ROOT / file).exists() for file in edited)
            assert Path(edited[0]).stem in (Path(name).stem, "front")
        pictures = re.findall(r'content="([^"]+)"[^>]* property="og:image"', text)
        assert pictures == [f"{home}/pictures/front.png"]
        assert f'<link rel="canonical" href="{home}/{name}.html"' in text
        assert re.search(r"<title>(.*)</title>", text)[1].count("Double backward") == 1
    assert (site / "pictures" / "front.png").exists()


def test_without_addresses_nothing_needs_one(site):
    for name in PAGES:
        text = (site / f"{name}.html").read_text(encoding="utf-8")
        assert not re.search(r"og:image|canonical|/edit/main|colab\.research", text)
