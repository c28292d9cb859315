"""Second derivatives through Functions that are not yours: wrong ones raise, or are made right.

`with detect_intermediates():` turns a second derivative that a custom Function would get wrong
into an error. `with recompute_intermediates():` computes what the Function kept once more under
autograd, so that the number becomes right, or raises where that is not possible; a Function that
may not be called again is left alone, with a warning.
"""

import warnings
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.autograd import Function

from double_backward._torch import (
    NoNumbers,
    behind_vmap,
    in_forward_mode,
    levels,
    outside_batches,
    plain,
    unbatched,
    unusual,
    unwrapped,
    wanted_here,
)
from double_backward.arguments import Ignored, listed
from double_backward.calls import (
    Call,
    Here,
    Listener,
    in_backward,
    is_listening,
    leaves_traces,
    listening,
    listening_alone,
    outside,
)
from double_backward.change import fitting, ways_of
from double_backward.check import Outcome, signed
from double_backward.compiled import as_written, see_to_it
from double_backward.differences import close
from double_backward.failures import loud, raise_if_own
from double_backward.lessons import lesson_named
from double_backward.lines import first_line, wrapped
from double_backward.methods import has_jvp, is_named, is_once_differentiable, loaded, names_of
from double_backward.operators import (
    NO_KERNEL,
    WRITES,
    custom_of,
    function_of,
    operator_of,
    writes_in_place,
)
from double_backward.phrases import Phrase, both
from double_backward.rehearsal import rehearsed, right_number, second_derivative
from double_backward.surroundings import Surroundings
from double_backward.trial import (
    AGAIN_RAISES,
    ANOTHER_RESULT,
    IN_BATCH,
    TOO_LITTLE,
    LeftAlone,
    NotFinite,
    Trial,
    Unknown,
    drawn,
    of_jvp,
    only_used,
)

from . import messages
from .known import SOON, Known, recall, watch, watches

__all__ = [
    "SecondDerivativeError",
    "UncheckedFunctionWarning",
    "detect_intermediates",
    "recompute_intermediates",
]


STILL_LEAVES_TORCH = Phrase(
    messages.STILL,
    Phrase("forward or backward leaves torch, or computes below autograd ({})", lesson_named(5)),
)


class SecondDerivativeError(RuntimeError):
    """A second derivative was asked for that would have been a wrong number."""

    def __str__(self) -> str:
        """The text in lines of a readable length, counting the name that Python prints before
        it."""
        text, *translated = super().__str__().splitlines() or [""]
        who, _, said = text.partition(": ")
        if " " in who:
            name = f"{type(self).__module__}.{type(self).__qualname__}:"
            lines = ["\n".join(wrapped(f"{name} {text}", ""))[len(name) + 1 :]]
        else:
            lines = [f"{who}:", *wrapped(said, "")]
        return "\n".join([*lines, *(line for each in translated for line in wrapped(each, ""))])


class UncheckedFunctionWarning(UserWarning):
    """A Function was met that `detect_intermediates` or `recompute_intermediates` cannot check."""


