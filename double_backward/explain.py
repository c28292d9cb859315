"""Why a second derivative is wrong, where an experiment leaves no doubt.

Each cause is a function of a `Case`; it returns a `Cause`, or None. What `diagnose` finds, what the
error of `detect_intermediates` says and what `check` answers in the lessons comes from here.
"""

import inspect
import math
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import permutations
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .check import Checked, Expected, check
from .graphs import walk
from .lines import is_own
from .names import has_setup_context
from .origins import BY_ANOTHER_CALL, origins
from .pairs import Pair, close, relation_of
from .steps import LEAVING, UNDOABLE, Called, Step, altered, marked, recorded, told, watched

NO_WAY_TO_AN_INPUT = (walk.INTERMEDIATE, walk.NO_GRAPH, walk.ELSEWHERE)
HERE = "at each of these elements"
UNMULTIPLIED = (
    "Yours is the gradient of that output itself{}. Multiply it by the output's own derivative."
)
BESIDE = 1e-2  # how far beside the point one looks whether something changes with the inputs
AGAIN = "Save the input, and compute {it} again in backward."
LATER = (
    "Compute {it} again in backward from a saved input or output, or return {it} as {an_output}, "
    "too."
)
ONE = {"it": "it", "an_output": "an output"}
ARRAY = " (an array)"
UNMARK = (
    "To autograd it is a constant then. Take the mark away, and use the gradient of that output "
    "in backward."
)


@dataclass(frozen=True)
class Cause:
    """Why, as plain data and in words.

    Attributes:
        code: the name of the experiment.
        fact: what it showed.
        advice: what to do, or how the numbers are related; "" where the fact says it.
        names: of what is kept, for `kept`: "ctx.expx", or "saved tensor 2", counted from 1.
        tensors: whether a tensor is among these.
        steps: of backward, for `undone` and `left_torch`.
        groups: yours and the true numbers, for what is wrong by itself; one group an output.
    """

    code: str
    fact: str
    advice: str = ""
    names: tuple[str, ...] = ()
    tensors: bool = False
    steps: tuple[Step, ...] = ()
    groups: tuple[tuple[Pair, ...], ...] = ()

    def __str__(self):
        return f"{self.fact} {self.advice}".rstrip()


@dataclass(frozen=True, eq=False)
class Case:
    """A callable at a point where its second derivative is wrong.

    Attributes:
        expected: what was measured.
        names: of the inputs.
        classes: the Functions to look at; (): all that the graph shows.
        own: whether a file holds code of whoever asks, whose lines are named.
        called: the callable's own steps are undone, and not those of Functions.
    """

    expected: Expected
    names: tuple[str, ...]
    classes: tuple[type, ...] = ()
    own: Callable[[str], bool] = is_own
    called: Called | None = None

    @cached_property
    def found(self) -> Checked:
        return check(self.expected)

    def right(self) -> bool:
        """Whether all that was wrong is right when it is asked once more."""
        return not check(self.expected).bad

    @property
    def by_input(self) -> bool:
        """Whether it is wrong by an input, and not by grad_out alone."""
        return self.found.by_input.bad

    @contextmanager
    def run(self, h: float = 0.0) -> Iterator["Run"]:
        """The callable once more, at x + h d."""
        line = self.expected.line
        with line.subject.around(), torch.enable_grad():
            x = line.x(h)
            outs = line.subject.function(x)
            found = [y for y in outs if isinstance(y, Tensor)]
            nodes = [n for n in walk.walk(*found).nodes if n.custom]
            if self.classes:
                nodes = [n for n in nodes if n.custom in self.classes]
            yield Run(x, list(outs), line.u(), nodes)

    def kinds(self) -> list[Any]:
        """The Functions, or what else is watched."""
        if self.called:
            return [self.called]
        with self.run() as run:
            return list(dict.fromkeys(node.custom for node in run.nodes))

    def changes(self, change: Callable[["Run"], Any]) -> bool:
        """Does backward return something else after `change`, a context manager?"""
        with self.run() as run:
            before = run.gradients()
        with self.run() as run, change(run):
            after = run.gradients()
        return not _equal(before, after)


