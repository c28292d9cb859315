"""float32 as people hand it in, over twelve orders of magnitude: right is never convicted, through
`diagnose` alone; and wrong stays wrong."""

import pytest
import torch
from made_functions import saving
from torch.nn import functional

from double_backward import diagnose
from lessons_src.saving_inputs import Square
from lessons_src.saving_intermediates import Sinh, sinh
from lessons_src.saving_outputs import Exp
from lessons_src.suspects import sigmoid_b
from lessons_src.what_not_to_do import SinhBad

SCALES = [10.0**k for k in range(-6, 7)]
FEW = [1e-6, 1e1, 1e6]
TORCH = {
    "sum of squares": lambda x: (x**2).sum(),
    "squares": lambda x: x**2,
    "mean of squares": lambda x: (x**2).mean(),
    "exp": torch.exp,
    "log": lambda x: x.abs().log(),
    "softmax": lambda x: x.softmax(-1),
    "layer norm": lambda x: functional.layer_norm(x, x.shape[-1:]),
    "norm": torch.norm,
    "matmul": lambda x: x @ x.mT,
    "logsumexp": lambda x: x.logsumexp(-1),
    "sigmoid": torch.sigmoid,
    "cube": lambda x: x**3,
    "reciprocal": lambda x: 1 / x,
    "sin": torch.sin,
    "atan2": lambda x: torch.atan2(x, x.flip(-1)),
    "tanh": torch.tanh,
    "variance": torch.var,
    "gelu": lambda x: x * (1 + torch.erf(x / 2**0.5)) / 2,
    "conv1d": lambda x: functional.conv1d(x[:, None], torch.ones(1, 1, 2).to(x)) ** 2,
    "cross entropy": lambda x: functional.cross_entropy(x, torch.arange(len(x))),
    "distances": lambda x: torch.cdist(x, x.flip(0), compute_mode="use_mm_for_euclid_dist"),
    "mlp": torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1)),
}
with torch.random.fork_rng(), torch.no_grad():  # the net is the same in every run
    torch.manual_seed(0)
    for weights in TORCH["mlp"].parameters():
        weights.uniform_(-0.5, 0.5)


clamped_cube = saving(lambda x: x**3, lambda x: x.clamp(-1e9, 1e9), lambda g, x: g * 3 * x**2)
RIGHT = {
    "Square": Square.apply,
    "Exp": Exp.apply,
    "Sigmoid": sigmoid_b,
    "Sinh": sinh,
    "Sinh, all outputs": Sinh.apply,
}


def point(scale):
    generator = torch.Generator().manual_seed(0)
    return (scale * torch.randn(3, 4, generator=generator)).requires_grad_()


def overflows(fn, x):
    y = fn(x)
    ys = y if isinstance(y, tuple) else (y,)
    return not all(y.isfinite().all() for y in ys)


# It turns many times within a step, or its derivative has lost all digits: what is said then is no
# alarm.
BEYOND = {("sin", 1e5), ("sin", 1e6), ("tanh", 1e1), ("tanh", 1e2)}


def check(fn, scale, name=""):
    x = point(scale)
    with torch.no_grad():
        wanted = "not_checked" if overflows(fn, x) else "supported"
    found = diagnose(fn, x)
    allowed = {wanted, "not_checked"} if (name, scale) in BEYOND else {wanted}
    assert found.verdict in allowed, found


def test_the_first_example():
    x = torch.tensor([10.0, -20.0, 30.0], requires_grad=True)
    assert diagnose(lambda x: (x**2).sum(), x).ok


@pytest.mark.parametrize("scale", FEW)
def test_some_of_torch_is_right(scale):
    for name in ("sum of squares", "exp", "softmax", "norm", "mlp"):
        check(TORCH[name], scale)


@pytest.mark.slow
@pytest.mark.parametrize("name", TORCH)
def test_torch_is_right(name):
    for scale in SCALES:
        check(TORCH[name], scale, name)


