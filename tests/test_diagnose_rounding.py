"""Where numbers cancel, or are computed in few bits: right is never convicted, and what is wrong
stays so where its digits are known."""

from contextlib import suppress

import numpy as np
import pytest
import torch
from made_functions import codes, function, message, of_inputs

from double_backward import diagnose

SCALES = [10.0**k for k in range(-6, 7)]
CANCELS = {
    "exp(x) - 1 - x": lambda x: torch.exp(x) - 1 - x,
    "1 - cos": lambda x: 1 - torch.cos(x),
    "log cosh": lambda x: torch.log(torch.cosh(x)),
    "sqrt(1 + x²) - 1": lambda x: torch.sqrt(1 + x**2) - 1,
    "log(1 + x) - x": lambda x: torch.log(1 + x.abs()) - x.abs(),
    "entropy": lambda x: -(x.softmax(0) * x.softmax(0).log()).sum(),
    "entropy by log_softmax": lambda x: -(x.softmax(0) * x.log_softmax(0)).sum(),
    "rodrigues": lambda x: (1 - torch.cos(x.norm())) / x.norm() ** 2 * x,
    "difference of means": lambda x: (x**2).mean() - x.mean() ** 2,
    "x - sin(x)": lambda x: x - torch.sin(x),
}
SHORT = [(name, 1e-6) for name in list(CANCELS)[:5]] + [
    ("entropy", 1e2),
    ("entropy by log_softmax", 1e2),
    ("rodrigues", 1e-5),
]
RIGHT = {"supported", "not_checked", "not_finite"}  # the entropy of 0 has a NaN for its derivative


def point(scale, dtype):
    return (scale * torch.tensor([0.7, -0.4, 1.3], dtype=dtype)).requires_grad_()


@pytest.mark.parametrize(("name", "scale"), SHORT)
def test_what_cancels_is_not_convicted(name, scale):
    found = diagnose(CANCELS[name], point(scale, torch.float64))
    assert found.verdict in ("supported", "not_checked"), found


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", CANCELS)
def test_what_cancels_is_not_convicted_at_any_scale(name, dtype):
    for scale in SCALES:
        found = diagnose(CANCELS[name], point(scale, dtype))
        assert found.verdict in RIGHT, found


def test_where_nothing_but_rounding_is_left_that_is_the_reason():
    found = diagnose(CANCELS["entropy"], point(1e2, torch.float64))
    assert found.verdict == "not_checked" and "lost_in_rounding" in codes(found), found
    assert "differences_disagree" not in codes(found)


def versine(slope):
    """1 - cos(x), with this derivative; at 1e-5 half of the digits of its value are left."""
    return of_inputs(lambda x: 1 - torch.cos(x), lambda g, x: g * slope(x)).apply


right_versine, detached_versine = versine(torch.sin), versine(lambda x: torch.sin(x.detach()))


def test_what_is_wrong_by_more_than_rounding_stays_wrong():
    scale = 1e-6
    assert diagnose(right_versine, point(scale, torch.float32)).ok
    twice = diagnose(versine(lambda x: 2 * torch.sin(x)), point(scale, torch.float32))
    assert twice.verdict == "surrogate_gradient", twice
    detached = diagnose(detached_versine, point(scale, torch.float64))
    assert detached.verdict == "silently_wrong", detached


# sin, whose derivative is off by a part of itself that is no factor.
off_by = of_inputs(torch.sin, lambda g, x: g * torch.cos(x) * (1 + 0.015 * torch.sin(40 * x))).apply


# What backward adds does not depend on grad_out.
IdentityWithPenalty = of_inputs(lambda x: x.clone(), lambda g, x: g + 0.25)


@pytest.mark.parametrize("fn", [off_by, lambda x: off_by(x.float()), IdentityWithPenalty.apply])
def test_precision_is_not_guessed_from_noise(fn):
    found = diagnose(fn, torch.linspace(-1, 1.2, 9, dtype=torch.float64, requires_grad=True))
    assert "computes_in_16_bits" not in codes(found)
    assert found.verdict != "raises"
    # In float32 the errors of single elements drown, and what would show is said.
    assert found.verdict != "supported" or "computes_in_float32" in codes(found), found


def half_inside(x):
    return right_versine(x.bfloat16()).to(x.dtype)


