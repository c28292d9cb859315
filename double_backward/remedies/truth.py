"""What backward depends on: by finite differences, and what autograd says of it.

Let G be what a Function's backward returns, as a function of the Function's inputs x and of
grad_out. Along x + h d, and along grad_out + k e, G changes by some rate D. Autograd's answer, the
VJP of G, has to agree with D: sum(v D) = sum(w d) with w = the VJP of v. Where it does not, a
second derivative through this Function is wrong in the formulas that use this VJP.

Then grad_out is tied to x and autograd is asked once more, so that a backward that follows the
graph of grad_out back to x on its own is found counting that path twice.

Everything happens a little beside the point, away from kinks that zeros and ties sit on, in
float64 where the Function can do that. An element whose two differences disagree (a jump, a kink,
noise) is left out.
"""

import weakref
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.autograd import forward_ad

from .meet import unheard
from .state import State, Surroundings

BESIDE = 1e-3  # how far beside the point, in proportion to the inputs
# Step sizes, with what autograd and differences may then disagree by, in proportion.
STEPS = {
    torch.float64: (
        (1e-5, 1e-4), (1e-8, 1e-3), (3e-4, 1e-3), (2e-2, 3e-2), (1e1, 3e-2), (1e4, 3e-2)),
    torch.float32: ((1e-2, 5e-2), (5e-2, 1e-1), (1e1, 1e-1), (1e4, 1e-1)),
}  # fmt: skip
SHARE = 0.5  # of the elements that must be smooth, or nothing is known
# A step so small that what changes is rounding, and how much of it autograd's answer can bear.
ROUNDING = {torch.float64: (1e-9, 1e-7), torch.float32: (1e-6, 1e-4)}
FIRST = 1e-2  # what first derivative and values may disagree by
LEFT = 1e-3  # less than this share of what there was in float64 is as good as nothing


class Unknown(Exception):
    """Nothing can be said: the Function could not be called again, or not with the same result."""


class AnotherResult(Unknown):
    """The gradients are not those that the Function gives; `far` off, or in the last digits."""

    def __init__(self, far=False):
        self.far = far

    def __str__(self):
        return "it gives another result when it is called again"


@dataclass(frozen=True)
class Verdict:
    """What was found about each gradient that backward returns.

    Attributes:
        wrong: set of the places (among the arguments of forward) whose gradient autograd
            differentiates wrongly.
        raised: the error that autograd raises where the gradients are differentiated, or None.
        recording_matters: True if backward returns other gradients where it is recorded.
        doubtful: True if it may be wrong all the same, too little to be seen here, or where a
            symmetric input does not stay symmetric.
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
    outs = outputs(call, inputs)
    pairs = [
        (out, grad_out.to(out.dtype))
        for out, grad_out in zip(outs, grad_outs, strict=True)
        if isinstance(out, torch.Tensor) and out.requires_grad and grad_out is not None
    ]
    if not pairs:
        return {}
    grads = torch.autograd.grad(
        [out for out, _ in pairs],
        list(inputs.values()),
        [grad_out for _, grad_out in pairs],
        create_graph=torch.is_grad_enabled(),
        allow_unused=True,
    )
    return dict(zip(inputs, grads, strict=True))


def tangents_out(call, inputs, tangents):
    """Tangents by the number of the output, as the Function's jvp gives them."""
    inside = forward_ad._current_level >= 0  # levels cannot be nested
    level = nullcontext() if inside else forward_ad.dual_level()
    with forward_ad._set_fwd_grad_enabled(True), level:
        pairs = zip(inputs.items(), tangents, strict=True)
        duals = {p: forward_ad.make_dual(x, t.to(x.dtype)) for (p, x), t in pairs}
        outs = outputs(call, duals)
        found = {i: forward_ad.unpack_dual(out).tangent for i, out in enumerate(outs)
                 if isinstance(out, torch.Tensor)}  # fmt: skip
    return {i: tangent for i, tangent in found.items() if tangent is not None}


def outputs(call, inputs):
    """Call the Function once more, with other tensors for its inputs; a tuple."""
    with torch.enable_grad():
        out = call.function.apply(*arguments(call, inputs), **call.kwargs)
    return out if isinstance(out, tuple) else (out,)


