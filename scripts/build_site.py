"""`make site`: the course as a website in build/site/, from the notebooks' stored outputs.

Nothing is executed. `make site REPO=owner/name` adds the links that need to know the repository:
open in Colab, see the source.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
from editions import colab
from editions.packages import package
from editions.slides import words

from lessons_src import stepper

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "build" / "site-source"
TARGET = ROOT / "build" / "site"
# The tool's pages in the order of reading; their links hold here and in the repository.
TOOL = [f"site/tool/{name}.md" for name in ("start", "functions", "steps", "remedies", "limits")]
CONTENTS = """

```{{toctree}}
:caption: The lessons
:hidden:
{lessons}
```

```{{toctree}}
:caption: The tool
:hidden:
{tool}
```

```{{toctree}}
:caption: To look things up
:hidden:
{pages}
```
"""


def main(source=SOURCE, target=TARGET, repository=""):
    """Copy the pages together under the names that their links use, and have Sphinx build them."""
    if repository:
        colab.check_repository(repository)
    shutil.rmtree(source, ignore_errors=True)
    collect(source, repository)
    shutil.rmtree(target, ignore_errors=True)
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", source, target]
    done = subprocess.run(command, env={**os.environ, "REPO": repository})
    if done.returncode:
        sys.exit("The site is not complete: the lines above say which page to mend.")
    print(f"The site is in {os.path.relpath(target, ROOT)}: open index.html there.")


def collect(source, repository):
    """Everything that Sphinx reads, in one folder."""
    (source / "_static").mkdir(parents=True)
    for name in ("course.css", "course.js", "favicon.svg"):
        shutil.copy(ROOT / "site" / name, source / "_static")
    shutil.copy(package("mathjax", "es5", "tex-svg.js"), source / "_static")
    shutil.copytree(ROOT / "pictures", source / "extra" / "pictures")
    for name in ("conf.py", "reference.md"):
        shutil.copy(ROOT / "site" / name, source)
    shutil.copy(ROOT / "LICENSE", source)
    pages = [path.relative_to(ROOT).as_posix() for path in texts()]
    for name in [*pages, *TOOL]:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, source / name)
    for picture in (ROOT / "survey").glob("*.svg"):
        shutil.copy(picture, source / "survey")
    lessons = sorted((ROOT / "notebooks").glob("[0-9]_*.ipynb"))
    (source / "notebooks").mkdir()
    for lesson in lessons:
        (source / "notebooks" / lesson.name).write_text(page(lesson, repository), encoding="utf-8")
    (source / "index.md").write_text(front_page(lessons, pages), encoding="utf-8")


def texts():
    """What is read beside the lessons; the README is the front page."""
    return [
        path
        for folder in (ROOT, ROOT / "survey")
        for path in sorted(folder.glob("[A-Z]*.md"))
        if path.name != "README.md"
    ]


def page(lesson, repository):
    """The lesson as Sphinx reads it: each picture with its words as alternative text."""
    notebook = nbformat.read(lesson, as_version=4)
    if repository:
        colab.put_badge_into_lesson(notebook, lesson, repository)
        source = f"https://github.com/{repository}/blob/main/notebooks/{lesson.name}"
        notebook.cells[0].source += f" · [Source]({source})"
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "image/svg+xml" in data:
                cell.metadata["mystnb"] = {"image": {"alt": words(output)}}
            if stepper.STEPS in data:
                data["text/html"] = stepper.page(data["image/svg+xml"], data[stepper.STEPS])
    return nbformat.writes(notebook)


def front_page(lessons, pages):
    """The README, and behind it what the menu at the side holds."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return text + CONTENTS.format(
        lessons="\n".join(f"notebooks/{lesson.stem}" for lesson in lessons),
        tool="\n".join(name.removesuffix(".md") for name in TOOL),
        pages="\n".join([*(name.removesuffix(".md") for name in pages), "reference"]),
    )


if __name__ == "__main__":
    main(repository=os.environ.get("REPO", ""))
