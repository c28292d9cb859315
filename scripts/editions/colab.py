"""Self-contained copies of the lessons for Colab, in colab/, and the badges that open them.

`make copies` writes the copies; nothing is executed.
"""

import re

import nbformat

from . import address as addresses
from .carry import ROOT, carry, unpacked

COPIES = ROOT / "colab"
LESSONS = sorted((ROOT / "notebooks").glob("[0-9]_*.ipynb"))
README = ROOT / "README.md"
BADGE = re.compile(r"\s*\[(?:Open in Colab|!\[Open in Colab\]\([^)]*\))\]\((\S+?)/\w+\.ipynb\)")
LESSON_LINK = re.compile(r"\[([^\]]+)\]\((\d_\w+\.ipynb)\)")


def colab_copy(lesson, repository=None):
    """The text of the copy, a function of the lesson and the modules alone.

    It installs the tool from the `repository`, by default the one that pyproject.toml names.
    """
    notebook = nbformat.read(lesson, as_version=4)
    home = BADGE.search(notebook.cells[0].source)
    take_badge_out(notebook)
    for cell in notebook.cells:
        cell.metadata.pop("expected", None)  # for a test of the course
        if cell.cell_type == "code":  # no answer stands under its question
            cell.outputs, cell.execution_count = [], None
        if cell.cell_type == "markdown":
            # A link to a file beside the notebook leads nowhere on Colab.
            target = rf"[\1]({home[1]}/\2)" if home else r"\1"
            cell.source = LESSON_LINK.sub(target, cell.source)
    carry(notebook, repository=addresses.repository() if repository is None else repository)
    return nbformat.writes(notebook) + "\n"


def write_copies():
    """All of them: each is a function of its lesson and of the modules; return what changed."""
    COPIES.mkdir(exist_ok=True)
    changed = []
    for lesson in LESSONS:
        copy, text = COPIES / lesson.name, colab_copy(lesson)
        if not copy.exists() or not same_copy(copy.read_text(encoding="utf-8"), text):
            copy.write_text(text, encoding="utf-8", newline="\n")
            changed.append(copy.name)
    return changed


def same_copy(one, other):
    """Whether two copies hold the same; another Python may pack the same modules otherwise."""
    return content(one) == content(other)


def content(text):
    cells = nbformat.reads(text, as_version=4).cells
    modules = unpacked(cells[2].source)
    return modules, [cell for number, cell in enumerate(cells) if number != 2]


def address(lesson, repository):
    home = f"https://colab.research.google.com/github/{repository}/blob/main/colab"
    return f"{home}/{lesson.name}"


def put_badge_into_lesson(notebook, lesson, repository):
    """Below the title's text, in words: a picture would be missing in the reader's own copy."""
    take_badge_out(notebook)
    notebook.cells[0].source += f"\n\n[Open in Colab]({address(lesson, repository)})"


def take_badge_out(notebook):
    notebook.cells[0].source = BADGE.sub("", notebook.cells[0].source)


def put_badges_into_readme(text, lessons, repository):
    """Behind each link to a lesson that is in a table; the picture is a file of ours."""
    text = BADGE.sub("", text)
    for lesson in lessons:
        link = rf"(\|[^|\n]*\]\(notebooks/{re.escape(lesson.name)}\))"
        picture = "![Open in Colab](pictures/open_in_colab.svg)"
        text = re.sub(link, rf"\1 [{picture}]({address(lesson, repository)})", text)
    return text


if __name__ == "__main__":
    changed = write_copies()
    print(f"Written anew in colab/: {', '.join(changed)}" if changed else "colab/ is up to date.")
