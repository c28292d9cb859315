"""The verdict that `diagnose` concludes from the evidence."""

from collections.abc import Iterable, Iterator
from enum import StrEnum

from double_backward.check import Outcome

from .evidence import Evidence


class Verdict(StrEnum):
    """The verdict, a string to compare with; `headline` is its text. The gravest comes first."""

    headline: str

    FIRST_DERIVATIVE_WRONG = "first_derivative_wrong", "the first derivative is wrong"
    ONCE_DIFFERENTIABLE = "once_differentiable", "declared differentiable only once"
    SILENTLY_WRONG = "silently_wrong", "silently wrong at second order"
    LAYOUT_DEPENDENT = "layout_dependent", "right for contiguous tensors only"
    NOT_FINITE = "not_finite", "a derivative is not finite"
    RAISES = "raises", "raises an error when differentiated"
    SURROGATE_GRADIENT = "surrogate_gradient", "backward is not the derivative of forward"
    WRONG_IN_FORWARD_MODE = "wrong_in_forward_mode", "right by backward, and not in forward mode"
    NOT_CHECKED = "not_checked", "not checked"
    SUPPORTED = "supported", "double backward is right"

    def __new__(cls, value, headline):
        verdict = str.__new__(cls, value)
        verdict._value_, verdict.headline = value, headline
        return verdict


def of_numbers(e: Evidence) -> Iterator[Verdict]:
    """The verdicts that follow from the numbers alone."""
    first, second = e.measured.first.outcome, {row.outcome for row in e.rows}
    if Outcome.WRONG in second:
        yield Verdict.SILENTLY_WRONG
    if Outcome.NOT_FINITE in {first, *second}:
        yield Verdict.NOT_FINITE
    if Outcome.RAISES in {first, *second}:
        yield Verdict.RAISES
    if first is Outcome.WRONG and not e.meant:
        yield Verdict.SURROGATE_GRADIENT


def verdict_of(e: Evidence, convicted: Iterable[Verdict]) -> Verdict:
    """The gravest verdict of those that follow from the numbers, and from findings
    (`convicted`)."""
    unclear = Outcome.UNCLEAR in {row.outcome for row in e.rows}
    against = [*convicted, *of_numbers(e)]
    if against:
        return min(against, key=list(Verdict).index)
    known = e.measured.telling and not (
        e.inexact or e.unasked or unclear or e.not_apart or e.too_little
    )
    return Verdict.SUPPORTED if known else Verdict.NOT_CHECKED