def test_16_bits_are_said_where_they_were_seen():
    found = diagnose(half_inside, torch.linspace(0.5, 1.2, 5).double().requires_grad_())
    assert "computes_in_16_bits" in codes(found), found


def test_a_large_number_that_pads_hides_no_wrong_first_derivative():
    def padded(x):
        """x**2 in float32, beside 1e8, as the dynamic programs of soft-DTW have it."""
        table = np.append(x.detach().numpy() ** 2, 1e8)
        return torch.from_numpy(table).float()[:-1] / 1

    twice = of_inputs(padded, lambda g, x: 4 * x.float() * g).apply
    found = diagnose(twice, point(1.0, torch.float64))
    assert found.first.outcome == "wrong", found


PARTS = {
    "a slice": lambda x: x[:, :2],
    "the transpose": lambda x: x.t(),
    "expanded": lambda x: x[:1].expand(4, 3),
    "a diagonal": lambda x: x[:3].diagonal(),
    "permuted": lambda x: x.view(2, 2, 3).permute(2, 0, 1),
}


@pytest.mark.parametrize("part", PARTS)
def test_what_cancels_in_a_part_that_is_not_contiguous_is_not_convicted(part):
    x = (1e-7 * torch.linspace(0.5, 1.5, 12, dtype=torch.float64).view(4, 3)).requires_grad_()
    found = diagnose(lambda x: CANCELS["1 - cos"](PARTS[part](x)), x)
    assert found.verdict in ("supported", "not_checked"), found


def test_what_is_wrong_in_a_slice_stays_wrong():
    x = (1e-5 * torch.linspace(0.5, 1.5, 12, dtype=torch.float64).view(4, 3)).requires_grad_()
    found = diagnose(lambda x: detached_versine(x[:, :2]), x)
    assert found.verdict == "silently_wrong", found


def careful(g, x):
    """What backward adds is computed where errors are caught, from a slice: a penalty as speech
    toolkits have it."""
    added = torch.zeros_like(x)
    with suppress(Exception):
        added = (x.t()[:, :3] - 1).square().mean() * x
    return g * (1 + added)


def careless(g, x):
    return g * (1 + (x.t()[:, :3] - 1).square().mean() * x)


def test_what_fn_does_with_errors_of_its_own_changes_nothing():
    """No error of ours comes out of the operations of fn, where it might be caught."""
    x = torch.linspace(-1, 1.3, 12, dtype=torch.float64).view(4, 3).requires_grad_()
    caught, not_caught = (
        diagnose(of_inputs(lambda x: x * 1, b).apply, x) for b in (careful, careless)
    )
    assert caught.verdict == not_caught.verdict
    assert codes(caught) == codes(not_caught)
    assert "lost_in_rounding" not in codes(caught)


