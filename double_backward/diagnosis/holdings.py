"""What fn holds besides its arguments: in its closure, among its globals and attributes."""

import dis
import functools
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from double_backward.check import EXACT
from double_backward.differences import apart, same, vjp

from .target import Evaluation, Target

DEEP = 4  # steps from fn to what it holds
MOST = 1000  # elements of a container that are looked at
SMALL = 5000  # elements; parameters of larger modules are named, not checked


class Holder(torch.nn.Module):
    """fn with the modules that it holds as its own, so that their parameters can be replaced."""

    def __init__(self, fn: Callable, modules: dict[str, torch.nn.Module]):
        super().__init__()
        self.fn = fn
        for name, module in modules.items():
            self.add_module(name.replace(".", "_") or "module", module)

    def forward(self, *args):
        return self.fn(*args)


def other_leaves(call: Evaluation) -> list[Tensor]:
    """The leaves behind the outputs that are no inputs."""
    found: list[Tensor] = []
    seen: set[object] = {id(leaf) for leaf in call.t}
    todo = [y.grad_fn for y in call.ys]
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)
        if leaf is not None and id(leaf) not in seen:
            seen.add(id(leaf))
            found.append(leaf)
        todo.extend(below for below, _ in node.next_functions)
    return found


def forgotten_leaves(target: Target, call: Evaluation, kept: list[Tensor]) -> list[Tensor]:
    """Leaves that forward used where nothing is recorded, and that so get no gradient.

    Those among what is kept, or behind the first derivative, that do not stand behind the outputs,
    although these change with them. One that `.backward()` gives a gradient is none: a checkpoint's
    backward does that by itself. `call` is one of the target.
    """
    behind = {id(leaf) for leaf in [*call.t, *other_leaves(call)]}
    held = [thing for _, thing in reachable(target.fn) if isinstance(thing, Tensor)]
    found = {id(t): t for t in [*kept, *held] if t.is_leaf and t.requires_grad}
    if not found.keys() - behind:
        return []
    ones = [torch.ones_like(y) for y in call.ys]
    options = {"create_graph": True, "allow_unused": True}
    grads = [g for g in torch.autograd.grad(call.ys, call.t, ones, **options) if g is not None]
    used = {id(leaf) for leaf in [*kept, *other_leaves(call._replace(ys=grads))]}
    return [t for key, t in found.items() if key in used - behind and _forgotten(target, t)]


def _forgotten(target, leaf):
    before, ys = leaf.detach().clone(), target.start().ys
    try:
        leaf.data.mul_(1.01).add_(0.01)
        if all(map(same, ys, target.start().ys)):
            return False
    finally:
        leaf.data.copy_(before)
    leaf.grad = None
    torch.autograd.backward(ys, [torch.ones_like(y) for y in ys])
    return leaf.grad is None


def backward_follows(replaced: Target, as_given: Target, module: torch.nn.Module) -> bool:
    """Whether backward sees the parameters that replaced the module's own.

    One that goes back to these, as a checkpoint's does, gives another first derivative than where
    the module's own really have those values.

    Args:
        replaced: its inputs are those of `as_given`, then parameters, which are handed over.
        as_given: fn of its arguments only.
        module: whose parameters they are. Its values are as before afterwards.
    """
    point = [x + 0.05 for x in replaced.point]
    call = replaced.at(point).start()
    got = vjp(call.ys, call.t, [torch.ones_like(y) for y in call.ys])
    count = len(as_given.point)
    values = dict(zip(replaced.state, replaced.slots[-len(replaced.state) :], strict=True))
    moved = [build(x) for build, x in zip(replaced.builds, point, strict=True)]
    names = [replaced.state[i - len(replaced.slots)] for i in replaced.where[count:]]
    values.update(zip(names, moved[count:], strict=True))
    own = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    with _set({name: (own[name], value) for name, value in values.items()}):
        call = as_given.at(point[:count]).start()
        ones = [torch.ones_like(y) for y in call.ys]
        true = vjp(call.ys, [*call.t, *(own[name] for name in names)], ones)
    return not apart(got, true, EXACT[torch.float32]).any()


@contextmanager
def _set(tensors: dict[str, tuple[Tensor, Tensor]]) -> Iterator[None]:
    """Give tensors other values for a while."""
    before = {name: tensor.detach().clone() for name, (tensor, _) in tensors.items()}
    try:
        for tensor, value in tensors.values():
            tensor.data.copy_(value)
        yield
    finally:
        for name, (tensor, _) in tensors.items():
            tensor.data.copy_(before[name])


