"""Tells listeners of every call of a custom Function, wherever the call comes from.

`Function.apply` is bound when a module is imported (`swish = Swish.apply`), so replacing it comes
too late. But each `apply` makes a node first, and then looks `forward` up on the class: the node's
`__init__` puts a hook there, which the call takes away again before it goes on. Every backward goes
through `BackwardCFunction.apply`, every forward-mode derivative through `apply_jvp`. These methods
of torch are replaced, in all threads, while there is a listener, and put back when the last one has
gone. No class of the user's stays changed for longer than a moment, so that `torch.compile` sees
the same classes inside as outside.

The hooks are methods of `BackwardCFunction`, and `generate_single_level_function`, which makes the
class that a `torch.func` transform calls. Before a listener relies on them, `rehearsed` calls a
small Function, so that a version of torch that has moved one of them gives a clear error.
"""

import functools
import threading
import weakref
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch.autograd import Function

from ._torch import (
    class_of,
    drops_tangent,
    functions,
    graph_is_kept,
    in_forward_mode,
    is_anything_replaced,
    is_batched,
    is_followed,
    is_traced,
    levels,
    metadata_of,
    of_nodes_replaced,
    of_operators_replaced,
    one_by_one,
    outside_batches,
    overload_called,
    plain,
    replaced,
    saving_hooks_replaced,
    temporarily_clear_interpreter_stack,
    transforms,
    unbatched,
    uncompiled,
    version,
)
from .compiled import is_region, region_here
from .containers import anew
from .failures import handed_over, loud
from .kinds import nested_kind_of, requires_grad
from .methods import applied, has_setup_context
from .operations import Operations, address
from .operators import NO_TANGENT, Watched, as_called, custom_of, flattened, uncalled
from .rehearsal import rehearsed
from .surroundings import GENERATORS, State, Surroundings, as_now

# The attribute of a node that holds its Call. The garbage collector sees attributes of ctx, but not
# metadata, and an argument of the call may lead back to the node.
CALL = "_double_backward_call"
UNHEARD = "double_backward.unheard"  # set on nodes that a check makes: no listener is told of these
# Functions of these modules talk to other processes, or are never differentiated twice, so that
# calling one again tests nothing.
LEFT_ALONE = (
    "torch.distributed", "torch._functorch", "torch._dynamo", "torch._inductor", "torch.masked",
)  # fmt: skip

_lock = threading.RLock()
_listeners: list["Listener"] = []
_pending: dict[int, "_Forward"] = {}  # id of a class -> the _Forward that it has at the moment
_hooks = ExitStack()  # closed while there is no listener
# Function -> which of DRAWING, "forward" and "backward" were seen to leave no trace.
_traceless: "weakref.WeakKeyDictionary[type, set[str]]" = weakref.WeakKeyDictionary()
DRAWING = "draws"
_MISSING = object()
_NO_KEYWORDS: dict[str, Any] = {}  # one for all calls that have none


class _Thread(threading.local):
    """The state of the current thread."""

    backwards = 0  # how many backwards of custom Functions are running
    unheard = False  # whether no listener is told of calls
    only: "Listener | None" = None  # the only listener that is told, if not all are
    watches: "tuple[Operations, ...]" = ()  # of the calls and backwards that are running
    running: tuple = ()  # the operators of `torch.ops` that are watched and running


_thread = _Thread()


class Alias(Function):
    """Returns x in the same memory, without a copy, with the graph that x has at this moment.

    Later in-place operations on x change its values (and `_version`), but not its graph.
    """

    is_ours = True

    @staticmethod
    def forward(ctx, x):  # not with setup_context, for which torch reads the signature each time
        return x.detach()

    @staticmethod
    def backward(ctx, grad):
        return grad


def _drawn(call, args):
    """The `Draws` that forward, which has just run, has used; None if it is known to use none. The
    first call shows this that draws nothing and has elements to draw for.

    While another thread draws, it cannot be seen which of the two did, and looking takes time.
    """
    if call.state.draws is None:
        return None
    used = call.state.draws.used()
    return None if not used.states and _is_traceless(call.function, DRAWING, args) else used


def _changed(call, method, before, args):
    """What a method that has just run has changed, as it was before; () if that was not
    recorded."""
    found = before.changes() if before is not None else ()
    if before is not None and not found:
        _is_traceless(call.function, method, args)
    return found


