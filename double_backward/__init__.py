"""Second derivatives through custom PyTorch autograd Functions: right, silently wrong, or missing?

    diagnose(fn, *inputs)           one Function or model: whether, why, and what to do
    assert_double_backward          the same for your own tests
    diagnose_all(step)              every custom Function that a training step applies
    detect_intermediates()          a context: a second derivative that would be wrong raises
    recompute_intermediates()       a context: it is made right, or it raises
    draw, draw_backward             the autograd graph as a picture with words

They are loaded on first use, so that importing this package costs and changes nothing.
"""

from importlib import import_module

__version__ = "0.2.0"

_MODULE_OF = {
    "draw": "graphs",
    "draw_backward": "graphs",
    "diagnose": "diagnosis",
    "assert_double_backward": "diagnosis",
    "Diagnosis": "diagnosis",
    "Finding": "diagnosis",
    "Verdict": "diagnosis",
    "diagnose_all": "diagnosis.step",
    "assert_all_double_backward": "diagnosis.step",
    "StepDiagnosis": "diagnosis.step",
    "detect_intermediates": "remedies",
    "recompute_intermediates": "remedies",
    "SecondDerivativeError": "remedies",
}

__all__ = list(_MODULE_OF)


def __getattr__(name):
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'double_backward' has no attribute '{name}'")
    return getattr(import_module(f"double_backward.{_MODULE_OF[name]}"), name)


def __dir__():
    return sorted([*globals(), *__all__])
