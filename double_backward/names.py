"""The reader's names for what a Function gets, keeps and returns, where its source can be read.

Names only: nothing is concluded from the source.
"""

import ast
import inspect
import linecache
import textwrap
from collections.abc import Callable
from itertools import islice
from types import FrameType

from torch.autograd import Function

from .methods import has_setup_context

SHORT = 40  # characters of an expression that is told as a name


def argument_names(function: type[Function]) -> list[str]:
    """The parameters of forward without ctx; empty where they cannot be known."""
    try:
        parameters = list(inspect.signature(function.forward).parameters.values())
    except (TypeError, ValueError):
        return []
    if any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters):
        return []
    return [p.name for p in parameters[not has_setup_context(function) :]]


def returned_names(function: type[Function]) -> list[str]:
    """The variables that forward returns in a tuple, "" for what is not a plain name."""
    returns = [node for node in _nodes(function.forward) if isinstance(node, ast.Return)]
    value = returns[-1].value if returns else None
    parts = value.elts if isinstance(value, ast.Tuple) else []
    return [part.id if isinstance(part, ast.Name) else "" for part in parts]


def call_names(fn: Callable, count: int) -> list[str]:
    """The names of the first `count` arguments of fn; empty where it has none for them."""
    function = getattr(fn, "__self__", None)
    if inspect.isclass(function) and issubclass(function, Function):
        names = argument_names(function)
    else:
        try:
            parameters = inspect.signature(fn).parameters.values()
        except (TypeError, ValueError):
            return []
        plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        names = [p.name for p in parameters if p.kind in plain]
    return names[:count] if len(names) >= count else []


def call_arguments(frame: FrameType) -> list[str]:
    """What is written for each argument of the call that runs in a frame, "" for a long one; empty
    where that is not known."""
    code = frame.f_code
    place = next(islice(code.co_positions(), frame.f_lasti // 2, None))
    first, last, begin, end = place
    if first is None or last is None or begin is None or end is None:  # -X no_debug_ranges
        return []
    lines = [linecache.getline(code.co_filename, n).encode() for n in range(first, last + 1)]
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][begin:]
    try:
        call = ast.parse(b"".join(lines).decode(), mode="eval").body
    except (SyntaxError, ValueError):
        return []
    if not isinstance(call, ast.Call) or any(isinstance(a, ast.Starred) for a in call.args):
        return []
    told = map(ast.unparse, call.args)
    return [text if len(text) <= SHORT else "" for text in told]


def _nodes(method):
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(method)))
    except (OSError, TypeError, SyntaxError):
        return []
    definitions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
    return list(ast.walk(definitions[0])) if definitions else []
