"""F(x)² as a picture in which a right Function and a wrong one are told apart at a glance.

All that the first backward computed is one box. What leads where is asked of the sketch that `draw`
makes its pictures from.
"""

import textwrap
from collections.abc import Iterator

import torch
from torch.autograd import Function, grad

from double_backward.graphs import Drawing
from double_backward.graphs import picture as looks
from double_backward.graphs.flow import number_words, record
from double_backward.graphs.layout import to_svg
from double_backward.graphs.outline import NO_PATH, PATHS_ONLY, joined, verdict
from double_backward.graphs.sketch import Sketch, TensorBox
from double_backward.graphs.walk import Kept
from lessons_src.derivatives import second

NAMES = "y", "expx", "expnegx"  # what Sinh returns


def draw_square(function: type[Function], at: float, numbers: bool = False) -> Drawing:
    """The graph of F(x)² with its first backward, and the second derivative that it gives.

    Args:
        function: computes sinh; returns y alone, or the two exponentials, too.
        at: x.
        numbers: whether each path says what x gets by it in the second backward, or lacks: their
            sum is right; `steps` then tells of that pass.
    """
    x = torch.tensor([at], dtype=torch.float64, requires_grad=True)
    outputs = function.apply(x)
    named = dict(zip(NAMES, outputs if isinstance(outputs, tuple) else [outputs], strict=False))
    out = named["y"] ** 2
    (grad_x,) = grad(out.sum(), x, create_graph=True)
    sketch = Sketch({"grad_x": grad_x, "x": x, **named, "out": out})
    (found,) = grad(grad_x, x, retain_graph=True)
    right = second(lambda x: torch.sinh(x) ** 2, x)
    judged = "right" if torch.allclose(found, right) else f"wrong: it is {right.item():.4f}"
    number = f"second derivative {found.item():.4f}, {judged}"
    if numbers:
        sketch.flow = record(sketch.graph, grad_x, [x, *named.values()], None)
    square = _Square(sketch)
    what, dot = f"{function.__name__}(x)² at x = {at}", square.dot(number)
    words = "\n".join([what, number, *square.told(), square.verdict])
    svg = looks.finish(to_svg(dot), f"{what}: {number}", words)
    return Drawing(words, dot, svg, square.steps() if numbers else ())


class _Square:
    """x, the Function, what it returns or keeps, the first backward as one box, grad_x."""

    def __init__(self, sketch: Sketch):
        (self.function,) = [node for node in sketch.shown if node.custom]
        self.sketch = sketch
        self.title = sketch.title(self.function)
        self.backward = {node for node, phase in sketch.phase.items() if phase}
        self.boxes: dict[str, TensorBox] = {}  # by name, what the Function returns or keeps
        for box in sketch.boxes.values():
            if self.function in (box.maker, *(keeper for keeper, _ in box.keepers)):
                self.boxes[box.called or box.keepers[0][1].name] = box
        words, self.colour = verdict(sketch)
        self.verdict = words.removesuffix(PATHS_ONLY)
        shares = {
            id(path.kept.tensor): path.share
            for path in sketch.findings.missing
            if isinstance(path.kept, Kept)
        }
        self.lost = {
            name: shares[id(b.tensor)] for name, b in self.boxes.items() if id(b.tensor) in shares
        }

    def told(self) -> Iterator[str]:
        """A line for each tensor that the Function returns or keeps."""
        for name, box in self.boxes.items():
            leads = NO_PATH if name in self.lost else "leads into the first backward"
            yield f"  {name}, {'returned' if box.maker else 'on ctx only'}: {leads}"

    def steps(self) -> list[tuple[str, list[str]]]:
        """As those of `draw_backward`, with the first backward as one."""
        came = [name for name in self.boxes if name not in self.lost]
        got = joined(f"{self._share(name)} by {name}" for name in came)
        lacks = joined(f"{self._share(name)} by {name}" for name in self.lost) if self.lost else ""
        nothing = f" No path: it lacks {lacks}." if lacks else ""
        arrows = [part for name in came for part in (f"{name}->backward", name)]
        return [
            ("The pass starts at grad_x with 1.", ["grad_x"]),
            (f"x gets {got}.{nothing}", ["backward", *arrows]),
            (f"{self.title} sends {self._share('x')} to x.", ["function", "x->function", "x"]),
        ]

    def dot(self, number: str) -> str:
        font = f"fontname=monospace fontsize={looks.LETTERS}"
        above, below = (
            looks.sentence(_two_lines(words), self.colour) for words in (number, self.verdict)
        )
        return "\n".join(
            [
                "digraph {",
                f"graph [{font} nodesep=0.1 ranksep=0.2]",
                f'node [{font} height=0.3 margin="0.07,0.04"]',
                f"edge [{font} arrowsize=0.7]",
                f"labelloc=t label={above}",
                f"subgraph cluster {{ labelloc=b peripheries=0 margin=2 label={below}",
                *self._statements(),
                "}}\n",
            ]
        )

    def _statements(self) -> Iterator[str]:
        backward = f"first backward of y²:\n{len(self.backward)} operations"
        yield _box("x", "x", looks.LEAF)
        yield f"function [{looks.FUNCTION} label={looks.quoted(self.title)}]"
        yield f"backward [{looks.OPERATION} label={looks.quoted(backward)}]"
        yield _box("grad_x", "grad_x", looks.NAMED)
        yield f'x -> function [label="{self._label("x")}"]'
        no_path = [f" {line} " for line in textwrap.wrap(NO_PATH, 10)]
        lines = len(no_path) + bool(self.sketch.flow.arrived)  # in each label
        for name, box in self.boxes.items():
            where = "" if not box.keepers else "\nreturned" if box.maker else "\non ctx only"
            yield _box(name, name + where, looks.KEPT if where else looks.NAMED, bool(box.maker))
            yield f"function -> {name}" + ("" if box.maker else f" [{looks.KEPT_LINE}]")
            words = [self._label(name)]
            if name in self.lost:
                words, no_path = [*no_path, *filter(None, words)], []  # once
            if words:
                words = [*[" "] * ((lines - len(words)) // 2), *words]
                words += [" "] * (lines - len(words))
            look = looks.MISSING_LINE if name in self.lost else ""
            yield f"{name} -> backward [{look} label={looks.quoted(chr(10).join(words))}]"
        yield "backward -> grad_x"

    def _label(self, name: str) -> str:
        """What x gets by this tensor, or lacks; for x, what comes back to it in all."""
        if not self.sketch.flow.arrived:
            return ""
        mark = "lacks " if name in self.lost else looks.BACK
        return f" {mark}{self._share(name)} "

    def _share(self, name: str) -> str:
        """In the numbers of x, so that they can be added up."""
        if name in self.lost:
            share = self.lost[name]
            return "?" if share is None else number_words(share)
        x, box = self.sketch.tensors["x"], self.sketch.box_of(self.sketch.tensors[name])
        assert box.maker is not None
        came = self.sketch.flow.arrived[box.maker.fn, box.number]
        return number_words(*grad(box.tensor, x, came, retain_graph=True))


def _two_lines(words: str) -> list[str]:
    """Of one, too, so that two pictures beside each other are of one height."""
    first, comma, rest = words.partition(", ")
    return [f"{first}{comma.strip()}", rest or " "]


def _box(name: str, words: str, colour: str, has_graph: bool = True) -> str:
    style = "filled" if has_graph else "filled,dashed"
    return f'{name} [shape=box style="{style}" fillcolor={colour} label={looks.quoted(words)}]'
