"""Pictures of `draw_backward` that a reader steps through, or changes with sliders.

One output of HTML with the SVG in it and a few lines of script: it needs no network and no package.
Where no script runs, the whole pictures stay; where there is no HTML, the SVG or the text.
"""

import json
import re
from collections.abc import Sequence
from html import escape, unescape
from math import prod
from typing import Any

from double_backward.graphs import Drawing
from double_backward.graphs.picture import BACK, inline

STEPS = "application/vnd.lessons.steps+json"  # what is compared, and what the page is made of


class Stepper:
    """What the functions below return; the last line of a cell shows it.

    Attributes:
        words: str, the steps as text.
        svg: str, the pictures, one below the other.
        data: dict of what the script goes by: "titles", and "steps" or "sliders". It is stored
            beside the picture, so that a test compares it, and the website makes its page of both.
    """

    def __init__(self, words: str, svg: str, data: dict[str, Any]):
        self.words, self.svg, self.data = words, svg, data

    def __repr__(self) -> str:
        return self.words

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        return {
            "text/plain": self.words,
            "image/svg+xml": self.svg,
            STEPS: self.data,
            "text/html": page(self.svg, self.data),
        }


def step_through(**drawings: Drawing) -> Stepper:
    """Backward passes, one after the other, each operation a step.

    Args:
        **drawings: what `draw_backward` returned, by the name of the pass.

    Raises:
        ValueError: a drawing has no picture, or no pass was recorded in it.
    """
    titles = [name.replace("_", " ") for name in drawings]
    return _stepper(titles, list(drawings.values()), together=False)


def side_by_side(**drawings: Drawing) -> Stepper:
    """Backward passes through several graphs at the same time; as `step_through` otherwise."""
    titles = [name.replace("_", " ") for name in drawings]
    return _stepper(titles, list(drawings.values()), together=True)


def _stepper(titles: list[str], drawings: list[Drawing], together: bool) -> Stepper:
    for title, drawing in zip(titles, drawings, strict=True):
        if drawing.svg is None or not drawing.steps:
            raise ValueError(f"{title}: give a drawing by draw_backward that has a picture.")
    lines = []
    for title, drawing in zip(titles, drawings, strict=True):
        lines += [title, *drawing.outline.splitlines()[:2]]
        lines += [f"  {number}. {words}" for number, (words, _) in enumerate(drawing.steps, 1)]
    steps = [[[words, parts] for words, parts in drawing.steps] for drawing in drawings]
    data = {"titles": titles, "together": together, "steps": steps}
    return Stepper("\n".join(lines), stacked(titles, [d.svg or "" for d in drawings]), data)


def sliders(
    drawing: Drawing, products: dict[str, Sequence[str | float]], **values: float
) -> Stepper:
    """A picture in which the numbers that come back change with what goes in.

    Args:
        drawing: what `draw_backward` returned for `values`.
        products: for each tensor that something comes back to, the factors of that number: names
            of `values`, and numbers.
        **values: what each slider stands at first; it goes from -10 to 10.

    Raises:
        ValueError: the product is not what autograd brought back, or two of them are equal at
            first, so that the picture cannot tell them apart.
    """
    if drawing.svg is None:
        raise ValueError("There is no picture.")
    first = {}
    for name, factors in products.items():
        number = prod(values[f] if isinstance(f, str) else f for f in factors)
        first[name] = f"{number:.4g}"
        if f"comes back to {name}: {first[name]}" not in drawing.outline:
            raise ValueError(f"{first[name]} is not what came back to {name}:\n{drawing.outline}")
    if len(set(first.values())) < len(first):
        raise ValueError(f"Two numbers are the same at first: {first}. Take other values.")
    data = {
        "titles": [""],
        "sliders": values,
        "products": {name: list(factors) for name, factors in products.items()},
        "first": first,
    }
    lines = [drawing.outline]
    lines += [f"{_spelled(name, products[name])} = {first[name]}" for name in products]
    return Stepper("\n".join(lines), drawing.svg, data)


def _spelled(name: str, factors: Sequence[str | float]) -> str:
    return f"comes back to {name}: {' · '.join(map(str, factors))}"


