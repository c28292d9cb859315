"""Whether the first derivative is wrong besides a habit of backward: also where that does not act.

What is meant, such as a straight-through estimator, may look at the sign of grad_out, too.
"""

from contextlib import nullcontext
from dataclasses import replace

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.overrides import TorchFunctionMode

from double_backward.differences import same, vjp

from .first import is_off
from .linearity import FACTORS
from .measure import Measured
from .target import seed_generators

CALLS = 20  # of a backward that draws random numbers
SURE = 6.0  # times the standard error of their mean


def wrong_for_other_grad_outs(measured: Measured) -> bool:
    """Of a backward that is not linear: for -w, for a small w and for ones, and for w without what
    it returns for 0. False where it is right for one of these."""
    w = measured.probe.w
    small = FACTORS[measured.dtype][2]
    others = [[-v for v in w], [small * v for v in w], [torch.ones_like(v) for v in w]]
    if not all(_off(measured, other, _gradient(measured, other)) for other in others):
        return False
    here, added = _gradient(measured, w), _gradient(measured, [0 * v for v in w])
    if here is None or added is None or not (added.isfinite().all() and added.any()):
        return True
    return _off(measured, w, here - added)


def wrong_without_writing(measured: Measured) -> bool:
    """Of a backward that writes into what is saved: where it is given copies to write into, and
    where what it writes becomes a new tensor. False where it is right in one of these."""
    mode = _NewTensors()
    copied = _wrong_given(measured, nullcontext(), Tensor.clone)
    return copied and _wrong_given(measured, mode, mode.known)


class _NewTensors(TorchFunctionMode):
    """`x.mul_(2)` and `x *= 2` return a new tensor, where x is saved, and leave x as it is."""

    def __init__(self):
        super().__init__()
        self.saved = []

    def known(self, tensor):
        """The same, as it is read in backward."""
        self.saved.append(tensor)
        return tensor

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", "")
        if args and any(args[0] is tensor for tensor in self.saved):
            other = f"__{name[3:]}" if name.startswith("__i") else name.removesuffix("_")
            func = getattr(Tensor, other, func) if name.endswith("_") else func
        return func(*args, **(kwargs or {}))


def _wrong_given(measured, mode, saved):
    w = measured.probe.w
    try:
        with saved_tensors_hooks(lambda t: t, saved), mode:
            call = measured.probe.target.start()
            before = [v.detach().clone() for v in [*call.xs, *call.ys]]
            gradient = vjp(call.ys, call.t, w)
            written = not all(map(same, [*call.xs, *call.ys], before))
    except Exception:  # of fn, or of its backward
        return False
    return not written and _off(measured, w, gradient)


def wrong_at_first(measured: Measured) -> bool:
    """Of a backward that is not repeatable: in its first call through a graph, and on the mean of
    several such calls where these differ, as random numbers do."""
    w = measured.probe.w
    calls = [_gradient(measured, w, seed=k) for k in range(CALLS)]
    drawn = torch.stack([g for g in calls if g is not None])
    if len(drawn) < CALLS or not drawn.isfinite().all():
        return False
    return _off(measured, w, drawn.mean(0), SURE * drawn.std(0) / CALLS**0.5)


def _gradient(
    measured: Measured, w: list[Tensor] | tuple[Tensor, ...], seed: int = 0
) -> Tensor | None:
    """Through a graph of its own, with such random numbers in backward; None where it raises."""
    try:
        call = measured.probe.target.start()
        seed_generators(seed)
        return vjp(call.ys, call.t, w)
    except Exception:  # of fn, or of its backward
        return None


def _off(measured, w, gradient, doubt=None):
    if gradient is None:
        return False
    return is_off(replace(measured.probe, w=tuple(w)), gradient, measured.dtype, doubt)
