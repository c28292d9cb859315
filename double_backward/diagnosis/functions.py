"""The custom Functions in the graph of fn, and what they keep for backward."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from numbers import Number
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from double_backward._torch import element_count, version
from double_backward.check import Outcome
from double_backward.differences import flat, same
from double_backward.graphs import walk
from double_backward.names import argument_names, returned_names
from double_backward.steps import Step

from .places import Place, place_of
from .saves import Save, noted
from .target import Evaluation, Target

MOST = 200  # nodes that are looked at
LONG = 1000  # containers on ctx that are longer are not searched for numbers
PACKED = torch.uint8, torch.int8, torch.int16  # dtypes that a derivative is packed into
INTEGERS = [str(dtype).removeprefix("torch.") for dtype in PACKED]
FAR = 0.1  # how far such integers are moved to see them change


class Kind(StrEnum):
    """What something that is kept is to the Function that keeps it."""

    INPUT = "input"
    OUTPUT = "output"
    INTERMEDIATE = "intermediate"  # made in forward, and it changes with the inputs
    CONSTANT = "constant"  # a mask, for example


class Path(StrEnum):
    """What autograd says of backward as a function of something, beside the truth."""

    RIGHT = "right"
    MISSING = "missing"  # nothing
    WRONG = "wrong"
    UNUSED = "unused"  # backward does not depend on it
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Saved:
    """A tensor, an array or a number that a custom Function keeps."""

    name: str  # the attribute of ctx, "" for save_for_backward
    kind: Kind
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    repeats: Kind | None = None  # INPUT or OUTPUT: an intermediate that only repeats one
    variable: str = ""  # the reader's name for it, where known
    saved_in: str = ""  # the place of the save, where that is not the Function's own forward
    position: int | None = None  # which input or output it is
    slot: int | str = ""  # its place: a number in saved_tensors or an attribute of ctx
    path: Path = Path.UNKNOWN  # backward differentiated by it
    reached: bool = False  # the graph of backward leads to it
    if_connected: Path = Path.UNKNOWN  # what `path` would be if it had a graph
    marked: bool = False  # returned, but marked as non-differentiable
    holder: bool = False  # no tensor, but something that holds one
    edited: bool = False  # an input that forward has written its output into
    handed_over: bool = False  # an argument of apply that has no graph, though it changes
    outside: bool = False  # made of numbers that something outside torch computed
    circular: bool = False  # an output, or a view of one, that may keep its own graph alive

    @property
    def on_ctx(self) -> bool:
        return bool(self.name)

    @property
    def numeric(self) -> bool:
        """A number or an array, which no graph can leave; not a tensor."""
        return not self.holder and (self.bytes == 0 or self.dtype.startswith("NumPy"))

    @property
    def packed(self) -> bool:
        """Integers made of the inputs, such as a derivative in 8 bits."""
        return self.kind is Kind.INTERMEDIATE and self.dtype in INTEGERS

    @property
    def title(self) -> str:
        """What to call it in a sentence."""
        if self.name:
            return f"ctx.{self.name}"
        if self.variable:
            return self.variable
        if self.position is not None:
            return f"{self.kind} {self.position}"
        return f"saved_tensors[{self.slot}]"


@dataclass(frozen=True)
class Extra:
    """The part of backward for the gradient of an output beyond the first."""

    position: int
    variable: str  # the reader's name for the output, or ""
    by: dict[str, float]  # name of an input of fn -> yours / true; nan where that is no number
    times_grad_out: bool = False  # it is multiplied by the gradient of another output
    whole: bool = False  # the part for the first output is as wrong: backward means something else


@dataclass(frozen=True)
class Custom:
    """One custom Function in the graph of fn."""

    name: str
    once: bool  # declared once_differentiable
    saved: tuple[Saved, ...]
    by_inputs: Path = Path.UNKNOWN  # backward differentiated by what the inputs of fn change
    by_grad_out: Path = Path.UNKNOWN
    reaches_grad_out: bool = False  # the graph of backward leads to grad_out
    extras: tuple[Extra, ...] = ()  # only those that are wrong
    inner: tuple[str, ...] = ()  # custom Functions that backward applies and that lead to inputs
    counts_twice: bool = False  # once more what grad_out has from an input
    refused: str = ""  # the error of backward, unguarded, where grad_out has a graph
    untracked_calls: tuple[Step, ...] = ()  # seen in backward: a detach and its line, say
    place: Place | None = None  # where the class is written
    in_new_tensors: bool = False  # what is known of it is so if none that is saved is written into
    in_company: bool = False  # its first derivative is right as part of fn, and not by itself
    meant: bool = False  # the caller said so: its first derivative is not judged
    first: Outcome | None = None  # its first derivative by itself; None: that was not asked
    hidden: tuple[str, ...] | None = None  # where the state is that is not on ctx; None: no state

    @property
    def lost(self) -> list[Saved]:
        """Intermediates through which backward depends on the inputs: constants to autograd."""
        if self.by_inputs in (Path.RIGHT, Path.UNUSED):
            return []
        idle = Path.UNUSED, Path.RIGHT
        kept = [s for s in self.saved if s.kind is Kind.INTERMEDIATE]
        return [s for s in kept if s.path not in idle]

    @property
    def cut(self) -> list[Saved]:
        """Inputs and outputs that have a graph, and by which backward is differentiated wrongly.

        Not those in a list on ctx with intermediates, which explain it.
        """
        connected = Kind.INPUT, Kind.OUTPUT
        bad = Path.MISSING, Path.WRONG
        mixed = {s.slot for s in self.saved if s.kind is Kind.INTERMEDIATE}
        found = [s for s in self.saved if s.kind in connected and s.path in bad]
        return [s for s in found if s.slot not in mixed]

    @property
    def explained(self) -> bool:
        """Something is known that explains a wrong second derivative."""
        known = self.lost or self.untracked or self.extras or self.hidden is not None
        return bool(known or any(map(self.inner_misses, (Path.MISSING, Path.WRONG))))

    @property
    def untracked(self) -> list[Saved]:
        """Those of `cut`, and of what would be cut if it had a graph, that no Function inside
        backward explains."""
        bad = Path.MISSING, Path.WRONG
        cut = self.cut + [s for s in self.lost if s.if_connected in bad]
        return [s for s in cut if not (self.inner and s.reached)]

    @property
    def inner_has_grad_out(self) -> bool:
        return bool(self.inner) and self.reaches_grad_out

    def inner_misses(self, path: Path) -> list[str]:
        """What a Function inside backward gets and is differentiated by in this way."""
        names = [s.title for s in self.cut if s.reached and s.path is path]
        if self.inner_has_grad_out and self.by_grad_out is path:
            names.insert(0, "grad_out")
        return names

    @property
    def suspect(self) -> bool:
        """Something about it is not as it should be."""
        paths = self.by_inputs, self.by_grad_out, *(s.path for s in self.saved)
        bad = Path.MISSING in paths or Path.WRONG in paths
        return bad or self.counts_twice or bool(self.extras) or self.hidden is not None

    @property
    def sound(self) -> bool:
        """Autograd can differentiate all of backward, rightly."""
        return not self.in_new_tensors and self._is_right

    @property
    def sound_in_new_tensors(self) -> bool:
        """It could, if backward wrote into nothing that autograd keeps."""
        return self.in_new_tensors and self._is_right

    @property
    def _is_right(self):
        fine = Path.RIGHT, Path.UNUSED
        paths = self.by_inputs in fine and self.by_grad_out in fine
        return paths and not self.extras and self.hidden is None


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

    Up to torch 2.12 a node is dead once its output is gone: here is both.
    """

    call: Evaluation
    nodes: list[Node]


