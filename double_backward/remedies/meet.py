"""Meeting every custom Function that is called, wherever the call comes from.

`Function.apply` is bound when a module is imported (`swish = Swish.apply`), so replacing it comes
too late. `forward` and `setup_context` are looked up on the class at each call, and every backward
goes through `BackwardCFunction.apply`: these are replaced while somebody listens, in all threads,
and put back when the last listener has gone.

The hooks are private to torch (2.11 to 2.15 have them): `FunctionMeta.__init__`, which makes each
class; `BackwardCFunction.apply` and, since 2.13, `apply_boxed`; `ctx._forward_cls`, the class of a
node; `ctx.metadata`, where a node carries what we know of it. `_rehearse` calls a small Function
before anybody relies on them, so that a torch that has moved one of them is an error in words.
"""

import functools
import inspect
import threading
from contextlib import contextmanager, nullcontext

import torch
from torch._C._functorch import (
    get_unwrapped,
    is_batchedtensor,
    is_functorch_wrapped_tensor,
    maybe_get_bdim,
)
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.autograd import Function
from torch.autograd import function as internals

from .state import State

CALL = "double_backward.call"  # where a node's metadata holds its Call
OURS = "double_backward.ours"  # set on the nodes that a check makes: nobody listens to those
# They talk to other processes, or are never differentiated twice: calling one again is no test.
LEFT_ALONE = ("torch.distributed", "torch._functorch", "torch._dynamo", "torch._inductor")

_lock = threading.RLock()
_listeners = []
_replaced = []  # (owner, name, what was there, what is there now)
_thread = threading.local()
_rehearsed = False
_MISSING = object()


class Alias(Function):
    """x again: the same memory, no copy; the graph is that of x at this moment.

    Later in-place operations on x change its values (and `_version`), but not its graph.
    """

    is_ours = True
    generate_vmap_rule = True  # for torch.func

    @staticmethod
    def forward(x):
        return x.detach()

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, grad):
        return grad


class Call:
    """What a Function was called with.

    Attributes:
        function: the class.
        args: list, the arguments of forward; None in the places of `inputs`.
        kwargs: dict.
        inputs: dict, place among the arguments -> tensor that requires grad: an alias with the
            graph of the argument, or a copy where forward writes into it.
        state: the random generators and autocast as they were when forward began.
        written: set of the places that forward has written into.
        transformed: True if the inputs are those of a `torch.func` transform.
        in_backward: True if a backward applied the Function.
        known: dict for whoever finds out something about this call that stays true.
    """

    transformed = False

    def __init__(self, function, args, kwargs, copies):
        self.function, self.kwargs, self.state = function, kwargs, State.now()
        self.in_backward = getattr(_thread, "backwards", 0) > 0
        self.args, self.inputs, self._before = list(args), {}, {}
        with torch.enable_grad():
            for place, value in enumerate(args):
                if not isinstance(value, torch.Tensor):
                    continue
                self._before[place] = value, value._version
                if value.requires_grad:
                    self.inputs[place] = value.clone() if copies else Alias.apply(value)
                    self.args[place] = None
                elif copies:
                    self.args[place] = value.clone()
        self._versions = {place: x._version for place, x in self.inputs.items()}
        self.written, self.lost, self.known = set(), False, {}

    def forward_has_run(self):
        for place, (value, version) in self._before.items():
            if value._version != version:
                self.written.add(place)
        self._before = {}
        self.lost = any(x._version != self._versions[p] for p, x in self.inputs.items())
        self._versions = {place: x._version for place, x in self.inputs.items()}

    @property
    def inputs_changed(self):
        """True if the inputs are no longer what forward was given."""
        return self.lost or any(x._version != self._versions[p] for p, x in self.inputs.items())


class TransformedCall(Call):
    """What a Function was called with at one level of `torch.func` transforms."""

    transformed = True

    def __init__(self, function, inputs, state):
        self.function, self.kwargs, self.state = function, {}, state
        self.in_backward = getattr(_thread, "backwards", 0) > 0
        self.inputs = {p: x for p, x in enumerate(inputs) if _any_grad([x])}
        self.args = [None if p in self.inputs else x for p, x in enumerate(inputs)]
        self.written, self.known = set(), {}

    @property
    def inputs_changed(self):
        return False

    def forward_has_run(self):
        pass

    def plain(self):
        """The same call with the values behind the transforms; of a batch, the first."""
        call = TransformedCall(self.function, (), self.state)
        call.args = [plain(arg) for arg in self.args]
        call.inputs = {p: plain(x).requires_grad_() for p, x in self.inputs.items()}
        return call


