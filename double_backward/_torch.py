"""Every private hook of torch that the tool uses, and whether this version of torch has it.

All of them are in torch 2.9 to 2.15. If a new version has moved one, a sentence says so when the
tool is imported, and so does `python -m double_backward._torch`:

    engine          `torch.autograd.grad` and `backward` enter the engine in one place
    nodes           the class of a custom node, what it saved, what it gets
    versions        how often a tensor was written into, and putting that back
    transforms      what `torch.func` wraps, and at which level
    operators       the Function that `torch.library` makes of an operator, what was registered
    dynamo          code that is not compiled
    dispatch        each operation as it runs, and nested containers
"""

import functools
import inspect
import operator
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import cache, reduce
from importlib import import_module
from pkgutil import resolve_name
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function, forward_ad
from torch.autograd import function as functions
from torch.overrides import TorchFunctionMode

TESTED = "2.9 to 2.15"
EDITED = "modified by an inplace operation"  # what torch says of a saved tensor that changed
NAMES = {  # private name -> what it is used for
    "torch.autograd._engine_run_backward": "where every pass of the engine begins",
    "torch.autograd._is_checkpoint_valid": "what a checkpoint asks before it refuses",
    "torch.autograd.functional._autograd_grad": "what it takes for 0, since it has no graph",
    "torch.autograd.forward_ad._current_level": "whether forward mode is on",
    "torch.autograd.forward_ad._set_fwd_grad_enabled": "to switch forward mode on",
    "torch.autograd.function.BackwardCFunction.__init__": "where a call of a Function begins",
    "torch.autograd.function.BackwardCFunction.apply": "where its backward begins",
    "torch.autograd.function.BackwardCFunction.apply_jvp": "where its jvp begins",
    "torch._C.DisableTorchFunctionSubclass": "operations of a subclass as those of a tensor",
    "torch._C._autograd._get_current_graph_task_keep_graph": "whether backward frees the graph",
    "torch._C._autograd._top_saved_tensors_default_hooks": "whether what is saved is packed",
    "torch._C._autograd._unsafe_set_version_counter": "to put a counter back",
    "torch._C._dispatch_has_kernel_for_dispatch_key": "whether an operator is meant to be constant",
    "torch._C._jit_resolve_packet": "which overload of an operator is called",
    "torch._C._autocast_supported_devices": "for which devices there is autocast",
    "torch._C._current_autograd_node": "whose backward runs",
    "torch._C._dispatch_keys": "whether a tensor is a batch of gradients",
    "torch._C._dynamo.eval_frame._FrameAction": "what Dynamo does with code",
    "torch._C._dynamo.eval_frame._FrameExecStrategy": "the same",
    "torch._C._dynamo.eval_frame.set_code_exec_strategy": "to have Dynamo leave code alone",
    "torch._C._dynamo.eval_frame.set_eval_frame": "to have Dynamo leave a call alone",
    "torch._C._functorch.TransformType": "which transforms of torch.func are active",
    "torch._C._functorch.get_interpreter_stack": "the same",
    "torch._C._functorch.get_unwrapped": "the tensor inside a transform's",
    "torch._C._functorch.is_batchedtensor": "whether vmap has wrapped it",
    "torch._C._functorch.is_functorch_wrapped_tensor": "whether a transform has",
    "torch._C._functorch.maybe_get_bdim": "along which dimension",
    "torch._C._get_dispatch_mode": "whether what runs is traced",
    "torch._C._is_any_autocast_enabled": "whether autocast is on",
    "torch._C._set_grad_enabled": "a no_grad inside backward",
    "torch._C._TorchDispatchModeKey.FAKE": "whether what runs is traced",
    "torch._C._will_engine_execute_node": "which gradients of a Function a pass asks for",
    "torch._C._len_torch_function_stack": "to take a mode away from between others",
    "torch._C._pop_torch_function_stack": "the same",
    "torch._C._push_on_torch_function_stack": "the same",
    "torch._C._vmapmode_decrement_nesting": "to step out of batched gradients",
    "torch._C._vmapmode_increment_nesting": "the same",
    "torch._C._after_ADInplaceOrView_keyset": "to run an operator's kernel, and record it",
    "torch._functorch.autograd_function.generate_single_level_function": "Functions in torch.func",
    "torch._functorch.pyfunctorch.temporarily_clear_interpreter_stack": "to step out of torch.func",
    "torch._library.autograd.make_autograd_impl": "the Function that stands for an operator",
    "torch._library.custom_ops.CustomOpDef": "a registered operator",
    "torch._library.custom_ops.OPDEFS": "the same",
    "torch._ops.OpOverload": "the same",
    "torch._ops.OpOverload.__call__": "where an operator is called",
    "torch._ops.OpOverloadPacket": "a registered operator",
    "torch._ops.OpOverloadPacket.__call__": "where an operator is called",
    "torch._add_batch_dim": "to make a batch of gradients",
    "torch._remove_batch_dim": "the first of batched gradients",
    "torch.utils._python_dispatch.TorchDispatchMode": "to see each operation",
    "torch.utils.hooks.BackwardHook.__init__": "where the hooks of a module are called",
    "torch.utils._pytree.tree_flatten": "tensors in nested containers",
}
INSTEAD_OF = "_double_backward_instead_of"  # attribute of a replacement that `replaced` makes
OF_A_NODE = {  # attribute of a custom node -> what it is used for
    "_forward_cls": "its class",
    "_input_metadata": "the shapes of its grad_outs",
    "_sequence_nr": "which of two was made first",
    "metadata": "to carry what is known of it",
}