@dataclass
class Run:
    """One call: the inputs, the outputs, grad_outs, and the custom nodes of the graph."""

    x: list[Tensor]
    outs: list
    u: list[Tensor | None]
    nodes: list

    def gradients(self, *more: tuple[Tensor, Tensor], create_graph: bool = False) -> list:
        """What backward returns, also for `more` outputs with a gradient each."""
        pairs = [
            (y, u)
            for y, u in zip(self.outs, self.u, strict=True)
            if u is not None and isinstance(y, Tensor) and y.requires_grad
        ]
        ys, us = [y for y, _ in [*pairs, *more]], [u.to(y.dtype) for y, u in [*pairs, *more]]
        us = [u.clone().requires_grad_(create_graph) for u in us]  # backward may write into them
        options = {"create_graph": create_graph, "allow_unused": True}
        return list(torch.autograd.grad(ys, self.x, us, **options))

    def extras(self) -> list:
        """The saved tensors that are an output of their Function other than the first."""
        kept = [k for node in self.nodes for k in node.kept]
        return [k for k in kept if k.role == walk.OUTPUT and k.position]


def explain(case: Case) -> Cause | None:
    """The first cause that is certain, or None."""
    for find in EXPERIMENTS:
        if found := attempted(find, case):
            return found
    return None


def attempted(find: Callable[[Case], Cause | None], case: Case) -> Cause | None:
    """What `find` says; None where the Function does not survive the experiment."""
    try:
        return find(case)
    except Exception:
        return None


def declared_once(case: Case) -> Cause | None:
    with case.run() as run:
        for node in run.nodes:
            if node.once_differentiable:
                return Cause(
                    "declared_once",
                    f"The backward of {node.title} is declared once_differentiable: it says of "
                    "itself that it has no second derivative.",
                )
    return None


# Extra outputs


def extra_outputs(case: Case) -> Cause | None:
    """Is the gradient right that backward returns for each extra output that it uses?"""
    for which, extra in _used_extras(case):
        if not _gradient_is_used(case, which) and _has_slope(case, which):
            return Cause(
                "extra_outputs",
                f"backward uses {extra}, and not the gradient of it. In the second backward that "
                "gradient is not 0: add it, times the derivative of that output.",
            )
        if said := _extra_alone(case, which, extra):
            return said
    return None


def extra_gradient(case: Case) -> Cause | None:
    """The same where the second derivative is right: is something else wrong there?"""
    for which, extra in _used_extras(case):
        if said := _extra_alone(case, which, extra, zero_too=False):
            return said
    return None


def _used_extras(case):
    """(place, how it is named) of each extra output whose numbers matter to backward."""
    with case.run() as run:
        positions = [extra.position for extra in run.extras()]
    for which, position in enumerate(positions):
        if case.changes(lambda run, i=which: _spoilt(run.extras()[i].tensor)):
            word = ("first", "second", "third", "last")[min(position, 4) - 1]
            yield which, f"the {word} extra output of forward"


def _extra_alone(case, which, extra, zero_too=True):
    """What backward returns for one extra output, alone, against differences of it."""
    for pair in _pairs_of_extra(case, which):
        if pair.wrong and (zero_too or pair.yours.any()):
            return Cause(
                "extra_outputs",
                f"What backward returns for {pair.what} is wrong when the gradient of {extra} is 1 "
                f"and the other gradients are 0, {pair}.",
                relation_of([[pair]], HERE),
                groups=((pair,),),
            )
    return None


def _has_slope(case, which):
    """False for a mask or the like: nothing is lost where its gradient is left out."""
    return any(pair.true.any() for pair in _pairs_of_extra(case, which))


def _pairs_of_extra(case, which):
    with case.run() as run:
        tensor = run.extras()[which].tensor
        yours = torch.autograd.grad(tensor.sum(), run.x, allow_unused=True)

    def total(x):
        with torch.enable_grad():
            line = case.expected.line
            outs = [y for y in line.subject.function(x) if isinstance(y, Tensor)]
            nodes = [n for n in walk.walk(*outs).nodes if n.custom]
            return Run(x, outs, [], nodes).extras()[which].tensor.sum()

    with case.expected.line.subject.around():
        return tuple(_against_differences(case, yours, total))


