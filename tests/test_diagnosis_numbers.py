"""diagnose, where the numbers themselves are the difficulty."""

import pytest
import torch
from made_functions import function, of_inputs

from double_backward import diagnose, tangents
from double_backward.diagnosis.measurements.first_derivative import scatters

x = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64, requires_grad=True)


@pytest.fixture(params=["tangents", "differences alone"])
def known_by(request, monkeypatch):
    """How changes are known: code that leaves torch has differences alone."""
    if request.param != "tangents":
        monkeypatch.setattr(tangents, "available", lambda: False)


def codes(diagnosis):
    return {finding.code for finding in diagnosis.findings}


def cubed(unit_x, unit_y, kept=lambda x: x):
    return of_inputs(
        lambda x: (x / unit_x) ** 3 * unit_y,
        lambda g, x: g * 3 * kept(x) * x / unit_x**3 * unit_y,
    ).apply


def cubed_detached(unit_x=1, unit_y=1):
    return cubed(unit_x, unit_y, torch.detach)


UNITS = [(1, 1e-30), (1e-12, 1), (1e12, 1e12)]


@pytest.mark.parametrize("unit_x, unit_y", UNITS)
def test_a_power_of_ten_changes_no_verdict(unit_x, unit_y):
    there = (x * unit_x).detach().requires_grad_()
    right = diagnose(cubed(unit_x, unit_y), there)
    wrong = diagnose(cubed_detached(unit_x, unit_y), there)
    assert (right.verdict, wrong.verdict) == ("supported", "silently_wrong")


@pytest.mark.parametrize("small", [0.0, 1e-5, 4e-4, 0.0042, 0.03])
@pytest.mark.parametrize("fn", [torch.exp, torch.sin])
@pytest.mark.usefixtures("known_by")
def test_an_element_near_0_is_judged_as_the_others_are(fn, small):
    """Moved in proportion to itself, it changes little: its term was lost beside theirs."""
    at = torch.tensor([1.65, -0.97, small, -0.25], dtype=torch.float64, requires_grad=True)
    slope = {torch.exp: torch.exp, torch.sin: torch.cos}[fn]

    def off(by, at):
        error = by * (torch.arange(4) == 2)

        def backward(g, x):
            return g * (slope(x) + error * (slope(x) - slope(x).detach()))

        return diagnose(of_inputs(fn, backward).apply, at).verdict

    assert off(0.0, at) == "supported"
    if fn is torch.exp or small > 0.001:  # the second derivative of sin is 0 at 0
        assert off(0.005, at) == "silently_wrong"


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("small", [1e-2, 1e-4, 1e-6, 1e-8])
@pytest.mark.usefixtures("known_by")
def test_an_input_that_changes_the_other_gradient_little_is_judged_as_well(small, dtype):
    """x³ + small x² y²: y is nearly nothing in how the gradient of x changes."""
    x = torch.tensor([0.5, 1.0, 2.0], dtype=dtype, requires_grad=True)
    y = torch.tensor([1.5, 0.75, 1.25], dtype=dtype, requires_grad=True)

    def off(by):
        def backward(g, x, y):
            in_x = y.detach() * by + y * (1 - by)
            return g * (3 * x**2 + 2 * small * x * in_x**2), g * 2 * small * x**2 * y

        return of_inputs(lambda x, y: x**3 + small * x**2 * y**2, backward).apply

    assert diagnose(off(0.0), x, y).verdict == "supported"
    by, word = (0.01, "wrong") if small > 1e-8 else (1.0, "lost")
    found = diagnose(off(by), x, y)
    assert found.verdict == "silently_wrong"
    assert found.matrix["x"]["y"] == word


def test_one_output_far_smaller_than_the_other():
    def both(x):
        return torch.sin(x), cubed_detached(1.0, 1e-9)(x)

    assert diagnose(both, x).verdict == "silently_wrong"


def cube(x):
    return x**3


def slope(g, x):
    return g * 3 * x**2


plain = of_inputs(cube, slope).apply


