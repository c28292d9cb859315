"""Writes a graph in words: what the picture shows, one line for each thing, in order of
creation."""

from collections.abc import Iterable
from typing import Final, Literal

from torch import Tensor

from double_backward.graphs import walk
from double_backward.graphs.flow import number_words
from double_backward.graphs.missing import Missing
from double_backward.graphs.sketch import Sketch, TensorBox, is_gradient
from double_backward.graphs.walk import Kept, Node, Source
from double_backward.lines import first_line

ORDINALS = ("forward", "first backward", "second backward", "third backward", "fourth backward")

Colour = Literal["right", "wrong", "open"]
RIGHT_PART: Final = "right"
WRONG_PART: Final = "wrong"
OPEN_PART: Final = "open"
PATHS_ONLY = " (a picture checks paths, not numbers)"
MOST_SENTENCES = 2  # below a picture and below an outline
NO_PATH = "no path: taken for a constant"
Row = str | tuple[str, str]  # a line, or a name and the text about it


def outline_text(sketch: Sketch, notes: Iterable[str] = ()) -> str:
    """The picture as text: what it shows, the verdict, a line for each thing, and some
    sentences."""
    passes: dict[str | None, list[Row]] = {}
    for node in sketch.shown:
        passes.setdefault(pass_name(sketch, node), []).extend(_node_rows(sketch, node))
    for box in sketch.boxes.values():
        if box.maker is None and box.names and not box.keepers:
            passes.setdefault(pass_name(sketch, box), []).extend(_loose_rows(sketch, box))
    rows = [row for name, own in passes.items() for row in [*([name] if name else []), *own]]
    width = max((len(row[0]) for row in rows if isinstance(row, tuple)), default=0)
    lines = [row if isinstance(row, str) else f"  {row[0]:<{width}}  {row[1]}" for row in rows]
    words, _ = verdict(sketch)
    top = [_header(sketch), *([words] if words else [])]
    return "\n".join([*top, *lines, *sentences(sketch), *notes])


def verdict(sketch: Sketch) -> tuple[str, Colour]:
    """A sentence that says whether the gradients lead back to the inputs, and its colour.

    It is right if every path that was looked for is there, which says nothing about the numbers: a
    backward that ignores the gradient of an output has all its paths. It is open if not every path
    could be looked for.
    """
    words: list[str] = []
    colours: list[Colour] = []
    for name in sketch.tensors:
        if name in sketch.cut_off:
            colours.append(WRONG_PART)
            words.append(cut_off_words(sketch, name))
        elif is_gradient(name) and name in sketch.targets:
            but = _but(sketch, name)
            right: Colour = OPEN_PART if sketch.findings.unasked else RIGHT_PART
            colours.append(WRONG_PART if but else right)
            words.append(f"{name} leads back to {joined(sketch.targets[name])}{but}")
    for colour in (WRONG_PART, OPEN_PART):
        if colour in colours:
            return "; ".join(words), colour
    return "; ".join(words) + PATHS_ONLY * bool(words), RIGHT_PART


def _but(sketch: Sketch, name: str) -> str:
    """The words for the paths that a gradient lacks although it leads back; "" for none."""
    many = len(sketch.missing(name))
    if many:
        least = "at least " if sketch.findings.unasked else ""
        return f", but {least}{'a path is' if many == 1 else f'{many} paths are'} missing"
    if sketch.guards():
        return ", but not through the guard"
    return ""


def sentences(sketch: Sketch) -> list[str]:
    """What else there is to say, the most telling first: two sentences, and why one is missing."""
    lines = []
    flow = sketch.flow
    if flow.stopped is not None:
        lines.append(f"The pass stopped: {first_line(flow.stopped)}")
    errors = {kept.error: node for node in sketch.shown[::-1] for kept in node.kept if kept.error}
    for error, node in errors.items():
        lines.append(f"What {sketch.title(node)} saved cannot be read: {error}")
    lines += _guard_sentences(sketch)
    for node in sketch.shown:
        lines += [circle_words(sketch, node, kept) for kept in node.kept if is_circle(node, kept)]
        lines += _constant_words(sketch, node)
    if flow.arrived or flow.stopped:
        lines += _pass_sentences(sketch)
    return lines[:MOST_SENTENCES]