def arguments(call, inputs):
    """The arguments of forward with other tensors for the inputs, the rest in their precision."""
    raised = any(x.dtype != inputs[place].dtype for place, x in call.inputs.items())
    args = list(call.args)
    for place, arg in enumerate(args):
        if place in inputs:
            args[place] = inputs[place]
        elif not isinstance(arg, torch.Tensor):
            continue
        elif raised and _is_continuous(arg):
            args[place] = arg.to(torch.promote_types(arg.dtype, torch.float64))
        if place in call.written:
            args[place] = args[place].clone()
        call.hands_over(place, args[place])
    return args


class _OnTrial:
    """A call to be made again: with copies of its arguments, which are watched.

    A Function that writes into an argument past the version counter (`.data[...] =`) is found
    here; its place is then in `written`, as one is whose version counter has moved.
    """

    written: set[int]
    state: State

    def __init__(self, call):
        self.__dict__.update(vars(call))
        self.region = call.region
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
    a, b = _real(a), _real(b)
    if a.is_floating_point():
        whole = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[a.element_size()]
        a, b = a.view(whole), b.view(whole)
    return torch.equal(a, b)


class Truth:
    """One call of a Function, measured beside its inputs for one grad_out.

    Args:
        call: a `meet.Call`.
        grad_outs: what backward was given, one for each output; None for what has no gradient.
        way: how the Function itself is asked; `tangents_out`, with tangents for grad_outs.

    Raises:
        Unknown: with a reason that can be read after "because".
    """

    def __init__(self, call, grad_outs, way=plainly):
        self.call, self.grad_outs, self.way = _OnTrial(call), grad_outs, way
        held = [arg for arg in call.args if not isinstance(arg, torch.Tensor)]
        self.around = Surroundings(call.function, *held, call.kwargs)
        if self.around.may_be_written_unseen:
            raise Unknown("it could write into memory that is not its own, and may hold too much")
        kinds = [x.dtype for x in call.inputs.values()]
        self.double = all(d in (torch.float64, torch.complex128) for d in kinds)
        precisions = [torch.float64] if self.double else [torch.float64, torch.float32]
        if call.region is not None:  # compiled for this dtype: others would be misread
            precisions = precisions[-1:]
        for precision in precisions:
            try:
                self.line = _Line(self, precision)
                self.line.measure()
                return
            except Unknown:
                raise
            except Exception as error:  # of the Function
                reason = error
        raise Unknown(f"calling it again raises {error_line(reason)}") from reason

    def depends(self):
        """Whether what it gives changes with the inputs."""
        return any(bool(m.rate.any()) for m in self.line.measured.values())

    def judge(self, way=None):
        """`Verdict` on the gradients that `way(call, inputs, grad_outs)` computes.

        Raises `Unknown` where they are not those that the Function gives.
        """
        way = way or self.way
        try:
            wrong = self.line.wrong(way)
            if wrong:
                self.line.leave_out_rounding()
                wrong = self.line.wrong(way)
            if not wrong and not self.double and self.line.precision is torch.float64:
                wrong = self._lost_in_cast(way)
            return Verdict(frozenset(wrong), doubtful=not wrong and self._is_doubtful(way))
        except AnotherResult as other:
            if way is self.way and other.far and self.line.repeats():
                return Verdict(frozenset(self.line.here), recording_matters=True)
            raise
        except Unknown:
            raise
        except Exception as error:  # of the Function, or autograd's
            return Verdict(raised=error)

    def _lost_in_cast(self, way):
        """Places whose gradient has lost a part in the Function's own precision."""
        cast = _Line(self, torch.float32)
        try:
            grads = cast.recorded(way, tied=False)[0]
            weights = self.line.weights_where_same(grads)
            got = cast.vjps(way, weights, tied=False)
        except Unknown:
            return set()
        expected = self.line.vjps(way, weights, tied=False)
        return {place for place in got if _has_lost(expected[place], got[place])}

    def _is_doubtful(self, way):
        if not self.line.resolves(way):
            return True
        if not self.line.kept_symmetric:
            return False
        with suppress(Unknown):
            line = _Line(self, self.line.precision, symmetric=False)
            line.measure()
            return bool(line.wrong(way))
        return True

    def first_is_right(self):
        """Whether backward gives the derivative of forward, to some digits."""
        return self.line.first_is_right()

    def run(self, way, inputs, grad_outs):
        own = [u if u is None or u.requires_grad else copied(u) for u in grad_outs]
        for index, u in enumerate(own):
            if u is not None:
                self.call.hands_over(-1 - index, u)
        with self.apart():
            return way(self.call, inputs, own)

    @contextmanager
    def apart(self):
        """Nobody listens, nothing stays changed, and random draws are those of the call."""
        try:
            with unheard(), self.around.unchanged(), self.call.state.again():
                yield
        finally:
            self.call.look_for_writes()


