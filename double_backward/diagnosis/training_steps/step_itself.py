"""Finds what a training step does outside of custom Functions that cuts or changes a gradient.

A value that leaves autograd there is followed, with all that torch computes from it. Where it meets
something that requires grad, and a pass runs through the result, the gradient of that pass lacks a
part. Since that is often meant (a target, a running statistic), it is reported, but is no error. A
number or an array is recognised where it is passed on unchanged; what Python or NumPy computes from
it is not followed.
"""

import functools
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from double_backward._torch import (
    has_compiled,
    mode_left,
    module_hooks_replaced,
    replaced,
    set_grad_enabled,
    tree_leaves,
    version,
)
from double_backward.calls import is_in_backward
from double_backward.differences import same
from double_backward.failures import failure, handed_over
from double_backward.lines import described
from double_backward.phrases import Phrase
from double_backward.places import Place, calling
from double_backward.untracked_steps import (
    DATA,
    DETACHING,
    GRAD,
    LEAVING,
    LEAVING_METHODS,
    Step,
    WatchFn,
    address_of,
    beyond_modes,
    told,
)

REGISTERS = {  # -> the kind of the hook
    torch.Tensor.register_hook: "hook",
    torch.Tensor.register_post_accumulate_grad_hook: "post_hook",
}


ALIASES = {DATA.__get__, torch.Tensor.detach}


@dataclass(frozen=True)
class Cut:
    """A step that autograd does not follow, and a gradient that it cuts or changes."""

    step: Step
    gradient: str  # the line that asks for the gradient, "" where that is not known
    changes: bool = False  # whether it is a hook that returns another gradient with a graph

    @property
    def said(self) -> str:
        taken = Phrase(" that is taken in {}", self.gradient) if self.gradient else ""
        if self.changes:
            return Phrase("{} makes the gradient{} another one.", told([self.step]), taken)
        return Phrase(
            "{}: to the gradient{}, what comes from there is a constant.", told([self.step]), taken
        )

    def to_dict(self) -> dict[str, str]:
        """Return plain values, for JSON."""
        does = "changes" if self.changes else "cuts"
        about = {"kind": self.step.kind, "where": self.step.where, "gradient": self.gradient}
        return {name: str(value) for name, value in about.items()} | {"does": does}


