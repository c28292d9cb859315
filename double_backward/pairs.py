"""Yours and the true one: where two tensors of numbers differ, and how they are related."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch

ENOUGH = 3  # numbers that a sentence about "everywhere" is taken from


@dataclass
class Pair:
    """Two tensors of one shape, and what they were computed from.

    Attributes:
        what: name of the thing compared, such as "b" for the gradient of b.
        yours, true: the two tensors.
        given: from names to the arguments, tensors or numbers; grad_out, where it is no 1, too.
        note: the setting, said behind the place.
        factors: from names to what may be a factor too many, or missing.
        slips: from an advice to what a known mistake gives instead of `true`.
        none: True if autograd gave nothing at all, for which `yours` has zeros.
        terms: from names to the terms that `true` is the sum of, where that is known.
    """

    what: str
    yours: torch.Tensor
    true: torch.Tensor
    given: dict
    note: str = ""
    factors: dict[str, torch.Tensor] = field(default_factory=dict)
    slips: Mapping[str, Callable[[], torch.Tensor]] = field(default_factory=dict)
    none: bool = False
    terms: Mapping[str, Callable[[], torch.Tensor]] = field(default_factory=dict)

    @property
    def handed(self) -> torch.Tensor:
        """The gradient that what returned `yours` was given: 1, where none is in `given`."""
        return self.given.get("grad_out", self.given.get("h", torch.ones(())))

    @property
    def differs(self) -> torch.Tensor:
        """Mask of the elements that are not equal, rounding apart."""
        if self.true.dtype == torch.float32:
            size = max(1.0, self.true.abs().max().item()) if self.true.numel() else 1.0
            close = torch.isclose(self.yours, self.true, rtol=1e-3, atol=1e-4 * size)
        else:
            close = torch.isclose(self.yours, self.true, rtol=1e-8, atol=1e-10)
        return ~close

    @property
    def wrong(self) -> bool:
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
                if value.numel() > 3:
                    continue
                value = _short(value.detach())
            places.append(f"{name} = {value}")
        return f"at {', '.join(places)}{self.note}: {_both(self.yours[index], self.true[index])}"


def _short(value):
    """Numbers without the tail of a float32: 0.2 and not 0.20000000298."""
    if value.dim():
        return "[" + ", ".join(str(_short(v)) for v in value.reshape(-1)) + "]"
    return float(f"{value.item():.6g}")


def _both(yours, true):
    """Both with four decimals, or with as many digits as it takes to tell them apart."""
    for form in (".4f", ".4g", ".8g", ".15g"):
        texts = [format(round(value.item(), 15) + 0.0, form) for value in (yours, true)]
        if texts[0] != texts[1] and all(len(text) < 16 for text in texts):
            break
    return f"yours {texts[0]}, true {texts[1]}"


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
