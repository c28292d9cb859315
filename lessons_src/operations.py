"""Counting the operations torch really runs, whether autograd records them or not."""

from collections import Counter

from torch.utils._python_dispatch import TorchDispatchMode


class CountOperations(TorchDispatchMode):
    """Context manager that counts torch operations by name, in forward and in every backward.

    `counts` is a `collections.Counter`: after the `with` block, `counts["exp"]` is the number of
    calls of `torch.exp`, whatever the number of elements.
    """

    def __init__(self):
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.counts[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))
