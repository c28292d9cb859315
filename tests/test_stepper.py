"""Pictures to step through: what they say, what is stored of them, and how they work in a page."""

import copy
import json
import re
from html import unescape
from xml.etree import ElementTree

import pytest
import torch
from nbformat.v4 import new_output
from same_outputs import differences
from torch.autograd import grad

from double_backward import draw, draw_backward
from lessons_src.saving_intermediates import Sinh
from lessons_src.stepper import STEPS, page, side_by_side, sliders, step_through
from lessons_src.untracked_backward import CubeBackward
from lessons_src.what_not_to_do import SinhBad


def leaf(*values):
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def two_passes():
    x = leaf(0.0, 1.0)
    out, expx, expnegx = Sinh.apply(x)
    first = draw_backward(out=out, x=x, expx=expx, expnegx=expnegx)
    (grad_x,) = grad(out.sum(), x, create_graph=True)
    second = draw_backward(grad_x=grad_x, x=x, out=out, expx=expx, expnegx=expnegx)
    return {"first_backward": first, "second_backward": second}


def two_functions():
    drawings = {}
    for function in (Sinh, SinhBad):
        x = leaf(0.5, 1.0)
        y = function.apply(x)
        y = y[0] if isinstance(y, tuple) else y
        out = y**2
        (grad_x,) = grad(out.sum(), x, create_graph=True)
        drawings[function.__name__] = draw_backward(grad_x=grad_x, x=x, y=y, out=out)
    return drawings


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
    shown = side_by_side(**two_functions())
    right, wrong = (steps[-1][0] for steps in shown.data["steps"])
    assert right.endswith("sends 3.086, 7.524 to x.")  # 2 cosh 2x
    assert wrong == "SinhBad sends 2.543, 4.762 to x."  # 2 cosh² x
    assert "grad_x leads back to x, but 2 paths are missing" in str(shown)
    assert shown.svg.count("no path:") == 1


def test_the_picture_alone_holds_all_of_them():
    shown = side_by_side(**two_functions())
    root = ElementTree.fromstring(shown.svg)
    inner = [child for child in root if child.tag.endswith("svg")]
    assert len(inner) == 2 and root[0].text == "Sinh, SinhBad"
    bottoms = [float(svg.get("y")) + float(svg.get("height")) for svg in inner]
    assert bottoms[0] < float(inner[1].get("y")) and bottoms[1] <= float(root.get("height"))
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
    window = opened(shown, reduced_motion="reduce")
    said = lambda: [w.inner_text() for w in window.locator(".words:visible").all()]  # noqa: E731
    assert said() == ["The pass starts at out with 1."]
    window.keyboard.press("Tab")  # Back is disabled
    all_steps = [words for steps in shown.data["steps"] for words, _ in steps]
    for words in all_steps[1:]:
        window.keyboard.press("ArrowRight")
        assert said() == [words]
    assert window.locator("svg:visible .now").count() == 3  # Sinh, its arrow, x
    assert window.locator("svg:visible .later").count() == 0
    assert window.evaluate("getComputedStyle(document.querySelector('.now')).transition") in (
        "all",
        "all 0s ease 0s",
        "none",
    )
    window.get_by_role("button", name="Back").click()
    assert said() == [all_steps[-2]]
    assert window.get_by_role("slider", name="Step").get_attribute("aria-valuetext") == (
        f"step {len(all_steps) - 1} of {len(all_steps)}"
    )


@pytest.mark.slow
def test_both_pictures_go_on_together_and_the_shorter_one_waits(opened):
    window = opened(side_by_side(**two_functions()))
    window.get_by_role("slider").focus()
    window.keyboard.press("End")
    said = [words.inner_text() for words in window.locator(".words").all()]
    assert said[0].endswith("sends 3.086, 7.524 to x.")
    assert said[1] == "SinhBad sends 2.543, 4.762 to x."
    assert window.get_by_role("img").count() == 2


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
    faded = "[...document.querySelectorAll('.later')].map(e => getComputedStyle(e).opacity)"
    assert set(window.evaluate(faded)) == {"1"}


@pytest.mark.slow
def test_nothing_is_wider_than_a_phone(opened):
    for shown in (step_through(**two_passes()), sliders(cube(), PRODUCTS, g=5.0, x=2.0, h=7.0)):
        window = opened(shown, viewport={"width": 390, "height": 800})
        assert window.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.slow
def test_on_a_phone_words_keep_their_size_and_the_step_is_in_view(opened):
    shown = side_by_side(**two_functions())
    window = opened(shown, viewport={"width": 390, "height": 800})
    slider = window.get_by_role("slider")
    for _ in range(9):
        place = """() => {
            const frame = document.querySelector(".picture > div").getBoundingClientRect();
            const now = document.querySelector(".picture .now").getBoundingClientRect();
            const text = document.querySelector(".picture svg text").getBoundingClientRect();
            return [now.left >= frame.left && now.right <= frame.right, text.height];
        }"""
        in_view, height = window.evaluate(place)
        assert in_view and height >= 10
        slider.press("ArrowRight")
