"""What backward depends on: by finite differences, and what autograd says of it.

Let G be what a Function's backward returns, as a function of the Function's inputs x and of
grad_out. Along a line x + h d, grad_out + h e, G changes by some rate D. Autograd's answer, the VJP
of G, has to agree with D: sum(v D) = sum(w d) with w = the VJP of v. Where it does not, a second
derivative through this Function is wrong, whatever stands around it.

grad_out is itself tied to x while autograd is asked, so that a backward that follows the graph of
grad_out back to x on its own is found counting that path twice.

Everything happens a little beside the point, away from kinks that zeros and ties sit on, in
float64 where the Function can do that. An element whose two differences disagree (a jump, a kink,
noise) is left out.
"""

from contextlib import contextmanager
from dataclasses import dataclass

import torch

from .meet import unheard
from .state import Surroundings

BESIDE = 1e-3  # how far beside the point, in proportion to the inputs
# Step sizes, with what autograd and differences may then disagree by, in proportion.
STEPS = {
    torch.float64: ((1e-5, 1e-4), (1e-8, 1e-3), (3e-4, 1e-3), (2e-2, 3e-2)),
    torch.float32: ((1e-2, 5e-2), (5e-2, 1e-1)),
}
CAST = 0.2  # in float32 itself, autograd may disagree with itself in float64 by so much
SHARE = 0.5  # of the elements that must be smooth, or nothing is known


class Unknown(Exception):
    """Nothing can be said: the Function could not be called again, or not with the same result."""


class AnotherResult(Unknown):
    """The gradients are not those that the Function gives."""

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
    """

    wrong: frozenset = frozenset()
    raised: Exception | None = None
    recording_matters: bool = False

    @property
    def right(self):
        return not self.wrong and self.raised is None


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
    return args


class Truth:
    """One call of a Function, measured beside its inputs for one grad_out.

    Args:
        call: a `meet.Call`.
        grad_outs: what backward was given, one for each output; None for what has no gradient.

    Raises:
        Unknown: with a reason that can be read after "because".
    """

    def __init__(self, call, grad_outs):
        self.call, self.grad_outs = call, grad_outs
        self.around = Surroundings(call.function, *call.args, call.kwargs)
        kinds = [x.dtype for x in call.inputs.values()]
        self.double = all(d in (torch.float64, torch.complex128) for d in kinds)
        self.low = any(d in (torch.float16, torch.bfloat16) for d in kinds)
        self.low = self.low or any(on for on, _ in call.state.autocast.values())
        for precision in [torch.float64] if self.double else [torch.float64, torch.float32]:
            try:
                self.line = _Line(self, precision)
                self.line.measure()
                return
            except Unknown:
                raise
            except Exception as error:  # of the Function
                reason = error
        raise Unknown(f"calling it again raises {error_line(reason)}") from reason

    def judge(self, way=plainly):
        """`Verdict` on the gradients that `way(call, inputs, grad_outs)` computes.

        Raises `Unknown` where they are not those that the Function gives.
        """
        try:
            vjps = self.line.vjps(way)
        except AnotherResult:
            if way is plainly and self.line.repeats():
                return Verdict(frozenset(self.line.here), recording_matters=True)
            raise
        except Unknown:
            raise
        except Exception as error:
            return Verdict(raised=error)
        wrong = {place for place in vjps if self.line.disagrees(place, vjps[place])}
        if not wrong and not self.double and self.line.precision is torch.float64:
            try:
                if self.line.e:
                    vjps = self.line.vjps(way, tied=False)
                cast = _Line(self, torch.float32).vjps(way, tied=False, measured=self.line)
            except Unknown:
                return Verdict()
            except Exception as error:
                return Verdict(raised=error)
            wrong = {p for p in vjps if _lost_in_cast(vjps[p], cast[p], self.low)}
        return Verdict(frozenset(wrong))

    def run(self, way, inputs, grad_outs):
        with self.apart():
            return way(self.call, inputs, grad_outs)

    @contextmanager
    def apart(self):
        """Nobody listens, nothing stays changed, and random draws are those of the call."""
        with unheard(), self.around.unchanged(), self.call.state.again():
            yield


class _Line:
    """The line x + h d, grad_out + h e: in float64, or in the Function's own precision."""

    def __init__(self, truth, precision):
        self.truth, self.precision = truth, precision
        self.generator = torch.Generator().manual_seed(2)
        self.x, self.d, self.u, self.e = {}, {}, [], {}
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
        if square and torch.equal(like, like.mT):  # it may have to stay symmetric
            numbers = (numbers + numbers.mT) / 2
        return numbers

    def gradients(self, h):
        """G at h, by place, without a graph."""
        with torch.enable_grad():
            x = {p: (x + h * self.d[p]).requires_grad_() for p, x in self.x.items()}
        u = [
            None if u is None else u + h * self.e[i] if i in self.e else u
            for i, u in enumerate(self.u)
        ]
        with torch.no_grad():  # so that backward is not recorded
            grads = self.truth.run(plainly, x, u)
        return {p: g.detach() for p, g in grads.items() if g is not None}

    def measure(self):
        """Rates of change by place, which elements can be trusted, and how precisely."""
        here = self.gradients(0.0)
        best = None
        for step, tolerance in STEPS[self.precision]:
            sides = [self.gradients(h) for h in (step, -step, step / 2, -step / 2)]
            if any(set(side) != set(here) for side in sides):
                raise Unknown("it returns other gradients beside its inputs")
            measured = {p: _rate(here[p], [s[p] for s in sides], step) for p in here}
            total = sum(m.trusted.numel() for m in measured.values())
            share = sum(m.trusted.sum().item() for m in measured.values()) / max(total, 1)
            if best is None or share > best[0] + 0.05:
                best = share, measured, tolerance
            if share > 0.9:
                break
        self.share, measured, self.tolerance = best
        if here and self.share < SHARE:
            raise Unknown("its gradients jump where its inputs are moved a little")
        self.here = here
        self.rates = {p: m.rate for p, m in measured.items()}
        self.trusted = {p: m.trusted for p, m in measured.items()}
        self.error = {p: m.error for p, m in measured.items()}
        self.weights = {p: self._weights(p, m) for p, m in measured.items()}

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

    def vjps(self, way, tied=True, measured=None):
        """What autograd says, by place: the terms of sum(w d), one tensor for each input.

        Args:
            tied: grad_out moves with the inputs; else it has terms of its own, after theirs.
            measured: the line whose weights are used, if it is another one.
        """
        measured = measured or self
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
            answers = {}
            for place, expected in measured.here.items():
                grad = grads.get(place)
                if grad is None:
                    raise Unknown("its gradient is missing when it is computed once more")
                if measured is self and not close(grad, expected):
                    raise AnotherResult
                answers[place] = self._vjp(grad, measured.weights[place], wanted, steps)
        return answers

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

    def disagrees(self, place, terms):
        """Whether autograd's answer is not that of the differences."""
        expected = self.weights[place] * self.rates[place]
        got = sum(t.sum() for t in terms)
        if not torch.isfinite(got):
            return False  # nan in the second is torch's own answer, and it is seen
        size = expected.square().sum().sqrt() + _norm(terms)
        noise = (self.weights[place] * self.error[place]).square().sum().sqrt()
        floor = 1e-6 * (self.weights[place] * _real(self.here[place])).norm()
        off = (expected.sum() - got).abs()
        return bool(off > self.tolerance * size + 5 * noise + floor)


