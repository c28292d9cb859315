"""Graphs on slides: readable, in parts that cut no box and no word, and hold all of them."""

import re
from pathlib import Path
from xml.etree import ElementTree

import nbformat
import pytest
from editions import close_ups, pictures
from editions.pieces import Piece

from lessons_src.stepper import taken_apart

ROOT = Path(__file__).resolve().parent.parent
HEIGHT = 550  # px: below a question and two lines of what is said of it
SVG = "{http://www.w3.org/2000/svg}"


def graphs():
    for path in sorted((ROOT / "notebooks").glob("[0-9]_*.ipynb")):
        for cell in nbformat.read(path, as_version=4).cells:
            for output in cell.get("outputs", []):
                svg = output.get("data", {}).get("image/svg+xml", "")
                if close_ups.is_graph(svg):
                    for number, each in enumerate(taken_apart(svg)):
                        yield pytest.param(each, id=f"{path.name[0]}-{cell.id}-{number}")


each_graph = pytest.mark.parametrize("svg", list(graphs()))


def view(part):
    left, top, width, height = map(float, re.search('viewBox="([^"]+)"', part)[1].split())
    return close_ups.Box(left, top, left + width, top + height)


def scale(part):
    return float(re.search(r'width="(\d+)"', part)[1]) / view(part).width


@each_graph
def test_a_part_fits_its_slide_and_its_letters_are_large_enough(svg):
    for part, chart in close_ups.close_ups(svg, HEIGHT):
        width, height = map(int, re.search(r'width="(\d+)" height="(\d+)"', part).groups())
        room = close_ups.WIDTH
        if chart:
            assert "<text" not in chart
            room -= int(re.search(r'width="(\d+)"', chart)[1])
        assert width <= room and height <= HEIGHT
        assert min(map(float, re.findall(r'font-size="([\d.]+)"', part))) * scale(part) >= 12.9


@each_graph
def test_no_word_and_no_box_is_cut_or_left_out(svg):
    parts = [view(part) for part, _ in close_ups.close_ups(svg, HEIGHT)]
    for above, below in zip(parts, parts[1:], strict=False):
        assert above.bottom == pytest.approx(below.top, abs=0.11)
    graph = close_ups.bare(close_ups.graph_of(ElementTree.fromstring(svg)))
    for box in close_ups.solid(graph):
        assert any(part.top - 0.1 <= box.top and box.bottom <= part.bottom + 0.1 for part in parts)
        assert any(part.left <= box.left and box.right <= part.right for part in parts)


@each_graph
def test_what_the_picture_says_is_said_beside_it(svg):
    """Every word outside of the boxes but those of the legend."""
    verdict, _, more = close_ups.sentences(svg)
    root = ElementTree.fromstring(svg)
    bold = [text.text for text in root.iter(SVG + "text") if text.get("font-weight") == "bold"]
    assert " ".join([verdict, *more]).split() == " ".join(bold).split()


def test_a_tall_graph_is_cut_between_its_frames_where_that_takes_no_more_parts():
    frames = [close_ups.Box(0, 0, 50, 100), close_ups.Box(0, 110, 50, 200)]
    words = [close_ups.Box(10, top, 40, top + 10) for top in range(0, 200, 20)]
    whole = close_ups.Box(0, 0, 50, 200)
    assert close_ups.split(whole, words, frames, 120) == [(0, 102), (102, 200)]
    assert close_ups.split(whole, words, [whole], 120) == [(0, 92), (92, 200)]
    assert close_ups.split(whole, words, [whole], 200) == [(0, 200)]


def test_a_plot_is_left_alone():
    svg = '<svg xmlns="http://www.w3.org/2000/svg"><g id="figure_1"><text>u</text></g></svg>'
    plot = Piece(
        "picture", "A line.", graphs=[{"svg": svg, "title": "", "steps": [], "cuts": None}]
    )
    (made,) = pictures.on_slides(plot)
    assert made.graphs[0]["frames"] == [{"svg": svg, "words": "A line."}]


def small_graph(count):
    words = "".join(
        f'<text x="50" y="{20 * n}" font-size="10">a box {n}</text>' for n in range(1, count + 1)
    )
    ground = '<polygon points="0,0 0,999 999,999 999,0 0,0"/>'
    graph = f'<g class="graph">{ground}<g class="node"><title>n</title>{words}</g></g>'
    return f'<svg xmlns="http://www.w3.org/2000/svg"><desc>A graph.</desc>{graph}</svg>'


@pytest.mark.parametrize(("boxes", "slides"), [(15, 1), (30, 2)])
def test_two_graphs_share_a_slide_where_both_can_be_read(boxes, slides):
    """At one scale, and each with its title."""
    both = [
        {"svg": small_graph(count), "title": f"{count} boxes", "steps": []}
        for count in (boxes, boxes - 1)
    ]
    made = list(pictures.on_slides(Piece("picture", "Two graphs.", graphs=both)))
    assert len(made) == slides
    shown = [graph for piece in made for graph in piece.graphs]
    assert [graph["title"] for graph in shown] == [graph["title"] for graph in both]
    frames = [frame for graph in shown for frame in graph["frames"] if not frame.get("small")]
    assert len({round(scale(frame["svg"]), 1) for frame in frames}) == 1
    assert min(scale(frame["svg"]) * 10 for frame in frames) >= 12.9
