"""Exercise of lesson 1: a * b."""

import torch
from torch.autograd import Function

from ..task import Task, X, numbers

TASK = Task(
    "product",
    1,
    "a * b",
    lambda a, b: ((a + b) ** 2 - (a - b) ** 2) / 4,
    [
        "forward has two arguments after ctx: backward returns two gradients, in that order.",
        "The derivative of a * b with respect to a is b. So backward needs both inputs.",
        "save_for_backward takes several tensors; ctx.saved_tensors gives back as many.",
    ],
    points=((X, torch.tensor([3.0, -1.5, 0.7], dtype=torch.float64)),),
    inputs=("a", "b"),
    slips={
        "The chain rule multiplies: grad_out * b, not grad_out + b.": (lambda g, a, b: g + b),
        "The chain rule multiplies: grad_out * a, not grad_out + a.": (lambda g, a, b: g + a),
    },
    wide=((numbers(0.0, -3000.0, 2.0, -0.3), numbers(3.0, 0.0, 3000.0, 12.0)),),
)

# The solution


class Product(Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * b

    @staticmethod
    def backward(ctx, grad_out):
        a, b = ctx.saved_tensors
        return grad_out * b, grad_out * a


SOLUTION = (Product,)

# Wrong answers

WRONG = {
    "gradients swapped": """Say the derivative with respect to a aloud: is it a, or b?
        - return grad_out * b, grad_out * a
        + return grad_out * a, grad_out * b
    """,
    "one gradient only": """How many arguments has forward? So many gradients backward returns.
        - return grad_out * b, grad_out * a
        + return grad_out * b
    """,
    "None for b": """None says that the result does not depend on b. Does it?
        - return grad_out * b, grad_out * a
        + return grad_out * b, None
    """,
    "grad_out forgotten for b": """The chain rule holds for each of the inputs.
        - return grad_out * b, grad_out * a
        + return grad_out * b, a
    """,
    "the whole product as a gradient": """Differentiate 7 * b with respect to b. What remains?
        - return grad_out * b, grad_out * a
        + return grad_out * b, grad_out * a * b
    """,
    "b detached": """Try F(a, b)² with respect to b, and compare.
        - ctx.save_for_backward(a, b)
        + ctx.save_for_backward(a, b.detach())
    """,
    "grad_out changed in place": """Who else holds this tensor?
        - return grad_out * b, grad_out * a
        + grad_b = grad_out * a
        + return grad_out.mul_(b), grad_b
    """,
    "flags swapped": """Which flag belongs to which input?
        - return grad_out * b, grad_out * a
        + grad_a = grad_out * b if ctx.needs_input_grad[1] else None
        + grad_b = grad_out * a if ctx.needs_input_grad[0] else None
        + return grad_a, grad_b
    """,
    "a list of gradients": """Is a list a tensor, or several?
        - return grad_out * b, grad_out * a
        + return [grad_out * b, grad_out * a]
    """,
    "a on the class": """What if F is called twice before backward runs?
        - ctx.save_for_backward(a, b)
        + Product.a = a
        + ctx.save_for_backward(b)
        - a, b = ctx.saved_tensors
        - return grad_out * b, grad_out * a
        + (b,) = ctx.saved_tensors
        + return grad_out * b, grad_out * Product.a
    """,
    "a number on ctx": """Can a graph lead from a Python number to b?
        - ctx.save_for_backward(a, b)
        + ctx.numbers = b.tolist()
        + ctx.save_for_backward(a)
        - a, b = ctx.saved_tensors
        + (a,) = ctx.saved_tensors
        + b = torch.tensor(ctx.numbers, dtype=a.dtype)
    """,
    "b detached before": """Where does the graph of the result lead?
        + def b_detached_before(a, b):
        +     return Product.apply(a, b.detach())
    """,
}
