"""torch's own list of its operations, and the first sample of each as a function to differentiate.

The list is the one that torch's tests run over: `op_db`, 700 operations, each with the statement
whether it has a second derivative, and with samples of its arguments. It is no public interface,
and it wants the package `expecttest`.
"""

from functools import cache

import torch
from torch.utils import _pytree as pytree


@cache
def database():
    """Name -> entry, of those that torch says can be differentiated twice in float64."""
    from torch.testing._internal.common_methods_invocations import op_db

    return {
        entry.full_name: entry
        for entry in op_db
        if entry.supports_autograd and entry.supports_gradgrad and torch.float64 in entry.dtypes
    }


class Operation:
    """One operation with the arguments of its first float64 sample.

    Attributes:
        function: what is compiled, the operation itself, as in `torch.tanh`.
        points: the arguments that are differentiated, float64, detached; one at least.
    """

    def __init__(self, name):
        self.entry = database()[name]
        self.function = self.entry.op
        torch.manual_seed(0)
        self.sample = next(iter(self.entry.sample_inputs("cpu", torch.float64, requires_grad=True)))
        arguments = (self.sample.input, self.sample.args, self.sample.kwargs)
        self.leaves, self.structure = pytree.tree_flatten(arguments)
        self.places = [i for i, leaf in enumerate(self.leaves) if differentiable(leaf)]
        self.points = [self.leaves[i].detach().clone() for i in self.places]
        if not self.points:
            raise ValueError("no argument of the first sample is differentiable")

    def __call__(self, function, points):
        """Outputs at `points`, those that require grad, through `function`, compiled or not.

        What torch's own tests do around an operation is done here too, and not compiled: a matrix
        is made symmetric for those that want one, a sign that is anybody's choice is dropped.
        """
        leaves = [leaf.detach().clone() if torch.is_tensor(leaf) else leaf for leaf in self.leaves]
        for place, point in zip(self.places, points, strict=True):
            leaves[place] = point
        first, args, kwargs = pytree.tree_unflatten(leaves, self.structure)
        torch.manual_seed(0)
        out = self.entry.gradcheck_wrapper(function, first, *args, **kwargs)
        outputs = pytree.tree_leaves(self.sample.output_process_fn_grad(out))
        outputs = [y for y in outputs if torch.is_tensor(y) and y.requires_grad]
        return [torch.view_as_real(y.resolve_conj()) if y.is_complex() else y for y in outputs]


def differentiable(leaf):
    return torch.is_tensor(leaf) and leaf.requires_grad and leaf.dtype == torch.float64
