"""What is said twice, in words and in numbers or code: sums, formulas, names, what a lesson has."""

import ast
import math
import re
from functools import cache
from itertools import pairwise
from pathlib import Path

import nbformat
import pytest
import scipy.special
import torch

from lessons_src.exercises import exercises

ROOT = Path(__file__).resolve().parent.parent
LESSONS = sorted((ROOT / "notebooks").glob("[0-9]_*.ipynb"))
TEXTS = [
    *LESSONS,
    *sorted((ROOT / "notebooks" / "zh_CN").glob("[0-9]_*.ipynb")),
    *[path for path in ROOT.glob("*.md") if path.name != "CHANGELOG.md"],
    *sorted(ROOT.glob("docs/**/*.md")),
    *sorted(ROOT.glob("double_backward/**/*.py")),
    *sorted(ROOT.glob("lessons_src/**/*.py")),
]
NUMBER = r"-?\d+(?:\.\d+)?"
CHAIN = rf"{NUMBER}(?: [-+·×*/] {NUMBER})*"
SUM = re.compile(
    rf"(?<![-+·×*/(] )(?<![\w.²³^(])(?=[^=\n]*? [-+·×*/] \d|{NUMBER} = [^=\n]*? [-+·×*/] \d)"
    rf"{CHAIN}(?: = {CHAIN})+(?![\w²³])"
)


@cache
def prose(path):
    """What is read: of a notebook the text, of a module all of it."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".ipynb":
        return text
    cells = nbformat.reads(text, as_version=4).cells
    return "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


def sums_in(path_or_text):
    """Each chain of numbers and = in it; `0.9 through expx` is a number, too."""
    text = path_or_text if isinstance(path_or_text, str) else prose(path_or_text)
    return SUM.findall(re.sub(r"(?<=\d) through [\w.]*\w", "", text))


def holds(said):
    """Whether both sides of each = come to the same, as far as the digits of decimals go."""
    places = [len(number.partition(".")[2]) for number in re.findall(NUMBER, said)]
    rounded = sum(0.5 * 10**-digits for digits in places if digits) + 1e-9
    values = [eval(re.sub("[·×]", "*", each)) for each in said.split(" = ")]
    return max(values) - min(values) <= rounded


def test_sums_and_products_in_the_text_come_to_what_they_are_said_to():
    found = [(path.name, said) for path in TEXTS for said in sums_in(path)]
    assert len(found) >= 10
    assert [each for each in found if not holds(each[1])] == []


def test_a_sum_that_is_wrong_is_noticed():
    said = "keep 32 + 8 + 32 = 76, h · g · 6x = 7 · 5 · 12 = 420, 2.543 + 0.8591 - 0.3161 = 3.086"
    said += ", 0.5431 = 0.8591 through expx - 0.3161 through c.e, 0.50 = 0.30 + 0.10, 7 · 12 = 48"
    assert [holds(each) for each in sums_in(said)] == [False, True, True, True, False, False]


def test_what_a_room_needs_is_what_a_learner_needs_times_learners():
    """Ten were measured, thirty are reckoned from that: as many times as much."""
    text = re.sub(r"\s+", " ", (ROOT / "docs" / "TEACHING.md").read_text(encoding="utf-8"))
    measured = r"(\d+) learners, no failure, (\d+) MB a learner and ([\d.]+) GB in all"
    learners, each, whole = map(float, re.search(measured, text).groups())
    assert round(learners * each / 1000, 1) == whole
    people, needed = map(float, re.search(r"(\d+) people need about (\d+) GB", text).groups())
    assert 1 <= needed / (people * each / 1000) <= 1.1


# A number that a lesson tells, and no cell of it prints: who says it.
SHOWN = re.compile(r"(?<![\w.])\d+\.\d{2,}(?!\w)|(?<![\w.])\d{3,}(?![\w.])")
SIGMOID = torch.tensor(0.5).sigmoid().item()
ELSEWHERE = {
    "1_saving_inputs": ["0.000001", f"{30 * 0.5**4}"],
    "2_saving_outputs": [
        f"{math.log(torch.finfo(torch.float64).max):.2f}",
        f"{SIGMOID * (1 - SIGMOID) ** 2:.4f}",
        f"{SIGMOID * (1 - SIGMOID) * (2 * SIGMOID - 1):.4f}",
    ],
    "4_what_not_to_do": ["2019", "1000"],
}


def untold(path):
    """The numbers in its text that neither a cell of it prints, or has, nor the survey."""
    cells = nbformat.read(path, as_version=4).cells
    code = [cell.source + str(cell.outputs) for cell in cells if cell.cell_type == "code"]
    code += [(ROOT / "survey" / "documented.csv").read_text(encoding="utf-8")]
    shown = "\n".join([*code, *ELSEWHERE.get(path.stem, ())])
    return {number for number in SHOWN.findall(prose(path)) if number not in shown}


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_a_number_of_three_digits_in_a_lesson_is_one_that_it_shows(lesson):
    assert untold(lesson) == set()


# Formulas that words state: what `check` says of a mistake, and of a term.

# In words, or of a part of what backward returns alone.
IN_WORDS = (
    "grad_out times the sign of x: ",
    "grad_out times the staircase itself.",
    "grad_out times the inverse.",
    "the transpose of the right matrix: ",
    "the derivative of det, ",
    "right for n = 3 only.",
    "u w^T.",
)
FUNCTIONS = ("exp", "cosh", "sinh", "tanh", "cos", "sin", "log", "abs", "sum")


def as_python(formula):
    """A formula as it is written for a reader: 2 x D' is a product, |x| a size, e^-x a power."""
    formula = re.sub(r"e\^(-?)x", r"exp(\1x)", formula).replace("²", "**2")
    formula = re.sub(r"\|(\w+)\|", r"abs(\1)", formula).replace("D'", "slope")
    formula = formula.replace("D(x)", "D")
    return re.sub(r"(?<=[\w)]) (?=[\w(])", "*", formula)


