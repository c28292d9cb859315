"""`show`: a matplotlib figure that says in words what it shows."""

import io
from html import escape

from matplotlib import pyplot, rc_context

# Text stays text, and ids do not change from run to run.
SETTINGS = {"svg.fonttype": "none", "svg.hashsalt": "lessons"}


class Plot:
    """What `show` returns: the picture, and its description for those who do not see it."""

    def __init__(self, svg, description):
        self.svg, self.description = svg, description

    def __repr__(self):
        return self.description

    def _repr_mimebundle_(self, include=None, exclude=None):
        return {"text/plain": self.description, "image/svg+xml": self.svg}


def show(figure, description):
    """Render a figure for the last line of a notebook cell, and close it.

    Args:
        figure: `matplotlib.figure.Figure`.
        description: str, what there is to see; it becomes the alternative text of the picture.

    Returns:
        `Plot`, displayed as SVG with a title that a screen reader speaks.
    """
    file = io.StringIO()
    with rc_context(SETTINGS):  # type: ignore[arg-type]  # a Literal of every setting there is
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    pyplot.close(figure)
    svg = file.getvalue()
    head, body = svg[svg.index("<svg") :].split(">", 1)
    label = escape(description, quote=True)
    svg = f'{head} role="img" aria-label="{label}">\n<title>{escape(description)}</title>{body}'
    return Plot(svg, description)
