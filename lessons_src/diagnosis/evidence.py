"""What can be seen of fn besides its derivatives: what it keeps, and how its backward behaves."""

import gc
import weakref
from dataclasses import dataclass, field
from enum import StrEnum

import torch

from lessons_src import graph_walk

from .measure import SETTINGS, Measured, first_line, flat, normal, shaped, slope, vjp


class Verdict(StrEnum):
    """What `diagnose` concludes; the first that applies."""

    FIRST_DERIVATIVE_WRONG = "first_derivative_wrong"
    ONCE_DIFFERENTIABLE = "once_differentiable"
    SILENTLY_WRONG = "silently_wrong"
    LAYOUT_DEPENDENT = "layout_dependent"
    NOT_FINITE = "not_finite"
    RAISES = "raises"
    SURROGATE_GRADIENT = "surrogate_gradient"
    SUPPORTED = "supported"
    NOT_CHECKED = "not_checked"


@dataclass(frozen=True)
class Saved:
    """A tensor that a custom Function keeps: `kind` is input, output, intermediate or constant."""

    function: str
    name: str  # the attribute of ctx, "" for save_for_backward
    kind: str
    shape: tuple
    dtype: str
    bytes: int
    copy: bool  # an intermediate that only repeats an input


@dataclass
class Custom:
    """One custom Function in the graph of fn, and what its backward depends on."""

    once: bool
    saved: list
    path_x: str = "right"  # or "missing", "wrong": the derivative of backward by the inputs
    path_u: str = "right"  # the same by grad_out
    ignored: bool = False  # backward does not use the gradient of an output that is saved

    @property
    def untracked(self):
        """No graph to x, and nothing else explains that."""
        kept = any(s.kind == "intermediate" for s in self.saved)
        return self.path_x != "right" and not kept and not self.ignored and not self.once


@dataclass
class Habits:
    """How forward and backward behave; a text says what went wrong, "" if nothing did."""

    in_place_forward: bool = False
    mutates: str = ""
    repeats: bool = True
    linear: bool = True
    none_for: tuple = ()
    noncontiguous: str = ""
    grad_out_layout: str = ""
    one_output: str = ""
    cycle: bool = False


@dataclass
class Evidence:
    """All that the rules may look at."""

    names: list
    measured: Measured
    moved: bool = False  # the numbers are from a point beside the given one
    seeded: bool = False  # the output depends on the random seed
    warnings: list = field(default_factory=list)
    functions: list = field(default_factory=list)
    habits: Habits = field(default_factory=Habits)
    torch_func: str = ""

    def gather(self, target, generator):
        """Look at fn once more, at the point where it was measured."""
        self.functions = custom_functions(target, self.measured.probe.d)
        if self.measured.probe.a is not None:
            if self.wrong or self.measured.first.outcome != "right":
                _follow(target, self.measured, self.functions, generator)
            self.habits = _habits(target, self.measured.probe)
            self.torch_func = _torch_func(target, self.measured.probe)

    @property
    def wrong(self):
        return self.measured.wrong

    @property
    def texts(self):
        """Every error and warning that was met."""
        return [row.text for row in [self.measured.first, *self.measured.rows]] + self.warnings

    def saved(self, kind, on_ctx):
        found = [s for f in self.functions for s in f.saved]
        return [s for s in found if s.kind == kind and bool(s.name) == on_ctx]

    @property
    def verdict(self):
        habits, first = self.habits, self.measured.first.outcome
        outcomes = {first} | {row.outcome for row in self.measured.rows}
        applies = (
            habits.mutates or not habits.repeats or not habits.linear,
            any(f.once for f in self.functions),
            any(row.outcome == "wrong" for row in self.measured.rows),
            habits.noncontiguous or habits.grad_out_layout,
            "not finite" in outcomes,
            "raises" in outcomes or habits.one_output,
            first == "wrong",
            self.measured.clear,
            True,
        )
        return next(v for v, yes in zip(Verdict, applies, strict=True) if yes)


def _nodes(ys):
    return [node for node in graph_walk.walk(*ys).nodes if node.custom][:20]


