"""A picture of a lesson on slides: it has the whole slide, or as many as it takes to be read.

A plot comes as it is, two graphs to be compared beside each other, and a large graph in parts.
"""

from collections.abc import Iterator
from dataclasses import replace

from .close_ups import close_ups, is_graph, sentences, whole
from .languages import WORDS
from .pieces import Piece
from .twins import in_chinese

GRAPH_HEIGHT = 585  # px: below one or two lines of what is said of it
BESIDE_HEIGHT = 520  # px: below one line for each
JUDGED = {"": "", "black": "", "darkgreen": "right"}  # by its colour; any other is "wrong"


def alternative(text, language=""):
    """Words in place of a picture, from its text in the notebook."""
    # A library's own picture: its repr says nothing, and the rules ask for words below it.
    if text.startswith("<"):
        return WORDS[language]["a graph"]
    return in_chinese(text.strip()) if language == "zh_CN" else text.strip()


def on_slides(piece: Piece, language="") -> Iterator[Piece]:
    """A piece for each slide, whose `graphs` are as the template shows them."""
    told = alternative(piece.words, language)
    graphs = [
        graph
        | {"words": told, "title": alternative(graph["title"], language)}
        | {"steps": [alternative(words, language) for words in graph["steps"]]}
        for graph in piece.graphs
    ]
    if not is_graph(graphs[0]["svg"]):
        yield replace(piece, graphs=graphs)
        return
    svgs = [graph["svg"] for graph in graphs]
    together = whole(svgs, BESIDE_HEIGHT) if len(graphs) > 1 else []
    if together:
        shown = zip(graphs, together, strict=True)
        yield replace(piece, graphs=[graph | said(graph) | {"part": svg} for graph, svg in shown])
        return
    for graph in graphs:
        yield from in_parts(piece, graph, language)


def in_parts(piece: Piece, graph, language) -> Iterator[Piece]:
    say, told = WORDS[language], said(graph)
    parts = close_ups(graph["svg"], GRAPH_HEIGHT)
    for number, (part, chart) in enumerate(parts, 1):
        shown = graph | told | {"part": part, "chart": chart}
        if len(parts) > 1:
            shown["where"] = say["part"].format(number, len(parts))
        if number > 1:
            sentence = " · ".join(filter(None, [told["title"], told["verdict"], *told["more"]]))
            shown |= {"words": say["part of"].format(shown["where"], sentence), "steps": []}
        yield replace(piece, graphs=[shown])


def said(graph):
    """What the picture says in sentences, which is the slide's own text."""
    verdict, colour, more = sentences(graph["svg"])
    judged = JUDGED.get(colour, "wrong")
    return {"title": graph["title"], "verdict": verdict, "judged": judged, "more": more}