def _against_differences(case, yours, total):
    """`Pair` for each input; the true gradient of `total` by central differences."""
    x = case.expected.line.x()
    for i, (name, mine) in enumerate(zip(case.names, yours, strict=True)):
        true = _slopes(lambda new, i=i: total([*x[:i], new.requires_grad_(), *x[i + 1 :]]), x[i])
        mine = torch.zeros_like(true) if mine is None else mine
        given = {name: x[i].detach()}
        slips = {
            UNMULTIPLIED.format(""): partial(torch.ones_like, true),
            UNMULTIPLIED.format(", with a minus"): partial(torch.full_like, true, -1),
        }
        yield Pair(name, mine, _snapped(true, mine), given, slips=slips)


def _snapped(true, yours):
    """Differences, and yours where the two agree in the digits that those have."""
    return torch.where(torch.isclose(yours, true, rtol=1e-5, atol=1e-7), yours, true)


def _gradient_is_used(case, which):
    """Does what backward returns depend on the gradient of that extra output?"""
    results = []
    for weight in (0.7, -1.9):
        with case.run() as run:
            extra = run.extras()[which].tensor
            results.append(run.gradients((extra, weight * _uneven(extra))))
    return not _equal(*results)


def _equal(ones, others):
    """Are two lists of gradients the same but for rounding?

    A number that cancels, as the shift of a softmax does, changes the last digits alone.
    """
    for a, b in zip(ones, others, strict=True):
        if (a is None) != (b is None):
            return False
        if a is not None and not torch.equal(a, b):
            a, b = a.detach(), b.detach()
            size = float(a.abs().max())
            if not float((a - b).abs().max()) <= torch.finfo(a.dtype).eps ** 0.5 * size:
                return False
    return True


@contextmanager
def _spoilt(tensor):
    """For a while, other numbers in the memory of a tensor, behind the back of autograd."""
    memory = tensor.new_empty(0).detach().set_(tensor.detach().untyped_storage())
    before = memory.clone()
    memory.mul_(1.37).add_(0.11)
    try:
        yield
    finally:
        memory.copy_(before)


# What forward keeps


def kept(case: Case) -> Cause | None:
    """Tensors, numbers and arrays that forward made of the inputs, and that backward uses."""
    if not case.by_input:
        return None
    found = []
    with case.run() as run:
        here = [(_tensors_of(node), _arrays_of(node)) for node in run.nodes]
        with case.run(BESIDE) as beside:
            there = [(_tensors_of(node), _arrays_of(node)) for node in beside.nodes]
        if len(here) != len(there):
            return None
        for n, (before, after) in enumerate(zip(here, there, strict=True)):
            found += _kept_tensors(case, run.nodes, n, before[0], after[0])
            found += _kept_numbers(case, run.nodes, n, before[1], after[1])
    if not found:
        return None
    for name, _, said in found:
        if said:
            text = said if said.startswith("ctx.") else said[:1].upper() + said[1:]
            return Cause("copy", text, names=(name,), tensors=True)
    names = list(dict.fromkeys(name + what for name, what, _ in found))
    tensors = not all(what for _, what, _ in found)
    many = len(names) > 1
    advice = LATER if tensors else AGAIN
    arrays = any(what == ARRAY for _, what, _ in found)
    if arrays or _from_outside(case, [name for name, _, _ in found]):
        advice = f"{AGAIN} {BY_ANOTHER_CALL}"
    return Cause(
        "kept",
        f"backward uses {' and '.join(names)}, made of the inputs in forward, where nothing is "
        f"recorded: to autograd {'they are constants' if many else 'a constant'}.",
        of_several(advice, many),
        tuple(dict.fromkeys(name for name, _, _ in found)),
        tensors,
    )


def of_several(advice: str, many: bool) -> str:
    """An advice about one thing, or about several."""
    return advice.format(**{"it": "them", "an_output": "outputs"} if many else ONE)


def _from_outside(case, names):
    """Whether one of these tensors is made of numbers that torch did not compute."""
    classes = case.kinds()
    with origins(classes) as beside, case.run(BESIDE):
        pass
    with origins(classes) as here, case.run() as run:
        outside = here.outside(beside)
        return any(
            outside(mine.tensor)
            for node in run.nodes
            for i, mine in enumerate(node.kept)
            if _name_of(node.kept, i) in names
        )


