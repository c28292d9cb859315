"""Importing this package fills the list; one module a field."""

from . import (
    activations,
    attention,
    equations,
    gaussian_processes,
    invertible,
    layers,
    linear_algebra,
    operators,
    probability,
    quantization,
    rotations,
    spikes,
    torch_itself,
    transforms,
)

__all__ = [
    "activations",
    "attention",
    "equations",
    "gaussian_processes",
    "invertible",
    "layers",
    "linear_algebra",
    "operators",
    "probability",
    "quantization",
    "rotations",
    "spikes",
    "torch_itself",
    "transforms",
]
