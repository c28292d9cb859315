"""The rules. Each looks at the evidence and says whether it applies; its docstring is the message.

Numbers convict; what is kept, and how backward is written, only explains. A rule returns
something false if it does not apply, else True or the text for the {} in its docstring. Adding a
finding means adding one function here.
"""

import inspect
from dataclasses import dataclass

RULES = []


@dataclass(frozen=True)
class Finding:
    """One thing to know or to change: a word to search for, a message, the lesson's number."""

    code: str
    message: str
    lesson: int


def rule(lesson):
    def register(function):
        RULES.append((function, lesson))
        return function

    return register


def findings(evidence):
    """List of `Finding`, most important first."""
    found = []
    for function, lesson in RULES:
        said = function(evidence)
        if said:
            message = inspect.cleandoc(function.__doc__).replace("\n", " ")
            found.append(Finding(function.__name__, message.format(said), lesson))
    return found


# The first derivative.


@rule(3)
def mutates_grad_out(e):
    """backward writes into grad_out, which belongs to the caller and to other branches of the
    graph. Make a new tensor: grad_out * 3 instead of grad_out.mul_(3)."""
    return e.habits.mutates_grad_out


@rule(3)
def mutates_saved(e):
    """backward writes into the memory of an input or output. Work on a new tensor."""
    return e.habits.mutates_saved


@rule(1)
def backward_not_repeatable(e):
    """Two calls of backward give different numbers. Change nothing on ctx in backward, and draw no
    random numbers there."""
    return not e.habits.repeats


@rule(1)
def backward_not_linear(e):
    """backward is not linear in grad_out (it clips, takes abs or adds a constant). Return grad_out
    times something that does not depend on grad_out."""
    return e.habits.repeats and not e.habits.linear


@rule(1)
def returns_none(e):
    """backward returns None for {}, but the output depends on it: .backward() leaves .grad at None
    without a message. Return its gradient."""
    if e.measured.first.outcome == "wrong":
        return ", ".join(e.names[i] for i in e.habits.none_for)


@rule(1)
def first_derivative_differs(e):
    """The first derivative is not that of forward. If you meant that (straight-through, gradient
    reversal, surrogate), gradcheck fails by design; otherwise backward has a wrong formula."""
    return e.measured.first.outcome == "wrong" and not e.habits.none_for


# The second derivative is wrong or missing: why.


@rule(4)
def once_differentiable(e):
    """backward is declared @once_differentiable. That raises only where grad_out itself requires
    grad; elsewhere the second derivative is wrong without a message{}. Do not delete the
    decorator: write a Function for backward, with a backward of its own."""
    leaks = [name for name, row in e.measured.second.items() if row.outcome == "wrong"]
    if any(f.decorated for f in e.functions):
        return f" ({', '.join(leaks)})" if leaks else " (not here)"


@rule(3)
def extra_output_gradient_ignored(e):
    """forward returns extra outputs and saves them, but backward does not use their gradients. They
    arrive in the second backward: add them, grad_x + grad_expx * expx and so on."""
    return e.wrong and any(f.ignored for f in e.functions)


@rule(1)
def input_copy_saved(e):
    """forward saves a copy of an input under the input's name (contiguous, clamp, to, clone, detach
    and the casts of autocast make one). A copy made in forward has no graph. Save the input itself,
    and convert it after that."""
    return e.wrong and any(s.copy_of == "input" for s in e.saved("intermediate", False))


@rule(3)
def output_copy_saved(e):
    """forward saves a tensor and returns a copy or a view of it. The one that is saved has no
    graph. Return the very tensor that you save."""
    return e.wrong and any(s.copy_of == "output" for s in e.saved("intermediate", False))


@rule(3)
def intermediate_saved(e):
    """forward saves a tensor it made itself. Autograd was not recording then, so the second
    backward takes it for a constant. Save the input, or return this tensor as an extra output."""
    return e.wrong and any(not s.copy_of for s in e.saved("intermediate", False))


@rule(4)
def intermediate_on_ctx(e):
    """{}: made in forward, where autograd does not record, so the second backward takes it for a
    constant. Compute it in backward from the saved input, or return it as an extra output and save
    that (save_for_backward without returning it changes nothing)."""
    if e.wrong:
        return ", ".join(f"ctx.{s.name}" for s in e.saved("intermediate", True))


@rule(5)
def second_function_incomplete(e):
    """backward calls a second Function whose own backward does not return the right gradient for
    the saved input. It needs one for grad_out and one for the input."""
    return e.wrong and any(f.second and f.path_x != "right" for f in e.functions)


