"""One call of a Function, checked near its inputs: is its second derivative right?

All is measured a little beside the point, away from the kinks at zeros and at equal elements, and
in float64 where the Function can compute in it. `check` does the rest.
"""

import threading
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from operator import is_

import torch
from torch.autograd import forward_ad

from double_backward._torch import (
    checkpoints_allowed,
    forward_mode,
    in_forward_mode,
    is_followed,
    tree_leaves,
    unbatched,
    unusual,
    unwrapped,
)
from double_backward.calls import (
    Here,
    Listener,
    copied,
    is_continuous,
    listening_alone,
    unheard,
)
from double_backward.change import attributes, forward_again
from double_backward.check import (
    LOST_SHARE,
    PARTS,
    ROUGH,
    ROUGHLY,
    RTOL,
    SHARE,
    SIXTEEN_BITS,
    Line,
    Outcome,
    Subject,
    ask,
    autograd_vjp,
    by_element,
    check,
    first,
    measure,
    measure_values,
    signed,
    size,
    without_rounding,
)
from double_backward.differences import NONE, apart, flat, slope
from double_backward.eigenvectors import MAYBE, turn_of, turn_of_units
from double_backward.failures import raise_if_own, unless_gone
from double_backward.lines import first_line
from double_backward.operations import reads_values
from double_backward.phrases import Phrase
from double_backward.surroundings import Surroundings, no_packing

CURED = 0.1  # less than this share of what was off is left
ASIDE = 1e-3  # how far the inputs are moved from the point, relative to their size


class Unknown(Exception):
    """Nothing can be said: the Function could not be called again, or not with the same result."""

    @property
    def why(self) -> str:
        return self.args[0]  # which str() would make plain text


class NotFinite(Unknown):
    """Nothing can be said at these values, of which no gradient is finite."""


class LeftAlone(Unknown):
    """To call the Function again could change something of the user's that is not put back."""


NOT_FINITE = Phrase("its gradients are not finite where it was called")
LOST_IN_CAST = Phrase(
    "It is right in float64, and not in the precision in which it was called: forward or backward "
    "uses a copy that is made where autograd does not record (autocast, custom_fwd, .to, .float). "
    "Convert the input before apply, and save what apply gets."
)
IN_BATCH = Phrase(
    "a backward applies it to a batch of gradients (is_grads_batched, vectorize=True), where torch "
    "forgets the graph of what a custom Function returns. Take the gradients one by one."
)
LITTLE_BUT_ROUNDING = Phrase("its gradients are little but what rounding leaves")
TOO_LITTLE = Phrase("what its gradients change by is too little to be seen")
ANOTHER_RESULT = Phrase("it gives another result when it is called again")
DOES_ANOTHER = Phrase("it does something else when it is called again")
AGAIN_RAISES = "calling it again raises {}"


def plainly(call, inputs, grad_outs):
    """Gradients by place, as the Function gives them, with a graph where grad mode is on."""
    grads = autograd_vjp(lambda _: call.again(inputs), list(inputs.values()), grad_outs)
    return dict(zip(inputs, grads, strict=True))


def tangents_out(call, inputs, tangents):
    """Tangents by the number of their output, as the Function's jvp gives them."""
    inside = in_forward_mode()  # levels cannot be nested
    level = nullcontext() if inside else forward_ad.dual_level()
    with forward_mode(), level:
        pairs = zip(inputs.items(), tangents, strict=True)
        duals = {
            p: x if t is None else forward_ad.make_dual(x, t.to(x.dtype)) for (p, x), t in pairs
        }
        outs = call.again(duals)
        found = {i: forward_ad.unpack_dual(out).tangent for i, out in enumerate(outs)
                 if isinstance(out, torch.Tensor)}  # fmt: skip
    return {i: tangent for i, tangent in found.items() if tangent is not None}


def only_used(grad_outs):
    """The grad_outs with None for a constant 0, which torch hands over for an output that is not
    used; unchanged where all would be None."""
    if len(grad_outs) < 2 or in_forward_mode():
        return list(grad_outs)
    used = [None if _is_nothing(g) else g for g in grad_outs]
    return used if any(isinstance(g, torch.Tensor) for g in used) else list(grad_outs)