@pytest.mark.parametrize("factor", [1.1, 0.98, 1.005])
def test_a_first_derivative_off_by_a_factor_is_no_solver(factor):
    found = diagnose(of_inputs(cube, lambda g, x: slope(g, x) * factor).apply, x)
    assert found.verdict == "surrogate_gradient"
    assert "first_derivative_differs" in codes(found)
    assert found.first.got == pytest.approx(factor * found.first.expected, rel=1e-6)
    assert found.first.where.startswith("x = ")


@pytest.mark.parametrize("dtype, factor", [(torch.float64, 1.02), (torch.float32, 0.97)])
def test_a_factor_is_one_for_both_signs(dtype, factor):
    def forward(ctx, x):
        if x.dtype != dtype:
            raise TypeError("another dtype, please")
        ctx.save_for_backward(x)
        return torch.sin(x)

    fn = function(forward, lambda ctx, g: g * torch.cos(ctx.saved_tensors[0]) * factor).apply
    point = torch.tensor([0.5, -1.0, 2.5, 4.0, 6.0], dtype=dtype, requires_grad=True)
    found = diagnose(fn, point)
    assert found.verdict == "surrogate_gradient", str(found)


def test_deviations_that_scatter_are_noise():
    assert scatters(torch.tensor([0.01, -0.02, 0.015, -0.005]))
    assert scatters(torch.tensor([0.05, -0.04]))  # to both sides
    assert scatters(torch.tensor([0.001, 0.004, 0.002]))  # to one side, and small
    assert not scatters(torch.tensor([0.05, 0.02, 0.04]))  # to one side, and large
    assert not scatters(torch.tensor([0.005, 0.005, 0.0051]))  # a factor
    assert not scatters(torch.tensor([0.005]))


def collects_in_grad(g, x):
    """Parts of x are leaves, and get a .grad, only where nothing is recorded."""
    whole = x.detach().requires_grad_()
    parts = [part.requires_grad_() for part in whole.chunk(2)]
    for part, g_part in zip(parts, g.chunk(2), strict=True):
        part.grad = torch.zeros_like(part)
        with torch.enable_grad():
            (part**3).backward(g_part)
    return torch.cat([part.grad for part in parts])


def test_of_one_that_collects_in_grad_all_steps_are_named_and_autograd_grad():
    findings = diagnose(of_inputs(cube, collects_in_grad).apply, x).findings
    (told,) = [f.message for f in findings if f.code == "changed_by_create_graph"]
    assert ".detach() in collects_in_grad" in told and ".backward() without create_graph" in told
    assert "use what torch.autograd.grad(..., create_graph=True) returns" in told


def test_a_reentrant_checkpoint_is_followed_by_backward():
    def block(x):
        return torch.utils.checkpoint.checkpoint(lambda x: x**3, x, use_reentrant=True)

    found = diagnose(block, x)
    assert "only_by_backward" in codes(found)
    assert found.verdict == "silently_wrong"


def test_elements_at_a_kink_are_counted():
    found = diagnose(torch.relu, torch.tensor([0.0, 0.5, 1.0], requires_grad=True))
    (said,) = [f.message for f in found.findings if f.code == "elements_not_checked"]
    assert said.startswith("1 of 3 elements were not checked")
    assert found.verdict == "supported"


def test_nothing_is_right_where_most_elements_are_at_a_kink():
    found = diagnose(torch.relu, torch.tensor([0.0, 0.5, 0.0], requires_grad=True))
    assert found.read_first.code == "elements_not_checked"
    assert found.read_first.message.startswith("2 of 3 elements were not checked")
    assert found.verdict == "not_checked"


# Its second backward works only while the first graph is retained.
FreesAtTheLastStep = of_inputs(lambda x: x**3, lambda g, x: Once.apply(g, x))


def once_backward(h, grad_out, x):
    inner = x.detach().requires_grad_()
    with torch.enable_grad():
        out = inner**3
    (slope,) = torch.autograd.grad(out.sum(), inner)
    torch.autograd.grad(out.sum(), inner)  # freed, unless somebody retains it
    return h * slope, h * grad_out * 6 * x


