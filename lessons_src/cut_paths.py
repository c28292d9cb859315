"""Paths from x to grad_x that a reader cuts and mends, each with its share of a second derivative.

Each number is what a second backward brought back with just these paths cut; the page's script
looks it up, and reckons nothing.
"""

from collections.abc import Iterator
from functools import partial
from html import escape
from itertools import chain, combinations
from math import atan2, degrees
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from double_backward.graphs import Drawing
from double_backward.graphs.picture import KEPT, LEAF
from lessons_src.derivatives import second
from lessons_src.stepper import Stepper

Cut = tuple[str, ...]

KEPT_BY_SINH: Cut = "expx", "expnegx"
PATHS: dict[str, Cut] = {
    "F(x)": KEPT_BY_SINH,
    "F(x)²": ("y", *KEPT_BY_SINH),
    "F(x²)": ("2x", *KEPT_BY_SINH),
    "F(x) + x²": ("x²", *KEPT_BY_SINH),
}
POINTS = 0.5, 1.0, 0.0
LABELS = "Formula", "x", "Cut:", "None, as Sinh", "Both, as SinhBad"
DRAWN = "right", "autograd adds up", "lacks"  # what stands in the picture
LUCKY = "RuntimeError: no path is left. This is the lucky case."
RED, GREEN = "#cd0000", "#caff70"  # of `draw`, by numbers: CSS has no names for the two
WIDTH, HEIGHT, BAR = 330, 282, 300  # units; the last is the length of all shares together
SHOWN = 1.15  # px a unit, so that two pictures stand beside each other on a page of GitHub


def cut_a_path(formula: str = "F(x)²", at: float = 0.5, cut: Cut = KEPT_BY_SINH) -> Stepper:
    """F(x), F(x)², F(x²) and F(x) + x², with F as lesson 3's `Sinh`, and paths to cut and to mend.

    Args:
        formula: what is shown first, a key of `PATHS`.
        at: the x of it, one of `POINTS`.
        cut: its paths that are cut at first; with those of `SinhBad`, F gives what that gives.
    """
    pictures = {name: {f"{x:g}": _told(name, x) for x in POINTS} for name in PATHS}
    cuts = {
        "labels": [*LABELS, *DRAWN],
        "now": [formula, f"{at:g}", list(cut)],
        "formulas": list(PATHS),
        "paths": [list(paths) for paths in PATHS.values()],
        "points": [f"{x:g}" for x in POINTS],
        "pictures": pictures,
    }
    svg = draw_cut(formula, at, cut).svg or ""
    return Stepper("\n".join(_lines()), svg, {"titles": [""], "cuts": cuts})


def draw_cut(
    formula: str, at: float, cut: Cut = (), drawn: tuple[str, str, str] = DRAWN
) -> Drawing:
    """The paths of one formula as a picture, with these of them cut.

    Args:
        formula: a key of `PATHS`.
        at: the x of it, one of `POINTS`.
        cut: its paths that are cut.
        drawn: the three words of the picture, in the language of whoever sees it.

    Returns:
        Drawing, whose outline says in words what the picture shows.
    """
    told = _told(formula, at)
    state = told["states"][_key(cut)]
    title = f"{formula} at x = {at:g}, cut: {', '.join(cut) or 'nothing'}"
    return Drawing(f"{title}\n{state['words']}", "", _svg(title, formula, at, told, cut, drawn), ())


def result(formula: str, at: float, cut: Cut) -> float | None:
    """The second derivative of a formula, by autograd, with paths cut; None where that raises.

    Args:
        formula: a key of `PATHS`.
        at: x.
        cut: some of the paths of the formula.
    """
    sinh, square = partial(_Sinh.apply, cut), partial(_Square.apply, cut)
    formulas = {
        "F(x)": lambda x: sinh(x)[0],
        "F(x)²": lambda x: sinh(x)[0] ** 2,
        "F(x²)": lambda x: sinh(square(x))[0],
        "F(x) + x²": lambda x: sinh(x)[0] + square(x),
    }
    x = torch.tensor([at], dtype=torch.float64, requires_grad=True)
    try:
        return float(second(formulas[formula], x))
    except RuntimeError:
        return None