class _Line:
    """The line x + h d, and grad_out + k e: in float64, or in the Function's own precision."""

    def __init__(self, truth, precision, symmetric=True):
        self.truth = weakref.proxy(truth)  # no circle: what it holds is large
        self.precision, self.symmetric = precision, symmetric
        self.kept_symmetric = False  # set where an input is a symmetric matrix
        self.generator = torch.Generator().manual_seed(2)
        self.x, self.d, self.u, self.e = {}, {}, [], {}
        self.rounding_known, self.here = False, {}
        with torch.no_grad():
            for place, given in truth.call.inputs.items():
                x = given.detach().to(torch.promote_types(given.dtype, torch.float64))
                size = _size(x)
                d = size * self._signed(x, 0.5)
                x = x + BESIDE * size * self._signed(x, 0.5)
                self.x[place] = _laid_out(x.to(self._dtype(given)), given)
                self.d[place] = _laid_out(d.to(self._dtype(given)), given)
            for index, grad_out in enumerate(truth.grad_outs):
                self._take(index, grad_out)

    def _dtype(self, given):
        if self.precision is torch.float64:
            return torch.promote_types(given.dtype, torch.float64)
        return given.dtype

    def _take(self, index, grad_out):
        if not isinstance(grad_out, torch.Tensor) or not _is_continuous(grad_out):
            self.u.append(None)
            return
        u = grad_out.detach().to(self._dtype(grad_out))
        if not u.any():  # nothing would depend on anything
            u = self._signed(u, 0.5)
        if grad_out.requires_grad:
            self.e[index] = _size(u) * self._signed(u, 0.5)
        self.u.append(u)

    def _signed(self, like, least):
        """Random numbers of either sign, between `least` and 1 (1 and 2 at most for the parts)."""

        def draw():
            real = torch.float64
            size = torch.rand(like.shape, generator=self.generator, dtype=real)
            sign = torch.randint(0, 2, like.shape, generator=self.generator) * 2 - 1
            return (least + (1 - least) * size) * sign

        numbers = torch.complex(draw(), draw()) if like.is_complex() else draw()
        numbers = numbers.to(device=like.device, dtype=like.dtype)
        square = like.ndim > 1 and like.shape[-1] == like.shape[-2] and like.shape[-1] > 1
        if self.symmetric and square and torch.equal(like, like.mT):  # it may have to stay so
            self.kept_symmetric = True
            numbers = (numbers + numbers.mT) / 2
        return numbers

    def gradients(self, h, k=0.0):
        """G at x + h d and grad_out + k e, by place, without a graph."""
        with torch.enable_grad():
            x = {p: (x + h * self.d[p]).requires_grad_() for p, x in self.x.items()}
        u = [u if i not in self.e else u + k * self.e[i] for i, u in enumerate(self.u)]
        with torch.no_grad():  # so that backward is not recorded
            grads = self.truth.run(self.truth.way, x, u)
        return {p: g.detach() for p, g in grads.items() if g is not None}

    def first_is_right(self):
        step = self.step if self.step < 1 else STEPS[self.precision][0][0]
        given = self.truth.grad_outs
        u = [None if u is None or not given[i].any() else u for i, u in enumerate(self.u)]
        up, down = self._values(step), self._values(-step)
        terms = [
            _real(u).double() * (_real(a).double() - _real(b).double()) / (2 * step)
            for u, a, b in zip(u, up, down, strict=True)
            if u is not None and isinstance(a, torch.Tensor) and a.shape == u.shape
        ]
        with torch.no_grad():
            x = {p: x.clone().requires_grad_() for p, x in self.x.items()}
            grads = self.truth.run(plainly, x, u)
        pairs = ((g, self.d[p]) for p, g in grads.items() if g is not None)
        own = [_real(g.detach()).double() * _real(d).double() for g, d in pairs]
        if not terms:
            return True  # grad_out is 0
        off = abs(sum(t.sum() for t in terms) - sum(t.sum() for t in own))
        return bool(off <= FIRST * (_norm(terms) + _norm(own)))

    def _values(self, h):
        inputs = {p: (x + h * self.d[p]).detach() for p, x in self.x.items()}
        with self.truth.apart():
            return outputs(self.truth.call, inputs)

    def measure(self):
        """Rates of change by place, which elements can be trusted, and how precisely."""
        here = self._inside_the_domain()
        far, smallest = self._far(), None
        best: Any = None
        for step, tolerance in STEPS[self.precision]:
            try:
                sides = [self.gradients(h) for h in (step, -step, step / 2, -step / 2)]
            except Exception:  # of the Function: the step may leave its domain
                if best is None:
                    raise
                continue
            if any(set(side) != set(here) for side in sides):
                raise Unknown("it returns other gradients beside its inputs")
            measured = {p: _rate(here[p], [s[p] for s in sides], step, far.get(p)) for p in here}
            if smallest is not None:  # what looks smooth from afar need not be
                measured = {p: _in_line(m, smallest[p]) for p, m in measured.items()}
            quality = _share([m.trusted for m in measured.values()])
            if smallest is None and quality > 0.9:
                smallest = measured
            clear = _share([m.clear for m in measured.values()])
            if best is None or (min(quality, 0.9), clear) > best[0]:
                best = (min(quality, 0.9), clear), measured, tolerance, step
            if quality > 0.9 and clear > 0.9:
                break
        (share, _), measured, self.tolerance, self.step = best
        if here and share < SHARE:
            raise Unknown("its gradients jump where its inputs are moved a little")
        self.here, self.measured = here, measured
        self.weights = {p: self._weights(p, m) for p, m in measured.items()}
        self.measured_u = self._measure_u() if self.e else {}

    def _inside_the_domain(self):
        """G here, after a step to the other side where this one has no values, as arcosh at 1."""
        here, outs = self.gradients(0.0), self._values(0.0)
        outs = [out for out in outs if isinstance(out, torch.Tensor)]
        if all(t.isfinite().all() for t in (*here.values(), *outs)):
            return here
        for place, x in self.x.items():
            inside = torch.ones_like(x, dtype=torch.bool)
            for t in (here.get(place, x), *outs):
                inside &= t.isfinite() if t.shape == x.shape else True
            given = self.truth.call.inputs[place].detach()
            self.x[place] = _laid_out(torch.where(inside, x, 2 * given.to(x.dtype) - x), given)
        return self.gradients(0.0)

    def _far(self):
        """G at another place, to see whether it depends on the inputs at all; {} if it has none."""
        with suppress(Exception):  # of the Function
            return self.gradients(1.0)
        return {}

    def _measure_u(self):
        """Rates of change by place along e alone."""
        k = 1e-2
        up, down = self.gradients(0.0, k), self.gradients(0.0, -k)
        if not set(up) == set(down) == set(self.here):
            raise Unknown("it returns other gradients for another grad_out")
        return {p: _rate(g, [up[p], down[p]] * 2, k, None) for p, g in self.here.items()}

    def leave_out_rounding(self):
        """Give no weight to elements that hold little but rounding errors, as 1 - tanh(20)**2."""
        if self.rounding_known:
            return
        self.rounding_known = True
        tiny, limit = ROUNDING[self.precision]
        jitter = {p: torch.zeros_like(w) for p, w in self.weights.items()}
        stands = {p: torch.ones_like(w, dtype=torch.bool) for p, w in self.weights.items()}
        for h in (tiny, 2 * tiny, 3 * tiny):
            up, down = self.gradients(h), self.gradients(-h)
            for p in self.here:
                a, b, c = (_real(g[p]).double() for g in (up, self.here, down))
                jitter[p] = torch.maximum(jitter[p], (a + c - 2 * b).abs())
                stands[p] &= (a == b) & (c == b)
        far = self._far()
        for p, here in self.here.items():
            solid = jitter[p] <= limit * _real(here).double().abs()
            if p in far:  # it moves in steps of the last digit
                solid &= ~(stands[p] & (_real(far[p]) != _real(here)))
            self.weights[p] = self.weights[p] * solid
            error = self.measured[p].error + 10 * jitter[p] / self.step
            self.measured[p] = replace(self.measured[p], error=error)

    def weights_where_same(self, grads):
        """The weights, where these gradients in another precision are the same."""
        same = {}
        for p, here in self.here.items():
            if p not in grads:
                raise Unknown("its gradient is missing when it is computed once more")
            a, b = _real(grads[p].detach()).double(), _real(here).double()
            same[p] = self.weights[p] * ((a - b).abs() <= 1e-2 * b.abs())
        return same

    def repeats(self):
        """Whether the Function gives the same gradients a second time, not recorded."""
        again = self.gradients(0.0)
        return all(p in again and close(again[p], grad) for p, grad in self.here.items())

    def _weights(self, place, measured):
        """Random weights that let small elements count as much as large ones."""
        here = _real(self.here[place]).double()
        size = torch.maximum(here.abs(), measured.rate.abs())
        solid = measured.trusted & (size > 0) & (measured.error < 1e-2 * size)
        draw = _real(self._signed(self.here[place], 0.5)).double()
        return torch.where(solid, draw / size.clamp(min=1e-300), torch.zeros_like(draw))

    def wrong(self, way):
        """The places whose gradient autograd differentiates wrongly."""
        wrong, inputs = set(), len(self.x)
        for place, terms in self.vjps(way, self.weights, tied=False).items():
            off = self._disagrees(place, terms[:inputs], self.measured[place])
            if self.e:
                off |= self._disagrees(place, terms[inputs:], self.measured_u[place])
            wrong |= {place} if off else set()
        if self.e and not wrong:
            for place, terms in self.vjps(way, self.weights).items():
                both = _sum_of_rates(self.measured[place], self.measured_u[place])
                wrong |= {place} if self._disagrees(place, terms, both) else set()
        return wrong

    def resolves(self, way):
        """False if autograd gives 0 for all where the differences cannot tell it from not 0."""
        vjps = self.vjps(way, self.weights, tied=False)
        return all(
            _norm(terms[: len(self.x)]) > 0 or not (self.measured[p].rate).any()
            for p, terms in vjps.items()
        )

    def vjps(self, way, weights, tied=True):
        """What autograd says, by place: the terms of sum(w d), one tensor for each input.

        Args:
            tied: grad_out moves with the inputs; else it has terms of its own, after theirs.
        """
        grads, wanted, steps = self.recorded(way, tied)
        return {p: self._vjp(grads[p], weights[p], wanted, steps) for p in weights if p in grads}

    def recorded(self, way, tied):
        """Gradients by place with a graph, and what they can be differentiated by, with steps."""
        with torch.enable_grad():
            leaves = {p: x.clone().requires_grad_() for p, x in self.x.items()}
            u, wanted, steps = list(self.u), list(leaves.values()), list(self.d.values())
            for i, e in self.e.items():
                if tied:
                    u[i] = u[i] + (self._h(leaves) * e).to(u[i].dtype)
                else:
                    u[i] = u[i].clone().requires_grad_()
                    wanted.append(u[i])
                    steps.append(e)
            grads = self.truth.run(way, leaves, u)
        grads = {p: g for p, g in grads.items() if g is not None}
        for place, expected in self.here.items():
            if place not in grads:
                raise Unknown("its gradient is missing when it is computed once more")
            if not close(grads[place], expected):
                raise AnotherResult(far=not close(grads[place], expected, 1e-2))
        return grads, wanted, steps

    def _h(self, leaves):
        """h, as a function of the inputs that is h on the line."""
        parts = [_real((leaf - self.x[p]) * self.d[p].conj()) for p, leaf in leaves.items()]
        kinds = [leaf.is_complex() for leaf in leaves.values()]
        real = [part[..., 0] if k else part for part, k in zip(parts, kinds, strict=True)]
        length = sum(_real(d).double().square().sum() for d in self.d.values())
        return sum(part.double().sum() for part in real) / length

    def _vjp(self, grad, weights, wanted, steps):
        found = [None] * len(wanted)
        top = weights.abs().max().clamp(min=1e-300) if weights.numel() else 1.0
        if grad.requires_grad:
            scalar = (_real(grad) * (weights / top).to(_real(grad).dtype)).sum()
            with self.truth.apart():
                found = torch.autograd.grad(scalar, wanted, retain_graph=True, allow_unused=True)
        pairs = zip(found, steps, strict=True)
        return [
            torch.zeros(0, dtype=torch.float64)
            if w is None
            else (_real(w) * _real(d)).double() * top
            for w, d in pairs
        ]

    def _disagrees(self, place, terms, measured):
        """Whether autograd's answer is not that of the differences."""
        weights = self.weights[place]
        expected, got = weights * measured.rate, sum(t.sum() for t in terms)
        if not torch.isfinite(got):
            return False  # nan in the second is torch's own answer, and it is seen
        size = expected.square().sum().sqrt() + _norm(terms)
        noise = (weights * measured.error).square().sum().sqrt()
        floor = 1e-10 * (weights * _real(self.here[place])).norm()
        off = (expected.sum() - got).abs()
        return bool(off > self.tolerance * size + 5 * noise + floor)