def kept_output(formula, slope, keep):
    """A Function that keeps its output as `keep` makes it, and has this slope by it."""

    class KeptOutput(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = formula(x)
            ctx.save_for_backward(keep(y))
            return y

        @staticmethod
        def backward(ctx, grad_out):
            (y,) = ctx.saved_tensors
            return grad_out * slope(y)

    return KeptOutput


SATURATED = {
    "exp": (lambda x: 1 / (1 + torch.exp(-x)), lambda y: y * (1 - y)),
    "sigmoid": (torch.sigmoid, lambda y: y * (1 - y)),
}


@pytest.mark.parametrize("point", [[14.0, 15.0], [20.0, 25.0], [30.0, 31.0]])
@pytest.mark.parametrize("name", ["exp", "sigmoid"])
def test_what_has_cancelled_is_not_flat(name, point):
    """Of 1 - y at 30 some hundred last digits are left: it stands over a small step, and falls."""
    wrong = kept_output(*SATURATED[name], keep=lambda y: y.detach().clone())
    found = diagnose(wrong.apply, torch.tensor(point, dtype=torch.float64, requires_grad=True))
    assert found.verdict in ("silently_wrong", "raises", "not_checked"), found


@pytest.mark.parametrize("point", [[36.0], [40.0]])
def test_what_has_cancelled_altogether_is_not_checked(point):
    wrong = kept_output(*SATURATED["exp"], keep=lambda y: y.detach().clone())
    found = diagnose(wrong.apply, torch.tensor(point, dtype=torch.float64, requires_grad=True))
    assert found.verdict == "not_checked", found


@pytest.mark.parametrize("point", [[14.0, 15.0], [20.0, 25.0], [30.0, 31.0], [36.0], [40.0]])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_right_one_that_is_saturated_is_not_convicted(point, dtype):
    right = kept_output(*SATURATED["exp"], keep=lambda y: y)
    found = diagnose(right.apply, torch.tensor(point, dtype=dtype, requires_grad=True))
    assert found.verdict in ("supported", "not_checked"), found


def in_numpy(one_minus, error):
    """A sigmoid s in NumPy whose second Function takes s * one_minus(s, x) for the slope, and is
    off by so much in the second derivative."""

    def slope(x):
        s = 1 / (1 + np.exp(-x.detach().numpy()))
        return s * one_minus(s, x.detach().numpy()), s

    class Slope(torch.autograd.Function):
        @staticmethod
        def forward(ctx, g, x):
            ctx.save_for_backward(g, x)
            return g * torch.from_numpy(slope(x)[0])

        @staticmethod
        def backward(ctx, h):
            g, x = ctx.saved_tensors
            first, s = slope(x)
            second = first * (1 - 2 * s) * (1 + error)
            return h * torch.from_numpy(first), h * g * torch.from_numpy(second)

    return of_inputs(lambda x: torch.from_numpy(slope(x)[1]), Slope.apply)


def cancelled(s, x):
    return 1 - s


def in_full(s, x):
    return 1 / (1 + np.exp(x))


@pytest.mark.parametrize("point", [[30.0], [32.0, 33.0], [36.0, 37.0], [38.0]])
def test_what_numpy_moves_in_steps_is_not_flat(point):
    """Differences over small steps say 0, as a wrong Function does, and a right one does not."""
    point = torch.tensor(point, dtype=torch.float64, requires_grad=True)
    for error in (0.0, 0.1, -1.0):
        assert diagnose(in_numpy(cancelled, error).apply, point).verdict == "not_checked"
        found = diagnose(in_numpy(in_full, error).apply, point)
        assert found.verdict == ("silently_wrong" if error else "supported"), found


@pytest.mark.parametrize("point", [[1e20, 1.0, -3.0], [1e20, 1e20, 1.1e20]])
def test_what_autograd_rounds_away_where_grad_out_follows_is_no_path_counted_twice(point):
    def forward(ctx, x):
        out = x.logsumexp(-1, keepdim=True)
        ctx.save_for_backward(x, out)
        return out

    def backward(ctx, grad_out):
        x, out = ctx.saved_tensors
        return grad_out * torch.exp(x - out)

    right = function(forward, backward)
    assert diagnose(right.apply, torch.tensor(point, dtype=torch.float64, requires_grad=True)).ok


@pytest.mark.parametrize("scale", [1e-304, 1e-306])
def test_a_multiple_that_is_not_finite_is_not_asked(scale):
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return scale * x**2

    def backward(ctx, grad_out):
        return grad_out * 2 * scale * ctx.saved_tensors[0]

    body = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    small = type("Small", (torch.autograd.Function,), body)
    point = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64, requires_grad=True)
    found = diagnose(small.apply, point)
    assert found.verdict in ("supported", "not_checked"), found
    assert "backward_not_linear" not in codes(found), found


def softplus(ctx, x):
    ctx.save_for_backward(torch.sigmoid(x))
    return torch.nn.functional.softplus(x)


constant_slope = function(softplus, lambda ctx, g: g * ctx.saved_tensors[0]).apply


@pytest.mark.parametrize(
    ("at", "said"),
    [
        (25.0, "too small to judge: tangents give 1.325e-10, differences 1.326e-10, autograd 0"),
        (31.0, "tangents give 4.072e-13, differences -3.719e-15, which disagree; autograd 0"),
        (36.0, "differences know nothing of it; tangents give 3.051e-15, autograd 0"),
    ],
)
def test_what_tangents_and_differences_say_is_told_where_it_is_unclear(at, said):
    """The slope of softplus has as good as cancelled; backward takes it for a constant."""
    found = diagnose(constant_slope, torch.tensor([at], dtype=torch.float64, requires_grad=True))
    assert found.verdict == "not_checked"
    assert f"unclear: {said}. Pass another" in message(found, "differences_disagree")
    assert {row.outcome for row in found.settings.values()} == {"unclear"}, found
