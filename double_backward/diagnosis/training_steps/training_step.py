"""diagnose_all: every custom Function that a training step applies, diagnosed where it was used."""

import functools
import html
import sys
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from double_backward._torch import (
    behind_vmap,
    has_compiled,
    in_forward_mode,
    levels,
    unusual,
    wanted_here,
)
from double_backward.arguments import HIGHEST, Ignored, asked, listed
from double_backward.calls import (
    Call,
    Here,
    Listener,
    is_in_backward,
    is_left_alone,
    listening,
    listening_alone,
    outside,
    requires_grad,
    unheard,
)
from double_backward.check import SIXTEEN_BITS, Checked, Outcome
from double_backward.compiled import KEEPS, NOT_COMPILED, Region, is_inside_region
from double_backward.containers import anew
from double_backward.eigenvectors import MAYBE, PHASES, turn_of, turn_of_units
from double_backward.failures import ToolFailure, handed_over, loud, raise_if_own, unless_gone
from double_backward.kinds import held_by_class, regardless
from double_backward.lines import described, first_line
from double_backward.methods import applied, matches, names_of, unmet
from double_backward.names import argument_names
from double_backward.operations import Did
from double_backward.operators import WRITES, writes_in_place
from double_backward.phrases import Phrase
from double_backward.places import Place, calling, place_of
from double_backward.rehearsal import rehearsed, second_derivative
from double_backward.surroundings import Draws, State, Surroundings, as_now
from double_backward.trial import (
    DOES_ANOTHER,
    IN_BATCH,
    LOST_IN_CAST,
    Trial,
    Unknown,
    has_wrong_jvp,
    only_used,
)

from .. import Diagnosis, Finding, Verdict, diagnose
from ..measurements.transforms import GRADIENT_OF_TANGENT, JVP, NESTED, TANGENT_OF_GRADIENT
from ..preparation.functions import WRONG
from ..preparation.prepare import TOOL_FAILED
from ..preparation.smaller_inputs import LARGE_INPUTS, as_leaf, change_of, cut_down, few_moved, runs
from ..preparation.target import seed_generators
from ..preparation.time_limit import TookTooLong, limited
from .orders import Counted, Passes
from .step_itself import Cut, watched_step
from .step_report import error_line, text_of

KINDS = 3  # kinds of calls of one Function that are diagnosed in any case; the worst is shown
SUSPECTS = 30  # further kinds that are diagnosed if a trial does not find them right
MOST_KINDS = 1000  # kinds of calls of one Function that are kept
WATCHED = 1000  # calls of a Function whose operations are noted
TOO_LARGE = 1_000_000  # elements; larger inputs that cannot be cut down are not diagnosed
ROOM = 4 * TOO_LARGE  # elements that are kept for all kinds of calls of one Function
SEEDS = 20  # seeds that are tried for a Function that draws
PATIENCE = 2.0  # seconds before a notebook shows progress, which stays in its outputs

NO_TIME = Phrase("the script was stopped, and there was no time for it.")
NEVER, ONCE = Phrase("not differentiated"), Phrase("differentiated once")
AT_FIRST = Phrase("right at first order")
UP_TO_SECOND = Phrase("right up to second order")  # order of the step, if a backward applies it

BY_BACKWARD = Phrase(
    "its jvp is wrong, and this step does not come to that: see wrong_in_forward_mode."
)
IN_BACKWARD = Phrase("applied in backward only. Its second derivative is a third one of the step.")
BY_JVP = "its backward is wrong, and this step differentiates its jvp alone: see {}."
BY_INPUTS = Phrase(
    "its backward cuts grad_out, and this step does not come to that, since each grad_out is a "
    "constant here: see grad_out_path_cut."
)

LEFT_OUT = Phrase(
    "{} of {} elements of its gradient are not finite with these inputs, and were left out."
)
NOT_USED = "The step differentiates its gradient for {} fewer than {} times: not judged there."
LESS_THAN_ALL = (
    "not_finite_here",
    "not_used",
)  # codes of findings that become notes in the table, where all else is right
UNMOVED = Phrase("{} of {} elements of its inputs are not finite, and were not moved.")
WORST_FIRST = sorted(Verdict, key=lambda v: v is not Verdict.SILENTLY_WRONG)  # nobody sees it


@dataclass(frozen=True)
class FunctionRow:
    """One custom Function of a step, or one compiled region."""

    function: type | Region
    place: Place  # where the class is written; as a string, "package/module.py:12"
    called: Place | None  # where it was first applied
    calls: int  # how often the step applied it
    order: int  # how often it is differentiated: 3 for the activation behind a loss on u_xx
    diagnosis: Diagnosis  # of the worst kind of call, to that order and at least to the second
    in_backward: bool = False  # whether only backwards apply it
    notes: tuple[str, ...] = ()  # what the table adds: that inputs were cut down, a reason

    @property
    def name(self) -> str:
        return self.qualname.split("<locals>.")[-1]

    @property
    def qualname(self) -> str:
        function = self.function
        return function.name if isinstance(function, Region) else function.__qualname__

    @property
    def verdict(self) -> Verdict:
        return self.diagnosis.verdict

    @property
    def meant(self) -> bool:
        """Whether its gradient is not the derivative of forward, and `ignore` says that it is
        meant."""
        return bool(self.diagnosis.meant)

    @property
    def ok(self) -> bool:
        """Whether it is right as often as the step differentiates it."""
        return self._is_torchs_own or _is_right(self.diagnosis, self.order)

    @property
    def _is_torchs_own(self) -> bool:
        """Whether it is a compiled region that is differentiated once, which is not judged."""
        return isinstance(self.function, Region) and self.order == 1

    @property
    def said(self) -> str:
        """The verdict in the table: right, if it is wrong only beyond the order of the step."""
        if self.order == 0 or self._is_torchs_own:
            return ONCE if self.order else NEVER
        if not self.ok or self.diagnosis.ok:
            return self.verdict.value + ", meant" * (self.diagnosis.ok and self.meant)
        return UP_TO_SECOND if self.in_backward else AT_FIRST

    @property
    def cause(self) -> Finding | None:
        """The finding to read first, or None for a Function that is right."""
        return self.diagnosis.read_first

    def to_dict(self) -> dict[str, Any]:
        """Plain values only, for JSON."""
        return {
            "name": self.name,
            "qualname": self.qualname,
            **self.place.to_dict(),
            "called": self.called.to_dict() if self.called else None,
            "calls": self.calls,
            "order": self.order,
            "in_backward": self.in_backward,
            "meant": self.meant,
            "ok": self.ok,
            "verdict": self.verdict.value,
            "cause": self.cause.code if self.cause else None,
            "notes": list(self.notes),
            "diagnosis": self.diagnosis.to_dict() | {"text": str(self.diagnosis)},
        }


