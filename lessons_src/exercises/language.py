"""What `check` and `hint` say in the language of the folder in which the lesson runs.

In a folder zh_CN, such as notebooks/zh_CN, that is Chinese, from zh_CN.mo beside this file, which
`make translations` writes. A copy that brings its modules along brings that file as everywhere.mo,
since nobody knows the folder it will run in. What has no translation stays English.
"""

import gettext
from pathlib import Path

FIRST_TRY = (
    "What does backward use that has no way back to an input? Look once more. Or run the cell "
    "again: from the second time on, check names the cause."
)
YOURS = "The graph of your derivative. What does it lead back to?"
RIGHT = "And that of a right answer. What is there that yours has not?"

# Said by check and hint, besides the hints themselves.
SENTENCES = (
    "not attempted yet.",
    "{} is not written yet.",
    "right so far; {} is not written yet.",
    "as given. It has a bug: find it and mend it here.",
    FIRST_TRY,
    YOURS,
    RIGHT,
    "right. Checked: value and first derivative.",
    "right. Checked: value, first and second derivative, alone and inside larger formulas.",
    'solution("{}") shows how we wrote it. On to the next cell.',
    "{}, hint {} of {}: {}",
    'That was the last one. solution("{}") shows the code.',
)


def in_its_language(text):
    for folder in (Path.cwd().name, "everywhere"):
        catalogue = Path(__file__).with_name(f"{folder}.mo")
        if catalogue.exists():
            with catalogue.open("rb") as file:
                return gettext.GNUTranslations(file).gettext(text)
    return text
