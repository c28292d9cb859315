"""One call of a Function, checked beside its inputs: is its second derivative right?

Everything happens a little beside the point, away from kinks that zeros and ties sit on, in float64
where the Function can do that. `check` does the rest.
"""

from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch.autograd import forward_ad

from double_backward._torch import forward_mode, in_forward_mode
from double_backward.check import (
    LOST,
    ROUGH,
    SHARE,
    STRAIGHT,
    Line,
    Outcome,
    Subject,
    ask,
    autograd_vjp,
    check,
    first,
    is_symmetric,
    measure,
    signed,
    size,
    without_rounding,
)
from double_backward.differences import NONE, apart, flat, real
from double_backward.lines import first_line
from double_backward.meet import Call, is_continuous, unheard
from double_backward.state import Draws, Surroundings

BESIDE = 1e-3  # how far beside the point, in proportion to the inputs
FAR = 0.1  # a step along the line


class Unknown(Exception):
    """Nothing can be said: the Function could not be called again, or not with the same result."""


class LeftAlone(Unknown):
    """To call the Function again could change something of the user's that is not put back."""


class AnotherResult(Unknown):
    """The gradients are not those that the Function gives; `far` off, or in the last digits."""

    def __init__(self, far=False):
        self.far = far

    def __str__(self):
        return "it gives another result when it is called again"


@dataclass(frozen=True)
class Judgement:
    """What was found about each gradient that backward returns.

    Attributes:
        wrong: set of the places (among the arguments of forward) whose gradient autograd
            differentiates wrongly.
        raised: the error that autograd raises where the gradients are differentiated, or None.
        recording_matters: True if backward returns other gradients where it is recorded.
        doubtful: True if it may be wrong all the same, too little to be seen here.
    """

    wrong: frozenset = frozenset()
    raised: Exception | None = None
    recording_matters: bool = False
    doubtful: bool = False

    @property
    def right(self):
        """Nothing speaks against it."""
        return not self.wrong and self.raised is None

    @property
    def earned(self):
        """Right, and no doubt is left."""
        return self.right and not self.doubtful


def plainly(call, inputs, grad_outs):
    """Gradients by place, as the Function gives them, with a graph where grad mode is on."""
    grads = autograd_vjp(lambda _: call.again(inputs), list(inputs.values()), grad_outs)
    return dict(zip(inputs, grads, strict=True))


def tangents_out(call, inputs, tangents):
    """Tangents by the number of the output, as the Function's jvp gives them."""
    inside = in_forward_mode()  # levels cannot be nested
    level = nullcontext() if inside else forward_ad.dual_level()
    with forward_mode(), level:
        pairs = zip(inputs.items(), tangents, strict=True)
        duals = {p: forward_ad.make_dual(x, t.to(x.dtype)) for (p, x), t in pairs}
        outs = call.again(duals)
        found = {i: forward_ad.unpack_dual(out).tangent for i, out in enumerate(outs)
                 if isinstance(out, torch.Tensor)}  # fmt: skip
    return {i: tangent for i, tangent in found.items() if tangent is not None}


class _OnTrial(Call):
    """A call to be made again: with copies of its arguments, which are watched.

    A Function that writes into an argument past the version counter (`.data[...] =`) is found
    here; its place is then in `written`, as one is whose version counter has moved.
    """

    args: list = []  # no property here
    inputs: dict = {}
    written: set[int]

    def __init__(self, call):
        super().__init__(call.function, call.given, call.kwargs, call.state)
        self.region, self.draws, self.drew = call.region, call.draws, False
        self.written, self.inputs = set(call.written), call.inputs
        self.args = [copied(a) if isinstance(a, torch.Tensor) else a for a in call.args]
        self._handed = []

    def hands_over(self, place, tensor):
        self._handed.append((place, tensor, copied(tensor.detach())))

    def look_for_writes(self):
        for place, tensor, before in self._handed:
            if not same_bytes(tensor.detach(), before):
                self.written.add(place)
                if place >= 0 and isinstance(self.args[place], torch.Tensor):
                    self.args[place] = before.to(self.args[place].dtype)
        self._handed = []


