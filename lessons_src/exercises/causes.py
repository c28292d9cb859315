"""Why numbers are wrong: the mistakes that the exercise knows, what relates yours to the true ones,
experiments, each Function by itself; and the cause that `diagnose` finds."""

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.autograd import grad
from torch.autograd.function import FunctionCtx
from torch.utils._python_dispatch import TorchDispatchMode

from double_backward import diagnose
from double_backward.diagnosis import Diagnosis, Finding
from double_backward.diagnosis.conclusions.words import AGAIN, BY_ANOTHER_CALL
from double_backward.differences import slope
from double_backward.graphs import walk
from double_backward.untracked_steps import DETACHING, Watch, told

from .differentiate import first, first_backward, functions_of
from .errors import assigned, is_readers, readers_line
from .language import Phrase, joined, sentences
from .relations import Pair, by_terms, close, relation_of
from .reply import survived
from .task import Setting, Task

SECOND = Phrase(
    "That is grad_out times the second derivative. backward returns the first; autograd "
    "differentiates it where somebody asks for the second."
)
AT_RESULT = Phrase(
    "That is the gradient with the result in the place of x. Which of the two did you save, and "
    "for which is your formula?"
)
SHARED = Phrase(
    "Keep what backward needs on the ctx of its own call, not in a place that all calls share."
)
# What a cure is for somebody who has read so far, in the place of the tool's sentence.
LATER = Phrase("Compute it again in backward from a saved input or output.")
EXTRA = Phrase(  # lesson 3
    "Compute it again in backward from a saved input or output; or return it from forward, too, in "
    "one flat tuple, and hand over a function that returns the first result alone."
)
RECORDED = Phrase("Leave that out, or compute it in torch operations that are recorded.")
# Of what a backward does besides, or does not do every time.
CONDUCT = (
    "mutates_grad_out",
    "mutates_saved",
    "in_place_without_mark_dirty",
    "backward_not_repeatable",
    "changed_by_create_graph",
)
CURES = {
    "input_copy_saved": Phrase(
        "What forward saves is a copy of an input, another view of it, or the input detached: to "
        "autograd a constant. Save the input itself, as forward gets it."
    ),
    "computed_outside_torch": Phrase(
        "forward keeps numbers that come from outside torch ({names}), where no graph leads on. If "
        "it is the result, save the very tensor that you return. If not, compute it in backward "
        "from a saved input, in torch or by a Function with a complete backward."
    ),
    "once_differentiable": Phrase(
        "backward is declared @once_differentiable, and this exercise asks for a second "
        "derivative. Take the decorator off: check then says what else is wrong, if anything."
    ),
}


# The first derivative


def of_first_derivative(
    task: Task, fn: Callable, name: str, ones: list, uneven: list, elsewhere: list
) -> str:
    """What to say of gradients, in groups of `Pair`, that are wrong for an input of this name.

    Args:
        ones, uneven: for such a grad_out, in the plain settings.
        elsewhere: at other numbers, so that "everywhere" is not said of one point.
    """
    if said := _ignores_grad_out(name, sum(ones, []), sum(uneven, [])):
        return said
    groups, setting = [*ones, *uneven], task.plain[0]
    related = (
        survived(edited_afterwards, fn, setting)
        or survived(in_float32, fn, setting, sum(groups, []))
        or _related(task, [*groups, *elsewhere])
        or survived(_by_terms, task, groups)
        or survived(_by_result, task, [*groups, *elsewhere])
    )
    return sentences(of_conduct(diagnosed(task, fn, setting)), related)


def of_dimensions(groups: list[list[Pair]]) -> str:
    """What to say of the last gradients if those before are right, and in one dimension."""
    *before, last = [max(pair.yours.dim() for pair in group) for group in groups]
    if max(before) > 1 or last < 2:
        return ""
    return Phrase(
        "In one dimension it is right. Does a sum, a mean or a softmax of yours go over one "
        "dimension only?"
    )


def _ignores_grad_out(name, ones, uneven):
    """Is the gradient the same for two values of grad_out, wherever it was tried?"""
    both = [(a.yours, b.yours) for a, b in zip(ones, uneven, strict=True) if a.what == name]
    if all(torch.equal(a, b) for a, b in both) and any(a.any() for a, _ in both):
        return Phrase("Your gradient does not change when grad_out does. Multiply by grad_out.")
    return ""


