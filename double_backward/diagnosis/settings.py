"""The four formulas in which fn is differentiated twice, and what autograd says in them.

`FORMULAS` can be typed. What is called t elsewhere is x - x.detach(), moved from 0. The value, the
point and the first derivative are the same in all of them; the second is not.
"""

import sysconfig
import traceback
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

import torch
from torch import Tensor

from double_backward.check import first_line
from double_backward.differences import filled, flat, shaped, taken

from .target import Target

HERE = str(Path(__file__).parent)
TORCH = str(Path(torch.__file__).parent)
PYTHON = sysconfig.get_path("stdlib"), "<frozen ", "<__array_function__"
INSTALLED = {"site-packages", "dist-packages"}


class Setting(StrEnum):
    """A formula around fn; as a string, its name in the report."""

    ALONE = "alone"
    AFTER = "graph after"
    BEFORE = "graph before"
    BOTH = "both"

    @property
    def before(self) -> bool:
        return self in (Setting.BEFORE, Setting.BOTH)

    @property
    def after(self) -> bool:
        return self in (Setting.AFTER, Setting.BOTH)


FORMULAS = {
    Setting.ALONE: "y where y = fn(x)",
    Setting.AFTER: "y + (y - y.detach())**2/2",
    Setting.BEFORE: "y where y = fn(x + (x - x.detach())**2/2)",
    Setting.BOTH: "y + (y - y.detach())**2/2 with that y",
}


def uneven(like: Tensor) -> Tensor:
    """Weights that hide nothing in a sum: 1.5 + cos(0), 1.5 + cos(1), ...; laid out like `like`."""
    weights = 1.5 + torch.arange(like.numel(), device=like.device).cos()
    return torch.empty_like(like).copy_(weights.view(like.shape))


def uneven_direction(like: Tensor) -> Tensor:
    """A direction unlike the weights: 1.5 + sin(0), 1.5 + sin(2), ...

    With w = d, whatever is antisymmetric (a forgotten transpose, a cross product) would vanish.
    """
    return (1.5 + (2 * torch.arange(like.numel(), device=like.device)).sin()).to(like)


@dataclass(frozen=True, eq=False)
class Probe:
    """What is differentiated: the outputs weighted with w, along a direction d."""

    target: Target
    w: tuple[Tensor, ...]  # like the outputs
    y0: tuple[Tensor, ...]  # the outputs at the point
    d: Tensor  # flat, like the inputs
    by_backward: bool = False  # by .backward(), where torch.autograd.grad is refused

    def loss(self, ys: list[Tensor], after: bool = False) -> Tensor:
        """The sum of w * z, where z = y, or y + (y - y0)**2/2 if `after`."""
        terms = [w * y for w, y in zip(self.w, ys, strict=True)]
        if after:
            terms += [w * (y - at) ** 2 / 2 for w, y, at in zip(self.w, ys, self.y0, strict=True)]
        return sum((term.sum() for term in terms), torch.zeros(()))


def typed(probe: Probe) -> tuple[str, dict[Setting, str]]:
    """How to get the numbers of a row from z, and what z is in each setting, as it can be typed.

    The first is "" where that takes more than a line. Raises what fn raises.
    """
    target = probe.target
    given = [target.slots[i] for i in target.where]
    one = len(given) == len(probe.w) == 1
    plain = [not x.is_complex() and x.layout == torch.strided for x in given]
    outer = {_outer(y) for y in target.returned(target.inputs(_zeros(target)))}
    pairs = all(plain) or one and given[0].is_complex() and not _scaled(target)
    if probe.by_backward or target.is_linked or not pairs or len(outer) > 1:
        return "", FORMULAS  # not by grad, or the values of sparse tensors, or of several kinds
    return _recipe(probe, one, all(plain)), _formulas(target, outer.pop(), all(plain))


def _zeros(target):
    return [torch.zeros_like(x) for x in target.point]


def _outer(y):
    """What makes a real strided tensor of an output."""
    if y.is_complex():
        return "torch.view_as_real(fn(x))"
    return "fn(x)" if y.layout == torch.strided else "fn(x).to_dense()"


def _recipe(probe, one, plain):
    target = probe.target
    even = all((v == 1).all() for v in [*probe.w, probe.d])
    z, g = ("z", "g") if even else ("(w * z)", "(d * g)")
    if one:
        by = "t" if _scaled(target) else "x" if plain else "r"
        how = f"(g,) = grad({z}.sum(), {by}, create_graph=True), then grad({g}.sum(), {by})"
    else:
        by = "ts" if _scaled(target) else "inputs"
        how = (
            f"gs = grad(sum({z}.sum() for z in zs), {by}, create_graph=True), g = "
            f"torch.cat([g.reshape(-1) for g in gs]), then grad({g}.sum(), {by})"
        )
    told = []
    if not even:
        w, d = ("-1.5 -" if (v < 0).all() else "1.5 +" for v in (probe.w[0], probe.d))
        told.append(f"w = {w} torch.arange(z.numel()).cos().view_as(z)")
        told.append(f"d = {d} (2 * torch.arange(g.numel())).sin().view_as(g)")
    if not plain:
        told.append("r = torch.view_as_real(x.detach()).requires_grad_()")
    if _scaled(target):
        told.append("t = torch.zeros_like(x, requires_grad=True)")
        told.append("u = " + (", ".join(map(_told, target.units, target.point)) or "1"))
        told.append("v = " + (", ".join(f"{v:g}" for v in target.output_units) or "1"))
    end = f"where {'z' if one else 'each z in zs'} is"
    return ", ".join([how, *([f"with {told[0]}", *told[1:]] if told else []), end])


