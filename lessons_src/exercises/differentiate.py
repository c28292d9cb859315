"""What is compared: gradients, their derivatives, and formulas that a reader can type; of an answer
and of plain torch alike."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.autograd import grad

from double_backward.graphs import walk

from .language import Phrase
from .reply import wrong
from .task import Setting, Task, readable, uneven

Formula = Callable[[Callable, list], Tensor]


def first(
    function: Callable,
    setting: Setting,
    grad_out: Tensor | None = None,
    double: bool = False,
    between: Sequence[Setting] = (),
) -> tuple[Tensor, list, Tensor]:
    """The result, the gradients, and grad_out, which is uneven where none is given.

    Args:
        between: where the function is called, too, between its call and backward.
    """
    args, xs = setting.fresh(double)
    out = function(*args)
    for other in between:
        function(*other.fresh()[0])
    u = uneven(out) if grad_out is None else grad_out.to(out.dtype)
    return out, list(grad(out, xs, u.clone(), allow_unused=True)), u


def second(
    function: Callable, setting: Setting, which: int = 0, double: bool = False, again: bool = False
) -> tuple[list, Tensor, Tensor]:
    """The derivative of the sum of h * gradient by each input and by grad_out; grad_out, and h.

    If these are right for each gradient, every second derivative is right, whatever stands around
    the function, as long as backward does the same each time and follows no graph outside itself.

    Args:
        which: the place of the gradient.
        again: let backward run once before, without create_graph.
    """
    args, xs = setting.fresh(double)
    out = function(*args)
    u, h = uneven(out).requires_grad_(), readable(xs[which])
    if again:
        grad(out, xs, u.detach(), retain_graph=True, allow_unused=True)
    gradient = grad(out, xs, u, create_graph=True, allow_unused=True)[which]
    found: list[Tensor | None] = [None] * (len(xs) + 1)
    if gradient is not None and gradient.requires_grad:
        given = h.clone()
        found = list(grad(gradient, [*xs, u], given, allow_unused=True))
        if not torch.equal(h, given):
            fact = Phrase("the backward of backward changes the gradient that it gets.")
            wrong(fact, Phrase("Make a new tensor."))
    return found, u.detach(), h


def formulas(task: Task, setting: Setting) -> dict[str, Formula]:
    """What is differentiated twice, by how it is told: of F and the arguments."""
    names = task.differentiated(setting)

    def called(form):
        return f"F({', '.join(form.format(n) if n in names else n for n in task.inputs)})"

    def each(xs, change):
        return [change(x) if isinstance(x, Tensor) else x for x in xs]

    return {
        called("{}"): lambda f, xs: f(*xs),
        called("{}") + "²": lambda f, xs: f(*xs) ** 2,
        called("{}²"): lambda f, xs: f(*each(xs, torch.square)),
        called("{}²") + "²": lambda f, xs: f(*each(xs, torch.square)) ** 2,
        f"{called('{}')} * {called('{}/2')}": lambda f, xs: f(*xs) * f(*each(xs, lambda x: x / 2)),
    }


def in_formula(
    function: Callable,
    setting: Setting,
    formula: Formula = lambda f, xs: f(*xs),
    weights: Tensor | None = None,
    order: int = 2,
) -> tuple[Tensor, ...]:
    """The sum of a formula, each element times its weight, differentiated `order` times."""
    args, xs = setting.fresh()
    out = formula(function, args)
    total = out.sum() if weights is None else (weights * out).sum()
    for _ in range(order - 1):
        total = summed(grad(total, xs, create_graph=True))
    return grad(total, xs)


def summed(tensors: Sequence[Tensor]) -> Tensor:
    return torch.stack([t.sum() for t in tensors]).sum()


def functions_of(*tensors: Tensor) -> list:
    """The Functions in the graph of these tensors."""
    return list(dict.fromkeys(n.custom for n in walk.walk(*tensors).nodes if n.custom))


def called(fn: Callable, setting: Setting) -> tuple[Tensor, list[Tensor]]:
    """The result, and the inputs to differentiate it by. What is asked of the Functions in its
    graph has to be asked of this result: a class may be made anew in each call."""
    args, xs = setting.fresh()
    return fn(*args), xs


def backward_of(out: Tensor, xs: Sequence[Tensor]) -> list[Tensor]:
    """Those gradients by the inputs that have a graph."""
    u = uneven(out).requires_grad_()
    gradients = grad(out, xs, u, create_graph=True, allow_unused=True)
    return [g for g in gradients if g is not None and g.requires_grad]


def first_backward(fn: Callable, setting: Setting) -> tuple[Tensor, list[Tensor]]:
    """The result, and those gradients by the inputs that have a graph."""
    out, xs = called(fn, setting)
    return out, backward_of(out, xs)


def applied_in_backward(fn: Callable, setting: Setting) -> tuple[list, list]:
    """The Functions in the graph of the result, and those that a backward of them applies."""
    out, gradients = first_backward(fn, setting)
    before = {node.fn for node in walk.walk(out).nodes}
    found = [n.custom for n in walk.walk(*gradients).nodes if n.custom and n.fn not in before]
    return functions_of(out), list(dict.fromkeys(found))
