"""Measures how much of the change of what backward returns comes through each thing that is kept.

Along a line the inputs change what forward keeps, and that changes what backward returns. To first
order these changes add up: the share of a thing is the change that is missing if it alone stands
still. This is what backward takes from the thing itself: if one of two things was made from the
other, each has its own share. The change that is left if all of them stand still comes from
elsewhere.

Shares are computed by tangents, exactly; where these are lost, by differences, except in `missed`.
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

ANOTHER = "what another call keeps leads elsewhere"  # such as a key that is looked up by its id
Part = Callable[[Where], bool]  # whether a thing that is kept belongs to the part
Key = TypeVar("Key")


def taken(expected: Expected, function: Any, part: Part) -> Slope:
    """How G changes along the line if, of all that is kept, only a part of what a Function keeps
    changes, in all its calls. Raises what the callable or its backward raises at the point, and
    `tangents.Lost` where that cannot be measured.

    Args:
        expected: what was measured of one call of the Function.
        function: the class.
    """
    line = expected.line

    def followed():
        whole, rest = _without(expected, function, part)
        return whole - rest, torch.maximum(whole.abs(), rest.abs())

    def at(h):
        there = _kept(line, function, h)
        return _g(line, function, lambda where, own: there[where] if part(where) else own)

    return _change(expected, followed, at)


def taken_elsewhere(expected: Expected, function: Any) -> Slope:
    """How G changes by what the Function does not keep, such as what forward leaves outside ctx."""
    line = expected.line

    def followed():
        whole, rest = _without(expected, function, lambda _: True)
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
    """The change of <v, G> along a line; and how much of it autograd misses through each part of
    what Functions keep, in all their calls. grad_out is a constant.

    A part that backward does not use, or that autograd follows, has 0.

    Args:
        v: flat, like G, float64.
        parts: a key -> a class, and which of the tensors that it keeps belong to the part.
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
    """The change that `followed` gives by tangents or, if these are lost, that of `at(h)` by
    differences."""
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
        except Exception as error:  # raised by the callable, outside its domain
            raise_if_own(error)
            return torch.full_like(here, torch.nan)

    return slope(or_nan, expected.dtype, 1.0)


def _followed(line, function=None, read=None):
    """G and its change by tangents, where backward gets what `read` makes of what is kept."""
    with _reading(function, read):
        return tangents.changes(line.subject, line.x(), _u(line), line.d, line.given)


def _without(expected, function, part):
    """The change of G, and the change that is left if a part of what is kept stands still."""
    line = expected.line
    rest = _followed(line, function, _standing(line, function, part))
    if not close(expected.g, rest.g):
        raise tangents.Lost(ANOTHER)
    return expected.by_input.value, rest.of_g


def _standing(line, function, part):
    """A `read` for `reading` with which a part stands still. A value that is no tensor, and may
    hold some, is replaced by that of another call."""
    here = _kept(line, function)

    def read(where, own):
        if not part(where):
            return own
        return _plain(own) if isinstance(own, Tensor) else here[where]

    return read


def _plain(value):
    """A tensor without its tangent and its graph."""
    return forward_ad.unpack_dual(value).primal.detach()


def _kept(line, function, h=0.0):
    """Copies of what backward gets of the things that are kept, at a point of the line."""
    found = {}

    def noting(where, value):
        copy = value.detach().clone() if isinstance(value, Tensor) else value
        found[where] = copy.copy() if isinstance(copy, np.ndarray) else copy
        return value

    _g(line, function, noting, h)
    return found


def _g(line, function=None, read=None, h=0.0):
    """G, flat. It is recorded, since some backwards look at grad mode."""
    with torch.enable_grad(), _reading(function, read):
        return flat(line.subject.backward(line.x(h), _u(line)))


def _u(line):
    """The grad_outs, with a graph where they may have one."""
    return line.grad_outs(lambda u, _: u.requires_grad_())


def _reading(function, read):
    return nullcontext() if function is None else reading(function, read)