def _formulas(target, outer, plain):
    """`FORMULAS`, or the same where inputs are moved in units u, and outputs divided by theirs,
    or for outputs and inputs that are made real."""
    point, moved, end = "x", "x + (x - x.detach())**2/2", ""
    if not plain:
        point, moved = (
            f"torch.view_as_complex({p.replace('x', 'r')})"
            for p in ("x", "x + (x - x.detach())**2/2")
        )
    if _scaled(target):
        point, moved, end = "x + u * t", "x + u * (t + t**2/2)", " / v"
    found = {}
    for setting, text in FORMULAS.items():
        for plain_x, x in (("fn(x)", point), ("fn(x + (x - x.detach())**2/2)", moved)):
            if plain_x in text:
                text = text.replace(plain_x, outer.replace("fn(x)", f"fn({x})") + end)
                break
        found[setting] = text
    return found


def _scaled(target):
    return bool(target.units or target.output_units)


def _told(unit, x):
    """The unit of an input, as it can be typed."""
    if isinstance(unit, float):
        return f"{unit:g}"
    zeros = unit[x == 0]
    sizes = f"(x.abs() + {zeros[0]:g} * (x == 0))" if len(zeros) else "x.abs()"
    return f"10 ** {sizes}.log10().floor()"


@dataclass(frozen=True, eq=False)
class Reported:
    """What autograd gives for a derivative along d, or the error that it raises."""

    vector: Tensor | None  # flat, like the inputs; None if there was an error
    missing: Tensor | None = None  # mask: where autograd returned None, taken as 0 in `vector`
    text: str = ""  # first line of the error; also of one that `allow_unused=True` avoids
    first: Tensor | None = None  # the first derivative on the way there, None if that raises
    raised_in: str = ""  # "backward, line 7": the reader's code that raises


def reported(
    probe: Probe, setting: Setting, order: int = 2, shift: float | Tensor = 0.0
) -> Reported:
    """`Reported`: the derivative of this order (2 or 3), all but the first time along d.

    As a reader would call autograd: nothing is retained at the last step. Where autograd says that
    an input was not used, once more with `allow_unused=True`; it may mean one of many.
    """
    got = _differentiated(probe, setting, order, shift, strict=True)
    if got.vector is None and _says_unused(got.text):
        loose = _differentiated(probe, setting, order, shift, strict=False)
        got = replace(loose, text=loose.text or got.text)
    return got


def _says_unused(text):
    return "appears to not have been used" in text or "does not require grad" in text


def _differentiated(probe, setting, order, shift, strict):
    first = None
    try:
        t, _, ys = probe.target.start(setting.before, shift, leaves=True)
        scalar = probe.loss(ys, setting.after)
        grads = _derivative(probe, scalar, t, create_graph=True, strict=False)
        first = filled(grads, t)
        for step in range(2, order + 1):
            along = zip(grads, shaped(probe.d, t), strict=True)
            scalar = sum(((g * s).sum() for g, s in along if g is not None), torch.zeros(()))
            grads = _derivative(probe, scalar, t, create_graph=step < order, strict=strict)
    except Exception as error:  # whatever fn or its backward raises is the answer
        place = raised_in(error)
        return Reported(None, text=first_line(error), first=first, raised_in=place)
    missing = flat([torch.full_like(s, g is None) for g, s in zip(grads, t, strict=True)])
    return Reported(filled(grads, t), missing > 0, first=first)


def _derivative(probe, scalar, t, create_graph, strict):
    if not strict and not scalar.requires_grad:
        return [None] * len(t)
    if probe.by_backward:
        scalar.backward(create_graph=create_graph)
        return taken(t)
    return torch.autograd.grad(scalar, t, create_graph=create_graph, allow_unused=not strict)


def raised_in(error: Exception) -> str:
    """The innermost place in the reader's code in the way of an error, else in a package's; "" if
    it is in torch, in Python or here."""
    return innermost(traceback.extract_tb(error.__traceback__))


def innermost(way: traceback.StackSummary) -> str:
    """ "backward, line 7": the last frame of the reader's own code, else of a package's."""
    frames = [f for f in way if not f.filename.startswith((HERE, TORCH)) and not _of_python(f)]
    own = [f for f in frames if not INSTALLED & set(Path(f.filename).parts)] or frames
    if not own:
        return ""
    path = Path(own[-1].filename)
    foreign = f" of {path.parent.name}/{path.name}" if INSTALLED & set(path.parts) else ""
    return f"{own[-1].name}, line {own[-1].lineno}{foreign}"


def _of_python(frame):
    installed = INSTALLED & set(Path(frame.filename).parts)  # below the standard library, often
    return frame.filename.startswith(PYTHON) and not installed
