"""Counts how often a step differentiates through each custom Function.

A *pass* is one run of autograd's engine. It differentiates each Function once whose backward it
runs. `create_graph=True` records that backward, and another pass may run through what it returned:
that one differentiates the Function twice, and so on along the chain. A gradient that is recorded
and not differentiated, such as one that is only logged, counts once.

Where a backward returned something without a graph, no later pass can be seen to run through it.
Then a pass counts that runs through the results of the first one; and where these have no graph
either, one that differentiates something made afterwards, which may depend on them. It does not
count where it differentiates by leaves on which nothing in the first pass depends.

A pass that is given its inputs runs only as far as these. It counts for a recorded gradient all the
same, if the Function was applied to something that depends on these inputs: where the path from
there is cut, the derivative is missing, and the pass does not run through it.

Passes are met where torch's own `grad` and `backward` enter the engine. A pass that is started
elsewhere counts as one that no other follows.
"""

import functools
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from double_backward._torch import (
    engine_replaced,
    functional_replaced,
    has_tangent,
    levels,
    metadata_of,
    number_of,
    unwrapped,
)
from double_backward.calls import is_unheard
from double_backward.graphs.walk import walk

# Key of a node's metadata: (what a Function was applied to, its grad_outs, what to call).
RECORDED = "double_backward.recorded"


class Counted(Protocol):
    """Something that is told how often it is differentiated."""

    def differentiated(self, times: int) -> None: ...

    def differentiated_by_grad_out(self) -> None: ...


class Through(NamedTuple):
    """Something that a pass differentiates.

    Attributes:
        counted: is told how often it is differentiated.
        times: how often it has been differentiated, including this pass.
        node: the node that gets the gradient, if that has no graph; else None.
    """

    counted: Counted
    times: int
    node: Any = None


class Pass:
    """One run of the engine."""

    def __init__(self, grad_outs: Iterable[Any] = (), inputs: Iterable[Any] = ()) -> None:
        self.thread = threading.get_ident()
        self.inputs = list(inputs)  # what it differentiates by, as long as it runs
        self.grad_outs = [weakref.ref(g) for g in grad_outs if isinstance(g, Tensor)]
        self.is_alone = True  # whether no other pass has run inside it
        self.leaves: set[int] | None = None  # the ids of those that it depends on, where known
        self._through: dict[tuple, Through] = {}
        self.recorded: dict[int, Counted] = {}  # whose gradients have a graph

    @property
    def through(self) -> list[Through]:
        return list(self._through.values())

    def goes_through(self, met: Through) -> None:
        met.counted.differentiated(met.times)
        key = id(met.counted), met.node
        if key not in self._through or self._through[key].times < met.times:
            self._through[key] = met

    def follows(
        self,
        earlier: "Pass",
        met: Iterable[Through],
        has_graph: bool = True,
        by_inputs: bool = True,
        by_grad_out: bool = True,
    ) -> None:
        """Note that this pass differentiates the result of an earlier one, through `met`.

        A derivative by grad_outs alone does not count, since all is linear in these:
        `torch.autograd.functional.hvp` computes a product with a vector in this way, and the
        weights of samples in a loss reach a gradient so. Without a graph nothing leads there,
        either.
        """
        linear = has_graph and (not by_inputs or self.is_by_grad_outs_of(earlier))
        for each in met:
            if linear or by_grad_out:
                each.counted.differentiated_by_grad_out()
            if linear:
                self.goes_through(Through(each.counted, each.times))
            else:
                self.goes_through(Through(each.counted, each.times + 1))

    def may_depend_on(self, inputs: Iterable[Any]) -> bool:
        if self.leaves is None or any(not _is_plain_leaf(x) for x in inputs):
            return True
        return any(id(x) in self.leaves for x in inputs)  # or another's that has its place now

    def is_by_grad_outs_of(self, earlier: "Pass") -> bool:
        given = [g() for g in earlier.grad_outs]
        return bool(self.inputs) and all(any(x is g for g in given) for x in self.inputs)


