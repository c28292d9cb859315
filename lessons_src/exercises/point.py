"""Whether a right answer practises what its exercise is for."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd import grad

from double_backward.graphs import walk
from double_backward.steps import LEAVING, Step, watched


@dataclass(frozen=True)
class Seen:
    """One call of an answer, and its first backward, recorded.

    Attributes:
        out: the result.
        forward: the nodes of Functions that lead to it.
        backward: the nodes of Functions that lead to the gradients, and not to the result.
        steps: where backward leaves what autograd records.
    """

    out: Tensor
    forward: list[walk.Node]
    backward: list[walk.Node]
    steps: list[Step]


@dataclass(frozen=True)
class Point:
    """What an exercise is for.

    Attributes:
        said: to fit behind "the point of this exercise, which is".
        met: whether an answer does so.
    """

    said: str
    met: Callable[[Seen], bool]


def around_the_point(task, answer) -> str:
    """One sentence where a right answer goes around what its exercise is for, else ""."""
    if task.point is None:
        return ""
    fn = answer.apply if isinstance(answer, type) else answer
    with torch.inference_mode(False), torch.enable_grad():
        try:
            met = task.point.met(_seen(task.plain[0], fn))
        except Exception:  # a backward that cannot be recorded, where the exercise wants the first
            return ""
    said = f"But it goes around the point of this exercise, which is {task.point.said}."
    return "" if met else said


def _seen(setting, fn):
    args = setting.fresh()
    out, xs = fn(*args), setting.variables(args)
    grad_out = setting.grad_out(out).requires_grad_()
    forward = [node for node in walk.walk(out).nodes if node.custom]
    with watched({node.custom for node in forward}) as steps:
        gradients = list(grad(out, xs, grad_out, create_graph=True))
    before = {node.fn for node in forward}
    later = walk.walk(*gradients).nodes
    backward = [node for node in later if node.custom and node.fn not in before]
    return Seen(out, forward, backward, steps)


def keeps_the_result(seen: Seen) -> bool:
    return any(kept.role == walk.OUTPUT for node in seen.forward for kept in node.kept)


def keeps_an_extra_output(seen: Seen) -> bool:
    """Is an output kept from which the result does not come?"""
    used = {walk.origin(seen.out)}
    for node in walk.walk(seen.out).nodes:
        used |= {(source[0].fn, source[1]) for source in node.inputs if source is not None}
    return any(
        kept.role == walk.OUTPUT and (node.fn, kept.position) not in used
        for node in seen.forward
        for kept in node.kept
    )


def leaves_torch_in_backward(seen: Seen) -> bool:
    return any(step.kind in LEAVING for step in seen.steps)


def applies_a_function_in_backward(seen: Seen) -> bool:
    return bool(seen.backward)


def applies_itself_in_backward(seen: Seen) -> bool:
    here = {node.custom for node in seen.forward}
    return any(node.custom in here for node in seen.backward)
