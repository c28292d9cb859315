"""Small nets as regions to compile and differentiate, with trained and with frozen weights."""

import torch
from torch import nn

BY = {
    "x, weights frozen": "the weights do not require grad; by x, twice: a force, a curvature",
    "x, weights trained": "the weights require grad; by x, twice",
    "x, then the weights": "by x, then by the weights alone, as in a gradient penalty",
    "all": "by x and all weights, twice",
}
# What is compiled with the net: net(x), net(2 x), net(x[None]).
GIVEN = {"x": lambda x: x, "2 x": lambda x: 2 * x, "view": lambda x: x[None]}


class Attention(nn.Module):
    """One head of softmax attention, in plain operations."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(3, 3) for _ in range(3))

    def forward(self, x):
        weights = torch.softmax(self.q(x) @ self.k(x).mT, -1)
        return weights @ self.v(x)


class Embedded(nn.Module):
    """Rows of x, picked by indices, then a linear layer: x is the table."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 2)

    def forward(self, x):
        rows = nn.functional.embedding(torch.tensor([0, 1, 1]), x.reshape(-1, 3))
        return torch.tanh(self.head(rows))


def mlp(activation):
    return lambda: nn.Sequential(nn.Linear(3, 4), activation(), nn.Linear(4, 2))


NETS = {
    "MLP, tanh": mlp(nn.Tanh),
    "MLP, SiLU": mlp(nn.SiLU),
    "MLP, GELU": mlp(nn.GELU),
    "MLP, softplus": mlp(nn.Softplus),
    "MLP, ReLU": mlp(nn.ReLU),
    "layer norm": lambda: nn.Sequential(nn.LayerNorm(3), nn.Linear(3, 2)),
    "batch norm, eval": lambda: nn.Sequential(nn.BatchNorm1d(3), nn.Tanh(), nn.Linear(3, 2)),
    "attention": Attention,
    "convolution": lambda: nn.Sequential(nn.Conv1d(3, 2, 2), nn.Tanh(), nn.Conv1d(2, 1, 2)),
    "embedding": Embedded,
}
# The dimensions that a net needs, where (N, 3) or (1, N, 3) are not it.
FORMS = {"batch norm, eval": ("x", "2 x")}


def forms(name):
    return FORMS.get(name, tuple(GIVEN))


class Net:
    """One net; the attributes are those of `operations.Operation`."""

    by = list(BY)

    def __init__(self, name, given="x", by="x, weights frozen"):
        torch.manual_seed(0)
        net, prepared = NETS[name]().double().eval(), GIVEN[given]
        x = torch.randn(3, 3, dtype=torch.float64)
        self.weights = list(net.parameters())
        weights = [p.detach().clone() for p in self.weights]
        several = range(1, len(weights) + 1)
        self.points, self.moved, self.asked = [x, *weights], range(1), range(1)
        if by == "x, weights frozen":
            net.requires_grad_(False)
            self.points = [x]
        elif by == "x, then the weights":
            self.asked = several
        elif by == "all":
            self.moved = self.asked = range(len(self.points))

        self.function = lambda x: net(prepared(x))

    def leaves_at(self, at):
        """x as a leaf; behind it, where they are trained, the Parameters with these values."""
        x, *values = at
        for weight, value in zip(self.weights, values, strict=bool(values)):
            weight.data.copy_(value)
        return [x.detach().clone().requires_grad_(), *self.weights[: len(values)]]

    def __call__(self, function, points):
        """The output; of the points x alone can have a graph before it: a Parameter is a leaf."""
        return [function(points[0])]
