"""What can be seen of fn besides its derivatives: what it keeps, and how its backward behaves."""

from contextlib import suppress
from dataclasses import dataclass, field

import torch

from lessons_src.graphs import walk

from .measure import SETTINGS, Probe, first_line, flat, shaped, slope, vjp


@dataclass(frozen=True)
class Saved:
    """A tensor that a custom Function keeps: `kind` is input, output, intermediate or constant."""

    name: str  # the attribute of ctx, "" for save_for_backward
    kind: str
    shape: tuple
    dtype: str
    bytes: int
    copy: str  # "input" or "output": an intermediate that only repeats one; else ""


@dataclass
class Custom:
    """One custom Function in the graph of fn, and what its backward depends on."""

    once: bool
    saved: list
    path_x: str = ""  # "right", "missing" or "wrong": the derivative of backward by the inputs
    path_u: str = ""  # the same by grad_out; "" if not known
    ignored: bool = False  # backward does not use the gradient of an output that is saved


@dataclass
class Evidence:
    """All that the rules may look at."""

    probe: Probe
    moved: bool  # the numbers are from a point beside the given one
    seeded: bool  # the output depends on the random seed
    generator: torch.Generator
    warnings: list
    functions: list = field(default_factory=list)
    habits: dict = field(default_factory=dict)  # what is wrong with backward: word -> text
    torch_func: str = ""

    def __post_init__(self):
        """Look at fn once more, at the point where it was measured."""
        self.functions = custom_functions(self.probe.target)
        if self.probe.a is not None:
            if self.wrong or self.probe.first.outcome != "right":
                _follow(self.probe, self.functions, self.generator)
            self.habits = _habits(self.probe)
            self.torch_func = _torch_func(self.probe)

    @property
    def wrong(self):
        return self.probe.wrong

    @property
    def texts(self):
        """Every error and warning that was met."""
        return [row.text for row in [self.probe.first, *self.probe.rows]] + self.warnings

    def saved(self, kind, on_ctx):
        blamed = [f for f in self.functions if kind != "intermediate" or f.path_x != "right"]
        found = [s for f in blamed for s in f.saved]
        return [s for s in found if s.kind == kind and bool(s.name) == on_ctx]

    @property
    def untracked(self):
        """No graph leads to x, and nothing that is kept explains it."""
        lost = [f for f in self.functions if f.path_x == "missing" and not f.ignored]
        lost = [f for f in lost if all(s.kind != "intermediate" for s in f.saved)]
        return self.wrong and lost and not {"in place", "mutates"} & set(self.habits)


def _nodes(ys):
    return [node for node in walk.walk(*ys).nodes if node.custom][:20]


def custom_functions(target):
    """List of `Custom` in the order of the graph, the last one called first."""
    _, xs, ys = target.start()
    far = 1e-3 if xs[0].dtype == torch.float64 else 1e-2
    beside = torch.linspace(1, 2, len(flat(xs)), dtype=xs[0].dtype) * far * target.scale
    nodes, moved = _nodes(ys), _nodes(target.start(shift=beside)[2])
    moved = moved if [len(n.kept) for n in moved] == [len(n.kept) for n in nodes] else nodes
    given = [s for s in target.slots if isinstance(s, torch.Tensor) and not s.requires_grad]
    customs = []
    for node, other in zip(nodes, moved, strict=True):
        saved = []
        for kept, beside in zip(node.kept, other.kept, strict=True):
            tensor, kind, copy = kept.tensor, kept.role, ""
            if tensor is None:
                continue
            if kind not in (walk.INPUT, walk.OUTPUT):
                kind = "input" if _repeats(tensor, given) else "constant"  # a mask, for example
                if tensor.is_floating_point() and not _repeats(tensor, [beside.tensor]):
                    kind = "intermediate"  # it changes with x
                    copy = "input" if _repeats(tensor, xs) else "output" * _repeats(tensor, ys)
            count = tensor.numel() if tensor.layout == torch.strided else tensor._nnz()
            about = tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")
            saved.append(Saved(kept.name, kind, *about, count * tensor.element_size(), copy))
        customs.append(Custom(node.once_differentiable, saved))
    return customs


def kinds(target):
    """The kind of every tensor that the custom Functions keep."""
    return [[s.kind for s in f.saved] for f in custom_functions(target)]


def _repeats(tensor, others):
    tensor, same = tensor.to_dense().reshape(-1), [o for o in others if o.numel() == tensor.numel()]
    return any(torch.equal(o.to_dense().reshape(-1).to(tensor.dtype), tensor) for o in same)


