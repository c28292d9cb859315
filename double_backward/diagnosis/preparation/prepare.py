"""Makes a target from fn and its inputs, or gives the reason why fn cannot be checked."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from double_backward import methods
from double_backward._torch import tree_leaves, unusual
from double_backward.calls import Listener, listening_alone
from double_backward.check import OTHER_CODE, SIXTEEN_BITS
from double_backward.differences import apart, same
from double_backward.failures import raise_if_gone, raise_if_own, unless_gone
from double_backward.graphs import walk
from double_backward.kinds import requires_grad
from double_backward.lines import described
from double_backward.phrases import Phrase

from .captured_leaves import (
    backward_follows,
    forgotten_leaves,
    holder,
    names_of,
    other_leaves,
)
from .functions import Custom, Looked, custom_functions, kinds, look
from .target import Target, readable

TOOL_FAILED = "tool_failed"
NOT_CHECKED = {
    "no_input_requires_grad": "Pass x.double().requires_grad_(), also for an integer x.",
    "lazy_parameters": "The parameters of a lazy module have no shape before its first call. Call "
    "it once, and diagnose again.",
    "meta_parameters": "Parameters are on the meta device, and have no numbers. Move the module "
    "to the CPU with to_empty, and fill them.",
    "took_too_long": "It took longer than timeout={:g} seconds{}. Pass smaller inputs, or a "
    "longer timeout.",
    "beyond_diagnose": "fn or an input cannot be examined: {}",
    "meta_input": "An input is on the meta device, and has no numbers. Pass one on the CPU.",
    "no_elements": "{} has no elements, so there is nothing to differentiate. Pass one that has.",
    "half_precision": "16 bits are too few for finite differences, and fn computes something "
    "else in float64. Only what is saved is listed here; pass "
    "float32 if fn accepts it.",
    "memory_freed": "fn frees the memory of a tensor that is still in use (its storage has no "
    "size any more), as reversible networks do. Reading such a tensor crashes "
    "Python. Switch that off to check fn, for example with keep_input=True.",
    "not_finite_here": "The output is not finite at this point. Pass another one.",
    "no_call": "This is the class, and calling it applies nothing. Pass {}.apply.",
    "no_output": "fn returns no tensor. Pass one that returns tensors, alone or in a container.",
    "output_without_graph": "No output has a graph. fn may detach, run under no_grad, mark it as "
    "non-differentiable, return its result inside an object, hand a Function its tensors inside a "
    "list, where apply does not see them, or have an operator write it (mutates_args).",
    "lost_inside": "No output has a graph: fn differentiates {} inside, and the gradient that its "
    "backward returns there has none. Diagnose {} itself.",
    "fn_raises": "fn itself raises {}",
    "fn_asks_for_leaves": "fn accepts your input, but not a tensor that another operation "
    "returns, which is what it gets in a model, and here: {}",
    "random_output": "fn gives different outputs for one input and one seed. Fix what is random.",
    TOOL_FAILED: "This says nothing of fn. {}",
}


# The lesson is 1 except for these; 0 means that no lesson says more.
LESSON_OF = dict.fromkeys(NOT_CHECKED, 1) | {
    "not_finite_here": 6,
    "lost_inside": 4,
    "took_too_long": 0,
    "beyond_diagnose": 0,
    "memory_freed": 0,
    "fn_raises": 0,
    "fn_asks_for_leaves": 0,
    TOOL_FAILED: 0,
}


SPARSE = torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc


class NotChecked(Exception):
    """fn cannot be checked with these inputs.

    Attributes:
        code: a key of `NOT_CHECKED`.
        message: its text, filled in.
        functions: the custom Functions, as far as they are known.
        lesson: the number of the lesson that says more, 0 if none does.
    """

    def __init__(self, code: str, *values: object, functions: tuple[Custom, ...] = ()):
        self.code, self.message = code, Phrase(NOT_CHECKED[code], *values)
        self.functions, self.lesson = functions, LESSON_OF[code]
        super().__init__(self.message)


@dataclass(frozen=True)
class Prepared:
    """A target that can be measured, and what is known of it before."""

    target: Target
    functions: tuple[Custom, ...]  # the custom Functions in its graph
    given: Target | None  # the target before it was converted from float32; None if it was not
    seeded: bool  # whether its output depends on the seed
    unchecked: tuple[str, ...]  # the names of leaves in the graph that are not inputs
    forgotten: tuple[str, ...]  # the names of leaves that should be in the graph, and are not


def prepare(fn: Callable, inputs: tuple) -> Prepared:
    """`Prepared` in float64 where fn keeps the same tensors then and gives the same, else as given.

    The parameters of small modules that fn holds count as inputs. Raises `NotChecked`.
    """
    if isinstance(fn, type) and issubclass(fn, torch.autograd.Function):
        raise NotChecked("no_call", fn.__name__)
    if any(t.device.type == "meta" for t in tree_leaves(inputs) if isinstance(t, torch.Tensor)):
        raise NotChecked("meta_input")
    _ask_parameters(fn, inputs)
    for x in tree_leaves(inputs):
        what = unusual(x) if isinstance(x, torch.Tensor) and x.requires_grad else ""
        if what and x.layout not in SPARSE:
            raise NotChecked("beyond_diagnose", f"it is {what}.")
    target = Target.of(fn, inputs)
    if not target.point:
        raise NotChecked("no_input_requires_grad")
    if not any(x.numel() for x in target.point):
        raise NotChecked("no_elements", Phrase("The input"))
    try:
        return _prepared(fn, inputs, target)
    except NotChecked:
        raise
    except Exception as error:  # of fn
        if _asks_for_leaves(target):
            raise NotChecked("fn_asks_for_leaves", described(error)) from error
        raise raised(error) from error


def _ask_parameters(fn, inputs):
    given = [t for t in tree_leaves(inputs) if isinstance(t, torch.Tensor)]
    if isinstance(fn, torch.nn.Module):
        given += [*fn.parameters(), *fn.buffers()]
    if any(map(torch.nn.parameter.is_lazy, given)):
        raise NotChecked("lazy_parameters")
    if any(t.device.type == "meta" for t in given):
        raise NotChecked("meta_parameters")


def _asks_for_leaves(target):
    try:
        target.start()
    except Exception as error:  # of fn
        raise_if_gone(error)
        return target.with_leaves().takes_leaves
    return False


def _prepared(fn, inputs, target):
    target, here, functions, unchecked, forgotten = _looked_at(fn, inputs, target)
    if not target.outputs:
        lost = _LostInside.by(target)
        if lost:
            raise NotChecked("lost_inside", ", ".join(lost), lost[0])
        raise NotChecked("output_without_graph")
    given, as_given = target, here.call.ys
    with unless_gone():  # fn may refuse float64, or do something else there
        if not _is_double(target):
            target, here, functions = _in_double(inputs, target, here, functions)
    if {x.dtype for x in target.point} & SIXTEEN_BITS:
        raise NotChecked("half_precision", functions=functions)
    outputs = here.call.ys
    if not any(y.numel() for y in outputs):
        raise NotChecked("no_elements", Phrase("The output"))
    if not all(y.isfinite().all() for y in [*outputs, *as_given]):
        raise NotChecked("not_finite_here")
    seeded = not _are_again(outputs, target.with_seed(1))
    if seeded and not _are_again(outputs, target):
        raise NotChecked("random_output")
    target = target.with_leaves()
    given = _to_compare(given, target, functions)
    return Prepared(target, functions, given, seeded, unchecked, forgotten)


class _LostInside(Listener):
    """Collects the Functions that fn differentiates, and whose gradients have no graph."""

    def __init__(self):
        self.names = {}

    @classmethod
    def by(cls, target):
        """The names of these Functions, a list."""
        found = cls()
        with unless_gone(), listening_alone(found):  # of fn
            target.start()
        return list(found.names)

    def after_backward(self, node, call, grad_outs, grads):
        if call is not None and not any(map(requires_grad, grads)):
            self.names[methods.names_of(call.function)[0]] = None
        return grads


def _are_again(outputs, target):
    """Whether fn gives these outputs once more."""
    return all(map(same, outputs, target.start().ys))


def _to_compare(given, target, functions):
    """The target before it was converted, where autograd may say something else of it; else None.

    It is None where both graphs have only operations of torch, and the same: these have the same
    formulas in float32.
    """
    if {x.dtype for x in given.point} != {torch.float32} or _is_double(given):
        return None
    if {x.dtype for x in target.point} != {torch.float64}:
        return None
    with unless_gone():  # of fn
        if not functions and _operations(look(given)) == _operations(look(target)):
            return None
    return given


def _operations(looked):
    """The names of the operations in the graph of fn, in the order of the graph."""
    graph = walk.walk(*looked.call.ys)
    return [node.title for node in graph.nodes if not node.title.startswith("ToCopyBackward")]


def _looked_at(fn, inputs, target):
    """The target with all that is to be differentiated, and its graph; its Functions; and the names
    of the leaves that are not inputs, and of those that get no gradient."""
    target, here = _with_graph(target)
    if not (target.outputs or target.with_outputs(None).start().ys):
        raise NotChecked("no_output")
    if not _all_readable(here):
        raise NotChecked("memory_freed")
    leaves = _with_elements(here.call)
    module = fn if isinstance(fn, torch.nn.Module) else holder(fn, leaves)
    if module is not None:
        target, here = _with_parameters(fn, inputs, module)
        leaves = _with_elements(here.call)
    functions = custom_functions(target, here)
    forgotten: list[torch.Tensor] = []
    if functions:
        kept = [k.tensor for node in here.nodes for k in node.kept if k.tensor is not None]
        with unless_gone():  # of backward
            forgotten = forgotten_leaves(fn, target, here.call, kept)
    return target, here, functions, names_of(leaves, fn), names_of(forgotten, fn)


def _with_elements(call):
    """The leaves that are not inputs, without empty ones, which some code adds only for their
    graph."""
    return [leaf for leaf in other_leaves(call) if leaf.numel()]


def _with_graph(target):
    """The target restricted to the outputs that have a graph, and that graph."""
    call, nodes = look(target)
    outputs = [i for i, y in enumerate(call.ys) if y.requires_grad]
    call = call._replace(ys=[call.ys[i] for i in outputs])
    return target.with_outputs(tuple(outputs)), Looked(call, nodes)


def _with_parameters(fn, inputs, module):
    """A target that has the parameters of `module` among its inputs, if they can be replaced; and
    its graph."""

    def plain(*args):
        return fn(*args)

    replaced, as_given = _with_graph(Target.of(module, inputs)), Target.of(plain, inputs)
    if not as_given.point:
        return replaced
    found = _with_graph(as_given)
    with unless_gone():  # raised by backward, which will be reported
        if backward_follows(replaced[0], found[0], module):
            return replaced
    return found


def _all_readable(looked):
    kept = [k.tensor for node in looked.nodes for k in node.kept if k.tensor is not None]
    return all(map(readable, [*looked.call.xs, *kept]))


def _is_double(target):
    """Whether all floating and complex tensors of a target are float64 or complex128."""
    tensors = [slot for slot in target.slots if isinstance(slot, torch.Tensor)]
    inexact = {t.dtype for t in tensors if t.is_floating_point() or t.is_complex()}
    return inexact <= {torch.float64, torch.complex128}


def _in_double(inputs, target, here, functions):
    """The target in float64, its graph and its Functions; or those given, where fn does something
    else in float64."""
    double, there = _with_graph(Target.of(target.fn, inputs, torch.float64))
    found = custom_functions(double, there)
    if found or functions:
        same = kinds(found) == kinds(functions) and _same_outputs(target, here, there)
    else:
        same = _operations(here) == _operations(there) or _same_outputs(target, here, there)
    return (double, there, found) if same else (target, here, functions)


def _same_outputs(target, here, there):
    """Whether fn gives the same in float64, which it does not if it uses .view on the bits."""
    pairs = [(y.detach(), d.detach()) for y, d in zip(here.call.ys, there.call.ys, strict=True)]
    if any(y.shape != d.shape for y, d in pairs):
        return False
    kinds = {y.dtype for y, _ in pairs}
    rough = max(OTHER_CODE.get(kind, 0.0) for kind in kinds)
    # Terms that cancel may be of the size of the inputs, or of 1: sinh(1e-6) by two exponentials.
    eps = max((torch.finfo(kind).eps for kind in kinds if kind.is_floating_point), default=0.0)
    lost = 16 * eps * max([1.0, *map(_size, target.point)])
    return not any(apart(y.double(), d, rough, lost).any() for y, d in pairs)


def _size(y):
    return y.abs().nan_to_num(0.0, 0.0).mean().item() if y.numel() else 0.0


def raised(error: Exception) -> NotChecked:
    """`NotChecked` with the error of fn. Raises `ToolFailure` where the error is not fn's."""
    raise_if_own(error)
    return NotChecked("fn_raises", described(error))
