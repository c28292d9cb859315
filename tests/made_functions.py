"""Functions for the tests, made of two methods or of two expressions; points to ask them at, and
what `diagnose` says of them."""

from inspect import Parameter, Signature, isfunction, signature

import torch
from torch.autograd import Function


def x(*values):
    """A point in float64 that requires grad, x = 0.5 and 1.0 unless others are given."""
    return torch.tensor(values or (0.5, 1.0), dtype=torch.float64, requires_grad=True)


def function(forward, backward, name=""):
    """A Function class from its two methods, named after the forward."""
    body = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type(name or forward.__name__, (Function,), body)


def of_inputs(value, backward, name="F"):
    """A Function class: value(*inputs), which saves its inputs, and backward(grad_out, *inputs).

    Its inputs have the names that they have in `value`.
    """

    def forward(ctx, *inputs):
        ctx.save_for_backward(*inputs)
        return value(*inputs)

    if isfunction(value):
        ctx = Parameter("ctx", Parameter.POSITIONAL_OR_KEYWORD)
        forward.__signature__ = Signature([ctx, *signature(value).parameters.values()])
    return function(forward, lambda ctx, g: backward(g, *ctx.saved_tensors), name)


def saving(value, kept, backward):
    """value(x), which saves kept(x), for backward(grad_out, kept(x))."""

    def forward(ctx, x):
        ctx.save_for_backward(kept(x))
        return value(x)

    return function(forward, lambda ctx, g: backward(g, *ctx.saved_tensors)).apply


def same(x):
    return x


def save_x(ctx, x):
    ctx.save_for_backward(x)
    return x**3


def cubic(backward):
    """x**3 with a given backward(grad_out, x)."""
    return function(save_x, lambda ctx, g: backward(g, *ctx.saved_tensors)).apply


def codes(diagnosis):
    return [finding.code for finding in diagnosis.findings]


def message(diagnosis, code):
    """Of the finding with this code, which must be there."""
    return next(f.message for f in diagnosis.findings if f.code == code)
