"""The numbers: values against the first derivative, the first derivative against the second.

The truth is finite differences of fn's own first derivative along a direction d. With the weights
on the outputs held fixed, call that difference A. At the given point, with x = x0 + t + t**2/2
before fn and z = y + (y - y0)**2/2 after it, the second derivative along d is

    alone  A        graph after  A + B        graph before  A + C        both  A + B + C

where B is the first derivative weighted with the change of y, and C the first derivative times d.
So one difference serves all four settings.
"""

from dataclasses import dataclass, field, replace

import torch

SETTINGS = {  # name: (a graph before fn, a graph after it)
    "alone": (False, False),
    "graph after": (False, True),
    "graph before": (True, False),
    "both": (True, True),
}
RANK = ("wrong", "not finite", "raises", "unclear", "right")
NO_GRAPH = "does not require grad and does not have a grad_fn"
UNUSED = "appears to not have been used in the graph"
TOLERANCE = {torch.float64: 1e-4, torch.float32: 1e-3}  # relative
SURROGATE = 0.1  # a first derivative further off than this is not an inexact solver's
STEPS = {  # pairs, tried until one agrees: at a kink, or under noise, the two differ
    torch.float64: ((1e-3, 1e-4), (1e-5, 1e-6), (2e-2, 1e-2)),
    torch.float32: ((3e-2, 1e-2), (1e-1, 3e-2), (1e-2, 1e-3)),
}


@dataclass
class Row:
    """One comparison, a line of the report."""

    outcome: str  # one of RANK; "unclear" where fn is not smooth, or under noise
    error: float | None = None  # the largest, absolute
    relative: float = 0.0  # the same in proportion to the terms
    expected: float = 0.0  # at the element shown
    got: float = 0.0
    where: str = ""
    text: str = ""  # first line of the error that autograd raises
    zero: bool = False  # nothing but 0 was expected


@dataclass
class Measured:
    """The rows of one point, and what they were measured with."""

    first: Row
    probe: "Probe"
    second: dict = field(default_factory=dict)
    third: dict = field(default_factory=dict)

    @property
    def rows(self):
        return [*self.second.values(), *self.third.values()]

    @property
    def wrong(self):
        return any(row.outcome in ("wrong", "not finite", "raises") for row in self.rows)

    @property
    def clear(self):
        """False where finite differences cannot be trusted."""
        return "unclear" not in (self.first.outcome, self.second["alone"].outcome)

    @property
    def telling(self):
        """False where a missing second derivative could not show."""
        return self.clear and not self.second["alone"].zero


def measure(target, order, generator):
    """Compare first, second and (for order=3) third derivatives at the point of `target`.

    Twice: with sums, as a reader does by hand, so that the numbers can be recognised; then with
    random weights and a random direction, since a sum can hide an error.
    """
    one = Probe(target, torch.ones_like).measure(order)
    two = Probe(target, lambda like: normal(like, generator)).measure(order)
    for old, new in ((one.second, two.second), (one.third, two.third)):
        new.update({name: _worse(old[name], new[name]) for name in new if name in old})
    return replace(two, first=_worse(one.first, two.first))


def _worse(one, two):
    row = min(one, two, key=lambda row: RANK.index(row.outcome))
    error = max((r.error for r in (one, two) if r.error is not None), default=None)
    relative, zero = max(one.relative, two.relative), one.zero and two.zero
    return replace(row, error=error, relative=relative, zero=zero)