def plain(value):
    """The tensor behind `torch.func`'s wrappers; anything else as it is."""
    if not isinstance(value, torch.Tensor):
        return value
    while is_functorch_wrapped_tensor(value):
        batched = maybe_get_bdim(value) if is_batchedtensor(value) else None
        value = get_unwrapped(value)
        if batched is not None:
            value = value.select(batched, 0)
    return value.detach().clone()


class Listener:
    """Somebody who wants to know of calls. All do nothing here."""

    def called(self, call):
        """forward has run (and setup_context)."""

    def after_backward(self, node, call, grad_outs, grads):
        """The gradients to go on with; only where backward is itself recorded."""
        return grads


@contextmanager
def listening(listener):
    """Tell `listener` of every custom Function, in every thread, for the length of a `with`."""
    with _lock:
        if not _listeners:
            _put_hooks()
            try:
                _rehearse()
            except BaseException:
                _take_hooks()
                raise
        _listeners.append(listener)
    try:
        yield
    finally:
        with _lock:
            for i in reversed(range(len(_listeners))):  # by identity: one may listen twice
                if _listeners[i] is listener:
                    del _listeners[i]
                    break
            if not _listeners:
                _take_hooks()


def is_listening(listener):
    return listener in _listeners


@contextmanager
def unheard():
    """What is called inside, in this thread, is told to nobody."""
    before = _is_unheard()
    _thread.unheard = True
    try:
        yield
    finally:
        _thread.unheard = before


def outside(call):
    """Inside, `torch.func` transforms that `call` was made under are not active."""
    return temporarily_clear_interpreter_stack() if call.transformed else nullcontext()


def _is_unheard():
    return getattr(_thread, "unheard", False)


def functions():
    """Every subclass of `torch.autograd.Function`, each after its bases."""
    found, todo = {}, [Function]
    while todo:
        for cls in todo.pop(0).__subclasses__():
            if cls not in found:
                found[cls] = None
                todo.append(cls)
    return list(found)


def is_left_alone(cls):
    """True for Functions that are only counted."""
    return cls.__module__.startswith(LEFT_ALONE)


# Hooks.


def _put_hooks():
    try:
        meta, node = internals.FunctionMeta, internals.BackwardCFunction
        _replace(meta, "__init__", _new_class(meta.__init__))
        _replace(node, "apply", _backward(node.apply))
        if hasattr(node, "apply_boxed"):
            _replace(node, "apply_boxed", _backward(node.apply_boxed))
        for cls in functions():
            _hook_class(cls)
    except BaseException as error:
        _take_hooks()
        if isinstance(error, AttributeError):
            raise _moved(error) from error
        raise


def _take_hooks():
    while _replaced:
        owner, name, before, now = _replaced.pop()
        if vars(owner).get(name) is not now:
            continue  # somebody has put something else there since
        if before is _MISSING:
            delattr(owner, name)
        else:
            setattr(owner, name, before)


def _replace(owner, name, value):
    _replaced.append((owner, name, vars(owner).get(name, _MISSING), value))
    setattr(owner, name, value)


def _hook_class(cls):
    if getattr(cls, "is_ours", False):
        return
    for name, hook in (("forward", _forward), ("setup_context", _setup_context)):
        method, raw = getattr(cls, name), inspect.getattr_static(cls, name)
        if method is getattr(Function, name) or getattr(method, "is_ours", False):
            continue  # not overridden, or a base class has the hook
        if isinstance(raw, classmethod):
            _replace(cls, name, classmethod(_of_class(raw.__func__, hook)))
        else:
            _replace(cls, name, staticmethod(_Hook(method, hook(method, cls))))


def _of_class(method, hook):
    """The hook for a classmethod: each class that inherits it hands over itself."""

    @functools.wraps(method)
    def hooked(cls, *args, **kwargs):
        return hook(functools.partial(method, cls), cls)(*args, **kwargs)

    hooked.is_ours = True
    return hooked


def _new_class(init):
    @functools.wraps(init)
    def hooked(cls, *args, **kwargs):
        init(cls, *args, **kwargs)
        with _lock:
            if _replaced and issubclass(cls, Function):
                _hook_class(cls)

    return hooked


class _Hook:
    """Stands in for a method. Torch reads the names of forward's arguments from its code."""

    is_ours = True

    def __init__(self, method, call):
        functools.update_wrapper(self, method)
        for name in ("__code__", "__defaults__", "__kwdefaults__"):
            if hasattr(method, name):
                setattr(self, name, getattr(method, name))
        self._call = call

    def __call__(self, *args, **kwargs):
        return self._call(*args, **kwargs)