def missing() -> list[str]:
    """A sentence for each hook that this version of torch does not have; [] if it has all."""
    lost = _names_that_are_gone()
    out: Any = _Small.apply(torch.ones(1, requires_grad=True))  # up to 2.12 its node dies with it
    node = out.grad_fn
    lost += [(f"grad_fn.{name}", use) for name, use in OF_A_NODE.items() if not hasattr(node, name)]
    square = torch.ones(1, requires_grad=True) ** 2
    if not any(map(_says_what_is_saved, dir(square.grad_fn))):
        lost.append(("grad_fn._saved_self", "what an operation of torch saved"))
    if not _operators_are_known():
        lost.append(("Function of the known kind for an operator", "what was registered for it"))
    return _said_of(lost)


def _names_that_are_gone() -> list[tuple[str, str]]:
    return [(name, use) for name, use in NAMES.items() if _there(name) is None]


def _said_of(lost: list[tuple[str, str]]) -> list[str]:
    return [
        f"torch {torch.__version__} has no {name} ({use}); the tool is tested with {TESTED}."
        for name, use in lost
    ]


def hooks() -> list[Any]:
    """The objects that the private names stand for now. One that other code has replaced is another
    object than before; one that is gone is None."""
    there = [getattr(owner, "__dict__", {}).get(name) for owner, name in _owners()]
    return [vars(Function)["apply"], *map(_behind_ours, there)]


def _behind_ours(hook: Any) -> Any:
    """The hook that was there before `replaced`."""
    while hasattr(hook, INSTEAD_OF):
        hook = getattr(hook, INSTEAD_OF)
    return hook


@cache
def _owners() -> list[tuple[Any, str]]:
    """(module or class, attribute) for each of the names; None for a module or class that is
    gone."""
    parts = [name.rpartition(".") for name in NAMES]
    return [(_there(owner), name) for owner, _, name in parts]


def _there(name: str) -> Any:
    try:
        return resolve_name(name)
    except (ImportError, AttributeError):
        return None


