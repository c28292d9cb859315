"""A lesson as slides: one HTML file that asks nobody on the network for anything.

A slide is one thought, as large as there is room for: what to look at, code with what it printed, a
question, its answer, a picture. What a prediction asks for comes on the next key, its answer on the
one after.
"""

import base64
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup
from nbconvert.filters import Highlight2HTML
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

from .formulas import marked
from .languages import words_of
from .notes import write_notes
from .pictures import alternative, on_slides
from .pieces import Piece, leads, pieces, with_questions
from .room import (
    A_LINE,
    HEIGHT,
    PROSE,
    again,
    few_words,
    is_room_for,
    limit_of,
    parted,
    room,
    size_of,
    without_asides,
)
from .teaching import sections

TEMPLATES = Path(__file__).resolve().parent / "templates"
LARGER = [1 + n / 20 for n in range(17)]  # how much larger than its smallest a slide may be
ABOVE = 1.4  # times as large as what is smallest on a slide what is largest may be
CAPTION = 120  # px: of words that stand above a picture


def slides(notebook, language=""):
    title = notebook.cells[0].source.splitlines()[0].lstrip("# ")
    made = list(placed(pieces(notebook), language))
    name_sections(made)
    write_notes(made, sections(int(title[0]), language), words_of(language))
    environment = Environment(loader=FileSystemLoader(TEMPLATES / "slides"), autoescape=True)
    environment.filters |= {"markdown": markdown, "highlighted": highlighted, "address": address}
    template = environment.get_template("index.html.j2")
    return template.render(title=title, slides=made, say=words_of(language))


def name_sections(made: "list[Slide]"):
    name = latest = ""
    for slide in made:
        heading = slide.heading.lstrip("# ")
        if slide.begins_section:
            name = heading
        else:
            slide.section = name if heading else latest
        latest = heading or latest


def words(output, language=""):
    """What stands for a notebook's picture where it is not seen."""
    return alternative(output.data.get("text/plain", "<"), language)


class Renderer(IPythonRenderer):
    def inline_math(self, body):
        return marked(body, displayed=False)

    def block_math(self, body):
        return marked(body, displayed=True)


def markdown(source):
    renderer = Renderer(escape=False, exclude_anchor_links=True)
    return Markup(MarkdownWithMath(renderer=renderer).render(source))


def highlighted(code):
    return Markup(Highlight2HTML()(code))


def address(svg):
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


@dataclass
class Slide:
    pieces: list[Piece]
    minutes: int = 0  # in the corner, of the section that begins here
    section: str = ""  # in another corner, where it has begun before
    notes: list[str] = field(default_factory=list)  # Markdown, for the speaker

    @property
    def heading(self):
        first = self.pieces[0]
        return first.words if first.kind == "heading" else ""

    @property
    def begins_section(self):
        return self.heading.startswith(("# ", "## "))


def placed(lesson: Iterable[Piece], language="") -> Iterator[Slide]:
    slide: list[Piece] = []
    for bundle in bundles(list(fitting(lesson, language))):
        short = room(bundle, A_LINE)
        limit = HEIGHT if short else limit_of(slide + bundle)
        fits = room(slide + bundle, limit) and few_words(slide + bundle, short and PROSE)
        if slide and (begins(slide, bundle[0]) or not fits):
            yield finished(slide)
            slide = []
        slide += bundle
    yield finished(slide)


def fitting(lesson: Iterable[Piece], language) -> Iterator[Piece]:
    """In place of a piece that is too large for a slide, its parts."""
    for piece in with_questions(lesson):
        if piece.kind == "picture":
            yield from on_slides(piece, language)
        else:
            yield from parted(without_asides(piece))


def bundles(lesson: list[Piece]) -> Iterator[list[Piece]]:
    """What is not taken apart: a heading and what is below it, code and what it printed."""
    bundle: list[Piece] = []
    for piece in lesson:
        stays = bundle and (bundle[-1].kind == "heading" or piece.kind == "solution")
        if piece.kind == "output" and bundle and bundle[-1].kind in ("code", "output"):
            stays = room([*bundle, piece])
        if bundle and not stays:
            yield bundle
            bundle = []
        bundle.append(piece)
    yield bundle


def begins(slide: list[Piece], piece: Piece) -> bool:
    """Whether a piece is another thought than what is on the slide."""
    kinds = {each.kind for each in slide}
    if piece.kind == "heading" or "picture" in kinds:
        return True
    if piece.kind == "picture":
        return kinds != {"text"} or not room(slide, CAPTION)
    if piece.kind == "code":
        return "output" in kinds
    if not leads(piece):
        return False
    said = any(not leads(each) and each.kind != "heading" for each in slide)
    return said or (piece.words.startswith("**") and piece.kind == "text" and "text" in kinds)


def finished(pieces: list[Piece]) -> Slide:
    for number, piece in enumerate(pieces):
        if piece.kind == "answer" or piece.comment:
            piece.after_key = number > 0
        elif number == 0:
            piece.after_key = False
    size = max((size for size in LARGER if is_room_for(pieces, size)), default=1)
    least = min((size_of(piece, size) for piece in pieces), default=1)
    for piece in pieces:
        piece.size = size_of(piece, min(size, ABOVE * least))
    return Slide([*again(pieces), *pieces])
