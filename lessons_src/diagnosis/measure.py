"""The numbers: values against the first derivative, the first derivative against the second.

The truth is finite differences of fn's own first derivative, along one direction at a time. Let
A be that difference with the weights on the outputs held fixed. At the given point, with
x = x0 + t + t**2/2 before fn and z = y + (y - y0)**2/2 after it, the second derivative is

    alone  A        graph after  A + B        graph before  A + C        both  A + B + C

where B is the first derivative weighted with the change of y, and C the first derivative itself.
So the four settings are told apart at the cost of one.
"""

from dataclasses import dataclass, replace

import torch

SETTINGS = {  # name: (a graph before fn, a graph after it)
    "alone": (False, False),
    "graph after": (False, True),
    "graph before": (True, False),
    "both": (True, True),
}
NOT_RECORDED = "does not require grad and does not have a grad_fn"
NOT_USED = "appears to not have been used in the graph"
SHARP = 1e-4  # relative error that a correct second derivative stays below
SURROGATE = 0.1  # first derivatives further off than this are not an inexact solver's
STEPS = {  # pairs of steps, tried until two agree; a kink or noise shows as disagreement
    torch.float64: ((1e-3, 1e-4), (1e-5, 1e-6), (2e-2, 1e-2)),
    torch.float32: ((3e-2, 1e-2), (1e-1, 3e-2), (1e-2, 1e-3)),
}


@dataclass
class Row:
    """One comparison: a line of the report.

    Attributes:
        outcome: "right", "wrong", "raises", "not finite" or "unclear".
        error: largest absolute error, None if there is no number to compare.
        relative: that error relative to the size of the terms.
        expected, got: at the element shown; index: its place in all inputs, flattened (or None).
        text: the error raised, first line.
        zero: the expected value is 0 everywhere.
    """

    outcome: str
    error: float | None = None
    relative: float = 0.0
    expected: float = 0.0
    got: float = 0.0
    index: int | None = None
    text: str = ""
    zero: bool = False


@dataclass
class Probe:
    """Weights w on the outputs, a direction d of the inputs, and what fn gives along it."""

    w: list
    d: torch.Tensor
    v: torch.Tensor | None = None  # what the first derivative is multiplied with; d if None
    c: list | None = None  # weights of the scalar that follows fn; elementwise if None
    y0: list | None = None

    def loss(self, ys, after):
        total = sum((w * y).sum() for w, y in zip(self.w, ys, strict=True))
        if after and self.c is None:
            pairs = zip(self.w, ys, self.y0, strict=True)
            total = total + sum((w * (y - y0) ** 2).sum() for w, y, y0 in pairs) / 2
        elif after:
            triples = zip(self.c, ys, self.y0, strict=True)
            total = total + sum((c * (y - y0)).sum() for c, y, y0 in triples) ** 2 / 2
        return total


@dataclass
class Measured:
    """Rows of one point: the first derivative, and the second (third) by setting."""

    first: Row
    second: dict
    third: dict
    point: list
    probe: Probe
    a: torch.Tensor  # the second derivative alone, along probe.d
    tolerance: float
    dtype: torch.dtype

    @property
    def rows(self):
        """The comparisons beyond the first derivative."""
        return [*self.second.values(), *self.third.values()]

    @property
    def wrong(self):
        return any(row.outcome in ("wrong", "not finite", "raises") for row in self.rows)

    @property
    def clear(self):
        """False where finite differences cannot be trusted: at a kink, or under noise."""
        return "unclear" not in (self.first.outcome, self.second["alone"].outcome)

    @property
    def telling(self):
        """False where a missing second derivative could not show."""
        return self.clear and not self.second["alone"].zero

    @property
    def low_precision(self):
        return self.dtype == torch.float32


def flat(tensors):
    return torch.cat([t.detach().reshape(-1).to(torch.float64) for t in tensors])


def shaped(vector, like):
    parts = vector.split([t.numel() for t in like])
    return [p.view(t.shape).to(t) for p, t in zip(parts, like, strict=True)]


def start(target, point, bent=False, shift=None):
    """Leaves t, and fn's outputs at x = point + t (+ t**2/2 if bent)."""
    zeros = [torch.zeros_like(x) for x in point] if shift is None else shaped(shift, point)
    t = [z.detach().requires_grad_() for z in zeros]
    xs = [x + s + s * s / 2 if bent else x + s for x, s in zip(point, t, strict=True)]
    return t, target(xs)