def stacked(titles: list[str], svgs: list[str]) -> str:
    """Several finished pictures as one, each below its title."""
    sizes = [tuple(map(int, _size(svg).groups())) for svg in svgs]
    width, top, parts = max(w for w, _ in sizes), 0, []
    for title, svg, (_, height) in zip(titles, svgs, sizes, strict=True):
        parts.append(
            f'<text x="4" y="{top + 18}" font-family="sans-serif" font-size="15" '
            f'font-weight="bold">{escape(title)}</text>'
        )
        inner = re.sub(r' id="[^"]*"', "", svg)  # which are those of the other pictures, too
        parts.append(inner.replace("<svg ", f'<svg x="0" y="{top + 24}" ', 1))
        top += height + 34
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{width}" height="{top}" '
        f'viewBox="0 0 {width} {top}">'
    )
    name = escape(", ".join(titles))
    ground = f'<rect width="{width}" height="{top}" fill="white"/>'
    return "\n".join([head, f"<title>{name}</title>", ground, *parts, "</svg>\n"])


def _size(svg: str) -> re.Match[str]:
    size = re.search(r'width="(\d+)" height="(\d+)"', svg)
    assert size is not None  # every finished picture has one
    return size


def unstacked(svg: str) -> list[str]:
    """The pictures that were stacked, or the one that there is."""
    inner = re.findall(r'<svg x="0" y="\d+" (.*?</svg>)', svg, re.DOTALL)
    return [f"<svg {picture}" for picture in inner] or [svg]


def page(svg: str, data: dict[str, Any]) -> str:
    """The HTML of a `Stepper`, from its picture and its data."""
    pictures = []
    for title, picture in zip(data["titles"], unstacked(svg), strict=True):
        heading = f"<strong>{escape(title)}</strong>" if title else ""
        words = '<p class="words" role="status"></p>'
        pictures.append(f'<div class="picture">{heading}{words}{inline(_marked(picture))}</div>')
    told = escape(json.dumps(data, ensure_ascii=False))
    return (
        f'<div class="stepper" data-told="{told}">\n'
        f'<style>{STYLE}</style>\n<div class="controls" hidden></div>\n'
        f'<div class="pictures">{"".join(pictures)}</div>\n<script>{SCRIPT}</script>\n</div>'
    )


def _marked(svg: str) -> str:
    """With the name of each element where a script finds it; of two lines the first, an arrow."""
    seen = set()

    def mark(match: re.Match[str]) -> str:
        name = unescape(match[2])
        if name in seen:
            return match[0]
        seen.add(name)
        return f'<g class="{match[1]}" data-part="{escape(name)}">'

    return re.sub(r'<g(?: id="[^"]*")? class="(node|edge)">\s*<title>([^<]*)</title>', mark, svg)


STYLE = """
.stepper { background: white; color: black; padding: 8px; font-family: sans-serif; }
.stepper .controls { display: flex; flex-wrap: wrap; gap: 8px 16px; align-items: center; }
.stepper .controls[hidden] { display: none; }
.stepper button, .stepper input { font-size: 15px; min-height: 28px; }
.stepper .controls { position: sticky; top: 0; background: white; padding: 4px 0; }
.stepper .pictures { display: flex; flex-wrap: wrap; gap: 16px; }
.stepper .picture { flex: 1 1 400px; min-width: 0; max-width: 800px; }
.stepper .picture[hidden] { display: none; }
.stepper .words { min-height: 2.6em; margin: 4px 0; max-width: 60em; line-height: 1.3; }
.stepper svg { max-width: 100%; height: auto; }
.stepper .later { opacity: 0.3; }
.stepper .now path, .stepper .now polygon { stroke: #0b57a4; stroke-width: 3; }
@media (max-width: 600px) { .stepper svg { max-width: none; } }
@media print {
  .stepper .controls, .stepper .words { display: none !important; }
  .stepper .picture[hidden] { display: block !important; }
  .stepper .later { opacity: 1; }
}
@media screen and (prefers-reduced-motion: no-preference) {
  .stepper [data-part] { transition: opacity .2s; }
}
"""

