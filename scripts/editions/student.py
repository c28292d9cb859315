"""The students' edition: a lesson to work through, with nothing in it that tells an answer."""

import copy

from .carry import SOLUTION, carry
from .folds import without_answers, without_outputs


def student(notebook, language=""):
    notebook = copy.deepcopy(notebook)
    without_answers(notebook)
    without_outputs(notebook)
    carry(notebook, language, end=SOLUTION)
    return notebook