def _is_nothing(grad_out):
    if not isinstance(grad_out, torch.Tensor) or is_followed(grad_out):
        return False
    known = unwrapped(grad_out)  # all elements of a batch
    if known.layout is not torch.strided or unbatched(known) is not known:
        return False
    return not known.any()


def _refuse_unusual(tensors):
    """Raise `Unknown` if there is a tensor whose elements cannot be moved one by one."""
    for tensor in tensors:
        what = unusual(tensor) if isinstance(tensor, torch.Tensor) else ""
        if what:
            alone = tensor.device.type == "meta"  # no number can be wrong
            raise (LeftAlone if alone else Unknown)(Phrase("it is handed {}", what))


class Trial:
    """One call of a Function, measured near its inputs for one set of grad_outs.

    The grad_outs have a graph where those that are given have one, until `without_graph` is called.

    Args:
        call: a `calls.Call`.
        grad_outs: what backward was given, one for each output, None for one without a gradient. Or
            None where they are not known: then each output is given one that has a graph.
        way: how the Function's gradients are computed. With `tangents_out` the tangents of its
            outputs are checked, and `grad_outs` are the tangents of its inputs.
        dtype: the precision in which the Function computes, as in `check.measure`.
        anyway: make the call again also where what it changes cannot be put back.
        outputs: the numbers of the outputs that are given a grad_out where `grad_outs` is None;
            None for all.

    Raises:
        Unknown: with a reason that can be read after "because".
    """

    def __init__(self, call, grad_outs, way=plainly, dtype=None, anyway=False, outputs=None):
        self.call, self.way, self.dtype, self.lost_in_cast = call, way, dtype, False
        _refuse_unusual([*call.inputs.values(), *(grad_outs or ())])
        held = [arg for arg in call.args if not isinstance(arg, torch.Tensor)]
        self.around = Surroundings(call.function, *held, call.kwargs)
        if self.around.beyond and not anyway:
            raise LeftAlone(self.around.beyond)
        self.grad_outs = self._one_each(outputs) if grad_outs is None else grad_outs
        kinds = [x.dtype for x in call.inputs.values()]
        self.double = all(d in (torch.float64, torch.complex128) for d in kinds)
        precisions = [torch.float64] if self.double else [torch.float64, torch.float32]
        if call.region is not None or dtype is not None:
            # Compiled for this dtype, others would be misread; or cast where they are not float64.
            precisions = precisions[-1:]
        for precision in precisions:
            try:
                line = _where_finite(Line.of(self._inside_the_domain(self._subject(precision))))
                self.expected = measure(line, dtype=dtype)
                break
            except Exception as error:  # of the Function
                raise_if_own(error)
                reason = error
        else:
            raise Unknown(Phrase(AGAIN_RAISES, first_line(reason))) from reason
        self._refuse_another()
        lost = not self.depends() or self.expected.known < SHARE
        if dtype is None and lost and self._keeps_16_bits():
            self.expected = measure(self.line, dtype=torch.bfloat16)  # it moves in large steps
        if not self.expected.g.isfinite().any():
            raise NotFinite(NOT_FINITE)
        if self.expected.known < SHARE:
            raise Unknown(Phrase("its gradients jump where its inputs are moved a little"))

    def _refuse_another(self):
        """Raise `Unknown` where a Function that changes something does not do the same again: then
        a new call says nothing of the one that was met."""
        did = self.call.did_both
        if did is None or not self.around.changed:
            return
        met = _Did(self.call.function)
        drawn = self.call.state.drawn_again(self.call.draws)
        again = self.call.made_again_in(self.around)
        with no_packing(), again, drawn, listening_alone(Here(met)), torch.enable_grad():
            u = [None if g is None else g.detach().clone() for g in self.grad_outs]
            for own, given in zip(u, self.grad_outs, strict=True):
                if own is not None:
                    own.requires_grad_(given.requires_grad)
            plainly(self.call, self.call.inputs, u)
        if met.did is not None and met.did.steps != did.steps:
            raise Unknown(DOES_ANOTHER)

    def _keeps_16_bits(self):
        """Whether forward keeps anything in 16 bits, in which a small step may be lost."""
        with unless_gone(), self.line.subject.around(), torch.no_grad():  # of the Function
            ctx, _ = forward_again(self.call, self.inputs())
            kept = tree_leaves([ctx.saved_tensors, attributes(ctx)])
            return any(isinstance(t, torch.Tensor) and t.dtype in SIXTEEN_BITS for t in kept)
        return False

    def _one_each(self, outputs):
        try:
            with _apart(self.call, self.around):
                outs = self.call.again(self.call.inputs)
        except Exception as error:  # of the Function
            raise_if_own(error)
            raise Unknown(Phrase(AGAIN_RAISES, first_line(error))) from error
        draw, found = torch.Generator().manual_seed(4), []
        for number, y in enumerate(outs):
            known = isinstance(y, torch.Tensor) and is_continuous(y)
            known = known and (outputs is None or number in outputs)
            found.append(signed(y.detach(), draw).requires_grad_() if known else None)
        return found

    def _subject(self, precision):
        """The subject a little beside the point, where no element is 0 and no two are equal."""
        draw = torch.Generator().manual_seed(2)
        with torch.no_grad():
            given = [x.detach() for x in self.call.inputs.values()]
            moved = [x + ASIDE * size(x) * signed(x, draw, symmetric=True) for x in given]
            if precision is torch.float32:
                moved = [y.to(x.dtype) for x, y in zip(given, moved, strict=True)]
            x = tuple(
                copied(_cast(y, precision), like=x) for x, y in zip(given, moved, strict=True)
            )
            u = tuple(_weight(g, precision, draw) for g in self.grad_outs)
        follows = tuple(isinstance(g, torch.Tensor) and g.requires_grad for g in self.grad_outs)
        call, apart = self.call, partial(_apart, self.call, self.around)  # not self, for no cycle
        self._turning = turning = _Turning()
        plain = partial(_outputs, call, turning)
        function = plain if self.way is plainly else partial(_no_outputs, len(u))
        return Subject(function, x, u, follows, self._vjp(self.way), apart)

    def _vjp(self, way):
        return vjp_of(self.call, way, self._turning)

    @property
    def line(self):
        return self.expected.line

    @property
    def places(self):
        """The keys of what `way` gives: places among the arguments, or numbers of outputs."""
        return list(self.call.inputs) if self.way is plainly else range(len(self.expected.sizes))

    def inputs(self, h=0.0):
        """The inputs by place, at a point of the line."""
        return dict(zip(self.call.inputs, self.line.x(h), strict=True))

    def alone(self, ask):
        """What `ask` says of the Function by itself: a callable, and its inputs here."""
        subject = self.line.subject

        def function(*x):
            return tuple(self.line.given(subject.function(list(x))))

        with subject.around():
            return ask(function, *self._where_all_is_finite())

    def _where_all_is_finite(self):
        """The inputs here. If some outputs or gradients are not finite, each element that stands
        still is replaced by one that moves."""
        outs, grads = self.line.both()
        if all(t.isfinite().all() for t in (*outs, *grads)):
            return self.line.x()
        pairs = zip(self.line.x(), self.line.d, strict=True)
        found = [torch.where(d == 0, x[d != 0][:1], x) if d.any() else x for x, d in pairs]
        return [x.detach().requires_grad_() for x in found]

    def _inside_the_domain(self, subject):
        """The subject with the step taken to the other side in elements for which this side has no
        value, as arcosh at 1."""
        outs, grads = Line.of(subject).both()
        if all(t.isfinite().all() for t in (*outs, *grads)):
            return subject
        x = []
        for at, given in zip(subject.x, self.call.inputs.values(), strict=True):
            inside = torch.ones_like(at, dtype=torch.bool)
            for y in (*outs, *grads):
                inside &= y.isfinite() if y.shape == at.shape else True
            x.append(torch.where(inside, at, 2 * given.detach().to(at.dtype) - at))
        return subject.at(x)

    def is_handed_its_gradient(self):
        """Whether backward returns a tensor that apply was given and that forward does not use.

        The gradient was then computed outside the Function, and what it depends on is not seen.
        """
        values, g = self.expected.values, self.expected.g
        if self.way is not plainly or self.expected.by_input.value.any():
            return False
        for place, arg in enumerate(self.call.args):
            if not isinstance(arg, torch.Tensor) or not is_continuous(arg):
                continue
            with self.call.exchanged(place, 2 * arg):
                outs, grads = map(flat, self.line.both())
            changed = grads != g
            doubled = changed.any() and torch.equal(grads[changed], 2 * g[changed])
            if doubled and torch.equal(outs, values):
                return arg.numel() > 1 or len(g) == 1
        return False

    def depends(self):
        """Whether the gradients (or tangents) that it gives change with the inputs."""
        return bool(self.expected.by_input.value.any())

    def jvp_is_wrong(self):
        """Whether the tangents that jvp gives differ from the change of the outputs."""
        line, places = self.line, list(self.call.inputs)
        u = line.subject.u  # the tangents of the inputs
        with line.subject.around():
            numbers = list(tangents_out(self.call, self.inputs(), line.u()))

        def outputs(h):
            pairs = zip(line.subject.x, u, strict=True)
            moved = [x.detach() if t is None else x.detach() + h * t for x, t in pairs]
            with line.subject.around(), torch.no_grad():
                outs = self.call.again(dict(zip(places, moved, strict=True)))
            return flat([outs[number].detach() for number in numbers])

        pairs = zip(line.subject.x, u, strict=True)
        steps = [size(x).mean() / t.abs().mean() for x, t in pairs if t is not None]
        change = slope(outputs, self.expected.dtype, min(steps).item())
        usual = outputs(0.0).abs().nanmean().item()
        found, _ = by_element(change, self.expected.g, self.expected.rtol, usual)
        return found is Outcome.WRONG

    def left_out(self):
        """How many elements of its gradients are not finite, and how many there are in all."""
        return int((~self.expected.g.isfinite()).sum()), len(self.expected.g)

    def tells(self):
        """Whether its gradients change so much that a lost path would show."""
        return self.expected.tells

    def reads_values(self):
        """Whether the Function branches on the values of tensors, or may do so."""
        line = self.line
        with unless_gone(), line.subject.around(), torch.no_grad():  # of the Function
            return reads_values(lambda: line.subject.backward_inside(line.x(), line.u()))
        return True

    def judge(self, way=None):
        """`Checked` of the gradients that `way(call, inputs, grad_outs)` computes, once rounding
        and other excuses have been ruled out; its `wrong` are keys from `places`.

        Raises `Unknown` where nothing can be said, as where these are not the gradients that the
        Function gives.
        """
        way = way or self.way
        found = self.check(way)
        if found.error is not None and self.call.region is not None:
            found = self._where_not_refused(way) or found
        if found.wrong:
            self.expected = self._without_rounding()
            if not self.expected.probes:
                raise Unknown(LITTLE_BUT_ROUNDING)
            found = self.check(way)
            if found.wrong and self._is_right_but_for_phases(way):
                raise Unknown(MAYBE)
        if found.error is not None:
            return replace(found, wrong=())
        wrong = {self.places[i] for i in found.wrong}
        if found.recorded.bad:
            if way is not self.way or not self._repeats():
                raise Unknown(ANOTHER_RESULT)
            wrong = set(self.places)
        elif not wrong and not self.double and self.expected.dtype is not torch.bfloat16:
            wrong = self._lost_in_cast(way)
            self.lost_in_cast = bool(wrong)
        return replace(found, wrong=tuple(wrong))

    def _is_right_but_for_phases(self, way):
        """Whether its second derivative is right if its outputs are taken for eigenvectors of a
        matrix that is not known."""
        if self.way is not plainly or self._turning.turn is not None:
            return False
        with self.line.subject.around():
            outs = self.line.subject.function(self.line.x())
        self._turning.turn = turn_of_units(outs)
        try:
            return self._turning.turn is not None and not self._checked_anew(way).bad
        finally:
            self._turning.turn = None

    def _checked_anew(self, way):
        return check(measure(self.line, dtype=self.dtype), self._vjp(way))

    def _without_rounding(self):
        """What is expected, without elements that are mostly rounding; where none is left, it is
        measured again as for a Function that computes in fewer digits."""
        expected = without_rounding(self.expected)
        for dtype in (torch.float32, torch.bfloat16):
            if expected.probes:
                break
            expected = without_rounding(measure(self.line, dtype=dtype))
        return expected

    def check(self, way=None, place=None):
        """`Checked`: whether the derivative of its gradients is right.

        Args:
            way: how the gradients are computed; None for the Function's own way.
            place: the number of the only input that moves; None for all.
        """
        line, vjp = self.line, self._vjp(way or self.way)
        expected = self.expected if place is None else self._measured(line.by_input_only(place))
        found = check(expected, vjp)
        if found.bad and self._is_raised():
            found = self._in_its_own_precision(expected, vjp, found)
        return found

    def is_right_by(self, place):
        """Whether the derivative of its gradients by this input alone is right."""
        return self.check(place=place).by_input.outcome is Outcome.RIGHT

    def _is_raised(self):
        """Whether it computes in another precision than it was called in."""
        pairs = zip(self.line.subject.x, self.call.inputs.values(), strict=True)
        return any(x.dtype is not given.dtype for x, given in pairs)

    def _in_its_own_precision(self, expected, vjp, found):
        """`found`, or what is found in the dtypes of the call if nothing is wrong in these, since
        `.float()` of float32 makes no copy. What is as wrong there as in float64 stays wrong."""
        inputs = self.call.inputs.values()
        own = replace(expected, line=self._narrowed(expected.line), rtol=max(map(_rtol, inputs)))
        if found.error is not None:
            try:
                return check(measure(own.line), vjp)
            except Exception as error:  # of the Function
                raise_if_own(error)
                return found
        for place in found.wrong:
            wide, narrow = (check(_at(each, place), vjp) for each in (expected, own))
            if narrow.bad or not _is_cured(wide, narrow):
                return found
        narrow = check(own, vjp)
        return found if narrow.bad else narrow

    def _narrowed(self, line):
        """The same line, in the dtypes of the call."""

        def narrowed(parts, like):
            pairs = zip(parts, like, strict=True)
            return tuple(t if t is None else copied(t.to(to.dtype), like=to) for t, to in pairs)

        inputs = list(self.call.inputs.values())
        subject = line.subject
        own = replace(subject, x=narrowed(subject.x, inputs), u=narrowed(subject.u, self.grad_outs))
        return replace(
            line, subject=own, d=narrowed(line.d, inputs), e=narrowed(line.e, self.grad_outs)
        )

    def without_graph(self):
        """Take grad_out for a constant from now on."""
        self.expected = self.expected.with_constants()

    def _measured(self, line):
        return measure(line, dtype=self.dtype)

    def _where_not_refused(self, way):
        """What is found where only those inputs move by which autograd can differentiate the
        gradients; None if there are none.

        A compiled region raises where its gradients are differentiated by the inputs that it keeps,
        or by grad_out. By the others the derivative may be silently wrong.
        """
        line, probes = self.line.with_constants(), self.expected.probes.values()
        asked = line.asking(self._vjp(way))
        refused = [ask(asked.by_input_only(i), probes).error for i in range(len(line.d))]
        if all(refused):
            return None
        pairs = zip(line.d, refused, strict=True)
        d = tuple(torch.zeros_like(d) if error else d for d, error in pairs)
        self.expected = measure(replace(line, d=d))
        return self.check(way)

    def _lost_in_cast(self, way):
        """Places whose gradient has lost a part in the Function's own precision."""
        try:
            cast = Line.of(self._subject(torch.float32)).asking(self._vjp(way))
            top = torch.finfo(torch.float32).max ** 0.5  # beyond this it would be NaN in float32
            # Where digits cancel in float32, G differs although no path is lost.
            kept = self.expected.weights.abs() < top
            kept &= (cast.gradients() - self.expected.g).abs() <= ROUGHLY[0] * self.expected.g.abs()
            probes = {p: v * kept for p, v in self.expected.probes.items()}
            double = ask(self.line.asking(self._vjp(way)), probes.values())
            single = ask(cast, probes.values())
        except Unknown:
            return set()
        except Exception as error:  # of the Function
            raise_if_own(error)
            return set()
        if single.error or double.error:
            return set()
        sizes = [flat([x]).numel() for x in self.line.subject.x]
        return {
            self.places[place]
            for place, a, b in zip(probes, double.by_input, single.by_input, strict=True)
            if _has_lost(a.split(sizes), b.split(sizes))
        }

    def _repeats(self):
        """Whether the Function gives the same gradients a second time, without create_graph."""
        return not apart(self.line.gradients(), self.expected.g, NONE).any()

    def first(self, size=1.0, output=None, place=None, rtol=ROUGH):
        """The `Outcome` of comparing what backward returns with the derivative of forward, where
        both are finite.

        An output whose grad_out is 0 is not asked, unless it is `output`.

        Args:
            size: a factor for the grad_outs.
            output: the number of the only output that is given a grad_out; None for all.
            place: the number of the only input that moves; None for all.
            rtol: a relative error below this is right.
        """
        every = zip(self.line.subject.u, self.grad_outs, strict=True)
        asked = [None if u is None or not (g.any() or output is not None) else u for u, g in every]
        if output is not None:
            asked = [u if i == output else None for i, u in enumerate(asked)]
        if all(u is None for u in asked):
            return Outcome.NOT_ASKED
        if size == 1 and place is None and all(map(is_, asked, self.line.subject.u)):
            return _first(self.expected, rtol)  # as it was measured
        u = tuple(None if u is None else size * u for u in asked)
        line = _where_finite(Line.of(replace(self.line.subject, u=u))).with_constants()
        line = line if place is None else line.by_input_only(place)
        return _first(measure_values(line, self.expected), rtol)


