"""The smallest error that each way of asking finds, beside what its report promises.

Run from the folder of the repository: python scripts/benchmarks/planted_errors.py [--write]

x**3, of which backward applies a second Function whose gradient for x is off: by so much in every
element, or in one of six. `--write` puts the table into docs/tool/limits.md.
"""

import re
import sys
import warnings
from itertools import count
from pathlib import Path

import torch
from torch.autograd import Function, grad

from double_backward import diagnose

ERRORS = 0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3
BEYOND = 1.1  # times what `rtol=` permits
PAGE = Path("docs/tool/limits.md")
MARKS = "<!-- planted errors -->", "<!-- end of planted errors -->"
ONE = 4  # of six elements
NUMBERS = count()


def times(a, b, kind):
    """A product as the kind computes it."""
    if kind == "NumPy":
        return torch.from_numpy(a.detach().numpy() * b.detach().numpy())
    if kind == "16 bits":
        return (a.bfloat16() * b.bfloat16()).to(a.dtype)
    return a * b


def cube(kind, error, one):
    """A Function whose second derivative is off by so much, relative."""

    class Back(Function):
        @staticmethod
        def forward(ctx, g, x):
            ctx.save_for_backward(g, x)
            return times(g, 3 * x**2, kind)

        @staticmethod
        def backward(ctx, h):
            g, x = ctx.saved_tensors
            off = torch.zeros_like(x)
            off[ONE if one else slice(None)] = error
            return times(h, 3 * x**2, kind), times(h * g, 6 * x * (1 + off), kind)

    class Cube(Function):
        @staticmethod
        def forward(ctx, x):
            assert kind != "float32 only" or x.dtype == torch.float32
            ctx.save_for_backward(x)
            return times(x**2, x, kind)

        @staticmethod
        def backward(ctx, g):
            return Back.apply(g, ctx.saved_tensors[0])

    for method in (Back.forward, Back.backward, Cube.forward, Cube.backward):
        met_for_the_first_time(method)
    return Cube


def met_for_the_first_time(method):
    """Code that equals no other: what the remedies know of a Function they know by its code, so
    what one error has shown would be used for the next."""
    code = method.__code__
    method.__code__ = code.replace(co_consts=(*code.co_consts, f"the {next(NUMBERS)}th"))


def point(kind):
    draw = torch.rand(6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    single = kind in ("float32", "float32 only", "16 bits")
    return (draw * 0.9 + 0.3).to(torch.float32 if single else torch.float64).requires_grad_()


def by_diagnose(kind, rtol=None):
    return lambda error, one: not diagnose(cube(kind, error, one).apply, point(kind), rtol=rtol).ok


def by_remedy(kind, remedy):
    """Whether the step is stopped, warned of, or mended."""

    def found(error, one):
        x, function = point(kind), cube(kind, error, one)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            try:
                with remedy():
                    (g,) = grad((function.apply(x) ** 2).sum(), x, create_graph=True)
                    (h,) = grad(g.sum(), x)
            except Exception:
                return True
        right = 30 * x.detach().double() ** 4
        mended = torch.allclose(h.double(), right, rtol=error / 10) if error else True
        return bool(told) or mended

    return found


def smallest(found, one, rtol=None):
    """The smallest error from which on all are found, of `ERRORS` and that a tenth beyond what
    `rtol=` permits; None where none is."""
    least = None
    beyond = [] if rtol is None else [BEYOND * rtol]
    for error in sorted([*ERRORS, *beyond], reverse=True):
        if not found(error, one):
            break
        least = error
    return least


KINDS = "float64", "float32", "float32 only", "16 bits", "NumPy"


def row(kind, rtol=None, remedies=False):
    """A line of the table."""
    found = by_diagnose(kind, rtol)
    right = diagnose(cube(kind, 0.0, False).apply, point(kind), rtol=rtol)
    said = [f"{p:.2g}" for p in (100 * right.resolution, 100 * right.resolution_of_one)]
    promised = " / ".join(f"{part}%" for part in said) if right.ok else "not checked"
    cells = [kind if rtol is None else f"{kind}, rtol={rtol}", promised]
    cells += [_said(smallest(found, one, rtol)) for one in (False, True)]
    if remedies:
        from double_backward import detect_intermediates, recompute_intermediates

        for remedy in (detect_intermediates, recompute_intermediates):
            least = [_said(smallest(by_remedy(kind, remedy), one)) for one in (False, True)]
            cells.append(" / ".join(least))
    else:
        cells += ["", ""]
    return f"| {' | '.join(cells)} |"


def _said(error):
    return "none" if error is None else f"{100 * error:g}%"


TITLES = (
    "computes in",
    "promised: every element / one",
    "found: in every",
    "in one of six",
    "detect: every / one",
    "recompute: every / one",
)


def lines():
    """Those of the table."""
    yield f"| {' | '.join(TITLES)} |"
    yield "|---" * len(TITLES) + "|"
    yield from (row(kind, remedies=True) for kind in KINDS)
    yield from (row(kind, rtol) for kind in ("float64", "float32 only") for rtol in (0.001, 0.02))


if __name__ == "__main__":
    text = []
    for line in lines():
        print(line, flush=True)
        text.append(line)
    if "--write" in sys.argv:
        begin, end = map(re.escape, MARKS)
        page = PAGE.read_text()
        new = "\n\n".join([MARKS[0], "\n".join(text), MARKS[1]])
        PAGE.write_text(re.sub(f"{begin}.*{end}", lambda _: new, page, flags=re.S))
