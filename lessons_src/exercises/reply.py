"""What `check` answers: a `Reply`, which ends the review as soon as something is wrong."""

import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from double_backward.lines import wrapped

from .language import in_language, language


@dataclass
class Reply:
    """An answer: `status` is "right", "wrong" or "neutral"; `advice` says what to change.

    `names_cause` is True where the advice says why the second derivative is wrong.
    """

    status: str
    fact: str
    advice: str = ""
    names_cause: bool = False

    def __str__(self) -> str:
        """For the screen, without the name of the exercise."""
        return self.told("")

    def told(self, name: str) -> str:
        """For the screen: the fact behind the name, and what to change on lines of its own."""
        lines = f"{name}{in_language(self.fact)}", in_language(self.advice)
        return "\n".join(filled(line) for line in lines if line)


def filled(text: str) -> str:
    """Lines for the screen."""
    if text.isascii() or not language():
        return textwrap.fill(text, 100, break_on_hyphens=False, break_long_words=False)
    return "\n".join(wrapped(text, ""))


class Said(Exception):
    """Ends a review. Its one argument is the `Reply`."""


def wrong(fact: str, advice: str = "", names_cause: bool = False) -> NoReturn:
    raise Said(Reply("wrong", fact, advice, names_cause))


def neutral(fact: str) -> NoReturn:
    raise Said(Reply("neutral", fact))


def survived(advise: Callable, *args: Any) -> Any:
    """What `advise` says; "" where the answer does not survive the experiment."""
    try:
        return advise(*args)
    except Exception:
        return ""
