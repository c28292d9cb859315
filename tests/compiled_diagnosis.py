"""A program that test_compiled runs in a process of its own.

    python tests/compiled_diagnosis.py BACKEND

Prints, as JSON, for compiled functions: the second derivative of f(x) + x² as torch gives it before
`diagnose` and after it, how many graphs `diagnose` had compiled, and what it said, in TRAINED also
the true number; then what `diagnose_all` says of a step that calls them; then what it says of a
net with trained weights by itself, where its input requires grad and where these alone do; and
`diagnose` of a product of two inputs.
"""

import json
import sys
import warnings

import torch
import torch._dynamo
from compiled_regions import FUNCTIONS, TRAINED, net
from torch.autograd import grad

from double_backward import diagnose, diagnose_all

warnings.simplefilter("ignore")


def calls(x):
    return inside(x) * x


def second(f, x):
    try:
        (first,) = grad((f(x) + x**2).sum(), x, create_graph=True)
        return grad(first.sum(), x)[0].flatten().tolist()
    except RuntimeError as error:
        return str(error)


def by_weights(f):
    """A penalty on the gradient by the weights; the input does not require grad."""
    weights = [*net.parameters()]
    firsts = grad(f(points().detach()).square().sum(), weights, create_graph=True)
    try:
        return grad(sum(first.square().sum() for first in firsts), weights)
    except RuntimeError as error:
        return str(error)


def graphs():
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


def points():
    return torch.tensor([[0.1], [0.4], [0.7]], requires_grad=True)


def main(backend):
    global inside
    rows = {}
    inside = torch.compile(torch.exp, backend=backend)
    written = FUNCTIONS | TRAINED
    compiled = {name: torch.compile(f, backend=backend) for name, f in written.items()}
    for name, f in {**compiled, "calls": calls}.items():
        before, count = second(f, points()), graphs()
        diagnosis = diagnose(f, points(), timeout=None)
        counted = graphs() - count
        rows[name] = {
            "before": before,
            "after": second(f, points()),
            "eager": second(written.get(name), points()) if name in TRAINED else None,
            "compiled anew": counted + graphs() - count,
            **diagnosis.to_dict(),
        }
    table = diagnose_all(lambda: [second(f, points()) for f in compiled.values()])
    trained = diagnose_all(lambda: second(compiled["trained"], points()))
    weights = diagnose_all(lambda: by_weights(compiled["trained"]))
    pair = torch.compile(lambda a, b: a.exp() * b, backend=backend)
    said = {"trained": trained.rows[:1], "weights": weights.rows[:1]}
    said["pair"] = [diagnose(pair, points(), points(), timeout=None)]
    alone = {name: [one.verdict for one in found] for name, found in said.items()}
    print(json.dumps({"rows": rows, "step": table.to_dict(), "table": str(table), "alone": alone}))


if __name__ == "__main__":
    main(*sys.argv[1:])
