"""How much room words take on a slide of 1280 by 720, in pixels, reckoned from their letters."""

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby, pairwise
from unicodedata import east_asian_width

from .pieces import ASIDE, SENTENCE, Piece, paragraphs, sentences

WIDTH, HEIGHT = 1232, 672  # what can be used
TOGETHER = 600  # the height of what could as well come on two slides
WORDS_ALONE = 360  # the height of words without code: nobody reads more than that
MORE = ("code", "output", "solution")  # than words: an exercise is worked on
PRINTED = 450  # the height of what was printed: there it goes on after an empty line
A_LINE = 100  # the height of what never has a slide of its own where it fits on the one before
# Of a line, of a letter, of the space below a block; slides.css has the sizes.
LOOKS = {
    "heading": (46, 21, 20),
    "text": (38, 15, 14),
    "code": (27.5, 12.6, 26),
    "output": (31.2, 13.73, 20),
    "again": (32, 12.9, 14),
}
LETTER = 28  # px: the height of those of a text
BESIDE = 22  # px: of that, what is beside the words of a block
MINUTES = 100  # px: beside those of a heading
PROSE, AT_ONCE = 90, 82  # words on a slide: with one more line, and without
SIGNS_A_WORD = 1.7  # Chinese ones
FILLED = 0.92  # of the height, by what was made larger
CELLS = 0.86  # the letters of a table, of those of a text
ROWS = 7  # of a table on one slide
LABEL = re.compile(r"\*\*[^*]+\*\*")  # such as "Answers."
IS_ITEM = re.compile(r"- |\d\. ")
ITEMS = re.compile(r"\n(?=- |\d\. )")
TABLE = re.compile(r"(?:^\|.*\|\n?)+", re.MULTILINE)
DISPLAYED = re.compile(r"\$\$([^$]+)\$\$")
FRACTION = re.compile(r"\\frac\{((?:[^{}]|\{[^{}]*\})*)\}\{((?:[^{}]|\{[^{}]*\})*)\}")
MATHJAX = 1.27  # em of the words around it are one em of a formula: their x has one height
# How wide the signs of a formula are with the space around them, in em of its own, at least.
SIGNS = {
    r"\\(?:text|mathrm|mathsf|textstyle)": 0,
    r"\\qquad": 2,
    r"\\quad": 1,
    r"\\[;,]": 0.25,
    r"\\sum|\\sqrt": 1.1,
    r"\\cdot|[-+=]": 1.5,
    r"\\[a-z]+": 1.9,
    r"[A-Z]|[^\x00-\x7f]": 0.9,
    r"[^ {}]": 0.55,
}
SCRIPT = re.compile(r"[_^](?:\{[^{}]*\}|\\\w+(?:\{\w\})?|\w)")
A_SCRIPT = 0.75
FENCE = re.compile(r"```.*?```", re.DOTALL)
HAN, CHINESE = re.compile("[\u4e00-\u9fff]"), re.compile("[\u3000-\u9fff\uff00-\uffef]")
UNSEEN = re.compile(r"\]\([^)]*\)|[*`]|^> ?|^\$\$$", re.MULTILINE)


def room(pieces: list[Piece], height=HEIGHT) -> bool:
    """Whether they fit into so much of a slide."""
    return sum(map(height_of, [*again(pieces), *pieces])) <= height


def again(pieces: list[Piece]) -> list[Piece]:
    """What was asked, where a slide begins with what shows or answers it: [] or one piece.

    Where nothing is asked and a slide has no words, what was said last.
    """
    asked = pieces[0].asked if pieces else ""
    if pieces and all(piece.kind in MORE for piece in pieces):
        asked = asked or pieces[0].said
    asked = ASIDE.sub("", asked).strip()
    if not asked:
        return []
    shorter = sentences(asked)[-1]  # where all of it has no room
    high = height_of(Piece("again", asked)) + sum(map(height_of, pieces))
    return [Piece("again", shorter if high > HEIGHT else asked)]


def few_words(pieces: list[Piece], most=None) -> bool:
    """Whether a slide with these has no more prose than a room reads."""
    return sum(map(prose, pieces)) <= (most or AT_ONCE)


