"""The lessons in other languages: `make translations`.

translations/LANGUAGE/LESSON.po is a gettext catalogue with an entry for each paragraph of the
lesson's Markdown; an empty file begins one. The catalogues are updated from notebooks/, and from
both come the notebooks in notebooks/LANGUAGE/. Nothing is executed: code cells and their outputs
are the English ones, but that the first cell begins with the language in which the notebook is
answered. What has no translation, or one marked fuzzy, stands in English.

Six catalogues are of programs: translations/LANGUAGE/exercises.po has what hint and check say,
wrong_answers.po what a teacher says to wrong answers, which no students' edition carries,
double_backward.po the findings of `diagnose`, graphs.po and pictures.po what stands beside and in
the place of a picture, and make.po what `make`, the editions and the website say. Compiled for
gettext, they stand beside the modules.
"""

import ast
import re
from collections import Counter
from io import BytesIO

import nbformat
from babel.messages.catalog import Catalog
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po

from double_backward.diagnosis.conclusions.findings import ROWS
from double_backward.diagnosis.conclusions.verdict import Verdict
from double_backward.diagnosis.preparation.formulas import Setting
from double_backward.diagnosis.preparation.functions import Kind
from double_backward.diagnosis.preparation.prepare import NOT_CHECKED
from double_backward.graphs import words
from lessons_src import picture_words
from lessons_src.exercises import errors, exercises
from lessons_src.exercises.changes import wrong_answers
from lessons_src.exercises.language import WRONG_ANSWERS

from . import colab
from .carry import ROOT, SAID
from .languages import ENGLISH, words_of

NOTEBOOKS = ROOT / "notebooks"
PROGRAMS = {
    "exercises": ROOT / "lessons_src" / "exercises",
    "wrong_answers": WRONG_ANSWERS,
    "double_backward": ROOT / "double_backward",
    "graphs": ROOT / "double_backward" / "graphs",
    "pictures": ROOT / "lessons_src",
    "make": ROOT / "scripts",
}
TRANSLATIONS = ROOT / "translations"
# Empty lines, in a quotation too; what is fenced is code, and stays.
BETWEEN = re.compile(r"((?:\A|\n+)```.*?\n```\n*|\n(?:>? *\n)+)", re.DOTALL)
MARKUP_ALONE = re.compile(r"[> ]*(</\w+>)?")
NUMBER = re.compile(r"\d+(?:\.\d+)?")
LINK = re.compile(r"\]\((?!\w+:|#)([^)\s]+)\)")


def main():
    for path in sorted(TRANSLATIONS.glob("*/*.po")):
        catalogue = updated(path)
        with path.open("wb") as file:
            write_po(file, catalogue, width=None)  # a line of the lesson is a line here
        copy = made_from(path)
        copy.parent.mkdir(exist_ok=True)
        copy.write_bytes(content(path, catalogue))
        total, missing, fuzzy = counts(catalogue)
        told = f"{total} entries, {missing} missing, {fuzzy} fuzzy"
        print(f"{path.parent.name} {path.stem}: {told}")


def made_from(path):
    """The file that is written from a catalogue."""
    if path.stem in PROGRAMS:
        return PROGRAMS[path.stem] / f"{path.parent.name}.mo"
    return NOTEBOOKS / path.parent.name / f"{path.stem}.ipynb"


def content(path, catalogue):
    """What stands in that file."""
    if path.stem not in PROGRAMS:
        return translated(english_of(path), catalogue, path.parent).encode()
    compiled = BytesIO()
    write_mo(compiled, catalogue)
    return compiled.getvalue()


def english_of(path):
    return NOTEBOOKS / f"{path.stem}.ipynb"


def read_catalogue(path):
    with path.open("rb") as file:
        return read_po(file, locale=path.parent.name)


def updated(path):
    """The catalogue with an entry for each paragraph that the lesson has now.

    An entry whose English was reworded keeps its translation and is marked fuzzy, unless only
    numbers changed, which are changed there too; one that is not in the lesson any more is
    obsolete, and stands at the end as a comment.
    """
    catalogue = read_catalogue(path)
    if not path.read_bytes():
        catalogue.project, catalogue.version = "double-backward", path.stem
        catalogue.header_comment = (
            "# Updated by `make translations`; terms.md has the words to use."
        )
        catalogue.last_translator = catalogue.language_team = catalogue.msgid_bugs_address = ""
        catalogue.fuzzy = False
    fresh = template(path)
    renumber(catalogue, fresh)
    catalogue.update(fresh, update_creation_date=False)
    return catalogue


def renumber(catalogue, fresh):
    """Put other numbers into an entry and its translation where nothing else changed in English.

    Where that cannot be told apart, of two numbers that were equal or of one that the translation
    has not as often, a person looks. What is changed is printed: a number that is wrong in English
    is wrong in the translation, too, now.
    """
    gone = [message for message in catalogue if message.id and message.id not in fresh]
    known = {NUMBER.sub("#", message.id): message for message in gone}
    for message in fresh:
        old = known.get(NUMBER.sub("#", message.id)) if message.id not in catalogue else None
        if old is None or old.fuzzy:
            continue
        pairs = set(zip(NUMBER.findall(old.id), NUMBER.findall(message.id), strict=True))
        other = {one: another for one, another in pairs if one != another}
        were, are = (Counter(NUMBER.findall(text)) for text in (old.id, old.string))
        if all(sum(n == one for n, _ in pairs) == 1 and were[one] == are[one] for one in other):
            string = NUMBER.sub(
                lambda found, other=other: other.get(found[0], found[0]), old.string
            )
            moved = ", ".join(f"{one} is {another} now" for one, another in sorted(other.items()))
            print(f"{catalogue.locale_identifier} {catalogue.version}: {moved}: {string}")
            catalogue.delete(old.id)
            catalogue.add(message.id, string, locations=old.locations)


