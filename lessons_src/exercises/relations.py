"""How wrong numbers are related to the true ones, in a true sentence."""

import torch

from .pairs import Pair

ENOUGH = 3  # numbers that a sentence about "everywhere" is taken from


def relation_of(groups: list[list[Pair]], where: str = "everywhere") -> str:
    """What is wrong in all of these pairs at once: a true sentence, or "".

    Args:
        groups: lists of `Pair`, one pair for each gradient that one backward returned.
        where: how the places of all these numbers together are called.
    """
    wrong = next((pair for group in groups for pair in group if pair.wrong), None)
    if wrong is None:
        return ""
    alike = [pair for group in groups for pair in group if pair.what == wrong.what]
    if _telling(alike) < ENOUGH:
        return ""
    for advice in wrong.slips:
        if all(close(pair.yours, pair.slips[advice]()) for pair in alike):
            return advice
    if _swapped(groups):
        return (
            "Each of the two gradients is what belongs in the place of the other. Check the order "
            "in which you take the saved tensors, and in which you return."
        )
    said = relation(alike, where)
    if not said and (other := _of_another(groups, wrong.what)):
        said = f"that is the gradient of {other}."
    several = len({pair.what for group in groups for pair in group}) > 1
    return f"For {wrong.what}: {said}" if said and several else said[:1].upper() + said[1:]


def _telling(pairs):
    """How many different true numbers there are."""
    return len(joined([p.true for p in pairs]).unique())


def _swapped(groups):
    """True if each of two gradients stands in the other's place."""
    for group in groups:
        if len(group) != 2 or group[0].true.shape != group[1].true.shape:
            return False
        one, two = group
        if not (close(one.yours, two.true) and close(two.yours, one.true)):
            return False
    return True


def _of_another(groups, name):
    """The name of the variable whose true gradient stands in the place of this one's, or ""."""
    for other in groups[0] if len(groups[0]) > 1 else []:
        if other.what != name and all(
            close(by_name[name].yours, by_name[other.what].true)
            for by_name in ({pair.what: pair for pair in group} for group in groups)
            if name in by_name and other.what in by_name
        ):
            return other.what
    return ""


def relation(pairs: list[Pair], where: str) -> str:
    """How yours is related to the true one in every pair, in a true sentence, or ""."""
    yours, true = joined([p.yours for p in pairs]), joined([p.true for p in pairs])
    if _telling(pairs) < ENOUGH:
        return ""
    if not yours.isfinite().all():
        return _places(pairs)
    if not yours.any():
        return f"{where}, yours is 0."
    if close(yours, -true):
        return f"{where}, yours has the wrong sign."
    ratio = (yours / true)[true != 0][:1]
    if close(yours, true * ratio) and abs(ratio.item() - 1) > 1e-3:
        return f"{where}, yours is {ratio.item():.4g} times the true one."
    for name in pairs[0].factors:
        factor = joined([_like(p.factors[name], p.yours) for p in pairs])
        for sign, also in ((1, ""), (-1, " The sign is wrong too.")):
            if close(yours, sign * true * factor):
                return f"{where}, yours has one factor too many: {name}.{also}"
            if close(yours * factor, sign * true):
                return f"{where}, yours lacks one factor: {name}.{also}"
        if close((yours - factor) * factor, true) and factor.any():
            return f"{where}, yours adds {name} where it should multiply by it."
        for power in (1, 2):
            shown = name if power == 1 else f"{name}²"
            for by, ratio in (
                ("times", _ratio(yours, true * factor**power)),
                ("divided by", _ratio(yours * factor**power, true)),
            ):
                if ratio is not None:
                    often = "" if abs(ratio - 1) < 1e-6 else f"{ratio:.4g} times "
                    return f"{where}, yours is {often}the true one, {by} {shown}."
    if close(yours.abs(), true.abs()) and (yours.sign() != true.sign()).any():
        return f"{where}, yours has the right size, and in places the wrong sign."
    handed = joined([_like(p.handed, p.yours) for p in pairs])
    if all(p.yours.numel() > 1 and _even(p.yours) for p in pairs) and not _ratio(yours, handed):
        return f"{where}, yours is one number for all elements. Is there a sum or a mean too many?"
    if torch.allclose(yours, true, rtol=3e-7, atol=0):
        return f"{where}, yours is right to about seven digits, as float32 is. Is a part of it so?"
    return _places(pairs)


def _places(pairs):
    """At which values of an argument yours is wrong, if it is right at all others."""
    wrong = torch.cat([p.differs.reshape(-1) for p in pairs])
    for name in pairs[0].factors:
        values = joined([_like(p.factors[name], p.yours) for p in pairs])
        if values.isnan().any() or wrong.all():
            continue
        for said, mask in (
            ("is negative", values < 0),
            ("is positive", values > 0),
            ("is 0", values == 0),
        ):
            if torch.equal(mask, wrong):
                return f"it is wrong where {name} {said}, and right at the other points tried."
    return ""


def _even(tensor):
    return bool((tensor == tensor.reshape(-1)[0]).all())


def _ratio(yours, other):
    """The number that yours is a multiple of the other by, or None."""
    ratio = (yours / other)[other != 0][:1]
    if not ratio.numel() or not ratio.isfinite() or not close(yours, other * ratio):
        return None
    return ratio.item()


def _like(factor, tensor):
    """The factor in the shape of the tensor; NaN, which equals nothing, where it does not fit."""
    factor = torch.as_tensor(factor, dtype=torch.float64)
    fits = factor.dim() == 0 or factor.shape == tensor.shape
    return (factor if fits else factor.new_tensor(torch.nan)).expand_as(tensor)


def joined(tensors):
    return torch.cat([t.detach().reshape(-1).to(torch.float64) for t in tensors])


def close(a, b):
    return a.shape == b.shape and torch.allclose(a, b, rtol=1e-6, atol=1e-9)
