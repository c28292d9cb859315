"""torch's own list of its operations, with its samples, as regions to compile and differentiate.

The list is the one that torch's tests run over: `op_db`, 700 operations, each with the statement
whether it has a second derivative, and with samples of its arguments. It is no public interface,
and it wants the package `expecttest`.
"""

from functools import cache
from itertools import islice

import torch
from torch.utils import _pytree as pytree

DTYPES = {"real": torch.float64, "complex": torch.complex128}
SAMPLES = 4  # the first of the list
ALL = "all"


@cache
def database():
    """Name -> entry, of those that torch says can be differentiated twice in float64."""
    from torch.testing._internal.common_methods_invocations import op_db

    return {
        entry.full_name: entry
        for entry in op_db
        if entry.supports_autograd and entry.supports_gradgrad and torch.float64 in entry.dtypes
    }


def kinds(name):
    """Of numbers: "real", and "complex" where the operation takes those."""
    return [kind for kind, dtype in DTYPES.items() if dtype in database()[name].dtypes]


def samples(name, kind):
    """The first samples, the same each time."""
    torch.manual_seed(0)
    listed = database()[name].sample_inputs("cpu", DTYPES[kind], requires_grad=True)
    return list(islice(listed, SAMPLES))


class Operation:
    """One operation at one sample, by one argument, the others constant, or by all together.

    Attributes:
        function: what is compiled, the operation itself, as in `torch.tanh`.
        points: all arguments that require grad, float64, detached. A complex one is the pair of
            its parts, in a last dimension of two.
        by: the names of the differentiable arguments, and "all" where there are several. A name
            is the position, from 1, as in "2"; inside a list "1.3"; or that of a keyword.
        moved: which of the points are moved along u in the first derivative's derivative.
        asked: of which of the points the second derivative is asked.
    """

    def __init__(self, name, kind="real", sample=0, by=ALL):
        self.entry = database()[name]
        self.sample = samples(name, kind)[sample]
        arguments = ((self.sample.input, *self.sample.args), self.sample.kwargs)
        paths, self.structure = pytree.tree_flatten_with_path(arguments)
        self.leaves = [leaf for _, leaf in paths]
        named = {argument(path): i for i, (path, leaf) in enumerate(paths) if differentiable(leaf)}
        if not named:
            raise ValueError("no argument of the sample is differentiable")
        self.by = [*named, ALL] if len(named) > 1 else [*named]
        self.places = list(named.values()) if by in (ALL, self.by[-1]) else [named[by]]
        self.points = [parts(self.leaves[i].detach().clone()) for i in self.places]
        self.moved = self.asked = range(len(self.points))

    def function(self, *args, **kwargs):
        return self.entry.op(*args, **kwargs)

    def leaves_at(self, at):
        return [p.detach().clone().requires_grad_() for p in at]

    def __call__(self, function, points):
        """Outputs at `points`, those that require grad, through `function`, compiled or not.

        What torch's own tests do around an operation is done here too, and not compiled: a matrix
        is made symmetric for those that want one, a sign that is anybody's choice is dropped.
        """
        leaves = [leaf.detach().clone() if torch.is_tensor(leaf) else leaf for leaf in self.leaves]
        for place, point in zip(self.places, points, strict=True):
            leaves[place] = whole(point) if self.leaves[place].is_complex() else point
        (first, *args), kwargs = pytree.tree_unflatten(leaves, self.structure)
        torch.default_generator.manual_seed(0)  # a quarter of the time that torch.manual_seed takes
        out = self.entry.gradcheck_wrapper(function, first, *args, **kwargs)
        outputs = pytree.tree_leaves(self.sample.output_process_fn_grad(out))
        return [parts(y) for y in outputs if torch.is_tensor(y) and y.requires_grad]


def differentiable(leaf):
    return torch.is_tensor(leaf) and leaf.requires_grad and leaf.dtype in DTYPES.values()


def argument(path):
    """Its name, from where it stands in ((first, *others), keywords)."""
    where, *inside = path[1:]
    names = [each.idx + 1 if hasattr(each, "idx") else each.key for each in (where, *inside)]
    return ".".join(map(str, names))


def parts(x):
    return torch.view_as_real(x.resolve_conj()) if x.is_complex() else x


def whole(x):
    return torch.view_as_complex(x.contiguous())
