"""The graph of the first derivative: of an answer, beside that of a right one."""

from collections.abc import Callable

import torch
from IPython.display import display
from torch.autograd import grad

from double_backward import draw

from .language import Phrase, in_language
from .task import Task

YOURS = Phrase("The graph of your derivative. What does it lead back to?")
RIGHT = Phrase("And that of a right answer. What is there that yours has not?")


def show_both(task: Task, answer: Callable, right: Callable) -> None:
    """Display both, in a notebook as pictures. Raises what the answer raises."""
    setting = task.plain[0]
    for said, fn in ((YOURS, answer), (RIGHT, right)):
        args, _ = setting.fresh()
        with torch.inference_mode(False), torch.enable_grad():
            for place in setting.places:
                args[place] = args[place].clone()  # which has a node of its own
            out, names = fn(*args), task.differentiated(setting)
            gradients = grad(out.sum(), [args[i] for i in setting.places], create_graph=True)
        named = dict(zip(names, (args[i] for i in setting.places), strict=True))
        named |= {f"grad_{n}": g for n, g in zip(names, gradients, strict=True)}
        print(in_language(said))
        display(draw(**named, out=out))