def holder(fn: Callable, leaves: list[Tensor]) -> Holder | None:
    """fn with the modules whose parameters are among the leaves; None where they are not small."""
    wanted, taken = {id(leaf) for leaf in leaves}, set[int]()
    modules: dict[str, torch.nn.Module] = {}
    for name, thing in reachable(fn):
        if not isinstance(thing, torch.nn.Module):
            continue
        own = {id(parameter) for parameter in thing.parameters()}
        if own & (wanted - taken):  # the outermost module comes first
            modules[name] = thing
            taken |= own
    size = sum(p.numel() for module in modules.values() for p in module.parameters())
    return Holder(fn, modules) if modules and size <= SMALL else None


def names_of(leaves: list[Tensor], fn: Callable) -> tuple[str, ...]:
    """Their names where fn holds them, else their shapes."""
    fn = fn.fn if isinstance(fn, Holder) else fn
    names = {id(thing): name for name, thing in reachable(fn)}
    return tuple(names.get(id(leaf)) or f"one of shape {tuple(leaf.shape)}" for leaf in leaves)


def reachable(fn: Callable) -> Iterator[tuple[str, Tensor | torch.nn.Module]]:
    """(name, tensor or module) for each that fn holds."""
    yield from _reachable(fn, "", DEEP, set())


def _reachable(thing, name, deep, seen):
    """(name, tensor or module) for each that `thing` holds."""
    if id(thing) in seen or deep < 0:
        return
    seen.add(id(thing))
    if isinstance(thing, Tensor):
        yield name, thing
        return
    if isinstance(thing, torch.nn.Module):
        for below, module in thing.named_modules(prefix=name):
            yield below, module
        for below, tensor in [*thing.named_parameters(name), *thing.named_buffers(name)]:
            if id(tensor) not in seen:
                seen.add(id(tensor))
                yield below, tensor
        return
    for below, part in _parts(thing):
        yield from _reachable(
            part, f"{name}.{below}" if name and below else name or below, deep - 1, seen
        )


def _parts(thing):
    """(name, part) of functions, methods, classes of Functions, containers and plain objects."""
    if isinstance(thing, functools.partial):
        return [("", thing.func), *(("", a) for a in thing.args), *thing.keywords.items()]
    if isinstance(thing, types.MethodType):
        return [("", thing.__self__), ("", thing.__func__)]
    if isinstance(thing, types.BuiltinMethodType):  # from torch 2.15 on, `apply` of a Function
        return [("", thing.__self__)] if isinstance(thing.__self__, type) else []
    if isinstance(thing, types.FunctionType):
        return _parts_of_function(thing)
    if isinstance(thing, (staticmethod, classmethod)):
        return [("", thing.__func__)]
    if isinstance(thing, dict):
        return [(str(key), part) for key, part in list(thing.items())[:MOST]]
    if isinstance(thing, (list, tuple)):
        return [(str(i), part) for i, part in enumerate(thing[:MOST])]
    if isinstance(thing, type):
        own = issubclass(thing, torch.autograd.Function)
        return [(name, part) for name, part in vars(thing).items() if own and name != "__doc__"]
    if isinstance(thing, types.ModuleType) or callable(thing) and not hasattr(thing, "__dict__"):
        return []
    return list(getattr(thing, "__dict__", {}).items())[:MOST]


def global_names(function: types.FunctionType) -> list[str]:
    """The names of what a function takes from its module, and not those of attributes."""
    return [name for name in _loaded(function.__code__) if name in function.__globals__]


@functools.lru_cache(maxsize=1000)  # a quarter of the time of `diagnose`, else
def _loaded(code: types.CodeType) -> tuple[str, ...]:
    names = [i.argval for i in dis.get_instructions(code) if i.opname == "LOAD_GLOBAL"]
    return tuple(dict.fromkeys(names))


def _parts_of_function(function):
    parts = list(zip(function.__code__.co_freevars, function.__closure__ or (), strict=False))
    found = []
    for name, cell in parts:
        try:
            found.append((name, cell.cell_contents))
        except ValueError:  # not filled yet
            continue
    found += [(name, function.__globals__[name]) for name in global_names(function)]
    return found + [("", part) for part in function.__defaults__ or ()]
