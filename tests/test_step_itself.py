"""What a training step cuts outside of custom Functions: told by diagnose_all, with the line."""

import json

import pytest
import torch
from made_functions import cubic
from torch import nn
from torch.autograd import Function, grad
from torch.utils.checkpoint import checkpoint

from double_backward import diagnose, diagnose_all
from double_backward.untracked_steps import ALL_STEPS as KINDS


def leaf(*values):
    return torch.tensor(values or (0.5, 1.5), dtype=torch.float64, requires_grad=True)


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1)).double()


def maml(create_graph=False):
    w = leaf()
    (g,) = grad((w**4).sum(), w, create_graph=create_graph)
    ((w - 0.1 * g) ** 2).sum().backward()


def maml_by_backward():
    w = leaf()
    (w**4).sum().backward()
    grad(((w - 0.1 * w.grad) ** 2).sum(), w)


def penalty():
    x, model = leaf().reshape(1, 2), net()
    (g,) = grad(model(x).sum(), x)
    (model(x).sum() + g.square().sum()).backward()


def detached():
    x = leaf()
    (x * x.cos().detach()).sum().backward()


def data():
    x = leaf()
    (x * x.cos().data).sum().backward()


def under_no_grad():
    x = leaf()
    with torch.no_grad():
        y = x.cos()
    (x * (2 * y)).sum().backward()


def number():
    x = leaf()
    y = (x**2).sum()
    (x / y.item()).sum().backward()


def array():
    x = leaf()
    kept = x.detach().numpy()
    (x * torch.from_numpy(kept)).sum().backward()


def array_beside_a_sparse_tensor():
    x = leaf()
    kept = x.detach().numpy()
    eye = torch.eye(2, dtype=torch.float64).to_sparse()
    (x * torch.from_numpy(kept) * torch.sparse.mm(eye, x[:, None])[:, 0]).sum().backward()


def python_float():
    x = leaf()
    (x * float((x**2).sum())).sum().backward()


def made_anew():
    x = leaf()
    (x * torch.tensor(x.sum())).sum().backward()


def in_place():
    y = leaf() * 2
    with torch.no_grad():
        y.clamp_(max=2.0)
    (y**2).sum().backward()


def in_place_by_data():
    y = leaf() * 2
    y.data.clamp_(max=2.0)
    (y**2).sum().backward()


def into_a_buffer():
    x, buffer = leaf(), torch.zeros(2, dtype=torch.float64)
    buffer[:] = x.detach()
    (x * buffer).sum().backward()


def hook():
    x = leaf()
    y = x**2
    y.register_hook(lambda g: g.detach() * 2)
    (g,) = grad((y**2).sum(), x, create_graph=True)
    g.sum().backward()


def clipping_hook():
    x = leaf()
    y = x**2
    y.register_hook(lambda g: g.clamp(max=0.1))
    y.sum().backward()


def module_hook():
    x, model = leaf().reshape(1, 2), net()
    model[1].register_full_backward_hook(lambda m, gi, go: (gi[0].detach(),))
    (g,) = grad((model(x) ** 2).sum(), x, create_graph=True)
    g.sum().backward()


def hook_after_accumulation():
    x = leaf()

    def doubled(p):
        p.grad.mul_(2)

    x.register_post_accumulate_grad_hook(doubled)
    (x**2).sum().backward()


def spectral():
    torch.manual_seed(0)
    layer = nn.utils.parametrizations.spectral_norm(nn.Linear(2, 2).double())
    layer(leaf()).sum().backward()


def renormed():
    table = nn.Embedding(3, 2, max_norm=0.5)
    table(torch.tensor([0, 1])).sum().backward()


CUT = {  # a step -> the kind of what cuts or changes a gradient there, and in which line
    maml: ("grad", "grad((w**4)"),
    maml_by_backward: ("backward", "w.grad"),
    penalty: ("grad", "grad(model(x).sum(), x)"),
    detached: ("detach", ".detach()"),
    data: ("data", ".data"),
    under_no_grad: ("no_grad", "torch.no_grad()"),
    number: ("item", ".item()"),
    array: ("numpy", ".numpy()"),
    array_beside_a_sparse_tensor: ("numpy", ".numpy()"),
    python_float: ("float", "float("),
    made_anew: ("tensor", "torch.tensor("),
    in_place: ("no_grad", "torch.no_grad()"),
    in_place_by_data: ("data", ".data"),
    into_a_buffer: ("detach", ".detach()"),
    hook: ("hook", "register_hook"),
    clipping_hook: ("hook", "register_hook"),
    module_hook: ("module_hook", "register_full_backward_hook"),
    hook_after_accumulation: ("post_hook", "register_post"),
    spectral: ("no_grad", "layer(leaf())"),
    renormed: ("max_norm", "table("),
}


