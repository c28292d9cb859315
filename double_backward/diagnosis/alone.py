"""The backward of one node, called by itself: what it returns, as a number.

With a stand-in for ctx, in which what forward kept can be something else.
"""

import copy
import math
from itertools import zip_longest

import torch
from torch import Tensor
from torch.autograd import Function

from double_backward._torch import grad_outs_of, tree_flatten, tree_map

from .functions import Node, look
from .target import seed_generators


class StandIn:
    """A ctx with other tensors and attributes; for the rest it asks the real one."""

    def __init__(self, ctx, tensors, attributes):
        self.__dict__.update(attributes)
        self.__dict__["_stand_in"] = ctx, tensors

    @property
    def saved_tensors(self):
        return self.__dict__["_stand_in"][1]

    saved_variables = saved_tensors  # its old name

    def __getattr__(self, name):
        return getattr(self.__dict__["_stand_in"][0], name)


class Backward:
    """The backward of one node as a number: what it returns, weighted and summed.

    Each element is divided by its size at the point (`sizes`), so that a small one counts as much
    as a large one.
    """

    def __init__(self, node: Node, number: int, seed: int, size: float = 1.0):
        self.node, self.number, self.seed = node, number, seed
        self.kept = node.tensors, node.attributes
        self.recorded = False  # grad_out has a graph; some backwards look whether it has
        self.u = [size * weights(like, number, k) for k, like in enumerate(_grad_outs(node))]
        self.sizes = self._measured_sizes()
        if len(self.u) > 1:
            self.u = self._of_one_size()

    def _measured_sizes(self):
        try:
            return [_sizes(g) for g in self._grads(*tree_map(own_copy, self.kept))]
        except Exception:  # of backward
            return []

    def of(self, node: Node) -> "Backward":
        """The same for another call, with the same weights."""
        other = copy.copy(self)
        other.node, other.kept = node, (node.tensors, node.attributes)
        return other

    def _of_one_size(self):
        """Weights with which each output has the same share, however small it is."""
        found = []
        for k, v in enumerate(self.u):
            alone = [v if i == k else torch.zeros_like(w) for i, w in enumerate(self.u)]
            share = abs(self.value(self.kept, alone))
            found.append(v / share if share > 0 and math.isfinite(share) else v)
        return found

    def __call__(self, tensors, attributes, u=None):
        """May raise what backward raises."""
        grads = self._grads(tensors, attributes, u)
        pairs = zip_longest(grads, self.sizes[: len(grads)], fillvalue=1.0)
        grads = [g / size for g, size in pairs]
        terms = [dot(g, weights(g, self.number, k, 7)) for k, g in enumerate(grads)]
        return sum(terms, torch.zeros((), dtype=torch.float64))

    def _grads(self, tensors, attributes, u=None):
        seed_generators(self.seed)
        ctx = StandIn(self.node.fn, tuple(tensors), attributes)
        grads = _method(self.node)(ctx, *(u or self.grad_outs()))
        return [g.to_dense() for g in tree_flatten(grads)[0] if isinstance(g, Tensor)]

    def grad_outs(self):
        """New ones, since backward may write into them."""
        if self.recorded:
            return [v.clone().requires_grad_() * 1 for v in self.u]
        return [v.clone() for v in self.u]

    def value(self, kept, u=None):
        """With copies, since backward may write into what it gets; NaN where it raises."""
        try:
            tensors, attributes = tree_map(own_copy, kept)
            return self(tensors, attributes, u).detach().double().item()
        except Exception:  # of backward
            return math.nan


class NotFollowed(Exception):
    """fn raises, or beside the point there is another graph."""


def seen_at(target, shift=0.0):
    try:
        return look(target, shift)
    except Exception as error:  # of fn
        raise NotFollowed from error