def vjp(ys, t, w, **options):
    """First derivative of the outputs weighted with w; zeros where backward returns None."""
    kept = [(y, v) for y, v in zip(ys, w, strict=True) if y.requires_grad]
    if not kept:
        return [torch.zeros_like(s) for s in t]
    ys, w = zip(*kept, strict=True)
    grads = torch.autograd.grad(ys, t, w, allow_unused=True, **options)
    return [torch.zeros_like(s) if g is None else g for g, s in zip(grads, t, strict=True)]


def first_line(error):
    lines = str(error).strip().splitlines() or [type(error).__name__]
    line = lines[0]
    if not isinstance(error, RuntimeError) or isinstance(error, NotImplementedError):
        line = f"{type(error).__name__}: {line}"
    return line if len(line) <= 300 else line[:297] + "..."


def slope(at, dtype):
    """d at(h)/dh at 0 by finite differences, and its error, elementwise.

    The error is what two step sizes and the two sides disagree by, so that it is large at a kink,
    beside one, and under noise.
    """
    zero = at(0.0)
    best = None
    for pair in STEPS[dtype]:
        values = []
        for h in pair:
            up, down = at(h), at(-h)
            values.append(((up - down) / (2 * h), (up + down - 2 * zero).abs() / h))
        (coarse, _), (value, sides) = values
        rounding = 64 * torch.finfo(dtype).eps * (zero.abs() + zero.abs().mean()) / pair[1]
        error = (value - coarse).abs() + sides + rounding
        error = torch.where(error.isfinite(), error, torch.inf)
        size = value.abs() + 1e-6 * (value.abs().nanmean() + zero.abs())
        doubt = (error / (error + size)).nan_to_num(1.0).mean().item()
        if best is None or doubt < best[0]:
            best = doubt, value.nan_to_num(0.0, 0.0, 0.0), error
        if doubt < 1e-2:
            break
    return best[1:]


def chain(target, point, probe, setting, order, shift=None):
    """The derivative of this order that autograd reports: (flat vector, which are None, error)."""
    before, after = SETTINGS[setting]
    missing = torch.zeros_like(probe.d, dtype=torch.bool)
    try:
        t, ys = start(target, point, before, shift)
        v = shaped(probe.d if probe.v is None else probe.v, t)
        grads = torch.autograd.grad(probe.loss(ys, after), t, create_graph=True, allow_unused=True)
        for step in range(2, order + 1):
            used = [(g * s).sum() for g, s in zip(grads, v, strict=True) if g is not None]
            scalar = sum(used, torch.zeros((), dtype=t[0].dtype))
            grads, text = _grad(scalar, t, create_graph=step < order)
        missing = flat([torch.full_like(s, g is None) for g, s in zip(grads, t, strict=True)]) > 0
        grads = [torch.zeros_like(s) if g is None else g for g, s in zip(grads, t, strict=True)]
        return flat(grads), missing, text
    except Exception as error:
        return None, missing, first_line(error)


def _grad(scalar, t, create_graph):
    """Gradients (None where no graph leads) and the error a reader would have seen, or ""."""
    try:
        options = {"create_graph": create_graph, "retain_graph": True}
        return torch.autograd.grad(scalar, t, **options), ""
    except RuntimeError as error:
        text = first_line(error)
        if NOT_RECORDED in text:
            return [None] * len(t), text
        if NOT_USED in text:
            return torch.autograd.grad(scalar, t, allow_unused=True, **options), text
        raise