def look(target: Target, shift: float | Tensor = 0.0) -> Looked:
    """Call fn and read its graph. Raises what fn raises."""
    with noted() as saves:
        call = target.in_units(target.units, ()).start(shift=shift)  # the outputs as fn gives them
    nodes: list[Node] = []
    for node in walk.walk(*call.ys).nodes:
        if node.custom is None or len(nodes) == MOST:
            continue
        readable = all(kept.tensor is not None for kept in node.kept)
        fn: Any = node.fn  # to Python it is ctx, too
        tensors = tuple(fn.saved_tensors) if readable else ()
        once = node.once_differentiable
        save = saves.get(fn)
        nodes.append(Node(fn, node.custom, once, node.kept, tensors, dict(vars(fn)), save))
    return Looked(call, nodes)


def custom_functions(target: Target) -> tuple[Custom, ...]:
    """The custom Functions in the order of the graph, the last one called first."""
    return custom_functions_in(look(target), target)


def custom_functions_in(here: Looked, target: Target) -> tuple[Custom, ...]:
    """The same, where `look(target)` is known."""
    if not here.nodes:
        return ()
    there = _like(here, _beside(target, here))
    packs = any(
        k.tensor is not None and k.tensor.dtype in PACKED for n in here.nodes for k in n.kept
    )
    far = _like(here, far_beside(target, here)) if packs else there
    calls, found = (here.call, there.call), []
    for node, other, distant in zip(here.nodes, there.nodes, far.nodes, strict=True):
        saved = [*_saved_tensors(node, other, distant, calls, target), *_saved_values(node, other)]
        named = node.function.__name__
        found.append(Custom(named, node.once, tuple(saved), place=_place_of(node.function)))
    return tuple(found)


