import torch
from formulas import points

from lessons_src.derivatives import second
from lessons_src.operations import CountOperations, SavedTensors, cost
from lessons_src.saving_outputs import Exp
from lessons_src.what_not_to_do import SinhBad


def test_counts_calls_in_forward_and_in_backward():
    x = points()
    with CountOperations() as operations:
        second(lambda x: torch.exp(x).cos(), x)
    assert operations.counts["exp"] == 1  # its backward uses the result
    assert operations.counts["cos"] == 2  # once in forward, once for the second derivative
    assert operations.counts["sin"] == 1


def test_operations_get_all_their_arguments():
    with CountOperations() as operations:
        ones = torch.ones_like(points(), dtype=torch.float32)
    assert ones.dtype is torch.float32 and operations.counts["ones_like"] == 1


def test_counting_stops_with_the_block():
    with CountOperations() as operations:
        pass
    torch.exp(points())
    assert not operations.counts


def test_saved_memory_counts_once_and_not_what_is_held_anyway():
    x = points()
    with SavedTensors() as saved:
        out = torch.exp(x)  # saves its result
        assert saved.bytes_beyond(out) == 0
        assert saved.bytes_beyond(x) == out.nbytes
        (out * out.view(-1)).sin()  # saves out twice, in two shapes, and the product
    assert saved.bytes_beyond(out) == out.nbytes


def test_what_a_function_keeps_on_ctx_is_not_seen():
    with SavedTensors() as saved:
        SinhBad.apply(points())
    assert saved.bytes_beyond() == 0


def test_cost_counts_what_is_kept_and_what_is_computed():
    # Exp keeps its result, which is held anyway; the recorded product keeps grad_out, one number
    assert cost(Exp.apply, points()) == "bytes  0, then  8   exp 1, recorded 1"