SCRIPT = """
document.querySelectorAll(".stepper:not([data-ready])").forEach(function (box) {
  box.dataset.ready = "yes";
  const told = JSON.parse(box.dataset.told), controls = box.querySelector(".controls");
  const pictures = [...box.querySelectorAll(".picture")];
  function add(tag, parent, settings) {
    const made = parent.appendChild(Object.assign(document.createElement(tag), settings));
    made.setAttribute("data-lm-suppress-shortcuts", "true");  // its keys are not JupyterLab's
    return made;
  }
  function say(picture, words) {
    pictures[picture].querySelector(".words").textContent = words;
  }
  function show_now(picture) {  // where it is wider than the page
    const frame = picture.querySelector("svg").parentElement, now = picture.querySelector(".now");
    if (!now) return;
    const [there, here] = [now.getBoundingClientRect(), frame.getBoundingClientRect()];
    frame.scrollLeft += there.left + there.width / 2 - here.left - here.width / 2;
  }
  controls.hidden = false;
  if (told.steps) {
    const lengths = told.steps.map((steps) => steps.length);
    const all = told.together ? Math.max(...lengths) : lengths.reduce((a, b) => a + b);
    const back = add("button", controls, { textContent: "Back", type: "button" });
    const range = add("input", controls, { type: "range", min: 1, max: all, value: 1 });
    range.setAttribute("aria-label", "Step");
    const next = add("button", controls, { textContent: "Next", type: "button" });
    const count = add("span", controls, {});
    function show() {
      let left = Number(range.value);
      count.textContent = "step " + left + " of " + all;
      range.setAttribute("aria-valuetext", count.textContent);
      told.steps.forEach(function (steps, picture) {
        const here = told.together ? Math.min(left, steps.length) : left;
        const shown = told.together || (here >= 1 && here <= steps.length);
        pictures[picture].hidden = !shown;
        if (!told.together) left -= steps.length;
        if (!shown) return;
        say(picture, steps[here - 1][0]);
        const parts = {};
        steps.forEach(function ([, names], number) {
          names.forEach(function (name) {
            const state = number + 1 < here ? "" : number + 1 > here ? "later" : "now";
            if (parts[name] === undefined || state === "now") parts[name] = state;
          });
        });
        pictures[picture].querySelectorAll("[data-part]").forEach(function (part) {
          part.classList.remove("now", "later");
          if (parts[part.dataset.part]) part.classList.add(parts[part.dataset.part]);
        });
        show_now(pictures[picture]);
      });
      back.disabled = Number(range.value) === 1;
      next.disabled = Number(range.value) === all;
    }
    function move(by) { range.value = Number(range.value) + by; show(); }
    range.addEventListener("input", show);
    back.addEventListener("click", () => move(-1));
    next.addEventListener("click", () => move(1));
    show();
  } else {
    const values = Object.assign({}, told.sliders);
    const texts = [...box.querySelectorAll("svg text")].map(function (text) {
      const shown = text.textContent.trim();
      return [text, Object.keys(told.first).find((name) => shown === "ARROW" + told.first[name])];
    }).filter(([, name]) => name);
    function short(number) { return String(Number(number.toPrecision(4))); }
    function show() {
      const numbers = {}, words = [];
      Object.entries(told.products).forEach(function ([name, factors]) {
        const known = factors.map((factor) => typeof factor === "string" ? values[factor] : factor);
        numbers[name] = short(known.reduce((a, b) => a * b, 1));
        words.push(name + " gets " + factors.join(" · ") + " = " + numbers[name]);
      });
      texts.forEach(([text, name]) => { text.textContent = "ARROW" + numbers[name]; });
      say(0, words.join(";  "));
    }
    Object.keys(values).forEach(function (name) {
      const label = add("label", controls, { textContent: name + " " });
      const settings = { type: "range", min: -10, max: 10, step: 0.5, value: values[name] };
      const range = add("input", label, settings);
      const now = add("output", label, { textContent: " " + values[name] });
      range.addEventListener("input", function () {
        values[name] = Number(range.value);
        now.textContent = " " + range.value;
        show();
      });
    });
    show();
  }
});
""".replace("ARROW", BACK)
