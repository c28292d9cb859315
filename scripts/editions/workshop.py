"""`make workshop`: everything for a room full of people, in build/workshop/.

In build/workshop/zh_CN/ is the same in Chinese.
"""

import os
import shutil
import sys
from pathlib import Path

import nbformat
from said import spoken

from . import formulas, slides
from .carry import ROOT
from .colab import take_badge_out
from .instructor import instructor
from .languages import language_of, lessons_in
from .packages import package
from .student import student

NOTEBOOKS = ROOT / "notebooks"
TARGET = ROOT / "build" / "workshop"
ASSETS = {
    "reveal.css": ("reveal.js", "dist", "reveal.css"),
    "reveal.js": ("reveal.js", "dist", "reveal.js"),
    "notes.js": ("reveal.js", "dist", "plugin", "notes.js"),
}


def main(notebooks=NOTEBOOKS, target=TARGET):
    """Write all editions beside the old ones, then put them in their place: all or nothing."""
    lessons = lessons_in(notebooks)
    if not lessons:
        sys.exit(
            spoken("There are no lessons in {}: run this in a whole checkout.", shown(notebooks))
        )
    assets = {name: package(*path) for name, path in ASSETS.items()}
    texts = {
        Path(language, edition, f"{lesson.stem}.{ending}"): text
        for lesson in lessons
        for language, edition, ending, text in editions(lesson)
    }
    decks = [path for path in texts if path.suffix == ".html"]
    texts |= zip(decks, formulas.with_formulas([texts[deck] for deck in decks]), strict=True)
    fresh = target.with_name(target.name + ".new")
    try:
        shutil.rmtree(fresh, ignore_errors=True)
        write(texts, fresh)
        for language in {language_of(lesson) for lesson in lessons}:
            write_assets(assets, fresh / language / "assets")
        shutil.rmtree(target, ignore_errors=True)
        os.replace(fresh, target)
    except OSError as error:
        refused = "{} cannot be written ({}): make its folder writable."
        sys.exit(spoken(refused, shown(target), error.strerror))
    made = ", ".join(dict.fromkeys(path.parent.name for path in texts))
    print(spoken("{} lessons, as {}, are in {}", len(lessons), made, shown(target)))


def shown(path):
    return os.path.relpath(path, ROOT) if path.is_relative_to(ROOT) else str(path)


def read(path):
    """The lesson, which must be a sound notebook with its outputs stored."""
    try:
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
    except Exception as error:  # whatever it is that nbformat trips over
        reason = (str(error).splitlines() or [type(error).__name__])[0][:80]
        sys.exit(spoken("{} is no sound notebook: restore it with git ({}).", shown(path), reason))
    if any(cell.cell_type == "code" and not cell.execution_count for cell in notebook.cells):
        sys.exit(spoken("{} has cells without an output: run `make refresh`.", shown(path)))
    take_badge_out(notebook)  # it leads to the copy on Colab, which tells the answers
    return notebook


def editions(lesson):
    """Each: language, name, how the file ends, text."""
    notebook, language = read(lesson), language_of(lesson)
    yield language, "student", "ipynb", nbformat.writes(student(notebook, language)) + "\n"
    yield language, "instructor", "ipynb", nbformat.writes(instructor(notebook, language)) + "\n"
    yield language, "slides", "html", slides.slides(notebook, language)


def write(texts, folder):
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8", newline="\n")


def write_assets(assets, folder):
    folder.mkdir()
    for style in (slides.TEMPLATES / "slides" / "slides.css", formulas.STYLE):
        shutil.copy(style, folder)
    for name, source in assets.items():
        shutil.copyfile(source, folder / name)


if __name__ == "__main__":
    main()