def _operators_are_known() -> bool:
    """Whether what was registered for an operator is found behind the Function that torch makes."""
    try:
        made_by = import_module("torch._library.autograd")
        info = made_by.Info(abs, min)
        made = made_by.make_autograd_impl(torch.ops.aten.sin.default, info).__closure__
        classes = [c.cell_contents for c in made if isinstance(c.cell_contents, type)]
        found = [operator_behind(c) for c in classes if issubclass(c, Function)]
        return found == [(torch.ops.aten.sin.default, info)] and registered(info) == (abs, min)
    except (ImportError, AttributeError, TypeError):
        return False


class _Small(Function):
    is_ours = True  # so that no listener is told of it

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> Tensor:
        return grad_out * 2


def _says_what_is_saved(name: str) -> bool:
    return name.startswith("_saved_")


try:
    from torch._C import _set_grad_enabled as set_grad_enabled
    from torch._C._dynamo.eval_frame import (
        _FrameAction,
        _FrameExecStrategy,
        set_code_exec_strategy,
        set_eval_frame,
    )
    from torch._C._functorch import (
        TransformType,
        get_interpreter_stack,
        get_unwrapped,
        is_batchedtensor,
        is_functorch_wrapped_tensor,
        maybe_get_bdim,
    )
    from torch._functorch import autograd_function as transforms
    from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
    from torch._library.custom_ops import OPDEFS, CustomOpDef
    from torch._ops import OpOverload, OpOverloadPacket
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import (
        TreeSpec,
        tree_flatten,
        tree_leaves,
        tree_map,
        tree_map_only,
        tree_unflatten,
    )
except ImportError as error:
    raise ImportError(" ".join(_said_of(_names_that_are_gone())) or str(error)) from error


# The engine.


def engine_replaced(by: Callable[[Callable], Callable]) -> AbstractContextManager[None]:
    """Inside, each backward pass, in every thread, calls `by(engine)` instead of the engine."""
    return replaced(torch.autograd, {"_engine_run_backward": by})


def functional_replaced(by: Callable[[Callable], Callable]) -> AbstractContextManager[None]:
    """Inside, `torch.autograd.functional` takes gradients by `by(...)` instead."""
    return replaced(torch.autograd.functional, {"_autograd_grad": by})


def checkpoints_allowed() -> AbstractContextManager[None]:
    """Inside, a reentrant checkpoint does not refuse `torch.autograd.grad`."""
    return replaced(torch.autograd, {"_is_checkpoint_valid": lambda refuses: lambda: True})


def of_nodes_replaced(
    made: Callable, jvp: Callable | None, apply: Callable
) -> AbstractContextManager[None]:
    """Inside, in every thread, `made` wraps the making of a node, `jvp` forward mode through it,
    and `apply` its backward."""
    node = functions.BackwardCFunction
    by = {"__init__": made, "apply": apply} | ({"apply_jvp": jvp} if jvp else {})
    if hasattr(node, "apply_boxed"):
        by["apply_boxed"] = apply
    return replaced(node, by)


class _Replaced:
    """The wrappers around one attribute, the innermost first, which may be added and removed in any
    order."""

    def __init__(self, owner: Any, name: str) -> None:
        self.owner, self.name = owner, name
        self.is_own = name in vars(owner)
        self.before = self.now = getattr(owner, name)
        self.around: list[list[Callable]] = []  # lists of one, to tell equal wrappers apart

        @functools.wraps(self.before)
        def hook(*args: Any, **kwargs: Any) -> Any:
            return self.now(*args, **kwargs)

        self.hook = not_for_dynamo(hook)
        setattr(hook, INSTEAD_OF, self.before)
        setattr(owner, name, hook)

    def set_anew(self) -> None:
        self.now = self.before
        for (by,) in self.around:
            self.now = not_for_dynamo(by(self.now))
        if self.around or vars(self.owner).get(self.name) is not self.hook:
            return  # in the second case other code has replaced the hook since
        if self.is_own:
            setattr(self.owner, self.name, self.before)
        else:
            delattr(self.owner, self.name)


_attributes: dict[tuple[int, str], _Replaced] = {}  # by (id of owner, name); owners live for ever
_replacing = threading.RLock()


