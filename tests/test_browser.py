"""The lessons in a real browser, in the JupyterLab that `make lab` opens."""

import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import nbformat
import pytest
from homes import contents, make_home

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parent.parent
LESSONS = sorted((ROOT / "notebooks").glob("[0-9]_*.ipynb"))
OPEN_LAB = """
import sys, pathlib, open_lab
open_lab.main(pathlib.Path(sys.argv[1]), ["--LabApp.expose_app_in_browser=True"])
"""
# Milliseconds. A machine that does other things too may take its time; a hang must end some day.
PATIENCE = 300_000
LOADED = """name => {
    const current = window.jupyterapp?.shell.currentWidget;
    const session = current?.context?.sessionContext;
    return current?.title.label === name && current.context.isReady && session.isReady
        && session.session?.kernel?.status === "idle"
}"""
CELLS = """() => [...window.jupyterapp.shell.currentWidget.content.model.cells].map(cell => ({
    type: cell.type,
    trusted: cell.trusted,
    source: cell.sharedModel.source,
    count: cell.type === "code" ? cell.executionCount : null,
    tagged: (cell.getMetadata("tags") || []).includes("raises-exception"),
    raised: cell.type === "code" && cell.outputs.toJSON().some(o => o.output_type === "error"),
    pictures: cell.type !== "code" ? 0 :
        cell.outputs.toJSON().filter(o => o.data && o.data["image/svg+xml"]).length,
}))"""
RUN_ALL = """() => {
    const { commands } = window.jupyterapp;
    return commands.execute("notebook:clear-all-cell-outputs")
        .then(() => { commands.execute("notebook:run-all-cells"); });
}"""
# The command above returns at the first error, though a tagged one does not stop the run.
FINISHED = f"""() => {{
    const code = ({CELLS})().filter(cell => cell.type === "code");
    return code.every(cell => cell.count) || code.some(cell => cell.raised && !cell.tagged);
}}"""
# Scrolled to first: JupyterLab renders only what is near the window.
SHOWN = """async ([index, expected, patience]) => {
    const end = Date.now() + patience;
    const content = window.jupyterapp.shell.currentWidget.content;
    await content.scrollToItem(index, "start");
    const drawn = (picture) =>
        picture.naturalWidth !== 0 && picture.getBoundingClientRect().width > 0;
    const shown = () => [...content.widgets[index].node.querySelectorAll(".jp-OutputArea-output")]
        .filter(output => [...output.querySelectorAll(".jp-RenderedSVG img, svg[role=img]")]
            .some(drawn)).length;
    while (shown() < expected && Date.now() < end) {
        await new Promise(done => setTimeout(done, 100));
    }
    return shown()
}"""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """The home folder of a reader who uses Jupyter already."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def address(tmp_path_factory, home):
    """The address that `make lab` prints, of a JupyterLab that is up."""
    folder = tmp_path_factory.mktemp("a reader") / "my_lessons"
    readers = {"JUPYTER_CONFIG_DIR": str(home / ".jupyter"), "PYTHONPATH": str(ROOT / "scripts")}
    environment = os.environ | make_home(home) | readers
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER", "JUPYTER_DATA_DIR", "IPYTHONDIR"):
        environment.pop(name, None)
    server = subprocess.Popen(
        [sys.executable, "-c", OPEN_LAB, str(folder)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        found = next(filter(None, (re.search(r"http://\S+", line) for line in server.stdout)))
        wait_until_up(found.group(), server)
        yield found.group()
    finally:
        server.terminate()  # ends the kernels too
        try:
            server.wait(PATIENCE / 1000)
        finally:
            server.kill()


def wait_until_up(address, server):
    end = time.monotonic() + PATIENCE / 1000
    while server.poll() is None and time.monotonic() < end:
        try:
            return urllib.request.urlopen(address, timeout=PATIENCE / 1000).read()
        except (ConnectionError, urllib.error.URLError):
            time.sleep(0.1)
    raise TimeoutError("JupyterLab did not start")


@pytest.fixture(scope="module")
def window(browser):
    """One for all lessons: JupyterLab is then loaded from its cache."""
    return browser.new_context()


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_lesson_runs_in_jupyterlab(address, window, lesson):
    page = window.new_page()
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("websocket", lambda websocket: asked.append(websocket.url))
    page.goto(address.replace(LESSONS[1].name, lesson.name))
    page.wait_for_function(LOADED, arg=lesson.name, timeout=PATIENCE)
    opened = [cell for cell in page.evaluate(CELLS) if cell["type"] == "code"]
    assert all(cell["trusted"] and not cell["count"] and not cell["pictures"] for cell in opened)

    page.evaluate(RUN_ALL)
    page.wait_for_function(FINISHED, timeout=PATIENCE)
    cells = page.evaluate(CELLS)
    code = [cell for cell in cells if cell["type"] == "code"]
    assert [cell["count"] for cell in code] == list(range(1, len(code) + 1))
    assert [c["source"] for c in code if c["raised"] != c["tagged"]] == []
    check_pictures(page, cells)
    for number in [n for n, cell in enumerate(cells) if cell["pictures"]][:1]:
        check_names(page, number)
    assert [cell["pictures"] for cell in cells] == stored_pictures(lesson)
    for number, cell in enumerate(cells):
        if re.search(r"^(step_through|sliders)\(|numbers=True", cell["source"], re.MULTILINE):
            check_keys(page, number)

    assert page.locator(".Toastify__toast, .jp-Dialog").count() == 0, "something popped up"
    assert [url for url in asked if not is_local(url)] == []
    page.evaluate("window.jupyterapp.shell.currentWidget.context.sessionContext.shutdown()")
    page.close()


def test_home_of_the_reader_is_as_it_was(address, home, tmp_path):
    """Whatever the tests above did in JupyterLab: settings, workspaces, histories lie elsewhere."""
    make_home(tmp_path)
    assert contents(home) == contents(tmp_path)


def stored_pictures(lesson):
    """How many SVGs each cell of the lesson as it is published has."""
    cells = nbformat.read(lesson, as_version=4).cells
    return [
        sum("image/svg+xml" in output.get("data", {}) for output in cell.get("outputs", []))
        for cell in cells
    ]


def check_pictures(page, cells):
    """Every computed SVG is really drawn."""
    expected = {n: cell["pictures"] for n, cell in enumerate(cells) if cell["pictures"]}
    shown = {n: page.evaluate(SHOWN, [n, many, PATIENCE]) for n, many in expected.items()}
    assert shown == expected


def check_names(page, index):
    """The graph below a cell has a name and a description for a screen reader."""
    page.evaluate(SHOWN, [index, 1, PATIENCE])  # JupyterLab renders what is near the window
    session, told = page.context.new_cdp_session(page), []
    session.send("Accessibility.enable")
    end = time.time() + 30  # the first tree of a browser may come before the page is in it
    while not told and time.time() < end:
        told = [
            (node["name"]["value"], node.get("description", {}).get("value", ""))
            for node in session.send("Accessibility.getFullAXTree")["nodes"]
            if node.get("role", {}).get("value") in ("img", "image")
            and node["name"]["value"].startswith("Graph of ")
        ]
        page.wait_for_timeout(200)
    assert told
    for name, description in told:
        assert description.startswith(name.partition(":")[0]) and "made by" in description


def test_a_stored_picture_that_nobody_trusts_yet_is_told_in_words(address, window):
    """JupyterLab shows no SVG then, but the text that is stored beside it."""
    notebook = nbformat.read(LESSONS[1], as_version=4)
    page = window.new_page()
    page.goto(address)
    page.wait_for_function(LOADED, arg=LESSONS[1].name, timeout=PATIENCE)
    page.evaluate(
        """content => jupyterapp.serviceManager.contents.save(
            "stored.ipynb", { type: "notebook", format: "json", content })""",
        notebook,
    )
    page.goto(address.replace(LESSONS[1].name, "stored.ipynb"))
    page.wait_for_function(LOADED, arg="stored.ipynb", timeout=PATIENCE)
    (number,) = [n for n, many in enumerate(stored_pictures(LESSONS[1])) if many][:1]
    page.evaluate(SHOWN, [number, 1, 2000])  # scrolls there
    assert not page.evaluate(CELLS)[number]["trusted"]
    told = notebook.cells[number].outputs[0].data["text/plain"]
    shown = "n => jupyterapp.shell.currentWidget.content.widgets[n].node.innerText"
    assert told in page.evaluate(shown, number)
    page.close()


def check_keys(page, index):
    """Arrow keys on a slider move it, and not the notebook's selection."""
    page.evaluate(SHOWN, [index, 1, PATIENCE])
    cell = "n => jupyterapp.shell.currentWidget.content.widgets[n].node"
    slider = page.evaluate_handle(cell, index).query_selector(".stepper input[type=range]")
    slider.focus()
    before = float(slider.input_value())
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert slider.evaluate("slider => slider === document.activeElement")
    assert float(slider.input_value()) > before


def is_local(url):
    return re.match(r"(https?|wss?)://127\.0\.0\.1[:/]|data:|blob:|about:", url)


@pytest.mark.parametrize("path", ["api/contents", "api/kernels", "files/1_saving_inputs.ipynb"])
@pytest.mark.parametrize("token", ["", "?token=wrong"], ids=["no token", "a wrong token"])
def test_without_the_token_nothing_comes(address, path, token):
    home = address.split("/lab/")[0]
    try:
        answer = urllib.request.urlopen(f"{home}/{path}{token}", timeout=PATIENCE / 1000)
    except urllib.error.HTTPError as refusal:
        assert refusal.code == 403
    else:  # sent on to the page that asks for the token
        assert answer.url.startswith(f"{home}/login")
        assert b"nbformat" not in answer.read()


def test_nobody_else_is_listened_to(address):
    """Another address of this machine finds nobody: JupyterLab is bound to 127.0.0.1 alone."""
    port = int(re.search(r":(\d+)/", address).group(1))
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.2", port)) != 0
