"""How often a step differentiates through each custom Function.

A *pass* is one run of autograd's engine. It differentiates each Function once whose backward it
runs. `create_graph=True` records that backward, and another pass may run through what it returned:
that one differentiates the Function twice, and so on along the chain. What is recorded and never
met again, as where a gradient is only logged, is differentiated once.

Where a backward returned something without a graph, nobody can be seen to come along there. Then
the pass counts that comes along the results; and where these have no graph either, one whose
result was made afterwards, which may hold them.

A pass that is told by which inputs to differentiate runs no further than to these. It counts for a
gradient that it holds, all the same, if the Function was applied to what these lead to: where the
way from there is cut, the derivative is missing, and nobody comes along.

Passes are met where torch's own `grad` and `backward` enter the engine. One that is started
elsewhere counts as one that nothing follows.
"""

import functools
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from double_backward._torch import engine_replaced, metadata_of, number_of, unwrapped
from double_backward.calls import is_unheard
from double_backward.graphs.walk import walk

# In a node's metadata: (what a Function was applied to, whom to tell).
RECORDED = "double_backward.recorded"


class Counted(Protocol):
    """Somebody who wants to know how often something of his is differentiated."""

    def differentiated(self, times: int) -> None: ...


class Through(NamedTuple):
    """What a pass goes through.

    Attributes:
        times: how often it has been differentiated with this pass.
        node: to which it hands the gradient, where that has no graph; else None.
    """

    counted: Counted
    times: int
    node: Any = None


class Pass:
    """One run of the engine."""

    def __init__(self, grad_outs: Iterable[Any] = (), inputs: Iterable[Any] = ()) -> None:
        self.thread = threading.get_ident()
        self.inputs = list(inputs)  # by which it differentiates, as long as it runs
        self.grad_outs = [weakref.ref(g) for g in grad_outs if isinstance(g, Tensor)]
        self._through: dict[tuple, Through] = {}

    @property
    def through(self) -> list[Through]:
        return list(self._through.values())

    def goes_through(self, met: Through) -> None:
        met.counted.differentiated(met.times)
        key = id(met.counted), met.node
        if key not in self._through or self._through[key].times < met.times:
            self._through[key] = met

    def follows(self, earlier: "Pass", met: Iterable[Through]) -> None:
        """It differentiates what an earlier pass gave, in which that one went through these.

        By grad_outs of the earlier one, in which all is linear, nothing is differentiated once
        more: that is how `torch.autograd.functional.hvp` has a product with a vector.
        """
        given = [g() for g in earlier.grad_outs]
        linear = self.inputs and all(any(x is g for g in given) for x in self.inputs)
        for each in met:
            self.goes_through(Through(each.counted, each.times + (not linear)))


