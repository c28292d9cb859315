"""What the tool says of ten scripts as users write them, and whether that is true.

    python scripts/benchmarks/in_the_wild.py            prints the table
    python scripts/benchmarks/in_the_wild.py --write    puts it into docs/tool/in_the_wild.md

Each script of the folder `wild` runs under `python -m double_backward`. Beside what that says of
its Function stands what finite differences say, which know nothing of the tool: of its gradient,
and of how that changes along a direction, in the four formulas that the tool tells apart (nothing
around it, operations behind it, operations before it, both).
"""

import json
import runpy
import subprocess
import sys
import tempfile
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "docs" / "tool" / "in_the_wild.md"
BEGIN, END = "<!-- table -->\n", "<!-- /table -->\n"
# Script -> (name of the Function, shapes of inputs, which of them are differentiated).
CALLS = {
    "compiled_net": ("net", [(4, 3)], [0]),
    "force_field": ("LennardJones", [(5,), ()], [0, 1]),
    "gp_hessian": ("SquaredExponential", [(4, 2), ()], [1]),
    "implicit_layer": ("Solve", [(3, 3), (3,)], [0, 1]),
    "maml": ("Linear", [(4, 3), (3, 1)], [0, 1]),
    "neural_ode": ("Solve", [(4, 2), (2, 2)], [0, 1]),
    "numpy_layer": ("SoftSign", [(5,)], [0]),
    "pinn": ("Tanh", [(5,)], [0]),
    "spiking": ("Spike", [(5,)], [0]),
    "wgan_gp": ("LeakyReLU", [(5,)], [0]),
}
MEANS = {
    "supported": "right",
    "silently_wrong": "second wrong",
    "raises": "second raises",
    "once_differentiable": "second raises",
    "first_derivative_wrong": "first wrong",
    "surrogate_gradient": "first wrong",
}
AROUND = [(False, False), (True, False), (False, True), (True, True)]  # behind it, before it


def said(script):
    """(verdict, cause) in the row of the only Function, or region, that the script has."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        command = [sys.executable, "-m", "double_backward", "--json", out, script]
        subprocess.run(command, check=True, capture_output=True)
        (row,) = json.loads(out.read_text(encoding="utf-8"))["functions"]
    return row["verdict"], row["cause"] or ""


def truth(script):
    """By finite differences: "right", "first wrong", "second wrong" or "second raises"."""
    name, shapes, places = CALLS[script.stem]
    with redirect_stdout(StringIO()):
        found = runpy.run_path(str(script))[name]
    compiled = not isinstance(found, type)
    f = found if compiled else found.apply
    dtype = torch.float32 if compiled else torch.float64  # a compiled one holds float32
    step, near = (1e-2, 2e-2) if compiled else (1e-5, 1e-5)
    torch.manual_seed(1)
    inputs = [torch.rand(shape, dtype=dtype) + 0.5 for shape in shapes]
    outcomes = [_second(f, inputs, places, *way, step, near) for way in AROUND]
    for worst in ("first wrong", "second wrong", "second raises"):
        if worst in outcomes:
            return worst
    return "right"


def _second(f, inputs, places, behind, before, step, near):
    start = [inputs[place].clone() for place in places]
    weights = torch.rand_like(f(*inputs)) + 0.5
    along, of = ([torch.randn_like(x) for x in start] for _ in range(2))

    def total(xs):
        given = list(inputs)
        for place, x, x0 in zip(places, xs, start, strict=True):
            given[place] = x + (x - x0) ** 2 / 2 if before else x
        y = f(*given)
        return (weights * (y + y**2 / 2 if behind else y)).sum()

    def gradients(xs, **options):
        return torch.autograd.grad(total(xs), xs, **options)

    def at(distance):
        return [(x + distance * u).requires_grad_() for x, u in zip(start, along, strict=True)]

    def differs(number, expected):
        return abs(number - expected) > near * (abs(expected) + 1)

    first = _dot(gradients(at(0.0)), along)
    if differs(first, float((total(at(step)) - total(at(-step))).detach()) / (2 * step)):
        return "first wrong"
    expected = (_dot(gradients(at(step)), of) - _dot(gradients(at(-step)), of)) / (2 * step)
    try:
        xs = at(0.0)
        slope = sum(
            (g * v).sum() for g, v in zip(gradients(xs, create_graph=True), of, strict=True)
        )
        seconds = torch.autograd.grad(slope, xs, materialize_grads=True)
    except RuntimeError:  # rightly so where nothing but zero could come
        return "right" if abs(expected) < near else "second raises"
    return "second wrong" if differs(_dot(seconds, along), expected) else "right"


def _dot(ones, others):
    return float(sum((a.detach() * b).sum() for a, b in zip(ones, others, strict=True)))


def table():
    lines = ["| script | Function | the tool says | by finite differences | the two agree |"]
    lines += ["|---|---|---|---|---|"]
    for script in sorted((HERE / "wild").glob("*.py")):
        (verdict, cause), true = said(script), truth(script)
        told = f"{verdict}, {cause}" if cause else verdict
        judged = "yes" if MEANS.get(verdict) == true else "no"
        judged = judged if verdict in MEANS else "no answer"
        name = CALLS[script.stem][0]
        lines.append(f"| `{script.stem}.py` | `{name}` | {told} | {true} | {judged} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    made = table()
    print(made, end="")
    if sys.argv[1:] == ["--write"]:
        text = PAGE.read_text(encoding="utf-8")
        head, tail = text[: text.index(BEGIN) + len(BEGIN)], text[text.index(END) :]
        PAGE.write_text(f"{head}\n{made}\n{tail}", encoding="utf-8")
