"""A jvp of a Function's own, and torch.func: what diagnose, diagnose_all and the remedies say."""

import json
import warnings

import pytest
import torch
from torch import func
from torch.autograd import Function, grad

from double_backward import (
    SecondDerivativeError,
    UncheckedFunctionWarning,
    detect_intermediates,
    diagnose,
    diagnose_all,
    recompute_intermediates,
)
from double_backward.diagnosis import Verdict

POINT = torch.tensor([3.0, 1.0], dtype=torch.float64, requires_grad=True)
OTHER = torch.tensor([0.5, 2.0], dtype=torch.float64, requires_grad=True)


def with_jvp(jvp, **more):
    """x**2 by setup_context, with jvp(t, x)."""

    class Sq(Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return x * x

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)
            ctx.save_for_forward(*inputs)

        @staticmethod
        def backward(ctx, g):
            return 2 * ctx.saved_tensors[0] * g

    Sq.jvp = staticmethod(lambda ctx, t: jvp(t, *ctx.saved_tensors))
    for name, value in more.items():
        setattr(Sq, name, value)
    return Sq


Right = with_jvp(lambda t, x: 2 * x * t)
Forgetful = with_jvp(lambda t, x: 2 * x)
Scaled = with_jvp(lambda t, x: 2.02 * x * t)
Detached = with_jvp(lambda t, x: 2 * x.detach() * t)
Infinite = with_jvp(lambda t, x: 2 * x * t / (x - x))
Raising = with_jvp(lambda t, x: t.no_such_thing)
NoVmap = with_jvp(lambda t, x: 2 * x * t, generate_vmap_rule=False)


class NoJvp(Right):
    jvp = Function.jvp


class OnCtx(Function):
    """jvp from what is on ctx, without setup_context."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.x, ctx.y = x, y
        ctx.save_for_backward(x, y)
        return x * x * y

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return 2 * x * y * g, x * x * g

    @staticmethod
    def jvp(ctx, t, s):
        t = 0 * ctx.x if t is None else t
        s = 0 * ctx.y if s is None else s
        return 2 * ctx.x * ctx.y * t + ctx.x**2 * s


class WithoutSecond(OnCtx):
    @staticmethod
    def jvp(ctx, t, s):
        return 2 * ctx.x * ctx.y * t


class WrongWhereOneMoves(OnCtx):
    """Right where both have a tangent."""

    @staticmethod
    def jvp(ctx, t, s):
        if t is None or s is None or not (t.any() and s.any()):
            return 0 * ctx.x
        return 2 * ctx.x * ctx.y * t + ctx.x**2 * s


class Sorts(Function):
    """An output that is no number to differentiate, and one that is marked."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        out, places = x.sort()
        return out**3, places

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*inputs, output[1])
        ctx.save_for_forward(*inputs, output[1])

    @staticmethod
    def backward(ctx, g, _):
        x, places = ctx.saved_tensors
        return torch.zeros_like(x).scatter(0, places, g * 3 * x[places] ** 2)

    @staticmethod
    def jvp(ctx, t):
        x, places = ctx.saved_tensors
        return 3 * x[places] ** 2 * t[places], None


