"""The students' edition: a lesson to work through, with nothing in it that tells an answer."""

import copy

from .carry import SOLUTION, carry
from .folds import without_answers, without_outputs
from .paper import for_paper


def student(notebook, language=""):
    notebook = copy.deepcopy(notebook)
    without_answers(notebook)
    without_outputs(notebook)
    carry(notebook, language, end=SOLUTION)
    for_paper(notebook)
    return notebook
