"""What a check can answer, and how an error of the reader's own code is told."""

import textwrap
import traceback
from dataclasses import dataclass

ADVICE = {  # by a part of the error's text
    "incorrect number of gradients": (
        "backward returns one gradient for each argument of forward after ctx, in the same order, "
        "and None for one that is not a tensor."
    ),
    "can only save variables": (
        "save_for_backward takes tensors only. Put anything else on ctx: ctx.n = n."
    ),
    "returned a gradient different than None": (
        "An argument that is not a tensor has no gradient. Return None in its place."
    ),
    "positional argument": (
        "forward gets ctx and the arguments. backward gets ctx and one gradient for each output of "
        "forward."
    ),
    "to unpack": "ctx.saved_tensors gives back as many tensors as you saved, in the same order.",
    "Can't call numpy()": (
        "Do not follow the advice to detach in a backward: that turns the error into a wrong "
        "number. Put the NumPy code into a Function with a backward of its own."
    ),
    "expected Variable or None": (
        "backward returns tensors. torch.as_tensor makes one of an array."
    ),
    "in-place operation": (
        "grad_out and the saved tensors belong to others too. Make a new tensor instead: "
        "grad_out * 3, not grad_out.mul_(3)."
    ),
    "view size is not compatible": "A gradient may have any layout. Use reshape instead of view.",
}


@dataclass
class Reply:
    """An answer: `status` is "right", "wrong" or "neutral"; `advice` says what to change."""

    status: str
    fact: str
    advice: str = ""

    def __str__(self):
        """For the screen, without the name of the exercise."""
        return self.told("")

    def told(self, name):
        """For the screen: the fact behind the name, and what to change on lines of its own."""
        lines = [f"{name}{self.fact}", self.advice]
        return "\n".join(
            textwrap.fill(line, 100, break_on_hyphens=False, break_long_words=False)
            for line in lines
            if line
        )


class Said(Exception):
    """Ends a review. Its one argument is the `Reply`."""


def wrong(fact, advice=""):
    raise Said(Reply("wrong", fact, advice))


def neutral(fact):
    raise Said(Reply("neutral", fact))


def is_stub(error):
    """True for the bare `raise NotImplementedError` that stands in the notebook."""
    return isinstance(error, NotImplementedError) and not str(error)


def raised(during, error):
    """Tell of an error: its message, and the line where it rose, instead of a traceback."""
    if is_stub(error):
        neutral("right so far; a backward is not written yet.")
    frames = [f for f in traceback.extract_tb(error.__traceback__) if _is_readers(f)]
    where = f" ({frames[-1].name}, line {frames[-1].lineno} of its cell)" if frames else ""
    text = (str(error).strip().splitlines() or ["no message"])[0]
    advice = next((advice for part, advice in ADVICE.items() if part in str(error)), "")
    wrong(f"{during} raises {type(error).__name__}: {text}{where}", advice)


def _is_readers(frame):
    """A line of the answer, not of torch or of this course."""
    path = frame.filename.replace("\\", "/")
    return not any(f"/{folder}/" in path for folder in ("torch", "lessons_src"))