def _related(task, groups):
    slips = dict(task.slips)
    if len(task.differentiated(task.plain[0])) == 1:
        slips[SECOND] = partial(_times_second, task)
    said = relation_of(groups, slips=slips)
    if said.endswith(": the number of elements."):
        other = "Is there a mean in the place of a sum, or a sum in the place of a mean?"
        said = sentences(said, Phrase(other))
    return said


def _times_second(task, u, *args):
    """grad_out times the second derivative of an elementwise function of one tensor."""
    given, (x,) = Setting(args).fresh()
    (slope,) = grad(task.truth(*given).sum(), x, create_graph=True)
    if not slope.requires_grad or slope.shape != u.shape:
        return slope.new_tensor(torch.nan)
    return u * grad(slope.sum(), x)[0]


def _by_result(task, groups):
    """Is it the gradient where the result stands in the place of the one tensor?"""

    def gradient(u, *args):
        (place,) = Setting(args).places
        out = task.truth(*args)
        return first(task.truth, Setting((*args[:place], out, *args[place + 1 :])), u)[1][0]

    return relation_of(groups, slips={AT_RESULT: gradient})


def _by_terms(task, groups):
    pairs = [group[0] for group in groups]
    known = task.terms and all(pair.what == task.inputs[0] for pair in pairs)
    return by_terms(pairs, task.terms) if known else ""


# Experiments


@contextmanager
def handed_to(method: str) -> Iterator[list[tuple[Tensor, Tensor, str]]]:
    """The tensors that forward hands to this method of ctx, with a copy, and the line."""
    found: list[tuple[Tensor, Tensor, str]] = []
    original = getattr(FunctionCtx, method)

    def noting(ctx, *tensors):
        where = readers_line(sys._getframe(1))
        handed = [t.detach() for t in tensors if isinstance(t, Tensor)]
        found.extend((t, t.clone(), where) for t in handed)
        return original(ctx, *tensors)

    with patch.object(FunctionCtx, method, noting):
        yield found


def edited_afterwards(fn: Callable, setting: Setting) -> str:
    """What to say if forward edits a tensor that it handed to save_for_backward."""
    with handed_to("save_for_backward") as found:
        fn(*setting.fresh()[0])
    for tensor, before, where in found:
        if not torch.equal(torch.nan_to_num(tensor), torch.nan_to_num(before)):
            return Phrase(
                "forward edits a tensor that it handed to save_for_backward before ({}), and "
                "backward gets the edited one. Make a new tensor instead.",
                where,
            )
    return ""


def cut_off(fn: Callable, setting: Setting) -> str:
    """Where the graph of the result ends."""
    with Watch(own=is_readers) as watch, handed_to("mark_non_differentiable") as found:
        out = fn(*setting.fresh()[0])
    for tensor, _, where in found:
        if tensor.data_ptr() == out.data_ptr():
            return Phrase("It ends here: {} makes a constant of it. Take that line out.", where)
    steps = [step for step in watch.steps if step.kind in DETACHING]
    return Phrase("It ends here: {}.", told(steps)) if steps else ""


class FirstThat(TorchDispatchMode):
    """Notes the first operation of which something is true, by name, and its line.

    Args:
        is_so: what is asked of the operation, its result and its arguments.
    """

    name = where = ""

    def __init__(self, is_so: Callable[[Any, Any, tuple], bool]) -> None:
        super().__init__()
        self.is_so = is_so

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if not self.where and self.is_so(func, result, args):
            self.name = func.overloadpacket.__name__
            self.where = readers_line(sys._getframe(1))
        return result


def _narrows(func, result, args):
    """Whether the result is float32, and no tensor was."""
    single = [isinstance(t, Tensor) and t.dtype == torch.float32 for t in (result, *args)]
    return single[0] and (func is torch.ops.aten.lift_fresh.default or not any(single[1:]))


def _breaks(_func, result, args):
    """Whether the result has inf or nan, and no tensor had."""
    return _is_broken(result) and not any(map(_is_broken, args))


