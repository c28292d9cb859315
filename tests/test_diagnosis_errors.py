"""ERRORS.md quotes what torch says: every text on that page is produced here."""

import re
import shutil
import warnings
from pathlib import Path

import nbformat
import pytest
import torch
from made_functions import cubic, function, x
from test_diagnosis_facts import (
    Cube,
    NoneUnchecked,
    Once,
    SinhBad,
    Square,
    cube_op,
    flattening,
    matrix,
    sum_of_rows,
)
from torch.autograd import grad, gradcheck, gradgradcheck
from torch.autograd.function import BackwardCFunction
from torch.nn import functional
from torch_wordings import WORDINGS, as_stored, release

from double_backward import detect_intermediates, diagnose, recompute_intermediates
from lessons_src.untracked_backward import (
    CubeBackward,
    cube_backward,
    cube_forward,
    in_numpy,
)

needs_compiler = pytest.mark.skipif(
    not shutil.which("g++"), reason="the default backend needs a C++ compiler"
)
PAGE = (Path(__file__).parents[1] / "docs" / "ERRORS.md").read_text()
QUOTED = [line.removeprefix("> ") for line in PAGE.splitlines() if line.startswith("> ")]
# Texts of a GPU, or of another package: above a paragraph that begins so.
REPORTED = set(re.findall(r"^> (.*)\n(?=(?:\n> .*\n)*\nSeen in reports only)", PAGE, re.MULTILINE))


def twice(f, x, after=lambda y: y):
    (first,) = grad(after(f(x)).sum(), x, create_graph=True)
    return grad(first.sum(), x)


def once(f, *inputs):
    return grad(f(*inputs).sum(), inputs[0])


def freed():
    point = x()
    y = Square.apply(point).sum()
    grad(y, point)
    grad(y, point)


def overwritten():
    point = x()
    middle = point * 1
    y = Square.apply(middle)
    middle.mul_(2)
    grad(y.sum(), point)


def numpy_backward(g, x):
    return g * torch.from_numpy(x.numpy())


def save_number(ctx, x):
    ctx.save_for_backward(x, 3)
    return x * 2


in_place = cubic(lambda g, x: g.mul_(3) * x**2)
one_short = function(lambda ctx, a, b: a * b, lambda ctx, g: g).apply
number = function(save_number, lambda ctx, g: g).apply
all_detached = cubic(lambda g, x: (g * 3 * x**2).detach())


class NumPyItself(Square):
    """Its backward calls NumPy, which torch.func refuses at the first derivative."""

    forward = staticmethod(lambda x: x**2)
    setup_context = staticmethod(lambda ctx, inputs, output: ctx.save_for_backward(*inputs))

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return grad_out * torch.from_numpy(2 * x.detach().numpy())


class WithSetup(Square):
    @staticmethod
    def forward(x):
        return x**2

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)


class WithJvp(WithSetup):
    """x**2, also for forward mode."""

    generate_vmap_rule = True

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def jvp(ctx, tangent):
        return 2 * ctx.saved_tensors[0] * tangent


class CubeNumPySetup(WithSetup):
    """Right, in torch.func, too: NumPy is called in forwards alone."""

    @staticmethod
    def forward(x):
        return in_numpy(cube_forward, x)

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return CubeNumPyBackwardSetup.apply(grad_out, x)


class CubeNumPyBackwardSetup(WithSetup):
    @staticmethod
    def forward(grad_out, x):
        return in_numpy(cube_backward, grad_out, x)

    backward = CubeBackward.backward


def numpy_op(x):
    return torch.from_numpy(x.detach().numpy() ** 3)


def warned():
    point = x()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.set_warn_always(True)  # or it is said once in a process
        try:
            Square.apply(point).sum().backward(create_graph=True)
        finally:
            torch.set_warn_always(False)


LIBRARY = torch.library.Library("errors_test", "FRAGMENT")
for name, kernel in {"numpy": numpy_op, "torch": torch.sinh}.items():
    LIBRARY.define(f"{name}(Tensor x) -> Tensor")
    LIBRARY.impl(name, kernel, "CPU")


def without_kernel():
    with warnings.catch_warnings(action="always", record=True) as told:
        once(lambda x: torch.ops.errors_test.numpy(x) + x, x())
    raise told[0].message


def anomaly():
    with torch.autograd.set_detect_anomaly(True):
        once(torch.sqrt, x(0.0, 1.0)) * 0
        once(lambda x: 0 * x.sqrt(), x(0.0, 1.0))