def _is_traceless(function, what, args):
    """Note that a call has left no trace, and return whether it counts for all later calls: it does
    unless one of its tensors is empty."""
    told = all(a.numel() for a in args if isinstance(a, torch.Tensor))
    if told:
        _traceless.setdefault(function, set()).add(what)
    return told


def leaves_traces(function, draws, changes):
    """Note that a Function draws, or changes something, after all, so that it is looked at
    again."""
    known = _traceless.get(function, set())
    known -= ({DRAWING} if draws else set()) | ({"forward", "backward"} if changes else set())


def _aliased(value):
    with temporarily_clear_interpreter_stack(), outside_batches(), torch.enable_grad():
        return Alias.apply(value)


class Call:
    """What a Function was called with. There is one for each node, so that it has to be small.

    Attributes:
        function: the class.
        given: tuple, the arguments of forward, the objects themselves: those that the Function
            saves are alive anyway. What forward writes into is replaced by a copy from before, or
            by an alias with the graph from before; a container is replaced by one from before.
        kwargs: dict, the keyword arguments of forward.
        state: what was set when forward began, and the generators that forward has drawn from.
        draws: True if forward draws random numbers, or if that is not known.
        changed: what forward, and the recorded backward that has run last, change besides what they
            return; each as it was before, such as a counter with what it had counted then.
        transformed: how many `torch.func` transforms differentiate by the inputs; 0 outside.
        in_backward: True if a backward applied the Function.
        is_lost: True if torch forgets the graph of its outputs, since a backward that runs for a
            batch of gradients applied it.
        region: the compiled `Region` for which the Function stands, or None.
        did: what forward did, an `operations.Did`, if a listener watches; else None.
        did_both: what forward and the recorded backward that has run last did; or None.
        around: `Surroundings` in which it is made again, or None.
    """

    __slots__ = (
        "function", "given", "kwargs", "state", "draws", "changed_by", "transformed", "in_backward",
        "is_lost", "region", "did", "did_both", "around", "_inputs", "_version", "__weakref__",
    )  # fmt: skip

    def __init__(self, function, args, kwargs, state, transformed=0):
        self.function, self.kwargs, self.state = function, kwargs or _NO_KEYWORDS, state
        self.given, self.draws, self.region = tuple(args), True, None
        self.changed_by: tuple[tuple, tuple] = (), ()
        self.transformed, self.did, self.did_both = transformed, None, None
        self.around: Any = None
        self.in_backward, self.is_lost = _thread.backwards > 0, False
        self._inputs: dict | None = None
        self._version: int | None = 0  # None if what forward was given is lost
        if transformed:
            self._inputs = {p: x for p, x in enumerate(self.given) if is_followed(x)}

    def forward_has_run(self, args, before, around):
        """Note what forward did with these arguments, which had these versions before, and to these
        `Surroundings`."""
        drawn = _drawn(self, args)
        self.draws, self.state = drawn is not None, self.state.with_draws(drawn)
        if changed := _changed(self, "forward", around, args):
            self.changed_by = changed, ()
        written = {p for p, a in enumerate(args) if _version(a) != before[p]}
        if written:
            lost = {p for p in written if self.given[p] is args[p] and requires_grad(args[p])}
            self.given = tuple(_aliased(v) if p in lost else v for p, v in enumerate(self.given))
            if lost:
                self._version = None
                return
        self._version = self._count()

    @property
    def changed(self):
        """What was changed, in the order in which it is put back. What both have changed ends as it
        was before forward."""
        by_forward, by_backward = self.changed_by
        return by_backward + by_forward

    @property
    def inputs(self):
        """Dict: place among the arguments -> an alias, with its graph, of an argument that requires
        grad."""
        if self._inputs is None:
            self._inputs = {p: _aliased(v) for p, v in enumerate(self.given) if requires_grad(v)}
        return self._inputs

    @property
    def args(self):
        """List of the arguments of forward, with None in the places of `inputs`."""
        return [None if p in self.inputs else value for p, value in enumerate(self.given)]

    @property
    def is_empty(self):
        """True if its inputs have no elements."""
        return not any(is_followed(value) and value.numel() for value in self.given)

    @property
    def inputs_changed(self):
        """True if the inputs are no longer what forward was given."""
        return not self.transformed and self._count() != self._version

    def _count(self):
        return sum(_version(value) for value in self.given if requires_grad(value))

    def plain(self, every=False):
        """The same call with the values behind `torch.func` transforms; of a batch, the first.

        Args:
            every: make every floating or complex tensor an input.
        """
        args = [plain(value) for value in self.given]
        for place, x in enumerate(args):
            if place in self.inputs or every and isinstance(x, torch.Tensor) and is_continuous(x):
                x.requires_grad_()
        return Call(self.function, args, self.kwargs, self.state, self.transformed or 1)

    def with_inputs(self, change):
        """The same call, with `change(x)` in the place of each input."""
        args = [change(x) if p in self.inputs else x for p, x in enumerate(self.given)]
        call = Call(self.function, args, self.kwargs, self.state, self.transformed)
        call.draws, call.changed_by = self.draws, self.changed_by
        return call

    def again(self, inputs):
        """Call the Function once more, with other tensors for its inputs; return a tuple."""
        with self.state.as_then(), torch.enable_grad():
            args, kwargs = self.arguments(inputs)
            return applied(self.function, *args, **kwargs)

    def arguments(self, inputs):
        """The arguments of forward, a list, and its keyword arguments, a dict, with other tensors
        for the inputs, and the other tensors in their precision.

        All are copies, since forward may write into them, even past the version counters. Each copy
        also replaces its original in containers among the arguments and, where `around` is not
        None, in the objects that the Function holds.
        """
        raised = any(x.dtype != inputs[place].dtype for place, x in self.inputs.items())
        copies: dict[int, Any] = {}  # by place
        for place, arg in enumerate(self.args):
            if place in inputs:
                copies[place] = copied(inputs[place], like=self.given[place])
                if not is_followed(copies[place]):  # forward may look at it, under no_grad, too
                    # A transform of torch.func that is active here refuses that.
                    handed_over(copies[place].requires_grad_, inputs[place].requires_grad)
            elif isinstance(arg, torch.Tensor):
                wide = raised and is_continuous(arg)
                dtype = torch.promote_types(arg.dtype, torch.float64) if wide else arg.dtype
                copies[place] = copied(arg.to(dtype), like=arg)
        others = {id(self.given[place]): copy for place, copy in copies.items()}
        if self.around is not None:
            self.around.exchange(others)
            self.around.write(self.changed, others)
        given, kwargs = anew(self.given, self.kwargs, others)
        return [copies.get(place, value) for place, value in enumerate(given)], kwargs

    @contextmanager
    def made_again_in(self, around):
        """Inside, the call is made again in these `Surroundings`, which put back what it
        changes."""
        before, self.around = self.around, around
        around.changed |= bool(self.changed)
        try:
            with around.unchanged(), as_now(self.changed):
                yield
        finally:
            self.around = before

    @contextmanager
    def exchanged(self, place, value):
        """Inside, the argument in this place is `value`."""
        before = self.given
        self.given = (*before[:place], value, *before[place + 1 :])
        try:
            yield
        finally:
            self.given = before