def matching(there, backward):
    """The same node beside the point; a graph of another shape cannot be compared."""
    if backward.number >= len(there.nodes):
        raise NotFollowed
    node, other = backward.node, there.nodes[backward.number]
    if [t is None for t in node.tensors] != [t is None for t in other.tensors]:
        raise NotFollowed
    return other


def _grad_outs(node):
    """Empty tensors like the gradients that backward gets."""
    likes = []
    for meta in grad_outs_of(node.fn):
        dtype = torch.promote_types(meta.dtype, torch.half)
        likes.append(torch.empty(meta.shape, dtype=dtype, device=meta.device))
    return likes


def _sizes(g):
    """What to divide the elements of a gradient by; for those that are 0, that of the largest."""
    size = g.detach().abs()
    largest = size.max() if size.numel() else size.new_ones(())
    largest = largest if largest > 0 else torch.ones_like(largest)
    return torch.where(size > 1e-9 * largest, size, largest)


def _method(node):
    """backward, without the guard of once_differentiable."""
    cls = node.function
    method = cls.backward if cls.backward is not Function.backward else cls.vjp
    inner = method if node.once else None
    while inner is not None and hasattr(inner, "__wrapped__"):
        guarded = inner.__code__.co_qualname.startswith("once_differentiable.")
        inner = inner.__wrapped__
        if guarded:
            return inner
    return method


# What is kept, by its place: a number in saved_tensors, or an attribute of ctx.


def slots_of(node):
    data = [isinstance(t, Tensor) and t.dtype != torch.bool for t in node.tensors]
    return [*(i for i, is_data in enumerate(data) if is_data), *node.attributes]


def in_slot(kept, slot):
    tensors, attributes = kept
    return tensors[slot] if isinstance(slot, int) else attributes.get(slot)


def swapped(kept, moved, slot):
    """`kept`, with one thing as it is in `moved`."""
    tensors, attributes = list(kept[0]), dict(kept[1])
    (tensors if isinstance(slot, int) else attributes)[slot] = in_slot(moved, slot)
    return dressed((tensors, attributes), kept)


def tensors_in(value):
    return [t for t in tree_flatten(value)[0] if differentiable(t)]


def differentiable(value):
    if not isinstance(value, Tensor):
        return False
    return value.is_floating_point() or value.is_complex()


def own_copy(value):
    """A tensor that backward may write into, and that requires grad if the original does."""
    if not isinstance(value, Tensor):
        return value
    copied = value.detach().clone().requires_grad_(value.requires_grad).clone()
    return with_attributes(copied, value)


def with_attributes(tensor, like):
    """The tensor itself, with what the user hung on the other, as in `x.slope = ...`."""
    vars(tensor).update(vars(like))
    return tensor


def dressed(kept, other):
    """`kept`, where what hangs on its tensors is what hangs on those of `other`."""

    def with_those_of(value, like):
        if isinstance(value, Tensor) and isinstance(like, Tensor) and (vars(value) or vars(like)):
            return with_attributes(own_copy(value), like)
        return value

    (tensors, attributes), (others, there) = kept, other
    return (
        [with_those_of(t, o) for t, o in zip(tensors, others, strict=True)],
        {name: with_those_of(value, there.get(name)) for name, value in attributes.items()},
    )


def weights(like, *key):
    """Normal numbers, the same for the same key."""
    seed = 0
    for k in key:
        seed = 101 * seed + k + 1
    generator = torch.Generator().manual_seed(seed)
    dtype = torch.complex128 if like.is_complex() else torch.float64
    return torch.randn(like.shape, generator=generator, dtype=dtype).to(like)


def dot(a, b):
    """The sum of products; of complex numbers, as pairs of real ones."""
    a, b = a.to_dense(), b.to_dense()
    if a.is_complex() or b.is_complex():
        dtype = torch.promote_types(a.dtype, b.dtype)
        a, b = torch.view_as_real(a.to(dtype)), torch.view_as_real(b.to(dtype))
    return (a * b).sum()
