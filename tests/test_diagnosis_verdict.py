"""The verdict of diagnose by itself, where two could be: which goes first. Each alone is shown by a
Function in test_diagnosis_facts."""

import pytest
from made_evidence import (
    NOT_FINITE,
    RAISES,
    UNCLEAR,
    WRONG,
    custom,
    measured,
    rows,
    seen,
    sound,
    wrong,
)

from double_backward.check import Outcome
from double_backward.diagnosis.causes.habits import Habits
from double_backward.diagnosis.conclusions.findings import concluded
from double_backward.diagnosis.conclusions.verdict import Verdict
from double_backward.diagnosis.measurements.as_called import Compiled
from double_backward.diagnosis.measurements.ways import Situation
from double_backward.diagnosis.preparation.formulas import Row, Setting


def one(outcome):
    """One bad row among right ones."""
    return rows() | {Setting.BEFORE: Row(outcome)}


nothing_but_zero = rows() | {Setting.ALONE: Row(Outcome.RIGHT, zero=True)}
unclear_alone = rows() | {Setting.ALONE: Row(UNCLEAR)}
spoils_and_raises = Habits(mutates_saved=True, only_once="gone")
changing = Habits(not_repeatable="a wrong number")
strided = Habits(input_layout="a wrong number")

VERDICTS = [
    ("first_derivative_wrong", seen(measured(WRONG), habits=spoils_and_raises)),
    ("raises", seen(habits=spoils_and_raises)),
    ("once_differentiable", seen(functions=(sound(), sound(once=True)))),
    ("silently_wrong", seen(measured(third=one(WRONG)))),
    ("raises", seen(measured(third=one(RAISES)))),
    ("supported", seen(measured(second=nothing_but_zero))),
    ("not_checked", seen(measured(second=unclear_alone))),
    ("not_checked", seen(measured(UNCLEAR))),
    ("supported", seen(measured(second=rows(resolution=0.01)))),
    ("not_checked", seen(measured(second=rows(resolution=0.03)))),
    ("not_checked", seen(measured(second=rows(resolution=0.12), rtol=0.05))),
    ("supported", seen(measured(second=rows(resolution=0.03), rtol=0.05))),
    ("not_checked", seen(compiled=Compiled((), rows(UNCLEAR)))),
    ("not_checked", seen(measured(WRONG, second=rows(UNCLEAR)), functions=(sound(meant=True),))),
    # Two at once: the worse, or what the other follows from.
    ("first_derivative_wrong", wrong(custom(once=True), habits=Habits(mutates=True))),
    ("once_differentiable", wrong(custom(once=True))),
    ("silently_wrong", wrong(custom(), habits=strided)),
    ("silently_wrong", seen(measured(WRONG, second=one(WRONG)))),
    ("silently_wrong", wrong(custom(), habits=changing)),
    ("first_derivative_wrong", seen(measured(WRONG, situation=Situation("linked")))),
    ("surrogate_gradient", seen(measured(WRONG, situation=Situation("frozen", "b")))),
    ("silently_wrong", seen(measured(second=one(WRONG), situation=Situation("linked")))),
    ("first_derivative_wrong", seen(measured(WRONG, second=one(WRONG)), habits=changing)),
    ("layout_dependent", seen(measured(NOT_FINITE), habits=strided)),
    ("layout_dependent", seen(measured(WRONG), habits=strided)),
    ("not_finite", seen(measured(RAISES, second=one(NOT_FINITE)))),
    ("raises", seen(measured(WRONG, second=one(RAISES)))),
    ("surrogate_gradient", seen(measured(WRONG), habits=Habits(second_call="a wrong number"))),
]


@pytest.mark.parametrize("verdict, evidence", VERDICTS)
def test_what_a_verdict_follows_from(verdict, evidence):
    assert concluded(evidence)[0] == verdict


def test_a_verdict_says_itself_in_words():
    assert Verdict.RAISES == "raises"
    assert Verdict.RAISES.headline == "raises an error when differentiated"
