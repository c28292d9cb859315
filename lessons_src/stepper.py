"""Pictures beside each other, and such that a reader steps through, or changes with sliders.

One output of HTML with the SVG in it and a few lines of script: it needs no network and no package.
Where no script runs, the whole pictures stay; where there is no HTML, the SVG or the text.
"""

import json
import re
from collections.abc import Sequence
from html import escape, unescape
from math import ceil, prod
from typing import Any

from double_backward.graphs import Drawing
from double_backward.graphs.picture import BACK, inline

STEPS = "application/vnd.lessons.steps+json"  # what is compared, and what the page is made of


class Stepper:
    """What the functions below return; the last line of a cell shows it.

    Attributes:
        words: str, the steps as text.
        svg: str, the pictures, one below the other.
        data: dict of what the script goes by: "titles", and "steps" or "sliders", as lists where
            the order counts. It is stored beside the picture, so that a test compares it, and the
            website makes its page of both.
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
    for name, drawing in drawings.items():
        if not drawing.steps:
            raise ValueError(f"{name}: give a drawing by draw_backward that has a picture.")
    return _stepper(drawings, together=False)


def side_by_side(**drawings: Drawing) -> Stepper:
    """Pictures beside each other where there is room, else one below the other.

    What came back along their arrows, if they say it, is gone through in all of them at once.

    Args:
        **drawings: by the name of the Function; with `steps`, or without.
    """
    return _stepper(drawings, together=True)


def _stepper(drawings: dict[str, Drawing], together: bool) -> Stepper:
    titles, lines = [name.replace("_", " ") for name in drawings], []
    for title, drawing in zip(titles, drawings.values(), strict=True):
        told = drawing.outline.splitlines()
        lines += [title, *(told[:2] if drawing.steps else told)]
        lines += [f"  {number}. {words}" for number, (words, _) in enumerate(drawing.steps, 1)]
    steps = [[[words, parts] for words, parts in d.steps] for d in drawings.values()]
    svg = arranged(titles, [d.svg or "" for d in drawings.values()], together)
    return Stepper("\n".join(lines), svg, {"titles": titles, "together": together, "steps": steps})


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
        "sliders": [[name, value] for name, value in values.items()],
        "products": [[name, list(factors), first[name]] for name, factors in products.items()],
    }
    lines = [drawing.outline]
    lines += [f"{_spelled(name, products[name])} = {first[name]}" for name in products]
    return Stepper("\n".join(lines), drawing.svg, data)


def _spelled(name: str, factors: Sequence[str | float]) -> str:
    return f"comes back to {name}: {' · '.join(map(str, factors))}"


def arranged(titles: list[str], svgs: list[str], beside: bool) -> str:
    """Several finished pictures as one, each below its title."""
    sizes = [tuple(map(int, _size(svg).groups())) for svg in svgs]
    left, top, parts = 0, 0, []
    for title, svg, (width, height) in zip(titles, svgs, sizes, strict=True):
        parts.append(
            f'<text x="{left + 4}" y="{top + 18}" font-family="sans-serif" font-size="15" '
            f'font-weight="bold">{escape(title)}</text>'
        )
        inner = re.sub(r' id="[^"]*"', "", svg)  # which are those of the other pictures, too
        parts.append(inner.replace("<svg ", f'<svg x="{left}" y="{top + 24}" ', 1))
        left, top = (left + width + 10, 0) if beside else (0, top + height + 34)
    widths, heights = zip(*sizes, strict=True)
    width, height = (left, max(heights) + 34) if beside else (max(widths), top)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}">'
    )
    name = escape(", ".join(titles))
    ground = f'<rect width="{width}" height="{height}" fill="white"/>'
    return "\n".join([head, f"<title>{name}</title>", ground, *parts, "</svg>\n"])


def _size(svg: str) -> re.Match[str]:
    size = re.search(r'width="(\d+)" height="(\d+)"', svg)
    assert size is not None  # every finished picture has one
    return size


def taken_apart(svg: str) -> list[str]:
    """The pictures that were arranged, or the one that there is."""
    inner = re.findall(r'<svg x="\d+" y="\d+" (.*?</svg>)', svg, re.DOTALL)
    return [f"<svg {picture}" for picture in inner] or [svg]


def page(svg: str, data: dict[str, Any]) -> str:
    """The HTML of a `Stepper`, from its picture and its data."""
    pictures = []
    for title, picture in zip(data["titles"], taken_apart(svg), strict=True):
        heading = f"<strong>{escape(title)}</strong>" if title else ""
        words = '<p class="words" role="status"></p>' if _moves(data) else ""
        least, shown = _widths(picture)
        sized = picture.replace(
            "<svg ", f'<svg style="min-width: {least}px; max-width: {shown}px" ', 1
        )
        pictures.append(
            f'<div class="picture" style="flex-basis: {least}px">'
            f"{heading}{words}{inline(_marked(sized))}</div>"
        )
    together = " together" if data.get("together") else ""
    told = escape(json.dumps(data, ensure_ascii=False))
    return (
        f'<div class="stepper" data-told="{told}">\n'
        f'<style>{STYLE}</style>\n<div class="controls" hidden></div>\n'
        f'<div class="pictures{together}">{"".join(pictures)}</div>\n'
        f"<script>{SCRIPT}</script>\n</div>"
    )


def _moves(data: dict[str, Any]) -> bool:
    return "sliders" in data or any(data["steps"])


def _widths(svg: str) -> tuple[int, str]:
    """In pixels: with letters as small as they may be, and as the picture is shown with room."""
    box = re.search(r'viewBox="\S+ \S+ ([\d.]+)', svg)
    shown = _size(svg)[1]
    return min(ceil(float(box[1])) if box else 0, int(shown)), shown


def _marked(svg: str) -> str:
    """With the name of each element where a script finds it, of two lines the first, an arrow; and
    with what comes back as a class of text."""
    seen = set()

    def mark(match: re.Match[str]) -> str:
        name = unescape(match[2])
        if name in seen:
            return match[0]
        seen.add(name)
        return f'<g class="{match[1]}" data-part="{escape(name)}">'

    svg = re.sub(rf"<text ([^>]*>\s*{BACK})", r'<text class="back" \1', svg)
    return re.sub(r'<g(?: id="[^"]*")? class="(node|edge)">\s*<title>([^<]*)</title>', mark, svg)


STYLE = """
.stepper { padding: 8px 0; font-family: sans-serif; }
.stepper .controls { display: flex; flex-wrap: wrap; gap: 8px 16px; align-items: center; }
.stepper .controls { position: sticky; padding: 4px 0; z-index: 1; }
.stepper .controls { top: var(--pst-header-article-height, 0); }
.stepper .controls { background: var(--jp-layout-color0, var(--pst-color-background, white)); }
.stepper .controls[hidden], .stepper .picture[hidden] { display: none; }
.stepper button, .stepper input { font-size: 15px; min-height: 28px; }
.stepper [aria-disabled="true"] { opacity: 0.5; }
.stepper output { display: inline-block; min-width: 3em; }
.stepper .pictures { display: flex; flex-wrap: wrap; gap: 8px 16px; }
.stepper .picture { flex-grow: 1; min-width: 0; max-width: 800px; }
.stepper .together .picture { max-width: 420px; }
.stepper .words { min-height: 2.6em; margin: 4px 0; max-width: 60em; line-height: 1.3; }
.stepper .words { white-space: pre-line; }
.stepper svg { width: 100%; height: auto; }
.stepper .later .back { visibility: hidden; }
.stepper .now path, .stepper .now polygon { stroke: #0b57a4; stroke-width: 3; }
:is([data-jp-theme-light="false"], [data-theme="dark"]) .stepper { color-scheme: dark; }
@media print {
  .stepper .controls, .stepper .words { display: none !important; }
  .stepper .picture[hidden] { display: block !important; }
  .stepper .later .back { visibility: visible; }
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
  const lengths = (told.steps || []).map((steps) => steps.length);
  controls.hidden = !told.sliders && !lengths.some(Boolean);
  if (controls.hidden) return;
  if (told.steps) {
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
      // Not disabled, or the focus would be lost.
      back.setAttribute("aria-disabled", Number(range.value) === 1);
      next.setAttribute("aria-disabled", Number(range.value) === all);
    }
    function move(by) { range.value = Number(range.value) + by; show(); }
    range.addEventListener("input", show);
    back.addEventListener("click", () => move(-1));
    next.addEventListener("click", () => move(1));
    box.tabIndex = -1;  // a click on the picture: the arrow keys are the stepper's
    box.setAttribute("data-lm-suppress-shortcuts", "true");
    box.addEventListener("keydown", function (event) {
      const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!by || event.target.matches("input, .picture > div")) return;  // these have their own
      event.preventDefault();
      move(by);
    });
    show();
  } else {
    const values = Object.fromEntries(told.sliders);
    const texts = [...box.querySelectorAll("svg text")].map(function (text) {
      const shown = text.textContent.trim();
      return [text, (told.products.find(([, , first]) => shown === "ARROW" + first) || [])[0]];
    }).filter(([, name]) => name);
    function short(number) { return String(Number(number.toPrecision(4))); }
    function show() {
      const numbers = {}, words = [];
      told.products.forEach(function ([name, factors]) {
        const known = factors.map((factor) => typeof factor === "string" ? values[factor] : factor);
        numbers[name] = short(known.reduce((a, b) => a * b, 1));
        words.push(name + " gets " + factors.join(" · ") + " = " + numbers[name]);
      });
      texts.forEach(([text, name]) => { text.textContent = "ARROW" + numbers[name]; });
      say(0, words.join("\\n"));
    }
    told.sliders.forEach(function ([name]) {
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