def _is_broken(t):
    return isinstance(t, Tensor) and t.is_floating_point() and not t.isfinite().all()


def in_float32(fn: Callable, setting: Setting, pairs: list[Pair]) -> str:
    """What to say if all numbers are right to about seven digits, and some are made in float32."""
    for pair in pairs:
        size = pair.true.abs().max().item()
        if not torch.allclose(pair.yours, pair.true, rtol=1e-5, atol=1e-6 * size):
            return ""
    with FirstThat(_narrows) as seen:
        fn(*setting.fresh()[0]).sum().backward()
    if not seen.where:
        return ""
    return Phrase(
        "Yours is right to about seven digits, as float32 is, and the inputs are float64. It "
        "becomes float32 here: {}.",
        seen.where,
    )


def of_inf(fn: Callable, setting: Setting, pair: Pair) -> str:
    """What to say if a number of the reader's is inf or nan, and the true one is not."""
    if (pair.yours.isfinite() | ~pair.true.isfinite())[pair.differs].all():
        return ""
    with FirstThat(_breaks) as seen:
        survived(first, fn, setting)  # backward may not be written yet
    if not seen.where:
        return ""
    return Phrase(
        "The first inf or nan is the result of {} here: {}. Rewrite the formula so that no step "
        "gives one.",
        seen.name,
        seen.where,
    )


def to_save(ctx: object) -> str:
    """How to keep what stands on ctx."""
    return assigned(ctx) or Phrase("Use save_for_backward.")


# The second derivative


def of_second_derivative(
    task: Task, fn: Callable, setting: Setting, groups: list[list[Pair]], alike: list[list[Pair]]
) -> str:
    """What to say of wrong derivatives of backward.

    Args:
        groups: `Pair`s, a list for each gradient that is differentiated.
        alike: those of the first gradient of which one is wrong, in several settings.
    """
    cause = survived(cause_of, task, fn, setting) or None
    if cause and cause.code == "second_function_gradient":
        return sentences(cause.message, *_in_numbers(task, groups, alike))
    unreached = [p.what for p in alike[0] if p.wrong and p.none]
    return (
        survived(of_extra_outputs, task, fn, setting)
        or survived(_taken_from_outside, fn, setting)
        or told_to(task, cause)
        or (
            Phrase(
                "To autograd, what backward returns does not depend on {}. In truth it does.",
                joined("{} and {}", unreached),
            )
            if unreached
            else relation_of(alike)
        )
    )


def diagnosed(task: Task, fn: Callable, setting: Setting) -> Diagnosis:
    """By `diagnose`, which is told if the gradient of the reader's Functions is meant."""
    return diagnose(fn, *setting.fresh()[0], ignore=_meant(task, fn, setting))


def _meant(task, fn, setting):
    return functions_of(fn(*setting.fresh()[0])) if task.meant else ()


def cause_of(task: Task, fn: Callable, setting: Setting, order: int = 2) -> Finding | None:
    """Why the second derivative is wrong, or the third, by `diagnose`."""
    args, xs = setting.fresh()

    def alone(*given):
        left = iter(given)
        return fn(*[next(left) if i in setting.places else a for i, a in enumerate(args)])

    return diagnose(alone, *xs, order=order, ignore=_meant(task, fn, setting)).cause


def told_to(task: Task, cause: Finding | None) -> str:
    """A cause in words, with the cure that the lesson knows, or this exercise."""
    if cause is None:
        return ""
    said: Any = cause.message
    if cause.code in CURES:
        return Phrase(CURES[cause.code], *said.values, **said.named)
    if said.named.get("engine") == "":  # no step leaves torch
        return sentences(said.named["fact"], RECORDED)
    cure = task.cures.get(cause.code)
    if cure and "fact" in said.named:
        return sentences(said.named["fact"], cure)
    said = _instead(said, AGAIN, cure or (EXTRA if task.lesson >= 3 else LATER))
    return _instead(said, f" {BY_ANOTHER_CALL}", "")  # what this exercise asks for


def _instead(said, old, new):
    """The same with another phrase in the place of one inside."""
    if said == old or not isinstance(said, Phrase):
        return new if said == old else said
    values = [_instead(value, old, new) for value in said.values]
    named = {name: _instead(value, old, new) for name, value in said.named.items()}
    return Phrase(said.template, *values, **named)


