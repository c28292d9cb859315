"""Pictures to step through: what they say, what is stored of them, and how they work in a page."""

import copy
import json
import re
from decimal import Decimal
from html import unescape
from xml.etree import ElementTree

import pytest
import torch
from made_functions import x as leaf
from nbformat.v4 import new_output
from same_outputs import differences
from torch.autograd import grad

from double_backward import draw, draw_backward
from lessons_src.cut_paths import KEPT_BY_SINH, PATHS, POINTS, cut_a_path, result
from lessons_src.derivatives import second
from lessons_src.saving_intermediates import Sinh, sinh
from lessons_src.stepper import STEPS, page, sliders, step_through
from lessons_src.untracked_backward import CubeBackward
from lessons_src.what_not_to_do import SinhBad


def two_passes():
    x = leaf(0.0, 1.0)
    out, expx, expnegx = Sinh.apply(x)
    first = draw_backward(out=out, x=x, expx=expx, expnegx=expnegx)
    (grad_x,) = grad(out.sum(), x, create_graph=True)
    second = draw_backward(grad_x=grad_x, x=x, out=out, expx=expx, expnegx=expnegx)
    return {"first_backward": first, "second_backward": second}


def cube(g=5.0, x=2.0, h=7.0):
    g, x = leaf(g).squeeze(), leaf(x).squeeze()
    grad_x = CubeBackward.apply(g, x)
    return draw_backward(grad_x=grad_x, g=g, x=x, grad_outputs=torch.tensor(h).double())


PRODUCTS = {"g": ["h", 3, "x", "x"], "x": ["h", 6, "x", "g"], "grad_x": ["h"]}


def test_the_steps_are_the_operations_in_the_order_in_which_they_ran():
    lines = str(step_through(**two_passes())).splitlines()
    assert lines[0] == "first backward"
    assert (
        "  2. Sinh gets 1 for out, 0 for expx and 0 for expnegx, and sends 1, 1.543 to x." in lines
    )
    second = lines[lines.index("second backward") :]
    assert second[2] == "grad_x leads back to x (a picture checks paths, not numbers)"
    assert second[3] == "  1. The pass starts at grad_x with 1."
    assert second[4].startswith("  2. SubBackward0 sends 1 to AddBackward0 #2 and -1 to")
    assert second[-1] == (
        "  9. Sinh gets 0 for out, 0.5 for expx and 0.5 for expnegx, and sends 0, 1.175 to x."
    )


def test_every_part_that_a_step_names_is_in_the_picture():
    shown = step_through(**two_passes())
    parts = set(map(unescape, re.findall(r'data-part="([^"]*)"', page(shown.svg, shown.data))))
    named = {part for steps in shown.data["steps"] for _, names in steps for part in names}
    assert named and named <= parts


CUTS = cut_a_path().data["cuts"]
EACH_PICTURE = [(formula, point) for formula in PATHS for point in CUTS["points"]]


@pytest.mark.parametrize("formula, point", EACH_PICTURE)
def test_each_sum_of_shares_is_right_as_it_is_printed(formula, point):
    told = CUTS["pictures"][formula][point]
    assert len(told["states"]) == 2 ** len(PATHS[formula])
    for cut, state in told["states"].items():
        left = [Decimal(s) for path, s in told["shares"].items() if path not in cut.split()]
        words = re.match(r"(-?[\d.]+)(?: = ([\d. +-]+?))?[.,] ", state["words"])
        if not left:
            assert state["number"] == "RuntimeError" and not words
            continue
        assert Decimal(state["number"]) == sum(left) == Decimal(words[1])
        parts = re.findall(r"-?[\d.]+", (words[2] or words[1]).replace("- ", "-"))
        assert [Decimal(part) for part in parts] == left


@pytest.mark.parametrize("formula", PATHS)
@pytest.mark.parametrize("function, cut", [(sinh, ()), (SinhBad.apply, KEPT_BY_SINH)])
def test_what_is_cut_gives_what_the_lessons_functions_give(formula, function, cut):
    formulas = {
        "F(x)": function,
        "F(x)²": lambda x: function(x) ** 2,
        "F(x²)": lambda x: function(x**2),
        "F(x) + x²": lambda x: function(x) + x**2,
    }
    for at in POINTS:
        number = result(formula, at, cut)
        try:
            truth = second(formulas[formula], leaf(at)).item()
        except RuntimeError:
            assert number is None and formula == "F(x)" and cut
        else:
            assert number == pytest.approx(truth, rel=1e-12, abs=1e-12)


