"""One operation, compiled: what became of its second derivative in each setting."""

import warnings

import torch

from .operations import Operation
from .second import SETTINGS, by_differences, compiled, differentiate_twice, loss_of, with_zeros

BACKENDS = ("aot_eager", "inductor")
RIGHT, RAISES, WRONG, NOT_RUN = "right", "raises", "wrong", "not run"
TOLERANCE = 1e-4  # of the largest entry
# The long step is good to about 1e-7; near the edge of a domain, as in atanh, only a short one is
# inside of it, and near enough for the formula.
STEPS = (1e-3, 1e-5, 1e-7)


def look_at(name, backend):
    """A dict of texts: for each setting one of the four outcomes, and what tells why.

    Where it is wrong, "setting" is the first that is, "expected" and "got" the two entries that are
    farthest apart; else "setting" and "why" are those of the first that raises or was not run.
    """
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    try:
        operation = Operation(name)
    except Exception as error:
        return not_run(said(error))
    row, rank = {}, 0
    for setting in SETTINGS:
        row[setting], shown = outcome(operation, setting, backend)
        worse = (RIGHT, NOT_RUN, RAISES, WRONG).index(row[setting])
        if worse > rank:
            rank = worse
            row |= {"setting": setting, "why": "", "expected": "", "got": ""} | shown
    return row


def not_run(why):
    return dict.fromkeys(SETTINGS, NOT_RUN) | {"why": why}


def outcome(operation, setting, backend):
    try:
        first, expected = truth(operation, setting)
    except Exception as error:
        return NOT_RUN, {"why": f"not compiled: {said(error)}"}
    if expected is None:
        return NOT_RUN, {"why": "eager autograd and finite differences disagree"}
    try:
        points, loss = loss_of(operation, compiled(operation, backend), setting)
    except Exception as error:
        return NOT_RUN, {"why": f"compiled: {said(error)}"}
    try:
        first_got, got = differentiate_twice(points, loss, like=expected)
    except Exception as error:
        return RAISES, {"why": said(error)}
    first, first_got, expected, got = (
        with_zeros(each, points) for each in (first, first_got, expected, got)
    )
    if not close(first, first_got):
        return NOT_RUN, {"why": "the first derivative is not eager's"}
    if close(expected, got):
        return RIGHT, {}
    return WRONG, dict(zip(("expected", "got"), farthest(expected, got), strict=True))


def truth(operation, setting):
    """First derivatives and H u by eager autograd; None for H u where no step of the differences
    says the same, along one of two directions."""
    for seed in (2, 1):
        points, loss = loss_of(operation, operation.function, setting)
        first, answer = differentiate_twice(points, loss, seed=seed)
        found = with_zeros(answer, points)
        if not any(close(found, by_differences(operation, setting, step, seed)) for step in STEPS):
            return first, None
    return first, answer


def farthest(expected, got):
    """The two entries that are farthest apart, three digits each."""
    a, b = flat(expected), flat(got)
    worst = (a - b).abs().nan_to_num(nan=torch.inf).argmax()
    return f"{a[worst]:.3g}", f"{b[worst]:.3g}"


def close(a, b):
    """Whether the tensors agree to `TOLERANCE` of their largest entry; NaN agrees with nothing."""
    a, b = flat(a), flat(b)
    size = max(a.abs().max().item(), b.abs().max().item(), 1e-3) if a.numel() else 1.0
    return bool(((a - b).abs() <= TOLERANCE * size).all())


def flat(tensors):
    return torch.cat([t.detach().flatten() for t in tensors])


def said(error):
    """The error's class and first line, as much as tells it from others."""
    return f"{type(error).__name__}: {error}".strip().splitlines()[0][:150].strip()
