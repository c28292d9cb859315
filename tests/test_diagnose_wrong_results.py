"""What `diagnose` may not say: that something is right which it did not ask, or a false cause."""

import torch
from torch.autograd import Function

from double_backward import diagnose


def x(*values):
    return torch.tensor(values or (0.3, 0.9, -0.4), dtype=torch.float64, requires_grad=True)


def codes(found):
    return [finding.code for finding in found.findings]


class EditsExp(Function):
    """A first derivative that is wrong, by an expression that autograd refuses."""

    @staticmethod
    def forward(ctx, x):
        ctx.s = x - 1
        return x**2

    @staticmethod
    def backward(ctx, grad_out):
        return torch.exp(ctx.s).mul_(grad_out) * 0.5


class KeepsALeaf(Function):
    """A leaf that requires grad, made in forward: no graph leads on from it."""

    @staticmethod
    def forward(ctx, x):
        ctx.s = x.clone().detach().requires_grad_()
        return x**2

    @staticmethod
    def backward(ctx, grad_out):
        return torch.exp(ctx.s) * grad_out * 0.5


class SurrogateSpike(Function):
    """Meant: the derivative of a sigmoid for that of a step; its own derivative is right."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (x > 0).to(x)

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(4 * x)
        return grad_out * 4 * s * (1 - s)


def test_what_could_not_be_asked_is_not_right():
    found = diagnose(EditsExp.apply, x())
    assert not found.ok and not [r for r in found.settings.values() if r.outcome == "right"]
    assert all(row.outcome == "not asked" for row in found.settings.values())
    told = " ".join(str(found).split())
    assert "not asked: backward of EditsExp, called by itself, raises: one of" in told


def test_a_leaf_made_in_forward_is_not_connected():
    found = diagnose(KeepsALeaf.apply, x())
    assert found.verdict == "silently_wrong" and "intermediate_on_ctx" in codes(found)
    assert not [r for r in found.settings.values() if r.outcome == "right"]


def test_a_wrong_first_derivative_stands_in_the_headline():
    found = diagnose(KeepsALeaf.apply, x())
    assert "backward is not the derivative of forward, and silently" in found.headline
