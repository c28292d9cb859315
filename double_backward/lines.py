"""The lines that the tool prints: how they are wrapped, and an error as one line."""

import re
import textwrap
from typing import Any

from .phrases import Phrase, translation
from .places import raised_in

WIDTH = 88  # of all that is printed
TWO_COLUMNS = "\u2e80-\u9fff\uff00-\uff60"  # Chinese: two columns each; a line may end after any
# What stays together: a word, or one Chinese character, with the punctuation around it.
TOGETHER = re.compile(rf"\s+|[（“]*(?:[^\s{TWO_COLUMNS}“]+|[{TWO_COLUMNS}])[，。：；？！）”、…]*")


def wrapped(text: str, indent: str) -> list[str]:
    """The text in lines of at most `WIDTH`, of which all but the first are indented, or less so if
    a word is long. Only a word that is longer than a line is broken."""
    if re.search(f"[{TWO_COLUMNS}]", text):
        return _wrapped_chinese(text, indent)
    longest = max(map(len, text.split()), default=0)
    indent = indent[: max(0, WIDTH - longest)]
    return textwrap.wrap(text, WIDTH, subsequent_indent=indent, break_on_hyphens=False)


def _wrapped_chinese(text, indent):
    lines = [""]
    for part in TOGETHER.findall(text):
        if lines[-1].strip() and columns(lines[-1] + part.rstrip()) > WIDTH:
            lines.append(indent)
        lines[-1] += part if lines[-1].strip() or len(lines) == 1 else part.lstrip()
    return [line.rstrip() for line in lines]


def translated(text: str, indent: str) -> list[str]:
    """The text in the reader's language, in indented lines; none for English."""
    said = translation(text)
    return wrapped(indent + said, indent) if said else []


def columns(text: str) -> int:
    """The width of a text in a terminal, in columns."""
    return len(text) + len(re.findall(f"[{TWO_COLUMNS}]", text))


def first_line(error: Any) -> str:
    """The first line of an error, with its type unless that is RuntimeError."""
    line = (message_of(error).strip().splitlines() or [""])[0]
    return line if type(error) is RuntimeError else f"{type(error).__name__}: {line}"


def described(error: Exception) -> str:
    """The whole text of an error, with its type and its place."""
    said, place = f"{type(error).__name__}: {message_of(error)}", raised_in(error)
    return Phrase("{} (in {}).", said, place) if place else Phrase("{}.", said)


def message_of(error: Any) -> str:
    try:
        return str(error)
    except Exception:  # raised by the error's own __str__
        return ""