def custom_functions(target, d):
    """List of `Custom` in the order of the graph, the last one called first."""
    _, xs, ys = target.start()
    nodes, moved = _nodes(ys), _nodes(target.start(shift=1e-3 * target.scale * d)[2])
    moved = moved if [len(n.kept) for n in moved] == [len(n.kept) for n in nodes] else nodes
    given = [s for s in target.slots if isinstance(s, torch.Tensor) and not s.requires_grad]
    customs = []
    for node, beside in zip(nodes, moved, strict=True):
        pairs = [
            pair for pair in zip(node.kept, beside.kept, strict=True) if pair[0].tensor is not None
        ]
        customs.append(
            Custom(node.once_differentiable, [_saved(node, *p, xs, given) for p in pairs])
        )
    return customs


def _saved(node, kept, beside, xs, given):
    """What kind of tensor it is: an intermediate changes with x, a mask or a constant does not."""
    tensor, kind, copy = kept.tensor, kept.role, False
    if kind not in (graph_walk.INPUT, graph_walk.OUTPUT):
        kind = "input" if _repeats(tensor, given) else "constant"
        if tensor.is_floating_point() and not _repeats(tensor, [beside.tensor]):
            kind, copy = "intermediate", _repeats(tensor, xs)
    about = tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), tensor.nbytes
    return Saved(node.title, kept.name, kind, *about, copy)


def _repeats(tensor, others):
    flattened = (o.detach().reshape(-1) for o in others if o.numel() == tensor.numel())
    return any(torch.equal(o.to(tensor.dtype), tensor.reshape(-1)) for o in flattened)


def _follow(target, measured, customs, generator):
    """Find which custom Functions have a backward that cannot be differentiated, and by what.

    Each backward is called by itself, with a grad_out u that requires grad: how the result changes
    with x is compared with what autograd says, and what autograd says of u with the result itself,
    which is linear in u.
    """
    weights, d = {}, measured.probe.d

    def draw(like, *key):
        if key not in weights:
            weights[key] = normal(like, generator)
        return weights[key].detach().to(like.dtype)

    def call(h):
        t, _, ys = target.start(shift=h * d)
        for i, node in enumerate(_nodes(ys)):
            like = [torch.empty(m.shape, dtype=m.dtype) for m in node.fn._input_metadata]
            u = [draw(m, i, k) if m.is_floating_point() else m.zero_() for k, m in enumerate(like)]
            u = [v.requires_grad_(v.is_floating_point()) for v in u]
            grads = node.fn.apply(*u)
            grads = [g for g in (grads if isinstance(grads, tuple) else [grads]) if g is not None]
            yield node, t, u, sum((g * draw(g, i, k, "v")).sum() for k, g in enumerate(grads))

    def values(h):
        return torch.stack([value.detach() for *_, value in call(h)]).double()

    def along(gradients, steps):
        pairs = [(g, s) for g, s in zip(gradients, steps, strict=True) if g is not None]
        return sum((g * s).sum().item() for g, s in pairs)

    try:
        changes = zip(*slope(values, measured.probe.dtype, target.scale), strict=True)
        for custom, (node, t, u, value), change in zip(customs, call(0.0), changes, strict=True):
            if custom.once:
                continue
            u = [v for v in u if v.requires_grad]
            q = [None] * len(t + u)
            if value.requires_grad:
                q = torch.autograd.grad(value, t + u, allow_unused=True, retain_graph=True)
            custom.path_x = _path(along(q[: len(t)], shaped(d, t)), *(c.item() for c in change))
            custom.path_u = _path(along(q[len(t) :], u), value.item(), 1e-9)
            extra = [
                q[len(t) + k.position]
                for k in node.kept
                if k.role == graph_walk.OUTPUT and k.position
            ]
            custom.ignored = value.requires_grad and any(g is None or not g.any() for g in extra)
    except Exception:  # then an explanation is missing, not the verdict
        return
    if measured.first.outcome != "right":  # the numbers could not be judged as a whole
        one = len(customs) == 1  # an inner one sees x through a backward that is not its derivative
        x = any(c.path_x == "missing" or one and c.path_x == "wrong" for c in customs)
        u = any(c.path_u != "right" for c in customs)
        for name, row in measured.second.items():
            if row.outcome == "right" and (x or u and SETTINGS[name][1]):
                row.outcome = "raises" if row.text else "wrong"


