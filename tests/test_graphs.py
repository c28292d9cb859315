"""`draw`: the outline, the picture, and what happens when there is nothing to draw."""

import xml.etree.ElementTree as ElementTree

import pytest
import torch
from made_functions import function, save_x
from made_functions import x as leaf
from torch.autograd import grad
from torch.autograd.function import once_differentiable

from double_backward import diagnose, graphs
from double_backward.graphs import draw, layout
from lessons_src.saving_inputs import Square
from lessons_src.saving_intermediates import sinh
from lessons_src.untracked_backward import Cube
from lessons_src.what_not_to_do import SinhBad


def drawn(fn, x=None):
    """The usual call, on grad_x, x and out."""
    x = leaf().clone() if x is None else x
    out = fn(x)
    (grad_x,) = grad(out.sum(), x, create_graph=True)
    return draw(grad_x=grad_x, x=x, out=out)


def lines(drawing):
    return str(drawing).splitlines()


def clamped_log(ctx, x):
    x = x.clamp(min=1e-6)
    ctx.save_for_backward(x)
    return torch.log(x)


SafeLog = function(clamped_log, lambda ctx, g: g / ctx.saved_tensors[0], "SafeLog")


def test_outline_of_a_saved_input():
    assert lines(drawn(Square.apply)) == [
        "Graph of grad_x, x and out: 3 operations, 1 leaf",
        "grad_x leads back to x (a picture checks paths, not numbers)",
        "forward",
        "  leaf    a leaf (2,)",
        "  x       made by CloneBackward0 from leaf",
        "  out     made by Square from x",
        "    keeps x: input, saved",
        "first backward",
        "  grad_x  made by MulBackward0 from a constant and x",
    ]


def test_outline_of_intermediates_on_ctx():
    assert lines(drawn(SinhBad.apply)) == [
        "Graph of grad_x, x and out: 2 operations, 1 leaf",
        "grad_x is cut off: no graph leads from here to x",
        "forward",
        "  leaf    a leaf (2,)",
        "  x       made by CloneBackward0 from leaf",
        "  out     made by SinhBad from x",
        "    keeps expx: intermediate, on ctx as expx; no graph leads on from here",
        "    keeps expnegx: intermediate, on ctx as expnegx; no graph leads on from here",
        "first backward",
        "  grad_x  a tensor (2,) without a graph",
        "    no path from expx of SinhBad: taken for a constant; x lacks 0.8244, 1.359",
        "    no path from expnegx of SinhBad: taken for a constant; x lacks -0.3033, -0.1839",
        "SinhBad keeps intermediates, expx and expnegx: autograd takes them for constants",
    ]


def test_outline_of_intermediates_that_are_outputs_too():
    outline = lines(drawn(sinh))
    assert "    keeps output 1 of Sinh: output 1, saved" in outline
    assert "  AddBackward0 #1  made from output 1 of Sinh and output 2 of Sinh" in outline
    assert outline[1] == "grad_x leads back to x (a picture checks paths, not numbers)"
    assert "intermediate" not in str(outline)


def test_an_intermediate_in_a_larger_function_is_named_where_backward_uses_it():
    outline = lines(drawn(lambda x: SafeLog.apply(x) ** 2))
    assert (
        "  grad_x           made by DivBackward0 from MulBackward0 and a tensor (2,) (a constant)"
        in outline
    )
    assert outline[-1] == "SafeLog keeps an intermediate: autograd takes it for a constant"


def test_the_reader_s_name_wins_over_the_one_on_ctx():
    def stashes(ctx, x):
        ctx.saved_x = x
        return x * x

    x = leaf()
    drawing = draw(out=function(stashes, None).apply(x), x=x)
    assert "    keeps x: input, on ctx as saved_x" in lines(drawing)


def test_a_tensor_of_another_graph_on_ctx_is_told():
    def stashes(ctx, x, others):
        ctx.other = others[0]
        return x * x

    x = leaf()
    told = lines(draw(out=function(stashes, None).apply(x, [leaf().sin()]), x=x))
    kept = "    keeps other: neither input nor output, on ctx as other; it has a graph of its own"
    assert kept in told


def test_three_passes_are_told_apart_and_custom_functions_keep_their_names():
    x = leaf().clone()
    out = Cube.apply(x)
    (grad_x,) = grad(out.sum(), x, create_graph=True)
    (grad2_x,) = grad(grad_x.sum(), x, create_graph=True)
    outline = lines(draw(grad2_x=grad2_x, grad_x=grad_x, x=x, out=out))
    passes = [line for line in outline if "backward" in line or line == "forward"]
    assert passes == ["forward", "first backward", "second backward"]
    first = outline[outline.index("first backward") : outline.index("second backward")]
    assert first[1].split(maxsplit=1) == ["grad_x", "made by CubeBackward from a constant and x"]
    assert "  out      made by Cube from x" in outline