def copied(tensor, like=None):
    """A copy in its own memory with the same strides, even where they are 0. With `like`, it has
    the strides of `like`, even if they leave gaps, as in a slice, but not if elements share
    memory."""
    if tensor.layout is not torch.strided:
        return tensor.clone()
    if like is None:
        if tensor.layout is not torch.strided:
            return tensor.clone()
        like = tensor
        for dim, stride in enumerate(tensor.stride()):
            if stride == 0 and tensor.shape[dim] > 1:
                tensor = tensor.narrow(dim, 0, 1)
        return _laid_out(tensor, like).expand(like.shape)
    return _laid_out(tensor, like)


def _laid_out(tensor, like):
    """A copy with the strides of `like`, where that is possible."""
    if like.layout is not torch.strided:
        return tensor.clone()
    if like.is_contiguous():
        return tensor.clone(memory_format=torch.contiguous_format)
    end = 0
    for stride, n in sorted(zip(like.stride(), tensor.shape, strict=True)):
        if n > 1 and stride <= end:
            return tensor.clone()
        end += stride * (n - 1)
    # Of `tensor`, so that a batch of `vmap` is copied into a batch.
    return tensor.new_empty_strided(tensor.shape, like.stride()).copy_(tensor)


def _version(value):
    return (version(value) or 0) if isinstance(value, torch.Tensor) else 0


