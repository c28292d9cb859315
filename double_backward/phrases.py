"""The texts of the tool in English and, with COURSE_LANGUAGE=zh_CN, also in Chinese.

A `Phrase` is English text that knows its template and the values filled in. The templates are the
entries of the catalogue zh_CN.mo beside this file, which `make translations` writes.
"""

import gettext
import os
import re
from collections.abc import Iterable
from functools import cache, reduce
from pathlib import Path
from typing import Any

FOLDERS = [Path(__file__).parent]  # of catalogues; other users of phrases add theirs
HAN, FULL_WIDTH = "[\u4e00-\u9fff]", "[，。：；？！（）“”、…]"


class Phrase(str):
    """A text that can be translated: a template in English, with values filled into its {}."""

    template: str
    values: tuple[Any, ...]
    named: dict[str, Any]

    def __new__(cls, template: str, /, *values: Any, **named: Any) -> "Phrase":
        filled = values or named
        phrase = super().__new__(cls, template.format(*values, **named) if filled else template)
        phrase.template, phrase.values, phrase.named = template, values, named
        return phrase

    def capitalised(self) -> "Phrase":
        """The phrase with a capital letter, for the beginning of a sentence."""
        phrase = str.__new__(Phrase, self[:1].upper() + self[1:])
        phrase.__dict__ = self.__dict__
        return phrase


def joined(template: str, parts: Iterable[str]) -> str:
    """The parts in a row, two at a time in the {} of a template such as "{} and {}"."""
    parts = list(parts)
    return reduce(lambda one, other: Phrase(template, one, other), parts) if parts else ""


def language() -> str:
    """The reader's language, "zh_CN", or "" for English. It is read from the environment each time,
    so that a notebook can set it."""
    return os.environ.get("COURSE_LANGUAGE", "")


def translation(text: str, into: str | None = None, folders: Iterable[Path] = FOLDERS) -> str:
    """The text in the language `into`, or in the reader's if that is None, by the catalogues in
    these folders; "" if it has no translation."""
    folders = tuple(folders)
    known = text and _known(language() if into is None else into, folders)
    if not known:
        return ""
    template = text.template if isinstance(text, Phrase) else text
    said = known.gettext(template)
    if said and isinstance(text, Phrase) and (text.values or text.named):
        values = [in_language(value, into, folders) for value in text.values]
        named = {name: in_language(value, into, folders) for name, value in text.named.items()}
        said = said.format(*values, **named)
    return _set(said)


def in_language(text: Any, into: str | None = None, folders: Iterable[Path] = FOLDERS) -> Any:
    """The text in the language; unchanged if it has no translation, or is no text."""
    return (translation(text, into, folders) or text) if isinstance(text, str) else text


def both(text: str) -> str:
    """The text, and in a line below it what it says in the reader's language, if that is known."""
    said = translation(text)
    return f"{text}\n{said}" if said else text


class _Unknown(gettext.NullTranslations):
    def gettext(self, message):
        return ""


@cache
def _known(language, folders):
    """The translations that these folders have; None if they have none into this language."""
    known: gettext.NullTranslations = _Unknown()
    for catalogue in [folder / f"{language}.mo" for folder in folders]:
        if catalogue.exists():
            with catalogue.open("rb") as file:
                found = gettext.GNUTranslations(file)
            found.add_fallback(known)
            known = found
    return None if isinstance(known, _Unknown) else known


def _set(text):
    """Set spaces as in Chinese: none beside Chinese characters and punctuation, and one between
    these and Latin letters or numbers."""
    text = re.sub(rf"(?<={FULL_WIDTH}) +| +(?={FULL_WIDTH})|(?<={HAN}) +(?={HAN})", "", text)
    return re.sub(rf"(?<={HAN})(?=[A-Za-z0-9`(])|(?<=[A-Za-z0-9`)])(?={HAN})", " ", text)
