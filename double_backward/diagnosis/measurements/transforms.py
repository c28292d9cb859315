"""Checks fn in forward mode, where a Function has a `jvp` or is a registered operator, and under
`torch.func`.

How the outputs and their gradient change along a direction is known from `measure`, which calls no
jvp. Here the same is computed in each of the ways in which a reader would do it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.autograd import forward_ad

from double_backward import tangents
from double_backward._torch import in_forward_mode, load_formulas
from double_backward.calls import Listener, listening_alone
from double_backward.check import Expected, Line, Outcome, by_element
from double_backward.differences import Slope, filled, flat, shaped
from double_backward.failures import raise_if_own, unless_gone
from double_backward.lines import first_line
from double_backward.methods import has_jvp
from double_backward.phrases import Phrase
from double_backward.trial import has_wrong_jvp

from ..preparation.formulas import Row, Setting
from ..preparation.functions import Custom
from .measure import Measured

JVP, TANGENT_OF_GRADIENT, GRADIENT_OF_TANGENT = "jvp", "jvp of grad", "grad of jvp"
GRAD_OF_GRAD, HESSIAN, NESTED = "grad of grad", "hessian", "nested jacfwd"
THROUGH_A_JVP = JVP, TANGENT_OF_GRADIENT, GRADIENT_OF_TANGENT, HESSIAN  # once
NO_SETUP_CONTEXT, NO_JVP = "no setup_context", "no jvp"
MISSING = {  # words in an error of torch -> what the Function lacks
    "must override the setup_context": NO_SETUP_CONTEXT,
    "must implement the jvp": NO_JVP,
    "generate_vmap_rule": "no vmap rule",
}
IGNORED = "the same, whatever the tangents are"
GROUPS = 4  # groups of elements, each of which `hessian` and nested `jacfwd` move together
ALIKE = 1e-2  # relative: factors that differ by less are the same


def in_forward_mode_alone(measured: Measured, functions: Sequence[Custom]) -> dict[str, Row]:
    """Rows for `torch.autograd.forward_ad`: alone, of a gradient, and under reverse mode. {} where
    no Function has a jvp of its own and none is an operator, or nothing is known to compare with.

    For an operator, torch raises if its inputs require a gradient, too; without that, it is silent.
    """
    expected = _expected(measured, functions)
    if expected is None:
        return {}
    if reason := _not_to_be_tried(expected.line):
        return {JVP: Row(Outcome.NOT_ASKED, text=reason)}
    if any(f.operator for f in functions):
        return {JVP: _jvp_row(expected, measured.tolerance, beside=False)}
    line = expected.line

    def second(asked):
        changes = (each.by_input for each in _truths(expected))
        return _row(asked, changes, expected.g, measured.tolerance)

    return {
        JVP: _jvp_row(expected, measured.tolerance),
        TANGENT_OF_GRADIENT: second(lambda: _tangents(line, of_gradient=True)),
        GRADIENT_OF_TANGENT: second(lambda: _gradient_of_tangents(line)),
    }


def under_torch_func(measured: Measured, functions: Sequence[Custom]) -> dict[str, Row]:
    """Rows for transforms of `torch.func`; {} where they do not accept such inputs. `hessian` and
    `jacfwd`, which call each jvp and each vmap rule, are not asked of operations of torch alone."""
    layouts = {x.layout for x in measured.probe.target.start().xs}
    row = None if layouts - {torch.strided, torch.sparse_coo} else _grad_of_grad(measured)
    if row is None:
        return {}
    rows = {GRAD_OF_GRAD: row}
    if not functions or row.text == NO_SETUP_CONTEXT:
        return rows
    if not all(f.jvp for f in functions):
        return {**rows, HESSIAN: Row(Outcome.NOT_ASKED, text=NO_JVP)}
    expected = _expected(measured, functions)
    if expected is None or _not_to_be_tried(expected.line):
        return rows
    for name, transform in ((HESSIAN, torch.func.hessian), (NESTED, _nested)):
        rows[name] = _in_groups(expected, transform, measured.tolerance)
    return rows


def _nested(f):
    return torch.func.jacfwd(torch.func.jacfwd(f))


def _expected(measured, functions):
    """What a jvp can be compared with. It is None for a surrogate, whose jvp may mean either
    derivative, and where the second derivative by reverse mode is wrong already."""
    own = any(f.jvp or f.operator for f in functions) and not in_forward_mode()
    right = measured.first.outcome is Outcome.RIGHT and not measured.bad
    return measured.expected if own and right and not measured.by_backward else None


def _not_to_be_tried(line):
    """The reason why forward mode is not to be tried, or "". Torch may wait for itself for ever
    where a forward writes into a tensor that has a tangent."""
    with tangents.looked_at() as seen:
        line.both()
    return seen.reason


def _truths(expected: Expected) -> Iterator[Expected]:
    """What was measured, and then what differences alone say, before anything is called wrong."""
    yield expected
    if expected.exact:
        yield expected.by_differences()


class _Jvps(Listener):
    """Collects the first call of each Function that has a jvp."""

    def __init__(self):
        self.calls = {}

    def called(self, call):
        if has_jvp(call.function) and call.inputs:
            self.calls.setdefault(call.function.__name__, call)


def with_wrong_jvps(measured: Measured, functions: tuple[Custom, ...]) -> tuple[Custom, ...]:
    """The Functions, each with whether its jvp is wrong by itself; one that cannot be checked
    counts as wrong.

    This is needed since some operations of torch, such as logdet, are wrong in forward mode.
    """
    met = _Jvps()
    with unless_gone(), listening_alone(met):  # of fn
        measured.probe.target.start()
    bad = {name: has_wrong_jvp(call) for name, call in met.calls.items()}
    return tuple(replace(f, wrong_jvp=f.jvp and bad.get(f.name, True)) for f in functions)


# Forward mode.


def _jvp_row(expected, rtol, beside=True):
    """The row for the tangents of all inputs at once and, if there are several, one at a time.

    Args:
        beside: whether the inputs require a gradient, too.
    """
    line, several = expected.line, len(expected.line.d) > 1

    def tangents_of(line, by=1.0):
        return _tangents(line, by, beside=beside)

    def row(asked):
        return _row(asked, [expected.y], expected.values, rtol)

    found = row(lambda: tangents_of(line))
    given = found.outcome is Outcome.WRONG and tangents_of(line)
    if given is not False and given.any() and torch.equal(given, tangents_of(line, 2.0)):
        return Row(Outcome.WRONG, text=IGNORED)
    if found.outcome is not Outcome.RIGHT or not several:
        return found
    each = [line.by_input_only(i) for i in range(len(line.d))]
    return row(lambda: torch.stack([tangents_of(one) for one in each]).sum(0))


def _tangents(
    line: Line, by: float = 1.0, of_gradient: bool = False, beside: bool = True
) -> Tensor:
    """How the outputs, or the gradient, change along the line, by forward mode; flat."""
    load_formulas()
    with torch.enable_grad(), line.subject.around(), forward_ad.dual_level():
        x = line.x() if beside else [t.detach() for t in line.x()]
        x = tangents.moved(x, [by * step for step in line.d])
        if of_gradient:
            return flat(_their_tangents(line.subject.backward_inside(x, line.u())))
        return flat(_their_tangents(line.given(line.subject.function(x))))


def _gradient_of_tangents(line):
    load_formulas()
    with torch.enable_grad(), line.subject.around(), forward_ad.dual_level():
        x = line.x()
        outs = line.given(line.subject.function(tangents.moved(x, line.d)))
        product = _weighted(line, _their_tangents(outs))
        if not product.requires_grad:
            return torch.zeros_like(flat(x))
        return filled(torch.autograd.grad(product, x, allow_unused=True), x)


def _their_tangents(tensors):
    found = [(t, tangents.tangent(t)) for t in tensors]
    return [torch.zeros_like(t) if carried is None else carried for t, carried in found]


def _weighted(line, outs):
    """The sum of the outputs, with the weights of the line."""
    weights = [w for w in line.u() if w is not None]
    return sum((w.to(y) * y).sum() for w, y in zip(weights, outs, strict=True))


# torch.func.


def _grad_of_grad(measured):
    """Compare grad of grad with what autograd gives; None where autograd gives nothing."""
    probe, truth = measured.probe, measured.a
    if measured.first.outcome is Outcome.WRONG:
        truth = measured.said[Setting.ALONE].vector
    if truth is None:
        return None

    def along(t):
        target = probe.target
        grads = torch.func.grad(lambda t: probe.loss(target.tensors(target.inputs(t))))(t)
        return sum((g * s).sum() for g, s in zip(grads, shaped(probe.d, t), strict=True))

    def asked():
        return flat(torch.func.grad(along)([torch.zeros_like(x) for x in probe.target.point]))

    exact = Slope(truth, torch.zeros_like(truth), torch.zeros_like(truth))
    first = torch.ones(1) if measured.gradient is None else measured.gradient
    return _row(asked, [exact], first, measured.tolerance)


def _in_groups(expected, transform, rtol):
    """Check a second derivative by a few numbers, each of which moves a part of the inputs along
    d."""
    line, x = expected.line, expected.line.subject.x
    d, count = flat(line.d), min(GROUPS, expected.g.numel())
    group = torch.arange(len(d)) % count
    steps = [shaped(d * (group == k), line.d) for k in range(count)]

    def loss(t):
        moved = [s + sum(t[k] * step[i] for k, step in enumerate(steps)) for i, s in enumerate(x)]
        return _weighted(line, line.given(line.subject.function(moved)))

    def asked():
        with line.subject.around():
            return flat([transform(loss)(x[0].new_zeros(count)).sum(-1)])

    def summed(change):
        pairs = zip(change, (d, d.abs(), d.abs()), strict=True)
        none = torch.zeros(count, dtype=torch.float64)
        return Slope(*(none.index_add(0, group, part * by) for part, by in pairs))

    changes = (summed(each.by_input) for each in _truths(expected))
    return _row(asked, changes, summed(Slope(*[expected.g] * 3)).error, rtol)


def _row(asked: Callable[[], Tensor], changes: Iterable[Slope], beside: Tensor, rtol: float) -> Row:
    """Compare what `asked` returns with the known changes: it is wrong only if all of them say
    so."""
    try:
        got = asked()
    except Exception as error:  # raised by fn under the transform
        raise_if_own(error)
        text = first_line(error)
        missing = next((said for words, said in MISSING.items() if words in text), None)
        return Row(Outcome.NOT_ASKED if missing else Outcome.RAISES, text=missing or text)
    for change in changes:
        outcome, off = by_element(change, got, rtol, beside.abs().nanmean().item())
        if outcome is not Outcome.WRONG:
            return Row(outcome, elements=len(got))
    return Row(Outcome.WRONG, text=_how(change.value[off], got[off]), elements=len(got))


def _how(right: Tensor, got: Tensor) -> str:
    """How a wrong number differs from the right one: it is 0, or a multiple of it, or another."""
    if not got.any():
        return Phrase("0 in the place of another number")
    times = got / right
    if (times - times.mean()).abs().max() <= ALIKE * times.mean().abs():
        return Phrase("{} times the right number", f"{times.mean().item():.4g}")
    return Phrase("another number")
