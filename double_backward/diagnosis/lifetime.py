"""How long a graph lives after its output is gone, found by trying."""

import gc
import weakref
from enum import StrEnum

from .functions import Looked, look
from .target import Target


class Lifetime(StrEnum):
    """What becomes of the graph of fn when nobody holds an output any more."""

    FREED = "freed"
    CYCLE = "cycle"  # freed when the garbage collector runs
    FOREVER = "forever"  # a cycle that the garbage collector does not see


def lifetime(target: Target) -> Lifetime:
    """Call fn, drop what it returns and see which nodes are left. Raises what fn raises."""
    left = _references(look(target))
    if not any(node() for node in left):
        return Lifetime.FREED
    gc.collect()
    return Lifetime.FOREVER if any(node() for node in left) else Lifetime.CYCLE


def _references(looked: Looked) -> list[weakref.ref]:
    return [weakref.ref(node.fn) for node in looked.nodes]
