"""What a training step does outside of custom Functions that cuts, or changes, a gradient it takes.

What leaves autograd there is followed, and what is computed of it: where it meets something that
requires grad, and a pass runs through what comes out, the gradient of that pass lacks a part. That
is often meant (a target, a running statistic), so that it is told, and convicts of nothing. A
number, or an array, is known again where it is handed over as it is; what Python or NumPy computes
of it is not followed.
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
    METHODS,
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
    """A step, and a gradient of which it takes a part away, or that it makes another one."""

    step: Step
    gradient: str  # the line that asks for it, "" where that is not known
    changes: bool = False  # a hook that returns another gradient, with its graph

    @property
    def said(self) -> str:
        taken = Phrase(" that is taken in {}", self.gradient) if self.gradient else ""
        if self.changes:
            return Phrase("{} makes the gradient{} another one.", told([self.step]), taken)
        return Phrase(
            "{}: to the gradient{}, what comes from there is a constant.", told([self.step]), taken
        )

    def to_dict(self) -> dict[str, str]:
        """Plain values, for JSON."""
        does = "changes" if self.changes else "cuts"
        about = {"kind": self.step.kind, "where": self.step.where, "gradient": self.gradient}
        return {name: str(value) for name, value in about.items()} | {"does": does}


class _WatchStep(WatchFn):
    """Notes which of the steps that lose a graph a gradient of the step would have gone through."""

    def __init__(self) -> None:
        super().__init__()
        self.lost = WeakTensorKeyDictionary()  # tensor -> the steps that it has come through
        self.sources = WeakTensorKeyDictionary()  # of what shares its memory: a weak reference
        self.numbers: dict[int, tuple[Any, Step]] = {}  # id of a float or an array -> it, its step
        self.arrays: dict[int, tuple[Step, ...]] = {}  # by the address of their numbers
        self.block: Step | None = None  # the no_grad that is open
        self.cuts: dict[Step, Cut] = {}
        self.over = False
        self.left = False  # when something was compiled
        self.compiled = False  # whether anything was
        self.error: Exception | None = None

    def __exit__(self, *_: object) -> None:
        mode_left(self)

    def leaving(self, compiles: Callable) -> Callable:
        """torch.compile: what it makes would not be compiled, or otherwise, under a mode."""

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
        """What is raised inside is ours, and is told when the step is over."""
        try:
            yield
        except Exception as error:
            self.error = self.error or error

    def steps_of(self, func, args, kwargs, frame):
        """Those that what this call returns has come through."""
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
        name = METHODS.get(getattr(func, "__name__", ""))
        kind = name if steps and name in LEAVING else kind
        if kind in DETACHING or kind in LEAVING:
            steps.insert(0, self.step(kind, frame))
        asked = any(isinstance(t, Tensor) and t.requires_grad for t in given)
        if self.block and asked and not torch.is_grad_enabled():
            steps.append(self.block)
        return tuple(dict.fromkeys(step for step in steps if step.where))

    def has_run(self, func, result, steps, before, frame):
        if func == GRAD.__get__ and isinstance(result, Tensor) and not result.requires_grad:
            steps = (self.step("backward", frame),)
        written = [t for t, count in before if version(t) != count]
        if written and func is torch.nn.functional.embedding:
            self.wait(result.grad_fn, (self.step("max_norm", frame),))
        if steps:
            self.follow(tree_leaves(result), steps, written)
        if func in ALIASES and isinstance(result, Tensor):
            self.sources[result] = weakref.ref(before[0][0])

    def step(self, kind, frame):
        self.note(kind, frame)
        return self.steps.pop()

    def follow(self, made, steps, written):
        sources = [self.sources[t]() for t in written if t in self.sources]
        unchanged = not written and not torch.is_grad_enabled()
        for each in [*made, *written, *sources]:
            if isinstance(each, float):
                self.numbers[id(each)] = each, steps[0]
            elif isinstance(each, np.ndarray):  # which is kept, so that no other lies there
                self.numbers[id(each)] = each, steps[0]
                self.arrays[each.ctypes.data] = steps
            elif isinstance(each, Tensor) and each.requires_grad:
                if not unchanged:
                    self.wait(each.grad_fn, steps)
            elif isinstance(each, Tensor) and (each.is_floating_point() or each.is_complex()):
                self.lost[each] = steps  # of a mask, or of places, no gradient is lost

    def wait(self, node, steps):
        """For a pass that runs this node."""

        def met(grad_outs: Any) -> None:
            if not self.over:
                for step in steps:
                    self.cuts.setdefault(step, Cut(step, _here()))

        with suppress(Exception):  # a node that takes no hooks
            node.register_prehook(met)

    def found(self) -> tuple[Cut, ...] | None:
        """Its cuts; None where something was compiled."""
        if self.error is not None:
            said = f"it raised {described(self.error)} while it watched a step"
            raise failure(said) from self.error
        return None if self.compiled else tuple(self.cuts.values())

    # Hooks.

    def with_hook(self, func, args, kwargs, frame):
        """The arguments; of what registers a hook, with one that is watched."""
        if func not in REGISTERS:
            return args, kwargs
        step, args = self.step(REGISTERS[func], frame), list(args)
        if len(args) > 1:
            args[1] = self.watched(args[1], step)
        elif "hook" in kwargs:
            kwargs = {**kwargs, "hook": self.watched(kwargs["hook"], step)}
        return args, kwargs

    def watched(self, hook: Callable, step: Step) -> Callable:
        """The same hook, whose gradient, before and after, is looked at."""

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
        after = after or [g for g, _ in before]  # written into, or as they were
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
    """What a call may write into, its first argument or the weight of an embedding, and the version
    that this has before."""
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
    """Inside, a step runs in this thread; afterwards its cuts can be asked for."""
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
