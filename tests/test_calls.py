"""A call that was met, made again: what was set around it, its precision, its outputs that are
used, its elements that are finite. Each verb says of each step here what is so.

A row: the step, given the Function; the same in plain torch; whether the Function is right there.
"""

from contextlib import contextmanager, nullcontext, suppress

import pytest
import torch
from made_functions import function
from torch.autograd import Function, grad
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from double_backward import (
    SecondDerivativeError,
    detect_intermediates,
    diagnose_all,
    recompute_intermediates,
)
from double_backward.remedies import known

INF = float("inf")


def second(f, x, around=nullcontext, backward=nullcontext):
    """Differentiated twice; forward and the first backward in surroundings of their own."""
    x = x.detach().requires_grad_()
    with around():
        loss = (f(x) ** 2).sum()
    with backward():
        (first,) = grad(loss, x, create_graph=True)
    return grad(first[first.isfinite()].sum(), x)[0]


def agree(got, truth):
    rtol = 0.03 if truth.dtype in (torch.float16, torch.bfloat16) else 2e-3
    torch.testing.assert_close(got, truth, rtol=rtol, atol=1e-6, equal_nan=True)


def judged(step, plain, right):
    """detect is silent, or raises; recompute gives the true number; the table says so."""
    truth = plain()
    if right:
        agree(step(), truth)
    with detect_intermediates(), nullcontext() if right else raising():
        agree(step(), truth)
    known.forget()
    with recompute_intermediates():
        agree(step(), truth)
    known.forget()
    table = diagnose_all(step, progress=False)
    own = [row for row in table.rows if not row.function.__module__.startswith("torch.")]
    assert all(row.ok for row in own) is right, table
    assert right or own[0].verdict == "silently_wrong", table


def raising():
    return pytest.raises(SecondDerivativeError, match="would be wrong")


@pytest.fixture(autouse=True)
def anew():
    """A warning is an error here: what could not be checked is no answer."""
    known.forget()
    before = torch.get_default_dtype(), torch.get_float32_matmul_precision()
    yield
    assert (torch.get_default_dtype(), torch.get_float32_matmul_precision()) == before
    assert not torch.is_autocast_enabled("cpu")
    assert not torch.are_deterministic_algorithms_enabled()


pytestmark = pytest.mark.filterwarnings("error::double_backward.UncheckedFunctionWarning")


# What is set around forward.


def sinh_keeping(kept, name="Kept"):
    """sinh, which saves `kept(x)` in the place of x."""

    def forward(ctx, x):
        ctx.save_for_backward(kept(x))
        return x.sinh()

    def backward(ctx, g):
        return (g * ctx.saved_tensors[0].cosh()).to(g.dtype)

    return function(forward, backward, name)


def copied_where(condition):
    return sinh_keeping(lambda x: x.clone() if condition() else x)


def casting(dtype):
    """As `custom_fwd(cast_inputs=dtype)` does it."""

    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=dtype)
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.tanh()

    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx, g):
        return g * (1 - ctx.saved_tensors[0].tanh() ** 2)

    return function(forward, backward)


def autocast(dtype=torch.bfloat16, **more):
    return lambda: torch.autocast("cpu", dtype=dtype, **more)


@contextmanager
def put(setter, value, before):
    setter(value)
    try:
        yield
    finally:
        setter(before)


def default_float64():
    return put(torch.set_default_dtype, torch.float64, torch.float32)


def deterministic():
    return put(torch.use_deterministic_algorithms, True, False)


def roughly():
    return put(torch.set_float32_matmul_precision, "high", "highest")


in_autocast = copied_where(lambda: torch.is_autocast_enabled("cpu"))
outside_autocast = copied_where(lambda: not torch.is_autocast_enabled("cpu"))
in_float16 = copied_where(
    lambda: torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.float16
)
with_cache = copied_where(torch.is_autocast_cache_enabled)
is_deterministic = copied_where(torch.are_deterministic_algorithms_enabled)
is_rough = copied_where(lambda: torch.get_float32_matmul_precision() == "high")
to_default = sinh_keeping(lambda x: x.to(torch.get_default_dtype()))
saves_x, keeps = sinh_keeping(lambda x: x), copied_where(lambda: True)