def prose(piece: Piece):
    """How many words; code, a formula and a table, which is looked at, have none."""
    if piece.kind not in ("text", "question", "answer"):
        return 0
    words = TABLE.sub("", FENCE.sub("", DISPLAYED.sub("", piece.words)))
    return (
        len(CHINESE.sub(" ", UNSEEN.sub("", words)).split())
        + len(HAN.findall(words)) / SIGNS_A_WORD
    )


def limit_of(pieces: list[Piece]):
    """How high they may be, where they could as well come on two slides."""
    with_more = any(piece.kind in MORE or "```" in piece.words for piece in pieces)
    with_more |= any(piece.kind == "answer" for piece in pieces[1:])  # on a key of its own
    return TOGETHER if with_more else WORDS_ALONE


def is_room_for(pieces: list[Piece], size) -> bool:
    """Whether they fit if they are so much larger."""
    high = sum(height_of(piece, size) for piece in pieces) + sum(map(height_of, again(pieces)))
    return high <= FILLED * HEIGHT


def size_of(piece: Piece, size):
    """How much larger it may be, at most `size`, so that no line of code is broken for it."""
    if piece.kind in ("picture", "again"):
        return 1
    for formula in DISPLAYED.findall(piece.words) if piece.kind == "text" else ():
        size = min(size, (WIDTH - BESIDE) / (width_of(formula) * MATHJAX * LETTER))
    if piece.kind not in ("code", "output") or (piece.is_error and "\n" not in piece.words):
        return size
    _, letter, _ = LOOKS[piece.kind]
    widest = max(map(letters, piece.words.splitlines()), default=0) * letter
    return min(size, max(1, (WIDTH - BESIDE) / max(widest, 1)))


def height_of(piece: Piece, size=1.0):
    if piece.kind in ("solution", "picture"):
        return 0
    size = size_of(piece, size)
    line, letter, below = LOOKS.get(piece.kind, LOOKS["text"])
    beside = MINUTES if piece.kind == "heading" else BESIDE
    letters_a_line = (WIDTH - beside) / (letter * size)
    words = UNSEEN.sub("", piece.words)
    if piece.kind in ("code", "output"):
        lines = sum(max(1, lines_of(text, letters_a_line)) for text in words.splitlines())
    else:
        lines = sum(rows(table[0], letters_a_line) for table in TABLE.finditer(words))
        for text in TABLE.sub("", words).splitlines():
            lines += max(0.4, lines_of(text, letters_a_line)) + 1.4 * text.startswith("$$")
    return size * (lines * line + below)


def width_of(formula):
    """In em of its own letters; of a fraction that of the wider half."""
    formula = FRACTION.sub(lambda halves: max(halves.groups(), key=width_of), formula)
    formula, scripts = SCRIPT.subn("", formula.replace("\\_", "x"))
    wide = scripts * A_SCRIPT
    for signs, each in SIGNS.items():
        formula, found = re.subn(signs, "", formula)
        wide += found * each
    return wide


def lines_of(text, letters_a_line):
    return math.ceil(letters(text) / letters_a_line)


def rows(table, letters_a_line):
    """Lines of a table; a column has room by the square root of what its longest cell asks for."""
    cells = [[letters(cell) for cell in row.split("|")[1:-1]] for row in table.splitlines()]
    del cells[1]  # the rule
    asked = [max(column) for column in zip(*cells, strict=True)]
    there = letters_a_line / CELLS - 3 * len(asked)
    if sum(asked) > there:
        roots = [math.sqrt(width) for width in asked]
        asked = [there * root / sum(roots) for root in roots]
    high = [max(math.ceil(n / width) for n, width in zip(row, asked, strict=True)) for row in cells]
    return sum(CELLS * lines + 0.35 for lines in high)


def letters(text):
    """How many there are; a Chinese one is as wide as two."""
    return len(text) + sum(east_asian_width(letter) in "WF" for letter in text)


def without_asides(piece: Piece) -> Piece:
    """A sentence in brackets is for the speaker's notes, unless there is nothing else to show."""
    if piece.kind not in ("text", "answer"):
        return piece
    words = re.sub(" +$", "", ASIDE.sub("", piece.words), flags=re.MULTILINE).strip()
    if words in ("", piece.words):
        return piece
    return replace(piece, words=words, whole=piece.words)


