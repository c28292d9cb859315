"""The lines that we print: how long they are, and what an error says in one."""

import re
import textwrap
from typing import Any

from .phrases import translation
from .places import raised_in

WIDTH = 88  # of all that is printed
WIDE = "\u2e80-\u9fff\uff00-\uff60"  # Chinese: two columns each, and a line may end behind any
# What stays together: a word, or one Chinese sign, with the marks before and behind it.
TOGETHER = re.compile(rf"\s+|[（“]*(?:[^\s{WIDE}“]+|[{WIDE}])[，。：；？！）”、…]*")


def wrapped(text: str, indent: str) -> list[str]:
    """Lines of at most `WIDTH`, all but the first indented, less so for a long word; only one that
    is longer than a line is broken."""
    if re.search(f"[{WIDE}]", text):
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
    """Lines that say the same in the reader's language, all of them indented; none for English."""
    said = translation(text)
    return wrapped(indent + said, indent) if said else []


def columns(text: str) -> int:
    """How wide it is in a terminal."""
    return len(text) + len(re.findall(f"[{WIDE}]", text))


def first_line(error: Any) -> str:
    """What an error says, in one line, with its type where that says more."""
    line = (message_of(error).strip().splitlines() or [""])[0]
    return line if type(error) is RuntimeError else f"{type(error).__name__}: {line}"


def described(error: Exception) -> str:
    """All that an error says, with its type and its place."""
    place = raised_in(error)
    return f"{type(error).__name__}: {message_of(error)}{f' (in {place})' if place else ''}."


def message_of(error: Any) -> str:
    try:
        return str(error)
    except Exception:  # of the error's own __str__
        return ""