def copied(tensor):
    """A copy in memory of its own that has the same strides, also where they are 0."""
    if tensor.layout is not torch.strided:
        return tensor.clone()
    narrow = tensor
    for dim, stride in enumerate(tensor.stride()):
        if stride == 0 and tensor.shape[dim] > 1:
            narrow = narrow.narrow(dim, 0, 1)
    return narrow.clone().expand(tensor.shape)


def same_bytes(a, b):
    if a.layout is not torch.strided or b.layout is not torch.strided:
        return True
    a, b = real(a), real(b)
    if a.is_floating_point():
        whole = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[a.element_size()]
        a, b = a.view(whole), b.view(whole)
    return torch.equal(a, b)


class Truth:
    """One call of a Function, measured beside its inputs for one grad_out.

    Args:
        call: a `meet.Call`.
        grad_outs: what backward was given, one for each output; None for what has no gradient. None
            where it is not known: then each output is given one that has a graph.
        way: how the Function itself is asked; `tangents_out`, with tangents for grad_outs.
        dtype: the precision in which the Function computes, as in `check.measure`.
        anyway: make the call again also where what it changes cannot be put back.

    Raises:
        Unknown: with a reason that can be read after "because".
    """

    def __init__(self, call, grad_outs, way=plainly, dtype=None, anyway=False):
        self.call, self.way, self.dtype = _OnTrial(call), way, dtype
        self.symmetric = False  # what was found holds only as long as symmetric inputs stay so
        held = [arg for arg in call.args if not isinstance(arg, torch.Tensor)]
        self.around = Surroundings(call.function, *held, call.kwargs)
        if self.around.beyond and not anyway:
            raise LeftAlone(self.around.beyond)
        self.grad_outs = self._one_each() if grad_outs is None else grad_outs
        kinds = [x.dtype for x in call.inputs.values()]
        self.double = all(d in (torch.float64, torch.complex128) for d in kinds)
        precisions = [torch.float64] if self.double else [torch.float64, torch.float32]
        if call.region is not None or dtype is not None:
            # Compiled for this dtype, others would be misread; or cast where they are not float64.
            precisions = precisions[-1:]
        for precision in precisions:
            try:
                self.line = Line.of(self._inside_the_domain(self._subject(precision)))
                self.expected = measure(self.line, dtype=dtype)
                break
            except Exception as error:  # of the Function
                reason = error
        else:
            raise Unknown(f"calling it again raises {first_line(reason)}") from reason
        if self.expected.known < SHARE:
            raise Unknown("its gradients jump where its inputs are moved a little")

    def _one_each(self):
        try:
            with _apart(self.call, self.around):
                outs = self.call.again(self.call.inputs)
        except Exception as error:  # of the Function
            raise Unknown(f"calling it again raises {first_line(error)}") from error
        draw, found = torch.Generator().manual_seed(4), []
        for y in outs:
            known = isinstance(y, torch.Tensor) and is_continuous(y)
            found.append(signed(y.detach(), draw).requires_grad_() if known else None)
        return found

    def _subject(self, precision):
        """Beside the point, so that a zero is none and equal elements are not equal."""
        draw = torch.Generator().manual_seed(2)
        with torch.no_grad():
            x = tuple(
                _laid_out(x + BESIDE * size(x) * signed(x, draw, symmetric=True), x, precision)
                for x in (x.detach() for x in self.call.inputs.values())
            )
            u = tuple(_weight(g, precision, draw) for g in self.grad_outs)
        follows = tuple(isinstance(g, torch.Tensor) and g.requires_grad for g in self.grad_outs)
        call, apart = self.call, partial(_apart, self.call, self.around)  # no circle
        function = partial(_outputs, call) if self.way is plainly else partial(_no_outputs, len(u))
        return Subject(function, x, u, follows, vjp_of(call, self.way), apart)

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
            return ask(function, *self.line.x())

    def _inside_the_domain(self, subject):
        """After a step to the other side where this one has no values, as arcosh at 1."""
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
        """Whether backward returns a tensor that apply was handed, and that is not forward's slope.

        The gradient was then computed outside: what it depends on is not seen.
        """
        g = self.expected.g
        if self.way is not plainly or self.expected.by_input.value.any() or self._is_straight():
            return False
        for place, arg in enumerate(self.call.args):
            if not isinstance(arg, torch.Tensor) or not is_continuous(arg):
                continue
            self.call.args[place] = 2 * arg
            try:
                doubled = self.line.gradients()
            finally:
                self.call.args[place] = arg
            changed = doubled != g
            if changed.any() and torch.equal(doubled[changed], 2 * g[changed]):
                return arg.numel() > 1 or len(g) == 1
        return False

    def _is_straight(self):
        """Whether forward changes along the line, and evenly."""
        down, here, up = (flat(self.line.both(h)[0]) for h in (-FAR, 0.0, FAR))
        return (up + down - 2 * here).norm() < STRAIGHT * (up - down).norm()

    def depends(self):
        """Whether what it gives changes with the inputs."""
        return bool(self.expected.by_input.value.any())

    def judge(self, way=None):
        """`Judgement` on the gradients that `way(call, inputs, grad_outs)` computes.

        Raises `Unknown` where they are not those that the Function gives.
        """
        way = way or self.way
        found = self._second(self.expected, way)
        if found.error is not None and self.call.region is not None:
            found = self._where_not_refused(way) or found
        if found.wrong:
            self.expected = without_rounding(self.expected)
            found = self._second(self.expected, way)
        if found.error is not None:
            return Judgement(raised=found.error)
        if found.recorded.bad:
            if way is self.way and self._repeats():
                return Judgement(frozenset(self.places), recording_matters=True)
            raise AnotherResult(far=True)
        wrong = {self.places[i] for i in found.wrong}
        if not wrong and not self.double and self.expected.dtype is torch.float64:
            wrong = self._lost_in_cast(way)
        self.symmetric |= not wrong and self._needs_symmetry(way)
        return Judgement(frozenset(wrong), doubtful=not wrong and found.unresolved)

    def check(self, way=None, line=None):
        """How the derivative of its gradients, computed in this way, agrees with differences."""
        expected = self.expected if line is None else measure(line, dtype=self.dtype)
        return self._second(expected, way or self.way)

    def check_constant(self):
        """The same, where grad_out has no graph."""
        return self._second(self.expected.with_constants(), self.way)

    def _second(self, expected, way):
        return check(expected, vjp_of(self.call, way))

    def _where_not_refused(self, way):
        """What is found by those inputs and grad_outs alone for which autograd does not refuse.

        A compiled region refuses on the way to the inputs that it keeps, and to grad_out. On the
        way to the others it may be silent. None if it refuses throughout.
        """
        line = self.line
        try:
            with torch.enable_grad():
                x, u = line.x(), line.grad_outs(lambda u, _: copied(u).requires_grad_())
                grads = line.asking(vjp_of(self.call, way)).subject.backward(x, u)
        except Exception:  # of torch: it refuses before that
            return None
        total = sum(real(g).sum() for g in grads if g.requires_grad)
        given = zip(x, line.d, strict=True), zip(u, line.e, strict=True)
        with line.subject.around():
            d, e = ([None if _refuses(total, t) else s for t, s in pairs] for pairs in given)
        if all(step is None for step in (*d, *e)):
            return None
        still = [torch.zeros_like(t) if s is None else s for t, s in zip(x, d, strict=True)]
        line = replace(line, d=tuple(still), e=tuple(e))
        self.expected = measure(line)
        return self._second(self.expected, way)

    def _lost_in_cast(self, way):
        """Places whose gradient has lost a part in the Function's own precision."""
        try:
            cast = Line.of(self._subject(torch.float32)).asking(vjp_of(self.call, way))
            top = torch.finfo(torch.float32).max ** 0.5  # beyond, it would be NaN there, and lost
            probes = {p: v * (v.abs() < top) for p, v in self.expected.probes.items()}
            double = ask(self.line.asking(vjp_of(self.call, way)), probes.values())
            single = ask(cast, probes.values())
        except Unknown:
            return set()
        if single.error or double.error:
            return set()
        sizes = [flat([x]).numel() for x in self.line.subject.x]
        return {
            self.places[place]
            for place, a, b in zip(probes, double.by_input, single.by_input, strict=True)
            if _has_lost(a.split(sizes), b.split(sizes))
        }

    def _needs_symmetry(self, way):
        if not any(map(is_symmetric, self.line.subject.x)):
            return False
        with suppress(Exception):  # of the Function
            expected = measure(Line.of(self.line.subject, symmetric=False))
            return bool(self._second(expected, way).wrong)
        return True

    def _repeats(self):
        """Whether the Function gives the same gradients a second time, not recorded."""
        return not apart(self.line.gradients(), self.expected.g, NONE).any()

    def first_is_right(self):
        """Whether backward gives the derivative of forward, to some digits, as far as it is asked.

        An output whose grad_out is 0 is not: what backward returns for it may be ignored.
        """
        return self.first() is not Outcome.WRONG

    def first(self, size=1.0, output=None, place=None):
        """How the first derivative compares with that of forward.

        Args:
            size: of the grad_outs, as a multiple.
            output: the number of the only output that is given one.
            place: the number of the only input that moves.
        """
        every = zip(self.line.subject.u, self.grad_outs, strict=True)
        asked = [
            None if u is None or not (g.any() or output is not None) else size * u for u, g in every
        ]
        if output is not None:
            asked = [u if i == output else None for i, u in enumerate(asked)]
        if all(u is None for u in asked):
            return Outcome.NOT_ASKED
        line = Line.of(replace(self.line.subject, u=tuple(asked)))
        line = line if place is None else line.by_input_only(place)
        return first(measure(line, dtype=self.dtype), ROUGH).outcome


