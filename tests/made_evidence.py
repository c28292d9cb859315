"""Evidence made up for the tests of the rules and of the verdict: nothing is differentiated."""

from double_backward.check import Outcome
from double_backward.diagnosis.evidence import Evidence
from double_backward.diagnosis.functions import Custom, Extra, Kind, Path, Saved
from double_backward.diagnosis.habits import Habits
from double_backward.diagnosis.judge import Row
from double_backward.diagnosis.measure import Numbers, unusual
from double_backward.diagnosis.settings import Setting

RIGHT, WRONG, RAISES = Outcome.RIGHT, Outcome.WRONG, Outcome.RAISES
NOT_FINITE, UNCLEAR = Outcome.NOT_FINITE, Outcome.UNCLEAR


def rows(outcome=RIGHT, **about):
    """The same row in each setting."""
    return {setting: Row(outcome, **about) for setting in Setting}


def measured(first=RIGHT, second=RIGHT, relative=0.0, units=(), output_units=(), **about):
    """What `measure` could have found: a first derivative, rows or one outcome for all of them."""
    second = second if isinstance(second, dict) else rows(second)
    about |= {"units": unusual(units), "output_units": unusual(output_units)}
    return Numbers(first=Row(first, relative=relative), second=second, **about)


def seen(of=None, **about):
    return Evidence(of or measured(), **about)


def wrong(*functions, second=WRONG, **about):
    """The second derivative is wrong, and these Functions are in the graph."""
    return seen(measured(second=second), functions=functions, **about)


def failing(text, raised_in="", **about):
    """Autograd says this where it differentiates twice."""
    return seen(measured(second=rows(RAISES, text=text, raised_in=raised_in)), **about)


def kept(name="", kind=Kind.INTERMEDIATE, path=Path.MISSING, **about):
    """Something that forward keeps; with a name, on ctx."""
    about = {"slot": name or 0, **about}
    return Saved(name, kind, (2,), "float64", 16, path=path, **about)


def custom(*saved, once=False, by_inputs=Path.MISSING, by_grad_out=Path.RIGHT, **about):
    return Custom("F", once, saved, by_inputs, by_grad_out, **about)


def sound(*saved, **about):
    return custom(*saved, by_inputs=Path.RIGHT, **about)


def extra(by, variable="up", times_grad_out=False, **about):
    return custom(extras=(Extra(1, variable, by, times_grad_out),), **about)


def second_function(by_grad_out=Path.RIGHT, path=Path.RIGHT):
    """Its backward applies another one, which gets grad_out and the saved input."""
    x = kept(kind=Kind.INPUT, path=path, reached=True, variable="x")
    return custom(x, by_grad_out=by_grad_out, inner=("G",), reaches_grad_out=True)


def habit(**seen_there):
    return seen(habits=Habits(**seen_there))
