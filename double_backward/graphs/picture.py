"""A graph as DOT text and as a finished SVG.

Red is what is wrong, and nothing else is red. The text is written from `walk`, and not by torchviz,
whose colours and arrows it uses: torchviz recurses, raises on a graph that was freed, shows a saved
output twice, and never shows a tensor stored on ctx.
"""

import re
import textwrap
from collections.abc import Iterable, Iterator
from xml.sax.saxutils import escape, unescape

from double_backward.graphs.flow import number_words
from double_backward.graphs.outline import (
    NO_PATH,
    OPEN_PART,
    RIGHT_PART,
    WRONG_PART,
    Colour,
    cut_off_words,
    is_circle,
    joined,
    lacks_words,
    leaf_name,
    pass_name,
    reference,
    sentences,
    shape,
    verdict,
)
from double_backward.graphs.sketch import Sketch, TensorBox
from double_backward.graphs.walk import INTERMEDIATE, OUTPUT, Kept, Node
from double_backward.graphs.words import in_words_of

OPERATION = 'shape=box style="rounded,filled" fillcolor=lightgrey'
FUNCTION = 'shape=box style="rounded,filled,bold" fillcolor=white'
GUARD = 'shape=box style="filled,bold" peripheries=2 fillcolor=white'
LEAF, KEPT, NAMED = "lightblue", "orange", "darkolivegreen1"
KEPT_LINE = "dir=none style=dotted color=grey40 penwidth=1.5"
CIRCLE_LINE = "penwidth=2"
MISSING_LINE = "style=dashed color=red3 penwidth=2 fontcolor=red3"
COLOURS: dict[Colour, str] = {RIGHT_PART: "darkgreen", WRONG_PART: "red3", OPEN_PART: "black"}
LETTERS = 11  # points, each at least a pixel: the smallest size of letters
BACK = "\N{UPWARDS ARROW} "  # before a number that a backward pass brought back
WRAP = 22  # characters in a line of a box
CAPTION = 31  # characters in a line above or below the graph, for which a phone has room
A_ROW = 2  # entries in a row of the legend
PAGE = 800  # px: a wider picture is scaled down to what JupyterLab shows beside its file browser
PANE = 600  # px: a higher one is scaled down to a laptop's screen, if it can still be read

# For a dark page: black becomes white, white a dark grey, and all other colours stay.
DARK = "filter: invert(0.95) hue-rotate(180deg)"
STYLE = f"""
.graph-picture {{ overflow-x: auto; }}
:is([data-jp-theme-light="false"], [data-theme="dark"]) .graph-picture svg {{ {DARK}; }}
@media print {{ .graph-picture svg {{ filter: none !important; }} }}
"""


def dot_text(sketch: Sketch, notes: Iterable[str] = (), legend: bool = True) -> str:
    """The graph in the DOT language, with `notes` below it; the text is the same in every
    process."""
    return _Dot(sketch, [*sentences(sketch), *notes], legend).text()


def pass_steps(sketch: Sketch) -> list[tuple[str, list[str]]]:
    """A recorded backward pass, operation by operation in the order in which they ran.

    Returns:
        list of (a sentence about what the operation gets and sends, the titles of its elements in
        the SVG).
    """
    dot = _Dot(sketch, [], False)
    dot.text()
    nodes = {node.fn: node for node in sketch.shown if node.leaf is None}
    start = sketch.box_of(next(iter(sketch.tensors.values())))
    began = f"The pass starts at {start.called} with {sketch.came_back(start)}."
    steps = [(began, [dot.ids[start]])]
    for fn in dict.fromkeys(fn for fn, _ in sketch.flow.arrived if fn in nodes):
        node = nodes[fn]
        sent, seen = [], [dot.ids[node]]
        for position, source in enumerate(node.inputs):
            number = sketch.sent_back(node, position)
            if source is not None and number is not None:
                box = sketch.box(*source)
                above = dot.ids[source[0] if box is None else box]
                sent.append(f"{number} to {reference(sketch, source)}")
                seen += [f"{above}->{dot.ids[node]}", above]
        if sent:
            steps.append((f"{_got(sketch, node)} sends {joined(sent)}.", seen))
    return steps


