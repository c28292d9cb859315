"""The picture as DOT text and as finished SVG, before and after Graphviz has seen it."""

import re
from xml.etree import ElementTree

import pytest
import torch
from made_functions import of_inputs
from made_functions import x as leaf
from matplotlib.colors import to_rgb
from torch.autograd import Function, grad

from double_backward import draw
from double_backward.graphs import layout
from double_backward.graphs.flow import record
from double_backward.graphs.layout import LayoutError
from double_backward.graphs.picture import DARK, PAGE, PANE, dot_text, finish, quoted
from double_backward.graphs.sketch import Sketch
from lessons_src.saving_inputs import Square
from lessons_src.saving_intermediates import Sinh
from lessons_src.saving_outputs import Exp
from lessons_src.what_not_to_do import SinhBad


def sketch_of(fn, x):
    """The usual names: grad_x, x, out."""
    out = fn(x)
    (grad_x,) = grad(out.sum(), x, create_graph=True)
    return Sketch({"grad_x": grad_x, "x": x, "out": out})


SETTINGS = [
    "graph [fontname=monospace fontsize=11 labelloc=t nodesep=0.15 ranksep=0.22]",
    'node [fontname=monospace fontsize=11 height=0.2 margin="0.07,0.05"]',
    "edge [fontname=monospace fontsize=11 arrowsize=0.7]",
]


def statements(sketch):
    """What the picture holds: not the settings that all have, nor the verdict and the caption."""
    first, *lines, last, end = dot_text(sketch).split("\n")
    assert (first, last, end) == ("digraph {", "}", "")
    assert lines[:3] == SETTINGS
    start = lines.index("subgraph cluster {")
    assert lines[start + 1].startswith("label=<") and lines[-1] == "}"
    return lines[start + 2 : -1]


OPERATION = 'shape=box style="rounded,filled" fillcolor=lightgrey'
FUNCTION = 'shape=box style="rounded,filled,bold" fillcolor=white'
NAMED = 'shape=box style="filled" fillcolor="darkolivegreen1"'
LEAF = 'shape=box style="filled" fillcolor="lightblue"'
KEPT = 'shape=box style="filled" fillcolor="orange"'
NO_GRAPH = 'shape=box style="filled,dashed" fillcolor="orange"'
CUT_OFF = 'shape=box color=red3 penwidth=2 style="filled,dashed" fillcolor="white"'
MISSING = "style=dashed color=red3 penwidth=2 fontcolor=red3"
KEEPS = "dir=none style=dotted color=grey40 penwidth=1.5"


def test_intermediates_and_a_gradient_that_is_cut_off():
    on_ctx = "(2,)\\nintermediate,\\non ctx of SinhBad\\nno graph leads on"
    no_path = " no path: \\n taken for \\n a constant "
    assert statements(sketch_of(SinhBad.apply, leaf().clone())) == [
        "subgraph cluster_0 {",
        'label="forward" labelloc=b labeljust=l color=grey peripheries=1',
        f'n0 [{OPERATION} label="CloneBackward0"]',
        f'n1 [{FUNCTION} label="SinhBad"]',
        f'n3 [{NAMED} label="x (2,)"]',
        f'n4 [{NAMED} label="out (2,)"]',
        f'n5 [{LEAF} label="leaf (2,)"]',
        f'n6 [{NO_GRAPH} label="expx {on_ctx}"]',
        f'n7 [{NO_GRAPH} label="expnegx {on_ctx}"]',
        "}",
        "subgraph cluster_1 {",
        'label="first backward" labelloc=b labeljust=l color=grey peripheries=1',
        f'n2 [{CUT_OFF} label="grad_x (2,)\\ncut off: no graph\\nleads from here to x"]',
        "}",
        "n0 -> n3",
        "n5 -> n0",
        "n1 -> n4",
        "n3 -> n1",
        f"n1 -> n6 [{KEEPS}]",
        f"n1 -> n7 [{KEEPS}]",
        f'n6 -> n2 [{MISSING} label="{no_path}\\n x lacks 0.8244, 1.359 "]',
        f'n7 -> n2 [{MISSING} label=" x lacks -0.3033, -0.1839 "]',
        "n4 -> n2 [style=invis]",
    ]


Masked = of_inputs(
    lambda x, mask: x**2 * mask, lambda g, x, mask: (g * 2 * x * mask, None), "Masked"
)


