"""What the editions and the website say of their own, by the folder that holds the lessons.

That is "" for English, and zh_CN, in notebooks/ as in every folder that is made from it. There is a
language for each folder in translations/, and what is said in it stands in make.po there.
"""

from functools import cache
from pathlib import Path

from babel.messages.pofile import read_po

TRANSLATIONS = Path(__file__).resolve().parent.parent.parent / "translations"
LANGUAGES = ["", *sorted(path.parent.name for path in TRANSLATIONS.glob("*/make.po"))]
ENGLISH = {
    "answers": "check, hint and diagnose speak English from here on",
    "minutes": "{} minutes, {} with the exercises",
    "min": "{} min",
    "time": "{} min, from minute {} of {}",
    "turn": "Your turn",
    "stuck": "Where people get stuck.",
    "for you": "**For you: {} min.** {}",
    "solution": "**For you:** the solution of `{}`.",
    "expect": "**For you:** expect these.",
    "wrong": "**{}**: {}",
    "code": "Code",
    "next key": "On the next key:",
    "later": "On a later slide:",
    "a graph": "A graph; the text below it says what it shows.",
    "part": "part {} of {}",
    "part of": "{} of the graph before: {}",
    "map": "The whole graph without its words; the frame shows which part this is.",
    "colab": "Open in Colab",
    "run": "Run it on Colab",
    "download": "Download this notebook (it brings all it needs)",
    "first": "Download lesson 1",
    "edit": "Edit",
    "lessons": "The lessons",
    "pages": "To look things up",
    "reveal": "Output and answer",
    # The website's own; the last two are shown on the pages of other languages.
    "title": "Double backward",
    "description": "A course in six executable notebooks, and a tool: PyTorch autograd Functions "
    "whose second derivative is right, and how to find those that are silently wrong.",
    "headline": "Double backward: second derivatives that are silently wrong",
    "license": "MIT License",
    "search": "Search",
    "name": "English",
    "front": "Front page in English",
}


@cache
def words_of(language: str) -> dict[str, str]:
    """By the names in ENGLISH; "lang" is what HTML calls the language."""
    words = {name: in_words_of(language, text) for name, text in ENGLISH.items()}
    return words | {"lang": language.replace("_", "-") or "en"}


def in_words_of(language: str, text: str) -> str:
    """In English, where it has no translation."""
    return (language and said_in(language).get(text)) or text


@cache
def said_in(language: str, name: str = "make") -> dict[str, str]:
    """What the catalogue of this name has for the English."""
    with (TRANSLATIONS / language / f"{name}.po").open("rb") as file:
        return {each.id: each.string for each in read_po(file) if not each.fuzzy}


def lessons_in(notebooks: Path) -> list[Path]:
    """In English, then in the other languages."""
    return [
        path for folder in LANGUAGES for path in sorted((notebooks / folder).glob("[0-9]_*.ipynb"))
    ]


def language_of(lesson: Path) -> str:
    """The folder that a lesson is in, "" for English."""
    return lesson.parent.name if lesson.parent.name in LANGUAGES else ""
