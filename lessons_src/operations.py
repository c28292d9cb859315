"""Counting what torch really does: the operations it runs, the tensors it saves for backward."""

from collections import Counter

from torch.autograd import grad
from torch.autograd.graph import saved_tensors_hooks
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


class SavedTensors(saved_tensors_hooks):
    """Context manager that notes what autograd saves for backward while it is open.

    Counted are storages: views of one memory, and tensors saved twice, count once. What a Function
    keeps on ctx passes by unseen, as it does for torch's own hooks.
    """

    def __init__(self):
        super().__init__(self._note, lambda tensor: tensor)
        self._storages = {}

    def __enter__(self):
        super().__enter__()
        return self

    def _note(self, tensor):
        storage = tensor.untyped_storage()
        self._storages[storage.data_ptr()] = storage
        return tensor

    def bytes_beyond(self, *held):
        """Bytes saved so far, as an int, in memory that none of the tensors `held` has anyway."""
        known = {tensor.untyped_storage().data_ptr() for tensor in held}
        new = (s for address, s in self._storages.items() if address not in known)
        return sum(storage.nbytes() for storage in new)


def cost(function, x):
    """What a way to keep an intermediate costs, in one line: bytes kept, exponentials computed.

    Args:
        function: callable from a tensor to a tensor of its shape.
        x: tensor that requires grad.

    Returns:
        str. Bytes are those saved beyond x, the result and grad_x: after forward, then after a
        backward with `create_graph`. Calls of `exp` are those of forward and backward together,
        without `create_graph`, then with it.
    """
    with CountOperations() as plain:
        grad(function(x).sum(), x)
    with CountOperations() as recorded, SavedTensors() as saved:
        out = function(x)
        after_forward = saved.bytes_beyond(x, out)
        (grad_x,) = grad(out.sum(), x, create_graph=True)
    kept = f"bytes {after_forward:2}, then {saved.bytes_beyond(x, out, grad_x):2}"
    return f"{kept}   exp {plain.counts['exp']}, recorded {recorded.counts['exp']}"