def test_a_figure_says_what_is_wrong_what_raises_and_what_is_right_though_cut():
    both = " ".join(KEPT_BY_SINH)
    said = lambda formula, x: CUTS["pictures"][formula][x]["states"][both]["words"]  # noqa: E731
    assert said("F(x)²", "0.5") == "2.543, and no error. Right is 3.086."
    assert said("F(x) + x²", "0.5") == "2.0000, and no error. Right is 2.5211."
    assert said("F(x)", "0.5").startswith("RuntimeError: no path is left")
    assert "Right here, though cut" in said("F(x)²", "0")
    shown = cut_a_path()
    assert "F(x)² at x = 0.5: y 2.543, expx 0.859, expnegx -0.316" in str(shown)
    root = ElementTree.fromstring(shown.svg)
    assert root[0].text == "F(x)² at x = 0.5, cut: expx, expnegx"
    texts = [element.text for element in root.iter() if element.tag.endswith("}text")]
    assert {"right: 3.086", "autograd adds up: 2.543", "lacks 0.859"} <= set(texts)


def test_a_bar_ends_where_its_shares_add_up_to():
    for formula, point in EACH_PICTURE:
        told = CUTS["pictures"][formula][point]
        ends = {
            Decimal(state["number"]): state["end"]
            for state in told["states"].values()
            if state["number"] != "RuntimeError"
        }
        smallest, largest = min(ends), max(ends)
        for number, end in ends.items():
            part = (number - smallest) / ((largest - smallest) or 1)
            assert end == pytest.approx(
                ends[smallest] + float(part) * (ends[largest] - ends[smallest]), abs=1.5
            )
            assert 15 <= end <= 315


def inner_pictures(svg):
    root = ElementTree.fromstring(svg)
    inner = [child for child in root if child.tag.endswith("svg")]
    sizes = [[float(svg.get(name)) for name in ("x", "y", "width", "height")] for svg in inner]
    return root, sizes


def test_the_picture_alone_holds_all_of_them():
    shown = step_through(**two_passes())
    root, (first, second) = inner_pictures(shown.svg)
    assert root[0].text == "first backward, second backward"
    assert first[1] + first[3] < second[1]
    assert second[1] + second[3] <= float(root.get("height"))
    assert not re.search(r' id="', shown.svg)


@pytest.mark.parametrize("values", [(5.0, 2.0, 7.0), (-1.5, 3.0, 0.5)])
def test_the_products_are_what_autograd_brought_back(values):
    g, x, h = values
    words = str(sliders(cube(*values), PRODUCTS, g=g, x=x, h=h))
    assert f"comes back to g: h · 3 · x · x = {h * 3 * x * x:.4g}" in words
    assert f"comes back to x: h · 6 · x · g = {h * 6 * x * g:.4g}" in words


def test_a_product_that_autograd_does_not_confirm_is_refused():
    with pytest.raises(ValueError, match="56 is not what came back to g"):
        sliders(cube(), {"g": ["h", 2, "x", "x"]}, g=5.0, x=2.0, h=7.0)
    with pytest.raises(ValueError, match="the same at first"):
        sliders(cube(1.0, 1.0, 0.0), PRODUCTS, g=1.0, x=1.0, h=0.0)


def test_a_drawing_without_a_pass_has_no_steps():
    x = leaf(1.0)
    with pytest.raises(ValueError, match="give a drawing by draw_backward"):
        step_through(first=draw(out=x**2, x=x))


def test_what_is_stored_is_compared_by_its_data_and_not_by_its_script():
    bundle = step_through(**two_passes())._repr_mimebundle_()
    assert bundle["text/html"] == page(bundle["image/svg+xml"], bundle[STEPS])
    assert bundle[STEPS] == json.loads(json.dumps(bundle[STEPS]))
    stored = [new_output("execute_result", copy.deepcopy(bundle), execution_count=1)]
    stored[0]["data"]["text/html"] = "another script"
    fresh = [new_output("execute_result", copy.deepcopy(bundle), execution_count=1)]
    # A notebook that is written sorts the keys.
    stored[0]["data"][STEPS] = dict(sorted(stored[0]["data"][STEPS].items()))
    assert list(stored[0]["data"][STEPS]) != list(bundle[STEPS])
    assert differences(stored, fresh) == []
    fresh[0]["data"][STEPS]["steps"][1][3][0] = "another sentence"
    assert "another sentence" in str(differences(stored, fresh))


@pytest.fixture
def opened(browser, tmp_path):
    """Opens a page with a picture, as others see it."""
    opened = []

    def open_page(shown, scripts=True, **settings):
        context = browser.new_context(java_script_enabled=scripts, **settings)
        opened.append(context)
        window = context.new_page()
        window.on("pageerror", lambda error: pytest.fail(str(error)))
        window.on("request", lambda r: r.url.startswith("file:") or pytest.fail(r.url))
        file = tmp_path / "page.html"
        html = shown._repr_mimebundle_()["text/html"]
        file.write_text(f"<!doctype html><meta charset=utf-8><body>{html}", encoding="utf-8")
        window.goto(file.as_uri())
        return window

    yield open_page
    for context in opened:
        context.close()


