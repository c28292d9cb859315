"""Computes a Function's gradients again with one thing changed; what that cures is the cause.

`keep_again`, `differentiate_forward`, `set_up_again` take (call, inputs, grad_outs) and return
{place: gradient}, which autograd can differentiate. The result is used only after it has been
compared with that of the Function itself.
"""

import inspect
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial, wraps
from itertools import count, repeat
from threading import get_ident

import torch

from ._torch import is_transformed_here, replaced, tree_map
from .check import autograd_vjp
from .failures import handed_over
from .methods import (
    applied_as_is,
    around,
    backward_method,
    has_setup_context,
    is_once_differentiable,
    without_guard,
)
from .operators import flattened

# Where something is kept: its place, a number in saved_tensors or a name on ctx; and its number
# among the things in that place, which may be a list.
Where = tuple[int | str, int]
OWN = "needs_input_grad", "saved_tensors", "non_differentiable", "_double_backward"


@dataclass
class Noted:
    """What is known of a call besides what it keeps: the arguments of forward, among which may be
    what it keeps, what it returned, whether a gradient of None reaches backward as zeros, and
    whether forward handed what has a graph to NumPy."""

    handed_over: tuple
    outputs: tuple = ()
    materializes: bool = True
    calls_numpy: bool = False


class Notepad:
    """Stands in for ctx: keeps what it is given as it is, with its graph.

    Like ctx, it leaves all other names to what forward keeps: what we note stands in
    `_double_backward`.
    """

    is_ours = True

    def __init__(self, needs_input_grad, handed_over=()):
        self.needs_input_grad = needs_input_grad
        self.saved_tensors: tuple = ()
        self.non_differentiable = ()
        self._double_backward = Noted(handed_over)

    @classmethod
    def of(cls, ctx, read):
        """A notepad with what a node keeps, where each value is replaced by `read(where,
        value)`."""
        notepad = cls(ctx.needs_input_grad)
        saved = enumerate(ctx.saved_tensors)
        notepad.saved_tensors = tuple(t if t is None else read((i, 0), t) for i, t in saved)
        for name, value in vars(ctx).items():
            where = zip(repeat(name), count())
            each = tree_map(lambda one, where=where: read(next(where), one), value)
            setattr(notepad, name, each)
        return notepad

    def save_for_backward(self, *tensors):
        self.saved_tensors = tensors

    def save_for_forward(self, *tensors):
        pass

    def mark_dirty(self, *tensors):
        pass

    def mark_non_differentiable(self, *tensors):
        self.non_differentiable = tensors

    def set_materialize_grads(self, value):
        self._double_backward.materializes = value

    def maybe_clear_saved_tensors(self):
        pass

    @property
    def saved_variables(self):
        """The old name of saved_tensors."""
        return self.saved_tensors


def attributes(notepad):
    """Dict: the name of an attribute that forward has set -> its value."""
    return {name: value for name, value in vars(notepad).items() if name not in OWN}


def kept_at(notepad, place):
    """What is kept at a place: a number in saved_tensors, or the name of an attribute."""
    return notepad.saved_tensors[place] if isinstance(place, int) else getattr(notepad, place)


def noted(notepad):
    return notepad._double_backward


def keep_again(call, inputs, grad_outs, decorated=False):
    """Call forward once more under autograd, and backward with what it keeps now.

    backward is called without its decorators: `once_differentiable`, and others such as
    `torch.no_grad()`.

    Args:
        decorated: take off `once_differentiable` alone.
    """
    with torch.enable_grad():
        ctx, outs = forward_again(call, inputs)
        grad_outs = grad_outs(outs) if callable(grad_outs) else grad_outs
        return backward_again(call, inputs, grad_outs, ctx, decorated)


def set_up_again(call, inputs, grad_outs, decorated=False):
    """Call setup_context once more under autograd, with the outputs of the Function, whose graph is
    its own backward. So forward may leave torch, as a kernel does.

    Args:
        decorated: as for `keep_again`.
    """
    with torch.enable_grad():
        ctx, outs = forward_again(call, inputs, applied_as_is)
        grad_outs = grad_outs(outs) if callable(grad_outs) else grad_outs
        return backward_again(call, inputs, grad_outs, ctx, decorated)


def forward_again(call, inputs, apply=None):
    """Call forward once more; return a `Notepad` with what it keeps, and its outputs, a tuple.

    Args:
        apply: called in the place of forward, if there is a setup_context.
    """
    try:
        return _forward_again(call, inputs, apply)
    except Exception as error:  # of forward, which was not recorded when it ran
        if "Can't call numpy()" not in str(error):
            raise
    with _numpy_without_graph():
        ctx, outs = _forward_again(call, inputs, apply)
    noted(ctx).calls_numpy = True
    return ctx, outs