def names_of(task, g, args, h):
    """What the letters of a formula stand for."""
    found = dict(zip(task.inputs, args, strict=True)) | {"grad_out": g, "g": g, "h": h}
    found |= {function: getattr(torch, function) for function in FUNCTIONS}
    found |= {"out": task.truth(*args), "pi": math.pi}
    if task.name == "sin_cos":  # whose words name the two outputs and their gradients
        (found["sin"], found["cos"]), found["grad_sin"], found["grad_cos"] = found["out"], *g[:2]
    if "x" in found:
        x = found["x"]
        d = torch.from_numpy(scipy.special.dawsn(x.numpy()))
        found |= {"s": torch.sigmoid(x), "D": d, "slope": 1 - 2 * x * d}
        found |= {"norm": x.norm(), "r": x.norm(), "y": found["out"]}
    return found


def stated():
    """(task, formula, function) of each that is stated; `h` comes first for a second derivative."""
    for name, exercise in exercises().items():
        task = exercise.TASK
        for words, fn in [*task.slips.items(), *task.second_slips.items()]:
            said = re.sub(r"^That is ", "", words)
            if said == words or said.startswith(IN_WORDS):
                continue
            formula = re.split(r"[.:](?= |$)|, with |, the |: | alone", said)[0]
            for each in re.split(r",? or ", formula):
                yield pytest.param(task, each, fn, words in task.second_slips, id=f"{name}: {each}")
        for formula, fn in task.terms.items():
            if name != "standardise":  # in names of its solution
                yield pytest.param(task, formula, fn, False, id=f"{name}: {formula}")


@pytest.mark.parametrize("task, formula, fn, second", list(stated()))
def test_a_formula_in_words_is_the_one_in_code(task, formula, fn, second):
    args = task.points[0]
    g, h = (torch.tensor([1.5, -0.7, 2.2], dtype=torch.float64)[: len(args[0])] for _ in "gh")
    h = 1 - h
    meant = eval(as_python(formula), names_of(task, g, args, h))
    assert torch.allclose(meant, fn(h, g, *args) if second else fn(g, *args)), as_python(formula)


# Names in a cell.