def is_continuous(t):
    return t.is_floating_point() or t.is_complex()


class Listener:
    """Base class for those that are told of calls. Its methods do nothing."""

    one_by_one = False  # whether a backward is to get the gradients of a batch one by one

    def begins(self):
        """Called when the listener begins to listen, which it did not do before."""

    def watches(self, call):
        """Whether what forward and a recorded backward do is to be noted."""
        return False

    def called(self, call):
        """Called when forward (and setup_context) has run."""

    def not_followed(self, function, why):
        """A registered operator, or what stands for it, has lost a tangent or a graph."""

    def without_kernel(self, call, node):
        """An operator that has no kernel for an Autograd key was called; a pass that comes to the
        node ends there."""

    def differentiated(self, call, grad_outs):
        """Called when backward is about to run, recorded or not."""

    def after_backward(self, node, call, grad_outs, grads):
        """Called when a recorded backward has run; returns the gradients to go on with, a tuple."""
        return grads

    def after_jvp(self, call, tangents, outs):
        """Called when jvp, a forward-mode derivative, has run; returns the tangents to go on
        with."""
        return outs


class Here(Listener):
    """Tells another listener only of calls in the thread that made this object: other threads may
    be running code of the user's."""

    def __init__(self, listener):
        self.listener, self.thread = listener, threading.get_ident()

    def watches(self, call):
        return threading.get_ident() == self.thread and self.listener.watches(call)

    def called(self, call):
        if threading.get_ident() == self.thread:
            self.listener.called(call)

    def not_followed(self, function, why):
        if threading.get_ident() == self.thread:
            self.listener.not_followed(function, why)

    def without_kernel(self, call, node):
        if threading.get_ident() == self.thread:
            self.listener.without_kernel(call, node)

    def differentiated(self, call, grad_outs):
        if threading.get_ident() == self.thread:
            self.listener.differentiated(call, grad_outs)

    def after_backward(self, node, call, grad_outs, grads):
        if threading.get_ident() != self.thread:
            return grads
        return self.listener.after_backward(node, call, grad_outs, grads)


@contextmanager
def listening(listener):
    """Inside, `listener` is told of every custom Function in every thread."""
    if not _listeners:
        rehearsed("listening to Functions", _hears, "met 2 times", "met 2 times")
    with _lock:
        if not _listeners:
            _put_hooks()
        if listener not in _listeners:
            listener.begins()
        _listeners.append(listener)
    try:
        yield
    finally:
        with _lock:
            _listeners.remove(listener)
            if not _listeners:
                _take_hooks()


@contextmanager
def listening_alone(listener):
    """Inside, `listener` alone is told of what this thread calls, even under `unheard`. A backward
    that is running around this does not count as one."""
    before = _thread.unheard, _thread.only, _thread.backwards
    with listening(listener):
        _thread.unheard, _thread.only, _thread.backwards = False, listener, 0
        try:
            yield
        finally:
            _thread.unheard, _thread.only, _thread.backwards = before


def is_listening(listener):
    """Whether `listener` is told of what this thread calls."""
    return listener in (_listeners if _thread.only is None else [_thread.only])


def is_anything_hooked():
    """Whether anything of torch, or of a class, is replaced at the moment, in any thread."""
    return bool(_listeners or _pending or is_anything_replaced())


@contextmanager
def unheard():
    """Inside, no listener is told of what this thread calls."""
    before = is_unheard()
    _thread.unheard = True
    try:
        yield
    finally:
        _thread.unheard = before


def outside(call):
    """Inside, the `torch.func` transforms under which `call` was made are not active."""
    return temporarily_clear_interpreter_stack() if call.transformed else nullcontext()


def is_unheard():
    """Whether no listener is told of what this thread calls now."""
    return _thread.unheard


def is_in_backward():
    """Whether this thread is running the backward of a custom Function."""
    return _thread.backwards > 0


@contextmanager
def in_backward():
    """Inside, what this thread calls counts as called by a backward, which is judged itself."""
    _thread.backwards += 1
    try:
        yield
    finally:
        _thread.backwards -= 1


