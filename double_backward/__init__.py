"""Second derivatives through custom PyTorch autograd Functions: right, silently wrong, or missing?

    diagnose(fn, *inputs)           one Function or model: whether, why, and what to do
    diagnose_all(step)              every custom Function that a training step applies
    assert_double_backward, assert_all_double_backward
                                    the same for your own tests
    detect_intermediates()          a context: a second derivative that would be wrong raises
    recompute_intermediates()       a context: one that would be wrong is made right, or it raises
                                    or warns
    draw, draw_backward             the autograd graph as a picture with words

They are loaded on first use, so that importing this package costs and changes nothing. From a
shell: `python -m double_backward train.py`, `pytest --double-backward=detect`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what `__getattr__` finds, for editors and type checkers
    from .diagnosis import Diagnosis as Diagnosis
    from .diagnosis import Finding as Finding
    from .diagnosis import Verdict as Verdict
    from .diagnosis import assert_double_backward as assert_double_backward
    from .diagnosis import diagnose as diagnose
    from .diagnosis.training_steps.training_step import StepDiagnosis as StepDiagnosis
    from .diagnosis.training_steps.training_step import (
        assert_all_double_backward as assert_all_double_backward,
    )
    from .diagnosis.training_steps.training_step import diagnose_all as diagnose_all
    from .graphs import Drawing as Drawing
    from .graphs import draw as draw
    from .graphs import draw_backward as draw_backward
    from .remedies import SecondDerivativeError as SecondDerivativeError
    from .remedies import UncheckedFunctionWarning as UncheckedFunctionWarning
    from .remedies import detect_intermediates as detect_intermediates
    from .remedies import recompute_intermediates as recompute_intermediates

__version__ = "0.2.0"

_MODULE_OF = {
    "draw": "graphs",
    "draw_backward": "graphs",
    "Drawing": "graphs",
    "diagnose": "diagnosis",
    "assert_double_backward": "diagnosis",
    "Diagnosis": "diagnosis",
    "Finding": "diagnosis",
    "Verdict": "diagnosis",
    "diagnose_all": "diagnosis.training_steps.training_step",
    "assert_all_double_backward": "diagnosis.training_steps.training_step",
    "StepDiagnosis": "diagnosis.training_steps.training_step",
    "detect_intermediates": "remedies",
    "recompute_intermediates": "remedies",
    "SecondDerivativeError": "remedies",
    "UncheckedFunctionWarning": "remedies",
}

__all__ = list(_MODULE_OF)


if not TYPE_CHECKING:  # else a type checker believes that every name exists

    def __getattr__(name: str) -> Any:
        if name not in _MODULE_OF:
            raise AttributeError(f"module 'double_backward' has no attribute '{name}'")
        try:
            return getattr(import_module(f"double_backward.{_MODULE_OF[name]}"), name)
        except AttributeError as error:  # `from double_backward import ...` would swallow it
            raise ImportError(
                f"double_backward cannot be loaded: {error}. Where that is a name of torch, use "
                "another torch, or a newer double_backward, and report this text to its authors."
            ) from error


def __dir__() -> list[str]:
    return sorted([*(name for name in globals() if name.startswith("__")), *__all__])
