"""A line of the report: how one derivative compares, and the number that shows it."""

import math
from dataclasses import dataclass

from double_backward.check import Outcome


@dataclass(frozen=True)
class Row:
    """One comparison, a line of the report."""

    outcome: Outcome
    error: float | None = None  # the largest, absolute
    relative: float = 0.0  # the same in proportion to the terms
    expected: float = 0.0  # at the element shown
    got: float = 0.0
    where: str = ""
    text: str = ""  # first line of the error that autograd raises
    raised_in: str = ""  # where in the reader's code, "backward, line 7"
    zero: bool = False  # nothing but 0 was expected
    unchecked: int = 0  # elements where finite differences cannot be trusted
    elements: int = 0  # all of them
    of_backward: bool = False  # not compared: the first derivative is not that of forward
    uncertain: float = 0.0  # what `expected` may be off by

    def to_dict(self) -> dict[str, object]:
        """Plain values, for JSON."""
        shown = ("outcome", "error", "relative", "expected", "got", "where", "text", "raised_in")
        values = {name: getattr(self, name) for name in shown}
        plain = {k: str(v) if isinstance(v, str) else v for k, v in values.items()}
        broken = [k for k, v in plain.items() if isinstance(v, float) and not math.isfinite(v)]
        return {**plain, **dict.fromkeys(broken)}
