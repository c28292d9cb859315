"""What a check can answer, and how an error of the reader's own code is told."""

import ast
import inspect
import linecache
import re
import sys
import sysconfig
import textwrap
import traceback
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import torch
from torch.autograd.function import FunctionCtx

from .language import in_its_language

PACKAGE = str(Path(__file__).resolve().parent.parent)
INSTALLED = tuple(
    sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")
)


@dataclass
class Reply:
    """An answer: `status` is "right", "wrong" or "neutral"; `advice` says what to change.

    `names_cause` is True where the advice says why the second derivative is wrong.
    """

    status: str
    fact: str
    advice: str = ""
    names_cause: bool = False

    def __str__(self):
        """For the screen, without the name of the exercise."""
        return self.told("")

    def told(self, name):
        """For the screen: the fact behind the name, and what to change on lines of its own."""
        lines = [f"{name}{self.fact}", self.advice]
        return "\n".join(
            textwrap.fill(line, 100, break_on_hyphens=False, break_long_words=False)
            for line in lines
            if line
        )


class Said(Exception):
    """Ends a review. Its one argument is the `Reply`."""


def wrong(fact, advice="", names_cause=False):
    raise Said(Reply("wrong", fact, advice, names_cause))


def neutral(fact):
    raise Said(Reply("neutral", fact))


def survived(advise, *args):
    """What `advise` says; "" where the answer does not survive the experiment."""
    try:
        return advise(*args)
    except Exception:
        return ""


def readers_frames(error):
    """The frames of a traceback that are lines of the answer, outermost first."""
    frames, tb = [], error.__traceback__
    while tb:
        if is_readers(tb.tb_frame.f_code.co_filename):
            frames.append((tb.tb_frame, tb.tb_lineno))
        tb = tb.tb_next
    return frames


def innermost(error):
    """The file where an error rose."""
    return traceback.extract_tb(error.__traceback__)[-1].filename


def is_readers(filename):
    """True for a file or a cell that is no part of Python, of its packages or of the course."""
    if _is_exercise(filename):  # an answer of the catalogue
        return True
    if filename.startswith((*INSTALLED, PACKAGE)) or filename.endswith(".pyx"):
        return False
    return "site-packages" not in filename and not filename.startswith(
        ("<frozen", "<string>", "<__")
    )


def _is_exercise(filename):
    path = Path(filename)
    if path.parent != Path(__file__).parent:
        return False
    return hasattr(sys.modules.get(f"{__package__}.{path.stem}"), "TASK")


def readers_line(frame):
    """The innermost line of the answer that led to this frame, or "" where a check did."""
    while frame:
        filename = frame.f_code.co_filename
        if is_readers(filename):
            return line_of(frame, frame.f_lineno)
        if Path(filename).parent == Path(__file__).parent:
            return ""
        frame = frame.f_back
    return ""


def line_of(frame, number):
    """What stands in a frame of the answer: backward, line 7: `return grad_out * x`."""
    code = linecache.getline(frame.f_code.co_filename, number).strip()
    return f"{frame.f_code.co_name}, line {number}" + (f": `{code}`" if code else "")


def raised(during, error):
    """Tell of an error: its message and the reader's line, instead of a traceback."""
    frames = readers_frames(error)
    if is_stub(error, frames):
        _not_written(frames)
    text = (str(error).strip().splitlines() or ["no message"])[0].partition(" Hint: ")[0]
    where = f" ({_places(frames)})" if frames else ""
    wrong(f"{during} raises {type(error).__name__}: {text}{where}", _advice(error, frames))


def _places(frames):
    """The line where it was raised, and where backward called what that line stands in."""
    place = line_of(*frames[-1])
    callers = [each for each in frames[:-1] if each[0].f_code.co_name == "backward"]
    if callers and frames[-1][0].f_code.co_name != "backward":
        place += f", called in {line_of(*callers[-1])}"
    return place


def is_stub(error, frames):
    """True for the bare `raise NotImplementedError` that stands in the notebook."""
    return isinstance(error, NotImplementedError) and not str(error) and bool(frames)


def _not_written(frames):
    """A stub was reached: neutral, unless something was written and the raise left behind."""
    frame, number = frames[-1]
    name = ".".join(frame.f_code.co_qualname.split(".")[-2:])
    if not _only_raises(frame.f_code):
        wrong(
            f"{name} still raises NotImplementedError in line {number} of its cell.",
            "Take that line out.",
        )
    if frame.f_code.co_name == "backward":
        neutral(in_its_language("right so far; {} is not written yet.").format(name))
    if any(outer.f_code.co_name == "backward" for outer, _ in frames[:-1]):
        neutral(in_its_language("right so far; {} is not written yet.").format(name))
    cls = getattr(next(iter(frame.f_locals.values()), None), "_forward_cls", None)
    if cls and not _only_raises(cls.backward):
        neutral(in_its_language("{} is not written yet.").format(name))
    neutral("not attempted yet.")


def _only_raises(code):
    """False where a function does more than raise; True too where its source cannot be read."""
    tree = tree_of(code)
    if tree is None:
        return True
    body = tree.body[0].body
    said = [isinstance(s, (ast.Raise, ast.Pass)) or _is_text(s) for s in body]
    return all(said)


