"""The numbers: values against the first derivative, the first derivative against the second.

The truth is finite differences of fn's own first derivative along a direction d. With the weights
on the outputs held fixed, call that difference A. At the given point, with x = x0 + t + t**2/2
before fn and z = y + (y - y0)**2/2 after it, the second derivative along d is

    alone  A        graph after  A + B        graph before  A + C        both  A + B + C

where B is the first derivative weighted with the change of y, and C the first derivative times d.
"""

from dataclasses import dataclass
from functools import partial

import torch

SETTINGS = {"alone": (0, 0), "graph after": (0, 1), "graph before": (1, 0), "both": (1, 1)}
TOLERANCE = {torch.float64: 1e-4, torch.float32: 1e-3}  # relative
SURROGATE = 0.1  # a first derivative further off than this is not an inexact solver's
STEPS = {  # pairs, tried until one agrees: at a kink, or under noise, the two differ
    torch.float64: ((1e-3, 1e-4), (1e-5, 1e-6), (2e-2, 1e-2)),
    torch.float32: ((3e-2, 1e-2), (1e-1, 3e-2), (1e-2, 1e-3)),
}


@dataclass
class Row:
    """One comparison, a line of the report."""

    outcome: str  # "right", "wrong", "raises", "not finite", "unclear" (not smooth, or noise)
    error: float | None = None  # the largest, absolute
    relative: float = 0.0  # the same in proportion to the terms
    expected: float = 0.0  # at the element shown
    got: float = 0.0
    where: str = ""
    text: str = ""  # first line of the error that autograd raises
    zero: bool = False  # nothing but 0 was expected


def measure(target, order, generator):
    """A `Probe` that has compared first, second and (for order=3) third derivatives.

    Twice: with sums, whose numbers a reader can recognise, and with random weights in a random
    direction, since a sum can hide an error. The worse of the two is returned.
    """
    draws = torch.ones_like, lambda x: torch.randn(x.shape, generator=generator, dtype=x.dtype)
    large = sum(x.numel() for x in target.point) > 1e6  # then one has to do
    probes = [Probe(target, draw, order) for draw in draws[large:]]
    worst = [p for p in probes if p.first.outcome == "wrong"]
    worst += [p for p in probes if "wrong" in [row.outcome for row in p.rows]]
    return (worst + [p for p in probes if p.wrong] + probes[-1:])[0]