def _name_of(kept, i):
    """What to call the kept tensor i in a sentence."""
    if kept[i].on_ctx:
        return f"ctx.{kept[i].name}"
    by_call = [k for k in kept if not k.on_ctx]
    if len(by_call) == 1:
        return "the saved tensor"
    return f"saved tensor number {[k is kept[i] for k in by_call].index(True) + 1}"


def _tensors_of(node):
    """Copies, since a tensor may be kept elsewhere, too, and written into at the next call."""
    return [None if k.tensor is None else k.tensor.detach().clone() for k in node.kept]


def _arrays_of(node):
    found = {name: _as_array(value) for name, value in vars(node.fn).items()}
    return {name: array.copy() for name, array in found.items() if array is not None}


def _kept_tensors(case, nodes, n, before, after):
    """(its name, "", what to say of it if it equals an input or an output)."""
    kept = nodes[n].kept
    if len(before) != len(after):
        return
    pointers = [k.tensor.data_ptr() for k in kept if k.tensor is not None]
    for i, (mine, a, b) in enumerate(zip(kept, before, after, strict=True)):
        if mine.role not in NO_WAY_TO_AN_INPUT or a is None or b is None:
            continue
        if a.shape != b.shape or torch.equal(a, b) or pointers.count(mine.tensor.data_ptr()) > 1:
            continue
        if not case.changes(lambda run, i=i: _spoilt(run.nodes[n].kept[i].tensor)):
            continue
        name = _name_of(kept, i)
        if i in _marked(case, n, nodes[n].custom):
            said = f"{name} is an output that forward marks as non-differentiable. {UNMARK}"
            yield name, "", said
        else:
            yield name, "", _copy_of(case, name, n, i)


def _marked(case, n, cls):
    """Which tensors that node n keeps are outputs that forward marks as non-differentiable."""
    with marked([cls]) as found, case.run() as run:
        pointers = {t.data_ptr() for t in found}
        return {i for i, k in enumerate(run.nodes[n].kept) if k.tensor.data_ptr() in pointers}


def _copy_of(case, name, n, i):
    """What to say of the kept tensor i of node n if it equals an input or an output, or ""."""
    tensor, inputs, outputs = _kept_and_around(case, n, i)
    beside, moved_inputs, moved_outputs = _kept_and_around(case, n, i, BESIDE)

    def repeats(known, here, there):  # at x = 1 alone, x * sigmoid(x) is sigmoid(x), too
        given, moved = here[known], there.get(known)
        same = isinstance(given, Tensor) and isinstance(moved, Tensor)
        return same and _broadcasts(given, tensor) and _broadcasts(moved, beside)

    for known, given in inputs.items():
        if repeats(known, inputs, moved_inputs):
            return (
                f"{name} is {_alike(given, tensor)} {known}, made in forward: to autograd a "
                f"constant. Save {known} itself, as forward gets it."
            )
    for known, output in outputs.items():
        if repeats(known, outputs, moved_outputs):
            return (
                f"{name} is {_alike(output, tensor)} {known}, and not the tensor that forward "
                "returns: to autograd a constant. Save and return one and the same tensor."
            )
    return ""


def _kept_and_around(case, n, i, h=0.0):
    """The kept tensor i of node n; the inputs and the outputs of forward, by how to call them."""
    with case.run() as run:
        cls = run.nodes[n].custom
    with recorded(cls, "forward") as calls, case.run(h) as run:
        tensor, x, outs = run.nodes[n].kept[i].tensor, run.x, run.outs
    outputs = {"the result": outs[0]}
    for _, result in calls if len(calls) == 1 else []:
        several = result[1:] if isinstance(result, tuple) else ()
        outputs |= {f"output number {k} of forward": t for k, t in enumerate(several, 2)}
    return tensor, dict(zip(case.names, x, strict=True)), outputs


def _alike(x, tensor):
    return "another tensor on the memory of" if x.data_ptr() == tensor.data_ptr() else "a copy of"


def _broadcasts(x, tensor):
    try:
        return torch.equal(torch.broadcast_to(x, tensor.shape), tensor)
    except RuntimeError:
        return False


