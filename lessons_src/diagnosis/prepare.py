"""What can be checked at all: from fn and its inputs to a target, or the reason why not."""

import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from .functions import Custom, custom_functions, kinds, look
from .holdings import (
    backward_follows,
    first_derivative_agrees,
    holder,
    names_of,
    other_leaves,
)
from .target import Target, readable
from .units import units_of

NOT_CHECKED = {
    "no_input_requires_grad": "Pass x.double().requires_grad_(), also for an integer x.",
    "half_precision": "16 bits are too few for finite differences, and fn does something else in "
    "float64. What is kept stands above; pass float32 if fn takes it.",
    "memory_freed": "fn frees the memory of a tensor that is still in use (its storage has no size "
    "any more), as reversible networks do. Whoever reads it ends Python. Switch that off to check "
    "fn, for example by keep_input=True.",
    "not_finite_here": "The output is not finite at this point. Pass another one.",
    "output_without_graph": "No output has a graph. fn may detach, run under no_grad, return its "
    "result inside an object, or hand a Function its tensors inside a list, where apply does not "
    "see them.",
    "fn_raises": "fn itself raises {}",
    "random_output": "fn gives different outputs for one input and one seed. Fix what is random.",
}
HALF = {torch.float16, torch.bfloat16}
HERE = str(Path(__file__).parent)


class NotChecked(Exception):
    """fn cannot be checked with these inputs.

    Attributes:
        code: a key of `NOT_CHECKED`.
        message: its text, filled in.
        functions: what is known of the custom Functions all the same.
    """

    def __init__(self, code: str, *values: str, functions: tuple[Custom, ...] = ()):
        self.code, self.message = code, NOT_CHECKED[code].format(*values)
        self.functions = functions
        super().__init__(self.message)


@dataclass(frozen=True)
class Prepared:
    """A target that can be measured, and what is known of it before."""

    target: Target
    seeded: bool  # its output depends on the seed
    unchecked: tuple[str, ...]  # leaves behind the output that are no inputs, by name


def prepare(fn: Callable, inputs: tuple) -> Prepared:
    """In float64 where fn keeps the same tensors then and gives the same, else as given.

    The parameters of small modules that fn holds count as inputs. Raises `NotChecked`.
    """
    unchecked: tuple[str, ...] = ()
    target = Target.of(fn, inputs)
    dtypes = {x.dtype for x in target.point}
    if not dtypes:
        raise NotChecked("no_input_requires_grad")
    try:
        target = _with_graph(target)
        if not _all_readable(target):
            raise NotChecked("memory_freed")
        fn, target = _with_parameters(fn, inputs, target)
        unchecked = names_of(other_leaves(target.start()), fn)
        functions = custom_functions(target)
    except NotChecked:
        raise
    except Exception as error:  # of fn
        raise NotChecked("fn_raises", _told(error)) from error
    if not target.outputs:
        raise NotChecked("output_without_graph")
    with suppress(Exception):  # fn may refuse float64, or do something else there
        double = _with_graph(Target.of(fn, inputs, torch.float64))
        if kinds(custom_functions(double)) == kinds(functions) and _same_outputs(target, double):
            target = double
    if {x.dtype for x in target.point} & HALF:
        raise NotChecked("half_precision", functions=functions)
    if not all(y.isfinite().any() for y in _outputs(target) if y.numel()):
        raise NotChecked("not_finite_here")
    first, again, other = (_outputs(target.with_seed(seed)) for seed in (0, 0, 1))
    if not all(map(_same, first, again)):
        raise NotChecked("random_output")
    seeded = not all(map(_same, first, other))
    with suppress(Exception):  # fn may have no value beside the point
        target = target.in_units(*units_of(target))
    return Prepared(target, seeded, unchecked)


def _with_graph(target):
    """The same, restricted to the outputs that have a graph."""
    ys = target.start().ys
    return target.with_outputs(tuple(i for i, y in enumerate(ys) if y.requires_grad))


def _with_parameters(fn, inputs, target):
    """fn and its target, the parameters of modules among the inputs where they can be replaced."""
    module = fn if isinstance(fn, torch.nn.Module) else holder(fn, other_leaves(target.start()))
    if module is None:
        return fn, target

    def plain(*args):
        return fn(*args)

    replaced, as_given = (_with_graph(Target.of(f, inputs)) for f in (module, plain))
    with suppress(Exception):  # of backward, which will be told of
        wrong_anyway = module is fn and not first_derivative_agrees(as_given)
        if wrong_anyway or backward_follows(replaced):
            return module, replaced
    return plain, as_given


def _all_readable(target):
    looked = look(target)
    kept = [k.tensor for node in looked.nodes for k in node.kept if k.tensor is not None]
    return all(map(readable, [*looked.call.xs, *kept]))


def _same_outputs(target, double):
    """Whether fn does the same in float64, which no .view of the bits does."""
    pairs = list(zip(_outputs(target), _outputs(double), strict=True))
    if any(y.shape != d.shape for y, d in pairs):
        return False
    rough = 1e-1 if {y.dtype for y, _ in pairs} & HALF else 1e-2
    return all(
        torch.allclose(y.double(), d, rtol=rough, atol=rough * _size(d), equal_nan=True)
        for y, d in pairs
    )


def _size(y):
    return y.abs().nan_to_num(0.0, 0.0).mean().item() if y.numel() else 0.0


def _outputs(target):
    return [y.detach() for y in target.start().ys]


def _same(a, b):
    return a.shape == b.shape and torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)


def _told(error):
    frames = traceback.extract_tb(error.__traceback__)
    place = [f for f in frames if not f.filename.startswith(HERE)][-1]
    return f"{type(error).__name__}: {error} (in {place.name}, line {place.lineno})."
