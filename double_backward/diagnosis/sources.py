"""Where intermediates come from: the arguments of apply, or something outside torch."""

from dataclasses import replace

from torch import Tensor

from double_backward.origins import origins

from .alone import in_slot, tensors_in
from .functions import Kind, has_values_of, look, uneven_step


def with_sources(target, customs):
    """The same, with what is known of where the intermediates come from."""
    made = [s for custom in customs for s in custom.saved if s.kind is Kind.INTERMEDIATE]
    try:
        classes = [node.function for node in look(target).nodes] if made else []
        if not classes:
            return customs
        with origins(classes) as beside:
            moved = look(target, uneven_step(target))
        with origins(classes) as here:
            looked = look(target)
            found = []
            for custom, node, other in zip(customs, looked.nodes, moved.nodes, strict=True):
                saved = [_come_from(s, (node, here), (other, beside)) for s in custom.saved]
                found.append(
                    replace(custom, saved=_without_made_in_torch(saved, node, here, beside))
                )
            return tuple(found)
    except Exception:  # of fn
        return customs


def _come_from(saved, *looked):
    """An intermediate, with what is known of where it comes from; `looked`: here, and beside."""
    if saved.kind is not Kind.INTERMEDIATE:
        return saved
    (value, here), (_, beside) = (
        (in_slot((node.tensors, node.attributes), saved.slot), found) for node, found in looked
    )
    handed = not isinstance(value, Tensor) and any(value is given for given in here.arguments)
    made = any(map(here.outside(beside), tensors_in(value)))
    return replace(
        saved,
        outside=made,
        marked=saved.marked or here.is_marked(value),
        handed_over=saved.handed_over or handed,
        repeats=saved.repeats or _repeated(saved.slot, looked),
    )


def _without_made_in_torch(saved, node, here, beside):
    """Of numbers from outside that are kept, too, something else can be made anew in torch."""
    changed, values = here.outside(beside), (node.tensors, node.attributes)
    outside = {s.slot: tensors_in(in_slot(values, s.slot)) for s in saved if s.outside}
    inside = {k for k, made in outside.items() if all(map(here.in_torch, made))}
    kept = set().union(
        *(changed(t) for k, made in outside.items() if k not in inside for t in made)
    )
    again = {k for k in inside if set().union(*map(changed, outside[k])) <= kept}
    return tuple(replace(s, outside=False) if s.slot in again else s for s in saved)


def _repeated(slot, looked):
    """INPUT where it has the values of what apply was handed, as x.t().contiguous() has."""
    for node, found in looked:
        value = in_slot((node.tensors, node.attributes), slot)
        given = [t for t in found.arguments if isinstance(t, Tensor)]
        if not (isinstance(value, Tensor) and has_values_of(value, given)):
            return None
    return Kind.INPUT
