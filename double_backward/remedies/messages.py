"""The errors and warnings of the remedies. The cause in them is the one that `diagnose` finds."""

import sys
import types
import warnings

from double_backward.compiled import KEEPS, NOT_COMPILED, is_region
from double_backward.lessons import lesson_named
from double_backward.methods import full_name
from double_backward.operators import NO_KERNEL, operator_of
from double_backward.phrases import Phrase, both, translation
from double_backward.trial import IN_BATCH, LOST_IN_CAST

from .known import FURTHER_KINDS


def wrong(truth, recorded_otherwise):
    """The error of `detect_intermediates` for a Function that is wrong."""
    if truth.call.region is not None:
        return compiled(truth.call.region)
    name = truth.call.function.__name__
    said = Phrase("{}: a second derivative through it would be wrong.", name)
    if recorded_otherwise:
        why = Phrase(
            "Its backward returns other gradients where it is recorded (create_graph=True) than "
            "where it is not."
        )
        return _also_translated(f"{said} {why}", said, why)
    why, lesson, where = _cause(truth)
    more = f"{where}; " if where and operator_of(truth.call.function) else ""
    text = f"{said} {why.rstrip('.')} ({more}{lesson_named(lesson)})."
    return _also_translated(text, said, why)


def _also_translated(text, *sentences):
    """The text, with the sentences in the reader's language below, if that is not English."""
    known = [translation(sentence) for sentence in sentences]
    return f"{text}\n{''.join(known)}" if all(known) else text


def compiled(region):
    """The error for a compiled region through which a second derivative would be wrong."""
    said = (
        "A second derivative through {} would be wrong, where torch does not refuse it. "
        "The region {}. {}"
    )
    return both(Phrase(said, Phrase("the compiled region of {}", region.of), KEEPS, NOT_COMPILED))


def forward_mode(function, jvp_is_wrong, nested):
    """The error for a Function whose jvp is wrong, or has a derivative that autograd does not
    see."""
    said = WRONG_JVP if jvp_is_wrong else NESTED_JVP if nested else LOST_IN_JVP
    return both(Phrase(said, function.__name__))


WRONG_JVP = Phrase(
    "{}: a second derivative with its jvp would be wrong: what jvp returns is not the change of "
    "the outputs along the tangents. Return the sum, over all inputs, of the derivative by this "
    "input times its tangent."
)
NESTED_JVP = Phrase(
    "{}: a second derivative by forward mode once more would be wrong: torch takes what a jvp "
    "computes from saved tensors for a constant there. Take one of the two by reverse mode "
    "(torch.func.hessian does)."
)
LOST_IN_JVP = Phrase(
    "{}: a second derivative of its jvp would be wrong: jvp uses something that forward made where "
    "nothing is recorded, or leaves autograd. Compute it in jvp, from saved inputs."
)


def without_kernel(function):
    """The error for an operator that has no kernel for an Autograd key."""
    said = "{}: a second derivative through it would be wrong, as the first one is: {} ({})."
    return both(Phrase(said, function.__name__, NO_KERNEL, lesson_named(6)))


def in_batch(function):
    """The error for a Function that a backward applies for a batch of gradients."""
    said = "{}: a second derivative through it would be wrong: {}"
    return both(Phrase(said, function.__name__, IN_BATCH))


def not_had(name, why):
    """The error of `recompute_intermediates` for a call that cannot be made right."""
    if why.endswith("."):  # of an error of torch, or a sentence that follows the reason
        return both(Phrase("{}: its second derivative could not be had, because {}", name, why))
    return both(Phrase("{}: its second derivative could not be had, because {}.", name, why))


def name_of(function, call, full=False):
    """The name of a Function ("module.Name" if full), or of the compiled region that it stands
    for."""
    if call is not None and call.region is not None:
        return str(call.region)
    if is_region(function):
        return "a compiled region"
    return full_name(function) if full else function.__name__


def too_many_values(name, what):
    """The warning of `detect_intermediates` where it cannot try each kind of call."""
    said = (
        "detect_intermediates() has met {} with more than {} {}. From here on, it is not tried "
        "with each: only where it does other operations than it has done, and now and then. "
        "recompute_intermediates() checks each call"
    )
    return Phrase(said, name, FURTHER_KINDS, what)


def warn(text, category):
    """Warn at the line, outside torch and this package, that asked for the gradient."""
    text = both(text)
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith(OURS_OR_TORCHS):
        frame = frame.f_back
    if frame is None:  # in a thread of autograd's
        warnings.warn(text, category, stacklevel=2)
        return
    place = frame.f_code.co_filename, frame.f_lineno, frame.f_globals.get("__name__")
    warnings.warn_explicit(text, category, *place)


# What a remedy warns of that can do nothing, why, and what follows.
COULD_NOT_CHECK = Phrase("detect_intermediates() could not check {}, because {}. {}")
LET_BE = Phrase("recompute_intermediates() left {} alone, because {}. {}")
TORCHS_OWN = Phrase("A second derivative through it is torch's own number, right or wrong.")
RAN_BEFORE = Phrase("its forward ran before {} began")
ANOTHER_BATCH = Phrase("its gradients come in a batch of another kind than its inputs")
STILL = "computed once more it is still wrong: {}"
OURS_OR_TORCHS = ("torch.", "double_backward.", "contextlib")
UNKNOWN = Phrase(
    "ignore names {}: no custom Function of this name was applied here, and none is loaded."
)


def still_wrong(truth):
    """The reason why a call cannot be made right, by the cause that `diagnose` finds; "" if it
    finds none."""
    why, lesson, where = _cause(truth)
    fact = why.partition(". ")[0].rstrip(".")
    fact = fact[:1].lower() + fact[1:]
    return Phrase(STILL, f"{fact} ({where}; {lesson_named(lesson)})") if where else ""


def _cause(truth):
    """The cause that `diagnose` finds for this call alone, its lesson, and where it lies."""
    from double_backward.diagnosis import diagnose  # which imports this package

    if truth.lost_in_cast:
        return LOST_IN_CAST, 1, ""
    cause = truth.alone(diagnose).cause
    if cause is None:
        unseen = Phrase(
            "What cuts it was not seen: its backward leaves autograd (a kernel, state elsewhere) "
            "or forgets a gradient."
        )
        return unseen, 5, ""
    return cause.message, cause.lesson, cause.where
