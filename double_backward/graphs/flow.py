"""Records what one backward pass hands from operation to operation while it runs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from double_backward.graphs.walk import Edge, Graph, Node, origin

SHOWN = 3  # elements of a tensor that are written out

Grads = tuple[Tensor | None, ...]


@dataclass
class Flow:
    """The gradients of one backward pass; None stands for a gradient that no operation sent.

    Attributes:
        arrived: by (autograd node, output number), what arrived for that output.
        sent: by (autograd node, input number), what the node sent to that input.
        stopped: the error that ended the pass, or None.
    """

    arrived: dict[Edge, Tensor | None] = field(default_factory=dict)
    sent: dict[Edge, Tensor | None] = field(default_factory=dict)
    stopped: Exception | None = None

    def visited(self, node: Node) -> bool:
        """True if the pass went through the node, or ended there."""
        return any(fn is node.fn for fn, _ in self.arrived)


def record(
    graph: Graph, start: Tensor, ends: Sequence[Tensor], grad_outputs: Tensor | None
) -> Flow:
    """Run a backward pass from `start` to `ends` and keep what it handed on.

    The graph stays as it is: it is retained, and no `.grad` changes.

    Args:
        graph: `walk(start, ...)`.
        start: tensor of any shape.
        ends: tensors that require grad.
        grad_outputs: what the pass starts with, of the shape of `start`; ones where it is None.
    """
    if grad_outputs is None:
        grad_outputs = torch.ones_like(start)
    flow = Flow()
    handles = []
    for node in graph.nodes:
        handles.append(node.fn.register_prehook(_recorder(flow.arrived, node)))
        handles.append(node.fn.register_hook(_recorder(flow.sent, node)))
    try:
        grads = torch.autograd.grad(start, ends, grad_outputs, retain_graph=True, allow_unused=True)
        for tensor, grad in zip(ends, grads, strict=True):
            edge = origin(tensor)
            if edge is not None:
                flow.arrived[edge] = grad
    except Exception as error:  # the reader's backward, or autograd
        flow.stopped = error
    finally:
        for handle in handles:
            handle.remove()
    return flow


def _recorder(into: dict[Edge, Tensor | None], node: Node) -> Callable[..., None]:
    """A hook of a node, which torch calls with the gradients (for `sent`, also with those that the
    node got)."""

    def keep(grads: Grads, *_: Grads) -> None:
        for number, grad in enumerate(grads):
            into[node.fn, number] = grad

    return keep


def number_words(grad: Tensor | None) -> str:
    """The elements of a gradient as short text: "0.5", "1, 2", "1, 2, 3, ..."; "0" for a gradient
    that no operation sent, since autograd takes it for 0."""
    if grad is None:
        return "0"
    if grad.device.type == "meta" or grad.layout is not torch.strided:
        return f"a tensor {tuple(grad.shape)}"
    # + 0: no minus before a zero
    values = [f"{value + 0:.4g}" for value in grad.detach().flatten()[: SHOWN + 1].tolist()]
    if not values:
        return "an empty tensor"
    if (grad == grad.flatten()[0]).all():
        return values[0]
    if len(values) > SHOWN:
        values[SHOWN] = "..."
    return ", ".join(values)