@lru_cache(maxsize=256)
def _place_of(function: type) -> Place:
    return place_of(function)


def _beside(target, here, size=None):
    """A little beside the point; `here` where fn has no value there."""
    for nearer in (1.0, 1e-3):
        try:
            return look(target, nearer * uneven_step(target, size))
        except Exception:  # of fn
            continue
    return here


def far_beside(target: Target, here: Looked) -> Looked:
    """So far that most integers into which a derivative is packed are others; else `here`."""
    return _beside(target, here, FAR)


def _like(here, there):
    """`there`, or `here` where another graph is there, which cannot be compared."""
    kept = [[len(n.kept) for n in looked.nodes] for looked in (here, there)]
    return there if kept[0] == kept[1] else here


def kinds(customs: Sequence[Custom]) -> list[list[Kind]]:
    """The kind of everything that the custom Functions keep."""
    return [[s.kind for s in custom.saved] for custom in customs]


def uneven_step(target: Target, size: float | None = None) -> Tensor:
    """A step that changes whatever depends on the inputs, also on their differences only.

    Not a ramp, which is a sum of one number a row and one a column: a plan of transport, for one,
    does not depend on these.
    """
    xs = target.point
    size = size or (1e-3 if xs[0].dtype == torch.float64 else 1e-2)
    steps = (1.5 + (2 * torch.arange(len(flat(xs)))).sin() / 2).to(xs[0].dtype)
    return steps * size * target.scale


def _saved_tensors(node, other, distant, calls, target):
    names, index = node.save.names if node.save else (), -1
    places = [i for i, tensor in enumerate(node.tensors) if tensor is not None]
    arguments = _differentiable_arguments(node)
    outputs = returned_names(node.function)
    for kept, *moved in zip(node.kept, other.kept, distant.kept, strict=True):
        if kept.tensor is None:
            continue
        slot, variable = kept.name, kept.name
        if not kept.on_ctx:
            index += 1
            slot = places[index]
            variable = names[slot] if slot < len(names) else ""
        if kept.role == walk.INPUT:
            variable = arguments.get(kept.position, variable)
        if kept.role == walk.OUTPUT and kept.position < len(outputs):
            variable = outputs[kept.position] or variable
        saved = _saved(kept, moved, calls, target)
        marked = saved.kind is Kind.INTERMEDIATE and variable in [name for name in outputs if name]
        handed_over = saved.kind is Kind.INTERMEDIATE and variable in _without_graph(node)
        about = {"variable": variable, "slot": slot}
        if not kept.on_ctx and node.save and not node.save.is_in(node.function):
            about["saved_in"] = node.save.told
        yield replace(saved, **about, marked=marked, handed_over=handed_over)


def _without_graph(node):
    """The names of the arguments of apply that are not differentiated."""
    names = argument_names(node.function)
    pairs = zip(names, node.fn.needs_input_grad, strict=False)
    return [name for name, need in pairs if name and not need]


def _differentiable_arguments(node):
    """Position among the tensors of apply -> the name of the parameter, where both are known."""
    names, needs = argument_names(node.function), node.fn.needs_input_grad
    edges = [i for i, (fn, _) in enumerate(node.fn.next_functions) if fn is not None]
    wanted = [i for i, need in enumerate(needs) if need]
    if len(edges) != len(wanted) or len(names) < len(needs):
        return {}
    return {edge: names[i] for edge, i in zip(edges, wanted, strict=True)}


