"""How an error of the reader's own code is told, and a stub; whose line it was."""

import ast
import inspect
import linecache
import re
import sysconfig
from difflib import get_close_matches
from pathlib import Path

import torch
from torch.autograd.function import FunctionCtx

from double_backward.places import name_of

from .language import Phrase
from .reply import neutral, wrong

HERE = str(Path(__file__).parent)
PACKAGE = str(Path(__file__).resolve().parent.parent)
INSTALLED = tuple(
    sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")
)
# What matches the error's text, or that and the line, leaves no doubt what to change.
ADVICE = {
    r"got numpy\.float": "Of an array of shape () NumPy makes a number, which torch.from_numpy "
    "refuses. torch.as_tensor takes both.",
    r"modified by an inplace operation": "A saved tensor is edited in place. Make a new tensor "
    "instead.",
    r"can only save variables.* of type (list|tuple)": "Hand over the tensors one by one: "
    "ctx.save_for_backward(a, b)",
    r"can only save variables": "save_for_backward takes tensors only. A number that was not "
    "computed from an input may stay on ctx: ctx.n = n.",
    r"'tuple' object is not callable.*saved_tensors\(\)": "ctx.saved_tensors is written without "
    "brackets.",
    r"object is not callable.*(?:function\(\*arrays\)|in_numpy\()": "in_numpy takes the function "
    "itself, and the tensors after it: in_numpy(function, x).",
    r"view size is not compatible": "The tensor is not contiguous. Use .reshape in the place of "
    ".view.",
    r"marked as dirty": "mark_dirty is for an input that forward changes in place and returns. "
    "Take it out.",
    r"unction (\w+)Backward returned an incorrect number.* got 1\)": "{}.backward should return "
    "one gradient for each argument of its forward after ctx, in that order. tuple(...) takes one "
    "tensor that holds them all apart.",
    r"unction (\w+)Backward returned an incorrect number": "{}.backward should return one "
    "gradient for each argument of its forward after ctx, in that order.",
    r"unction (\w+)Backward returned an invalid": "{}.backward should return gradients of the "
    "shapes that the arguments of its forward have, in that order.",
    r"to unpack.*saved_tensors": "ctx.saved_tensors gives back as many tensors as you saved, in "
    "the same order.",
    r"converted to Scalar.*?(\w+)\.item\(\)": "{0}.item() makes a number of one element, and {0} "
    "has more. Nor would a number have a graph: compute with {0} itself.",
    r"\.forward\(\) .*positional argument": "forward gets ctx, and then what apply is called with.",
    r"\.backward\(\) .*positional argument": "backward gets ctx, and then one gradient for each "
    "output of forward. A tuple inside the tuple that forward returns is not an output.",
    r"Can't call numpy\(\).*\nbackward": "In a backward that is differentiated again, detach turns "
    "this error into a wrong number. Stay in torch, or put the NumPy code into a Function with a "
    "backward of its own.",
}


def readers_frames(error):
    """The frames of a traceback that are lines of the answer, outermost first."""
    frames, tb = [], error.__traceback__
    while tb:
        if is_readers(tb.tb_frame.f_code.co_filename):
            frames.append((tb.tb_frame, tb.tb_lineno))
        tb = tb.tb_next
    return frames


def is_readers(filename):
    """True for a file or a cell that is no part of Python, of its packages or of the course."""
    if filename.startswith((*INSTALLED, PACKAGE)) or filename.endswith(".pyx"):
        return False
    return "site-packages" not in filename and not filename.startswith(
        ("<frozen", "<string>", "<__")
    )


def readers_line(frame):
    """The innermost line of the answer that led to this frame, or "" where a check did."""
    while frame and not frame.f_code.co_filename.startswith(HERE):
        if is_readers(frame.f_code.co_filename):
            return line_of(frame, frame.f_lineno)
        frame = frame.f_back
    return ""


def line_of(frame, number):
    """What stands in a frame of the answer: backward, line 7: `return grad_out * x`."""
    code = linecache.getline(frame.f_code.co_filename, number).strip()
    said = Phrase("{}, line {}{}", name_of(frame.f_code), number, "")
    return Phrase("{}: `{}`", said, code) if code else said


def raised(during, error):
    """Tell of an error: its message and the reader's line, instead of a traceback."""
    frames = readers_frames(error)
    if isinstance(error, NotImplementedError) and not str(error) and frames:
        _not_written(frames)
    text = (str(error).strip().splitlines() or [Phrase("no message")])[0].partition(" Hint: ")[0]
    where = ""
    if frames:
        where = line_of(*frames[-1])
        callers = [each for each in frames[:-1] if each[0].f_code.co_name == "backward"]
        if callers and frames[-1][0].f_code.co_name != "backward":
            where = Phrase("{}, called in {}", where, line_of(*callers[-1]))
        where = Phrase(" ({})", where)
    fact = Phrase("{} raises {}: {}{}", during, type(error).__name__, text, where)
    wrong(fact, _advice(error, frames))


