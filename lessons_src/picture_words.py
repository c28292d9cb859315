"""What a picture says in words, in the reader's language: from the English that is stored with it.

Outlines, steps and the words of a figure are made of the templates below; those of the outlines are
the tool's, in `double_backward/graphs/`. Their translations are the entries of
translations/LANGUAGE/pictures.po, which `make translations` compiles beside this file.
"""

import copy
import re
from functools import cache
from pathlib import Path
from typing import Any

from double_backward.phrases import Phrase, in_language, language

# Read here alone: "forward" is a label in a picture, and the name of a method in a report.
CATALOGUES = (Path(__file__).parent,)

TEMPLATES = (
    # An outline, see `double_backward/graphs/outline.py`.
    "Graph of {names}: {told}",
    "{numbers} operation",
    "{numbers} operations",
    "{numbers} leaf",
    "{numbers} leaves",
    "{one} leads back to {names}",
    "{one} (a picture checks paths, not numbers)",
    "{one}, but a path is missing",
    "{one}, but at least a path is missing",
    "{one}, but {numbers} paths are missing",
    "{one}, but at least {numbers} paths are missing",
    "{one}, but not through the guard",
    "{one} is cut off: no graph leads from here to {names}",
    "forward",
    "first backward",
    "second backward",
    "third backward",
    "fourth backward",
    "backward {numbers}",
    "every backward up to the {one}",
    "other",
    "{name}: {told}",  # a row, which has spaces in the place of the colon
    "a leaf {shape}",
    "a tensor {shape}",
    "a tensor {shape} without a graph",
    "made by {one} from {names}",
    "made from {names}",
    "nothing",
    "a constant",
    "{one} (a constant)",
    "output {numbers} of {one}",
    "keeps {one}: {told}",
    "input",
    "input {numbers}",
    "output",
    "output {numbers}",
    "intermediate",
    "saved",
    "{one}, saved",
    "on ctx as {name}",
    "{one}, on ctx as {name}",
    "neither input nor output, {one}; it has a graph of its own",
    "{one}; no graph leads on from here",
    "{one}; no graph leads on from here: an input that needs no gradient, or an intermediate",
    "no path: taken for a constant",
    "no path from {one} of {other}: taken for a constant",
    "{one} lacks {numbers}",
    "{one} keeps an intermediate: autograd takes it for a constant",
    "{one} keeps an intermediate, {names}: autograd takes it for a constant",
    "{one} keeps intermediates: autograd takes them for constants",
    "{one} keeps intermediates, {names}: autograd takes them for constants",
    "a circle: {one} holds {other} on ctx, and {third} holds {fourth} as its grad_fn",
    "A pass through the guard of once_differentiable raises",
    "The pass went past the guard of once_differentiable: nothing is raised",
    "The pass stopped: {one}",
    "What {one} saved cannot be read: {other}",
    "nothing comes back to {names}",
    "comes back to {one}: {told}",
    "sends back to {one}: {told}",
    # The steps of a backward pass.
    "The pass starts at {one} with {numbers}.",
    "{one} gets {told}, and sends {other}.",
    "{one} sends {told}.",
    "{numbers} for {name}",
    "{numbers} to {name}",
    "{one} and {numbers} to {name}",
    # Lists.
    "{one}; {other}",
    "{one} and {other}",
    "{one} or {other}",
    "{one}, {other}",
    # A figure whose paths can be cut, see `cut_paths`.
    "Formula",
    "Cut:",
    "None, as Sinh",
    "Both, as SinhBad",
    "right",
    "autograd adds up",
    "lacks",
    "{one} at x = {numbers}: {told}",
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

NUMBER = r"-?(?:[\d.,]*\d(?:e[+-]\d+)?|nan|inf)"
FIELDS = {
    "numbers": rf"{NUMBER}(?:, (?:{NUMBER}|\.\.\.))*",
    "name": r"\w+(?: #\d+)?",
    "shape": r"\([\d, ]*\)",
}
ANYTHING = r"(?:[^()]|\((?:[^()]|\([^()]*\))*\))+?"  # no list is split inside of brackets


def in_words_of(text: str, into: str | None = None) -> str:
    """The text in the language, None: that of COURSE_LANGUAGE, line by line."""
    if not (language() if into is None else into):
        return text
    return "\n".join(_line(line, into) for line in text.splitlines())


def told_in(data: dict[str, Any], into: str | None = None) -> dict[str, Any]:
    """What a stepper goes by, see `stepper.Stepper`, with its words in the language."""
    told = copy.deepcopy(data)
    told["titles"] = [in_words_of(title, into) for title in told["titles"]]
    if "steps" in told:
        told["steps"] = [
            [[in_words_of(words, into), parts] for words, parts in steps] for steps in told["steps"]
        ]
    if "cuts" in told:
        cuts = told["cuts"]
        cuts["labels"] = [in_words_of(label, into) for label in cuts["labels"]]
        for points in cuts["pictures"].values():
            for state in (state for each in points.values() for state in each["states"].values()):
                state["words"] = in_words_of(state["words"], into)
    return told | {"controls": {words: in_language(words, into, CATALOGUES) for words in CONTROLS}}


def _line(line: str, into: str | None) -> str:
    found = re.fullmatch(r"( *(?:\d+\. )?)(.*?)(?:  +(.*))?", line)
    assert found is not None  # it matches each line
    start, name, told = found.groups()
    if told is None:
        return start + _read(name, into)
    row = Phrase("{name}: {told}", name=_read(name, into), told=_read(told, into))
    return start + in_language(row, into, CATALOGUES)


def _read(words: str, into: str | None) -> str:
    """The words, by the template that says the most and fits; as they are, where none does."""
    for pattern, template in _patterns():
        if found := pattern.fullmatch(words):
            values = {name: _read(value, into) for name, value in found.groupdict().items()}
            return in_language(Phrase(template, **values), into, CATALOGUES)
    return words


@cache
def _patterns() -> list[tuple[re.Pattern[str], str]]:
    known = [
        (sum(map(len, parts[::2])), _pattern(parts), template)
        for template in TEMPLATES
        for parts in [re.split(r"\{(\w+)\}", template)]
    ]
    return [
        (pattern, template) for _, pattern, template in sorted(known, key=lambda each: -each[0])
    ]


def _pattern(parts: list[str]) -> re.Pattern[str]:
    """Of a template in parts: its own words, and in between the names of its fields."""
    fields = [f"(?P<{name}>{FIELDS.get(name, ANYTHING)})" for name in parts[1::2]]
    words = map(re.escape, parts[::2])
    return re.compile("".join(w + f for w, f in zip(words, [*fields, ""], strict=True)))
