"""State that is not on ctx: what forward leaves on a class, in a module or around it."""

import inspect

from torch import Tensor

from double_backward.differences import flat

from .alone import seen_at, weights
from .functions import Node
from .holdings import global_names, reachable
from .target import Target, readable


def changed_state(target: Target, node: Node) -> tuple[str, ...]:
    """The names of what forward leaves elsewhere and what another point changes."""
    before = _state(node)
    seen_at(target, 1e-3 * target.scale * weights(flat(target.point), 0, 1))
    after = _state(node)
    return tuple(name for name, text in after.items() if before.get(name) != text)


def _state(node):
    """Class attributes, what hangs on an object on ctx, and what backward and forward see around
    them, as texts to compare."""
    function = node.function
    found = {
        f"{function.__name__}.{name}": value
        for name, value in vars(function).items()
        if not name.startswith("_") and not callable(value) and not hasattr(value, "__func__")
    }
    for method in (function.forward, function.backward):
        try:
            outside = inspect.getclosurevars(method)
        except (TypeError, ValueError):
            continue
        names = global_names(method) if inspect.isfunction(method) else outside.globals
        around = {**{name: outside.globals.get(name) for name in names}, **outside.nonlocals}
        data = {k: v for k, v in around.items() if not callable(v) and not inspect.ismodule(v)}
        found.update(data)
    for name, value in node.attributes.items():
        hanging = {} if isinstance(value, Tensor) else getattr(value, "__dict__", {})
        found.update({f"{name}.{below}": v for below, v in hanging.items() if below[:1] != "_"})
    return {name: _text(value) for name, value in found.items()}


def _text(value):
    held = [thing for _, thing in reachable(value) if isinstance(thing, Tensor)]
    sums = [t.detach().to_dense().sum().item() for t in held if readable(t)]
    return f"{repr(value)[-2000:]} {sums}"