def inferred():
    with torch.inference_mode():
        return torch.ones(2, dtype=torch.float64)


def nested_levels():
    with torch.autograd.forward_ad.dual_level(), torch.autograd.forward_ad.dual_level():
        pass


def distances(x):
    return torch.cdist(x[None], x.new_zeros(1, 2))


def products(x, of=torch.scatter_reduce):
    return of(torch.ones_like(x), 0, torch.tensor([0, 0]), x, "prod")


def forward_forward():
    with detect_intermediates():
        torch.func.jacfwd(torch.func.jacfwd(lambda x: WithJvp.apply(x).sum()))(x())


qkv = torch.ones(3, 1, 1, 2, 4, dtype=torch.float64, requires_grad=True)


def attention(qkv):
    return functional.scaled_dot_product_attention(*qkv)


def under_autocast(product):
    """The gradient of a product of float32 matrices, by the first."""
    a, b = torch.ones(2, 3, requires_grad=True), torch.ones(3, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = product(a, b)
    return grad(out.sum(), a)[0]


def matrix_product(ctx, a, b):
    ctx.save_for_backward(a, b)
    return a @ b


def matrix_product_backward(ctx, grad_out):
    a, b = ctx.saved_tensors
    return grad_out @ b.t(), a.t() @ grad_out


product = function(matrix_product, matrix_product_backward).apply


def save_view(ctx, x):
    ctx.save_for_backward(x.view(-1))
    return x**2


square_of_a_view = function(save_view, Square.backward).apply


def save_view_of_result(ctx, x):
    out = torch.exp(x)
    ctx.save_for_backward(out.view(-1))
    return out


exp_of_a_view = function(save_view_of_result, lambda ctx, g: g * ctx.saved_tensors[0]).apply

PROVOKED = [
    lambda: grad(Square.apply(x()).sum(), torch.ones(2)),
    lambda: torch.func.grad(lambda x: NumPyItself.apply(x).sum())(x()),
    anomaly,
    lambda: grad((x() * inferred()).sum(), x()),
    lambda: inferred().add_(1),
    lambda: inferred().requires_grad_(),
    nested_levels,
    lambda: torch.func.jacfwd(lambda x: functional.ctc_loss(x, *SPOKEN))(torch.zeros(3, 1, 4)),
    lambda: torch.func.jvp(WithSetup.apply, (x(),), (x(),)),
    forward_forward,
    lambda: twice(distances, x()),
    lambda: twice(products, x(0.0, 0.0)),
    lambda: twice(attention, qkv),
    lambda: under_autocast(product),
    warned,
    without_kernel,
    lambda: twice(SinhBad.apply, x()),
    lambda: twice(Once.apply, x(), after=lambda y: y**2),
    lambda: guarded(),
    lambda: twice(torch.nn.functional.hardsigmoid, x()),
    lambda: twice(sum_of_rows, matrix, after=torch.square),
    lambda: twice(cube_op, x()),
    lambda: twice(cubic(numpy_backward), x()),
    freed,
    overwritten,
    lambda: once(in_place, x()),
    lambda: once(lambda m: flattening("view")(m).t() * torch.ones(3, 2), matrix),
    lambda: once(one_short, x(), x()),
    lambda: once(lambda x: NoneUnchecked.apply(x)[1], x()),
    lambda: number(x()),
    lambda: torch.func.grad(lambda x: Square.apply(x).sum())(x()),
    lambda: torch.func.vmap(WithSetup.apply)(x()),
    lambda: gradcheck(cubic(lambda g, x: g * x), x()),
    lambda: gradgradcheck(all_detached, x()),
    lambda: inside(detect_intermediates, SinhBad.apply),
    lambda: inside(recompute_intermediates, scaled),
    lambda: unknown_torch(),
]
PROVOKED_COMPILED = [
    lambda: twice(compiled(torch.sin), x()),
    lambda: twice(differentiated_once(compiled(torch.amax)), x()),
]


def compiled(f):
    """By the way of the default backend through autograd, without its C++ compiler."""
    torch._dynamo.reset()
    return torch.compile(f, backend="aot_eager")


def differentiated_once(f):
    f(x()).backward()
    return f


def scale_on_ctx(ctx, x):
    ctx.scale = x.norm().item()
    return x / ctx.scale


scaled = function(scale_on_ctx, lambda ctx, g: g / ctx.scale).apply


def inside(remedy, f):
    with remedy():
        twice(f, x(), after=torch.square)


def unknown_torch():
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(BackwardCFunction, "apply_jvp")
        inside(detect_intermediates, SinhBad.apply)


def guarded():
    point = x()
    (first,) = grad((Once.apply(point) ** 2).sum(), point, create_graph=True)
    first.sum().backward()


SPOKEN = torch.tensor([[1, 2]]), torch.tensor([3]), torch.tensor([2])
COMPILED = [quoted for quoted in QUOTED if "compile" in quoted]  # those import Dynamo, a second


@pytest.fixture(scope="module")
def said():
    return said_by(PROVOKED)


def said_by(provoked):
    texts = []
    for provoke in provoked:
        try:
            provoke()
        except Exception as error:
            texts.append(as_stored(" ".join(str(error).split())))
    return texts


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("quoted", [q for q in QUOTED if q not in COMPILED and q not in REPORTED])
def test_torch_says_this(quoted, said):
    if "_cdist_backward" in quoted and release(torch.__version__) > (2, 13):
        pytest.skip("the page says: up to PyTorch 2.13")
    assert any(quoted in text for text in said), "\n".join(said)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_torch_says_this_of_compiled_regions():
    said = said_by(PROVOKED_COMPILED)
    assert COMPILED and all(any(quoted in text for text in said) for quoted in COMPILED), said


def test_the_words_of_other_versions_are_on_the_page_too():
    assert [old for _, old, _, new in WORDINGS if new in PAGE and old not in PAGE] == []


def test_what_the_page_says_of_a_view_saved_in_forward():
    with pytest.raises(RuntimeError, match="appears? to not have been used in the graph"):
        twice(square_of_a_view, x())
    assert torch.allclose(twice(square_of_a_view, x(), torch.square)[0], 8 * x() ** 2)  # not 12
    with pytest.raises(RuntimeError, match="appears? to not have been used in the graph"):
        twice(exp_of_a_view, x())


@pytest.mark.parametrize("f", [SinhBad.apply, lambda x: x], ids=["an intermediate", "linear"])
def test_a_weight_turns_the_one_text_into_the_other(f):
    with pytest.raises(RuntimeError, match="does not require grad and does not have a grad_fn"):
        twice(f, x())
    weight = torch.tensor([2.0, 3.0], dtype=torch.float64, requires_grad=True)
    with pytest.raises(RuntimeError, match="appears? to not have been used in the graph"):
        twice(lambda x: weight * f(x), x())


def test_gradient_of_an_output_that_is_no_tensor_is_none():
    gradients = []
    f = function(
        lambda ctx, x: (x * 2, 3), lambda ctx, g, of_the_number: gradients.append(of_the_number)
    )
    once(lambda x: f.apply(x)[0] + x, x())
    assert gradients == [None]


def test_a_forward_may_call_numpy_also_in_torch_func():
    assert twice(CubeNumPySetup.apply, x())[0].tolist() == [3.0, 6.0]
    point = torch.tensor(0.5, dtype=torch.float64)
    assert torch.func.grad(torch.func.grad(CubeNumPySetup.apply))(point) == 3


def test_what_is_seen_in_reports_only_is_marked():
    assert len(REPORTED) == 4 and set(QUOTED) >= REPORTED


# What the page advises.


def without_cdist(x):
    return (x[None, None] - x.new_zeros(1, 2)).square().sum(-1)


recurrent = [cls(2, 2).double() for cls in (torch.nn.LSTM, torch.nn.GRU)]


@pytest.mark.parametrize(
    "cure, point",
    [
        *((lambda x, net=net: net(x[None])[0], x()) for net in recurrent),  # on the CPU
        (without_cdist, x()),
        (lambda x: without_cdist(x).sqrt(), x()),
        (lambda x: torch.prod(x, -1), x(0.0, 0.0, 2.0)),
        (lambda x: (x * x).sum(), x(0.0, 0.0)),
        (lambda x: (x.square().sum() + 1e-12).sqrt(), x()),
        (lambda x: torch.where(x > 0, torch.where(x > 0, x, 1.0).sqrt(), 0.0), x(-1.0, 1.0)),
    ],
)
def test_what_the_page_advises_is_right(cure, point):
    assert gradgradcheck(cure, point)


@pytest.mark.filterwarnings("ignore:.*an autograd kernel was not")
def test_what_the_page_says_of_an_operator_without_a_backward():
    of_numpy, of_torch = torch.ops.errors_test.numpy, torch.ops.errors_test.torch
    assert torch.equal(once(lambda x: of_numpy(x) + x, x())[0], torch.ones(2))
    assert torch.equal(once(of_torch, x())[0], x().cosh())
    assert not torch.func.grad(lambda x: of_torch(x).sum())(x()).any()


def test_what_the_page_says_of_nan():
    zero = x(0.0, 0.0)
    assert not twice(lambda x: x.norm() ** 2, zero)[0].isfinite().all()
    assert twice(lambda x: (x * x).sum(), zero)[0].tolist() == [2.0, 2.0]
    assert once(torch.norm, zero)[0].tolist() == [0.0, 0.0]
    assert twice(torch.norm, zero)[0].isnan().all()


def test_a_hessian_by_reverse_mode_needs_no_jvp():
    found = torch.func.jacrev(torch.func.jacrev(lambda x: WithSetup.apply(x).sum()))(x())
    assert torch.equal(found, 2 * torch.eye(2, dtype=torch.float64))


def penalty(create_graph):
    def loss(w):
        (g,) = grad((w**3).sum(), w, create_graph=create_graph)
        return (g**2 + w**2).sum()

    return loss


def test_a_gradient_without_create_graph_is_left_out_without_a_message():
    assert once(penalty(True), x())[0].tolist() == [5.5, 38.0]
    assert once(penalty(False), x())[0].tolist() == [1.0, 2.0]  # of w**2 alone
    (named,) = [f for f in diagnose(penalty(False), x()).findings if f.code == "steps_in_fn"]
    assert "create_graph" in named.message


def test_what_has_no_derivative_is_none_or_zero():
    a, b = x(), x()
    (by_a,) = grad((a**2 + b**2).sum(), a, create_graph=True)
    assert grad(by_a.sum(), b, allow_unused=True) == (None,)
    assert not grad(by_a.sum(), b, materialize_grads=True)[0].any()
    (by_a + 0 * a).sum().backward()
    assert b.grad is None and a.grad.tolist() == [2.0, 2.0]
    result = 2 * a
    (result**2).sum().backward()
    with pytest.warns(UserWarning, match="not a leaf"):
        assert result.grad is None


def test_what_the_page_says_of_relu_and_of_row_sums():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    net.double()
    assert not torch.func.hessian(lambda x: net(x).sum())(x()).any()
    net[1] = torch.nn.Tanh()
    hessian = torch.func.hessian(lambda x: net(x).sum())(x())
    (row_sums,) = twice(net, x())
    assert torch.allclose(row_sums, hessian.sum(0))
    assert not torch.allclose(row_sums, hessian.diagonal())


def test_cure_for_a_product_under_autocast():
    def cast_outside(a, b):
        with torch.autocast("cpu", enabled=False):
            return product(a.float(), b.float())

    assert under_autocast(cast_outside).dtype == torch.float32


PLACES = torch.tensor([[0, 1], [1, 0]])
B = torch.tensor([1.0, 2.0], dtype=torch.float64)


def sparse(values):
    return torch.sparse_coo_tensor(PLACES, values, (2, 2)) @ B


def by_index_add(values):
    return values.new_zeros(2).index_add(0, PLACES[0], values * B[PLACES[1]])


@pytest.mark.filterwarnings("ignore")
def test_sparse_matrix_built_from_values_loses_its_second_derivative():
    assert torch.equal(sparse(x()), by_index_add(x()))
    assert gradcheck(sparse, x())
    with pytest.raises(RuntimeError, match="does not require grad and does not have a grad_fn"):
        twice(sparse, x(), torch.square)
    (wrong,) = twice(lambda x: sparse(x**2), x(), torch.square)
    (right,) = twice(lambda x: by_index_add(x**2), x(), torch.square)
    assert not torch.allclose(wrong, right)
    assert twice(lambda x: sparse(x) ** 2 + x**2, x())[0].tolist() == [2.0, 2.0]  # of x**2 alone
    assert gradgradcheck(by_index_add, x())


LESSONS = {
    path.name: "\n".join(
        cell.source + "".join(str(output) for output in cell.get("outputs", []))
        for cell in nbformat.read(path, as_version=4).cells
    )
    for path in (Path(__file__).parents[1] / "notebooks").glob("[0-9]_*.ipynb")
}
# The first words of a text on the page -> what each lesson that it points to has to say of it.
WORDS = {
    "element 0 of tensors": {
        "1": ["create_graph", "linear"],
        "3": ["intermediate"],
        "4": ["intermediate"],
        "5": ["detach"],
    },
    "The differentiated Tensor": {"1": ["view"], "4": ["once_differentiable"]},
    "One of the differentiated": {"5": ["alias"]},
    "trying to differentiate": {"4": ["once_differentiable"], "5": ["once_differentiable"]},
    "the derivative for": {"6": ["torch operation that has no derivative"]},
    "but no autograd formula": {"5": ["register_autograd"]},
    "an autograd kernel was not": {"5": ["register_autograd"]},
    "Can't call numpy()": {"5": ["numpy()"]},
    "Cannot access data": {"5": ["NumPy"]},
    "input must be": {"1": ["contiguous"]},
    "Setting requires_grad": {"4": ["intermediate"]},
    "You must implement": {"2": ["def jvp"]},
    "a second derivative by": {"2": ["jvp"]},
    "Function 'Sqrt": {"6": ["nan", "torch.where"]},
    "expected m1 and m2": {"1": ["enabled=False"]},
    "one of the variables": {"1": ["modified by an inplace operation"]},
    "unsupported operation": {"3": ["mul_"]},
    "view size is": {"1": ["view size is not compatible"]},
    "returned an incorrect": {"1": ["each argument of"]},
    "unsupported operand": {"1": ["set_materialize_grads"]},
    "save_for_backward can": {"4": ["number"], "1": ["save_for_backward"]},
    "it must override": {"1": ["setup_context"]},
    "it does not have vmap": {"1": ["generate_vmap_rule"]},
    "torch.compile with": {"4": ["force_eager"]},
    "This backward function was compiled": {"4": ["force_eager"]},
    "Jacobian mismatch": {"4": ["Jacobian mismatch"], "6": ["straight-through"]},
    "Numerical gradient for": {"5": ["gradgradcheck"]},
    "a second derivative through": {"4": ["a second derivative through it would be wrong"]},
    "its second derivative": {"5": ["second Function"]},
}


def sections():
    """The first words of each quoted text -> the lessons that the paragraphs below it name."""
    found = {}
    for block in re.split(r"^> ", PAGE, flags=re.M)[1:]:
        quoted, below = block.split("\n", 1)
        below = re.split(r"^## ", below, flags=re.M)[0]
        if links := set(re.findall(r"notebooks/(\d_\w+\.ipynb)", below)):
            found[quoted] = links
    return found


def test_every_lesson_that_the_page_names_has_the_word():
    for quoted, links in sections().items():
        (words,) = [w for start, w in WORDS.items() if quoted.startswith(start)]
        assert {link[0] for link in links} == set(words), quoted
        for link in links:
            for word in words[link[0]]:
                assert word in LESSONS[link], (quoted, link, word)


def test_cure_for_the_forgotten_create_graph():
    assert twice(Cube.apply, x())[0].tolist() == [3.0, 6.0]


@pytest.mark.skipif(not torch.__version__.startswith("2.13"), reason="the page says: 2.13")
def test_weight_norm_of_torch_has_wrong_second_derivatives():
    layer = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(2, 1).double())
    parts = [
        p.detach().clone().requires_grad_() for p in layer.parametrizations.weight.parameters()
    ]
    of_torch = layer.parametrizations.weight[0]

    def formula(g, v):
        return g * v / v.norm(dim=1, keepdim=True)

    assert torch.allclose(of_torch(*parts), formula(*parts))
    assert gradcheck(of_torch, parts) and gradgradcheck(formula, parts)
    assert not gradgradcheck(of_torch, parts, raise_exception=False)
    assert diagnose(of_torch, *parts).verdict == "silently_wrong"