def is_left_alone(cls):
    """True for Functions that are counted and never called again."""
    vmapped = cls.__name__.startswith("Vmapped")  # one of the user's, inside torch.vmap
    return cls.__module__.startswith(LEFT_ALONE) and not vmapped


# Hooks.


def _put_hooks():
    _hooks.enter_context(of_nodes_replaced(_made, _forward_mode, _backward))
    _hooks.enter_context(of_operators_replaced(_operator))
    _hooks.enter_context(saving_hooks_replaced(_unnoted))
    _hooks.enter_context(replaced(transforms, {"generate_single_level_function": _generate}))


def _take_hooks():
    _hooks.close()
    for hook in list(_pending.values()):
        hook.take_away()


def _put(owner, name, value):
    kind = type if isinstance(owner, type) else object  # past the methods of a metaclass
    if value is _MISSING:
        kind.__delattr__(owner, name)
    else:
        kind.__setattr__(owner, name, value)


def _made(init):
    def hooked(self, *args, **kwargs):
        init(self, *args, **kwargs)
        cls = class_of(self)
        ours = getattr(cls, "is_ours", False)
        if _listeners and issubclass(cls, Function) and not ours and not is_traced():
            with uncompiled(), loud():
                _hook_forward(cls, self)

    return hooked


def _hook_forward(cls, ctx):
    """Have listeners told of this thread's next call of `cls.forward`, which is that of `ctx`."""
    with _lock:
        hook = vars(cls).get("forward")
        if not isinstance(hook, _Forward):
            hook = _Forward(cls)
            _pending[id(cls)] = hook
            _put(cls, "forward", hook)
        hook.waiting[threading.get_ident()] = ctx, torch.is_grad_enabled()


class _Forward:
    """Stands in for a class's `forward` until the threads that have made a node have called it."""

    is_ours = True

    def __init__(self, cls):
        self.cls, self.method = cls, cls.forward
        self.own = vars(cls).get("forward", _MISSING)
        self.waiting = {}  # thread -> its node, and whether grad mode is on

    def __call__(self, *args, **kwargs):
        with uncompiled(), loud(), _unwatched():
            with _lock:
                ctx, recorded = self.waiting.pop(threading.get_ident(), (None, False))
                if not self.waiting:
                    self.take_away()
            call = None if ctx is None else _begin(self.cls, ctx, args, kwargs)
            if call is not None and call.in_backward and recorded:
                call.is_lost = _is_lost(call.given)
            around = None if call is None else _around(call)
            versions = [_version(a) for a in args]
            watch = _watch(call)
        with _watching(watch):
            out = handed_over(self.method, *args, **kwargs)
        if call is not None:
            with uncompiled(), loud(), _unwatched():
                _tell_of(call)
                call.did = watch and watch.did(out, ctx)
                skip = not has_setup_context(self.cls)  # ctx
                call.forward_has_run(args[skip:], versions[skip:], around)
                for listener in _once_each():
                    listener.called(call)
        return out

    def take_away(self):
        if vars(self.cls).get("forward") is self:
            _put(self.cls, "forward", self.own)
        _pending.pop(id(self.cls), None)


def _begin(cls, ctx, args, kwargs):
    if is_unheard():
        metadata_of(ctx)[UNHEARD] = True
        return None
    if not has_setup_context(cls):
        args = args[1:]
    function, args, kwargs = as_called(cls, args, kwargs)
    if _writes_into_arguments(function):
        with torch.enable_grad():
            args = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
    args, kwargs = anew(args, kwargs)  # before forward takes anything out
    call = Call(function, args, kwargs, State.now(draws=False))
    ctx.__dict__ = {**vars(ctx), CALL: call}  # setattr would make a dict of twice the size
    if is_region(cls):
        call.region = region_here()
    return call


def _is_lost(args):
    """Whether torch forgets the graph of what a Function makes of these arguments, which it does if
    the graph belongs to the wrapper of a batch: the wrapper is taken off."""
    if not any(map(is_batched, args)):
        return False
    with torch.enable_grad():
        return any(is_followed(unbatched(arg)) for arg in args)


