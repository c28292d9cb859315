"""The custom Functions in the graph of fn, and what they keep for backward."""

import gc
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from numbers import Number
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from double_backward._torch import element_count, version
from double_backward.calls import Here, Listener, listening_alone
from double_backward.check import Checked, Outcome
from double_backward.differences import same
from double_backward.failures import unless_gone
from double_backward.graphs import walk
from double_backward.methods import has_jvp, matches, names_of
from double_backward.names import Save, saves_noted
from double_backward.operators import NO_KERNEL, WRITES, operator_of
from double_backward.phrases import Phrase
from double_backward.places import Place, place_of
from double_backward.untracked_steps import Step

from .target import Evaluation, Target

MOST_NODES = 200  # nodes; further ones are not looked at
STEP = 5e-3  # a step relative to the inputs, which is large enough to show in 16 bits


class Kind(StrEnum):
    """What a thing that a Function keeps is: an input, an output, or something else."""

    INPUT = "input"
    OUTPUT = "output"
    INTERMEDIATE = "intermediate"  # made in forward, and it changes with the inputs
    CONSTANT = "constant"  # a mask, for example


@dataclass(frozen=True)
class Saved:
    """A tensor, an array or a number that a custom Function keeps."""

    slot: int | str  # a number in saved_tensors, or the name of an attribute of ctx
    kind: Kind
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    repeats: Kind | None = None  # INPUT or OUTPUT, if an intermediate only repeats one
    variable: str = ""  # the reader's name for a saved tensor, where that is known
    saved_in: str = ""  # the place of the save, where the name and the class do not tell it
    position: int | None = None  # which input or output it is
    used: bool | None = None  # whether backward's result changes with it; None: not asked
    marked: bool = False  # it is returned, but marked as non-differentiable
    edited: bool = False  # it is an input that forward has written its output into
    outside: bool = False  # it is made of numbers that something outside torch computed
    circular: bool = False  # it is an output, or a view of one, that may keep its own graph alive
    inner: bool = False  # it is the leaf of a graph that forward has made for itself

    @property
    def on_ctx(self) -> bool:
        return isinstance(self.slot, str)

    @property
    def name(self) -> str:
        """The name of the attribute of ctx, "" for a saved tensor."""
        return self.slot if isinstance(self.slot, str) else ""

    @property
    def numeric(self) -> bool:
        """Whether it is no tensor but a number, an array or another object, which has no graph."""
        return self.bytes == 0 or self.dtype.startswith("NumPy")

    @property
    def title(self) -> str:
        """The name to use for it in a sentence."""
        if self.name:
            return f"ctx.{self.name}"
        if self.variable:
            return self.variable
        if self.position is not None:
            return Phrase("{kind} {position}", kind=Phrase(self.kind), position=self.position)
        return f"saved_tensors[{self.slot}]"


class Extra(NamedTuple):
    """An output beyond the first for whose gradient backward returns something wrong."""

    title: str
    ignored: bool  # backward returns 0 for it


class Second(NamedTuple):
    """A wrong result of the backward of a Function that another Function's backward applies."""

    name: str
    returned: str  # "None", "0" or "a wrong gradient"
    argument: str  # the name of the argument for which it is returned


WRONG = Outcome.WRONG, Outcome.NOT_FINITE
UNTOLD = Outcome.NOT_ASKED, Outcome.UNCLEAR, Outcome.RAISES


