"""Linear, quaternion and graph layers."""

import torch

from ..listed import listed, load, normal, uniform


def quaternion_matrix(r, i, j, k):
    rows = [(r, -i, -j, -k), (i, r, -k, j), (j, k, r, -i), (k, -j, i, r)]
    return torch.cat([torch.cat(row, 0) for row in rows], 1)


def quaternion_linear(x, r, i, j, k, bias):
    return x @ quaternion_matrix(r, i, j, k) + bias


def quaternion_inputs():
    return [normal(3, 4), *(normal(1, 1, seed=n) for n in range(1, 5)), normal(4, seed=5)]


@listed(
    "speechbrain",
    "speechbrain.nnet.quaternion_networks.q_ops.QuaternionLinearCustomBackward",
    bare=True,
)
def speechbrain():
    apply = load("speechbrain.nnet.quaternion_networks.q_ops.QuaternionLinearCustomBackward").apply
    return apply, quaternion_inputs(), quaternion_linear


@listed("quatnet", "QuatNet.quaternion_ops.QuaternionLinearFunction", bare=True)
def quatnet():
    apply = load("QuatNet.quaternion_ops.QuaternionLinearFunction").apply
    return apply, quaternion_inputs(), quaternion_linear


@listed("optimum-quanto", "optimum.quanto.tensor.function.QuantizedLinearFunction", bare=True)
def quanto_linear():
    apply = load("optimum.quanto.tensor.function.QuantizedLinearFunction").apply

    return (
        apply,
        [normal(2, 3), normal(4, 3, seed=1), normal(4, seed=2)],
        torch.nn.functional.linear,
    )


def adam(name):
    """The fused Adam of a differentiable optimiser; its gradient is what meta-learning needs."""

    def make():
        operations = load("torchopt.accelerated_op.adam_op.AdamOp")
        apply = getattr(operations, name).apply
        gradient, moment = normal(2, 3), normal(2, 3, seed=1)
        if name == "UpdatesOp":
            mu, nu = normal(2, 3, seed=1), uniform(2, 3, low=0.5, high=1.5)
            constants = (0.9, 0.999, 1e-8, 0.0, 3)

            def reference(mu, nu):
                return mu / (1 - 0.9**3) / ((nu / (1 - 0.999**3)).sqrt() + 1e-8)

            return lambda mu, nu: apply(mu * 1, nu * 1, constants), [mu, nu], reference
        beta, power = (0.9, 1) if name == "MuOp" else (0.999, 2)

        def reference(g, m):
            return beta * m + (1 - beta) * g**power

        return lambda g, m: apply(g * 1, m * 1, beta), [gradient, moment], reference

    listed("torchopt", f"torchopt.accelerated_op.adam_op.AdamOp.{name}")(make)


for name in ("MuOp", "NuOp", "UpdatesOp"):
    adam(name)