Once = of_inputs(lambda grad_out, x: grad_out * 3 * x**2, once_backward, "Once")


def test_an_error_that_a_reader_gets_is_a_row():
    found = diagnose(FreesAtTheLastStep.apply, x)
    assert found.verdict == "raises"


# Takes float32 apart as pairs; of float64 there would be twice as many, and other numbers.
SquareOfBits = of_inputs(
    lambda x: torch.view_as_real(x.view(torch.complex64)) ** 2,
    lambda g, x: g.reshape(x.shape) * 2 * x,
)


def test_bits_seen_as_another_dtype_are_not_converted():
    single = torch.tensor([0.5, 1.0, 2.0, 1.5], requires_grad=True)
    found = diagnose(SquareOfBits.apply, single)
    assert found.verdict == "supported" and "computes_in_float32" in codes(found)


# Inputs that are not real and dense.

z = torch.tensor([0.3 + 0.4j, -0.5 + 1.1j], dtype=torch.complex128, requires_grad=True)


ComplexCube = of_inputs(lambda z: z**3, lambda g, z: g * (3 * z**2).conj())


class ComplexCubeKept(ComplexCube):
    @staticmethod
    def forward(ctx, z):
        ctx.square = z**2
        return z**3

    @staticmethod
    def backward(ctx, grad_out):
        return grad_out * (3 * ctx.square).conj()


def test_complex_numbers_are_pairs_of_real_ones():
    assert diagnose(ComplexCube.apply, z).verdict == "supported"
    found = diagnose(ComplexCubeKept.apply, z)
    assert found.verdict == "silently_wrong" and "ctx.square" in str(found)
    assert "real] = 0.3" in " ".join(str(found).split())


def sparse(layout):
    dense = torch.tensor([[0.5, 0.0, -1.2], [0.0, 0.8, 0.0]], dtype=torch.float64)
    return dense.to_sparse(layout=layout).requires_grad_()


SparseTimes = of_inputs(
    lambda s, d: s.to_dense() @ d, lambda g, s, d: (g @ d.t(), s.to_dense().t() @ g)
)


SparseTimesDetached = of_inputs(
    lambda s, d: s.to_dense() @ d, lambda g, s, d: (g @ d.t(), s.detach().to_dense().t() @ g)
)


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_sparse_inputs(layout):
    d = torch.tensor([[1.0, 2.0], [0.5, -1.0], [0.3, 0.7]], dtype=torch.float64).requires_grad_()
    assert diagnose(SparseTimes.apply, sparse(layout), d).verdict == "supported"
    assert diagnose(SparseTimesDetached.apply, sparse(layout), d).verdict == "silently_wrong"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sixteen_bits_are_checked_in_float64_where_fn_takes_it(dtype):
    half = x.detach().to(dtype).requires_grad_()
    assert diagnose(plain, half).verdict == "supported"
    assert diagnose(cubed_detached(), half).verdict == "silently_wrong"