def is_anything_replaced() -> bool:
    """Whether anything of torch is replaced now."""
    return bool(_attributes)


@contextmanager
def replaced(owner: Any, by: dict[str, Callable[[Callable], Callable]]) -> Iterator[None]:
    """Inside, in every thread, each attribute of a module or class is `by[name](attribute)`. Blocks
    that replace the same attribute may end in any order."""
    places, wrappers = [(id(owner), name) for name in by], [[wrapper] for wrapper in by.values()]
    with _replacing:
        for place, name, wrapper in zip(places, by, wrappers, strict=True):
            known = _attributes.get(place) or _Replaced(owner, name)
            _attributes[place] = known
            known.around.append(wrapper)
            known.set_anew()
    try:
        yield
    finally:
        with _replacing:
            for place, wrapper in zip(places, wrappers, strict=True):
                known = _attributes[place]
                known.around = [each for each in known.around if each is not wrapper]
                known.set_anew()
                if not known.around:
                    del _attributes[place]


def graph_is_kept() -> bool:
    """Whether the pass that is running keeps the graph for another one (`retain_graph=True`)."""
    return torch._C._autograd._get_current_graph_task_keep_graph()


def wanted_here() -> list[bool]:
    """For each tensor to which the node whose backward is running was applied: whether the pass
    needs its gradient. [] outside of backward."""
    node = torch._C._current_autograd_node()
    following = [next_node for next_node, _ in node.next_functions] if node is not None else []
    return [each is not None and _will_run(each) for each in following]


def _will_run(node: Any) -> bool:
    try:
        return torch._C._will_engine_execute_node(node)
    except RuntimeError:  # a leaf that the pass was told to differentiate by
        return True


def saving_hooks_replaced(
    by: Callable[[Callable, Callable], tuple],
) -> AbstractContextManager[None]:
    """Inside, `by(pack, unpack)` stand for each pair of `saved_tensors_hooks` that is entered."""

    def made(enter: Callable) -> Callable:
        def with_others(self: Any) -> Any:
            own = self.pack_hook, self.unpack_hook
            self.pack_hook, self.unpack_hook = by(*own)
            try:
                return enter(self)
            finally:
                self.pack_hook, self.unpack_hook = own

        return with_others

    return replaced(torch.autograd.graph.saved_tensors_hooks, {"__enter__": made})


def module_hooks_replaced(by: Callable[[Callable], Callable]) -> AbstractContextManager[None]:
    """Inside, each backward hook of a module that is called is `by(hook)` instead."""

    def made(init: Callable) -> Callable:
        def with_others(self: Any, module: Any, hooks: Any, pre_hooks: Any) -> None:
            init(self, module, [by(hook) for hook in hooks], [by(hook) for hook in pre_hooks])

        return with_others

    return replaced(resolve_name("torch.utils.hooks.BackwardHook"), {"__init__": made})


# Nodes.


def class_of(node: Any) -> Any:
    """The `torch.autograd.Function` of a node; None for an operation of torch."""
    return getattr(node, "_forward_cls", None)


def metadata_of(node: Any) -> dict:
    """A dict that lives as long as the node."""
    return node.metadata  # torch's types say a function


def grad_outs_of(node: Any) -> tuple:
    """An object with shape, dtype and device for each gradient that a node gets."""
    return getattr(node, "_input_metadata", ())


def number_of(node: Any) -> int:
    """The number of a node, which is larger for nodes that were made later in the same thread."""
    return node._sequence_nr()


@cache
def saved_attributes(node_type: type) -> list[str]:
    """The attributes that hold what an operation of torch saved."""
    return list(filter(_says_what_is_saved, dir(node_type)))


# Registered operators.

OF_TORCH = "aten", "prims", "prim", "_c10d_functional", "c10d", "c10d_functional", "inductor"
BACKWARD = "_backward_fn"  # the attribute that holds the backward that was registered