def _guard_sentences(sketch: Sketch) -> list[str]:
    guards = sketch.guards()
    if any(sketch.flow.arrived and not sketch.flow.visited(guard) for guard in guards):
        return ["The pass went past the guard of once_differentiable: nothing is raised"]
    return ["A pass through the guard of once_differentiable raises"] if guards else []


def _pass_sentences(sketch: Sketch) -> list[str]:
    """Sentences about named tensors to which a recorded backward pass brought nothing."""
    others = [name for name in list(sketch.tensors)[1:] if sketch.tensors[name].requires_grad]
    origins = {name: walk.origin(sketch.tensors[name]) for name in others}
    nothing = [n for n, edge in origins.items() if edge and sketch.flow.arrived.get(edge) is None]
    return [f"nothing comes back to {joined(nothing)}"] if nothing else []


def is_circle(node: Node, kept: Kept) -> bool:
    """True for an output that the Function itself holds as an attribute of its ctx."""
    return node.custom is not None and kept.on_ctx and kept.role == walk.OUTPUT


def circle_words(sketch: Sketch, node: Node, kept: Kept) -> str:
    """ "a circle: Exp holds out on ctx, and out holds Exp; ..."."""
    title, name = sketch.title(node), kept_name(sketch, kept)
    return f"a circle: {title} holds {name} on ctx, and {name} holds {title} as its grad_fn"


def _constant_words(sketch: Sketch, node: Node) -> list[str]:
    """ "SinhBad keeps intermediates, ...": those that a path should leave, or may."""
    kept = [kept for kept in node.kept if kept.role == walk.INTERMEDIATE]
    kept = [each for each in kept if each not in sketch.findings.constant]
    if node.custom is None or not kept:
        return []
    them, constants = ("it", "a constant") if len(kept) == 1 else ("them", "constants")
    named = list(dict.fromkeys(each.name for each in kept if each.name))
    what = "an intermediate" if len(kept) == 1 else "intermediates"
    names = f", {joined(named)}" if named else ""
    title = sketch.title(node)
    return [f"{title} keeps {what}{names}: autograd takes {them} for {constants}"]


def cut_off_words(sketch: Sketch, name: str) -> str:
    """ "grad_x is cut off: no graph leads from here to x"."""
    return f"{name} is cut off: no graph leads from here to {' or '.join(sketch.cut_off[name])}"


def pass_name(sketch: Sketch, thing: Node | TensorBox) -> str | None:
    """The pass that an operation or a tensor is of: "forward", "first backward", ..., "other" if no
    named one made it; None where none is told."""
    if not sketch.phase:
        return None
    level = sketch.level(thing)
    if level is None:
        return "other"
    name = ORDINALS[level] if level < len(ORDINALS) else f"backward {level}"
    if level > 1 and level - 1 not in sketch.phase.values():
        return f"every backward up to the {name.removesuffix(' backward')}"
    return name


def shape(tensor: Tensor) -> str:
    """The shape as Python prints it: "(2,)"."""
    return str(tuple(tensor.shape))


def _kept_words(sketch: Sketch, node: Node, kept: Kept) -> str:
    """What a tensor that `node` keeps is to it, and where that leaves autograd."""
    where = "saved" if not kept.on_ctx else f"on ctx as {kept.name}"
    if kept.role == walk.INPUT:
        return f"{_one_of('input', kept.position, len(node.inputs))}, {where}"
    if kept.role == walk.OUTPUT:
        return f"{_one_of('output', kept.position, sketch.outputs(node))}, {where}"
    if kept.role == walk.ELSEWHERE:
        return f"neither input nor output, {where}; it has a graph of its own"
    on = "no graph leads on from here"
    if kept.role == walk.INTERMEDIATE:
        return f"intermediate, {where}; {on}"
    if sketch.box_of(kept.tensor).names:
        return f"{where}; {on}"  # the reader knows what it is
    return f"{where}; {on}: an input that needs no gradient, or an intermediate"


def kept_name(sketch: Sketch, kept: Kept) -> str:
    """The reader's name for a kept tensor, else its name on ctx, else the operation it is from."""
    box = sketch.box_of(kept.tensor)
    if box.names:
        return box.called
    if kept.name:
        return kept.name
    if box.maker is None:
        return f"a tensor {shape(box.tensor)}"
    return reference(sketch, (box.maker, box.number))


