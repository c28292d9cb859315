"""What a reader steps through, or cuts, as the pictures that the space key brings on a slide."""

from xml.etree import ElementTree

from double_backward.graphs.picture import BACK
from lessons_src.cut_paths import DRAWN, KEPT_BY_SINH, draw_cut

from .close_ups import SVG, boxes_of, graph_of

NOW = {"stroke": "#0b57a4", "stroke-width": "3"}  # as the style of a stepper has it
# What a figure is asked that can be cut: (formula, x, what is cut), each on a key of its own.
CASES = [
    ("F(x)²", "0.5", KEPT_BY_SINH),
    ("F(x)²", "0.5", ()),
    ("F(x)", "0.5", KEPT_BY_SINH),
    ("F(x) + x²", "0.5", KEPT_BY_SINH),
    ("F(x)²", "0", KEPT_BY_SINH),
]


def at_step(svg, parts, number):
    """SVG with what happens in one step marked, and without what comes back later.

    `parts` has for each step the names of the elements of which it speaks.
    """
    root, seen = ElementTree.fromstring(svg), set()
    for group in groups(root):
        name = group.findtext(SVG + "title")
        if name in seen:  # of two lines the first is the arrow
            continue
        seen.add(name)
        steps = [n for n, names in enumerate(parts) if name in names]
        if number in steps:
            for shape in [*group.iter(SVG + "path"), *group.iter(SVG + "polygon")]:
                shape.attrib.update(NOW)
        elif steps and min(steps) > number:
            for text in group.iter(SVG + "text"):
                if (text.text or "").strip().startswith(BACK):
                    text.set("visibility", "hidden")
    return ElementTree.tostring(root, encoding="unicode")


def middle_of(svg, names):
    """How far down, in points of the graph, the elements are."""
    found = [group for group in groups(ElementTree.fromstring(svg)) if called(group, names)]
    boxes = [box for group in found for each in group.iter() for box in boxes_of(each)]
    return (min(box.top for box in boxes) + max(box.bottom for box in boxes)) / 2


def called(group, names):
    return group.findtext(SVG + "title") in names


def groups(root):
    graph = graph_of(root)
    return [group for group in graph.iter(SVG + "g") if group.get("class") in ("node", "edge")]


def cut_at(cuts, say):
    """(SVG, formula and x, what is said) of each case; `cuts` is what a figure's script goes by.

    `say` gives words in the language of the slide.
    """
    drawn = tuple(map(say, DRAWN))
    for formula, x, cut in CASES:
        state = cuts["pictures"][formula][x]["states"][" ".join(cut)]
        yield (
            draw_cut(formula, float(x), cut, drawn).svg,
            f"{formula}, x = {x}",
            say(state["words"]),
        )