def parted(piece: Piece) -> Iterator[Piece]:
    """A piece in as many as it takes slides; paragraphs stay whole, long tables do not."""
    words, parts = piece.words, [piece.words]
    if piece.kind == "output":
        parts = words.split("\n\n")
    elif piece.kind in ("text", "answer"):
        parts = paragraphs(TABLE.sub(lambda table: in_rows(table[0]), words))
        parts = [item for part in parts for item in ITEMS.split(part)]
        parts = with_formulas([some for part in parts for some in in_sentences(part)])
        parts = with_lists(parts)
    slides: list[list[str]] = [[]]
    limit = PRINTED if piece.kind == "output" else limit_of([replace(piece, kind="text")])
    for part in parts:
        if part is parts[-1] and room([replace(piece, words=part)], A_LINE):
            limit = max(limit, TOGETHER)
        longer = [replace(piece, words=joined([*slides[-1], part]))]
        alone = not slides[-1] or LABEL.fullmatch(slides[-1][-1])  # which says nothing by itself
        if not alone and not (room(longer, limit) and few_words(longer)):
            slides.append([])
        slides[-1].append(part)
    *_, before, last = [], *slides
    if len(last) == 1 and IS_ITEM.match(last[0]) and len(before) > 2 and IS_ITEM.match(before[-1]):
        last.insert(0, before.pop())  # an item alone is a list no more
    for number, taken in enumerate(slides):
        asked = "" if number and piece.kind == "text" else piece.asked  # its first part answers
        announced = sentences(slides[number - 1][-1])[-1] if number else ""
        if IS_ITEM.match(taken[0]) and announced.endswith((":", "：")):
            asked = announced
        yield replace(piece, words=joined(taken), asked=asked)


def in_sentences(words):
    """A paragraph that is more than a room reads at once, as several."""
    whole = prose(Piece("text", words))
    if whole <= AT_ONCE:
        yield words
        return
    start, most = 0, whole / math.ceil(whole / AT_ONCE)  # of about one length
    for end in [found.end() for found in SENTENCE.finditer(words)]:
        if prose(Piece("text", words[start:end])) >= 0.9 * most:
            yield words[start:end].strip()
            start = end
    yield words[start:]


def with_formulas(parts: list[str]):
    """A formula stays with what announces it."""
    kept: list[str] = []
    for part in parts:
        if kept and part.startswith("$$"):
            kept[-1] += "\n\n" + part
        else:
            kept.append(part)
    return kept


def with_lists(parts: list[str]) -> list[str]:
    """A list is whole where a slide has room; it, or a table, has with it what announces it."""
    made: list[str] = []
    for kind, some in groupby(parts, kind_of):
        first, *others = some
        if kind == "a list" and fits(joined([first, *others])):
            first, others = joined([first, *others]), []
        if kind and made and (kind == "a table" or not fits(f"{made[-1]}\n\n{first}")):
            *_, last = sentences(made[-1])
            if last[-1] in ":：?？" and fits(f"{last}\n\n{first}"):
                first = f"{last}\n\n{first}"
                made[-1:] = filter(None, [made[-1].removesuffix(last).strip()])
        made += [first, *others]
    return made


def kind_of(part):
    return "a list" if IS_ITEM.match(part) else "a table" if part[0] == "|" else ""


def fits(words):
    """Whether a list, or a table, has room on a slide of its own."""
    alone = [Piece("text", words)]
    return room(alone, HEIGHT if "\n|" in words else WORDS_ALONE) and few_words(alone)


def joined(parts: list[str]):
    """Items of a list stand close together."""
    text = parts[0]
    for before, part in pairwise(parts):
        text += ("\n" if IS_ITEM.match(before) and IS_ITEM.match(part) else "\n\n") + part
    return text


def in_rows(table):
    """A table of many rows as several, each with the head."""
    head, rule, *rows = table.strip().splitlines()
    size = math.ceil(len(rows) / math.ceil(len(rows) / ROWS))
    parts = [rows[start : start + size] for start in range(0, len(rows), size)]
    return "\n\n".join("\n".join([head, rule, *part]) for part in parts) + "\n"
