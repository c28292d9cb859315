"""`make site`: the course as a website in build/site/, from the notebooks' stored outputs.

In build/site/zh_CN/ are the pages in Chinese, with a search of their own, and so for each language
that has lessons. Nothing is executed. Once pyproject.toml names the repository, there are the links
that need to know it: open in Colab, edit.
"""

import html
import json
import os
import posixpath
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pages_in_languages as other
from editions import address, colab, formulas, minutes
from editions.folds import in_one_fold
from editions.languages import language_of, words_of
from editions.slides import words
from pages_in_languages import LINK, linked
from said import spoken

import survey.table
from lessons_src import stepper
from lessons_src.cut_paths import cut_a_path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "build" / "site-source"
TARGET = ROOT / "build" / "site"
SETTINGS = ROOT / "docs" / "site"
PICTURES = ROOT / "docs" / "pictures"
# The tool's pages in the order of reading; their links hold here and in the repository.
TOOL = [
    f"docs/tool/{name}.md"
    for name in ("start", "functions", "steps", "remedies", "limits", "in_the_wild")
]
# What is looked up, in the order of the menu; a page that is not named here comes last.
ORDER = ["start", "CHEATSHEET", "ERRORS", "GLOSSARY"]
ORDER += ["RESULTS", "COMPILED", "TEACHING", "SETUP", "MATRIX", "MAINTAINING"]
# For the style sheet: the page holds wide tables; it is one sheet of paper.
WIDE, SHEET = '\n<div class="wide"></div>\n', '\n<div class="sheet"></div>\n'
# A file that a lesson names, and that is a page here.
NAMED = re.compile(r"`((?:docs|survey)/[\w.-]+\.md)`")
# What each lesson is about, in a line of its code.
LINES = {
    "0_in_ten_minutes": "class SinhBad(Function):",
    "1_saving_inputs": "ctx.save_for_backward(x)",
    "2_saving_outputs": "ctx.save_for_backward(out)",
    "3_saving_intermediates": "return (expx - expnegx) / 2, expx, expnegx",
    "4_what_not_to_do": "ctx.expx = torch.exp(x)",
    "5_untracked_backward": "np.cosh(x.detach().numpy())",
    "6_your_own_function": "class Softplus(Function):",
}
# An icon of the theme's in its script, by name, and other names that it has; there are 2,000.
ICON = re.compile(r'"?([\w-]+)"?:\[\d+,\d+,\[([^\]]*)\],"[0-9a-f]+",(?:"[^"]*"|\[[^\]]*\])\],?')
NAMES = re.compile(r"fa-([\w-]+)")
# Words in code; the places where a name may go on in the next line, and those of a long word.
CODE, NAME_ENDS = (
    re.compile(r'(?<=<span class="pre">)[^<]+'),
    re.compile(r"(?<=\w[./])(?=[A-Za-z_])"),
)
LONG_WORD = re.compile(r"\w{20,}")
CONTENTS = """

```{{toctree}}
:caption: {caption}
:hidden:
{names}
```
"""
OTHER_LANGUAGE = re.compile(r"^(English · \[中文\]|\[English\])\(.*\n\n", re.MULTILINE)


def main(source=SOURCE, target=TARGET, repository="", home=""):
    """Copy the pages together under the names that their links use, and have Sphinx build them."""
    shutil.rmtree(source, ignore_errors=True)
    shutil.rmtree(target, ignore_errors=True)
    collect(source / "en", repository)
    for language in other.others():
        collect_other(source / language, repository, language)
    for language in ["", *other.others()]:
        folder = target / language
        command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going"]
        settings = {
            "REPO": repository,
            "HOME_PAGE": home,
            "SITE_LANGUAGE": language or "en",
            "SITE_FOLDER": f"{language}/" if language else "",
            "SITE_WORDS": json.dumps(words_of(language)),
            "SITE_OTHERS": json.dumps(switches(language)),
        }
        pages = source / (language or "en")
        done = subprocess.run([*command, pages, folder], env=os.environ | settings)
        if done.returncode:
            sys.exit(spoken("The site is not complete: the lines above say which page to mend."))
        leave_icons_out(folder)
        finish(folder)
    print(spoken("The site is in {}: open index.html there.", os.path.relpath(target, ROOT)))


def switches(language):
    """The other languages, from the root of the pages in this one: which of them they have."""
    up = "../" if language else ""
    return [
        {name: words_of(each)[name] for name in ("lang", "name", "front")}
        | {"folder": up + (f"{each}/" if each else "")}
        | {"pages": ["search", *other.pages_in(each or language)]}
        for each in ["", *other.others()]
        if each != language
    ]


def finish(folder):
    """Formulas are drawn, and names go on in the next line where they may."""
    pages = list(folder.rglob("*.html"))
    drawn = formulas.with_formulas([page.read_text(encoding="utf-8") for page in pages])
    for page, text in zip(pages, drawn, strict=True):
        text = CODE.sub(lambda code: breakable(code[0]), text)
        page.write_text(text, encoding="utf-8", newline="\n")


