"""What a picture says in words, in the reader's language: from the English that is stored with it.

Outlines and steps are made of the templates below; other users of pictures add theirs. The
translations are the entries of the catalogue zh_CN.mo beside this file, which `make translations`
writes.
"""

import re
from collections import UserString
from functools import cache
from pathlib import Path

from double_backward.phrases import Phrase, in_language, language

# Read here alone: "forward" is a label in a picture, and the name of a method in a report.
PICTURE_FOLDERS = [Path(__file__).parent]

TEMPLATES = [
    # An outline, see `double_backward/graphs/outline.py`.
    "Graph of {names}: {told}",
    "Graph of {names}",
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
    "made by {one} from nothing",
    "made from nothing",
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
    "{role}, saved",
    "on ctx as {name}",
    "{role}, on ctx as {name}",
    "neither input nor output, {told}; it has a graph of its own",
    "{told}; no graph leads on from here",
    "{told}; no graph leads on from here: an input that needs no gradient, or an intermediate",
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
    # Why there is no picture, and what is asked for.
    "Nothing to draw: no tensor given has a graph. A tensor gets one from an operation on a tensor "
    "that requires grad, outside torch.no_grad().",
    "Call {name} with names, as in {one}.",
    "{name} is {one}: give draw a tensor or a list of tensors.",
    "{name} is of type {one}: give draw a tensor or a list of tensors.",
    "No picture: more than {numbers} operations are too many to read in one.",
    "No picture: dot wrote no SVG.",
    "No picture: the layout took more than {numbers} seconds.",
    "No picture: {name} does not start ({one}).",
    "No picture: {one}",
]

NUMBER = r"-?(?:[\d.,]*\d(?:e[+-]\d+)?|nan|inf)"
FIELDS = {
    "numbers": rf"{NUMBER}(?:, (?:{NUMBER}|\.\.\.))*",
    "name": r"\w+(?: #\d+)?",
    "shape": r"\([\d, ]*\)",
    "role": r"(?:in|out)put(?: \d+)?|intermediate",
}
ANYTHING = r"(?:[^()]|\((?:[^()]|\([^()]*\))*\))+?"  # no list is split inside of brackets


def in_words_of(text: str, into: str | None = None) -> str:
    """The text in the language, None: that of COURSE_LANGUAGE, line by line."""
    if not (language() if into is None else into):
        return text
    return "\n".join(_line(line, into) for line in text.splitlines())


def _line(line: str, into: str | None) -> str:
    found = re.fullmatch(r"( *(?:\d+\. )?)(.*?)(?:  +(.*))?", line)
    assert found is not None  # it matches each line
    start, name, told = found.groups()
    if told is None:
        return start + _read(name, into)
    row = Phrase("{name}: {told}", name=UserString(name), told=_read(told, into))
    return start + in_language(row, into, PICTURE_FOLDERS)


def _read(words: str, into: str | None) -> str:
    """The words, by the template that says the most and fits; as they are, where none does."""
    for pattern, template in _patterns(tuple(TEMPLATES)):
        if found := pattern.fullmatch(words):
            values = {
                field: UserString(value) if _is_name(field, value) else _read(value, into)
                for field, value in found.groupdict().items()
            }
            return in_language(Phrase(template, **values), into, PICTURE_FOLDERS)
    return words


def _is_name(field: str, value: str) -> bool:
    """A reader may call a tensor "input" or "saved": one word is read in these two fields alone. A
    `UserString` is no text that could have a translation."""
    return value.isidentifier() and field not in ("told", "role")


@cache
def _patterns(templates: tuple[str, ...]) -> list[tuple[re.Pattern[str], str]]:
    known = [
        (sum(map(len, parts[::2])), _pattern(parts), template)
        for template in templates
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
