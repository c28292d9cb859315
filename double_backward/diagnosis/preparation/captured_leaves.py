"""What fn holds besides its arguments: in its closure, among its globals and attributes."""

from collections.abc import Callable

import torch
from torch import Tensor

from double_backward.check import EXACT
from double_backward.differences import apart, same, vjp
from double_backward.graphs.walk import walk
from double_backward.phrases import Phrase
from double_backward.surroundings import Surroundings, held_by

from .target import Evaluation, Target

FEW_PARAMETERS = 5000  # elements; the parameters of larger modules are named, not checked


class Holder(torch.nn.Module):
    """fn as a module whose submodules are those that fn holds, so that their parameters can be
    replaced."""

    def __init__(self, fn: Callable, modules: dict[str, torch.nn.Module]):
        super().__init__()
        self.fn = fn
        for name, module in modules.items():
            self.add_module(name.replace(".", "_") or "module", module)

    def forward(self, *args):
        return self.fn(*args)


def other_leaves(call: Evaluation) -> list[Tensor]:
    """The leaves in the graph of the outputs that are not inputs."""
    given = {id(leaf) for leaf in call.t}
    return [leaf for leaf in walk(*call.ys).leaves if id(leaf) not in given]


def forgotten_leaves(
    fn: Callable, target: Target, call: Evaluation, kept: list[Tensor]
) -> list[Tensor]:
    """Leaves that forward used where nothing is recorded, so that they get no gradient.

    These are the leaves that are kept, or that the graph of the first derivative contains, but not
    the graph of the outputs, although the outputs change with them. A leaf to which `.backward()`
    gives a gradient is not among them: a checkpoint's backward does that by itself.

    Args:
        call: an evaluation of `target`.
        kept: the tensors that the custom Functions keep.
    """
    behind = {id(leaf) for leaf in [*call.t, *other_leaves(call)]}
    held = [thing for _, thing in held_by(fn) if isinstance(thing, Tensor)]
    found = {id(t): t for t in [*kept, *held] if t.is_leaf and t.requires_grad}
    if not found.keys() - behind:
        return []
    ones = [torch.ones_like(y) for y in call.ys]
    options = {"create_graph": True, "allow_unused": True}
    grads = [g for g in torch.autograd.grad(call.ys, call.t, ones, **options) if g is not None]
    used = {id(leaf) for leaf in [*kept, *other_leaves(call._replace(ys=grads))]}
    return [t for key, t in found.items() if key in used - behind and _forgotten(target, t)]


def _forgotten(target, leaf):
    ys = target.start().ys
    with Surroundings(leaf).unchanged(objects=False):
        leaf.data.mul_(1.01).add_(0.01)
        if all(map(same, ys, target.start().ys)):
            return False
    leaf.grad = None
    torch.autograd.backward(ys, [torch.ones_like(y) for y in ys])
    return leaf.grad is None


def backward_follows(replaced: Target, as_given: Target, module: torch.nn.Module) -> bool:
    """Whether backward uses the parameters that replaced the module's own.

    A backward that uses the module's own, as a checkpoint's does, gives another first derivative
    than it does where the module's own parameters have the same values as those that replace them.

    Args:
        replaced: the target whose inputs are those of `as_given` and the parameters.
        as_given: the target whose inputs are the arguments only.
        module: the module that has the parameters. Its values are put back afterwards.
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
    with Surroundings(module).unchanged(objects=False):
        for name, value in values.items():
            own[name].data.copy_(value)
        call = as_given.at(point[:count]).start()
        ones = [torch.ones_like(y) for y in call.ys]
        true = vjp(call.ys, [*call.t, *(own[name] for name in names)], ones)
    return not apart(got, true, EXACT[torch.float32]).any()


def holder(fn: Callable, leaves: list[Tensor]) -> Holder | None:
    """`Holder` of fn and the modules whose parameters are among the leaves; None if there are none,
    or they are not small."""
    wanted, taken = {id(leaf) for leaf in leaves}, set[int]()
    modules: dict[str, torch.nn.Module] = {}
    for name, thing in held_by(fn) if leaves else ():
        if not isinstance(thing, torch.nn.Module):
            continue
        own = {id(parameter) for parameter in thing.parameters()}
        if own & (wanted - taken):  # the outermost module comes first
            modules[name] = thing
            taken |= own
    size = sum(p.numel() for module in modules.values() for p in module.parameters())
    return Holder(fn, modules) if modules and size <= FEW_PARAMETERS else None


def names_of(leaves: list[Tensor], fn: Callable) -> tuple[str, ...]:
    """The names of leaves that fn holds, and the shapes of the others."""
    names = {id(thing): name for name, thing in held_by(fn)} if leaves else {}
    return tuple(
        names.get(id(leaf)) or Phrase("one of shape {}", tuple(leaf.shape)) for leaf in leaves
    )