@contextmanager
def detect_intermediates(ignore: Iterable[Ignored] = ()) -> Iterator[None]:
    """Inside, a second derivative that a custom Function would get wrong raises.

    Like `torch.autograd.detect_anomaly`, this is for debugging: forward and the first backward must
    both run inside. Where a first derivative is recorded (`create_graph=True`), the custom
    Functions in it are called again near their inputs, and what autograd says of their backward is
    compared with finite differences. Where the two disagree, an error is put on the path from the
    gradient to the Function's inputs; it is raised when a second derivative takes this path, to an
    input by which it is wrong. A Function that is right is left as it is. First derivatives stay as
    they are, and are not checked: use `diagnose` for one that may be wrong, or not linear in
    grad_out. What is cut off outside custom Functions (`detach`, `autograd.grad` without
    `create_graph`, a hook) is not looked at: `diagnose_all` reports that, and also a Function that
    is right to second order and not to third: here a third derivative is judged as the second one
    of a Function that backward applies. A registered operator that has no kernel for an Autograd
    key, and changes with its inputs, raises as soon as a recorded derivative comes to it.

    A Function is tried at the first call of each kind: same code, dtypes, sizes, layouts, inputs
    that require grad, and the same numbers, strings and flags, by value, among the arguments and
    in what those, the class and its closures hold. After some kinds, and where the Function reads
    values of tensors, its operations are noted: calls that do the same operations are one kind,
    whatever their sizes. A kind is then trusted, and tried again at its 4th, 16th, 64th … call; or
    at the 2nd, 4th, 8th … while its gradients do not change with the inputs, which tells little. A
    Function that does the same operations and is wrong only at some values (`torch.where`, a clamp)
    is missed until a trial meets such a value.

    A region that `torch.compile` has made is judged like a Function, and nothing is compiled anew.
    It raises where its derivative by an input or by grad_out would be silently wrong; where torch
    refuses all of these, torch's own error is raised. A second derivative by a Function's jvp
    raises where it, or the jvp itself, is wrong: at once under `torch.func`, else when it is
    computed. So does forward mode over forward mode, which torch itself gets wrong for every
    Function that is not linear.

    A trial makes the call again with what was set when its forward began (autocast, the default
    dtype, deterministic algorithms), outside of `torch.func`, in float64 and, before an error, in
    the dtype of the call. An output whose gradient is None or a constant 0 is not judged, nor are
    elements that are not finite, such as those of a mask of -inf.

    Nothing of yours is changed by a trial: memory, running statistics, random numbers, gradients,
    and the objects that a Function changes (a cache, a counter, a tree) are put back, also where
    it writes past the version counters (`.data[...] =`, NumPy).

    All threads are covered, and the context may be nested. While a Function that draws random
    numbers is called again, the generators are set back: other threads that draw at that moment get
    other numbers.

    Args:
        ignore: Functions that are left alone, as classes or by name ("Name" or "module.Name"), and
            registered operators, themselves or by name ("my::name"): they are not tried, no warning
            names them, and a second derivative through them is torch's own. A surrogate need not be
            listed: its gradient is taken as it is, and its second derivative is judged as that of
            what backward returns. The list holds as long as this `with` is open, also for another
            one around it.

    Raises:
        SecondDerivativeError: a second derivative would be wrong. The text names the Function, what
            it keeps, and the lesson.
        TypeError: `ignore` is no list of Functions, operators or names; when the `with` is entered.

    Warns:
        UncheckedFunctionWarning: once for each Function that could not be called again, or not with
            the same result, or that ran before the `with`: its second derivative is torch's own.
            Also for one that is not called again because it may change what cannot be put back,
            such as a generator (`yield`); and for one that is called with more than 32 numbers that
            make a difference: it is no longer tried with each. The warning names the argument.
        UserWarning: at the end, for a name in `ignore` that is not the name of a Function that was
            applied or is loaded.
    """
    with loud():
        rehearsed("detect_intermediates()", _detects, "right", "wrong")
        with _DETECT.ignoring(ignore), listening(_DETECT):
            yield