def _around(call, method="forward"):
    """Record what a method that is about to run may change; None where it is known to change
    nothing. The generators from which forward may draw are recorded in the call's state."""
    known = _traceless.get(call.function, ())
    draws = method == "forward" and (
        DRAWING not in known or any(isinstance(arg, GENERATORS) for arg in call.given)
    )
    if is_left_alone(call.function) or not draws and method in known:
        return None
    held = [arg for arg in call.given if not isinstance(arg, torch.Tensor)]
    around = Surroundings(call.function, *held, call.kwargs)
    if draws:
        call.state = State.now(own=around.sources)
    return None if method in known else around.looked_at()


def _watch(call):
    """`Operations` for the forward of a call, if a listener watches it; else None."""
    if call is None or call.region is not None or is_left_alone(call.function):
        return None
    return Operations(call.given) if any(each.watches(call) for each in _once_each()) else None


@contextmanager
def _watching(watch):
    """Inside, operations are noted, if there is a watch."""
    before = _thread.watches
    _thread.watches = before if watch is None else (*before, watch)
    try:
        with watch or nullcontext():
            yield
    finally:
        _thread.watches = before


def _tell_of(call):
    """Note the call in the watches of the calls that make it: a number among its arguments may be
    used by no operation before its own backward."""
    for watch in _thread.watches:
        watch.applied(call.function, nested_kind_of(call, watch.sizes))


@contextmanager
def _unwatched():
    """Inside, operations of this module are not noted as those of a Function around the call."""
    with ExitStack() as stack:
        for watch in _thread.watches:
            stack.enter_context(watch.paused())
        yield


def _unnoted(pack, unpack):
    """The hooks of `saved_tensors_hooks`, where what they do is not noted as done by the backward
    that asks for a saved tensor: the hook of a checkpoint runs everything there once more."""

    def noted_pack(tensor):
        return address(tensor), handed_over(pack, tensor)

    def unnoted_unpack(both):
        place, packed = both
        watches = _thread.watches
        with _unwatched():
            _thread.watches = ()
            try:
                tensor = handed_over(unpack, packed)
            finally:
                _thread.watches = watches
        for watch in watches:
            watch.unpacked(tensor, place)
        return tensor

    if is_unheard() or is_traced():
        return pack, unpack
    return noted_pack, unnoted_unpack


def call_of(node):
    """The `Call` of a node, None if no listener was told of its forward."""
    return getattr(node, CALL, None)


def _generate(method):
    """`generate_single_level_function`, whose classes tell listeners of their calls."""

    @functools.wraps(method)
    def generate(interpreter, function):
        made = method(interpreter, function)
        set_up = made.setup_context

        def setup_context(ctx, inputs, output):
            result = handed_over(set_up, ctx, inputs, output)
            known = isinstance(ctx, functions.BackwardCFunction) and _listeners
            if known and is_unheard():
                metadata_of(ctx)[UNHEARD] = True
            elif known:
                call = Call(function, inputs, {}, State.now(draws=False), sum(levels()))
                setattr(ctx, CALL, call)
                for listener in _once_each():
                    listener.called(call)
            return result

        if not getattr(function, "is_ours", False):
            made.setup_context = staticmethod(setup_context)
        return made

    return generate


def _backward(method):
    @functools.wraps(method)
    def apply(self, *grad_outs):
        boxed = len(grad_outs) == 1 and isinstance(grad_outs[0], list)
        given = tuple(grad_outs[0]) if boxed else grad_outs
        call = call_of(self)
        if call is not None and not is_traced() and _is_heard(self):
            with loud():
                for listener in _once_each():
                    listener.differentiated(call, given)
        recorded = torch.is_grad_enabled() and not is_traced()
        watch = around = None
        if recorded and call is not None and call.did is not None:
            watch = Operations(call.given, given, before=call.did)
            with uncompiled(), _unwatched():
                around = _around(call, "backward")
        _thread.backwards += 1
        try:
            with _watching(watch):
                if any(map(is_batched, given)) and _takes_no_batches(self):
                    grads = one_by_one(lambda *g: method(self, *([list(g)] if boxed else g)), given)
                else:
                    grads = method(self, *grad_outs)
        finally:
            _thread.backwards -= 1
        if not recorded or not _is_heard(self):
            _let_go(self)
            return grads
        with uncompiled(), loud(), _unwatched():
            if watch:
                call.did_both = watch.did(grads)
                changed = _changed(call, "backward", around, given)
                if changed or call.changed_by[1]:
                    call.changed_by = call.changed_by[0], changed
            grads = grads if isinstance(grads, tuple) else (grads,)
            for listener in _once_each():
                grads = listener.after_backward(self, call, given, grads)
        return grads

    return apply


