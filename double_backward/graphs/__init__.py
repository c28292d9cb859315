"""`draw` and `draw_backward`: an autograd graph as a picture, and the same in words."""

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import torch

from double_backward.graphs.flow import record
from double_backward.graphs.layout import LayoutError, to_png, to_svg
from double_backward.graphs.outline import joined, outline_text, verdict
from double_backward.graphs.picture import dot_text, finish, inline, named, pass_steps
from double_backward.graphs.sketch import MOST_DRAWN, Sketch
from double_backward.graphs.words import in_words_of

__all__ = ["Drawing", "draw", "draw_backward"]

NOTHING_TO_DRAW = (
    "Nothing to draw: no tensor given has a graph. A tensor gets one from an operation on a tensor "
    "that requires grad, outside torch.no_grad()."
)
HOW = "Call {0} with names, as in {0}(grad_x=grad_x, x=x, out=out)."


Values = torch.Tensor | list[torch.Tensor] | tuple[torch.Tensor, ...]


@dataclass(eq=False, repr=False)
class Drawing:
    """What `draw` returns. A notebook shows the picture; `print` shows the outline, in the reader's
    language.

    Attributes:
        outline: str, the graph in words, in English.
        dot: str, the picture in the DOT language, or None where nothing is drawn.
        svg: str, the picture, or None where there is none; the outline then says why.
        steps: list of (sentence, titles of elements in the SVG), one for each operation that a
            backward pass went through; empty from `draw`.
    """

    outline: str
    dot: str | None = None
    svg: str | None = None
    steps: Sequence[tuple[str, list[str]]] = ()

    def __repr__(self) -> str:
        return in_words_of(self.outline)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the picture to a file.

        Args:
            path: a path that ends in .svg, or in .png if Graphviz's own `dot` is installed.

        Raises:
            ValueError: the path has another ending, or there is no picture; the outline says why.
            LayoutError: the path ends in .png, and there is no `dot` that can write one.
        """
        path = Path(path)
        ending = path.suffix.lower()
        if ending not in (".svg", ".png"):
            raise ValueError(f"a picture is saved as .svg or .png, not as '{path.name}'")
        if self.svg is None or self.dot is None:
            raise ValueError(f"there is no picture to save. {self!r}")
        if ending == ".svg":
            path.write_text(self.svg, encoding="utf-8")
        else:
            path.write_bytes(to_png(self.dot))

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        bundle = {"text/plain": repr(self)}
        if self.svg is not None:
            bundle["image/svg+xml"] = self.svg
            bundle["text/html"] = inline(named(self.svg))
        return bundle


def draw(*unnamed: Values, legend: bool = True, **named: Values) -> Drawing:
    """Draw the autograd graph behind some tensors.

    With a gradient and `out` among them, the custom Functions are run once more on copies, to see
    which paths are missing: where one keeps a tensor that changes with its inputs and gets it back
    without a graph, the path that should leave it is drawn in red. Where it can be measured, the
    number on this path is what the input lacks: what a pass that starts at the gradient with ones
    would bring back to the input through what is kept. What comes back plus all that is lacking is
    what should come back. The picture shows only paths: a backward that ignores the gradient of an
    output, or returns a wrong number, has all its paths; use `diagnose` to find that.

    Args:
        unnamed: not drawn; a note in the outline asks for names.
        legend: whether the picture explains its colours and lines.
        **named: tensors of any shape and dtype, or lists or tuples of them. The names appear in the
            picture. `out` is the result of the forward pass, names that start with `grad` are
            gradients; with `out` given, each operation is drawn in the pass that made it.

    Returns:
        `Drawing`. Where nothing can be drawn, its outline is a sentence that says why, and nothing
        is raised.
    """
    tensors, notes = _tensors(named, unnamed, "draw")
    return _drawing(Sketch(tensors), notes, legend)


def draw_backward(
    *unnamed: Values,
    grad_outputs: torch.Tensor | None = None,
    legend: bool = True,
    **named: Values,
) -> Drawing:
    """Run one backward pass and draw the graph with the numbers that came back.

    The pass starts at the first tensor named and ends at the others. The number on an arrow is what
    the operation below sent back along it; the number on a tensor is all that came back to it. The
    graph is retained, and no `.grad` changes.

    Args:
        unnamed, named: as for `draw`.
        grad_outputs: the gradient that the pass starts with, a tensor of the shape of the first;
            None for ones. The pass is linear: ten times that gives ten times every number.
        legend: whether the picture explains its colours and lines.

    Returns:
        `Drawing`, as from `draw`. If the pass raises, the outline quotes torch's error.
    """
    tensors, notes = _tensors(named, unnamed, "draw_backward")
    sketch = Sketch(tensors, grad_outputs)
    if sketch.nodes and len(sketch.nodes) <= MOST_DRAWN:
        start, *others = tensors.values()
        ends = [tensor for tensor in others if tensor.requires_grad]
        sketch.flow = record(sketch.graph, start, ends, grad_outputs)
    return _drawing(sketch, notes, legend)


def _drawing(sketch: Sketch, notes: list[str], legend: bool) -> Drawing:
    if not sketch.nodes:
        return Drawing("\n".join([NOTHING_TO_DRAW, *notes]))
    if len(sketch.nodes) > MOST_DRAWN:
        notes.append(f"No picture: more than {MOST_DRAWN} operations are too many to read in one.")
        return Drawing(outline_text(sketch, notes))
    dot, words = dot_text(sketch, notes, legend), outline_text(sketch, notes)
    try:
        svg = to_svg(dot)
    except LayoutError as error:
        return Drawing(f"{words}\n{error}", dot)
    title = ": ".join(filter(None, [f"Graph of {joined(sketch.tensors)}", verdict(sketch)[0]]))
    steps = pass_steps(sketch) if sketch.flow.arrived else []
    return Drawing(words, dot, finish(svg, title, words), steps)


def _tensors(
    named: dict[str, Values], unnamed: Sequence[Values], verb: str
) -> tuple[dict[str, torch.Tensor], list[str]]:
    """The tensors by name, lists taken apart; and a sentence for each value that is no tensor."""
    tensors, notes = {}, []
    for name, value in named.items():
        parts = {name: value}
        if isinstance(value, (list, tuple)):
            parts = {f"{name}[{i}]": part for i, part in enumerate(value)}
        for part_name, part in parts.items():
            if isinstance(part, torch.Tensor):
                tensors[part_name] = part
            else:
                kind = "None" if part is None else f"of type {type(part).__name__}"
                notes.append(f"{part_name} is {kind}: give draw a tensor or a list of tensors.")
    if unnamed or not named:
        notes.append(HOW.format(verb))
    return tensors, notes
