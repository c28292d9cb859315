"""`show`: a matplotlib figure that says in words what it shows."""

import io
from html import escape
from typing import Any

from matplotlib import pyplot, rc_context

from lessons_src.picture_words import in_words_of

# Text stays text, and ids do not change from run to run. No point of a curve is left out: which one
# would depend on the last digits.
# Any, for some versions of matplotlib give the names of settings a type of their own.
SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "lessons",
    "path.simplify": False,
}
CURVES = "application/vnd.lessons.curves+json"


class Plot:
    """What `show` returns: the picture, and its description for those who do not see it.

    Attributes:
        svg, description: str.
        curves: list of {"label", "x", "y"}, each a str: the name of a line and the numbers it was
            drawn from, to nine digits, with spaces between. They are stored beside the picture, so
            that a test can compare the numbers themselves.
    """

    def __init__(self, svg, description, curves):
        self.svg, self.description, self.curves = svg, description, curves

    def __repr__(self):
        return self.description

    def _repr_mimebundle_(self, include=None, exclude=None):
        return {
            "text/plain": self.description,
            "image/svg+xml": self.svg,
            CURVES: self.curves,
        }


def show(figure, description):
    """Render a figure for the last line of a notebook cell, and close it.

    Args:
        figure: `matplotlib.figure.Figure`.
        description: str, what there is to see; it becomes the alternative text of the picture.

    Returns:
        `Plot`, displayed as SVG with a title that a screen reader speaks, in the reader's language.
    """
    description = in_words_of(description)
    file = io.StringIO()
    with rc_context(SETTINGS):
        for line in _lines(figure):
            line.recache(always=True)  # made before, under the settings of then
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    pyplot.close(figure)
    svg = file.getvalue()
    head, body = svg[svg.index("<svg") :].split(">", 1)
    label = escape(description, quote=True)
    svg = f'{head} role="img" aria-label="{label}">\n<title>{escape(description)}</title>{body}'
    return Plot(svg, description, _curves(figure))


def _curves(figure):
    return [
        {
            "label": str(line.get_label()),
            "x": _numbers(line.get_xdata(orig=False)),
            "y": _numbers(line.get_ydata(orig=False)),
        }
        for line in _lines(figure)
    ]


def _lines(figure):
    return [line for axes in figure.axes for line in axes.lines]


def _numbers(values):
    return " ".join(f"{float(value):.9g}" for value in values)
