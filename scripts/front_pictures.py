"""The pictures of the front pages: F(x)² with every path, and with two cut; and a training."""

import nbformat
from editions.carry import ROOT
from same_outputs import CURVES, PICTURE

from double_backward.graphs.picture import DARK
from lessons_src.cut_paths import KEPT_BY_SINH, draw_cut

AT = 0.5
LESSON = ROOT / "notebooks" / "4_what_not_to_do.ipynb"


def drawn():
    """{file name: SVG}."""
    pair = {
        "sinh_squared": draw_cut("F(x)²", AT).svg,
        "sinhbad_squared": draw_cut("F(x)²", AT, KEPT_BY_SINH).svg,
    }
    return {
        **{f"{name}.svg": svg for name, svg in pair.items()},
        **{f"{name}_dark.svg": dark(svg) for name, svg in pair.items()},
        "trained.svg": trained()[PICTURE],
    }


def dark(svg):
    """For a page that is dark: black is white, and a colour keeps its name."""
    return svg.replace("<svg ", f'<svg style="{DARK}" ', 1)


def trained():
    """Lesson 4's trained curves, as they are stored: a dict from MIME type to content."""
    cells = nbformat.read(LESSON, as_version=4).cells
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    return next(output.data for output in outputs if CURVES in output.get("data", {}))
