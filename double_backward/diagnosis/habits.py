"""How fn and its backward behave when they are called as a larger model calls them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from double_backward._torch import version
from double_backward.check import first_line
from double_backward.differences import flat, same, shaped, vjp

from .functions import Kind, custom_functions, look, uneven_step
from .judge import TOLERANCE
from .measure import Measured
from .rounding import scatter
from .settings import Setting, reported

WRONG_NUMBER = "a wrong number"
SAME = "the same result"
LINEAR = {  # relative; autocast rounds to 8 bits
    torch.float64: 1e-4,
    torch.float32: 2e-2,
    torch.bfloat16: 5e-2,
}
FACTORS = {  # a clip shows at a large one, what is added at a small one; 16 bits end at 65504
    torch.float64: (-3, 1e4, 1e-4),
    torch.float32: (-3, 1e4, 1e-4),
    torch.bfloat16: (-3, 1e2, 1e-2),
}


@dataclass(frozen=True)
class Habits:
    """What was seen; "" where there is nothing to say, else the words for the report."""

    edits_input: bool = False  # in place, without mark_dirty
    no_gradient: str = ""  # names of inputs for which autograd returns None
    mutates: bool = False  # backward writes into grad_out
    mutates_saved: bool = False  # backward writes into a tensor that it saved
    only_once: str = ""  # the error that a second backward through the same graph raises
    not_repeatable: str = ""  # what a second call through the same graph gives
    changes_ctx: tuple[str, ...] = ()  # the attributes of ctx that are then others
    not_linear: str = ""  # what happens if grad_out is scaled
    grad_out_layout: str = ""  # what happens if grad_out is not contiguous
    input_layout: str = ""  # what happens if an input is not contiguous
    copies_input: bool = False  # forward keeps a copy of such an input
    second_call: str = ""  # what happens if fn is called elsewhere before backward


def observe(measured: Measured, seeded: bool = False) -> Habits:
    """Call backward on its own, then with other grad_outs and for other layouts.

    Args:
        measured: where, and how close numbers must be.
        seeded: fn draws random numbers; then another layout gives other outputs.
    """
    probe, found = measured.probe, Habits()
    if probe.by_backward:  # autograd.grad is refused, which is all that is called here
        return found
    target = probe.target
    found = _watch(target.in_units(target.units, ()), probe.w)  # else backward gets a quotient
    if found.mutates or found.mutates_saved or found.only_once:
        return found
    again, not_linear = _try_again(measured), _try_scaled(measured)
    if not_linear and not _try_scaled(measured, anew=True):
        again = again or not_linear
    if again:
        return replace(found, not_repeatable=again, changes_ctx=_changes_of_ctx(measured))
    input_layout = "" if seeded else _try_input_layout(measured)
    return replace(
        found,
        not_linear=not_linear,
        copies_input=bool(input_layout) and _copies(target.in_layout(strided)),
        grad_out_layout=_try_grad_out_layouts(measured),
        input_layout=input_layout,
        second_call=_try_second_call(measured),
    )


def _watch(target, w):
    """What one call of fn and two of its backward change."""
    t, xs, ys = target.start()
    edits = any(version(x) and x.grad_fn.name().startswith("Add") for x in xs)
    before, given = [v.detach().clone() for v in [*xs, *ys]], [v.clone() for v in w]
    found, again = Habits(edits_input=edits), ""
    options = {"retain_graph": True, "allow_unused": True}
    try:
        once = torch.autograd.grad(ys, t, given, **options)
        without = [i for i, g in enumerate(once) if g is None]
        names = [target.names[i] for i in without if _matters(target, i, ys)]
        found = replace(found, no_gradient=", ".join(names))
        torch.autograd.grad(ys, t, [v.clone() for v in w], **options)
    except Exception as error:  # of backward, which has worked before
        again = first_line(error)
    if not all(map(torch.equal, given, w)):
        return replace(found, mutates=True)
    if "modified by an inplace operation" in again or not all(map(same, [*xs, *ys], before)):
        return replace(found, mutates_saved=True, only_once=again)
    return replace(found, only_once=again)


def _matters(target, i, ys):
    """Whether an output changes with the i-th input at all."""
    steps = [torch.zeros_like(x) for x in target.point]
    steps[i] = 0.1 * target.scale * torch.ones_like(steps[i])
    try:
        return not all(map(same, ys, target.start(shift=flat(steps)).ys))
    except Exception:  # of fn, which has no value there
        return True


def _try_again(measured):
    """The same backward twice, through one graph."""
    t, _, ys = measured.probe.target.start()
    expected, _ = _vjp(ys, t, measured.probe.w)
    got, text = _vjp(ys, t, measured.probe.w)
    if expected is None or (got is not None and _agree(got, expected, LINEAR[measured.dtype])):
        return ""
    return text or WRONG_NUMBER


def _changes_of_ctx(measured):
    """The attributes of ctx that backward writes."""
    call, nodes = look(measured.probe.target)
    before = [{name: _state_of(v) for name, v in node.attributes.items()} for node in nodes]
    _vjp(call.ys, call.t, measured.probe.w)
    changed = []
    for node, versions in zip(nodes, before, strict=True):
        now = vars(node.fn).items()
        changed += [name for name, v in now if versions.get(name) != _state_of(v)]
    return tuple(dict.fromkeys(changed))


def _state_of(value):
    """Another one after an attribute was assigned or written into."""
    size = len(value) if isinstance(value, (list, dict, set)) else 0
    return id(value), version(value) if isinstance(value, Tensor) else size


def _try_scaled(measured, anew=False):
    """Through one graph, or through one for each factor."""
    t, _, ys = measured.probe.target.start()
    w = measured.probe.w
    expected, text = _vjp(ys, t, w)
    if expected is None:
        return text
    for factor in FACTORS[measured.dtype]:
        if anew:
            t, _, ys = measured.probe.target.start()
        got, text = _vjp(ys, t, [factor * v for v in w])
        if got is not None and expected.any() and torch.equal(got, expected):
            return SAME
        # An inexact solver may be inexact here, but it is linear.
        again = partial(_anew, measured.probe, w)
        if got is None or not _agree(got / factor, expected, LINEAR[measured.dtype], again):
            if factor < 1 and got is not None:
                return f"{WRONG_NUMBER} for a small one"
            return text or WRONG_NUMBER
    return ""


def _try_grad_out_layouts(measured):
    """With grad_outs that are laid out otherwise, then with one that has a graph besides."""
    t, _, ys = measured.probe.target.start()
    w = list(measured.probe.w)
    ones = [torch.ones_like(y) for y in ys]
    expanded = [v.new_ones(()).expand(v.shape) for v in ones]
    others = [([strided(v) for v in w], w), (expanded, ones)]
    if not all(v.is_contiguous() for v in w):  # they lie as the outputs do
        others.append(([v.contiguous() for v in w], w))
    for laid_out, plain in others:
        expected, _ = _vjp(ys, t, plain)
        got, text = _vjp(ys, t, laid_out)
        if expected is None:
            continue
        again = partial(_anew, measured.probe, plain)
        if got is None or not _agree(got, expected, measured.tolerance, again):
            return text or WRONG_NUMBER
    if measured.wrong:
        return ""
    return _try_reading(measured, _turned) or _try_reading(measured, torch.sum)


def _try_reading(measured, reading):
    """Second derivatives with a graph after fn, where what reads its output lays out grad_out."""

    def read():
        return _read(measured.probe, lambda y: reading(_copied(y)))

    expected = read()
    if expected.vector is None:
        return ""
    got = _read(measured.probe, reading)
    again = partial(_part, read, "vector")
    if got.vector is None or not _agree(got.vector, expected.vector, measured.tolerance, again):
        return got.text or WRONG_NUMBER
    return ""


def _read(probe, reading):
    """Reported with a graph around fn and `reading`, all of whose weights are 1."""
    target = probe.target.reading_as(reading)
    ys = tuple(y.detach() for y in target.start().ys)
    w = tuple(map(torch.ones_like, ys))
    return reported(replace(probe, target=target, w=w, y0=ys), Setting.BOTH)


def _copied(y):
    """The same numbers; in backward, grad_out is copied into a contiguous tensor."""
    return (y.reshape(-1) * torch.ones(y.numel()).to(y)).view(y.shape)


def _turned(y):
    """The same numbers; in backward, grad_out is transposed, or has gaps in memory."""
    return y.mT if y.dim() > 1 else strided(y)


def _try_input_layout(measured):
    """First and second derivative with a graph around fn, for inputs that are not contiguous."""
    probe = measured.probe
    if probe.target.is_linked:  # another tensor between them would undo that
        return ""
    other = replace(probe, target=probe.target.in_layout(strided))
    try:
        values = flat(other.target.start().ys)
    except Exception:  # a forward that refuses such an input is not to blame
        return ""
    if not _agree(values, flat(probe.y0), measured.tolerance):
        return ""  # random draws that follow the order in memory, say
    read = partial(reported, probe, Setting.BOTH)
    expected, got = read(), reported(other, Setting.BOTH)
    for part in ("first", "vector"):
        plain, laid_out = getattr(expected, part), getattr(got, part)
        again = partial(_part, read, part)
        if plain is None:
            continue
        if laid_out is None or not _agree(laid_out, plain, measured.tolerance, again):
            return got.text or WRONG_NUMBER
    return ""


def _copies(target):
    kept = [saved for custom in custom_functions(target) for saved in custom.saved]
    return any(saved.repeats is Kind.INPUT for saved in kept)


def _try_second_call(measured):
    """The first derivative of one call, after another call at another point."""
    target, w = measured.probe.target, measured.probe.w
    try:
        t, _, ys = target.start()
        expected = vjp(ys, t, w)
        t, _, ys = target.start()
        target.start(shift=uneven_step(target))
    except Exception:  # of fn, or of backward: not what is tried here
        return ""
    got, text = _vjp(ys, t, w)
    if got is None or not _agree(got, expected, TOLERANCE[measured.dtype]):
        return text or WRONG_NUMBER
    return ""


def _vjp(ys, t, w):
    """(first derivative, "") or (None, the error that backward raises)."""
    try:
        return vjp(ys, t, w), ""
    except Exception as error:
        return None, first_line(error)


def _anew(probe, w):
    t, _, ys = probe.target.start()
    return _vjp(ys, t, w)[0]


def _part(read, name):
    return getattr(read(), name)


def _agree(
    got: Tensor,
    expected: Tensor,
    tolerance: float,
    again: Callable[[], Tensor | None] | None = None,
) -> bool:
    """Whether they differ by no more than tolerance and, where `again` computes what is expected,
    by no more than rounding inside it explains."""
    size = tolerance * (expected.abs() + expected.abs().nanmean()) + 1e-12
    fine = ((got - expected).abs() <= size) | ~expected.isfinite()
    if again is None or fine.all():
        return bool(fine.all())
    rounding = scatter(again)
    if rounding is None:
        return False
    return bool((fine | ((got - expected).abs() <= size + 10 * rounding)).all())


def strided(x: Tensor) -> Tensor:
    """The same values in another order or with gaps in memory, still in the graph."""
    if x.dim() > 1:
        return x.mT.clone(memory_format=torch.contiguous_format).mT
    return torch.stack([x, torch.zeros_like(x)], -1)[..., 0]


def torch_func(measured: Measured) -> str:
    """What torch.func.grad of torch.func.grad gives: "right", "zeros", "wrong" or the error."""
    probe, truth = measured.probe, measured.a
    if truth is None:
        return ""

    def along(t):
        target = probe.target
        grads = torch.func.grad(lambda t: probe.loss(target.tensors(target.inputs(t))))(t)
        return sum((g * s).sum() for g, s in zip(grads, shaped(probe.d, t), strict=True))

    try:
        got = flat(torch.func.grad(along)([torch.zeros_like(x) for x in probe.target.point]))
    except Exception as error:  # of fn under torch.func
        return first_line(error)
    size = 10 * measured.tolerance * (truth.abs() + truth.abs().mean()) + 1e-6
    if ((got - truth).abs() <= size).all():
        return "right"
    if not got.isfinite().all():
        return "not finite"
    return "wrong" if got.any() else "zeros"
