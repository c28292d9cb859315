import csv
import re
from pathlib import Path

import nbformat
import pytest
import torch
from formulas import FORMULAS, points
from torch.autograd import gradcheck, gradgradcheck

from lessons_src.derivatives import second
from lessons_src.what_not_to_do import SinhBad

LESSON = Path(__file__).parent.parent / "notebooks" / "4_what_not_to_do.ipynb"
SURVEY = Path(__file__).parent.parent / "survey"


def test_value_and_first_derivative_are_right():
    x = points()
    assert torch.allclose(SinhBad.apply(x), torch.sinh(x))
    assert gradcheck(SinhBad.apply, x)


def test_alone_it_raises():
    with pytest.raises(RuntimeError, match="does not require grad and does not have a grad_fn"):
        second(SinhBad.apply, points())


@pytest.mark.parametrize(
    "formula, lie",
    [("after", [2.5431, 4.7622]), ("before", [2.0628, 3.0862]), ("beside", [2.0, 2.0])],
)
def test_in_a_formula_it_gives_the_wrong_number_that_the_lesson_prints(formula, lie):
    x = points()
    ours = second(FORMULAS[formula](SinhBad.apply), x)
    assert torch.allclose(ours, torch.tensor(lie, dtype=torch.float64), atol=1e-4)
    assert not torch.allclose(ours, second(FORMULAS[formula](torch.sinh), x), rtol=0.05)


def test_gradgradcheck_fails():
    assert not gradgradcheck(SinhBad.apply, points(), raise_exception=False)


def test_the_exponentials_are_on_ctx_without_a_graph():
    out = SinhBad.apply(points())
    node = out.grad_fn
    assert sorted(vars(node)) == ["expnegx", "expx"]
    assert not node.expx.requires_grad
    assert node.saved_tensors == ()


def test_what_was_met_in_the_wild_is_what_the_survey_stores():
    text = "\n".join(cell.source for cell in nbformat.read(LESSON, as_version=4).cells)
    told = text.split("## Met in the wild")[1].split("\n## ")[0]
    program = (SURVEY / "documented" / "gpytorch_matern.py").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```python\n(.*?)```", told, re.DOTALL)
    assert shown.strip() in program
    with (SURVEY / "documented.csv").open(encoding="utf-8") as file:
        row = next(row for row in csv.DictReader(file) if row["name"] == "gpytorch_matern")
    numbers = [row["got"], row["expected"], row["instead"]]
    assert re.findall(r"\*\*(.*?)\*\*", told) == numbers[:2] and numbers[2] == numbers[1]
    assert re.search(r"GPyTorch (\S+),", told)[1] in (SURVEY / "packages.txt").read_text("utf-8")
    for written in re.findall(r"\]\((https.*?)\)|\"(.*?)\"", told):
        assert max(written) in program
