"""A graph for a slide: in as many parts as it takes to read it from the last row, with a map.

All parts of a graph have one scale. A part ends where no box and no word is cut; lines go on in the
next one. The map is the whole graph without words, with a frame around the part. What the picture
says in sentences is the slide's own text, and the legend is left to the lesson.
"""

import math
import re
from typing import NamedTuple
from xml.etree import ElementTree

LETTERS = 13  # px: how high the smallest letters are at least, of a slide 720 high
LARGER = 2  # times that, at most, where there is room
WIDTH, APART = 1264, 40  # px, of a slide of 1280; between two graphs
MAP = 210, 560  # px at most; one of less than `NARROW` shows nothing
NARROW = 90
MARGIN = 8  # points around the graph
SVG = "{http://www.w3.org/2000/svg}"
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


class Box(NamedTuple):
    """A rectangle in points; y goes down."""

    left: float
    top: float
    right: float
    bottom: float

    @property
    def width(self):
        return self.right - self.left

    @property
    def height(self):
        return self.bottom - self.top


def is_graph(svg):
    return 'class="graph"' in svg


def sentences(svg):
    """(verdict, its colour, what else the picture says), texts; "" where there is none."""
    root = ElementTree.fromstring(svg)
    lines = root.findtext(SVG + "desc", "").splitlines()
    graph = graph_of(root)
    top = graph.find(SVG + "text")
    verdict, colour = ("", "") if top is None else (lines[1], top.get("fill"))
    last = max((n for n, line in enumerate(lines) if line.startswith(" ")), default=len(lines))
    return verdict, colour, lines[last + 1 :] or below(graph)


def below(graph):
    """What stands below it in bold and in no line of its own of the words for it: one sentence."""
    groups = graph.findall(SVG + "g")
    texts = [text for group in groups for text in group.iter(SVG + "text")]
    bold = [text.text.split() for text in texts if text.get("font-weight") == "bold"]
    return [" ".join(sum(bold, []))] if bold else []


def close_ups(svg, height):
    """List of (SVG of a part, SVG of the map or None); one part without a map if all fits.

    `height` is what a part may have, in pixels.
    """
    graph, all_of_it = read(svg)
    boxes = list(all_boxes(graph))
    parts = [seen(boxes, *cut) for cut in cuts_of(graph, all_of_it, height)]
    scale = min(
        LARGER * least_scale(graph),
        height / max(part.height for part in parts),
        WIDTH / max(part.width for part in parts),
    )
    return [(picture(graph, part, scale), chart(graph, all_of_it, part, scale)) for part in parts]


def place_of(svg, height, y):
    """Which of the close-ups has what lies so far down."""
    cuts = cuts_of(*read(svg), height)
    return next(n for n, (_, bottom) in enumerate(cuts) if y <= bottom)


def overview(svg, height):
    """SVG of all of it, as large as there is room for."""
    graph, box = read(svg)
    return picture(graph, box, min(height / box.height, WIDTH / box.width))


def whole(svgs, height):
    """SVGs of all of each graph, for one slide, at one scale; [] where they cannot be read so."""
    graphs, boxes = zip(*map(read, svgs), strict=True)
    scale = min(
        LARGER * max(map(least_scale, graphs)),
        height / max(box.height for box in boxes),
        (WIDTH - APART * (len(boxes) - 1)) / sum(box.width for box in boxes),
    )
    if scale < max(map(least_scale, graphs)):
        return []
    return [picture(graph, box, scale) for graph, box in zip(graphs, boxes, strict=True)]


def read(svg):
    """The bare graph of an SVG, and the box of all of it."""
    graph = bare(graph_of(ElementTree.fromstring(svg)))
    return graph, with_margin(around(list(all_boxes(graph))))


def cuts_of(graph, box, height):
    """(top, bottom) of each close-up."""
    return split(box, solid(graph), frames(graph), height / least_scale(graph))


def all_boxes(graph):
    return (box for element in graph.iter() for box in boxes_of(element))


def least_scale(graph):
    return LETTERS / min(float(text.get("font-size")) for text in graph.iter(SVG + "text"))


def with_margin(box):
    return Box(box.left - MARGIN, box.top - MARGIN, box.right + MARGIN, box.bottom + MARGIN)


def seen(boxes, top, bottom):
    """What there is between two heights."""
    there = around([box for box in boxes if box.top < bottom and box.bottom > top])
    return Box(there.left - MARGIN, top, there.right + MARGIN, bottom)


def graph_of(root):
    return next(each for each in root.iter(SVG + "g") if each.get("class", "")[:5] == "graph")


