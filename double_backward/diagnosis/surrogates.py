"""The second derivative where differences of fn cannot judge it: by its backwards themselves.

A surrogate's first derivative is not that of its values, and integers jump. What is known then is
of each backward by itself, as a function of what it keeps and of grad_out.
"""

from dataclasses import replace

from double_backward.check import Outcome

from .functions import OPEN, WRONG, Custom
from .measure import Measured
from .rows import Row
from .settings import Setting


def settled(measured: Measured, customs: tuple[Custom, ...]) -> dict[Setting, Row]:
    """The rows of the second derivative, all that was measured taken together."""
    if measured.first.outcome is not Outcome.RIGHT:
        return convict_surrogates(measured, customs, measured.together)
    return measured.second


def convict_surrogates(
    measured: Measured, customs: tuple[Custom, ...], together: bool = False
) -> dict[Setting, Row]:
    """Where the first derivative is not that of the values, so nothing follows from these.

    The whole of fn does not convict then: what is made of a surrogate's output changes by its
    backward for autograd, and by its forward in truth. It acquits, if they are right `together`.
    """
    by_input = not together and any(
        c.by_input in WRONG
        or c.extras
        or c.handed
        or (c.once and c.moves and c.by_input is Outcome.RIGHT)
        for c in customs
    )
    by_grad_out = any(
        c.by_grad_out in WRONG or (c.once and c.by_grad_out is Outcome.RIGHT) for c in customs
    )
    rows = {}
    for setting, row in measured.second.items():
        if row.outcome is Outcome.RIGHT and (by_input or (by_grad_out and setting.after)):
            row = replace(row, outcome=Outcome.RAISES if row.text else Outcome.WRONG)
        if row.outcome is Outcome.RIGHT and (reason := _unanswered(customs, setting)):
            row = replace(row, outcome=Outcome.NOT_ASKED, text=reason)
        rows[setting] = row
    return rows


def _unanswered(customs, setting):
    """Why nothing is known of one of these backwards, "" where all is."""
    for custom in customs:
        if custom.by_input in OPEN or (setting.after and custom.by_grad_out in OPEN):
            raised = custom.refused.split("[")[0].split(". ")[0].rstrip(": ")
            why = f"raises: {raised}" if raised else "could not be followed"
            return f"backward of {custom.name}, called by itself, {why}"
    return ""