def _got(sketch: Sketch, node: Node) -> str:
    """The words "Sinh", or "Sinh gets 1 for out and 0 for expx, and" if it has several outputs."""
    many = sketch.outputs(node)
    if many == 1:
        return sketch.title(node)
    got = [
        f"{number_words(sketch.flow.arrived.get((node.fn, number)))} for "
        f"{reference(sketch, (node, number))}"
        for number in range(many)
    ]
    return f"{sketch.title(node)} gets {joined(got)}, and"


def finish(svg: str, title: str, description: str) -> str:
    """Make the SVG of Graphviz fit into a notebook, and give it texts for a screen reader.

    Args:
        svg: as Graphviz wrote it.
        title: what the picture shows.
        description: the outline.

    Returns:
        The SVG: white background, with title and desc, at most `PAGE` pixels wide, and at most
        `PANE` high unless it is large.
    """
    start = svg.index("<svg")
    head, body = svg[start : svg.index(">", start) + 1], svg[svg.index(">", start) + 1 :]
    size = re.search(r'width="([\d.]+)pt"\s+height="([\d.]+)pt"', head)
    if size:
        width, height = map(float, size.groups())
        # Graphviz counts points, 4/3 of a pixel. Below 1, words are too small to be read.
        scale = min(4 / 3, PAGE / width, max(1.0, PANE / height))
        scaled = f'width="{width * scale:.0f}" height="{height * scale:.0f}"'
        head = head.replace(size[0], f'role="img" {scaled}')
    return f"{head}\n<title>{escape(title)}</title>\n<desc>{escape(description)}</desc>{body}"


def named(svg: str, into: str | None = None) -> str:
    """A finished SVG with its own title and description in a language, None: the reader's."""
    start = svg.index("<g ")
    head = re.sub(
        "(?<=<title>)[^<]*|(?<=<desc>)[^<]*",
        lambda words: escape(in_words_of(unescape(words[0]), into)),
        svg[:start],
    )
    return head + svg[start:]


def inline(svg: str) -> str:
    """A finished SVG as HTML for a light or dark page: a picture with a name and a description, and
    without ids, which another picture would have, too. JupyterLab would give no name to an SVG that
    is an image."""
    start = svg.index("<g ")  # behind the picture's own title and desc
    title = re.search("<title>(.*?)</title>", svg[:start])
    head = svg[:start].replace('role="img"', f'role="img" aria-label="{title[1] if title else ""}"')
    body = re.sub(r"<!--.*?-->\n?|\s*<title>[^<]*</title>| id=\"[^\"]*\"", "", svg[start:])
    return f'<div class="graph-picture">{head}{body}<style>{STYLE}</style></div>'


_CELL = '<TD><TABLE CELLBORDER="0" CELLSPACING="0" {look}><TR><TD>{words}</TD></TR></TABLE></TD>'


