"""A lesson as slides: one HTML file that asks nobody on the network for anything.

A slide is one thought: a question, code with what it printed, a picture, an answer. What a
prediction asks for comes on the next key, its answer on the one after. A graph that is too large to
be read from the last row comes in parts.
"""

import base64
import copy
import html
import math
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from unicodedata import east_asian_width

from nbconvert import SlidesExporter
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output
from traitlets.config import Config

from lessons_src.stepper import STEPS, taken_apart

from .close_ups import close_ups, is_graph, sentences
from .folds import ANSWER
from .languages import WORDS
from .teaching import sections

SVG = "image/svg+xml"
TEMPLATES = Path(__file__).resolve().parent / "templates"
# Of a slide of 1600 by 900: how much a line takes, and how many letters fit into one. Text is 3.3 %
# of the height, code 3 %, output 2.5 %: as many as can be read from the last row.
HEIGHT = 830
TEXT, CODE, OUTPUT = (41, 92), (34, 92), (28, 112)
ROWS = 7  # of a table on one slide
FEW = 350  # px: of words that can be larger
NEW = ("slide", "subslide")
UNREAD = re.compile(r"\]\([^)]*\)|<(aside|p) .*?</\1>", re.DOTALL)  # addresses, notes, minutes
NOT_PLAIN = re.compile(r"^\||^```|\$\$", re.MULTILINE)  # tables, code and formulas
FRAME = ("lang", "map")  # what the template asks for
HEADING = re.compile(r"^(?=##? )", re.MULTILINE)
QUESTION = re.compile(r"^(?=> \*\*(?:Predict|先猜一猜))", re.MULTILINE)
DETAILS = re.compile(r"<details>\s*<summary>(.*?)</summary>(.*?)</details>", re.DOTALL)
TABLE = re.compile(r"(?:^\|.*\|\n?)+", re.MULTILINE)


def slides(notebook, language=""):
    notebook = copy.deepcopy(notebook)
    notes = sections(int(re.match(r"# (\d)", notebook.cells[0].source)[1]), language)
    notebook.cells = list(placed(pieces(notebook, language), notes, language))
    mark_few_words(notebook.cells)
    config = Config()
    config.NbConvertBase.display_data_priority = ["image/svg+xml", "text/html", "text/plain"]
    exporter = SlidesExporter(
        config=config,
        template_name="slides",
        extra_template_basedirs=[str(TEMPLATES)],
        filters={"words": partial(words, language=language), "data_address": data_address},
        exclude_anchor_links=True,
        exclude_input_prompt=True,
        exclude_output_prompt=True,
    )
    resources = {"title": title(notebook), **{name: WORDS[language][name] for name in FRAME}}
    return exporter.from_notebook_node(notebook, resources)[0]


def title(notebook):
    return notebook.cells[0].source.splitlines()[0].lstrip("# ")


def words(output, language=""):
    """What stands for a picture where it is not seen."""
    text = output.data.get("text/plain", "<").strip()
    # A library's own picture: its repr says nothing, and the rules ask for words below it.
    return WORDS[language]["a graph"] if text.startswith("<") else text


def data_address(svg):
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


# Into pieces, each of one kind.


def pieces(notebook, language="") -> Iterator:
    """Cells of one kind each, text, question, answer, code, output or picture: `metadata.kind`."""
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            yield from text_pieces(cell.source)
        else:
            yield piece(new_code_cell(cell.source), "code")
            asked = "expected" in cell.metadata
            for output in cell.outputs:
                if SVG in output.get("data", {}):
                    yield from picture_pieces(output, language)
                else:
                    yield piece(new_code_cell(outputs=[output]), "output", asked=asked)


def piece(cell, kind, **metadata):
    cell.metadata.update(kind=kind, **metadata)
    return cell


def picture_pieces(output, language=""):
    """A plot as it is; a graph in parts, below what it says; several graphs one after another."""
    if not is_graph(output.data[SVG]):
        yield piece(new_code_cell(outputs=[output]), "picture")
        return
    steps, say = output.data.get(STEPS, {}), WORDS[language]
    graphs = taken_apart(output.data[SVG])
    titles = steps.get("titles") or [""] * len(graphs)
    passes = steps.get("steps") or [[] for _ in graphs]
    for title, svg, way in zip(titles, graphs, passes, strict=True):
        verdict, colour, more = sentences(svg)
        said = " · ".join(filter(None, [title, verdict, *more]))
        parts = close_ups(svg, HEIGHT - height(said, TEXT))
        for number, (part, chart) in enumerate(parts, 1):
            where = say["part"].format(number, len(parts)) if len(parts) > 1 else ""
            told = words(output) if number == 1 else say["part of"].format(where, said)
            shown = new_output("display_data", {SVG: part, "text/plain": told})
            judged = {"": "", "black": "", "darkgreen": "right"}.get(colour, "wrong")
            shown.metadata = {"title": title, "verdict": verdict, "judged": judged, "more": more}
            shown.metadata |= {"where": where, "chart": chart, "notes": [words for words, _ in way]}
            yield piece(new_code_cell(outputs=[shown]), "picture")


