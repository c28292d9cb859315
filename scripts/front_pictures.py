"""The pictures of the front pages: F(x)² with a right Function and a wrong one, and a training.

The graphs are those of lessons 3 and 4 with all that the first backward computed as one box, so
that they can be read at half a page's width. What leads where is asked of the sketch that `draw`
makes its pictures from.
"""

import textwrap

import nbformat
import torch
from editions.carry import ROOT
from same_outputs import CURVES, PICTURE
from torch.autograd import grad

from double_backward.graphs import picture as looks
from double_backward.graphs.layout import to_svg
from double_backward.graphs.outline import NO_PATH, verdict
from double_backward.graphs.sketch import Sketch
from lessons_src.derivatives import second
from lessons_src.saving_intermediates import Sinh
from lessons_src.what_not_to_do import SinhBad

AT = 0.5
LESSON = ROOT / "notebooks" / "4_what_not_to_do.ipynb"


def drawn():
    """{file name: SVG}."""
    return {
        "sinh_squared.svg": picture(Sinh, "y", "expx", "expnegx"),
        "sinhbad_squared.svg": picture(SinhBad, "y"),
        "trained.svg": trained()[PICTURE],
    }


def trained():
    """Lesson 4's trained curves, as they are stored: a dict from MIME type to content."""
    cells = nbformat.read(LESSON, as_version=4).cells
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    return next(output.data for output in outputs if CURVES in output.get("data", {}))


def picture(function, *names):
    """The graph of F(x)² at `AT`, with its second derivative; `names` are those of the outputs."""
    x = torch.tensor([AT], dtype=torch.float64, requires_grad=True)
    outputs = function.apply(x)
    named = dict(zip(names, outputs if len(names) > 1 else [outputs], strict=True))
    out = named["y"] ** 2
    (grad_x,) = grad(out.sum(), x, create_graph=True)
    sketch = Sketch({"grad_x": grad_x, "x": x, **named, "out": out})
    (grad2_x,) = grad(grad_x.sum(), x)
    found, right = grad2_x.item(), second(lambda x: torch.sinh(x) ** 2, x).item()
    judged = "right" if abs(found - right) < 1e-9 else f"wrong: it is {right:.4f}"
    words, colour = verdict(sketch)
    number = f"second derivative {found:.4f}, {judged}"
    # Two lines each, so that two pictures beside each other are of one height.
    above, below = (
        lines if "\n" in lines else lines + "\n " for lines in map(split, (words, number))
    )
    dot = [
        "digraph {",
        "graph [fontname=monospace fontsize=11 nodesep=0.12 ranksep=0.25]",
        'node [fontname=monospace fontsize=11 height=0.3 margin="0.08,0.05"]',
        "edge [fontname=monospace fontsize=10 arrowsize=0.7]",
        f"labelloc=t fontcolor={looks.COLOURS[colour]} label={looks.quoted(above)}",
        f"subgraph cluster {{ labelloc=b peripheries=0 label={looks.quoted(below)}",
        *statements(sketch, function.__name__),
        "}}\n",
    ]
    return looks.finish(to_svg("\n".join(dot)), f"{function.__name__}(x)²: {words}", number)


def split(sentence):
    return sentence.replace(", ", ",\n").replace(" (", "\n(")


def statements(sketch, name):
    """DOT: x, the Function, what it returns or keeps, the first backward as one box, grad_x."""
    (function,) = [node for node in sketch.shown if node.custom]
    backward = {node for node, phase in sketch.phase.items() if phase}
    missing = {id(path.kept.tensor) for path in sketch.findings.missing}
    yield tensor("x", "x", looks.LEAF)
    yield f"function [{looks.FUNCTION} label={looks.quoted(name)}]"
    yield f'backward [{looks.OPERATION} label="first backward of y²:\\n{len(backward)} operations"]'
    yield tensor("grad_x", "grad_x", looks.NAMED)
    yield "x -> function"
    said = textwrap.wrap(NO_PATH, 10)  # beside one arrow; beside none, as much room
    for number, box in enumerate(sketch.boxes.values()):
        if function not in (box.maker, *(keeper for keeper, _ in box.keepers)):
            continue
        me, label = f"n{number}", box.called or box.keepers[0][1].name
        if box.keepers:
            label += "\nreturned" if box.maker else "\non ctx only"
        yield tensor(me, label, looks.KEPT if box.keepers else looks.NAMED, bool(box.maker))
        yield f"function -> {me}" + ("" if box.maker else f" [{looks.KEPT_LINE}]")
        lost = id(box.tensor) in missing
        used = any((box.maker, box.number) == edge for node in backward for edge in node.inputs)
        if lost or used:
            words = "\n".join(f" {line}" if lost else " " for line in said if box.keepers)
            look = f"{looks.MISSING_LINE if lost else ''} label={looks.quoted(words)}"
            yield f"{me} -> backward [{look}]"
            said = [] if words else said
    yield "backward -> grad_x"


def tensor(name, label, colour, has_graph=True):
    style = "filled" if has_graph else "filled,dashed"
    return f'{name} [shape=box style="{style}" fillcolor={colour} label={looks.quoted(label)}]'