def _takes_no_batches(node):
    """Whether the backward of a node gets the gradients of a batch one by one."""
    ours = getattr(custom_of(node), "is_ours", False)
    return not ours and not is_traced() and any(each.one_by_one for each in _once_each())


def _let_go(node):
    """Drop the call of a node whose graph is freed, if an input was changed in place since: in
    `x += f(x)` x leads to the node, a reference cycle that nothing else would end."""
    call = call_of(node)
    if call is not None and not graph_is_kept() and call.inputs_changed:
        setattr(node, CALL, None)


def _forward_mode(method):
    @functools.wraps(method)
    def apply_jvp(self, *tangents):
        outs = method(self, *tangents)
        call = call_of(self)
        if call is not None and not is_traced() and _is_heard(self):
            with uncompiled(), loud():
                for listener in _once_each():
                    outs = listener.after_jvp(call, tangents, outs)
        return outs

    return apply_jvp


def _operator(method):
    """An operator of `torch.ops`: torch makes no node of ours of it in forward mode, or where none
    was registered for it."""

    @functools.wraps(method)
    def call(self, /, *args, **kwargs):
        watched = None
        recorded = torch.is_grad_enabled() and not is_in_backward()  # else the caller is judged
        if (recorded or in_forward_mode()) and not is_unheard() and not is_traced():
            with uncompiled(), loud(), _unwatched():
                overload = overload_called(self, args, kwargs)
                if overload and overload not in _thread.running:  # else a mode calls it once more
                    watched = Watched(overload, args, kwargs)
        before = _thread.running
        _thread.running = (*before, watched.overload) if watched else before
        try:
            outs = method(self, *args, **kwargs)
        finally:
            _thread.running = before
        if watched is not None:
            with uncompiled(), loud(), _unwatched():
                if in_forward_mode():
                    if drops_tangent(watched.overload, watched.all_given, flattened(outs)):
                        _tell_of_loss(watched, NO_TANGENT)
                else:
                    _tell_of_loss(watched, *watched.lost(outs))
        return outs

    return call


def _tell_of_loss(watched, why, node=None):
    if not why:
        return
    function = uncalled(watched.overload)
    if node is None:
        for listener in _once_each():
            listener.not_followed(function, why)
    elif UNHEARD not in metadata_of(node):
        metadata_of(node)[UNHEARD] = True  # one that is composed of this one returns it, too
        args, kwargs = anew(watched.given, watched.keywords)
        call = Call(function, args, kwargs, State.now(draws=False), sum(levels()))
        for listener in _once_each():
            listener.without_kernel(call, node)


def _is_heard(node):
    cls, call = custom_of(node), call_of(node)
    if getattr(cls, "is_ours", False) or is_unheard():
        return False
    if call is None and UNHEARD in metadata_of(node):
        return False
    function = cls if call is None else call.function
    return is_region(function) or not is_left_alone(function)


def _once_each():
    """The listeners to tell, each once: nesting the same one changes nothing."""
    with _lock:
        return [_thread.only] if _thread.only else list(dict.fromkeys(_listeners))


def _writes_into_arguments(function):
    """Whether forward, or setup_context, names mark_dirty: then its arguments may be
    overwritten."""
    for method in (function.forward, function.setup_context):
        while method is not None:
            if "mark_dirty" in getattr(getattr(method, "__code__", None), "co_names", ()):
                return True
            method = getattr(method, "__wrapped__", None)
    return False


# The test for a new version of torch.


def _hears(function, x):
    """How often a Function is met: once in forward and once in backward, if each hook works."""
    times = []

    class Heard(Listener):
        def called(self, call):
            times.append(call.function)

        def after_backward(self, node, call, grad_outs, grads):
            times.append(call and call.function)
            return grads

    with listening_alone(Here(Heard())):
        torch.autograd.grad(function.apply(x).sum(), x, create_graph=True)
    return f"met {times.count(function)} times"
