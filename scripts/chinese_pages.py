"""Which pages of the website are there in Chinese, and where their links lead.

A page has the same name in both languages: docs/GLOSSARY.zh-CN.md of the repository is
zh_CN/docs/GLOSSARY of the site, notebooks/zh_CN/1_a.ipynb is zh_CN/notebooks/1_a.
"""

import posixpath
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# A link to another file; what leads out of the site, or stays on the page, is none.
LINK = re.compile(r"\[([^\]\n]+)\]\((?!\w+:|#)([^)\s#]+)(#[^)\s]*)?\)")


def in_chinese():
    """The names of the pages that are there in both languages."""
    lessons = (ROOT / "notebooks" / "zh_CN").glob("[0-9]_*.ipynb")
    files = [ROOT / "README.zh-CN.md", *texts_in_chinese(), *lessons]
    return sorted(page_of(path.relative_to(ROOT).as_posix()) for path in files)


def texts_in_chinese():
    """What is read beside the lessons."""
    tool = sorted((ROOT / "docs" / "tool").glob("*.zh-CN.md"))
    return [*tool, *sorted((ROOT / "docs").glob("[A-Z]*.zh-CN.md"))]


def page_of(path):
    """The page that a file of the repository is, among those of its language."""
    name = posixpath.splitext(path.replace(".zh-CN", "").replace("zh_CN/", ""))[0]
    return {"README": "index", "docs/site/front": "index"}.get(name, name)


def linked(text, path):
    """The text of a Chinese page, its links led from the repository's files to the site's pages."""

    def lead(link):
        file, part = posixpath.normpath(posixpath.join(here, link[2])), link[3] or ""
        if ".zh-CN." in file or "zh_CN/" in file:
            page = posixpath.relpath(page_of(file), at) + posixpath.splitext(file)[1]
            return f"[{link[1]}]({page}{part})"
        page = posixpath.relpath(f"../{page_of(file)}.html", at)
        return f'<a href="{page}{part}" hreflang="en">{link[1]}</a>'

    here, at = posixpath.dirname(path), posixpath.dirname(page_of(path))
    return LINK.sub(lead, text)