class _Sinh(Function):
    """Lesson 3's, whose backward takes for constants what is cut; y is cut where it comes in."""

    @staticmethod
    def forward(ctx: Any, cut: Cut, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        expx, expnegx = torch.exp(x), torch.exp(-x)
        ctx.save_for_backward(expx, expnegx)
        ctx.cut = cut
        return (expx - expnegx) / 2, expx, expnegx

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor, by_expx: Tensor, by_expnegx: Tensor) -> Any:
        expx, expnegx = ctx.saved_tensors
        grad_out = grad_out.detach() if "y" in ctx.cut else grad_out
        expx = expx.detach() if "expx" in ctx.cut else expx
        expnegx = expnegx.detach() if "expnegx" in ctx.cut else expnegx
        return None, grad_out * (expx + expnegx) / 2 + by_expx * expx - by_expnegx * expnegx


class _Square(Function):
    """x², whose backward takes x for a constant where that path is cut."""

    @staticmethod
    def forward(ctx: Any, cut: Cut, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        ctx.cut = cut
        return x**2

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return None, 2 * grad_out * (x.detach() if {"2x", "x²"} & {*ctx.cut} else x)


# What is said.


def _told(formula: str, at: float) -> dict[str, Any]:
    """Of one formula at one x: its paths, their shares, and what comes with each set of them cut.

    A share is what comes where every other path is cut. All have as many digits as let each sum be
    right as it is printed.
    """
    paths = PATHS[formula]
    numbers = {cut: result(formula, at, cut) for cut in _subsets(paths)}
    shares = {path: numbers[tuple(p for p in paths if p != path)] or 0.0 for path in paths}
    assert numbers[()] is not None  # nothing is cut
    digits = next(n for n in (4, 3, 5, 6) if _sums_are_right(numbers, shares, n))
    right = _short(numbers[()], digits)
    lowest = min(0.0, sum(share for share in shares.values() if share < 0))
    scale = BAR / (sum(share for share in shares.values() if share > 0) - lowest)
    states = {}
    for cut, number in numbers.items():
        left = {path: share for path, share in shares.items() if path not in cut}
        words, short = LUCKY, "RuntimeError"
        if number is not None:
            short = _short(number, digits)
            words = _sentence(short, [_short(s, digits) for s in left.values()], right, cut)
        bar = _bar(left if number is not None else {}, scale, -lowest * scale)
        states[_key(cut)] = {"words": words, "number": short, **bar}
    told = {path: _short(share, digits) for path, share in shares.items()}
    return {"shares": told, "states": states}


def _subsets(paths: Cut) -> list[Cut]:
    return list(chain.from_iterable(combinations(paths, n) for n in range(len(paths) + 1)))


def _key(cut: Cut) -> str:
    return " ".join(cut)


def _sums_are_right(numbers: dict[Cut, float | None], shares: dict[str, float], n: int) -> bool:
    for cut, number in numbers.items():
        printed = sum(round(share, n) for path, share in shares.items() if path not in cut)
        if number is not None and round(printed, n) != round(number, n):
            return False
    return True


def _short(number: float, digits: int) -> str:
    return f"{round(number, digits) + 0.0:.{digits}f}"


def _sentence(number: str, shares: list[str], right: str, cut: Cut) -> str:
    parts = " + ".join(shares).replace("+ -", "- ")
    told = f"{number} = {parts}" if len(shares) > 1 else number
    if not cut:
        return f"{told}. Right: every path is there."
    if number == right:
        return f"{told}. Right here, though cut: what is missing adds up to 0."
    return f"{told}, and no error. Right is {right}."


def _bar(shares: dict[str, float], scale: float, zero: float) -> dict[str, Any]:
    """Where each share lies, by its place, [x, width] in px; what is negative is taken off again.

    `end` is where they end; outside of the picture without any.
    """
    bars, end = [[0, 0], [0, 0], [0, 0]], 15 + zero
    for path, share in shares.items():
        end += share * scale
        bars[_place(path)] = [round(min(end, end - share * scale)), round(abs(share) * scale)]
    return {"bars": bars, "end": round(end) if shares else -9}


def _place(path: str) -> int:
    return KEPT_BY_SINH.index(path) + 1 if path in KEPT_BY_SINH else 0


def _lines() -> Iterator[str]:
    """What can be seen with the paths of `Sinh`, and with those of `SinhBad`."""
    for x in POINTS:
        for formula, paths in PATHS.items():
            told = _told(formula, x)
            shares = ", ".join(f"{path} {told['shares'][path]}" for path in paths)
            yield f"{formula} at x = {x:g}: {shares}"
            for name, cut in ("no path", ()), ("expx and expnegx", KEPT_BY_SINH):
                yield f"  {name} cut: {told['states'][_key(cut)]['words']}"


# What is drawn; the script of a `Stepper` draws another state with the same parts.


def _svg(
    title: str, formula: str, at: float, told: dict[str, Any], cut: Cut, drawn: tuple[str, str, str]
) -> str:
    right, adds_up, lacks = drawn
    state, shares = told["states"][_key(cut)], told["shares"]
    names = {_place(path): path for path in shares}
    parts = [
        _box(115, 4, LEAF, "x"),
        _box(115, 152, GREEN, "grad_x"),
        *(_path(place, names.get(place, ""), shares, cut, lacks) for place in range(3)),
        _words(4, 16, "formula", formula),
        _words(4, 32, "at", f"x = {at:g}"),
        *_row(196, "right", right, told["states"][""]),
        *_row(240, "autograd", adds_up, state),
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{WIDTH * SHOWN:.0f}" '
            f'height="{HEIGHT * SHOWN:.0f}" viewBox="0 0 {WIDTH} {HEIGHT}">',
            f"<title>{escape(title)}</title>\n<desc>{escape(state['words'])}</desc>",
            '<g font-family="monospace" font-size="12">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
            *parts,
            "</g>\n</svg>\n",
        ]
    )