def judge(got, missing, text, expected, error, terms, sizes, tolerance):
    """Compare one vector with its finite differences.

    `terms` is the size of what is added up, elementwise; `sizes` how many elements each input has,
    since an element is not asked to be more exact than its whole tensor allows.
    """
    zero = bool((expected.abs() <= 5 * error + 1e-9 * terms.mean()).all())
    if got is None:
        return Row("raises", text=text, zero=zero)
    if not got.isfinite().all():
        i = int((~got.isfinite()).nonzero()[0])
        return Row("not finite", None, 0.0, expected[i].item(), got[i].item(), i, text, zero)
    scale = terms + _each(terms, sizes, lambda part: part.square().mean().sqrt())
    noise = error + _each(error, sizes, torch.median)
    off = (got - expected).abs()
    trusted = error <= SURROGATE * scale + 1e-9
    if not trusted.any():
        return Row("unclear", text=text)
    row = Row("right", off[trusted].max().item(), text=text, zero=zero)
    row.relative = (
        (off / scale.clamp_min(1e-30))[trusted].max().item() if row.error > 1e-12 else 0.0
    )
    wrong = off > tolerance * scale + 5 * noise
    if not wrong.any():
        return row
    shown = wrong & ~missing if (wrong & ~missing).any() else wrong
    i = int((shown & (off >= 0.1 * off[shown].max())).nonzero()[0])
    row.outcome = "raises" if missing[i] else "wrong"
    return replace(row, expected=expected[i].item(), got=got[i].item(), index=i)


def _each(vector, sizes, reduce):
    return torch.cat([reduce(part).expand(len(part)) for part in vector.split(sizes)])


def measure(target, point, order, generator):
    """Compare first, second (and third) derivatives at a point, with two probes.

    The first probe sums the outputs and the first derivative, as a reader does by hand, so that its
    numbers can be recognised; the second is random, since a sum can hide an error.
    """
    measured = None
    for ones in (True, False):
        new = _measure_along(target, point, order, ones, generator)
        measured = new if measured is None else _worse(measured, new)
    return measured


def _measure_along(target, point, order, ones, generator):
    def draw(like):
        if ones:
            return torch.ones_like(like)
        return torch.randn(like.shape, generator=generator, dtype=torch.float64).to(like)

    sizes = [x.numel() for x in point]
    t, ys = start(target, point)
    probe = Probe(w=[draw(y) for y in ys], d=flat([draw(x) for x in point]))
    probe.y0 = [y.detach().clone() for y in ys]
    n_out = sum(y.numel() for y in ys)
    gradient = flat(vjp(ys, t, probe.w, retain_graph=True))
    scale = step_scale(point)

    def values_and_gradient(h):
        t, ys = start(target, point, shift=h * scale * probe.d if h else None)
        return torch.cat([flat(ys), flat(vjp(ys, t, probe.w))])

    def along(at, dtype):
        value, error = slope(at, dtype)
        return value / scale, error / scale

    dtype = precision(values_and_gradient(1e-3), ys, point)
    value, error = along(values_and_gradient, dtype)
    dy, a = value[:n_out], value[n_out:]
    a_error = error[n_out:]
    first = judge_first(target, point, probe, gradient, dy, error[:n_out], along, dtype)
    inexact = first.relative if first.outcome == "right" else 0.0
    tolerance = min(SURROGATE, max(SHARP, 10 * inexact))
    if dtype == torch.float32:
        tolerance = max(tolerance, 1e-3)
    if first.outcome == "right":
        b = flat(vjp(ys, t, shaped(flat(probe.w) * dy, ys)))
    else:  # the change of y is that of forward, not of backward: follow one scalar instead
        probe.c = [torch.randn(y.shape, generator=generator, dtype=torch.float64).to(y) for y in ys]
        through = flat(vjp(ys, t, probe.c, retain_graph=True))
        change = (through * probe.d).sum()
        k = change.abs().clamp_min(1e-30).rsqrt().item() if change != 0 else 1.0
        probe.c = [c * k for c in probe.c]
        b = through * change * k * k
        probe.v = torch.randn(len(a), generator=generator, dtype=torch.float64)
        probe.v[a_error > SURROGATE * (a.abs() + b.abs() + gradient.abs())] = 0.0
    c = gradient * probe.d
    second, third = {}, {}
    for name, (before, after) in SETTINGS.items():
        got, missing, text = chain(target, point, probe, name, 2)
        expected = a + b * after + c * before
        terms = a.abs() + b.abs() * after + c.abs() * before
        row = (got, missing, text, expected, a_error, terms, sizes)
        if probe.v is not None:
            row = _along_v(probe, row)
        second[name] = judge(*row, tolerance)
    measured = Measured(first, second, third, point, probe, a, tolerance, dtype)
    if order == 3 and probe.v is None and not measured.wrong:
        for name in SETTINGS:
            third[name] = _third(target, point, probe, name, along, dtype, sizes, tolerance)
    return measured