def operator_behind(cls: Any) -> tuple[Any, Any] | None:
    """The overload of a registered operator, and the object with what was registered for it, from
    the Function that `torch.library` has made of these; None for any other class."""
    if cls.__module__ != "torch._library.autograd":
        return None
    held = _closed_over(cls.backward)
    while "op" not in held and "orig_backward" in held:  # one for lists of tensors wraps it
        held = _closed_over(held["orig_backward"])
    return (held["op"], held["info"]) if {"op", "info"} <= held.keys() else None


def _closed_over(function: Any) -> dict[str, Any]:
    names, cells = function.__code__.co_freevars, function.__closure__ or ()
    return {name: cell.cell_contents for name, cell in zip(names, cells, strict=True)}


def registered(info: Any) -> tuple[Any, Any]:
    """The backward and the setup_context of an operator, None for one that it does not have."""
    return getattr(info, BACKWARD, None), getattr(info, "_setup_context_fn", None)


def kernels_of(info: Any) -> list[Any]:
    """The Python bodies of an operator, one for each kind of device, as far as torch has them."""
    wrapped = getattr(info, "_backend_fns", {}).values()
    inside = [_closed_over(inspect.unwrap(each)).get("fn") for each in wrapped]
    return [each for each in (getattr(info, "_init_fn", None), *inside) if callable(each)]


def overload_of(given: Any) -> Any:
    """The overload of a registered operator, given as `torch.ops.my.op` or as what `custom_op`
    returns; None for anything else."""
    if isinstance(given, CustomOpDef):
        return given._opoverload
    if isinstance(given, OpOverloadPacket):
        return getattr(given, (given.overloads() or [""])[0], None)
    return given if isinstance(given, OpOverload) else None


def arguments_of(overload: Any) -> list[Any]:
    """The arguments in its schema: each has a name, a default value, and whether it is a
    keyword."""
    return list(overload._schema.arguments)


def returns_of(overload: Any) -> list[Any]:
    """The results in its schema: each has a type."""
    return list(overload._schema.returns)


def writes(overload: Any) -> bool:
    """Whether an operator that is not torch's own writes into its arguments."""
    return overload._schema.is_mutable and overload.namespace != "aten"


def definition_of(overload: Any) -> Any:
    """What `custom_op` has made of it, which holds what was registered; else None."""
    return OPDEFS.get(overload._schema.name)


@contextmanager
def of_operators_replaced(wrapper: Callable[[Callable], Callable]) -> Iterator[None]:
    """Inside, the call of an operator of `torch.ops` is what `wrapper` makes of it."""
    with ExitStack() as stack:
        for kind in (OpOverload, OpOverloadPacket):
            stack.enter_context(replaced(kind, {"__call__": wrapper}))
        yield


