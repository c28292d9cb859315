"""A graph in words: what the picture shows, one line a thing, in the order it was made."""

from lessons_src import graph_walk
from lessons_src.graph_sketch import ENDS

ORDINALS = ("forward", "first backward", "second backward", "third backward", "fourth backward")

TROUBLES = {
    graph_walk.FREED: (
        "This graph was freed by a backward pass: what {} kept is gone, and nothing can be "
        "differentiated through it again. Compute it once more, or pass retain_graph=True."
    ),
    graph_walk.OVERWRITTEN: (
        "A tensor that {} saved was changed in place afterwards: torch refuses to hand it out."
    ),
    graph_walk.UNREADABLE: "What {} saved could not be read: torch, or a hook on it, refused.",
}


def outline(sketch, notes=()):
    """The text twin of the picture.

    Args:
        sketch: `graph_sketch.Sketch`.
        notes: sentences to end with.

    Returns:
        str of several lines.
    """
    lines = [_header(sketch)]
    heading = None
    for place, node in enumerate(sketch.shown):
        if place == ENDS and len(sketch.shown) < len(sketch.nodes):
            lines.append(f"  ... {len(sketch.nodes) - len(sketch.shown):,} more in between ...")
        if phase_name(sketch, node) != heading:
            heading = phase_name(sketch, node)
            lines.append(heading)
        lines += _node_lines(sketch, node)
    lines += _loose_lines(sketch)
    lines += verdicts(sketch)
    lines += [TROUBLES[why].format(sketch.title(node)) for why, node in sketch.troubles().items()]
    return "\n".join([*lines, *notes])


def phase_name(sketch, node):
    """Which pass made a node: "forward", "first backward", ... or "graph" where nobody can tell."""
    level = sketch.phase.get(node)
    if level is None:
        return "besides" if sketch.phase else "graph"
    name = ORDINALS[level] if level < len(ORDINALS) else f"backward {level}"
    if level > 1 and level - 1 not in sketch.phase.values():
        return f"every backward up to the {name}"
    return name


def shape(tensor):
    """The shape as Python prints it: "(2,)"."""
    return str(tuple(tensor.shape))


def kept_words(sketch, node, kept):
    """What a kept tensor is to the Function that keeps it, in a few words."""
    one_of = {
        graph_walk.INPUT: ("its input", len(node.inputs)),
        graph_walk.OUTPUT: ("its output", sketch.outputs(node)),
    }
    if kept.role in one_of:
        words, many = one_of[kept.role]
        return words if many == 1 else f"{words} {kept.position + 1} of {many}"
    return {
        graph_walk.INTERMEDIATE: "an intermediate, no graph leads on from here",
        graph_walk.NO_GRAPH: (
            "no graph leads on from here: an input that needs no gradient, or an intermediate"
        ),
        graph_walk.ELSEWHERE: "neither its input nor its output, with a graph of its own",
    }[kept.role]


def verdicts(sketch):
    """Sentences on which named tensors lead to which."""
    lines = []
    for name in sketch.tensors:
        if name in sketch.cut_off:
            there = " or ".join(sketch.cut_off[name])
            lines.append(f"{name} is cut off: no graph leads from here to {there}")
    return lines


def reference(sketch, source):
    """How one input of an operation is called: the reader's name, a leaf, an operation."""
    if source is None:
        return "a constant"
    node, number = source
    box = sketch.box(node, number)
    if box is not None and box.names:
        return " = ".join(box.names)
    if node.leaf is not None:
        return f"{sketch.title(node)}".replace("AccumulateGrad", "leaf")
    many = sketch.outputs(node)
    return sketch.title(node) if many == 1 else f"output {number + 1} of {sketch.title(node)}"


def _header(sketch):
    leaves = sum(node.leaf is not None for node in sketch.nodes)
    operations = len(sketch.nodes) - leaves
    return (
        f"Graph of {joined(sketch.tensors)}: {operations:,} operation{'s' * (operations != 1)}, "
        f"{leaves:,} lea{'f' if leaves == 1 else 'ves'}"
    )


def joined(words):
    """ "a, b and c"."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def _node_lines(sketch, node):
    results = [sketch.box(node, number) for number in range(sketch.outputs(node))]
    names = [name for box in results if box for name in box.names]
    if node.leaf is not None:
        called = names or [reference(sketch, (node, 0))]
        return [f"  {joined(called):<12} a leaf {shape(node.leaf)}"]
    made = f"made by {sketch.title(node)}" if names else ""
    sources = joined([reference(sketch, source) for source in node.inputs] or ["nothing"])
    lines = [
        f"  {joined(names or [sketch.title(node)]):<12} {made} from {sources}".replace(
            "  from", " from"
        )
    ]
    for kept in node.kept if node.custom else ():
        if kept.tensor is not None:
            lines.append("    keeps " + _kept_line(sketch, node, kept))
    return lines


def _kept_line(sketch, node, kept):
    box = sketch.boxes.get(graph_walk.origin(kept.tensor) or id(kept.tensor))
    name = joined(box.names) if box.names else kept.name
    where = f"on ctx as {kept.name}" if kept.on_ctx else "saved"
    words = kept_words(sketch, node, kept)
    return f"{name}: {words} ({where})" if name else f"{words} ({where})"


def _loose_lines(sketch):
    """The named tensors that no node made."""
    return [
        f"  {joined(box.names):<12} has no graph"
        for box in sketch.boxes.values()
        if box.maker is None and box.names and not box.keepers
    ]
