"""Tensors that are no plain ones: each verb judges them, or says truly why it does not."""

import warnings

import pytest
import torch
from made_functions import function
from torch import nn
from torch.autograd import grad
from torch.utils._pytree import tree_map_only

from double_backward import (
    SecondDerivativeError,
    UncheckedFunctionWarning,
    detect_intermediates,
    diagnose,
    diagnose_all,
    draw,
    recompute_intermediates,
)


class Named(torch.Tensor):
    """As torch makes a subclass by itself."""


class Asked(torch.Tensor):
    """It is asked at each operation."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})


class NoClone(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.Tensor.clone:
            raise RuntimeError("no clone")
        return super().__torch_function__(func, types, args, kwargs or {})


class Wrapped(torch.Tensor):
    """It has no memory and holds another tensor."""

    @staticmethod
    def __new__(cls, held):
        return torch.Tensor._make_wrapper_subclass(
            cls, held.shape, dtype=held.dtype, requires_grad=held.requires_grad
        )

    def __init__(self, held):
        self.held = held.detach()

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        args, kwargs = tree_map_only(Wrapped, lambda x: x.held, (args, kwargs or {}))
        return tree_map_only(torch.Tensor, Wrapped, func(*args, **kwargs))


class OwnParameter(nn.Parameter):
    pass


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(point())

    def forward(self, x):
        return x * self.scale


def point():
    return torch.tensor([0.5, 1.5, 2.0], dtype=torch.float64)


def rows():
    return [torch.full((n, 2), 0.5, dtype=torch.float64) for n in (1, 3)]


def masked():
    return torch.masked.masked_tensor(
        point(), torch.tensor([True, False, True]), requires_grad=True
    )


# What is handed over, and why it is not judged; "" where it is.
INPUTS = {
    "a subclass": (lambda: point().as_subclass(Named).requires_grad_(), ""),
    "one that is asked": (lambda: point().as_subclass(Asked).requires_grad_(), ""),
    "a parameter": (lambda: nn.Parameter(point()), ""),
    "a parameter of one's own": (lambda: OwnParameter(point()), ""),
    "a wrapper": (
        lambda: Wrapped(point()).requires_grad_(),
        "a Wrapped, a tensor without memory of its own",
    ),
    "a masked tensor": (masked, "a MaskedTensor, a tensor without memory of its own"),
    "a jagged tensor": (
        lambda: torch.nested.nested_tensor(rows(), layout=torch.jagged).requires_grad_(),
        "a nested tensor",
    ),
    "meta": (lambda: point().to("meta").requires_grad_(), "on the meta device"),
}


def kept(ctx, x):
    ctx.save_for_backward(x)
    ctx.slope = 3 * x**2
    return x**3


def cube(right):
    def backward(ctx, g):
        return g * (3 * ctx.saved_tensors[0] ** 2 if right else ctx.slope)

    return function(kept, backward, "Cube").apply


def summed(y):
    return y.values().sum() if y.is_nested else y.sum()


def second(f, x):
    (first,) = grad(summed(f(x) * f(x)), x, create_graph=True)
    return grad(summed(first), x)[0]


@pytest.mark.filterwarnings("ignore:The PyTorch API of")
@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize("name", INPUTS)
def test_each_verb_judges_it_or_says_why_not(name, right):
    make, reason = INPUTS[name]
    f, x = cube(right), make()
    found = diagnose(f, x)
    (row,) = [r for r in diagnose_all(lambda: second(f, x)).rows if r.name == "Cube"]
    with warnings.catch_warnings(record=True) as said, draws_nothing_wrong(f, x):
        warnings.simplefilter("always", UncheckedFunctionWarning)
        raised = {}
        for verb in (detect_intermediates, recompute_intermediates):
            try:
                with verb():
                    second(f, x)
            except SecondDerivativeError as error:
                raised[verb] = " ".join(str(error).split())
    texts = [str(w.message) for w in said if w.category is UncheckedFunctionWarning]
    if reason:
        assert row.said == found.verdict == "not_checked"
        assert reason in found.findings[0].message and reason in " ".join(row.notes)
        assert any(reason in text for text in texts)
        assert detect_intermediates not in raised
        assert reason in raised.get(recompute_intermediates, reason)
    else:
        assert row.said == found.verdict == ("supported" if right else "silently_wrong")
        assert texts == [] and list(raised) == ([] if right else [detect_intermediates])


class draws_nothing_wrong:
    """`draw` raises for none of them."""

    def __init__(self, f, x):
        y = f(x)
        (grad_x,) = grad(summed(y), x, create_graph=True)
        self.picture = draw(grad_x=grad_x, x=x, out=y)

    def __enter__(self):
        assert "Cube" in str(self.picture)

    def __exit__(self, *_):
        pass


def test_draw_shows_a_leaf_of_a_subclass_as_any_other():
    f, x = cube(True), point().as_subclass(Named).requires_grad_()
    plain = point().requires_grad_()
    pictures = [str(draw(x=each, out=f(each))) for each in (x, plain)]
    assert pictures[0] == pictures[1]


@pytest.mark.parametrize("right", [True, False])
def test_beside_scripted_quantised_and_inference_tensors(right):
    scripted = torch.jit.script(Scaled())
    quantised = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)
    with torch.inference_mode():
        made = point()
    f, verdict = cube(right), "supported" if right else "silently_wrong"

    def fn(x):
        return f(scripted(x)) * quantised.dequantize().double() * made.clone()

    assert diagnose(fn, point().requires_grad_()).verdict == verdict
    (row,) = diagnose_all(lambda: second(fn, point().requires_grad_())).rows
    assert row.said == verdict


@pytest.mark.parametrize("right", [True, False])
def test_a_sparse_input_is_judged_by_diagnose_and_named_by_the_others(right):
    f, x = cube(right), torch.eye(3, dtype=torch.float64).to_sparse().requires_grad_()
    verdict = "supported" if right else "silently_wrong"
    (row,) = diagnose_all(lambda: second(f, x)).rows
    assert diagnose(f, x).verdict == row.said == verdict
    with pytest.warns(UncheckedFunctionWarning, match="layout sparse_coo"), detect_intermediates():
        second(f, x)


@pytest.mark.parametrize("right", [True, False])
def test_a_copy_that_a_class_refuses_is_told_as_that(right):
    f, x = cube(right), point().as_subclass(NoClone).requires_grad_()
    table = diagnose_all(lambda: second(f, x))
    assert table.error is None
    assert table.rows[0].said == ("supported" if right else "silently_wrong")  # copied by itself
    (finding,) = diagnose(f, x).findings
    assert finding.code == "beyond_diagnose" and "no clone" in finding.message
