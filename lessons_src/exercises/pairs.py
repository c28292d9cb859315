"""Yours and the true one: where two tensors of numbers differ."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch


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
