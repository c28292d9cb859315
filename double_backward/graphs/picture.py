"""A graph as DOT text and as a finished SVG.

Written from our own walk rather than by torchviz, whose colours and arrows it keeps: torchviz
recurses, raises on a graph that was freed, shows a saved output twice and a tensor stored on ctx
never.
"""

import re
import textwrap
from collections.abc import Iterable, Iterator
from xml.sax.saxutils import escape

from double_backward.graphs.outline import (
    cut_off_words,
    kept_words,
    leaf_name,
    phase_name,
    sentences,
    shape,
)
from double_backward.graphs.sketch import Sketch, TensorBox
from double_backward.graphs.walk import Node

OPERATION = 'shape=box style="rounded,filled" fillcolor=lightgrey'
FUNCTION = 'shape=box style="rounded,filled,bold" fillcolor=white'
LEAF, KEPT, NAMED = "lightblue", "orange", "darkolivegreen1"
KEPT_LINE = "dir=none style=dashed color=orangered"
CONSTANT_LINE = "style=dotted"
BACK = "\N{UPWARDS ARROW} "  # before a number that a backward pass brought back
WRAP = 27  # characters in a line of a box
CAPTION = 60  # and in a line below the graph
PAGE = 800  # px: a wider picture is scaled down to what JupyterLab shows beside its file browser


def dot_text(sketch: Sketch, notes: Iterable[str] = ()) -> str:
    """The graph in the DOT language, with `notes` below it: the same text in every process."""
    return _Dot(sketch, [*sentences(sketch), *notes]).text()


def finish(svg: str, title: str, description: str) -> str:
    """Make the SVG of Graphviz fit a notebook and speak to a screen reader.

    Args:
        svg: as Graphviz wrote it.
        title: what the picture shows.
        description: the outline.

    Returns:
        The SVG: white background, at most `PAGE` pixels wide, with title and desc.
    """
    start = svg.index("<svg")
    head, body = svg[start : svg.index(">", start) + 1], svg[svg.index(">", start) + 1 :]
    size = re.search(r'width="([\d.]+)pt"\s+height="([\d.]+)pt"', head)
    if size:
        width, height = map(float, size.groups())
        scale = min(4 / 3, PAGE / width)  # Graphviz counts points, 4/3 of a pixel
        scaled = f'width="{width * scale:.0f}" height="{height * scale:.0f}"'
        head = head.replace(size[0], f'role="img" {scaled}')
    return f"{head}\n<title>{escape(title)}</title>\n<desc>{escape(description)}</desc>{body}"


_CELL = '<TD><TABLE CELLBORDER="0" CELLSPACING="0" {look}><TR><TD>{words}</TD></TR></TABLE></TD>'