def normalised(x, dim):
    centred = x - x.mean(dim, keepdim=True)
    return centred / torch.sqrt(x.var(dim, correction=0, keepdim=True) + 1e-5)


NORMS = {  # torch's own, each for the three numbers of one row
    "layer_norm": lambda x: functional.layer_norm(x, (3,)),
    "batch_norm": lambda x: functional.batch_norm(x[:, None], None, None, training=True)[:, 0],
    "instance_norm": lambda x: functional.instance_norm(x[None, None])[0, 0],
}


def by_the_first(f, order):
    point = torch.tensor([0.0, 1.0, 3.0], dtype=torch.float64, requires_grad=True)
    derivative = f(point) @ torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64)
    for _ in range(order):
        derivative = grad(derivative, point, create_graph=True)[0][0]
    return round(derivative.item(), 4)


@pytest.mark.skipif(not torch.__version__.startswith("2.13"), reason="the page says: 2.13")
@pytest.mark.parametrize("norm", NORMS)
def test_norms_of_torch_have_wrong_third_derivatives(norm):
    of_torch, formula = NORMS[norm], lambda x: normalised(x, -1)
    for order in (0, 1, 2):
        assert by_the_first(of_torch, order) == by_the_first(formula, order)
    assert (by_the_first(of_torch, 3), by_the_first(formula, 3)) == (-0.8345, -0.3927)
    for number in ("-0.8345", "-0.3927"):
        assert number in PAGE
    point = torch.tensor([0.0, 1.0, 3.0], dtype=torch.float64, requires_grad=True)
    assert diagnose(of_torch, point).verdict == "supported"
    assert not diagnose(of_torch, point, order=3).ok
    assert diagnose(formula, point, order=3).ok