@contextmanager
def recompute_intermediates(ignore: Iterable[Ignored] = ()) -> Iterator[None]:
    """Inside, a second derivative through a custom Function is right, or it raises; where calling
    the Function again may change what cannot be put back, it is torch's own, with a warning.

    This works like `detect_intermediates`, but where a Function is found wrong, its forward is
    called once more under autograd, from its own arguments, and what it keeps then replaces what it
    kept; or only its setup_context is called, with its outputs as they are. The result is used only
    if the gradients are the same as the Function's own and their derivatives agree with finite
    differences. A Function that is right is left as it is; so is one whose backward is meant to be
    another derivative (straight-through), but it raises if its second derivative is wrong. A
    Function is tried as seldom as in `detect_intermediates`, which misses the same errors; but
    where there are too many numbers to try each kind, each call is tried. Inside, compiled
    functions run as they were written (`torch.compiler.set_stance("force_eager")`), also those
    compiled before; afterwards they run compiled again. Under forward mode a Function is not
    repaired by its jvp: it is right, or it raises; where that cannot be checked, a warning says so.
    What `detect_intermediates` says of threads, and of what is cut off outside custom Functions,
    holds here, too.

    Args:
        ignore: Functions that are left alone, as for `detect_intermediates`: they are not tried,
            and a second derivative through them is torch's own number, right or wrong.

    Raises:
        SecondDerivativeError: a second derivative cannot be made right: forward or backward leaves
            torch (NumPy, a kernel), the Function gives another result when it is called again, its
            inputs were changed in place since, or it ran before the `with`.
        TypeError: `ignore` is no list of Functions, operators or names; when the `with` is entered.

    Warns:
        UncheckedFunctionWarning: once for each Function that is left alone, since calling it again
            may change what cannot be put back, such as a generator (`yield`); and for an operator
            that writes into its arguments, which torch does not follow.
        UserWarning: at the end, for a name in `ignore` that is not the name of a Function that was
            applied or is loaded.
    """
    with loud():
        rehearsed("recompute_intermediates()", _recomputes, "right", "right")
        with _RECOMPUTE.ignoring(ignore), as_written(), listening(_RECOMPUTE):
            yield


class _Wait(Function):
    """Returns gradients as they are, with a node in their graph that raises when its backward (or
    jvp) is called."""

    is_ours = True
    generate_vmap_rule = True  # for torch.func

    @staticmethod
    def forward(error, count, *tensors):
        return tuple(_same(t) for t in tensors[:count])

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.error, ctx.count = inputs[:2]
        ctx.rest = len(inputs) - 2 - ctx.count
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, *grads):
        # zeros may stand for a vector, as in hvp
        asked = [i for i, g in enumerate(grads)
                 if g is not None and (g.requires_grad or _is_something(g))]  # fmt: skip
        with loud():
            ctx.error(asked, wanted_here()[ctx.count :])
        return None, None, *grads, *[None] * ctx.rest

    @staticmethod
    def jvp(ctx, *tangents):
        given, ahead = tangents[2 : 2 + ctx.count], tangents[2 + ctx.count :]
        moved = [t is not None and _is_something(t) for t in (*given, *ahead)]
        every = range(ctx.count)
        with loud():
            ctx.error(every if any(moved[ctx.count :]) else [i for i in every if moved[i]])
        return tuple(given)


def _is_something(grad):
    """Whether a gradient is not all 0; True for a tensor whose numbers cannot be read."""
    try:
        return bool(unusual(grad) or plain(grad).any())
    except NoNumbers:
        return True


def _same(tensor):
    """The tensor without its graph; gradients that are batched cannot be detached."""
    return tensor.detach() if unbatched(tensor) is tensor else tensor.view(tensor.shape)


def _wait(text, call, grad_outs, grads, node=None):
    """`grads`, for which an error is raised if they are differentiated by the inputs or grad_out.

    Args:
        text: the text of the error, or a callable that returns it, or None if nothing is wrong. The
            callable is given the places of the gradients that are differentiated, the numbers of
            the inputs by which this may be, None for all, and whether it may be by grad_out.
    """
    places = [p for p, g in enumerate(grads) if isinstance(g, torch.Tensor)]
    if call is None:
        ahead = [n.variable for n, _ in node.next_functions if n is not None]
    else:
        ahead = list(call.inputs.values())
    if call is None or not call.transformed:
        ahead += [g for g in grad_outs if isinstance(g, torch.Tensor) and g.requires_grad]
    count = 0 if call is None or call.transformed else len(call.inputs)
    error, given = partial(_raise, text, places, count), [grads[p] for p in places]
    if any(unbatched(g) is not g for g in map(unwrapped, given)):
        error(range(len(places)))  # the graph of `_Wait` would be lost
        return grads
    if not given or not (ahead or any(g.requires_grad for g in given)):
        return grads
    waiting = dict(zip(places, _Wait.apply(error, len(given), *given, *ahead), strict=True))
    return tuple(waiting.get(p, g) for p, g in enumerate(grads))