class _Dot:
    """Collects the statements of one picture."""

    def __init__(self, sketch: Sketch, sentences: list[str]):
        self.sketch = sketch
        self.sentences = sentences
        self.ids: dict[Node | TensorBox, str] = {}
        self.clusters: dict[str | None, list[str]] = {}  # phase -> statements
        self.lines: list[str] = []

    def text(self) -> str:
        for node in self.sketch.shown:
            if node.leaf is None:
                self._operation(node)
        for box in self.sketch.boxes.values():
            self._tensor(box)
        for node in self.sketch.shown:
            if node.leaf is None:
                self._arrows(node)
        self._hang_cut_off()
        return "\n".join(["digraph {", *self._settings(), *self._grouped(), *self.lines, "}\n"])

    def _settings(self) -> Iterator[str]:
        yield "graph [fontname=monospace fontsize=10 labelloc=b nodesep=0.2 ranksep=0.3]"
        yield 'node [fontname=monospace fontsize=10 height=0.2 margin="0.1,0.05"]'
        yield "edge [fontname=monospace fontsize=9 arrowsize=0.7]"
        yield f"label=<{self._caption()}>"

    def _grouped(self) -> Iterator[str]:
        for number, (phase, statements) in enumerate(self.clusters.items()):
            if phase is None:
                yield from statements
                continue
            yield f"subgraph cluster_{number} {{"
            yield f"label={quoted(phase)} labelloc=b labeljust=l color=grey"
            yield from statements
            yield "}"

    def _id(self, thing: Node | TensorBox) -> str:
        return self.ids.setdefault(thing, f"n{len(self.ids)}")

    def _put(self, node: Node | None, thing: Node | TensorBox, attributes: str) -> None:
        phase = phase_name(self.sketch, node) if node and self.sketch.phase else None
        self.clusters.setdefault(phase, []).append(f"{self._id(thing)} [{attributes}]")

    def _operation(self, node: Node) -> None:
        look = FUNCTION if node.custom else OPERATION
        self._put(node, node, f"{look} label={quoted(self.sketch.title(node))}")

    def _tensor(self, box: TensorBox) -> None:
        self._put(_home(box), box, _look(self.sketch, box))

    def _arrows(self, node: Node) -> None:
        sketch, me = self.sketch, self._id(node)
        for number in range(sketch.outputs(node)):
            box = sketch.box(node, number)
            if box is not None:
                self.lines.append(f"{me} -> {self._id(box)}")
        for position, source in enumerate(node.inputs):
            if source is not None:
                box = sketch.box(*source)
                start = self._id(source[0] if box is None else box)
                sent = sketch.sent_back(node, position)
                label = "" if sent is None else f" [label={quoted(f' {BACK}{sent} ')}]"
                self.lines.append(f"{start} -> {me}{label}")
        for box in sketch.boxes.values():
            if any(keeper is node for keeper, _ in box.keepers):
                from_above = box.maker not in (node, None)
                ends = (self._id(box), me) if from_above else (me, self._id(box))
                self.lines.append(f"{' -> '.join(ends)} [{KEPT_LINE}]")
            if node in box.fed:
                self.lines.append(f"{self._id(box)} -> {me} [{CONSTANT_LINE}]")

    def _hang_cut_off(self) -> None:
        """Draw what is cut off below `out`, where the reader looks for it."""
        below = [box for box in self.sketch.boxes.values() if "out" in box.names]
        for box in self.sketch.boxes.values():
            if below and box.maker is None and set(box.names) & set(self.sketch.cut_off):
                self.lines.append(f"{self._id(below[0])} -> {self._id(box)} [style=invis]")

    def _caption(self) -> str:
        """The sentences and the legend, an HTML-like label below the graph."""
        lines = [f"<B>{escape(line)}</B>" for s in self.sentences for line in _wrapped(s, CAPTION)]
        cells = [_CELL.format(look=look, words=words) for words, look in self._legend()]
        rows = ["".join(cells[i : i + 3]) for i in range(0, len(cells), 3)]
        wide = [f'<TD COLSPAN="3">{line}</TD>' for line in (*lines, ", ".join(self._line_styles()))]
        rows = [*wide[:-1], *rows, wide[-1]]
        body = "".join(f"<TR>{row}</TR>" for row in rows)
        return f'<TABLE BORDER="0" CELLSPACING="2">{body}</TABLE>'

    def _legend(self) -> Iterator[tuple[str, str]]:
        """(words, look) of what this picture holds."""
        boxes, shown = self.sketch.boxes.values(), self.sketch.shown
        yield "operation", 'BGCOLOR="lightgrey" STYLE="rounded"'
        if any(node.custom for node in shown):
            yield "custom Function", 'STYLE="rounded" BORDER="2"'
        if any(box.leaf for box in boxes):
            yield "leaf", f'BGCOLOR="{LEAF}"'
        if any(_only_named(box) for box in boxes):
            yield "named in the call", f'BGCOLOR="{NAMED}"'
        if any(box.keepers for box in boxes):
            yield "kept for backward", f'BGCOLOR="{KEPT}"'
        if any(box.maker is None for box in boxes):
            yield "no graph", 'STYLE="dashed"'

    def _line_styles(self) -> Iterator[str]:
        boxes = self.sketch.boxes.values()
        yield "arrow: goes into"
        if any(box.keepers for box in boxes):
            yield "dashed line: kept by"
        if any(box.fed for box in boxes):
            yield "dotted: as a constant"
        if self.sketch.flow.arrived:
            yield f"{BACK}number: comes back"


def _home(box: TensorBox) -> Node | None:
    """The node in whose phase a tensor is drawn."""
    if box.maker is not None:
        return box.maker
    return box.keepers[0][0] if box.keepers else None


def _only_named(box: TensorBox) -> bool:
    return bool(box.names) and box.maker is not None and not box.keepers and not box.leaf


def _look(sketch: Sketch, box: TensorBox) -> str:
    """The DOT attributes of a tensor."""
    fill, style, border = KEPT if box.keepers else NAMED, "filled", ""
    if box.leaf:
        fill = LEAF
        if box.keepers:  # a leaf that is saved: a blue band beside the words, on orange
            fill, style, border = f"{LEAF};0.1:{KEPT}", "striped", 'margin="0.3,0.05" '
    if set(box.names) & set(sketch.cut_off):
        fill, border = "white", "color=red penwidth=2 "
    if box.maker is None:
        style += ",dashed"
    words = quoted("\n".join(_label(sketch, box)))
    return f'shape=box {border}style="{style}" fillcolor="{fill}" label={words}'


def _label(sketch: Sketch, box: TensorBox) -> list[str]:
    """The lines in the box of a tensor."""
    lines = [f"{_heading(sketch, box)} {shape(box.tensor)}".strip()]
    if box.leaf:
        lines.append("leaf (AccumulateGrad)" if box.names else "(AccumulateGrad)")
    number_back = sketch.came_back(box)
    if number_back is not None:
        lines.append(f"{BACK}{number_back}")
    for node, kept in box.keepers:
        role, rest = kept_words(sketch, box, node, kept)
        first, _, where = role.rpartition(", ")
        title = sketch.title(node)
        lines += _wrapped(f"{first} of {title}, {where}" if first else f"{where} by {title}")
        lines += _wrapped(rest)
    for name in box.names:
        if name in sketch.cut_off:
            lines += _wrapped(cut_off_words(sketch, name).removeprefix(f"{name} is "))
    return lines


def _heading(sketch: Sketch, box: TensorBox) -> str:
    """The reader's names, else what a leaf is called, else the name on ctx where there is one."""
    if box.names:
        return box.called
    if box.leaf:
        return leaf_name(sketch, box.leaf)
    return box.keepers[0][1].name


def _wrapped(words: str, width: int = WRAP) -> list[str]:
    kept_together = words.replace(" #", "\0#").replace("on ctx as ", "on\0ctx\0as\0")
    lines = textwrap.wrap(kept_together, width, break_long_words=False, break_on_hyphens=False)
    return [line.replace("\0", " ") for line in lines]


def quoted(text: str) -> str:
    """A DOT string."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
