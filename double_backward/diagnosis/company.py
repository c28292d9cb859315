"""Which Functions are right at first order in company only: each beside its own forward."""

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


def not_their_own(target: Target) -> set[type]:
    """The Functions of which backward is not the derivative of their forward. Raises what fn does.

    Where all of fn is right, gradients are handed over in a convention of their own, as those by a
    step on a group are.
    """
    met = _Calls()
    with listening(met):
        target.start()
    return {function for function, call in list(met.calls.items())[:MOST] if _is_wrong(call)}


class _Calls(Listener):
    def __init__(self):
        self.calls: dict[type, Call] = {}  # the first of each

    def called(self, call):
        if call.inputs and not call.in_backward:
            self.calls.setdefault(call.function, call)


def _is_wrong(call: Call) -> bool:
    x = tuple(x.detach() for x in call.inputs.values())

    def function(x: Sequence[Tensor]) -> list[Tensor]:
        outs = call.again(dict(zip(call.inputs, x, strict=True)))
        return [y for y in outs if isinstance(y, Tensor) and y.is_floating_point()]

    with suppress(Exception):  # of the Function
        generator = torch.Generator().manual_seed(5)
        u = tuple(signed(y, generator) for y in function(x))
        expected = check.measure(Line.of(Subject(function, x, u)))
        return check.first(expected, NOISE).outcome is Outcome.WRONG
    return False
