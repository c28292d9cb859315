"""Which pages of the website are there in another language, and where their links lead.

A page has the same name in each: docs/GLOSSARY.zh-CN.md of the repository is zh_CN/docs/GLOSSARY of
the site, notebooks/zh_CN/1_a.ipynb is zh_CN/notebooks/1_a. A language has its lessons, which come
from catalogues, and the pages that somebody wrote; of all others it shows the English ones.
"""

import posixpath
import re
from pathlib import Path

from editions.languages import LANGUAGES, words_of

ROOT = Path(__file__).resolve().parent.parent
# A link to another file; what leads out of the site, or stays on the page, is none.
LINK = re.compile(r"\[([^\]\n]+)\]\((?!\w+:|#)([^)\s#]+)(#[^)\s]*)?\)")
# The same as HTML, on the front page.
HTML_LINK = re.compile(r'(?<=href=")((?:notebooks|docs|survey)/[^"]+)\.html')


def others():
    """The languages beside English that have a lesson."""
    return [language for language in LANGUAGES[1:] if lessons_in(language)]


def lessons_in(language):
    return sorted((ROOT / "notebooks" / language).glob("[0-9]_*.ipynb"))


def texts_in(language):
    """What somebody wrote to be read beside the lessons."""
    tag = words_of(language)["lang"]
    tool = sorted((ROOT / "docs" / "tool").glob(f"*.{tag}.md"))
    return [*tool, *sorted((ROOT / "docs").glob(f"[A-Z]*.{tag}.md"))]


def pages_in(language):
    """The names of the pages that are there in this language and in English."""
    files = [*texts_in(language), *lessons_in(language)]
    named = [page_of(path.relative_to(ROOT).as_posix(), language) for path in files]
    return sorted(["index", *named])


def front_of(language):
    """The text of the front page; English where nobody wrote one."""
    folder = ROOT / "docs" / "site"
    own = folder / f"front.{words_of(language)['lang']}.md"
    return own if own.exists() else folder / "front.md"


def page_of(path, language):
    """The page that a file of the repository is, among those of its language."""
    own = path.replace(f".{words_of(language)['lang']}", "").replace(f"{language}/", "")
    name = posixpath.splitext(own)[0]
    return {"README": "index", "docs/site/front": "index"}.get(name, name)


def linked(text, path, language):
    """The text of a page, its links led from the repository's files to the site's pages."""

    def lead(link):
        file, part = posixpath.normpath(posixpath.join(here, link[2])), link[3] or ""
        if f".{words_of(language)['lang']}." in file or f"{language}/" in file:
            page = posixpath.relpath(page_of(file, language), at) + posixpath.splitext(file)[1]
            return f"[{link[1]}]({page}{part})"
        page = posixpath.relpath(f"../{page_of(file, language)}.html", at)
        return f'<a href="{page}{part}" hreflang="en">{link[1]}</a>'

    here, at = posixpath.dirname(path), posixpath.dirname(page_of(path, language))
    return LINK.sub(lead, text)


def led_to_english(text, language):
    """The front page, whose links to what this language has not lead to the English pages."""
    there = pages_in(language)
    return HTML_LINK.sub(lambda link: "../" * (link[1] not in there) + link[0], text)
