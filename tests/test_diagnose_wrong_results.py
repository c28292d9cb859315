"""What `diagnose` may not say: that something is right which it did not ask, or a false cause."""

import importlib
import json
import re

import numpy as np
import pytest
import torch
from made_functions import codes, function, message, of_inputs, saving
from test_ignore import Clips, Spike
from torch.autograd import Function

from double_backward import SecondDerivativeError, detect_intermediates, diagnose
from lessons_src.what_not_to_do import SinhBad


def x(*values):
    return torch.tensor(values or (0.3, 0.9, -0.4), dtype=torch.float64, requires_grad=True)


# A first derivative that is meant, by a backward that nobody but autograd can call.
def only_in_a_pass_backward(grad_out, x):
    if torch._C._current_graph_task_id() < 0:
        raise RuntimeError("outside a pass of autograd")
    return torch.exp(x) * grad_out * 0.5


OnlyInAPass = of_inputs(lambda x: x**2, only_in_a_pass_backward, "OnlyInAPass")


# A leaf that requires grad, made in forward: no graph leads on from it.
keeps_a_leaf = saving(
    torch.square, lambda x: x.detach().clone().requires_grad_(), lambda g, s: s.exp() * g * 0.5
)


def test_a_backward_that_only_autograd_can_call_is_asked_by_it():
    found = diagnose(OnlyInAPass.apply, x())
    assert found.verdict == "surrogate_gradient"
    assert {row.outcome for row in found.settings.values()} == {"right"}


def test_a_leaf_made_in_forward_is_not_connected():
    found = diagnose(keeps_a_leaf, x())
    assert found.verdict == "silently_wrong" and "input_copy_saved" in codes(found)
    assert not [r for r in found.settings.values() if r.outcome == "right"]


def test_a_wrong_first_derivative_stands_in_the_headline():
    found = diagnose(keeps_a_leaf, x())
    assert "backward is not the derivative of forward, and silently" in found.headline


def in_8_bits(x):
    """The derivative, as speech models keep it: it jumps, and no small step shows it."""
    s = torch.sigmoid(4 * x)
    return (4 * s * (1 - s) * 255).round().to(torch.uint8)


packs = saving(lambda x: torch.sigmoid(4 * x), in_8_bits, lambda g, packed: g * packed / 255)
keeps_a_mask = saving(torch.round, lambda x: (x > 0).to(torch.uint8), torch.mul)


def test_a_derivative_packed_into_integers_is_not_called_right():
    for given in (x(), x().detach().float().requires_grad_()):
        assert not diagnose(packs, given).ok


def test_a_mask_in_integers_is_a_constant():
    found = diagnose(keeps_a_mask, x())
    assert [s.kind for s in found.saved] == ["constant"] and "intermediate_saved" not in codes(
        found
    )
    assert all(row.outcome == "right" for row in found.settings.values())


# What the caller says: how exact fn is, what is meant.


# A first derivative that is off by 1.3 %, in a way that scatters as an iteration's does.
Halved = of_inputs(
    lambda x: x**3, lambda g, x: g * 3 * x**2 * (1 + 0.013 * torch.sin(1e5 * x.detach()))
)


def test_what_an_iteration_leaves_is_judged_only_where_the_caller_says_how_exact_it_is():
    silent = diagnose(Halved.apply, x())
    assert not silent.ok and "pass rtol=0.0" in " ".join(str(silent).split())
    assert not diagnose(Halved.apply, x(), rtol=0.03).ok  # an error of 10 % would not show
    assert diagnose(Halved.apply, x(), rtol=0.2).ok


def test_a_wrong_function_stays_wrong_with_a_tolerance():
    assert diagnose(SinhBad.apply, x(), rtol=0.03).verdict == "silently_wrong"


# What comes back.


def test_a_finding_names_its_function_file_and_line():
    found = diagnose(lambda x: SinhBad.apply(x) + Spike.apply(x) * 0, x())
    finding = next(f for f in found.findings if f.code == "intermediate_on_ctx")
    assert (finding.function, finding.severity) == ("SinhBad", "error")
    with open(finding.file) as file:
        assert "class SinhBad" in file.read().splitlines()[finding.line - 1]
    assert "(In SinhBad, lessons_src/what_not_to_do.py:7.)" in " ".join(str(found).split())


def energy(ctx, x, k):
    """Of positions and a parameter; backward keeps the parameter's part as a constant."""
    ctx.save_for_backward(x)
    ctx.k = k.detach().clone()
    return (k * x**3).sum()