def _saved(kept, moved, calls, target):
    tensor, repeats, (call, there) = kept.tensor, None, calls
    beside, far = (other.tensor for other in moved)
    if kept.role == walk.INPUT:
        kind = Kind.INPUT
    elif kept.role == walk.OUTPUT:
        kind = Kind.OUTPUT
    elif _moves(tensor, beside) or (tensor.dtype in PACKED and _moves(tensor, far)):
        kind = Kind.INTERMEDIATE
        pair = tensor, beside
        if _both_repeat(pair, (call.xs, there.xs)) or _views(tensor, call.xs):
            repeats = Kind.INPUT
        elif _both_repeat(pair, (call.ys, there.ys)):
            repeats = Kind.OUTPUT
    else:
        kind = Kind.INPUT if has_values_of(tensor, target.constants) else Kind.CONSTANT
    dtype = str(tensor.dtype).removeprefix("torch.")
    size = element_count(tensor) * tensor.element_size()
    shape = tuple(tensor.shape)
    saved = Saved(kept.name, kind, shape, dtype, size, repeats, position=kept.position)
    view = kept.role == walk.INTERMEDIATE and tensor.requires_grad  # made where none is recorded
    return replace(
        saved,
        edited=kind is Kind.INPUT and bool(version(tensor)) and _shares(tensor, call.ys),
        circular=view or (saved.on_ctx and kind is Kind.OUTPUT),
    )


def _shares(tensor, others):
    strided = [t for t in others if t.layout == torch.strided]
    return tensor.layout == torch.strided and any(
        t.numel() and t.data_ptr() == tensor.data_ptr() for t in strided
    )


def _views(tensor, others):
    """Whether it lies in the memory of one of the others: a part, another order, expanded."""
    if tensor.layout != torch.strided:
        return False
    homes = {t.untyped_storage().data_ptr() for t in others if t.layout == torch.strided}
    return tensor.untyped_storage().data_ptr() in homes - {0}


def _moves(tensor, beside):
    """Whether it changes with a small step; of integers, which may be indices, most have to."""
    if tensor.is_floating_point() or tensor.is_complex():
        return not has_values_of(tensor, [beside])
    apart = tensor != beside if tensor.shape == beside.shape else torch.zeros(1)
    return tensor.dtype != torch.bool and apart.double().mean() > 0.5


def has_values_of(tensor: Tensor, others: Sequence[Tensor]) -> bool:
    """Whether one of the others has the same values, in whatever shape."""
    tensor = tensor.detach().to_dense().reshape(-1)
    same = [o for o in others if o.numel() == tensor.numel()]
    same = [o.detach() for o in same if o.is_complex() == tensor.is_complex()]
    return any(torch.equal(o.to_dense().reshape(-1).to(tensor.dtype), tensor) for o in same)


def _both_repeat(pair, others):
    """Here and beside the point: at x = 1, x * sigmoid(x) is sigmoid(x)."""
    return all(map(has_values_of, pair, others))


def _saved_values(node, other):
    """Numbers and arrays on ctx that change with the inputs: no graph can ever leave them."""
    for name, value in node.attributes.items():
        beside = other.attributes.get(name)
        for here, there in zip(numbers_in(value), numbers_in(beside), strict=False):
            if not same(here, there):
                yield _saved_value(name, here)
                break


def _saved_value(name, value):
    about = {"variable": name, "slot": name}
    if isinstance(value, np.ndarray):
        dtype = f"NumPy {value.dtype}"
        return Saved(name, Kind.INTERMEDIATE, value.shape, dtype, value.nbytes, **about)
    return Saved(name, Kind.INTERMEDIATE, (), type(value).__name__, 0, **about)


def numbers_in(value):
    """Floating numbers and arrays in `value`, also inside containers and simple objects."""
    found: list = []
    todo, seen = [value], set()
    while todo:
        value = todo.pop()
        if isinstance(value, np.ndarray):
            found += [value] if value.dtype.kind in "fc" else []
        elif isinstance(value, Number):
            found += [] if isinstance(value, (bool, int)) else [value]
        elif id(value) not in seen:
            seen.add(id(value))
            todo.extend(reversed(_parts(value)))
    return found


def _parts(value):
    if isinstance(value, (list, tuple, dict)):
        parts = list(value.values() if isinstance(value, dict) else value)
        return parts if len(parts) <= LONG else []
    plain = not isinstance(value, (Tensor, torch.nn.Module, type)) and not callable(value)
    return list(getattr(value, "__dict__", {}).values()) if plain else []
