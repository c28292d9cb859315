"""A lesson in pieces, in the order in which a room sees them.

Left out is what a room has no use for: imports, lines that only draw a plot, the stub of an
exercise, a fold for somebody who is stuck, links from lesson to lesson, and "Going further".
"""

import ast
import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from nbconvert.filters import strip_ansi

from lessons_src.stepper import STEPS, taken_apart

from .folds import ANSWER

SVG = "image/svg+xml"
END = ("## Going further", "## 更进一步")
HEADING = re.compile(r"#{1,3} (.*)")
QUESTION = re.compile(r"> \*\*(?:Predict|先猜一猜)")
FOLD = re.compile(r"<details>\s*<summary>(.*?)</summary>(.*?)</details>", re.DOTALL)
ABOUT = re.compile(r"\*\*\D{,9}\d+ (?:minutes|分钟).*?\*\*[ 。]*")
HELP = re.compile(r"`hint\(")  # how a learner gets help is for whoever needs it
LESSON = re.compile(r"\]\((\d_\w+)\.ipynb\)")
CONTINUES = re.compile(r"- |\d+\. |\||```|\$\$")  # what belongs to the paragraph above
BY_HAND = {  # what a reader does with a picture, and a room does not
    " with Next or the arrow keys": "",
    " with Next, or the arrow keys": "",
    "Move the sliders: w": "W",
    " Cut and mend them, at each formula and each x.": "",
    "用 Next 按钮或方向键": "",
    "拖动滑块看看，": "",
    "在每个式子、每个 x 处，把它们剪断再接上试试。": "",
}
# Letters that are asked again, if there is more than one sentence: at least, and at most.
SHORT, ASKED = 30, 150
# Sentences in brackets, in which code and brackets may stand.
ASIDE = re.compile(
    r"(?:(?<=[.:?] )|^)\((?![a-z])(?:[^()`]|`[^`]*`|\([^()]*\))*[.?]\) ?|（[^（）]*[。？]）",
    re.MULTILINE,
)
# A bracket that holds whole sentences is closed after the last of them.
SENTENCE = re.compile(r"(?<=[.?]) |(?<=[.?]\)) |(?<=[。？])(?!）)|(?<=[。？]）)")
FORMULAS = re.compile(r"^the numbers .*\n(?: .*\n)*", re.MULTILINE)
EXERCISE = re.compile(r'^check\("(\w+)"', re.MULTILINE)
CHECK = re.compile(r"\n*^(?:check\(|from lessons_src\.exercises import check).*\n*", re.MULTILINE)


@dataclass
class Piece:
    """`kind`: heading, text, question, answer, code, output, picture; a solution, not shown; or on
    a slide that goes on what was asked before, "again"."""

    kind: str
    words: str = ""  # Markdown, Python, what was printed, or of a solution the exercise's name
    comment: bool = False  # a text on what was just seen
    after_key: bool = False  # it comes on the next key
    is_error: bool = False
    size: float = 1  # times that of the smallest
    graphs: list[dict] = field(default_factory=list)  # of a picture; see `picture`
    notes: list[str] = field(default_factory=list)  # Markdown, for the speaker
    whole: str = ""  # the words before some of them were left to the speaker
    asked: str = ""  # what was asked of it, for a slide that begins with it
    said: str = ""  # what was said before it, for a slide that has no words otherwise


def leads(piece: Piece) -> bool:
    """Whether it is said before something is seen."""
    return piece.kind == "question" or (piece.kind == "text" and not piece.comment)


def pieces(notebook) -> Iterator[Piece]:
    return told(in_order(notebook))


def in_order(notebook) -> Iterator[Piece]:
    """As they stand, but that no answer comes before the cell that shows it."""
    waiting: list[Piece] = []
    cells = until_the_end(notebook.cells)
    for cell, following in zip(cells, [*cells[1:], None], strict=True):
        if cell.cell_type == "code":
            yield from of_code(cell)
            yield from waiting
            waiting = []
            continue
        found = list(of_text(cell.source))
        if following and following.cell_type == "code" and len(found) > 1:
            waiting = [piece for piece in found[-1:] if piece.kind == "answer"]
        yield from found[: len(found) - len(waiting)]


def until_the_end(cells):
    stop = [number for number, cell in enumerate(cells) if cell.source.startswith(END)]
    return cells[: stop[0]] if stop else cells