def force(ctx, g):
    (x,) = ctx.saved_tensors
    return g * 3 * ctx.k * x**2, g * x**3


def test_a_matrix_says_which_derivative_of_which_gradient_is_lost():
    found = diagnose(function(energy, force).apply, x(), x(0.5, 0.7, 1.1))
    assert found.matrix == {"x": {"x": "right", "k": "lost"}, "k": {"x": "right", "k": "0"}}
    assert "grad_x              right    lost" in str(found)
    assert not diagnose(lambda a, b: a * b, x(), x()).matrix


# Its gradient by a raises where it is differentiated again, the one by b does not.
def refuses_backward(grad_out, a, b):
    twice = (2 * a).exp().log()
    kept = twice.exp()
    grad_a = grad_out * kept.log() * b
    kept.add_(0)
    return grad_a, grad_out * a**2


Refuses = of_inputs(lambda a, b: a**2 * b, refuses_backward, "Refuses")


def test_a_matrix_says_what_raises():
    found = diagnose(Refuses.apply, x(), x(0.5, 0.7, 1.1))
    assert found.matrix == {
        "a": {"a": "raises", "b": "right"},
        "b": {"a": "right", "b": "0"},
    }


def cross_entropy(q, k):
    return torch.nn.functional.cross_entropy(q @ k.T, torch.arange(len(q)))


def contrast(ctx, q, k):
    """Along a direction of ones the second derivative of a softmax is 0."""
    ctx.save_for_backward(q, k, (q @ k.T).softmax(1))
    return cross_entropy(q, k)


def contrast_backward(ctx, g):
    q, k, p = ctx.saved_tensors
    by_logits = g * (p - torch.eye(len(q), dtype=p.dtype)) / len(q)
    return by_logits @ k, by_logits.T @ q


def test_the_matrix_says_0_only_where_a_derivative_is_0():
    bad = function(contrast, contrast_backward).apply
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(3, 4, generator=generator, dtype=torch.float64) for _ in range(2))
    got, true = (torch.autograd.functional.hessian(f, (q, k)) for f in (bad, cross_entropy))
    words = {}
    for i, name in enumerate("qk"):
        words[name] = {}
        for j, by in enumerate("qk"):
            assert true[i][j].any() and not torch.allclose(got[i][j], true[i][j])
            words[name][by] = "wrong" if got[i][j].any() else "lost"
    found = diagnose(bad, q.requires_grad_(), k.requires_grad_())
    assert found.matrix == words


# What one derivative has too much the other has too little.
def lopsided_backward(g, x, k):
    a, b = x
    return (g * k).sum() * torch.stack([2 * b - b.detach(), a.detach()]), g * a * b


Lopsided = of_inputs(lambda x, k: k * x[0] * x[1], lopsided_backward, "Lopsided")


def test_the_matrix_sees_what_is_antisymmetric():
    assert diagnose(Lopsided.apply, x(0.5, 1.2), x(2.0)).matrix["x"]["x"] == "wrong"


def test_the_answer_goes_through_json():
    for fn in (SinhBad.apply, lambda x: None, lambda x: x**2):
        found = diagnose(fn, x())
        known = json.loads(json.dumps(found.to_dict(), allow_nan=False))
        assert known["verdict"] == found.verdict and known["ok"] == found.ok
        assert [f["code"] for f in known["findings"]] == codes(found)


# Sentences that are true of what was seen.


def stops_early(g, x):
    """An absolute tolerance, as a solver's."""
    grad = 2 * g * x
    return grad + 1e-3 * torch.exp(-10 * grad.abs())


def shifts_its_input(ctx, x):
    """A softmax that subtracts the maximum from what it was given."""
    x -= x.max()
    y = x.exp() / x.exp().sum()
    ctx.save_for_backward(y)
    return y


def softmax_backward(ctx, g):
    (y,) = ctx.saved_tensors
    return g * y - y * (g * y).sum()


def test_an_edit_in_place_is_told_also_where_fn_is_right():
    found = diagnose(function(shifts_its_input, softmax_backward).apply, x())
    assert all(row.outcome == "right" for row in found.settings.values())
    assert "fn(x) + x**2" in message(found, "in_place_without_mark_dirty")
    assert "error" not in [f.severity for f in found.findings]


def test_what_a_solver_leaves_of_a_small_grad_out_is_told_as_that():
    found = diagnose(of_inputs(torch.square, stops_early).apply, x())
    assert "an absolute tolerance" in message(found, "backward_not_linear")