class Surrogate(Function):
    """A gradient that is meant, in both modes."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x.round()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0].cos()

    @staticmethod
    def jvp(ctx, t):
        return t * ctx.saved_tensors[0].cos()


WRONG = {  # -> what the finding says
    "forgets the tangent": (Forgetful.apply, "forgets", POINT),
    "scaled": (Scaled.apply, "1.01 times", POINT),
    "forgets an input": (WithoutSecond.apply, "another number", POINT, OTHER),
    "wrong where one input moves": (WrongWhereOneMoves.apply, "is 0 in the place", POINT, OTHER),
    "inside fn": (lambda x: (Forgetful.apply(x.sin()) ** 2).sum(), "forgets", POINT),
    "float32": (Scaled.apply, "1.01 times", POINT.detach().float().requires_grad_()),
    "not differentiable": (Detached.apply, "jvp is right", POINT),
    "not finite": (Infinite.apply, "NaN or infinity", POINT),
}
RIGHT = {
    "right": (Right.apply, POINT),
    "twice": (lambda x: Right.apply(Right.apply(x)), POINT),
    "several inputs, on ctx": (OnCtx.apply, POINT, OTHER),
    "one of them frozen": (lambda x: OnCtx.apply(x, OTHER.detach()), POINT),
    "places": (lambda x: Sorts.apply(x)[0], POINT),
    "no vmap rule": (NoVmap.apply, POINT),
    "no jvp": (NoJvp.apply, POINT),
    "no jvp beside one": (lambda x: NoJvp.apply(Right.apply(x)), POINT),
    "raises": (Raising.apply, POINT),
    "float32": (Right.apply, POINT.detach().float().requires_grad_()),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_jvp_is_a_finding(name):
    fn, said, *inputs = WRONG[name]
    found = diagnose(fn, *inputs)
    finding = found.findings[0]
    assert (found.verdict, found.ok) == (Verdict.WRONG_IN_FORWARD_MODE, False)
    assert finding.code == "wrong_in_forward_mode" and finding.function
    assert said in finding.message
    assert "right by backward, and not in forward mode" in str(found)
    assert json.dumps(found.to_dict())


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_function_is_no_finding(name):
    fn, *inputs = RIGHT[name]
    found = diagnose(fn, *inputs)
    assert found.ok, found
    assert not [f for f in found.findings if f.severity == "error"]


def logdet_is_wrong():
    """Whether the gradient of its jvp is, as in torch 2.13."""
    at, v = torch.eye(2, dtype=torch.float64) + 0.3, torch.ones(2, 2, dtype=torch.float64)
    func = torch.func
    got = func.grad(lambda a: func.jvp(torch.logdet, (a,), (v,))[1])(at)
    right = func.grad(lambda a: (func.grad(torch.logdet)(a) * v).sum())(at)
    return not torch.allclose(got, right)


def test_what_torch_gets_wrong_in_forward_mode_is_not_laid_to_a_function():
    if not logdet_is_wrong():
        pytest.skip("this torch gives it right")
    matrix = torch.tensor([[0.3, -1.0], [0.8, 0.1]], dtype=torch.float64, requires_grad=True)
    found = diagnose(lambda x: torch.logdet(3 * torch.eye(2) + Right.apply(x)), matrix)
    assert found.ok and found.forward_mode["grad of jvp"].outcome == "wrong"
    (finding,) = [f for f in found.findings if f.severity != "note"]
    assert (finding.code, finding.severity) == ("torch_in_forward_mode", "warning")
    blamed = diagnose(lambda x: torch.logdet(3 * torch.eye(2) + Detached.apply(x)), matrix)
    assert blamed.verdict == "wrong_in_forward_mode" and blamed.findings[0].function == "Sq"


class Knows(Right):
    """Another backward under torch.func."""

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        under = repr(x).startswith("GradTrackingTensor")
        return 2 * (x.detach() if under else x) * g


def test_another_number_under_torch_func_is_a_finding():
    found = diagnose(Knows.apply, POINT)
    assert found.verdict == "silently_wrong" and not found.ok
    assert [f.code for f in found.findings] == ["torch_func_differs"]
    assert diagnose(NoJvp.apply, POINT).ok


def words(fn, *inputs):
    found = diagnose(fn, *inputs)
    rows = {**found.forward_mode, **found.torch_func}
    return {name: row.text or str(row.outcome) for name, row in rows.items()}


def test_right_says_what_was_asked():
    assert words(Right.apply, POINT) == {
        "jvp": "right",
        "jvp of grad": "right",
        "grad of jvp": "right",
        "grad of grad": "right",
        "hessian": "right",
        "nested jacfwd": "0 in the place of another number",
    }
    assert words(OnCtx.apply, POINT, OTHER)["grad of grad"] == "no setup_context"
    assert words(NoVmap.apply, POINT)["hessian"] == "no vmap rule"
    assert words(NoJvp.apply, POINT) == {"grad of grad": "right", "hessian": "no jvp"}
    assert words(torch.sin, POINT) == {"grad of grad": "right"}
    assert words(Surrogate.apply, POINT) == {"grad of grad": "right"}


def test_rows_of_the_report():
    text = str(diagnose(NoJvp.apply, POINT))
    assert "torch.func          grad of grad    right" in text
    assert "hessian         not asked: no jvp" in text


def test_what_torch_gets_wrong_of_every_jvp_is_a_warning():
    found = diagnose(lambda x: Right.apply(Right.apply(x)), POINT)
    (finding,) = [f for f in found.findings if f.code == "nested_forward_mode"]
    assert found.ok and finding.severity == "warning"
    assert "torch.func.hessian" in finding.message


def test_a_written_argument_is_not_tried():
    class Writes(OnCtx):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x.clone(), y)
            ctx.mark_dirty(x)
            return x.mul_(x).mul_(y)

    row = diagnose(lambda x, y: Writes.apply(1 * x, y), POINT, OTHER).forward_mode.get("jvp")
    assert row is None or row.outcome == "not asked"


# A step.


def loss(f):
    return lambda x: (f(x) ** 2).sum()


def by_backward(f):
    (g,) = grad(loss(f)(POINT), POINT, create_graph=True)
    return grad(g.sum(), POINT)


STEPS = {  # a step, the Functions that it gets wrong, those that it does not
    "hessian": (lambda f: func.hessian(loss(f))(POINT.detach()), [Forgetful], [Right, Detached]),
    "jacrev of jacfwd": (
        lambda f: func.jacrev(func.jacfwd(loss(f)))(POINT.detach()),
        [Forgetful, Detached],
        [Right],
    ),
    "jacfwd": (lambda f: func.jacfwd(f)(POINT.detach()), [Forgetful], [Right, Detached]),
    "nested jacfwd": (
        lambda f: func.jacfwd(func.jacfwd(loss(f)))(POINT.detach()),
        [Right, Forgetful, Detached],
        [],
    ),
    "by backward": (by_backward, [], [Right, Forgetful, Detached]),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", STEPS)
def test_a_step_is_judged_as_far_as_it_goes_by_forward_mode(name):
    step, wrong, right = STEPS[name]
    for function in wrong + right:
        found = diagnose_all(lambda f=function: step(f.apply))
        (row,) = [row for row in found.rows if row.name == "Sq"]
        assert found.ok == (function in right), (function, found)
        if not row.ok:
            assert row.said == "wrong_in_forward_mode" and "forward_mode" in row.cause.code
        elif name == "by backward" and function is not Right:
            assert row.notes and row.said == "supported"


# The remedies.


def test_detect_and_recompute_raise_for_a_jvp_that_is_wrong():
    for verb in (detect_intermediates, recompute_intermediates):
        for function in (Forgetful, Scaled):
            with verb(), pytest.raises(SecondDerivativeError, match="what jvp returns"):
                func.hessian(loss(function.apply))(POINT.detach())
        with verb():
            func.hessian(loss(Right.apply))(POINT.detach())
            func.hessian(loss(Surrogate.apply))(POINT.detach())
            func.jacfwd(Forgetful.apply)(POINT.detach())  # a first derivative, which is not asked


class Another(Right):
    """Another result each time."""

    calls = 0

    @staticmethod
    def forward(x):
        Another.calls += 1
        if Another.calls > 1:
            raise RuntimeError("once only")
        return x * x


def test_what_cannot_be_tried_in_forward_mode_is_told():
    with warnings.catch_warnings(record=True) as met, detect_intermediates():
        warnings.simplefilter("always")
        func.jvp(func.grad(loss(Another.apply)), (POINT.detach(),), (POINT.detach(),))
    assert [w for w in met if w.category is UncheckedFunctionWarning]
