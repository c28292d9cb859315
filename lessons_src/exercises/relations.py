"""Yours and the true one: where they differ, and how they are related, in a true sentence."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

import torch
from torch import Tensor

from .language import Phrase, sentences

EVERYWHERE = Phrase("everywhere")
ENOUGH = 3  # numbers that a sentence about "everywhere" is taken from
Formulas = Mapping[str, Callable[..., Tensor]]


@dataclass(eq=False)
class Pair:
    """Two tensors of one shape, and what they were computed from.

    Attributes:
        what: name of the thing compared, such as "b" for the gradient of b.
        yours, true: the two tensors.
        given: from names to the arguments, tensors or numbers; grad_out, where it is no 1, too.
        note: the setting, said behind the place.
        factors: from names to what may be a factor too many, or missing.
        at: what the formula of a known mistake is a function of.
        none: True if autograd gave nothing at all, for which `yours` has zeros.
    """

    what: str
    yours: Tensor
    true: Tensor
    given: dict = field(default_factory=dict)
    note: str = ""
    factors: dict = field(default_factory=dict)
    at: tuple = ()
    none: bool = False

    @classmethod
    def each(
        cls, names: list[str], yours: Sequence, true: Sequence, like: Sequence, **more: Any
    ) -> list:
        """A `Pair` for each of two lists of tensors; None is 0, in the shape of `like`."""
        pairs = []
        for name, a, b, t in zip(names, yours, true, like, strict=True):
            none, (a, b) = a is None, (torch.zeros_like(t) if g is None else g for g in (a, b))
            pairs.append(cls(name, a.detach(), b.detach().to(a.dtype), none=none, **more))
        return pairs

    @property
    def differs(self) -> Tensor:
        """Mask of the elements that are not equal, rounding apart."""
        rtol, atol = 1e-8, 1e-10
        if self.true.dtype == torch.float32:
            size = max(1.0, self.true.abs().max().item()) if self.true.numel() else 1.0
            rtol, atol = 1e-3, 1e-4 * size
        return ~torch.isclose(self.yours, self.true, rtol=rtol, atol=atol)

    @property
    def wrong(self) -> bool:
        return bool(self.differs.any())

    @property
    def said(self) -> Phrase:
        """The first element that differs: "at x[1] = 1.0: yours 0.5000, true 0.2500"."""
        index = tuple(self.differs.nonzero()[0].tolist())
        places = []
        for name, value in self.given.items():
            if isinstance(value, Tensor):
                if value.dim() and value.shape == self.yours.shape:
                    name += f"[{', '.join(map(str, index))}]"
                    value = value[index]
                if value.numel() > 3:
                    continue
                value = _short(value.detach())
            places.append(f"{name} = {value}")
        where = Phrase("at {}", ", ".join(places)) if places else Phrase("here")  # of a number
        return Phrase("{}{}: {}", where, self.note, _both(self.yours[index], self.true[index]))


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
    return Phrase("yours {}, true {}", *texts)


def relation_of(
    groups: list[list[Pair]], where: str = EVERYWHERE, slips: Formulas | None = None
) -> str:
    """What is wrong in all of these pairs at once: a true sentence, or "".

    Args:
        groups: lists of `Pair`, one pair for each gradient that one backward returned.
        where: how the places of all these numbers together are called.
        slips: what known mistakes give, by what to say of them.
    """
    wrong = next((pair for group in groups for pair in group if pair.wrong), None)
    if wrong is None:
        return ""
    if _telling(sum(groups, [])) >= ENOUGH and _in_another_order(groups):
        said = Phrase("Each of these gradients is what belongs in the place of another.")
        if len(groups[0]) == 2:
            said = Phrase("Each of the two gradients is what belongs in the place of the other.")
        order = Phrase(
            "Check the order in which you take the saved tensors, and in which you return."
        )
        return sentences(said, order)
    alike = [pair for group in groups for pair in group if pair.what == wrong.what]
    if _telling(alike) < ENOUGH:
        return ""
    for advice, formula in (slips or {}).items():
        if all(close(pair.yours, formula(*pair.at)) for pair in alike):
            return advice
    said = _relation(alike, where)
    if not said and (other := _of_another(groups, wrong.what)):
        said = Phrase("that is the gradient of {}.", other)
    several = len({pair.what for group in groups for pair in group}) > 1
    if said and several:
        return Phrase("For {}: {}", wrong.what, said)
    return said.capitalised() if said else ""


def _telling(pairs):
    """How many different true numbers there are."""
    return len(_joined([p.true for p in pairs]).unique())


def _in_another_order(groups):
    """True if the right gradients came back, each in the place of another."""
    _as_it_is, *others = permutations(range(len(groups[0])))
    return any(
        all(close(g[i].yours, pair.true) for g in groups for i, pair in zip(order, g, strict=True))
        for order in others
    )


def _of_another(groups, name):
    """The name of the variable whose true gradient stands in the place of this one's, or ""."""
    named = [{pair.what: pair for pair in group} for group in groups]
    for other in named[0]:
        both = [pairs for pairs in named if name in pairs and other in pairs]
        if other != name and all(close(p[name].yours, p[other].true) for p in both):
            return other
    return ""


