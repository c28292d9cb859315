"""What a backward returns for its extra outputs, and that of a second Function for its inputs: each
by itself, in numbers beside the true ones."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import permutations

import torch
from torch import Tensor

from double_backward.explain import Case, Run, same_gradients
from double_backward.graphs import walk

from .pairs import Pair
from .relations import close, relation_of
from .second_functions import (
    readable_gradient,
    second_functions,
    slopes,
    snapped,
)

HERE = "at each of these elements"
UNMULTIPLIED = (
    "Yours is the gradient of that output itself{}. Multiply it by the output's own derivative."
)


# Extra outputs


def extra_outputs(case: Case, names: list[str]) -> str:
    """Is the gradient right that backward returns for each extra output that it uses? "" if so."""
    for which, extra in _used_extras(case):
        pairs = _pairs_of_extra(case, names, which)
        has_slope = any(pair.true.any() for pair in pairs)  # or it is a mask, or the like
        if has_slope and not _gradient_is_used(case, which):
            return (
                f"backward uses {extra}, and not the gradient of it. In the second backward that "
                "gradient is not 0: add it, times the derivative of that output."
            )
        if said := _wrong_alone(pairs, extra):
            return said
    return ""


def extra_gradient(case: Case, names: list[str]) -> str:
    """The same where the second derivative is right: is something else wrong there?"""
    for which, extra in _used_extras(case):
        pairs = _pairs_of_extra(case, names, which)
        if said := _wrong_alone([pair for pair in pairs if pair.yours.any()], extra):
            return said
    return ""


def _used_extras(case: Case) -> Iterator[tuple[int, str]]:
    """(place, how it is named) of each extra output whose numbers matter to backward."""
    with case.run() as run:
        positions = [extra.position for extra in _extras(run)]
        before = run.gradients()
    for which, position in enumerate(positions):
        with case.run() as run, _spoilt(_extras(run)[which].tensor):
            after = run.gradients()
        if not same_gradients(before, after):
            word = ("first", "second", "third", "last")[min(position, 4) - 1]
            yield which, f"the {word} extra output of forward"


def _extras(run: Run) -> list:
    """The saved tensors that are an output of their Function other than the first."""
    kept = [k for node in run.nodes for k in node.kept]
    return [k for k in kept if k.role == walk.OUTPUT and k.position]


def _wrong_alone(pairs, extra):
    """What backward returns for one extra output, alone, against differences of it."""
    for pair in pairs:
        if pair.wrong:
            said = (
                f"What backward returns for {pair.what} is wrong when the gradient of {extra} is 1 "
                f"and the other gradients are 0, {pair}. {relation_of([[pair]], HERE)}"
            )
            return said.rstrip()
    return ""


def _pairs_of_extra(case, names, which):
    """`Pair` for each input; the true gradient by central differences."""
    with case.run() as run:
        x, tensor = run.x, _extras(run)[which].tensor
        yours = torch.autograd.grad(tensor.sum(), x, allow_unused=True)

        def total(i, new):
            at = [*x[:i], new.requires_grad_(), *x[i + 1 :]]
            return _extras(case.run_at(at))[which].tensor.sum()

        pairs = []
        for i, (name, mine) in enumerate(zip(names, yours, strict=True)):
            true = slopes(partial(total, i), x[i])
            mine = torch.zeros_like(true) if mine is None else mine
            slips = {
                UNMULTIPLIED.format(""): partial(torch.ones_like, true),
                UNMULTIPLIED.format(", with a minus"): partial(torch.full_like, true, -1),
            }
            given = {name: x[i].detach()}
            pairs.append(Pair(name, mine, snapped(true, mine), given, slips=slips))
    return pairs


def _gradient_is_used(case, which):
    """Does what backward returns depend on the gradient of that extra output?"""
    results = []
    for weight in (0.7, -1.9):
        with case.run() as run:
            extra = _extras(run)[which].tensor
            results.append(run.gradients((extra, weight * readable_gradient(extra))))
    return not same_gradients(*results)


@contextmanager
def _spoilt(tensor: Tensor) -> Iterator[None]:
    """For a while, other numbers in the memory of a tensor, behind the back of autograd."""
    memory = tensor.new_empty(0).detach().set_(tensor.detach().untyped_storage())
    before = memory.clone()
    memory.mul_(1.37).add_(0.11)
    try:
        yield
    finally:
        memory.copy_(before)


# Second Functions


def second_function(case: Case) -> tuple[str, str, Pair] | None:
    """What is wrong with the backward of a Function that backward applies, how that is related to
    the true one, or "", and the two; None if it is right."""
    for cls, groups, _ in second_functions(case):
        for k, group in enumerate(groups):
            for pair in group:
                if pair.none:
                    fact = f"The backward of {cls.__name__} returns None for {pair.what}"
                    return f"{fact}, and its result depends on that.", "", pair
                if pair.wrong:
                    fact = f"What the backward of {cls.__name__} returns for {pair.what} is wrong"
                    related = _order(groups) or relation_of([list(group)], HERE)
                    return f"{fact} ({_meaning(groups, k)}), {pair}.", related, pair
    return None


def _meaning(groups, k):
    """What h is; of several outputs, that of output k."""
    if len(groups) == 1:
        return "h is the gradient that it gets"
    word = ("first", "second", "third")[k] if k < 3 else f"{k + 1}th"
    return f"h is the gradient of its {word} output, and the others are 0"


def _order(groups):
    """What to say where right gradients stand in a wrong order, or ""; one group an output."""
    if len(groups) == 2 and all(
        close(one.yours, two.true) and close(two.yours, one.true)
        for one, two in zip(*groups, strict=True)
    ):
        return "It takes the gradients of its two outputs in the wrong order."
    names = [pair.what for pair in groups[0]]
    for order in permutations(range(len(names))) if len(names) < 5 else ():
        moved = [(g[i].yours, pair.true) for g in groups for i, pair in zip(order, g, strict=True)]
        if all(close(yours, true) for yours, true in moved):
            listed = ", ".join(names)
            return (
                f"The right gradients, in the wrong order: return those of {listed}, in that order."
            )
    return ""
