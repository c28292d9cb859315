"""What can be seen of fn besides its derivatives: what it keeps, and how its backward behaves."""

import gc
import inspect
import random
import sys
import time
import weakref
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from lessons_src import graph_walk

from .measure import chain, first_line, flat, shaped, vjp


class Target:
    """fn as a function of the tensors that require grad, which it returns those outputs for.

    Everything else is handed over as a copy, and every call runs under the same seed. A module is
    called with its parameters in the given dtype, and with copies of its buffers.
    """

    def __init__(self, fn, inputs, dtype):
        self.fn, self.seed, self.calls, self.seconds = fn, 0, 0, 0.0
        slots, self.tree = tree_flatten(inputs)
        state = {}
        if isinstance(fn, torch.nn.Module):
            state = {**dict(fn.named_parameters()), **dict(fn.named_buffers())}
        self.state = list(state)
        self.slots = [_copy(slot, dtype) for slot in [*slots, *state.values()]]
        self.where = [i for i, s in enumerate(self.slots) if getattr(s, "requires_grad", False)]
        self.point = [self.slots[i].detach() for i in self.where]
        names = _argument_names(fn, slots, inputs) + self.state
        self.names = [names[i] for i in self.where]
        self.kept = None  # which of fn's outputs have a graph

    def __call__(self, xs):
        ys = [y for y in tree_flatten(self.call(xs))[0] if isinstance(y, torch.Tensor)]
        if self.kept is None:
            self.kept = [i for i, y in enumerate(ys) if y.requires_grad]
        ys = [ys[i] for i in self.kept]
        return [torch.view_as_real(y) if y.is_complex() else y for y in ys]

    def call(self, xs):
        """What fn returns."""
        slots = [s.detach().clone() if isinstance(s, torch.Tensor) else s for s in self.slots]
        for i, x in zip(self.where, xs, strict=True):
            slots[i] = x
        torch.manual_seed(self.seed)
        np.random.seed(self.seed)
        random.seed(self.seed)
        n = len(slots) - len(self.state)
        args, before = tree_unflatten(slots[:n], self.tree), time.perf_counter()
        if self.state:
            state = dict(zip(self.state, slots[n:], strict=True))
            out = torch.func.functional_call(self.fn, state, args)
        else:
            out = self.fn(*args)
        self._progress(time.perf_counter() - before)
        return out

    def _progress(self, seconds):
        self.calls += 1
        self.seconds += seconds
        if seconds > 2 or self.seconds > 10 * (1 + self.calls // 10):
            line = f"\rdiagnose: call {self.calls} of about 50, {seconds:.0f} s each "
            print(line, end="", file=sys.stderr, flush=True)

    def place(self, index):
        """Where an element of the flattened inputs is: "x = 0.5" or "x[3, 7] = 0.5"."""
        for name, x in zip(self.names, self.point, strict=True):
            if index < x.numel():
                value = x.reshape(-1)[index].item()
                if x.numel() > 8 or x.unique().numel() < x.numel():
                    where = np.unravel_index(index, x.shape) if x.dim() else ()
                    name += f"[{', '.join(map(str, map(int, where)))}]" if where else ""
                return f"{name} = {value:.4g}"
            index -= x.numel()


def _copy(slot, dtype):
    if not isinstance(slot, torch.Tensor):
        return slot
    tensor = slot.detach().clone()
    tensor = tensor.to(dtype) if dtype and tensor.is_floating_point() else tensor
    return tensor.requires_grad_(slot.requires_grad)


def _argument_names(fn, slots, inputs):
    """fn's own names for its arguments where each input is one tensor, else "input 0", ..."""
    cls = getattr(fn, "__self__", None)
    function = inspect.isclass(cls) and issubclass(cls, torch.autograd.Function)
    forward = fn.forward if isinstance(fn, torch.nn.Module) else fn
    try:
        parameters = inspect.signature(cls.forward if function else forward).parameters.values()
    except (TypeError, ValueError):
        parameters = []
    names = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    if function and names and "setup_context" not in vars(cls):
        names = names[1:]
    if len(slots) != len(inputs) or len(names) < len(slots):
        return ["x"] if len(slots) == 1 else [f"input {i}" for i in range(len(slots))]
    return names[: len(slots)]


@dataclass(frozen=True)
class Saved:
    """A tensor that a custom Function keeps: `kind` is input, output, intermediate or constant."""

    function: str
    name: str
    on_ctx: bool
    kind: str
    shape: tuple
    dtype: str
    bytes: int
    copy_of: str | None = None  # "input" or "output", where an intermediate only repeats its values


@dataclass
class Custom:
    """One custom Function in the graph, and whether its own backward can be differentiated."""

    title: str
    decorated: bool
    saved: list
    path_x: str = "right"  # or "missing", "wrong": d backward / d inputs
    path_u: str = "right"  # the same for d backward / d grad_out
    ignored: bool = False  # gradients of extra outputs are not used
    second: bool = False  # backward calls another custom Function

    @property
    def untracked(self):
        """No graph to x, and neither a kept intermediate nor a second Function explains it."""
        kept = any(s.kind == "intermediate" for s in self.saved)
        return self.path_x == "missing" and not (kept or self.second or self.ignored)


def look(target, h=0.0):
    """Run fn with every input moved by h: (t, inputs, outputs, nodes of custom Functions)."""
    t = [torch.full_like(x, h).requires_grad_() for x in target.point]
    xs = [x + s for x, s in zip(target.point, t, strict=True)]
    ys = target(xs)
    return t, xs, ys, [node for node in graph_walk.walk(*ys).nodes if node.custom][:20]


def functions(target, step):
    """List of `Custom`, in the order of the graph, the last one called first."""
    _, xs, ys, nodes = look(target)
    moved = look(target, step)[3]
    moved = moved if len(moved) == len(nodes) else nodes
    return [_custom(one, two, target, xs, ys) for one, two in zip(nodes, moved, strict=True)]


def _custom(node, moved, target, xs, ys):
    saved = []
    for i, kept in enumerate(node.kept):
        if kept.tensor is None:
            continue
        other = moved.kept[i].tensor if len(moved.kept) == len(node.kept) else None
        kind = _kind(kept, other, target)
        copy_of = None
        if kind == "intermediate":
            copy_of = "input" if _repeats(kept.tensor, xs) else None
            copy_of = "output" if _repeats(kept.tensor, ys) else copy_of
        size = kept.tensor.numel() * kept.tensor.element_size()
        about = tuple(kept.tensor.shape), str(kept.tensor.dtype).removeprefix("torch."), size
        saved.append(Saved(node.title, kept.name, kept.on_ctx, kind, *about, copy_of))
    return Custom(node.title, _once_differentiable(node.custom), saved)


def _kind(kept, other, target):
    """Masks and constants do not change with the input, intermediates do."""
    if kept.role in (graph_walk.INPUT, graph_walk.OUTPUT):
        return kept.role
    given = [s for s in target.slots if isinstance(s, torch.Tensor) and not s.requires_grad]
    if _repeats(kept.tensor, given):
        return "input"
    changes = other is not None and other.shape == kept.tensor.shape
    changes = changes and kept.tensor.is_floating_point() and not torch.equal(other, kept.tensor)
    return "intermediate" if changes else "constant"


def _repeats(tensor, others):
    same = (o for o in others if o.numel() == tensor.numel())
    return any(
        torch.equal(o.detach().reshape(-1).to(tensor.dtype), tensor.reshape(-1)) for o in same
    )


def _once_differentiable(cls):
    backward = getattr(cls, "backward", None)
    while hasattr(backward, "__wrapped__"):
        code = getattr(backward, "__code__", None)
        if code and code.co_filename.replace("\\", "/").endswith("autograd/function.py"):
            return True
        backward = backward.__wrapped__
    return False


def blame(target, customs, step, generator):
    """Find which custom Function's own backward cannot be differentiated, and in what.

    Each backward is called by itself, with a grad_out that requires grad, at two points beside each
    other: what it returns must change as the graph behind it says.
    """
    weights = {}

    def draw(key, like):
        if key not in weights:
            weights[key] = torch.randn(like.shape, generator=generator, dtype=torch.float64)
        return weights[key].to(like) if like.is_floating_point() else torch.zeros_like(like)

    def call(h):
        t, _, _, nodes = look(target, h)
        results = []
        for i, node in enumerate(nodes):
            like = [torch.empty(m.shape, dtype=m.dtype) for m in node.fn._input_metadata]
            u = [draw((i, k), m) for k, m in enumerate(like)]
            u = [v.requires_grad_(v.is_floating_point()) for v in u]
            grads = node.fn.apply(*u)
            grads = [g for g in (grads if isinstance(grads, tuple) else (grads,)) if g is not None]
            value = sum((g * draw((i, "v", k), g)).sum() for k, g in enumerate(grads))
            results.append((node, u, grads, value))
        return t, results

    try:
        t, here = call(0.0)
        forward = {node.fn for node, *_ in here}
        pairs = zip(customs, here, call(step)[1], call(-step)[1], strict=True)
        for custom, (node, u, grads, value), (*_, up), (*_, down) in pairs:
            if not custom.decorated:
                change = (up - down).item() / (2 * step)
                _follow(custom, node, forward, t, u, grads, value, change)
    except Exception:  # the numbers have already said that something is wrong
        return


def _follow(custom, node, forward, t, u, grads, value, change):
    u = [v for v in u if v.requires_grad]
    q = [None] * len(t + u)
    if value.requires_grad:
        q = torch.autograd.grad(value, t + u, allow_unused=True, retain_graph=True)
    by_x = [g for g in q[: len(t)] if g is not None]
    by_u = [(g * v).sum().item() for g, v in zip(q[len(t) :], u, strict=True) if g is not None]
    small = 1e-6 * abs(value.item()) + 1e-12
    custom.path_x = _path(sum(g.sum().item() for g in by_x), change, small)
    custom.path_u = _path(sum(by_u), value.item(), small)
    outputs = {k.position for k in node.kept if k.role == graph_walk.OUTPUT and k.position}
    gradients = dict(enumerate(q[len(t) :]))
    unused = [gradients.get(k) is None or not gradients[k].any() for k in outputs]
    custom.ignored = value.requires_grad and any(unused)
    inside = {n.fn for n in graph_walk.walk(*grads).nodes if n.custom}
    custom.second = bool(inside - forward)


def _path(got, expected, small):
    if abs(got - expected) <= 1e-3 * abs(expected) + small:
        return "right"
    return "missing" if got == 0 else "wrong"


@dataclass
class Habits:
    """How forward and backward behave; a text says what went wrong, empty if nothing did."""

    in_place_forward: bool = False
    mutates_grad_out: bool = False
    mutates_saved: bool = False
    repeats: bool = True
    linear: bool = True
    none_for: tuple = ()
    noncontiguous: str = ""
    grad_out_layout: str = ""
    one_output: str = ""
    cycle: bool = False


def habits(target, probe, tolerance):
    """Call fn and its backward in the ways in which a larger model calls them."""
    found = Habits()
    t, xs, ys, _ = look(target)
    nodes = [graph_walk.origin(x)[0].name() for x in xs]
    found.in_place_forward = any(
        x._version and node.startswith("AddBackward") for x, node in zip(xs, nodes, strict=True)
    )
    grads = torch.autograd.grad(ys, t, probe.w, retain_graph=True, allow_unused=True)
    found.none_for = tuple(i for i, g in enumerate(grads) if g is None)
    values, w = [v.detach().clone() for v in [*xs, *ys]], [v.clone() for v in probe.w]
    once = flat(vjp(ys, t, w, retain_graph=True))
    found.mutates_grad_out = not all(map(torch.equal, w, probe.w))
    found.mutates_saved = not all(map(torch.equal, [*xs, *ys], values))
    if found.mutates_grad_out or found.mutates_saved:
        return found

    def same(grads, expected=once):
        size = tolerance * (expected.abs() + expected.abs().nanmean()) + 1e-12
        off = (flat(grads) - expected).abs()
        return bool(((off <= size) | ~expected.isfinite()).all())

    found.repeats = same(vjp(ys, t, probe.w, retain_graph=True))
    thrice = vjp(ys, t, [-3 * v for v in probe.w], retain_graph=True)
    found.linear = same([g / -3 for g in thrice])

    def attempt(w, expected):
        try:
            return "" if same(vjp(ys, t, w, retain_graph=True), expected) else "a wrong number"
        except Exception as error:
            return first_line(error)

    ones = [torch.ones_like(y) for y in ys]
    expanded = [torch.ones((), dtype=y.dtype).expand(y.shape) for y in ys]
    expected = flat(vjp(ys, t, ones, retain_graph=True))
    found.grad_out_layout = attempt([strided(v) for v in probe.w], once)
    found.grad_out_layout = found.grad_out_layout or attempt(expanded, expected)
    for k in range(len(ys) if len(ys) > 1 else 0):
        only = [v if i == k else torch.zeros_like(v) for i, v in enumerate(probe.w)]
        try:
            expected = flat(vjp(ys, t, only, retain_graph=True))
            text = (
                ""
                if same(vjp(ys[k : k + 1], t, only[k : k + 1], retain_graph=True), expected)
                else "a wrong number"
            )
        except Exception as error:
            text = first_line(error)
        found.one_output = found.one_output or text
    found.noncontiguous = _noncontiguous(target, probe, same)
    found.cycle = _cycle(target)
    return found


def strided(x):
    """The same values with gaps in memory, still in the graph."""
    return torch.stack([x, torch.zeros_like(x)], -1)[..., 0]


def _noncontiguous(target, probe, same):
    def apart(xs):
        return target([strided(x) for x in xs])

    for order in (1, 2):
        expected, _, _ = chain(target, target.point, probe, "both", order)
        got, _, text = chain(apart, target.point, probe, "both", order)
        if expected is not None and (got is None or not same([got], expected)):
            return text or "a wrong number"
    return ""


def _cycle(target):
    """True if the graph outlives everything that refers to it, until the garbage collector."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        watched = [weakref.ref(node.fn) for node in look(target)[3]]
        return any(ref() is not None for ref in watched)
    finally:
        if enabled:
            gc.enable()


def torch_func(target, probe, expected, tolerance):
    """What torch.func.grad of torch.func.grad gives: "right", "zeros", "wrong" or the error."""
    v = shaped(probe.d, target.point)

    def value(xs):
        return probe.loss(target(xs), False)

    def directed(xs):
        return sum((g * s).sum() for g, s in zip(torch.func.grad(value)(xs), v, strict=True))

    try:
        got = flat(torch.func.grad(directed)(list(target.point)))
    except Exception as error:
        return first_line(error)
    off = (got - expected).abs() <= tolerance * (expected.abs() + expected.abs().mean()) + 1e-6
    if off.all():
        return "right"
    return "zeros" if not got.any() else "wrong"


class Verdict(StrEnum):
    """What diagnose concludes; the first that applies."""

    FIRST_DERIVATIVE_WRONG = "first_derivative_wrong"
    ONCE_DIFFERENTIABLE = "once_differentiable"
    SILENTLY_WRONG = "silently_wrong"
    LAYOUT_DEPENDENT = "layout_dependent"
    NOT_FINITE = "not_finite"
    RAISES = "raises"
    SURROGATE_GRADIENT = "surrogate_gradient"
    SUPPORTED = "supported"
    NOT_CHECKED = "not_checked"


@dataclass
class Evidence:
    """All that the rules may look at."""

    names: list
    measured: object
    functions: list
    habits: Habits
    torch_func: str = ""
    moved: bool = False  # the numbers are from a point beside the given one
    warnings: list = field(default_factory=list)

    @property
    def wrong(self):
        return self.measured.wrong

    @property
    def texts(self):
        """Every error and warning that was met."""
        return [row.text for row in self.measured.rows] + self.warnings

    def saved(self, kind, on_ctx):
        found = [s for f in self.functions for s in f.saved]
        return [s for s in found if s.kind == kind and s.on_ctx == on_ctx]

    @property
    def verdict(self):
        """The first verdict that applies."""
        outcomes = {row.outcome for row in self.measured.rows}
        habits, first = self.habits, self.measured.first.outcome
        if (
            habits.mutates_grad_out
            or habits.mutates_saved
            or not (habits.repeats and habits.linear)
        ):
            return Verdict.FIRST_DERIVATIVE_WRONG
        if any(f.decorated for f in self.functions):
            return Verdict.ONCE_DIFFERENTIABLE
        if "wrong" in outcomes:
            return Verdict.SILENTLY_WRONG
        if habits.noncontiguous or habits.grad_out_layout:
            return Verdict.LAYOUT_DEPENDENT
        if "not finite" in outcomes or first == "not finite":
            return Verdict.NOT_FINITE
        if "raises" in outcomes or habits.one_output:
            return Verdict.RAISES
        if first == "wrong":
            return Verdict.SURROGATE_GRADIENT
        return Verdict.SUPPORTED if self.measured.clear else Verdict.NOT_CHECKED