class _Did(Listener):
    """Notes what a Function did, at its first recorded backward."""

    def __init__(self, function):
        self.function, self.did = function, None

    def watches(self, call):
        return True

    def after_backward(self, node, call, grad_outs, grads):
        if call is not None and call.function is self.function and self.did is None:
            self.did = call.did_both
        return grads


def drawn(call):
    """A tangent for each input of a call."""
    draw = torch.Generator().manual_seed(5)
    return [signed(x.detach(), draw) for x in call.inputs.values()]


def of_jvp(call, tangents):
    """Judge the jvp of a Function, and return what was found.

    That is "jvp" where jvp itself is wrong, "wrong" where its derivative is wrong, and where all is
    right "depends" if the tangents depend on the inputs, else None. Where that is not known, it is
    an `Unknown` with the reason, which is returned and not raised.

    Args:
        tangents: one for each input, None for an input that stands still.
    """
    pairs = zip(call.inputs.values(), tangents, strict=True)
    given = [torch.zeros_like(x) if t is None else t for x, t in pairs]
    try:
        truth = Trial(call, given, tangents_out)
        if truth.jvp_is_wrong() and Trial(call, None).first() is Outcome.RIGHT:
            return "jvp"  # of forward, as backward is; beside a surrogate, jvp may be one
        if truth.judge().wrong:
            return "wrong"
        return "depends" if truth.depends() else None
    except Unknown as reason:
        return type(reason)(reason.why)  # the error itself would keep what its frames hold