class _Dot:
    """Collects the statements of one picture."""

    def __init__(self, sketch: Sketch, sentences: list[str], legend: bool):
        self.sketch = sketch
        self.sentences = sentences
        self.legend = legend
        self.ids: dict[Node | TensorBox, str] = {}
        self.clusters: dict[str | None, list[str]] = {}  # phase -> statements
        self.lines: list[str] = []

    def text(self) -> str:
        for node in self.sketch.shown:
            if node.leaf is None:
                self._operation(node)
        for box in self.sketch.boxes.values():
            self._put(box, _look(self.sketch, box))
        for node in self.sketch.shown:
            if node.leaf is None:
                self._arrows(node)
        self._missing()
        self._hang_cut_off()
        # There are words above the graph and below it; as a graph has one label, there are two.
        return "\n".join(
            [
                "digraph {",
                *self._settings(),
                "subgraph cluster {",
                f"label=<{self._caption()}> labelloc=b peripheries=0",
                *self._grouped(),
                *self.lines,
                "}",
                "}\n",
            ]
        )

    def _settings(self) -> Iterator[str]:
        font = f"fontname=monospace fontsize={LETTERS}"
        yield f"graph [{font} labelloc=t nodesep=0.15 ranksep=0.22]"
        yield f'node [{font} height=0.2 margin="0.07,0.05"]'
        yield f"edge [{font} arrowsize=0.7]"
        words, colour = verdict(self.sketch)
        if words:
            yield f"label={sentence(_wrapped(words, CAPTION), colour)}"

    def _grouped(self) -> Iterator[str]:
        for number, (phase, statements) in enumerate(self.clusters.items()):
            if phase is None:
                yield from statements
                continue
            yield f"subgraph cluster_{number} {{"
            yield f"label={quoted(phase)} labelloc=b labeljust=l color=grey peripheries=1"
            yield from statements
            yield "}"

    def _id(self, thing: Node | TensorBox) -> str:
        return self.ids.setdefault(thing, f"n{len(self.ids)}")

    def _put(self, thing: Node | TensorBox, attributes: str) -> None:
        phase = pass_name(self.sketch, thing)
        self.clusters.setdefault(phase, []).append(f"{self._id(thing)} [{attributes}]")

    def _operation(self, node: Node) -> None:
        look, words = FUNCTION if node.custom else OPERATION, self.sketch.title(node)
        if node in self.sketch.guards():
            look, words = GUARD, f"{words}\nguard of\nonce_differentiable"
        self._put(node, f"{look} label={quoted(words)}")

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
            if any(keeper is node and is_circle(node, kept) for keeper, kept in box.keepers):
                self.lines += [
                    f'{me} -> {self._id(box)} [{CIRCLE_LINE} label=" holds "]',
                    f'{self._id(box)} -> {me} [{CIRCLE_LINE} constraint=false label=" holds "]',
                ]
            elif self._is_only_kept(box, node):
                from_above = box.maker not in (node, None)
                ends = (self._id(box), me) if from_above else (me, self._id(box))
                self.lines.append(f"{' -> '.join(ends)} [{KEPT_LINE}]")
            if node in box.fed:
                self.lines.append(f"{self._id(box)} -> {me}")

    def _is_only_kept(self, box: TensorBox, node: Node) -> bool:
        """Whether no arrow joins it and the node that keeps it: a line would lie on that."""
        sources = [self.sketch.box(*source) for source in node.inputs if source is not None]
        joined = box.maker is node or node in box.fed or any(box is source for source in sources)
        return not joined and any(keeper is node for keeper, _ in box.keepers)

    def _missing(self) -> None:
        """Draw the paths that should be there, with words once at each end."""
        said = set()
        for missing in self.sketch.findings.missing:
            if isinstance(missing.kept, str) or missing.to is missing.keeper:
                continue  # inside a backward, which is not drawn
            end = missing.to or self.sketch.box_of(self.sketch.tensors[missing.gradient])
            start = self.sketch.box_of(missing.kept.tensor)
            words = [*([] if end in said else _wrapped(NO_PATH, 10)), lacks_words(missing)]
            said.add(end)
            label = quoted("\n".join(f" {line} " for line in words if line))
            look = f"{MISSING_LINE} label={label}" if any(words) else MISSING_LINE
            self.lines.append(f"{self._id(start)} -> {self._id(end)} [{look}]")

    def _hang_cut_off(self) -> None:
        """Draw what is cut off below `out`, where the reader looks for it."""
        below = [box for box in self.sketch.boxes.values() if "out" in box.names]
        for box in self.sketch.boxes.values():
            if below and box.maker is None and set(box.names) & set(self.sketch.cut_off):
                self.lines.append(f"{self._id(below[0])} -> {self._id(box)} [style=invis]")

    def _caption(self) -> str:
        """The sentences and the legend, an HTML-like label below the graph."""
        lines = [f"<B>{escape(line)}</B>" for s in self.sentences for line in _wrapped(s, CAPTION)]
        if self.legend:
            cells = [_CELL.format(look=look, words=words) for words, look in self._legend()]
            looks = ["".join(cells[i : i + A_ROW]) for i in range(0, len(cells), A_ROW)]
            styles = _wrapped(", ".join(self._line_styles()), CAPTION)
        else:
            looks, styles = [], []
        rows = [whole_row(line) for line in lines] + looks + [whole_row(line) for line in styles]
        body = "".join(f"<TR>{row}</TR>" for row in rows)
        return f'<TABLE BORDER="0" CELLSPACING="2">{body}</TABLE>' if rows else ""

    def _legend(self) -> Iterator[tuple[str, str]]:
        """(words, look) for each kind of element in this picture."""
        boxes, shown = self.sketch.boxes.values(), self.sketch.shown
        yield "operation", 'BGCOLOR="lightgrey" STYLE="rounded"'
        if any(node.custom for node in shown):
            yield "custom Function", 'STYLE="rounded" BORDER="2"'
        if any(box.leaf for box in boxes):
            yield "leaf", f'BGCOLOR="{LEAF}"'
        if any(box.keepers for box in boxes):
            yield "kept for backward", f'BGCOLOR="{KEPT}"'
        if any(box.maker is None for box in boxes):
            yield "no graph", 'STYLE="dashed"'

    def _line_styles(self) -> Iterator[str]:
        boxes, shown = self.sketch.boxes.values(), self.sketch.shown
        yield "arrow: goes into"
        if any(self._is_only_kept(box, node) for box in boxes for node in shown):
            yield "dotted line: kept by"
        if self.sketch.findings.missing:
            yield "red: should be there"
        if self.sketch.flow.arrived:
            yield f"{BACK}number: comes back"


