"""A lesson as slides: one HTML file that asks nobody on the network for anything."""

import base64
import copy
import math
import re
from pathlib import Path

from nbconvert import SlidesExporter

TEMPLATES = Path(__file__).resolve().parent / "templates"
WIDTH, HEIGHT = 90, 26  # letters in a line and lines on a slide, about
PICTURE = 15  # lines
HEADING = re.compile(r"^##? ", re.MULTILINE)


def slides(notebook):
    notebook = copy.deepcopy(notebook)
    cut_into_slides(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":  # the next lesson is a page, too
            cell.source = re.sub(r"\]\((\d_\w+)\.ipynb\)", r"](\1.html)", cell.source)
    exporter = SlidesExporter(
        template_name="slides",
        extra_template_basedirs=[str(TEMPLATES)],
        filters={"words": words, "data_address": data_address},
        exclude_anchor_links=True,
        exclude_input_prompt=True,
        exclude_output_prompt=True,
    )
    return exporter.from_notebook_node(notebook, {"title": title(notebook)})[0]


def title(notebook):
    return notebook.cells[0].source.splitlines()[0].lstrip("# ")


def words(output):
    """What stands for a picture where it is not seen."""
    text = output.data.get("text/plain", "<").strip()
    # A library's own picture: its repr says nothing, and the rules ask for words below it.
    return "A graph; the text below it says what it shows." if text.startswith("<") else text


def data_address(output):
    svg = output.data["image/svg+xml"].encode()
    return "data:image/svg+xml;base64," + base64.b64encode(svg).decode()


def cut_into_slides(notebook):
    """Mark where slides begin: at each heading one to the right, and below it one for each step.

    A step is a text and the code it speaks of; code that does not fit goes to a slide of its own.
    """
    used, before = 0, None
    for cell in notebook.cells:
        size = lines(cell)
        kind = "-"
        if cell.cell_type == "markdown" and HEADING.search(cell.source):
            kind = "slide"
        elif cell.cell_type == "markdown" and before == "code" or used + size > HEIGHT:
            kind = "subslide"
        cell.metadata["slideshow"] = {"slide_type": kind}
        used, before = size + (used if kind == "-" else 0), cell.cell_type


def lines(cell):
    """About how many lines a cell takes on a slide."""
    count = sum(max(1, math.ceil(len(line) / WIDTH)) for line in cell.source.splitlines()) + 1
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        if "image/svg+xml" in data:
            count += PICTURE
        else:
            text = output.get("text") or data.get("text/plain") or "\n".join(output.traceback)
            count += len(text.splitlines()) + 1
    return count
