"""`make site`: the course as a website in build/site/, from the notebooks' stored outputs.

Nothing is executed. Once pyproject.toml names the repository, there are the links that need to know
it: open in Colab, edit.
"""

import html
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
from editions import address, close_ups, colab
from editions.packages import package
from editions.slides import words

from lessons_src import stepper

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "build" / "site-source"
TARGET = ROOT / "build" / "site"
# The tool's pages in the order of reading; their links hold here and in the repository.
TOOL = [f"site/tool/{name}.md" for name in ("start", "functions", "steps", "remedies", "limits")]
WIDE = '\n<div class="wide"></div>\n'  # for the style sheet: the page holds wide tables
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


def main(source=SOURCE, target=TARGET, repository="", home=""):
    """Copy the pages together under the names that their links use, and have Sphinx build them."""
    shutil.rmtree(source, ignore_errors=True)
    collect(source, repository)
    shutil.rmtree(target, ignore_errors=True)
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", source, target]
    done = subprocess.run(command, env={**os.environ, "REPO": repository, "HOME_PAGE": home})
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
    shutil.copytree(ROOT / "colab", source / "extra" / "colab")
    shutil.copy(ROOT / "site" / "conf.py", source)
    shutil.copy(ROOT / "LICENSE", source)
    pages = [path.relative_to(ROOT).as_posix() for path in texts()]
    for name in [*pages, *TOOL, "reference.md"]:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        here = ROOT / "site" / name if name == "reference.md" else ROOT / name
        wide = WIDE if name.startswith(("survey/", "reference")) else ""
        text = here.read_text(encoding="utf-8")
        text += wide + edit_link(here, text, repository)
        (source / name).write_text(text, encoding="utf-8")
    for picture in (ROOT / "survey").glob("*.svg"):
        shutil.copy(picture, source / "survey")
    lessons = sorted((ROOT / "notebooks").glob("[0-9]_*.ipynb"))
    for lesson in lessons:
        drawn = (ROOT / "pictures" / f"{lesson.stem}.svg").read_text(encoding="utf-8")
        small = source / "extra" / "pictures" / f"{lesson.stem}_small.svg"
        small.write_text(close_ups.thumbnail(drawn), encoding="utf-8")
    (source / "notebooks").mkdir()
    for lesson in lessons:
        (source / "notebooks" / lesson.name).write_text(page(lesson, repository), encoding="utf-8")
    (source / "index.md").write_text(front_page(lessons, pages, repository), encoding="utf-8")


def texts():
    """What is read beside the lessons; in the README's place the site has a front page."""
    return [
        path
        for folder in (ROOT, ROOT / "survey")
        for path in sorted(folder.glob("[A-Z]*.md"))
        if path.name != "README.md" and ".zh-CN." not in path.name
    ]


def page(lesson, repository):
    """The lesson as Sphinx reads it: each picture with its words as alternative text.

    What a prediction asks for is folded; below the title stands how to run the lesson.
    """
    notebook = nbformat.read(lesson, as_version=4)
    colab.take_badge_out(notebook)
    notebook.cells[0].source += f"\n\n{ways_to_run(lesson, repository)}"
    for cell in notebook.cells:
        if "expected" in cell.metadata:
            cell.metadata["tags"] = [*cell.metadata.get("tags", []), "hide-output"]
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "image/svg+xml" in data:
                cell.metadata["mystnb"] = {"image": {"alt": words(output)}}
            if stepper.STEPS in data:
                data["text/html"] = stepper.page(data["image/svg+xml"], data[stepper.STEPS])
    return nbformat.writes(notebook)


def ways_to_run(lesson, repository):
    """Links: the copy that brings all it needs, and where it opens or is edited with one click."""
    ways = [f'<a href="../colab/{lesson.name}" download>Download, runs on its own</a>']
    if repository:
        ways.insert(0, f'<a href="{colab.address(lesson, repository)}">Open in Colab</a>')
        ways.append(edit(lesson, repository))
    return f'<p class="ways">{" · ".join(ways)}</p>'


def edit(path, repository):
    name = path.relative_to(ROOT).as_posix()
    return f'<a href="https://github.com/{repository}/edit/main/{name}">Edit</a>'


def edit_link(path, text, repository):
    """The last line of a page that somebody wrote; some are written by a command, and say so."""
    by_command = "Written by `make" in text[:200]
    if by_command or not repository:
        return ""
    return f'\n\n<p class="ways">{edit(path, repository)}</p>\n'


def front_page(lessons, pages, repository):
    """The front page, and behind it what the menu at the side holds."""
    text = (ROOT / "site" / "front.md").read_text(encoding="utf-8")
    run = ("Run it on Colab", colab.address(lessons[0], repository))
    download = ("Download lesson 1", f"colab/{lessons[0].name}")
    words, target = run if repository else download
    text = text.replace("RUN_WORDS", words).replace("RUN_TARGET", target)
    text = text.replace("CARDS", "\n".join(card(lesson) for lesson in lessons))
    text += edit_link(ROOT / "site" / "front.md", text, repository)
    return text + CONTENTS.format(
        lessons="\n".join(f"notebooks/{lesson.stem}" for lesson in lessons),
        tool="\n".join(name.removesuffix(".md") for name in TOOL),
        pages="\n".join([*(name.removesuffix(".md") for name in pages), "reference"]),
    )


def card(lesson):
    """A lesson as a box to click: its title, and what one can do afterwards."""
    source = nbformat.read(lesson, as_version=4).cells[0].source
    title, promise = source.split("\n\n")[:2]
    minutes = re.search(r"\*\*About (\d+) minutes", source)[1]
    words = html.escape(promise).replace("`", "")
    return (
        f'<a class="lesson" href="notebooks/{lesson.stem}.html">'
        f'<img src="pictures/{lesson.stem}_small.svg" alt="A graph that lesson {title[2]} draws">'
        f"<b>{html.escape(title[2:])}</b>"
        f"<span>{words}</span><small>{minutes} minutes</small></a>"
    )


if __name__ == "__main__":
    main(repository=address.repository(), home=address.named("Documentation").rstrip("/"))
