"""What can be checked at all: from fn and its inputs to a target, or the reason why not."""

import traceback
from contextlib import suppress
from pathlib import Path

import torch

from .functions import kinds
from .target import Target
from .units import units_of

NOT_CHECKED = {
    "no_input_requires_grad": "Pass x.double().requires_grad_(), also for an integer x.",
    "complex_or_sparse_input": "Pass real, dense tensors, and build the other one from them in fn.",
    "half_precision": "16 bits are too few for finite differences. Pass float64 or float32.",
    "output_without_graph": "No output has a graph. fn may detach, run under no_grad, or hand a "
    "Function its tensors inside a list, where apply does not see them.",
    "fn_raises": "fn itself raises {}",
    "random_output": "fn gives different outputs for one input and one seed. Fix what is random.",
}
HERE = str(Path(__file__).parent)


class NotChecked(Exception):
    """fn cannot be checked with these inputs.

    Attributes:
        code: a key of `NOT_CHECKED`.
        message: its text, filled in.
    """

    def __init__(self, code: str, *values: str):
        self.code, self.message = code, NOT_CHECKED[code].format(*values)
        super().__init__(self.message)


def prepare(fn, inputs: tuple) -> tuple[Target, bool]:
    """A target that can be measured, and whether its output depends on the seed.

    In float64 where fn keeps the same tensors then, else as given. Raises `NotChecked`.
    """
    target = Target.of(fn, inputs)
    dtypes = {x.dtype for x in target.point}
    if not dtypes:
        raise NotChecked("no_input_requires_grad")
    if any(x.is_complex() or x.layout != torch.strided for x in target.point):
        raise NotChecked("complex_or_sparse_input")
    try:
        target = _with_graph(target)
        kept = kinds(target)
    except Exception as error:  # of fn
        raise NotChecked("fn_raises", _told(error)) from error
    if not target.outputs:
        raise NotChecked("output_without_graph")
    if dtypes & {torch.bfloat16, torch.float16}:
        raise NotChecked("half_precision")
    with suppress(Exception):  # fn may refuse float64, or do something else there
        double = _with_graph(Target.of(fn, inputs, torch.float64))
        if kinds(double) == kept and _same_outputs(target, double):
            target = double
    first, again, other = (_outputs(target.with_seed(seed)) for seed in (0, 0, 1))
    if not all(map(_same, first, again)):
        raise NotChecked("random_output")
    seeded = not all(map(_same, first, other))
    with suppress(Exception):  # fn may have no value beside the point
        target = target.in_units(*units_of(target))
    return target, seeded


def _with_graph(target):
    """The same, restricted to the outputs that have a graph."""
    ys = target.start().ys
    return target.with_outputs(tuple(i for i, y in enumerate(ys) if y.requires_grad))


def _same_outputs(target, double):
    """Whether fn does the same in float64, which no .view of the bits does."""
    pairs = list(zip(_outputs(target), _outputs(double), strict=True))
    if any(y.shape != d.shape for y, d in pairs):
        return False
    return all(torch.allclose(y.double(), d, rtol=1e-2, equal_nan=True) for y, d in pairs)


def _outputs(target):
    return [y.detach() for y in target.start().ys]


def _same(a, b):
    return a.shape == b.shape and torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)


def _told(error):
    frames = traceback.extract_tb(error.__traceback__)
    place = [f for f in frames if not f.filename.startswith(HERE)][-1]
    return f"{type(error).__name__}: {error} (in {place.name}, line {place.lineno})."