@pytest.mark.filterwarnings("ignore:To copy construct")
@pytest.mark.parametrize("step", CUT, ids=lambda step: step.__name__)
def test_what_cuts_a_gradient_is_told_with_its_line(step):
    kind, line = CUT[step]
    found = diagnose_all(step)
    (cut, *_) = [c for c in found.itself if c.step.kind == kind and line in c.step.where]
    assert "backward()" in cut.gradient or "grad(" in cut.gradient
    assert found.ok  # it may be meant
    text = " ".join(str(found).split())
    assert "In the step itself" in text and str(KINDS[kind]) in text and "lesson 4" in text
    assert json.loads(json.dumps(found.to_dict()))["itself"][0]["where"]


def with_graph():
    maml(create_graph=True)


def logged():
    x = leaf()
    y = (x**2).sum()
    print(f"{y.item():.1f}", y.detach().numpy(), float(y))
    with torch.no_grad():
        accuracy = (x * 2).mean()
    y.backward()
    return accuracy


def by_hand():
    w = leaf()
    for _ in range(3):
        (g,) = grad((w**2).sum(), w)
        with torch.no_grad():
            w -= 0.1 * g


def by_an_optimizer():
    model = net()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        (g,) = grad(model(x := leaf().reshape(1, 2)).sum(), x, create_graph=True)
        g.square().sum().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def masked():
    x = leaf()
    (x * (x.detach() > 1)).sum().backward()


def anew():
    x = (leaf() * 2).detach().requires_grad_()
    (x**2).sum().backward()


def hook_that_looks():
    x = leaf()
    y = x**2
    y.register_hook(lambda g: None)
    y.register_hook(lambda g: g * 1)
    y.sum().backward()


def normalised():
    layer = nn.BatchNorm1d(2).double()
    layer(torch.stack([leaf(), leaf(1.0, 2.0)])).square().sum().backward()


class Keeps(Function):
    """A backward that detaches: told by its own row."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**2

    @staticmethod
    def backward(ctx, g):
        return 2 * g * ctx.saved_tensors[0].detach()


def a_function():
    (g,) = grad((Keeps.apply(x := leaf()) ** 2).sum(), x, create_graph=True)
    g.sum().backward()


def a_reentrant_checkpoint():
    leaf().sum().backward()  # for another gradient
    checkpoint(torch.sin, x := leaf(), use_reentrant=True).sum().backward(create_graph=True)
    (x.grad**2 + x**2).sum().backward()


SILENT = [with_graph, logged, by_hand, by_an_optimizer, masked, anew, hook_that_looks, normalised]


@pytest.mark.parametrize(
    "step", [*SILENT, a_function, a_reentrant_checkpoint], ids=lambda step: step.__name__
)
def test_what_cuts_none_is_not_told(step):
    found = diagnose_all(step)
    assert found.itself == (), found
    assert "In the step itself:" not in str(found)
    if not found.rows:
        assert "Nothing was seen in it that cuts a gradient" in " ".join(str(found).split())


def test_a_step_runs_as_without():
    for step in CUT:
        torch.manual_seed(1)
        diagnose_all(step)
    assert not torch._C._len_torch_function_stack()


def test_compiled_code_is_left_as_it_is():
    compiled = torch.compile(lambda x: x.sin(), backend="eager")
    found = diagnose_all(lambda: compiled(leaf()).sum().backward())
    assert found.itself is None
    if not found.rows:
        assert "is not looked at" in " ".join(str(found).split())
    torch._dynamo.reset()


# rtol= is for what is computed inexactly.

torch.manual_seed(0)
X, Y = torch.randn(5, 3, dtype=torch.float64), torch.randn(5, 1, dtype=torch.float64)


def meta(w):
    (g,) = grad(((torch.tanh(X @ w) - Y) ** 2).mean(), w)
    return ((torch.tanh(X @ (w - 0.1 * g)) - Y) ** 2).mean()


# A gradient that is off by 3 % to both sides, as that of a solver.
inexact = cubic(lambda g, x: g * 3 * x**2 * (1 + 0.03 * torch.sin(40 * x)))


def solved(x):
    """What stops the solver is detached, and goes nowhere."""
    return inexact(x) * (x.detach().norm() < 1e3)


def test_rtol_excuses_nothing_that_is_cut_off():
    torch.manual_seed(0)
    w = torch.randn(3, 1, dtype=torch.float64, requires_grad=True)
    found = diagnose(meta, w, rtol=0.2)
    assert not found.ok and found.findings[0].code == "steps_in_fn"
    assert "create_graph" in found.findings[0].message and "rtol=" in found.findings[0].message


def test_rtol_excuses_a_solver():
    """The detach is told, all the same."""
    point = torch.linspace(0.5, 2, 8, dtype=torch.float64, requires_grad=True)
    plain, told = (diagnose(f, point, rtol=0.1) for f in (inexact, solved))
    assert plain.verdict == told.verdict, told
    assert "steps_in_fn" not in [f.code for f in told.findings if f.severity == "error"]