def test_without_the_first_gradient_the_passes_are_not_told_apart():
    x = leaf().clone()
    out = x**3
    (grad_x,) = grad(out.sum(), x, create_graph=True)
    (grad2_x,) = grad(grad_x.sum(), x, create_graph=True)
    assert "every backward up to the second" in lines(draw(grad2_x=grad2_x, x=x, out=out))


def test_without_out_no_pass_is_named():
    x = leaf()
    (grad_x,) = grad(Square.apply(x).sum(), x, create_graph=True)
    assert not {"forward", "first backward"} & set(lines(draw(grad_x=grad_x, x=x)))


@pytest.mark.parametrize(
    "named, sentence",
    [
        (
            lambda x: {"out": x.detach() * 2, "x": x},
            "out is cut off: no graph leads from here to x",
        ),
        (lambda x: {"y": x.detach(), "x": x}, "y is cut off: no graph leads from here to x"),
        (lambda x: {"x": x, "y": x.detach()}, "y is cut off: no graph leads from here to x"),
        (
            lambda x: {"grad_x": leaf() * 2, "x": x, "out": x * 2},
            "grad_x is cut off: no graph leads from here to x",
        ),
    ],
    ids=["out", "result first", "result last", "a graph that leads elsewhere"],
)
def test_what_leads_to_no_input_is_cut_off(named, sentence):
    drawing = draw(**named(leaf().clone()))
    assert sentence in lines(drawing)
    assert drawing.dot.count("cut off:") == 2  # in its box and below the graph


def test_what_is_constant_on_purpose_is_not_called_cut_off():
    x, grad_out = leaf().clone(), torch.ones(2, dtype=torch.float64)
    out = Cube.apply(x)
    (grad_x,) = grad(out, x, grad_out, create_graph=True)
    drawing = draw(grad_x=grad_x, x=x, out=out, grad_out=grad_out)
    assert "cut off" not in str(drawing)
    assert "    keeps grad_out: saved; no graph leads on from here" in str(drawing)


def test_a_constant_goes_by_the_reader_s_name():
    x, mask = leaf(), torch.ones(2, dtype=torch.float64)
    outline = lines(draw(out=x * mask, x=x, mask=mask))
    assert "  out   made by MulBackward0 from x and mask (a constant)" in outline
    assert "cut off" not in str(outline)


def test_a_function_that_forbids_the_second_backward_is_told():
    guarded = once_differentiable(lambda ctx, g: g * 3 * ctx.saved_tensors[0] ** 2)
    outline = lines(drawn(lambda x: function(save_x, guarded).apply(x) ** 2))
    assert "A pass through the guard of once_differentiable raises" in outline
    assert "grad_x is cut off: no graph leads from here to x" in outline


def test_a_picture_without_a_legend_has_its_sentences():
    x = leaf()
    words = draw(out=SinhBad.apply(x), x=x, legend=False).dot
    assert "SinhBad keeps intermediates" in words and ">arrow: goes into" not in words


def test_the_svg_speaks_and_fits_the_page():
    drawing = drawn(SinhBad.apply)
    root = ElementTree.fromstring(drawing.svg)
    name = root.tag.removesuffix("svg")
    told = "Graph of grad_x, x and out: grad_x is cut off: no graph leads from here to x"
    assert root[0].tag == f"{name}title" and root[0].text == told
    assert root[1].tag == f"{name}desc" and root[1].text == str(drawing)
    assert root.get("role") == "img" and root.get("viewBox")
    wide = draw(out=[leaf() * 2 for _ in range(20)])
    assert float(ElementTree.fromstring(wide.svg).get("width")) <= 800


def test_a_notebook_gets_picture_and_outline():
    drawing = drawn(Square.apply)
    bundle = drawing._repr_mimebundle_()
    page = ElementTree.fromstring(bundle.pop("text/html"))
    assert bundle == {"text/plain": str(drawing), "image/svg+xml": drawing.svg}
    # On a page: a picture with a name and a description, and no id that another could have too.
    svg = page[0]
    assert svg.get("role") == "img"
    assert (
        svg.get("aria-label") == svg[0].text == "Graph of grad_x, x and out: " + lines(drawing)[1]
    )
    assert svg[1].text == str(drawing)
    assert not [element for element in page.iter() if element.get("id")]
    assert len([element for element in page.iter() if element.tag.endswith("title")]) == 1


def test_any_name_can_be_drawn():
    drawing = draw(**{'a"<b>&\\n': leaf() * 2})
    assert 'a"<b>&\\n' in ElementTree.fromstring(drawing.svg)[1].text
    assert drawing.svg.count("<title>n") > 2


