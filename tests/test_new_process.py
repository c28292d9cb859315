"""Another Python process says and draws the same, and imports nothing that it need not."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
IMPORT = """
import sys
import torch
before = set(sys.modules)
import double_backward
imported = [n for n in set(sys.modules) - before if n.split(".")[0] != "double_backward"]
"""
SHOW = """
import torch
from double_backward import diagnose, draw
from lessons_src import exercises  # which must be imported without docstrings, too
from lessons_src.saving_inputs import Square
from lessons_src.saving_intermediates import sinh
from lessons_src.untracked_backward import Cube
from lessons_src.what_not_to_do import SinhBad

torch.manual_seed({seed})
shown = []
for fn in (Square.apply, sinh, SinhBad.apply, lambda x: Cube.apply(x) * SinhBad.apply(x)):
    x = torch.tensor([0.5, 1.0], dtype=torch.float64, requires_grad=True).clone()
    out = fn(x)
    (grad_x,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    drawing = draw(grad_x=grad_x, x=x, out=out)
    shown += [str(drawing), drawing.dot, drawing.svg]
# At 0 another point is drawn, which shows in the text.
x = torch.tensor([0.0, 0.0], dtype=torch.float64, requires_grad=True)
shown.append(str(diagnose(SinhBad.apply, x)))
"""
PRINT = """
import json
print(json.dumps([imported, shown]))
"""


@pytest.fixture(scope="module")
def shown_here():
    names = {}
    exec(SHOW.format(seed=1), names)
    return names["shown"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed, options",
    [(7, []), (8, ["-OO"])],
    ids=["plain", "without docstrings and assert statements"],
)
def test_outline_dot_svg_and_diagnosis_are_the_same_and_the_import_is_light(
    seed, options, shown_here
):
    """`import double_backward` brings only what `import torch` brings, and our modules."""
    code = IMPORT + SHOW.format(seed=seed) + PRINT
    printed = subprocess.run(
        [sys.executable, *options, "-c", code],
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": str(seed)},
        capture_output=True,
        encoding="utf-8",
    )
    assert printed.returncode == 0, printed.stderr
    imported, shown = json.loads(printed.stdout)
    assert imported == []
    assert len(shown) == 13 and all(len(text) > 100 for text in shown)
    assert shown == shown_here


ZEROS_IN_A_MODE = """
import torch
from torch.autograd import forward_ad
from double_backward._torch import Watching

with forward_ad.dual_level(), Watching():
    x = forward_ad.make_dual(torch.ones(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64))
    mantissa, exponent = torch.frexp(x)
    y = torch.ldexp(mantissa, exponent)
    print(forward_ad.unpack_dual(y).tangent.tolist())
"""


@pytest.mark.slow
def test_zeros_without_memory_do_not_end_python_inside_a_mode():
    """The tangent of ldexp by its exponent is such a zero; torch reads its memory there."""
    printed = subprocess.run(
        [sys.executable, "-c", ZEROS_IN_A_MODE], cwd=ROOT, capture_output=True, encoding="utf-8"
    )
    assert (printed.returncode, printed.stdout.strip()) == (0, "[1.0, 1.0, 1.0]"), printed.stderr