def _raise(text, places, count, numbers, ahead=()):
    """Raise the error of `_wait` if the gradients that are differentiated are wrong.

    Args:
        text, places: as in `_wait`.
        count: the number of inputs of which it is known whether autograd needs their gradient.
        numbers: the numbers of the gradients that are differentiated.
        ahead: whether autograd needs the gradient of each input, and then of each grad_out.
    """
    if not numbers:
        return
    seen = count and len(ahead) >= count and not torch.is_grad_enabled()  # else maybe later
    by = {number for number in range(count) if ahead[number]} if seen else None
    asked = {places[n] for n in numbers}, by, not seen or any(ahead[count:])
    said = text(*asked) if callable(text) else text
    if said is not None:
        raise SecondDerivativeError(said)


class _Remedy(Listener):
    NAME = ""  # of the public function
    UNCHECKED, SAID = "", ""  # its note, and its sentence, for a Function that it cannot check
    LOST = ""  # its note for a Function whose graph torch forgets

    def __init__(self):
        self.said = set()
        self.notes = []  # the dicts of `noting` that are to be filled
        self.ignored = []  # what each open block ignores
        self.met = set()  # the ignored Functions and names that were applied

    @contextmanager
    def ignoring(self, given):
        names = listed(given)
        self.ignored.append(names)
        try:
            yield
        finally:
            self.ignored.remove(names)
        for name in [] if self.notes else unknown(names):
            messages.warn(Phrase(messages.UNKNOWN, name), UserWarning)

    def ignores(self, function):
        ignored = [each for names in tuple(self.ignored) for each in names]
        here = [each for each in ignored if is_named(behind_vmap(function), [each])]
        self.met.update(here)
        return bool(here)

    def begins(self):
        self.said.clear()

    def watches(self, call):
        return watches(call) and not self.ignores(call.function)

    def called(self, call):
        if call.is_lost and not self.ignores(call.function):
            self.note(self.LOST, call.function, call, IN_BATCH)
            raise SecondDerivativeError(messages.in_batch(call.function))
        told = call.in_backward  # by what the Function of that backward is judged
        if writes_in_place(call.function) and not (told or self.ignores(call.function)):
            self.could_not_check(call.function, call, WRITES)

    def not_followed(self, function, why):
        if not self.ignores(function):
            self.could_not_check(function, None, why)

    def without_kernel(self, call, node):
        if not self.ignores(call.function):
            node.register_prehook(partial(self.passed, call))

    def passed(self, call, grad_outs):
        """Raise where a recorded pass ends at an operator that changes with its inputs: a second
        derivative would lack what comes from there."""
        if not torch.is_grad_enabled() or call.transformed == 1:
            return
        with torch.enable_grad(), outside(call), outside_batches():
            own = call.plain() if call.transformed else call
            memory = recall(_is_no_constant, own, [])
            with memory.lock:
                if memory.is_due():
                    memory.outcome = _is_no_constant(own)
        if memory.outcome is not False:
            self.note(self.LOST, call.function, call, NO_KERNEL)
            raise SecondDerivativeError(messages.without_kernel(call.function))

    def warn(self, text):
        """Warn, once for each text since the first block was entered."""
        if text not in self.said:
            self.said.add(text)
            messages.warn(text, UncheckedFunctionWarning)

    def could_not_check(self, function, call, reason):
        self.note(self.UNCHECKED, function, call, reason)
        name = messages.name_of(function, call)
        self.warn(Phrase(self.SAID, name, reason, messages.TORCHS_OWN))

    def note(self, outcome, function, call, reason=""):
        for notes in self.notes:
            name = messages.name_of(function, call, full=True)
            notes.setdefault(outcome, {})[name] = str(both(reason))

    def after_jvp(self, call, tangents, outs):
        """Raise where a derivative of the jvp by the inputs, in either mode, would be wrong: at
        once under `torch.func`, else when it is computed."""
        forward, reverse = levels()
        nested = forward > 1
        if self.ignores(call.function) or not (nested or reverse or call.inputs):
            return outs
        outcome = self.of_jvp(call, tangents)
        if outcome in ("jvp", "wrong") or (outcome == "depends" and nested):
            text = messages.forward_mode(call.function, outcome == "jvp", nested)
            if nested or reverse:
                raise SecondDerivativeError(text)
            several = outs if isinstance(outs, tuple) else (outs,)
            several = _wait(text, call, tangents, several)
            return several if isinstance(outs, tuple) else several[0]
        return outs

    def of_jvp(self, call, tangents=None):
        """What `trial.of_jvp` finds, None also where that is not known. Tangents are drawn if none
        are given."""
        with outside(call), outside_batches():
            own = call.plain(every=True)
            given = drawn(own) if tangents is None else [plain(tangents[p]) for p in own.inputs]
            memory = recall(of_jvp, own, given)
            with memory.lock:
                if memory.is_due():
                    memory.outcome = of_jvp(own, given)
        if isinstance(memory.outcome, Unknown):
            self.could_not_check(call.function, call, memory.outcome.why)
            return None
        return memory.outcome

    def differentiated(self, call, grad_outs):
        """Raise under forward mode if the jvp is wrong: the tangents of the gradients depend on
        it."""
        asked = in_forward_mode() and has_jvp(call.function)
        if asked and not self.ignores(call.function) and self.of_jvp(call) == "jvp":
            text = messages.forward_mode(call.function, jvp_is_wrong=True, nested=False)
            raise SecondDerivativeError(text)