def test_sixteen_bits_that_stay_sixteen_are_not_judged():
    def only_half(x):
        assert x.dtype == torch.float16
        return x**3

    half = x.detach().half().requires_grad_()
    found = diagnose(of_inputs(only_half, slope).apply, half)
    assert found.verdict == "not_checked" and codes(found) == {"half_precision"}
    assert [saved.kind for saved in found.saved] == ["input"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_tensors_stay_on_their_device():
    there = x.detach().cuda().requires_grad_()

    def cubed(x):
        assert x.is_cuda
        return plain(x)

    assert diagnose(cubed, there).verdict == "supported"


# What must not end Python, nor leave a trace.


def frees_its_input(x):
    out = x**3
    x.untyped_storage().resize_(0)
    return out


def test_freed_memory_is_not_read():
    frees = of_inputs(frees_its_input, slope).apply
    for fn in (frees, lambda x: frees(x * 1)):
        found = diagnose(fn, x)
        assert found.verdict == "not_checked" and codes(found) == {"memory_freed"}


def test_an_error_that_cannot_be_printed():
    class Silent(Exception):
        def __str__(self):
            raise ValueError("no text")

    def raises(g, x):
        raise Silent

    found = diagnose(of_inputs(cube, raises).apply, x)
    assert found.verdict == "raises" and "Silent" in str(found)


def test_a_backward_that_edits_what_it_saved():
    found = diagnose(of_inputs(cube, lambda g, x: slope(g, x.mul_(1))).apply, x)
    assert found.verdict == "raises" and "mutates_saved" in codes(found)


norm = torch.nn.BatchNorm1d(3).double()
hooked = torch.nn.Linear(3, 3).double()
counter = torch.zeros(1)


def test_what_fn_holds_is_as_before():
    def disturbing(x):
        counter.add_(1)
        hooked.register_forward_hook(lambda *_: None)
        torch.autograd.set_detect_anomaly(True)
        return plain(hooked(norm(x)))

    rows = torch.tensor([[0.5, 1.0, 2.0], [1.5, 0.3, -1.0]], dtype=torch.float64)
    before = [b.clone() for b in norm.buffers()]
    found = diagnose(disturbing, rows.requires_grad_())
    assert all(map(torch.equal, norm.buffers(), before)) and counter == 0
    assert not hooked._forward_hooks and not torch.is_anomaly_enabled()
    (said,) = [f.message for f in found.findings if f.code == "edits_what_it_holds"]
    assert "counter" in said


weight = torch.tensor([1.5, 0.5, 2.0], dtype=torch.float64, requires_grad=True)


# Wrong at second order in the weight only.
Weighted = of_inputs(lambda x, w: x * w**3, lambda g, x, w: (g * w**3, g * x * 3 * w.detach() ** 2))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(weight.detach().clone())

    def forward(self, x):
        return Weighted.apply(x, self.w)


net = Net()


def test_a_module_is_differentiated_by_its_parameters_alone():
    assert diagnose(net, x.detach()).verdict == "silently_wrong"
    assert diagnose(torch.nn.Embedding(3, 2), torch.tensor([0, 2])).ok


def test_parameters_that_fn_holds_are_checked_too():
    by_x = lambda x: net(x * 2) + 0 * x  # noqa: E731
    found = diagnose(by_x, x)
    assert found.verdict == "silently_wrong" and "other_leaves" not in codes(found)
    assert "net.w" in str(found)


def test_parameters_that_a_checkpoint_goes_back_to_are_named():
    layer = torch.nn.Linear(3, 3).double()

    def fn(x):
        block = torch.utils.checkpoint.checkpoint
        return block(lambda x: plain(layer(x)), x, use_reentrant=False)

    found = diagnose(fn, x)
    assert found.verdict == "supported" and "layer.weight" in str(found)


def reversible(ctx, layer, x, *parameters):
    ctx.layer = layer
    ctx.save_for_backward(x)
    return layer(x)


def to_its_own_parameters(ctx, g):
    """The gradients of the module's own parameters, whatever was handed over."""
    (x,) = ctx.saved_tensors
    with torch.enable_grad():
        inner = x.view_as(x)
        out = ctx.layer(inner)
    inputs = [inner, *ctx.layer.parameters()]
    options = {"create_graph": torch.is_grad_enabled(), "allow_unused": True}
    return None, *torch.autograd.grad(out, inputs, g, **options)


def test_a_backward_that_goes_back_to_the_module_is_not_convicted_for_it():
    layer = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh()).double()
    fn = function(reversible, to_its_own_parameters).apply
    found = diagnose(lambda x: fn(layer, x, *layer.parameters()), x)
    assert found.first.outcome == "right" and "returns_none" not in codes(found)