def of_conduct(diagnosis: Diagnosis) -> str:
    """What a backward does besides, or does not do every time."""
    return next((found.message for found in diagnosis.findings if found.code in CONDUCT), "")


def _in_numbers(task, groups, alike):
    """How the backward of a second Function is wrong."""
    which = next(k for k, group in enumerate(groups) for pair in group if pair.wrong)
    pair = next(pair for pair in groups[which] if pair.wrong)
    if len(groups) == 2 and _each_other(*groups):
        related: str = Phrase("It takes the gradients of its two outputs in the wrong order.")
    else:
        slips = task.second_slips if pair.what == task.inputs[0] else {}
        related = relation_of(alike, slips=slips)
    said = "The derivative of grad_{} by {}, {}."
    return Phrase(said, groups[0][which].what, pair.what, pair.said), related


def _each_other(ones, others):
    return all(
        close(a.yours, b.true) and close(b.yours, a.true) for a, b in zip(ones, others, strict=True)
    )


def _taken_from_outside(fn, setting):
    """Does a Function that backward applies read a tensor which is no argument of it?"""
    for cls in functions_of(*first_backward(fn, setting)[1]):
        for name, value in inspect.getclosurevars(cls.forward).nonlocals.items():
            if isinstance(value, Tensor) and value.requires_grad:
                return Phrase(
                    "{cls}.forward reads {name} from outside: to autograd a constant. Hand {name} "
                    "over in apply, and return a gradient for it.",
                    cls=cls.__name__,
                    name=name,
                )
    return ""


# Extra outputs

OF_EXTRA: dict[str, Callable[..., Tensor]] = {
    Phrase(
        "Yours is the gradient of that output itself. Multiply it by the output's own derivative."
    ): torch.ones_like,
    Phrase(
        "Yours is the gradient of that output itself, with a minus. Multiply it by the output's "
        "own derivative."
    ): lambda true: -torch.ones_like(true),
}
WORDS = Phrase("first"), Phrase("second"), Phrase("third")


def of_extra_outputs(task: Task, fn: Callable, setting: Setting) -> str:
    """Is what backward adds for the gradient of each extra output the derivative of that output?

    Of one that it adds nothing for `diagnose` speaks. The truth is by finite differences.
    """
    args, xs = setting.fresh(double=True)
    for which, extra in enumerate(_extras(fn(*args))):
        found = grad(extra.tensor.sum(), xs, allow_unused=True, retain_graph=True)
        for place, x, yours in zip(setting.places, xs, found, strict=True):
            if yours is None or not yours.any():
                continue
            true, name = _slopes(fn, args, place, which), task.inputs[place]
            true = torch.where(torch.isclose(yours, true, rtol=1e-5, atol=1e-7), yours, true)
            pair = Pair(name, yours, true, {name: x.detach()}, at=(true,))
            if pair.wrong:
                word = WORDS[extra.position - 1] if extra.position < 4 else Phrase("last")
                related = relation_of([[pair]], Phrase("at each of these elements"), OF_EXTRA)
                fact = Phrase(
                    "What backward returns for {} is wrong when the gradient of the {} extra "
                    "output of forward is 1 and the other gradients are 0, {}.",
                    name,
                    word,
                    pair.said,
                )
                return sentences(fact, related)
    return ""


def _extras(out):
    """The saved tensors that are an output of their Function other than the first."""
    kept = [k for node in walk.walk(out).nodes if node.custom for k in node.kept]
    return [k for k in kept if k.role == walk.OUTPUT and k.position]


def _slopes(fn, args, place, which):
    """The derivative of the sum of an extra output by one argument."""
    x, found = args[place].detach(), []
    for k in range(x.numel()):
        step = torch.eye(x.numel(), dtype=x.dtype)[k].reshape(x.shape)

        def at(h, step=step):
            moved = (x + h * step).requires_grad_()
            extra = _extras(fn(*args[:place], moved, *args[place + 1 :]))[which]
            return extra.tensor.detach().sum().reshape(1)

        found.append(slope(at, torch.float64, 1.0).value.item())
    return torch.tensor(found, dtype=x.dtype).reshape(x.shape)
