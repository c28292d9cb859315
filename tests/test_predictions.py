"""Each prediction's expected answer stands in its cell's metadata; here it meets the output."""

import re
from pathlib import Path

import nbformat
import pytest

LESSONS = sorted((Path(__file__).parent.parent / "notebooks").glob("[1-9]_*.ipynb"))


def predictions(notebook):
    """(cell that answers a prediction, the Markdown cell below it) for each in the notebook."""
    cells = notebook.cells
    for cell, below in zip(cells, cells[1:], strict=False):
        if "expected" in cell.metadata:
            yield cell, below


def printed(cell):
    """All text that the stored run of a cell printed."""
    texts = []
    for output in cell.outputs:
        texts += [output.get("text", ""), output.get("evalue", "")]
        texts.append(output.get("data", {}).get("text/plain", ""))
    return "\n".join(texts)


@pytest.fixture(params=LESSONS, ids=lambda path: path.stem)
def notebook(request):
    return nbformat.read(request.param, as_version=4)


def test_every_expected_answer_was_printed(notebook):
    for cell, _ in predictions(notebook):
        for answer in cell.metadata["expected"]:
            assert answer in printed(cell), f"{answer!r} is not in the output of:\n{cell.source}"


# What a formula's signs hold together, but for the number that it comes to.
TERM = r"[\w.²³'()^]+"
FORMULA = re.compile(rf"{TERM}(?: [-+·×/=] {TERM})+?(?=(?: = [\d.]*\d)?(?! [-+·×/=] |[\w²³]))")
NO_CLAIM = re.compile(r"`[^`]*`|<code>.*?</code>|</?\w+>|[Ll]essons? \d|x = [\d.]*\d")
NUMBER = re.compile(r"(?<![\w.'^])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\d²³]|[a-df-z])")


def numbers(text):
    return [float(number) for number in NUMBER.findall(text)]


def sentences(answer):
    """Without code, formulas, places and lessons: what is left are numbers that somebody saw."""
    text = FORMULA.sub("", NO_CLAIM.sub("", re.sub(r"\n(?:> ?)?", " ", answer)))
    return re.split(r"(?<=[.:?)]) ", text)


def in_order(some, of):
    """Whether these are met one after another; what is said twice in a row may stand there once."""
    left = iter(of)
    distinct = [one for n, one in enumerate(some) if not n or some[n - 1] != one]
    return all(one in left for one in distinct)


def unseen(answer, cell):
    """The sentences whose numbers are not printed in this order, nor such as the cell sets."""
    seen = numbers(printed(cell))
    for sentence in sentences(answer):
        said = numbers(sentence)
        strange = set(said) - {*seen, *numbers(cell.source)}
        if strange or not in_order([number for number in said if number in seen], seen):
            yield sentence


def test_numbers_of_an_answer_are_those_that_its_cell_prints(notebook):
    for cell, below in predictions(notebook):
        answer = re.search(r"<summary>Answer</summary>(.*?)</details>", below.source, re.S)[1]
        assert not [*unseen(answer, cell)], f"{cell.source}\nprints\n{printed(cell)}"


def test_numbers_of_an_answer_that_are_swapped_or_wrong_are_noticed():
    cell = nbformat.v4.new_code_cell("x = 7", outputs=[])
    cell.outputs = [
        nbformat.v4.new_output("stream", text="tensor([ 3., 12.])\n[2., 8.] 84 1e+03\n")
    ]
    right = "3 and 12 for x, 2 and 8 for 7: h · 3x² = 7 · 12 = 84, as in lesson 5. Then 1000."
    assert not [*unseen(right, cell)]
    for wrong in ("2 and 8, then 3 and 12.", "3 and 13.", "7 · 12 = 48.", "12 and 3."):
        assert [*unseen(wrong, cell)], wrong


def test_every_answer_is_folded_right_below(notebook):
    for cell, below in predictions(notebook):
        folded = below.source.removeprefix("> ")  # a quotation sets it off
        assert folded.startswith("<details><summary>Answer</summary>"), cell.source


def test_at_least_four_predictions(notebook):
    assert len(list(predictions(notebook))) >= 4


def test_every_folded_answer_has_an_expected_one(notebook):
    answers = sum(cell.source.count("<summary>Answer</summary>") for cell in notebook.cells)
    expected = len(list(predictions(notebook)))
    assert answers == expected, (
        f"{answers} answers are folded, and the metadata of {expected} cells above one have "
        "`expected`: a list of what such a cell prints that the answer says"
    )
