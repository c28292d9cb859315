"""Whose first derivative is right: each Function by itself, beside its own forward."""

from collections.abc import Sequence
from contextlib import suppress

import torch
from torch import Tensor

from double_backward import check
from double_backward.check import Line, Outcome, Subject, signed
from double_backward.meet import Call, Listener, listening

from .judge import NOISE
from .target import Target

MOST = 8  # Functions


def each_at_first(target: Target, sizes: Sequence[float] = (1.0,)) -> dict[type, Outcome]:
    """For each Function, whether backward is the derivative of its forward. Raises what fn does.

    Where it is not and all of fn is right, gradients are handed over in a convention of their own,
    as those by a step on a group are.

    Args:
        sizes: of the grad_outs; several of them find one that clips.
    """
    met = _Calls()
    with listening(met):
        target.start()
    return {function: _first(call, sizes) for function, call in list(met.calls.items())[:MOST]}


class _Calls(Listener):
    def __init__(self):
        self.calls: dict[type, Call] = {}  # the first of each

    def called(self, call):
        if call.inputs and not call.in_backward:
            self.calls.setdefault(call.function, call)


def _first(call: Call, sizes: Sequence[float]) -> Outcome:
    """The first that is not right."""
    x = tuple(x.detach() for x in call.inputs.values())

    def function(x: Sequence[Tensor]) -> list[Tensor]:
        outs = call.again(dict(zip(call.inputs, x, strict=True)))
        return [y for y in outs if isinstance(y, Tensor) and y.is_floating_point()]

    with suppress(Exception):  # of the Function
        generator = torch.Generator().manual_seed(5)
        u = tuple(signed(y, generator) for y in function(x))
        for size in sizes:
            subject = Subject(function, x, tuple(size * v for v in u))
            found = check.first(check.measure(Line.of(subject)), NOISE).outcome
            if found is not Outcome.RIGHT:
                break
        return found
    return Outcome.NOT_ASKED
