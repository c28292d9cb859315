"""fn as a function of the tensors that require grad, at a point."""

import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass, replace
from itertools import count
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from double_backward._torch import TreeSpec, tree_flatten, tree_unflatten, version
from double_backward.calls import copied
from double_backward.check import is_symmetric, size
from double_backward.containers import anew
from double_backward.differences import flat, real, shaped
from double_backward.failures import handed_over, unless_gone
from double_backward.names import call_names

from .time_limit import look_at_the_clock

SLOW = 1.0  # seconds; a call that takes longer is announced on stderr


class Evaluation(NamedTuple):
    """One evaluation of fn.

    Up to torch 2.12 the node of a Function is dead once its output is gone, so that code which
    keeps a node has to keep its Evaluation.
    """

    t: list[Tensor]  # leaves: how far each input is moved from the point
    xs: list[Tensor]  # the inputs, point + t, or point + t + t**2/2
    ys: list[Tensor]  # the outputs, complex ones as pairs of real numbers


@dataclass(frozen=True, eq=False)
class Target:
    """fn, and the point at which it is called. Nothing is called before `start`.

    Everything but the inputs is handed over as a copy, the parameters and buffers of a module too.
    `at`, `in_layout`, `with_leaves`, `with_seed`, `with_outputs`, `output_alone`, `reading_as`,
    `frozen`, `linked` and `symmetric` return new ones.
    """

    fn: Callable
    slots: tuple  # all that fn gets: its arguments one by one, then parameters and buffers
    tree: TreeSpec  # how the arguments were nested
    state: tuple[str, ...]  # the names of parameters and buffers
    where: tuple[int, ...]  # the slots that fn is differentiated by: "the inputs"
    names: tuple[str, ...]  # the names of the inputs in the report
    point: tuple[Tensor, ...]  # the values of the inputs, as real strided tensors
    builds: tuple[Callable[[Tensor], Tensor], ...]  # make what fn was given from such tensors
    outputs: tuple[int, ...] | None = None  # which tensors to look at; None: all
    layout: Callable[[Tensor], Tensor] | None = None  # how arguments lie in memory; None: as given
    reading: Callable[[Tensor], Tensor] | None = None  # what is made of each output; None: nothing
    stays_symmetric: tuple[str, ...] = ()  # names of inputs that are moved so that they stay so
    is_linked: bool = False  # the mean change of the first input is added to the others
    takes_leaves: bool = False  # fn takes inputs that are leaves, and leaves them as they are
    seed: int = 0
    rtol: float | None = None  # the relative error of fn that the caller gave; None: none given
    atol: float = 0.0
    calls: Iterator[int] = field(default_factory=lambda: count(1))  # numbers calls over all copies

    @classmethod
    def of(cls, fn: Callable, inputs: tuple, dtype: torch.dtype | None = None) -> "Target":
        """The target at the point `inputs`, with floating tensors in `dtype` if that is given."""
        arguments, tree = tree_flatten(inputs)
        module = fn if isinstance(fn, torch.nn.Module) else torch.nn.Module()
        state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        slots = tuple(_copy(slot, dtype) for slot in [*arguments, *state.values()])
        names = call_names(fn, len(inputs)) if len(inputs) == len(arguments) else []
        if not names:
            one = len(arguments) == 1
            names = ["x"] if one else [f"input {i}" for i in range(len(arguments))]
        where = tuple(i for i, s in enumerate(slots) if getattr(s, "requires_grad", False))
        real = [_as_real(slots[i].detach()) for i in where]
        return cls(
            fn=fn,
            slots=slots,
            tree=tree,
            state=tuple(state),
            where=where,
            names=tuple((names + list(state))[i] for i in where),
            point=tuple(tensor for tensor, _ in real),
            builds=tuple(build for _, build in real),
        )

    def at(self, point: list[Tensor]) -> "Target":
        return replace(self, point=tuple(point))

    def in_layout(self, layout: Callable[[Tensor], Tensor]) -> "Target":
        return replace(self, layout=layout, takes_leaves=False)

    def with_leaves(self) -> "Target":
        """The same, but fn gets leaves if these need not be computed from others and fn accepts
        them."""
        given = [self.slots[i] for i in self.where]
        computed = any(x.is_complex() or x.layout != torch.strided for x in given)
        if computed or self.layout:
            return self
        other = replace(self, takes_leaves=True)
        with unless_gone():  # raised by fn, which edits its input
            taken = other.start(leaves=True)
            return self if any(map(version, taken.xs)) else other
        return self

    def with_seed(self, seed: int) -> "Target":
        return replace(self, seed=seed)

    def with_outputs(self, outputs: tuple[int, ...] | None) -> "Target":
        return replace(self, outputs=outputs)

    def output_alone(self, i: int) -> "Target":
        """The same with only the i-th of its outputs."""
        return replace(self, outputs=(self.outputs or ())[i : i + 1])

    def reading_as(self, reading: Callable[[Tensor], Tensor]) -> "Target":
        return replace(self, reading=reading)

    def frozen(self, i: int) -> "Target":
        """The same, where the i-th input no longer requires grad."""
        slots, left = list(self.slots), [k for k in range(len(self.where)) if k != i]
        slots[self.where[i]] = self.builds[i](self.point[i]).detach()
        return replace(
            self,
            slots=tuple(slots),
            where=tuple(self.where[k] for k in left),
            names=tuple(self.names[k] for k in left),
            point=tuple(self.point[k] for k in left),
            builds=tuple(self.builds[k] for k in left),
        )

    def linked(self) -> "Target":
        """The same point, where the other inputs depend on the first."""
        return replace(self, is_linked=True, takes_leaves=False)

    def symmetric(self) -> "Target":
        """The same, where inputs that are symmetric matrices are moved so that they stay symmetric,
        as in fn((x + x.mT) / 2)."""
        given = [build(x) for build, x in zip(self.builds, self.point, strict=True)]
        names = tuple(n for n, x in zip(self.names, given, strict=True) if is_symmetric(x))
        return replace(self, stays_symmetric=names, takes_leaves=False)

    @property
    def is_as_given(self) -> bool:
        """Whether fn gets its inputs unchanged, and what it returns is taken unchanged."""
        return not (self.layout or self.reading or self.is_linked or self.stays_symmetric)

    @property
    def constants(self) -> list[Tensor]:
        """The tensors that fn gets and is not differentiated by."""
        given = [s for i, s in enumerate(self.slots) if i not in self.where]
        return [s for s in given if isinstance(s, Tensor)]

    def uneven_step(self, by: float) -> Tensor:
        """A flat step in proportion to the elements of the inputs, which changes all that depends
        on them, even if only on their differences.

        It is not a linear ramp, which is the sum of a number for each row and one for each column:
        some functions, such as a transport plan, do not depend on these.
        """
        sizes = flat([size(x) for x in self.point])
        uneven = 1.5 + (2 * torch.arange(len(sizes))).double().sin() / 2
        return by * uneven * sizes

    def start(
        self, bent: bool = False, shift: float | Tensor = 0.0, leaves: bool = False
    ) -> Evaluation:
        """Call fn at point + t (+ t**2/2 if bent), where t is `shift`, a flat vector or a number.

        With `leaves`, fn gets leaves if it accepts them, as readers pass them; else it gets what an
        operation returns. Raises whatever fn raises.
        """
        if leaves and self.takes_leaves and not bent:
            moved = self.point_at(shaped(torch.zeros_like(flat(self.point)) + shift, self.point))
            made = [x.detach().clone().requires_grad_() for x in moved]
            return Evaluation(made, made, self.tensors(made))
        zeros = [torch.zeros_like(x) for x in self.point]
        t = [s.requires_grad_() for s in shaped(flat(zeros) + shift, zeros)]
        xs = self.inputs(t, bent)
        return Evaluation(t, xs, self.tensors(xs))

    def inputs(self, t: list[Tensor], bent: bool = False) -> list[Tensor]:
        """What fn is given when the point is moved by t, or by t + t**2/2."""
        moved = self.point_at(t, bent)
        if self.is_linked:
            change = (moved[0] - self.point[0]).mean()
            moved[1:] = [x + change.to(x) for x in moved[1:]]
        return [build(x) for build, x in zip(self.builds, moved, strict=True)]

    def moved_to(self, x: list[Tensor], leaves: bool) -> list[Tensor]:
        """What fn is given where its inputs are x, which are leaves; with `leaves`, x itself if fn
        accepts leaves."""
        if self.is_linked or self.stays_symmetric:
            return self.inputs([s - o for s, o in zip(x, self.point, strict=True)])
        own = x if leaves and self.takes_leaves else [s * 1 for s in x]
        return [build(s) for build, s in zip(self.builds, own, strict=True)]

    def point_at(self, t: list[Tensor], bent: bool = False) -> list[Tensor]:
        """The point, moved by t, or by t + t**2/2."""
        steps = [s + s * s / 2 if bent else s for s in t]
        if self.stays_symmetric:
            steps = [
                _symmetric(s, build) if name in self.stays_symmetric else s
                for s, build, name in zip(steps, self.builds, self.names, strict=True)
            ]
        return [x + step for x, step in zip(self.point, steps, strict=True)]

    def tensors(self, xs: list[Tensor]) -> list[Tensor]:
        """The outputs of fn for these inputs, as real strided tensors."""
        ys = [real(y) for y in self.returned(xs)]
        return [self.reading(y) for y in ys] if self.reading else ys

    def returned(self, xs: list[Tensor]) -> list[Tensor]:
        """The outputs of fn for these inputs, unchanged, including those inside containers."""
        slots, _ = anew(self.slots, {})
        slots = [s.detach().clone() if isinstance(s, Tensor) else s for s in slots]
        arguments = len(slots) - len(self.state)
        for i, x in zip(self.where, xs, strict=True):
            # Parameters keep their layout: only arguments are tried in others.
            slots[i] = x
            if i < arguments and x.layout == torch.strided:
                slots[i] = self.layout(x) if self.layout else _laid_out(x, self.slots[i])
        out = self._call(slots[:arguments], dict(zip(self.state, slots[arguments:], strict=True)))
        ys = [y for y in _leaves_of(out) if isinstance(y, Tensor)]
        chosen = range(len(ys)) if self.outputs is None else self.outputs
        return [ys[i] for i in chosen]

    def _call(self, arguments, state):
        look_at_the_clock()
        seed_generators(self.seed)
        args, before = tree_unflatten(arguments, self.tree), time.perf_counter()
        if state:
            out = handed_over(torch.func.functional_call, self.fn, state, args)
        else:
            out = handed_over(self.fn, *args)
        number, seconds = next(self.calls), time.perf_counter() - before
        if seconds > SLOW:
            print(f"diagnose: call {number} of fn, {seconds:.0f} s", file=sys.stderr)
        return out

    def place(self, index: int) -> str:
        """The place and value of an element of the flattened inputs: "x = 0.5", "x[3, 7] = 0.5"."""
        which = 0
        while index >= self.point[which].numel():
            index -= self.point[which].numel()
            which += 1
        name, x = self.names[which], self.point[which]
        is_complex = self.slots[self.where[which]].is_complex()
        few = x.numel() <= 8 and x.unique().numel() == x.numel()
        if is_complex or not (x.dim() == 0 or few):
            at = [str(int(i)) for i in np.unravel_index(index, x.shape)]
            if is_complex:
                at[-1] = ("real", "imag")[int(at[-1])]
            name += f"[{', '.join(at)}]"
        return f"{name} = {x.reshape(-1)[index].item():.4g}"