def overload_called(called: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """The overload that runs for a call of an operator of `torch.ops`; None for torch's own, and
    for anything else."""
    if not isinstance(called, (OpOverload, OpOverloadPacket)):
        return None
    if isinstance(called, OpOverload):
        return None if called.namespace in OF_TORCH else called
    name = called._qualified_op_name
    if name.startswith(tuple(f"{each}::" for each in OF_TORCH)):
        return None
    if len(called.overloads()) > 1:
        return getattr(called, torch._C._jit_resolve_packet(name, *args, **kwargs) or "default")
    return overload_of(called)


def is_untracked(tensor: Tensor) -> bool:
    """Whether an operator without a kernel for an Autograd key has returned this, so that torch
    takes it for a constant, with no more than a warning."""
    return tensor.grad_fn is not None and tensor.grad_fn.name().endswith("::WarnNotImplemented")


def is_declared_constant(overload: Any) -> bool:
    """Whether something, such as a fallthrough, is registered for the Autograd key."""
    name = overload.name().removesuffix(".default")
    return torch._C._dispatch_has_kernel_for_dispatch_key(name, "Autograd")


def drops_tangent(overload: Any, given: Iterable[Any], returned: Iterable[Any]) -> bool:
    """Whether an operator that was handed a tangent has returned what could have one and has none,
    or has written into what it was given."""
    if not any(has_tangent(value) for value in given if isinstance(value, Tensor)):
        return False
    floating = (y for y in returned if isinstance(y, Tensor) and y.is_floating_point())
    return writes(overload) or not all(map(has_tangent, floating))


def has_tangent(tensor: Tensor) -> bool:
    return forward_ad.unpack_dual(tensor).tangent is not None


def kernel_called(overload: Any, tensors: Iterable[Tensor], args: Any, kwargs: Any) -> Any:
    """Call the kernel of an operator, which torch dispatches to below autograd, in such a way that
    what it does is recorded where grad mode is on."""
    keys = reduce(operator.or_, map(torch._C._dispatch_keys, tensors))
    return overload.redispatch(keys & torch._C._after_ADInplaceOrView_keyset, *args, **kwargs)


# Tensors.


def version(tensor: Tensor) -> int | None:
    """How often a tensor was written into; None for an inference tensor, which does not count."""
    return None if tensor.is_inference() else tensor._version


def set_version(tensor: Tensor, count: int) -> None:
    torch._C._autograd._unsafe_set_version_counter((tensor,), (count,))


def base_of(tensor: Tensor) -> Tensor | None:
    """The tensor of which this is a view, or None."""
    return tensor._base


def element_count(tensor: Tensor) -> int:
    """How many elements are stored."""
    return tensor.numel() if tensor.layout == torch.strided else tensor._nnz()


def as_plain_tensors() -> AbstractContextManager[None]:
    """Inside, `__torch_function__` of subclasses of Tensor is not called."""
    return torch._C.DisableTorchFunctionSubclass()


def unusual(tensor: Tensor) -> str:
    """A description of a tensor whose elements cannot be moved one by one; "" for any other."""
    if tensor.device.type == "meta":
        return "a tensor on the meta device, which has no numbers"
    if tensor.is_nested:
        return "a nested tensor"
    if tensor.layout is not torch.strided:
        return f"a tensor of layout {str(tensor.layout).removeprefix('torch.')}"
    if type(tensor) not in (Tensor, torch.nn.Parameter) and not _has_memory(tensor):
        return f"a {type(tensor).__name__}, a tensor without memory of its own"
    return ""


def _has_memory(tensor: Tensor) -> bool:
    try:
        return not tensor.numel() or bool(tensor.untyped_storage().data_ptr())
    except (RuntimeError, NotImplementedError):
        return False


# Settings for all that runs.


def autocast_now() -> tuple[tuple[str, torch.dtype], ...]:
    """(device type, dtype) for each device for which autocast is on."""
    if not torch._C._is_any_autocast_enabled():
        return ()
    devices = filter(torch.is_autocast_enabled, torch._C._autocast_supported_devices())
    return tuple((device, torch.get_autocast_dtype(device)) for device in devices)


def has_saving_hooks() -> bool:
    """Whether `saved_tensors_hooks` are active."""
    return torch._C._autograd._top_saved_tensors_default_hooks(True) is not None


# Transforms.


def in_forward_mode() -> bool:
    return forward_ad._current_level >= 0


def forward_mode() -> AbstractContextManager:
    return forward_ad._set_fwd_grad_enabled(True)


@cache
def load_formulas() -> None:
    """Import the formulas that torch imports with the first tangent, without its own deprecation
    warnings; and the compiler, which torch imports with the first tangent that is 0, so that its
    second or two do not count as time of fn."""
    with warnings.catch_warnings(), suppress(ImportError):
        warnings.simplefilter("ignore")
        import_module("torch._decomp.decompositions_for_jvp")
        import_module("torch._dynamo")


def levels() -> tuple[int, int]:
    """How many transforms of `torch.func` are active here: (forward mode, reverse mode)."""
    keys = [level.key() for level in get_interpreter_stack() or ()]
    return keys.count(TransformType.Jvp), keys.count(TransformType.Grad)


def is_transformed_here() -> bool:
    """Whether a transform of `torch.func`, which may be `vmap`, is active."""
    return bool(get_interpreter_stack())


class NoNumbers(Exception):
    """A batch of gradients inside a transform of another kind, whose numbers cannot be read."""


def plain(value: Any) -> Any:
    """A copy of the tensor inside the wrappers of `torch.func`, of a batch the first; a value that
    is no tensor is returned as it is. May raise `NoNumbers`."""
    if not isinstance(value, Tensor):
        return value
    dims = []  # first remove all wrappers: no operation takes one whose level is over
    while is_functorch_wrapped_tensor(value):
        dims += [maybe_get_bdim(value)] if is_batchedtensor(value) else []
        value = get_unwrapped(value)
    for dim in reversed(dims):
        value = value.select(dim, 0)
    try:
        return unbatched(value).detach().clone()
    except RuntimeError as error:
        if "Batching rule" not in str(error):
            raise
        raise NoNumbers from error


def unwrapped(tensor: Tensor) -> Tensor:
    """The tensor inside the wrappers of `torch.func`, a whole batch; their levels may be over."""
    while is_functorch_wrapped_tensor(tensor):
        tensor = get_unwrapped(tensor)
    return tensor


def is_followed(value: Any) -> bool:
    """Whether a tensor requires grad, at one of the levels of `torch.func` or outside."""
    if not isinstance(value, Tensor):
        return False
    while not value.requires_grad and is_functorch_wrapped_tensor(value):
        value = get_unwrapped(value)
    return value.requires_grad


def is_batched(value: Any) -> bool:
    """Whether a tensor is a batch of gradients from `is_grads_batched`."""
    return isinstance(value, Tensor) and torch._C._dispatch_keys(value).has("Batched")


def unbatched(value: Any) -> Any:
    """The first gradient of a batch from `is_grads_batched`; any other value as it is."""
    if not isinstance(value, Tensor):
        return value
    for level in range(1, 4):
        if not is_batched(value):
            break
        value = torch._remove_batch_dim(value, level, 1, 0)[0]
    return value


def one_by_one(function: Callable, given: Iterable[Any]) -> Any:
    """What a function returns for each gradient of a batch by itself, as a batch again."""
    given = list(given)
    for level in range(3, 0, -1):  # the innermost first
        parts = [torch._remove_batch_dim(g, level, 0, 0) if is_batched(g) else g for g in given]
        inside = [is_batched(g) and bool(len(p)) for g, p in zip(given, parts, strict=True)]
        if any(inside):
            break
    else:
        with outside_batches():
            return function(*given)
    count = next(len(part) for part, there in zip(parts, inside, strict=True) if there)
    found = []
    for number in range(count):
        pairs = zip(parts, given, inside, strict=True)
        found.append(one_by_one(function, [p[number] if there else g for p, g, there in pairs]))
    if not isinstance(found[0], tuple):
        return _as_batch(found, level)
    return tuple(_as_batch(each, level) for each in zip(*found, strict=True))


def _as_batch(results: Iterable[Any], level: int) -> Any:
    """A batch of gradients, some of which may be None."""
    known = next((each for each in results if each is not None), None)
    if known is None:
        return None
    with outside_batches():
        each = [torch.zeros_like(known) if one is None else one for one in results]
        return torch._add_batch_dim(torch.stack(each), 0, level)


def behind_vmap(function: Any) -> Any:
    """The Function from which `torch.vmap` has made this class; any other class as it is."""
    while function.__name__.startswith("Vmapped"):
        cells = getattr(function.forward, "__closure__", None) or ()
        inside = (cell.cell_contents for cell in cells)
        behind = [f for f in inside if isinstance(f, type) and issubclass(f, Function)]
        if not behind:
            break
        function = behind[0]
    return function


@contextmanager
def outside_batches() -> Iterator[None]:
    """Inside, the `vmap` of batched gradients is not active."""
    depth = torch._C._vmapmode_increment_nesting() - 1
    for _ in range(depth + 1):
        torch._C._vmapmode_decrement_nesting()
    try:
        yield
    finally:
        for _ in range(depth):
            torch._C._vmapmode_increment_nesting()


def mode_left(mode: TorchFunctionMode) -> bool:
    """Remove a mode from this thread's stack of modes; False if it is not on it."""
    above = []
    while torch._C._len_torch_function_stack():
        top = torch._C._pop_torch_function_stack()
        if top is mode:
            break
        above.append(top)
    else:
        top = None
    for each in reversed(above):
        torch._C._push_on_torch_function_stack(each)
    return top is mode


# Dynamo, and operations as they run.


def not_for_dynamo(hook: Any) -> Any:
    """`hook`, marked so that Dynamo does not try to compile it."""
    strategy = _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.DEFAULT)
    set_code_exec_strategy(hook.__code__, strategy)
    return hook


