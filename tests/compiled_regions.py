"""A program that test_compiled runs in a process of its own.

    python tests/compiled_regions.py BACKEND before|inside

Prints, as JSON for each remedy, the second derivative through compiled functions: eagerly, without
a block, inside one and after it, and how many graphs were compiled each time.
"""

import json
import sys
import warnings
from contextlib import nullcontext

import torch
import torch._dynamo
from torch.autograd import Function, grad

from double_backward import detect_intermediates, recompute_intermediates

warnings.simplefilter("ignore")
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(1, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
frozen = torch.nn.Sequential(torch.nn.Linear(1, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
frozen.requires_grad_(False)


class SinhBad(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(torch.cosh(x))
        return torch.sinh(x)

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0]


class Sinh(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.sinh(x)

    @staticmethod
    def backward(ctx, g):
        return g * torch.cosh(ctx.saved_tensors[0])


def keeps(x):
    return SinhBad.apply(x)


def recomputes(x):
    return Sinh.apply(x)


# Regions that make something of x before the first trained weights: x itself is not kept.


def scaled(x):
    return net(2 * x)


def viewed(x):  # as Linear does with three dimensions
    return net(x[None])


def embedded(x):
    return net(torch.nn.functional.embedding(torch.tensor([2, 0, 2]), x))


def normed(x):
    return net(norm(x.T * torch.tensor([1.0, 2.0, 4.0])).T)


def attends(x):
    x = 3 * x[None]
    return torch.softmax(queries(x) @ keys(x).mT, -1) @ values(x)


norm = torch.nn.LayerNorm(3)
queries, keys, values = (torch.nn.Linear(1, 3) for _ in range(3))
FUNCTIONS = {"tanh": torch.tanh, "trained": net, "frozen": frozen, "keeps": keeps,
             "recomputes": recomputes}  # fmt: skip
TRAINED = {f.__name__: f for f in (scaled, viewed, embedded, normed, attends)}
TRUE = {"keeps": torch.sinh, "recomputes": torch.sinh}
SETTINGS = {
    "after": lambda f: lambda x: f(x) ** 2,
    "beside": lambda f: lambda x: f(x) + x**2,
    "before": lambda f: lambda x: f(x**2),
}
head = torch.nn.Linear(1, 1)
ALSO = {
    "head": lambda f: lambda x: head(f(x)) + x**2,  # grad_out: trained weights, nothing of x
    "once": lambda f: lambda x: f(x.detach()).square() * x**3,
}
REMEDIES = {"detect": detect_intermediates, "recompute": recompute_intermediates}


def second(f):
    x = torch.tensor([[0.1], [0.4], [0.7]], requires_grad=True)
    try:
        (first,) = grad(f(x).sum(), x, create_graph=True)
        return grad(first.sum(), x)[0].flatten().tolist()
    except RuntimeError as error:
        return f"{type(error).__name__}: {error}"


def graphs():
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


def cases():
    for name, f in FUNCTIONS.items():
        for setting, wrap in SETTINGS.items():
            yield name, f, setting, wrap
    for name, f in TRAINED.items():
        yield name, f, "beside", SETTINGS["beside"]
    for setting, wrap in ALSO.items():
        yield "frozen", frozen, setting, wrap


def rows(backend, when, remedy):
    found = []
    for name, f, setting, wrap in cases():
        torch._dynamo.reset()
        row = {"name": name, "setting": setting, "eager": second(wrap(TRUE.get(name, f)))}
        compiled = torch.compile(f, backend=backend)
        phases = ("without", "inside", "after") if when == "before" else ("inside", "after")
        for phase in phases:
            before = graphs()
            with REMEDIES[remedy]() if phase == "inside" else nullcontext():
                row[phase] = second(wrap(compiled))
            row["graphs " + phase] = graphs() - before
        found.append(row)
    return found


def main(backend, when):
    print(json.dumps({remedy: rows(backend, when, remedy) for remedy in REMEDIES}))


if __name__ == "__main__":
    main(*sys.argv[1:])