@dataclass(frozen=True)
class Custom:
    """One custom Function in the graph of fn. If it is declared once_differentiable, its outcomes
    are those without that guard."""

    name: str
    once: bool  # declared once_differentiable
    saved: tuple[Saved, ...]
    checked: Checked = Checked()  # its backward by itself, near its own inputs
    first: Outcome = Outcome.NOT_ASKED  # its first derivative by itself
    moves: bool = True  # whether what backward returns changes with the inputs
    refused: str = ""  # what is raised where grad_out has a graph, or why it could not be asked
    extras: tuple[Extra, ...] = ()
    handed: tuple[str, ...] = ()  # arguments that change with x, have no graph, and are used
    inner: tuple[str, ...] = ()  # custom Functions that backward applies
    seconds: tuple[Second, ...] = ()  # the wrong results of these
    hidden: bool = False  # whether it uses something that forward computes and keeps outside of ctx
    own_result: tuple[str, ...] = ()  # results that it uses for a gradient which is not forward's
    cut: tuple[str, ...] = ()  # inputs that backward does not follow, which nothing kept explains
    untracked_calls: tuple[Step, ...] = ()  # seen in backward: a detach and its line, say
    names: tuple[str, ...] = ()  # all names that `ignore=` may use for it
    place: Place | None = None  # where the class, or the backward of an operator, is written
    operator: bool = False  # whether it is a registered operator
    set_up: Place | None = None  # where the setup_context of an operator is written
    meant: bool = False  # whether its gradient is meant, as the caller said, and not judged
    jvp: bool = False  # whether it has a jvp of its own
    wrong_jvp: bool = False  # whether that is wrong by itself; asked if forward mode is wrong

    @property
    def by_input(self) -> Outcome:
        """The outcome for the derivative of its backward by its inputs."""
        return self.checked.by_input.outcome

    @property
    def by_grad_out(self) -> Outcome:
        """The outcome for the derivative of its backward by grad_out."""
        return self.checked.by_grad_out.outcome

    @property
    def lost(self) -> list[Saved]:
        """Intermediates through which backward depends on the inputs, and which are constants for
        autograd."""
        if self.by_input is Outcome.RIGHT:
            return []
        return [s for s in self.saved if s.kind is Kind.INTERMEDIATE and s.used is not False]

    @property
    def counts_twice(self) -> bool:
        """Whether backward adds a dependence on an input that grad_out has already, so that it
        counts twice."""
        others = {self.by_input, self.by_grad_out}
        return self.checked.tied.outcome in WRONG and not others & {*WRONG, *UNTOLD}

    @property
    def explained(self) -> bool:
        """Whether something is known that explains a wrong second derivative."""
        kept = self.lost or self.extras or self.handed or self.hidden or self.own_result
        return bool(kept or self.cut or self.seconds)

    @property
    def suspect(self) -> bool:
        """Whether anything about it is not as it should be."""
        return self.checked.bad or self.explained

    @property
    def sound(self) -> bool:
        """Whether autograd differentiates all of backward, and correctly."""
        right = self.by_input is Outcome.RIGHT or not self.moves
        return right and not (self.refused or self.checked.bad)


class Untracked(NamedTuple):
    """A registered operator that fn calls, and that autograd does not follow."""

    name: str
    why: str
    meant: bool  # whether the caller ignores it


class Node(NamedTuple):
    """The node of a custom Function in one call of fn."""

    fn: object  # as in `tensor.grad_fn`
    function: type  # the class
    once: bool
    kept: list  # of walk.Kept
    tensors: tuple  # saved_tensors
    attributes: dict  # of ctx
    save: Save | None = None  # None: none was seen


class Looked(NamedTuple):
    """One call of fn, and the custom Functions in its graph.

    Up to torch 2.12 a node is dead once its output is gone, so that both are held here.
    """

    call: Evaluation
    nodes: list[Node]


def look(target: Target, shift: float | Tensor = 0.0) -> Looked:
    """Call fn and read its graph. Raises what fn raises."""
    with saves_noted() as saves:
        call = target.start(shift=shift)
    nodes: list[Node] = []
    for node in walk.walk(*call.ys).nodes:
        if node.custom is None or len(nodes) == MOST_NODES:
            continue
        readable = all(kept.tensor is not None for kept in node.kept)
        fn: Any = node.fn  # to Python it is ctx, too
        tensors = tuple(fn.saved_tensors) if readable else ()
        once = node.once_differentiable
        save = saves.get(fn)
        nodes.append(Node(fn, node.custom, once, node.kept, tensors, dict(vars(fn)), save))
    return Looked(call, nodes)


def custom_functions(target: Target, here: Looked | None = None) -> tuple[Custom, ...]:
    """The custom Functions in the order of the graph, the last one called first.

    Args:
        here: `look(target)`; None to call it.
    """
    here = here or look(target)
    if not here.nodes:
        return ()
    there, found = _beside(target, here), []
    for node, other in zip(here.nodes, there.nodes, strict=True):
        saved = [*_saved_tensors(node, other, here.call, target), *_saved_values(node, other)]
        names = names_of(node.function)
        custom = Custom(names[0], node.once, tuple(saved), names=names, jvp=has_jvp(node.function))
        operator = operator_of(node.function)
        if operator is not None:
            set_up = operator.setup_context and place_of(operator.setup_context)
            custom = replace(custom, operator=True, set_up=set_up)
        found.append(replace(custom, place=place_of(node.function)))
    return tuple(found)


class _NotFollowed(Listener):
    """Notes the operators that autograd does not follow, and why, without those that write: these
    are steps of fn."""

    def __init__(self):
        self.why = {}

    def not_followed(self, function, why):
        if why != WRITES:
            self.why.setdefault(function, why)

    def without_kernel(self, call, node):
        self.why.setdefault(call.function, NO_KERNEL)


def untracked(target: Target, ignore: Sequence[type | str]) -> tuple[Untracked, ...]:
    """The operators in fn that autograd does not follow. Raises what fn raises."""
    met = _NotFollowed()
    with listening_alone(Here(met)):
        target.start()

    def meant(function):
        return any(matches(each, names_of(function), None) for each in ignore)

    return tuple(Untracked(names_of(f)[0], why, meant(f)) for f, why in met.why.items())