class Probe:
    """fn at its point, with weights w on the outputs and a direction d of the inputs."""

    def __init__(self, target, draw):
        self.target, (self.t, _, self.ys) = target, target.start()
        self.w, self.y0 = [draw(y) for y in self.ys], [y.detach().clone() for y in self.ys]
        self.d = draw(flat(target.point))
        self.tolerance, self.dtype, self.a = 0.0, torch.float64, None

    def loss(self, ys, after=False):
        terms = [w * y for w, y in zip(self.w, ys, strict=True)]
        if after:
            terms += [w * (y - at) ** 2 / 2 for w, y, at in zip(self.w, ys, self.y0, strict=True)]
        return sum(term.sum() for term in terms)

    def reported(self, setting, order=2, shift=None):
        """The derivative that autograd gives, along d: (flat vector, where it is None, error)."""
        bent, after = SETTINGS[setting]
        missing, text = torch.zeros_like(self.d, dtype=torch.bool), ""
        try:
            t, _, ys = self.target.start(bent, shift)
            grads = torch.autograd.grad(
                self.loss(ys, after), t, create_graph=True, allow_unused=True
            )
            for step in range(2, order + 1):
                along = zip(grads, shaped(self.d, t), strict=True)
                scalar = sum(((g * s).sum() for g, s in along if g is not None), torch.zeros(()))
                grads, text = _grad(scalar, t, create_graph=step < order)
            missing = flat([torch.full_like(s, g is None) for g, s in zip(grads, t, strict=True)])
            return flat(_filled(grads, t)), missing > 0, text
        except Exception as error:  # whatever fn or its backward raises is the answer
            return None, missing, first_line(error)

    def values_and_gradient(self, h):
        try:
            t, _, ys = self.target.start(shift=h * self.d)
            return torch.cat([flat(ys), vjp(ys, t, self.w)])
        except Exception:  # outside the domain of fn
            return torch.full((len(self.d) + sum(y.numel() for y in self.y0),), torch.nan)

    def measure(self, order):
        d, scale = self.d, self.target.scale
        try:
            gradient = vjp(self.ys, self.t, self.w, retain_graph=True)
        except Exception as error:
            return self._unjudged(Row("raises", text=first_line(error)))
        values = self.values_and_gradient(1e-3 * scale)
        self.dtype = precision(values, [*self.ys, *self.target.point])
        value, error = slope(self.values_and_gradient, self.dtype, scale)
        dy, self.a = value.split([len(value) - len(d), len(d)])
        error_y, error_a = error.split([len(value) - len(d), len(d)])
        first = self._first(gradient, dy, error_y)
        self.tolerance = min(SURROGATE, max(TOLERANCE[self.dtype], 10 * first.relative))
        if first.outcome != "right":  # finite differences do not go where backward goes
            return self._unjudged(first)
        dy, error_y = (shaped(flat(self.w) * v.clamp(max=1e30), self.ys) for v in (dy, error_y))
        b, c = vjp(self.ys, self.t, dy, retain_graph=True), gradient * d
        error_b = vjp(self.ys, self.t, error_y).abs()
        measured, floor = Measured(first, self), gradient.abs() + self._nothing()
        for name, (before, after) in SETTINGS.items():
            expected, error = self.a + after * b + before * c, error_a + after * error_b
            terms = self.a.abs() + after * b.abs() + before * c.abs()
            row = self.judge(self.reported(name), expected, error, terms, floor)
            measured.second[name] = row
        for name in SETTINGS if order == 3 and not measured.wrong else ():
            value, error = slope(lambda h, name=name: self._second(name, h), self.dtype, scale)
            here = self._second(name, 0.0).abs()
            row = self.judge(self.reported(name, 3), value, error, value.abs() + here, here)
            measured.third[name] = row
        return measured

    def _second(self, name, h):
        got, _, _ = self.reported(name, 2, h * self.d)
        return torch.full_like(self.d, torch.nan) if got is None else got

    def _nothing(self):
        """A derivative this small is as good as 0."""
        return 1e-4 * (flat(self.w) * flat(self.y0)).abs().mean() / self.target.scale + 1e-7

    def _unjudged(self, first):
        measured = Measured(first, self)
        for name in SETTINGS:
            got, missing, text = self.reported(name)
            outcome = "raises" if got is None else "right" if got.isfinite().all() else "not finite"
            measured.second[name] = Row(outcome, text=text, zero=bool(missing.all()))
        return measured

    def _first(self, gradient, dy, error):
        """First derivative against values: along d and, where that differs, part by part."""
        if not (gradient.isfinite().all() and flat(self.y0).isfinite().all()):
            return Row("not finite")
        w, n, point = flat(self.w), len(self.d), self.target.point

        def compare(dy, error, d):
            a, b = w * dy, gradient * d
            sizes = a.square().sum().sqrt(), b.square().sum().sqrt(), a.sum().abs(), b.sum().abs()
            return torch.stack([a.sum(), b.sum(), (w.abs() * error).sum(), max(sizes)])

        rows, index = [compare(dy, error, self.d)], torch.arange(n)
        expected, got, error, terms = rows[0]
        if not (expected - got).abs() <= TOLERANCE[self.dtype] * terms + 5 * error:
            if n > 16:  # input by input, not element by element
                sizes = torch.tensor([x.numel() for x in point])
                index = torch.arange(len(point)).repeat_interleave(sizes)
            parts = [self.d * (index == k) for k in range(int(index[-1]) + 1)]
            rows = [compare(*self._slope_of_values(part), part) for part in parts]
        expected, got, error, terms = torch.stack(rows).T
        reported = got, torch.zeros(len(rows), dtype=torch.bool), ""
        floor = terms + self._nothing() * len(w)
        return self.judge(reported, expected, error, terms, floor, first=True)

    def _slope_of_values(self, d):
        def values(h):
            return flat(self.target.start(shift=h * d)[2])

        return slope(values, self.dtype, self.target.scale)

    def judge(self, reported, expected, error, terms, floor, first=False):
        """Compare one vector with its finite differences.

        `terms` is the size of what is added up, `floor` what is as good as nothing, elementwise.
        No element has to be more exact than its input as a whole.
        """
        got, missing, text = reported
        sizes = [len(got)] if first else [x.numel() for x in self.target.point]
        tolerance = SURROGATE if first else self.tolerance

        def each(vector, reduce):
            return torch.cat([reduce(part).expand(len(part)) for part in vector.split(sizes)])

        solid = terms * (error <= SURROGATE * terms + 1e-2 * floor)
        scale = terms if first else terms + each(solid, lambda part: part.square().mean().sqrt())
        noise = error + each(error, torch.median)
        row = Row("right", text=text)
        row.zero = bool((expected.abs() <= 5 * noise + 1e-9 * floor).all())
        if got is None:
            return replace(row, outcome="raises")
        off, broken = (got - expected).abs(), ~got.isfinite()
        trusted = (error <= SURROGATE * scale + 1e-2 * floor) & ~broken
        wrong = (off > tolerance * scale + 5 * noise) & ~broken
        if trusted.any():
            row.error = off[trusted].max().item()
            if first or self.tolerance > TOLERANCE[self.dtype]:
                row.relative = (off / (scale + 1e-6 * floor))[trusted].max().item()
        if broken.any():
            row.outcome, shown = "not finite", broken
        elif wrong.any():
            shown = wrong & ~missing if (wrong & ~missing).any() else wrong
            shown &= off >= 0.1 * off[shown].max()
            row.outcome = "raises" if missing[shown].any() else "wrong"
        else:
            return row if trusted.any() else replace(row, outcome="unclear")
        i = int(shown.nonzero()[0])
        names = self.target.names
        row.where = names[i] if first and len(self.d) > 16 else self.target.place(i)
        return replace(row, expected=expected[i].item(), got=got[i].item())