class _Detect(_Remedy):
    NAME = "detect_intermediates"
    UNCHECKED, SAID, LOST = "not checked", messages.COULD_NOT_CHECK, "wrong"

    def after_backward(self, node, call, grad_outs, grads):
        function = custom_of(node) if call is None else call.function
        if is_listening(_RECOMPUTE) or self.ignores(function):
            return grads
        try:
            if call is None:
                raise Unknown(Phrase(messages.RAN_BEFORE, "detect_intermediates()"))
            asked = _found(_problem, call, grad_outs, partial(self.too_many_kinds, call))
        except Unknown as reason:
            self.could_not_check(function, call, reason.why)
            return grads
        self.note("wrong" if asked.outcome else "right", function, call)
        if asked.outcome is None:
            return grads
        if call.transformed:
            asked.memory.next_trial = 0  # later its levels are gone: each is tried at once
        return _wait(partial(_said, asked), call, grad_outs, grads)

    def too_many_kinds(self, call, what):
        name = messages.name_of(call.function, call)
        if name not in self.said:
            self.said.add(name)
            messages.warn(messages.too_many_values(name, what()), UncheckedFunctionWarning)


@contextmanager
def noting(notes: dict[str, dict[str, str]]) -> Iterator[None]:
    """Inside, the outcome for each Function is noted: outcome -> "module.Name" -> reason, or "";
    where the reader's language is not English, the reason in it stands in a line below.

    An outcome of detect_intermediates is "right", "wrong" or "not checked"; of
    recompute_intermediates it is "right already", "repaired", "not repaired" (a second derivative
    raises) or "left alone".
    """
    for remedy in (_DETECT, _RECOMPUTE):
        remedy.notes.append(notes)
    try:
        yield
    finally:
        for remedy in (_DETECT, _RECOMPUTE):
            remedy.notes.pop()


def unknown(names: Iterable[type | str]) -> list[str]:
    """The names in `ignore` that are not those of a Function that was applied or is loaded."""
    left = {name for name in names if isinstance(name, str)} - _DETECT.met - _RECOMPUTE.met
    return sorted(left.difference(*map(names_of, map(function_of, loaded())))) if left else []