@dataclass(frozen=True)
class _Rate:
    rate: torch.Tensor
    error: torch.Tensor
    trusted: torch.Tensor


def _rate(here, sides, step):
    """Rate of change of a gradient from its values at h = step, -step, step/2 and -step/2."""
    eps = torch.finfo(_real(here).dtype).eps
    here, up, down, near_up, near_down = (_real(g).double() for g in (here, *sides))
    wide, narrow = (up - down) / (2 * step), (near_up - near_down) / step
    kink = (up + down - 2 * here).abs() / step
    rounding, error = 16 * eps / step, (wide - narrow).abs()
    noise = rounding * torch.maximum(here.abs(), _mean(here))
    trusted = error <= 1e-2 * (wide.abs() + narrow.abs()) + 10 * noise
    trusted &= kink <= 0.2 * (narrow.abs() + _mean(narrow)) + 20 * noise
    trusted &= narrow.isfinite()
    rate = torch.where(trusted, narrow, torch.zeros_like(narrow))
    return _Rate(rate, torch.where(trusted, error + rounding * here.abs(), rate), trusted)


def _lost_in_cast(double, cast, low):
    """Whether autograd in the Function's own precision lost what it had in float64."""
    size = _norm(double)
    if low:  # no digits to compare: what counts is whether anything is left of each part
        parts = [(_norm([a]), _norm([b])) for a, b in zip(double, cast, strict=True)]
        return any(a > 1e-3 * size and b < 1e-3 * a for a, b in parts)
    differences = [
        b if a.numel() == 0 else a if b.numel() == 0 else a - b
        for a, b in zip(double, cast, strict=True)
    ]
    return bool(_norm(differences) > CAST * size)


def close(a, b):
    """Whether two gradients are the same, to the digits of the coarser dtype."""
    if a.shape != b.shape:
        return False
    eps = max(torch.finfo(t.dtype).eps for t in (a, b))
    a, b = _real(a.detach()).double(), _real(b.detach()).double()
    top = b.abs().nan_to_num(0.0, 0.0, 0.0).max().item() if b.numel() else 0.0
    return torch.allclose(a, b, rtol=1e3 * eps, atol=1e3 * eps * top, equal_nan=True)


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
    return size.clamp(min=0.1 * _mean(size)).to(x.dtype)


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
