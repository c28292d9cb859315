"""How outputs, and what backward returns, change along a direction: exactly, by forward mode.

Forward mode carries a tangent beside each number through whatever code runs; it needs no graph. So
it follows all that a second backward loses: what forward keeps, what is detached, what is computed
under no_grad. Torch switches forward mode off inside `forward` of a custom Function and calls its
`jvp`; here it stays on, and `apply_jvp` hands over the tangents that forward itself has made.

Where the code leaves torch (NumPy, .item(), an operation without a formula) a tangent would be lost
without an error. That is noticed, with its line, and `Lost` is raised.
"""

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode

from ._torch import (
    class_of,
    engine_replaced,
    forward_mode,
    get_interpreter_stack,
    has_saving_hooks,
    in_forward_mode,
    is_traced,
    load_formulas,
    metadata_of,
    missing,
    of_nodes_replaced,
    tree_leaves,
    version,
)
from .compiled import is_region
from .differences import close, flat
from .failures import by_itself, handed_over
from .methods import has_setup_context, is_once_differentiable
from .operators import custom_of
from .places import is_own, line_of_code
from .untracked_steps import DATA

MADE = "double_backward.tangents"  # key of a node's metadata: the tangents that forward has made
LEAVES_TORCH = {
    "item", "tolist", "numpy", "__array__", "__float__", "__int__", "__index__", "__complex__",
    "data_ptr", "untyped_storage", "storage", "__dlpack__", "__reduce_ex__",
}  # fmt: skip
NO_NUMBERS = {  # these use the shape of their tensor and not its numbers
    "zeros_like", "ones_like", "empty_like", "rand_like", "randn_like", "randint_like",
    "full_like", "new_zeros", "new_ones", "new_empty", "new_full", "new_empty_strided",
}  # fmt: skip
STAIRS = {  # their derivative is 0
    "floor", "ceil", "round", "sign", "sgn", "trunc", "fix", "heaviside", "signbit", "floor_",
    "ceil_", "round_", "sign_", "trunc_", "__floordiv__", "floor_divide", "bernoulli",
}  # fmt: skip
HANDED = "to_save", "non_differentiable", "dirty_tensors"  # attributes of ctx that hold outputs
OWN_OPERATIONS = {"_unpack_dual", "_make_dual"}
IN_PLACE_OF_GRAPH = {"detach_", "set_", "tensor", "new_tensor", "as_subclass", "_make_subclass"}


class Lost(Exception):
    """A tangent cannot be followed any further: the reason, and where."""


class Changes(NamedTuple):
    """Flat vectors: outputs, G, and how both change."""

    values: Tensor
    g: Tensor
    of_values: Tensor
    of_g: Tensor


class Notes:
    """Holds the first reason why tangents cannot be followed, "" where they can."""

    reason = ""

    def lost(self, reason: str, frame: Any = None) -> None:
        if self.reason:
            return
        where = line_of_code(frame, is_own, "") if frame is not None else ""
        self.reason = f"{reason} in {where}" if where else reason


def tangent(t: Any) -> Tensor | None:
    """The tangent of a tensor, None where there is none."""
    if not isinstance(t, Tensor) or not (t.is_floating_point() or t.is_complex()):
        return None
    return forward_ad.unpack_dual(t).tangent


def _with(plain, carried):
    """The same, with a tangent beside it."""
    if carried is None or tangent(plain) is not None:
        return plain
    return forward_ad.make_dual(plain, carried.detach())