def test_an_input_that_is_not_used_is_no_cause():
    unused = of_inputs(lambda x, b: x**2, lambda g, x, b: (3 * g * x, None))
    found = diagnose(unused.apply, x(), x())
    assert not found.ok and "returns_none" not in codes(found)


def test_a_sparse_matrix_that_loses_its_values_needs_no_function():
    i = torch.tensor([[0, 1, 2], [1, 2, 0]])

    def fn(v):
        return (torch.sparse_coo_tensor(i, v, (3, 3)).to_dense() ** 3).sum()

    found = diagnose(fn, x())
    assert found.verdict == "silently_wrong" and "sparse_coo_tensor" in message(
        found, "cause_unknown"
    )


# x * exp(y); y has no gradient.
Scaled = of_inputs(lambda x, y: x * y.exp(), lambda g, x, y: (g * y.exp(), None))


def times(ctx, x, y):
    ctx.y = y
    return x * y


def test_an_argument_that_the_caller_detached_is_not_told_as_made_in_forward():
    found = diagnose(lambda x: Scaled.apply(x, x.detach()), x())
    assert "argument_without_graph" in codes(found), found
    assert not {"input_copy_saved", "intermediate_saved"} & set(codes(found))
    made = diagnose(lambda x: Scaled.apply(x, x.detach() * 2), x())
    assert "argument_without_graph" in codes(made), made
    assert diagnose(lambda x: Scaled.apply(x, torch.ones(3)), x()).ok
    by_number = function(times, lambda ctx, g: (g * ctx.y, None)).apply
    numbers = diagnose(lambda x: by_number(x, x.detach().sum().item()), x())
    assert "argument_without_graph" in codes(numbers), numbers
    assert diagnose(lambda x: by_number(x, 2.0), x()).ok


def test_a_function_that_apply_is_handed_is_not_told_as_made_in_forward():
    def forward(ctx, x, derivative):
        ctx.derivative = derivative
        return x.sin()

    f = function(forward, lambda ctx, g: (g * ctx.derivative(), None))

    def fn(x):
        cosine = x.detach().cos()
        return f.apply(x, lambda: cosine)

    found = diagnose(fn, x())
    assert "handed as derivative changes with the input" in message(found, "argument_without_graph")
    assert "intermediate_on_ctx" not in codes(found)


# Numbers that torch has not computed.


def simulated(x):
    """Energy and forces, as a simulator returns them."""
    given = x.detach().numpy()
    return np.sum(given**4 + np.sin(given)), 4 * given**3 + np.cos(given)


def with_forces(ctx, x):
    energy, forces = simulated(x)
    ctx.save_for_backward(torch.from_numpy(forces))
    return torch.tensor(energy)


def there_and_back(ctx, x):
    """Torch's own number, by way of Python."""
    ctx.save_for_backward(x / torch.tensor(x.norm().item()))
    return x.norm()


def times_saved(ctx, g):
    return g * ctx.saved_tensors[0]


Simulated = function(with_forces, times_saved)
SimulatedInBackward = of_inputs(
    lambda x: torch.tensor(simulated(x)[0]), lambda g, x: g * torch.from_numpy(simulated(x)[1])
)


def test_numbers_of_a_simulator_get_advice_that_can_be_followed():
    found = diagnose(Simulated.apply, x())
    assert "second Function" in message(found, "computed_outside_torch")
    assert "intermediate_saved" not in codes(found)
    inside = diagnose(SimulatedInBackward.apply, x())
    assert "Hessian times a vector" in message(inside, "untracked_backward")
    back = diagnose(function(there_and_back, times_saved).apply, x())
    assert "computed_outside_torch" not in codes(back) and "intermediate_saved" in codes(back)


def scaled_by_simulation(ctx, x):
    """sin(v x), where a simulator gives v, and its slope, for x."""
    v, slope = (torch.tensor(number) for number in simulated(x))
    angle = v * x
    ctx.save_for_backward(x, v, slope, angle)
    return angle.sin()


def by_angle(ctx, g):
    x, v, slope, angle = ctx.saved_tensors
    by_angle = g * angle.cos()
    return by_angle * v + (by_angle * x).sum() * slope


def test_what_torch_makes_of_a_simulators_number_can_be_made_again():
    found = diagnose(function(scaled_by_simulation, by_angle).apply, x())
    assert "(v, slope)" in message(found, "computed_outside_torch")
    assert "(angle)" in message(found, "intermediate_saved")