def _refuses(total, x):
    """Whether autograd raises where a number is differentiated by x."""
    try:
        torch.autograd.grad(total, x, retain_graph=True, allow_unused=True)
    except Exception:  # of torch
        return True
    return False


def _outputs(call, x):
    return call.again(dict(zip(call.inputs, x, strict=True)))


def _no_outputs(count, x):
    return [None] * count


def vjp_of(call, way):
    """A way to have the gradients, as `check` asks for them: with grad_outs that are watched."""

    def watched(u):
        own = [g if g is None or g.requires_grad else copied(g) for g in u]
        for index, g in enumerate(own):
            if g is not None:
                call.hands_over(-1 - index, g)
        return own

    def gradients(function, x, u):
        own = (lambda outs: watched(u(outs))) if callable(u) else watched(u)
        if way is plainly:
            return autograd_vjp(function, x, own)
        grads = way(call, dict(zip(call.inputs, x, strict=True)), own)
        return list(grads.values()) if way is tangents_out else [grads.get(p) for p in call.inputs]

    return gradients


@contextmanager
def _apart(call, around):
    """Nobody listens, nothing stays changed, and random draws are those of the call."""
    try:
        with unheard(), around.unchanged(), call.state.again(call.draws):
            before = Draws.now()
            yield
            call.drew |= not before.are_as_now()
    finally:
        call.look_for_writes()


def _weight(grad_out, precision, generator):
    """Numbers for grad_out; of one that is 0, on which nothing would depend, others."""
    if not isinstance(grad_out, torch.Tensor) or not is_continuous(grad_out):
        return None
    u = copied(_cast(grad_out.detach(), precision))
    return u if u.any() else signed(u, generator)


def _laid_out(x, like, precision):
    """With the strides of `like`, since a Function may care."""
    x = _cast(x.to(like.dtype) if precision is torch.float32 else x, precision)
    return x if like.layout is not torch.strided else torch.empty_like(like, dtype=x.dtype).copy_(x)


def _cast(t, precision):
    return t.to(torch.promote_types(t.dtype, precision)) if precision is torch.float64 else t


def _has_lost(expected, got):
    """Whether a part of what autograd says is gone: there are no digits to compare here."""
    size = sum(a.norm() for a in expected)
    parts = zip(expected, got, strict=True)
    return any(a.norm() > LOST * size and b.norm() < LOST * a.norm() for a, b in parts)
