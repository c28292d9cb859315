"""What is said of each thing that a Function keeps: its kind, size, place and name."""

import numpy as np
import pytest
import torch
from made_functions import function, message, x
from torch.autograd import Function

from double_backward import diagnose
from double_backward.diagnosis.preparation.functions import Kind, custom_functions
from double_backward.diagnosis.preparation.target import Target


def kept(forward, *inputs):
    """What a Function with this forward keeps; its backward is not called."""
    f = function(forward, None)
    target = Target.of(f.apply, inputs or (x(),))
    (found,) = custom_functions(target)
    return found.saved


def alone(forward, *inputs):
    (saved,) = kept(forward, *inputs)
    return saved


def saving(value):
    def forward(ctx, x):
        ctx.save_for_backward(value(x))
        return x**2

    return forward


def on_ctx(value):
    def forward(ctx, x):
        ctx.kept = value(x)
        return x**2

    return forward


def test_an_input():
    def forward(ctx, a, b):
        ctx.save_for_backward(None, b)
        return a * b

    saved = alone(forward, x(), x(0.1, 0.2))
    assert (saved.kind, saved.position, saved.slot, saved.name) == (Kind.INPUT, 1, 1, "")
    assert (saved.shape, saved.dtype, saved.bytes) == ((2,), "float64", 16)
    assert (saved.title, saved.on_ctx, saved.numeric) == ("b", False, False)
    saved = alone(forward, x().detach(), x())  # the name is found where another needs no gradient
    assert (saved.kind, saved.title) == (Kind.INPUT, "b")
    saved = alone(forward, x(), x().detach())
    assert (saved.kind, saved.position) == (Kind.INPUT, None)


def test_an_output():
    def forward(ctx, x):
        twice = 2 * x
        ctx.save_for_backward(*(twice,))  # the name is that of what is returned
        ctx.held = twice
        return x**2, twice

    saved, held = kept(forward)
    assert (saved.kind, saved.position, saved.title) == (Kind.OUTPUT, 1, "twice")
    assert (held.kind, held.position, held.title, held.slot) == (Kind.OUTPUT, 1, "ctx.held", "held")
    assert (saved.circular, held.circular) == (False, True)


@pytest.mark.parametrize(
    "value, kind",
    [
        (torch.exp, Kind.INTERMEDIATE),
        (torch.clone, Kind.INTERMEDIATE),
        (lambda x: x[1:], Kind.INTERMEDIATE),
        (lambda x: (1e6 * x).long(), Kind.INTERMEDIATE),
        (lambda x: (x > 0.7).to(torch.uint8), Kind.CONSTANT),
        (lambda x: x.argsort().to(torch.uint8), Kind.CONSTANT),
        (lambda x: (x > 0.7).to(x), Kind.CONSTANT),
        (lambda x: x > 0.7, Kind.CONSTANT),
        (torch.ones_like, Kind.CONSTANT),
        (lambda x: torch.arange(2), Kind.CONSTANT),
        (lambda x: x.max() - x.min() + 0 * x, Kind.INTERMEDIATE),  # a shift leaves it
        (lambda x: (2 * x).to_sparse(), Kind.INTERMEDIATE),
    ],
)
def test_a_tensor_made_in_forward(value, kind):
    for forward in (saving(value), on_ctx(value)):
        saved = alone(forward)
        assert (saved.kind, saved.edited) == (kind, False)


# Its name, and where it is saved.


def in_a_branch(ctx, x):
    if x.sum() < 0:
        shift, bottom = x + 1, x + 2
        ctx.save_for_backward(shift, bottom)
        return x**2
    weights, squares = x.exp(), x**4
    ctx.save_for_backward(weights, squares)
    return x**2


def unpacked(ctx, x):
    weights, squares = x.exp(), x**4
    to_save = [weights, squares]
    ctx.save_for_backward(*to_save)
    return x**2


def an_expression_between(ctx, x):
    weights = x.exp()
    ctx.save_for_backward(weights, x**4)
    return x**2


@pytest.mark.parametrize(
    "forward, titles",
    [
        (in_a_branch, ["weights", "squares"]),
        (unpacked, ["weights", "squares"]),
        (an_expression_between, ["weights", "saved_tensors[1]"]),
    ],
)
def test_the_name_of_a_saved_tensor_is_that_of_the_variable_that_is_it(forward, titles):
    found = kept(forward)
    assert [s.title for s in found] == titles
    # Where it has a name, the Function's own forward, which is named, needs no line.
    assert [bool(s.saved_in) for s in found] == [t.startswith("saved_tensors") for t in titles]