class Passes:
    """The passes that are running, the innermost last."""

    def __init__(self) -> None:
        self._running: list[Pass] = []
        self._any_recorded = False
        # Results without a graph: their pass, what it went through, and a number below those of all
        # nodes that are made afterwards.
        self._lost: list[tuple[Pass, list[Through], int]] = []

    @property
    def running(self) -> Pass | None:
        """The pass that this thread is in. The engine's own threads work for the last begun."""
        running, thread = self._running[:], threading.get_ident()
        own = [each for each in running if each.thread == thread]
        return next(reversed(own or running), None)

    @contextmanager
    def met(self) -> Iterator[None]:
        """Inside, the passes of every thread are met."""
        with engine_replaced(self._met_in):
            yield

    def recorded(
        self,
        counted: Callable[[int], Counted],
        times: int,
        node: Any,
        given: Sequence[Any],
        grads: Sequence[Any],
    ) -> None:
        """The pass that runs has recorded a backward.

        Args:
            counted: whom to tell where the gradient in this place is differentiated.
            times: how often the Function is differentiated with that.
            node: that of the Function.
            given, grads: what it was applied to, and what backward returned.
        """
        this = self.running or Pass()
        found = {place: unwrapped(g) for place, g in enumerate(grads) if isinstance(g, Tensor)}
        inputs = {place: unwrapped(x) for place, x in enumerate(given) if isinstance(x, Tensor)}
        before = [x.grad_fn for x in inputs.values() if x.grad_fn is not None]
        made: dict[Any, list[Through]] = {}
        for place, g in found.items():
            if g.grad_fn is not None and g.grad_fn not in before:
                made.setdefault(g.grad_fn, []).append(Through(counted(place), times))
            elif place in inputs and inputs[place].requires_grad:
                to = node.next_functions[list(inputs).index(place)][0]
                this.goes_through(Through(counted(place), times, to))
        self._any_recorded |= bool(made)
        for own, met in made.items():
            follow = functools.partial(self._follow, this, met)
            _when_met(own, follow)
            metadata_of(own).setdefault(RECORDED, []).append((list(inputs.values()), follow))

    def _follow(self, earlier: Pass, met: list[Through]) -> None:
        running = self.running or Pass()
        if running is not earlier:
            running.follows(earlier, met)

    def _met_in(self, engine: Callable) -> Callable:
        @functools.wraps(engine)
        def run(t_outputs: Any, *args: Any, **kwargs: Any) -> Any:
            if is_unheard():
                return engine(t_outputs, *args, **kwargs)
            names = ("grad_tensors", "keep_graph", "create_graph", "inputs", "allow_unreachable")
            given = dict(zip(names, args, strict=False)) | kwargs
            this = Pass(given.get("grad_tensors") or (), given.get("inputs") or ())
            self._may_hold_lost(this, t_outputs)
            self._running.append(this)
            try:
                if this.inputs:
                    self._follow_all(t_outputs, this.inputs)
                results = engine(t_outputs, *args, **kwargs)
            finally:
                self._running.remove(this)
            if given.get("create_graph") and this.through:
                self._await(this, t_outputs, None if given.get("accumulate_grad") else results)
            this.inputs = []
            return results

        return run

    def _follow_all(self, t_outputs: Sequence[Any], inputs: Sequence[Any]) -> None:
        """What was recorded of Functions that these inputs lead to, and the outputs hold."""
        tensors = [t for t in t_outputs if isinstance(t, Tensor) and t.grad_fn is not None]
        for node in walk(*tensors).nodes if self._any_recorded and tensors else ():
            for applied, follow in list(metadata_of(node.fn).get(RECORDED, ())):
                if _leads_to(applied, inputs):
                    follow()

    def _await(self, this: Pass, t_outputs: Sequence[Any], results: Sequence[Any] | None) -> None:
        """Notice whoever differentiates the results of a pass; None: they are in `.grad`."""
        several = (
            results is None or len(results) > 1 or any(t.node is not None for t in this.through)
        )
        tensors = [t for t in t_outputs if isinstance(t, Tensor)]  # others are edges of the graph
        graph = walk(*tensors) if several else None
        ends = this.inputs or (graph.leaves if graph else [])
        if results is None:
            results = [getattr(end, "grad", None) for end in ends]
        known = graph is not None and len(tensors) == len(t_outputs)
        reached = _reached(graph, ends) if known else {}
        for number, result in enumerate(results):
            if not isinstance(result, Tensor):
                continue
            leads = [t for t in this.through if reached.get(t.node, -1) >> number & 1]
            made = unwrapped(result).grad_fn
            if made is not None:
                _when_met(made, functools.partial(self._follow, this, leads))
            elif cut_here := [t for t in leads if t.node is not None]:
                self._lost.append((this, cut_here, _newest()))

    def _may_hold_lost(self, this: Pass, t_outputs: Sequence[Any]) -> None:
        for lost in self._lost[:]:
            earlier, met, number = lost
            nodes = [getattr(t, "grad_fn", None) for t in t_outputs]
            elsewhere = this.thread != earlier.thread  # each thread has numbers of its own
            if elsewhere or any(node is None or number_of(node) > number for node in nodes):
                this.follows(earlier, met)
                self._lost.remove(lost)


def _leads_to(inputs: Sequence[Tensor], ends: Sequence[Any]) -> bool:
    """Whether one of these tensors leads to one of those inputs, which keep their graph alive: up
    to torch 2.12 the node of a custom Function does not."""
    wanted = [end.grad_fn for end in ends if isinstance(end, Tensor) and end.grad_fn is not None]
    if any(x is end for x in inputs for end in ends):
        return True
    todo, seen = [x.grad_fn for x in inputs], set[Any]()
    while todo:
        here = todo.pop()
        if here is None or here in seen:
            continue
        seen.add(here)
        leaf = getattr(here, "variable", None)
        if here in wanted or any(leaf is end for end in ends if leaf is not None):
            return True
        todo += [source for source, _ in here.next_functions]
    return False


def _when_met(node: Any, follow: Callable[[], None]) -> None:
    """Have a pass that runs this node say so."""

    def met_again(grad_outs: Any) -> None:
        if not is_unheard():
            follow()

    with suppress(Exception):  # a node that takes no hooks
        node.register_prehook(met_again)


def _reached(graph: Any, ends: Sequence[Any]) -> dict[Any, int]:
    """Node of autograd -> the ends to which it leads, the n-th as the n-th bit."""
    own: dict[Any, int] = {}
    for number, end in enumerate(ends):
        node = graph.node_of(end) if isinstance(end, Tensor) else None
        if node is not None:
            own[node] = own.get(node, 0) | 1 << number
    found: dict[Any, int] = {}
    for node in reversed(graph.nodes):
        found[node.fn] = own.get(node, 0)
        for source in filter(None, node.inputs):
            found[node.fn] |= found[source[0].fn]
    return found


def _newest() -> int:
    """The number of a node that is made now, by this thread."""
    with torch.enable_grad():
        return number_of(torch.ones((), requires_grad=True).view(()).grad_fn)