class _Recompute(_Remedy):
    NAME = "recompute_intermediates"
    UNCHECKED, SAID, LOST = "left alone", messages.LET_BE, "not repaired"

    def begins(self):
        super().begins()
        self.one_by_one = False

    def called(self, call):
        super().called(call)
        if call.region is not None:  # Dynamo was imported inside the block
            see_to_it()

    def after_backward(self, node, call, grad_outs, grads):
        function = custom_of(node) if call is None else call.function
        if self.ignores(function):
            return grads
        name = messages.name_of(function, call)
        try:
            if call is None:
                raise Unknown(Phrase(messages.RAN_BEFORE, "recompute_intermediates()"))
            asked = _found(_objections, call, grad_outs)
            if asked.outcome is None:
                self.note("right already", function, call)
                return grads
            # What is computed again makes paths to backwards that torch alone would not come to
            # with a batch, and one that uses `.data` would end the process.
            self.one_by_one = True
            again = _again(call, grad_outs, grads, asked.outcome, asked.memory)
            self.note("repaired", function, call)
            return again
        except LeftAlone as reason:
            self.could_not_check(function, call, reason.why)
            return grads
        except Unknown as reason:
            if isinstance(reason, NotFinite) and _is_right_where_finite(call, grad_outs):
                self.note("right already", function, call)
                return grads
            self.note("not repaired", function, call, reason.why)
            text = messages.not_had(name, reason.why)
            if call is None and any(n is not None and not hasattr(n, "variable")
                                    for n, _ in node.next_functions):  # fmt: skip
                raise SecondDerivativeError(text) from None  # no node can raise it later
            return _wait(text, call, grad_outs, grads, node)


@dataclass
class _Asked:
    """A call, what is known of its kind, and whether that was found at this very call."""

    call: Call
    grad_outs: list
    memory: Known
    outcome: Any
    here: bool

    def again(self, find):
        """Try this very call, with its values."""
        with self.memory.lock, torch.enable_grad(), outside(self.call), outside_batches():
            self.outcome, self.here = _try(find, self.call, self.grad_outs, self.memory), True
            self.memory.outcome = self.outcome


def _found(find, call, grad_outs, doubt=None):
    """An `_Asked` with what `find` returns for a `Trial` of this call, or of one of the same kind.

    Raises `Unknown` where nothing could be found.
    """
    if call.is_empty:  # such as a batch without samples
        return _Asked(call, [], Known(), None, False)
    grad_outs = [unbatched(g) for g in only_used(grad_outs)]
    memory = recall(find, call, grad_outs, doubt)
    with memory.lock:
        asked = _Asked(call, grad_outs, memory, memory.outcome, False)
        if memory.is_due():
            with outside(call), outside_batches():
                if call.transformed:
                    asked.call = call.plain()
                    asked.grad_outs = [_with_graph(plain(g)) for g in grad_outs]
                asked.again(find)
    if isinstance(asked.outcome, Unknown):
        raise type(asked.outcome)(asked.outcome.why)
    return asked


def _try(find, call, grad_outs, memory):
    try:
        truth = Trial(call, grad_outs)
        try:
            found = find(truth)
        finally:
            memory.touches |= truth.around.changed
            memory.draws |= truth.around.drew
    except Unknown as reason:
        if isinstance(reason, NotFinite):
            memory.next_trial = 0  # this was of the values of one call
        elif not isinstance(reason, LeftAlone):
            memory.next_trial = SOON * memory.calls
        return type(reason)(reason.why)  # the error itself would keep what its frames hold
    memory.was_wrong |= found is not None
    if not truth.tells():
        memory.next_trial = 0 if memory.was_wrong else SOON * memory.calls
    # What it draws, or keeps from call to call, may decide what it does, as values may.
    if call.region is None and (memory.draws or memory.touches or truth.reads_values()):
        watch(call.function)
        leaves_traces(call.function, memory.draws, memory.touches)
    return found