def gradients_of_a_pinn(norm):
    """Of a loss on u_xx, by a layer before the norm, the norm, and a layer after it."""
    torch.manual_seed(0)
    before, after = torch.nn.Linear(1, 8).double(), torch.nn.Linear(8, 1).double()
    points = torch.linspace(0, 1, 6, dtype=torch.float64)[:, None].requires_grad_()
    u = after(torch.tanh(norm(before(points))))
    (u_x,) = grad(u.sum(), points, create_graph=True)
    (u_xx,) = grad(u_x.sum(), points, create_graph=True)
    return grad((u_xx**2).mean(), [before.weight, *norm.parameters(), after.weight])


class Composed(torch.nn.LayerNorm):
    def forward(self, x):
        return normalised(x, -1) * self.weight + self.bias


@pytest.mark.skipif(not torch.__version__.startswith("2.13"), reason="the page says: 2.13")
def test_a_pinn_with_layer_norm_has_wrong_gradients_before_the_norm():
    right = gradients_of_a_pinn(Composed(8).double())
    before, *others = gradients_of_a_pinn(torch.nn.LayerNorm(8).double())
    assert (before - right[0]).norm() > 0.01 * right[0].norm()
    assert all(map(torch.allclose, others, right[1:]))
    assert all(map(torch.allclose, gradients_of_a_pinn(torch.nn.GroupNorm(1, 8).double()), right))


