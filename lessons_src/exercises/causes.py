"""Why the second derivative of an answer is wrong, where an experiment leaves no doubt.

Each cause is a function of a `Trial`; it returns what to say, or "".
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import permutations

import numpy as np
import torch
from torch.autograd import Function, grad

from double_backward.graphs import walk

from .compare import Pair, close, explain
from .observe import UNDOABLE, around, recorded, told_steps, watched
from .reply import PACKAGE, innermost
from .task import Setting, Task

LATER = "Compute it again in backward from a saved input or output."
EXTRA = (  # lesson 3
    "Compute it again in backward from a saved input or output; or return it as an extra output "
    "of forward, in one flat tuple, and hand over a function that returns the first result alone."
)

NO_WAY_TO_AN_INPUT = (walk.INTERMEDIATE, walk.NO_GRAPH, walk.ELSEWHERE)
HERE = "at each of these elements"
AGAIN = "Save the input, and compute it again in backward."
UNMARK = (
    "To autograd it is a constant then. Take the mark away, and use the gradient of that output "
    "in backward."
)


@dataclass(frozen=True)
class Trial:
    """An answer in a setting where its second derivative is wrong.

    Attributes:
        right: True if the second derivative is right when it is computed once more.
        names: of which variables of backward its derivative is wrong: inputs, or "grad_out".
    """

    task: Task
    fn: Callable
    setting: Setting
    right: Callable[[], bool]
    names: tuple[str, ...]

    def run(self, setting=None):
        """The differentiated inputs, the result, and the custom nodes of its graph."""
        setting = setting or self.setting
        xs = setting.fresh()
        out = self.fn(*xs)
        return setting.variables(xs), out, [n for n in walk.walk(out).nodes if n.custom]

    def at(self, args):
        """The setting with other arguments."""
        return Setting(tuple(args), self.setting.said, self.setting.constant)


def cause(trial: Trial) -> str:
    """The first cause that is certain, or ""."""
    for find in (declared_once, extra_outputs, second_function, without_graph, undone, left_torch):
        if said := attempted(find, trial):
            return said
    return ""


def attempted(find: Callable[[Trial], str], trial: Trial) -> str:
    """What `find` says; "" where the answer does not survive the experiment."""
    try:
        return find(trial)
    except Exception as error:
        if innermost(error).startswith(PACKAGE):
            raise
        return ""


def sentence(text):
    """With a capital, unless it begins with a name from the code."""
    return text if text.startswith("ctx.") else text[:1].upper() + text[1:]


def declared_once(trial):
    for node in trial.run()[2]:
        if node.once_differentiable:
            return (
                f"The backward of {node.title} is declared once_differentiable: it says of itself "
                "that it has no second derivative. The exercise asks for one."
            )
    return ""


# Extra outputs


def extra_outputs(trial):
    """Is the gradient right that backward returns for each extra output that it uses?"""
    for which, extra in _used_extras(trial):
        if not _gradient_is_used(trial, which):
            return (
                f"backward uses {extra}, and not the gradient of it. In the second backward that "
                "gradient is not 0: add it, times the derivative of that output."
            )
        if said := _extra_alone(trial, which, extra):
            return said
    return ""


def extra_gradient_wrong(trial: Trial) -> str:
    """The same for an answer whose second derivative is right: is something else wrong there?"""
    for which, extra in _used_extras(trial):
        if said := _extra_alone(trial, which, extra, zero_too=False):
            return said
    return ""


def _used_extras(trial):
    """(place, how it is named) of each extra output whose numbers matter to backward."""
    for which, extra in enumerate(_extras(trial.run()[2])):
        if _changes_backward(trial, lambda nodes, i=which: _spoil(_extras(nodes)[i].tensor)):
            word = ("first", "second", "third", "last")[min(extra.position, 4) - 1]
            yield which, f"the {word} extra output of forward"


def _extra_alone(trial, which, extra, zero_too=True):
    """What backward returns for one extra output, alone, against finite differences of it."""
    xs, _out, nodes = trial.run()
    yours = grad(_extras(nodes)[which].tensor.sum(), xs, allow_unused=True)

    def total(setting):
        return _extras(trial.run(setting)[2])[which].tensor.sum()

    for name, pair in _against_differences(trial, yours, total):
        if pair.wrong and (zero_too or pair.yours.any()):
            return (
                f"What backward returns for {name} is wrong when the gradient of {extra} is 1 and "
                f"the other gradients are 0, {pair}. {explain([[pair]], HERE)}"
            ).rstrip()
    return ""


def _against_differences(trial, yours, total):
    """(name, `Pair`) for each input; the true gradient of `total` by central differences."""
    args = trial.setting.args
    places = [i for i, name in enumerate(trial.task.inputs) if name in _names(trial)]
    for i, mine in zip(places, yours, strict=True):
        true = _slopes(lambda x, i=i: total(trial.at([*args[:i], x, *args[i + 1 :]])), args[i])
        mine = torch.zeros_like(true) if mine is None else mine
        name = trial.task.inputs[i]
        yield name, Pair(name, mine, _snapped(true, mine), {name: args[i]})


def _names(trial):
    return trial.task.differentiated(trial.setting)


def _snapped(true, yours):
    """Finite differences, and yours where the two agree in the digits that those have."""
    return torch.where(torch.isclose(yours, true, rtol=1e-5, atol=1e-7), yours, true)


def _extras(nodes):
    """The saved tensors that are an output of their Function other than the first."""
    kept = [k for node in nodes for k in node.kept]
    return [k for k in kept if k.role == walk.OUTPUT and k.position]


def _gradient_is_used(trial, which):
    """Does what backward returns depend on the gradient of that extra output?"""
    results = []
    for weight in (0.7, -1.9):
        xs, out, nodes = trial.run()
        extra = _extras(nodes)[which].tensor
        weights = [trial.setting.grad_out(out), weight * trial.setting.grad_grad(extra)]
        results.append(grad([out, extra], xs, weights, allow_unused=True))
    return _differ(*results)


def _changes_backward(trial, change):
    """Does backward return something else after `change(nodes)`?"""
    results = []
    for step in (lambda _nodes: None, change):
        xs, out, nodes = trial.run()
        step(nodes)
        weights = trial.setting.grad_out(out)
        results.append(grad(out, xs, weights, allow_unused=True))
    return _differ(*results)


def _differ(ones, others):
    return any(
        (a is None) != (b is None) or (a is not None and not torch.equal(a, b))
        for a, b in zip(ones, others, strict=True)
    )


def _spoil(tensor):
    """Other numbers in the memory of a tensor, behind the back of autograd."""
    memory = tensor.new_empty(0).detach().set_(tensor.detach().untyped_storage())
    memory.mul_(1.37).add_(0.11)


# What forward keeps


def without_graph(trial):
    """Tensors, numbers and arrays that forward made of the inputs, and that backward uses."""
    if set(trial.names) == {"grad_out"}:
        return ""
    nodes = trial.run()[2]
    constant = trial.setting.constant
    args = [
        0.97 * a if torch.is_tensor(a) and i not in constant else a
        for i, a in enumerate(trial.setting.args)
    ]
    elsewhere = trial.run(trial.at(args))[2]
    if len(nodes) != len(elsewhere):
        return ""
    found = []
    for n, (node, twin) in enumerate(zip(nodes, elsewhere, strict=True)):
        found += [("tensor", *told) for told in _kept_tensors(trial, n, node, twin)]
        found += [("number", *told) for told in _kept_numbers(trial, n, node, twin)]
    if not found:
        return ""
    copies = [said for _, name, said in found if said]
    if copies:
        return sentence(copies[0])
    names = list(dict.fromkeys(name for _, name, _ in found))
    later = AGAIN
    if any(kind == "tensor" for kind, *_ in found):
        later = EXTRA if trial.task.lesson >= 3 else LATER
    many = len(names) > 1
    return (
        f"backward uses {' and '.join(names)}, made of the inputs in forward, where nothing is "
        f"recorded: to autograd {'they are constants' if many else 'a constant'}. {later}"
    )


def _kept_tensors(trial, n, node, twin):
    """(how it is named, what to say of it if it equals an input or the result)."""
    kept, other = node.kept, twin.kept
    if len(kept) != len(other):
        return
    by_call = [k for k in kept if not k.on_ctx]
    pointers = [k.tensor.data_ptr() for k in kept if k.tensor is not None]
    for i, (mine, its) in enumerate(zip(kept, other, strict=True)):
        if mine.role not in NO_WAY_TO_AN_INPUT or mine.tensor is None:
            continue
        same = mine.tensor.shape != its.tensor.shape or torch.equal(mine.tensor, its.tensor)
        if same or pointers.count(mine.tensor.data_ptr()) > 1:
            continue
        if not _changes_backward(trial, lambda nodes, i=i: _spoil(nodes[n].kept[i].tensor)):
            continue
        name = f"ctx.{mine.name}"
        if not mine.on_ctx:
            name = "the saved tensor"
            if len(by_call) > 1:
                name = f"saved tensor number {[k is mine for k in by_call].index(True) + 1}"
        if i in _marked(trial, n, node.custom):
            yield name, f"{name} is an output that forward marks as non-differentiable. {UNMARK}"
        else:
            yield name, _copy_of(trial, name, n, i)


def _marked(trial, n, cls):
    """Which tensors that node n keeps are outputs that forward marks as non-differentiable."""
    found: set[int] = set()

    def wrapper(function):
        def recording(ctx, *args):
            result = function(ctx, *args)
            found.update(t.data_ptr() for t in getattr(ctx, "non_differentiable", None) or ())
            return result

        return recording

    with around(cls, "setup_context" if _has_setup_context(cls) else "forward", wrapper):
        nodes = trial.run()[2]
    return {i for i, k in enumerate(nodes[n].kept) if k.tensor.data_ptr() in found}


def _copy_of(trial, name, n, i):
    """What to say of the kept tensor i of node n if it equals an input or an output, or ""."""
    cls = trial.run()[2][n].custom
    with recorded(cls, "forward") as calls:
        xs, out, nodes = trial.run()
    tensor = nodes[n].kept[i].tensor
    for known, x in zip(_names(trial), xs, strict=True):
        if _equal(x, tensor):
            return (
                f"{name} is {_alike(x, tensor)} {known}, made in forward: to autograd a constant. "
                f"Save {known} itself, as forward gets it."
            )
    outputs = {"the result": out}
    for _, result in calls if len(calls) == 1 else []:
        several = result[1:] if isinstance(result, tuple) else ()
        outputs |= {f"output number {k} of forward": t for k, t in enumerate(several, 2)}
    for known, output in outputs.items():
        if torch.is_tensor(output) and _equal(output, tensor):
            return (
                f"{name} is {_alike(output, tensor)} {known}, and not the tensor that forward "
                "returns: to autograd a constant. Save and return one and the same tensor."
            )
    return ""


def _alike(x, tensor):
    return "another tensor on the memory of" if x.data_ptr() == tensor.data_ptr() else "a copy of"


def _equal(x, tensor):
    try:
        return torch.equal(torch.broadcast_to(x, tensor.shape), tensor)
    except RuntimeError:
        return False


def _kept_numbers(trial, n, node, twin):
    """(name, "") of each number or array on ctx that was computed from an input."""
    for name, value in list(vars(node.fn).items()):
        array = _as_array(value)
        other = _as_array(vars(twin.fn).get(name))
        if array is None or other is None or np.array_equal(array, other, equal_nan=True):
            continue
        changed = array * 1.37 + 0.11
        changed = type(value)(changed) if not isinstance(value, np.ndarray) else changed
        if _changes_backward(
            trial, lambda nodes, name=name, new=changed: setattr(nodes[n].fn, name, new)
        ):
            what = "an array" if isinstance(value, np.ndarray) else "a number"
            what = "a list of numbers" if isinstance(value, (list, tuple)) else what
            yield f"ctx.{name} ({what})", ""


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


def second_function(trial):
    """If backward applies a Function of its own: is the backward of that one right?"""
    with_graph = _first_derivative(trial)
    before = {node.fn for node in trial.run()[2]}
    classes = dict.fromkeys(
        node.custom
        for node in walk.walk(*with_graph).nodes
        if node.custom and node.fn not in before
    )
    known = {node.custom for node in trial.run()[2]}
    for cls in [c for c in classes if c not in known]:
        with recorded(cls, "forward") as calls:
            _first_derivative(trial)
        if calls and (said := _function_alone(trial, cls, calls[0][0])):
            return said
    return ""


def _first_derivative(trial):
    xs, out, _ = trial.run()
    weights = trial.setting.grad_out(out).requires_grad_()
    first = grad(out, xs, weights, create_graph=True, allow_unused=True)
    return [g for g in first if g is not None]


def _function_alone(trial, cls, args):
    """Gradients of one Function against finite differences of its forward."""
    if not _has_setup_context(cls):
        args = args[1:]
    names = list(inspect.signature(cls.forward).parameters)
    names = names if _has_setup_context(cls) else names[1:]
    if len(names) != len(args):
        return ""
    args = [a.detach().clone() if torch.is_tensor(a) else a for a in args]
    outputs = cls.apply(*args)
    several = not torch.is_tensor(outputs)
    if several and not all(torch.is_tensor(o) and o.is_floating_point() for o in outputs):
        return ""
    which = list(range(len(outputs))) if several else [None]
    groups = [_output_alone(trial, cls, names, args, k) for k in which]
    for k, group in enumerate(groups):
        for pair in group:
            if pair.none:
                return (
                    f"The backward of {cls.__name__} returns None for {pair.what}, and its result "
                    "depends on that."
                )
            if pair.wrong:
                meaning = "h is the gradient that it gets"
                if several:
                    word = ("first", "second", "third")[k] if k < 3 else f"{k + 1}th"
                    meaning = f"h is the gradient of its {word} output, and the others are 0"
                return (
                    f"What the backward of {cls.__name__} returns for {pair.what} is wrong "
                    f"({meaning}), {pair}. {_order(groups) or explain([group], HERE)}"
                ).rstrip()
    return ""


def _output_alone(trial, cls, names, args, which):
    """A `Pair` for each input; of several outputs, all but `which` get a gradient of 0."""
    where = [i for i, a in enumerate(args) if torch.is_tensor(a) and a.is_floating_point()]
    args = [a.clone().requires_grad_() if i in where else a for i, a in enumerate(args)]

    def output(*values):
        return cls.apply(*values) if which is None else cls.apply(*values)[which]

    out = output(*args)
    h = trial.setting.grad_grad(out)
    yours = grad(out, [args[i] for i in where], h, allow_unused=True)
    given = {names[i]: args[i].detach() for i in where} | {"h": h}
    g, xs = trial.setting.grad_out(h), trial.setting.args
    slips = {
        advice: partial(formula, h, g, *xs) for advice, formula in trial.task.second_slips.items()
    }
    pairs = []
    for i, mine in zip(where, yours, strict=True):
        true = _slopes(lambda new, i=i: (h * output(*args[:i], new, *args[i + 1 :])).sum(), args[i])
        none = mine is None and bool(true.any())
        mine = torch.zeros_like(true) if mine is None else mine
        factors = {k: v for k, v in given.items() if k != names[i]}
        known = slips if _is_first_input(args[i], trial) else {}
        snapped = _snapped(true, mine)
        pairs.append(Pair(names[i], mine, snapped, given, "", factors, known, none))
    return pairs


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
            told = ", ".join(names)
            return (
                f"The right gradients, in the wrong order: return those of {told}, in that order."
            )
    return ""


def _is_first_input(tensor, trial):
    """The slips are mistakes in the derivative by the first input, not by grad_out."""
    first = trial.setting.args[0]
    return tensor.shape == first.shape and torch.equal(tensor, first)


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


def _has_setup_context(cls):
    return cls.setup_context is not Function.setup_context


def undone(trial):
    """Steps of backward without which the second derivative is right."""
    classes = [node.custom for node in trial.run()[2]]
    with watched(classes) as steps:
        trial.right()
    kinds = [k for k in dict.fromkeys(step.kind for step in steps) if k in UNDOABLE]
    for undo in [*((kind,) for kind in kinds), tuple(kinds)]:
        with watched(classes, undo):
            mended = bool(undo) and trial.right()
        if mended:
            told = told_steps(s for s in steps if s.kind in undo)
            return f"The graph ends here: {told}. Without it, the numbers are right."
    return ""


def left_torch(trial):
    """Steps of backward that make a number or an array of a tensor with a graph."""
    with watched([node.custom for node in trial.run()[2]]) as steps:
        trial.right()
    told = told_steps(s for s in steps if s.kind not in UNDOABLE)
    if not told:
        return ""
    return (
        f"Here backward leaves torch: {told}. What is computed from that is a constant to autograd."
    )
