"""Is what a backward returns of the kind that autograd takes? Looked at before autograd gets it."""

import ast
import inspect
from contextlib import ExitStack, contextmanager, suppress
from difflib import get_close_matches

import torch
from torch import Tensor
from torch.autograd import Function, grad

from double_backward.calls import Listener, listening_alone
from double_backward.methods import around, backward_method
from double_backward.operators import argument_names

from .differentiate import backward_of, called, functions_of, summed
from .errors import tree_of
from .language import Phrase
from .reply import wrong
from .task import uneven


def look_at_returned(fn, setting):
    """Ends the review where one of the backwards returns what autograd does not take."""
    met = _Recorded()
    with met.stack, listening_alone(met):
        out, xs = called(fn, setting)
        outer = functions_of(out)
        for cls in outer:
            _check_written(cls)
        with suppress(Exception):
            grad(out, xs, uneven(out), retain_graph=True, allow_unused=True)
        with suppress(Exception):
            summed(backward_of(out, xs)).backward()
    for cls, (args, backward) in met.found.items():
        who = "backward" if cls in outer else f"{cls.__name__}.backward"
        for _, returned in backward:
            _check_kind(cls, args, returned, setting.note, who)


class _Recorded(Listener):
    """Each Function from its first call on: what it was handed, and the calls of its backward."""

    def __init__(self):
        self.found, self.stack = {}, ExitStack()

    def called(self, call):
        if call.function not in self.found and _has_backward(call.function):
            backward = self.stack.enter_context(recorded(call.function))
            self.found[call.function] = call.given, backward


@contextmanager
def recorded(cls):
    """List of (arguments, result), one for each call of its backward."""
    calls = []

    def wrapper(function):
        def recording(*args):
            result = function(*args)
            calls.append((args, result))
            return result

        return recording

    with around(cls, backward_method(cls), wrapper):
        yield calls


def _has_backward(cls):
    return cls.backward is not Function.backward or cls.vjp is not Function.vjp


def _check_written(cls):
    """Has it a backward, under that name?"""
    if not _has_backward(cls):
        own = [name for name in vars(cls) if not name.startswith("_")]
        near = get_close_matches("backward", own, n=1, cutoff=0.7)
        advice = Phrase("It has {}: is that meant?", near[0]) if near else ""
        if "backward" in cls.forward.__globals__:
            advice = Phrase(
                "There is a function backward outside of the class. Indent it, as forward."
            )
        wrong(Phrase("{} has no method backward.", cls.__name__), advice)


def _check_kind(cls, args, returned, note, who):
    """One tensor or None for each argument."""
    own = argument_names(cls)  # of an operator
    names = own or list(inspect.signature(cls.forward).parameters)[-len(args) :]
    if returned is None and not _has_return(cls.backward):
        wrong(Phrase("{} returns None.", who), Phrase("It has no return."))
    if isinstance(returned, Function):
        fact = Phrase("{} returns an instance of {}.", who, type(returned).__name__)
        _no_apply(fact, returned)
    if returned is not None and not isinstance(returned, (Tensor, tuple)):
        wrong(
            Phrase("{} returns an object of type {}.", who, type(returned).__name__),
            Phrase("Return a tensor, or several with a comma between them."),
        )
    returned = returned if isinstance(returned, tuple) else (returned,)
    if len(returned) < len(args) or any(g is not None for g in returned[len(args) :]):
        got, needed = (_gradients(len(n)) for n in (returned, args))
        fact = Phrase(
            "{} returns {}. It should return {}, one for each argument of forward after ctx ({}), "
            "in that order.",
            who,
            got,
            needed,
            ", ".join(names),
        )
        wrong(fact, _stacked(returned[0], len(args)) if len(returned) == 1 else "")
    for name, arg, g in zip(names, args, returned, strict=False):
        if not isinstance(arg, Tensor):
            if g is not None:
                fact = Phrase("{} returns a gradient for {}, which is no tensor.", who, name)
                wrong(fact, Phrase("Return None in its place."))
        elif g is None:
            if arg.requires_grad:
                said = "{} returns None for {}, but the result depends on it{}."
                wrong(Phrase(said, who, name, note))
        elif not isinstance(g, Tensor):
            said = "what {} returns for {} is of type {}, and no tensor."
            fact = Phrase(said, who, name, type(g).__name__)
            _no_apply(fact, g) if isinstance(g, Function) else wrong(fact)
        elif not _can_be_summed(g.shape, arg.shape):
            fact = Phrase(
                "what {who} returns for {name} is of shape {shape}, and {name} is of shape {other}."
                "{more}",
                who=who,
                name=name,
                shape=tuple(g.shape),
                other=tuple(arg.shape),
                more=_fits_the_other_way(args, returned),
            )
            wrong(fact)


def _gradients(count):
    return Phrase("{} gradient", 1) if count == 1 else Phrase("{} gradients", count)


def _has_return(function):
    """False where a function returns nothing anywhere; True too where its source is not read."""
    tree = tree_of(function)
    return tree is None or any(isinstance(n, ast.Return) and n.value for n in ast.walk(tree))


def _no_apply(fact, instance):
    wrong(fact, Phrase("Call it through apply: {}.apply", type(instance).__name__))


def _stacked(only, needed):
    """What to say of one tensor in which all the gradients that are needed stand, or ""."""
    if needed > 1 and isinstance(only, Tensor) and only.dim() and len(only) == needed:
        return Phrase(
            "This is one tensor of shape {}, as in_numpy makes of an array. tuple(...) around it "
            "takes it apart.",
            tuple(only.shape),
        )
    return ""


def _can_be_summed(shape, to):
    """Autograd sums a gradient over dimensions that were broadcast."""
    try:
        return torch.broadcast_shapes(shape, to) == shape
    except RuntimeError:
        return False


def _fits_the_other_way(args, returned):
    tensors = all(isinstance(t, Tensor) for t in (*args, *returned))
    if tensors and [g.shape for g in returned] == [a.shape for a in args][::-1] and len(args) == 2:
        return Phrase(" The two would fit the other way round.")
    return ""