class _Carry(TorchFunctionMode):
    """Keeps tangents where torch drops them, and notes where that is not possible."""

    def __init__(self, notes: Notes) -> None:
        super().__init__()
        self.notes, self.depth = notes, 0

    def __enter__(self):
        self.depth += 1
        return super().__enter__()

    def __exit__(self, *error):
        self.depth -= 1
        return super().__exit__(*error)

    def everywhere(self):
        """Inside, this mode is active, also in a backward that begins during its own
        `__torch_function__`."""
        return nullcontext() if self.depth else self

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.depth -= 1
        try:
            return self._followed(func, args, kwargs)
        finally:
            self.depth += 1

    def _followed(self, func, args, kwargs):
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        if name in OWN_OPERATIONS:
            return func(*args, **kwargs)
        given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        if given and get_interpreter_stack():
            self.notes.lost("a transform of torch.func")
            return func(*args, **kwargs)
        if not any(tangent(t) is not None for t in given):
            return func(*args, **kwargs)
        if func is torch.autograd.grad:
            return _recorded_grad(args, kwargs)
        if func == DATA.__get__ or name == "detach":
            return _with(func(*args, **kwargs), tangent(args[0]))
        result = func(*args, **kwargs)
        if why := self._loses(func, name, args, kwargs, result):
            self.notes.lost(why, sys._getframe(2))
        return result

    def _loses(self, func, name, args, kwargs, result):
        """The name of an operation whose result lacks a tangent that it should have, else ""."""
        if name in LEAVES_TORCH or name in IN_PLACE_OF_GRAPH:
            return name
        if any(tangent(v) is not None for k, v in kwargs.items() if k in ("alpha", "beta")):
            return name
        if name == "__set__":
            return "an assignment" if len(args) > 1 and tangent(args[1]) is not None else ""
        if name in NO_NUMBERS:
            return name if any(tangent(t) is not None for t in tree_leaves(args[1:])) else ""
        if name in STAIRS:
            return ""
        made = [t for t in tree_leaves(result) if isinstance(t, Tensor)]
        followed = all(tangent(t) is not None for t in made if _is_continuous(t))
        return "" if followed else name if name != "__get__" else "an attribute"


def _is_continuous(t):
    return t.is_floating_point() or t.is_complex()


def _recorded_grad(args, kwargs):
    """`torch.autograd.grad`, recorded in any case, since some formulas of torch drop a tangent
    where nothing is recorded; the graph is dropped where it was not asked for."""
    names = "outputs", "inputs", "grad_outputs", "retain_graph", "create_graph"
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    asked = given.get("create_graph", False)
    rest = args[len(names) :]
    if rest or asked:
        return torch.autograd.grad(*args, **kwargs)
    with torch.enable_grad():
        found = torch.autograd.grad(**{**given, "create_graph": True})
    return tuple(g if g is None else _with(g.detach(), tangent(g)) for g in found)


@contextmanager
def _put_back(waiting: list[Callable]) -> Iterator[None]:
    """In the end, put back each method whose replacement was not called."""
    try:
        yield
    finally:
        for put_back in reversed(waiting):
            put_back()


@contextmanager
def looked_at() -> Iterator[Notes]:
    """Inside, code runs as usual, and what tangents could not follow is noted.

    Tangents are tried only afterwards: torch may wait for itself for ever where a forward writes
    into a tensor with a tangent.
    """
    notes, waiting, here = Notes(), list[Callable](), threading.get_ident()

    def made(init):
        def hooked(self, *args, **kwargs):
            init(self, *args, **kwargs)
            if threading.get_ident() != here:
                notes.lost("another thread")
                return
            cls = class_of(self)
            if is_traced() or is_region(cls):
                notes.lost("a compiled region")
            elif has_saving_hooks():
                notes.lost("hooks on what is saved")
            elif get_interpreter_stack():
                notes.lost("a transform of torch.func")
            else:
                _next_call(cls, "forward", lambda method: _unwritten(method, notes), waiting)

        return hooked

    def apply(method):
        def hooked(self, *grads):
            run = _unwritten(lambda *given: method(self, *given), notes)
            return run(*grads)

        return hooked

    def engine(run):
        def hooked(*args, **kwargs):
            if kwargs.get("accumulate_grad"):
                notes.lost(".backward()", sys._getframe(1))
            return run(*args, **kwargs)

        return hooked

    with of_nodes_replaced(made, None, apply), _put_back(waiting), engine_replaced(engine):
        yield notes


