"""Represents registered operators (`torch.library`) as Functions that their authors might write.

From what `register_autograd` gets, torch makes a Function in a file of its own, which is named
`GeneratedBackwardFor_…`. `function_of` replaces it by a class of ours wherever a Function is named,
looked at or called again. This class has the operator's name, its setup_context and its backward;
its forward is the operator's kernel, which autograd can record, and its apply calls the operator.

Each of the tensors in a list counts as an argument, as it does for torch. Among the keywords of a
call, `LISTS` says how many tensors each argument has, or None for one that is no such list.
"""

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from torch.autograd import Function

from ._torch import (
    BACKWARD,
    arguments_of,
    class_of,
    definition_of,
    is_declared_constant,
    is_followed,
    is_untracked,
    kernel_called,
    kernels_of,
    operator_behind,
    overload_of,
    registered,
    returns_of,
    tree_unflatten,
    writes,
    written_by,
)
from .failures import handed_over
from .phrases import Phrase
from .places import WRITTEN, Place, undecorated

WRITES = Phrase("it writes into what it is given, and torch follows no operator that does")
NO_TANGENT = Phrase(
    "forward mode goes through it, and torch drops the tangent of a registered operator without an "
    "error: differentiate it by backward"
)
NO_KERNEL = Phrase(
    "torch takes what it returns for a constant, since it has no kernel for an Autograd key, as "
    "register_autograd makes one"
)
RESULT_WITHOUT_GRAPH = Phrase(
    "it returns what has no graph (NumPy, detach), which torch takes for a constant"
)
LISTS = "lists of tensors"
ON_CTX = "_double_backward_lists"


class Operator:
    """What is known of a registered operator.

    Attributes:
        overload: the overload, such as `torch.ops.my.sinh.default`.
        backward, setup_context: the registered functions; None where there is none.
    """

    def __init__(self, overload: Any, info: Any) -> None:
        self.overload, self._info = overload, info
        self.backward, self.setup_context = registered(info)
        self.bodies = kernels_of(info)
        self._exchanged = 0

    @property
    def names(self) -> tuple[str, ...]:
        """The name "my::sinh", as its author writes it; then as torch's errors write it."""
        name: str = self.overload.name()
        plain, _, other = name.partition(".")
        return (name, plain) if other else (name, f"{name}.default")

    @property
    def has_keywords(self) -> bool:
        """Whether the operator has keyword-only arguments."""
        return any(a.kwarg_only for a in arguments_of(self.overload))

    def is_as_registered(self) -> bool:
        """Whether nothing else has been registered since."""
        return self._exchanged > 0 or registered(self._info) == (self.backward, self.setup_context)

    @contextmanager
    def with_backward(self, wrapper: Callable) -> Iterator[None]:
        """Inside, torch calls `wrapper(backward)` in the place of the backward."""
        before = registered(self._info)[0]
        self._exchanged += 1
        if before is not None:
            setattr(self._info, BACKWARD, wrapper(before))
        try:
            yield
        finally:
            setattr(self._info, BACKWARD, before)
            self._exchanged -= 1

    def set_up(self, ctx: Any, args: tuple, output: Any, keywords: dict[str, Any]) -> None:
        """Call setup_context as torch does: also with the arguments that have their default."""
        if self.setup_context is None:
            return
        rest = arguments_of(self.overload)[len(args) :]
        inputs = (*args, *(a.default_value for a in rest if not a.kwarg_only))
        by_name = {a.name: a.default_value for a in rest if a.kwarg_only} | keywords
        more = {"keyword_only_inputs": by_name} if self.has_keywords else {}
        handed_over(self.setup_context, ctx=ctx, inputs=inputs, output=output, **more)


_stands_for: weakref.WeakKeyDictionary[type, type] = weakref.WeakKeyDictionary()
_uncalled: dict[Any, type] = {}  # keeps these classes alive: nothing else refers to them
_operators: weakref.WeakKeyDictionary[type, Operator] = weakref.WeakKeyDictionary()


def operator_of(function: Any) -> Operator | None:
    """The operator that this class represents; None for a Function that a user has written."""
    return _operators.get(function)