class Base(Function):
    @staticmethod
    def forward(ctx, x):
        weights = x.exp()
        ctx.save_for_backward(weights)
        return weights * 2

    @staticmethod
    def backward(ctx, grad_out):
        return grad_out * ctx.saved_tensors[0] * 2


class Derived(Base):
    pass


class InSetup(Base):
    @staticmethod
    def forward(x):
        return 2 * x.exp()

    @staticmethod
    def setup_context(ctx, inputs, output):
        weights = output / 2
        ctx.save_for_backward(weights)


def keep(ctx, *tensors):
    ctx.save_for_backward(*tensors)


def by_a_helper(ctx, x):
    weights = x.exp()
    keep(ctx, weights)
    return weights * 2


ByHelper = function(by_a_helper, Base.backward)


@pytest.mark.parametrize(
    "cls, saved_in",
    [
        (Derived, (Base.forward, 3, "Base.forward, ")),
        (Base, None),
        (InSetup, None),
        (ByHelper, (keep, 1, "keep, ")),
    ],
)
def test_a_save_in_another_class_or_function_is_told_with_its_line(cls, saved_in):
    (found,) = custom_functions(Target.of(cls.apply, (x(),)))
    (saved,) = found.saved
    assert saved.title == "weights"
    told = message(diagnose(cls.apply, x()), "intermediate_saved")
    if saved_in is None:
        assert saved.saved_in == "" and "(weights). Autograd" in told
        return
    method, below, name = saved_in
    line = method.__code__.co_firstlineno + below
    assert saved.saved_in == f"{name}tests/test_diagnosis_kept.py:{line}"
    assert f"(weights; saved in {saved.saved_in})" in told


def test_sizes():
    single = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    saved = alone(saving(lambda x: x.exp()[None]), single)
    assert (saved.shape, saved.dtype, saved.bytes) == ((1, 3), "float32", 12)
    saved = alone(on_ctx(lambda x: torch.eye(3).to_sparse()))
    assert (saved.shape, saved.dtype, saved.bytes) == ((3, 3), "float32", 12)


@pytest.mark.parametrize(
    "value, dtype",
    [
        (lambda x: x.sum().item(), "float"),
        (lambda x: complex(x.sum().item()), "complex"),
        (lambda x: np.float32(x.sum().item()), "float32"),
        (lambda x: x.detach().numpy() * 2, "NumPy float64"),
    ],
)
def test_numbers_on_ctx_that_change_with_an_input(value, dtype):
    saved = alone(on_ctx(value))
    assert (saved.kind, saved.dtype, saved.title) == (Kind.INTERMEDIATE, dtype, "ctx.kept")
    assert (saved.name, saved.slot) == ("kept", "kept") and saved.numeric
    assert saved.bytes == (16 if "NumPy" in dtype else 0)


@pytest.mark.parametrize(
    "value",
    [
        lambda x: 0.5,
        lambda x: float("nan"),
        lambda x: x.numel(),
        lambda x: x.sum().item() > 1.5,
        lambda x: np.ones(2),
        lambda x: "a word",
        lambda x: [x.sum().item()],  # where something is wrong, it is exchanged as a whole
    ],
)
def test_what_does_not_change_or_is_no_number_is_not_listed(value):
    assert kept(on_ctx(value)) == ()


def test_an_input_that_forward_has_written_into():
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.exp_()

    f = function(forward, None).apply
    (found,) = custom_functions(Target.of(lambda x: f(x * 1), (x(),)))
    assert found.saved[0].edited


def test_a_view_of_an_output_may_keep_its_own_graph():
    def forward(ctx, x):
        y = torch.exp(x)
        ctx.save_for_backward(y.view(-1), y.detach())
        return y

    view, detached = kept(forward)
    assert (view.circular, detached.circular) == (True, False)


def test_a_fn_with_no_value_beside_the_point_keeps_what_it_keeps():
    point = x()

    def only_there(x):
        if not torch.equal(x, point):
            raise ValueError
        return function(saving(torch.exp), None).apply(x)

    (found,) = custom_functions(Target.of(only_there, (point,)))
    assert [s.kind for s in found.saved] == [Kind.CONSTANT]  # nothing shows that it changes


def test_what_no_variable_is_is_told_with_the_line_that_saves_it():
    def forward(ctx, x):
        ctx.save_for_backward(x.exp())
        return x**2

    saved, line = alone(forward), forward.__code__.co_firstlineno + 1
    assert saved.title == "saved_tensors[0]"
    assert saved.saved_in == f"forward, tests/test_diagnosis_kept.py:{line}"