def _unwritten(method, notes):
    """The same method, which notes if it writes into its arguments."""

    def run(*args, **kwargs):
        tensors = [a for a in tree_leaves(args) if isinstance(a, Tensor)]
        before = [version(t) for t in tensors]
        out = handed_over(method, *args, **kwargs)
        if before != [version(t) for t in tensors]:
            notes.lost("an argument is written into")
        return out

    return run


def _next_call(cls, name, wrapper, waiting):
    """Have this thread's next call of a method, and only that, call `wrapper(method)` instead."""
    own, method, here = vars(cls).get(name), getattr(cls, name), threading.get_ident()

    def once(*args, **kwargs):
        if threading.get_ident() != here:
            return method(*args, **kwargs)
        put_back()
        return wrapper(method)(*args, **kwargs)

    def put_back():
        if vars(cls).get(name) is hook:
            delattr(cls, name) if own is None else setattr(cls, name, own)

    hook = staticmethod(once)
    setattr(cls, name, hook)
    waiting.append(put_back)


@contextmanager
def _carried(notes: Notes) -> Iterator[None]:
    """Inside, tangents go through the forward and the backward of custom Functions."""
    carry, waiting, here = _Carry(notes), list[Callable](), threading.get_ident()

    def made(init):
        def hooked(self, *args, **kwargs):
            init(self, *args, **kwargs)
            if threading.get_ident() == here:
                _Applied(class_of(self), self, carry).follow(waiting)

        return hooked

    def jvp(method):
        def hooked(self, *tangents):
            found = metadata_of(self).pop(MADE, None)
            if found is None:
                return method(self, *tangents)
            return tuple(found) if len(found) > 1 else found[0]

        return hooked

    def apply(method):
        def hooked(self, *grads):
            if threading.get_ident() != here:  # called by someone else, or on another device
                return method(self, *grads)
            once = is_once_differentiable(custom_of(self))  # its guard would drop the tangents
            guard = torch.no_grad() if once else nullcontext()
            with carry.everywhere(), forward_mode(), guard:
                return method(self, *grads)

        return hooked

    with of_nodes_replaced(made, jvp, apply), _put_back(waiting), carry:
        yield


class _Applied:
    """One call of a Function, whose forward and setup_context run with forward mode on."""

    def __init__(self, cls: Any, ctx: Any, carry: _Carry) -> None:
        self.cls, self.ctx, self.carry = cls, ctx, carry
        self.duals: dict[int, Tensor] = {}  # id of an output -> the output with its tangent
        self.plain: dict[int, Tensor] = {}  # id of an output with its tangent -> the output

    def follow(self, waiting: list[Callable]) -> None:
        _next_call(self.cls, "forward", self.forward, waiting)
        if has_setup_context(self.cls):
            _next_call(self.cls, "setup_context", self.setup_context, waiting)

    def forward(self, method):
        def run(*args, **kwargs):
            tensors = [a for a in args if isinstance(a, Tensor)]
            before = [version(t) for t in tensors]
            with self.carry.everywhere(), forward_mode():
                out = method(*args, **kwargs)
                if before != [version(t) for t in tensors]:
                    raise Lost("an argument is written into")
                given = {id(a) for a in args}
                outs = out if isinstance(out, tuple) else (out,)
                plain, tangents = zip(*(self._apart(y, given) for y in outs), strict=True)
            if not has_setup_context(self.cls):
                tangents = self._kept(plain, tangents)
            metadata_of(self.ctx)[MADE] = tangents
            return plain if isinstance(out, tuple) else plain[0]

        return run

    def _apart(self, y, given):
        """An output without its tangent, and the tangent."""
        carried = tangent(y)
        if carried is None:
            known = isinstance(y, Tensor) and _is_continuous(y)
            return y, torch.zeros_like(y) if known else None
        if id(y) in given:
            return y, carried.view_as(carried)
        plain = self.plain[id(y)] = forward_ad.unpack_dual(y).primal.clone()
        self.duals[id(plain)] = y
        return plain, carried

    def _kept(self, plain, tangents):
        """Replace the outputs that ctx holds by those that are returned, and give the tangents to
        hand over. An output that is marked non-differentiable has no tangent outside, but keeps it
        where it is saved."""
        own = {name: getattr(self.ctx, name, None) or () for name in HANDED}
        marked = {id(self.plain.get(id(k), k)) for k in own["non_differentiable"]}
        for name, kept in own.items():
            returned = [self.plain.get(id(k), k) for k in kept]
            if name == "to_save":
                pairs = zip(kept, returned, strict=True)
                returned = [k if id(y) in marked else y for k, y in pairs]
            if kept:
                setattr(self.ctx, name, tuple(returned))
        pairs = zip(plain, tangents, strict=True)
        return tuple(None if id(y) in marked else t for y, t in pairs)

    def setup_context(self, method):
        def run(ctx, inputs, output):
            outs = output if isinstance(output, tuple) else (output,)
            given = tuple(self.duals.get(id(y), y) for y in outs)
            with self.carry.everywhere(), forward_mode():
                method(ctx, inputs, given if isinstance(output, tuple) else given[0])
            data = metadata_of(self.ctx)
            data[MADE] = self._kept(outs, data[MADE])

        return run