@contextmanager
def _numpy_without_graph():
    """Inside, in this thread, NumPy takes a tensor without its graph, as it does where nothing is
    recorded."""
    here = get_ident()

    def without_graph(numpy):
        return lambda x, *args, **kwargs: numpy(
            x.detach() if get_ident() == here else x, *args, **kwargs
        )

    with replaced(torch.Tensor, {"numpy": without_graph}):
        yield


def _forward_again(call, inputs, apply):
    args, kwargs = call.arguments(inputs)
    ctx = Notepad(tuple(place in call.inputs for place in range(len(args))), args)
    function = call.function
    with call.state.as_then():
        if has_setup_context(function):
            run = partial(apply, function) if apply else function.forward
            out = handed_over(run, *args, **kwargs)
            handed_over(function.setup_context, ctx, tuple(args), out, **kwargs)
        else:
            out = handed_over(function.forward, ctx, *args, **kwargs)
    noted(ctx).outputs = flattened(out)
    return ctx, noted(ctx).outputs


def backward_again(call, inputs, grad_outs, ctx, decorated=True):
    """Call backward, without its guard, with `ctx`; return the gradients by place."""
    function = call.function
    backward = getattr(function, backward_method(function))
    backward = without_guard(backward) if decorated else inspect.unwrap(backward)
    boxed = getattr(function, "boxed_grads_call", False)
    if noted(ctx).materializes:  # as the engine does
        pairs = zip(grad_outs, noted(ctx).outputs, strict=True)
        grad_outs = [
            torch.zeros_like(y) if g is None and isinstance(y, torch.Tensor) else g
            for g, y in pairs
        ]
    given = (list(grad_outs),) if boxed else tuple(grad_outs)
    grads = handed_over(backward, ctx, *given)
    grads = grads if isinstance(grads, tuple) else (grads,)
    tensors = {p: g for p, g in enumerate(grads) if p in inputs and isinstance(g, torch.Tensor)}
    return {place: fitting(grad, inputs[place]) for place, grad in tensors.items()}


def differentiate_forward(call, inputs, grad_outs):
    """Call forward once more under autograd, and let autograd write the backward."""
    with torch.enable_grad():
        if call.transformed:  # elsewhere they are aliases: one may be computed from another
            inputs = {place: x.view_as(x) for place, x in inputs.items()}
        vjp = _vjp_at_a_level if is_transformed_here() else autograd_vjp
        grads = vjp(lambda xs: _outputs_again(call, inputs, xs), list(inputs.values()), grad_outs)
    return {p: g for p, g in zip(inputs, grads, strict=True) if g is not None}


def _outputs_again(call, inputs, xs):
    return forward_again(call, dict(zip(inputs, xs, strict=True)))[1]


def _vjp_at_a_level(function, x, u):
    """As `autograd_vjp`, where a transform of `torch.func` is active: it may record nothing."""
    asked: list[torch.Tensor] = []

    def outputs(*xs):
        outs = function(xs)
        given = u(outs) if callable(u) else u
        pairs = [
            (y, g.to(y.dtype))
            for y, g in zip(outs, given, strict=True)
            if g is not None and isinstance(y, torch.Tensor)
        ]
        asked.extend(g for _, g in pairs)
        return tuple(y for y, _ in pairs)

    _, back = torch.func.vjp(outputs, *x)
    return back(tuple(asked))


def fitting(grad, x):
    """A gradient for x in the shape and dtype of x, as autograd converts it."""
    if grad.shape != x.shape:
        grad = grad.sum_to_size(x.shape)
    return grad.to(x.dtype)


def ways_of(function):
    """The ways in which a Function's gradients can be computed again, the simplest first."""
    more = [set_up_again] if has_setup_context(function) else []
    return [keep_again, differentiate_forward, *more]


@contextmanager
def unguarded(classes):
    """Inside, the backwards of these classes run without `once_differentiable`."""
    with ExitStack() as stack:
        for cls in dict.fromkeys(classes):
            if is_once_differentiable(cls):
                stack.enter_context(around(cls, backward_method(cls), without_guard))
        yield


def reading(function, read):
    """Inside, backward gets `read(where, value)` for each value that was kept."""

    def reads(backward):
        @wraps(backward)  # by which a guard is recognised
        def run(ctx, *grad_outs):
            return handed_over(backward, Notepad.of(ctx, read), *grad_outs)

        return run

    return around(function, backward_method(function), reads)
