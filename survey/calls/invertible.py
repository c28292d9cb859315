"""Invertible layers and checkpoints: activations computed again in backward."""

import torch

from ..listed import listed, load, normal


def layer(seed, size=2):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(size, size), torch.nn.Tanh()).double()


def convolution(seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Conv1d(2, 2, 1), torch.nn.Tanh()).double()


def additive(x, f, g, dim=1):
    x1, x2 = x.chunk(2, dim)
    y1 = x1 + f(x2)
    return torch.cat([y1, x2 + g(y1)], dim)


def memcnn(name):
    def make():
        apply = load(f"memcnn.models.additive.{name}").apply
        f, g = convolution(0), convolution(1)
        weights = [*f.parameters(), *g.parameters()]
        return lambda x: apply(x, f, g, *weights), [normal(1, 4, 3)], lambda x: additive(x, f, g)

    listed("memcnn", f"memcnn.models.additive.{name}")(make)


memcnn("AdditiveBlockFunction")
memcnn("AdditiveBlockFunction2")


def memcnn_affine(name):
    def make():
        from memcnn.models.affine import AffineAdapterNaive

        apply = load(f"memcnn.models.affine.{name}").apply
        f, g = AffineAdapterNaive(convolution(0)), AffineAdapterNaive(convolution(1))
        weights = [*f.parameters(), *g.parameters()]

        def reference(x):
            x1, x2 = x.chunk(2, 1)
            scale, shift = f(x2)
            y1 = x1 * scale + shift
            scale, shift = g(y1)
            return torch.cat([y1, x2 * scale + shift], 1)

        return lambda x: apply(x, f, g, *weights), [normal(1, 4, 3)], reference

    listed("memcnn", f"memcnn.models.affine.{name}")(make)


memcnn_affine("AffineBlockFunction")
memcnn_affine("AffineBlockFunction2")


@listed("memcnn", "memcnn.models.revop.InvertibleCheckpointFunction")
def memcnn_checkpoint():
    from memcnn import AdditiveCoupling, InvertibleModuleWrapper

    f, g = convolution(0), convolution(1)
    wrapper = InvertibleModuleWrapper(AdditiveCoupling(f, g), keep_input=True)
    return lambda x: wrapper(x * 1), [normal(1, 4, 3)], lambda x: additive(x, f, g)


@listed("revtorch", "revtorch.revtorch._ReversibleModuleFunction")
def revtorch():
    from revtorch import ReversibleBlock, ReversibleSequence

    f, g = convolution(0), convolution(1)
    sequence = ReversibleSequence(torch.nn.ModuleList([ReversibleBlock(f, g)]))
    return lambda x: sequence(x), [normal(1, 4, 3)], lambda x: additive(x, f, g)


@listed("reformer-pytorch", "reformer_pytorch.reversible._ReversibleFunction", bare=True)
def reformer():
    sequence = load("reformer_pytorch.reversible.ReversibleSequence")
    f, g = layer(0), layer(1)
    blocks = sequence(torch.nn.ModuleList([torch.nn.ModuleList([f, g])]))
    return (
        lambda x: blocks(x, arg_route=(False, False)),
        [normal(1, 3, 4)],
        lambda x: additive(x, f, g, -1),
    )


@listed("performer-pytorch", "performer_pytorch.reversible._ReversibleFunction", bare=True)
def performer():
    sequence = load("performer_pytorch.reversible.ReversibleSequence")
    f, g = layer(0), layer(1)
    blocks = sequence(torch.nn.ModuleList([torch.nn.ModuleList([f, g])]))

    def reference(x):
        """The sequence doubles its input, and adds the two halves of what comes out."""
        y1, y2 = additive(torch.cat([x, x], -1), f, g, -1).chunk(2, -1)
        return y1 + y2

    return lambda x: blocks(x), [normal(1, 3, 2)], reference


@listed("invtorch", "invtorch.utils.checkpoint.CheckpointFunction")
def invtorch():
    checkpoint = load("invtorch.utils.checkpoint.checkpoint")

    f = layer(0, 3)
    return lambda x: checkpoint(f, x, seed=True), [normal(2, 3)], f


@listed("fairscale", "fairscale.nn.checkpoint.checkpoint_activations.CheckpointFunction")
def fairscale():
    from fairscale.nn import checkpoint_wrapper

    f = layer(0, 3)
    wrapped = checkpoint_wrapper(layer(0, 3))
    return lambda x: wrapped(x), [normal(2, 3)], f


@listed(
    "liger-kernel",
    "liger_kernel.ops.tiled_mlp.LigerTiledMLPFunction",
    bare=True,
    absent=("triton",),
)
def tiled_mlp():
    apply = load("liger_kernel.ops.tiled_mlp.LigerTiledMLPFunction").apply
    mlp = layer(0, 3)
    return lambda x: apply(lambda m, x: m(x), mlp, x, 2), [normal(1, 4, 3)], mlp


@listed("normflows", "normflows.flows.residual.MemoryEfficientLogDetEstimator")
def logdet_estimator():
    """The log determinant of I + dg/dx by two terms of its series, with fixed probe vectors."""
    from normflows.flows import residual

    apply = residual.MemoryEfficientLogDetEstimator.apply
    g, probe = layer(0, 3), normal(2, 3, seed=1).detach()
    settings = (2, probe, lambda k: 1.0, True)

    def fn(x):
        return apply(residual.basic_logdet_estimator, g, x, *settings, *g.parameters())

    def reference(x):
        x = x * 1
        y = g(x)
        return y, residual.basic_logdet_estimator(y, x, *settings)

    return fn, [normal(2, 3)], reference


@listed("transformers", "transformers.loss.loss_lsd._InputOnlyGrad")
def input_only():
    apply = load("transformers.loss.loss_lsd._InputOnlyGrad").apply
    return lambda x: apply(x, torch.sin), [normal(2, 3)], torch.sin