@pytest.mark.parametrize("seed", [3, 45])
def test_a_saturated_net_is_right(seed):
    """Some gradients stand still over a small step, and not over a wide one."""
    torch.manual_seed(seed)
    net = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1))
    x = (1e3 * torch.linspace(-1, 1, 12).view(3, 4)).requires_grad_()
    assert diagnose(net, x).ok


@pytest.mark.parametrize("seed", [13, 44])
def test_a_softmax_of_which_one_number_is_left_is_right(seed):
    """The others are lost beside 1: what autograd makes of them is rounding."""
    torch.manual_seed(seed)
    net = [torch.nn.Linear(3, 4), torch.nn.GELU(), torch.nn.Linear(4, 2), torch.nn.Softmax(-1)]
    for scale in (30.0, 300.0, 3000.0):
        x = (scale * torch.randn(2, 3, dtype=torch.float64)).requires_grad_()
        verdict = diagnose(torch.nn.Sequential(*net).double(), x).verdict
        assert verdict in ("supported", "not_checked"), (scale, verdict)


@pytest.mark.parametrize("scale", FEW)
def test_some_right_functions_are_right(scale):
    for fn in RIGHT.values():
        check(fn, scale)


@pytest.mark.slow
@pytest.mark.parametrize("name", RIGHT)
def test_right_functions_are_right(name):
    for scale in SCALES:
        check(RIGHT[name], scale)


@pytest.mark.parametrize("scale", [1e-2, 10.0])
def test_a_wrong_function_stays_wrong_where_it_matters(scale):
    assert diagnose(SinhBad.apply, point(scale)).verdict == "silently_wrong"


@pytest.mark.parametrize("scale", FEW)
def test_a_copy_of_the_input_stays_wrong_at_every_scale(scale):
    assert diagnose(clamped_cube, point(scale)).verdict == "silently_wrong"


def in_float32_alone(act, norm):
    """A net whose norm has another kernel for what carries a tangent, handed float64."""
    first, last = torch.nn.Linear(3, 5), torch.nn.Linear(5, 1)
    return lambda x: last(act(norm(first(x.float()))))


NORMS = {
    "batch": lambda: torch.nn.BatchNorm1d(5),
    "layer": lambda: torch.nn.LayerNorm(5),
    "group": lambda: torch.nn.GroupNorm(1, 5),
    "none": torch.nn.Identity,
}


@pytest.mark.parametrize("norm", NORMS)
def test_a_net_with_a_norm_is_judged_in_float32_alone(norm):
    torch.manual_seed(0)
    right, wrong = (in_float32_alone(act, NORMS[norm]()) for act in (sinh, SinhBad.apply))
    x = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    assert diagnose(right, x).verdict == "supported"
    assert diagnose(wrong, x).verdict == "silently_wrong"


WEIGHTS = torch.linspace(-1, 1, 20).view(4, 5)
LARGE = torch.nn.Sequential(torch.nn.Linear(4, 2000), torch.nn.Tanh(), torch.nn.Linear(2000, 1))
STAYS = {  # in float32, by what it holds or does
    "weights held": lambda x: (x @ WEIGHTS).logsumexp(-1),
    "a large module held": lambda x: LARGE(x),
    "converts": lambda x: x.float().sin(),
}


@pytest.mark.parametrize("scale", [1e-6, 1e6])
@pytest.mark.parametrize("name", STAYS)
def test_what_cannot_be_converted_is_not_convicted(name, scale):
    found = diagnose(STAYS[name], point(scale))
    assert found.verdict in ("supported", "not_checked"), found


def test_where_float32_alone_ends_nothing_is_said():
    """Its own largest number is 3e38."""
    found = diagnose(torch.exp, torch.tensor([100.0], requires_grad=True))
    assert found.verdict == "not_checked" and found.findings[0].code == "not_finite_here"


def test_a_formula_that_leaves_the_range_of_float32_says_nothing_of_the_function():
    """At 88, sinh is 8e37, which float32 holds, and its square is beyond it."""
    x = torch.tensor([1.0, 40.0, 80.0, 88.0], requires_grad=True)
    for f in (Square.apply, torch.sinh, sinh):
        assert diagnose(f, x).ok, f
    assert not diagnose(SinhBad.apply, x).ok
