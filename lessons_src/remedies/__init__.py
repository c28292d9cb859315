"""Second derivatives through Functions that are not yours: loud where wrong, or made right.

`with detect_intermediates():` turns a second derivative that a custom Function would get wrong
into an error. `with recompute_intermediates():` computes what the Function kept once more under
autograd, so that the number becomes right, or raises where that cannot be had.
"""

from contextlib import contextmanager

import torch
from torch.autograd import Function

from . import explain
from .again import WAYS, is_guarded
from .meet import Listener, is_listening, listening, outside, plain
from .truth import AnotherResult, Truth, Unknown, close, error_line

__all__ = ["SecondDerivativeError", "detect_intermediates", "recompute_intermediates"]


class SecondDerivativeError(RuntimeError):
    """A second derivative was asked for that would have been a wrong number."""


@contextmanager
def detect_intermediates():
    """Inside, a second derivative that a custom Function would get wrong raises.

    Like `torch.autograd.detect_anomaly`, for debugging: forward and the first backward must both
    run inside. Each time a first derivative is recorded (`create_graph=True`), every custom
    Function in it is called again beside its inputs, and what autograd says of its backward is
    compared with finite differences. Where the two disagree, an error waits on the path from the
    gradient to the Function's inputs; it is raised when a second derivative comes along there. A
    Function that is right is left as it is, and so is one that cannot be called again with the
    same result. First derivatives are as without.

    Covers all threads. May be nested.

    Raises:
        SecondDerivativeError: names the Function and what it keeps, and the lesson.
    """
    with listening(_DETECT):
        yield


@contextmanager
def recompute_intermediates():
    """Inside, a second derivative through a custom Function is right, or it raises.

    As `detect_intermediates`, but where a Function is found wrong, its forward is called once more
    under autograd, from its own arguments, and what it keeps then takes the place of what it kept.
    That is used only if the gradients are the same as the Function's own and their derivatives
    agree with finite differences.

    Raises:
        SecondDerivativeError: where that cannot be had: forward leaves torch (NumPy, a kernel), it
            gives another result when it is called again, its inputs were changed in place since,
            or it ran before the `with`.
    """
    with listening(_RECOMPUTE):
        yield


class _Wait(Function):
    """Gradients as they are, and an error that waits on the way to whatever they depend on."""

    is_ours = True
    generate_vmap_rule = True  # for torch.func

    @staticmethod
    def forward(text, wrong, count, *tensors):
        return tuple(t.detach() for t in tensors[:count])

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.text, ctx.wrong, ctx.count = inputs[:3]
        ctx.rest = len(inputs) - 3 - ctx.count
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, *grads):
        for index, grad in enumerate(grads):
            if index in ctx.wrong and grad is not None and plain(grad).any():
                raise SecondDerivativeError(ctx.text)
        return None, None, None, *grads, *[None] * ctx.rest


def _wait(text, wrong, call, grad_outs, grads):
    """`grads` with an error on the way to the inputs and to grad_out.

    Args:
        wrong: places of the gradients whose derivative is wrong, or None for all.
    """
    listed = list(grads) if isinstance(grads, tuple) else [grads]
    places = [p for p, g in enumerate(listed) if isinstance(g, torch.Tensor)]
    ahead = list(call.inputs.values()) if call is not None else []
    ahead += [g for g in grad_outs if isinstance(g, torch.Tensor) and g.requires_grad]
    numbers = {i for i, p in enumerate(places) if wrong is None or p in wrong}
    given = [listed[p] for p in places]
    if call is not None and call.transformed:
        ahead = list(call.inputs.values())
    if not given or not (ahead or any(g.requires_grad for g in given)):
        return grads
    for place, grad in zip(
        places, _Wait.apply(text, numbers, len(given), *given, *ahead), strict=True
    ):
        listed[place] = grad
    return tuple(listed) if isinstance(grads, tuple) else listed[0]


class _Detect(Listener):
    def after_backward(self, node, call, grad_outs, grads):
        if is_listening(_RECOMPUTE):
            return grads
        try:
            with _measured(call, grad_outs, detect_intermediates) as truth:
                verdict = truth.judge()
                if verdict.right or (verdict.raised and not is_guarded(call.function)):
                    return grads
                text = explain.wrong(truth, verdict)
        except Unknown:
            return grads
        return _wait(text, verdict.wrong or None, call, grad_outs, grads)


class _Recompute(Listener):
    def after_backward(self, node, call, grad_outs, grads):
        try:
            with _measured(call, grad_outs, recompute_intermediates) as truth:
                if truth.judge().right:
                    return grads
                ways = {way: _objection(truth, way) for way in WAYS}
            return _recomputed(call, grad_outs, grads, ways)
        except Unknown as reason:
            function = node._forward_cls if call is None else call.function
            text = explain.not_had(function, reason)
            return _wait(text, None, call, grad_outs, grads)


@contextmanager
def _measured(call, grad_outs, remedy):
    """The `Truth` of a call; raises `Unknown`."""
    if call is None:
        raise Unknown(f"its forward ran before {remedy.__name__}() began")
    with outside(call):
        if call.transformed:  # what they depend on is hidden: they may depend on anything
            grad_outs = [plain(g) for g in grad_outs]
            for g in grad_outs:
                if isinstance(g, torch.Tensor) and g.is_floating_point():
                    g.requires_grad_()
            yield Truth(call.plain(), grad_outs)
        else:
            yield Truth(call, grad_outs)


def _objection(truth, way):
    """Why this way of computing the gradients once more cannot be used, or None."""
    try:
        verdict = truth.judge(way)
    except Unknown as reason:
        return str(reason)
    if verdict.raised is not None:
        return f"autograd says: {error_line(verdict.raised)}"
    if verdict.wrong:
        return "computed once more it is still wrong: forward or backward leaves torch (lesson 5)"
    return None


def _recomputed(call, grad_outs, grads, ways):
    """The same gradients, computed in the first way to which there is no objection."""
    if call.inputs_changed:
        raise Unknown("its inputs have been changed in place since")
    for way in WAYS:
        if ways[way] is None:
            try:
                with call.state.again():
                    again = way(call, call.inputs, grad_outs)
                return _put_in(again, grads, call)
            except Unknown as reason:
                ways[way] = str(reason)
            except Exception as error:  # of the Function
                ways[way] = f"calling it again raises {error_line(error)}"
    raise Unknown(ways[WAYS[0]])


def _put_in(again, grads, call):
    listed = list(grads) if isinstance(grads, tuple) else [grads]
    for place, grad in enumerate(listed):
        if not isinstance(grad, torch.Tensor) or place not in call.inputs:
            continue
        if place not in again or not close(plain(again[place]), plain(grad)):
            raise AnotherResult
        listed[place] = again[place]
    return tuple(listed) if isinstance(grads, tuple) else listed[0]


_DETECT, _RECOMPUTE = _Detect(), _Recompute()