def _follow(probe, customs, generator):
    """Find which custom Functions have a backward that cannot be differentiated, and by what.

    Each backward is called by itself with a grad_out u. Its change with x is compared with what
    autograd says, and what autograd says of u with the result itself, which is linear in u.
    """
    weights = {}

    def draw(like, *key):
        if key not in weights:
            weights[key] = torch.randn(like.shape, generator=generator, dtype=torch.float64)
        return weights[key].detach().to(like.dtype)

    def call(h):
        t, _, ys = probe.target.start(shift=h * probe.d)
        for i, node in enumerate(_nodes(ys)):
            dtypes = [torch.promote_types(m.dtype, torch.half) for m in node.fn._input_metadata]
            pairs = zip(node.fn._input_metadata, dtypes, strict=True)
            like = [torch.empty(m.shape, dtype=dtype) for m, dtype in pairs]
            u = [draw(m, i, k).requires_grad_(True) for k, m in enumerate(like)]
            grads = node.fn.apply(*u)
            grads = [g for g in (grads if isinstance(grads, tuple) else [grads]) if g is not None]
            yield node, t, u, sum((g * draw(g, i, k, "v")).sum() for k, g in enumerate(grads))

    def values(h):
        return torch.stack([value.detach() for *_, value in call(h)]).double()

    try:
        changes = zip(*slope(values, probe.dtype, probe.scale), strict=True)
        for custom, result, change in zip(customs, call(0.0), changes, strict=True):
            if not custom.once:
                _compare(custom, *result, shaped(probe.d, result[1]), *change)
    except Exception:  # then an explanation is missing, not the verdict
        return
    if probe.first.outcome != "right":  # then the numbers could not be judged as a whole
        one = len(customs) == 1  # an inner one sees x through a backward that is not its derivative
        x = any(c.path_x == "missing" or one and c.path_x == "wrong" for c in customs)
        u = any(c.path_u in ("missing", "wrong") for c in customs)
        for name, row in probe.second.items():
            if row.outcome == "right" and (x or u and SETTINGS[name][1]):
                row.outcome = "raises" if row.text else "wrong"


def _compare(custom, node, t, u, value, steps, change, error):
    def path(terms, expected, error):
        got = sum(terms)
        if abs(got - expected) <= 1e-3 * abs(expected) + 10 * error:
            return "right"
        return "missing" if got == 0 else "wrong" if got == got else ""

    grads = [None] * len(t + u)
    if value.requires_grad:
        grads = torch.autograd.grad(value, t + u, allow_unused=True, retain_graph=True)
    pairs = zip(grads, steps + u, strict=True)
    terms = [0.0 if g is None else (g * s).sum().item() for g, s in pairs]
    custom.path_x = path(terms[: len(t)], change.item(), error.item())
    custom.path_u = path(terms[len(t) :], value.item(), 1e-9)
    extra = [grads[len(t) + k.position] for k in node.kept if k.role == walk.OUTPUT and k.position]
    custom.ignored = value.requires_grad and any(g is None or not g.any() for g in extra)


def _habits(probe):
    """Call fn and its backward in the ways in which a larger model calls them."""
    found, (t, xs, ys) = {}, probe.target.start()
    if any(x._version and x.grad_fn.name().startswith("Add") for x in xs):
        found["in place"] = "an input"
    before, w = [v.detach().clone() for v in [*xs, *ys]], [v.clone() for v in probe.w]
    once = torch.autograd.grad(ys, t, w, retain_graph=True, allow_unused=True)
    names = [name for name, g in zip(probe.target.names, once, strict=True) if g is None]
    if names:
        found["none"] = ", ".join(names)
    if not all(map(torch.equal, w, probe.w)):
        return found | {"mutates": "grad_out"}
    if not all(map(torch.equal, [*xs, *ys], before)):
        return found | {"mutates": "the tensors that it saved"}

    def compare(habit, expected, got, text=""):
        size = probe.tolerance * (expected.abs() + expected.abs().nanmean()) + 1e-12
        if got is None or not (((got - expected).abs() <= size) | ~expected.isfinite()).all():
            found.setdefault(habit, text or "a wrong number")

    def call(habit, w, expected, factor=1):
        expected, got, text = vjp(t, xs, ys, expected)[1] * factor, None, ""
        try:
            got = vjp(t, xs, ys, w)[1]
        except Exception as error:
            text = first_line(error)
        compare(habit, expected, got, text)

    ones = [torch.ones_like(y) for y in ys]
    call("nonlinear", probe.w, probe.w)
    call("nonlinear", [-3 * v for v in probe.w], probe.w, -3)
    call("layout", [strided(v) for v in probe.w], probe.w)
    call("layout", [v.new_ones(()).expand(v.shape) for v in ones], ones)
    rows = [probe.reported("both", order)[0] for order in (1, 2)]
    probe.target.layout = strided
    with suppress(Exception):  # a forward that refuses such an input is not to blame
        probe.target.start()
        for order, expected in enumerate(rows, 1):
            got, _, text = probe.reported("both", order)
            if expected is not None:
                compare("noncontiguous", expected, got, text)
    probe.target.layout = None
    return found


def strided(x):
    """The same values in another order or with gaps in memory, still in the graph."""
    if x.dim() > 1:
        return x.mT.clone(memory_format=torch.contiguous_format).mT
    return torch.stack([x, torch.zeros_like(x)], -1)[..., 0]


def _torch_func(probe):
    """What torch.func.grad of torch.func.grad gives: "right", "zeros", "wrong" or the error."""

    def along(xs):
        grads = torch.func.grad(lambda xs: probe.loss(probe.target(xs)))(xs)
        return sum((g * s).sum() for g, s in zip(grads, shaped(probe.d, xs), strict=True))

    try:
        got = flat(torch.func.grad(along)(list(probe.target.point)))
    except Exception as error:
        return first_line(error)
    size = 10 * probe.tolerance * (probe.a.abs() + probe.a.abs().mean()) + 1e-6
    if ((got - probe.a).abs() <= size).all():
        return "right"
    return "not finite" if not got.isfinite().all() else "wrong" if got.any() else "zeros"
