"""Self-contained copies of the lessons for Colab, and the badges that open them.

`make copies` writes them into notebooks/colab/, where readers find them; nothing is executed.
"""

import re

import nbformat

from .carry import ROOT, carry, unpacked, without_archive
from .languages import language_of, lessons_in

COPIES = ROOT / "notebooks" / "colab"
NOTEBOOKS = ROOT / "notebooks"
LESSONS = lessons_in(NOTEBOOKS)
READMES = [ROOT / "README.md", ROOT / "README.zh-CN.md"]
BADGE = re.compile(r"\s*\[(?:Open in Colab|!\[Open in Colab\]\([^)]*\))\]\((\S+?)/\w+\.ipynb\)")
LESSON_LINK = re.compile(r"\[([^\]]+)\]\((\d_\w+\.ipynb)\)")
FILE_LINK = re.compile(r"\[([^\]]+)\]\(\.\./[^)]+\)")


def colab_copy(lesson):
    """The text of the copy, a function of the lesson and the modules alone."""
    notebook = nbformat.read(lesson, as_version=4)
    home = home_of(notebook)
    take_badge_out(notebook)
    notebook.metadata.pop("minutes", None)
    for cell in notebook.cells:
        cell.metadata.pop("expected", None)  # for a test of the course
        if cell.cell_type == "code":  # no answer stands under its question
            cell.outputs, cell.execution_count = [], None
        if cell.cell_type == "markdown":
            # A link to a file beside the notebook leads nowhere on Colab.
            target = rf"[\1]({home}/\2)" if home else r"\1"
            cell.source = FILE_LINK.sub(r"\1", LESSON_LINK.sub(target, cell.source))
    carry(notebook, language_of(lesson))
    return nbformat.writes(notebook) + "\n"


def write_copies():
    """Those that are not as their lesson and the modules are; return which these were."""
    changed = []
    for lesson in LESSONS:
        copy, text = copy_of(lesson), colab_copy(lesson)
        if not copy.exists() or not same_copy(copy.read_text(encoding="utf-8"), text):
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(text, encoding="utf-8", newline="\n")
            changed.append(copy.relative_to(COPIES).as_posix())
    return changed


def copy_of(lesson):
    return COPIES / language_of(lesson) / lesson.name


def same_copy(one, other):
    """Whether two copies hold the same, however another zlib has packed it."""
    return content(one) == content(other)


def content(text):
    """The copy without its archive, and the files in there."""
    copy = nbformat.reads(text, as_version=4)
    modules = copy.cells[2]
    files = unpacked(modules.source)
    modules.source = without_archive(modules.source)
    return copy, files


def address(lesson, repository):
    home = f"https://colab.research.google.com/github/{repository}/blob/main"
    return f"{home}/{copy_of(lesson).relative_to(ROOT).as_posix()}"


def put_badge_into_lesson(notebook, lesson, repository):
    """Below the title's text, in words: a picture would be missing in the reader's own copy."""
    take_badge_out(notebook)
    notebook.cells[0].source += f"\n\n[Open in Colab]({address(lesson, repository)})"


def home_of(notebook):
    """The address of the copies' folder, by the lesson's badge, or ""."""
    found = BADGE.search(notebook.cells[0].source)
    return found[1] if found else ""


def take_badge_out(notebook):
    notebook.cells[0].source = BADGE.sub("", notebook.cells[0].source)


def put_badges_into_readme(text, lessons, repository):
    """Behind each link to a lesson that is in a table; the picture is a file of ours."""
    text = BADGE.sub("", text)
    for lesson in lessons:
        name = lesson.relative_to(ROOT).as_posix()
        link = rf"(\|[^|\n]*\]\({re.escape(name)}\))"
        picture = "![Open in Colab](docs/pictures/open_in_colab.svg)"
        text = re.sub(link, rf"\1 [{picture}]({address(lesson, repository)})", text)
    return text


if __name__ == "__main__":
    changed = write_copies()
    print(
        f"Written anew in notebooks/colab/: {', '.join(changed)}"
        if changed
        else "notebooks/colab/ is up to date."
    )
