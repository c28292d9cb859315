"""Exercise of lesson 1: 1 / x."""

from torch.autograd import Function

from ..task import Task, numbers

TASK = Task(
    "reciprocal",
    1,
    "1 / x",
    lambda x: x**-1,
    [
        "Which tensor does the formula for the derivative need? Save that one, unchanged.",
        "Write 1/x as a power, x to the -1. The power rule gives the derivative.",
        "The derivative is -1/x². backward returns grad_out times that.",
    ],
    wide=((numbers(0.05, -0.3, 2.0, -7.0, 40.0, 1e-3, 3000.0, -3000.0),),),
)

# The solution


class Reciprocal(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return 1 / x

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return -grad_out / x**2


SOLUTION = (Reciprocal,)

# Wrong answers

WRONG = {
    "sign lost": """Which way does 1/x go when x grows?
        - return -grad_out / x**2
        + return grad_out / x**2
    """,
    "exponent not lowered": """Write 1/x as a power and apply the power rule aloud.
        - return -grad_out / x**2
        + return -grad_out / x
    """,
    "grad_out forgotten": """
        What would backward return if the result were multiplied by 5 afterwards?
        - return -grad_out / x**2
        + return -1 / x**2
    """,
    "input on ctx": """
        Edit x in place between forward and backward, as lesson 1 does, and watch the numbers.
        - ctx.save_for_backward(x)
        + ctx.x = x
        - (x,) = ctx.saved_tensors
        + x = ctx.x
    """,
    "a copy saved": """Ask whether the saved tensor is x: `saved is x`, as in lesson 1.
          def forward(ctx, x):
        +     x = x.clone()
    """,
    "1/x saved, another 1/x returned": """
        Two tensors with the same values: which of them has a node?
        - ctx.save_for_backward(x)
        + ctx.save_for_backward(1 / x)
        - (x,) = ctx.saved_tensors
        - return -grad_out / x**2
        + (inverse,) = ctx.saved_tensors
        + return -grad_out * inverse**2
    """,
    "detached in backward": """Does autograd see the step that detach makes?
        - return -grad_out / x**2
        + return -grad_out / x.detach() ** 2
    """,
    "no return in backward": """What does a Python function return without a return?
        - return -grad_out / x**2
        + grad_x = -grad_out / x**2  # noqa: F841
    """,
    "x on the class": """What if F is called twice before backward runs?
        - ctx.save_for_backward(x)
        + Reciprocal.x = x
        - (x,) = ctx.saved_tensors
        - return -grad_out / x**2
        + return -grad_out / Reciprocal.x**2
    """,
    "derivative clamped": """What is the slope at 0.05?
        - return -grad_out / x**2
        + return grad_out * (-1 / x**2).clamp(-20, 20)
    """,
    "converted to float64": """Try an x in float32: is the saved tensor x?
          def forward(ctx, x):
        +     x = x.double()
    """,
    "saved tensors not taken apart": """
        What does ctx.saved_tensors return, when one tensor is saved?
        - (x,) = ctx.saved_tensors
        + x = ctx.saved_tensors
    """,
    "no_grad in backward": """Is autograd recording there?
        - return -grad_out / x**2
        + with torch.no_grad():
        +     slope = -1 / x**2
        + return grad_out * slope
    """,
    "torch.tensor of x": """Is a copy made by torch.tensor in the graph?
        - return -grad_out / x**2
        + return -grad_out / torch.tensor(x) ** 2
    """,
    "autograd.grad without create_graph": """Lesson 1: what does create_graph do?
        - return -grad_out / x**2
        + with torch.enable_grad():
        +     x = x.view_as(x)
        +     out = 1 / x
        + return torch.autograd.grad(out, x, grad_out)[0]
    """,
    "numbers on ctx": """Can a graph lead from a Python number to x?
        - ctx.save_for_backward(x)
        + ctx.numbers = x.tolist()
        - (x,) = ctx.saved_tensors
        + x = torch.tensor(ctx.numbers, dtype=grad_out.dtype)
    """,
    "plain torch around a Function that does nothing": """Whose derivative is this?
        - ctx.save_for_backward(x)
        - return 1 / x
        + return x.view_as(x)
        - (x,) = ctx.saved_tensors
        - return -grad_out / x**2
        + return grad_out

        + def around_identity(x):
        +     return 1 / Reciprocal.apply(x)
    """,
    "apply forgotten": """What does Python do with Reciprocal(x)?
        + def apply_forgotten(x):
        +     return Reciprocal(x)
    """,
    "applied to a detached x": """Where does the graph of the result begin?
        + def applied_to_a_detached_x(x):
        +     return Reciprocal.apply(x.detach())
    """,
}