def function_of(cls: Any) -> Any:
    """The class that represents an operator, for the class that torch has made of it; any other
    class, and None, as it is."""
    behind = None if cls is None else operator_behind(cls)
    if behind is None:
        return cls
    made = _stands_for.get(cls)
    if made is None or not _operators[made].is_as_registered():
        made = _stands_for[cls] = _function(Operator(*behind), cls)
    return made


def custom_of(node: Any) -> Any:
    """The Function of a node; None for an operation of torch."""
    return function_of(class_of(node))


def as_called(cls: Any, args: Sequence, kwargs: dict) -> tuple[Any, Sequence, dict[str, Any]]:
    """The Function, arguments and keywords, without ctx, for a call of the forward of a class that
    torch has made of an operator; for any other class, they are returned as they are."""
    function = function_of(cls)
    if function is cls:
        return cls, args, kwargs
    *args, metadata = args
    if hasattr(metadata, "input_spec"):
        *args, metadata = tree_unflatten(args, metadata.input_spec)
    keywords = dict(metadata.keyword_only_args)
    if any(map(_is_list, args)):
        keywords[LISTS] = _lists(args)
    return function, flattened(args), keywords


def uncalled(overload: Any) -> Any:
    """What stands for an operator that runs without the Function that torch makes of it, as it does
    in forward mode, or that has none."""
    if overload in _uncalled and _operators[_uncalled[overload]].is_as_registered():
        return _uncalled[overload]
    for made, known in _operators.items():
        if known.overload is overload and known.is_as_registered():
            return made
    operator = Operator(overload, definition_of(overload))
    made = _function(operator, _Registered) if operator.bodies else _of(operator)
    _uncalled[overload] = made
    return made


def as_forward(overload: Any, args: Sequence, kwargs: dict[str, Any]) -> tuple[tuple, dict]:
    """The arguments and keywords of an operator, as those of the forward of what stands for it."""
    given, keywords = list(args), dict(kwargs)
    for each in arguments_of(overload)[len(args) :]:
        if not each.kwarg_only:
            given.append(keywords.pop(each.name, each.default_value))
    if any(map(_is_list, given)):
        keywords[LISTS] = _lists(given)
    return flattened(given), keywords


class Watched:
    """An operator that is about to run where autograd records.

    Torch makes a Function of it only if something was registered with `register_autograd`.
    """

    def __init__(self, overload: Any, args: Sequence, kwargs: dict[str, Any]) -> None:
        self.given, self.keywords = as_forward(overload, args, kwargs)
        self.overload = overload
        written = written_by(overload, tuple(args), kwargs) if writes(overload) else ()
        self._written = [(value, value.grad_fn) for value in _inexact(written)]

    @property
    def all_given(self) -> tuple:
        return flattened([*self.given, *self.keywords.values()])

    def lost(self, outs: Any) -> tuple[str, Any]:
        """Why torch follows no derivative through what it has returned or written, "" if it does;
        and the node at which it ends, or None."""
        if not any(map(is_followed, self.all_given)):
            return "", None
        made = _inexact(outs)
        for tensor in (*made, *(tensor for tensor, _ in self._written)):
            if is_untracked(tensor):
                return NO_KERNEL, tensor.grad_fn
        followed = any(map(is_followed, made))
        past = (t.grad_fn is n and not (n is None and followed) for t, n in self._written)
        if any(past) and definition_of(self.overload) is None:  # else torch makes a Function of it
            return WRITES, None
        cut = bool(made) and not followed and not is_declared_constant(self.overload)
        return RESULT_WITHOUT_GRAPH if cut else "", None


def named(given: Any) -> str | None:
    """The name of a registered operator, "my::sinh"; None for anything else."""
    overload = overload_of(given)
    return None if overload is None else overload.name()


def writes_in_place(given: Any) -> bool:
    """Whether an operator, or the class that represents one, writes into its arguments; torch
    accepts no backward for such an operator."""
    overload = _overload(given)
    return overload is not None and writes(overload)


def argument_names(given: Any) -> list[str] | None:
    """The names of the arguments of an operator, or of the class that represents one; [] if some
    are lists of tensors; None for anything else."""
    overload = _overload(given)
    if overload is None:
        return None
    return [] if _has_lists(overload) else [a.name for a in arguments_of(overload)]