def _along_v(probe, row):
    """The same comparison for one number, v times the vector.

    A backward that is not the derivative of forward need not have a symmetric Hessian: autograd
    then gives H^T v where finite differences give H d, and only v^T H d is the same.
    """
    got, missing, text, expected, error, terms, _ = row
    v, one = probe.v, lambda number: number.reshape(1)
    error = torch.where(v == 0, 0.0, error)
    lost = one((missing & (expected.abs() > 5 * error)).any())
    size = one(((v * terms).square().sum()).sqrt())
    if got is not None:
        got = one((got * probe.d).sum())
    return got, lost, text, one((v * expected).sum()), one((v * error).abs().sum()), size, [1]


def _third(target, point, probe, name, along, dtype, sizes, tolerance):
    scale = step_scale(point)

    def second(h):
        value, _, _ = chain(target, point, probe, name, 2, shift=h * scale * probe.d)
        return torch.full_like(probe.d, torch.nan) if value is None else value

    expected, error = along(second, dtype)
    terms = expected.abs() + second(0.0).abs()
    row = chain(target, point, probe, name, 3)
    return judge(*row, expected, error, terms, sizes, max(tolerance, 1e-3))


def judge_first(target, point, probe, gradient, dy, error, along, dtype):
    """First derivative against values: along d, and where that differs, part by part."""
    if not (gradient.isfinite().all() and flat(probe.y0).isfinite().all()):
        return Row("not finite")
    w = flat(probe.w)

    def compare(dy, error, direction):
        a, b = w * dy, gradient * direction
        size = max(a.square().sum().sqrt(), b.square().sum().sqrt(), a.sum().abs(), b.sum().abs())
        return a.sum(), b.sum(), (w.abs() * error).sum(), size

    rows = [compare(dy, error, probe.d)]
    index = [None]
    if not (rows[0][0] - rows[0][1]).abs() <= SHARP * rows[0][3] + 5 * rows[0][2]:
        rows, index = [], []
        starts, n = 0, len(probe.d)
        for size in [1] * n if n <= 16 else [x.numel() for x in point]:
            direction = torch.zeros_like(probe.d)
            direction[starts : starts + size] = probe.d[starts : starts + size]
            scale = step_scale(point)

            def values(h, direction=direction, scale=scale):
                return flat(start(target, point, shift=h * scale * direction)[1])

            rows.append(compare(*along(values, dtype), direction))
            index.append(starts)
            starts += size
    expected, got, errors, sizes = (torch.stack(list(column)) for column in zip(*rows, strict=True))
    missing = torch.zeros(len(rows), dtype=torch.bool)
    row = judge(got, missing, "", expected, errors, sizes, [len(rows)], SURROGATE)
    if row.index is not None:
        row.index = index[row.index]
    return row


def step_scale(point):
    """Inputs of size 1 or more are moved by the step itself, smaller ones in proportion."""
    sizes = [x.detach().abs().double().mean().item() for x in point if x.numel()]
    return min([1.0, *(max(size, 1e-3) for size in sizes if size > 0)])


def precision(values, ys, point):
    """The dtype in which fn computes: float32 values in a float64 tensor are float32."""
    if any(t.dtype != torch.float64 for t in [*ys, *point]):
        return torch.float32
    return torch.float32 if bool((values.float().double() == values).all()) else torch.float64


RANK = ("wrong", "not finite", "raises", "unclear", "right")


def _worse(one, two):
    """The two probes in one: for each row the worse outcome, the first probe's if equal."""

    def pick(a, b):
        worse = min(a, b, key=lambda row: RANK.index(row.outcome))
        errors = [row.error for row in (a, b) if row.error is not None]
        largest = max(errors, default=None)
        zero = a.zero and b.zero
        return replace(worse, error=largest, relative=max(a.relative, b.relative), zero=zero)

    merged = [
        {name: pick(first[name], second[name]) for name in first if name in second}
        for first, second in ((one.second, two.second), (one.third, two.third))
    ]
    return replace(two, first=pick(one.first, two.first), second=merged[0], third=merged[1])
