"""A picture of a lesson on slides: it has the whole slide, or as many as it takes to be read.

A plot comes as it is, two graphs to be compared beside each other, a large graph at first whole,
then in parts, and what a reader steps through step by step, on a key each.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from lessons_src.picture_words import in_words_of

from .close_ups import close_ups, is_graph, overview, place_of, sentences, whole
from .languages import words_of
from .pieces import Piece
from .room import HEIGHT, WIDTH, again, height_of, lines_of
from .stepped import at_step, cut_at, middle_of

# px: of a line that is said of it, of a letter, of the space below such lines.
LINE, LETTER, BELOW = 33, 13.6, 12
BESIDE = 5  # lines, at most, where two are beside each other
JUDGED = {"": "", "black": "", "darkgreen": "right"}  # by its colour; any other is "wrong"


def alternative(text, language=""):
    """Words in place of a picture, from its text in the notebook."""
    # A library's own picture: its repr says nothing, and the rules ask for words below it.
    if text.startswith("<"):
        return words_of(language)["a graph"]
    return in_words_of(text.strip(), language)


def on_slides(piece: Piece, language="") -> Iterator[Piece]:
    """A piece for each slide, whose `graphs` are as the template shows them: each has `frames`, of
    which the first is seen at once, and each other one takes its place on a key."""
    told = alternative(piece.words, language)
    graphs = [
        graph
        | {"words": told, "title": alternative(graph["title"], language)}
        | {"said": [alternative(words, language) for words, _ in graph["steps"]]}
        for graph in piece.graphs
    ]
    if not is_graph(graphs[0]["svg"]):
        yield replace(piece, graphs=[graph | as_plot(graph, language) for graph in graphs])
        return
    graphs = [graph | sentences_of(graph, language) for graph in graphs]
    height = HEIGHT - sum(map(height_of, again([piece])))
    if len(graphs) > 1 and not any(graph["steps"] for graph in graphs):
        svgs = [graph["svg"] for graph in graphs]
        if together := whole(svgs, height - BESIDE * LINE - BELOW):
            shown = zip(graphs, together, strict=True)
            yield replace(piece, graphs=[graph | one(graph, svg) for graph, svg in shown])
            return
    for graph in graphs:
        frames = in_steps if graph["steps"] else in_parts
        above = [graph["title"], graph["verdict"], *graph["more"]]
        graph |= {"sentence": " · ".join(filter(None, above))}
        left = height - high(graph["sentence"])
        yield replace(piece, graphs=[graph | {"frames": frames(graph, left, language)}])


def high(words):
    """The height of what stands above a picture."""
    return lines_of(words, WIDTH / LETTER) * LINE + BELOW


def as_plot(graph, language):
    """A plot, or a figure that can be cut, in the states that are asked for."""
    if not graph["cuts"]:
        return one(graph, graph["svg"])
    cases = cut_at(graph["cuts"], partial(alternative, language=language))
    states = [(svg, f"{where} · {words}") for svg, where, words in cases]
    frames = [{"svg": svg, "words": words, "where": words} for svg, words in states]
    return {"frames": frames, "said": [words for _, words in states]}


def one(graph, svg):
    return {"frames": [{"svg": svg, "words": graph["words"]}]}


def in_parts(graph, height, language):
    """All of it as small as it takes, then on a key each part, to be read from the last row."""
    say, parts = words_of(language), close_ups(graph["svg"], height)
    if len(parts) == 1:
        return one(graph, parts[0][0])["frames"]
    parts = close_ups(graph["svg"], height - high("-"))
    first = {"svg": overview(graph["svg"], height), "words": graph["words"], "small": True}
    frames = [first]
    for number, (part, chart) in enumerate(parts, 1):
        where = say["part"].format(number, len(parts))
        words = say["part of"].format(where, graph["sentence"])
        frames.append({"svg": part, "chart": chart, "words": words, "where": where})
    return frames


def in_steps(graph, height, language):
    """A frame for each step, in it the part of the graph where it happens."""
    height -= max(map(high, graph["said"]))
    frames, names = [], [names for _, names in graph["steps"]]
    for number, words in enumerate(graph["said"]):
        svg = at_step(graph["svg"], names, number)
        place = place_of(svg, height, middle_of(svg, names[number]))
        part, chart = close_ups(svg, height)[place]
        where = f"{number + 1}/{len(names)} · {words}"
        alt = f"{graph['title']} {where}"
        frames.append({"svg": part, "chart": chart, "words": alt, "where": where})
    return frames


def sentences_of(graph, language):
    """What the picture says in sentences, which is the slide's own text."""
    verdict, colour, more = sentences(graph["svg"])
    judged = JUDGED.get(colour, "wrong")
    more = [alternative(line, language) for line in more]
    return {"verdict": alternative(verdict, language), "judged": judged, "more": more}