def _said(asked, places, by, by_grad_out):
    """The text of the error for a second derivative of the gradients in these places, by the inputs
    of these numbers (None: by all), and by grad_out or not; None if it is right.

    A kind may be wrong at some values only, so that a call which was not tried is tried now.
    """
    if not asked.here or asked.memory.said is None:
        asked.again(partial(_told, asked.memory))
    if isinstance(asked.outcome, Unknown):
        _DETECT.could_not_check(asked.call.function, asked.call, asked.outcome.why)
        return None
    problem = asked.outcome
    if problem is None or (problem.places is not None and not places & problem.places):
        return None
    by_input = problem.by if by is None else by & problem.by
    return asked.memory.said if by_input or (by_grad_out and problem.by_grad_out) else None


def _with_graph(grad_out):
    """grad_out, as if it had a graph: under transforms it cannot be seen whether it has one."""
    if isinstance(grad_out, torch.Tensor) and grad_out.is_floating_point():
        grad_out.requires_grad_()
    return grad_out


class _Problem(NamedTuple):
    """What is wrong with a call."""

    places: set[int] | None  # of the gradients whose derivative is wrong; None for all
    recorded_otherwise: bool
    by: set[int]  # numbers of the inputs by which it is wrong: a Hessian of one needs no other
    by_grad_out: bool  # two backwards for J v need no more


def _is_no_constant(call):
    """Whether what a Function returns changes with its inputs; None where that is not known."""
    with suppress(Unknown), warnings.catch_warnings(action="ignore"):  # torch's own
        return Trial(call, None).first() is Outcome.WRONG
    return None


def _problem(truth):
    """A `_Problem`, or None for a Function that is right."""
    found = _judged(truth)
    heard = found.error and not is_once_differentiable(truth.call.function)  # raises in any case
    if heard or not (found.wrong or found.error):
        if found.unresolved and not found.error:
            raise Unknown(TOO_LITTLE)
        return None
    sure = not found.recorded.bad and not found.error
    by, by_grad_out = set(range(len(truth.call.inputs))), True
    if sure and found.by_grad_out.outcome is Outcome.RIGHT:
        by_grad_out = False
    if sure and found.by_input.outcome is Outcome.RIGHT and found.by_grad_out.bad:
        by = set()
    elif sure and found.by_input.bad and len(by) > 1:
        by -= {number for number in by if truth.is_right_by(number)}
    return _Problem(set(found.wrong) or None, found.recorded.bad, by, by_grad_out)


def _told(memory, truth):
    """`_problem`, where the text for it is found once for each kind of call."""
    problem = _problem(truth)
    if problem is not None and memory.said is None:
        memory.said = messages.wrong(truth, problem.recorded_otherwise)
    return problem


def _judged(truth):
    found = truth.judge()
    if not (found.wrong or found.error) and truth.is_handed_its_gradient():
        raise Unknown(Phrase("its gradient is computed outside and handed to apply"))
    return found


def _objections(truth):
    """Dict: a way to compute the gradients again -> why it cannot be used, or None if it can. None
    in place of the dict for a Function that is right."""
    found = _judged(truth)
    if not (found.wrong or found.error or found.unresolved):
        return None
    if truth.call.region is not None:
        if found.error:
            return None  # torch's own refusal
        raise Unknown(Phrase("it was compiled: compile it, or call it once, before the block"))
    if truth.first() is Outcome.WRONG:
        raise Unknown(Phrase("its first derivative is not that of its forward"))
    objections = {way: _objection(truth, way) for way in ways_of(truth.call.function)}
    reasons = objections.values()
    if operator_of(truth.call.function) and STILL_LEAVES_TORCH in reasons and None not in reasons:
        why = {STILL_LEAVES_TORCH: messages.still_wrong(truth) or STILL_LEAVES_TORCH}
        return {way: why.get(said, said) for way, said in objections.items()}
    return objections