def _overload(given: Any) -> Any:
    known = operator_of(given) if isinstance(given, type) else None
    return known.overload if known else overload_of(given)


def flattened(values: Any) -> tuple:
    """A flat tuple of the values, or of a single value, with lists of tensors taken apart."""
    several = values if isinstance(values, (tuple, list)) else (values,)
    parts = (v if _is_list(v) else (v,) for v in several)
    return tuple(each for part in parts for each in part)


def _inexact(values: Any) -> list[Tensor]:
    """The tensors among the values that could have a graph."""
    tensors = [value for value in flattened(values) if isinstance(value, Tensor)]
    return [t for t in tensors if t.is_floating_point() or t.is_complex()]


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, Tensor) for each in value)


def _lists(values: Sequence) -> tuple[int | None, ...]:
    return tuple(len(v) if _is_list(v) else None for v in values)


def _gathered(values: Sequence, lists: tuple[int | None, ...] | None) -> tuple:
    """The values, with the lists of tensors put together again."""
    if lists is None:
        return tuple(values)
    left = iter(values)
    return tuple(next(left) if n is None else [next(left) for _ in range(n)] for n in lists)


def _has_lists(overload: Any) -> bool:
    """Whether an operator takes or returns a list of tensors."""
    values = *arguments_of(overload), *returns_of(overload)
    return any("List[Tensor]" in str(value.type) for value in values)


class _Registered(Function):
    """Base of the classes that represent operators."""

    @classmethod
    def apply(cls, *args: Any, **keywords: Any) -> Any:
        lists = keywords.pop(LISTS, None)
        return _operators[cls].overload(*_gathered(args, lists), **keywords)

    @classmethod
    def forward(cls, *args: Any, **keywords: Any) -> Any:
        tensors = [a for a in args if isinstance(a, Tensor)]
        gathered = _gathered(args, keywords.pop(LISTS, None))
        return kernel_called(_operators[cls].overload, tensors, gathered, keywords)

    @classmethod
    def setup_context(cls, ctx: Any, inputs: tuple, output: Any, **keywords: Any) -> None:
        lists = keywords.pop(LISTS, None)
        outputs = output if isinstance(output, tuple) else (output,)
        if lists or any(map(_is_list, outputs)):
            setattr(ctx, ON_CTX, (lists, _lists(outputs)))
        _operators[cls].set_up(ctx, _gathered(inputs, lists), output, keywords)


def _of_lists(backward: Callable) -> Callable:
    """A backward that takes and returns flat tuples, for one that takes and returns lists."""

    def flat(ctx: Any, *grads: Any) -> tuple:
        lists, outputs = getattr(ctx, ON_CTX, (None, None))
        needs = ctx.needs_input_grad
        ctx.needs_input_grad = _gathered(needs, lists)
        try:
            found = handed_over(backward, ctx, *_gathered(grads, outputs))
        finally:
            ctx.needs_input_grad = needs
        found = found if isinstance(found, tuple) else (found,)
        parts = zip(lists or [None] * len(found), found, strict=False)
        each = [(g,) if n is None else g or [None] * n for n, g in parts]
        return tuple(g for part in each for g in part)

    return flat


def _function(operator: Operator, cls: Any) -> type:
    written = [operator.backward, operator.setup_context, *operator.bodies]
    first = next(each for each in (*written, cls.backward) if each is not None)
    own: dict[str, Any] = {
        f"registered_{i}": staticmethod(f) for i, f in enumerate(written) if f is not None
    }
    backward = operator.backward or cls.backward  # torch's own raises
    if operator.backward and _has_lists(operator.overload):
        backward = _of_lists(backward)
    own |= {"backward": staticmethod(backward), WRITTEN: first}
    module = undecorated(first).__module__ or ""  # None of what exec has made
    own |= {"__module__": module, "__qualname__": operator.names[0]}
    return _of(operator, **own)


def _of(operator: Operator, **own: Any) -> type:
    unknown = {WRITTEN: Place("", 0, f"torch.ops.{operator.overload.namespace}"), "__module__": ""}
    made = type(operator.names[0], (_Registered,), own or unknown)
    _operators[made] = operator
    return made
