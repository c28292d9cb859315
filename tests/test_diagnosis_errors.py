"""ERRORS.md quotes what torch says: every text on that page is produced here."""

from pathlib import Path

import pytest
import torch
from test_diagnosis_facts import (
    Cube,
    NoneUnchecked,
    Once,
    SinhBad,
    Square,
    cube_op,
    cubic,
    flattening,
    function,
    matrix,
    sum_of_rows,
    x,
)
from torch.autograd import grad, gradcheck, gradgradcheck
from torch_wordings import WORDINGS, as_stored

from double_backward import detect_intermediates, diagnose, recompute_intermediates
from double_backward.remedies import meet

PAGE = (Path(__file__).parents[1] / "ERRORS.md").read_text()
QUOTED = [line.removeprefix("> ") for line in PAGE.splitlines() if line.startswith("> ")]


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


class WithSetup(Square):
    @staticmethod
    def forward(x):
        return x**2

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)


PROVOKED = [
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


def scale_on_ctx(ctx, x):
    ctx.scale = x.norm().item()
    return x / ctx.scale


scaled = function(scale_on_ctx, lambda ctx, g: g / ctx.scale).apply


def inside(remedy, f):
    with remedy():
        twice(f, x(), after=torch.square)


def unknown_torch():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(meet, "_rehearsed", False)
        patch.setattr(meet, "_backward", lambda method: method)
        inside(detect_intermediates, SinhBad.apply)


def guarded():
    point = x()
    (first,) = grad((Once.apply(point) ** 2).sum(), point, create_graph=True)
    first.sum().backward()


@pytest.fixture(scope="module")
def said():
    texts = []
    for provoke in PROVOKED:
        try:
            provoke()
        except Exception as error:
            texts.append(as_stored(" ".join(str(error).split())))
    return texts


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("quoted", QUOTED)
def test_torch_says_this(quoted, said):
    assert any(quoted in text for text in said), "\n".join(said)


def test_the_words_of_other_versions_are_on_the_page_too():
    assert [old for _, old, _, new in WORDINGS if new in PAGE and old not in PAGE] == []


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