POINT = torch.tensor([0.3, 0.9])
SET = {
    "autocast": (in_autocast, autocast(), nullcontext, False),
    "no autocast": (in_autocast, nullcontext, nullcontext, True),
    "autocast switched off": (in_autocast, autocast(enabled=False), nullcontext, True),
    "autocast around backward alone": (in_autocast, nullcontext, autocast(), True),
    "wrong without autocast": (outside_autocast, nullcontext, nullcontext, False),
    "right in autocast": (outside_autocast, autocast(), nullcontext, True),
    "in float16": (in_float16, autocast(torch.float16), nullcontext, False),
    "in bfloat16": (in_float16, autocast(), nullcontext, True),
    "its cache": (with_cache, autocast(), nullcontext, False),
    "no cache": (with_cache, autocast(cache_enabled=False), nullcontext, True),
    "default dtype": (to_default, default_float64, nullcontext, False),
    "usual dtype": (to_default, nullcontext, nullcontext, True),
    "deterministic": (is_deterministic, deterministic, nullcontext, False),
    "not deterministic": (is_deterministic, nullcontext, nullcontext, True),
    "precision of products": (is_rough, roughly, nullcontext, False),
    "cast to float32": (casting(torch.float32), nullcontext, nullcontext, True),
}  # fmt: skip


