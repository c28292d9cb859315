"""The graph of the first derivative: of an answer, beside that of a right one."""

import re
from collections.abc import Callable

import torch
from IPython.display import display
from torch.autograd import grad

from double_backward import draw

from .language import Phrase, in_language
from .task import Task

YOURS = Phrase("The graph of your derivative. What does it lead back to?")
MISSING = re.compile(r"is cut off|(?:path is|paths are) missing")
RIGHT = Phrase("And that of a right answer. What is there that yours has not?")


def show_both(task: Task, answer: Callable, right: Callable) -> None:
    """Display both, in a notebook as pictures, where a path is missing in the first: else the two
    would look the same. Raises what the answer raises."""
    setting, drawn = task.plain[0], []
    for fn in (answer, right):
        args, _ = setting.fresh()
        with torch.inference_mode(False), torch.enable_grad():
            for place in setting.places:
                args[place] = args[place].clone()  # which has a node of its own
            out, names = fn(*args), task.differentiated(setting)
            gradients = grad(out.sum(), [args[i] for i in setting.places], create_graph=True)
        named = dict(zip(names, (args[i] for i in setting.places), strict=True))
        named |= {f"grad_{n}": g for n, g in zip(names, gradients, strict=True)}
        drawn.append(draw(**named, out=out))
    if MISSING.search(str(drawn[0])):
        for said, drawing in zip((YOURS, RIGHT), drawn, strict=True):
            print(in_language(said))
            display(drawing)
