"""Zuko: the curvature of a density, an unconstrained neural autoregressive flow

Call: zuko.flows.UNAF(features).log_prob(x)
Function: zuko:GaussLegendre
Where: by x, with `torch.autograd.grad`; it is declared `once_differentiable`: .backward() raises
Why: what a backward that is declared `once_differentiable` returns leads to an error and nowhere
    else; `torch.autograd.grad` by x takes only ways that lead to x, and does not meet it
"""

import torch
import zuko

torch.manual_seed(0)
x = torch.tensor([0.5], requires_grad=True)
flow = zuko.flows.UNAF(1, transforms=1).requires_grad_(False)


def f():
    return flow().log_prob(x)