class _WatchStep(WatchFn):
    """Notes the operations that lose a graph through which a gradient of the training step would
    have gone."""

    def __init__(self) -> None:
        super().__init__()
        self.lost = WeakTensorKeyDictionary()  # tensor -> the steps that it has come through
        self.sources = WeakTensorKeyDictionary()  # alias -> weak reference to its source
        self.numbers: dict[int, tuple[Any, Step]] = {}  # id of a float or array -> it and its step
        self.arrays: dict[int, tuple[Step, ...]] = {}  # address of an array's numbers -> its steps
        self.block: Step | None = None  # the no_grad that is open
        self.recorded = False  # whether the last .backward() had create_graph
        self.cuts: dict[Step, Cut] = {}
        self.over = False
        self.left = False  # whether this mode was left for torch.compile
        self.compiled = False  # whether anything was compiled
        self.error: Exception | None = None

    def __exit__(self, *_: object) -> None:
        mode_left(self)

    def leaving(self, compiles: Callable) -> Callable:
        """`torch.compile`, before which this mode is left: under a mode it would not compile, or
        would compile something else."""

        @functools.wraps(compiles)
        def left(*args, **kwargs):
            self.left |= mode_left(self)
            return handed_over(compiles, *args, **kwargs)

        return left

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if self.over or is_in_backward():  # of a Function, which is diagnosed by itself
            return func(*args, **kwargs)
        frame, called = sys._getframe(1), None
        with self.kept():
            args, kwargs = self.with_hook(func, args, kwargs, frame)
            called = self.steps_of(func, args, kwargs, frame), _written(func, args, kwargs)
        result = func(*args, **kwargs)
        with self.kept():
            if called is not None:
                self.has_run(func, result, *called, frame)
        return result

    @contextmanager
    def kept(self):
        """Inside, errors are those of this package; they are kept and raised after the step."""
        try:
            yield
        except Exception as error:
            self.error = self.error or error

    def steps_of(self, func, args, kwargs, frame):
        """The steps through which the result of this call has come."""
        kind = self.kind(func, args, kwargs, frame)
        if func is set_grad_enabled:
            self.block = self.open[-1] if self.open else None
            return ()
        given = tree_leaves((args, kwargs))
        steps = list[Step]()
        for each in given:
            if isinstance(each, Tensor):
                steps += () if each.requires_grad else self.lost.get(each, ())
                steps += self.arrays.get(address_of(each), ()) if self.arrays else ()
            elif id(each) in self.numbers:
                steps.append(self.numbers[id(each)][1])
        name = LEAVING_METHODS.get(getattr(func, "__name__", ""))
        kind = name if steps and name in LEAVING else kind
        if kind in DETACHING or kind in LEAVING:
            steps.insert(0, self.step(kind, frame))
        asked = any(isinstance(t, Tensor) and t.requires_grad for t in given)
        if self.block and asked and not torch.is_grad_enabled():
            steps.append(self.block)
        return tuple(dict.fromkeys(step for step in steps if step.where))

    def has_run(self, func, result, steps, before, frame):
        gradient = result if func == GRAD.__get__ and isinstance(result, Tensor) else None
        # One that was recorded, and has no graph, was cut by a Function: a reentrant checkpoint.
        if gradient is not None and not gradient.requires_grad and not self.recorded:
            steps = (self.step("backward", frame),)
        written = [t for t, count in before if version(t) != count]
        if written and func is torch.nn.functional.embedding:
            self.wait(result.grad_fn, (self.step("max_norm", frame),))
        if steps:
            self.follow(tree_leaves(result), steps, written)
        if func in ALIASES and isinstance(result, Tensor):
            self.sources[result] = weakref.ref(before[0][0])

    def engine(self, run):
        """The engine, where `.backward()` is seen; `kind` sees `autograd.grad`."""

        def watching(tensors, grads, retain_graph, create_graph, inputs, *args, **kwargs):
            if kwargs.get("accumulate_grad") and not is_in_backward():
                self.recorded = create_graph
            return run(tensors, grads, retain_graph, create_graph, inputs, *args, **kwargs)

        return watching

    def step(self, kind, frame):
        self.note(kind, frame)
        return self.steps.pop()

    def follow(self, made, steps, written):
        sources = [self.sources[t]() for t in written if t in self.sources]
        unchanged = not written and not torch.is_grad_enabled()
        for each in [*made, *written, *sources]:
            if isinstance(each, float):
                self.numbers[id(each)] = each, steps[0]
            elif isinstance(each, np.ndarray):  # kept alive, so that no other gets its address
                self.numbers[id(each)] = each, steps[0]
                self.arrays[each.ctypes.data] = steps
            elif isinstance(each, Tensor) and each.requires_grad:
                if not unchanged:
                    self.wait(each.grad_fn, steps)
            elif isinstance(each, Tensor) and (each.is_floating_point() or each.is_complex()):
                self.lost[each] = steps  # masks and indices have no gradient to lose

    def wait(self, node, steps):
        """Note a cut for each step when a pass runs this node."""

        def met(grad_outs: Any) -> None:
            if not self.over:
                for step in steps:
                    self.cuts.setdefault(step, Cut(step, _here()))

        with suppress(Exception):  # a node that takes no hooks
            node.register_prehook(met)

    def found(self) -> tuple[Cut, ...] | None:
        """The cuts of the training step; None where something was compiled."""
        if self.error is not None:
            said = f"it raised {described(self.error)} while it watched a step"
            raise failure(said) from self.error
        return None if self.compiled else tuple(self.cuts.values())

    # Hooks.

    def with_hook(self, func, args, kwargs, frame):
        """The arguments of a call; if it registers a hook, with the hook replaced by a watched
        one."""
        if func not in REGISTERS:
            return args, kwargs
        step, args = self.step(REGISTERS[func], frame), list(args)
        if len(args) > 1:
            args[1] = self.watched(args[1], step)
        elif "hook" in kwargs:
            kwargs = {**kwargs, "hook": self.watched(kwargs["hook"], step)}
        return args, kwargs

    def watched(self, hook: Callable, step: Step) -> Callable:
        """The same hook, but the gradients before and after it are compared."""

        def watching(*given):
            if self.over:
                return handed_over(hook, *given)
            before = []
            with self.kept():
                place = 0 if step.kind == "hook" else 1
                grads = [given[0].grad] if step.kind == "post_hook" else _tensors(given[place])
                before = [(g, g.detach().clone()) for g in grads]
            result = handed_over(hook, *given)
            with self.kept():
                after = [given[0].grad] if step.kind == "post_hook" else _tensors([result])
                self.compare(step, before, after)
            return result

        return watching

    def compare(self, step, before, after):
        after = after or [g for g, _ in before]  # of a hook that returned None
        if len(after) != len(before) or not step.where:
            return
        pairs = [(*b, a) for b, a in zip(before, after, strict=True) if a is not None]
        if any(g.requires_grad and not a.requires_grad for g, _, a in pairs):
            self.cuts.setdefault(step, Cut(step, _here()))
        elif not all(same(a, was) for _, was, a in pairs):
            self.cuts.setdefault(step, Cut(step, _here(), changes=True))

    def of_module(self, hook):
        where, code = "a method of an object", getattr(hook, "__code__", None)
        if code is not None:
            where = Place(code.co_filename, code.co_firstlineno, function=code.co_name).quoted()
        return self.watched(hook, Step("module_hook", where))


def _written(func, args, kwargs):
    """The tensor that a call may write into, its first argument or the weight of an embedding, and
    its version before the call; a list of none or one."""
    into = args[:1]
    if func is torch.nn.functional.embedding:
        into = args[1:2] or [kwargs["weight"]]
    return [(t, version(t)) for t in into if isinstance(t, Tensor)]


def _tensors(given):
    return [t for t in tree_leaves(given) if isinstance(t, Tensor)]


def _here():
    """The line that asks for the gradient that is being computed."""
    place = calling()
    return place.quoted() if place else ""


@contextmanager
def watched_step() -> Iterator["_WatchStep"]:
    """Inside, a training step is watched in this thread; afterwards `found` gives its cuts."""
    watch = _WatchStep()
    hooks = module_hooks_replaced(watch.of_module)
    compiling = replaced(torch, {"compile": watch.leaving})
    try:
        with beyond_modes(watch), hooks, compiling, watch:
            yield watch
    finally:
        watch.over, watch.compiled = True, has_compiled()
        watch.lost.clear()
        watch.numbers.clear()
        watch.arrays.clear()
