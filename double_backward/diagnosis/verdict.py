"""What `diagnose` concludes."""

from enum import StrEnum

from .evidence import Evidence
from .judge import Outcome


class Verdict(StrEnum):
    """A word to compare with; `headline` says it in words."""

    headline: str

    FIRST_DERIVATIVE_WRONG = "first_derivative_wrong", "the first derivative is wrong"
    ONCE_DIFFERENTIABLE = "once_differentiable", "declared differentiable only once"
    SILENTLY_WRONG = "silently_wrong", "silently wrong at second order"
    LAYOUT_DEPENDENT = "layout_dependent", "right for contiguous tensors only"
    NOT_FINITE = "not_finite", "a derivative is not finite"
    RAISES = "raises", "raises an error when differentiated"
    SURROGATE_GRADIENT = "surrogate_gradient", "backward is not the derivative of forward"
    SUPPORTED = "supported", "double backward is right"
    NOT_CHECKED = "not_checked", "not checked"

    def __new__(cls, value, headline):
        verdict = str.__new__(cls, value)
        verdict._value_, verdict.headline = value, headline
        return verdict


def _differs_at_once(e):
    """Where the first derivative is measured, too; else only the second may show it."""
    return e.habits.not_repeatable and e.measured.first.outcome is Outcome.WRONG


def _differs_where_linked(e):
    situation, wrong = e.measured.situation, e.measured.first.outcome is Outcome.WRONG
    return wrong and situation is not None and situation.kind == "linked"


def _spoils_silently(e):
    first_is_wrong = e.measured.first.outcome is Outcome.WRONG
    return e.habits.mutates_saved and (first_is_wrong or not e.habits.only_once)


def _any_row(e, outcome):
    return any(row.outcome is outcome for row in e.rows)


def _anywhere(e, outcome):
    return e.measured.first.outcome is outcome or _any_row(e, outcome)


def _bad_beside_what_is_meant(e):
    """A Function that is not meant is wrong by itself."""
    return any(not f.meant and (f.suspect or f.once) for f in e.functions)


PRECEDENCE = [  # the first that applies
    (Verdict.NOT_CHECKED, lambda e: e.not_apart and not _bad_beside_what_is_meant(e)),
    (Verdict.SUPPORTED, lambda e: e.meant and not e.not_apart),
    (
        Verdict.FIRST_DERIVATIVE_WRONG,
        lambda e: (
            e.habits.mutates
            or e.habits.not_linear
            or _differs_at_once(e)
            or _differs_where_linked(e)
            or _spoils_silently(e)
        ),
    ),
    (Verdict.ONCE_DIFFERENTIABLE, lambda e: any(f.once for f in e.functions)),
    (
        Verdict.SILENTLY_WRONG,
        lambda e: _any_row(e, Outcome.WRONG) or e.measured.changed_by_create_graph,
    ),
    (Verdict.LAYOUT_DEPENDENT, lambda e: e.habits.input_layout or e.habits.grad_out_layout),
    (Verdict.NOT_FINITE, lambda e: _anywhere(e, Outcome.NOT_FINITE)),
    (Verdict.RAISES, lambda e: _anywhere(e, Outcome.RAISES) or e.habits.mutates_saved),
    (Verdict.SURROGATE_GRADIENT, lambda e: e.measured.first.outcome is Outcome.WRONG),
    (
        Verdict.FIRST_DERIVATIVE_WRONG,
        lambda e: e.habits.second_call or e.habits.not_repeatable or e.forgotten,
    ),
    (Verdict.NOT_CHECKED, lambda e: e.inexact or _any_row(e, Outcome.NOT_ASKED)),
    (Verdict.SUPPORTED, lambda e: e.measured.telling > 0),
    (Verdict.NOT_CHECKED, lambda e: True),
]


def verdict_of(evidence: Evidence) -> Verdict:
    return next(verdict for verdict, applies in PRECEDENCE if applies(evidence))