def pairs(node):
    """(text, what stands beside it) in a tuple, or in a call, but check's of an exercise."""
    for each in ast.walk(node):
        if isinstance(each, ast.Call) and getattr(each.func, "id", "") == "check":
            continue
        items = each.elts if isinstance(each, ast.Tuple) else getattr(each, "args", [])
        for one, other in pairwise(items if isinstance(items, list) else []):
            if isinstance(one, ast.Constant) and isinstance(one.value, str):
                yield one.value.strip(" :"), other


def names_in(node):
    found = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return found | {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}


def plain(name):
    return name.replace("_", "").lower()


def misnamed(source, known):
    """Of a text that is a known name, and stands before another known one: both.

    A Function and what applies it are one: QuadForm and quad_form.
    """
    known = {plain(name) for name in known}
    lines = ["" if line.startswith(("%", "!")) else line for line in source.splitlines()]
    for text, beside in pairs(ast.parse("\n".join(lines))):
        used = set(map(plain, names_in(beside))) & known
        if plain(text) in known and used and plain(text) not in used:
            yield text, ast.unparse(beside)


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_what_is_printed_under_a_name_is_of_that_name(lesson):
    cells = nbformat.read(lesson, as_version=4).cells
    sources = [cell.source for cell in cells if cell.cell_type == "code"]
    whole = "\n".join(sources)
    known = set(re.findall(r"^(?:class|def) (\w+)", whole, re.M))
    for names in re.findall(r"^from lessons_src\S* import (.+)", whole, re.M):
        known |= set(names.split(", "))
    assert [found for source in sources for found in misnamed(source, known)] == []


def test_a_function_under_another_ones_name_is_noticed():
    source = 'for name, f in [("quad_a", quad_b), ("other", quad_a)]:\n    print("quad_a", quad_a)'
    assert list(misnamed(source, {"quad_a", "quad_b"})) == [("quad_a", "quad_b")]


# "Lesson 4 shows": it has the word.

LINKED = re.compile(r"[Ll]esson (\d)\]\((?:[\w./]*/)?(\d)_")
HEADED = re.compile(r'[Ll]esson (\d), "([^"]+)"')
CODED = [
    re.compile(r"[Ll]esson (\d)'s `(\w+)`"),
    re.compile(r"[Ll]esson (\d)(?:\]\([^)]*\))? shows `(\w+)`"),
]
CODED_BEFORE = re.compile(r"`(\w+)` (?:of|in|\(|from) ?\[?[Ll]esson (\d)")
BROKEN = re.compile(r"[Ll]esson (\d), break it (\d)")


def references(text):
    """(lesson, what it is said to have) of all that a text says."""
    for pattern in (LINKED, HEADED, *CODED):
        yield from pattern.findall(text)
    yield from ((number, word) for word, number in CODED_BEFORE.findall(text))
    yield from ((number, f"Break it, {which}: ") for number, which in BROKEN.findall(text))


@cache
def text_of(number):
    (lesson,) = (path for path in LESSONS if path.stem.startswith(f"{number}_"))
    return "\n".join(cell.source for cell in nbformat.read(lesson, as_version=4).cells)


def missing(text):
    for number, word in references(text):
        if word != number if word.isdigit() else word not in text_of(int(number)):
            yield number, word


def test_a_lesson_has_what_it_is_said_to_show():
    found = [(path.name, each) for path in TEXTS for each in references(prose(path))]
    assert len(found) > 60
    assert [(path.name, each) for path in TEXTS for each in missing(prose(path))] == []


def test_a_lesson_that_does_not_show_it_is_noticed():
    text = "`Sinh` (lesson 3), lesson 4's `SinhBad`, lesson 5's `SinhBad`, lesson 1's `Cube`,"
    text += "[lesson 4](../notebooks/5_untracked_backward.ipynb), lesson 3, break it 4"
    found = [("1", "Cube"), ("3", "Break it, 4: "), ("4", "5"), ("5", "SinhBad")]
    assert sorted(missing(text)) == found


@pytest.mark.parametrize("name, exercise", exercises().items(), ids=exercises())
def test_an_exercise_is_one_of_the_lesson_that_it_names(name, exercise):
    (number,) = re.findall(r"^Exercise of lesson (\d): ", exercise.__doc__)
    assert f'check("{name}"' in text_of(int(number))