def breakable(code):
    """Behind a dot or `/`, and in a word that a phone has no line for behind `_`."""
    code = LONG_WORD.sub(lambda word: word[0].replace("_", "_<wbr>"), code)
    return NAME_ENDS.sub("<wbr>", code)


def leave_icons_out(folder):
    """Of the theme's icons those stay that a page or a script of the theme names."""
    script = folder / "_static" / "scripts" / "fontawesome.js"
    others = [path for path in script.parent.glob("*.js") if path != script]
    pages = [*folder.rglob("*.html"), *others]
    used = {name for page in pages for name in NAMES.findall(page.read_text(encoding="utf-8"))}

    def kept(icon):
        return icon[0] if used & {icon[1], *re.findall(r'"([\w-]+)"', icon[2])} else ""

    script.write_text(ICON.sub(kept, script.read_text(encoding="utf-8")), encoding="utf-8")


def lay_out(source):
    """What the pages of every language need."""
    (source / "_static").mkdir(parents=True)
    for name in ("course.css", "course.js", "favicon.svg"):
        shutil.copy(SETTINGS / name, source / "_static")
    shutil.copy(formulas.STYLE, source / "_static")
    shutil.copytree(SETTINGS / "templates", source / "templates")
    shutil.copy(SETTINGS / "conf.py", source)
    (source / "notebooks").mkdir()


def collect(source, repository):
    """Everything that Sphinx reads for the English pages, in one folder."""
    lay_out(source)
    shutil.copytree(PICTURES, source / "extra" / "pictures")
    shutil.copytree(colab.COPIES, source / "extra" / "notebooks" / "colab")
    shutil.copy(ROOT / "LICENSE", source)
    pages = [path.relative_to(ROOT).as_posix() for path in texts()]
    for name in [*pages, *TOOL, "reference.md"]:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        here = SETTINGS / name if name == "reference.md" else ROOT / name
        wide = WIDE if name.startswith(("survey/", "reference")) else ""
        text = OTHER_LANGUAGE.sub("", here.read_text(encoding="utf-8"))
        wide = SHEET if "CHEATSHEET" in name else wide
        text += wide + edit_link(here, text, repository)
        (source / name).write_text(text, encoding="utf-8")
    for picture in (ROOT / "survey").glob("*.svg"):
        shutil.copy(picture, source / "survey")
    shutil.copytree(ROOT / "survey" / "patches", source / "survey" / "patches")  # to download
    lessons = sorted((ROOT / "notebooks").glob("[0-9]_*.ipynb"))
    for lesson in lessons:
        (source / "notebooks" / lesson.name).write_text(page(lesson, repository), encoding="utf-8")
    front = front_page(SETTINGS / "front.md", lessons, repository)
    names = ["reference", *(name.removesuffix(".md") for name in pages)]
    front = linked_from_root(front) + contents(
        "The tool", [name.removesuffix(".md") for name in TOOL]
    )
    front += contents(words_of("")["pages"], names)
    (source / "index.md").write_text(front, encoding="utf-8")


def collect_other(source, repository, language):
    """The same in another language; links to what is not translated lead to the English pages."""
    lay_out(source)
    shutil.copy(SETTINGS / "chinese_search.py", source)
    lessons = other.lessons_in(language)
    for lesson in lessons:
        text = page(lesson, repository)
        (source / "notebooks" / lesson.name).write_text(text, encoding="utf-8")
    names = []
    (source / "docs" / "tool").mkdir(parents=True)
    for path in in_order(other.texts_in(language)):
        name = path.relative_to(ROOT).as_posix()
        text = OTHER_LANGUAGE.sub("", path.read_text(encoding="utf-8"))
        text += SHEET * ("CHEATSHEET" in name) + edit_link(path, text, repository, language)
        names.append(other.page_of(name, language))
        (source / f"{names[-1]}.md").write_text(linked(text, name, language), encoding="utf-8")
    path = other.front_of(language)
    front = front_page(path, lessons, repository)
    front = linked(front, path.relative_to(ROOT).as_posix(), language)
    front = other.led_to_english(front, language) + contents(words_of(language)["pages"], names)
    (source / "index.md").write_text(front, encoding="utf-8")


def linked_from_root(text):
    """The English front page, whose links lead from its file in docs/site, as the site's index."""

    def lead(link):
        return f"[{link[1]}]({posixpath.normpath(f'docs/site/{link[2]}')}{link[3] or ''})"

    return LINK.sub(lead, text).replace('src="../pictures/', 'src="pictures/')


def contents(caption, names):
    """A part of what the menu at the side holds."""
    return CONTENTS.format(caption=caption, names="\n".join(names))