@rule(5)
def grad_out_path_cut(e):
    """What backward returns cannot be differentiated by grad_out (detach, .data, NumPy, or a second
    Function that returns None for it). That is needed as soon as anything non-linear follows."""
    return e.wrong and any(f.path_u != "right" for f in e.functions)


@rule(5)
def untracked_backward(e):
    """backward computes where autograd cannot follow (detach, .data, .item(), no_grad, NumPy, a
    compiled kernel). Write it in torch operations on the saved tensors, or as a Function with a
    backward of its own."""
    return e.wrong and any(f.untracked for f in e.functions)


@rule(5)
def path_counted_twice(e):
    """Right alone, wrong with a graph after it: backward calls autograd.grad on tensors that are
    still connected, so one path counts twice. Use x.view_as(x) and grad_out.view_as(grad_out)."""
    blamed = any(f.path_x != "right" or f.path_u != "right" for f in e.functions)
    outcomes = [e.measured.second[name].outcome for name in ("alone", "graph after")]
    return e.functions and not blamed and outcomes == ["right", "wrong"]


@rule(3)
def in_place_without_mark_dirty(e):
    """forward changes an input in place and does not say so. Call ctx.mark_dirty(x), return x."""
    return e.wrong and e.habits.in_place_forward


@rule(5)
def no_derivative_formula(e):
    """A torch operation in the first derivative has no derivative of its own. Use other operations,
    or put it into a Function with a backward of its own."""
    return any("derivative for" in t and "is not implemented" in t for t in e.texts)


@rule(5)
def no_autograd_kernel(e):
    """The operator that computes backward has no derivative that autograd knows. Register one for
    it too (register_autograd), or put it into a Function with a backward of its own."""
    words = ("no autograd formula was registered", "an autograd kernel was not registered")
    return any(word in text for text in e.texts for word in words)


@rule(5)
def numpy_in_backward(e):
    """backward hands a tensor to NumPy. Do not follow the advice to detach: that turns the error
    into a wrong number. Put the NumPy code into a Function with a backward of its own."""
    return any("Can't call numpy()" in text for text in e.texts)


@rule(2)
def nan_in_second(e):
    """The first derivative is finite, the second is not: often 0 * inf, from a root or a power at 0
    or from torch.where, which differentiates both sides. Keep the input away from there first."""
    second = any(row.outcome == "not finite" for row in e.measured.second.values())
    return second and e.measured.first.outcome != "not finite"


# Right for the tensors that were given, and not for others.


@rule(1)
def noncontiguous_input(e):
    """For a non-contiguous input: {}. x.contiguous() is x itself or a copy without graph, as the
    layout happens to be. Save the input first, and make it contiguous after that."""
    return e.habits.noncontiguous


@rule(1)
def grad_out_layout(e):
    """For a grad_out that is not contiguous, as .sum() or .t() after the Function makes it: {}.
    Use reshape instead of view."""
    return e.habits.grad_out_layout


@rule(1)
def unused_output(e):
    """With one output used and the others not: {}. The gradient of an unused output is None after
    set_materialize_grads(False); check for it."""
    return e.habits.one_output


# It works, at a price; and what to know about this check.


@rule(1)
def input_on_ctx(e):
    """{} is an input. The derivative is right, but an in-place edit goes unnoticed, and the memory
    is not freed with the graph. Use save_for_backward."""
    return ", ".join(f"ctx.{s.name}" for s in e.saved("input", True))


@rule(2)
def output_on_ctx(e):
    """{} is an output. Use save_for_backward, which keeps it without a reference cycle."""
    return ", ".join(f"ctx.{s.name}" for s in e.saved("output", True))


@rule(2)
def reference_cycle(e):
    """The graph refers to itself: its memory stays until the garbage collector runs."""
    return e.habits.cycle


@rule(1)
def no_setup_context(e):
    """torch.func cannot use it: it has no setup_context."""
    return "must override the setup_context" in e.torch_func


@rule(5)
def approximate(e):
    """Right to {} only. An iterative solver is like that; a closed form should not be."""
    rows = [e.measured.first, *e.measured.second.values()]
    if e.measured.tolerance > 1e-3 and not e.wrong:
        return f"{max(row.relative for row in rows):.1%}"


@rule(1)
def computes_in_float32(e):
    """Computed in float32, so checked with a loose tolerance. Use float64 where it allows that."""
    return e.measured.low_precision


@rule(4)
def another_point(e):
    """At your point the second derivative is 0, or jumps, and an error cannot show there. These
    numbers are from a point beside it."""
    return e.moved
