"""What a stepper, a figure and a plot say in words, in the reader's language.

Outlines and steps are those of `double_backward/graphs/words.py`, which reads these with them. The
translations are the entries of translations/LANGUAGE/pictures.po, which `make translations`
compiles beside this file.
"""

import copy
from pathlib import Path
from typing import Any

from double_backward.graphs import words
from double_backward.graphs.words import in_words_of
from double_backward.phrases import in_language

__all__ = ["in_words_of", "told_in"]

CATALOGUES = (Path(__file__).parent,)

TEMPLATES = (
    # A figure whose paths can be cut, see `cut_paths`.
    "Formula",
    "Cut:",
    "None, as Sinh",
    "Both, as SinhBad",
    "right",
    "autograd adds up",
    "lacks",
    "{one} at x = {numbers}: {told}",
    "{one} at x = {numbers}, cut: {names}",
    "{one} at x = {numbers}, cut: nothing",
    "no path cut: {told}",
    "expx and expnegx cut: {told}",
    "{one}. Right: every path is there.",
    "{one}. Right here, though cut: what is missing adds up to 0.",
    "{one}, and no error. Right is {numbers}.",
    "RuntimeError: no path is left. This is the lucky case.",
    # Plots.
    "u over x from 0 to 3, rising from 0 to 1. The trained curve lies on SciPy's.",
    "u over x from 0 to 3. The curve trained with sinh lies on the solution; the one trained with "
    "SinhBad runs far below it and meets it only near the ends.",
)
CONTROLS = ("Back", "Next", "Step", "step {here} of {all}", "{name} gets {product}")
words.TEMPLATES += [each for each in TEMPLATES if each not in words.TEMPLATES]
words.PICTURE_FOLDERS += [each for each in CATALOGUES if each not in words.PICTURE_FOLDERS]


def told_in(data: dict[str, Any], into: str | None = None) -> dict[str, Any]:
    """What a stepper goes by, see `stepper.Stepper`, with its words in the language."""
    told = copy.deepcopy(data)
    told["titles"] = [in_words_of(title, into) for title in told["titles"]]
    if "steps" in told:
        told["steps"] = [
            [[in_words_of(said, into), parts] for said, parts in steps] for steps in told["steps"]
        ]
    if "cuts" in told:
        cuts = told["cuts"]
        cuts["labels"] = [in_words_of(label, into) for label in cuts["labels"]]
        for points in cuts["pictures"].values():
            for state in (state for each in points.values() for state in each["states"].values()):
                state["words"] = in_words_of(state["words"], into)
    return told | {"controls": {said: in_language(said, into, CATALOGUES) for said in CONTROLS}}