@pytest.mark.parametrize("name", SET)
def test_what_is_set_around_a_call(name):
    f, around, backward, right = SET[name]
    plain = torch.tanh if name == "cast to float32" else torch.sinh
    judged(
        lambda: second(f.apply, POINT, around, backward),
        lambda: second(plain, POINT, around, backward),
        right,
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("cast, right", [(torch.float32, False), (None, True)])
def test_a_cast_copy_under_autocast(cast, right, dtype):
    torch.manual_seed(0)
    linear, x = torch.nn.Linear(3, 3), torch.randn(2, 3)
    f = casting(cast)

    def model(f):
        return lambda x: f(linear(x)).float()

    def step(f):
        return second(model(f), x, autocast(dtype))

    with detect_intermediates(), nullcontext() if right else raising():
        step(f.apply)
    table = diagnose_all(lambda: step(f.apply), progress=False)
    assert table.ok is right, table
    if not right:
        assert table.rows[0].cause.code == "input_copy_saved"


def packing(calls):
    def pack(t):
        calls.append(t)
        return t.numpy(force=True).copy()

    return lambda: saved_tensors_hooks(pack, torch.from_numpy)


@pytest.mark.parametrize("remedy", [detect_intermediates, recompute_intermediates])
@pytest.mark.parametrize("where", ["around", "backward"])
def test_nobody_elses_hooks_pack_what_a_trial_saves(where, remedy):
    plain, inside = [], []
    truth = second(saves_x.apply, POINT, **{where: packing(plain)})
    with remedy():
        agree(second(saves_x.apply, POINT, **{where: packing(inside)}), truth)
    assert len(inside) == len(plain)


HOOKED = {
    "hooks": lambda f: second(f, POINT, packing([])),
    "checkpoint": lambda f: second(lambda x: checkpoint(f, x, use_reentrant=False), POINT),
    "hooks that raise": lambda f: second(
        f, POINT, lambda: torch.autograd.graph.disable_saved_tensors_hooks("none here")),
    "after inference mode": lambda f: (torch.inference_mode()(f)(POINT), second(f, POINT))[1],
}  # fmt: skip


@pytest.mark.parametrize("f, right", [(saves_x, True), (keeps, False)], ids=["right", "wrong"])
@pytest.mark.parametrize("name", HOOKED)
def test_hooks_of_saved_tensors(name, f, right):
    judged(lambda: HOOKED[name](f.apply), lambda: HOOKED[name](torch.sinh), right)


def counted(ctx, x):
    COUNT.append("forward")
    return saves_x.forward(ctx, x)


def counting(backward):
    def and_counts(ctx, g):
        COUNT.append("backward")
        return backward(ctx, g)

    return function(counted, and_counts)


COUNT = []
HOOKED["on the CPU"] = lambda f: second(f, POINT, torch.autograd.graph.save_on_cpu)


@pytest.mark.parametrize("name", ["hooks", "checkpoint", "on the CPU"])
def test_what_a_hook_of_saved_tensors_does_is_not_taken_for_what_the_backward_does(name):
    """What counts its calls is called again only if it then does what it did."""

    def where_even(ctx, g):
        kept = len(COUNT) % 2 == 0  # as often as a checkpoint calls forward, this is another one
        (x,) = ctx.saved_tensors
        return g * (x.detach() if kept else x).cosh()

    right = counting(lambda ctx, g: g * ctx.saved_tensors[0].cosh())
    wrong = counting(lambda ctx, g: g * ctx.saved_tensors[0].detach().cosh())
    for f, is_right in ((right, True), (wrong, False)):
        judged(lambda f=f: HOOKED[name](f.apply), lambda: HOOKED[name](torch.sinh), is_right)
    by_count, truth = counting(where_even), HOOKED[name](torch.sinh)
    for _ in range(2):
        with suppress(SecondDerivativeError), recompute_intermediates():
            agree(HOOKED[name](by_count.apply), truth)
        COUNT.append("another")


def test_surroundings_are_another_kind_of_call():
    def step(f):
        return second(f, POINT) + second(f, POINT, autocast())

    judged(lambda: step(in_autocast.apply), lambda: step(torch.sinh), False)


# The precision in which a call came.

CASTS = {  # -> the dtypes for which that makes no copy
    "float": (lambda x: x.float(), {torch.float32}),
    "to(torch.float32)": (lambda x: x.to(torch.float32), {torch.float32}),
    "type_as": (lambda x: x.type_as(torch.zeros(1)), {torch.float32}),
    "at least float32": (
        lambda x: x.to(torch.promote_types(x.dtype, torch.float32)),
        {torch.float32, torch.float64}),
    "double": (lambda x: x.double(), {torch.float64}),
    "half": (lambda x: x.half(), {torch.float16}),
    "its own": (lambda x: x.to(x.dtype), {torch.float32, torch.float64, torch.float16}),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize("name", CASTS)
def test_a_cast_is_a_copy_for_some_dtypes(name, dtype):
    cast, same = CASTS[name]
    f = sinh_keeping(cast, "Casts")
    if name == "half" and dtype in same:  # diagnose has too few digits there
        with detect_intermediates():
            agree(second(f.apply, POINT.to(dtype)), second(torch.sinh, POINT.to(dtype)))
        return
    judged(
        lambda: second(f.apply, POINT.to(dtype)),
        lambda: second(torch.sinh, POINT.to(dtype)),
        dtype in same,
    )


def norm(recompute):
    """RMSNorm as models of language have it, which computes in float32."""

    def forward(ctx, x, w):
        x = x.float()
        ctx.r = (x * x).mean(-1, keepdim=True).add(1e-6).rsqrt()
        ctx.save_for_backward(x, w)
        return x * ctx.r * w

    def backward(ctx, g):
        x, w = ctx.saved_tensors
        r = (x * x).mean(-1, keepdim=True).add(1e-6).rsqrt() if recompute else ctx.r
        normed, g_normed = x * r, g * w
        slope = r * (g_normed - normed * (g_normed * normed).mean(-1, keepdim=True))
        return slope, (g * normed).sum_to_size(w.shape)

    return function(forward, backward)


@pytest.mark.parametrize("right", [True, False])
def test_a_norm_in_float32(right):
    f, w = norm(right), torch.tensor([1.0, 0.7])

    def plain(x):
        return x * (x * x).mean(-1, keepdim=True).add(1e-6).rsqrt() * w

    x = torch.tensor([[0.5, 1.0], [0.2, -0.4]])
    judged(lambda: second(lambda x: f.apply(x, w), x), lambda: second(plain, x), right)


def off_by_a_little(ctx, x):
    ctx.save_for_backward(x, 0.08 * x.cosh())
    return x.sinh()


def off_by_a_little_backward(ctx, g):
    x, part = ctx.saved_tensors
    return g * (0.92 * x.cosh() + part)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_what_is_off_by_less_than_a_dtype_can_tell_stays_wrong_in_it(dtype):
    f = function(off_by_a_little, off_by_a_little_backward)
    with detect_intermediates(), raising():
        second(f.apply, POINT.to(dtype))


def test_a_backward_that_takes_no_float64_is_asked_as_it_was_called():
    def forward(ctx, x):
        ctx.kept = x.cosh()
        return x.sinh()

    def backward(ctx, g):
        assert g.dtype is torch.float32 or not torch.is_grad_enabled()
        return g * ctx.kept

    with detect_intermediates(), raising():
        second(function(forward, backward).apply, POINT)


# Outputs that are used.


class Two(Function):
    """x**2, and sinh(x), whose derivative is kept."""

    @staticmethod
    def forward(ctx, x):
        c = x.cosh()
        ctx.save_for_backward(x, c)
        return x**2, x.sinh()

    @staticmethod
    def backward(ctx, a, b):
        x, c = ctx.saved_tensors
        return 2 * x * a + b * c


class Forgets(Function):
    """softmax and logsumexp; the gradient of the second is forgotten."""

    @staticmethod
    def forward(ctx, x):
        p = x.softmax(-1)
        ctx.save_for_backward(p)
        return p, x.logsumexp(-1)

    @staticmethod
    def backward(ctx, g, _):
        (p,) = ctx.saved_tensors
        return p * (g - (g * p).sum(-1, keepdim=True))


def by_rows(f):
    x = POINT.double().requires_grad_()
    both = torch.cat(f(x))
    rows = torch.eye(4, dtype=both.dtype)
    (jacobian,) = grad(both, x, rows, is_grads_batched=True, create_graph=True)
    return grad((jacobian**2).sum(), x)[0]


def squares(x):
    return x**2, x.sinh()


def soft(x):
    return x.softmax(-1), x.logsumexp(-1)


def one(number):
    return lambda f: second(lambda x: f(x)[number], POINT.double())


USED = {
    "the right one": (Two, squares, one(0), True),
    "the wrong one": (Two, squares, one(1), False),
    "both": (Two, squares, lambda f: second(lambda x: sum(f(x)), POINT.double()), False),
    "the other detached": (
        Two, squares, lambda f: second(lambda x: f(x)[0] * f(x)[1].detach(), POINT.double()), True),
    "one after the other": (Two, squares, lambda f: one(0)(f) + one(1)(f), False),
    "each in one row of a batch": (Two, squares, by_rows, False),
    "a gradient that is forgotten, and not used": (Forgets, soft, one(0), True),
}  # fmt: skip


@pytest.mark.parametrize("name", USED)
def test_what_is_not_used_is_not_judged(name):
    f, plain, step, right = USED[name]
    if name == "each in one row of a batch":  # is raised, not recomputed
        with detect_intermediates(), raising():
            step(f.apply)
    else:
        judged(lambda: step(f.apply), lambda: step(plain), right)


def test_the_gradient_of_an_output_that_is_used_once_may_not_be_forgotten():
    def step():
        x = POINT.double().requires_grad_()
        p, log = Forgets.apply(x)
        grad(log.sum() + p.square().sum(), x)

    assert not diagnose_all(step, progress=False).ok


# Elements that are not finite, or far from the others.


def softmax(keeps):
    def forward(ctx, x):
        e = (x - x.amax(-1, keepdim=True)).exp()
        y = e / e.sum(-1, keepdim=True)
        ctx.kept = e if keeps else None
        ctx.save_for_backward(y)
        return y

    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        if keeps:
            y = ctx.kept / ctx.kept.sum(-1, keepdim=True)
        return y * (g - (g * y).sum(-1, keepdim=True))

    return function(forward, backward)


CAUSAL = torch.ones(3, 3).triu(1).bool()
PADDED = torch.tensor([False, False, True]).expand(3, 3)
QUERIES = torch.tensor([[0.1, 0.7], [0.4, 0.2], [0.0, 0.0]])  # a score is 0
FILLED = {"-inf": -INF, "-1e9": -1e9, "-1e4": -1e4, "the least": None}


@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(
    "mask, filled", [*((CAUSAL, filled) for filled in FILLED), (PADDED, "-inf")]
)
def test_masked_attention(filled, mask, dtype, right):
    value = FILLED[filled] or torch.finfo(dtype).min

    def attention(soft):
        return lambda q: soft((q @ q.T).masked_fill(mask, value)) @ (q + 1)

    point, f = QUERIES.to(dtype), softmax(not right)
    judged(
        lambda: second(attention(f.apply), point),
        lambda: second(attention(lambda s: s.softmax(-1)), point),
        right,
    )


ELEMENTS = {
    "overflows": 800.0,
    "is nan": float("nan"),
    "is inf": INF,
    "is -inf": -INF,
    "is far away": 1e9,
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", ELEMENTS)
@pytest.mark.parametrize("f, right", [(saves_x, True), (keeps, False)], ids=["right", "wrong"])
def test_one_element_among_others(f, right, name, dtype):
    point = torch.tensor([0.3, ELEMENTS[name], 0.8, -0.4], dtype=dtype)

    def loss(f):
        return lambda x: (y := f(x))[y.isfinite()]

    judged(lambda: second(loss(f.apply), point), lambda: second(loss(torch.sinh), point), right)


def test_what_is_left_out_is_told():
    point = torch.tensor([0.3, 800.0, 0.8], dtype=torch.float64)
    table = diagnose_all(lambda: second(lambda x: saves_x.apply(x)[::2], point), progress=False)
    assert table.ok
    assert "1 of 3 elements of its gradient are not finite" in " ".join(str(table).split())


@pytest.mark.parametrize("remedy", [detect_intermediates, recompute_intermediates])
def test_where_nothing_is_left_it_is_not_checked(remedy):
    x = torch.tensor([INF, INF], dtype=torch.float64, requires_grad=True)
    with pytest.raises((SecondDerivativeError, Warning), match="not\\s+finite"), remedy():
        (first,) = grad(keeps.apply(x).sum(), x, create_graph=True)
        grad(first.sum(), x)


def test_outputs_beyond_the_range_of_float32_are_judged():
    def step(f):
        x = torch.tensor([0.5, -0.2, -600.0, 0.9], dtype=torch.float64).requires_grad_()
        filled = f(x).masked_fill(x < -1, -1e9)
        (first,) = grad((filled.softmax(-1) * torch.arange(4.0)).sum(), x, create_graph=True)
        return grad((first**2).sum(), x)[0]

    for f, right in ((saves_x, True), (keeps, False)):
        judged(lambda f=f: step(f.apply), lambda: step(torch.sinh), right)