class Passes:
    """The passes that are running, the innermost last."""

    def __init__(self) -> None:
        self._running: list[Pass] = []
        self._any_recorded = False
        self._by_grad_outs: list[Pass] = []  # that some pass may differentiate by their grad_outs
        # Results without a graph: their pass, what it went through, and a number that is below the
        # numbers of all nodes that are made afterwards.
        self._lost: list[tuple[Pass, list[Through], int]] = []
        # What to call for a lost tangent, its thread, and such a number.
        self._lost_tangents: list[tuple[Callable[[], None], int, int]] = []

    @property
    def running(self) -> Pass | None:
        """The pass that this thread is in; for a thread of the engine, the last that was begun."""
        running, thread = self._running[:], threading.get_ident()
        own = [each for each in running if each.thread == thread]
        return next(reversed(own or running), None)

    @contextmanager
    def met(self) -> Iterator[None]:
        """Inside, the passes of every thread are met."""
        with engine_replaced(self._met_in), functional_replaced(self._left_out):
            yield

    def recorded(
        self,
        counted: Callable[[int], Counted],
        times: int,
        node: Any,
        given: Sequence[Any],
        grad_outs: Sequence[Any],
        grads: Sequence[Any],
    ) -> None:
        """Note that the pass which is running has recorded a backward.

        Args:
            counted: gives, for the place of a gradient, what to tell when that is differentiated.
            times: how often the Function is differentiated, including this backward.
            node: the node of the Function.
            given, grad_outs, grads: what the Function was applied to, what its backward was given,
                and what that returned.
        """
        this = self.running or Pass()
        found = {place: unwrapped(g) for place, g in enumerate(grads) if isinstance(g, Tensor)}
        inputs = {place: unwrapped(x) for place, x in enumerate(given) if isinstance(x, Tensor)}
        before = [x.grad_fn for x in inputs.values() if x.grad_fn is not None]
        made: dict[Any, list[Through]] = {}
        for place, g in found.items():
            if g.grad_fn is not None:
                uses = counted(place)
                this.recorded[id(uses)] = uses
            if g.grad_fn is not None and g.grad_fn not in before:
                made.setdefault(g.grad_fn, []).append(Through(counted(place), times))
            elif place in inputs and inputs[place].requires_grad:
                to = node.next_functions[list(inputs).index(place)][0]
                this.goes_through(Through(counted(place), times, to))
        self._any_recorded |= bool(made)
        given_to_it = [unwrapped(g) for g in grad_outs if isinstance(g, Tensor)]
        for own, met in made.items():
            follow = functools.partial(self._follow, this, met)
            recorded = list(inputs.values()), given_to_it, follow
            _when_met(own, functools.partial(self._meet, *recorded))
            metadata_of(own).setdefault(RECORDED, []).append(recorded)

    def _meet(
        self, applied: Sequence[Tensor], grad_outs: Sequence[Tensor], follow: Callable[..., None]
    ) -> None:
        """The pass that is running, if any, comes to a gradient that was recorded."""
        inputs = self.running.inputs if self.running else []
        moving = any(g.requires_grad for g in grad_outs)
        by_grad_out = moving and (not inputs or _leads_to(grad_outs, inputs))
        by_inputs = not inputs or _leads_to(applied, inputs) or not by_grad_out
        follow(by_inputs=by_inputs, by_grad_out=by_grad_out)

    def tangents(self, follow: Callable[[], None], call: Any, outs: Any) -> None:
        """A jvp has run, and a pass may go back through what it returned, which calls `follow`;
        where that has no graph, a later pass whose outputs are no values may."""
        several = outs if isinstance(outs, tuple) else (outs,)
        for out in [unwrapped(out) for out in several if isinstance(out, Tensor)]:
            if out.grad_fn is not None:
                _when_met(out.grad_fn, follow)
            elif torch.is_grad_enabled() and call.inputs:
                self._lost_tangents.append((follow, threading.get_ident(), _newest()))

    def _follow(self, earlier: Pass, met: list[Through], **by: bool) -> None:
        running = self.running or Pass()
        if running is not earlier:
            running.follows(earlier, met, **by)

    def _met_in(self, engine: Callable) -> Callable:
        @functools.wraps(engine)
        def run(t_outputs: Any, *args: Any, **kwargs: Any) -> Any:
            if is_unheard():
                return engine(t_outputs, *args, **kwargs)
            names = ("grad_tensors", "keep_graph", "create_graph", "inputs", "allow_unreachable")
            given = dict(zip(names, args, strict=False)) | kwargs
            this = Pass(given.get("grad_tensors") or (), given.get("inputs") or ())
            self._may_hold_lost(this, t_outputs)
            for outer in self._running:  # a reentrant checkpoint leads to leaves that nobody sees
                outer.is_alone = False
            self._running.append(this)
            try:
                if this.inputs:
                    self._follow_all(t_outputs, this.inputs)
                    self._follow_grad_outs(this)
                results = engine(t_outputs, *args, **kwargs)
            finally:
                self._running.remove(this)
            if given.get("create_graph") and this.through:
                self._await(this, t_outputs, None if given.get("accumulate_grad") else results)
            this.inputs = []
            if this.recorded and this.grad_outs:
                self._by_grad_outs.append(this)
            return results

        return run

    def _left_out(self, grad: Callable) -> Callable:
        """`torch.autograd.functional`, which gives 0 for what has no graph, and does not enter the
        engine for it."""

        @functools.wraps(grad)
        def run(outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            without = [y for y in outputs if isinstance(y, Tensor) and not y.requires_grad]
            if without and not is_unheard():
                self._may_hold_lost(Pass((), inputs), without)
            return grad(outputs, inputs, *args, **kwargs)

        return run

    def _follow_all(self, t_outputs: Sequence[Any], inputs: Sequence[Any]) -> None:
        """Call back for each backward that was recorded in the graph of these outputs, if its
        Function was applied to something that depends on these inputs, or its grad_out does."""
        tensors = [t for t in t_outputs if isinstance(t, Tensor) and t.grad_fn is not None]
        for node in walk(*tensors).nodes if self._any_recorded and tensors else ():
            for applied, grad_outs, follow in list(metadata_of(node.fn).get(RECORDED, ())):
                if _leads_to(applied, inputs) or _leads_to(grad_outs, inputs):
                    self._meet(applied, grad_outs, follow)

    def _follow_grad_outs(self, this: Pass) -> None:
        """Also where no way leads there any more."""
        here = self._by_grad_outs
        here[:] = [each for each in here if any(g() is not None for g in each.grad_outs)]
        for earlier in filter(this.is_by_grad_outs_of, here):
            for counted in earlier.recorded.values():
                counted.differentiated_by_grad_out()

    def _await(self, this: Pass, t_outputs: Sequence[Any], results: Sequence[Any] | None) -> None:
        """Notice later passes that differentiate the results of a pass, None if these are in
        `.grad`."""
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
                if graph and known and this.is_alone and not any(levels()):
                    given = [g for g in (ref() for ref in this.grad_outs) if g is not None]
                    this.leaves = set(map(id, graph.leaves + walk(*given).leaves))
                self._lost.append((this, cut_here, _newest()))

    def _may_hold_lost(self, this: Pass, t_outputs: Sequence[Any]) -> None:
        nodes = [getattr(t, "grad_fn", None) for t in t_outputs]

        def may_hold(thread: int, number: int) -> bool:
            elsewhere = this.thread != thread  # each thread has numbers of its own
            return elsewhere or any(n is None or number_of(n) > number for n in nodes)

        for lost in self._lost[:]:
            earlier, met, number = lost
            if this.inputs and not earlier.may_depend_on(this.inputs):
                continue
            if may_hold(earlier.thread, number):
                this.follows(earlier, met, has_graph=False)
                self._lost.remove(lost)
        values = any(has_tangent(t) for t in t_outputs if isinstance(t, Tensor))
        for lost_tangent in () if values else self._lost_tangents[:]:
            follow, thread, number = lost_tangent
            if may_hold(thread, number):
                follow()
                self._lost_tangents.remove(lost_tangent)


def _is_plain_leaf(x: Any) -> bool:
    return isinstance(x, Tensor) and x.is_leaf and unwrapped(x) is x


def _leads_to(inputs: Sequence[Tensor], ends: Sequence[Any]) -> bool:
    """Whether one of these tensors depends on one of those inputs (`ends`). The tensors keep their
    graph alive, which up to torch 2.12 the node of a custom Function does not."""
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
    """Call `follow` when a pass runs this node."""

    def met_again(grad_outs: Any) -> None:
        if not is_unheard():
            follow()

    with suppress(Exception):  # for a node that takes no hooks
        node.register_prehook(met_again)


def _reached(graph: Any, ends: Sequence[Any]) -> dict[Any, int]:
    """Dict: a node of autograd -> the ends that it leads to, of which the n-th is the n-th bit."""
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
