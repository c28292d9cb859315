"""A graph as DOT text and as a finished SVG.

Written from our own walk rather than by torchviz, whose colours and arrows it keeps: torchviz recurses,
raises on a graph that was freed, shows a saved output twice and a tensor stored on ctx never.
"""

import re
from xml.sax.saxutils import escape

from lessons_src.graph_outline import kept_words, phase_name, shape

OPERATION = 'shape=box style="rounded,filled" fillcolor=lightgrey'
FUNCTION = 'shape=box style="rounded,filled,bold" fillcolor=white'
LEAF, KEPT, RESULT, PLAIN = "lightblue", "orange", "darkolivegreen1", "white"
PAGE = 900  # px: a wider picture is scaled down to the page of a notebook


def dot_text(sketch):
    """The graph in the DOT language.

    Args:
        sketch: `graph_sketch.Sketch`.

    Returns:
        str, the same in every process.
    """
    return _Dot(sketch).text()


def finish(svg, title, description):
    """Make the SVG of Graphviz fit a notebook and speak to a screen reader.

    Args:
        svg: str, as Graphviz wrote it.
        title: str, what the picture shows.
        description: str, the outline.

    Returns:
        str: white background, at most `PAGE` pixels wide, with title and desc.
    """
    start = svg.index("<svg")
    head, body = svg[start : svg.index(">", start) + 1], svg[svg.index(">", start) + 1 :]
    width, height = (
        float(x) for x in re.search(r'width="(\S+)pt"\s+height="(\S+)pt"', head).groups()
    )
    scale = min(4 / 3, PAGE / width)  # Graphviz counts points, 4/3 of a pixel
    head = re.sub(
        r'width="\S+"\s+height="\S+"',
        f'role="img" width="{width * scale:.0f}" height="{height * scale:.0f}"',
        head,
    )
    return f"{head}\n<title>{escape(title)}</title>\n<desc>{escape(description)}</desc>{body}"


class _Dot:
    """Collects the statements of one picture."""

    def __init__(self, sketch):
        self.sketch = sketch
        self.ids = {}
        self.clusters = {}  # phase -> statements
        self.lines = []

    def text(self):
        for node in self.sketch.shown:
            if node.leaf is None:
                self._operation(node)
        for box in self.sketch.boxes.values():
            self._tensor(box)
        for node in self.sketch.shown:
            if node.leaf is None:
                self._arrows(node)
        return "\n".join(["digraph {", *self._settings(), *self._grouped(), *self.lines, "}\n"])

    def _settings(self):
        yield "graph [fontname=monospace fontsize=10 labelloc=b nodesep=0.2 ranksep=0.3]"
        yield 'node [fontname=monospace fontsize=10 height=0.2 margin="0.1,0.05"]'
        yield "edge [fontname=monospace fontsize=9 arrowsize=0.7]"
        yield f"label=<{self._legend()}>"

    def _grouped(self):
        for number, (phase, statements) in enumerate(self.clusters.items()):
            if phase is None:
                yield from statements
                continue
            yield f"subgraph cluster_{number} {{"
            yield f"label={quoted(phase)} labelloc=t labeljust=l color=grey"
            yield from statements
            yield "}"

    def _id(self, thing):
        return self.ids.setdefault(thing, f"n{len(self.ids)}")

    def _put(self, node, thing, attributes):
        phase = phase_name(self.sketch, node) if node and self.sketch.phase else None
        self.clusters.setdefault(phase, []).append(f"{self._id(thing)} [{attributes}]")

    def _operation(self, node):
        look = FUNCTION if node.custom else OPERATION
        self._put(node, node, f"{look} label={quoted(self.sketch.title(node))}")

    def _tensor(self, box):
        self._put(_home(box), box, _look(self.sketch, box))

    def _arrows(self, node):
        sketch, me = self.sketch, self._id(node)
        for number in range(sketch.outputs(node)):
            box = sketch.box(node, number)
            if box is not None:
                self.lines.append(f"{me} -> {self._id(box)}")
        for source in node.inputs:
            if source is not None:
                box = sketch.box(*source)
                start = self._id(source[0] if box is None else box)
                self.lines.append(f"{start} -> {me}")
        for box in sketch.boxes.values():
            if any(keeper is node for keeper, _ in box.keepers):
                self.lines.append(
                    f"{self._id(box)} -> {me} [dir=none style=dashed color=orangered]"
                )
            if node in box.fed:
                self.lines.append(f"{self._id(box)} -> {me} [style=dotted label=constant]")

    def _legend(self):
        return "legend"


def _home(box):
    """The node in whose phase a tensor is drawn."""
    if box.maker is not None:
        return box.maker
    return box.keepers[0][0] if box.keepers else None


def _look(sketch, box):
    """The DOT attributes of a tensor."""
    cut = [name for name in box.names if name in sketch.cut_off]
    names = box.names or [kept.name for _, kept in box.keepers if kept.name][:1]
    leaf = box.maker is not None and box.maker.leaf is not None
    words = [" ".join([*names[:1], shape(box.tensor)])]
    if leaf:
        words.append("a leaf")
    for node, kept in box.keepers:
        words.append(kept_words(sketch, node, kept))
    colours = [
        c for c, wanted in ((LEAF, leaf), (KEPT, box.keepers), (RESULT, box.names)) if wanted
    ]
    fill = ":".join(colours[:2])
    style = "striped" if len(colours) > 1 else "filled"
    if box.maker is None:
        style += ",dashed"
    return f"shape=box style={quoted(style)} fillcolor={quoted(fill)} label={quoted(chr(10).join(words))}"


def quoted(text):
    """A DOT string."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
