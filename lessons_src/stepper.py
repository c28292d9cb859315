"""Pictures that a reader steps through, or changes with sliders, or by cutting paths.

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
from double_backward.graphs.picture import BACK, inline, named
from lessons_src.picture_words import in_words_of, told_in

STEPS = "application/vnd.lessons.steps+json"  # what is compared, and what the page is made of


class Stepper:
    """What the functions below return; the last line of a cell shows it.

    Attributes:
        words: str, the steps as text, in English.
        svg: str, the pictures, one below the other.
        data: dict of what the script goes by: "titles", and "steps", "sliders" or "cuts", as lists
            where the order counts. It is stored beside the picture, so that a test compares it, and
            the website makes its page of both.
    """

    def __init__(self, words: str, svg: str, data: dict[str, Any]):
        self.words, self.svg, self.data = words, svg, data

    def __repr__(self) -> str:
        return in_words_of(self.words)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        return {
            "text/plain": repr(self),
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
    titles, lines = [name.replace("_", " ") for name in drawings], []
    for title, drawing in zip(titles, drawings.values(), strict=True):
        told = drawing.outline.splitlines()
        lines += [title, *told[:2]]
        lines += [f"  {number}. {words}" for number, (words, _) in enumerate(drawing.steps, 1)]
    steps = [[[words, parts] for words, parts in d.steps] for d in drawings.values()]
    svg = arranged(titles, [d.svg or "" for d in drawings.values()])
    return Stepper("\n".join(lines), svg, {"titles": titles, "steps": steps})


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


def arranged(titles: list[str], svgs: list[str]) -> str:
    """Several finished pictures as one, one below the other, each below its title."""
    sizes = [tuple(map(int, _size(svg).groups())) for svg in svgs]
    top, parts = 0, []
    for title, svg, (_, height) in zip(titles, svgs, sizes, strict=True):
        parts.append(
            f'<text x="4" y="{top + 18}" font-family="sans-serif" font-size="15" '
            f'font-weight="bold">{escape(title)}</text>'
        )
        inner = re.sub(r' id="[^"]*"', "", svg)  # which are those of the other pictures, too
        parts.append(inner.replace("<svg ", f'<svg x="0" y="{top + 24}" ', 1))
        top += height + 34
    width = max(width for width, _ in sizes)
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


def taken_apart(svg: str) -> list[str]:
    """The pictures that were arranged, or the one that there is."""
    inner = re.findall(r'<svg x="\d+" y="\d+" (.*?</svg>)', svg, re.DOTALL)
    return [f"<svg {picture}" for picture in inner] or [svg]


def page(svg: str, data: dict[str, Any], into: str | None = None) -> str:
    """The HTML of a `Stepper`, from its picture and its data, whose words are in English.

    Args:
        svg, data: see `Stepper`.
        into: the language, None: that of COURSE_LANGUAGE.
    """
    pictures, data = [], told_in(data, into)
    for title, picture in zip(data["titles"], taken_apart(svg), strict=True):
        heading = f"<strong>{escape(title)}</strong>" if title else ""
        words = '<p class="words" role="status"></p>'
        least, shown = _widths(picture)
        picture = named(picture, into)
        sized = picture.replace(
            "<svg ", f'<svg style="min-width: {least}px; max-width: {shown}px" ', 1
        )
        pictures.append(
            f'<div class="picture" style="flex-basis: {least}px">'
            f"{heading}{words}{inline(_marked(sized))}</div>"
        )
    told = escape(json.dumps(data, ensure_ascii=False))
    return (
        f'<div class="stepper" data-told="{told}">\n'
        f'<style>{STYLE}</style>\n<div class="controls" hidden></div>\n'
        f'<div class="pictures">{"".join(pictures)}</div>\n'
        f"<script>{SCRIPT}</script>\n</div>"
    )


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


# The colour behind a cell in VS Code, or else of any page that says whether it is dark.
GROUND = "var(--vscode-editor-background, Canvas)"
STYLE = """
.stepper { padding: 8px 0; font-family: sans-serif; }
.stepper .controls { display: flex; flex-wrap: wrap; gap: 8px 16px; align-items: center; }
.stepper .together { display: inline-flex; flex-wrap: wrap; gap: 8px; }
.stepper .controls { position: sticky; padding: 4px 0; z-index: 1; }
.stepper .controls { top: var(--pst-header-article-height, 0); }
.stepper .controls { background: var(--jp-layout-color0, var(--pst-color-background, GROUND)); }
.stepper .controls[hidden], .stepper .picture[hidden] { display: none; }
.stepper [aria-disabled="true"] { opacity: 0.5; }
.stepper button, .stepper input, .stepper select { font-size: 15px; min-height: 28px; }
.stepper label { white-space: nowrap; margin-right: 8px; }
.stepper label[hidden] { display: none; }
.stepper input[type="checkbox"] { min-height: 0; margin: 0 4px 0 0; }
.stepper [data-path] { cursor: pointer; pointer-events: all; }
.stepper output { display: inline-block; min-width: 3em; }
.stepper .pictures { display: flex; flex-wrap: wrap; gap: 8px 16px; }
.stepper .picture { flex-grow: 1; min-width: 0; max-width: 800px; }
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
""".replace("GROUND", GROUND)

SCRIPT = """
document.querySelectorAll(".stepper:not([data-ready])").forEach(function (box) {
  box.dataset.ready = "yes";
  const told = JSON.parse(box.dataset.told), controls = box.querySelector(".controls");
  const said = told.controls;
  const pictures = [...box.querySelectorAll(".picture")];
  function add(tag, parent, settings) {
    const made = parent.appendChild(Object.assign(document.createElement(tag), settings));
    made.setAttribute("data-lm-suppress-shortcuts", "true");  // its keys are not JupyterLab's
    return made;
  }
  function filled(template, values) {
    return said[template].replace(/{(\\w+)}/g, (field, name) => values[name]);
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
    const all = told.steps.map((steps) => steps.length).reduce((a, b) => a + b);
    const back = add("button", controls, { textContent: said["Back"], type: "button" });
    const range = add("input", controls, { type: "range", min: 1, max: all, value: 1 });
    range.setAttribute("aria-label", said["Step"]);
    const next = add("button", controls, { textContent: said["Next"], type: "button" });
    const count = add("span", controls, {});
    function show() {
      let left = Number(range.value);
      count.textContent = filled("step {here} of {all}", { here: left, all });
      range.setAttribute("aria-valuetext", count.textContent);
      told.steps.forEach(function (steps, picture) {
        const here = left, shown = here >= 1 && here <= steps.length;
        pictures[picture].hidden = !shown;
        left -= steps.length;
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
  } else if (told.cuts) {
    const [formula_word, x_word, cut_word, as_sinh, as_bad, right, adds_up, lacks] =
      told.cuts.labels;
    let [formula, x, cut] = told.cuts.now;
    function choice(words, options, value, chosen) {
      const select = add("select", add("label", controls, { textContent: words + " " }), {});
      options.forEach((each) => add("option", select, { textContent: each }));
      select.value = value;
      select.addEventListener("change", function () { chosen(select.value); show(); });
    }
    choice(formula_word, told.cuts.formulas, formula, (value) => { formula = value; });
    choice(x_word, told.cuts.points, x, (value) => { x = value; });
    const group = add("span", controls, { textContent: cut_word + " " });
    const boxes = [...box.querySelectorAll("[data-path]")].map(function (path, place) {
      const label = add("label", group, {}), check = add("input", label, { type: "checkbox" });
      const name = add("span", label, {}), [text, share] = path.querySelectorAll("text");
      check.addEventListener("change", () => toggle(place));
      path.addEventListener("click", () => toggle(place));
      return { path, label, check, name, text, share };
    });
    const both = add("span", controls, { className: "together" });
    [[as_sinh, []], [as_bad, ["expx", "expnegx"]]].forEach(function ([words, names]) {
      const button = add("button", both, { textContent: words, type: "button" });
      button.addEventListener("click", function () { cut = names; show(); });
    });
    function places() {  // names by place; F(x) has no first one
      const names = told.cuts.paths[told.cuts.formulas.indexOf(formula)];
      return names.length < 3 ? ["", ...names] : names;
    }
    function toggle(place) {
      const name = places()[place];
      cut = cut.includes(name) ? cut.filter((each) => each !== name) : [...cut, name];
      show();
    }
    function bar(name, label, state) {
      box.querySelectorAll(`[data-bar=${name}]`).forEach(function (rect, place) {
        rect.setAttribute("x", state.bars[place][0]);
        rect.setAttribute("width", state.bars[place][1]);
      });
      box.querySelector(`[data-end=${name}]`).setAttribute("x", state.end - 1);
      box.querySelector(`[data-words=${name}]`).textContent = label + ": " + state.number;
    }
    function show() {
      const names = places(), { shares, states } = told.cuts.pictures[formula][x];
      cut = names.filter((name) => name && cut.includes(name));
      const state = states[cut.join(" ")];
      boxes.forEach(function ({ path, label, check, name, text, share }, place) {
        const is_cut = cut.includes(names[place]);
        check.checked = is_cut;
        label.hidden = !names[place];
        path.setAttribute("display", names[place] ? "inline" : "none");
        path.setAttribute("stroke", is_cut ? "#cd0000" : "black");
        path.setAttribute("stroke-dasharray", is_cut ? "5 4" : "none");
        name.textContent = text.textContent = names[place];
        share.textContent = (is_cut ? lacks + " " : "") + shares[names[place]];
      });
      box.querySelector("[data-words=formula]").textContent = formula;
      box.querySelector("[data-words=at]").textContent = "x = " + x;
      bar("right", right, states[""]);
      bar("autograd", adds_up, state);
      say(0, state.words);
      const named = formula + ", x = " + x + ": " + state.words;
      box.querySelector("svg").setAttribute("aria-label", named);
    }
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
        const product = factors.join(" · ") + " = " + numbers[name];
        words.push(filled("{name} gets {product}", { name, product }));
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
