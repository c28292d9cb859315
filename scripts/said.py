"""What `make` says on its way, in the language that LANGUAGE=zh_CN, its argument, names.

The sentences are the entries of translations/zh_CN/make.po. Standard library only, and syntax that
an old Python can read, as in make_environment.py.
"""

import gettext
import os
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))


def language():
    return os.environ.get("COURSE_LANGUAGE", "")


def spoken(template, *values):
    """The sentence with values in its {}; in English where there is no other, or no letters."""
    text = catalogue().gettext(template)
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeError:
        text = template
    return text.format(*values) if values else text


def to_type(line):
    """A command to type, which asks for the same language again."""
    return "`" + line + (" LANGUAGE=" + language() if language() else "") + "`"


def catalogue():
    path = os.path.join(FOLDER, language() + ".mo")
    if not language() or not os.path.exists(path):
        return gettext.NullTranslations()
    with open(path, "rb") as file:
        return gettext.GNUTranslations(file)