def _kept_numbers(case, nodes, n, before, after):
    """(name, what it is, "") of each number or array on ctx that was computed from an input."""
    for name, array in before.items():
        value = vars(nodes[n].fn)[name]
        if name not in after or np.array_equal(array, after[name], equal_nan=True):
            continue
        changed = altered(array)
        changed = type(value)(changed) if not isinstance(value, np.ndarray) else changed
        if case.changes(lambda run, name=name, new=changed: _set(run.nodes[n].fn, name, new)):
            what = ARRAY if isinstance(value, np.ndarray) else " (a number)"
            what = " (a list of numbers)" if isinstance(value, (list, tuple)) else what
            yield f"ctx.{name}", what, ""


@contextmanager
def _set(ctx, name, value):
    setattr(ctx, name, value)
    yield


def _as_array(value):
    """A floating array of a number, an array or a flat list of numbers; None for the rest."""
    if isinstance(value, (float, np.floating, np.ndarray, list, tuple)):
        try:
            array = np.asarray(value)
        except (ValueError, TypeError, RuntimeError):
            return None
        return array if array.dtype.kind == "f" else None
    return None


# What backward does


def second_function(case: Case) -> Cause | None:
    """If backward applies a Function of its own: is the backward of that one right?"""
    for cls, groups, _ in _second_functions(case):
        if said := _wrong_gradient(cls, groups):
            return said
    return None


def second_gradients(case: Case) -> Iterator[tuple[str, tuple[Pair, ...]]]:
    """The name of each Function that backward applies; what it returns wrongly for its own inputs.

    For those that have a graph; of several outputs, for the first with which it does.
    """
    for cls, groups, needed in _second_functions(case):
        wrong: dict[str, Pair] = {}
        for pair in (p for group in groups for p in group if p.none or p.wrong):
            if pair.what in needed:
                wrong.setdefault(pair.what, pair)
        if wrong:
            yield cls.__name__, tuple(wrong.values())


def _second_functions(case):
    """Each Function that backward applies, with `Pair` for its inputs, a group an output; and the
    names of those that have a graph."""
    with case.run() as run:
        before, known = {n.fn for n in run.nodes}, {n.custom for n in run.nodes}
        first = [g for g in run.gradients(create_graph=True) if g is not None]
        inside = walk.walk(*first).nodes
        classes = dict.fromkeys(n.custom for n in inside if n.custom and n.fn not in before)
    for cls in [c for c in classes if c not in known]:
        with recorded(cls, "forward") as calls, case.run() as run:
            run.gradients(create_graph=True)
        if calls and (groups := _function_alone(cls, calls[0][0], case)):
            names = list(inspect.signature(cls.forward).parameters)
            given = zip(names, calls[0][0], strict=False)
            needed = {n for n, a in given if isinstance(a, Tensor) and a.requires_grad}
            yield cls, groups, needed


def _function_alone(cls, args, case):
    """Gradients of one Function against differences of its forward."""
    names = list(inspect.signature(cls.forward).parameters)
    if not has_setup_context(cls):
        args, names = args[1:], names[1:]
    if len(names) != len(args):
        return None
    args = [a.detach().clone() if isinstance(a, Tensor) else a for a in args]
    with case.expected.line.subject.around():
        outputs = cls.apply(*args)
        several = not isinstance(outputs, Tensor)
        if several and not all(isinstance(o, Tensor) and o.is_floating_point() for o in outputs):
            return None
        which = list(range(len(outputs))) if several else [None]
        return tuple(tuple(_output_alone(cls, names, args, k)) for k in which)


def _wrong_gradient(cls, groups):
    several = len(groups) > 1
    for k, group in enumerate(groups):
        for pair in group:
            if pair.none:
                return Cause(
                    "second_function",
                    f"The backward of {cls.__name__} returns None for {pair.what}, and its result "
                    "depends on that.",
                    groups=groups,
                )
            if pair.wrong:
                meaning = "h is the gradient that it gets"
                if several:
                    word = ("first", "second", "third")[k] if k < 3 else f"{k + 1}th"
                    meaning = f"h is the gradient of its {word} output, and the others are 0"
                return Cause(
                    "second_function",
                    f"What the backward of {cls.__name__} returns for {pair.what} is wrong "
                    f"({meaning}), {pair}.",
                    _order(groups) or relation_of([list(group)], HERE),
                    groups=groups,
                )
    return None


