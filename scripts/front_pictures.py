"""The two pictures at the top of the README: F(x)² with a right Function and with a wrong one."""

import torch
from torch.autograd import grad

from double_backward import draw
from lessons_src.derivatives import second
from lessons_src.saving_intermediates import Sinh
from lessons_src.stepper import stacked
from lessons_src.what_not_to_do import SinhBad

AT = 0.5


def drawn():
    """{file name: SVG}."""
    return {
        "sinh_squared.svg": picture(Sinh, "y", "expx", "expnegx"),
        "sinhbad_squared.svg": picture(SinhBad, "y"),
    }


def picture(function, *names):
    """The graph of F(x)² at `AT`, below its second derivative; `names` are those of the outputs."""
    x = torch.tensor([AT], dtype=torch.float64, requires_grad=True)
    outputs = function.apply(x)
    named = dict(zip(names, outputs if len(names) > 1 else [outputs], strict=True))
    out = named["y"] ** 2
    (grad_x,) = grad(out.sum(), x, create_graph=True)
    svg = draw(grad_x=grad_x, x=x, **named, out=out, legend=False).svg
    (grad2_x,) = grad(grad_x.sum(), x)
    found, right = grad2_x.item(), second(lambda x: torch.sinh(x) ** 2, x).item()
    judged = "right" if abs(found - right) < 1e-9 else f"wrong, it is {right:.4f}"
    title = f"{function.__name__}(x)² at x = {AT}: second derivative {found:.4f}, {judged}"
    return stacked([title], [svg])
