"""Sparse and masked softmax, scans, attention and their losses."""

import torch

from ..listed import listed, load, normal, simple, uniform


def scores():
    return normal(3, 5, scale=0.7)


def with_last_axis(apply):
    return lambda x: apply(x, -1)


def sparsemax_by_sorting(x):
    """Martins and Astudillo, "From Softmax to Sparsemax", 2016, algorithm 1."""
    z = x.sort(dim=-1, descending=True).values
    k = torch.arange(1, x.shape[-1] + 1, dtype=x.dtype)
    size = (1 + k * z > z.cumsum(-1)).sum(-1, keepdim=True)
    tau = (z.cumsum(-1).gather(-1, size - 1) - 1) / size
    return (x - tau).clamp(min=0)


simple(
    "entmax", "entmax.activations.SparsemaxFunction", -1, x=scores, reference=sparsemax_by_sorting
)
simple("entmax", "entmax.activations.Entmax15Function", -1, x=scores)
simple(
    "entmax",
    "entmax.root_finding.SparsemaxBisectFunction",
    -1,
    x=scores,
    reference=sparsemax_by_sorting,
)
simple("entmax", "entmax.root_finding.NormmaxBisectFunction", 2, -1, x=scores)
simple("entmax", "entmax.root_finding.BudgetBisectFunction", 2, -1, x=scores)


@listed("entmax", "entmax.root_finding.EntmaxBisectFunction")
def entmax_bisect():
    """With an alpha that is learned; scores so near to each other that no probability is 0."""
    apply = load("entmax.root_finding.EntmaxBisectFunction").apply
    alpha = uniform(3, 1, low=1.2, high=1.6)
    return lambda x, alpha: apply(x, alpha, -1, 60), [normal(3, 5, seed=1, scale=0.2), alpha]


for loss in (
    "SparsemaxLossFunction",
    "SparsemaxBisectLossFunction",
    "Entmax15LossFunction",
    "EntmaxBisectLossFunction",
    "NormmaxBisectLossFunction",
):

    def make(loss=loss):
        apply = load(f"entmax.losses.{loss}").apply
        return lambda x: apply(x, torch.tensor([0, 2, 4])), [scores()]

    listed("entmax", f"entmax.losses.{loss}")(make)

simple(
    "sparsemax",
    "sparsemax.sparsemax.SparsemaxFunction",
    -1,
    x=scores,
    reference=sparsemax_by_sorting,
)


@listed("transformers", "transformers.models.sew_d.modeling_sew_d.XSoftmax")
def xsoftmax():
    apply = load("transformers.models.sew_d.modeling_sew_d.XSoftmax").apply
    mask = torch.ones(3, 5, dtype=torch.int)
    mask[0, 1] = mask[2, 4] = 0

    def reference(x):
        return x.masked_fill(mask == 0, -torch.inf).softmax(-1)

    return lambda x: apply(x, mask, -1), [scores()], reference


@listed("kornia", "kornia.losses.focal._TargetLogSoftmax", bare=True)
def target_log_softmax():
    apply = load("kornia.losses.focal._TargetLogSoftmax").apply
    target = torch.tensor([[[[0, 1]]], [[[2, 0]]]])

    def reference(x):
        return x.log_softmax(1).gather(1, target)

    return lambda x: apply(x, target, None), [normal(2, 3, 1, 2)], reference


@listed("mambapy", "mambapy.pscan.PScan")
def pscan():
    apply = load("mambapy.pscan.PScan").apply

    def reference(a, x):
        h, out = torch.zeros_like(x[:, 0]), []
        for t in range(x.shape[1]):
            h = a[:, t] * h + x[:, t]
            out.append(h)
        return torch.stack(out, 1)

    return apply, [uniform(1, 4, 2, 2), normal(1, 4, 2, 2, seed=1)], reference


@listed(
    "transformers", "transformers.models.phimoe.modeling_phimoe.PhimoeMultiplier", surrogate=True
)
def phimoe():
    apply = load("transformers.models.phimoe.modeling_phimoe.PhimoeMultiplier").apply

    def fn(scores):
        gates = scores.softmax(-1)
        chosen = gates.argmax(-1, keepdim=True)
        return apply(scores, gates.gather(-1, chosen), chosen, gates, torch.ones(3, 1))

    return fn, [normal(3, 4)]


@listed("transformers", "transformers.models.reformer.modeling_reformer.ReverseSort")
def reverse_sort():
    apply = load("transformers.models.reformer.modeling_reformer.ReverseSort").apply
    order = torch.tensor([[[2, 0, 3, 1]]])
    back = order.argsort(-1)

    def reference(v, logits):
        return v[:, :, back[0, 0]], logits[:, :, back[0, 0]]

    inputs = [normal(1, 1, 4, 2), normal(1, 1, 4, seed=1)]
    return lambda v, logits: apply(v, logits, order, back), inputs, reference


@listed("pysdtw", "pysdtw.sdtw_cpu.SoftDTWcpu")
def soft_dtw():
    apply = load("pysdtw.sdtw_cpu.SoftDTWcpu").apply

    def fn(d):
        gamma = torch.tensor([0.5], dtype=d.dtype)
        lengths = torch.tensor([[3, 4], [3, 4]])
        return apply(d, lengths, gamma, torch.tensor([0.0], dtype=d.dtype))

    def reference(d):
        r = {(0, 0): d.new_zeros(d.shape[0])}
        n, m = d.shape[1:]
        far = d.new_full((d.shape[0],), torch.inf)
        for i in range(1, n + 1):
            for j in range(1, m + 1):
                near = [r.get(k, far) for k in ((i - 1, j - 1), (i - 1, j), (i, j - 1))]
                near = torch.stack([v for v in near if v is not far])
                r[i, j] = d[:, i - 1, j - 1] - 0.5 * torch.logsumexp(-near / 0.5, 0)
        return r[n, m]

    return fn, [uniform(2, 3, 4)], reference


@listed("torchlpc", "torchlpc.core.LPC")
def lpc():
    apply = load("torchlpc.core.LPC").apply

    def reference(x, a, zi):
        y = [zi[:, 1], zi[:, 0]]
        for t in range(x.shape[1]):
            y.append(x[:, t] - a[:, t, 0] * y[-1] - a[:, t, 1] * y[-2])
        return torch.stack(y[2:], 1)

    inputs = [normal(1, 5), normal(1, 5, 2, seed=1, scale=0.3), normal(1, 2, seed=2)]
    return apply, inputs, reference
