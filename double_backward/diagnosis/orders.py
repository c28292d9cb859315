"""How often a step differentiates through each custom Function.

A *pass* is one run of autograd's engine. `create_graph=True` records it, and another pass may
differentiate what it gave: one through which a loss on u_x is minimised is the second in such a
chain, and the third for a loss on u_xx. A Function of which a pass recorded a derivative is
differentiated once more by each pass further along the chain.

Passes are met where torch's own `grad` and `backward` enter the engine. One that is started
elsewhere counts as one that nothing follows.
"""

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch

from double_backward._torch import engine_replaced
from double_backward.calls import is_unheard
from double_backward.graphs.walk import walk


class Pass:
    """One run of the engine.

    Attributes:
        after: how many passes follow it in the longest chain of such as differentiate its result.
    """

    def __init__(self) -> None:
        self.after = 0
        self.thread = threading.get_ident()
        self._through: dict[int, Any] = {}  # of which it recorded a derivative
        self._before: list[Pass] = []  # whose results it differentiates

    def records(self, function: Any) -> None:
        """Its derivative is recorded, in order that it be differentiated again: its `order`."""
        self._through[id(function)] = function
        function.order = max(function.order, 2, 1 + self.after)

    def differentiates(self, earlier: "Pass") -> None:
        if earlier is not self and not any(earlier is known for known in self._before):
            self._before.append(earlier)
            earlier.followed_by(1 + self.after)

    def followed_by(self, count: int) -> None:
        if count <= self.after:
            return
        self.after = count
        for function in self._through.values():
            function.order = max(function.order, 1 + count)
        for earlier in self._before:
            earlier.followed_by(1 + count)


class Passes:
    """The passes that are running, the innermost last."""

    def __init__(self) -> None:
        self._running: list[Pass] = []

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

    def _met_in(self, engine: Callable) -> Callable:
        @functools.wraps(engine)
        def run(t_outputs: Any, *args: Any, **kwargs: Any) -> Any:
            if is_unheard():
                return engine(t_outputs, *args, **kwargs)
            names = ("grad_tensors", "keep_graph", "create_graph", "inputs", "allow_unreachable")
            given = dict(zip(names, args, strict=False)) | kwargs
            this = Pass()
            self._running.append(this)
            try:
                results = engine(t_outputs, *args, **kwargs)
            finally:
                self._running.remove(this)
            if given.get("create_graph"):
                if given.get("accumulate_grad"):
                    ends = given.get("inputs") or walk(*t_outputs).leaves
                    self._await(this, [end.grad for end in ends if hasattr(end, "grad")])
                else:
                    self._await(this, results)
            return results

        return run

    def _await(self, earlier: Pass, results: Any) -> None:
        """Notice whoever differentiates these results."""

        def met_again(grad_outs: Any) -> None:
            if not is_unheard():
                running = self.running
                if running is None:
                    earlier.followed_by(1)
                else:
                    running.differentiates(earlier)

        found = {r.grad_fn for r in results if isinstance(r, torch.Tensor)}
        nodes = [node for node in found if node is not None]
        for node in nodes:
            with suppress(Exception):  # a node that takes no hooks
                node.register_prehook(met_again)
        if not nodes:  # cut off: nobody can come along here, though somebody meant to
            earlier.followed_by(1)
