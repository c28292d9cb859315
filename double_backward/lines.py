"""The lines that we print: how long they are, and what an error says in one."""

import textwrap
from typing import Any

from .places import raised_in

WIDTH = 88  # of all that is printed


def wrapped(text: str, indent: str) -> list[str]:
    """Lines of at most `WIDTH`, all but the first indented, less so for a long word; only one that
    is longer than a line is broken."""
    longest = max(map(len, text.split()), default=0)
    indent = indent[: max(0, WIDTH - longest)]
    return textwrap.wrap(text, WIDTH, subsequent_indent=indent, break_on_hyphens=False)


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