def _is_right_where_finite(call, grad_outs):
    """Whether a call that has no finite gradient is right with ordinary numbers, and does not
    branch by them."""
    with suppress(Unknown), torch.enable_grad(), outside(call), outside_batches():
        own = call.plain() if call.transformed else call
        truth = Trial(own.with_inputs(_ordinary), [_ordinary(unbatched(g)) for g in grad_outs])
        return _objections(truth) is None and truth.tells() and not truth.reads_values()
    return False


def _ordinary(tensor):
    """Numbers from 0.5 to 1 in the place of those of a tensor."""
    if not isinstance(tensor, torch.Tensor) or not tensor.is_floating_point():
        return tensor
    drawn = signed(tensor.detach(), torch.Generator().manual_seed(6)).abs()
    return drawn.requires_grad_(tensor.requires_grad)


def _objection(truth, way):
    """Why this way of computing the gradients once more cannot be used, or None."""
    try:
        found = truth.judge(way)
    except Unknown as reason:
        return reason.why
    if found.error is not None:
        return Phrase("autograd says: {}", first_line(found.error))
    if found.wrong:
        return STILL_LEAVES_TORCH
    return TOO_LITTLE if found.unresolved else None


def _again(call, grad_outs, grads, objections, memory):
    """The gradients, computed again in the first way to which there is no objection."""
    if call.inputs_changed:
        raise Unknown(Phrase("its inputs have been changed in place since"))
    if in_forward_mode() and not call.transformed:
        raise Unknown(Phrase("it is differentiated by forward mode outside torch.func"))
    grad_outs = [None if g is None else g.clone() for g in grad_outs]
    reasons = [reason for reason in objections.values() if reason is not None]
    for way, objection in objections.items():
        if objection is None:
            try:
                with _as_then(call, memory), in_backward():
                    return _put_in(way(call, call.inputs, grad_outs), grads, call)
            except NoNumbers:
                reasons.append(messages.ANOTHER_BATCH)
            except Unknown as reason:
                reasons.append(reason.why)
            except Exception as error:  # of the Function
                raise_if_own(error)
                reasons.append(Phrase(AGAIN_RAISES, first_line(error)))
    raise Unknown(reasons[-1] if None in objections.values() else reasons[0])


@contextmanager
def _as_then(call, memory):
    """Inside, generators and objects are as they were when the call was made; afterwards they are
    put back. Since that takes time, it is done only where a trial has seen the Function draw, or
    change something."""
    with ExitStack() as stack:
        if memory.draws:
            stack.enter_context(call.state.drawn_again(call.draws))
        if memory.touches or call.changed:
            held = Surroundings(call.function, *call.args, call.kwargs)
            stack.enter_context(call.made_again_in(held))
        yield


def _put_in(again, grads, call):
    put = list(grads)
    for place, grad in enumerate(grads):
        if not isinstance(grad, torch.Tensor) or place not in call.inputs:
            continue
        own = fitting(plain(grad), plain(call.inputs[place]))
        if place not in again or not close(plain(again[place]), own):
            raise Unknown(ANOTHER_RESULT)
        put[place] = again[place]
    return tuple(put)


_DETECT, _RECOMPUTE = _Detect(), _Recompute()


# The rehearsals of both.


def _detects(function, x):
    """What detect_intermediates() finds for a Function of this package, with its error: "right",
    "wrong", or what else happened."""
    remedy = _Detect()
    notes: dict[str, dict[str, str]] = {}
    remedy.notes.append(notes)
    error = ""
    with listening_alone(Here(remedy)):
        try:
            number = second_derivative(function, x)
        except SecondDerivativeError as raised:
            error = str(raised)
    if not error and "right" in notes and close(number, right_number(x)):
        return "right"
    blamed = function.__name__ in error and "kept" in error and "wrong" in notes
    return "wrong" if blamed else f"{error or 'no error'}, noted as {notes}"


def _recomputes(function, x):
    with as_written(), listening_alone(Here(_Recompute())):
        number = second_derivative(function, x)
    return "right" if close(number, right_number(x)) else f"the number {number.tolist()}"