def _output_alone(cls, names, args, which):
    """A `Pair` for each input; of several outputs, all but `which` get a gradient of 0."""
    where = [i for i, a in enumerate(args) if isinstance(a, Tensor) and a.is_floating_point()]
    args = [a.clone().requires_grad_() if i in where else a for i, a in enumerate(args)]

    def output(*values):
        return cls.apply(*values) if which is None else cls.apply(*values)[which]

    out = output(*args)
    h = _uneven(out)
    yours = torch.autograd.grad(out, [args[i] for i in where], h, allow_unused=True)
    given = {names[i]: args[i].detach() for i in where} | {"h": h}
    for i, mine in zip(where, yours, strict=True):
        true = _slopes(lambda new, i=i: (h * output(*args[:i], new, *args[i + 1 :])).sum(), args[i])
        none = mine is None and bool(true.any())
        mine = torch.zeros_like(true) if mine is None else mine
        yield Pair(names[i], mine, _snapped(true, mine), given, "", given, {}, none)


def _order(groups):
    """What to say where right gradients stand in a wrong order, or ""; one group an output."""
    if len(groups) == 2 and all(
        close(one.yours, two.true) and close(two.yours, one.true)
        for one, two in zip(*groups, strict=True)
    ):
        return "It takes the gradients of its two outputs in the wrong order."
    names = [pair.what for pair in groups[0]]
    for order in permutations(range(len(names))) if len(names) < 5 else ():
        moved = [(g[i].yours, pair.true) for g in groups for i, pair in zip(order, g, strict=True)]
        if all(close(yours, true) for yours, true in moved):
            listed = ", ".join(names)
            return (
                f"The right gradients, in the wrong order: return those of {listed}, in that order."
            )
    return ""


def _slopes(function, x):
    """Gradient of a function of one tensor by central differences."""
    x = x.detach()
    slopes = []
    for k in range(x.numel()):
        step = torch.zeros(x.numel(), dtype=x.dtype)
        step[k] = 1e-5
        step = step.reshape(x.shape)
        slopes.append((function(x + step) - function(x - step)).item() / 2e-5)
    return torch.tensor(slopes, dtype=x.dtype).reshape(x.shape)


def undone(case: Case) -> Cause | None:
    """Steps of backward without which the second derivative is right, as few as will do."""
    found = undoing(case)
    if not found.right:
        return None
    text = f"The graph ends here: {told(found.together)}. Without it, the numbers are right."
    return Cause("undone", text, steps=found.together)


@dataclass(frozen=True)
class Undoing:
    """Steps of backward by what is lost by them, as few as will do.

    Attributes:
        by_input, by_grad_out, tied: steps without which that part of the derivative is right; or,
            where something else spoils it, too, those without which it is another number.
        together: those of all parts.
        stuck: steps that cannot be undone: something then raises.
        mended: the parts that are wrong, and right without these steps.
        right: without the steps all is.
    """

    by_input: tuple[Step, ...] = ()
    by_grad_out: tuple[Step, ...] = ()
    tied: tuple[Step, ...] = ()
    together: tuple[Step, ...] = ()
    stuck: tuple[Step, ...] = ()
    mended: frozenset[str] = frozenset()
    right: bool = False


PARTS = "by_input", "by_grad_out", "tied"
PATIENCE = 20.0  # seconds, after which no step is left out any more to see whether it matters
TRIAL = 3.0  # seconds that a trial may take, besides three times as long as the first