class Averaging(torch.nn.Module):
    """Divides by a mean of its weight's norms, which each call moves on, as spectral_norm does."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(weight.detach().clone())
        self.register_buffer("mean", torch.ones((), dtype=torch.float64))

    def forward(self, x):
        with torch.no_grad():
            self.mean.mul_(0.5).add_(0.5 * self.weight.norm())
        return (x * self.weight / self.mean) ** 2


def test_parameters_are_checked_although_autograd_misses_a_part_of_theirs():
    module = Averaging()
    for fn in (module, lambda x: module(x)):
        found = diagnose(fn, x)
        assert found.verdict == "surrogate_gradient" and "other_leaves" not in codes(found)
        assert "at weight =" in str(found) or "at module.weight =" in str(found)
    assert torch.equal(module.weight.detach(), weight) and module.mean == 1
    assert module.mean._version == 0 and module.weight._version == 0


def test_leaves_that_cannot_be_checked_are_named():
    found = diagnose(lambda x: plain(x) * weight, x)
    assert found.verdict == "supported"
    (said,) = [f.message for f in found.findings if f.code == "other_leaves"]
    assert "no inputs: weight." in said
    empty = torch.zeros(0, dtype=torch.float64, requires_grad=True)
    found = diagnose(lambda x: plain(x) + empty.sum(), x)
    assert found.verdict == "supported" and "other_leaves" not in codes(found)


# Refuses autograd.grad in words of its own.
def only_backward_backward(grad_out, x):
    if not torch.autograd._is_checkpoint_valid():
        raise RuntimeError("ask me otherwise")
    return grad_out * 2 * x


OnlyBackward = of_inputs(lambda x: x**2, only_backward_backward, "OnlyBackward")


def test_backward_is_asked_where_grad_is_refused_in_whatever_words():
    found = diagnose(OnlyBackward.apply, x)
    assert found.verdict == "supported" and "only_by_backward" in codes(found)


def test_random_draws_that_follow_the_memory_are_no_matter_of_layout():
    matrix = torch.rand(3, 2, dtype=torch.float64).requires_grad_()
    found = diagnose(lambda x: torch.nn.functional.dropout(plain(x), 0.5), matrix)
    assert found.verdict == "supported" and "seed_fixed" in codes(found)


# A pattern for the weights that is not that of the direction.


def lorentz(ctx, v, a, b):
    """q(a) v x B, with q saved: the part of the second derivative that is lost is antisymmetric."""
    q = a.tanh()
    ctx.save_for_backward(v, a, b, q)
    return q * torch.linalg.cross(v, b)


def lorentz_backward(ctx, g):
    v, a, b, q = ctx.saved_tensors
    by_a = (1 - a.tanh() ** 2) * (g * torch.linalg.cross(v, b)).sum()
    return q * torch.linalg.cross(b, g), by_a, None


def test_an_antisymmetric_error_shows():
    v, b = torch.tensor([[0.3, -1.0, 0.5], [0.2, 0.7, -0.4]], dtype=torch.float64)
    a = torch.tensor(0.4, dtype=torch.float64, requires_grad=True)
    found = diagnose(function(lorentz, lorentz_backward).apply, v.requires_grad_(), a, b)
    assert found.verdict == "silently_wrong"
    m = torch.arange(4.0, dtype=torch.float64).view(2, 2)
    turned = of_inputs(lambda x, m: m @ x, lambda g, x, m: (m @ g, None))  # and not transposed
    found = diagnose(lambda x: turned.apply(x, m) ** 2, x[:2].detach().requires_grad_())
    assert found.verdict == "surrogate_gradient" and found.first.outcome == "wrong"


def test_a_function_that_takes_no_point_but_the_given_one():
    def fn(x):
        if not torch.equal(x, x.round()):
            raise ValueError("whole numbers only")
        return x * 2

    assert diagnose(fn, torch.ones(2, dtype=torch.float64, requires_grad=True))


# sin(x) + 0.05 sin(20 x) / 20, whose backward forgets the small term.
Forgets = of_inputs(lambda x: x.sin() + 0.05 * (20 * x).sin() / 20, lambda g, x: g * x.cos())


# x**3, whose backward rounds to 1/64.
Rounds = of_inputs(lambda x: x**3, lambda g, x: g * ((3 * x**2 * 64).round() / 64))


def test_a_first_derivative_that_is_off_is_no_solver():
    point = torch.tensor([0.1, 0.4, 0.75, 1.3, 0.57], dtype=torch.float64, requires_grad=True)
    assert diagnose(Forgets.apply, point).verdict == "surrogate_gradient"
    # No operation in it computes in 16 bits.
    rounds = diagnose(Rounds.apply, point)
    assert rounds.verdict == "surrogate_gradient" and "computes_in_16_bits" not in codes(rounds)


def test_plain_torch_in_float32_is_right():
    assert diagnose(lambda x: x.sin() * x.exp(), x.detach().float().requires_grad_()).ok


@pytest.mark.parametrize("last", [1, 2, 5, 8])
def test_a_function_that_breaks_while_it_is_looked_at(last):
    calls = []

    def fn(x):
        calls.append(x)
        if len(calls) == last:
            raise ValueError("no more")
        return x**2

    assert diagnose(fn, x).verdict in ("not_checked", "supported", "raises")


def in_16_bits(dtype, forward_too, detached=False):
    """x**3, whose backward, or all of it, computes in 16 bits and hands over what it got."""

    def rounded(x):
        return x.to(dtype)

    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (rounded(x) ** 3).to(x.dtype) if forward_too else x**3

    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        slope = 3 * rounded(x.detach() if detached else x) ** 2
        return (rounded(g) * slope).to(g.dtype) if forward_too else g * slope.to(g.dtype)

    return function(forward, backward).apply


@pytest.mark.parametrize(
    "dtype", [pytest.param(torch.float16, marks=pytest.mark.slow), torch.bfloat16]
)
@pytest.mark.parametrize("forward_too", [True, False])
def test_what_16_bits_inside_leave_to_be_seen(dtype, forward_too):
    point = torch.tensor([0.5, -1.2, 0.9, 1.7], dtype=torch.float64, requires_grad=True)
    assert diagnose(in_16_bits(dtype, forward_too), point).verdict == "not_checked"
    assert not diagnose(in_16_bits(dtype, forward_too), point, rtol=0.02).ok  # known to less
    right = diagnose(in_16_bits(dtype, forward_too), point, rtol=0.3)
    assert right.verdict == "supported" and "computes_in_16_bits" in codes(right), str(right)
    wrong = diagnose(in_16_bits(dtype, forward_too, detached=True), point)
    assert wrong.verdict == "silently_wrong", str(wrong)
    assert {"untracked_backward", "computes_in_16_bits"} <= codes(wrong), str(wrong)
    assert "backward_not_linear" not in codes(wrong) | codes(right)
    assert all(row.relative < 0.05 for row in right.settings.values())


def test_a_backward_that_counts_its_calls_is_not_taken_for_rounding():
    calls = []

    def counting(ctx, g):
        calls.append(None)
        return 3 * g * ctx.saved_tensors[0] ** 2 * (1 + 0.1 * len(calls))

    fn = function(lambda ctx, x: (ctx.save_for_backward(x), x**3)[1], counting).apply
    assert "computes_in_16_bits" not in codes(diagnose(fn, x))


def test_a_rounded_forward_with_another_derivative_is_a_surrogate_all_the_same():
    def rounds(ctx, x):
        ctx.save_for_backward(x)
        return (x**2 * 256).round() / 256

    for backward in (lambda ctx, g: 2 * g * ctx.saved_tensors[0], lambda ctx, g: g * 1):
        diagnosis = diagnose(function(rounds, backward).apply, x)
        assert diagnosis.verdict == "surrogate_gradient", str(diagnosis)


def log_with_its_reciprocal(ctx, x):
    r = 1 / x
    ctx.save_for_backward(r)
    return torch.log(x)


def test_numbers_that_cancel_are_shown_as_far_as_they_are_known():
    near = torch.tensor([1e-4, 3e-4, 0.5], dtype=torch.float64, requires_grad=True)
    fn = function(log_with_its_reciprocal, lambda ctx, g: g * ctx.saved_tensors[0]).apply
    rows = diagnose(fn, near).settings
    true = {"graph after": 0.0, "graph before": 1e4 - 1e8, "both": 1e4}  # 1/x - 1/x**2 + 1/x**2
    for setting, number in true.items():
        assert abs(rows[setting].expected - number) <= rows[setting].uncertain
        assert rows[setting].uncertain < 1e-4 * 1e8
    assert "expected       0, got 1e+08" in str(diagnose(fn, near))


def test_an_inexact_first_derivative_at_the_edge_of_a_domain():
    def inside(x):
        if (x > 1.0).any():
            raise ValueError("outside")
        return x**3

    rough = of_inputs(inside, lambda g, x: slope(g, x) * (1 + 0.01 * torch.cos(1e3 * x.detach())))
    near = torch.tensor([0.5, 0.98], dtype=torch.float64, requires_grad=True)
    found = diagnose(rough.apply, near)
    assert found.verdict != "not_checked", str(found)


def eigh(ctx, a):
    w, v = torch.linalg.eigh(a)
    ctx.save_for_backward(w, v)
    return w, v


def broadened(ctx, grad_w, grad_v):
    """With 1/d as d / (d**2 + 1e-12): the second derivative loses digits."""
    w, v = ctx.saved_tensors
    d = w[None] - w[:, None]
    between = d / (d * d + 1e-12) * (v.mT @ grad_v)
    return v @ (torch.diag(grad_w) + between) @ v.mT


OffSlightly = of_inputs(
    lambda x: x**3 / 3, lambda g, x: g * (x**2 * (1 - 1e-3) + 1e-3 * x.detach() ** 2)
)


def test_digits_that_quotients_of_small_numbers_lose_are_no_error():
    def fn(a):
        w, v = function(eigh, broadened).apply((a + a.mT) / 2)
        return (v * w) @ v.mT @ v @ torch.diag(w**2) @ v.mT

    generator = torch.Generator().manual_seed(40)
    point = torch.randn(3, 3, generator=generator, dtype=torch.float64).requires_grad_()
    assert diagnose(fn, point).verdict == "supported"
    assert diagnose(OffSlightly.apply, x).verdict == "silently_wrong"


# x**2 * weight, where weight is no argument.
Forgetful = of_inputs(lambda x: x**2 * weight, lambda g, x: 2 * g * x * weight, "Forgetful")


def saves_weight(ctx, x):
    ctx.save_for_backward(x, weight)
    return x**2 * weight


def fills_grad(g, x):
    """A checkpoint: its backward fills weight.grad by itself."""
    if weight.grad is None:
        weight.grad = torch.zeros_like(weight)
    weight.grad += (g * x**2).detach()
    return 2 * g * x * weight


keeping = function(saves_weight, lambda ctx, g: 2 * g * ctx.saved_tensors[0] * weight).apply
accumulating = of_inputs(lambda x: x**2 * weight, fills_grad).apply


@pytest.mark.parametrize("fn", [Forgetful.apply, keeping])
def test_a_leaf_that_forward_uses_and_forgets(fn):
    found = diagnose(fn, x)
    assert found.verdict == "first_derivative_wrong" and "leaf_without_gradient" in codes(found)
    assert torch.equal(weight, torch.tensor([1.5, 0.5, 2.0]).double()) and weight.grad is None


@pytest.mark.parametrize("fn", [accumulating, lambda x: plain(x) * weight.detach(), plain])
def test_a_leaf_that_is_cared_for_or_not_meant(fn):
    found = diagnose(fn, x)
    assert "leaf_without_gradient" not in codes(found), str(found)
    assert weight.grad is None


def series(by_a):
    """e^a sin(b) c², with a derivative by a that is made of a series that stops early."""

    def backward(g, a, b, c):
        term = series = torch.ones_like(a)
        for k in range(1, 6):
            term = term * a / k
            series = series + term
        by_b, by_c = a.exp() * b.cos() * c**2, 2 * a.exp() * b.sin() * c
        return g * series * by_a(b) * c**2, g * by_b, g * by_c

    return of_inputs(lambda a, b, c: a.exp() * b.sin() * c**2, backward).apply


right_series = series(torch.sin)
# The same, which has lost what b changes in the derivative by a.
wrong_series = series(lambda b: b.sin().detach())


def three(a):
    return [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (a, 0.2, -1.5)]


@pytest.mark.parametrize("a", [0.5, 1.1])
def test_a_tolerance_that_the_first_derivative_shows_holds_for_the_second(a):
    """Also where it shows by one input alone, and where terms of the second cancel."""
    found = diagnose(right_series, *three(a))
    assert found.ok and not found.matrix, found


def test_beside_an_inexact_derivative_a_lost_path_shows_in_rows_and_matrix():
    found = diagnose(wrong_series, *three(1.0))
    assert found.verdict == "silently_wrong", found
    assert {"lost", "wrong"} & {word for row in found.matrix.values() for word in row.values()}


def equilibrium(backward_until):
    """z = tanh(W z + x), whose backward stops at an absolute tolerance."""

    def forward(ctx, x, w):
        z = torch.zeros_like(x)
        for _ in range(60):
            z = torch.tanh(z @ w.T + x)
        ctx.save_for_backward(x, w, z)
        return z

    def backward(ctx, grad_out):
        x, w, z = ctx.saved_tensors
        slope = 1 - z.detach() ** 2
        u = grad_out
        for _ in range(60):
            last, u = u, (u * slope) @ w + grad_out
            if (u - last).norm() < backward_until:
                break
        v = u * slope
        return v, v.T @ z

    return function(forward, backward).apply


@pytest.mark.parametrize("until", [1e-12, 1e-3])
def test_the_headline_says_what_the_rows_say(until):
    x = torch.tensor([[0.4, -0.7, 1.1]], dtype=torch.float64, requires_grad=True)
    w = torch.tensor(
        [[0.2, -0.3, 0.1], [0.4, 0.1, -0.2], [-0.1, 0.3, 0.2]], dtype=torch.float64
    ).requires_grad_()
    found = diagnose(equilibrium(until), x, w)
    assert "wrong" in {row.outcome for row in found.settings.values()}, found
    assert "silently wrong at second order" in found.headline
    assert ("the first derivative is wrong" in found.headline) == (until > 1e-6)


def test_a_tolerance_is_never_said_to_be_nothing():
    found = diagnose(right_series, *three(1.0), rtol=1e-3)
    said = [f.message for f in found.findings if f.code == "inexact_first_derivative"]
    assert found.ok and "judged to 0.1% only" in said[0], found


@pytest.mark.parametrize("norm", ["layer_norm", "batch_norm"])
def test_of_an_operation_of_torch_no_function_is_spoken_of(norm):
    x = torch.tensor([[0.0, 1.0, 3.0], [1.5, -0.5, 0.7]], dtype=torch.float64, requires_grad=True)
    of_torch = {
        "layer_norm": lambda x: torch.nn.functional.layer_norm(x, (3,)),
        "batch_norm": lambda x: torch.nn.functional.batch_norm(x, None, None, training=True),
    }
    found = diagnose(of_torch[norm], x, order=3)
    assert found.cause.code == "third_order_not_tracked", found
    assert "plain operations" in found.cause.message and "Function" not in found.cause.message


@pytest.mark.parametrize(("lost", "verdict"), [(0.0, "supported"), (0.05, "silently_wrong")])
@pytest.mark.parametrize("seed", [1, 4])
def test_what_rounding_leaves_of_a_gradient_of_0_hides_nothing(seed, lost, verdict):
    """The gradient of the bias in front of a norm is 0 but for rounding. Weighed by its size it
    counted as much as all else, and what rounding does to it excused every error, or let a right
    net be "not checked"."""

    def backward(g, x):
        slope = torch.sigmoid(x) * (1 - torch.sigmoid(x))
        return g * (slope * (1 - lost) + slope.detach() * lost)

    torch.manual_seed(seed)
    sigmoid = of_inputs(torch.sigmoid, backward)
    before, after, norm = torch.nn.Linear(2, 3), torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3)
    net = torch.nn.Sequential(norm, torch.nn.Tanh())
    net.before, net.after = before, after  # their parameters are differentiated, too
    net.forward = lambda x: net[1](net[0](after(sigmoid.apply(before(x)))))
    found = diagnose(net, torch.randn(4, 2, requires_grad=True))
    assert found.verdict == verdict, found