def test_inputs_constants_and_numbers_that_came_back():
    x, mask = leaf(), torch.tensor([1.0, 0.0], dtype=torch.float64)
    sketch = Sketch({"y": Masked.apply(x, mask) * mask, "x": x, "mask": mask})
    sketch.flow = record(sketch.graph, sketch.tensors["y"], [x], None)
    assert statements(sketch) == [
        f'n0 [{FUNCTION} label="Masked"]',
        f'n1 [{OPERATION} label="MulBackward0"]',
        f'n2 [{NAMED} label="y (2,)\\n↑ 1"]',
        f'n3 [{KEPT} label="x (2,)\\nleaf, saved by Masked\\n↑ 1, 0"]',
        f'n4 [{NO_GRAPH} label="mask (2,)\\nsaved by Masked\\nno graph leads on"]',
        'n3 -> n0 [label=" ↑ 1, 0 "]',
        f"n0 -> n4 [{KEEPS}]",
        "n1 -> n2",
        'n0 -> n1 [label=" ↑ 1, 0 "]',
        "n4 -> n1",
    ]


def test_passes_are_framed_apart_and_what_belongs_to_none_stands_outside():
    x = leaf().clone()
    sketch = sketch_of(lambda x: Sinh.apply(x)[0], x)
    frames = [line for line in statements(sketch) if line.startswith(("subgraph", "label"))]
    assert frames == [
        "subgraph cluster_0 {",
        'label="forward" labelloc=b labeljust=l color=grey peripheries=1',
        "subgraph cluster_1 {",
        'label="first backward" labelloc=b labeljust=l color=grey peripheries=1',
    ]
    assert "subgraph" not in str(statements(Sketch({"y": x.sin(), "x": x})))


def test_an_output_that_is_saved_is_drawn_between():
    """By one line, the arrow: that it is kept is said in its box."""
    lines = statements(sketch := Sketch({"out": Sinh.apply(leaf())[0]}))
    box = next(line.split()[0] for line in lines if "output, saved by Sinh" in line)
    assert KEPT in next(line for line in lines if line.startswith(box))
    assert [line for line in lines if box in line.split(" [")[0].split(" -> ")[1:]] == [
        f"n0 -> {box}",
    ]
    assert not any("dotted line" in words for words, *_ in caption(sketch))


def caption(sketch, *notes):
    """Rows of cells, each as (words, look)."""
    (label,) = re.findall(r"^label=<(<TABLE.*</TABLE>)> ", dot_text(sketch, notes), re.MULTILINE)
    return [["".join(cell.itertext()) for cell in row] for row in ElementTree.fromstring(label)]


def test_caption():
    assert caption(sketch_of(SinhBad.apply, leaf().clone()), "A note.") == [
        ["SinhBad keeps intermediates,"],
        ["expx and expnegx: autograd"],
        ["takes them for constants"],
        ["A note."],
        ["operation", "custom Function"],
        ["leaf", "kept for backward"],
        ["no graph"],
        ["arrow: goes into, dotted line:"],
        ["kept by, red: should be there"],
    ]
    x, mask = leaf(), torch.ones(2, dtype=torch.float64)
    sketch = Sketch({"out": x * mask, "x": x, "mask": mask})
    assert caption(sketch) == [["operation", "leaf"], ["no graph"], ["arrow: goes into"]]
    sketch.flow = record(sketch.graph, sketch.tensors["out"], [x], None)
    assert caption(sketch)[-2:] == [["arrow: goes into, ↑ number:"], ["comes back"]]


def test_the_legend_shows_the_looks_of_this_picture():
    x, constant = leaf(), torch.ones(2)
    text = dot_text(Sketch({"out": Exp.apply(x), "x": x, "constant": constant}))
    cells = re.findall(r'CELLSPACING="0" ([^>]*)><TR><TD>(.*?)<', text)
    assert [(words, look) for look, words in cells] == [
        ("operation", 'BGCOLOR="lightgrey" STYLE="rounded"'),
        ("custom Function", 'STYLE="rounded" BORDER="2"'),
        ("leaf", 'BGCOLOR="lightblue"'),
        ("kept for backward", 'BGCOLOR="orange"'),
        ("no graph", 'STYLE="dashed"'),
    ]  # x and out are named, too, but look otherwise
    assert "no graph<" not in dot_text(Sketch({"out": Exp.apply(x), "x": x}))


def test_what_is_cut_off_hangs_below_out_where_it_has_no_place_of_its_own():
    x = leaf()
    elsewhere = {"grad_x": leaf() * 2, "x": x, "out": x * 2}
    for named in (elsewhere, {"y": x.detach(), "x": x}):
        lines = statements(Sketch(named))
        assert "cut off" in str(lines) and "invis" not in str(lines)


