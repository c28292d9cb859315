"""The Functions that a backward applies: what their backwards return, each by itself, beside finite
differences of their forwards."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from double_backward.explain import Case
from double_backward.graphs import walk
from double_backward.methods import has_setup_context, recorded

from .pairs import Pair

Groups = tuple[tuple[Pair, ...], ...]


def second_functions(case: Case) -> Iterator[tuple[Any, Groups, set[str]]]:
    """Each Function that backward applies, with `Pair` for its inputs, a group an output; and the
    names of those that have a graph."""
    with case.run() as run:
        before, known = {n.fn for n in run.nodes}, {n.custom for n in run.nodes}
        first = [g for g in run.gradients(create_graph=True) if g is not None]
        inside = walk.walk(*first).nodes
        classes = dict.fromkeys(n.custom for n in inside if n.custom and n.fn not in before)
    for cls in [c for c in classes if c not in known]:
        with recorded(cls, "forward") as calls, case.run() as run:
            run.gradients(create_graph=True)
        if calls and (groups := _function_alone(cls, calls[0][0], case)):
            names = list(inspect.signature(cls.forward).parameters)
            given = zip(names, calls[0][0], strict=False)
            needed = {n for n, a in given if isinstance(a, Tensor) and a.requires_grad}
            yield cls, groups, needed


def _function_alone(cls, args, case):
    """Gradients of one Function against differences of its forward."""
    names = list(inspect.signature(cls.forward).parameters)
    if not has_setup_context(cls):
        args, names = args[1:], names[1:]
    if len(names) != len(args):
        return None
    args = [a.detach().clone() if isinstance(a, Tensor) else a for a in args]
    with case.expected.line.subject.around():
        outputs = cls.apply(*args)
        several = not isinstance(outputs, Tensor)
        if several and not all(isinstance(o, Tensor) and o.is_floating_point() for o in outputs):
            return None
        which = list(range(len(outputs))) if several else [None]
        return tuple(tuple(_output_alone(cls, names, args, k)) for k in which)


def _output_alone(cls, names, args, which):
    """A `Pair` for each input; of several outputs, all but `which` get a gradient of 0."""
    where = [i for i, a in enumerate(args) if isinstance(a, Tensor) and a.is_floating_point()]
    args = [a.clone().requires_grad_() if i in where else a for i, a in enumerate(args)]

    def output(*values):
        return cls.apply(*values) if which is None else cls.apply(*values)[which]

    out = output(*args)
    h = readable_gradient(out)
    yours = torch.autograd.grad(out, [args[i] for i in where], h, allow_unused=True)
    given = {names[i]: args[i].detach() for i in where} | {"h": h}
    for i, mine in zip(where, yours, strict=True):

        def total(new, i=i):
            return (h * output(*args[:i], new, *args[i + 1 :])).sum()

        true = slopes(total, args[i])
        none = mine is None and bool(true.any())
        mine = torch.zeros_like(true) if mine is None else mine
        yield Pair(names[i], mine, snapped(true, mine), given, "", given, {}, none)


def slopes(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Gradient of a function of one tensor by central differences."""
    x = x.detach()
    found = []
    for k in range(x.numel()):
        step = torch.zeros(x.numel(), dtype=x.dtype)
        step[k] = 1e-5
        step = step.reshape(x.shape)
        found.append((function(x + step) - function(x - step)).item() / 2e-5)
    return torch.tensor(found, dtype=x.dtype).reshape(x.shape)


def snapped(true: Tensor, yours: Tensor) -> Tensor:
    """Differences, and yours where the two agree in the digits that those have."""
    return torch.where(torch.isclose(yours, true, rtol=1e-5, atol=1e-7), yours, true)


def readable_gradient(like: Tensor) -> Tensor:
    """A gradient whose numbers a reader can follow."""
    numbers = (3.0, -4.0, 5.5, 1.0, -0.5)
    every = [numbers[i % len(numbers)] for i in range(like.numel())]
    return torch.tensor(every, dtype=like.dtype, device=like.device).reshape(like.shape)
