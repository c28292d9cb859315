"""Pictures to step through: what they say, what is stored of them, and how they work in a page."""

import copy
import json
import re
from html import unescape
from xml.etree import ElementTree

import pytest
import torch
from made_functions import x as leaf
from nbformat.v4 import new_output
from same_outputs import differences
from torch.autograd import grad

from double_backward import draw, draw_backward
from lessons_src.pair import draw_square
from lessons_src.saving_intermediates import Sinh
from lessons_src.stepper import STEPS, page, side_by_side, sliders, step_through, taken_apart
from lessons_src.untracked_backward import CubeBackward
from lessons_src.what_not_to_do import SinhBad


def two_passes():
    x = leaf(0.0, 1.0)
    out, expx, expnegx = Sinh.apply(x)
    first = draw_backward(out=out, x=x, expx=expx, expnegx=expnegx)
    (grad_x,) = grad(out.sum(), x, create_graph=True)
    second = draw_backward(grad_x=grad_x, x=x, out=out, expx=expx, expnegx=expnegx)
    return {"first_backward": first, "second_backward": second}


def pair(numbers=True):
    functions = {"Sinh": Sinh, "SinhBad": SinhBad}
    return {name: draw_square(function, 0.5, numbers) for name, function in functions.items()}


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


def test_the_right_number_and_the_wrong_one_stand_beside_each_other():
    shown = side_by_side(**pair())
    right, wrong = ([words for words, _ in steps] for steps in shown.data["steps"])
    assert right[1:] == [
        "x gets 2.543 by y, 0.8591 by expx and -0.3161 by expnegx.",
        "Sinh sends 3.086 to x.",  # 2 cosh 2x
    ]
    assert wrong[1:] == [
        "x gets 2.543 by y. No path: it lacks 0.8591 by expx and -0.3161 by expnegx.",
        "SinhBad sends 2.543 to x.",  # 2 cosh² x
    ]
    assert "second derivative 2.5431, wrong: it is 3.0862" in str(shown)
    assert len(re.findall(r">\s*no path:", shown.svg)) == 1  # and once in its description


def test_both_have_the_same_names_and_without_numbers_they_are_told_in_full():
    shown = side_by_side(**pair(numbers=False))
    for svg in taken_apart(shown.svg):
        texts = [element.text for element in ElementTree.fromstring(svg).iter() if element.text]
        assert {"x", "y", "expx", "expnegx", "grad_x"} <= set(texts)
        assert not [text for text in texts if "↑" in text]
    assert str(shown).splitlines() == [
        "Sinh",
        "Sinh(x)² at x = 0.5",
        "second derivative 3.0862, right",
        "  y, returned: leads into the first backward",
        "  expx, returned: leads into the first backward",
        "  expnegx, returned: leads into the first backward",
        "grad_x leads back to x",
        "SinhBad",
        "SinhBad(x)² at x = 0.5",
        "second derivative 2.5431, wrong: it is 3.0862",
        "  y, returned: leads into the first backward",
        "  expx, on ctx only: no path: taken for a constant",
        "  expnegx, on ctx only: no path: taken for a constant",
        "grad_x leads back to x, but 2 paths are missing",
    ]


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

    shown = side_by_side(**pair())
    root, (first, second) = inner_pictures(shown.svg)
    assert first[0] + first[2] < second[0] and first[1] == second[1]
    assert second[0] + second[2] <= float(root.get("width"))


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
def test_both_pictures_go_on_together(opened):
    window = opened(side_by_side(**pair()))
    hidden = window.locator("svg text").filter(has_text="↑")
    assert [number.is_visible() for number in hidden.all()] == [False] * 6
    window.get_by_role("slider").focus()
    window.keyboard.press("ArrowRight")
    assert [number.is_visible() for number in hidden.all()].count(True) == 4  # all but those of x
    window.keyboard.press("End")
    said = [words.inner_text() for words in window.locator(".words").all()]
    assert said == ["Sinh sends 3.086 to x.", "SinhBad sends 2.543 to x."]
    assert [number.is_visible() for number in hidden.all()] == [True] * 6
    assert window.get_by_role("img").count() == 2


@pytest.mark.slow
@pytest.mark.parametrize("width, beside", [(1000, True), (620, True), (500, False), (390, False)])
def test_the_pair_is_beside_each_other_or_one_picture_fits_a_window(opened, width, beside):
    window = opened(side_by_side(**pair()), viewport={"width": width, "height": 720})
    left, right = (picture.bounding_box() for picture in window.locator(".picture").all())
    assert (left["y"] == right["y"]) is beside
    assert max(left["height"], right["height"]) < 600
    letters = """() => [...document.querySelectorAll("svg text")].map(text =>
        parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a)"""
    assert min(window.evaluate(letters)) >= 11


@pytest.mark.slow
def test_a_pair_without_numbers_has_nothing_to_press(opened):
    window = opened(side_by_side(**pair(numbers=False)))
    assert not window.locator(".controls, .words").is_visible()
    assert window.get_by_role("img").count() == 2


@pytest.mark.slow
@pytest.mark.parametrize("mark", ["data-theme='dark'", "data-jp-theme-light='false'"])
def test_in_a_dark_page_black_is_white(opened, mark):
    window = opened(side_by_side(**pair()))
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