def template(path):
    """The English entries, each with its place: the id of a cell, or the name of a module."""
    found = Catalog()
    if path.stem in PROGRAMS:
        for place, text in [*phrases_in(PROGRAMS[path.stem]), *TABLES[path.stem]()]:
            found.add(text, locations=[(place, None)])
        return found
    for cell in markdown_cells(read_lesson(english_of(path))):
        for paragraph in paragraphs(cell.source):
            found.add(paragraph, locations=[(cell.id, None)])
    return found


def of_exercises():
    """What stands in tables there."""
    yield from (("errors", advice) for advice in errors.ADVICE.values())
    for name, exercise in exercises().items():
        task = exercise.TASK
        point = [task.point.said] if task.point else []
        texts = [task.asks, *task.hints, *task.slips, *task.second_slips, *task.cures.values()]
        yield from ((name, text) for text in texts + point)


def of_wrong_answers():
    """What a teacher reads: the name of each, and what to say to it."""
    for name, exercise in exercises().items():
        for each in wrong_answers(exercise):
            yield from ((name, text) for text in (each.name, each.say))


def of_findings():
    """The same of `diagnose`."""
    yield from (("findings", row.says) for row in ROWS.values() if row.says and row.says != "{}")
    yield from (("functions", str(kind)) for kind in Kind)
    yield from (("formulas", str(setting)) for setting in Setting)
    yield from (("prepare", text) for text in NOT_CHECKED.values())
    for verdict in Verdict:
        for order in ("second", "third"):
            yield "verdict", verdict.headline.replace("second", order)


def of_graphs():
    own = [each for each in words.TEMPLATES if each not in picture_words.TEMPLATES]
    yield from (("words", text) for text in own)


def of_pictures():
    texts = [*picture_words.TEMPLATES, *picture_words.CONTROLS]
    yield from (("picture_words", text) for text in texts)


def of_make():
    """What the editions and the website say of their own, and the first cells of a copy."""
    yield from (("languages", text) for text in ENGLISH.values())
    yield from (("carry", text) for text in SAID)


TABLES = {
    "exercises": of_exercises,
    "wrong_answers": of_wrong_answers,
    "double_backward": of_findings,
    "graphs": of_graphs,
    "pictures": of_pictures,
    "make": of_make,
}


TOLD = ("Phrase", "joined", "spoken")  # the last is that of scripts/said.py


def phrases_in(folder):
    """The templates that stand in calls of `TOLD`, or in a variable that these get."""
    others = [other for other in PROGRAMS.values() if folder in other.parents]
    for path in sorted(folder.rglob("*.py")):
        if set(others) & set(path.parents):
            continue  # they have a catalogue of their own
        tree = ast.parse(path.read_text(encoding="utf-8"))
        named = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                named.setdefault(node.targets[0].id, []).append(node.value)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
                given = node.args[0]
                given = named.get(given.id, []) if isinstance(given, ast.Name) else [given]
                texts = [text for each in given for text in constants(each)]
                for text in texts if node.func.id in TOLD else []:
                    yield path.stem, text


def constants(node):
    """The text, or both of `one if so else another`."""
    if isinstance(node, ast.IfExp):
        return constants(node.body) + constants(node.orelse)
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return [node.value] if is_text else []


def translated(english, catalogue, folder):
    """The text of the translated notebook; `folder` holds the catalogues of its language."""
    notebook = read_lesson(english)
    for cell in markdown_cells(notebook):
        parts = BETWEEN.split(cell.source)
        parts[::2] = [translation(part, catalogue) for part in parts[::2]]
        cell.source = LINK.sub(lambda link: f"]({target(link[1], folder)})", "".join(parts))
    for cell in [cell for cell in notebook.cells if cell.cell_type == "code"][:1]:
        cell.source = answers_in(folder.name) + cell.source
    if home := colab.home_of(nbformat.read(english, as_version=4)):
        badge = f"[Open in Colab]({home}/{folder.name}/{english.name})"
        notebook.cells[0].source += f"\n\n{badge}"
    return nbformat.writes(notebook) + "\n"


def answers_in(language):
    """The lines with which a notebook says in which language it is to be answered."""
    said = f'os.environ["COURSE_LANGUAGE"] = "{language}"  # {words_of(language)["answers"]}'
    return f"import os\n{said}\n"


def translation(paragraph, catalogue):
    message = catalogue.get(paragraph) if paragraph else None
    return message.string if message and message.string and not message.fuzzy else paragraph


def target(link, folder):
    """A translated lesson is in the same folder; everything else is where it was, one higher."""
    name = link.partition("#")[0]
    return link if (folder / name).with_suffix(".po").exists() else f"../{link}"


def read_lesson(english):
    notebook = nbformat.read(english, as_version=4)
    colab.take_badge_out(notebook)  # it opens the English copy
    return notebook


def markdown_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "markdown"]


def paragraphs(source):
    """What stands between empty lines, without code and tags that stand alone."""
    return [part for part in BETWEEN.split(source)[::2] if not MARKUP_ALONE.fullmatch(part)]


def counts(catalogue):
    """How many entries there are, without a translation, and marked fuzzy."""
    entries = [message for message in catalogue if message.id]
    missing = sum(not message.string for message in entries)
    return len(entries), missing, sum(message.fuzzy for message in entries)


if __name__ == "__main__":
    main()