def _relation(pairs, where):
    """How yours is related to the true one in every pair, in a true sentence, or ""."""
    yours, true = _joined([p.yours for p in pairs]), _joined([p.true for p in pairs])
    if not yours.isfinite().all() or close(yours, true):
        return _places(pairs)
    if not yours.any():
        return Phrase("{}, yours is 0.", where)
    if close(yours, -true):
        return Phrase("{}, yours has the wrong sign.", where)
    times = _ratio(yours, true)
    if times is not None:
        return Phrase("{}, yours is {} times the true one.", where, _number(times))
    for name in pairs[0].factors:
        factor = _joined([_like(p.factors[name], p.yours) for p in pairs])
        if said := _by_factor(yours, true, factor, name):
            return Phrase("{where}, {said}", where=where, said=said)
    if close(yours.abs(), true.abs()) and (yours.sign() != true.sign()).any():
        return Phrase("{}, yours has the right size, and in places the wrong sign.", where)
    handed = _joined([_like(p.given.get("grad_out", p.given.get("h", 1)), p.yours) for p in pairs])
    even = all(p.yours.numel() > 1 and len(p.yours.unique()) == 1 for p in pairs)
    if even and not _ratio(yours, handed):
        said = "{}, yours is one number for all elements. Is there a sum or a mean too many?"
        return Phrase(said, where)
    return _places(pairs)


def _by_factor(yours, true, factor, name):
    """What one factor has to do with it."""
    for sign, also in ((1, ""), (-1, Phrase(" The sign is wrong too."))):
        if close(yours, sign * true * factor):
            return Phrase("yours has one factor too many: {}.{}", name, also)
        if close(yours * factor, sign * true):
            return Phrase("yours lacks one factor: {}.{}", name, also)
    if close((yours - factor) * factor, true) and factor.any():
        return Phrase("yours adds {} where it should multiply by it.", name)
    for power, shown in ((1, name), (2, Phrase("{}²", name))):
        for by, ratio in (
            (Phrase("times {}", shown), _ratio(yours, true * factor**power)),
            (Phrase("divided by {}", shown), _ratio(yours * factor**power, true)),
        ):
            if ratio is not None:
                often = "" if abs(ratio - 1) < 1e-6 else Phrase("{} times ", _number(ratio))
                return Phrase("yours is {}the true one, {}.", often, by)
    return ""


def _places(pairs):
    """At which values of an argument yours is wrong, if it is right at all others."""
    wrong = torch.cat([p.differs.reshape(-1) for p in pairs])
    for name in pairs[0].factors:
        values = _joined([_like(p.factors[name], p.yours) for p in pairs])
        masks = {
            Phrase("is negative"): values < 0,
            Phrase("is positive"): values > 0,
            Phrase("is 0"): values == 0,
        }
        for said, mask in masks.items():
            if torch.equal(mask, wrong) and not wrong.all() and not values.isnan().any():
                where = "it is wrong where {} {}, and right at the other points tried."
                return Phrase(where, name, said)
    return ""


def by_terms(pairs: list[Pair], terms: Formulas) -> str:
    """Which term of the gradient comes how often, if yours is made of the same terms, or ""."""
    columns = [_joined([term(*pair.at) for pair in pairs]) for term in terms.values()]
    matrix, yours = torch.stack(columns, 1), _joined([pair.yours for pair in pairs])
    if len(yours) < len(columns) + ENOUGH or torch.linalg.matrix_rank(matrix) < len(columns):
        return ""
    often = torch.linalg.lstsq(matrix, yours).solution
    if not close(matrix @ often, yours) or close(often, torch.ones_like(often)):
        return ""
    if close(often, often[:1].expand_as(often)):
        often = _number(often[0].item())
        return Phrase("{}, yours is {} times the true one.", Phrase("At these points"), often)
    return sentences(*map(_how_often, terms, often.tolist()))


def _how_often(name, number):
    if abs(number - 1) < 1e-6:
        return ""
    if abs(number) < 1e-9:
        return Phrase("The term {} is missing.", name)
    if abs(number + 1) < 1e-6:
        return Phrase("The term {} has the wrong sign.", name)
    said = "At these points, the term {} comes {} times. It should come once."
    return Phrase(said, name, _number(number))


def _number(number):
    """Four digits, or as many as it takes to tell it from 1."""
    return format(number, ".4g" if abs(number - 1) > 1e-3 else ".8g")


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


def _joined(tensors):
    return torch.cat([t.detach().reshape(-1).to(torch.float64) for t in tensors])


def close(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are the same to six digits."""
    return a.shape == b.shape and torch.allclose(a, b, rtol=1e-6, atol=1e-9)