class uncompiled:
    """Inside, Dynamo compiles nothing that this thread runs."""

    @not_for_dynamo
    def __enter__(self) -> None:
        self._before = set_eval_frame(None)

    @not_for_dynamo
    def __exit__(self, *_: object) -> None:
        set_eval_frame(self._before)


class Watching(TorchDispatchMode):
    """Sees each operation as it runs.

    An error of `before` or `after` is kept in `error`, and not raised inside the code that is
    watched, which might catch it.
    """

    error: Exception | None = None

    def before(self, operation: Any, args: tuple, kwargs: dict[str, Any]) -> None:
        """Called before each operation."""

    def after(self, operation: Any, args: tuple, kwargs: dict[str, Any], result: Any) -> Any:
        """Called after each operation; returns what takes the place of its result."""
        return result


def _watched(
    self: Watching, operation: Any, _: Any, args: Any = (), kwargs: dict[str, Any] | None = None
) -> Any:
    kwargs = kwargs or {}
    with uncompiled():
        try:
            self.before(operation, args, kwargs)
        except Exception as error:
            self.error = self.error or error
        if operation is torch.ops.aten._efficientzerotensor.default:
            operation = torch.ops.aten.zeros.default  # inside a mode, the former ends the process
        result = operation(*args, **kwargs)
        try:
            return self.after(operation, args, kwargs, result)
        except Exception as error:
            self.error = self.error or error
            return result