def has_wrong_jvp(call):
    """Whether jvp or its derivative is wrong, with all inputs moving or with one alone; True also
    where nothing can be said with all of them."""
    tangents = drawn(call)
    if of_jvp(call, tangents) not in ("depends", None):
        return True
    with suppress(Unknown):  # a jvp may need the tangents of all inputs
        for place in range(len(tangents)):
            one = [t if i == place else None for i, t in enumerate(tangents)]
            if Trial(call, one, tangents_out).jvp_is_wrong():
                return True
    return False


def _first(expected, rtol):
    finite = expected.g.nan_to_num(0.0, 0.0, 0.0)
    return first(replace(expected, g=finite), rtol).outcome


class _Turning:
    """Turns the outputs that are eigenvectors, which it finds at its first call."""

    def __init__(self):
        self.is_known, self.turn = False, None

    def __call__(self, x, outs):
        if not self.is_known:
            self.is_known, self.turn = True, turn_of(x, outs)
        return outs if self.turn is None else self.turn(outs)


def _outputs(call, turning, x):
    return turning(x, call.again(dict(zip(call.inputs, x, strict=True))))


def _no_outputs(count, x):
    return [None] * count


def vjp_of(call, way, turning):
    """`way` as the `vjp` of a `check.Subject`, for outputs that may have been turned."""

    def gradients(function, x, u):
        if way is plainly:
            return autograd_vjp(function, x, u)
        if turning.turn is not None:
            u = partial(turning.turn.before, u=u)
        grads = way(call, dict(zip(call.inputs, x, strict=True)), u)
        return list(grads.values()) if way is tangents_out else [grads.get(p) for p in call.inputs]

    return gradients