def _grad(scalar, t, create_graph):
    """Gradients, None where no graph leads, and the error that a reader would see, or ""."""
    options = {"retain_graph": True, "create_graph": create_graph}
    try:
        return torch.autograd.grad(scalar, t, **options), ""
    except RuntimeError as error:
        text = first_line(error)
        if UNUSED in text:
            return torch.autograd.grad(scalar, t, allow_unused=True, **options), text
        if NO_GRAPH in text:
            return [None] * len(t), text
        raise


def slope(at, dtype, scale):
    """d at(h)/dh at 0 by finite differences, and its error, both elementwise.

    The error is what two steps, and the two sides, disagree by, and what rounding may add.
    """
    zero, best = at(0.0), None
    for pair in STEPS[dtype]:
        value = None
        for h in (step * scale for step in pair):
            up, down = at(h), at(-h)
            coarse, value, sides = value, (up - down) / (2 * h), (up + down - 2 * zero).abs() / h
        rounding = 64 * torch.finfo(dtype).eps * (zero.abs() + zero.abs().mean()) / h
        error = (value - coarse).abs() + sides + rounding
        error = torch.where(error.isfinite(), error, torch.inf)
        size = value.abs() + 1e-6 * (value.abs().nanmean() + zero.abs())
        doubt = (error / (error + size)).nan_to_num(1.0).mean().item()
        if best is None or doubt < best[0]:
            best = doubt, value.nan_to_num(0.0, 0.0, 0.0), error
        if doubt < 1e-2:
            break
    return best[1:]


def precision(values, tensors):
    """The dtype that fn computes in: float32 values in a float64 tensor are float32."""
    if any(t.dtype != torch.float64 for t in tensors):
        return torch.float32
    single = (values.float().double() == values).all() and (values != values.round()).any()
    return torch.float32 if single else torch.float64


def vjp(ys, t, w, **options):
    """First derivative of the outputs weighted with w, flattened; 0 where backward returns None."""
    kept = [i for i, y in enumerate(ys) if y.requires_grad]
    ys, w = [ys[i] for i in kept], [w[i] for i in kept]
    grads = torch.autograd.grad(ys, t, w, allow_unused=True, **options) if ys else [None] * len(t)
    return flat(_filled(grads, t))


def _filled(grads, t):
    return [torch.zeros_like(s) if g is None else g for g, s in zip(grads, t, strict=True)]


def flat(tensors):
    return torch.cat([t.detach().reshape(-1).to(torch.float64) for t in tensors])


def shaped(vector, like):
    parts = vector.split([t.numel() for t in like])
    return [part.view(t.shape).to(t) for part, t in zip(parts, like, strict=True)]


def normal(like, generator):
    return torch.randn(like.shape, generator=generator, dtype=torch.float64).to(like)


def first_line(error):
    line = (str(error).strip().splitlines() or [""])[0]
    return line if type(error) is RuntimeError else f"{type(error).__name__}: {line}"
