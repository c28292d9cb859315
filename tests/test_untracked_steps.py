"""Steps of a backward that autograd does not follow: seen, with the line."""

import numpy as np
import pytest
import torch
from made_functions import cubic
from test_check import x
from torch.autograd import Function

from double_backward import diagnose
from double_backward.diagnosis.preparation.time_limit import EndlessRecursion, no_endless_recursion
from double_backward.untracked_steps import ALL_STEPS, OF_FN, Watch, told, watched


def no_grad(g, x):
    with torch.no_grad():
        slope = 3 * x**2
    return g * slope


def in_inference_mode(g, x):
    with torch.inference_mode():
        slope = 3 * x**2
    return g * slope.clone()


def inner_grad(g, x):
    with torch.enable_grad():
        alias = x.view_as(x)
        return torch.autograd.grad(alias**3, alias, g)[0]


def inner_backward(g, x):
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        (leaf**3).backward(g)
    return leaf.grad


@torch.library.custom_op("steps_test::square", mutates_args={"out"})
def square_into(x: torch.Tensor, out: torch.Tensor) -> None:
    out.copy_(x**2)


def written_by_an_operator(g, x):
    out = torch.empty_like(x)
    square_into(x, out)
    return g * 3 * out


LIBRARY = torch.library.Library("steps_test", "FRAGMENT")
LIBRARY.define("without_backward(Tensor x) -> Tensor")
LIBRARY.impl("without_backward", lambda x: torch.from_numpy(x.detach().numpy() ** 2), "CPU")


BACKWARDS = {  # the step, and a backward that takes it
    "detach": lambda g, x: g * 3 * x.detach() ** 2,
    "data": lambda g, x: g * 3 * x.data**2,
    "inference": in_inference_mode,
    "no_grad": no_grad,
    "grad": inner_grad,
    "backward": inner_backward,
    "tensor": lambda g, x: g * 3 * torch.tensor(x) ** 2,
    "item": lambda g, x: g * 3 * x * x[0].item(),
    "tolist": lambda g, x: g * 3 * torch.tensor(x.tolist()) ** 2,
    "float": lambda g, x: g * 3 * x * float(x[0]),
    "numpy": lambda g, x: g * 3 * torch.from_numpy(np.square(x.detach().numpy())),
    "variable": lambda g, x: g * 3 * torch.autograd.Variable(x, requires_grad=False) ** 2,
    "mutates": written_by_an_operator,
    "operator": lambda g, x: g * 3 * torch.ops.steps_test.without_backward(x),
}


def second(fn):
    point = x().requires_grad_()
    (first,) = torch.autograd.grad(fn(point).sum() + (point**2).sum(), point, create_graph=True)
    return torch.autograd.grad(first.sum(), point)[0]


@pytest.mark.filterwarnings("ignore:To copy construct", "ignore:.*an autograd kernel was not")
@pytest.mark.parametrize("kind", BACKWARDS)
def test_a_step_is_seen_with_its_line(kind):
    fn = cubic(BACKWARDS[kind])
    with watched([fn.__self__]) as steps:
        second(fn)
    last = steps[-1]
    assert last.kind == kind and "line " in last.where and "`" in last.where, steps
    assert ALL_STEPS[kind] in told(steps)
    message = {f.code: f.message for f in diagnose(fn, x().requires_grad_()).findings}
    assert f"{ALL_STEPS[kind]} in {last.where}" in message["untracked_backward"], message


def test_every_kind_of_step_is_tried():
    assert set(BACKWARDS) == set(ALL_STEPS) - set(OF_FN)


@pytest.mark.parametrize(
    "kind, detached",
    [("detach", torch.Tensor.detach_), ("tolist", lambda x: x.new_tensor(x.tolist()))],
)
def test_a_step_by_another_name_is_seen(kind, detached):
    fn = cubic(lambda g, x: g * 3 * detached(x.clone()) ** 2)
    with watched([fn.__self__]) as steps:
        second(fn)
    assert [step.kind for step in steps] == [
        {True: "detach", False: "tolist"}[detached is torch.Tensor.detach_]
    ]


