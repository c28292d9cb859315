"""How to get the numbers of a report oneself: a line to type, and the formulas it is about."""

import torch

from double_backward.check import unit

from .settings import FORMULAS, Probe, Setting


def typed(probe: Probe) -> tuple[str, dict[Setting, str]]:
    """How to get the numbers of a row from z, and what z is in each setting, as it can be typed.

    The first is "" where that takes more than a line. Raises what fn raises.
    """
    target = probe.target
    given = [target.slots[i] for i in target.where]
    one = len(given) == len(probe.w) == 1
    plain = [not x.is_complex() and x.layout == torch.strided for x in given]
    outer = {_outer(y) for y in target.returned(target.inputs(_zeros(target)))}
    pairs = all(plain) or one and given[0].is_complex()
    moved = target.is_linked or target.stays_symmetric
    far = any(unit(v) != 1 for v in probe.w)  # weights that bring outputs near 1
    if probe.by_backward or moved or far or not pairs or len(outer) > 1:
        return "", FORMULAS  # not by grad, or the values of sparse tensors, or of several kinds
    return _recipe(probe, one, all(plain)), _formulas(outer.pop(), all(plain))


def _zeros(target):
    return [torch.zeros_like(x) for x in target.point]


def _outer(y):
    """What makes a real strided tensor of an output."""
    if y.is_complex():
        return "torch.view_as_real(fn(x))"
    return "fn(x)" if y.layout == torch.strided else "fn(x).to_dense()"


def _recipe(probe, one, plain):
    even = all((v == 1).all() for v in [*probe.w, probe.d])
    z, g = ("z", "g") if even else ("(w * z)", "(d * g)")
    if one:
        by = "x" if plain else "r"
        how = f"(g,) = grad({z}.sum(), {by}, create_graph=True), then grad({g}.sum(), {by})"
    else:
        by = "inputs"
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
    end = f"where {'z' if one else 'each z in zs'} is"
    return ", ".join([how, *([f"with {told[0]}", *told[1:]] if told else []), end])


def _formulas(outer, plain):
    """`FORMULAS`, or the same for outputs and inputs that are made real."""
    point, moved = "x", "x + (x - x.detach())**2/2"
    if not plain:
        point, moved = (
            f"torch.view_as_complex({p.replace('x', 'r')})"
            for p in ("x", "x + (x - x.detach())**2/2")
        )
    found = {}
    for setting, text in FORMULAS.items():
        for plain_x, x in (("fn(x)", point), ("fn(x + (x - x.detach())**2/2)", moved)):
            if plain_x in text:
                text = text.replace(plain_x, outer.replace("fn(x)", f"fn({x})"))
                break
        found[setting] = text
    return found
