"""Is what a backward returns of the right kind? Looked at before autograd gets it."""

import inspect

import torch
from torch.autograd import Function

from .reply import has_return, wrong


def _named_like(cls, args):
    """Names of the arguments of forward, as its author calls them."""
    names = list(inspect.signature(cls.forward).parameters)
    names = names if len(names) == len(args) else names[1:]
    return names if len(names) == len(args) else [f"argument {i + 1}" for i in range(len(args))]


def check_kind(cls, args, returned, note, who="backward"):
    """Is what `who` returned what autograd takes: one tensor or None for each argument?"""
    names = list(_named_like(cls, args))
    if returned is None and not has_return(cls.backward):
        wrong(f"{who} returns None.", "It has no return.")
    if isinstance(returned, torch.Tensor) or not isinstance(returned, tuple):
        if returned is not None and not isinstance(returned, torch.Tensor):
            kind = type(returned).__name__
            if isinstance(returned, Function):
                wrong(
                    f"{who} returns an instance of {kind}.",
                    f"Call it through apply: {kind}.apply",
                )
            advice = "Return a tensor, or several with a comma between them."
            wrong(f"{who} returns an object of type {kind}.", advice)
        returned = (returned,)
    if len(returned) < len(args) or any(g is not None for g in returned[len(args) :]):
        got, needed = (_counted(len(each), "gradient") for each in (returned, args))
        wrong(
            f"{who} returns {got}. It should return {needed}, one for each argument of forward "
            f"after ctx ({', '.join(names)}), in that order.",
            _stacked(returned, len(args)),
        )
    for name, arg, g in zip(names, args, returned, strict=False):
        if not torch.is_tensor(arg):
            if g is not None:
                fact = f"{who} returns a gradient for {name}, which is no tensor."
                wrong(fact, "Return None in its place.")
        elif g is None:
            if arg.requires_grad:
                wrong(f"{who} returns None for {name}, but the result depends on it{note}.")
        elif not torch.is_tensor(g):
            kind = type(g).__name__
            advice = f"Call it through apply: {kind}.apply" if isinstance(g, Function) else ""
            wrong(f"what {who} returns for {name} is of type {kind}, and no tensor.", advice)
        elif g.shape != arg.shape and not _can_be_summed(g.shape, arg.shape):
            fact = f"what {who} returns for {name} is of shape {tuple(g.shape)}, and {name} is of"
            wrong(f"{fact} shape {tuple(arg.shape)}.{_fits_the_other_way(args, returned)}")


def _stacked(returned, needed):
    """What to say of one tensor in which all the gradients that are needed stand, or ""."""
    only = returned[0] if len(returned) == 1 else None
    if needed > 1 and torch.is_tensor(only) and only.dim() and len(only) == needed:
        return (
            f"This is one tensor of shape {tuple(only.shape)}, as in_numpy makes of an array. "
            "tuple(...) around it takes it apart."
        )
    return ""


def _counted(number, noun):
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _can_be_summed(shape, to):
    """Autograd sums a gradient over dimensions that were broadcast."""
    try:
        return torch.broadcast_shapes(shape, to) == shape
    except RuntimeError:
        return False


def _fits_the_other_way(args, returned):
    if len(args) != 2 or not all(torch.is_tensor(t) for t in (*args, *returned)):
        return ""
    fits = [g.shape for g in returned] == [a.shape for a in args][::-1]
    return " The two would fit the other way round." if fits else ""