@dataclass(frozen=True)
class _Rate:
    """How a gradient changes along the line, element by element."""

    rate: torch.Tensor
    error: torch.Tensor
    trusted: torch.Tensor  # it is smooth there
    clear: torch.Tensor  # and the error is small beside the rate


def _rate(here, sides, step, far):
    """Rate of change of a gradient from its values at h = step, -step, step/2 and -step/2.

    Along e, where it is linear, the first two are handed over twice.
    """
    eps = torch.finfo(_real(here).dtype).eps
    here, up, down, near_up, near_down = (_real(g).double() for g in (here, *sides))
    near = step if sides[0] is sides[2] else step / 2
    wide, narrow = (up - down) / (2 * step), (near_up - near_down) / (2 * near)
    kink = (up + down - 2 * here).abs() / step
    rounding, error = 16 * eps / step, (wide - narrow).abs()
    noise = rounding * torch.maximum(here.abs(), _mean(here))
    trusted = error <= 1e-2 * (wide.abs() + narrow.abs()) + 10 * noise
    trusted &= kink <= 0.2 * (narrow.abs() + _mean(narrow)) + 20 * noise
    trusted &= narrow.isfinite()
    rate = torch.where(trusted, narrow, torch.zeros_like(narrow))
    error = torch.where(trusted, error + rounding * here.abs(), torch.zeros_like(error))
    still = (wide == 0) & (narrow == 0)
    if far is not None:
        still &= _real(far).double() == here
    clear = trusted & ((error <= 1e-2 * rate.abs()) | still)
    return _Rate(rate, error, trusted, clear)