def _is_text(statement):
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def tree_of(function):
    """Syntax tree of a function or a code object, whatever its indentation, or None."""
    try:
        source = inspect.getsource(function)
        inside = source[:1] in " \t"
        tree = ast.parse("if 1:\n" + source if inside else source)
        block = tree.body[0]
        return ast.Module(block.body, []) if inside and isinstance(block, ast.If) else tree
    except (OSError, TypeError, SyntaxError, ValueError):
        return None


def has_return(function):
    """False where a function returns nothing anywhere; True too where its source is not read."""
    tree = tree_of(function)
    return tree is None or any(isinstance(n, ast.Return) and n.value for n in ast.walk(tree))


def _advice(error, frames):
    """What to change, where the error and the line leave no doubt."""
    text = str(error)
    frame, number = frames[-1] if frames else (None, 0)
    line = linecache.getline(frame.f_code.co_filename, number) if frame else ""
    if isinstance(error, (NameError, AttributeError)) and frame and error.name:
        return _of_a_name(error, frame)
    if "got numpy.float" in text and "np.ndarray" in text:
        return (
            "Of an array of shape () NumPy makes a number, which torch.from_numpy refuses. "
            "torch.as_tensor takes both."
        )
    if "modified by an inplace operation" in text:
        return "A saved tensor is edited in place. Make a new tensor instead."
    if "NoneType" in text and frame and (name := _none_among(frame)):
        return f"{name} is None here: that output was not used (set_materialize_grads(False))."
    if "can only save variables" in text:
        if "of type list" in text or "of type tuple" in text:
            return "Hand over the tensors one by one: ctx.save_for_backward(a, b)"
        return (
            "save_for_backward takes tensors only. A number that was not computed from an input "
            "may stay on ctx: ctx.n = n."
        )
    if "'tuple' object is not callable" in text and "saved_tensors()" in line:
        return "ctx.saved_tensors is written without brackets."
    if "marked as dirty" in text:
        return "mark_dirty is for an input that forward changes in place and returns. Take it out."
    if node := re.search(r"[Ff]unction (\w+)Backward returned an (incorrect number|invalid)", text):
        many = node[2] == "incorrect number"
        one = " tuple(...) takes one tensor that holds them all apart." if "got 1)" in text else ""
        return f"{node[1]}.backward should return " + (
            f"one gradient for each argument of its forward after ctx, in that order.{one}"
            if many
            else "gradients of the shapes that the arguments of its forward have, in that order."
        )
    if frame and re.search(r"\btuple\b", text) and (name := _whole_tuple(frame)):
        return (
            f"{name} is all of ctx.saved_tensors, a tuple. Take it apart: "
            f"({name},) = ctx.saved_tensors"
        )
    if "to unpack" in text and "saved_tensors" in line:
        return "ctx.saved_tensors gives back as many tensors as you saved, in the same order."
    if isinstance(error, RecursionError) and _calls_itself(frames):
        return f"{frames[-1][0].f_code.co_name} calls itself again and again."
    if ".forward() " in text and "positional argument" in text:
        return "forward gets ctx, and then what apply is called with."
    if ".backward() " in text and "positional argument" in text:
        return "backward gets ctx, and then one gradient for each output of forward."
    if "with setup_context" in text:
        return ""
    if "Can't call numpy()" in text and frame and frame.f_code.co_name == "backward":
        return (
            "In a backward that is differentiated again, detach turns this error into a wrong "
            "number. Stay in torch, or put the NumPy code into a Function with a backward of its "
            "own."
        )
    return ""


def _of_a_name(error, frame):
    """What to say of a name that is not known."""
    values = list(frame.f_locals.values())
    cls = getattr(values[0] if values else None, "_forward_cls", None)
    owner = getattr(error, "obj", None) if isinstance(error, AttributeError) else None
    of_ctx = owner is not None and hasattr(owner, "_forward_cls")
    in_backward = frame.f_code.co_name == "backward" and (of_ctx or owner is None)
    if cls and in_backward and error.name in inspect.signature(cls.forward).parameters:
        return (
            f"{error.name} is an argument of forward. backward has what forward keeps: a tensor "
            f"through save_for_backward, a number as ctx.{error.name} = {error.name}."
        )
    if isinstance(owner, torch.Tensor) and hasattr(FunctionCtx, error.name):
        return f"ctx comes first: def {frame.f_code.co_name}(ctx, ...)."
    known = dir(owner) if owner is not None else [*frame.f_locals, *frame.f_globals]
    near = get_close_matches(error.name, known, n=1, cutoff=0.75)
    prefix = "ctx." if of_ctx else ""
    return f"Is {prefix}{near[0]} meant?" if near else ""


def _none_among(frame):
    """Name of a gradient that this backward got as None."""
    code = frame.f_code
    for name in code.co_varnames[1 : code.co_argcount] if code.co_name == "backward" else ():
        if name in frame.f_locals and frame.f_locals[name] is None:
            return name
    return ""


def _whole_tuple(frame):
    """Name of a variable that holds ctx.saved_tensors as it is, in this frame of a backward."""
    if frame.f_code.co_name != "backward":
        return ""
    for name, value in frame.f_locals.items():
        if isinstance(value, tuple) and value and all(hasattr(t, "grad_fn") for t in value):
            return name
    return ""


def _calls_itself(frames):
    codes = [frame.f_code for frame, _ in frames]
    return codes.count(codes[-1]) > 50 if codes else False