def _path(got, expected, error):
    if abs(got - expected) <= 1e-3 * abs(expected) + 10 * error:
        return "right"
    return "missing" if got == 0 else "wrong"


def _habits(target, probe):
    """Call fn and its backward in the ways in which a larger model calls them."""
    found, (t, xs, ys) = Habits(), target.start()
    untouched = [graph_walk.origin(x)[0].name().startswith("Add") for x in xs]
    found.in_place_forward = any(x._version and y for x, y in zip(xs, untouched, strict=True))
    grads = torch.autograd.grad(ys, t, probe.w, retain_graph=True, allow_unused=True)
    found.none_for = tuple(i for i, g in enumerate(grads) if g is None)
    before, w = [v.detach().clone() for v in [*xs, *ys]], [v.clone() for v in probe.w]
    once = vjp(ys, t, w, retain_graph=True)
    if not all(map(torch.equal, w, probe.w)):
        return Habits(mutates="grad_out")
    if not all(map(torch.equal, [*xs, *ys], before)):
        return Habits(mutates="the tensors that it saved")

    def same(got, expected=once):
        size = probe.tolerance * (expected.abs() + expected.abs().nanmean()) + 1e-12
        return bool((((got - expected).abs() <= size) | ~expected.isfinite()).all())

    def attempt(some, w, reference):
        expected = vjp(ys, t, reference, retain_graph=True)
        try:
            return "" if same(vjp(some, t, w, retain_graph=True), expected) else "a wrong number"
        except Exception as error:
            return first_line(error)

    found.repeats = same(vjp(ys, t, probe.w, retain_graph=True))
    found.linear = same(vjp(ys, t, [-3 * v for v in probe.w], retain_graph=True) / -3)
    ones = [torch.ones_like(y) for y in ys]
    expanded = [v.new_ones(()).expand(v.shape) for v in ones]
    found.grad_out_layout = attempt(ys, [strided(v) for v in probe.w], probe.w)
    found.grad_out_layout = found.grad_out_layout or attempt(ys, expanded, ones)
    for k in range(len(ys) if len(ys) > 1 else 0):
        only = [v * (i == k) for i, v in enumerate(probe.w)]
        found.one_output = found.one_output or attempt([ys[k]], [only[k]], only)
    found.noncontiguous = _noncontiguous(target, probe, same)
    found.cycle = _cycle(target)
    return found


def strided(x):
    """The same values with gaps in memory, still in the graph."""
    return torch.stack([x, torch.zeros_like(x)], -1)[..., 0]


def _noncontiguous(target, probe, same):
    for order in (1, 2):
        expected, _, _ = probe.reported("both", order)
        target.layout = strided
        got, _, text = probe.reported("both", order)
        target.layout = None
        if expected is not None and (got is None or not same(got, expected)):
            return text or "a wrong number"
    return ""


def _cycle(target):
    """True if the graph outlives everything that refers to it, until the garbage collector."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        watched = [weakref.ref(node.fn) for node in _nodes(target.start()[2])]
        return any(ref() is not None for ref in watched)
    finally:
        if enabled:
            gc.enable()


def _torch_func(target, probe):
    """What torch.func.grad of torch.func.grad gives: "right", "zeros", "wrong" or the error."""

    def along(xs):
        grads = torch.func.grad(lambda xs: probe.loss(target(xs)))(xs)
        return sum((g * s).sum() for g, s in zip(grads, shaped(probe.d, xs), strict=True))

    try:
        got = flat(torch.func.grad(along)(list(target.point)))
    except Exception as error:
        return first_line(error)
    size = 10 * probe.tolerance * (probe.a.abs() + probe.a.abs().mean()) + 1e-6
    if ((got - probe.a).abs() <= size).all():
        return "right"
    return "not finite" if not got.isfinite().all() else "wrong" if got.any() else "zeros"
