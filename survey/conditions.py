"""By which of its arguments a Function is wrong: asked by each alone, and by each pair."""

import inspect
from dataclasses import replace
from math import isfinite

from .compare import (
    SETTINGS,
    compare,
    constants_but,
    differentiated,
    directions,
    first_derivative_by,
    loss_in,
    number_in,
)  # fmt: skip

RIGHT, WRONG, RAISES, FIRST = "right", "wrong", "raises", "first derivative wrong"
NAN = "NaN"  # or infinite: no number that a user can take for right
NO_FIRST = "first derivative raises"  # so nobody comes to the second in this way


def by_argument(fn, inputs, surrogate=False):
    """What comes out by each argument alone, the others constant, and across each pair.

    Across a pair means the first derivative by one and the second by the other, in both orders,
    all others constant. The settings are those of `compare`; the gravest outcome counts. Truth is
    differences: with constants a Function may compute something else than its reference, as one
    that drops a bias that needs no gradient.

    Returns:
        dict: "x" or "x, y" -> a list of `Number`; empty for a single argument.
    """
    given = differentiated(inputs)
    names = argument_names(fn, inputs)
    if len(given) < 2:
        return {}
    found = {}
    for i in list(given):
        alone = constants_but([i], inputs)
        first = first_derivative_by([i], fn, alone)
        if first.error:  # as in a backward that asks for the gradients of constants, too
            found[names[i]] = [first]
        elif first.wrong and not surrogate:  # as in a backward that looks at another's needs
            found[names[i]] = [first]
            given.remove(i)
        else:
            found[names[i]] = compare(fn, alone, surrogate=surrogate)
    for n, i in enumerate(given):
        for j in given[n + 1 :]:
            pair = constants_but([i, j], inputs)
            both = names[i], names[j]
            found[", ".join(both)] = [*across(both, fn, pair, surrogate)]
    return found


def first_by_argument(fn, inputs):
    """The same for a first derivative, which has no pairs."""
    given, names = differentiated(inputs), argument_names(fn, inputs)
    if len(given) < 2:
        return {}
    return {names[i]: [first_derivative_by([i], fn, constants_but([i], inputs))] for i in given}


def across(names, fn, inputs, surrogate):
    """A `Number` for each setting and each order of two arguments."""
    given = differentiated(inputs)
    x, y = names
    for setting in SETTINGS:
        if surrogate and setting in ("graph after", "both"):
            continue
        loss = loss_in(setting, fn, inputs, given)
        u, v = directions([inputs[i] for i in given], 1)
        for order, by in ((x, y), ([u, None], [None, v])), ((y, x), ([None, v], [u, None])):
            said = f"{setting}, by {order[0]}, then {order[1]}"
            yield replace(number_in(setting, loss, None, *by), setting=said)


def worst(numbers):
    if any(number.setting == "first" and number.error for number in numbers):
        return NO_FIRST
    if any(number.wrong and number.setting == "first" for number in numbers):
        return FIRST
    if any(number.wrong for number in numbers):
        return WRONG
    if any(number.got is not None and not isfinite(number.got) for number in numbers):
        return NAN
    return RAISES if any(number.error for number in numbers) else RIGHT


def argument_names(fn, inputs):
    """The parameters' names, of a bare `apply` those of forward; else "argument 1"."""
    owner = getattr(fn, "__self__", None)
    forward = getattr(owner, "forward", None) if fn == getattr(owner, "apply", None) else fn
    names = [name for name in inspect.signature(forward).parameters if name != "ctx"]
    if len(names) < len(inputs) or {"args", "kwargs"} & {*names[: len(inputs)]}:
        return [f"argument {n}" for n in range(1, len(inputs) + 1)]
    return names[: len(inputs)]


def text(found):
    """As the table stores it: "x: right; y: right; x, y: wrong"."""
    return "; ".join(f"{name}: {worst(numbers)}" for name, numbers in found.items())


def read(stored):
    return dict(part.rsplit(": ", 1) for part in stored.split("; ") if part)


def sentence(stored):
    """The condition in words; "" where each argument alone gives the same, and not right, or where
    nothing was asked, or nothing is amiss."""
    found = read(stored)
    alone = {name: outcome for name, outcome in found.items() if ", " not in name}
    by_each = {*alone.values()}
    if {*found.values()} <= {RIGHT} or len(by_each) == 1 and by_each != {RIGHT}:
        return ""
    said = []
    for outcome in (WRONG, FIRST, NAN, RAISES, NO_FIRST, RIGHT):
        names = [name for name in found if found[name] == outcome]
        # What is so by one alone is so across a pair with it, most often.
        telling = [name for name in names if name in alone] or names * (not said)
        said += [f"{outcome} by {listed(telling)}"] if telling else []
    return "; ".join(said)


def listed(names):
    """In words: alone, or across a pair."""
    return ", ".join(
        f"{name.replace(', ', ' and ')} together" if ", " in name else f"{name} alone"
        for name in names
    )