def _path(place: int, name: str, shares: dict[str, str], cut: Cut, lacks: str) -> str:
    """x, a box and grad_x, one below the other; F(x) has no first path."""
    left, end, is_cut = 4 + 110 * place, 140 + 25 * place, name in cut
    look = f'stroke="{RED}" stroke-dasharray="5 4"' if is_cut else 'stroke="black"'
    share = (f"{lacks} " if is_cut else "") + shares.get(name, "")
    hidden = "" if name else ' display="none"'
    return (
        f'<g data-path="{place}" {look}{hidden} fill="none" stroke-width="1.5">\n'
        f"{_arrow(end, 30, left + 51, 64)}\n{_arrow(left + 51, 106, end, 152)}\n"
        f'<rect x="{left}" y="64" width="102" height="42" fill="{KEPT if place else GREEN}"/>\n'
        f'<g stroke="none" fill="black" text-anchor="middle">\n'
        f'<text x="{left + 51}" y="81">{name}</text>\n'
        f'<text x="{left + 51}" y="98">{share}</text>\n</g>\n</g>'
    )


def _arrow(x: int, y: int, to_x: int, to_y: int) -> str:
    turned = round(degrees(atan2(to_y - y, to_x - x)))
    place = f'transform="translate({to_x} {to_y}) rotate({turned})"'
    head = f'<path d="M -9 -4 L 0 0 L -9 4" stroke-dasharray="none" {place}/>'
    return f'<path d="M {x} {y} L {to_x} {to_y}"/>{head}'


def _box(x: int, y: int, colour: str, words: str) -> str:
    return (
        f'<rect x="{x}" y="{y}" width="100" height="26" fill="{colour}" stroke="black"/>\n'
        f'<text x="{x + 50}" y="{y + 17}" text-anchor="middle">{words}</text>'
    )


def _words(x: int, y: int, name: str, words: str) -> str:
    return f'<text data-words="{name}" x="{x}" y="{y}">{escape(words)}</text>'


def _row(top: int, name: str, label: str, state: dict[str, Any]) -> Iterator[str]:
    """The shares as one bar: filled what is added, hollow what is taken away, and where it ends."""
    yield _words(4, top + 10, name, f"{label}: {state['number']}")
    for (x, width), colour in zip(state["bars"], [GREEN, KEPT, "white"], strict=True):
        yield (
            f'<rect data-bar="{name}" x="{x}" y="{top + 15}" width="{width}" height="18" '
            f'fill="{colour}" stroke="black"/>'
        )
    yield f'<rect data-end="{name}" x="{state["end"] - 1}" y="{top + 12}" width="3" height="24"/>'