def _not_written(frames):
    """A stub was reached: neutral, unless something was written and the raise left behind."""
    frame, number = frames[-1]
    name = ".".join(frame.f_code.co_qualname.split(".")[-2:])
    if not _only_raises(frame.f_code):
        said = "{} still raises NotImplementedError in line {} of its cell."
        wrong(Phrase(said, name, number), Phrase("Take that line out."))
    if any(each.f_code.co_name == "backward" for each, _ in frames):
        neutral(Phrase("right so far; {} is not written yet.", name))
    cls = getattr(next(iter(frame.f_locals.values()), None), "_forward_cls", None)
    if cls and not _only_raises(cls.backward):
        neutral(Phrase("{} is not written yet.", name))
    neutral(Phrase("not attempted yet."))


def _only_raises(code):
    """False where a function does more than raise; True too where its source cannot be read."""
    tree = tree_of(code)
    return tree is None or all(
        isinstance(s, (ast.Raise, ast.Pass))
        or (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))
        for s in tree.body[0].body
    )


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


def _advice(error, frames):
    """What to change, where the error and the line leave no doubt."""
    text, seen = str(error), str(error)
    if frames:
        frame, number = frames[-1]
        if isinstance(error, (NameError, AttributeError)) and error.name:
            return _of_a_name(error, frame)
        if "NoneType" in text and (name := _in_backward(frame, lambda v: v is None)):
            said = "{} is None here: that output was not used (set_materialize_grads(False))."
            return Phrase(said, name)
        if re.search(r"\btuple\b|converted to an index", text) and (
            name := _in_backward(frame, _are_saved)
        ):
            return Phrase(
                "{0} is all of ctx.saved_tensors, a tuple. Take it apart: ({0},) = "
                "ctx.saved_tensors",
                name,
            )
        if "to unpack" in text and (advice := assigned(next(iter(frame.f_locals.values()), None))):
            return advice
        line = linecache.getline(frame.f_code.co_filename, number)
        seen = f"{text}\n{line}\n{frame.f_code.co_name}"
    if (
        isinstance(error, RecursionError)
        and [f.f_code for f, _ in frames].count(frames[-1][0].f_code) > 50
    ):
        return Phrase("{} calls itself again and again.", frames[-1][0].f_code.co_name)
    for pattern, advice in ADVICE.items():
        if found := re.search(pattern, seen, re.S):
            return Phrase(advice, *found.groups())
    return ""


def assigned(ctx):
    """What to say of a method of ctx that an `=` has replaced."""
    replaced = [name for name in getattr(ctx, "__dict__", {}) if hasattr(FunctionCtx, name)]
    if not replaced:
        return ""
    return Phrase("{0} is a method: call it, ctx.{0}(...), with no = sign.", replaced[0])


def _in_backward(frame, asked):
    """The first variable of this frame, if it is of a backward, whose value is so."""
    if frame.f_code.co_name != "backward":
        return ""
    return next((name for name, value in frame.f_locals.items() if asked(value)), "")


def _are_saved(value):
    return isinstance(value, tuple) and value and all(hasattr(t, "grad_fn") for t in value)


def _of_a_name(error, frame):
    """What to say of a name that is not known."""
    values = list(frame.f_locals.values())
    cls = getattr(values[0] if values else None, "_forward_cls", None)
    owner = getattr(error, "obj", None) if isinstance(error, AttributeError) else None
    of_ctx = owner is not None and hasattr(owner, "_forward_cls")
    in_backward = frame.f_code.co_name == "backward" and (of_ctx or owner is None)
    if cls and in_backward and error.name in inspect.signature(cls.forward).parameters:
        return Phrase(
            "{0} is an argument of forward. backward has what forward keeps: a tensor through "
            "save_for_backward, a number as ctx.{0} = {0}.",
            error.name,
        )
    if isinstance(owner, torch.Tensor) and hasattr(FunctionCtx, error.name):
        return Phrase("ctx comes first: def {}(ctx, ...).", frame.f_code.co_name)
    known = dir(owner) if owner is not None else [*frame.f_locals, *frame.f_globals]
    near = get_close_matches(error.name, known, n=1, cutoff=0.75)
    prefix = "ctx." if of_ctx else ""
    return Phrase("Is {} meant?", prefix + near[0]) if near else ""