def _in_line(rate, smaller):
    """`rate` without the elements in which it contradicts the one from a smaller step."""
    bound = 3 * smaller.error + 0.1 * smaller.rate.abs()
    same = ((rate.rate - smaller.rate).abs() <= bound) | ~smaller.trusted
    return _Rate(rate.rate * same, rate.error * same, rate.trusted & same, rate.clear & same)


def _sum_of_rates(a, b):
    return _Rate(a.rate + b.rate, a.error + b.error, a.trusted & b.trusted, a.clear & b.clear)


def _share(masks):
    total = sum(mask.numel() for mask in masks)
    return sum(mask.sum().item() for mask in masks) / max(total, 1)


def _has_lost(expected, got):
    """Whether a part of what autograd says is gone: there are no digits to compare here."""
    size = _norm(expected)
    parts = [(_norm([a]), _norm([b])) for a, b in zip(expected, got, strict=True)]
    return any(a > LEFT * size and b < LEFT * a for a, b in parts)


def close(a, b, tolerance=0.0):
    """Whether two gradients are the same, to the digits of the coarser dtype at least."""
    if a.shape != b.shape:
        return False
    eps = max(torch.finfo(t.dtype).eps for t in (a, b))
    a, b = _real(a.detach()).double(), _real(b.detach()).double()
    top = b.abs().nan_to_num(0.0, 0.0, 0.0).max().item() if b.numel() else 0.0
    tolerance = max(tolerance, 1e3 * eps)
    return torch.allclose(a, b, rtol=tolerance, atol=tolerance * top, equal_nan=True)


def error_line(error):
    line = (str(error).strip().splitlines() or [""])[0]
    return line if type(error) is RuntimeError else f"{type(error).__name__}: {line}"


def _norm(terms):
    return sum(t.square().sum() for t in terms) ** 0.5


def _size(x):
    """By how much each element may be moved: in proportion to itself, or to the others."""
    size = x.abs().double()
    if not size.any():
        return torch.ones_like(size).to(x.dtype)
    return size.clamp(min=1e-3 * _mean(size)).to(x.dtype)


def _mean(t):
    return t.abs().nan_to_num(0.0, 0.0, 0.0).mean() if t.numel() else t.sum()


def _is_continuous(t):
    return t.is_floating_point() or t.is_complex()


def _laid_out(values, like):
    """`values` with the strides of `like`, since a Function may care."""
    if like.layout is not torch.strided:
        return values
    return torch.empty_like(like, dtype=values.dtype).copy_(values)


def _real(t):
    return torch.view_as_real(t.resolve_conj()) if t.is_complex() else t