def reference(sketch: Sketch, source: Source) -> str:
    """How one input of an operation is called: the reader's name, a leaf, an operation."""
    node, number = source
    box = sketch.box(node, number)
    if box is not None and box.names:
        return box.called
    if node.leaf is not None:
        return leaf_name(sketch, node)
    many = sketch.outputs(node)
    return sketch.title(node) if many == 1 else f"output {number} of {sketch.title(node)}"


def leaf_name(sketch: Sketch, node: Node) -> str:
    """ "leaf", or "leaf #2" where there are several."""
    return sketch.title(node).replace("AccumulateGrad", "leaf")


def joined(words: Iterable[str]) -> str:
    """ "a, b and c"."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def _one_of(words: str, position: int | None, many: int) -> str:
    """ "input", or where there are several "input 1", counted from 0 as torch's `output_nr` is."""
    return words if many == 1 else f"{words} {position}"


def _header(sketch: Sketch) -> str:
    leaves = len(sketch.graph.leaves)
    operations = len(sketch.nodes) - leaves
    counts = (
        f"{operations:,} {'operation' if operations == 1 else 'operations'}, "
        f"{leaves:,} {'leaf' if leaves == 1 else 'leaves'}"
    )
    return f"Graph of {joined(sketch.tensors)}: {counts}"


def _node_rows(sketch: Sketch, node: Node) -> list[Row]:
    results = [sketch.box(node, number) for number in range(sketch.outputs(node))]
    names = ", ".join(box.called for box in results if box and box.names)
    if node.leaf is not None:
        return [
            (names or leaf_name(sketch, node), f"a leaf {shape(node.leaf)}"),
            *_pass_rows(sketch, node),
        ]
    by = f"made by {sketch.title(node)} from" if names else "made from"
    rows: list[Row] = [(names or sketch.title(node), f"{by} {_sources(sketch, node)}")]
    for kept in node.kept if node.custom else ():
        if kept.tensor is not None:
            words = _kept_words(sketch, node, kept)
            rows.append(f"    keeps {kept_name(sketch, kept)}: {words}")
    missing = [missing for missing in sketch.findings.missing if missing.to is node]
    return rows + _missing_rows(sketch, missing) + _pass_rows(sketch, node)


def _missing_rows(sketch: Sketch, missing: list[Missing]) -> list[Row]:
    """ "no path from expx of SinhBad: taken for a constant"."""
    rows = dict[Row, None]()  # two gradients may lack the same
    for each in missing:
        name = each.kept if isinstance(each.kept, str) else kept_name(sketch, each.kept)
        of = f" from {name} of {sketch.title(each.keeper)}:"
        words = "; ".join(filter(None, [NO_PATH.replace(":", of), lacks_words(each)]))
        rows[f"    {words}"] = None
    return list(rows)


def lacks_words(missing: Missing) -> str:
    """ "x lacks 0.5, 1.2", or "" where that is not known."""
    share = missing.share
    return "" if share is None else f"{missing.by} lacks {number_words(share)}"


def _pass_rows(sketch: Sketch, node: Node) -> list[Row]:
    """What a recorded pass brought to the tensors that a node made, and sent on to its inputs."""
    rows: list[Row] = []
    for number in range(sketch.outputs(node)):
        box = sketch.box(node, number)
        number_back = sketch.came_back(box) if box else None
        if number_back is not None:
            rows.append(f"    comes back to {reference(sketch, (node, number))}: {number_back}")
    for position, source in enumerate(node.inputs):
        sent = sketch.sent_back(node, position)
        if source is not None and sent is not None:
            rows.append(f"    sends back to {reference(sketch, source)}: {sent}")
    return rows


def _sources(sketch: Sketch, node: Node) -> str:
    """The inputs of an operation; a constant goes by its name where that is known."""
    constants = [
        f"{box.called or kept_name(sketch, box.keepers[0][1])} (a constant)"
        for box in sketch.boxes.values()
        if node in box.fed
    ]
    words = []
    for source in node.inputs:
        if source is None:
            words.append(constants.pop(0) if constants else "a constant")
        else:
            words.append(reference(sketch, source))
    return joined(words) if words else "nothing"


def _loose_rows(sketch: Sketch, box: TensorBox) -> list[Row]:
    """A named tensor that no node made."""
    ends = [m for name in box.names for m in sketch.missing(name) if m.to is None]
    row = box.called, f"a tensor {shape(box.tensor)} without a graph"
    return [row, *_missing_rows(sketch, ends)]
