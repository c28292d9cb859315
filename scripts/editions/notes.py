"""What the speaker reads beside a slide: how long, what to look at, what comes, and why.

All of it is the lesson's own words: the text before, what a prediction asks for, its answer; where
people get stuck, from TEACHING.md; an exercise's solution.
"""

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from lessons_src.exercises import exercises
from lessons_src.exercises.changes import solution_code

from .pieces import Piece, leads

if TYPE_CHECKING:
    from .slides import Slide

SHOWN = ("code", "output", "picture")
STATED = re.compile(r"(\d+) ?(?:minutes|分钟)[)）]$")  # by the heading of an exercise
A_QUESTION = 1  # slide more, for the time it takes


def write_notes(slides: "list[Slide]", told, say):
    """In place. `told` is what TEACHING.md says, by heading: (minutes, where people get stuck)."""
    for slide, time in timed(slides, told, say):
        slide.notes += [time] if time else []
        minutes, stuck = told.get(slide.heading.lstrip("# "), (0, ""))
        slide.minutes = minutes
        if stuck:
            slide.notes.append(f"**{say['stuck']}** {stuck}")
        slide.notes += [note for piece in slide.pieces for note in piece.notes]
    for step in steps(slides):
        write_step(step, say)


def write_step(step: "list[tuple[Slide, Piece]]", say):
    pieces = [piece for _, piece in step]
    before = [said(piece) for piece in pieces if leads(piece)][-2:]  # a text and its question
    names = [piece.words for piece in pieces if piece.kind == "solution"]
    solutions = [f"```python\n{solution_code(exercises()[name])}\n```" for name in names]
    slides = list({id(slide): slide for slide, _ in step}.values())
    for number, slide in enumerate(slides, 1):
        own = [piece for each, piece in step if each is slide]
        if not names and not any(piece.kind in (*SHOWN, "question") for piece in own):
            slide.notes += dict.fromkeys(piece.whole for piece in own if piece.whole)
            continue
        hidden = [piece.words for piece in own if piece.kind == "output" and piece.after_key]
        if hidden:
            hidden = [f"**{say['next key']}**", *(f"```text\n{words}\n```" for words in hidden)]
        ways = [words for piece in own for graph in piece.graphs for words in graph["said"]]
        pictures = [seen_in(graph) for piece in own for graph in piece.graphs if not graph["said"]]
        later = said_of_it(step, slides[number:])
        if later:
            later = [f"**{say['later']}**", *later]
        comes = [*hidden, *ways, *pictures, *said_of_it(step, slides[:number]), *solutions, *later]
        seen = [piece.words for piece in own] if comes else []
        slide.notes += dict.fromkeys([*(words for words in before if words not in seen), *comes])


def said_of_it(step: "list[tuple[Slide, Piece]]", slides: "list[Slide]") -> list[str]:
    """What these slides answer, or say of what was seen."""
    told = [(slide, piece) for slide, piece in step if piece.kind == "answer" or piece.comment]
    return [said(piece) for slide, piece in told if any(slide is each for each in slides)]


def seen_in(graph):
    """A picture in words: of a graph its outline, line by line."""
    return f"```text\n{graph['words']}\n```" if "verdict" in graph else graph["words"]


def said(piece: Piece):
    return piece.whole or piece.words


def steps(slides: "list[Slide]") -> "Iterator[list[tuple[Slide, Piece]]]":
    """What belongs together: texts and a question, what is then shown, what is said of it."""
    step: list[tuple[Slide, Piece]] = []
    for slide in slides:
        for piece in slide.pieces:
            seen = any(not leads(each) and each.kind != "heading" for _, each in step)
            if piece.kind == "heading" or (leads(piece) and seen):
                yield step
                step = []
            step.append((slide, piece))
    yield step


def timed(slides: "list[Slide]", told, say) -> "Iterator[tuple[Slide, str]]":
    """Each slide has its share of the section's minutes; an exercise has its own."""
    whole = sum(minutes for heading, (minutes, _) in told.items() if heading not in say["turn"])
    passed = 0.0
    for heading, section in sections_of(slides, told):
        minutes, _ = told[heading]
        if heading in say["turn"]:
            yield from ((slide, stated(slide, say, minutes)) for slide in section)
            continue
        shares = [1 + A_QUESTION * any(p.kind == "question" for p in s.pieces) for s in section]
        for slide, share in zip(section, shares, strict=True):
            long = minutes * share / sum(shares)
            yield (
                slide,
                say["time"].format(f"{max(0.5, round(2 * long) / 2):g}", round(passed), whole),
            )
            passed += long


def sections_of(slides: "Iterable[Slide]", told) -> "Iterator[tuple[str, list[Slide]]]":
    """The title belongs to the first heading, as in the reckoning of the minutes."""
    name, section = "", []
    for slide in slides:
        heading = slide.heading.lstrip("# ")
        if slide.begins_section and heading in told:
            if name:
                yield name, section
                section = []
            name = heading
        section.append(slide)
    yield name, section


def stated(slide: "Slide", say, minutes):
    """Of an exercise, or of all of them where they begin; "" where one goes on."""
    if found := STATED.search(slide.heading):
        return say["min"].format(found[1])
    return say["min"].format(minutes) if slide.begins_section else ""