@pytest.mark.skipif(not torch.__version__.startswith("2.13"), reason="the page says: 2.13")
def test_forward_mode_over_forward_mode_has_wrong_second_derivatives_of_norms():
    def second(f):
        def along(t):
            return f(torch.tensor([0.0, 1.0, 3.0]).double() + t * torch.tensor([1.0, 0.0, 0.0]))

        def slope(t):
            return torch.func.jvp(along, (t,), (torch.ones_like(t),))[1]

        zero = torch.tensor(0.0, dtype=torch.float64)
        return torch.func.jvp(slope, (zero,), (torch.ones_like(zero),))[1]

    right = second(lambda x: normalised(x, -1))
    for norm in NORMS.values():
        assert not torch.allclose(second(norm), right)


def frozen_net():
    torch.manual_seed(0)
    layers = torch.nn.Linear(1, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)
    return torch.nn.Sequential(*layers).double().requires_grad_(False)


def beside(f, at):
    return twice(lambda x: f(x) + x**2, at)[0]


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=needs_compiler)])
def test_a_compiled_frozen_net_is_silently_nothing(backend):
    net, column = frozen_net(), x()[:, None].detach().requires_grad_()
    torch._dynamo.reset()
    region = torch.compile(net, backend=backend)
    assert torch.allclose(beside(region, column), torch.full((2, 1), 2.0, dtype=torch.float64))
    right = beside(net, column)
    assert not torch.allclose(right, torch.full((2, 1), 2.0, dtype=torch.float64))
    with torch.compiler.set_stance("force_eager"):
        assert torch.allclose(beside(region, column), right)


@pytest.mark.slow
def test_a_compiled_tanh_is_silently_nothing():
    # torch 2.11 says the first, 2.13 the second.
    refused = "does not require grad|appears? to not have been used in the graph"
    with pytest.raises(RuntimeError, match=refused):
        twice(compiled(torch.tanh), x())
    assert beside(compiled(torch.tanh), x()).tolist() == [2.0, 2.0]
    assert not torch.allclose(beside(torch.tanh, x()), torch.tensor(2.0, dtype=torch.float64))