def bare(graph):
    """Boxes, lines and frames, in their own coordinates; the smallest letters as most are."""
    graph.attrib.pop("transform", None)
    graph.remove(graph.find(SVG + "polygon"))  # the ground
    for text in graph.findall(SVG + "text"):
        graph.remove(text)
    for group in graph.findall(SVG + "g"):
        if group.findtext(SVG + "title") == "cluster":  # the sentences and the legend
            graph.remove(group)
    for text in graph.iter(SVG + "text"):
        text.set("font-size", str(max(10, float(text.get("font-size")))))
    return graph


def boxes_of(element):
    """What it covers: a shape, a word, each piece of a curve."""
    if element.tag == SVG + "text":
        x, y, size = (float(element.get(name)) for name in ("x", "y", "font-size"))
        wide = 0.62 * size * len(element.text)
        left = x - wide * {"middle": 0.5, "end": 1}.get(element.get("text-anchor"), 0)
        yield Box(left, y - size, left + wide, y + 0.3 * size)
    if element.tag in (SVG + "polygon", SVG + "path"):
        numbers = [float(n) for n in NUMBER.findall(element.get("points") or element.get("d"))]
        points = list(zip(numbers[::2], numbers[1::2], strict=True))
        pieces = [points] if element.tag == SVG + "polygon" else curves(points)
        for piece in pieces:
            xs, ys = zip(*piece, strict=True)
            yield Box(min(xs), min(ys), max(xs), max(ys))


def curves(points):
    """A path by Graphviz: a point, then three for each Bézier curve."""
    return [points[start : start + 4] for start in range(0, max(len(points) - 1, 1), 3)]


def around(boxes):
    lefts, tops, rights, bottoms = zip(*boxes, strict=True)
    return Box(min(lefts), min(tops), max(rights), max(bottoms))


def solid(graph):
    """What is never cut: words, boxes and arrowheads."""
    found = [box for text in graph.iter(SVG + "text") for box in boxes_of(text)]
    for group in graph.iter(SVG + "g"):
        tags = {"node": ("polygon", "path"), "edge": ("polygon",)}.get(group.get("class"), ())
        found += [b for child in group if child.tag[len(SVG) :] in tags for b in boxes_of(child)]
    return found


def frames(graph):
    clusters = [group for group in graph.iter(SVG + "g") if group.get("class") == "cluster"]
    return [box for group in clusters for box in boxes_of(group.find(SVG + "polygon"))]


def split(whole, solid, frames, room):
    """[(top, bottom)] of as few parts as do: between frames, else of about the same height."""
    if whole.height <= room:
        return [(whole.top, whole.bottom)]
    free = gaps(solid)
    fewest = len(greedy(whole, free, room))
    apart = greedy(whole, gaps(frames), room)
    if len(apart) == fewest and all(bottom - top < room for top, bottom in apart):
        return apart
    limits = range(math.ceil(whole.height / fewest), math.ceil(room))
    each = (greedy(whole, free, limit) for limit in limits)
    return next((parts for parts in each if len(parts) == fewest), greedy(whole, free, room))


def gaps(boxes):
    """The heights at which none of the boxes is cut."""
    edges = sorted({box.bottom + 2 for box in boxes})
    return [y for y in edges if not any(box.top < y < box.bottom for box in boxes)]


def greedy(whole, free, room):
    parts, top = [], whole.top
    while whole.bottom - top > room:
        bottom = max((y for y in free if top < y <= top + room), default=top + room)
        parts.append((top, bottom))
        top = bottom
    return [*parts, (top, whole.bottom)]


def chart(graph, whole, part, scale):
    """The whole without words beside the part, with a frame around it; None where no room is."""
    free = WIDTH - 50 - part.width * scale
    if part.height >= whole.height or free < NARROW:
        return None
    small = min(MAP[0] / whole.width, MAP[1] / whole.height, free / whole.width)
    frame = {"x": part.left, "y": part.top, "width": part.width, "height": part.height}
    look = {"fill": "none", "stroke": "#0b57a4", "stroke-width": "8"}
    shapes = wordless(graph)
    ElementTree.SubElement(shapes, SVG + "rect", {n: f"{v:.1f}" for n, v in frame.items()} | look)
    return picture(shapes, whole, small)


def wordless(graph):
    shapes = ElementTree.fromstring(ElementTree.tostring(graph))
    for group in shapes.iter(SVG + "g"):
        for text in group.findall(SVG + "text"):
            group.remove(text)
    return shapes


def picture(graph, box, scale):
    """An SVG of its own that shows `box`."""
    size = f'width="{box.width * scale:.0f}" height="{box.height * scale:.0f}"'
    view = f'viewBox="{box.left:.1f} {box.top:.1f} {box.width:.1f} {box.height:.1f}"'
    inner = ElementTree.tostring(graph, encoding="unicode")
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {view}>{inner}</svg>'


ElementTree.register_namespace("", SVG[1:-1])