def undoing(case: Case, kinds: Collection[str] = UNDOABLE) -> Undoing:
    """Undo steps of backward, again and again on a new graph, and see what becomes of each part."""
    known: dict[frozenset[Step], tuple[Checked, list[Step]]] = {}
    classes, began, first = case.kinds(), time.perf_counter(), 0.0

    def without(steps):
        nonlocal first
        key = frozenset(steps)
        if key not in known:
            now = time.perf_counter()
            until = now + 3 * first + TRIAL if known else math.inf
            with watched(classes, steps, case.own, until=until) as met:
                known[key] = _asked(case.expected), list(dict.fromkeys(met))
            first = first or time.perf_counter() - now
        return known[key]

    before, met = without(())
    every = [s for s in met if s.kind in kinds]
    if any(s.kind != "memory" for s in every):  # which make such tensors, too
        kinds = [kind for kind in kinds if kind != "memory"]
        every = [s for s in every if s.kind in kinds]
    at_first = list(every)
    while new := [s for s in without(every)[1] if s.kind in kinds and s not in every]:
        every += new  # inside a no_grad, for one, that hid them
    if not every:
        return Undoing()
    stuck: list[Step] = []
    if without(every)[0].error:  # not all of them can be undone
        possible = [] if without(at_first)[0].error else at_first
        for step in [s for s in every if s not in possible]:
            if time.perf_counter() - began > PATIENCE:
                break
            error = without([*possible, step])[0].error
            if error is None or before.error:
                possible.append(step)
            elif not isinstance(error, TimeoutError):
                stuck.append(step)
        every = possible
    after, found = without(every)[0], {}
    for part in PARTS:
        goal, needed = getattr(after, part), list(every)
        if _agree(getattr(before, part), goal):
            continue
        for step in list(needed):
            if time.perf_counter() - began > PATIENCE:
                break
            fewer = [s for s in needed if s is not step]
            needed = fewer if _agree(getattr(without(fewer)[0], part), goal) else needed
        found[part] = tuple(needed)
    together = tuple(s for s in every if any(s in needed for needed in found.values()))
    if without(together)[0].bad:
        together = tuple(every)
    mended = frozenset(part for part in found if not getattr(after, part).bad)
    right = before.bad and not after.bad
    return Undoing(**found, together=together, stuck=tuple(stuck), mended=mended, right=right)


def _asked(expected):
    """As `check`; of a backward that works once, and is called again where grad_out is made from
    the output, at least the rest."""
    found = check(expected)
    if found.error is None:
        return found
    still = expected.y._replace(value=torch.zeros_like(expected.y.value))
    untied = check(replace(expected, y=still))
    return found if untied.error else replace(untied, tied=found.by_input)


def _agree(one, other):
    """Whether two comparisons ended alike, with the same number."""
    if one.outcome is not other.outcome:
        return False
    return abs(one.got - other.got) <= 1e-6 * (abs(one.got) + abs(other.got))


def counted_twice(case: Case) -> Cause | None:
    """Right by the inputs and by grad_out, and wrong where grad_out is made from them."""
    if not case.found.tied.bad or case.found.by_input.bad or case.found.by_grad_out.bad:
        return None
    return Cause(
        "counted_twice",
        "Where grad_out depends on the input, one path counts twice, as autograd.grad inside "
        "backward does with tensors that are connected.",
        "Under torch.enable_grad(), use x.view_as(x).requires_grad_() there, and the same of "
        "grad_out.",
    )


def left_torch(case: Case) -> Cause | None:
    """Steps of backward that make a number or an array of a tensor with a graph, and use it."""
    classes = case.kinds()
    with watched(classes, own=case.own) as steps:
        case.right()
    found = tuple(
        step
        for step in dict.fromkeys(steps)
        if step.kind not in UNDOABLE and (step.kind not in LEAVING or _matters(case, classes, step))
    )
    if not found:
        return None
    text = f"Here backward leaves torch: {told(found)}. What is computed from that is a constant"
    return Cause("left_torch", f"{text} to autograd.", steps=found)


def _matters(case, classes, step):
    """Do other numbers there change what backward returns? Those that are printed do not."""
    results = []
    for alter in ([], [step]):
        with case.run() as run, watched(classes, alter=alter, own=case.own):
            try:
                results.append(run.gradients(create_graph=True))
            except Exception:  # an index out of range, for one
                return True
    return not _equal(*results)


def _uneven(like):
    """A gradient whose numbers a reader can follow."""
    numbers = (3.0, -4.0, 5.5, 1.0, -0.5)
    every = [numbers[i % len(numbers)] for i in range(like.numel())]
    return torch.tensor(every, dtype=like.dtype, device=like.device).reshape(like.shape)


EXPERIMENTS = (
    declared_once,
    counted_twice,
    extra_outputs,
    second_function,
    kept,
    undone,
    left_torch,
)