NOT_TENSORS = {
    "no name": ((leaf(),), {}, "Call draw with names"),
    "nothing": ((), {}, "Call draw with names"),
    "a float": ((), {"y": 3.0}, "y is of type float: give draw a tensor or a list of tensors."),
    "None": ((), {"y": None}, "y is None: give draw"),
    "a list with a hole": ((), {"y": [leaf(), None]}, "y[1] is None: give draw"),
    "no graph": ((), {"y": torch.ones(2)}, "Nothing to draw: no tensor given has a graph."),
    "an empty list": ((), {"y": []}, "Nothing to draw"),
    "a dict": ((), {"y": {}}, "y is of type dict: give draw"),
}


@pytest.mark.parametrize("unnamed, named, sentence", NOT_TENSORS.values(), ids=NOT_TENSORS)
def test_what_cannot_be_drawn_is_answered_with_a_sentence(unnamed, named, sentence):
    drawing = draw(*unnamed, **named)
    assert sentence in str(drawing)
    assert ("image/svg+xml" in drawing._repr_mimebundle_()) == (drawing.svg is not None)


def test_a_list_is_drawn_like_a_tuple():
    x = leaf()
    parts = [x * 2, x + 1]
    assert draw(out=parts, x=x).dot == draw(out=tuple(parts), x=x).dot
    assert "out[0]" in str(draw(out=parts, x=x))


@pytest.mark.parametrize("fn", [Square.apply, torch.square], ids=["custom", "built-in"])
def test_a_freed_graph_is_drawn_and_says_what_to_do(fn):
    x = leaf()
    out = fn(x)
    out.sum().backward()
    drawing = draw(out=out, x=x)
    assert "saved cannot be read: Trying to backward through the graph a second time" in str(
        drawing
    )
    assert "retain_graph=True" in str(drawing)
    assert "freed" in drawing.dot and drawing.svg


def test_of_a_long_chain_the_verdict_is_told():
    x = out = leaf()
    for _ in range(5000):
        out = out.sin()
    assert lines(draw(out=out, x=x)) == [
        "Graph of out and x: 5,000 operations, 1 leaf",
        "No picture: more than 100 operations are too many to read in one.",
    ]
    outline = lines(draw(out=out.detach(), y=out, x=x))
    assert outline[1] == "out is cut off: no graph leads from here to y or x"


def knot(turns):
    """Two operations a turn, each on x: the kind of graph that `dot` takes minutes for."""
    x = out = leaf()
    for _ in range(turns):
        out = out.sin() * x
    return draw(out=out, x=x)


def test_a_knot_of_operations_is_not_laid_out(monkeypatch):
    monkeypatch.setattr(graphs, "to_svg", None)  # would raise when called
    assert "200 operations" in str(knot(100)) and knot(100).dot is None


def test_the_largest_knot_that_is_laid_out_has_a_picture(monkeypatch):
    monkeypatch.setattr(layout, "SECONDS", 600)
    drawing = knot(49)
    assert "98 operations" in str(drawing) and drawing.svg


def test_a_layout_that_takes_too_long_leaves_the_outline(monkeypatch):
    monkeypatch.setattr(layout, "SECONDS", 0.001)
    drawing = drawn(Square.apply)
    assert drawing.svg is None
    assert lines(drawing)[-1] == "No picture: the layout took more than 0.001 seconds."
    assert "grad_x leads back to x (a picture checks paths, not numbers)" in lines(drawing)


def test_a_model_around_a_custom_function():
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    x = torch.ones(5, 3, requires_grad=True)
    out = Square.apply(model(x)).sum()
    (grad_x,) = grad(out, x, create_graph=True)
    drawing = draw(grad_x=grad_x, x=x, out=out)
    assert "5 leaves" in lines(drawing)[0]
    assert "grad_x leads back to x (a picture checks paths, not numbers)" in lines(drawing)
    assert drawing.svg


@pytest.mark.parametrize(
    "x",
    [
        torch.ones(2, 2).to_sparse().requires_grad_(),
        torch.ones((), dtype=torch.complex64, requires_grad=True),
        torch.ones(2, 2, requires_grad=True).clone().t()[0],
        torch.ones(2, device="meta", requires_grad=True),
    ],
    ids=["sparse", "a complex number", "view", "meta"],
)
def test_any_kind_of_tensor_is_drawn(x):
    drawing = draw(out=Square.apply(x), x=x)
    assert "    keeps x: input, saved" in lines(drawing)
    assert drawing.svg


def square_of_exp(ctx, x):
    y = x.exp()
    ctx.save_for_backward(y)
    return y.square(), y


def forgets(ctx, grad_out, grad_y):
    """All paths are there; the gradient of the second output is ignored."""
    (y,) = ctx.saved_tensors
    return 2 * grad_out * y * y


Forgets = function(square_of_exp, forgets)


def test_a_headline_without_a_missing_path_does_not_say_that_all_is_right():
    assert not diagnose(lambda x: Forgets.apply(x)[0], leaf()).ok
    drawing = drawn(lambda x: Forgets.apply(x)[0])
    assert lines(drawing)[1].endswith("(a picture checks paths, not numbers)")
    bad = drawn(SinhBad.apply)
    assert "numbers" not in lines(bad)[1]