@cache
def available() -> bool:
    """Whether torch has all that this module needs. The first call may be made in any context."""
    return not by_itself(missing)


def changes(
    subject: Any, x: Sequence[Tensor], u: Sequence[Tensor | None], d: Sequence[Tensor], given: Any
) -> Changes:
    """The outputs that `given` chooses, and G, and how they change where x moves along d.

    Raises `Lost`, also in the place of any other error.
    """
    outputs = list[Any]()

    def noting(x):
        outs = subject.function(x)
        outputs[:] = map(_apart, given(outs))
        return outs

    with following(subject.around):
        grads = [_apart(g) for g in subject.backward_inside(moved(x, d), list(u), noting)]
        parts = [[p[i] for p in part] for i in (0, 1) for part in (outputs, grads)]
        return Changes(*map(flat, parts))


@contextmanager
def following(around: Callable[[], AbstractContextManager] = nullcontext) -> Iterator[None]:
    """Inside, which is inside `around()`, too, tangents are followed through all that runs.

    Raises `Lost` where one cannot be followed, also in the place of any other error.
    """
    if not available() or in_forward_mode():
        raise Lost("forward mode is in use")
    load_formulas()
    notes = Notes()
    try:
        with torch.enable_grad(), around(), forward_ad.dual_level(), _carried(notes):
            yield
    except Lost:
        raise
    except Exception as error:  # raised by the callable, or by an operation without a formula
        raise Lost(str(error).partition("\n")[0]) from error
    if notes.reason:
        raise Lost(notes.reason)


def moved(x: Sequence[Tensor], d: Sequence[Tensor]) -> list[Tensor]:
    """The inputs, with d for their tangents; one that does not move has none."""
    return [
        forward_ad.make_dual(t, s.to(t.dtype)) if s.any() else t for t, s in zip(x, d, strict=True)
    ]


def _apart(t):
    """A tensor without its tangent, and the tangent, 0 where there is none."""
    plain, carried = forward_ad.unpack_dual(t)
    plain = plain.detach().clone()
    return plain, torch.zeros_like(plain) if carried is None else carried.detach().clone()


def agree(found: Changes, values: Tensor, g: Tensor) -> bool:
    """Whether outputs and G are the same with tangents as without, but for the last digits of
    float32 where all numbers are such: torch has other kernels for what has a tangent."""
    single = all(torch.equal(t, t.float().double()) for t in (*found[:2], values, g))
    pairs = (found.values, values), (found.g, g)
    return all(close(a.float(), b.float()) if single else close(a, b) for a, b in pairs)