def test_a_parameter_made_of_a_tensor_has_none_of_its_graph():
    fn = cubic(lambda g, x: g * 3 * torch.nn.Parameter(x) ** 2)
    with watched([fn.__self__]) as steps:
        second(lambda x: fn(x * 1))
    assert [step.kind for step in steps] == ["variable"]


def test_memory_that_is_used_again_is_no_step():
    def backward(g, x):
        total = torch.zeros_like(x)
        for factor in (1.0, 2.0):
            part = factor * x**2  # gone when the next one is made, often in the same place
            total = total + part
            del part
            total = total + torch.zeros_like(x)
        return g * total

    fn = cubic(backward)
    with watched([fn.__self__]) as steps:
        second(fn)
    assert not steps


def test_the_end_of_enable_grad_inside_no_grad_is_no_step():
    def backward(g, x):
        with torch.no_grad():
            with torch.enable_grad():
                slope = 3 * x**2
            return g * slope.detach()

    fn = cubic(backward)
    with watched([fn.__self__]) as steps:
        second(fn)
    assert [step.where.split("`")[1] for step in steps] == ["with torch.no_grad():"]


def test_a_line_elsewhere_has_its_file_and_the_line_that_led_there(tmp_path):
    (tmp_path / "helping.py").write_text("def cut(x):\n    return x.detach()\n")
    there: dict = {}
    code = compile((tmp_path / "helping.py").read_text(), str(tmp_path / "helping.py"), "exec")
    exec(code, there)
    fn = cubic(lambda g, x: g * 3 * there["cut"](x) ** 2)
    with watched([fn.__self__]) as steps:
        second(fn)
    where = steps[0].where
    assert where.startswith(f"cut, line 2 of {tmp_path.name}/helping.py: `return x.detach()`")
    assert ", called from <lambda>, line " in where and "*ctx.saved_tensors" in where


def test_nothing_is_seen_in_a_backward_that_autograd_follows():
    def differentiating(g, x):
        with torch.enable_grad():
            alias = x.view_as(x)
            return torch.autograd.grad(alias**3, alias, g, create_graph=True)[0]

    constants = lambda g, x: g * 3 * x**2 + torch.zeros(1).item() + x.new_zeros(()).detach()  # noqa: E731
    for fn in (cubic(constants), cubic(differentiating)):
        with watched([fn.__self__]) as steps:
            second(fn)
        assert not steps


def test_the_class_is_as_before():
    class Parent(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            return g.detach()

    class Child(Parent):
        pass

    before = dict(vars(Parent))
    with pytest.raises(ZeroDivisionError), watched([Parent, Child]):
        1 / 0  # noqa: B018
    assert dict(vars(Parent)) == before and "backward" not in vars(Child)


def test_a_line_of_the_code_that_asks_is_none_of_backward():
    with Watch() as watch:
        x().requires_grad_().detach()
    assert watch.steps[0].where.startswith("test_a_line_of_the_code_that_asks")


class CubicRoot(Function):
    """z with z³ + a z = y, differentiated in backward, from a detached copy of z."""

    @staticmethod
    def forward(ctx, y, a):
        z = torch.zeros_like(y)
        for _ in range(60):
            z = z - (z**3 + a * z - y) / (3 * z**2 + a)
        ctx.save_for_backward(z, a)
        return z

    @staticmethod
    def backward(ctx, grad_out):
        z, a = ctx.saved_tensors
        with torch.enable_grad():
            z = z.detach().requires_grad_()
            y = z**3 + a * z
        (slope,) = torch.autograd.grad(y, z, torch.ones_like(y), retain_graph=True)
        grad_y = grad_out / slope
        return grad_y, torch.autograd.grad(y, a, -grad_y, retain_graph=True)[0]


class Endless(CubicRoot):
    @staticmethod
    def backward(ctx, grad_out):
        z, a = ctx.saved_tensors
        with torch.enable_grad():
            y = z**3 + a * z
        return grad_out, torch.autograd.grad(y, a, -grad_out)[0]


def test_backwards_inside_one_another_are_ended_whatever_they_differentiate():
    y, a = (torch.tensor([v], dtype=torch.float64, requires_grad=True) for v in (0.3, 1.0))
    with no_endless_recursion(), pytest.raises(EndlessRecursion):
        torch.autograd.grad(Endless.apply(y, a), y)