def test_detect_says_the_same_of_them():
    for simulating in (Simulated, SimulatedInBackward):
        wanted = r"second\sFunction"
        with pytest.raises(SecondDerivativeError, match=wanted), detect_intermediates():
            a = x()
            (g,) = torch.autograd.grad(simulating.apply(a) ** 2, a, create_graph=True)
            g.sum().backward()


def saves_exponential(ctx, x):
    e = x.exp()
    ctx.save_for_backward(x, e)
    return e * x.sin()


def writes_and_leaves_out(ctx, g):
    """Two causes: it writes into what forward saved, and computes without a graph."""
    x, e = ctx.saved_tensors
    with torch.no_grad():
        slope = e.mul_(x.sin() + x.cos())
    return g * slope


def test_what_cuts_is_told_beside_what_backward_overwrites():
    found = diagnose(function(saves_exponential, writes_and_leaves_out).apply, x())
    assert {"mutates_saved", "untracked_backward"} <= set(codes(found))


def test_what_clips_is_not_told_as_what_fails_for_small_ones():
    assert " clips," in message(diagnose(Clips.apply, x()), "backward_not_linear")


# A step is seen although a sparse tensor, which has no address, is met after it.
def sparse_product_backward(grad_out, v, x):
    places = torch.arange(len(v)).expand(2, -1)
    matrix = torch.sparse_coo_tensor(places, v.detach(), (len(v), len(v)))
    return grad_out * x, torch.sparse.mm(matrix.t(), grad_out[:, None])[:, 0]


SparseProduct = of_inputs(lambda v, x: v * x, sparse_product_backward, "SparseProduct")


def fills_data_backward(grad_out, x):
    found = torch.zeros_like(grad_out)
    for i, slope in enumerate(grad_out * 3 * x**2):
        found.data[i] = slope
    return found


FillsData = of_inputs(lambda x: x**3, fills_data_backward, "FillsData")


def test_the_step_that_cuts_is_named_also_beside_sparse_tensors_and_what_is_written_to_data():
    found = diagnose(SparseProduct.apply, x(), x())
    assert "it uses .detach() in" in message(found, "untracked_backward")
    assert "it uses .data in" in message(diagnose(FillsData.apply, x()), "untracked_backward")


def slope_of_cube(g, x):
    return 3 * g * x**2


def detached_on_ctx(ctx, x):
    ctx.x = x.detach()
    return x**3


saves_contiguous = saving(lambda x: x**3, torch.Tensor.contiguous, slope_of_cube)
DetachedOnCtx = function(detached_on_ctx, lambda ctx, g: slope_of_cube(g, ctx.x))


def test_a_copy_of_what_apply_is_handed_is_told_as_that():
    a = torch.arange(1.0, 7.0, dtype=torch.float64).reshape(2, 3).requires_grad_()
    found = diagnose(lambda x: saves_contiguous(x.t()), a)
    assert "input_copy_saved" in codes(found) and "intermediate_saved" not in codes(found)
    on_ctx = message(diagnose(DetachedOnCtx.apply, x()), "intermediate_on_ctx")
    assert "the very tensor that apply gets" in on_ctx


class MarksInSetup(Function):
    @staticmethod
    def forward(x):
        return x.sin(), x.cos()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output[1])
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx, grad_out, _):
        return grad_out * ctx.saved_tensors[0]


def test_a_mark_in_setup_context_is_told():
    found = diagnose(lambda x: MarksInSetup.apply(x)[0], x())
    assert "marked non-differentiable" in message(found, "intermediate_saved")


# What is written in place.


def doubles(ctx, x):
    """(2 x)**2, where x becomes 2 x itself: to autograd it is still x."""
    x.mul_(2)
    ctx.save_for_backward(x)
    return x**2


Doubles = function(doubles, lambda ctx, g: g * 4 * ctx.saved_tensors[0], "Doubles")


@pytest.mark.parametrize(
    "before",
    [torch.clone, torch.sin, lambda x: x.t() * 1, lambda x: x[:, :1] + 1, lambda x: (3 * x)[:, :1]],
)
def test_an_input_that_is_written_into_behind_any_operation_is_the_cause(before):
    given = x(0.3, 0.5, 0.7, 0.9).detach().reshape(2, 2).requires_grad_()
    found = diagnose(lambda x: Doubles.apply(before(x)), given)
    assert found.verdict == "silently_wrong" and codes(found) == ["in_place_without_mark_dirty"]
    assert found.cause.function == "Doubles" and "mark_dirty(x)" in found.cause.message
    assert "what cuts it was not seen" not in str(found)


