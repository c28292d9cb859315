"""A notebook on paper: no line of it is cut, its folds are open, its modules are left out.

The style is in the notebook's first text, where Jupyter's "Print" and `nbconvert` find it, whoever
runs them. On the screen it does nothing, and nobody sees it.
"""

STYLE = """<style>@media print {
pre, .highlight pre { white-space: pre-wrap !important; overflow-wrap: anywhere !important; }
[id="cell-id=modules"] { display: none; }
details::details-content { content-visibility: visible; }
}</style>"""


def for_paper(notebook):
    """In place, at the end of the first text, which is the lesson's title."""
    for title in [cell for cell in notebook.cells if cell.cell_type == "markdown"][:1]:
        title.source += f"\n\n{STYLE}"