def text_pieces(source):
    source = re.sub(r"\]\((\d_\w+)\.ipynb\)", r"](\1.html)", source)  # the next lesson is a page
    answers = ANSWER.findall(source)
    for number, part in enumerate(ANSWER.split(source)):
        for section in HEADING.split(part):
            text, *question = QUESTION.split(section, maxsplit=1)
            for each in short(text):
                yield piece(new_markdown_cell(each), "text")
            for each in question:
                yield piece(new_markdown_cell(each.strip()), "question")
        if number < len(answers):
            for each in short(unfolded(answers[number])):
                yield piece(new_markdown_cell(each), "answer")


def unfolded(answer):
    """The text of a folded answer, without the fold and the quotation around it."""
    text = re.sub(r"^> ?", "", answer, flags=re.MULTILINE)
    stop = "：" if "<summary>答案" in text else "."
    return "**" + DETAILS.sub(rf"\1{stop}** \2", text).strip().replace("\n\n", " ", 1)


def short(text):
    """A text in as many parts as it takes slides: paragraphs stay whole, long tables do not."""
    text = TABLE.sub(lambda found: halved(found[0]), text).strip()
    part, used = [], 0
    for paragraph in re.split(r"\n{2,}(?!>)", text):
        size = height(paragraph, TEXT)
        if part and used + size > HEIGHT:
            yield "\n\n".join(part)
            part, used = [], 0
        part, used = [*part, paragraph], used + size
    if text:
        yield "\n\n".join(part)


def halved(table):
    """A table of many rows as several, each with the head."""
    head, rule, *rows = table.strip().splitlines()
    count = math.ceil(len(rows) / ROWS)
    size = math.ceil(len(rows) / max(count, 1))
    parts = [rows[start : start + size] for start in range(0, len(rows), max(size, 1))]
    return "\n\n".join("\n".join([head, rule, *part]) for part in parts) + "\n"


# Onto slides.


def placed(cells, notes, language="") -> Iterator:
    """The pieces, each told where a slide begins: a heading goes right, the next thought down."""
    used, before = 0, None
    for cell in cells:
        kind, size = cell.metadata.kind, size_of(cell)
        heading = re.match(r"##? (.*)", cell.source) if kind == "text" else None
        where = "-"
        if heading:
            where = "slide"
        elif is_new_thought(kind, before) or used + size > HEIGHT:
            where = "subslide"
        hidden = kind == "output" and cell.metadata.asked
        if hidden and where == "-":
            where = "fragment"
        cell.metadata["slideshow"] = {"slide_type": where}
        if heading:
            told(cell, heading[1], notes, WORDS[language]["min"])
        used = size + (used if where in ("-", "fragment") else 0)
        before = kind
        yield cell


def mark_few_words(cells):
    """A slide with a few words and nothing else has them large: `metadata.few_words`, in place."""
    starts = [n for n, cell in enumerate(cells) if cell.metadata.slideshow.slide_type in NEW]
    for start, end in zip(starts, [*starts[1:], len(cells)], strict=True):
        slide = cells[start:end]
        plain = all(c.cell_type == "markdown" and not NOT_PLAIN.search(c.source) for c in slide)
        words = "\n".join(UNREAD.sub("", cell.source) for cell in slide)
        cells[start].metadata.few_words = plain and height(re.sub("\n+", "\n", words), TEXT) < FEW


def is_new_thought(kind, before):
    if kind == "text":
        return before != "text"
    if kind == "code":
        return before not in ("text", "question")
    return kind in ("question", "answer", "picture")


def told(cell, heading, notes, words):
    """Minutes in the corner, and for the speaker where people get stuck."""
    minutes, stuck = notes.get(heading, (0, ""))
    if minutes:
        cell.source += f'\n\n<p class="minutes">{words.format(minutes)}</p>'
    if stuck:
        cell.source += f'\n\n<aside class="notes">{html.escape(stuck)}</aside>'


def size_of(cell):
    """About how many pixels of a slide's height."""
    if cell.metadata.kind == "picture":
        return HEIGHT
    if cell.cell_type == "markdown":
        return sum(height(part, TEXT) for part in cell.source.split("\n\n"))
    if cell.source:
        return height(cell.source, CODE)
    return sum(height(printed(output), OUTPUT) for output in cell.outputs)


def printed(output):
    text = output.get("text") or output.get("data", {}).get("text/plain")
    return text or "\n".join(output.get("traceback", []))


def height(text, look):
    pixels, letters = look
    lines = sum(max(1, math.ceil(width(line) / letters)) for line in text.splitlines())
    return pixels * (lines + 0.6)


def width(line):
    """In letters; a Chinese character is as wide as two."""
    return len(line) + sum(east_asian_width(character) in "WF" for character in line)
