"""What to add to a right answer: whether it practises what its exercise is for, and overflows."""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from double_backward.graphs import walk
from double_backward.untracked_steps import LEAVING, watched

from .differentiate import (
    applied_in_backward,
    backward_of,
    called,
    first,
    functions_of,
    second,
)
from .language import Phrase
from .reply import survived
from .task import Setting, Task

# Why the second derivative is wrong -> what the exercise asks for: not to compute it again.
RETURN_IT = dict.fromkeys(
    ("intermediate_saved", "intermediate_on_ctx"),
    Phrase(
        "Save it and return it from forward, too, in one flat tuple; hand over a function that "
        "returns the first result alone."
    ),
)


def besides(task: Task, answer: Any) -> str:
    """One sentence on a right answer, or ""."""
    fn = answer.apply if isinstance(answer, type) else answer  # type: ignore[attr-defined]
    with torch.inference_mode(False), torch.enable_grad():
        return survived(_around, task, fn) or survived(_overflow, task, fn)


def _around(task, fn):
    if task.point is None or task.point.met(fn, task.plain[0]):
        return ""
    said = "But it goes around the point of this exercise, which is {}."
    return Phrase(said, task.point.said)


def _overflow(task, fn):
    if task.far:
        setting = Setting(task.far)
        ones = torch.ones_like(task.far[0])
        (yours, *_), (true, *_) = (first(f, setting, ones)[1] for f in (fn, task.truth))
        for bad in (~yours.isfinite()).nonzero()[:1].flatten().tolist():
            at = f"{task.inputs[0]} = {task.far[0][bad].item():g}"
            return Phrase(
                "But it overflows: at {} the first derivative is {}, true {:g}. Which part of your "
                "formula is too large there?",
                at,
                yours[bad].item(),
                true[bad].item(),
            )
    return ""


def _nodes(fn, setting):
    out = fn(*setting.fresh()[0])
    return out, [node for node in walk.walk(out).nodes if node.custom]


def keeps_the_result(fn: Callable, setting: Setting) -> bool:
    return any(kept.role == walk.OUTPUT for node in _nodes(fn, setting)[1] for kept in node.kept)


def keeps_an_extra_output(fn: Callable, setting: Setting) -> bool:
    """Is an output kept from which the result does not come?"""
    out, nodes = _nodes(fn, setting)
    used = {walk.origin(out)}
    for node in walk.walk(out).nodes:
        used |= {(source[0].fn, source[1]) for source in node.inputs if source is not None}
    kept = [(node.fn, k.position) for node in nodes for k in node.kept if k.role == walk.OUTPUT]
    return not used.issuperset(kept)


def leaves_torch_in_backward(fn: Callable, setting: Setting) -> bool:
    out, xs = called(fn, setting)
    with watched(functions_of(out)) as steps:
        backward_of(out, xs)
    return any(step.kind in LEAVING for step in steps)


def applies_a_function_in_backward(fn: Callable, setting: Setting) -> bool:
    return bool(applied_in_backward(fn, setting)[1])


class _Exponentials(TorchDispatchMode):
    """Whether torch computes any."""

    met = False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.met |= func.overloadpacket._qualified_op_name in ("aten::exp", "aten::exp_")
        return func(*args, **(kwargs or {}))


def applies_a_function_without_exponentials_of_torch(fn: Callable, setting: Setting) -> bool:
    with _Exponentials() as seen:
        second(fn, setting, 0)
    return applies_a_function_in_backward(fn, setting) and not seen.met


def applies_itself_in_backward(fn: Callable, setting: Setting) -> bool:
    outer, inner = applied_in_backward(fn, setting)
    return any(cls in outer for cls in inner)
