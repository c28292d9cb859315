"""Where an answer goes from float64 to float32."""

import sys
from contextlib import ExitStack

import torch
from torch.overrides import TorchFunctionMode

from double_backward.graphs import walk
from double_backward.methods import around

from .reply import readers_line


class Narrowing(TorchFunctionMode):
    """Notes the first line whose result is float32 while none of its tensors was."""

    where = ""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if not self.where and _single(result) and not any(map(_single, args)):
            self.where = readers_line(sys._getframe(1))
        return result


def _single(value):
    return isinstance(value, torch.Tensor) and value.dtype == torch.float32


def in_float32(pairs, fn, args) -> str:
    """What to say if all numbers are right to seven digits or so, and the Function makes float32.

    Args:
        pairs: yours and the true gradients, float64.
        fn: the answer.
        args: what to call it with.
    """
    for pair in pairs:
        size = pair.true.abs().max().item() if pair.true.numel() else 0.0
        if not torch.allclose(pair.yours, pair.true, rtol=1e-5, atol=1e-6 * size):
            return ""
    seen = Narrowing()

    def watching(function):
        def inside(*args):
            with seen:
                return function(*args)

        return inside

    with ExitStack() as stack:
        for cls in {node.custom for node in walk.walk(fn(*args)).nodes if node.custom}:
            for method in ("forward", "backward"):
                stack.enter_context(around(cls, method, watching))
        fn(*args).sum().backward()
    if not seen.where:
        return ""
    return (
        "Yours is right to about seven digits, as float32 is, and the inputs are float64. It "
        f"becomes float32 here: {seen.where}."
    )