def test_names_and_numbers_are_not_torn_apart():
    def square(ctx, x):
        ctx.save_for_backward(x)
        return x**2

    name = "A_long_" * 5
    fn = type(name, (Function,), {"forward": staticmethod(square)}).apply
    x = leaf()
    lines = statements(Sketch({"out": fn(x) + Square.apply(x) + Square.apply(x), "x": x}))
    (label,) = [line for line in lines if 'label="x (2,)' in line]
    assert f"\\nleaf, saved by\\n{name}\\n" in label
    assert "\\nsaved by Square #1\\n" in label


@pytest.mark.parametrize(
    "width, height, shown",
    [
        (150, 60, (200, 80)),
        (1200, 60, (PAGE, 40)),
        (150, 500, (180, PANE)),
        (150, 900, (150, 900)),  # smaller, it could not be read
    ],
)
def test_a_finished_picture_fits_the_page(width, height, shown):
    svg = f'<?xml?>\n<!-- a -->\n<svg width="{width}pt" height="{height}pt"\n id="1"><g/></svg>\n'
    finished = finish(svg, "a < b", "x > y")
    assert finished == (
        f'<svg role="img" width="{shown[0]}" height="{shown[1]}"\n id="1">\n'
        "<title>a &lt; b</title>\n<desc>x &gt; y</desc><g/></svg>\n"
    )


def test_a_picture_without_a_size_is_left_as_it_is():
    assert finish("<svg>a</svg>", "t", "d") == "<svg>\n<title>t</title>\n<desc>d</desc>a</svg>"


def test_quoted():
    assert quoted('a "b"\\c\nd') == '"a \\"b\\"\\\\c\\nd"'


def test_a_drawing_is_saved(tmp_path):
    x = torch.tensor([0.5, 1.0], requires_grad=True)
    picture = draw(x=x, out=x**2)
    picture.save(tmp_path / "graph.svg")
    assert (tmp_path / "graph.svg").read_text(encoding="utf-8") == picture.svg
    picture.save(str(tmp_path / "graph.PNG"))
    assert (tmp_path / "graph.PNG").read_bytes().startswith(b"\x89PNG")


def test_a_drawing_that_cannot_be_saved_says_why(tmp_path, monkeypatch):
    x = torch.tensor([0.5, 1.0], requires_grad=True)
    with pytest.raises(ValueError, match=r"as \.svg or \.png, not as 'graph.pdf'"):
        draw(out=x**2).save(tmp_path / "graph.pdf")
    with pytest.raises(ValueError, match="there is no picture to save. Nothing to draw"):
        draw(out=x.detach()).save(tmp_path / "graph.svg")
    picture = draw(out=x**2)
    monkeypatch.setattr(layout, "_laid_out", lambda dot, kind: b"")
    with pytest.raises(LayoutError, match="this Graphviz writes no PNG"):
        picture.save(tmp_path / "graph.png")
    assert list(tmp_path.iterdir()) == []


def luminance(rgb):
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(*colours):
    dark, light = sorted(map(luminance, colours))
    return (light + 0.05) / (dark + 0.05)


def in_the_dark(colour):
    """What `invert(0.95) hue-rotate(180deg)` makes of it, by the matrix of the standard."""
    red, green, blue = (0.95 - 0.9 * c for c in to_rgb(colour))
    turned = (
        -0.574 * red + 1.430 * green + 0.144 * blue,
        0.426 * red + 0.430 * green + 0.144 * blue,
        0.426 * red + 1.430 * green - 0.856 * blue,
    )
    return [min(1, max(0, c)) for c in turned]


def test_words_are_told_from_their_ground_in_the_light_and_in_the_dark():
    assert DARK == "filter: invert(0.95) hue-rotate(180deg)"
    x = leaf()
    bad = SinhBad.apply(x) ** 2
    (grad_x,) = grad(bad.sum(), x, create_graph=True)
    seen = set()
    for drawing in (draw(grad_x=grad_x, x=x, out=bad), draw(out=Sinh.apply(x)[0], x=x.clone())):
        for group in ElementTree.fromstring(drawing.svg).iter("{http://www.w3.org/2000/svg}g"):
            grounds = [each.get("fill") for each in group if each.tag.endswith(("polygon", "path"))]
            ground = next((g for g in grounds if g and g != "none"), "white")
            ground = ground if group.get("class") == "node" else "white"
            words = [each.get("fill", "black") for each in group if each.tag.endswith("text")]
            seen |= {(ground, colour) for colour in words}
    assert {("orange", "black"), ("white", "#cd0000"), ("lightgrey", "black")} <= seen
    for ground, colour in seen:
        assert contrast(to_rgb(ground), to_rgb(colour)) >= 4.5
        assert contrast(in_the_dark(ground), in_the_dark(colour)) >= 4.5, (ground, colour)