def _forward(method, cls):
    in_place = _mentions(cls, "mark_dirty")  # then what forward is given is gone afterwards

    def forward(*args, **kwargs):
        if not _listeners or torch.compiler.is_compiling():
            return method(*args, **kwargs)
        if args and getattr(args[0], "is_ours", False):  # a stand-in for ctx
            return method(*args, **kwargs)
        ctx = args[0] if args and isinstance(args[0], internals.BackwardCFunction) else None
        if _is_unheard():
            if ctx is not None:
                ctx.metadata[OURS] = True
            return method(*args, **kwargs)
        if ctx is None:  # the new style: setup_context will say for which node this was
            call = Call(cls, args, kwargs, in_place)
            out = method(*args, **kwargs)
            _thread.last = call, args
            return out
        if CALL in ctx.metadata:  # another class's forward lends its ctx
            return method(*args, **kwargs)
        call = ctx.metadata[CALL] = Call(ctx._forward_cls, args[1:], kwargs, in_place)
        out = method(*args, **kwargs)
        _tell(call)
        return out

    return forward


def _setup_context(method, cls):
    def setup_context(ctx, inputs, output):
        known = isinstance(ctx, internals.BackwardCFunction)
        if not known or not _listeners or torch.compiler.is_compiling():
            return method(ctx, inputs, output)
        if _is_unheard():
            ctx.metadata[OURS] = True
            return method(ctx, inputs, output)
        call, args = getattr(_thread, "last", (None, ()))
        result = method(ctx, inputs, output)
        if issubclass(ctx._forward_cls, Function):
            _thread.last = None, ()
            if call is None or any(a is not b for a, b in zip(args, inputs, strict=False)):
                return result
            call.function = ctx._forward_cls
        elif _any_grad(inputs):  # made by torch.func around the class that is meant
            call = TransformedCall(_behind(ctx._forward_cls, cls), inputs, State.now())
        else:
            return result
        ctx.metadata[CALL] = call
        _tell(call)
        return result

    return setup_context


def _behind(generated, default):
    cells = generated.backward.__closure__ or ()
    classes = (c.cell_contents for c in cells)
    return next((c for c in classes if isinstance(c, internals.FunctionMeta)), default)


def _tell(call):
    call.forward_has_run()
    for listener in list(_listeners):
        listener.called(call)


def _backward(method):
    @functools.wraps(method)
    def apply(self, *grad_outs):
        given = tuple(grad_outs[0]) if _is_boxed(self, grad_outs) else grad_outs
        _thread.backwards = getattr(_thread, "backwards", 0) + 1
        try:
            grads = method(self, *grad_outs)
        finally:
            _thread.backwards -= 1
        recorded = torch.is_grad_enabled() and not torch.compiler.is_compiling()
        cls, known = self._forward_cls, self.metadata
        ours = getattr(cls, "is_ours", False) or OURS in known
        if not recorded or ours or _is_unheard() or (is_left_alone(cls) and CALL not in known):
            return grads
        if CALL in known and is_left_alone(known[CALL].function):
            return grads
        for listener in _once_each():
            grads = listener.after_backward(self, known.get(CALL), given, grads)
        return grads

    return apply


def _is_boxed(node, grad_outs):
    return len(grad_outs) == 1 and isinstance(grad_outs[0], list)


def _once_each():
    """Listeners without repetitions: nesting the same one changes nothing."""
    with _lock:
        return list(dict.fromkeys(_listeners))


def _any_grad(args):
    return any(isinstance(a, torch.Tensor) and a.requires_grad for a in args)


def _mentions(function, name):
    """Whether `name` stands in the code of forward or setup_context."""
    for method in (function.forward, function.setup_context):
        while method is not None:
            if name in getattr(getattr(method, "__code__", None), "co_names", ()):
                return True
            method = getattr(method, "__wrapped__", None)
    return False


# A new torch.


def _rehearse():
    """Call a Function made now, in both directions, and see that every hook is reached."""
    global _rehearsed
    if _rehearsed:
        return
    heard = []

    class Listening(Listener):
        def called(self, call):
            heard.append(call.function.__name__)

        def after_backward(self, node, call, grad_outs, grads):
            heard.append(call is not None and call.function.__name__)
            return grads

    def forward(ctx, x):
        return x * 2

    def backward(ctx, grad):
        return grad * 2

    name = "Rehearsal"
    body = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    try:
        with torch.enable_grad(), torch.inference_mode(False):
            function = type(name, (Function,), body)
            _listeners.append(listening := Listening())
            try:
                x = torch.ones(1, requires_grad=True)
                torch.autograd.grad(function.apply(x).sum(), x, create_graph=True)
            finally:
                _listeners.remove(listening)
    except AttributeError as error:
        raise _moved(error) from error
    if heard != [name, name]:
        raise _moved(f"a Function was met {len(heard)} times instead of twice")
    _rehearsed = True


def _moved(reason):
    return RuntimeError(
        f"torch {torch.__version__} calls custom Functions in a way that this package does not "
        f"know ({reason}). It was written for torch 2.11 to 2.15; see {__name__}."
    )