# Text.


def of_text(source) -> Iterator[Piece]:
    source = LESSON.sub(r"](\1.html)", source)  # the next lesson is a page
    for words, others in BY_HAND.items():
        source = source.replace(words, others)
    made: list[Piece] = []
    for block in blocks(source):
        if HEADING.match(block):
            made.append(Piece("heading", block))
        elif ANSWER.search(block + "\n"):
            made.append(Piece("answer", unfolded(block)))
        elif "<details>" in block:
            made[-1].notes.append(unfolded(block))
        elif ABOUT.match(block):  # to five minutes: the notes have each slide's own
            made[0].notes.append(ABOUT.sub("", block))
        elif HELP.search(block):
            made[-1].notes.append(block)
        elif QUESTION.match(block):
            made.append(Piece("question", block.removeprefix("> ")))
        elif len(re.findall(r"\.html\)", block)) < 3:  # else links to all lessons
            made.append(Piece("text", block))
    yield from made


def paragraphs(source) -> list[str]:
    """Fences and folds are whole."""
    found, ends = [""], None  # with what the fence or the fold that is open ends
    for line in source.splitlines():
        if line.strip() or ends:
            found[-1] += line + "\n"
        else:
            found.append("")
        if ends:
            ends = None if ends in line else ends
        elif line.startswith("```"):
            ends = "```"
        elif "<details>" in line and "</details>" not in line:
            ends = "</details>"
    return list(filter(None, map(str.strip, found)))


def blocks(source) -> list[str]:
    """Paragraphs, each with what it announces: a list, a table, a formula or code."""
    joined: list[str] = []
    for block in paragraphs(source):
        goes_on = joined and (CONTINUES.match(block) or joined[-1][-1] in ";；,，")
        if goes_on and not HEADING.match(joined[-1]):
            joined[-1] += "\n\n" + block
        else:
            joined.append(block)
    return joined


def unfolded(block):
    """A fold's text, after what stood on it; any other text as it is."""
    text = re.sub(r"^> ?", "", block, flags=re.MULTILINE)
    stop = "：" if re.search("<summary>[^<]*[一-鿿]", text) else "."

    def said(fold):
        name, words = fold[1] + ("" if fold[1][-1] in ".?" else stop), fold[2].strip()
        return f"**{name}**" + ("\n\n" if words.startswith("1. ") else " ") + words

    return FOLD.sub(said, text).strip()


# Code, and what it printed.


def of_code(cell) -> Iterator[Piece]:
    code = for_a_room(cell.source)
    if code:
        yield Piece("code", code)
    if exercise := EXERCISE.search(cell.source):  # which prints "not attempted yet"
        yield Piece("solution", exercise[1])
        return
    for output in cell.outputs:
        if SVG in output.get("data", {}):
            yield picture(output)
        else:
            is_error = output.output_type == "error"
            asked = "expected" in cell.metadata
            yield Piece("output", printed(output), after_key=asked, is_error=is_error)


def for_a_room(source):
    """The lines to look at; "" where there are none."""
    if "raise NotImplementedError" in source:
        return ""
    source = re.sub("\n{3,}", "\n\n", CHECK.sub("\n\n", source)).strip()
    statements = ast.parse(source).body
    if all(is_set_up(statement) for statement in statements):
        return ""
    source = without_set_up(source, statements)
    statements = ast.parse(source).body
    for number, statement in enumerate(statements):
        if "plt." in ast.unparse(statement):
            before = source.splitlines()[: statement.lineno - 1]
            return "\n".join([*before, "# and a plot of it"]).strip() if number else ""
    return source


def is_set_up(statement):
    return isinstance(statement, ast.Import | ast.ImportFrom) or is_setting(statement)


def is_setting(statement):
    """A line that sets up the notebook, or brings what such a line needs."""
    setting = ("get_ipython()", "os.environ[")
    return ast.unparse(statement) == "import os" or ast.unparse(statement).startswith(setting)


def without_set_up(source, statements):
    """From the first line that does more than set up the notebook, such as its language."""
    first = [*itertools.takewhile(is_setting, statements)]
    end = first[-1].end_lineno if first else 0
    return "\n".join(source.splitlines()[end:]).strip()