def seed_generators(seed: int) -> None:
    """Seed all generators that fn may draw from.

    torch.manual_seed, which takes milliseconds, is called only where there is an accelerator.
    """
    if torch.accelerator.is_available():
        torch.manual_seed(seed)
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


def _copy(slot, dtype):
    if not isinstance(slot, Tensor):
        return slot
    wanted = slot.dtype
    if dtype and slot.is_floating_point():
        wanted = dtype
    elif dtype and slot.is_complex():
        wanted = dtype.to_complex()
    kept = copied(slot.detach().to(wanted), like=slot)
    return kept.requires_grad_(slot.requires_grad)


def _laid_out(x, like):
    """x with the strides of the tensor that fn was given, which may have had gaps."""
    return x if x.stride() == like.stride() else copied(x, like)


def _symmetric(step: Tensor, build: Callable[[Tensor], Tensor]) -> Tensor:
    """The symmetric part of a step; the Hermitian part if the input is complex."""
    step = build(step)
    return real((step + step.mH) / 2)


def _as_real(x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """The numbers of x that can be moved, as a real strided tensor, and how to build x from them.

    They are the real and imaginary parts of a complex tensor, and the values of a sparse one.
    """
    if x.layout != torch.strided:
        return _values_of(x)
    if x.is_complex():
        return torch.view_as_real(x.resolve_conj()), lambda v: torch.view_as_complex(v.contiguous())
    return x, lambda v: v


def _values_of(x):
    """`_as_real` of a sparse tensor, which is built from a dense one: the second derivative of
    `sparse_coo_tensor` by its values is wrong."""
    coordinates = x.to_sparse_coo().coalesce()
    where, values = tuple(coordinates.indices()), coordinates.values()
    dense = torch.zeros(x.shape, dtype=x.dtype, device=x.device)
    if x.layout == torch.sparse_coo:
        return values, lambda v: dense.index_put(where, v).to_sparse(x.sparse_dim())
    return values, lambda v: dense.index_put(where, v).to_sparse(layout=x.layout)


def _leaves_of(out):
    """The leaves of nested lists, tuples, dicts and dataclasses."""
    for leaf in tree_flatten(out)[0]:
        if is_dataclass(leaf) and not isinstance(leaf, type):
            yield from _leaves_of([getattr(leaf, field.name) for field in fields(leaf)])
        else:
            yield leaf


def readable(tensor: Tensor) -> bool:
    """Whether a tensor's memory is still there: reading it after its storage was freed ends the
    process."""
    if tensor.layout != torch.strided or not tensor.numel():
        return True
    last = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    end = (tensor.storage_offset() + last + 1) * tensor.element_size()
    return tensor.untyped_storage().nbytes() >= end