@pytest.mark.slow
def test_the_keyboard_goes_through_the_steps(opened):
    shown = step_through(**two_passes())
    window = opened(shown)
    said = lambda: [w.inner_text() for w in window.locator(".words:visible").all()]  # noqa: E731
    assert said() == ["The pass starts at out with 1."]
    window.keyboard.press("Tab")
    window.keyboard.press("Tab")  # after Back, the slider
    all_steps = [words for steps in shown.data["steps"] for words, _ in steps]
    for words in all_steps[1:]:
        window.keyboard.press("ArrowRight")
        assert said() == [words]
    assert window.locator("svg:visible .now").count() == 3  # Sinh, its arrow, x
    assert window.locator("svg:visible .later").count() == 0
    window.get_by_role("button", name="Back").click()
    assert said() == [all_steps[-2]]
    assert window.get_by_role("slider", name="Step").get_attribute("aria-valuetext") == (
        f"step {len(all_steps) - 1} of {len(all_steps)}"
    )


@pytest.mark.slow
def test_arrow_keys_work_anywhere_in_a_stepper_and_the_focus_stays(opened):
    shown = step_through(**two_passes())
    window = opened(shown, viewport={"width": 1280, "height": 800})
    all_steps = [words for steps in shown.data["steps"] for words, _ in steps]
    said = lambda: window.locator(".words:visible").inner_text()  # noqa: E731
    go_on = window.get_by_role("button", name="Next")
    go_on.click()
    window.keyboard.press("ArrowRight")
    assert said() == all_steps[2]
    window.keyboard.press("ArrowLeft")
    assert said() == all_steps[1]
    for _ in all_steps:
        go_on.click(force=True)
    assert said() == all_steps[-1]
    assert window.evaluate("document.activeElement.textContent") == "Next"
    window.locator("svg:visible").click()
    window.keyboard.press("ArrowLeft")
    assert said() == all_steps[-2]


@pytest.mark.slow
def test_paths_are_cut_with_the_keyboard_alone(opened):
    window = opened(cut_a_path())
    said = lambda: window.locator(".words").inner_text()  # noqa: E731
    assert said() == "2.543, and no error. Right is 3.086."
    for _ in range(4):  # formula, x, y, expx
        window.keyboard.press("Tab")
    window.keyboard.press("Space")
    assert said() == "3.402 = 2.543 + 0.859, and no error. Right is 3.086."
    assert window.get_by_label("expx", exact=True).evaluate("e => e === document.activeElement")
    window.keyboard.press("Tab")
    window.keyboard.press("Space")
    assert said() == "3.086 = 2.543 + 0.859 - 0.316. Right: every path is there."
    window.keyboard.press("Tab")
    window.keyboard.press("Tab")
    window.keyboard.press("Enter")  # both, as SinhBad
    window.get_by_label("Formula").focus()
    window.keyboard.press("ArrowUp")  # F(x)
    assert said() == "RuntimeError: no path is left. This is the lucky case."
    assert window.locator("[data-path]:visible").count() == 2
    assert not window.get_by_label("y", exact=True).is_visible()


@pytest.mark.slow
def test_every_state_can_be_reached_and_its_picture_says_the_same(opened):
    window = opened(cut_a_path())
    texts = lambda: window.locator("svg text").all_text_contents()  # noqa: E731
    for formula, point in EACH_PICTURE:
        window.get_by_label("Formula").select_option(formula)
        window.get_by_role("combobox").nth(1).select_option(point)
        told = CUTS["pictures"][formula][point]
        for cut, state in told["states"].items():
            for path in PATHS[formula]:
                window.get_by_label(path, exact=True).set_checked(path in cut.split())
            assert window.locator(".words").inner_text() == state["words"]
            shares = {("lacks " if p in cut.split() else "") + s for p, s in told["shares"].items()}
            right, now = told["states"][""]["number"], state["number"]
            expected = {f"right: {right}", f"autograd adds up: {now}", formula, f"x = {point}"}
            assert expected | shares <= set(texts())