def printed(output):
    """Of an error what happened and why, without torch's hint where else to look.

    Of a report what it found, without the formulas by which its numbers can be typed.
    """
    if output.output_type != "error":
        text = output.get("text") or output.data["text/plain"]
        return FORMULAS.sub("", text).rstrip()
    text = strip_ansi("\n".join(output.traceback)).split(" Hint: ")[0].rstrip()
    what, why, *rest = [*text.split("\n\n"), "", ""]
    return "\n\n".join([what, why, "…"]) if any(rest) else text


def picture(output):
    """`graphs`: of each its SVG, its title, its steps or its cuts, as `Stepper` has them."""
    steps = output.data.get(STEPS, {})
    svgs = taken_apart(output.data[SVG])
    titles = steps.get("titles") or [""] * len(svgs)
    passes = steps.get("steps") or [[] for _ in svgs]
    graphs = [
        {"svg": svg, "title": title, "steps": way, "cuts": steps.get("cuts")}
        for svg, title, way in zip(svgs, titles, passes, strict=True)
    ]
    return Piece("picture", output.data["text/plain"].strip(), graphs=graphs)


# What is said before, and what after.


def told(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """A text that follows what was seen is a comment on it, or leads to what comes next.

    What begins in bold begins anew.
    """
    before, texts = "", []
    for piece in [*pieces, Piece("heading")]:
        if piece.kind == "text":
            texts.append(piece)
            continue
        yield from told_apart(texts, before, piece.kind)
        before, texts = piece.kind, []
        if piece.words:
            yield piece


def with_questions(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """What is shown, and an answer, with what was asked of it."""
    asked, said, seen, before = "", "", False, ""
    for piece in pieces:
        if piece.kind == "heading" or (leads(piece) and seen):
            asked = said = ""
            seen = False
        if piece.kind == "question":
            asked = said = piece.words
        elif leads(piece) and piece.kind == "text":
            said = question(piece.words)
            asked = said if said[-1:] in "?？:：" else ""
        elif piece.kind != "heading":
            seen = True
            piece.said = said
            if not piece.comment:
                piece.asked = said if piece.kind == "picture" else asked
            elif before in ("output", "picture") and asked[-1:] in ("?", "？"):
                piece.asked = asked  # what answers it without saying so
        before = piece.kind
        yield piece


def question(words):
    """From the first sentence that asks, or else the last one; one line, if there are several.

    Of a list all of it, where each item asks.
    """
    items = re.findall(r"^\d+\. .*", words, re.MULTILINE)
    if items and all(re.search("[?？]", item) for item in items):
        return "\n".join(items)
    if re.search(r"^(?:- |\d+\. |\||```|\$\$)", words, re.MULTILINE):
        return ""
    words = ASIDE.sub("", words.replace("\n", " ")).strip()
    found = sentences(words)
    first = next((n for n, each in enumerate(found) if "?" in each or "？" in each), -1)
    while first > 0 and len(" ".join(found[first:])) < SHORT:
        first -= 1  # "Which?" is asked of what stands before it
    found = found[first:] if first >= 0 else found[-1:]
    while len(found) > 1 and sum(map(len, found)) > ASKED:
        del found[0]
    return "".join(each if each[-1] in "。？）" else f"{each} " for each in found).strip()


def sentences(words) -> list[str]:
    return [sentence for sentence in SENTENCE.split(words) if sentence]


def told_apart(texts: list[Piece], before, following) -> list[Piece]:
    if not texts or before not in ("output", "picture", "answer"):
        return texts
    anew = [number for number, text in enumerate(texts) if text.words.startswith("**")]
    if anew:
        comments, leads = texts[: anew[0]], texts[anew[0] :]
    elif following == "heading":
        comments, leads = texts, []
    elif len(texts) > 1 or before == "answer":
        comments, leads = texts[:-1], texts[-1:]
    elif following == "question":
        comments, leads = texts, []
    else:
        comments, leads = parted(texts[0])
    for comment in comments:
        comment.comment = True
    return comments + leads


def parted(text: Piece):
    """What ends in a colon leads to what comes next, and nothing before it does."""
    *said, last = sentences(text.words)
    if not said or last[-1] not in ":：":
        return [], [text]
    end = text.words.rindex(last)
    return [Piece("text", text.words[:end].strip(), notes=text.notes)], [Piece("text", last)]
