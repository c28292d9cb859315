"""Second derivatives as one types them: by autograd, and by differences of the first."""

import torch

torch.set_default_dtype(torch.float64)


def by_grad(f, x, create_graph=False):
    return torch.autograd.grad(f().sum(), x, create_graph=create_graph)[0].sum()


def by_backward(f, x, create_graph=False):
    x.grad = None
    f().sum().backward(create_graph=create_graph)
    slope, x.grad = x.grad.sum(), None
    return slope


def second(f, x, slope=by_grad):
    return slope(lambda: slope(f, x, create_graph=True), x).item()


def differences(f, x, slope=by_grad, h=1e-3):
    slopes = []
    for step in (h, -h):
        with torch.no_grad():
            x += step
        slopes.append(slope(f, x))
        with torch.no_grad():
            x -= step
    return ((slopes[0] - slopes[1]) / (2 * h)).item()