# This is set afterwards, since torch wraps what it finds in the body of a class, in code that
# imports Dynamo.
Watching.__torch_dispatch__ = not_for_dynamo(_watched)  # type: ignore[method-assign]


def has_compiled() -> bool:
    """Whether `torch.compile` has been called. Compiled code would be compiled anew under a mode
    that was not active before."""
    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    made = getattr(dynamo, "cached_backends", {None: dynamo}).values()
    return any(backend is not None for backend in made)  # None: of `set_stance`


def is_traced() -> bool:
    """Whether the code that runs has no numbers, since it is being compiled or traced."""
    fake = torch._C._TorchDispatchModeKey.FAKE
    return torch.compiler.is_compiling() or torch._C._get_dispatch_mode(fake) is not None


def written_by(operation: Any, args: tuple, kwargs: dict) -> list[Any]:
    """The arguments that an operation writes into."""
    about = [
        a.alias_info is not None and a.alias_info.is_write for a in operation._schema.arguments
    ]
    given = [*args, *(kwargs.get(a.name) for a in operation._schema.arguments[len(args) :])]
    return [value for value, writes in zip(given, about, strict=True) if writes]


def returns_a_view(operation: Any) -> bool:
    """Whether the result of an operation shares memory with an argument."""
    return any(r.alias_info is not None for r in operation._schema.returns)


if __name__ == "__main__":
    raise SystemExit("\n".join(missing()) or None)