def whole_row(line: str) -> str:
    return f'<TD COLSPAN="{A_ROW}">{line}</TD>'


def sentence(lines: list[str], colour: Colour) -> str:
    """The DOT label for a sentence above or below a picture."""
    words = "<BR/>".join(map(escape, lines))
    return f'<<FONT COLOR="{COLOURS[colour]}" POINT-SIZE="12"><B>{words}</B></FONT>>'


def _look(sketch: Sketch, box: TensorBox) -> str:
    """The DOT attributes of a tensor."""
    fill = KEPT if box.keepers else LEAF if box.leaf else NAMED  # as torchviz, whose orange wins
    style, border = "filled", ""
    if set(box.names) & set(sketch.cut_off):
        fill, border = "white", "color=red3 penwidth=2 "
    if box.maker is None:
        style += ",dashed"
    words = quoted("\n".join(_label(sketch, box)))
    return f'shape=box {border}style="{style}" fillcolor="{fill}" label={words}'


def _label(sketch: Sketch, box: TensorBox) -> list[str]:
    """The lines in the box of a tensor."""
    heading = _heading(sketch, box)
    lines = [f"{heading} {shape(box.tensor)}".strip()]
    roles = [_role(sketch, node, kept, heading) for node, kept in box.keepers]
    if box.leaf and box.names:
        roles[:1] = [", ".join(["leaf", *roles[:1]])]
    if box.keepers and box.maker is None:
        roles.append("no graph leads on")
    for role in roles:
        lines += _wrapped(role)
    number_back = sketch.came_back(box)
    if number_back is not None:
        lines.append(f"{BACK}{number_back}")
    for name in box.names:
        if name in sketch.cut_off:
            lines += _wrapped(cut_off_words(sketch, name).removeprefix(f"{name} is "))
    return lines


def _role(sketch: Sketch, node: Node, kept: Kept, heading: str) -> str:
    """The role of a kept tensor: "saved by Square", "output, saved by Exp", "intermediate, on ctx
    of SinhBad"."""
    what = f"{kept.role}, " if kept.role in (OUTPUT, INTERMEDIATE) else ""
    if not kept.on_ctx:
        return f"{what}saved by {sketch.title(node)}"
    other_name = "" if kept.name == heading else f" as {kept.name}"
    return f"{what}on ctx of {sketch.title(node)}{other_name}"


def _heading(sketch: Sketch, box: TensorBox) -> str:
    """The reader's names, or the name of a leaf, or that of an attribute of ctx, if there is
    one."""
    if box.names:
        return box.called
    if box.leaf:
        return leaf_name(sketch, box.leaf)
    return box.keepers[0][1].name


def _wrapped(words: str, width: int = WRAP) -> list[str]:
    kept_together = words.replace(" #", "\0#").replace("on ctx of ", "on\0ctx\0of\0")
    lines = textwrap.wrap(kept_together, width, break_long_words=False, break_on_hyphens=False)
    return [line.replace("\0", " ") for line in lines]


def quoted(text: str) -> str:
    """A DOT string."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