@dataclass(frozen=True)
class StepDiagnosis:
    """The answer of `diagnose_all`. Printed, it is a table."""

    rows: list[FunctionRow] = field(default_factory=list)  # worst first
    error: BaseException | None = None  # the error that the step raised
    # What the step does outside of Functions that cuts or changes a gradient that it takes; None
    # where it was not looked at, since compiled code would be compiled anew.
    itself: tuple[Cut, ...] | None = None
    unmet: tuple[str, ...] = ()  # names in `ignore` of Functions that the step does not apply

    @property
    def ok(self) -> bool:
        """Whether the step ran to its end, and each custom Function is right to the order to which
        the step differentiates it.

        A Function that is differentiated three times has to have three right derivatives, one that
        is differentiated once needs only the first, and one that is not differentiated needs none.
        A step that raises is judged as if it had taken the next derivative of those that it had
        recorded (`create_graph=True`).
        """
        return self.error is None and all(row.ok for row in self.rows)

    @property
    def order(self) -> int:
        """How often the step differentiates the Function that it differentiates most often."""
        return max((row.order for row in self.rows), default=0)

    def __getitem__(self, name: str) -> Diagnosis:
        """The full `Diagnosis` of one Function of the table. Raises KeyError for any other name."""
        for row in self.rows:
            if row.name == name:
                return row.diagnosis
        raise KeyError(f"{name} is not in the table. It has {[row.name for row in self.rows]}")

    def __str__(self) -> str:
        return text_of(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f'<pre style="color: inherit; background: none">{html.escape(str(self))}</pre>'

    def to_dict(self) -> dict[str, Any]:
        """Plain values only, for JSON."""
        return {
            "ok": self.ok,
            "order": self.order,
            "error": None if self.error is None else error_line(self.error),
            "itself": None if self.itself is None else [cut.to_dict() for cut in self.itself],
            "unmet": list(self.unmet),
            "functions": [row.to_dict() for row in self.rows],
        }


def diagnose_all(
    step: Callable[[], object],
    *,
    ignore: Iterable[Ignored] = (),
    progress: bool = True,
    rtol: float | None = None,
    atol: float = 0.0,
    timeout: float | None = 60.0,
) -> StepDiagnosis:
    """Run `step()` once and `diagnose` every custom Function that it applies.

    Functions are met in forward and in backward, inside modules and libraries, in every thread. The
    step runs as it would by itself. Then each Function is called alone, on copies of the inputs
    that it had; if these are large, on a part of them, and the table says so. It is judged to the
    order to which the step differentiates it.

    Args:
        step: callable without arguments, such as one training step. It is called once.
        ignore: Functions whose gradient is meant as it is, such as surrogates, as classes or by
            name ("Name" or "module.Name"), and registered operators, themselves or by name
            ("my::name"). Their second derivative is judged as that of what backward returns. The
            table says which of them the step does not apply.
        progress: False to print nothing meanwhile. Otherwise a terminal shows which Function is
            being diagnosed, and so does a notebook if it takes more than two seconds.
        rtol, atol, timeout: for each Function, as for `diagnose`.

    Returns:
        `StepDiagnosis`: a table with the worst first. `["Name"]` gives the full `Diagnosis` of one
        Function. If the step raises an `Exception`, the table has what was met until then, and
        `error` is this exception.

    Raises:
        TypeError, ValueError: `ignore`, `rtol`, `atol` or `timeout` has a type or a value that is
            not allowed. The step has not been called then.
    """
    asked(rtol=rtol, atol=atol, timeout=timeout)
    with loud():
        met, error = Met(ignore), None
        watched = None if has_compiled() else watched_step()
        with met.listening(), watched or nullcontext() as watch:
            try:
                handed_over(step)
            except Exception as raised:
                raise_if_own(raised)
                error = raised
        found = met.diagnosed(error, progress, rtol=rtol, atol=atol, timeout=timeout)
        if watch and watch.compiled and not watch.left:
            found.rows.insert(0, _not_seen())
        return replace(found, itself=watch.found() if watch else None)


def assert_all_double_backward(
    step: Callable[[], object],
    *,
    ignore: Iterable[Ignored] = (),
    rtol: float | None = None,
    atol: float = 0.0,
    timeout: float | None = 60.0,
) -> None:
    """Raise AssertionError with the table, and the full text of what is wrong, unless all is right.

    All arguments are those of `diagnose_all`, whose TypeError and ValueError are raised, too.
    """
    __tracebackhide__ = True  # pytest then shows the test and the whole text
    result = diagnose_all(
        step, ignore=ignore, progress=False, rtol=rtol, atol=atol, timeout=timeout
    )
    if not result.ok:
        texts = [str(row.diagnosis) for row in result.rows if not row.ok]
        raise AssertionError("\n\n".join([str(result), *texts])) from result.error


# What the step does.


@dataclass
class _Kind:
    """A kind of call of a Function, with the arguments of one such call."""

    function: Any  # the class; one region may have several
    args: list  # copies of the arguments; [] if they are too large to be kept
    smaller: list[tuple[list, str]]  # arguments cut down, and how; only where they are large
    keywords: dict
    state: State  # what was set at that call
    elements: int
    parameters: set[int]  # the places of arguments that are parameters of a module
    origins: dict[int, weakref.ref]  # place -> the tensor itself, which the Function may hold, too
    any_numbers: tuple = ()  # the kind without the numbers among the arguments
    did: Did | None = None  # what forward did
    changed: tuple = ()  # what that call changed, as in `Call`
    held: tuple = ()  # what the class holds, and its methods read, when that call was made
    way: int = 0  # what that call and its recorded backward did; 0 if that has not run yet
    whole: int = 0  # how often it is differentiated, where it was not seen which parts are
    parts: dict[tuple, "_Part"] = field(default_factory=dict)  # the parts that were seen
    recorded: bool = False  # whether a derivative of it was recorded, so that another may follow
    by_grad_out: bool = False  # a pass asks how its gradient depends on grad_out
    constant: bool = True  # no transform of `torch.func` may differentiate it by its grad_out
    first: Any = None  # a weak reference to that call
    last: Any = None  # a weak reference to the last call of this kind
    refused: str = ""  # why the arguments could not be kept

    def differentiated(self, times: int) -> None:
        self.whole = max(self.whole, times)

    def differentiated_by_grad_out(self) -> None:
        self.by_grad_out = True

    def call(self, args: Sequence) -> Call:
        call = Call(self.function, args, self.keywords, self.state)
        call.changed_by = self.changed, ()
        return call

    def part(self, place: int, outputs: frozenset[int]) -> "_Part":
        return self.parts.setdefault((place, outputs), _Part(place, outputs))

    @property
    def asks_grad_out(self) -> bool:
        return self.by_grad_out or any(part.by_grad_out for part in self.parts.values())

    @property
    def may_ask_grad_out(self) -> bool:
        return self.asks_grad_out or not self.constant

    @property
    def order(self) -> int:
        return max([self.whole, *(part.times for part in self.parts.values())])

    @property
    def is_by_jvp(self) -> bool:
        """Whether what is differentiated again is its jvp alone, and no backward."""
        return (
            self.order > 1 and not self.recorded and all(p.times < 2 for p in self.parts.values())
        )

    def outputs(self, order: int) -> frozenset[int]:
        """The outputs through which it is differentiated this often or more; empty for all."""
        unseen = self.whole >= order
        return frozenset[int]().union(
            *(part.outputs for part in self.parts.values() if unseen or part.times >= order)
        )

    def leaves_out(self, args: Sequence, order: int) -> list[int]:
        """The places of inputs by which it is differentiated less often than this."""
        if self.whole >= order:
            return []
        used = {part.place for part in self.parts.values() if part.times >= order}
        return [p for p, arg in enumerate(args) if requires_grad(arg) and p not in used]

    def by_outputs(self) -> list["_Kind"]:
        """This kind, and if some outputs get only gradients that are not differentiated again, a
        kind for these, which have to be right at first order."""
        again, once = self.outputs(2), self.outputs(1)
        if self.order < 2 or not again or once <= again:
            return [self]
        parts = {
            key: _Part(part.place, part.outputs - again, times=1)
            for key, part in self.parts.items()
            if part.outputs - again
        }
        return [self, replace(self, whole=0, parts=parts)]

    def in_place_of(self, args: Sequence) -> dict[int, Any]:
        """Dict: the id of a tensor that was an argument -> the argument that replaces it."""
        there = ((place, origin()) for place, origin in self.origins.items())
        return {id(tensor): args[place] for place, tensor in there if tensor is not None}

    @property
    def is_idle(self) -> bool:
        """Whether no such call has been differentiated, or can be any more, as under `no_grad`."""
        return self.order == 0 and self.last() is None


@dataclass
class _Part:
    """The derivative of some outputs of a Function by one input."""

    place: int
    outputs: frozenset[int]
    times: int = 0  # how often it is taken, counting the first derivative
    by_grad_out: bool = False  # a pass asks how it depends on grad_out

    def differentiated(self, times: int) -> None:
        self.times = max(self.times, times)

    def differentiated_by_grad_out(self) -> None:
        self.by_grad_out = True


@dataclass
class _Uses:
    """How one Function was called."""

    calls: int = 0
    in_backward: bool = True
    called: Place | None = None
    kinds: dict[tuple, _Kind] = field(default_factory=dict)
    same: dict[tuple, _Kind] = field(default_factory=dict)  # by kind without numbers, and steps
    unkept: Counter[int] = field(default_factory=Counter)  # way -> how many calls were not kept
    beyond: int = 0  # how often these are differentiated
    recorded: bool = False  # whether a derivative of one of these was recorded
    lost: str = ""  # why torch follows no derivative through a call
    forward: set[str] = field(default_factory=set)  # as in `Diagnosis.forward_mode`

    last: Any = None  # set as in `_Kind`, and not read

    def is_lost(self, why: str, times: int) -> None:
        self.lost = why
        self.differentiated(times)

    def differentiated(self, times: int) -> None:
        self.beyond = max(self.beyond, times)

    def differentiated_by_grad_out(self) -> None:
        """Of what is left over nothing is called right."""

    def of_this_kind(self, call: Call, way: int = 0) -> "_Kind | _Uses":
        """The `_Kind` of a call; `self` if there are too many kinds, or its inputs have changed.

        Args:
            way: what its backward did, where others of the kind have done something else.
        """
        plain = call.plain() if call.transformed else call
        plain.did = call.did
        key, *known = _key(plain, way)
        if key not in self.kinds:
            room, size = _room(self.kinds), _elements(plain.given)
            full = len(self.kinds) >= MOST_KINDS or room < size <= LARGE_INPUTS
            if call.inputs_changed or full:
                self.unkept[way] += 1
                return self
            with torch.inference_mode(False):  # in which a copy could not be differentiated
                self.kinds[key] = _kept(plain, room, *known)
        return self.kinds[key]

    def has_run(self, call: Call, kind: "_Kind") -> "_Kind | _Uses":
        """The kind of a call whose backward has run. What that did may be new; or it may be what a
        call with other numbers did, so that these make no difference."""
        did = call.did_both
        if did is None or did.steps == kind.way:
            return kind
        key, *_ = _key(call, did.steps)
        if kind.way or kind.first() is not call:  # the arguments that are kept are of another call
            found = self.of_this_kind(call, did.steps)
            if isinstance(found, _Uses) or found.way:
                return found
            kind = found
        kind.way, kind.changed = did.steps, call.changed
        same = self.kinds.get(key, kind)
        if same is kind:
            same = self.same.setdefault((kind.any_numbers, did.exactly), kind)
        if same is not kind:
            self.kinds = {key: each for key, each in self.kinds.items() if each is not kind}
        return same

    @property
    def others(self) -> int:
        """The number of calls that are like none of those that are kept."""
        ways = {kind.way for kind in self.kinds.values()} - {0}
        return sum(number for way, number in self.unkept.items() if way not in ways)

    @property
    def order(self) -> int:
        return max([self.beyond, *(kind.order for kind in self.kinds.values())])


class Met(Listener):
    """Collects the custom Functions that are called, with one call of each kind."""

    def __init__(self, ignore: Iterable[Ignored] = ()) -> None:
        self.functions: dict[type | Region, _Uses] = {}
        self.ignored = listed(ignore)
        self._passes = Passes()
        self._counted: weakref.WeakKeyDictionary[Call, _Uses | _Kind] = weakref.WeakKeyDictionary()

    @contextmanager
    def listening(self, alone: bool = False) -> Iterator[None]:
        """Inside, the calls of custom Functions are collected.

        Args:
            alone: collect only calls of this thread, and tell no other listener of these.
        """
        rehearsed("diagnose_all()", _diagnoses, "right", "wrong")
        heard = listening_alone(Here(self)) if alone else listening(self)
        with heard, self._passes.met():
            yield

    def called(self, call: Call) -> None:
        if is_inside_region(call.function):
            return
        uses = self._met(call.region or call.function, call.in_backward)
        uses.calls += not call.transformed
        if call.is_lost:  # a second differentiation cannot be seen
            uses.is_lost(IN_BATCH, 2)
        if writes_in_place(call.function) and not self._ignores(call.function):
            uses.is_lost(Phrase("{}.", WRITES), 1)
        if _can_be_asked(call):
            self._count(call, call)

    def not_followed(self, function: type, why: str) -> None:
        uses = self._met(function, is_in_backward())
        uses.calls += 1
        if not self._ignores(function):
            uses.is_lost(Phrase("{}.", why), max(1, sum(levels())))

    def without_kernel(self, call: Call, node: Any) -> None:
        uses = self._met(call.function, False)
        uses.calls += 1
        if _can_be_asked(call) and not self._ignores(call.function):
            self._count(call, call)
            node.register_prehook(functools.partial(self._passed, call))

    def _passed(self, call: Call, grad_outs: Any) -> None:
        counted = self._counted[call]
        counted.differentiated(_times(call))
        counted.recorded |= torch.is_grad_enabled()

    def _met(self, function: type | Region, in_backward: bool) -> _Uses:
        uses = self.functions.setdefault(function, _Uses())
        uses.in_backward &= in_backward
        uses.called = uses.called or calling()
        return uses

    def _ignores(self, function: type) -> bool:
        return any(matches(each, *_known_by(function)) for each in self.ignored)

    def _count(self, call: Call, asked: Call) -> None:
        """Count a call as one of the kind of `asked`, the call that will be diagnosed for it."""
        with outside(call):
            uses = self.functions[call.region or call.function]
            self._counted[call] = kind = uses.of_this_kind(asked)
        kind.last = weakref.ref(call)

    def watches(self, call: Call) -> bool:
        uses = self.functions.get(call.function)
        return uses is None or uses.calls < WATCHED

    def differentiated(self, call: Call, grad_outs: Any) -> None:
        uses = self.functions.get(call.region or call.function)
        if uses is not None and in_forward_mode():
            uses.forward.add(TANGENT_OF_GRADIENT)
        if call in self._counted:
            self._count_parts(call, grad_outs)
            self._counted[call].recorded |= torch.is_grad_enabled()

    def after_backward(self, node: Any, call: Call | None, grad_outs: Any, grads: Any) -> Any:
        if call is not None and call in self._counted:
            counted = self._counted[call]
            if isinstance(counted, _Kind):
                uses = self.functions[call.region or call.function]
                self._counted[call] = counted = uses.has_run(call, counted)
                counted.recorded = True
                counted.last = weakref.ref(call)
            part = self._count_parts(call, grad_outs)
            self._passes.recorded(part, _times(call), node, call.given, grad_outs, grads)
        return grads

    def _count_parts(self, call: Call, grad_outs: Any) -> Callable[[int], Counted]:
        """Count the parts that the running backward is asked for. Returns a function from the place
        of a gradient to what counts it."""
        counted, wanted = self._counted[call], wanted_here()
        if isinstance(counted, _Uses):
            counted.differentiated(_times(call))
            return lambda place: counted
        counted.constant &= not call.transformed
        outputs = frozenset(i for i, g in enumerate(only_used(grad_outs)) if g is not None)
        tensors = [place for place, arg in enumerate(call.given) if isinstance(arg, Tensor)]
        if call.transformed or len(wanted) != len(tensors):
            wanted = [True] * len(tensors)
        for place, is_wanted in zip(tensors, wanted, strict=True):
            if is_wanted:
                counted.part(place, outputs).differentiated(_times(call))
        return lambda place: counted.part(place, outputs)

    def after_jvp(self, call: Call, tangents: Any, outs: Any) -> Any:
        uses = self.functions.get(call.function)
        if uses is not None:
            forward, reverse = levels()
            ways = (JVP, True), (GRADIENT_OF_TANGENT, reverse), (NESTED, forward > 1)
            uses.forward.update(way for way, gone in ways if gone)
        if call not in self._counted and uses is not None:
            with outside(call):
                asked = call.plain(every=True)  # since nothing may require grad
            if _can_be_asked(asked):
                self._count(call, asked)
        if call in self._counted and uses is not None:
            counted = self._counted[call]
            times = _times(call) if any(levels()) or call.transformed else 1
            counted.differentiated(times)

            def follow() -> None:
                counted.differentiated(times + 1)
                uses.forward.add(GRADIENT_OF_TANGENT)

            self._passes.tangents(follow, call, outs)
        return outs

    def _counted_ones(self) -> Iterator["_Uses | _Kind"]:
        for uses in self.functions.values():
            yield uses
            yield from uses.kinds.values()

    def _each_once(self) -> "dict[type | Region, _Uses]":
        """The Functions, without the classes that `torch.vmap` has made of them below a level that
        was differentiated: these only ran."""
        found = dict(self.functions)
        for function, uses in self.functions.items():
            own = function if isinstance(function, Region) else behind_vmap(function)
            if own is not function and own in found and not uses.order:
                found[own].calls += found.pop(function).calls
        return found

    def diagnosed(
        self,
        error: BaseException | None = None,
        progress: bool = True,
        at_least: int = 0,
        within: float | None = None,
        **options: Any,
    ) -> StepDiagnosis:
        """Diagnose each Function that is differentiated `at_least` this often; all of them `within`
        this many seconds, beginning with those that are differentiated most often."""
        end = None if within is None else time.monotonic() + within
        if error is not None:  # it may not have come to a derivative of one that it recorded
            for counted in self._counted_ones():
                counted.differentiated(2 * counted.recorded)
        found = [(f, u) for f, u in self._each_once().items() if u.order >= at_least]
        if end is not None:
            found.sort(key=lambda each: -each[1].order)
        said, rows = _Progress(progress), []
        for number, (function, uses) in enumerate(found, start=1):
            said.say(f"diagnose_all: {number} of {len(found)}, {_name(function)}")
            rows.append(_row(function, uses, {**options, "ignore": self.ignored}, end))
        said.done()
        rows.sort(key=lambda r: (r.in_backward and r.ok, WORST_FIRST.index(r.verdict)))
        met = [_known_by(f) for f in self.functions if not isinstance(f, Region)]
        return StepDiagnosis(rows, error, unmet=unmet(self.ignored, met))


class _Progress:
    """Shows progress in one line that is overwritten, in a terminal or a notebook only."""

    def __init__(self, wanted: bool) -> None:
        in_notebook = "ipykernel" in type(sys.stdout).__module__
        self.stream = sys.stdout if in_notebook else sys.stderr  # where stderr is shown in red
        self.wanted = wanted and (in_notebook or self.stream.isatty())
        self.begins, self.width = time.monotonic() + (PATIENCE if in_notebook else 0), 0

    def say(self, text: str) -> None:
        if self.wanted and time.monotonic() >= self.begins:
            print(f"\r{text:{self.width}}", end="", file=self.stream, flush=True)
            self.width = len(text)

    def done(self) -> None:
        if self.width:
            print(f"\r{'':{self.width}}\r", end="", file=self.stream, flush=True)


def _not_seen() -> FunctionRow:
    """A row for code that was compiled while a mode was active, so that no Function was met in
    it."""
    unknown = Region("what was compiled inside", None, 0)
    said = "no Function in it could be met: call torch.compile before the step, or as that."
    found, note = _not_checked(unknown, said), f"not checked: {said}"
    return FunctionRow(unknown, Place("", 0), None, 1, 2, found, notes=(note,))


def _known_by(function):
    return names_of(function), place_of(function)


def _can_be_asked(call):
    """Whether the Function of a call is the user's, and there is anything to differentiate."""
    own = not is_left_alone(call.function) or call.region is not None
    return own and any(x.numel() for x in call.inputs.values())


def _times(call: Call) -> int:
    """How often a Function is differentiated now: by the transforms of `torch.func` that are active
    or were (`vjp` and `jacrev` have left theirs), or by autograd; and by forward mode, too."""
    forward, reverse = levels()
    return max(1, forward + reverse, call.transformed) + (in_forward_mode() and not forward)


def _elements(args: Sequence) -> int:
    tensors = [x for x in args if isinstance(x, Tensor)]
    return sum(x.numel() for x in tensors if x.layout is torch.strided and not x.is_nested)


def _key(call: Call, way: int) -> tuple[tuple, tuple, tuple]:
    """The key of a call's kind, with what its backward did; the kind without its numbers; and what
    the class holds."""
    kind, any_numbers, held = regardless(call)
    return (call.function, kind, call.did and call.did.steps, way), any_numbers, held


def _room(kinds: dict[tuple, _Kind]) -> int:
    """How many more elements may be kept."""
    if len(kinds) >= MOST_KINDS:
        for key in [key for key, kind in kinds.items() if kind.is_idle]:
            del kinds[key]
    return ROOM - sum(kind.elements for kind in kinds.values() if kind.args)


def _kept(call: Call, room: int, any_numbers: tuple, held: tuple) -> _Kind:
    """The `_Kind` of a call. Raises nothing, since the step is running."""
    try:
        kind = _copied(call, room)
    except Exception as error:  # raised by a class of tensors
        said = f"its inputs could not be copied: {described(error)}"
        kind = _Kind(call.function, [], [], {}, call.state, 0, set(), {}, refused=said)
    kind.any_numbers, kind.did, kind.first = any_numbers, call.did, weakref.ref(call)
    kind.changed, kind.held = call.changed, held
    return kind


def _copied(call: Call, room: int) -> _Kind:
    args, size = list(call.given), _elements(call.given)
    kept = [] if size > min(room, TOO_LARGE) else [as_leaf(arg) for arg in args]
    parts = cut_down(args) if size > LARGE_INPUTS else []
    smaller = [(part, change_of(args, part)) for part in parts]
    own = {p for p, arg in enumerate(args) if isinstance(arg, torch.nn.Parameter)}
    draws = call.state.draws
    state = call.state.with_draws(draws and draws.own())  # the states of all generators take 40 KB
    origins = {p: weakref.ref(arg) for p, arg in enumerate(args) if isinstance(arg, Tensor)}
    return _Kind(call.function, kept, smaller, dict(call.kwargs), state, size, own, origins)


# The diagnosis of each Function.


def _row(
    function: type | Region, uses: _Uses, options: dict, end: float | None = None
) -> FunctionRow:
    diagnosis, notes = _worst(function, uses, options, end)
    order = uses.order
    region = isinstance(function, Region)
    if diagnosis.verdict is Verdict.NOT_CHECKED and order > region:
        notes += tuple(Phrase("not checked: {}", f.message) for f in diagnosis.findings[:1])
    if diagnosis.ok:
        notes += tuple(f.message for f in diagnosis.findings if f.code in LESS_THAN_ALL)
    if uses.in_backward and not diagnosis.ok:
        notes += (IN_BACKWARD,)
    if order > HIGHEST:
        notes += (Phrase("the step differentiates it {} times; checked up to {}.", order, HIGHEST),)
    if isinstance(function, Region):
        place = Place(function.file or "", function.line, function.module)
    else:
        place = place_of(function)
    return FunctionRow(
        function, place, uses.called, uses.calls, order, diagnosis, uses.in_backward, notes
    )


def _worst(
    function: type | Region, uses: _Uses, options: dict, end: float | None
) -> tuple[Diagnosis, tuple[str, ...]]:
    """The diagnosis of the worst kind of call, each judged to the order of the step, and its
    notes."""
    if not isinstance(function, Region) and is_left_alone(function):
        return _not_checked(
            function, Phrase("it is part of torch's own machinery, and only counted.")
        ), ()
    if uses.lost:
        return _not_checked(function, uses.lost), ()
    no_notes: tuple[str, ...] = ()
    kinds = [kind for kind in uses.kinds.values() if kind.order or not uses.order]
    kinds = [part for kind in kinds for part in kind.by_outputs()]
    if not kinds:
        return _not_checked(
            function, Phrase("none of its inputs requires grad here and has elements.")
        ), ()
    if end is not None and time.monotonic() > end:
        return _not_checked(function, NO_TIME), ()
    if isinstance(function, Region):
        kinds = [kind for kind in kinds if kind.order > 1]
        if not kinds:
            return _not_checked(function, Phrase("the step takes no second derivative of it.")), ()
        diagnosed = [(_in_time(function, kind, end), no_notes) for kind in kinds]
    else:

        def each(kinds):
            return [
                _as_the_step_goes(*_diagnose(function, kind, options, end), kind, uses.forward)
                for kind in kinds
            ]

        diagnosed, more = each(kinds[:KINDS]), kinds[KINDS:]
        if any(_is_worst(d, k.order) for (d, _), k in zip(diagnosed, kinds, strict=False)):
            more = []  # no other can be shown in its place
        suspects = [kind for kind in more if uses.forward or not _is_fine(kind)]
        diagnosed += each(suspects[:SUSPECTS])
        kinds = [*kinds[:KINDS], *suspects[:SUSPECTS]]
        if all(d.ok and not d.meant and _is_still(d) for d, _ in diagnosed):
            text = Phrase(
                "its output does not change with the tensors that it was handed, at these values; "
                "perhaps it takes a module's own parameters: hand `diagnose` a function of these."
            )
            return _not_checked(function, text), ()
        left = len(suspects[SUSPECTS:]) + uses.others
        if left:
            text = Phrase("{} more calls, with other numbers or operations, were not judged.", left)
            if all(_is_right(d, k.order) for (d, _), k in zip(diagnosed, kinds, strict=True)):
                return _not_checked(function, Phrase("{} Those that were are right.", text)), ()
            diagnosed = [(d, (*notes, text)) for d, notes in diagnosed]

    def goodness(number):
        order, diagnosis = kinds[number].order, diagnosed[number][0]
        return _is_right(diagnosis, order), -order, WORST_FIRST.index(diagnosis.verdict)

    return diagnosed[min(range(len(kinds)), key=goodness)]


def _is_fine(kind: _Kind) -> bool:
    """Whether a trial, which is faster than `diagnose`, finds all that is asked to be right."""
    if kind.order > 2 or not kind.args:
        return False
    try:
        truth = Trial(kind.call(kind.args), None)
        if kind.order == 1:
            return truth.first() is Outcome.RIGHT
        return _is_judged_right(truth) and truth.first() is Outcome.RIGHT
    except Unknown:
        return False


def _is_right_by_inputs(kind: _Kind) -> bool:
    """Whether the second derivative is right where grad_out is a constant."""
    if not kind.args or kind.changed:
        return False
    try:
        truth = Trial(kind.call(kind.args), None)
        truth.without_graph()
        return _is_judged_right(truth)
    except Unknown:
        return False


def _is_right_by_grad_out(kind: _Kind) -> bool:
    """Whether its gradient depends on grad_out as it should. It is linear in that."""
    if not kind.args or kind.changed:
        return False
    try:
        found = Trial(kind.call(kind.args), None).judge()
        return found.by_grad_out.outcome is Outcome.RIGHT and not found.recorded.bad
    except Unknown:
        return False


def _has_right_jvp(kind: _Kind) -> bool:
    return bool(kind.args) and not kind.changed and not has_wrong_jvp(kind.call(kind.args))


def _is_judged_right(truth: Trial) -> bool:
    found = truth.judge()
    return not (found.wrong or found.error or found.unresolved) and truth.tells()


def _as_the_step_goes(
    found: Diagnosis, notes: tuple[str, ...], kind: _Kind, forward: set[str]
) -> tuple[Diagnosis, tuple[str, ...]]:
    """The diagnosis with a verdict for this step: what is wrong in a second derivative, or in
    forward mode, counts only if the step takes it."""
    differs = [f for f in found.findings if f.code == "first_derivative_differs"]
    if kind.order == 1 and differs and found.verdict is not Verdict.FIRST_DERIVATIVE_WRONG:
        rest = [replace(f, severity="note") for f in found.findings if f not in differs]
        found = replace(found, verdict=Verdict.SURROGATE_GRADIENT, findings=[*differs, *rest])
    cut = not found.ok and any(f.code == "grad_out_path_cut" for f in found.findings)
    if kind.asks_grad_out and not found.ok and (cut or not _is_right_by_grad_out(kind)):
        kind.differentiated(2)
    elif cut and kind.order == 2 and not kind.may_ask_grad_out and _is_right_by_inputs(kind):
        found = _with(found, Verdict.SUPPORTED, "grad_out_path_cut", "warning")
        return found, (*notes, BY_INPUTS)
    by_jvp = kind.is_by_jvp and NESTED not in forward
    if not found.ok and by_jvp and _is_right(found, 1) and _has_right_jvp(kind):
        code = next((f.code for f in found.findings if f.cause), found.verdict.value)
        found = _with(found, Verdict.SUPPORTED, code, "warning")
        return found, (*notes, Phrase(BY_JVP, code))
    rows = {**found.forward_mode, **found.torch_func}
    wrong = {name for name, row in rows.items() if row.outcome in WRONG} & forward
    if found.ok and wrong:
        code = "nested_forward_mode"
        return _with(found, Verdict.WRONG_IN_FORWARD_MODE, code, "error"), notes
    if found.verdict is Verdict.WRONG_IN_FORWARD_MODE and not wrong:
        found = _with(found, Verdict.SUPPORTED, "wrong_in_forward_mode", "warning")
        return found, (*notes, BY_BACKWARD)
    return found, notes


def _with(found, verdict, code, severity):
    """The diagnosis with another verdict, and with the finding of this code first."""
    own = [replace(f, severity=severity) for f in found.findings if f.code == code]
    rest = [f for f in found.findings if f.code != code]
    return replace(found, verdict=verdict, findings=[*own, *rest])


def _is_right(diagnosis: Diagnosis, order: int) -> bool:
    """Whether a Function with this diagnosis is right to this order."""
    if order != 1 or diagnosis.ok:
        return order == 0 or diagnosis.ok
    first = diagnosis.first
    if first is None or diagnosis.verdict in (
        Verdict.FIRST_DERIVATIVE_WRONG,
        Verdict.WRONG_IN_FORWARD_MODE,
    ):
        return False
    if any(finding.code == "inexact_first_derivative" for finding in diagnosis.findings):
        return False
    return first.outcome is (Outcome.WRONG if diagnosis.meant else Outcome.RIGHT)


def _is_worst(diagnosis: Diagnosis, order: int) -> bool:
    return diagnosis.verdict is WORST_FIRST[0] and not _is_right(diagnosis, order)


def _is_still(diagnosis: Diagnosis) -> bool:
    """Whether only 0 was expected, in the first derivative and in the second."""
    rows = [diagnosis.first, *diagnosis.settings.values()]
    return all(row is not None and row.zero for row in rows)


def _of_region(region: Region, kind: _Kind) -> Diagnosis:
    """Diagnose one region, called as it was compiled: its second derivative by what is no
    parameter, and then by all, as in training."""
    if not kind.args:
        text = Phrase("its inputs have {:,} elements, too many to keep a copy.", kind.elements)
        return _not_checked(region, text)
    given = [x.detach() if p in kind.parameters else x for p, x in enumerate(kind.args)]
    for args in (given, kind.args) if kind.parameters else (given,):
        call = kind.call(args)
        call.region = region
        if not call.inputs:
            continue
        try:
            found = Trial(call, None).judge()
        except Unknown as reason:
            return _not_checked(region, Phrase("{}.", reason.why))
        why: str = KEEPS
        if found.wrong:
            verdict = Verdict.SILENTLY_WRONG
            said = "A second derivative through {} can be wrong without an error: it {}. {}"
        elif found.error:
            verdict, why = Verdict.RAISES, first_line(found.error)
            said = "A second derivative through {} raises: {}. {}"
        else:
            continue
        compiled = Phrase("the compiled region of {}", region.of)
        text = Phrase(said, compiled, why, NOT_COMPILED)
        about = region.name, region.file or "", region.line
        finding = Finding("compiled_region", text, 4, True, "error", *about)
        return Diagnosis(region.name, verdict, [finding])
    return Diagnosis(region.name, Verdict.SUPPORTED, [])


def _in_time(region: Region, kind: _Kind, end: float | None) -> Diagnosis:
    try:
        with limited(_left(end)):
            return _of_region(region, kind)
    except TookTooLong:
        return _not_checked(region, NO_TIME)


def _left(end: float | None) -> float | None:
    """The seconds that are left until `end`; None if that is None."""
    return None if end is None else max(0.01, end - time.monotonic())


def _diagnose(
    function: Any,
    kind: _Kind,
    options: dict[str, Any],
    end: float | None,
) -> tuple[Diagnosis, tuple[str, ...]]:
    if end is not None:
        options = {**options, "timeout": _left(end)}
    options = {**options, "order": min(max(kind.order, 2), HIGHEST)}
    outputs = kind.outputs(min(kind.order, 2))

    if kind.refused:
        return _not_checked(function, kind.refused), ()
    args = kind.args or kind.smaller[0][0]
    around = Surroundings(function, *args, kind.keywords)
    held = weakref.ref(around)  # weak, since `diagnose` looks at what fn holds

    def fn(*args):
        others = kind.in_place_of(args)
        exchange = functools.partial(_exchange, held, others)
        exchanged = exchange()
        there: Any = held()
        there.write(kind.changed, others)
        if seed is not None:
            seed_generators(seed)
        if kind.state.draws is not None:
            kind.state.draws.put_back()
        handed, keywords = anew(args, kind.keywords, others)
        with kind.state.as_then():
            outs = applied(function, *handed, **keywords)
        for node in {y.grad_fn for y in outs if isinstance(y, Tensor)} if exchanged else ():
            if node is not None:  # so that backward finds what its own forward found
                node.register_prehook(exchange)
        return tuple(y for i, y in enumerate(outs) if not outputs or i in outputs)

    fn.__name__, seed = function.__name__, None
    ignored = [each for each in options["ignore"] if matches(each, *_known_by(function))]
    options = {**options, "ignore": tuple(ignored)}
    with unheard(), around.unchanged(), as_now(kind.changed), kind.state.drawn_again():
        seed = _seed(fn, args, kind)
        if seed == SEEDS:
            return _not_checked(function, Phrase("{}.", DOES_ANOTHER)), ()
        for smaller, change in kind.smaller:
            if runs(fn, smaller):
                found = _as_given(fn, smaller, kind, outputs, options)
                if not found.ok or _does_that(fn, smaller, kind):
                    return found, (f"inputs cut down {change}.", *_not_moved(smaller))
                if not kind.args:
                    break
                few, given, which = few_moved(fn, args)
                note = f"with less in them it does something else, so {which} were moved."
                return _asked(few, given, options), (note,)
        if kind.args:
            found = _as_given(fn, args, kind, outputs, options)
            if found.verdict is Verdict.NOT_CHECKED and around.beyond:
                return _not_checked(function, Phrase("{}.", around.beyond)), ()
            return found, _not_moved(args)
        runs_smaller = any(runs(fn, smaller) for smaller, _ in kind.smaller)
    elements = Phrase("its inputs have {:,} elements and could not be cut down.", kind.elements)
    if runs_smaller:
        said = "its inputs have {:,} elements, and with less it does something else."
        elements = Phrase(said, kind.elements)
    return _not_checked(function, elements), ()


def _exchange(around: weakref.ref, others: dict, *grad_outs: object) -> bool | None:
    """Put the others in the place of the tensors that the Function holds, and return whether there
    were any; None as the hook of a node."""
    there: Any = around()
    exchanged = there.exchange(others)
    return None if grad_outs else exchanged


def _does_that(fn: Any, args: list, kind: _Kind) -> bool:
    """Whether forward does the same with smaller inputs as it did with all, if that is known."""
    return kind.did is None or any(d.steps == kind.did.steps for d in _done(fn, args))


def _seed(fn: Any, args: list, kind: _Kind) -> int | None:
    """A seed with which forward and backward do what they did at the call; None if none is needed.

    It is SEEDS if there is no smaller one, or if nothing is drawn, but the Function does something
    else since it changes something, or since what it reads was set to something else.
    """
    if not kind.way:
        return None
    other = kind.changed or kind.held != held_by_class(kind.function)
    for seed in range(SEEDS):
        seed_generators(seed)
        before = Draws.now()
        does_that = any(d.steps == kind.way for d in _done(fn, args, backward=True))
        if before.are_as_now():
            return SEEDS if other and not does_that else None
        if does_that:
            return seed
    return SEEDS


def _done(fn: Any, args: list, backward: bool = False) -> list[Did]:
    """What the Function does in forward; with `backward`, in both, for a grad_out with a graph and
    for one without."""
    done: list[Did | None] = []

    class Watcher(Listener):
        def watches(self, call: Call) -> bool:
            return True

        def called(self, call: Call) -> None:
            if not backward:
                done.append(call.did)

        def after_backward(self, node: Any, call: Call | None, grad_outs: Any, grads: Any) -> Any:
            if call is not None:
                done.append(call.did_both)
            return grads

    with listening_alone(Watcher()), unless_gone():  # of the Function
        outs = [y for y in fn(*args) if y.requires_grad]
        inputs = [x for x in args if isinstance(x, Tensor) and x.requires_grad]
        for follows in (True, False) if backward else ():
            grad_outs = [torch.ones_like(y, requires_grad=follows) for y in outs]
            torch.autograd.grad(
                outs, inputs, grad_outs, create_graph=True, retain_graph=True, allow_unused=True
            )
    return [did for did in done if did is not None]


def _not_moved(args):
    numbers = [a for a in args if isinstance(a, Tensor) and a.requires_grad and not unusual(a)]
    still = sum(int((~x.detach().isfinite()).sum()) for x in numbers)
    return (Phrase(UNMOVED, still, sum(x.numel() for x in numbers)),) if still else ()


def _as_given(
    fn: Callable, args: list, kind: _Kind, outputs: frozenset[int], options: dict[str, Any]
) -> Diagnosis:
    """What `diagnose` finds, which computes in float64 where it can, and needs finite numbers. A
    Function that is not wrong there, but was called in 16 bits or under autocast, is also tried in
    its own precision; one whose outputs or inputs are not finite, as far as they are."""
    found = _asked(fn, args, options)
    if not _is_right(found, kind.order):
        found = _as_far_as_it_is_used(found, args, kind, outputs)
        found = found if found.ok else _up_to_phases(found, fn, args, options)
    tensors = [a for a in args if isinstance(a, Tensor)]
    narrow = kind.state.autocast or any(x.dtype in SIXTEEN_BITS for x in tensors)
    undecided = found.verdict is Verdict.NOT_CHECKED
    broken = [f for f in found.findings if f.code == "not_finite_here"]
    if _not_moved(args):
        broken += [f for f in found.findings if found.verdict is Verdict.NOT_FINITE]
    if not broken and not (narrow and (found.ok or undecided)):
        return found
    call = kind.call(args)
    try:
        truth = Trial(call, None, outputs=outputs or None)
        judged = truth.judge()
        if broken:
            return _as_far_as_it_is_finite(found, truth, judged, kind.order, options)
    except Unknown:
        return found
    if judged.wrong and truth.lost_in_cast:
        lost = Finding("input_copy_saved", LOST_IN_CAST, 1, True, function=found.name)
        return replace(found, verdict=Verdict.SILENTLY_WRONG, findings=[lost])
    return found


def _up_to_phases(found: Diagnosis, fn: Callable, args: list, options: dict[str, Any]) -> Diagnosis:
    """`found`; or "supported" if nothing is wrong once complex eigenvectors are turned so that the
    largest element of each is real; or "not_checked" if it is not known that they are such."""
    with unless_gone():  # of the Function
        outs = fn(*args)
        surely = turn_of(args, outs)
        turn = surely or turn_of_units(outs)
        if turn is None:
            return found

        @functools.wraps(fn)
        def turned(*given):
            return tuple(turn(fn(*given)))

        again = _asked(turned, args, options)
        if again.ok and surely is not None:
            note = Finding("not_used", PHASES, 1, severity="note")
            return replace(again, findings=[*again.findings, note])
        if again.ok:
            return _not_checked(fn, Phrase("{}.", MAYBE))
    return found


def _as_far_as_it_is_used(
    found: Diagnosis, args: list, kind: _Kind, outputs: frozenset[int]
) -> Diagnosis:
    """`found`; or "supported" if only a gradient is wrong that the step does not take, or does not
    differentiate."""
    once, again = (kind.leaves_out(args, order) for order in (1, min(2, kind.order)))
    if kind.order > 2 or not again or found.meant:
        return found
    try:
        call = kind.call(args)
        truth = Trial(call, None, outputs=outputs or None)
        places = [number for number, place in enumerate(truth.places) if place not in once]
        if any(truth.first(place=number) is not Outcome.RIGHT for number in places):
            return found
        judged = truth.judge()
    except Unknown:
        return found
    unknown = judged.error or judged.unresolved or not truth.tells()
    if kind.order == 2 and (unknown or not set(judged.wrong) <= set(again)):
        return found
    names = argument_names(kind.function) or [f"input {place}" for place in range(len(args))]
    text = Phrase(NOT_USED, ", ".join(names[place] for place in again), kind.order)
    return replace(
        found, verdict=Verdict.SUPPORTED, findings=[Finding("not_used", text, 1, severity="note")]
    )


def _as_far_as_it_is_finite(
    found: Diagnosis, truth: Trial, judged: Checked, order: int, options: dict[str, Any]
) -> Diagnosis:
    once = order == 1  # the step asks for no second derivative
    if judged.wrong and not once:
        elsewhere = truth.alone(diagnose)  # where all is finite
        causes = [f for f in elsewhere.findings if f.severity == "error"]
        return replace(found, verdict=Verdict.SILENTLY_WRONG, findings=causes or found.findings)
    if options["order"] > 2 or not once and (judged.error or judged.unresolved):
        return found
    if truth.first() is not Outcome.RIGHT:
        return found
    note = Finding("not_finite_here", Phrase(LEFT_OUT, *truth.left_out()), 1, severity="note")
    return replace(found, verdict=Verdict.SUPPORTED, findings=[note])


def _asked(fn: Any, args: list, options: dict[str, Any]) -> Diagnosis:
    """What `diagnose` finds. Its inputs are the arguments that are tensors, not those in a list or
    in an object. Raises `ToolFailure` if `diagnose` has failed itself."""
    places = [place for place, arg in enumerate(args) if isinstance(arg, Tensor)]
    others = [None if isinstance(arg, Tensor) else arg for arg in args]

    @functools.wraps(fn)
    def of_tensors(*tensors):
        given = others[:]
        for place, tensor in zip(places, tensors, strict=True):
            given[place] = tensor
        return fn(*given)

    found = diagnose(of_tensors, *[args[place] for place in places], **options)
    if found.findings and found.findings[0].code == TOOL_FAILED:
        raise ToolFailure(found.findings[0].message)
    return found


def _not_checked(function, text):
    finding = Finding("not_called", text, lesson=1)
    return Diagnosis(_name(function), Verdict.NOT_CHECKED, [finding])


def _diagnoses(function: Any, x: Tensor) -> str:
    """What diagnose_all() finds in a step with a Function of this package, as its rehearsal."""
    met = Met()
    with met.listening(alone=True):
        second_derivative(function, x)
    (row,) = met.diagnosed(progress=False).rows
    said = f"{row.verdict.value} ({row.cause.code if row.cause else ''}) to order {row.order}"
    known = {
        "supported () to order 2": "right",
        "silently_wrong (intermediate_on_ctx) to order 2": "wrong",
    }
    return known.get(said, said)


def _name(function):
    return function.name if isinstance(function, Region) else function.__name__
