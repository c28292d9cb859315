"""Two ways to have a Function's gradients once more, as something autograd can differentiate.

Both take (call, inputs, grad_outs) and give {place: gradient}. What they give is a proposal: it is
used only where it has been compared with the Function itself.
"""

import inspect

import torch

from double_backward.check import autograd_vjp
from double_backward.methods import backward_method, has_setup_context


class Notepad:
    """Stands in for ctx: keeps what it is given as it is, with its graph."""

    is_ours = True

    def __init__(self, needs_input_grad):
        self.needs_input_grad = needs_input_grad
        self.saved_tensors = ()

    def save_for_backward(self, *tensors):
        self.saved_tensors = tensors

    def save_for_forward(self, *tensors):
        pass

    def mark_dirty(self, *tensors):
        pass

    def mark_non_differentiable(self, *tensors):
        pass

    def set_materialize_grads(self, value):
        pass

    def maybe_clear_saved_tensors(self):
        pass


def keep_again(call, inputs, grad_outs):
    """Call forward once more under autograd, and backward with what it keeps now.

    Of a backward declared `once_differentiable` what is under the decorator is called.
    """
    args = call.arguments(inputs)
    with torch.enable_grad():
        ctx, outs = _forward(call, args)
        grad_outs = grad_outs(outs) if callable(grad_outs) else grad_outs
        function = call.function
        backward = _without_guard(getattr(function, backward_method(function)))
        boxed = getattr(function, "boxed_grads_call", False)
        grads = backward(ctx, list(grad_outs)) if boxed else backward(ctx, *grad_outs)
    grads = grads if isinstance(grads, tuple) else (grads,)
    tensors = {p: g for p, g in enumerate(grads) if p in inputs and isinstance(g, torch.Tensor)}
    return {place: fitting(grad, inputs[place]) for place, grad in tensors.items()}


def differentiate_forward(call, inputs, grad_outs):
    """Call forward once more under autograd, and let autograd write the backward."""
    args = call.arguments(inputs)
    with torch.enable_grad():
        grads = autograd_vjp(lambda _: _forward(call, args)[1], list(inputs.values()), grad_outs)
    return {p: g for p, g in zip(inputs, grads, strict=True) if g is not None}


def fitting(grad, x):
    """What autograd makes of a gradient for x: the shape and dtype of x."""
    if grad.shape != x.shape:
        grad = grad.sum_to_size(x.shape)
    return grad.to(x.dtype)


WAYS = keep_again, differentiate_forward


def _forward(call, args):
    ctx = Notepad(tuple(place in call.inputs for place in range(len(args))))
    function = call.function
    if has_setup_context(function):
        out = function.forward(*args, **call.kwargs)
        function.setup_context(ctx, tuple(args), out)
    else:
        out = function.forward(ctx, *args, **call.kwargs)
    return ctx, out if isinstance(out, tuple) else (out,)


def _without_guard(backward):
    return inspect.unwrap(backward)