class Probe:
    """fn with weights w on its outputs and a direction d, and what was measured with them."""

    def __init__(self, target, draw, order):
        self.target, ys = target, target.start()[2]
        self.w, self.y0 = [draw(y) for y in ys], [y.detach().clone() for y in ys]
        self.d, self.scale, self.n = draw(flat(target.point)), target.scale, len(flat(ys))
        self.tolerance, self.dtype, self.a = TOLERANCE[torch.float32], torch.float64, None
        self.first, self.second, self.third = None, {}, {}  # Row, and name of setting -> Row
        self.measure(order)

    @property
    def rows(self):
        return [*self.second.values(), *self.third.values()]

    @property
    def wrong(self):
        return any(row.outcome in ("wrong", "not finite", "raises") for row in self.rows)

    @property
    def telling(self):
        """2, or 1 where nothing but 0 was expected, or 0 where nothing can be trusted."""
        alone = self.second["alone"]
        return 0 if "unclear" in (self.first.outcome, alone.outcome) else 2 - alone.zero

    def loss(self, ys, after=False):
        terms = [w * y for w, y in zip(self.w, ys, strict=True)]
        if after:
            terms += [w * (y - at) ** 2 / 2 for w, y, at in zip(self.w, ys, self.y0, strict=True)]
        return sum(term.sum() for term in terms)

    def reported(self, setting, order=2, shift=0.0):
        """The derivative that autograd gives, along d: (flat vector, where it is None, error)."""
        (bent, after), text = SETTINGS[setting], ""
        try:
            t, _, ys = self.target.start(bent, shift)
            loss, options = self.loss(ys, after), {"create_graph": True, "allow_unused": True}
            grads = torch.autograd.grad(loss, t, **options)
            for step in range(2, order + 1):
                along = zip(grads, shaped(self.d, t), strict=True)
                scalar = sum(((g * s).sum() for g, s in along if g is not None), torch.zeros(()))
                options = {"retain_graph": True, "create_graph": step < order}
                try:
                    grads = torch.autograd.grad(scalar, t, **options)
                except RuntimeError as error:  # what a reader would see; is it about all of t?
                    text, grads = first_line(error), [None] * len(t)
                    if "appears to not have been used" in text:
                        grads = torch.autograd.grad(scalar, t, allow_unused=True, **options)
                    elif "does not require grad" not in text:
                        raise
            missing = flat([torch.full_like(s, g is None) for g, s in zip(grads, t, strict=True)])
            return _filled(grads, t), missing > 0, text
        except Exception as error:  # whatever fn or its backward raises is the answer
            return None, None, first_line(error)

    def _along(self, d, h):
        try:
            return torch.cat(vjp(*self.target.start(shift=h * d), self.w))
        except Exception:  # outside the domain of fn
            return torch.full((self.n + len(d),), torch.nan)

    def measure(self, order):
        def second(h):
            got, _, _ = self.reported(name, 2, h * d)
            return torch.full_like(d, torch.nan) if got is None else got

        try:
            d, (_, gradient) = self.d, vjp(*self.target.start(), self.w)
        except Exception as error:
            return self._unjudged(Row("raises", text=first_line(error)))
        beside = self._along(d, 1e-3 * self.scale)  # float32 values in a float64 tensor?
        single = (beside.float().double() == beside).all() and (beside != beside.round()).any()
        if single or any(t.dtype != torch.float64 for t in [*self.y0, *self.target.point]):
            self.dtype = torch.float32
        value, error = slope(partial(self._along, d), self.dtype, self.scale)
        (dy, self.a), (error_y, error_a) = (v.split([self.n, len(d)]) for v in (value, error))
        first = self._judge_first(gradient, dy, error_y)
        self.tolerance = min(SURROGATE, max(TOLERANCE[self.dtype], 10 * first.relative))
        if first.outcome != "right":  # finite differences do not go where backward goes
            return self._unjudged(first)
        changes = (shaped(flat(self.w) * v.clamp(max=1e30), self.y0) for v in (dy, error_y))
        b, error_b = (vjp(*self.target.start(), change)[1] for change in changes)
        self.first, c = first, gradient * d
        for name, (before, after) in SETTINGS.items():
            expected, error = self.a + after * b + before * c, error_a + after * error_b.abs()
            terms, got = self.a.abs() + after * b.abs() + before * c.abs(), self.reported(name)
            self.second[name] = self._judge(got, expected, error, terms, gradient.abs())
        for name in SETTINGS if order == 3 and not self.wrong else ():
            (value, error), here = slope(second, self.dtype, self.scale), second(0.0).abs()
            compared = self.reported(name, 3), value, error, value.abs() + here, here
            self.third[name] = self._judge(*compared)

    def _unjudged(self, first):
        self.first = first
        for name in SETTINGS:
            got, _, text = self.reported(name)
            outcome = "raises" if got is None else "right" if got.isfinite().all() else "not finite"
            self.second[name] = Row(outcome, text=text)

    def _judge_first(self, gradient, dy, error):
        """First derivative against values: along d and, where that differs, part by part."""
        w, n = flat(self.w), len(self.d)
        if not (gradient.isfinite().all() and flat(self.y0).isfinite().all()):
            return Row("not finite")

        def compare(dy, error, d):
            a, b = w * dy, gradient * d
            sizes = a.square().sum().sqrt(), b.square().sum().sqrt(), a.sum().abs(), b.sum().abs()
            return torch.stack([a.sum(), b.sum(), (w * error).square().sum().sqrt(), max(sizes)])

        rows, point = [compare(dy, error, self.d)], self.target.point
        expected, got, error, terms = rows[0]
        split = max(1, 16 // len(point))  # of each input, where elements are too many
        if not (expected - got).abs() <= TOLERANCE[self.dtype] * terms:
            parts = [torch.arange(x.numel()) % split + k * split for k, x in enumerate(point)]
            index, rows = torch.arange(n) if n <= 16 else torch.cat(parts), []
            for part in (self.d * (index == k) for k in range(int(index.max()) + 1)):
                value, error = slope(partial(self._along, part), self.dtype, self.scale)
                rows.append(compare(value[: self.n], error[: self.n], part))
        expected, got, error, terms = torch.stack(rows).T
        return self._judge((got, got != got, ""), expected, error, terms, terms, first=split)

    def _judge(self, reported, expected, error, terms, floor, first=0):
        """Compare a vector with finite differences; no element is asked more than its input is.

        `terms` is the size of what is added up, `floor` what an error must be small against.
        """
        (got, missing, text), target = reported, self.target
        sizes = [len(expected)] if first else [x.numel() for x in target.point]
        floor = 1e-2 * floor + 1e-8
        solid = terms * (error <= SURROGATE * terms + floor) * (not first)
        rms = [part.square().mean().sqrt().expand(len(part)) for part in solid.split(sizes)]
        noise = 5 * (error + error.median() * (not first)) + 1e-4 * floor
        scale, zero = terms + torch.cat(rms), bool((expected.abs() <= noise).all())
        if got is None:
            return Row("raises", text=text, zero=zero)
        off, broken = (got - expected).abs().nan_to_num(0.0), ~got.isfinite()
        trusted = (error <= SURROGATE * scale + floor) & ~broken
        wrong = (off > (SURROGATE if first else self.tolerance) * scale + noise) & ~broken
        row = Row("unclear", text=text if missing.all() else "", zero=zero)
        if trusted.any():
            row.outcome, row.error = "right", off[trusted].max().item()
            row.relative = (off / (scale + floor))[trusted].max().item()
        if broken.any() or wrong.any():
            shown = wrong & ~missing if (wrong & ~missing).any() else wrong
            shown = broken if broken.any() else shown & (off >= 0.1 * off[shown].max())
            i = int(shown.nonzero()[0])
            row.outcome = "not finite" if broken[i] else "raises" if missing[i] else "wrong"
            row.where = target.names[i // first] if first and len(self.d) > 16 else target.place(i)
            row.expected, row.got, row.text = expected[i].item(), got[i].item(), text
        return row


def slope(at, dtype, scale):
    """d at(h)/dh at 0 and its error: what two steps, and the two sides, disagree by."""
    zero, best = at(0.0), None
    for pair in STEPS[dtype]:
        value = None
        for h in (step * scale for step in pair):
            up, down = at(h), at(-h)
            coarse, value, sides = value, (up - down) / (2 * h), (up + down - 2 * zero).abs() / h
        rounding = 16 * torch.finfo(dtype).eps * (zero.abs() + zero.abs().mean()) / h
        error = ((value - coarse).abs() + sides + rounding).nan_to_num(torch.inf)
        size = value.abs() + 1e-6 * (value.abs().nanmean() + zero.abs())
        doubt = (error / (error + size)).nan_to_num(1.0).mean().item()
        if best is None or doubt < best[0]:
            best = doubt, value.nan_to_num(0.0, 0.0, 0.0), error
        if doubt < 1e-2:
            break
    return best[1:]


def vjp(t, _, ys, w):
    """Values and first derivative of the outputs weighted with w, both flat."""
    kept = [i for i, y in enumerate(ys) if y.requires_grad]
    used, w = [ys[i] for i in kept], [w[i].clone() for i in kept]  # backward may write into w
    options = {"retain_graph": True, "allow_unused": True}
    grads = torch.autograd.grad(used, t, w, **options) if used else [None] * len(t)
    return flat(ys), _filled(grads, t)


def _filled(grads, t):
    return flat([torch.zeros_like(s) if g is None else g for g, s in zip(grads, t, strict=True)])


def flat(tensors):
    return torch.cat([t.detach().reshape(-1).to(torch.float64) for t in tensors])


def shaped(vector, like):
    parts = vector.split([t.numel() for t in like])
    return [part.view(t.shape).to(t) for part, t in zip(parts, like, strict=True)]


def first_line(error):
    line = (str(error).strip().splitlines() or [""])[0]
    return line if type(error) is RuntimeError else f"{type(error).__name__}: {line}"