@pytest.mark.slow
def test_a_click_in_the_picture_cuts_a_path_and_mends_it(opened):
    window = opened(cut_a_path())
    path = window.locator("[data-path='0']")
    for is_cut in (True, False):
        path.click(position={"x": 60, "y": 60})
        assert window.get_by_label("y", exact=True).is_checked() is is_cut
        assert (path.get_attribute("stroke-dasharray") == "5 4") is is_cut


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1280])
def test_a_figure_whose_paths_are_cut_fits_a_window(opened, width):
    window = opened(cut_a_path(), viewport={"width": width, "height": 800})
    assert window.evaluate("document.documentElement.scrollWidth") <= width
    letters = """() => [...document.querySelectorAll("svg text")].map(text =>
        parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a)"""
    assert min(window.evaluate(letters)) >= 11
    assert window.locator(".stepper").bounding_box()["height"] < 600


@pytest.mark.slow
@pytest.mark.parametrize("mark", ["data-theme='dark'", "data-jp-theme-light='false'"])
def test_in_a_dark_page_black_is_white(opened, mark):
    window = opened(cut_a_path())
    colour = "getComputedStyle(document.querySelector('svg')).filter"
    assert window.evaluate(colour) == "none"
    name, value = mark.replace("'", "").split("=")
    window.evaluate("([name, value]) => document.body.setAttribute(name, value)", [name, value])
    assert window.evaluate(colour) == "invert(0.95) hue-rotate(180deg)"
    window.emulate_media(media="print")
    assert window.evaluate(colour) == "none"


@pytest.mark.slow
def test_a_slider_writes_the_products_on_the_arrows(opened):
    window = opened(sliders(cube(), PRODUCTS, g=5.0, x=2.0, h=7.0))
    texts = lambda: [t.strip() for t in window.locator("svg text").all_text_contents()]  # noqa: E731
    assert texts().count("↑ 84") == texts().count("↑ 420") == 2  # in the box and on the arrow
    for name, key in [("g", "ArrowLeft"), ("x", "Home"), ("h", "ArrowRight")]:
        window.get_by_role("slider", name=name).focus()
        window.keyboard.press(key)
    g, x, h = 4.5, -10.0, 7.5
    with_autograd = cube(g, x, h)
    for name, number in [("g", h * 3 * x * x), ("x", h * 6 * x * g), ("grad_x", h)]:
        assert f"comes back to {name}: {number:.4g}" in str(with_autograd)
        assert f"↑ {number:.4g}" in texts()
        assert f"{name} gets" in window.locator(".words").inner_text()


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_moves_while_a_slider_is_dragged(opened, width):
    shown = sliders(cube(), PRODUCTS, g=5.0, x=2.0, h=7.0)
    shown.data = json.loads(json.dumps(shown.data, sort_keys=True))  # as a notebook stores it
    window = opened(shown, viewport={"width": width, "height": 800})
    labels = [label.inner_text().split()[0] for label in window.locator("label").all()]
    assert labels == ["g", "x", "h"]
    places = """() => [...document.querySelectorAll("input, svg")].map(
        each => JSON.stringify(each.getBoundingClientRect()))"""
    before = window.evaluate(places)
    for name in labels:
        window.get_by_role("slider", name=name).focus()
        for key in ("Home", "ArrowRight", "End"):
            window.keyboard.press(key)
            assert window.evaluate(places) == before


@pytest.mark.slow
def test_without_scripts_the_whole_pictures_stay(opened):
    window = opened(step_through(**two_passes()), scripts=False)
    assert window.get_by_role("img").count() == 2
    assert not window.locator(".controls").is_visible()


@pytest.mark.slow
def test_on_paper_there_are_the_whole_pictures(opened):
    window = opened(step_through(**two_passes()))
    assert window.get_by_role("img").count() == 1 and window.locator(".controls").is_visible()
    window.emulate_media(media="print")
    assert window.get_by_role("img").count() == 2 and not window.locator(".controls").is_visible()
    numbers = window.locator("svg text").filter(has_text="↑").all()
    assert numbers and all(number.is_visible() for number in numbers)


@pytest.mark.slow
def test_nothing_is_wider_than_a_phone(opened):
    for shown in (step_through(**two_passes()), sliders(cube(), PRODUCTS, g=5.0, x=2.0, h=7.0)):
        window = opened(shown, viewport={"width": 390, "height": 800})
        assert window.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.slow
def test_on_a_phone_words_keep_their_size_and_the_step_is_in_view(opened):
    shown = step_through(**two_passes())
    window = opened(shown, viewport={"width": 390, "height": 800})
    slider = window.get_by_role("slider")
    for _ in range(9):
        place = """() => {
            const picture = document.querySelector(".picture:not([hidden])");
            const frame = picture.querySelector("div").getBoundingClientRect();
            const now = picture.querySelector(".now").getBoundingClientRect();
            const text = picture.querySelector("svg text").getBoundingClientRect();
            return [now.left >= frame.left && now.right <= frame.right, text.height];
        }"""
        in_view, height = window.evaluate(place)
        assert in_view and height >= 11
        slider.press("ArrowRight")