def test_what_says_that_it_writes_in_place_is_right_behind_any_operation():
    def says(ctx, x):
        ctx.mark_dirty(x.exp_())
        ctx.save_for_backward(x)
        return x

    exp_ = function(says, times_saved).apply
    found = diagnose(lambda x: exp_(x.clone()) + SinhBad.apply(x), x())
    assert codes(found) == ["intermediate_on_ctx"]


# An implicit layer.


def implicit(ctx, z, func):
    ctx.func = func
    ctx.save_for_backward(z)
    return z.clone()


def solves(ctx, g):
    """With a function that it is handed, and that holds a tensor of the graph and a constant."""
    (z,) = ctx.saved_tensors
    with torch.enable_grad():
        z0 = z.detach().requires_grad_()
        f0 = ctx.func(z0)
    u = g
    for _ in range(60):
        u = torch.autograd.grad(f0, z0, u, retain_graph=True)[0] + g
    return u, None


def test_a_function_that_holds_what_has_a_graph_is_no_argument_without_one():
    weight = torch.tensor([0.2, 0.1, 0.3], dtype=torch.float64)

    def layer(x):
        with torch.no_grad():
            z = torch.zeros_like(x)
            for _ in range(60):
                z = torch.tanh(weight * z + x)
        z = torch.tanh(weight * z + x)
        return function(implicit, solves).apply(z, lambda z: torch.tanh(weight * z + x))

    found = diagnose(layer, x())
    assert found.verdict == "silently_wrong" and "argument_without_graph" not in codes(found)
    assert "autograd.grad without create_graph" in found.cause.message


PACKAGE = """
import torch
class Layer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, solver):
        ctx.solver = solver
        ctx.save_for_backward(x)
        return x**3
    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        with torch.enable_grad():
            x0 = x.detach().requires_grad_()
            y = x0**3
        return ctx.solver(lambda u: torch.autograd.grad(y, x0, u, retain_graph=True)[0], g), None
"""


def test_a_line_of_backward_itself_comes_before_the_one_that_calls_it(tmp_path, monkeypatch):
    folder = tmp_path / "site-packages" / "deq"
    folder.mkdir(parents=True)
    (folder / "deq_layer.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(folder)
    layer = importlib.import_module("deq_layer").Layer

    def solver(f, u):
        return f(u)

    told = " ".join(str(diagnose(lambda x: layer.apply(x, solver), x())).split())
    assert re.search(r"without create_graph in <lambda>, line \d+: `return", told)
    assert "in solver" not in told


# A step in float32, whose slope backward takes for narrow: it is small where it is asked.
NarrowStep = of_inputs(
    lambda x: (x > 0).float(), lambda g, x: g / (1 + 25 * x.abs()) ** 2 * (x.abs() < 1.6)
)


def test_a_step_does_not_change_where_it_stands_still():
    given = torch.tensor([1.5, -2.0, -2.2, 1.9, -1.7, -3.0], dtype=torch.float64)
    assert diagnose(NarrowStep.apply, given.requires_grad_()).verdict == "surrogate_gradient"


def spline(ctx, x, knots):
    """Straight lines between knots; the slopes are kept, and they are found by an index."""
    number = (x.clamp(-2, 2) - (-2)).floor() + torch.tensor(1.0, dtype=x.dtype)
    number = number.long()
    fraction = x - number + 3
    ctx.save_for_backward(fraction, number, knots)
    return (1 - fraction**2) * knots[number] + fraction**2 * knots[number + 1]


def spline_backward(ctx, g):
    fraction, number, knots = ctx.saved_tensors
    return g * 2 * fraction * (knots[number + 1] - knots[number]), None


def test_an_index_is_exact_however_it_is_computed():
    knots = torch.tensor([0.0, 1.0, 3.0, -2.0, 0.5, 1.5, 2.5], dtype=torch.float64)
    found = diagnose(lambda x: function(spline, spline_backward).apply(x, knots), x(0.3, -1.6, 1.2))
    assert found.verdict == "silently_wrong"


def rough_root(x):
    """sqrt(x) as a solver leaves it."""
    return x.sqrt() * (1 + 1e-6 * (1e9 * x).sin())


def test_the_noise_of_a_solver_is_no_rounding():
    assert (
        diagnose(saving(rough_root, rough_root, lambda g, y: g / (2 * y)), x(0.5, 1.0, 2.0)).verdict
        == "silently_wrong"
    )
