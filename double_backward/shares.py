"""How much of the change of what backward returns comes through each thing that is kept.

Along a line the inputs change what forward keeps, and that changes what backward returns. To first
order these changes add up: what a thing brings is what is gone where it alone stands still. So its
share is what backward takes from it itself: of two things of which one was made from the other each
has its own, however it came to be. What is left where all of them stand still comes from elsewhere.

By tangents, exactly; where they end, by differences, except for `missed`.
"""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad

from . import tangents
from .change import Where, reading
from .check import Expected, Line, ask
from .differences import LAST, Slope, close, flat, slope
from .failures import raise_if_own

ANOTHER = "what another call keeps leads elsewhere"  # as a key that is looked up by its identity
Part = Callable[[Where], bool]  # which of all that is kept is meant
Key = TypeVar("Key")


def taken(expected: Expected, function: Any, part: Part) -> Slope:
    """How G changes along the line by a part of what a Function keeps, in all its calls, while all
    else stands still. Raises what the callable or its backward raises at the point, and
    `tangents.Lost` where that cannot be asked.

    Args:
        expected: what was measured of one call of the Function.
        function: the class.
    """
    line = expected.line

    def followed():
        whole, rest = _without(line, function, part)
        return whole - rest, torch.maximum(whole.abs(), rest.abs())

    def at(h):
        there = _kept(line, function, h)
        return _g(line, function, lambda where, own: there[where] if part(where) else own)

    return _change(expected, followed, at)


def taken_elsewhere(expected: Expected, function: Any) -> Slope:
    """The same by what it does not keep, as by what forward leaves outside ctx."""
    line = expected.line

    def followed():
        whole, rest = _without(line, function, lambda _: True)
        return rest, torch.maximum(whole.abs(), rest.abs())

    def at(h):
        here = _kept(line, function)
        return _g(line, function, lambda where, _: here[where], h)

    return _change(expected, followed, at)


def moves(change: Slope) -> bool | None:
    """Whether anything changes; None where that is not known."""
    if (change.value.abs() > 5 * change.error).any():
        return True
    return False if change.error.isfinite().all() else None


def missed(
    line: Line, v: Tensor, parts: Mapping[Key, tuple[Any, Part]], dtype: torch.dtype
) -> tuple[float, dict[Key, float]]:
    """The change of <v, G> along a line; and of that, less what autograd says of it, how much comes
    through each part of what a Function keeps, in all its calls. grad_out is a constant.

    0 for what backward does not use, and for what autograd follows.

    Args:
        v: flat, like G, float64.
        parts: classes, and which of the tensors that they keep.
        dtype: the precision in which the callable computes.

    Raises:
        tangents.Lost: the change is not known by tangents, or autograd raises.
    """

    line = line.with_constants()

    def both(function=None, part=None):
        met = []

        def still(where, own):
            met.append(where)
            return _plain(own) if part(where) else own

        change = v @ _followed(line, function, still).of_g
        with _reading(function, still):
            answer = ask(line, [v])
        if answer.error is not None:
            raise tangents.Lost(str(answer.error)) from answer.error
        if function is not None and not met:
            raise tangents.Lost("each call makes its Functions anew")
        return torch.stack([change, answer.by_input[0].sum()])

    whole, found = both(), {}
    for key, (function, part) in parts.items():
        rest = both(function, part)
        true, said = (whole - rest).tolist()
        digits = LAST * torch.finfo(dtype).eps * torch.maximum(whole.abs(), rest.abs()).max()
        found[key] = true - said if abs(true - said) > digits else 0.0
    return whole[0].item(), found


def _change(expected, followed, at):
    """By tangents, or else by differences of `at(h)`."""
    if expected.exact:
        try:
            change, size = followed()
            error = LAST * torch.finfo(expected.dtype).eps * size
            return Slope(change, error, error)
        except tangents.Lost:
            pass
    here = at(0.0)
    if not close(here, _g(expected.line)):
        raise tangents.Lost(ANOTHER)

    def or_nan(h):
        try:
            return at(h) if h else here
        except Exception as error:  # of the callable, outside its domain
            raise_if_own(error)
            return torch.full_like(here, torch.nan)

    return slope(or_nan, expected.dtype, 1.0)


def _followed(line, function=None, read=None):
    """G, and its change by tangents, where what is kept is read otherwise."""
    with _reading(function, read):
        return tangents.changes(line.subject, line.x(), _u(line), line.d, line.given)


def _without(line, function, part):
    """The change of G as it is, and where a part of what is kept stands still."""
    still = _standing(line, function, part)
    whole, rest = _followed(line), _followed(line, function, still)
    if not close(whole.g, rest.g):
        raise tangents.Lost(ANOTHER)
    return whole.of_g, rest.of_g


def _standing(line, function, part):
    """What `reading` takes, so that a part stands still; what is no tensor may hold such, and is
    that of another call."""
    here = _kept(line, function)

    def read(where, own):
        if not part(where):
            return own
        return _plain(own) if isinstance(own, Tensor) else here[where]

    return read


def _plain(value):
    """Without tangent and graph."""
    return forward_ad.unpack_dual(value).primal.detach()


def _kept(line, function, h=0.0):
    """What backward is given of what is kept, at a point of the line."""
    found = {}

    def noting(where, value):
        copy = value.detach().clone() if isinstance(value, Tensor) else value
        found[where] = copy.copy() if isinstance(copy, np.ndarray) else copy
        return value

    _g(line, function, noting, h)
    return found


def _g(line, function=None, read=None, h=0.0):
    """G, flat, recorded, since some backwards look."""
    with torch.enable_grad(), _reading(function, read):
        return flat(line.subject.backward(line.x(h), _u(line)))


def _u(line):
    """The grad_outs, with a graph where they may have one."""
    return line.grad_outs(lambda u, _: u.requires_grad_())


def _reading(function, read):
    return nullcontext() if function is None else reading(function, read)
