"""Registered operators: names for them, and what they can do beside a Function."""

from itertools import count

import torch

from .derivatives import derivative, second

_numbers = count(1)


def new_name(name):
    """A name for an operator that no other has, such as "lesson::cube_3".

    What is registered under a name that is taken replaces the older operator everywhere.

    Args:
        name: str, what to call it.

    Returns:
        The name with a namespace before it and a number behind.
    """
    return f"lesson::{name}_{next(_numbers)}"


def outcome(way, right):
    """What becomes of a call: "right", "WRONG" or "raises".

    Args:
        way: callable without arguments that returns a tensor.
        right: tensor, what it should return.
    """
    try:
        return "right" if torch.allclose(way(), right) else "WRONG"
    except Exception:
        return "raises"


def told(name, way, right):
    """Print `name` and the `outcome` of a call."""
    print(name, outcome(way, right))


def uses(f, x, slope, curve):
    """The `outcome` of six uses of an elementwise f, by name.

    Args:
        f: callable, tensor to tensor of its shape: a Function's apply, or an operator.
        x: tensor that requires grad.
        slope, curve: tensors, the true first and second derivative of f at x.
    """
    plain, one = x.detach(), torch.ones_like(x)
    whole = torch.compile(lambda x: f(x) * 1, backend="aot_eager", fullgraph=True)
    twice = torch.func.grad(lambda x: torch.func.grad(lambda x: f(x).sum())(x).sum())
    ways = {
        "second derivative": (lambda: second(f, x), curve),
        "torch.func.grad, twice": (lambda: twice(plain), curve),
        "vmap": (lambda: torch.func.vmap(f)(plain), f(plain)),
        "compiled, first": (lambda: derivative(whole, x, 1), slope),
        "compiled, second": (lambda: second(whole, x), curve),
        "forward mode (jvp)": (lambda: torch.func.jvp(f, (plain,), (one,))[1], slope),
    }
    return {name: outcome(*way) for name, way in ways.items()}
