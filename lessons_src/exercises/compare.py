"""Yours and the true one: where two vectors of numbers differ, and how they are related."""

from dataclasses import dataclass, field

import torch


@dataclass
class Pair:
    """Two tensors of one shape, and what they were computed from.

    Attributes:
        what: name of the thing compared, such as "b" for the gradient of b.
        yours, true: the two tensors.
        given: dict from names to the arguments, tensors or numbers.
        factors: dict from names to what may be a factor too many, or missing.
        slips: dict from an advice to what a known mistake gives instead of `true`.
        note: said behind the place.
    """

    what: str
    yours: torch.Tensor
    true: torch.Tensor
    given: dict
    factors: dict = field(default_factory=dict)
    slips: dict = field(default_factory=dict)
    note: str = ""

    @property
    def differs(self):
        """Mask of the elements that are not equal, rounding apart."""
        return ~torch.isclose(self.yours, self.true, rtol=1e-9, atol=1e-11, equal_nan=True)

    @property
    def wrong(self):
        return bool(self.differs.any())

    def __str__(self):
        """The first element that differs: "at x[1] = 1.0: yours 0.5000, true 0.2500"."""
        index = tuple(self.differs.nonzero()[0].tolist())
        places = []
        for name, value in self.given.items():
            if isinstance(value, torch.Tensor):
                if value.dim() and value.shape == self.yours.shape:
                    name += f"[{', '.join(map(str, index))}]"
                    value = value[index]
                value = value.tolist()
            places.append(f"{name} = {value}")
        numbers = _numbers(self.yours[index].item(), self.true[index].item())
        return f"at {', '.join(places)}{self.note}: {numbers}"


def _numbers(yours, true):
    """Both with four decimals, or with as many digits as it takes to tell them apart."""
    for form in (".4f", ".4g", ".8g", ".15g"):
        texts = [format(round(value, 15) + 0.0, form) for value in (yours, true)]
        if texts[0] != texts[1] and all(len(text) < 16 for text in texts):
            break
    return f"yours {texts[0]}, true {texts[1]}"


def explain(groups):
    """What is wrong in all of these pairs at once: one true sentence or two, or "".

    Args:
        groups: lists of `Pair`, one pair for each gradient that one backward returned.
    """
    pairs = [pair for group in groups for pair in group]
    wrong = [pair for pair in pairs if pair.wrong]
    for advice in wrong[0].slips:
        if all(_close(p.yours, p.slips[advice]) for p in wrong if p.what == wrong[0].what):
            return advice
    if _swapped(groups):
        return (
            "The two gradients are in the wrong order. Return them in the order of the arguments."
        )
    said = relation(wrong)
    names = dict.fromkeys(pair.what for pair in wrong)
    several = len({pair.what for pair in pairs}) > 1
    return f"For {' and '.join(names)}: {said}" if said and several else said[:1].upper() + said[1:]


def _swapped(groups):
    """True if each of two gradients stands in the other's place."""
    for group in groups:
        if len(group) != 2 or group[0].true.shape != group[1].true.shape:
            return False
        one, two = group
        if not (_close(one.yours, two.true) and _close(two.yours, one.true)):
            return False
    return True


def relation(pairs):
    """How yours is related to the true one in every pair, in a true sentence, or ""."""
    yours, true = joined([p.yours for p in pairs]), joined([p.true for p in pairs])
    if not yours.any():
        return "yours is 0 everywhere."
    if torch.allclose(yours, true, rtol=1e-5):
        return "yours has the first digits right: is a part of it computed in float32, or rounded?"
    if _close(yours, -true):
        return "everywhere, yours has the wrong sign."
    for name in pairs[0].factors:
        factor = joined([_like(p.factors[name], p.yours) for p in pairs])
        for sign, also in ((1, ""), (-1, " The sign is wrong too.")):
            if _close(yours, sign * true * factor):
                return f"everywhere, yours has one factor too many: {name}.{also}"
            if _close(yours * factor, sign * true):
                return f"everywhere, yours lacks one factor: {name}.{also}"
    ratio = (yours / true)[true != 0][:1]
    if len(ratio) and _close(yours, true * ratio):
        return f"everywhere, yours is {ratio.item():.4g} times the true one."
    return ""


def _like(factor, tensor):
    """The factor in the shape of the tensor; NaN, which equals nothing, where it does not fit."""
    factor = torch.as_tensor(factor, dtype=torch.float64)
    fits = factor.dim() == 0 or factor.shape == tensor.shape
    return (factor if fits else factor.new_tensor(torch.nan)).expand_as(tensor)


def joined(tensors):
    return torch.cat([t.detach().reshape(-1).to(torch.float64) for t in tensors])


def _close(a, b):
    return a.shape == b.shape and torch.allclose(a, b, rtol=1e-6, atol=1e-9)