def texts():
    """What is read beside the lessons; in the README's place the site has a front page."""
    found = [
        path
        for folder in (ROOT, ROOT / "docs", ROOT / "survey")
        for path in sorted(folder.glob("[A-Z]*.md"))
        if path.name != "README.md" and "." not in path.stem  # in another language
    ]
    return in_order(found)


def in_order(paths):
    names = {path: path.name.split(".")[0] for path in paths}
    return sorted(paths, key=lambda path: [*ORDER, names[path]].index(names[path]))


def page(lesson, repository):
    """The lesson as Sphinx reads it: each picture with its words as alternative text.

    A prediction is in a frame, its output and answer in one fold; below the title stands how to
    run the lesson.
    """
    notebook = nbformat.read(lesson, as_version=4)
    colab.take_badge_out(notebook)
    notebook.cells[0].source += f"\n\n{ways_to_run(lesson, repository)}"
    language, name = language_of(lesson), lesson.relative_to(ROOT).as_posix()
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = NAMED.sub(lambda file: to_page(file, name), cell.source)
            cell.source = linked(cell.source, name, language) if language else cell.source
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "image/svg+xml" in data:
                cell.metadata["mystnb"] = {"image": {"alt": words(output, language)}}
            if stepper.STEPS in data:
                picture, told = data["image/svg+xml"], data[stepper.STEPS]
                data["text/html"] = stepper.page(picture, told, language)
    notebook.cells = list(in_one_fold(notebook.cells, words_of(language)["reveal"]))
    return nbformat.writes(notebook)


def to_page(file, lesson):
    return f"[{file[0]}]({posixpath.relpath(file[1], posixpath.dirname(lesson))})"


def ways_to_run(lesson, repository):
    """Links: the copy that brings all it needs, and where it opens or is edited with one click."""
    language = language_of(lesson)
    words, root = words_of(language), "../.." if language else ".."
    ways = [f'<a href="{root}/{copy(lesson)}" download>{words["download"]}</a>']
    if repository:
        ways.insert(0, f'<a href="{colab.address(lesson, repository)}">{words["colab"]}</a>')
        catalogue = ROOT / "translations" / language / f"{lesson.stem}.po"
        ways.append(edit(catalogue if language else lesson, repository, language))
    return f'<p class="ways">{" · ".join(ways)}</p>'


def edit(path, repository, language=""):
    name = path.relative_to(ROOT).as_posix()
    address = f"https://github.com/{repository}/edit/main/{name}"
    return f'<a href="{address}">{words_of(language)["edit"]}</a>'


def edit_link(path, text, repository, language=""):
    """The last line of a page that somebody wrote; some are written by a command, and say so."""
    by_command = "Written by `make" in text[:200]
    if by_command or not repository:
        return ""
    return f'\n\n<p class="ways">{edit(path, repository, language)}</p>\n'


def copy(lesson):
    """Where the copy that brings all it needs is, from the root of the site."""
    return colab.copy_of(lesson).relative_to(ROOT).as_posix()


def front_page(path, lessons, repository):
    """The front page, and behind it the lessons in the menu at the side."""
    words, root = words_of(language_of(lessons[0])), "../" if language_of(lessons[0]) else ""
    first = ([each for each in lessons if each.name.startswith("1_")] or lessons)[0]
    run = (words["run"], colab.address(first, repository))
    download = (words["first"], f"{root}{copy(first)}")
    words_of_it, target = run if repository else download
    text = path.read_text(encoding="utf-8")
    text = text.replace("RUN_WORDS", words_of_it).replace("RUN_TARGET", target)
    text = text.replace("LESSONS", "\n".join(map(card, lessons)))
    text = text.replace("CUT_A_PATH", first_figure(language_of(lessons[0])))
    rows = survey.table.read()
    wrong, counted = survey.table.read_as(rows, survey.table.WRONG), survey.table.counted(rows)
    text = text.replace("WRONG", str(len(wrong))).replace("COUNTED", str(len(counted)))
    text += edit_link(path, text, repository, language_of(lessons[0]))
    return text + contents(words["lessons"], [f"notebooks/{lesson.stem}" for lesson in lessons])


def first_figure(language):
    """Lesson 4's figure, whose paths can be cut."""
    figure = cut_a_path()
    return stepper.page(figure.svg, figure.data, language)


def card(lesson):
    """A lesson as a box to click: what it is about in a line of code, and what one can do then."""
    notebook = nbformat.read(lesson, as_version=4)
    title, promise = notebook.cells[0].source.split("\n\n")[:2]
    times = minutes.told(notebook.metadata["minutes"])
    promise, words = html.escape(promise).replace("`", ""), words_of(language_of(lesson))
    return (
        f'<a class="box" href="notebooks/{lesson.stem}.html"><b>{html.escape(title[2:])}</b>'
        f"<code>{html.escape(LINES[lesson.stem])}</code>"
        f"<span>{promise}</span><small>{words['minutes'].format(*times)}</small></a>"
    )


if __name__ == "__main__":
    main(repository=address.repository(), home=address.named("Documentation").rstrip("/"))