def _beside(target, here):
    """fn called a little beside the point; `here` where fn has no value there, or another graph."""
    for nearer in (1.0, 1e-3):
        with unless_gone():  # of fn
            there = look(target, target.uneven_step(nearer * STEP))
            counts = [[len(n.kept) for n in looked.nodes] for looked in (here, there)]
            return there if counts[0] == counts[1] else here
    return here


def kinds(customs: Sequence[Custom]) -> list[list[Kind]]:
    """The kind of everything that the custom Functions keep."""
    return [[s.kind for s in custom.saved] for custom in customs]


def _saved_tensors(node, other, call, target):
    names = node.save.names if node.save else ()
    places = iter([i for i, tensor in enumerate(node.tensors) if tensor is not None])
    for kept, beside in zip(node.kept, other.kept, strict=True):
        if kept.tensor is None:
            continue
        slot = kept.name if kept.on_ctx else next(places)
        saved = _saved(slot, kept, beside.tensor, call, target)
        if not saved.on_ctx and node.save:
            variable = names[slot] if slot < len(names) else ""
            told = "" if variable and node.save.is_in(node.function) else node.save.told
            saved = replace(saved, variable=variable, saved_in=told)
        yield saved


def _saved(slot, kept, beside, call, target):
    tensor = kept.tensor
    if kept.role == walk.INPUT:
        kind = Kind.INPUT
    elif kept.role == walk.OUTPUT:
        kind = Kind.OUTPUT
    elif _moves(tensor, beside):
        kind = Kind.INTERMEDIATE
    else:
        kind = Kind.INPUT if has_values_of(tensor, target.constants) else Kind.CONSTANT
    dtype = str(tensor.dtype).removeprefix("torch.")
    size = element_count(tensor) * tensor.element_size()
    view = kept.role == walk.INTERMEDIATE and tensor.requires_grad  # made where nothing is recorded
    begins = kept.role == walk.ELSEWHERE and tensor.is_leaf
    return Saved(
        slot,
        kind,
        tuple(tensor.shape),
        dtype,
        size,
        position=kept.position,
        edited=kind is Kind.INPUT and bool(version(tensor)) and _is_in_memory_of(tensor, call.ys),
        circular=view or (kept.on_ctx and kind is Kind.OUTPUT),
        inner=begins and kind is Kind.INTERMEDIATE,
    )


def _is_in_memory_of(tensor, others):
    strided = [t for t in (tensor, *others) if t.layout == torch.strided]
    homes = [t.untyped_storage().data_ptr() for t in strided]
    return strided[:1] == [tensor] and homes[0] in homes[1:]


def _moves(tensor, beside):
    """Whether a tensor changes with a small step; of integers, which may be indices, most have
    to."""
    if tensor.is_floating_point() or tensor.is_complex():
        return not has_values_of(tensor, [beside])
    apart = tensor != beside if tensor.shape == beside.shape else torch.zeros(1)
    return tensor.dtype != torch.bool and apart.double().mean() > 0.5


def has_values_of(tensor: Tensor, others: Sequence[Tensor]) -> bool:
    """Whether one of the others has the same values, in any shape."""
    tensor = tensor.detach().to_dense().reshape(-1)
    same = [o for o in others if o.numel() == tensor.numel()]
    same = [o.detach() for o in same if o.is_complex() == tensor.is_complex()]
    return any(torch.equal(o.to_dense().reshape(-1).to(tensor.dtype), tensor) for o in same)


def _saved_values(node, other):
    """Numbers and arrays on ctx that change with the inputs; they can have no graph."""
    for name, value in node.attributes.items():
        beside = other.attributes.get(name)
        if not (_is_inexact(value) and _is_inexact(beside)) or same(value, beside):
            continue
        if isinstance(value, np.ndarray):
            about = value.shape, f"NumPy {value.dtype}", value.nbytes
        else:
            about = (), type(value).__name__, 0
        yield Saved(name, Kind.INTERMEDIATE, *about)


def _is_inexact(value):
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "fc"
    return isinstance(value, Number) and not isinstance(value, (bool, int))


# How long a graph lives.


class Lifetime(StrEnum):
    """What becomes of the graph of fn when no output is held any more."""

    FREED = "freed"
    CYCLE = "cycle"  # freed when the garbage collector runs
    FOREVER = "forever"  # a cycle that the garbage collector does not see


def lifetime(target: Target) -> Lifetime:
    """Call fn, drop what it returns and see which nodes are left. Raises what fn raises."""
    left = _references(look(target))
    if not any(node() for node in left):
        return Lifetime.FREED
    gc.collect()
    return Lifetime.FOREVER if any(node() for node in left) else Lifetime.CYCLE


def _references(looked: Looked) -> list[weakref.ref]:
    return [weakref.ref(node.fn) for node in looked.nodes]