def _where_finite(line):
    """The same line, on which an element stands still if, in its place, an input, output or
    gradient of the same shape is not finite."""
    outs, grads = line.both()
    known: dict[torch.Size, torch.Tensor] = {}
    for t in (*line.subject.x, *outs, *grads):
        known[t.shape] = known.get(t.shape, True) & t.isfinite()

    def still(steps):
        steps = [(s, None if s is None else known.get(s.shape)) for s in steps]
        return tuple(s if k is None else torch.where(k, s, 0.0) for s, k in steps)

    return replace(line, d=still(line.d), e=still(line.e))


@contextmanager
def _apart(call, around):
    """Inside, nobody listens, no hook packs what is saved, and random draws are those of the call;
    all that is changed inside is put back."""
    drawn = call.state.drawn_again(call.draws)
    allowed = checkpoints_allowed()
    with unheard(), no_packing(), allowed, call.made_again_in(around), drawn as before:
        yield
        if call.draws or threading.active_count() == 1:  # otherwise another thread may have drawn
            around.drew |= not before.are_as_now()


def _weight(grad_out, precision, generator):
    """grad_out without its graph; if all of it is 0, other numbers, on which G depends."""
    if not isinstance(grad_out, torch.Tensor) or not is_continuous(grad_out):
        return None
    u = copied(_cast(grad_out.detach(), precision))
    return u if u.any() else signed(u, generator)


def _cast(t, precision):
    return t.to(torch.promote_types(t.dtype, precision)) if precision is torch.float64 else t


def _rtol(x):
    return RTOL[torch.bfloat16 if x.dtype in SIXTEEN_BITS else torch.float32]


def _at(expected, place):
    """The same, with weights for the gradient at this place alone."""
    weights = expected.probes.get(place, torch.zeros_like(expected.weights))
    return replace(expected, weights=weights)


def _is_cured(wide, narrow):
    """Whether each part that is wrong in `wide` is off by far less in `narrow`."""
    pairs = [(getattr(wide, part), getattr(narrow, part)) for part in PARTS]
    return all(abs(b.expected - b.got) < CURED * abs(a.expected - a.got) for a, b in pairs if a.bad)


def _has_lost(expected, got):
    """Whether a part of what autograd says is gone, as far as that shows in few digits."""
    size = sum(a.norm() for a in expected)
    parts = zip(expected, got, strict=True)
    return any(a.norm() > LOST_SHARE * size and b.norm() < LOST_SHARE * a.norm() for a, b in parts)
