"""Evidence made up for the tests of the findings and of the verdict: nothing is differentiated."""

from double_backward.check import Checked, Compared, Outcome
from double_backward.diagnosis.causes.habits import Habits
from double_backward.diagnosis.conclusions.evidence import Evidence
from double_backward.diagnosis.measurements.measure import Numbers
from double_backward.diagnosis.preparation.formulas import Row, Setting
from double_backward.diagnosis.preparation.functions import Custom, Extra, Kind, Saved, Second

RIGHT, WRONG, RAISES = Outcome.RIGHT, Outcome.WRONG, Outcome.RAISES
NOT_FINITE, UNCLEAR, NOT_ASKED = Outcome.NOT_FINITE, Outcome.UNCLEAR, Outcome.NOT_ASKED


def rows(outcome=RIGHT, **about):
    """The same row in each setting."""
    return {setting: Row(outcome, **about) for setting in Setting}


def measured(first=RIGHT, second=RIGHT, relative=0.0, **about):
    """What `measure` could have found: a first derivative, rows or one outcome for all of them."""
    second = second if isinstance(second, dict) else rows(second)
    return Numbers(first=Row(first, relative=relative), second=second, **about)


def seen(of=None, **about):
    return Evidence(of or measured(), **about)


def wrong(*functions, second=WRONG, **about):
    """The second derivative is wrong, and these Functions are in the graph."""
    return seen(measured(second=second), functions=functions, **about)


def failing(text, raised_in="", **about):
    """Autograd says this where it differentiates twice."""
    return seen(measured(second=rows(RAISES, text=text, raised_in=raised_in)), **about)


def kept(name="", kind=Kind.INTERMEDIATE, used=True, **about):
    """Something that forward keeps; with a name, on ctx."""
    return Saved(name or 0, kind, (2,), "float64", 16, used=used, **about)


def custom(*saved, once=False, by_input=WRONG, by_grad_out=RIGHT, tied=RIGHT, got=0.0, **about):
    """A Function whose backward was checked by itself."""
    by_grad_out = Compared(by_grad_out, expected=1.0, got=got)
    checked = Checked(Compared(by_input), by_grad_out, Compared(tied))
    return Custom("F", once, saved, checked, **about)


def sound(*saved, **about):
    return custom(*saved, by_input=RIGHT, **about)


def cutting(*saved, **about):
    """Its backward does not follow x."""
    return custom(*saved, cut=("x",), **about)


def extra(ignored=True, title="up", **about):
    return custom(extras=(Extra(title, ignored),), **about)


def second_function(*without, **about):
    """Its backward applies another one, whose own returns None for these."""
    seconds = tuple(Second("G", "None", name) for name in without)
    return custom(inner=("G",), seconds=seconds, **about)


def habit(**seen_there):
    return seen(habits=Habits(**seen_there))
